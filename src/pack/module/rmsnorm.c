/* rmsnorm.c -- rmsnorm_f32: out = x / rms(x) weight.
 *
 *   params    eps, hidden_dim, num_elements [, weight_offset, weight_size]
 *   forward   a = x, b = weight (absent: 1), out = y, scratch = rms of each row (when large enough)
 *   backward  a = grad_y, b = x, out = grad_x, scratch = grad_weight (when large enough); the weight, if there is one,
 *             comes from the longer params */
#include <ambi/ambi.h>

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, Y = AMBI_RMSNORM_Y, RSTD = AMBI_RMSNORM_RSTD };
#include "pack/module/norm.h"

extern const op_def rmsnorm_op;
extern const cpu_kernel CPU_KERNEL(rmsnorm);

static int forward(call *c, uint32_t rows, uint32_t cols) {
  if (!holds(c->d.b, cols) && c->d.b.size) return BAD_INPUT;
  if (c->d.b.size) describe_vector(c, W, cols);
  c->at[X] = c->d.a;
  c->at[W] = c->d.b;
  c->at[Y] = c->d.out;
  if (!has_room(c->d.scratch, rows)) return DONE;
  c->op.want = AMBI_BIT(RSTD);
  c->at[RSTD] = part(c->d.scratch, 0, rows);
  return DONE;
}

static int backward(call *c, uint32_t rows, uint32_t cols) { return plan_backward(c, rows, cols); }

/* An eps of 0 is one too. */
static void adjust(const call *c, problem *p) {
  p->op.u.rmsnorm.eps = (double)c->params[0].f;
  spare_weight(c, p);
}

/* The op saves 1 / rms. */
static void finish(const call *c) {
  float *rms = (float *)(void *)address(c->at[RSTD].offset);
  for (uint32_t i = 0; i < c->at[RSTD].size / 4; i++) rms[i] = 1 / rms[i];
}

const family module = {AMBI_PACK_NAME, AMBI_RMSNORM, &rmsnorm_op, &CPU_KERNEL(rmsnorm), {3, 5}, plan, adjust, finish};
