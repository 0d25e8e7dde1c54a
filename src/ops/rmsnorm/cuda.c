/* rmsnorm on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RSTD = AMBI_RMSNORM_RSTD };
enum { RESIDUAL = AMBI_RMSNORM_RESIDUAL, SUM = AMBI_RMSNORM_SUM, DY = AMBI_GRAD(AMBI_RMSNORM_Y) };

extern const char rmsnorm_cu[];

/* Values of a row to a thread; threads of a multiprocessor, forward and backward */
enum { EACH = 16, FORWARD_RESIDENT = 1024, BACKWARD_RESIDENT = 768 };

static void plan_backward(cuda_plan *k, row_split r) {
  bool wants_dw = writes_slot(k->p, AMBI_GRAD(W));
  int64_t cols = rows_of(k->p)->cols, blocks = cuda_row_blocks(k, r);
  int64_t parts = cuda_row_parts(r, blocks);
  cuda_number(k, "PARTS", parts);
  cuda_fix(k, "RUN", ROW_RUN);
  cuda_workspace(k, "PARTIAL", wants_dw ? (uint64_t)parts * (uint64_t)cols * real_bytes(k->p) : 0);
  cuda_workspace(k, "ROW_SUMS", r.keep ? 0 : 2 * (uint64_t)r.rows * real_bytes(k->p));
  if (!r.keep) cuda_launch(k, "rmsnorm_sums", blocks, 1, r.group, r.groups, 0);
  if (!r.keep && wants_dw) cuda_launch(k, "rmsnorm_partial", ceil_div(cols, 256), parts, 256, 1, 0);
  cuda_launch(k, "rmsnorm_backward", blocks, 1, r.group, r.groups, r.shared);
  if (wants_dw) cuda_launch_sum(k, "rmsnorm_dw");
}

static ambi_status plan(cuda_plan *k) {
  bool backward = is_backward(k->p), summed = backward && reads_slot(k->p, SUM);
  row_wishes w = {.each = EACH, .registers = 2 * EACH, .phases = true};
  w.queued = AMBI_BIT(DY) | (summed ? AMBI_BIT(SUM) : AMBI_BIT(X) | AMBI_BIT(RESIDUAL));
  w.resident = backward ? BACKWARD_RESIDENT : FORWARD_RESIDENT;
  row_split r = cuda_rows(k, AMBI_BIT(RSTD), w);
  cuda_fix(k, "MEAN_SLOT", 0);
  cuda_part(k, queue_cu);
  cuda_part(k, norm_cu);
  cuda_real(k, "EPS", k->p->op.u.rmsnorm.eps);
  cuda_real(k, "OFFSET", k->p->op.u.rmsnorm.offset);
  cuda_fix(k, "CAST", k->p->op.u.rmsnorm.cast);
  if (backward)
    plan_backward(k, r);
  else
    cuda_launch(k, "rmsnorm_forward", cuda_row_blocks(k, r), 1, r.group, r.groups, r.shared);
  return AMBI_OK;
}

const cuda_kernel rmsnorm_cuda = {rmsnorm_cu, plan};
