/* add on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

extern const char add_cu[];

static ambi_status plan(cuda_plan *k) {
  if (is_backward(k->p))
    cuda_pointwise(k, (cuda_points){.in = {AMBI_GRAD(Y)}, .ins = 1, .out = {AMBI_GRAD(A), AMBI_GRAD(B)}, .outs = 2});
  else
    cuda_pointwise(k, (cuda_points){.in = {A, B}, .ins = 2, .out = {Y}, .outs = 1});
  cuda_real(k, "ALPHA", elementwise(k->p)->a);
  cuda_real(k, "BETA", elementwise(k->p)->b);
  return AMBI_OK;
}

const cuda_kernel add_cuda = {add_cu, plan};
