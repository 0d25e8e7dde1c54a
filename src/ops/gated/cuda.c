/* gated on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"
#include "ops/gated/op.h"

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };

extern const char gated_cu[];

static ambi_status plan(cuda_plan *k) {
  if (is_backward(k->p))
    cuda_pointwise(k,
                   (cuda_points){.in = {V, G, AMBI_GRAD(Y)}, .ins = 3, .out = {AMBI_GRAD(V), AMBI_GRAD(G)}, .outs = 2});
  else
    cuda_pointwise(k, (cuda_points){.in = {V, G}, .ins = 2, .out = {Y}, .outs = 1});
  cuda_function(k, gate_activation[k->p->op.u.gated.gate], elementwise(k->p)->a, elementwise(k->p)->b);
  return AMBI_OK;
}

const cuda_kernel gated_cuda = {gated_cu, plan};
