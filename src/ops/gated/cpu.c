/* gated on the CPU: a loop per gate and pass; the activations are those of elementwise.def. */
#include "backends/cpu/math.h"
#include "backends/cpu/pointwise.h"
#include "ops/gated/op.h"

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };
enum { DV = AMBI_GRAD(V), DG = AMBI_GRAD(G), DY = AMBI_GRAD(Y) };

/* y = v act(g);   dv = dy act(g), dg = dy v act'(g)
 * STORED: what lies in memory. A step is HALVES vectors: GET reads a half of it, PUT writes them all. */
#define STEP (HALVES * VL)
#define FORWARD(act)                                                                                                 \
  static void LOOP(act##_forward)(const void *const *in, void *const *out, int64_t n, const real *ab, bool stream) { \
    const STORED *v = in[0], *g = in[1];                                                                             \
    STORED *to = out[0];                                                                                             \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                                       \
    FOR_STEPS(STEP, i, n, {                                                                                          \
      vr y[HALVES];                                                                                                  \
      prefetch_ahead(v + i), prefetch_ahead(g + i);                                                                  \
      EACH_HALF(HALVES) y[half] = FUNCTION(act##_value)(GET(g + i), a, b) * GET(v + i);                              \
      PUT(to + i, y);                                                                                                \
    });                                                                                                              \
  }

#define BACKWARD(act)                                                                                                 \
  static void LOOP(act##_backward)(const void *const *in, void *const *out, int64_t n, const real *ab, bool stream) { \
    const STORED *v = in[0], *g = in[1], *dy = in[2];                                                                 \
    STORED *to_v = out[0], *to_g = out[1];                                                                            \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                                        \
    FOR_STEPS(STEP, i, n, {                                                                                           \
      vr dv[HALVES], dg[HALVES];                                                                                      \
      prefetch_ahead(v + i), prefetch_ahead(g + i), prefetch_ahead(dy + i);                                           \
      EACH_HALF(HALVES) {                                                                                             \
        vr gate = GET(g + i), f = FUNCTION(act##_value)(gate, a, b), d = GET(dy + i);                                 \
        dv[half] = d * f;                                                                                             \
        dg[half] = FUNCTION(act##_grad)(gate, d * GET(v + i), a, b);                                                  \
      }                                                                                                               \
      PUT(to_v + i, dv);                                                                                              \
      PUT(to_g + i, dg);                                                                                              \
    });                                                                                                               \
  }

#define EACH_ACTIVATION(X) X(silu) X(sigmoid) X(relu) X(gelu) X(gelu_tanh) X(identity)

typedef struct {
  pointwise_fn *forward, *backward;
} loops;

#define TABLE                                                                \
  {                                                                          \
    [AMBI_SWIGLU] = {LOOP(silu_forward), LOOP(silu_backward)},               \
    [AMBI_GLU] = {LOOP(sigmoid_forward), LOOP(sigmoid_backward)},            \
    [AMBI_REGLU] = {LOOP(relu_forward), LOOP(relu_backward)},                \
    [AMBI_GEGLU] = {LOOP(gelu_forward), LOOP(gelu_backward)},                \
    [AMBI_GEGLU_TANH] = {LOOP(gelu_tanh_forward), LOOP(gelu_tanh_backward)}, \
    [AMBI_BILINEAR] = {LOOP(identity_forward), LOOP(identity_backward)},     \
  }

/* ---- reals, exact to a few ulp ---- */
#define FUNCTION(name) name
#define LOOP(name)     name
#define STORED         real
#define HALVES         1
#define GET(p)         v_get(p, left)
#define PUT(p, v)      v_put_past(p, (v)[0], left, stream)
#ifdef AMBI_WIDE /* see v_now; here it helps, beside the gradient not */
#define m_logit(t) m_logit(v_now(t))
#endif
#include "backends/cpu/functions.h"
EACH_ACTIVATION(FORWARD)
#undef m_logit
#undef FUNCTION
#define FUNCTION(name) name##_beside_grad
#if AMBI_REAL == 32 /* the value and the derivative share a division */
#define m_gate gate_beside_grad
#endif
#include "backends/cpu/functions.h"
EACH_ACTIVATION(BACKWARD)
#undef m_gate
static const loops reals[AMBI_GATES] = TABLE;
#undef FUNCTION
#undef LOOP
#undef STORED
#undef HALVES
#undef GET
#undef PUT

/* ---- bf16, exact enough for that ---- */
#if HAS_BF16S
#include "backends/cpu/math_half.h"
#define LOOP(name)     name##_bf16
#define STORED         uint16_t
#define HALVES         2
#define GET(p)         bf16_half(p, half, left)
#define PUT(p, v)      bf16_put_halves(p, v, left, stream)
#define FUNCTION(name) name##_bf16
#include "backends/cpu/functions.h"
EACH_ACTIVATION(FORWARD)
#undef FUNCTION
#undef m_gate
#define FUNCTION(name) name##_beside_grad_bf16
#define m_gate         half_gate_beside_grad
#include "backends/cpu/functions.h"
EACH_ACTIVATION(BACKWARD)
static const loops bf16s[AMBI_GATES] = TABLE;
#else
static const loops bf16s[AMBI_GATES];
#endif

/* A kernel pack is compiled for one gate: the others then leave no trace. */
static int gate_of(const cpu_call *c) {
#ifdef AMBI_ONE_FUNCTION
  (void)c;
  return AMBI_ONE_FUNCTION;
#else
  return c->p->op.u.gated.gate;
#endif
}

static void forward(const cpu_call *c) {
  int k = gate_of(c);
  pointwise_run(
      c, (pointwise){.fn = reals[k].forward, .bf16 = bf16s[k].forward, .in = {V, G}, .ins = 2, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  int k = gate_of(c);
  pointwise_run(
      c,
      (pointwise){
          .fn = reals[k].backward, .bf16 = bf16s[k].backward, .in = {V, G, DY}, .ins = 3, .out = {DV, DG}, .outs = 2});
}

const cpu_kernel CPU_KERNEL(gated) = {"pointwise", NULL, forward, backward};
