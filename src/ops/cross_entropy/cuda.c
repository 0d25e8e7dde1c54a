/* cross_entropy on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"
#include "ops/cross_entropy/row.h"

enum { LOGITS = AMBI_CE_LOGITS, TARGET = AMBI_CE_TARGET };
enum { LOSS = AMBI_CE_LOSS, LSE = AMBI_CE_LSE, GRAD = AMBI_CE_GRAD };

extern const char cross_entropy_cu[];

static bool is_half(const problem *p, int slot) {
  return p->t[slot].dtype == AMBI_F16 || p->t[slot].dtype == AMBI_BF16;
}

/* Where dlogits go, or -1 */
static int gradient_slot(const problem *p) {
  return is_backward(p) ? AMBI_GRAD(LOGITS) : writes_slot(p, GRAD) ? GRAD : -1;
}

/* Bytes of shared memory for the rows of a block, so that they are read once, and early; 0: too many. */
static int64_t held_bytes(const cuda_plan *k, row_split r) {
  const int64_t own = 2048; /* what the kernel has of its own */
  int64_t bytes = r.chunks * r.group * r.groups * r.vec * dtype_bytes(k->p->t[LOGITS].dtype);
  return k->special && r.vec > 1 && bytes <= k->dev->shared_bytes - own ? bytes : 0;
}

static void plan_formula(cuda_plan *k) {
  const problem *p = k->p;
  cuda_real(k, "SMOOTHING", p->op.u.cross_entropy.label_smoothing);
  cuda_real(k, "Z_LOSS", p->op.u.cross_entropy.z_loss);
  cuda_real(k, "CAP", p->op.u.cross_entropy.softcap);
  cuda_fix(k, "CAPPED", p->op.u.cross_entropy.softcap > 0);
  cuda_number(k, "IGNORED", p->op.u.cross_entropy.ignore_index);
  cuda_fix(k, "MEAN_OF_ROWS", ce_mean(p));
  cuda_fix(k, "EACH", ce_each(p));
}

static ambi_status plan(cuda_plan *k) {
  const problem *p = k->p;
  uint32_t scalars = AMBI_BIT(TARGET) | AMBI_BIT(LOSS) | AMBI_BIT(LSE) | AMBI_BIT(AMBI_GRAD(LOSS));
  row_split r = cuda_rows(k, scalars, (row_wishes){.each = 104, .phases = true});
  int64_t rows = rows_of(p)->rows.count, held = held_bytes(k, r), threads = (int64_t)r.group * r.groups;
  int64_t fit = held ? ((int64_t)228 << 10) / (held + 2048) : 1024, at_once = 1024 / threads;
  int to = gradient_slot(p);
  if (at_once > fit) at_once = fit;
  r.at_once = at_once < 1 ? 1 : (int)at_once;
  r.rows = rows; /* those of no classes have a loss too */
  k->variant = !k->special ? "general" : held ? "rows" : "long rows";
  cuda_math(k);
  cuda_fix(k, "FAST_EXP", k->special && p->compute == AMBI_F32 && is_half(p, LOGITS) && (to < 0 || is_half(p, to)));
  cuda_fix(k, "BELOW", !is_backward(p) && p->op.u.cross_entropy.label_smoothing > 0);
  cuda_fix(k, "HELD", held > 0);
  cuda_fix(k, "AT_ONCE", r.at_once);
  cuda_fix(k, "FEW", held > 0);
  cuda_part(k, queue_cu);
  cuda_part(k, logits_cu);
  plan_formula(k);
  cuda_number(k, "ALL_ROWS", rows);
  cuda_workspace(k, "DIVISOR", 8);
  cuda_workspace(k, "LOSSES", !is_backward(p) && !ce_each(p) ? (uint64_t)rows * real_bytes(p) : 0);
  if (ce_mean(p)) cuda_launch(k, "cross_entropy_count", 1, 1, 1024, 1, 0);
  cuda_launch(k, "cross_entropy_rows", cuda_row_blocks(k, r), 1, r.group, r.groups, held);
  if (!is_backward(p) && !ce_each(p)) cuda_launch(k, "cross_entropy_loss", 1, 1, 1024, 1, 0);
  return AMBI_OK;
}

const cuda_kernel cross_entropy_cuda = {cross_entropy_cu, plan};
