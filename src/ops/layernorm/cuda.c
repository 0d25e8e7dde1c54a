/* layernorm on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"

enum { W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, MEAN = AMBI_LAYERNORM_MEAN, RSTD = AMBI_LAYERNORM_RSTD };
enum {
  X = AMBI_LAYERNORM_X,
  RESIDUAL = AMBI_LAYERNORM_RESIDUAL,
  SUM = AMBI_LAYERNORM_SUM,
  DY = AMBI_GRAD(AMBI_LAYERNORM_Y)
};

extern const char layernorm_cu[];

enum { EACH = 16, EACH_FORWARD = 32 }; /* values of a row to a thread */
/* Threads of a multiprocessor */
enum { FORWARD_DIRECT = 1024, FORWARD_QUEUED = 768, BACKWARD_DIRECT = 512, BACKWARD_QUEUED = 512 };
enum { SHORT = 2048, LONG = 8192 }; /* bytes of a row; values of one */

static void plan_backward(cuda_plan *k, row_split r) {
  bool wants_dw = writes_slot(k->p, AMBI_GRAD(W)), wants_db = writes_slot(k->p, AMBI_GRAD(B));
  int64_t cols = rows_of(k->p)->cols, blocks = cuda_row_blocks(k, r);
  int64_t parts = cuda_row_parts(r, blocks);
  uint64_t partial = (uint64_t)parts * (uint64_t)cuda_part_width(r, cols) * real_bytes(k->p);
  cuda_number(k, "PARTS", parts);
  cuda_fix(k, "RUN", ROW_RUN);
  cuda_workspace(k, "PARTIAL_DW", wants_dw ? partial : 0);
  cuda_workspace(k, "PARTIAL_DB", wants_db ? partial : 0);
  cuda_workspace(k, "ROW_SUMS", r.keep ? 0 : 4 * (uint64_t)r.rows * real_bytes(k->p));
  if (!r.keep) cuda_launch(k, "layernorm_sums", blocks, 1, r.group, r.groups, 0);
  if (!r.keep && (wants_dw || wants_db)) cuda_launch(k, "layernorm_partial", ceil_div(cols, 256), parts, 256, 1, 0);
  cuda_launch(k, "layernorm_backward", blocks, 1, r.group, r.groups, r.shared);
  cuda_launch(k, "layernorm_columns", ceil_div(cols, 32), wants_dw + wants_db, 32, 32, 0);
}

/* Aligned rows go straight to registers. Odd ones wait in shared memory, so that w and b are loaded once for many; so
 * do short ones in forward, of which many must be under way at once, and in backward halves that threads share evenly:
 * its registers are full of sums. */
static row_wishes wishes_of(const cuda_plan *k, bool backward, uint32_t scalars) {
  bool summed = backward && reads_slot(k->p, SUM);
  int64_t cols = rows_of(k->p)->cols;
  bool brief = !backward && cols * dtype_bytes(k->p->t[X].dtype) <= SHORT;
  bool deep = backward && dtype_bytes(k->p->t[DY].dtype) == 2 && cols % (32 * EACH) == 0 && cols <= LONG;
  bool direct = cuda_rows_are_even(k, scalars) && !brief && !deep;
  row_wishes w = {.each = direct && !backward ? EACH_FORWARD : EACH, .phases = true};
  w.registers = 2 * w.each;
  if (!direct) w.queued = AMBI_BIT(DY) | (summed ? AMBI_BIT(SUM) : AMBI_BIT(X) | AMBI_BIT(RESIDUAL));
  w.resident = direct ? backward ? BACKWARD_DIRECT : FORWARD_DIRECT : backward ? BACKWARD_QUEUED : FORWARD_QUEUED;
  return w;
}

static ambi_status plan(cuda_plan *k) {
  bool backward = is_backward(k->p);
  uint32_t scalars = AMBI_BIT(MEAN) | AMBI_BIT(RSTD);
  row_split r = cuda_rows(k, scalars, wishes_of(k, backward, scalars));
  int64_t all = cuda_blocks(k, ceil_div(r.rows, r.groups), 1 << 14);
  cuda_fix(k, "MEAN_SLOT", MEAN);
  cuda_part(k, queue_cu);
  cuda_part(k, norm_cu);
  cuda_wide(k, "EPS", k->p->op.u.layernorm.eps);
  if (backward)
    plan_backward(k, r);
  else
    cuda_launch(k, "layernorm_forward", r.shared ? cuda_row_blocks(k, r) : all, 1, r.group, r.groups, r.shared);
  return AMBI_OK;
}

const cuda_kernel layernorm_cuda = {layernorm_cu, plan};
