/* gated on the CPU: a loop per gate and pass; the activations are those of elementwise.def. */
#include "backends/cpu/math.h"
#include "backends/cpu/pointwise.h"
#include "ops/gated/op.h"

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };
enum { DV = AMBI_GRAD(V), DG = AMBI_GRAD(G), DY = AMBI_GRAD(Y) };

/* y = v act(g);   dv = dy act(g), dg = dy v act'(g)
 * STORED, GET and PUT: what lies in memory and how a vector of it is read and written. */
#define LOOPS(act)                                                                                         \
  static void FUNCTION(act##_forward)(const void *const *in, void *const *out, int64_t n, const real *ab,  \
                                      bool stream) {                                                       \
    const STORED *v = in[0], *g = in[1];                                                                   \
    STORED *y = out[0];                                                                                    \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                             \
    FOR_LANES(i, n, {                                                                                      \
      v_ahead(v + i), v_ahead(g + i);                                                                      \
      PUT(y + i, FUNCTION(act##_value)(GET(g + i, left), a, b) * GET(v + i, left), left, stream);          \
    });                                                                                                    \
  }                                                                                                        \
  static void FUNCTION(act##_backward)(const void *const *in, void *const *out, int64_t n, const real *ab, \
                                       bool stream) {                                                      \
    const STORED *v = in[0], *g = in[1], *dy = in[2];                                                      \
    STORED *dv = out[0], *dg = out[1];                                                                     \
    vr a = v_splat(ab[0]), b = v_splat(ab[1]);                                                             \
    FOR_LANES(i, n, {                                                                                      \
      v_ahead(v + i), v_ahead(g + i), v_ahead(dy + i);                                                     \
      vr gate = GET(g + i, left), f = FUNCTION(act##_value)(gate, a, b), d = GET(dy + i, left);            \
      vr dvalue = d * f, dgate = FUNCTION(act##_grad)(gate, d * GET(v + i, left), a, b);                   \
      PUT(dv + i, dvalue, left, stream);                                                                   \
      PUT(dg + i, dgate, left, stream);                                                                    \
    });                                                                                                    \
  }

#define EACH_ACTIVATION(X) X(silu) X(sigmoid) X(relu) X(gelu) X(gelu_tanh) X(identity)

typedef struct {
  pointwise_fn *forward, *backward;
} loops;

#define TABLE                                                                        \
  {                                                                                  \
    [AMBI_SWIGLU] = {FUNCTION(silu_forward), FUNCTION(silu_backward)},               \
    [AMBI_GLU] = {FUNCTION(sigmoid_forward), FUNCTION(sigmoid_backward)},            \
    [AMBI_REGLU] = {FUNCTION(relu_forward), FUNCTION(relu_backward)},                \
    [AMBI_GEGLU] = {FUNCTION(gelu_forward), FUNCTION(gelu_backward)},                \
    [AMBI_GEGLU_TANH] = {FUNCTION(gelu_tanh_forward), FUNCTION(gelu_tanh_backward)}, \
    [AMBI_BILINEAR] = {FUNCTION(identity_forward), FUNCTION(identity_backward)},     \
  }

/* ---- reals, exact to a few ulp ----------------------------------------------------------------------------- */
#define FUNCTION(name) name
#define STORED         real
#define GET            v_get
#define PUT            v_put_past
#include "backends/cpu/functions.h"
EACH_ACTIVATION(LOOPS)
static const loops reals[AMBI_GATES] = TABLE;
#undef FUNCTION
#undef STORED
#undef GET
#undef PUT

/* ---- bf16, exact enough for that ------------------------------------------------------------------------------ */
#if HAS_BF16S
#include "backends/cpu/math_half.h"
#define FUNCTION(name) name##_bf16
#define STORED         uint16_t
#define GET            bf16_get
#define PUT            bf16_put_past
#include "backends/cpu/functions.h"
EACH_ACTIVATION(LOOPS)
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
