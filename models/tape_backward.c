/* tape_backward.c -- the chain rule over what was written: from the last op to the first, each gets the gradients of
 * its outputs, which the ops after it have left in the twins, and leaves those of its inputs. */
#include <string.h>

#include "tape_parts.h"

/* ---- gradients ---- */

static int32_t twin_of(tape *t, int32_t store) {
  if (!t->store[store].twin) {
    int32_t twin = tape_add_store(t, (storage){.bytes = t->store[store].bytes});
    t->store[store].twin = twin; /* the list may have moved */
  }
  return t->store[store].twin;
}

static int same_view(const ambi_tensor *a, const ambi_tensor *b) {
  return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
         memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* The elements of a view, in whatever order its axes come: axes by falling stride, joined where they can be. */
static ambi_tensor region(const ambi_tensor *t) {
  ambi_tensor r = {.dtype = t->dtype};
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] == 1) continue;
    int k = r.ndim++;
    for (; k > 0 && r.stride[k - 1] < t->stride[i]; k--) r.stride[k] = r.stride[k - 1], r.shape[k] = r.shape[k - 1];
    r.stride[k] = t->stride[i], r.shape[k] = t->shape[i];
  }
  int n = 0; /* axes so far; axis k joins axis n - 1 when that steps over all of it */
  for (int k = 0; k < r.ndim; k++) {
    int joins = n > 0 && r.stride[n - 1] == r.shape[k] * r.stride[k];
    r.shape[joins ? n - 1 : n] = joins ? r.shape[n - 1] * r.shape[k] : r.shape[k];
    r.stride[joins ? n - 1 : n] = r.stride[k];
    n += !joins;
  }
  for (int k = n; k < r.ndim; k++) r.shape[k] = r.stride[k] = 0;
  r.ndim = n;
  return r;
}

/* The value that holds the gradient of v. */
static value grad_of(tape *t, value v) {
  const view w = t->view[v];
  uint64_t element = w.offset / ambi_dtype_size(w.shape.dtype);
  return tape_add_view(
      t, (view){.store = twin_of(t, w.store), .offset = element * ambi_dtype_size(w.grad.dtype), .shape = w.grad});
}

static int was_written(const tape *t, value grad) {
  const view *g = &t->view[grad];
  const ambi_tensor shape = region(&g->shape);
  for (int64_t i = 0; i < t->grads; i++) {
    const written *w = &t->grad[i];
    if (w->store == g->store && w->offset == g->offset && same_view(&w->region, &shape)) return 1;
  }
  return 0;
}

static int has_grad(const tape *t, value v) {
  int32_t twin = t->store[t->view[v].store].twin;
  for (int64_t i = 0; twin && i < t->grads; i++) {
    if (t->grad[i].store == twin) return 1;
  }
  return 0;
}

static void note_written(tape *t, value grad) {
  if (!grad || was_written(t, grad) || !tape_grow(t, (void **)&t->grad, t->grads, &t->room_grads, sizeof *t->grad))
    return;
  const view *g = &t->view[grad];
  t->grad[t->grads++] = (written){g->store, g->offset, region(&g->shape)};
}

/* Whether all of v's gradient was written, as far as the number of elements tells. */
static int is_whole(const tape *t, value v) {
  int32_t twin = t->store[t->view[v].store].twin;
  int64_t elements = 0;
  for (int64_t i = 0; i < t->grads; i++) {
    if (t->grad[i].store == twin) elements += ambi_numel(&t->grad[i].region);
  }
  return elements >= ambi_numel(&t->view[v].shape);
}

/* ---- doing a segment again ---- */

/* v, or what stands for it in the segment that is being done again. */
static value mapped(tape *t, value v) {
  int32_t copy = v ? t->store[t->view[v].store].copy : 0;
  if (!copy) return v;
  view w = t->view[v];
  w.store = copy;
  return tape_add_view(t, w);
}

