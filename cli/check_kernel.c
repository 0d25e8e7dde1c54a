/* check_kernel.c -- every kernel against the reference, in every layout and for every choice of gradients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "check.h"
#include "values.h"

/* Elements: above SMALL nothing repeated, above LARGE only plain variants, and each gradient on one target at most */
enum { SMALL = 1500, LARGE = 3000 };

exec prepare(const probe *p, layout how) {
  exec e = {.op = trial_op(p->t, p->pass), .skew = how == AS_GIVEN ? 0 : 3};
  layout_apply_op(&e.op, how);
  for (int s = 0; s < AMBI_SLOTS; s++) e.in[s] = p->t->in[s];
  for (int s = 0; s < p->t->info->slots; s++) /* backward may read what forward wrote */
    if (p->pass == AMBI_BACKWARD && (p->t->outputs & AMBI_BIT(s))) e.in[s] = p->t->ref[s];
  return e;
}

void finish(const probe *p, exec *e, const char *label) {
  exec_run(p->dev, e);
  judge(p->g, p->t, p->dev, e, p->t->ref, label);
  exec_free(e);
}

static void try_layouts(const probe *p) {
  for (int how = AS_GIVEN; how < LAYOUTS; how++) {
    if (p->t->n > LARGE && how > PADDED) return;
    exec e = prepare(p, (layout)how);
    finish(p, &e, layout_name[how]);
  }
}

/* ---- which gradients ---- */
/* The same once more */
static exec like(const exec *given) {
  exec e = {.op = given->op, .skew = given->skew};
  for (int s = 0; s < AMBI_SLOTS; s++) e.in[s] = given->in[s];
  return e;
}

/* Each gradient without the others; before: what is said of it first */
static void try_alone(const probe *p, const exec *given, double *const *ref, const char *before) {
  const uint32_t all = p->t->differentiable;
  char label[128], name[48];
  for (int s = 0; s < p->t->info->slots && (all & (all - 1)) && p->each; s++) {
    if (!(all & AMBI_BIT(s))) continue;
    exec alone = like(given);
    alone.op.want = AMBI_BIT(s);
    exec_run(p->dev, &alone);
    snprintf(label, sizeof label, "%s%s alone", before, slot_name(&p->t->op, AMBI_GRAD(s), name, sizeof name));
    judge(p->g, p->t, p->dev, &alone, ref, label);
    exec_free(&alone);
  }
}

static void try_added(const probe *p, uint32_t which, layout how, const char *label) {
  exec added = prepare(p, how);
  added.op.accumulate = which;
  finish(p, &added, label);
}

static void try_wants(const probe *p) {
  const exec given = prepare(p, AS_GIVEN);
  char label[64], name[48];
  try_alone(p, &given, p->t->ref, "");
  for (int s = 0; s < p->t->info->slots && p->each; s++) {
    if (!(p->t->differentiable & AMBI_BIT(s))) continue;
    snprintf(label, sizeof label, "%s +=", slot_name(&p->t->op, AMBI_GRAD(s), name, sizeof name));
    try_added(p, AMBI_BIT(s), AS_GIVEN, label);
  }
  try_added(p, p->t->differentiable, PADDED, "padded, all +=");
  if (p->t->n <= LARGE) try_added(p, p->t->differentiable, ASSORTED, "assorted, all +=");
}

/* ---- memory that is shared ---- */
static ambi_tensor tensor_of(const ambi_op *op, int slot) {
  int s = slot % AMBI_MAX_PRIMALS;
  return slot == s || op->grad[s].dtype == AMBI_NONE ? op->t[s] : op->grad[s];
}

static int same_view(const ambi_tensor *a, const ambi_tensor *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->dtype == AMBI_NONE || ambi_numel(a) == 0) return 0;
  if (values_overlap(a)) return 0;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i] || a->stride[i] != b->stride[i]) return 0;
  return 1;
}

/* Whether output `out` can lie on input `in`: both take part in this pass and are the same view. */
static int can_share(const probe *p, const exec *e, int out, int in) {
  uint32_t written = p->pass == AMBI_FORWARD ? p->t->outputs : p->t->differentiable;
  ambi_tensor a = tensor_of(&e->op, out), b = tensor_of(&e->op, in);
  if ((out >= AMBI_MAX_PRIMALS) != (p->pass == AMBI_BACKWARD)) return 0;
  return (written & AMBI_BIT(out % AMBI_MAX_PRIMALS)) && e->in[in] && same_view(&a, &b);
}

