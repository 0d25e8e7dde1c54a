/* test_convert.c -- storage conversions through the cast op: every f16 and bf16 bit pattern there and back, and every
 * place where rounding could go wrong: ties, their neighbours, denormals, overflow, NaN. The expected values come from
 * cli/values.c, which is written from the definition of the formats. */
#include <math.h>
#include <stdlib.h>

#include "../cli/values.h"
#include "test.h"

enum { PATTERNS = 65536 };

/* n elements of `from` at x to `to` at y, on a device. */
static ambi_status cast(ambi_device *dev, ambi_dtype from, const void *x, ambi_dtype to, void *y, int64_t n) {
  ambi_op op = {.kind = AMBI_CAST};
  ambi_plan *plan;
  op.t[AMBI_CAST_X] = ambi_dense(from, 1, &n);
  op.t[AMBI_CAST_Y] = ambi_dense(to, 1, &n);
  ambi_status s = ambi_plan_create(dev, &op, &plan);
  if (s != AMBI_OK) return s;
  ambi_buf bufs[] = {{(void *)(uintptr_t)x, 0}, {y, 0}};
  s = ambi_run(plan, NULL, bufs, 2, (ambi_buf){0});
  ambi_plan_destroy(plan);
  return s;
}

static bool is_nan_pattern(ambi_dtype t, uint16_t h) {
  uint16_t a = h & 0x7fff;
  return a > (t == AMBI_F16 ? 0x7c00 : 0x7f80);
}

/* half -> wide is exact; wide -> half gives the pattern back, NaN some NaN. */
static void test_round_trip(ambi_device *dev, ambi_dtype half, ambi_dtype wide, const char *name) {
  uint16_t *h = malloc(PATTERNS * sizeof *h), *back = malloc(PATTERNS * sizeof *back);
  char *w = malloc(PATTERNS * ambi_dtype_size(wide));
  int inexact = 0, lost = 0;
  for (int i = 0; i < PATTERNS; i++) h[i] = (uint16_t)i;
  if (CHECK_OK(cast(dev, half, h, wide, w, PATTERNS)) && CHECK_OK(cast(dev, wide, w, half, back, PATTERNS))) {
    for (int i = 0; i < PATTERNS; i++) {
      double got = value_decode(wide, w + (size_t)i * ambi_dtype_size(wide)), want = value_decode(half, &h[i]);
      bool nan = is_nan_pattern(half, h[i]);
      inexact += nan ? !isnan(got) : got != want || signbit(got) != signbit(want);
      lost += nan ? !is_nan_pattern(half, back[i]) : back[i] != h[i];
    }
    CHECK(inexact == 0, "%s: %d of %d values of %s are not exact as %s", name, inexact, PATTERNS, ambi_dtype_name(half),
          ambi_dtype_name(wide));
    CHECK(lost == 0, "%s: %d of %d patterns of %s do not come back from %s", name, lost, PATTERNS,
          ambi_dtype_name(half), ambi_dtype_name(wide));
  }
  free(h), free(back), free(w);
}

/* Each value of the half type, the midpoint to the next, and the neighbours of both in the wide type. */
static int64_t probes(ambi_dtype half, ambi_dtype wide, double *v) {
  static const double extra[] = {INFINITY,  65504,  65519.996, 65520,  65536, 1e10,
                                 3.3895e38, 3.4e38, 1e300,     1e-300, 5e-324};
  int64_t n = 0;
  for (int i = 0; i < 0x7c00 || (half == AMBI_BF16 && i < 0x7f80); i++) {
    uint16_t low = (uint16_t)i, high = (uint16_t)(i + 1);
    double a = value_decode(half, &low), b = value_decode(half, &high);
    if (isinf(b)) b = 2 * a - value_decode(half, &(uint16_t){(uint16_t)(low - 1)}); /* where overflow begins */
    double middle = a / 2 + b / 2, ulp = value_ulp(wide, middle);
    const double near[] = {a, a + value_ulp(wide, a), middle - ulp, middle, middle + ulp};
    for (int k = 0; k < 5; k++) v[n++] = near[k], v[n++] = -near[k];
  }
  for (size_t k = 0; k < sizeof extra / sizeof *extra; k++) v[n++] = extra[k], v[n++] = -extra[k];
  v[n++] = NAN;
  return n;
}