static void do_again(tape *t, const record *r) {
  const ambi_op_info *info = ambi_op_get_info(r->op.kind);
  const ambi_plan *plan = tape_plan(t, &r->op);
  value slot[AMBI_SLOTS] = {0};
  for (int i = 0; i < info->slots; i++) {
    int32_t at = r->io[i] ? t->view[r->io[i]].store : 0;
    if (at && (info->slot[i].flags & AMBI_SLOT_OUTPUT) && !t->store[at].copy && !t->store[at].fixed) {
      int32_t copy = tape_add_store(t, (storage){.bytes = t->store[at].bytes});
      t->store[at].copy = copy;
    }
    slot[i] = mapped(t, r->io[i]);
  }
  if (plan && t->status == AMBI_OK) tape_add_step(t, plan, &r->op, slot);
}

/* Forward of the segment that ends with record `last`. */
static void segment_again(tape *t, int64_t last) {
  int64_t first = last;
  while (first > 0 && t->record[first - 1].segment == t->record[last].segment) first--;
  for (int64_t i = first; i <= last; i++) {
    const record r = t->record[i];
    do_again(t, &r);
  }
}

static void segment_done(tape *t) {
  for (int64_t i = 0; i < t->stores; i++) t->store[i].copy = 0;
}

/* ---- one op ---- */

/* The output that lies where input `in` does, or -1. */
static int in_place_of(const tape *t, const record *r, const ambi_op_info *info, int in) {
  const view *x = &t->view[r->io[in]];
  for (int i = 0; i < info->slots; i++) {
    if (!(info->slot[i].flags & AMBI_SLOT_OUTPUT) || !r->io[i]) continue;
    const view *y = &t->view[r->io[i]];
    if (y->store == x->store && y->offset == x->offset) return i;
  }
  return -1;
}

/* How often the ops first .. before `end` look at a storage, and write to it. */
typedef struct {
  int64_t reads, writes;
} touches;
static touches touches_of(const tape *t, int32_t store, int64_t first, int64_t end) {
  touches n = {0, 0};
  for (int64_t i = first; i < end; i++) {
    const record *r = &t->record[i];
    const ambi_op_info *info = ambi_op_get_info(r->op.kind);
    for (int k = 0; k < info->slots; k++) {
      if (!r->io[k] || t->view[r->io[k]].store != store) continue;
      if (info->slot[k].flags & AMBI_SLOT_OUTPUT)
        n.writes++;
      else
        n.reads++;
    }
  }
  return n;
}

/* Whether dx is read, by the one op that made x, before anything can be added to it or to dresidual: op `at` is the
 * only one that uses x, and nothing from the maker of x on uses the residual but op `at`. */
static int is_used_up(const tape *t, int32_t x, int32_t residual, int64_t at) {
  int64_t maker = at - 1;
  while (maker >= 0 && touches_of(t, x, maker, maker + 1).writes == 0) maker--;
  const touches of_x = touches_of(t, x, 0, at), of_residual = touches_of(t, residual, maker < 0 ? 0 : maker, at);
  return maker >= 0 && of_x.reads == 0 && of_x.writes == 1 && of_residual.reads + of_residual.writes == 0;
}

/* dx and dresidual of a norm are the same numbers: where they have the same form, one buffer serves both. By the time
 * more is added to dresidual (by ops before the one that made x), dx has been used up. */
