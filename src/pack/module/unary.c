/* unary.c -- silu_f32, gelu_f32: out = f(x).
 *
 *   params    num_elements, and for silu, if wanted, beta
 *   forward   a = x, out = y
 *   backward  a = grad_y, b = x, out = grad_x */
#include "ops/elementwise.h"
#include "pack/module/module.h"

extern const op_def unary_op;
extern const cpu_kernel CPU_KERNEL(unary);

enum { X = AMBI_UNARY_X, Y = AMBI_UNARY_Y };
enum { MOST_WORDS = AMBI_ONE_FUNCTION == AMBI_SILU ? 2 : 1 };

static int plan(call *c) {
  uint32_t n = c->params[0].u;
  bool back = backward_of(c);
  if (c->words == 2 && !finite_word(c->params[1])) return BAD_PARAMS;
  if (!holds(c->d.a, n) || !holds(c->d.b, back ? n : 0)) return BAD_INPUT;
  if (!holds(c->d.out, n)) return BAD_OUTPUT;
  describe_vector(c, X, n);
  c->op.u.unary.function = AMBI_ONE_FUNCTION;
  c->at[back ? AMBI_GRAD(Y) : X] = c->d.a;
  c->at[back ? AMBI_GRAD(X) : Y] = c->d.out;
  if (back) c->at[X] = c->d.b;
  return DONE;
}

static void adjust(const call *c, problem *p) {
  if (c->words == 2) elementwise(p)->a = (double)c->params[1].f;
}

const family module = {AMBI_PACK_NAME, AMBI_UNARY, &unary_op, &CPU_KERNEL(unary), {1, MOST_WORDS}, plan, adjust, NULL};
