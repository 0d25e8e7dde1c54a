/* cast on the CPU: strips convert. */
#include "backends/cpu/pointwise.h"

static void move(const cpu_call *c, int from, int to) {
  pointwise_run(c, (pointwise){.fn = move_values, .moves = true, .in = {from}, .ins = 1, .out = {to}, .outs = 1});
}

static void forward(const cpu_call *c) { move(c, AMBI_CAST_X, AMBI_CAST_Y); }
static void backward(const cpu_call *c) { move(c, AMBI_GRAD(AMBI_CAST_Y), AMBI_GRAD(AMBI_CAST_X)); }

const cpu_kernel CPU_KERNEL(cast) = {"pointwise", NULL, forward, backward};
