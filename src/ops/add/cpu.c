/* add on the CPU. */
#include "backends/cpu/pointwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

static void sum(const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) {
  const real *a = in[0], *b = in[1];
  real *y = out[0];
  for (int64_t i = 0; i < n; i += VL)
    v_put_past(y + i, v_get(a + i, n - i) * factor[0] + v_get(b + i, n - i) * factor[1], n - i, stream);
}

static void share(const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) {
  const real *dy = in[0];
  real *da = out[0], *db = out[1];
  for (int64_t i = 0; i < n; i += VL) {
    vr d = v_get(dy + i, n - i);
    v_put_past(da + i, d * factor[0], n - i, stream);
    v_put_past(db + i, d * factor[1], n - i, stream);
  }
}

static void forward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = sum, .in = {A, B}, .ins = 2, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = share,
                               .in = {AMBI_GRAD(Y)},
                               .ins = 1,
                               .out = {AMBI_GRAD(A), AMBI_GRAD(B)},
                               .outs = 2});
}

const cpu_kernel CPU_KERNEL(add) = {"pointwise", NULL, forward, backward};
