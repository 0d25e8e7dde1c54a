/* problem.c -- from the caller's ambi_op to a checked, completed problem. */
#include <string.h>

#include "core/core.h"

static uint32_t flagged(const op_def *def, uint32_t flags, uint32_t value) {
  uint32_t mask = 0;
  for (int s = 0; s < def->info.slots; s++)
    if ((def->info.slot[s].flags & flags) == value) mask |= AMBI_BIT(s);
  return mask;
}

static ambi_status check_tensor(const problem *p, int slot, const ambi_tensor *t) {
  if (ambi_dtype_size(t->dtype) == 0) return fail_slot(AMBI_INVALID, p, slot, "unknown dtype %d", (int)t->dtype);
  uint32_t flags = p->def->info.slot[slot % AMBI_MAX_PRIMALS].flags;
  bool integer = flags & AMBI_SLOT_INTEGER, any = flags & AMBI_SLOT_ANY_DTYPE;
  if (!any && integer == is_float(t->dtype))
    return fail_slot(AMBI_INVALID, p, slot, "expected %s dtype, got %s", integer ? "an integer" : "a floating",
                     ambi_dtype_name(t->dtype));
  if (t->ndim < 0 || t->ndim > AMBI_MAX_DIMS)
    return fail_slot(AMBI_INVALID, p, slot, "expected 0 to %d axes, got %d", AMBI_MAX_DIMS, t->ndim);
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] < 0)
      return fail_slot(AMBI_INVALID, p, slot, "axis %d is negative: %lld", i, (long long)t->shape[i]);
    if (mul_overflows(n, t->shape[i] ? t->shape[i] : 1, &n))
      return fail_slot(AMBI_INVALID, p, slot, "its number of elements overflows 64 bits");
  }
  if (ambi_span(t) < 0) return fail_slot(AMBI_INVALID, p, slot, "its strides reach past 64 bits");
  return AMBI_OK;
}

/* No machine holds 2^56 elements, but a tensor of repeated elements, or of none, may have more. Empty axes count as 1,
 * so that workspaces in proportion to any extents of a slot stay far from 2^64 bytes. */
static ambi_status check_counts(const problem *p) {
  for (uint32_t m = p->has; m; m &= m - 1) {
    const ambi_tensor *t = &p->t[__builtin_ctz(m)];
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
      if (mul_overflows(n, t->shape[i] ? t->shape[i] : 1, &n) || n > INT64_C(1) << 56)
        return fail_slot(AMBI_INVALID, p, __builtin_ctz(m), "has too many elements: more than 2^56");
  }
  return AMBI_OK;
}

/* Described primals, and nothing described that the op does not have. */
static ambi_status take_slots(problem *p, uint32_t *described, uint32_t *described_grads) {
  *described = *described_grads = 0;
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) {
    const ambi_tensor *t = &p->op.t[s], *g = &p->op.grad[s];
    if (t->dtype == AMBI_NONE && g->dtype == AMBI_NONE) continue;
    if (s >= p->def->info.slots)
      return fail(AMBI_INVALID, "%s: has %d slots, but slot %d is described", p->def->info.name, p->def->info.slots, s);
    if (t->dtype != AMBI_NONE) {
      TRY(check_tensor(p, s, t));
      p->t[s] = *t;
      *described |= AMBI_BIT(s);
    }
    if (g->dtype != AMBI_NONE) {
      TRY(check_tensor(p, AMBI_GRAD(s), g));
      *described_grads |= AMBI_BIT(s);
    }
  }
  return AMBI_OK;
}

static double read_attr(const ambi_op *op, const ambi_attr_info *a) {
  const char *at = (const char *)op + a->offset;
  double d;
  int32_t i;
  if (a->type == AMBI_ATTR_F64) return memcpy(&d, at, sizeof d), d;
  return memcpy(&i, at, sizeof i), (double)i;
}

static void write_attr(ambi_op *op, const ambi_attr_info *a, double v) {
  char *at = (char *)op + a->offset;
  int32_t i = a->type == AMBI_ATTR_F64 ? 0 : (int32_t)v;
  if (a->type == AMBI_ATTR_F64)
    memcpy(at, &v, sizeof v);
  else
    memcpy(at, &i, sizeof i);
}

