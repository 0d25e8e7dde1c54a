/* trial.c -- from the text of a case to values and the reference's answer. */
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "values.h"

static uint32_t slots_with(const ambi_op_info *info, uint32_t flags, uint32_t value) {
  uint32_t mask = 0;
  for (int s = 0; s < info->slots; s++)
    if ((info->slot[s].flags & flags) == value) mask |= AMBI_BIT(s);
  return mask;
}

/* ---- dtypes ---- */
static ambi_dtype any_float(rng *r) {
  static const ambi_dtype floats[] = {AMBI_F32, AMBI_F16, AMBI_BF16, AMBI_F32, AMBI_BF16, AMBI_F16, AMBI_F32, AMBI_F64};
  return floats[rng_next(r) % 8];
}

static void choose_dtypes(trial *t, const mix *m, rng *r, const ambi_op *said) {
  for (int s = 0; s < t->info->slots; s++) {
    ambi_tensor *x = &t->op.t[s];
    int output = (t->info->slot[s].flags & AMBI_SLOT_OUTPUT) != 0, same = t->info->slot[s].flags & AMBI_SLOT_ANY_DTYPE;
    ambi_dtype d = m->any ? any_float(r) : s == 0 || output ? m->activation : m->parameter;
    ambi_dtype g = same ? AMBI_NONE : m->any ? any_float(r) : m->gradient; /* a copy keeps its dtype both ways */
    if (said->t[s].dtype == AMBI_NONE) continue;
    if (x->dtype == AMBI_NONE) x->dtype = d;
    if (!value_is_float(x->dtype)) t->differentiable &= ~AMBI_BIT(s);
    if (!(t->differentiable & AMBI_BIT(s)) || g == AMBI_NONE || t->op.grad[s].dtype != AMBI_NONE) continue;
    t->op.grad[s] = *x;
    case_set_dense(&t->op.grad[s], g);
  }
}

/* Which slots the case has; `said` is the case with a dtype everywhere, so that () can be told from nothing. */
static void find_slots(trial *t, const ambi_op *said) {
  uint32_t described = 0;
  for (int s = 0; s < t->info->slots; s++)
    if (said->t[s].dtype != AMBI_NONE) described |= AMBI_BIT(s);
  t->inputs = described & slots_with(t->info, AMBI_SLOT_OUTPUT, 0);
  t->differentiable = t->info->backward ? t->inputs & slots_with(t->info, AMBI_SLOT_NO_GRAD, 0) : 0;
}

/* Outputs as the library infers them from the inputs; required floating ones then get the dtype of the mix. */
static ambi_status infer_outputs(const target *ref, trial *t, const mix *m, rng *r) {
  ambi_plan *plan;
  ambi_status s = ambi_plan_create(ref->dev, &t->op, &plan);
  if (s != AMBI_OK) return s;
  uint32_t output = slots_with(t->info, AMBI_SLOT_OUTPUT, AMBI_SLOT_OUTPUT);
  uint32_t no_grad = slots_with(t->info, AMBI_SLOT_NO_GRAD, AMBI_SLOT_NO_GRAD);
  for (int i = 0; i < t->info->slots; i++) {
    ambi_tensor x = ambi_plan_tensor(plan, i);
    if (!(output & AMBI_BIT(i)) || x.dtype == AMBI_NONE) continue;
    int said = t->op.t[i].dtype != AMBI_NONE, required = !(t->info->slot[i].flags & AMBI_SLOT_OPTIONAL);
    t->outputs |= AMBI_BIT(i);
    t->op.t[i] = x;
    int free_choice = !(t->info->slot[i].flags & (AMBI_SLOT_NO_GRAD | AMBI_SLOT_ANY_DTYPE));
    if (!said && required && value_is_float(x.dtype) && free_choice)
      case_set_dense(&t->op.t[i], m->any ? any_float(r) : m->activation);
  }
  t->arriving = t->differentiable ? t->outputs & ~no_grad : 0;
  ambi_plan_destroy(plan);
  return AMBI_OK;
}

/* ---- values ---- */
int64_t first_along(const ambi_tensor *t, int axis, int64_t i) {
  int64_t inner = 1;
  for (int a = axis + 1; a < t->ndim; a++) inner *= t->shape[a];
  return i / (inner * t->shape[axis]) * (inner * t->shape[axis]) + i % inner;
}

/* What storage holds of v: rounded, and where strides make elements share memory (0 repeats one) the same value. */
static void settle(const ambi_tensor *x, double *v) {
  if (ambi_numel(x) <= 0) return;
  char *image = (char *)values_new(ambi_span(x) / (int64_t)sizeof(double) + 1), *at = image + values_origin(x);
  values_load(x, v, at);
  values_store(x, at, v);
  free(image);
}

static double *make_values(const trial *t, int slot, const ambi_tensor *x, uint64_t seed) {
  double *v = values_new(ambi_numel(x));
  values_fill(&t->op, slot, seed, v);
  settle(x, v);
  return v;
}

static void fill(trial *t, uint64_t seed) {
  for (int s = 0; s < t->info->slots; s++) {
    const ambi_tensor *x = &t->op.t[s], *g = t->op.grad[s].dtype != AMBI_NONE ? &t->op.grad[s] : x;
    if ((t->inputs | t->outputs) & AMBI_BIT(s) && ambi_numel(x) > t->n) t->n = ambi_numel(x);
    if (t->inputs & AMBI_BIT(s)) t->in[s] = make_values(t, s, x, seed);
    if ((t->differentiable | t->arriving) & AMBI_BIT(s)) t->in[AMBI_GRAD(s)] = make_values(t, AMBI_GRAD(s), g, seed);
  }
}

