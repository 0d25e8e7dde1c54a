/* tape.c -- writing ops down: values, plans, steps. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tape_parts.h"

ambi_status tape_fail(tape *t, ambi_status s, const char *format, ...) {
  if (t->status != AMBI_OK) return t->status;
  va_list ap;
  va_start(ap, format);
  vsnprintf(t->why, sizeof t->why, format, ap);
  va_end(ap);
  return t->status = s;
}

int tape_grow(tape *t, void **list, int64_t count, int64_t *room, size_t size) {
  if (count < *room) return 1;
  int64_t more = *room ? 2 * *room : 64;
  void *grown = realloc(*list, (size_t)more * size);
  if (!grown) return tape_fail(t, AMBI_NO_MEMORY, "no memory for a list of ops"), 0;
  *list = grown;
  *room = more;
  return 1;
}

tape *tape_create(ambi_device *dev) {
  tape *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->dev = dev;
  tape_add_store(t, (storage){0});
  tape_add_view(t, (view){0});
  return t;
}

void tape_destroy(tape *t) {
  if (!t) return;
  for (int64_t i = 0; i < t->plans; i++) ambi_plan_destroy(t->plan[i]);
  ambi_free(t->dev, t->arena);
  ambi_free(t->dev, t->workspace);
  free(t->store);
  free(t->view);
  free(t->record);
  free(t->step);
  free(t->grad);
  free(t->plan);
  free(t->planned);
  free(t);
}

const char *tape_error(const tape *t) { return t->why; }

/* ---- values ---- */

int32_t tape_add_store(tape *t, storage s) {
  if (!tape_grow(t, (void **)&t->store, t->stores, &t->room_stores, sizeof s)) return 0;
  s.first = INT64_MAX;
  s.last = -1;
  t->store[t->stores] = s;
  return (int32_t)t->stores++;
}

value tape_add_view(tape *t, view v) {
  if (!tape_grow(t, (void **)&t->view, t->views, &t->room_views, sizeof v)) return 0;
  if (v.grad.dtype == AMBI_NONE) v.grad = v.shape;
  t->view[t->views] = v;
  return (value)t->views++;
}

value tape_fixed(tape *t, const ambi_tensor *shape, ambi_buf at) {
  int32_t s = tape_add_store(t, (storage){.fixed = 1, .at = at});
  return s ? tape_add_view(t, (view){.store = s, .shape = *shape}) : 0;
}

value tape_weight(tape *t, const ambi_tensor *shape, ambi_buf at, const ambi_tensor *grad, ambi_buf grad_at) {
  int32_t twin = tape_add_store(t, (storage){.fixed = 1, .at = grad_at});
  int32_t s = tape_add_store(t, (storage){.fixed = 1, .at = at, .twin = twin});
  return s && twin ? tape_add_view(t, (view){.store = s, .shape = *shape, .grad = *grad, .needs_grad = 1}) : 0;
}

value tape_new(tape *t, const ambi_tensor *shape) {
  int64_t bytes = ambi_span(shape);
  if (bytes < 0) return tape_fail(t, AMBI_INVALID, "a tensor of the model is too large"), 0;
  int32_t s = tape_add_store(t, (storage){.bytes = (uint64_t)bytes});
  return s ? tape_add_view(t, (view){.store = s, .shape = *shape}) : 0;
}

value tape_view(tape *t, value v, const ambi_tensor *shape, int64_t element) {
  if (!v) return 0;
  view w = t->view[v];
  w.shape = *shape;
  w.shape.dtype = t->view[v].shape.dtype;
  w.grad = w.shape;
  w.grad.dtype = t->view[v].grad.dtype;
  w.offset += (uint64_t)element * ambi_dtype_size(w.shape.dtype);
  const storage *s = &t->store[w.store];
  const int64_t span = ambi_span(&w.shape);
  if (element < 0 || span < 0 || (!s->fixed && w.offset + (uint64_t)span > s->bytes))
    return tape_fail(t, AMBI_INVALID, "a view reaches outside of the tensor it is a view of"), 0;
  return tape_add_view(t, w);
}

void tape_keep(tape *t, value v) {
  if (v) t->store[t->view[v].store].kept = 1;
}

void tape_move(tape *t, value v, ambi_buf at) {
  int32_t store = t->view[v].store;
  t->store[store].at = at;
  for (int64_t i = 0; i < t->steps; i++) {
    step *s = &t->step[i];
    for (int k = 0; k < AMBI_SLOTS; k++) {
      if (s->slot[k] && t->view[s->slot[k]].store == store) s->buf[k] = tape_buffer(t, s->slot[k]);
    }
  }
}

ambi_tensor tape_tensor(const tape *t, value v) { return t->view[v].shape; }

ambi_buf tape_buffer(const tape *t, value v) {
  const view *w = &t->view[v];
  const storage *s = &t->store[w->store];
  ambi_buf b = s->fixed ? s->at : t->arena;
  b.offset += w->offset + (s->fixed ? 0 : s->offset);
  return b;
}

/* ---- ops ---- */