/* Zero means default: every attribute is replaced by its value, then checked against its range. */
static ambi_status take_attributes(problem *p) {
  for (int i = 0; i < p->def->info.attrs; i++) {
    const ambi_attr_info *a = &p->def->info.attr[i];
    double v = read_attr(&p->op, a);
    if (v == 0 && a->def != 0) write_attr(&p->op, a, v = a->def); /* else it stays: -0 is a value, too */
    if (!(v >= a->min && v <= a->max))
      return fail(AMBI_INVALID, "%s: %s: expected %g to %g, got %g", p->def->info.name, a->name, a->min, a->max, v);
  }
  return AMBI_OK;
}

static int first_slot(uint32_t mask) { return __builtin_ctz(mask); }

/* Gradients that would be described and then not looked at. */
static ambi_status check_gradients(const problem *p, uint32_t described, uint32_t described_grads) {
  uint32_t constant = described_grads & flagged(p->def, AMBI_SLOT_NO_GRAD, AMBI_SLOT_NO_GRAD);
  uint32_t absent = described_grads & flagged(p->def, AMBI_SLOT_OUTPUT, 0) & ~described;
  if (constant) return fail_slot(AMBI_INVALID, p, AMBI_GRAD(first_slot(constant)), "is described, but there is none");
  if (absent) return fail_slot(AMBI_INVALID, p, AMBI_GRAD(first_slot(absent)), "is described, but not the slot itself");
  return AMBI_OK;
}

static ambi_status choose_slots(problem *p, uint32_t described, uint32_t described_grads) {
  const op_def *def = p->def;
  uint32_t inputs = flagged(def, AMBI_SLOT_OUTPUT, 0), outputs = flagged(def, AMBI_SLOT_OUTPUT, AMBI_SLOT_OUTPUT);
  uint32_t required = flagged(def, AMBI_SLOT_OPTIONAL, 0), want = p->op.want;
  uint32_t differentiable = inputs & flagged(def, AMBI_SLOT_NO_GRAD, 0);
  uint32_t missing = inputs & required & ~described;
  if (missing) return fail_slot(AMBI_INVALID, p, first_slot(missing), "is required and was not described");
  if (!is_backward(p)) {
    uint32_t odd = want & ~outputs;
    if (odd) return fail(AMBI_INVALID, "%s: want: bit %d is not an output", def->info.name, first_slot(odd));
    if (p->op.accumulate) return fail(AMBI_INVALID, "%s: accumulate: only gradients can be added to", def->info.name);
    p->has = described | (outputs & required) | want;
    return AMBI_OK;
  }
  if (!def->info.backward) return fail(AMBI_INVALID, "%s: has no backward pass", def->info.name);
  TRY(check_gradients(p, described, described_grads));
  uint32_t odd = want & ~(differentiable & described);
  if (odd)
    return fail(AMBI_INVALID, "%s: want: bit %d is not a described, differentiable input", def->info.name,
                first_slot(odd));
  if (want == 0) p->op.want = differentiable & described;
  uint32_t stray = p->op.accumulate & ~p->op.want;
  if (stray) return fail_slot(AMBI_INVALID, p, first_slot(stray), "accumulate asks for a gradient that is not wanted");
  p->has = described | (outputs & (required | described_grads));
  return AMBI_OK;
}

/* The gradient of `s`, as described or like the primal. */
static ambi_status take_gradient(problem *p, int s) {
  const ambi_tensor *g = &p->op.grad[s];
  p->t[AMBI_GRAD(s)] = g->dtype != AMBI_NONE ? *g : p->t[s];
  if (!is_float(p->t[AMBI_GRAD(s)].dtype))
    return fail_slot(AMBI_INVALID, p, AMBI_GRAD(s), "expected a floating dtype, got %s",
                     ambi_dtype_name(p->t[AMBI_GRAD(s)].dtype));
  if (same_shape(&p->t[AMBI_GRAD(s)], &p->t[s])) return AMBI_OK;
  char expected[160], actual[160];
  shape_text(&p->t[s], expected, sizeof expected);
  shape_text(g, actual, sizeof actual);
  return fail_slot(AMBI_INVALID, p, AMBI_GRAD(s), "expected shape %s, got %s", expected, actual);
}

