/* unary on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"

enum { X = AMBI_UNARY_X, Y = AMBI_UNARY_Y };

extern const char unary_cu[];

static ambi_status plan(cuda_plan *k) {
  if (is_backward(k->p))
    cuda_pointwise(k, (cuda_points){.in = {X, AMBI_GRAD(Y)}, .ins = 2, .out = {AMBI_GRAD(X)}, .outs = 1});
  else
    cuda_pointwise(k, (cuda_points){.in = {X}, .ins = 1, .out = {Y}, .outs = 1});
  cuda_function(k, (ambi_function)k->p->op.u.unary.function, elementwise(k->p)->a, elementwise(k->p)->b);
  return AMBI_OK;
}

const cuda_kernel unary_cuda = {unary_cu, plan};
