/* norm.h -- what rmsnorm_f32 and layernorm_f32 share: their params (eps, hidden_dim, num_elements [, weight_offset,
 * weight_size]) and the first part of backward. The file that includes this names X, W and Y. */
#ifndef PACK_MODULE_NORM_H
#define PACK_MODULE_NORM_H
#include "pack/module/module.h"

static int forward(call *c, uint32_t rows, uint32_t cols);
static int backward(call *c, uint32_t rows, uint32_t cols);

static int plan(call *c) {
  uint32_t rows, cols = c->params[1].u;
  if (!finite_word(c->params[0]) || c->params[0].f < 0) return BAD_PARAMS;
  CHECK(count_rows(c, c->params[2].u, cols, &rows));
  if (!holds(c->d.out, (uint64_t)rows * cols)) return BAD_OUTPUT;
  describe(c, X, rows, cols);
  return (backward_of(c) ? backward : forward)(c, rows, cols);
}

/* a = grad_y, b = x, out = grad_x, the weight from the longer params, grad_weight where scratch has room for it. */
static int plan_backward(call *c, uint32_t rows, uint32_t cols) {
  region weight = {c->params[3].u, c->params[4].u};
  bool weighted = c->words == 5 && weight.size, wants_weight = has_room(c->d.scratch, cols);
  if (!holds(c->d.b, (uint64_t)rows * cols)) return BAD_INPUT;
  if (weighted && (!holds(weight, cols) || !in_memory(weight))) return BAD_PARAMS;
  c->op.want = AMBI_BIT(X);
  c->at[X] = c->d.b;
  c->at[AMBI_GRAD(Y)] = c->d.a;
  c->at[AMBI_GRAD(X)] = c->d.out;
  if (weighted) c->at[W] = weight;
  if (weighted || wants_weight) describe_vector(c, W, cols);
  if (wants_weight) c->op.want |= AMBI_BIT(W), c->at[AMBI_GRAD(W)] = part(c->d.scratch, 0, cols);
  return DONE;
}

/* The gradient of a weight that is not there is that of one that is 1. */
static void spare_weight(const call *c, problem *p) {
  if (backward_of(c) && c->at[W].size == 0) p->reads &= ~AMBI_BIT(W);
}

#endif