static ambi_status choose_gradients(problem *p, uint32_t described, uint32_t described_grads) {
  const op_def *def = p->def;
  uint32_t outputs = flagged(def, AMBI_SLOT_OUTPUT, AMBI_SLOT_OUTPUT),
           optional = flagged(def, AMBI_SLOT_OPTIONAL, AMBI_SLOT_OPTIONAL);
  uint32_t saved = flagged(def, AMBI_SLOT_SAVED, AMBI_SLOT_SAVED) & described;
  uint32_t arrives = outputs & ~flagged(def, AMBI_SLOT_NO_GRAD, AMBI_SLOT_NO_GRAD) & (~optional | described_grads);
  p->reads = (p->has & def->backward_reads & ~outputs) | saved;
  for (uint32_t m = arrives; m; m &= m - 1) {
    TRY(take_gradient(p, __builtin_ctz(m)));
    p->reads |= AMBI_BIT(AMBI_GRAD(__builtin_ctz(m)));
  }
  for (uint32_t m = p->op.want; m; m &= m - 1) {
    TRY(take_gradient(p, __builtin_ctz(m)));
    p->writes |= AMBI_BIT(AMBI_GRAD(__builtin_ctz(m)));
  }
  p->accumulates = p->op.accumulate << AMBI_MAX_PRIMALS;
  return AMBI_OK;
}

/* An output's elements must be distinct, unless the op sums gradients over repeated axes. */
static ambi_status check_outputs(const problem *p) {
  for (uint32_t m = p->writes; m; m &= m - 1) {
    int s = __builtin_ctz(m);
    ambi_tensor t = p->t[s];
    for (int i = 0; i < t.ndim; i++)
      if (s >= AMBI_MAX_PRIMALS && p->def->sums_gradients && t.stride[i] == 0 && t.shape[i] > 1) t.shape[i] = 1;
    if (self_overlaps(&t))
      return fail_slot(AMBI_INVALID, p, s,
                       "is written, so its elements may not overlap: describe %s with other strides",
                       s >= AMBI_MAX_PRIMALS ? "grad[] of that slot" : "it");
  }
  return AMBI_OK;
}

static ambi_dtype choose_compute(const problem *p) {
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1)
    if (p->t[__builtin_ctz(m)].dtype == AMBI_F64) return AMBI_F64;
  return AMBI_F32;
}

/* Elements that lie apart: an axis of stride 0 has the same ones again. */
static uint64_t distinct_elements(const ambi_tensor *t) {
  ambi_tensor once = *t;
  for (int i = 0; i < t->ndim; i++)
    if (t->stride[i] == 0 && t->shape[i] > 1) once.shape[i] = 1;
  return (uint64_t)ambi_numel(&once);
}

/* Every slot read or written once: the fewest bytes that can move. */
static uint64_t least_bytes(const problem *p) {
  uint64_t bytes = 0;
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1) {
    int s = __builtin_ctz(m);
    uint64_t n = distinct_elements(&p->t[s]) * ambi_dtype_size(p->t[s].dtype);
    bytes += p->accumulates & AMBI_BIT(s) ? 2 * n : n;
  }
  return bytes;
}

ambi_status make_problem(const ambi_op *op, problem *p) {
  uint32_t described, grads;
  memset(p, 0, sizeof *p); /* the recipe too: strides of slots that take no part are read, and must be 0 */
  p->def = find_op(op->kind);
  if (!p->def) return fail(AMBI_INVALID, "no op has kind %d", (int)op->kind);
  if (op->pass != AMBI_FORWARD && op->pass != AMBI_BACKWARD)
    return fail(AMBI_INVALID, "%s: pass: expected 0 or 1, got %d", p->def->info.name, (int)op->pass);
  p->op = *op;
  TRY(take_slots(p, &described, &grads));
  TRY(take_attributes(p));
  TRY(choose_slots(p, described, grads));
  TRY(p->def->shapes(p));
  TRY(check_counts(p));
  if (is_backward(p)) {
    TRY(choose_gradients(p, described, grads));
  } else {
    uint32_t outputs = flagged(p->def, AMBI_SLOT_OUTPUT, AMBI_SLOT_OUTPUT);
    p->reads = p->has & ~outputs;
    p->writes = p->has & outputs;
  }
  TRY(check_outputs(p));
  p->compute = choose_compute(p);
  TRY(p->def->recipe(p));
  if (p->bytes == 0) p->bytes = least_bytes(p);
  return AMBI_OK;
}
