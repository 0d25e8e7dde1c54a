/* rmsnorm.c -- rmsnorm_f32: out = x / rms(x) weight.
 *
 *   params    eps, hidden_dim, num_elements [, weight_offset, weight_size]
 *   forward   a = x, b = weight (absent: 1), out = y, scratch = rms of each row (when large enough)
 *   backward  a = grad_y, b = x, out = grad_x, scratch = grad_weight (when large enough); the weight, if there is one,
 *             comes from the longer params */
#include "pack/module/module.h"

extern const op_def rmsnorm_op;
extern const cpu_kernel CPU_KERNEL(rmsnorm);

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, Y = AMBI_RMSNORM_Y, RSTD = AMBI_RMSNORM_RSTD };

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
  bool wants_weight = has_room(c->d.scratch, cols);
  if (weighted || wants_weight) describe_vector(c, W, cols);
  if (!wants_weight) return DONE;
  c->op.want |= AMBI_BIT(W);
  c->at[AMBI_GRAD(W)] = part(c->d.scratch, 0, cols);
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
  p->op.u.rmsnorm.eps = (double)c->params[0].f;
  if (backward_of(c) && c->at[W].size == 0) p->reads &= ~AMBI_BIT(W);
}

/* The op saves 1 / rms. */
static void finish(const call *c) {
  float *rms = (float *)(void *)address(c->at[RSTD].offset);
  for (uint32_t i = 0; i < c->at[RSTD].size / 4; i++) rms[i] = 1 / rms[i];
}

const family module = {AMBI_PACK_NAME, AMBI_RMSNORM, &rmsnorm_op, &CPU_KERNEL(rmsnorm), {3, 5}, plan, adjust, finish};
