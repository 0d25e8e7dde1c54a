/* test_math.c -- every row of ops/elementwise.def, value and derivative, against libm in a wider type.
 *
 * Built once per instruction set and arithmetic, with the flags of the kernels:
 *   cc -std=gnu11 -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -DAMBI_ISA_avx2 -DAMBI_REAL=32 \
 *      -mavx2 -mfma -mf16c -Isrc tests/test_math.c -o test_math -lm
 * AMBI_REAL=32 tests the f32 functions, then the half-precision ones on all 65536 f16 and bf16 values. 64 tests f64.
 *
 *   test_math [--exhaustive] [--samples N] [--time] [function]
 *
 * f32 is sampled over all bit patterns (--exhaustive: every one). The bar is 4 ulp, of the largest term where a
 * derivative is a sum that crosses zero; half results must round to a neighbour of the correctly rounded value.
 * A product dy f'(x) rounds once more than f'(x), which dy = 1 shows: it may have 5. */
#include <stdio.h>
#include <stdlib.h>
#include <tgmath.h>
#include <time.h>

#include "backends/cpu/math.h"

#define F(...) __VA_ARGS__
#define B(...) __VA_ARGS__
#define UNARY(name, NAME, text, a0, b0, value, grad)   \
  static inline vr f_##name(vr x, vr a, vr b) {        \
    (void)a, (void)b;                                  \
    value                                              \
  }                                                    \
  static inline vr b_##name(vr x, vr dy, vr a, vr b) { \
    (void)a, (void)b, (void)x;                         \
    grad                                               \
  }
#include "ops/elementwise.def"
#undef UNARY

#if AMBI_REAL == 32
#include "backends/cpu/math_half.h"
#define UNARY(name, NAME, text, a0, b0, value, grad)          \
  static inline vr f_##name##_half(vr x, vr a, vr b) {        \
    (void)a, (void)b;                                         \
    value                                                     \
  }                                                           \
  static inline vr b_##name##_half(vr x, vr dy, vr a, vr b) { \
    (void)a, (void)b, (void)x;                                \
    grad                                                      \
  }
#include "ops/elementwise.def"
#undef UNARY
typedef double truth;
#else
typedef long double truth;
#endif

/* ---- the truth: value, derivative, and the largest term of the derivative where its terms cancel ---- */

#define PI 3.14159265358979323846264338327950288L
#define GELU_P \
  1.5957691216057308 /* 2 sqrt(2/pi) and 0.044715 times that, rounded to double as the formulas have them */
#define GELU_Q 0.07135481627260025
static truth sigmoid(truth t) { return t < 0 ? exp(t) / (1 + exp(t)) : 1 / (1 + exp(-t)); }
static truth softplus(truth t) { return t > 0 ? t + log1p(exp(-t)) : log1p(exp(t)); }
static truth cdf(truth x) { return erfc(-x / sqrt((truth)2)) / 2; }
static truth pdf(truth x) { return exp(-x * x / 2) / sqrt((truth)(2 * PI)); }
static truth gelu_arg(truth x) { return GELU_P * x + GELU_Q * x * x * x; }
static truth gelu_slope(truth x) { return GELU_P + 3 * GELU_Q * x * x; }
static truth silu_term(truth x, truth t, truth slope) { return sigmoid(t) * sigmoid(-t) * x * slope; }
static truth mish_w(truth x) { return x > 30 ? 1 : tanh(softplus(x)); }
static truth mish_term(truth x) { return x > 30 ? 0 : x * sigmoid(x) / (cosh(softplus(x)) * cosh(softplus(x))); }
static truth larger(truth p, truth q) { return fmax(fabs(p), fabs(q)); }

