/* copy on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"

enum { X = AMBI_COPY_X, Y = AMBI_COPY_Y, THREADS = 256, UNROLL = 2 };

extern const char copy_cu[];

static ambi_status plan(cuda_plan *k) {
  if (is_backward(k->p)) {
    cuda_pointwise(k, (cuda_points){.in = {AMBI_GRAD(Y)}, .ins = 1, .out = {AMBI_GRAD(X)}, .outs = 1});
    return AMBI_OK;
  }
  line_split split = cuda_lines(k, &elementwise(k->p)->all, ~UINT32_C(0));
  k->variant = k->special ? "pointwise" : "general";
  cuda_fix(k, "UNROLL", UNROLL);
  cuda_launch(k, "copy_forward", ceil_div(line_vectors(split), THREADS * UNROLL), 1, THREADS, 1, 0);
  return AMBI_OK;
}

const cuda_kernel copy_cuda = {copy_cu, plan};
