/* rmsnorm on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RSTD = AMBI_RMSNORM_RSTD };

extern const char rmsnorm_cu[];

enum { RESIDENT = 512, EACH = 16 }; /* threads of a multiprocessor, values of a row to each, in backward */

static void plan_backward(cuda_plan *k, row_split r) {
  bool wants_dw = writes_slot(k->p, AMBI_GRAD(W));
  int64_t cols = rows_of(k->p)->cols, blocks = cuda_row_blocks(k, r, r.keep ? RESIDENT : 2048);
  int64_t parts = cuda_row_parts(r, blocks);
  cuda_number(k, "PARTS", parts);
  cuda_fix(k, "RUN", ROW_RUN);
  cuda_fix(k, "RESIDENT", RESIDENT);
  cuda_workspace(k, "PARTIAL", wants_dw ? (uint64_t)parts * (uint64_t)cols * real_bytes(k->p) : 0);
  cuda_workspace(k, "ROW_SUMS", r.keep ? 0 : 2 * (uint64_t)r.rows * real_bytes(k->p));
  if (!r.keep) cuda_launch(k, "rmsnorm_sums", blocks, 1, r.group, r.groups, 0);
  if (!r.keep && wants_dw) cuda_launch(k, "rmsnorm_partial", ceil_div(cols, 256), parts, 256, 1, 0);
  cuda_launch(k, "rmsnorm_backward", blocks, 1, r.group, r.groups, 0);
  if (wants_dw) cuda_launch_sum(k, "rmsnorm_dw");
}

static ambi_status plan(cuda_plan *k) {
  row_split r = cuda_rows(k, AMBI_BIT(RSTD), is_backward(k->p) ? EACH : 16, is_backward(k->p) ? 2 * EACH : 64);
  cuda_fix(k, "MEAN_SLOT", 0);
  cuda_part(k, norm_cu);
  cuda_real(k, "EPS", k->p->op.u.rmsnorm.eps);
  cuda_real(k, "OFFSET", k->p->op.u.rmsnorm.offset);
  cuda_fix(k, "CAST", k->p->op.u.rmsnorm.cast);
  if (is_backward(k->p))
    plan_backward(k, r);
  else
    cuda_launch(k, "rmsnorm_forward", ceil_div(r.rows, r.groups), 1, r.group, r.groups, 0);
  return AMBI_OK;
}

const cuda_kernel rmsnorm_cuda = {rmsnorm_cu, plan};
