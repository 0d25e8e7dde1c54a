/* linear.c -- linear_f32: out = x W^T + bias.
 *
 *   params    M, N, K: x is (M, K), W (N, K), bias (N), out (M, N)
 *   forward   a = x, b = W, or W then bias, out = y
 *   backward  a = grad_y, b = x then W, out = grad_x, scratch = grad_W, or grad_W then grad_bias (what it has room for)
 */
#include "pack/module/module.h"

extern const op_def linear_op;
extern const cpu_kernel CPU_KERNEL(linear);

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };

typedef struct {
  uint64_t x, w, b, y; /* elements of each */
} sizes;

static int forward(call *c, sizes n) {
  bool biased = n.b > 0 && holds(c->d.b, n.w + n.b);
  if (!holds(c->d.a, n.x) || (!biased && !holds(c->d.b, n.w))) return BAD_INPUT;
  if (!holds(c->d.out, n.y)) return BAD_OUTPUT;
  c->at[X] = c->d.a;
  c->at[W] = part(c->d.b, 0, n.w);
  c->at[Y] = c->d.out;
  if (biased) describe_vector(c, B, (uint32_t)n.b), c->at[B] = part(c->d.b, n.w, n.b);
  return DONE;
}

static int backward(call *c, sizes n) {
  if (!holds(c->d.a, n.y) || !holds(c->d.b, n.x + n.w)) return BAD_INPUT;
  if (!holds(c->d.out, n.x)) return BAD_OUTPUT;
  c->op.want = AMBI_BIT(X);
  c->at[X] = part(c->d.b, 0, n.x);
  c->at[W] = part(c->d.b, n.x, n.w);
  c->at[AMBI_GRAD(Y)] = c->d.a;
  c->at[AMBI_GRAD(X)] = c->d.out;
  if (!has_room(c->d.scratch, n.w)) return DONE;
  c->op.want |= AMBI_BIT(W);
  c->at[AMBI_GRAD(W)] = part(c->d.scratch, 0, n.w);
  if (!has_room(c->d.scratch, n.w + n.b)) return DONE;
  describe_vector(c, B, (uint32_t)n.b);
  c->op.want |= AMBI_BIT(B);
  c->at[AMBI_GRAD(B)] = part(c->d.scratch, n.w, n.b);
  return DONE;
}

static int plan(call *c) {
  uint64_t M = c->params[0].u, N = c->params[1].u, K = c->params[2].u;
  sizes n = {M * K, N * K, N, M * N};
  if (n.x >> 30 || n.w >> 30 || n.y >> 30 || N >> 30) return BAD_PARAMS; /* more than memory can hold */
  describe(c, X, (uint32_t)M, (uint32_t)K);
  describe(c, W, (uint32_t)N, (uint32_t)K);
  return (backward_of(c) ? backward : forward)(c, n);
}

const family module = {AMBI_PACK_NAME, AMBI_LINEAR, &linear_op, &CPU_KERNEL(linear), {3, 3}, plan, NULL, NULL};