static void test_rounding(ambi_device *dev, ambi_dtype wide, ambi_dtype half, const char *name) {
  enum { MOST = 10 * PATTERNS };
  double *v = malloc(MOST * sizeof *v);
  size_t size = ambi_dtype_size(wide);
  char *w = malloc(MOST * size);
  uint16_t *got = calloc(MOST, sizeof *got);
  int64_t n = probes(half, wide, v), wrong = 0, first = -1;
  for (int64_t i = 0; i < n; i++) value_encode(wide, v[i], w + (size_t)i * size);
  if (CHECK_OK(cast(dev, wide, w, half, got, n))) {
    for (int64_t i = 0; i < n; i++) {
      double x = value_decode(wide, w + (size_t)i * size);
      uint16_t want = 0;
      value_encode(half, x, &want);
      bool ok = isnan(x) ? is_nan_pattern(half, got[i]) : got[i] == want;
      if (!ok && wrong++ == 0) first = i;
    }
    CHECK(n > 100000 && wrong == 0, "%s: %s to %s: %lld of %lld wrong, first %.17g gives %04x", name,
          ambi_dtype_name(wide), ambi_dtype_name(half), (long long)wrong, (long long)n, first < 0 ? 0 : v[first],
          first < 0 ? 0 : got[first]);
  }
  free(v), free(w), free(got);
}

/* f64 to f32: ties of 24 bits, both zeros, denormals, overflow, NaN. */
static void test_f64_to_f32(ambi_device *dev, const char *name) {
  const double tie = 1 + ldexp(1, -24), big = ldexp(2 - ldexp(1, -24), 127), tiny = ldexp(1, -150);
  const double v[] = {tie,
                      1 + 3 * ldexp(1, -24),
                      nextafter(tie, 2),
                      nextafter(tie, 0),
                      big,
                      nextafter(big, 0),
                      tiny,
                      nextafter(tiny, 1),
                      3 * tiny,
                      -0.0,
                      0.0,
                      1e300,
                      INFINITY,
                      -INFINITY,
                      NAN};
  enum { N = sizeof v / sizeof *v };
  float got[N] = {0};
  if (!CHECK_OK(cast(dev, AMBI_F64, v, AMBI_F32, got, N))) return;
  for (int i = 0; i < N; i++) {
    float want = (float)v[i];
    CHECK(isnan(v[i]) ? isnan(got[i]) : memcmp(&got[i], &want, 4) == 0, "%s: f64 %.17g to f32 gives %.9g, not %.9g",
          name, v[i], (double)got[i], (double)want);
  }
}

static void test_device(const char *device, const char *isa) {
  static const ambi_dtype halves[] = {AMBI_F16, AMBI_BF16}, wides[] = {AMBI_F32, AMBI_F64};
  ambi_device *dev;
  char name[64];
  snprintf(name, sizeof name, "%s/%s", device, isa ? isa : "best");
  if (ambi_device_open(device, &(ambi_device_options){.max_isa = isa}, &dev) != AMBI_OK)
    return; /* of another machine */
  for (int h = 0; h < 2; h++)
    for (int w = 0; w < 2; w++) {
      test_round_trip(dev, halves[h], wides[w], name);
      test_rounding(dev, wides[w], halves[h], name);
    }
  test_f64_to_f32(dev, name);
  ambi_device_close(dev);
}

int main(void) {
  if (!ambi_op_get_info(AMBI_CAST)) {
    test_skip("conversions", "there is no cast in this build");
    return 0;
  }
  test_device("ref", NULL);
  test_device("cpu", NULL);
  test_device("cpu", "avx2");
  test_device("cpu", "baseline");
  return test_done();
}
