/* gated on the CPU: a loop per gate and pass; the activations are those of elementwise.def. */
#include "backends/cpu/math.h"
#include "backends/cpu/pointwise.h"
#include "ops/gated/op.h"

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };
enum { DV = AMBI_GRAD(V), DG = AMBI_GRAD(G), DY = AMBI_GRAD(Y) };

/* y = v act(g);   dv = dy act(g), dg = dy v act'(g), each where it is wanted */
#define LOOPS(act)                                                                                           \
  static void FUNCTION(act##_forward)(const real *const *in, real *const *out, int64_t n, const real *ab) {  \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                               \
    for (int64_t i = 0; i < n; i += VL) {                                                                    \
      vr v = v_get(in[0] + i, n - i), g = v_get(in[1] + i, n - i);                                           \
      v_put(out[0] + i, v * FUNCTION(act##_value)(g, a, b), n - i);                                          \
    }                                                                                                        \
  }                                                                                                          \
  static void FUNCTION(act##_backward)(const real *const *in, real *const *out, int64_t n, const real *ab) { \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                               \
    for (int64_t i = 0; i < n; i += VL) {                                                                    \
      vr g = v_get(in[1] + i, n - i), dy = v_get(in[2] + i, n - i);                                          \
      vr dact = out[1] ? dy * v_get(in[0] + i, n - i) : dy;                                                  \
      if (out[0]) v_put(out[0] + i, dy * FUNCTION(act##_value)(g, a, b), n - i);                             \
      if (out[1]) v_put(out[1] + i, FUNCTION(act##_grad)(g, dact, a, b), n - i);                             \
    }                                                                                                        \
  }

#define EACH_ACTIVATION(X) X(silu) X(sigmoid) X(relu) X(gelu) X(gelu_tanh) X(identity)

typedef struct {
  pointwise_fn *forward, *backward;
} loops;

#define TABLE                                                                           \
  {                                                                                     \
    [AMBI_SWIGLU] = {FUNCTION(silu_forward), FUNCTION(silu_backward)},                  \
    [AMBI_GLU] = {FUNCTION(sigmoid_forward), FUNCTION(sigmoid_backward)},               \
    [AMBI_REGLU] = {FUNCTION(relu_forward), FUNCTION(relu_backward)},                   \
    [AMBI_GEGLU] = {FUNCTION(gelu_forward), FUNCTION(gelu_backward)},                   \
    [AMBI_GEGLU_TANH] = {FUNCTION(gelu_tanh_forward), FUNCTION(gelu_tanh_backward)},    \
    [AMBI_BILINEAR] = {FUNCTION(identity_forward), FUNCTION(identity_backward)},        \
  }

/* ---- exact to a few ulp of real ------------------------------------------------------------------------ */
#define FUNCTION(name) name
#include "backends/cpu/functions.h"
EACH_ACTIVATION(LOOPS)
static const loops full[AMBI_GATES] = TABLE;
#undef FUNCTION

/* ---- enough for results stored in 16 bits ---------------------------------------------------------------- */
#if AMBI_REAL == 32
#include "backends/cpu/math_half.h"
#define FUNCTION(name) name##_half
#include "backends/cpu/functions.h"
EACH_ACTIVATION(LOOPS)
static const loops half[AMBI_GATES] = TABLE;
#undef FUNCTION
#else
#define half full
#endif

static const loops *loops_of(const cpu_call *c) { return (writes_only_halves(c->p) ? half : full) + c->p->op.u.gated.gate; }

static void forward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = loops_of(c)->forward, .in = {V, G}, .ins = 2, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = loops_of(c)->backward, .in = {V, G, DY}, .ins = 3, .out = {DV, DG}, .outs = 2});
}

const cpu_kernel CPU_KERNEL(gated) = {"pointwise", NULL, forward, backward};
