/* sweep.c -- arguments over the whole range of a dtype. */
#include "sweep.h"

#include <math.h>
#include <string.h>

#include "values.h"

static double f32_of(uint32_t bits) { return value_decode(AMBI_F32, &bits); }

static const double points[] = {0,         0x1p-149, 0x1p-126, 0x1.fffffep127,
                                0x1p-24,   0.5,      1,        1.2784645,
                                0.7517916, 1.19,     2.5,      3,
                                6,         9,        10,       13,
                                17,        20,       30,       44,
                                64,        87.33655, 88.72284, 100,
                                103.97,    128,      1e4,      1e15,
                                1e30,      INFINITY};
enum { POINTS = sizeof points / sizeof *points, EVEN = 1 << 17 };

int64_t sweep_arguments(ambi_dtype t, double **x) {
  int64_t n = 0;
  if (t != AMBI_F32) {
    *x = values_new(65536);
    for (uint32_t i = 0; i < 65536; i++) (*x)[n++] = value_decode(t, &(uint16_t){(uint16_t)i});
    return n;
  }
  *x = values_new(EVEN + 6 * POINTS + 1);
  for (uint32_t i = 0; i < EVEN; i++) (*x)[n++] = f32_of(i * 32771u);
  for (int i = 0; i < POINTS; i++) {
    float v = (float)points[i], near[3] = {nextafterf(v, 0), v, nextafterf(v, INFINITY)};
    for (int k = 0; k < 6; k++) (*x)[n++] = k < 3 ? near[k] : -near[k - 3];
  }
  (*x)[n++] = NAN;
  return n;
}

int64_t sweep_chunk(int chunk, double **x) {
  *x = values_new(SWEEP_CHUNK);
  for (uint32_t i = 0; i < SWEEP_CHUNK; i++) (*x)[i] = f32_of((uint32_t)chunk << 20 | i);
  return SWEEP_CHUNK;
}

/* The value halfway to the next of `to`, and its neighbours in `from`. */
int64_t sweep_midpoints(ambi_dtype from, ambi_dtype to, double **x) {
  int64_t n = 0;
  *x = values_new(65536 * 3);
  for (uint32_t i = 0; i < 65536; i++) {
    double v = value_decode(to, &(uint16_t){(uint16_t)i}), middle = v + copysign(value_ulp(to, v) / 2, v);
    double step = value_ulp(from, middle);
    if (!isfinite(v)) middle = v, step = 0;
    for (int k = -1; k <= 1; k++) (*x)[n++] = value_round(from, middle + k * step);
  }
  return n;
}

double sweep_error(ambi_dtype t, double got, double exact, double scale, int ulps) {
  if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : INFINITY;
  double max = value_max(t), beyond = max + value_ulp(t, max); /* infinity counts as one ulp behind the largest value */
  double target = t == AMBI_F32 ? exact : value_round(t, exact);
  double allowed = t == AMBI_F32 ? 0 : value_ulp(t, target);
  if (t == AMBI_F32 || scale > fabs(exact)) allowed += ulps * value_ulp(AMBI_F32, fmin(scale, value_max(AMBI_F32)));
  if (isinf(exact) || fabs(exact) >= beyond + allowed) return isinf(got) && (got > 0) == (exact > 0) ? 0 : INFINITY;
  if (isinf(got)) got = copysign(beyond, got);
  if (isinf(target)) target = copysign(beyond, target);
  return fabs(got - target) / allowed;
}