/* ---- saved outputs: forward's own answer is read by backward instead of being computed again ---- */
/* A gradient in place of a saved output, where the op lists that. */
static void try_over_saved(const probe *p, const exec *given, uint32_t saved, double *const *ref) {
  char label[128], a[48], b[48];
  for (const int8_t(*pair)[2] = p->t->info->in_place; pair && (*pair)[0] >= 0; pair++) {
    int out = (*pair)[0], in = (*pair)[1];
    exec e = like(given);
    if (in >= AMBI_MAX_PRIMALS || !(saved & AMBI_BIT(in)) || !can_share(p, &e, out, in)) continue;
    e.share[out] = (int8_t)(in + 1);
    exec_run(p->dev, &e);
    snprintf(label, sizeof label, "%s in place of saved %s", slot_name(&e.op, out, a, sizeof a),
             slot_name(&e.op, in, b, sizeof b));
    judge(p->g, p->t, p->dev, &e, ref, label);
    exec_free(&e);
  }
}

void try_saved(const probe *p, uint32_t saved, const char *label) {
  probe fore = *p;
  fore.pass = AMBI_FORWARD;
  exec f = prepare(&fore, AS_GIVEN), e = prepare(p, AS_GIVEN), r = {.op = trial_reference_op(p->t, AMBI_BACKWARD)};
  f.op.want = saved;
  exec_run(p->dev, &f);
  for (int s = 0; s < AMBI_SLOTS; s++) r.in[s] = e.in[s];
  for (int s = 0; s < p->t->info->slots; s++) {
    if (!(saved & AMBI_BIT(s) & f.writes)) continue;
    e.op.t[s] = r.op.t[s] = f.t[s];
    e.in[s] = r.in[s] = f.out[s];
    if (value_is_float(f.t[s].dtype)) case_set_dense(&r.op.t[s], AMBI_F64);
  }
  exec_run(&p->g->ck->ref, &r);
  if (f.status != AMBI_OK) {
    judge(p->g, p->t, p->dev, &f, p->t->ref, label);
  } else if (r.status != AMBI_OK) {
    group_fail(p->g, p->t->text, r.kernel, "[%s] the reference cannot read what forward saved: %s", label, r.error);
  } else {
    exec_run(p->dev, &e);
    judge(p->g, p->t, p->dev, &e, r.out, label);
    exec_free(&e);
    try_over_saved(p, &e, saved, r.out);
    if (p->t->n <= LARGE) try_alone(p, &e, r.out, "from what is saved, ");
  }
  exec_free(&f);
  exec_free(&r);
}

static void try_each_saved(const probe *p) {
  uint32_t saved = 0, gone = 0;
  char label[64], name[48];
  for (int s = 0; s < p->t->info->slots; s++) {
    if (!(p->t->info->slot[s].flags & AMBI_SLOT_SAVED)) continue;
    ambi_op op = trial_op(p->t, AMBI_FORWARD);
    op.want = AMBI_BIT(s);
    if (ambi_check(p->dev->dev, &op) != AMBI_OK) gone |= AMBI_BIT(s); /* such as a sum of one term */
    saved |= AMBI_BIT(s);
  }
  saved &= ~gone;
  if (p->t->n > LARGE && p->dev != p->g->ck->targets) return; /* the reference would have to run once more */
  if (saved) try_saved(p, saved, "all saved outputs");
  for (int s = 0; s < p->t->info->slots && (saved & (saved - 1)) && p->t->n <= LARGE; s++) {
    if (!(saved & AMBI_BIT(s))) continue;
    snprintf(label, sizeof label, "saved %s", slot_name(&p->t->op, s, name, sizeof name));
    try_saved(p, AMBI_BIT(s), label);
  }
}

/* ---- in place, and overlaps that are refused ---- */
static void try_in_place(const probe *p) {
  char label[128], a[48], b[48];
  exec all = prepare(p, AS_GIVEN);
  int shared = 0;
  uint32_t taken = 0;
  for (const int8_t(*pair)[2] = p->t->info->in_place; pair && (*pair)[0] >= 0; pair++) {
    int out = (*pair)[0], in = (*pair)[1];
    for (int how = AS_GIVEN; how <= PADDED && p->t->n <= LARGE; how++) {
      exec e = prepare(p, (layout)how);
      if (!can_share(p, &e, out, in)) continue;
      e.share[out] = (int8_t)(in + 1);
      snprintf(label, sizeof label, "%s, %s in place of %s", layout_name[how], slot_name(&e.op, out, a, sizeof a),
               slot_name(&e.op, in, b, sizeof b));
      finish(p, &e, label);
    }
    if (!can_share(p, &all, out, in) || all.share[out] || (taken & AMBI_BIT(in))) continue;
    all.share[out] = (int8_t)(in + 1);
    taken |= AMBI_BIT(in);
    shared++;
  }
  if (shared > 1) finish(p, &all, "all in place");
}

