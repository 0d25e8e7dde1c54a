/* functions.c -- elementwise functions from their definitions, by libm, in long double. */
#include "functions.h"

#include <ambi/ambi.h>
#include <float.h>
#include <math.h>
#include <stddef.h>

typedef long double real;

/* How finely libm computes. WASI's long double has 113 bits, but its expl and all the others are those of doubles. */
#ifdef __wasi__
static const real unit = DBL_EPSILON;
#else
static const real unit = LDBL_EPSILON;
#endif

/* Neither form overflows where the other is needed. */
static real f_sigmoid(real x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }
static real f_softplus(real x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }
static real f_gelu_tanh(real x) {
  const real c = 0.79788456080286535587989211986876L; /* sqrt(2 / pi); (1 + tanh u) / 2 = sigmoid(2u) */
  return x * f_sigmoid(2 * c * (x + 0.044715L * x * x * x));
}
static real clamp(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

/* tanh(softplus(x)) = n / (n + 2), n = e^x (e^x + 2); for large x the ratio is 1. */
static real f_mish(real x) {
  if (x > 60) return x;
  real e = expl(x), n = e * (e + 2);
  return x * (n / (n + 2));
}

#define FUNCTION(name, body)                 \
  static real name(real x, real a, real b) { \
    (void)a, (void)b;                        \
    return body;                             \
  }
FUNCTION(silu, x *f_sigmoid(a *x))
FUNCTION(gelu, x *erfcl(-x * 0.70710678118654752440084436210485L) / 2)
FUNCTION(gelu_tanh, f_gelu_tanh(x))
FUNCTION(relu, x > 0 ? x : 0)
FUNCTION(relu6, clamp(x, 0, 6))
FUNCTION(leaky_relu, x > 0 ? x : a * x)
FUNCTION(elu, x > 0 ? x : a * expm1l(x))
FUNCTION(selu, 1.0507009873554804934193349852946L * (x > 0 ? x : 1.6732632423543772848170429916717L * expm1l(x)))
FUNCTION(sigmoid, f_sigmoid(x))
FUNCTION(logsigmoid, -f_softplus(-x))
FUNCTION(hyperbolic, tanhl(x))
FUNCTION(softplus, a *x > b ? x : f_softplus(a * x) / a)
FUNCTION(softsign, x / (1 + fabsl(x)))
FUNCTION(mish, f_mish(x))
FUNCTION(hardswish, x *clamp(x + 3, 0, 6) / 6)
FUNCTION(hardsigmoid, clamp(x + 3, 0, 6) / 6)
FUNCTION(hardtanh, clamp(x, a, b))
FUNCTION(relu_squared, x > 0 ? x * x : 0)
FUNCTION(exponential, expl(x))
FUNCTION(logarithm, logl(x))
FUNCTION(root, sqrtl(x))
FUNCTION(inverse_root, 1 / sqrtl(x))
FUNCTION(square, x *x)
FUNCTION(absolute, fabsl(x))
FUNCTION(negative, -x)
FUNCTION(reciprocal, 1 / x)
FUNCTION(sine, sinl(x))
FUNCTION(cosine, cosl(x))
FUNCTION(error_function, erfl(x))
FUNCTION(identity, x)

enum { PRODUCT = 1, POSITIVE = 2, NOT_ZERO = 4 };

typedef struct {
  real (*value)(real x, real a, real b);
  real a, b;          /* defaults                                 */
  int flags;          /* PRODUCT: x g(x); the others: the domain  */
  int kinks, at_edge; /* how many of `kink`; 1: a and b are kinks */
  real kink[2];
} function;

static const function functions[AMBI_FUNCTIONS] = {[AMBI_SILU] = {silu, 1, 0, PRODUCT, 0, 0, {0}},
                                                   [AMBI_GELU] = {gelu, 0, 0, PRODUCT, 0, 0, {0}},
                                                   [AMBI_GELU_TANH] = {gelu_tanh, 0, 0, PRODUCT, 0, 0, {0}},
                                                   [AMBI_RELU] = {relu, 0, 0, 0, 1, 0, {0}},
                                                   [AMBI_RELU6] = {relu6, 0, 0, 0, 2, 0, {0, 6}},
                                                   [AMBI_LEAKY_RELU] = {leaky_relu, 0.01L, 0, 0, 1, 0, {0}},
                                                   [AMBI_ELU] = {elu, 1, 0, 0, 1, 0, {0}},
                                                   [AMBI_SELU] = {selu, 0, 0, 0, 1, 0, {0}},
                                                   [AMBI_SIGMOID] = {sigmoid, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_LOGSIGMOID] = {logsigmoid, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_TANH] = {hyperbolic, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_SOFTPLUS] = {softplus, 1, 20, 0, 0, 1, {0}},
                                                   [AMBI_SOFTSIGN] = {softsign, 0, 0, 0, 1, 0, {0}},
                                                   [AMBI_MISH] = {mish, 0, 0, PRODUCT, 1, 0, {60}},
                                                   [AMBI_HARDSWISH] = {hardswish, 0, 0, PRODUCT, 2, 0, {-3, 3}},
                                                   [AMBI_HARDSIGMOID] = {hardsigmoid, 0, 0, 0, 2, 0, {-3, 3}},
                                                   [AMBI_HARDTANH] = {hardtanh, -1, 1, 0, 0, 1, {0}},
                                                   [AMBI_RELU_SQUARED] = {relu_squared, 0, 0, 0, 1, 0, {0}},
                                                   [AMBI_EXP] = {exponential, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_LOG] = {logarithm, 0, 0, POSITIVE, 0, 0, {0}},
                                                   [AMBI_SQRT] = {root, 0, 0, POSITIVE, 0, 0, {0}},
                                                   [AMBI_RSQRT] = {inverse_root, 0, 0, POSITIVE, 0, 0, {0}},
                                                   [AMBI_SQUARE] = {square, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_ABS] = {absolute, 0, 0, 0, 1, 0, {0}},
                                                   [AMBI_NEG] = {negative, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_RECIPROCAL] = {reciprocal, 0, 0, NOT_ZERO, 0, 0, {0}},
                                                   [AMBI_SIN] = {sine, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_COS] = {cosine, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_ERF] = {error_function, 0, 0, 0, 0, 0, {0}},
                                                   [AMBI_IDENTITY] = {identity, 0, 0, 0, 0, 0, {0}}};

long double function_value(int f, double a, double b, long double x) {
  const function *p = &functions[f];
  int defaults = a == 0 && b == 0;
  return p->value(x, defaults ? p->a : (real)a, defaults ? p->b : (real)b);
}

int function_is_product(int f) { return (functions[f].flags & PRODUCT) != 0; }

int function_is_smooth(int f, double a, double b, double x, double margin) {
  const function *p = &functions[f];
  int defaults = a == 0 && b == 0;
  real edge_a = defaults ? p->a : (real)a, edge_b = defaults ? p->b : (real)b;
  if ((p->flags & POSITIVE) && x <= margin) return 0;
  if ((p->flags & NOT_ZERO) && fabs(x) <= margin) return 0;
  for (int i = 0; i < p->kinks; i++)
    if (fabsl(x - p->kink[i]) <= margin) return 0;
  if (!p->at_edge) return 1;
  real scaled = f == AMBI_SOFTPLUS ? x * edge_a : x;
  return (f == AMBI_SOFTPLUS || fabsl(x - edge_a) > margin) && fabsl(scaled - edge_b) > margin * (1 + fabsl(edge_a));
}

/* (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h; h is a power of two, so that x +- h is exact. */
static real stencil(int f, double a, double b, real x, real h) {
  real near = function_value(f, a, b, x + h) - function_value(f, a, b, x - h);
  real far = function_value(f, a, b, x + 2 * h) - function_value(f, a, b, x - 2 * h);
  return (8 * near - far) / (12 * h);
}

long double function_slope(int f, double a, double b, long double x, long double *error) {
  int e;
  frexpl(fminl(fabsl(x), 1), &e);
  real h = ldexpl(1, e - 11), slope = stencil(f, a, b, x, h);
  /* truncation, 15 times over, and what the rounding of four values and of their arguments leaves */
  *error = fabsl(slope - stencil(f, a, b, x, 2 * h)) +
           8 * unit * (fabsl(function_value(f, a, b, x)) / h + fabsl(slope * x) / h);
  return slope;
}

int gate_function(int gate) {
  static const int act[AMBI_GATES] = {
      [AMBI_SWIGLU] = AMBI_SILU, [AMBI_GLU] = AMBI_SIGMOID,          [AMBI_REGLU] = AMBI_RELU,
      [AMBI_GEGLU] = AMBI_GELU,  [AMBI_GEGLU_TANH] = AMBI_GELU_TANH, [AMBI_BILINEAR] = AMBI_IDENTITY};
  return act[gate];
}
