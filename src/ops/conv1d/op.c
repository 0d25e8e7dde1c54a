/* conv1d -- causal convolution along time, each channel by itself (depthwise), as in Mamba.
 *
 *   z = x0 ++ x                        (x0: the W-1 inputs before x; absent: zeros)
 *   p[t] = b + sum_k w[k] z[t + k]     (k < W, so that w[W-1] meets x[t])
 *   y = p, or silu(p) = p sigmoid(p);   x_last = the last W-1 of z: the x0 of what follows
 *
 *   dp = dy, or dy silu'(p);   dw[k] = sum over batch and time of dp[t] z[t + k];   db = sum over batch and time of dp
 *   dz[j] = sum_k w[k] dp[j - k] + dx_last[j - L];   dx0 ++ dx = dz
 * where dp and dx_last are 0 outside of their elements.
 *
 * Time-last and channel-last memory are both strides of (B, D, L). Generating a step at a time is L = 1 with x_last
 * over x0.                                                                                                           */
#include "ops/conv1d/op.h"

enum { X = AMBI_CONV1D_X, W = AMBI_CONV1D_W, B = AMBI_CONV1D_B, X0 = AMBI_CONV1D_X0 };
enum { Y = AMBI_CONV1D_Y, X_LAST = AMBI_CONV1D_X_LAST };

enum { MOST_TAPS = 1 << 24 };

static const ambi_slot_info slots[] = {
    {"x", "(B, D, L)", "input", 0},
    {"w", "(D, W)", "weight; the last tap meets the present", 0},
    {"b", "(D)", "bias; absent: 0", AMBI_SLOT_OPTIONAL},
    {"x0", "(B, D, W-1)", "what came before x; absent: 0", AMBI_SLOT_OPTIONAL},
    {"y", "(B, D, L)", "output", AMBI_SLOT_OUTPUT},
    {"x_last", "(B, D, W-1)", "the last W-1 inputs", AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL},
};

static const ambi_attr_info attributes[] = {
    {"silu", "y = silu(p) instead of p", AMBI_ATTR_BOOL, offsetof(ambi_op, u.conv1d.silu), 0, 0, 1, NULL},
};

static const int8_t in_place[][2] = {{X_LAST, X0}, {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 3, 3));
  TRY(expect_rank(p, W, 2, 2));
  const ambi_tensor x = p->t[X];
  int64_t taps = p->t[W].shape[1];
  if (taps < 1 || taps > MOST_TAPS)
    return fail_slot(AMBI_INVALID, p, W, "expected 1 to %d taps, got %lld", MOST_TAPS, (long long)taps);
  if (x.shape[2] > INT64_MAX - MOST_TAPS) return fail_slot(AMBI_INVALID, p, X, "is too long");
  TRY(expect(p, W, x.dtype, 2, (int64_t[]){x.shape[1], taps}));
  TRY(expect(p, B, x.dtype, 1, &x.shape[1]));
  TRY(expect(p, X0, x.dtype, 3, (int64_t[]){x.shape[0], x.shape[1], taps - 1}));
  TRY(expect_like(p, Y, X));
  return expect(p, X_LAST, x.dtype, 3, (int64_t[]){x.shape[0], x.shape[1], taps - 1});
}

/* Without silu p is not needed, so the inputs are read only by the gradients they are factors of. */
static uint32_t not_needed(const problem *p) {
  uint32_t unread = 0, z = AMBI_BIT(X) | AMBI_BIT(X0);
  bool silu = p->op.u.conv1d.silu, wants_dz = writes_slot(p, AMBI_GRAD(X)) || writes_slot(p, AMBI_GRAD(X0));
  if (!silu) unread |= AMBI_BIT(B);
  if (!silu && !writes_slot(p, AMBI_GRAD(W))) unread |= z;
  if (!silu && !wants_dz) unread |= AMBI_BIT(W);
  if (!wants_dz) unread |= AMBI_BIT(AMBI_GRAD(X_LAST));
  return unread;
}

static void take_strides(const ambi_tensor *t, int64_t out[3]) {
  out[0] = t->ndim == 3 ? t->stride[0] : 0;
  out[1] = t->ndim == 3 ? t->stride[1] : t->stride[0];
  out[2] = t->ndim >= 2 ? t->stride[t->ndim - 1] : 0;
}

static ambi_status recipe(problem *p) {
  conv1d_recipe *r = (conv1d_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  const ambi_tensor *x = &p->t[X];
  if (is_backward(p)) p->reads &= ~not_needed(p);
  *r = (conv1d_recipe){x->shape[0], x->shape[1], x->shape[2], p->t[W].shape[1], {{0}}};
  for (int s = 0; s < AMBI_SLOTS; s++) take_strides(&p->t[s], r->stride[s]);
  p->flops = (uint64_t)ambi_numel(x) * (uint64_t)r->taps * (is_backward(p) ? 6 : 2);
  return AMBI_OK;
}

const op_def conv1d_op = {
    .info = {.name = "conv1d",
             .formula = "z = x0 ++ x;  p[t] = b + sum_k w[k] z[t + k];  y = p or silu(p);  x_last = last W-1 of z",
             .gradient = "dp = dy or dy silu'(p);  dw[k] = sum dp[t] z[t + k];  db = sum dp;  "
                         "dz[j] = sum_k w[k] dp[j - k] + dx_last[j - L];  dx0 ++ dx = dz",
             .doc = "Causal depthwise convolution along time.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(X) | AMBI_BIT(W) | AMBI_BIT(B) | AMBI_BIT(X0),
    .shapes = shapes,
    .recipe = recipe,
};