/* Inputs whose elements overlap, because the case says so, have gradients of their own layout. */
static void spread_gradients(trial *t) {
  for (int s = 0; s < t->info->slots; s++) {
    if (!(t->differentiable & AMBI_BIT(s)) || !values_overlap(&t->op.t[s]) || t->op.grad[s].dtype != AMBI_NONE)
      continue;
    t->op.grad[s] = t->op.t[s];
    case_set_dense(&t->op.grad[s], t->op.t[s].dtype);
  }
}

/* Slot `slot` (a primal or a gradient) is to be read with stride 0 along `axis`. */
static void repeat_axis(trial *t, int slot, int axis) {
  if (slot < 0) return;
  int primal = slot % AMBI_MAX_PRIMALS;
  ambi_tensor *x = slot == primal ? &t->op.t[primal] : &t->op.grad[primal];
  if (x->dtype == AMBI_NONE) *x = t->op.t[primal];
  for (int a = 0; a < x->ndim; a++)
    if (a == axis || axis == ALL_AXES) x->stride[a] = 0;
}

/* ---- ops ---- */
ambi_op trial_op(const trial *t, ambi_pass pass) {
  ambi_op op = t->op;
  op.pass = pass;
  op.want = 0;
  for (int s = 0; s < t->info->slots; s++) {
    int left_out = (t->info->slot[s].flags & (AMBI_SLOT_OPTIONAL | AMBI_SLOT_SAVED)) != 0;
    int output = (t->outputs & AMBI_BIT(s)) != 0;
    if (pass == AMBI_FORWARD) op.grad[s] = (ambi_tensor){0};
    if (pass == AMBI_FORWARD || !output || !left_out) continue;
    if ((t->arriving & AMBI_BIT(s)) && op.grad[s].dtype == AMBI_NONE) op.grad[s] = op.t[s];
    op.t[s] = (ambi_tensor){0};
  }
  return op;
}

ambi_op trial_reference_op(const trial *t, ambi_pass pass) {
  ambi_op op = trial_op(t, pass);
  for (int s = 0; s < t->info->slots; s++) {
    int keeps = s == 0 && t->flips >= 0 && pass == AMBI_FORWARD; /* its dtype says what to round to inside */
    if (value_is_float(op.t[s].dtype)) case_set_dense(&op.t[s], keeps ? op.t[s].dtype : AMBI_F64);
    if (value_is_float(op.grad[s].dtype)) case_set_dense(&op.grad[s], AMBI_F64);
  }
  return op;
}

int trial_reference(const target *ref, const trial *t, ambi_pass pass, double *const *in, exec *e) {
  *e = (exec){.op = trial_reference_op(t, pass)};
  for (int s = 0; s < AMBI_SLOTS; s++) e->in[s] = in[s];
  exec_run(ref, e);
  if (e->status == AMBI_OK && e->damage[0]) {
    e->status = AMBI_INVALID;
    snprintf(e->error, sizeof e->error, "the reference itself: %.300s", e->damage);
  }
  return e->status == AMBI_OK ? 0 : -1;
}

static ambi_status solve(const target *ref, trial *t, ambi_pass pass, char *err, size_t n) {
  exec e;
  if (trial_reference(ref, t, pass, t->in, &e)) {
    snprintf(err, n, "%s", e.error);
    exec_free(&e);
    return e.status;
  }
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!e.out[s]) continue;
    free(t->ref[s]);
    t->ref[s] = e.out[s]; /* now the trial's */
  }
  return AMBI_OK;
}

ambi_status trial_solve(const target *ref, trial *t, char *err, size_t n) {
  ambi_status s = solve(ref, t, AMBI_FORWARD, err, n);
  return s == AMBI_OK && t->differentiable ? solve(ref, t, AMBI_BACKWARD, err, n) : s;
}

/* Every case draws its own values: FNV-1a of its text. */
static uint64_t seed_of(const char *text, uint64_t seed) {
  uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return seed == CONSTANT ? seed : h;
}

ambi_status trial_make(const target *ref, const char *text, const mix *m, uint64_t seed, int repeat, int axis, trial *t,
                       char *err, size_t n) {
  rng r = {seed_of(text, seed)};
  ambi_op said;
  memset(t, 0, sizeof *t);
  t->text = text;
  if (case_parse(text, AMBI_NONE, &t->op, err, n) || case_parse(text, AMBI_F64, &said, err, n)) return AMBI_INVALID;
  t->info = ambi_op_get_info(t->op.kind);
  find_slots(t, &said);
  choose_dtypes(t, m, &r, &said);
  ambi_status s = infer_outputs(ref, t, m, &r);
  if (s != AMBI_OK) return snprintf(err, n, "%s", ambi_error()), s;
  t->flips = t->op.kind == AMBI_RMSNORM && t->op.u.rmsnorm.cast ? AMBI_RMSNORM_Y : -1;
  spread_gradients(t);
  repeat_axis(t, repeat, axis);
  fill(t, seed_of(text, seed));
  s = trial_solve(ref, t, err, n);
  if (s == AMBI_OK) trial_magnitudes(ref, t);
  if (seed == CONSTANT) t->by_norm = 0; /* terms of one sign, which cancel in all elements or in none */
  return s;
}

void trial_free(trial *t) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    free(t->in[s]);
    free(t->ref[s]);
    free(t->mag[s]);
    free(t->narrow[s]);
  }
  memset(t, 0, sizeof *t);
}
