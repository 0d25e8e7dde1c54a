/* shapes.c -- the sentences an op's shapes() is written with. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/core.h"

ambi_status expect(problem *p, int slot, ambi_dtype dtype, int ndim, const int64_t *shape) {
  if (!has_slot(p, slot)) return AMBI_OK;
  ambi_tensor *t = &p->t[slot], want = ambi_dense(dtype, ndim, shape);
  if (t->dtype == AMBI_NONE) {
    *t = want;
    if (ambi_span(&want) < 0) return fail_slot(AMBI_INVALID, p, slot, "its size overflows 64 bits");
    return AMBI_OK;
  }
  if (same_shape(t, &want)) return AMBI_OK;
  char expected[160], actual[160];
  shape_text(&want, expected, sizeof expected);
  shape_text(t, actual, sizeof actual);
  return fail_slot(AMBI_INVALID, p, slot, "expected shape %s, got %s", expected, actual);
}

ambi_status expect_like(problem *p, int slot, int other) {
  const ambi_tensor *t = &p->t[other];
  int64_t shape[AMBI_MAX_DIMS];
  memcpy(shape, t->shape, sizeof shape);
  return expect(p, slot, t->dtype, t->ndim, shape);
}

ambi_status expect_one(problem *p, int slot, ambi_dtype dtype) {
  if (!has_slot(p, slot)) return AMBI_OK;
  if (p->t[slot].dtype == AMBI_NONE) p->t[slot] = ambi_dense(dtype, 0, NULL);
  if (ambi_numel(&p->t[slot]) == 1) return AMBI_OK;
  char actual[160];
  shape_text(&p->t[slot], actual, sizeof actual);
  return fail_slot(AMBI_INVALID, p, slot, "expected one element, got shape %s", actual);
}

ambi_status expect_rank(const problem *p, int slot, int min, int max) {
  int n = p->t[slot].ndim;
  if (!has_slot(p, slot) || (n >= min && n <= max)) return AMBI_OK;
  if (min == max) return fail_slot(AMBI_INVALID, p, slot, "expected %d axes, got %d", min, n);
  return fail_slot(AMBI_INVALID, p, slot, "expected %d to %d axes, got %d", min, max, n);
}

ambi_status expect_dtype(const problem *p, int slot, ambi_dtype dtype) {
  if (!has_slot(p, slot) || p->t[slot].dtype == dtype) return AMBI_OK;
  return fail_slot(AMBI_INVALID, p, slot, "expected dtype %s, got %s", ambi_dtype_name(dtype),
                   ambi_dtype_name(p->t[slot].dtype));
}

ambi_status expect_number(const problem *p, const char *name, double value) {
  const double size = fabs(value);
  if (p->compute == AMBI_F64 || value == 0 || (size >= FLT_MIN && size <= FLT_MAX)) return AMBI_OK;
  return fail(AMBI_INVALID, "%s: %s: %g is out of the range of f32, in which this is computed", p->def->info.name, name,
              value);
}
