/* linear -- a matrix product with a weight.
 *
 *   y = x W^T + b      y[m,n] = sum over k of x[m,k] W[n,k] + b[n]      (no + b without a bias)
 *
 *   dx = dy W;   dW = dy^T x;   db = column sums of dy
 *
 * The leading axes of x and y together are the index m. */
#include "ops/rows.h"

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };

static const ambi_slot_info slots[] = {
    {"x", "(.., K)", "input", 0},
    {"w", "(N, K)", "weight", 0},
    {"b", "(N)", "bias; absent: 0", AMBI_SLOT_OPTIONAL},
    {"y", "(.., N)", "output", AMBI_SLOT_OUTPUT},
};

static const ambi_attr_info attributes[] = {
    {"tf32", "factors of f32 may be rounded to 10 bits, where a device gains by it (cuda)", AMBI_ATTR_BOOL,
     offsetof(ambi_op, u.linear.tf32), 0, 0, 1, NULL},
};

static const int8_t in_place[][2] = {{-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 1, AMBI_MAX_DIMS));
  TRY(expect_rank(p, W, 2, 2));
  ambi_tensor x = p->t[X];
  int64_t n = p->t[W].shape[0], k = x.shape[x.ndim - 1];
  TRY(expect(p, W, x.dtype, 2, (int64_t[]){n, k}));
  TRY(expect(p, B, x.dtype, 1, &n));
  x.shape[x.ndim - 1] = n;
  return expect(p, Y, x.dtype, x.ndim, x.shape);
}

/* 2 m n k, or the most that fits */
static uint64_t multiply_adds(const problem *p) {
  uint64_t flops;
  uint64_t results = (uint64_t)ambi_numel(&p->t[Y]), terms = (uint64_t)p->t[W].shape[1];
  return __builtin_mul_overflow(results, 2 * terms, &flops) ? UINT64_MAX / 4 : flops;
}

static ambi_status recipe(problem *p) {
  bool dx = writes_slot(p, AMBI_GRAD(X)), dw = writes_slot(p, AMBI_GRAD(W)), db = writes_slot(p, AMBI_GRAD(B));
  if (is_backward(p)) {
    if (!dw) p->reads &= ~AMBI_BIT(X);
    if (!dx) p->reads &= ~AMBI_BIT(W);
  }
  rows_make(p, X, AMBI_BIT(W) | AMBI_BIT(B));
  p->flops = is_backward(p) ? multiply_adds(p) * (dx + dw) : multiply_adds(p);
  if (db) p->flops += (uint64_t)ambi_numel(&p->t[Y]);
  return AMBI_OK;
}

const op_def linear_op = {
    .info = {.name = "linear",
             .formula = "y = x W^T + b",
             .gradient = "dx = dy W;  dW = dy^T x;  db = sum over rows of dy",
             .doc = "A matrix product with a weight.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(X) | AMBI_BIT(W),
    .shapes = shapes,
    .recipe = recipe,
};
