/* unary on the CPU: a loop per function and pass, made from elementwise.def. */
#include "backends/cpu/math.h"
#include "backends/cpu/pointwise.h"

enum { X = AMBI_UNARY_X, Y = AMBI_UNARY_Y };

#define LOOPS(name)                                                                                           \
  static void FUNCTION(name##_forward)(const real *const *in, real *const *out, int64_t n, const real *ab) {  \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                                \
    for (int64_t i = 0; i < n; i += VL)                                                                       \
      v_put(out[0] + i, FUNCTION(name##_value)(v_get(in[0] + i, n - i), a, b), n - i);                        \
  }                                                                                                           \
  static void FUNCTION(name##_backward)(const real *const *in, real *const *out, int64_t n, const real *ab) { \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                                \
    for (int64_t i = 0; i < n; i += VL) {                                                                     \
      vr x = v_get(in[0] + i, n - i), dy = v_get(in[1] + i, n - i);                                           \
      v_put(out[0] + i, FUNCTION(name##_grad)(x, dy, a, b), n - i);                                           \
    }                                                                                                         \
  }

typedef struct {
  pointwise_fn *forward, *backward;
} loops;

/* ---- exact to a few ulp of real ------------------------------------------------------------------------ */
#define FUNCTION(name) name
#include "backends/cpu/functions.h"
#define UNARY(name, ...) LOOPS(name)
#include "ops/elementwise.def"
#undef UNARY

static const loops full[AMBI_FUNCTIONS] = {
#define UNARY(name, NAME, ...) [AMBI_##NAME] = {FUNCTION(name##_forward), FUNCTION(name##_backward)},
#include "ops/elementwise.def"
#undef UNARY
};
#undef FUNCTION

/* ---- enough for results stored in 16 bits ---------------------------------------------------------------- */
#if AMBI_REAL == 32
#include "backends/cpu/math_half.h"
#define FUNCTION(name) name##_half
#include "backends/cpu/functions.h"
#define UNARY(name, ...) LOOPS(name)
#include "ops/elementwise.def"
#undef UNARY

static const loops half[AMBI_FUNCTIONS] = {
#define UNARY(name, NAME, ...) [AMBI_##NAME] = {FUNCTION(name##_forward), FUNCTION(name##_backward)},
#include "ops/elementwise.def"
#undef UNARY
};
#undef FUNCTION
#else
#define half full
#endif

static const loops *loops_of(const cpu_call *c) {
  return (writes_only_halves(c->p) ? half : full) + c->p->op.u.unary.function;
}

static void forward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = loops_of(c)->forward, .in = {X}, .ins = 1, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = loops_of(c)->backward,
                               .in = {X, AMBI_GRAD(Y)},
                               .ins = 2,
                               .out = {AMBI_GRAD(X)},
                               .outs = 1});
}

const cpu_kernel CPU_KERNEL(unary) = {"pointwise", NULL, forward, backward};
