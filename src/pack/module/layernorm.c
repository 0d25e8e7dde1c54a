/* layernorm.c -- layernorm_f32: out = (x - mean(x)) / std(x) weight + bias.
 *
 *   params    eps, hidden_dim, num_elements [, weight_offset, weight_size]
 *   forward   a = x, b = weight, or weight then bias (absent: 1 and 0), out = y
 *   backward  a = grad_y, b = x, out = grad_x, scratch = grad_weight, or grad_weight then grad_bias (what it has room
 *             for); the weight, if there is one, comes from the longer params */
#include <ambi/ambi.h>

enum { X = AMBI_LAYERNORM_X, W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, Y = AMBI_LAYERNORM_Y };
#include "pack/module/norm.h"

extern const op_def layernorm_op;
extern const cpu_kernel CPU_KERNEL(layernorm);

static int forward(call *c, uint32_t rows, uint32_t cols) {
  (void)rows;
  bool biased = holds(c->d.b, 2 * (uint64_t)cols);
  if (!biased && !holds(c->d.b, cols) && c->d.b.size) return BAD_INPUT;
  c->at[X] = c->d.a;
  c->at[Y] = c->d.out;
  if (c->d.b.size) describe_vector(c, W, cols), c->at[W] = part(c->d.b, 0, cols);
  if (biased) describe_vector(c, B, cols), c->at[B] = part(c->d.b, cols, cols);
  return DONE;
}

static int backward(call *c, uint32_t rows, uint32_t cols) {
  CHECK(plan_backward(c, rows, cols));
  if (!has_room(c->d.scratch, 2 * (uint64_t)cols)) return DONE;
  describe_vector(c, B, cols);
  c->op.want |= AMBI_BIT(B);
  c->at[AMBI_GRAD(B)] = part(c->d.scratch, cols, cols);
  return DONE;
}

/* An eps of 0 is one too. */
static void adjust(const call *c, problem *p) {
  p->op.u.layernorm.eps = (double)c->params[0].f;
  spare_weight(c, p);
}

const family module = {AMBI_PACK_NAME, AMBI_LAYERNORM, &layernorm_op, &CPU_KERNEL(layernorm),
                       {3, 5},         plan,           adjust,        NULL};
