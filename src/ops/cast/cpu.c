/* cast on the CPU: strips convert, so there is only a copy left to write. */
#include "backends/cpu/pointwise.h"

static void move(const void *const *in, void *const *out, int64_t n, const real *none, bool stream) {
  (void)none;
  const real *from = in[0];
  real *to = out[0];
  FOR_LANES(i, n, v_put_past(to + i, v_get(from + i, left), left, stream););
}

static void forward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = move, .in = {AMBI_CAST_X}, .ins = 1, .out = {AMBI_CAST_Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(
      c, (pointwise){.fn = move, .in = {AMBI_GRAD(AMBI_CAST_Y)}, .ins = 1, .out = {AMBI_GRAD(AMBI_CAST_X)}, .outs = 1});
}

const cpu_kernel CPU_KERNEL(cast) = {"pointwise", NULL, forward, backward};
