/* gated.c -- swiglu_f32, glu_f32, reglu_f32, geglu_f32: out = x act(gate).
 *
 *   params    num_elements, hidden_dim, and for swiglu beta
 *   forward   a = x, b = gate, out = y
 *   backward  a = grad_y, b = x then gate, out = grad_x, scratch = grad_gate (when large enough);
 *             b = gate alone gives grad_x alone */
#include "ops/elementwise.h"
#include "pack/module/module.h"

extern const op_def gated_op;
extern const cpu_kernel CPU_KERNEL(gated);

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };
enum { WORDS = AMBI_ONE_FUNCTION == AMBI_SWIGLU ? 3 : 2 };

static int forward(call *c, uint64_t n) {
  if (!holds(c->d.b, n)) return BAD_INPUT;
  c->at[V] = c->d.a;
  c->at[G] = c->d.b;
  c->at[Y] = c->d.out;
  return DONE;
}

static int backward(call *c, uint64_t n) {
  bool both = n > 0 && holds(c->d.b, 2 * n);
  if (!both && !holds(c->d.b, n)) return BAD_INPUT;
  c->op.want = AMBI_BIT(V);
  c->at[AMBI_GRAD(Y)] = c->d.a;
  c->at[AMBI_GRAD(V)] = c->d.out;
  c->at[V] = part(c->d.b, 0, n);
  c->at[G] = part(c->d.b, both ? n : 0, n);
  if (!both || !has_room(c->d.scratch, n)) return DONE;
  c->op.want |= AMBI_BIT(G);
  c->at[AMBI_GRAD(G)] = part(c->d.scratch, 0, n);
  return DONE;
}

static int plan(call *c) {
  uint32_t rows, cols = c->params[1].u;
  CHECK(count_rows(c, c->params[0].u, cols, &rows));
  if (WORDS == 3 && !finite_word(c->params[2])) return BAD_PARAMS;
  if (!holds(c->d.out, (uint64_t)rows * cols)) return BAD_OUTPUT;
  describe(c, V, rows, cols);
  describe(c, G, rows, cols);
  c->op.u.gated.gate = AMBI_ONE_FUNCTION;
  return (backward_of(c) ? backward : forward)(c, (uint64_t)rows * cols);
}

/* A beta of 0 is one too. */
static void adjust(const call *c, problem *p) {
  if (WORDS == 3) elementwise(p)->a = (double)c->params[2].f;
}

const family module = {AMBI_PACK_NAME, AMBI_GATED, &gated_op, &CPU_KERNEL(gated), {WORDS, WORDS}, plan, adjust, NULL};