const ambi_plan *tape_plan(tape *t, const ambi_op *op) {
  for (int64_t i = 0; i < t->plans; i++) {
    if (memcmp(&t->planned[i], op, sizeof *op) == 0) return t->plan[i];
  }
  if (!tape_grow(t, (void **)&t->plan, t->plans, &t->room_plans, sizeof *t->plan) ||
      !tape_grow(t, (void **)&t->planned, t->plans, &t->room_planned, sizeof *op))
    return NULL;
  ambi_status s = ambi_plan_create(t->dev, op, &t->plan[t->plans]);
  if (s != AMBI_OK) return tape_fail(t, s, "%s", ambi_error()), NULL;
  t->planned[t->plans] = *op;
  return t->plan[t->plans++];
}

void tape_add_step(tape *t, const ambi_plan *plan, const ambi_op *op, const value slot[AMBI_SLOTS]) {
  if (!tape_grow(t, (void **)&t->step, t->steps, &t->room_steps, sizeof *t->step)) return;
  step *s = &t->step[t->steps++];
  *s = (step){.plan = plan, .op = *op};
  memcpy(s->slot, slot, sizeof s->slot);
  ambi_plan_get_info(plan, &s->info);
}

/* Whether gradients flow through the op at all. */
static int32_t needs_grad(const tape *t, const ambi_op_info *info, const value *io) {
  for (int i = 0; i < info->slots; i++) {
    uint32_t flags = info->slot[i].flags;
    if (!(flags & (AMBI_SLOT_OUTPUT | AMBI_SLOT_NO_GRAD)) && io[i] && t->view[io[i]].needs_grad) return 1;
  }
  return 0;
}

/* Outputs that the caller did not bring get storages as the plan infers them. */
static void make_outputs(tape *t, const ambi_plan *plan, const ambi_op_info *info, value *io) {
  int32_t flows = info->backward && needs_grad(t, info, io);
  ambi_plan_info p;
  ambi_plan_get_info(plan, &p);
  for (int i = 0; i < info->slots; i++) {
    if (!(p.writes & AMBI_BIT(i))) continue;
    if (!io[i]) {
      const ambi_tensor shape = ambi_plan_tensor(plan, i);
      io[i] = tape_new(t, &shape);
    }
    if (io[i] && !(info->slot[i].flags & AMBI_SLOT_NO_GRAD)) t->view[io[i]].needs_grad |= flows;
  }
}

value tape_op(tape *t, const ambi_op *op, value io[AMBI_MAX_PRIMALS], int result) {
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  record r = {.op = *op, .segment = t->segment};
  if (t->status != AMBI_OK) return 0;
  for (int i = 0; i < info->slots; i++) {
    if (io[i]) r.op.t[i] = t->view[io[i]].shape;
  }
  const ambi_plan *plan = tape_plan(t, &r.op);
  if (!plan) return 0;
  make_outputs(t, plan, info, io);
  memcpy(r.io, io, sizeof r.io);
  if (t->status != AMBI_OK || !tape_grow(t, (void **)&t->record, t->records, &t->room_records, sizeof r)) return 0;
  t->record[t->records++] = r;
  value slot[AMBI_SLOTS] = {0};
  memcpy(slot, io, sizeof r.io);
  tape_add_step(t, plan, &r.op, slot);
  return io[result];
}

void tape_segment_begin(tape *t) { t->segment = ++t->segments; }
void tape_segment_end(tape *t) { t->segment = 0; }
void tape_accumulate(tape *t) { t->accumulate = 1; }

/* ---- running ---- */

ambi_status tape_finish(tape *t) {
  if (t->status != AMBI_OK) return t->status;
  return tape_place(t);
}

ambi_status tape_run_step(const tape *t, int64_t i, ambi_stream *s) {
  return ambi_run(t->step[i].plan, s, t->step[i].buf, AMBI_SLOTS, t->workspace);
}

ambi_status tape_run(const tape *t, ambi_stream *s) {
  if (t->status != AMBI_OK) return t->status;
  for (int64_t i = 0; i < t->steps; i++) {
    ambi_status status = tape_run_step(t, i, s);
    if (status != AMBI_OK) return status;
  }
  return AMBI_OK;
}

tape_size tape_get_size(const tape *t) {
  tape_size s = {t->steps, t->arena_bytes, t->workspace_bytes, 0};
  for (int64_t i = 0; i < t->steps; i++) s.flops += t->step[i].info.flops;
  return s;
}

int tape_step(const tape *t, int64_t i, tape_step_info *info) {
  if (i < 0 || i >= t->steps) return 0;
  *info = (tape_step_info){t->step[i].op.kind, t->step[i].op.pass, t->step[i].info.kernel};
  return 1;
}

int tape_step_slot(const tape *t, int64_t i, int slot, tape_slot *s) {
  const step *p = &t->step[i];
  if (!((p->info.reads | p->info.writes) & AMBI_BIT(slot)) || !p->slot[slot]) return 0;
  *s = (tape_slot){t->view[p->slot[slot]].shape, p->buf[slot], (p->info.writes & AMBI_BIT(slot)) != 0};
  return 1;
}
