/* plan.c -- plans: made once from a problem, run many times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

ambi_status ambi_check(ambi_device *dev, const ambi_op *op) {
  if (!dev || !op) return fail(AMBI_INVALID, "ambi_check: %s is NULL", dev ? "op" : "dev");
  problem p;
  ambi_status s = make_problem(op, &p);
  if (s != AMBI_OK || dev->be->has_kernel(dev, &p)) return s;
  return fail(AMBI_UNSUPPORTED, "%s: device %s has no kernel for it", p.def->info.name, dev->name);
}

ambi_status ambi_plan_create(ambi_device *dev, const ambi_op *op, ambi_plan **out) {
  if (out) *out = NULL;
  if (!dev || !op || !out) return fail(AMBI_INVALID, "ambi_plan_create: %s is NULL", !dev ? "dev" : !op ? "op" : "out");
  ambi_plan *plan = malloc(sizeof *plan);
  if (!plan) return fail(AMBI_NO_MEMORY, "ambi_plan_create: no memory for a plan");
  plan->dev = dev; /* not calloc: make_problem clears its part, which is the most of it */
  plan->workspace = 0;
  plan->code = NULL;
  plan->choice = 0;
  plan->accumulator = AMBI_NONE;
  plan->deterministic = true;
  plan->kernel[0] = 0;
  ambi_status s = make_problem(op, &plan->p);
  if (s == AMBI_OK && !dev->be->has_kernel(dev, &plan->p))
    s = fail(AMBI_UNSUPPORTED, "%s: device %s has no kernel for it", plan->p.def->info.name, dev->name);
  if (s == AMBI_OK) s = dev->be->plan(dev, plan);
  if (s == AMBI_OK)
    *out = plan;
  else
    free(plan);
  return s;
}

void name_kernel(ambi_plan *plan, const char *device, const char *isa, const char *variant) {
  const problem *p = &plan->p;
  ambi_dtype dtype = p->t[0].dtype; /* of integers alone: a copy's */
  for (int s = AMBI_MAX_PRIMALS - 1; s >= 0; s--)
    if (has_slot(p, s) && is_float(p->t[s].dtype)) dtype = p->t[s].dtype;
  snprintf(plan->kernel, sizeof plan->kernel, "%s.%s %s %s/%s%s%s", p->def->info.name,
           is_backward(p) ? "backward" : "forward", ambi_dtype_name(dtype), device, isa, *variant ? " " : "", variant);
}

void ambi_plan_destroy(ambi_plan *plan) {
  if (!plan) return;
  if (plan->dev->be->unplan) plan->dev->be->unplan(plan);
  free(plan);
}

ambi_status ambi_plan_get_info(const ambi_plan *plan, ambi_plan_info *info) {
  if (!plan || !info) return fail(AMBI_INVALID, "ambi_plan_get_info: %s is NULL", plan ? "info" : "plan");
  *info = (ambi_plan_info){.kernel = plan->kernel,
                           .workspace = plan->workspace,
                           .reads = plan->p.reads,
                           .writes = plan->p.writes,
                           .flops = plan->p.flops,
                           .bytes = plan->p.bytes,
                           .accumulator = plan->accumulator,
                           .deterministic = plan->deterministic};
  return AMBI_OK;
}

ambi_tensor ambi_plan_tensor(const ambi_plan *plan, int slot) {
  ambi_tensor none = {0};
  if (!plan || slot < 0 || slot >= AMBI_SLOTS) return none;
  return (plan->p.reads | plan->p.writes) & AMBI_BIT(slot) ? plan->p.t[slot] : none;
}

const char *ambi_plan_source(const ambi_plan *plan) {
  return plan && plan->dev->be->source ? plan->dev->be->source(plan) : NULL;
}

/* ---- run: buffers are there, aligned, and do not overlap ---- */
static bool may_share(const problem *p, int output, int input) {
  for (const int8_t(*pair)[2] = p->def->info.in_place; pair && (*pair)[0] >= 0; pair++)
    if ((*pair)[0] == output && (*pair)[1] == input)
      return same_view(&p->t[output], &p->t[input]) && !self_overlaps(&p->t[output]);
  return false;
}

