/* softmax.c -- softmax_f32: out = e^(scale x) / sum(e^(scale x)) along rows.
 *
 *   params    num_elements, hidden_dim, scale [, log]       log 1: out is the logarithm of that
 *   forward   a = x, out = y
 *   backward  a = grad_y, b = y, out = grad_x */
#include "ops/rows.h"
#include "pack/module/module.h"

extern const op_def softmax_op;
extern const cpu_kernel CPU_KERNEL(softmax);

enum { X = AMBI_SOFTMAX_X, Y = AMBI_SOFTMAX_Y };

static int plan(call *c) {
  uint32_t rows, cols = c->params[1].u;
  bool back = backward_of(c);
  if (!finite_word(c->params[2]) || c->params[3].u > 1) return BAD_PARAMS;
  CHECK(count_rows(c, c->params[0].u, cols, &rows));
  uint64_t n = (uint64_t)rows * cols;
  if (!holds(c->d.b, back ? n : 0)) return BAD_INPUT;
  if (!holds(c->d.out, n)) return BAD_OUTPUT;
  describe(c, X, rows, cols);
  c->op.u.softmax.log = (int32_t)c->params[3].u;
  c->at[back ? AMBI_GRAD(Y) : X] = c->d.a;
  c->at[back ? AMBI_GRAD(X) : Y] = c->d.out;
  if (!back) return DONE;
  describe(c, Y, rows, cols);
  c->at[Y] = c->d.b;
  return DONE;
}

/* A scale of 0 is one too. */
static void adjust(const call *c, problem *p) { p->op.u.softmax.scale = (double)c->params[2].f; }

const family module = {AMBI_PACK_NAME, AMBI_SOFTMAX, &softmax_op, &CPU_KERNEL(softmax), {3, 4}, plan, adjust, NULL};