static int listed(const ambi_op_info *info, int out, int in) {
  for (const int8_t(*pair)[2] = info->in_place; pair && (*pair)[0] >= 0; pair++)
    if ((*pair)[0] == out && (*pair)[1] == in) return 1;
  return 0;
}

/* An overlap the op does not list, or one element off, must be refused by ambi_run. */
static void try_overlaps(const probe *p) {
  char a[48], b[48];
  for (int out = 0; out < AMBI_SLOTS; out++)
    for (int in = 0; in < AMBI_SLOTS; in++) {
      exec e = prepare(p, AS_GIVEN);
      if (out == in || !can_share(p, &e, out, in) || e.op.kind == AMBI_FILL) continue;
      ambi_tensor t = tensor_of(&e.op, out);
      if (listed(p->t->info, out, in) && ambi_numel(&t) < 2) continue;
      e.share[out] = (int8_t)(in + 1);
      if (listed(p->t->info, out, in)) e.offset[out] = ambi_dtype_size(t.dtype);
      exec_run(p->dev, &e);
      if (e.status == AMBI_INVALID)
        group_pass(p->g, 0);
      else if (e.status == AMBI_OK && ((e.reads | e.writes) & AMBI_BIT(in)))
        group_fail(p->g, p->t->text, e.kernel, "[%s] %s may lie over %s%s, which the op does not list as in place",
                   p->dev->name, slot_name(&e.op, out, a, sizeof a), slot_name(&e.op, in, b, sizeof b),
                   e.offset[out] ? " one element off" : "");
      exec_free(&e);
    }
}

/* v and g as the halves of one packed tensor, dv and dg as those of another. */
static void try_packed(const probe *p) {
  const ambi_tensor *v = &p->t->op.t[AMBI_GATED_V], *g = &p->t->op.t[AMBI_GATED_G];
  char label[64];
  if (p->t->op.kind != AMBI_GATED || !same_view(v, g)) return;
  for (int axis = 0; axis < v->ndim; axis++) {
    exec e = prepare(p, AS_GIVEN);
    if (e.op.grad[AMBI_GATED_V].dtype != e.op.grad[AMBI_GATED_G].dtype) return;
    ambi_tensor packed = *v;
    uint64_t first, second;
    packed.shape[axis] *= 2;
    case_set_dense(&packed, v->dtype);
    e.op.t[AMBI_GATED_V] = ambi_split(&packed, axis, 0, &first);
    e.op.t[AMBI_GATED_G] = ambi_split(&packed, axis, 1, &second);
    e.share[AMBI_GATED_G] = 1 + AMBI_GATED_V;
    e.offset[AMBI_GATED_G] = second - first;
    if (e.op.grad[AMBI_GATED_V].dtype == AMBI_NONE) {
      e.share[AMBI_GRAD(AMBI_GATED_G)] = 1 + AMBI_GRAD(AMBI_GATED_V);
      e.offset[AMBI_GRAD(AMBI_GATED_G)] = second - first;
    }
    snprintf(label, sizeof label, "packed along axis %d", axis);
    finish(p, &e, label);
  }
}

/* ---- repeated inputs ---- */
/* Ops for which the gradient of a repeated input may be repeated too, and is then the sum. */
static int sums_gradients(ambi_kind k) {
  return k == AMBI_UNARY || k == AMBI_GATED || k == AMBI_ADD || k == AMBI_CAST || k == AMBI_COPY;
}

static void try_repeated(const probe *p, int slot, const char *label) {
  int stretched = p->pass == AMBI_BACKWARD && (p->t->differentiable & AMBI_BIT(slot % AMBI_MAX_PRIMALS));
  exec e = prepare(p, AS_GIVEN);
  if (stretched && e.op.grad[slot].dtype == AMBI_NONE) { /* the gradient inherits the stride of 0 */
    exec_run(p->dev, &e);
    if (sums_gradients(p->t->op.kind))
      judge(p->g, p->t, p->dev, &e, p->t->ref, label);
    else if (e.status == AMBI_INVALID || e.status == AMBI_UNSUPPORTED)
      group_pass(p->g, 0);
    else
      group_fail(p->g, p->t->text, e.kernel, "[%s, %s] a gradient with stride 0 is not refused", p->dev->name, label);
    exec_free(&e);
    e = prepare(p, AS_GIVEN);
    e.op.grad[slot] = e.op.t[slot];
    case_set_dense(&e.op.grad[slot], e.op.t[slot].dtype);
  }
  finish(p, &e, label);
}

