/* softmax on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"

enum { Y = AMBI_SOFTMAX_Y };

extern const char softmax_cu[];

static bool is_half(ambi_dtype t) { return t == AMBI_F16 || t == AMBI_BF16; }

static ambi_status plan(cuda_plan *k) {
  const problem *p = k->p;
  row_split r = cuda_rows(k, 0, (row_wishes){.each = 16, .registers = 32, .phases = true});
  int out = is_backward(p) ? AMBI_GRAD(AMBI_SOFTMAX_X) : Y;
  cuda_math(k);
  cuda_fix(k, "FAST_EXP", k->special && p->compute == AMBI_F32 && is_half(p->t[out].dtype));
  cuda_fix(k, "BELOW", 0);
  cuda_fix(k, "FEW", 0);
  cuda_part(k, logits_cu);
  cuda_real(k, "SCALE", p->op.u.softmax.scale);
  cuda_fix(k, "LOG", p->op.u.softmax.log != 0);
  cuda_launch(k, is_backward(p) ? "softmax_backward" : "softmax_forward",
              cuda_blocks(k, ceil_div(r.rows, r.groups), 8192), 1, r.group, r.groups, 0);
  return AMBI_OK;
}

const cuda_kernel softmax_cuda = {softmax_cu, plan};