#define SELU_L 1.0507009873554804934193349852946L
#define SELU_C 1.6732632423543772848170429916717L
#define TRUTHS(T)                                                                                                   \
  T(silu, x *sigmoid(a *x), sigmoid(a *x) + silu_term(x, a * x, a), larger(sigmoid(a * x), silu_term(x, a * x, a))) \
  T(gelu, x *cdf(x), cdf(x) + x * pdf(x), larger(cdf(x), x * pdf(x)))                                               \
  T(gelu_tanh, x *sigmoid(gelu_arg(x)), sigmoid(gelu_arg(x)) + silu_term(x, gelu_arg(x), gelu_slope(x)),            \
    larger(sigmoid(gelu_arg(x)), silu_term(x, gelu_arg(x), gelu_slope(x))))                                         \
  T(relu, x > 0 ? x : 0, x > 0, 0)                                                                                  \
  T(relu6, fmin(fmax(x, (truth)0), (truth)6), x > 0 && x < 6, 0)                                                    \
  T(leaky_relu, x > 0 ? x : a * x, x > 0 ? 1 : a, 0)                                                                \
  T(elu, x > 0 ? x : a * expm1(x), x > 0 ? 1 : a * exp(x), 0)                                                       \
  T(selu, SELU_L *(x > 0 ? x : SELU_C * expm1(x)), SELU_L *(x > 0 ? 1 : SELU_C * exp(x)), 0)                        \
  T(sigmoid, sigmoid(x), sigmoid(x) * sigmoid(-x), 0)                                                               \
  T(logsigmoid, -softplus(-x), sigmoid(-x), 0)                                                                      \
  T(tanh, tanh(x), 4 * sigmoid(2 * x) * sigmoid(-2 * x), 0)                                                         \
  T(softplus, a *x > b ? x : softplus(a * x) / a, a * x > b ? 1 : sigmoid(a * x), 0)                                \
  T(softsign, x / (1 + fabs(x)), 1 / (1 + fabs(x)) / (1 + fabs(x)), 0)                                              \
  T(mish, x *mish_w(x), mish_w(x) + mish_term(x), larger(mish_w(x), mish_term(x)))                                  \
  T(hardswish, x *fmin(fmax(x + 3, (truth)0), (truth)6) / 6, x <= -3 ? 0 : x < 3 ? (x + 1.5L) / 3 : 1, 0)           \
  T(hardsigmoid, fmin(fmax(x + 3, (truth)0), (truth)6) / 6, x > -3 && x < 3 ? 1 / (truth)6 : 0, 0)                  \
  T(hardtanh, fmin(fmax(x, a), b), x > a && x < b, 0)                                                               \
  T(relu_squared, x > 0 ? x * x : 0, x > 0 ? 2 * x : 0, 0)                                                          \
  T(exp, exp(x), exp(x), 0)                                                                                         \
  T(log, log(x), 1 / x, 0)                                                                                          \
  T(sqrt, sqrt(x), 1 / (2 * sqrt(x)), 0)                                                                            \
  T(rsqrt, 1 / sqrt(x), -1 / (2 * x * sqrt(x)), 0)                                                                  \
  T(square, x *x, 2 * x, 0)                                                                                         \
  T(abs, fabs(x), (x > 0) - (x < 0), 0)                                                                             \
  T(neg, -x, -1, 0)                                                                                                 \
  T(reciprocal, 1 / x, -1 / x / x, 0)                                                                               \
  T(sin, sin(x), cos(x), 0)                                                                                         \
  T(cos, cos(x), -sin(x), 0)                                                                                        \
  T(erf, erf(x), 2 / sqrt((truth)PI) * exp(-x * x), 0)                                                              \
  T(identity, x, 1, 0)

#define T(name, value, grad, term)                                                                      \
  static truth t_##name(truth x, truth a, truth b) { return (void)a, (void)b, (truth)(value); }         \
  static truth d_##name(truth x, truth a, truth b) { return (void)a, (void)b, (void)x, (truth)(grad); } \
  static truth s_##name(truth x, truth a, truth b) { return (void)a, (void)b, (void)x, (truth)(term); }
TRUTHS(T)
#undef T

/* ---- loops over arrays, one per function ---- */

