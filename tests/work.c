/* work.c -- an op with memory behind it. */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli/case.h"
#include "../cli/values.h"

int work_case(const char *text, ambi_dtype dtype, ambi_op *op) {
  char name[32], why[600];
  size_t length = strcspn(text, " ");
  snprintf(name, sizeof name, "%.*s", (int)length, text);
  if (case_find_op(name) == AMBI_OP_NONE) return -1;
  if (case_parse(text, dtype, op, why, sizeof why) == 0) return 0;
  fprintf(stderr, "the case '%s' is wrong: %s\n", text, why);
  exit(2);
}

int work_backward(ambi_device *dev, const ambi_op *forward, ambi_op *op) {
  const ambi_op_info *info = ambi_op_get_info(forward->kind);
  ambi_plan *plan;
  if (!info->backward || ambi_plan_create(dev, forward, &plan) != AMBI_OK) return -1;
  *op = *forward;
  op->pass = AMBI_BACKWARD;
  op->want = 0;
  for (int s = 0; s < info->slots; s++) {
    uint32_t flags = info->slot[s].flags;
    ambi_tensor t = ambi_plan_tensor(plan, s);
    if (!(flags & AMBI_SLOT_OUTPUT) || t.dtype == AMBI_NONE) continue;
    op->t[s] = !(flags & AMBI_SLOT_OPTIONAL) || (flags & AMBI_SLOT_SAVED) ? t : (ambi_tensor){0};
    if (!(flags & AMBI_SLOT_NO_GRAD)) op->grad[s] = t;
  }
  ambi_plan_destroy(plan);
  return 0;
}

static ambi_status allocate(work *w, int64_t most) {
  uint32_t slots = w->info.reads | w->info.writes;
  for (int s = 0; s < AMBI_SLOTS; s++) {
    ambi_tensor t = ambi_plan_tensor(w->plan, s);
    if (!(slots & AMBI_BIT(s))) continue;
    *(s < AMBI_MAX_PRIMALS ? &w->op.t[s] : &w->op.grad[s - AMBI_MAX_PRIMALS]) = t;
    w->bytes[s] = ambi_span(&t);
    if (w->bytes[s] < 0 || w->bytes[s] > most) return AMBI_NO_MEMORY;
    if (w->bytes[s] == 0) continue;
    w->block[s] = malloc((size_t)w->bytes[s]);
    if (!w->block[s]) return AMBI_NO_MEMORY;
    w->buf[s] = (ambi_buf){w->block[s], (uint64_t)values_origin(&t)};
  }
  if (w->info.workspace == 0) return AMBI_OK;
  if (w->info.workspace > (uint64_t)most) return AMBI_NO_MEMORY;
  w->workspace.data = aligned_alloc(256, w->info.workspace);
  return w->workspace.data ? AMBI_OK : AMBI_NO_MEMORY;
}

ambi_status work_make(ambi_device *dev, const ambi_op *op, int64_t most, work *w) {
  memset(w, 0, sizeof *w);
  w->op = *op;
  ambi_status s = ambi_plan_create(dev, op, &w->plan);
  if (s == AMBI_OK) s = ambi_plan_get_info(w->plan, &w->info);
  if (s == AMBI_OK) s = allocate(w, most);
  if (s != AMBI_OK) work_free(w);
  return s;
}

void work_free(work *w) {
  for (int s = 0; s < AMBI_SLOTS; s++) free(w->block[s]);
  free(w->workspace.data);
  ambi_plan_destroy(w->plan);
  memset(w, 0, sizeof *w);
}

static int is_added_to(const work *w, int s) {
  return s >= AMBI_MAX_PRIMALS && (w->op.accumulate & AMBI_BIT(s - AMBI_MAX_PRIMALS));
}

void work_fill(work *w, uint64_t seed) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!w->block[s]) continue;
    memset(w->block[s], 0x5a, (size_t)w->bytes[s]);
    if (!(w->info.reads & AMBI_BIT(s)) && !is_added_to(w, s)) continue;
    ambi_tensor t = ambi_plan_tensor(w->plan, s);
    ambi_op shapes = w->op;
    shapes.t[s % AMBI_MAX_PRIMALS] = t; /* backward may not look at the primal, but its gradient has its shape */
    double *v = values_new(ambi_numel(&t));
    values_fill(&shapes, s, seed, v);
    values_load(&t, v, w->block[s] + w->buf[s].offset);
    free(v);
  }
}

void work_poison(work *w) {
  for (int s = 0; s < AMBI_SLOTS; s++)
    if (w->block[s] && (w->info.writes & AMBI_BIT(s))) memset(w->block[s], 0x5a, (size_t)w->bytes[s]);
}

ambi_status work_run(const work *w, ambi_stream *s) { return ambi_run(w->plan, s, w->buf, AMBI_SLOTS, w->workspace); }

uint64_t work_hash(const work *w) {
  uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
  for (int s = 0; s < AMBI_SLOTS; s++)
    for (int64_t i = 0; w->block[s] && (w->info.writes & AMBI_BIT(s)) && i < w->bytes[s]; i++)
      h = (h ^ (unsigned char)w->block[s][i]) * UINT64_C(1099511628211);
  return h;
}
