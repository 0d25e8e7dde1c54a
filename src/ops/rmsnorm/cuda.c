/* rmsnorm on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RSTD = AMBI_RMSNORM_RSTD };
enum { RESIDUAL = AMBI_RMSNORM_RESIDUAL, SUM = AMBI_RMSNORM_SUM, DY = AMBI_GRAD(AMBI_RMSNORM_Y) };

extern const char rmsnorm_cu[];

enum { EACH = 16, EACH_ODD = 24 }; /* values of a row to a thread */
enum { SHORT = 2048 };             /* bytes of a row that a warp may have alone */
/* Threads of a multiprocessor, by where their rows go: straight to registers, or to shared memory */
enum { FORWARD_DIRECT = 1024, FORWARD_DIRECT_16 = 1536, FORWARD_SHORT = 1024, FORWARD_QUEUED = 768, BACKWARD = 512 };

static void plan_backward(cuda_plan *k, row_split r) {
  bool wants_dw = writes_slot(k->p, AMBI_GRAD(W));
  int64_t cols = rows_of(k->p)->cols, blocks = cuda_row_blocks(k, r);
  int64_t parts = cuda_row_parts(r, blocks);
  cuda_number(k, "PARTS", parts);
  cuda_fix(k, "RUN", ROW_RUN);
  uint64_t partial = (uint64_t)parts * (uint64_t)cuda_part_width(r, cols) * real_bytes(k->p);
  cuda_workspace(k, "PARTIAL", wants_dw ? partial : 0);
  cuda_workspace(k, "ROW_SUMS", r.keep ? 0 : 2 * (uint64_t)r.rows * real_bytes(k->p));
  if (!r.keep) cuda_launch(k, "rmsnorm_sums", blocks, 1, r.group, r.groups, 0);
  if (!r.keep && wants_dw) cuda_launch(k, "rmsnorm_partial", ceil_div(cols, 256), parts, 256, 1, 0);
  cuda_launch(k, "rmsnorm_backward", blocks, 1, r.group, r.groups, r.shared);
  if (wants_dw) cuda_launch_sum(k, "rmsnorm_dw");
}

/* Aligned rows go straight to registers, and in forward odd ones of f32. Other odd ones wait in shared memory, so that
 * their weight, which takes many loads where words of 16 bytes do not fit it, is loaded once for many rows; so do short
 * ones in forward, of which many must be under way at once. */
static row_wishes wishes_of(const cuda_plan *k, bool backward) {
  bool summed = backward && reads_slot(k->p, SUM), even = cuda_rows_are_even(k, AMBI_BIT(RSTD));
  int64_t cols = rows_of(k->p)->cols, bytes = dtype_bytes(k->p->t[backward ? DY : X].dtype);
  bool brief = !backward && cols * bytes <= SHORT;
  bool deep = backward && bytes == 2 && cols % (32 * EACH) == 0 && cols <= 8192;
  bool direct = (even || (!backward && bytes == 4)) && !brief && !deep;
  row_wishes w = {.each = direct && !even ? EACH_ODD : EACH, .phases = true};
  if (!direct) w.queued = AMBI_BIT(DY) | (summed ? AMBI_BIT(SUM) : AMBI_BIT(X) | AMBI_BIT(RESIDUAL));
  w.registers = direct && !backward ? 4 * EACH : 2 * EACH;
  int forward = brief ? FORWARD_SHORT : !direct ? FORWARD_QUEUED : bytes == 2 ? FORWARD_DIRECT_16 : FORWARD_DIRECT;
  w.resident = backward ? BACKWARD : forward;
  return w;
}

static ambi_status plan(cuda_plan *k) {
  bool backward = is_backward(k->p);
  row_split r = cuda_rows(k, AMBI_BIT(RSTD), wishes_of(k, backward));
  int64_t all = cuda_blocks(k, ceil_div(r.rows, r.groups), 1 << 14);
  cuda_fix(k, "MEAN_SLOT", 0);
  cuda_part(k, queue_cu);
  cuda_part(k, norm_cu);
  cuda_wide(k, "EPS", k->p->op.u.rmsnorm.eps);
  cuda_real(k, "OFFSET", k->p->op.u.rmsnorm.offset);
  cuda_fix(k, "CAST", k->p->op.u.rmsnorm.cast);
  if (backward)
    plan_backward(k, r);
  else
    cuda_launch(k, "rmsnorm_forward", r.shared ? cuda_row_blocks(k, r) : all, 1, r.group, r.groups, r.shared);
  return AMBI_OK;
}

const cuda_kernel rmsnorm_cuda = {rmsnorm_cu, plan};
