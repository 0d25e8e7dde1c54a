/* ssd -- the state space of Mamba-2 (state space duality): H heads of P channels, N states a channel, over L steps.
 *
 *   d = softplus(delta + delta_bias), or delta + delta_bias;   A as given, or A = -exp(a_log): one number a head
 *   h_t = abar_t h_{t-1} + d_t x_t B_t^T,  abar = exp(d A);    y_t = h_t C_t + D x_t            h: (P, N)
 *
 * h_{-1} is h0 or zero, h_last is h_{L-1}. Where seq_idx[t] differs from seq_idx[t-1], h_{t-1} is taken as zero. Head h
 * reads group h / (H/G) of B and C. As A is one number, the steps of a chunk are also a matrix product, the dual form
 * that kernels use:
 *   y_t = sum_{s <= t} l_ts (C_t . B_s) d_s x_s + ..,   l_ts = abar_{s+1} .. abar_t
 *
 * With dh_t the gradient of h_t, from the last step to the first (dh_last joins at the last):
 *   dh_t = dy_t C_t^T + abar_{t+1} dh_{t+1};   dh0 = abar_0 dh_0
 *   dx = d dh B + D dy;   dB = d dh^T x;   dC = h^T dy;   dD = dy . x
 *   dd = A e + x . dh B,   dA = d e,   e_t = abar_t sum_pn dh_t h_{t-1}
 *   ddelta = dd, times sigmoid(delta + delta_bias) with softplus;   da_log = dA A
 * dB and dC are summed over the heads of a group, dA, dD and ddelta_bias over batch and time.                      */
#include "ops/ssd/op.h"

#include <string.h>

#include "ops/state.h"

enum { X = AMBI_SSD_X, DELTA = AMBI_SSD_DELTA, A = AMBI_SSD_A, B = AMBI_SSD_B, C = AMBI_SSD_C, D = AMBI_SSD_D };
enum { DELTA_BIAS = AMBI_SSD_DELTA_BIAS, H0 = AMBI_SSD_H0, SEQ_IDX = AMBI_SSD_SEQ_IDX };
enum { Y = AMBI_SSD_Y, H_LAST = AMBI_SSD_H_LAST, SLOTS };

enum { OPTIONAL = AMBI_SLOT_OPTIONAL, OUTPUT = AMBI_SLOT_OUTPUT, NO_GRAD = AMBI_SLOT_NO_GRAD };

static const ambi_slot_info slots[SLOTS] = {
    {"x", "(B, L, H, P)", "input", 0},
    {"delta", "(B, L, H)", "step size d, before delta_bias and softplus", 0},
    {"a", "(H)", "A: decay, or log(-A) (attribute a_log)", 0},
    {"b", "(B, L, G, N)", "B: into the state; per group of heads", 0},
    {"c", "(B, L, G, N)", "C: out of the state; per group of heads", 0},
    {"d", "(H)", "D: from input to output", OPTIONAL},
    {"delta_bias", "(H)", "added to delta", OPTIONAL},
    {"h0", "(B, H, P, N)", "state before the first step; absent: 0", OPTIONAL},
    {"seq_idx", "(B, L)", "i32; the state is forgotten where it changes", OPTIONAL | NO_GRAD | AMBI_SLOT_INTEGER},
    {"y", "(B, L, H, P)", "output", OUTPUT},
    {"h_last", "(B, H, P, N)", "state after the last step", OUTPUT | OPTIONAL},
};

/* The axes of each slot */
static const char *const axes[SLOTS] = {"blhp", "blh", "h", "blgn", "blgn", "h", "h", "bhpn", "bl", "blhp", "bhpn"};

static const ambi_attr_info attributes[] = {
    {"softplus", "d = softplus(delta + delta_bias)", AMBI_ATTR_BOOL, offsetof(ambi_op, u.ssd.softplus), 0, 0, 1, NULL},
    {"a_log", "slot a holds log(-A)", AMBI_ATTR_BOOL, offsetof(ambi_op, u.ssd.a_log), 0, 0, 1, NULL},
};

#define DGRAD(s) AMBI_GRAD(s)
static const int8_t in_place[][2] = {
    {Y, X}, {H_LAST, H0}, {DGRAD(X), DGRAD(Y)}, {DGRAD(X), X}, {DGRAD(H0), DGRAD(H_LAST)}, {-1, -1}};

