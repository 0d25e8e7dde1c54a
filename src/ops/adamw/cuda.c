/* adamw on CUDA: the numbers of cuda.cu. */
#include <math.h>

#include "backends/cuda/pointwise.h"

enum { P = AMBI_ADAMW_P, G = AMBI_ADAMW_G, M = AMBI_ADAMW_M, V = AMBI_ADAMW_V };
enum { P_OUT = AMBI_ADAMW_P_OUT, M_OUT = AMBI_ADAMW_M_OUT, V_OUT = AMBI_ADAMW_V_OUT, P_COPY = AMBI_ADAMW_P_COPY };
enum {
  ELEMENTS = AMBI_BIT(P) | AMBI_BIT(G) | AMBI_BIT(M) | AMBI_BIT(V) | AMBI_BIT(P_OUT) | AMBI_BIT(M_OUT) |
             AMBI_BIT(V_OUT) | AMBI_BIT(P_COPY)
};
enum { THREADS = 256 };

extern const char adamw_cu[];

static ambi_status plan(cuda_plan *k) {
  line_split split = cuda_lines(k, &elementwise(k->p)->all, ELEMENTS);
  double beta1 = k->p->op.u.adamw.beta1, beta2 = k->p->op.u.adamw.beta2;
  int64_t unroll = split.vec > 1 && split.vec < 8 ? 2 : 1;
  k->variant = k->special ? "pointwise" : "general";
  cuda_fix(k, "UNROLL", unroll);
  cuda_real(k, "BETA1", beta1);
  cuda_real(k, "REST1", 1 - beta1);
  cuda_real(k, "BETA2", beta2);
  cuda_real(k, "REST2", 1 - beta2);
  cuda_real(k, "EPS", k->p->op.u.adamw.eps);
  cuda_wide(k, "WEIGHT_DECAY", k->p->op.u.adamw.weight_decay);
  cuda_wide(k, "LOG_BETA1", log(beta1));
  cuda_wide(k, "LOG_BETA2", log(beta2));
  cuda_launch(k, "adamw_update", ceil_div(line_vectors(split), THREADS * unroll), 1, THREADS, 1, 0);
  if (writes_slot(k->p, AMBI_ADAMW_STEP_OUT)) cuda_launch(k, "adamw_step", 1, 1, 32, 1, 0);
  return AMBI_OK;
}

const cuda_kernel adamw_cuda = {adamw_cu, plan};
