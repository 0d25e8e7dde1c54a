/* fill on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"

extern const char fill_cu[];

static ambi_status plan(cuda_plan *k) {
  cuda_pointwise(k, (cuda_points){.ins = 0, .out = {AMBI_FILL_Y}, .outs = 1});
  cuda_real(k, "FILLING", elementwise(k->p)->a);
  return AMBI_OK;
}

const cuda_kernel fill_cuda = {fill_cu, plan};
