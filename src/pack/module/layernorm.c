/* layernorm.c -- layernorm_f32: out = (x - mean(x)) / std(x) weight + bias.
 *
 *   params    eps, hidden_dim, num_elements [, weight_offset, weight_size]
 *   forward   a = x, b = weight, or weight then bias (absent: 1 and 0), out = y
 *   backward  a = grad_y, b = x, out = grad_x, scratch = grad_weight, or grad_weight then grad_bias (what it has room
 *             for); the weight, if there is one, comes from the longer params */
#include "pack/module/module.h"

extern const op_def layernorm_op;
extern const cpu_kernel CPU_KERNEL(layernorm);

enum { X = AMBI_LAYERNORM_X, W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, Y = AMBI_LAYERNORM_Y };

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
  region weight = {c->params[3].u, c->params[4].u};
  bool weighted = c->words == 5 && weight.size;
  if (!holds(c->d.b, (uint64_t)rows * cols)) return BAD_INPUT;
  if (weighted && (!holds(weight, cols) || !in_memory(weight))) return BAD_PARAMS;
  c->op.want = AMBI_BIT(X);
  c->at[X] = c->d.b;
  c->at[AMBI_GRAD(Y)] = c->d.a;
  c->at[AMBI_GRAD(X)] = c->d.out;
  if (weighted) c->at[W] = weight;
  if (weighted || has_room(c->d.scratch, cols)) describe_vector(c, W, cols);
  if (has_room(c->d.scratch, cols)) c->op.want |= AMBI_BIT(W), c->at[AMBI_GRAD(W)] = part(c->d.scratch, 0, cols);
  if (!has_room(c->d.scratch, 2 * (uint64_t)cols)) return DONE;
  describe_vector(c, B, cols);
  c->op.want |= AMBI_BIT(B);
  c->at[AMBI_GRAD(B)] = part(c->d.scratch, cols, cols);
  return DONE;
}

static int plan(call *c) {
  uint32_t rows, cols = c->params[1].u;
  if (!finite_word(c->params[0]) || c->params[0].f < 0) return BAD_PARAMS;
  CHECK(count_rows(c, c->params[2].u, cols, &rows));
  if (!holds(c->d.out, (uint64_t)rows * cols)) return BAD_OUTPUT;
  describe(c, X, rows, cols);
  return (backward_of(c) ? backward : forward)(c, rows, cols);
}

/* An eps of 0 is one too; and the gradient of a weight that is not there is that of one that is 1. */
static void adjust(const call *c, problem *p) {
  p->op.u.layernorm.eps = (double)c->params[0].f;
  if (backward_of(c) && c->at[W].size == 0) p->reads &= ~AMBI_BIT(W);
}

const family module = {AMBI_PACK_NAME, AMBI_LAYERNORM, &layernorm_op, &CPU_KERNEL(layernorm),
                       {3, 5},         plan,           adjust,        NULL};
