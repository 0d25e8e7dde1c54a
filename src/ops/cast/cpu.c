/* cast on the CPU: strips convert, so there is only a copy left to write. */
#include "backends/cpu/pointwise.h"

static void move(const real *const *in, real *const *out, int64_t n, const real *none) {
  (void)none;
  for (int64_t i = 0; i < n; i += VL) v_put(out[0] + i, v_get(in[0] + i, n - i), n - i);
}

static void forward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = move, .in = {AMBI_CAST_X}, .ins = 1, .out = {AMBI_CAST_Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(
      c, (pointwise){.fn = move, .in = {AMBI_GRAD(AMBI_CAST_Y)}, .ins = 1, .out = {AMBI_GRAD(AMBI_CAST_X)}, .outs = 1});
}

const cpu_kernel CPU_KERNEL(cast) = {"pointwise", NULL, forward, backward};
