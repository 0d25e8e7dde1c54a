/* unary on the CPU: a loop per function and pass, made from elementwise.def. */
#include "backends/cpu/math.h"
#include "backends/cpu/pointwise.h"

enum { X = AMBI_UNARY_X, Y = AMBI_UNARY_Y };

/* STORED: what lies in memory. A step is HALVES vectors: GET reads a half of it, PUT writes them all. */
#define STEP (HALVES * VL)
#define LOOPS(name)                                                                                         \
  static void FUNCTION(name##_forward)(const void *const *in, void *const *out, int64_t n, const real *ab,  \
                                       bool stream) {                                                       \
    const STORED *x = in[0];                                                                                \
    STORED *to = out[0];                                                                                    \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                              \
    FOR_STEPS(STEP, i, n, {                                                                                 \
      vr y[HALVES];                                                                                         \
      prefetch_ahead(x + i);                                                                                \
      EACH_HALF(HALVES) y[half] = FUNCTION(name##_value)(GET(x + i), a, b);                                 \
      PUT(to + i, y);                                                                                       \
    });                                                                                                     \
  }                                                                                                         \
  static void FUNCTION(name##_backward)(const void *const *in, void *const *out, int64_t n, const real *ab, \
                                        bool stream) {                                                      \
    const STORED *x = in[0], *dy = in[1];                                                                   \
    STORED *to = out[0];                                                                                    \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                              \
    FOR_STEPS(STEP, i, n, {                                                                                 \
      vr dx[HALVES];                                                                                        \
      prefetch_ahead(x + i), prefetch_ahead(dy + i);                                                        \
      EACH_HALF(HALVES) dx[half] = FUNCTION(name##_grad)(GET(x + i), GET(dy + i), a, b);                    \
      PUT(to + i, dx);                                                                                      \
    });                                                                                                     \
  }

typedef struct {
  pointwise_fn *forward, *backward;
} loops;

/* ---- reals, exact to a few ulp ---- */
#define FUNCTION(name) name
#define STORED         real
#define HALVES         1
#define GET(p)         v_get(p, left)
#define PUT(p, v)      v_put_past(p, (v)[0], left, stream)
#include "backends/cpu/functions.h"
#define UNARY(name, ...) LOOPS(name)
#include "ops/elementwise.def"
#undef UNARY

static const loops reals[AMBI_FUNCTIONS] = {
#define UNARY(name, NAME, ...) [AMBI_##NAME] = {FUNCTION(name##_forward), FUNCTION(name##_backward)},
#include "ops/elementwise.def"
#undef UNARY
};
#undef FUNCTION
#undef STORED
#undef HALVES
#undef GET
#undef PUT

/* ---- bf16, exact enough for that ---- */
#if HAS_BF16S
#include "backends/cpu/math_half.h"
#define FUNCTION(name) name##_bf16
#define STORED         uint16_t
#define HALVES         2
#define GET(p)         bf16_half(p, half, left)
#define PUT(p, v)      bf16_put_halves(p, v, left, stream)
#include "backends/cpu/functions.h"
#define UNARY(name, ...) LOOPS(name)
#include "ops/elementwise.def"
#undef UNARY

static const loops bf16s[AMBI_FUNCTIONS] = {
#define UNARY(name, NAME, ...) [AMBI_##NAME] = {FUNCTION(name##_forward), FUNCTION(name##_backward)},
#include "ops/elementwise.def"
#undef UNARY
};
#else
static const loops bf16s[AMBI_FUNCTIONS];
#endif

/* A kernel pack is compiled for one function: the others then leave no trace. */
static int function_of(const cpu_call *c) {
#ifdef AMBI_ONE_FUNCTION
  (void)c;
  return AMBI_ONE_FUNCTION;
#else
  return c->p->op.u.unary.function;
#endif
}

static void forward(const cpu_call *c) {
  int f = function_of(c);
  pointwise_run(
      c, (pointwise){.fn = reals[f].forward, .bf16 = bf16s[f].forward, .in = {X}, .ins = 1, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  int f = function_of(c);
  pointwise_run(c, (pointwise){.fn = reals[f].backward,
                               .bf16 = bf16s[f].backward,
                               .in = {X, AMBI_GRAD(Y)},
                               .ins = 2,
                               .out = {AMBI_GRAD(X)},
                               .outs = 1});
}

const cpu_kernel CPU_KERNEL(unary) = {"pointwise", NULL, forward, backward};