static ambi_status check_buffers(const problem *p, const ambi_buf *slots) {
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1) {
    int s = __builtin_ctz(m);
    if (!slots[s].data && ambi_numel(&p->t[s]) == 0) continue;
    if (!slots[s].data) return fail_slot(AMBI_INVALID, p, s, "has no buffer");
    uintptr_t at = (uintptr_t)slots[s].data + (uintptr_t)slots[s].offset;
    size_t size = ambi_dtype_size(p->t[s].dtype);
    if (at % size) return fail_slot(AMBI_INVALID, p, s, "its buffer is not aligned to its %zu-byte elements", size);
  }
  return AMBI_OK;
}

static ambi_status check_overlap(const problem *p, bool flat, const ambi_buf *slots) {
  for (uint32_t w = p->writes; w; w &= w - 1) {
    int out = __builtin_ctz(w);
    uint32_t later_outputs = p->writes & ~((AMBI_BIT(out) << 1) - 1);
    for (uint32_t m = p->reads | later_outputs; m; m &= m - 1) {
      int s = __builtin_ctz(m);
      if (!slots[out].data || !slots[s].data) continue;
      if (!flat && slots[out].data != slots[s].data) continue;
      intptr_t a = (intptr_t)slots[out].data + (intptr_t)slots[out].offset;
      intptr_t b = (intptr_t)slots[s].data + (intptr_t)slots[s].offset;
      if (a == b && may_share(p, out, s)) continue;
      if (!views_overlap(&p->t[out], a, &p->t[s], b)) continue;
      return fail_slot(AMBI_INVALID, p, out, "overlaps %s%s, and the op does not run in place there",
                       s >= AMBI_MAX_PRIMALS ? "the gradient of " : "", p->def->info.slot[s % AMBI_MAX_PRIMALS].name);
    }
  }
  return AMBI_OK;
}

static ambi_status check_workspace(const ambi_plan *plan, const ambi_buf *slots, ambi_buf workspace) {
  const problem *p = &plan->p;
  const ambi_tensor bytes = {.dtype = AMBI_U8, .ndim = 1, .shape = {(int64_t)plan->workspace}, .stride = {1}};
  if (!workspace.data)
    return fail(AMBI_INVALID, "%s: needs a workspace of %llu bytes", p->def->info.name,
                (unsigned long long)plan->workspace);
  intptr_t at = (intptr_t)workspace.data + (intptr_t)workspace.offset;
  if (at % 64) return fail(AMBI_INVALID, "%s: its workspace is not aligned to 64 bytes", p->def->info.name);
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1) {
    const ambi_buf *b = &slots[__builtin_ctz(m)];
    if (!b->data || (!plan->dev->be->flat && b->data != workspace.data)) continue;
    if (views_overlap(&p->t[__builtin_ctz(m)], (intptr_t)b->data + (intptr_t)b->offset, &bytes, at))
      return fail_slot(AMBI_INVALID, p, __builtin_ctz(m), "overlaps the workspace");
  }
  return AMBI_OK;
}

static bool writes_anything(const problem *p) {
  for (uint32_t m = p->writes; m; m &= m - 1)
    if (ambi_numel(&p->t[__builtin_ctz(m)]) != 0) return true;
  return false;
}

ambi_status check_run(const ambi_plan *plan, const ambi_stream *stream, const ambi_buf *slots, size_t n,
                      ambi_buf workspace, ambi_buf *all) {
  if (!plan || (!slots && n)) return fail(AMBI_INVALID, "ambi_run: %s is NULL", plan ? "slots" : "plan");
  const problem *p = &plan->p;
  if (stream && stream->dev != plan->dev)
    return fail(AMBI_INVALID, "%s: the stream belongs to another device than the plan", p->def->info.name);
  memset(all, 0, AMBI_SLOTS * sizeof *all);
  if (n) memcpy(all, slots, (n < AMBI_SLOTS ? n : AMBI_SLOTS) * sizeof *slots);
  TRY(check_buffers(p, all));
  TRY(check_overlap(p, plan->dev->be->flat, all));
  return plan->workspace ? check_workspace(plan, all, workspace) : AMBI_OK;
}

ambi_status ambi_run(const ambi_plan *plan, ambi_stream *stream, const ambi_buf *slots, size_t n, ambi_buf workspace) {
  ambi_buf all[AMBI_SLOTS];
  TRY(check_run(plan, stream, slots, n, workspace, all));
  return writes_anything(&plan->p) ? plan->dev->be->run(plan, stream, all, workspace) : AMBI_OK;
}
