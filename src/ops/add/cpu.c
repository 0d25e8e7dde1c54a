/* add on the CPU. */
#include "backends/cpu/pointwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

static void sum(const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) {
  const real *a = in[0], *b = in[1];
  real *y = out[0];
  FOR_LANES(i, n, v_put_past(y + i, v_get(a + i, left) * factor[0] + v_get(b + i, left) * factor[1], left, stream););
}

static void share(const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) {
  const real *dy = in[0];
  real *da = out[0], *db = out[1];
  FOR_LANES(i, n, {
    vr d = v_get(dy + i, left);
    v_put_past(da + i, d * factor[0], left, stream);
    v_put_past(db + i, d * factor[1], left, stream);
  });
}

static void forward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = sum, .in = {A, B}, .ins = 2, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(
      c, (pointwise){.fn = share, .in = {AMBI_GRAD(Y)}, .ins = 1, .out = {AMBI_GRAD(A), AMBI_GRAD(B)}, .outs = 2});
}

const cpu_kernel CPU_KERNEL(add) = {"pointwise", NULL, forward, backward};
