/* rope.c -- rope_f32: pairs of channels, each turned by an angle that grows with the position.
 *
 *   params    theta, seq_len, head_dim, num_heads, batch_size [, interleaved]
 *   forward   rotate a into out; both are (batch_size, seq_len, num_heads, head_dim)
 *   backward  rotate a = grad_y back into out = grad_x
 *
 * The pair i is channels i and i + head_dim / 2, as in the library; interleaved 1: 2i and 2i + 1. */
#include "pack/module/module.h"

extern const op_def rope_op;
extern const cpu_kernel CPU_KERNEL(rope);

enum { X = AMBI_ROPE_X, Y = AMBI_ROPE_Y };

/* Elements of x; false: more than memory can hold */
static bool count(const call *c, uint64_t *n) {
  *n = 1;
  bool empty = false;
  for (int i = 1; i < 5; i++) empty = empty || c->params[i].u == 0;
  for (int i = 1; i < 5 && !empty; i++) {
    *n *= c->params[i].u;
    if (*n >> 30) return false;
  }
  if (empty) *n = 0;
  return true;
}

static int plan(call *c) {
  int64_t L = c->params[1].u, D = c->params[2].u, H = c->params[3].u, batch = c->params[4].u;
  bool back = backward_of(c);
  uint64_t n;
  if (!finite_word(c->params[0]) || c->params[0].f <= 0 || c->params[5].u > 1) return BAD_PARAMS;
  if (D % 2 || D == 0 || !count(c, &n)) return BAD_PARAMS;
  if (n == 0) L = H = batch = 0; /* strides of nothing cannot overflow */
  if (!holds(c->d.a, n) || c->d.b.size) return BAD_INPUT;
  if (!holds(c->d.out, n)) return BAD_OUTPUT;
  c->at[back ? AMBI_GRAD(Y) : X] = c->d.a;
  c->at[back ? AMBI_GRAD(X) : Y] = c->d.out;
  c->op.t[X] = (ambi_tensor){AMBI_F32, 4, {batch, H, L, D}, {L * H * D, D, H * D, 1}};
  c->op.t[Y] = c->op.t[X];
  c->op.u.rope.theta = (double)c->params[0].f;
  c->op.u.rope.interleaved = (int32_t)c->params[5].u;
  return DONE;
}

const family module = {AMBI_PACK_NAME, AMBI_ROPE, &rope_op, &CPU_KERNEL(rope), {5, 6}, plan, NULL, NULL};