enum { BLOCK = 1024 };
typedef void loop(const real *x, const real *dy, real *y, real a, real b);
#define LOOP(name, call)                                                       \
  static void name(const real *x, const real *dy, real *y, real a0, real b0) { \
    const vr a = v_splat(a0), b = v_splat(b0);                                 \
    (void)dy;                                                                  \
    for (int64_t i = 0; i < BLOCK; i += VL) v_store(y + i, call);              \
  }
#define UNARY(name, NAME, text, a0, b0, value, grad) \
  LOOP(loop_f_##name, f_##name(v_load(x + i), a, b)) \
  LOOP(loop_b_##name, b_##name(v_load(x + i), v_load(dy + i), a, b))
#include "ops/elementwise.def"
#undef UNARY
#if AMBI_REAL == 32
#define UNARY(name, NAME, text, a0, b0, value, grad)         \
  LOOP(loop_fh_##name, f_##name##_half(v_load(x + i), a, b)) \
  LOOP(loop_bh_##name, b_##name##_half(v_load(x + i), v_load(dy + i), a, b))
#include "ops/elementwise.def"
#undef UNARY
#define HALF_LOOPS(name) loop_fh_##name, loop_bh_##name
#else
#define HALF_LOOPS(name) NULL, NULL
#endif

typedef struct {
  const char *name;
  real a, b;
  loop *pass[4]; /* value, derivative; the same for half */
  truth (*value)(truth, truth, truth), (*grad)(truth, truth, truth), (*term)(truth, truth, truth);
} row;
static const row rows[] = {
#define UNARY(name, NAME, text, a0, b0, value, grad) \
  {#name, (real)a0, (real)b0, {loop_f_##name, loop_b_##name, HALF_LOOPS(name)}, t_##name, d_##name, s_##name},
#include "ops/elementwise.def"
#undef UNARY
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- ulps ---- */

typedef struct {
  const char *name;
  int digits, lowest; /* of the significand; the exponent of the smallest denormal */
  int top;            /* infinity is 2^top */
} format;
#if AMBI_REAL == 32
static const format f16 = {"f16", 11, -24, 16}, bf16 = {"bf16", 8, -133, 128}, full = {"f32", 24, -149, 128};
#else
static const format full = {"f64", 53, -1068, 1024}; /* libm's erfc gives up digits where results are denormal */
#endif

static int exponent_of_ulp(truth v, const format *f) {
  int e;
  frexp(v, &e);
  return v == 0 || e - f->digits < f->lowest ? f->lowest : e - f->digits;
}

/* |y - t| in ulps of t, or of the term where that is larger; infinity counts as 2^top. */
static truth ulps(truth y, truth t, truth term, const format *f) {
  const truth top = ldexp((truth)1, f->top);
  if (isnan(t) || isnan(y)) return isnan(t) && isnan(y) ? 0 : INFINITY;
  t = fmax(fmin(t, top), -top), y = fmax(fmin(y, top), -top);
  if (t == y) return 0;
  return ldexp(fabs(y - t), -exponent_of_ulp(fmin(larger(t, term), top * (truth)0.75L), f));
}

/* Round to nearest even in a format. */
static truth rounded(truth v, const format *f) {
  if (isnan(v) || isinf(v)) return v;
  const int e = exponent_of_ulp(v, f);
  const truth r = ldexp(rint(ldexp(v, -e)), e);
  return fabs(r) >= ldexp((truth)1, f->top) ? copysign((truth)INFINITY, v) : r;
}

/* ---- checks ---- */

static int passed, failed;
static void check(int good, const char *what, const char *function, double x, double got, double expected) {
  good ? passed++ : failed++;
  if (!good) printf("FAILED %s %s at x = %.9g (%a): got %.9g, expected %.9g\n", what, function, x, x, got, expected);
}

typedef struct {
  truth err;
  double x, y, t;
} worst;

/* w[1] is the worst of derivatives times a dy that is not 1 */
static void measure(const row *r, int pass, const format *f, const real *x, const real *dy, int round, worst *w) {
  real y[BLOCK];
  r->pass[pass](x, dy, y, r->a, r->b);
  for (int i = 0; i < BLOCK; i++) {
    const int grad = pass & 1;
    const truth k = grad ? dy[i] : 1, t = k * (grad ? r->grad : r->value)(x[i], r->a, r->b);
    const truth term = grad ? k * r->term(x[i], r->a, r->b) : 0;
    const truth err = round ? ulps(rounded(y[i], f), rounded(t, f), term, f) : ulps(y[i], t, term, f);
    worst *now = &w[grad && dy[i] != 1];
    if (!(err <= now->err)) *now = (worst){err, (double)x[i], (double)y[i], (double)t};
  }
}

/* Every 4th sample is spread evenly over [-20, 20], where the functions bend; the others over all bit patterns, with
 * 1 for infinities and NaN. All bit patterns, and nothing else, when there are samples enough. */
static real sample(uint64_t at, uint64_t samples) {
  if (at % 4 == 3 && samples >> 32 == 0) return (real)(40.0 * (double)at / (double)samples - 20.0);
#if AMBI_REAL == 32
  const uint64_t step = (UINT64_C(1) << 32) / samples;
  const uint32_t bits = (uint32_t)(at * step + (step > 1 ? at * 2654435761u % step : 0));
#else
  const uint64_t step = UINT64_MAX / samples + 1, bits = at * step + (at * UINT64_C(0x9E3779B97F4A7C15)) % step;
#endif
  real v;
  memcpy(&v, &bits, sizeof v);
  return isfinite(v) ? v : 1;
}

static const real gradients[2] = {1, (real)-3.7};
static const double bars[3] = {4, 4, 5}; /* value, derivative, derivative times dy */

static void sweep(const row *r, uint64_t samples) {
  const format *f = &full;
  worst w[3] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  real x[BLOCK], dy[BLOCK];
  for (uint64_t at = 0; at < samples; at += BLOCK) {
    for (int i = 0; i < BLOCK; i++) x[i] = sample(at + (uint64_t)i, samples), dy[i] = gradients[i >> 2 & 1];
    for (int pass = 0; pass < 2; pass++) measure(r, pass, f, x, dy, 0, &w[pass]);
  }
  printf("%-13s %-4s", r->name, f->name);
  for (int k = 0; k < 3; k++) printf(" %8.2f at %-13.6g", (double)w[k].err, w[k].x);
  printf("\n");
  for (int k = 0; k < 3; k++) check(w[k].err <= bars[k], f->name, r->name, w[k].x, w[k].y, w[k].t);
}

#if AMBI_REAL == 32
static real half_value(uint32_t bits, const format *f) {
  const int mantissa = f->digits - 1, exponents = (1 << (15 - mantissa)) - 1;
  const int m = (int)(bits & ((1u << mantissa) - 1)), e = (int)(bits >> mantissa) & exponents;
  const double size = e ? ldexp((double)(m + (1 << mantissa)), e - 1 + f->lowest) : ldexp((double)m, f->lowest);
  return e == exponents ? 1 : (real)(bits >> 15 ? -size : size);
}

static void sweep_half(const row *r, const format *f) {
  worst w[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  real x[BLOCK], dy[BLOCK];
  for (uint32_t at = 0; at < 65536; at += BLOCK) {
    for (int i = 0; i < BLOCK; i++) x[i] = half_value(at + (uint32_t)i, f), dy[i] = 1;
    for (int pass = 0; pass < 2; pass++) measure(r, pass + 2, f, x, dy, 1, &w[pass]);
  }
  printf("%-13s %-4s %8.2f at %-13.6g %8.2f at %-13.6g\n", r->name, f->name, (double)w[0].err, w[0].x, (double)w[1].err,
         w[1].x);
  check(w[0].err <= 1, f->name, r->name, w[0].x, w[0].y, w[0].t);
  check(w[1].err <= 1, f->name, r->name, w[1].x, w[1].y, w[1].t);
}
#endif

/* ---- exact values: limits, kinks, zeros; dy = 1 ---- */

#define INF INFINITY
static const struct {
  const char *name;
  double x, y, dx;
} exact[] = {
    {"silu", -INF, -0.0, 0},
    {"silu", INF, INF, 1},
    {"silu", 0, 0, 0.5},
    {"silu", -0.0, -0.0, 0.5},
    {"gelu", -INF, -0.0, 0},
    {"gelu", INF, INF, 1},
    {"gelu", 0, 0, 0.5},
    {"gelu", -0.0, -0.0, 0.5},
    {"gelu_tanh", -INF, -0.0, 0},
    {"gelu_tanh", INF, INF, 1},
    {"gelu_tanh", 0, 0, 0.5},
    {"gelu_tanh", -0.0, -0.0, 0.5},
    {"relu", -INF, 0, 0},
    {"relu", INF, INF, 1},
    {"relu", 0, 0, 0},
    {"relu6", -INF, 0, 0},
    {"relu6", INF, 6, 0},
    {"relu6", 0, 0, 0},
    {"relu6", 6, 6, 0},
    {"leaky_relu", 0, 0, (real)0.01},
    {"leaky_relu", INF, INF, 1},
    {"elu", -INF, -1, 0},
    {"elu", INF, INF, 1},
    {"elu", 0, 0, 1},
    {"elu", -0.0, -0.0, 1},
    {"selu", INF, INF, (real)SELU_L},
    {"selu", -INF, -(real)(SELU_L *SELU_C), 0},
    {"selu", 0, 0, (real)(SELU_L *SELU_C)},
    {"sigmoid", -INF, 0, 0},
    {"sigmoid", INF, 1, 0},
    {"sigmoid", 0, 0.5, 0.25},
    {"logsigmoid", -INF, -INF, 1},
    {"logsigmoid", INF, -0.0, 0},
    {"tanh", -INF, -1, 0},
    {"tanh", INF, 1, 0},
    {"tanh", 0, 0, 1},
    {"tanh", -0.0, -0.0, 1},
    {"softplus", -INF, 0, 0},
    {"softplus", INF, INF, 1},
    {"softsign", -INF, -1, 0},
    {"softsign", INF, 1, 0},
    {"softsign", -0.0, -0.0, 1},
    {"mish", -INF, -0.0, 0},
    {"mish", INF, INF, 1},
    {"mish", -0.0, -0.0, 0.6},
    {"hardswish", -INF, -0.0, 0},
    {"hardswish", INF, INF, 1},
    {"hardswish", -3, -0.0, 0},
    {"hardswish", 3, 3, 1},
    {"hardswish", -1.5, -0.375, 0},
    {"hardswish", -1.5 + 0x1p-20, -0.375, 0x1p-20 / 3},
    {"hardsigmoid", -INF, 0, 0},
    {"hardsigmoid", INF, 1, 0},
    {"hardsigmoid", -3, 0, 0},
    {"hardsigmoid", 3, 1, 0},
    {"hardtanh", -INF, -1, 0},
    {"hardtanh", INF, 1, 0},
    {"hardtanh", 1, 1, 0},
    {"hardtanh", -1, -1, 0},
    {"relu_squared", -INF, 0, 0},
    {"relu_squared", INF, INF, INF},
    {"exp", -INF, 0, 0},
    {"exp", INF, INF, INF},
    {"exp", 0, 1, 1},
    {"log", 0, -INF, INF},
    {"log", -1, NAN, -1},
    {"log", INF, INF, 0},
    {"log", 1, 0, 1},
    {"sqrt", 0, 0, INF},
    {"sqrt", -0.0, -0.0, -INF},
    {"sqrt", INF, INF, 0},
    {"sqrt", -1, NAN, NAN},
    {"rsqrt", 0, INF, -INF},
    {"rsqrt", INF, 0, 0},
    {"rsqrt", -1, NAN, NAN},
    {"square", -INF, INF, -INF},
    {"abs", -INF, INF, -1},
    {"abs", 0, 0, 0},
    {"abs", -0.0, 0, 0},
    {"reciprocal", 0, INF, -INF},
    {"reciprocal", INF, 0, 0},
    {"reciprocal", -INF, -0.0, 0},
    {"sin", INF, NAN, NAN},
    {"sin", -0.0, -0.0, 1},
    {"sin", 0, 0, 1},
    {"cos", -INF, NAN, NAN},
    {"cos", 0, 1, 0},
    {"erf", -INF, -1, 0},
    {"erf", INF, 1, 0},
    {"erf", -0.0, -0.0, 2 / 1.7724538509055160},
};

static int same(double got, double expected) {
  if (isnan(expected)) return isnan(got);
  return isfinite(expected) ? fabs(got - expected) <= 1e-3 * fabs(expected) : got == expected;
}

static void check_exact(const row *r, int half) {
  real x[BLOCK], dy[BLOCK], y[BLOCK], dx[BLOCK];
  for (size_t c = 0; c < sizeof exact / sizeof *exact; c++) {
    if (strcmp(exact[c].name, r->name)) continue;
    for (int i = 0; i < BLOCK; i++) x[i] = (real)exact[c].x, dy[i] = 1;
    r->pass[2 * half](x, dy, y, r->a, r->b);
    r->pass[2 * half + 1](x, dy, dx, r->a, r->b);
    const int zero = exact[c].y != 0 || !signbit(exact[c].y) == !signbit(y[0]);
    check(same((double)y[0], exact[c].y) && zero, "value", r->name, exact[c].x, (double)y[0], exact[c].y);
    check(same((double)dx[0], exact[c].dx), "derivative", r->name, exact[c].x, (double)dx[0], exact[c].dx);
  }
  for (int i = 0; i < BLOCK; i++) x[i] = NAN, dy[i] = 1;
  const int constant = !strcmp(r->name, "neg") || !strcmp(r->name, "identity"); /* f' does not look at x */
  for (int pass = 0; pass < 2; pass++) {
    r->pass[2 * half + pass](x, dy, y, r->a, r->b);
    check(isnan(y[0]) || (pass && constant), pass ? "derivative" : "value", r->name, NAN, (double)y[0], NAN);
  }
}

/* ---- speed ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double ns_per_16(loop *f, const row *r) {
  static _Alignas(64) real x[BLOCK], dy[BLOCK], y[BLOCK];
  for (int i = 0; i < BLOCK; i++) x[i] = (real)(8.0 * ((double)i / BLOCK) - 4.0), dy[i] = 1;
  double best = 1e30;
  for (int trial = 0; trial < 20; trial++) {
    const double start = now();
    for (int i = 0; i < 300; i++) f(x, dy, y, r->a, r->b);
    best = fmin(best, (now() - start) / (300.0 * BLOCK / 16.0));
  }
  return best;
}

static void time_row(const row *r) {
  printf("%-13s", r->name);
  for (int pass = 0; pass < 4; pass++)
    if (r->pass[pass]) printf(" %8.2f", ns_per_16(r->pass[pass], r));
  printf("\n");
}

int main(int argc, char **argv) {
  uint64_t samples = UINT64_C(1) << 18;
  const char *only = NULL;
  int timing = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--exhaustive"))
      samples = UINT64_C(1) << 32;
    else if (!strcmp(argv[i], "--samples") && i + 1 < argc)
      samples = strtoull(argv[++i], NULL, 10) / BLOCK * BLOCK;
    else if (!strcmp(argv[i], "--time"))
      timing = 1;
    else
      only = argv[i];
  }
  if (samples < BLOCK) samples = BLOCK;
  printf(timing ? "ns per 16: value, derivative, half value, half derivative\n"
                : "largest error in ulp: value, derivative, derivative times -3.7\n");
  for (int i = 0; i < ROWS; i++) {
    if (only && strcmp(only, rows[i].name)) continue;
    if (timing) {
      time_row(&rows[i]);
      continue;
    }
    sweep(&rows[i], samples);
    check_exact(&rows[i], 0);
#if AMBI_REAL == 32
    sweep_half(&rows[i], &f16);
    sweep_half(&rows[i], &bf16);
    check_exact(&rows[i], 1);
#endif
  }
  if (!timing) printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