/* ---- all of it ---- */
static void probe_all(const probe *p, int thorough) {
  try_layouts(p);
  try_in_place(p);
  try_packed(p);
  if (thorough) try_overlaps(p);
  if (p->pass == AMBI_FORWARD) return;
  try_wants(p);
  try_each_saved(p);
}

/* Backward above reads what the device has saved, right or wrong: here is the case again, with all that forward can
 * save among its outputs. */
static void check_saved(group *g, const char *text, const mix *m, const trial *t) {
  checker *ck = g->ck;
  trial more;
  char longer[1024], err[400];
  size_t used = (size_t)snprintf(longer, sizeof longer, "%s", text), said = used;
  for (int s = 0; s < t->info->slots; s++) {
    ambi_op op = trial_op(t, AMBI_FORWARD);
    op.want = AMBI_BIT(s);
    if (!(t->info->slot[s].flags & AMBI_SLOT_SAVED) || op.t[s].dtype || ambi_check(ck->ref.dev, &op)) continue;
    if (used < sizeof longer)
      used += (size_t)snprintf(longer + used, sizeof longer - used, " %s", t->info->slot[s].name);
  }
  if (used == said || used >= sizeof longer) return;
  if (trial_make(&ck->ref, longer, m, (uint64_t)ck->seed, -1, 0, &more, err, sizeof err) == AMBI_OK) {
    for (int i = 0; i < ck->target_count; i++) {
      const probe p = {g, &ck->targets[i], &more, AMBI_FORWARD, 0};
      exec e = prepare(&p, AS_GIVEN);
      finish(&p, &e, "what forward saves");
    }
  } else {
    group_fail(g, longer, "", "what forward saves: %s", err);
  }
  trial_free(&more);
}

static void check_repeated(group *g, const char *text, const mix *m, int slot, int axis) {
  trial t;
  char err[400], label[96], name[48];
  checker *ck = g->ck;
  if (trial_make(&ck->ref, text, m, (uint64_t)ck->seed, slot, axis, &t, err, sizeof err) == AMBI_OK) {
    snprintf(label, sizeof label, "%s repeated along %s %d", slot_name(&t.op, slot, name, sizeof name),
             axis == ALL_AXES ? "all axes of" : "axis", axis == ALL_AXES ? t.op.t[slot % AMBI_MAX_PRIMALS].ndim : axis);
    for (int i = 0; i < ck->target_count; i++)
      for (int pass = slot >= AMBI_MAX_PRIMALS; pass <= (t.differentiable != 0); pass++)
        try_repeated(&(probe){&g[pass], &ck->targets[i], &t, (ambi_pass)pass, 0}, slot, label);
  } else {
    group_fail(g, text, "", "slot %d repeated along axis %d: %s", slot, axis, err);
  }
  trial_free(&t);
}

static void check_all_repeated(group *g, const char *text, const mix *m, const trial *t) {
  for (int s = 0; s < t->info->slots; s++) {
    const ambi_tensor *x = &t->op.t[s];
    int slot = t->inputs & AMBI_BIT(s) ? s : t->arriving & AMBI_BIT(s) ? AMBI_GRAD(s) : -1;
    if (slot < 0 || ambi_numel(x) < 2) continue;
    for (int a = 0; a < x->ndim; a++)
      if (x->shape[a] > 1) check_repeated(g, text, m, slot, a);
    if (x->ndim > 1) check_repeated(g, text, m, slot, ALL_AXES);
  }
}

void check_kernels(group *g, const char *text, const mix *m, int thorough) {
  trial t;
  char err[400];
  checker *ck = g->ck;
  const int slow = ck->quick || ck->dtype || !thorough;
  ambi_status s = trial_make(&ck->ref, text, m, (uint64_t)ck->seed, -1, 0, &t, err, sizeof err);
  if (s == AMBI_OK) {
    for (int i = 0; i < ck->target_count; i++)
      for (int pass = 0; pass <= (t.differentiable != 0); pass++)
        probe_all(&(probe){&g[pass], &ck->targets[i], &t, (ambi_pass)pass, t.n <= LARGE || (i == 0 && !slow)},
                  thorough && t.n <= SMALL);
    if (thorough && t.n <= SMALL) check_all_repeated(g, text, m, &t), check_saved(&g[0], text, m, &t);
  } else if (s == AMBI_UNSUPPORTED) {
    group_skip(g, err);
  } else {
    group_fail(g, text, "", "%s: %s", ambi_status_name(s), err);
  }
  trial_free(&t);
}
