/* cast on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"

enum { X = AMBI_CAST_X, Y = AMBI_CAST_Y };

extern const char cast_cu[];

static ambi_status plan(cuda_plan *k) {
  bool back = is_backward(k->p);
  cuda_pointwise(k,
                 (cuda_points){.in = {back ? AMBI_GRAD(Y) : X}, .ins = 1, .out = {back ? AMBI_GRAD(X) : Y}, .outs = 1});
  return AMBI_OK;
}

const cuda_kernel cast_cuda = {cast_cu, plan};