/* ---- shapes ---- */
/* B L H P N, with empty axes counted as one: what workspaces are in proportion to stays far from 2^63 bytes. */
static ambi_status check_size(const problem *p) {
  const int64_t limit = INT64_C(1) << 46, *x = p->t[X].shape, *b = p->t[B].shape;
  const int64_t all[] = {x[0], x[1], x[2], x[3], b[3]};
  int64_t updates = 1;
  for (int i = 0; i < 5; i++)
    if (mul_overflows(updates, all[i] ? all[i] : 1, &updates) || updates > limit)
      return fail(AMBI_INVALID, "ssd: B L H P N is more than 2^46");
  return AMBI_OK;
}

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 4, 4));
  TRY(expect_rank(p, B, 4, 4));
  const ambi_dtype t = p->t[X].dtype, kept = t == AMBI_F64 ? AMBI_F64 : AMBI_F32;
  const int64_t *x = p->t[X].shape, batches = x[0], length = x[1], heads = x[2], width = x[3];
  const int64_t groups = p->t[B].shape[2], states = p->t[B].shape[3];
  if (groups == 0 ? heads != 0 : heads % groups != 0)
    return fail_slot(AMBI_INVALID, p, B, "its %lld groups do not divide the %lld heads of x", (long long)groups,
                     (long long)heads);
  TRY(expect(p, DELTA, t, 3, x));
  TRY(expect(p, A, t, 1, &heads));
  TRY(expect(p, B, t, 4, (int64_t[]){batches, length, groups, states}));
  TRY(expect_like(p, C, B));
  TRY(expect(p, D, t, 1, &heads));
  TRY(expect(p, DELTA_BIAS, t, 1, &heads));
  TRY(expect(p, H0, t, 4, (int64_t[]){batches, heads, width, states}));
  TRY(expect(p, SEQ_IDX, AMBI_I32, 2, x));
  TRY(expect_dtype(p, SEQ_IDX, AMBI_I32));
  TRY(expect_like(p, Y, X));
  TRY(expect(p, H_LAST, kept, 4, (int64_t[]){batches, heads, width, states}));
  return check_size(p);
}

/* ---- recipe ---- */
#define BIT AMBI_BIT
enum { DY = DGRAD(Y), DH_LAST = DGRAD(H_LAST) };

static const state_sources from = {
    .h = BIT(X) | BIT(DELTA) | BIT(DELTA_BIAS) | BIT(A) | BIT(B) | BIT(H0) | BIT(SEQ_IDX),
    .dh = BIT(DELTA) | BIT(DELTA_BIAS) | BIT(A) | BIT(C) | BIT(DY) | BIT(DH_LAST) | BIT(SEQ_IDX)};

static const state_use uses[SLOTS] = {
    [X] = {false, true, BIT(B) | BIT(D)}, [DELTA] = {true, true, 0},    [A] = {true, true, 0},
    [B] = {false, true, BIT(X)},          [C] = {true, false, BIT(DY)}, [D] = {false, false, BIT(DY) | BIT(X)},
    [DELTA_BIAS] = {true, true, 0},       [H0] = {false, true, 0}};

static ssd_strides strides_of(const problem *p, int slot) {
  const ambi_tensor *t = &p->t[slot];
  ssd_strides s = {0};
  const char *names = axes[slot % AMBI_MAX_PRIMALS];
  state_strides(t, names, "blhgpn", (int64_t *const[]){&s.b, &s.l, &s.h, &s.g, &s.p, &s.n});
  return s;
}

/* Multiplications and additions of the recurrence: those a dual form does more of are its own affair. */
static ambi_status recipe(problem *p) {
  ssd_recipe *r = (ssd_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  memset(r, 0, sizeof *r);
  const int64_t *x = p->t[X].shape;
  r->batches = x[0], r->length = x[1], r->heads = x[2], r->width = x[3];
  r->groups = p->t[B].shape[2], r->states = p->t[B].shape[3];
  r->heads_per_group = r->groups ? r->heads / r->groups : 0;
  if (is_backward(p)) state_reads(p, uses, from, &r->needs_h, &r->needs_dh);
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1) r->stride[__builtin_ctz(m)] = strides_of(p, __builtin_ctz(m));
  p->flops = (uint64_t)(ambi_numel(&p->t[X]) * r->states) * (is_backward(p) ? 15 : 5);
  return AMBI_OK;
}

const op_def ssd_op = {
    .info = {.name = "ssd",
             .formula = "d = softplus(delta + delta_bias), or delta + delta_bias;  abar = exp(d A);  "
                        "h_t = abar h_{t-1} + d x_t B_t;  y_t = sum_n C_t h_t + D x_t",
             .gradient = "dh_t = dy C_t + abar_{t+1} dh_{t+1};  dC = sum_p dy h;  dB = sum_p dh d x;  "
                         "dx = D dy + d sum_n dh B;  e = abar_t sum_pn dh_t h_{t-1};  "
                         "ddelta = A e + sum_pn dh B x, times sigmoid(delta + delta_bias) with softplus;  "
                         "dA = d e;  dD = sum_p dy x;  dh0 = abar_0 dh_0",
             .doc = "The state space of Mamba-2 (state space duality): one decay a head, in chunks of matrix products.",
             .slots = SLOTS,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads =
        BIT(X) | BIT(DELTA) | BIT(A) | BIT(B) | BIT(C) | BIT(D) | BIT(DELTA_BIAS) | BIT(H0) | BIT(SEQ_IDX),
    .shapes = shapes,
    .recipe = recipe,
};