static int share_residual(tape *t, const record *r, int64_t at) {
  enum { X = AMBI_RMSNORM_X, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
  if (r->op.kind != AMBI_RMSNORM || !r->io[RESIDUAL]) return 0;
  const view *x = &t->view[r->io[X]], *s = &t->view[r->io[RESIDUAL]];
  if (!x->needs_grad || !s->needs_grad || x->grad.dtype != s->grad.dtype || !same_view(&x->grad, &s->grad)) return 0;
  if (x->offset || s->offset || t->store[s->store].twin || t->store[x->store].twin) return 0;
  if (t->store[x->store].bytes != t->store[s->store].bytes || x->store == s->store) return 0;
  if (!is_used_up(t, x->store, s->store, at)) return 0;
  int32_t from = x->store, to = s->store, twin = twin_of(t, from);
  t->store[to].twin = twin;
  return 1;
}

/* The gradient of the logits takes their place when nothing else needs them: they are the largest thing there is. */
static void reuse_logits(tape *t, const record *r) {
  if (r->op.kind != AMBI_CROSS_ENTROPY) return;
  const int32_t at = t->view[r->io[AMBI_CE_LOGITS]].store;
  storage *s = &t->store[at];
  if (!s->kept && !s->fixed && !s->twin && touches_of(t, at, 0, t->records).reads == 1) s->twin = at;
}

/* Gradients that arrive; 0 when none does. */
static int arriving(tape *t, const record *r, const ambi_op_info *info, ambi_op *op, value *slot) {
  int any = 0;
  for (int i = 0; i < info->slots; i++) {
    uint32_t flags = info->slot[i].flags;
    if (!(flags & AMBI_SLOT_OUTPUT) || (flags & AMBI_SLOT_NO_GRAD) || !r->io[i] || !has_grad(t, r->io[i])) continue;
    if (!is_whole(t, r->io[i]))
      tape_fail(t, AMBI_INVALID, "%s: only a part of the gradient of its %s is there", info->name, info->slot[i].name);
    value g = grad_of(t, r->io[i]);
    slot[AMBI_GRAD(i)] = g;
    op->grad[i] = t->view[g].shape;
    any = 1;
  }
  return any;
}

/* One op cannot add to a gradient what it writes there itself. */
static int is_twice(const tape *t, const value *slot, value grad) {
  for (int i = AMBI_MAX_PRIMALS; i < AMBI_SLOTS; i++) {
    const view *w = &t->view[slot[i]], *g = &t->view[grad];
    if (slot[i] && slot[i] != grad && w->store == g->store && w->offset == g->offset) return 1;
  }
  return 0;
}

/* Gradients that leave: which, where, and whether they are added to what is there. */
static void leaving(tape *t, const record *r, int64_t at, const ambi_op_info *info, ambi_op *op, value *slot) {
  int shared = share_residual(t, r, at);
  reuse_logits(t, r);
  for (int i = 0; i < info->slots; i++) {
    if ((info->slot[i].flags & (AMBI_SLOT_OUTPUT | AMBI_SLOT_NO_GRAD)) || !r->io[i]) continue;
    const view v = t->view[r->io[i]];
    if (!v.needs_grad || (shared && i == AMBI_RMSNORM_RESIDUAL)) continue;
    value g = grad_of(t, r->io[i]);
    slot[AMBI_GRAD(i)] = g;
    op->grad[i] = t->view[g].shape;
    op->want |= AMBI_BIT(i);
    if (in_place_of(t, r, info, i) >= 0) continue;
    if (is_twice(t, slot, g))
      tape_fail(t, AMBI_INVALID, "%s: the gradient of its %s overlaps another of its gradients", info->name,
                info->slot[i].name);
    if (was_written(t, g) || (t->accumulate && t->store[v.store].fixed)) op->accumulate |= AMBI_BIT(i);
    note_written(t, g);
  }
}

/* Op `at` of those that were written. */
static void differentiate(tape *t, const record *r, int64_t at) {
  const ambi_op_info *info = ambi_op_get_info(r->op.kind);
  ambi_op op = r->op;
  value slot[AMBI_SLOTS] = {0};
  op.pass = AMBI_BACKWARD;
  op.want = op.accumulate = 0;
  if (!info->backward || !arriving(t, r, info, &op, slot)) return;
  leaving(t, r, at, info, &op, slot);
  if (!op.want || t->status != AMBI_OK) return;
  for (int i = 0; i < info->slots; i++) {
    slot[i] = mapped(t, r->io[i]);
    if (slot[i]) op.t[i] = t->view[slot[i]].shape;
  }
  const ambi_plan *plan = tape_plan(t, &op);
  if (plan) tape_add_step(t, plan, &op, slot);
}

void tape_backward(tape *t, value loss, value dloss) {
  if (t->status != AMBI_OK || !loss || !dloss) return;
  t->store[t->view[loss].store].twin = t->view[dloss].store;
  value g = grad_of(t, loss);
  note_written(t, g);
  int32_t again = 0;
  for (int64_t i = t->records - 1; i >= 0 && t->status == AMBI_OK; i--) {
    const record r = t->record[i]; /* the list does not move, but nothing here depends on it */
    if (again && r.segment != again) segment_done(t);
    if (r.segment && r.segment != again) segment_again(t, i);
    again = r.segment;
    differentiate(t, &r, i);
  }
}
