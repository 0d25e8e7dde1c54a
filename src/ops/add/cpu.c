/* add on the CPU. */
#include "backends/cpu/pointwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

static void sum(const real *const *in, real *const *out, int64_t n, const real *factor) {
  for (int64_t i = 0; i < n; i += VL)
    v_put(out[0] + i, v_get(in[0] + i, n - i) * factor[0] + v_get(in[1] + i, n - i) * factor[1], n - i);
}

static void share(const real *const *in, real *const *out, int64_t n, const real *factor) {
  for (int64_t i = 0; i < n; i += VL) {
    vr dy = v_get(in[0] + i, n - i);
    for (int j = 0; j < 2; j++)
      if (out[j]) v_put(out[j] + i, dy * factor[j], n - i);
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
