/* grad_norm on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/pointwise.h"

enum { G = AMBI_GRAD_NORM_G, DG = AMBI_GRAD(AMBI_GRAD_NORM_G), THREADS = 256, UNROLL = 4 };

/* 4 blocks to each of an H200's multiprocessors, all at work at once; the same everywhere, as sums depend on it. */
enum { MOST_PARTS = 528 };

extern const char grad_norm_cu[];

static ambi_status plan(cuda_plan *k) {
  line_split split = cuda_lines(k, &elementwise(k->p)->all, AMBI_BIT(G) | AMBI_BIT(DG));
  int64_t chunks = ceil_div(line_vectors(split), THREADS * UNROLL), parts = chunks < MOST_PARTS ? chunks : MOST_PARTS;
  const ambi_tensor *partial = &k->p->t[AMBI_GRAD_NORM_PARTIAL];
  k->variant = k->special ? "pointwise" : "general";
  cuda_fix(k, "UNROLL", UNROLL);
  cuda_number(k, "PARTS", parts);
  cuda_number(k, "PARTIALS", ambi_numel(partial));
  cuda_number(k, "PARTIAL_STRIDE", partial->ndim ? partial->stride[0] : 0);
  cuda_wide(k, "MAX_NORM", k->p->op.u.grad_norm.max_norm);
  cuda_workspace(k, "SUMS", (uint64_t)parts * sizeof(double));
  cuda_workspace(k, "FACTOR", sizeof(double));
  cuda_launch(k, "grad_norm_squares", parts, 1, THREADS, 1, 0);
  cuda_launch(k, "grad_norm_finish", 1, 1, 1024, 1, 0);
  if (is_backward(k->p)) cuda_launch(k, "grad_norm_scale", chunks, 1, THREADS, 1, 0);
  return AMBI_OK;
}

const cuda_kernel grad_norm_cuda = {grad_norm_cu, plan};
