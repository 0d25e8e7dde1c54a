/* selective_scan -- the state space of Mamba-1 (S6): N states for each of D channels, over L steps.
 *
 *   d = softplus(delta + delta_bias), or delta + delta_bias;   A as given, or A = -exp(a_log)
 *   abar = exp(d A);   bbar = d B (Euler), or expm1(d A)/A B (zero-order hold)
 *   h_t = abar h_{t-1} + bbar u_t;   p_t = sum_n C h_t + D u_t;   y = p silu(z), or p without z
 *
 * h_{-1} is h0 or zero, h_last is h_{L-1}. Where seq_idx[t] differs from seq_idx[t-1], h_{t-1} is taken as zero.
 *
 * With dp = dy silu(z), and dh_t the gradient of h_t, from the last step to the first (dh_last joins at the last):
 *   dh_t = C dp_t + abar_{t+1} dh_{t+1};   dh0 = abar_0 dh_0;   dz = dy p silu'(z)
 *   dC = dp h_t;   dD = dp u_t;   dB = dh bbar/B u_t;   du = D dp + sum_n dh bbar
 *   dd = sum_n dh (A abar h_{t-1} + bbar' u_t),   bbar' = B (Euler), abar B (zero-order hold)
 *   dA = dh (d abar h_{t-1} + bbar'' u_t),        bbar'' = 0 (Euler), d^2 phi'(d A) B,  phi(x) = expm1(x)/x
 *   ddelta = dd, times sigmoid(delta + delta_bias) with softplus;   da_log = dA A
 * dB and dC are summed over the channels of a group (constant B, C: over batch and time), dA, dD and ddelta_bias over
 * batch and time. Only every 64th state is kept; backward computes those between again.                            */
#include "ops/selective_scan/op.h"

#include <string.h>

#include "ops/state.h"

enum { U = AMBI_SCAN_U, DELTA = AMBI_SCAN_DELTA, A = AMBI_SCAN_A, B = AMBI_SCAN_B, C = AMBI_SCAN_C, D = AMBI_SCAN_D };
enum { Z = AMBI_SCAN_Z, DELTA_BIAS = AMBI_SCAN_DELTA_BIAS, H0 = AMBI_SCAN_H0, SEQ_IDX = AMBI_SCAN_SEQ_IDX };
enum { Y = AMBI_SCAN_Y, H_LAST = AMBI_SCAN_H_LAST, CHUNK_STATE = AMBI_SCAN_CHUNK_STATE, SLOTS };

enum { OPTIONAL = AMBI_SLOT_OPTIONAL, OUTPUT = AMBI_SLOT_OUTPUT, NO_GRAD = AMBI_SLOT_NO_GRAD };

static const ambi_slot_info slots[SLOTS] = {
    {"u", "(B, D, L)", "input; strides say which axis is dense", 0},
    {"delta", "(B, D, L)", "step size d, before delta_bias and softplus", 0},
    {"a", "(D, N)", "A: decay, or log(-A) (attribute a_log)", 0},
    {"b", "(B, G, N, L), (B, N, L) or (D, N)", "B: into the state; per group of channels, or constant", 0},
    {"c", "(B, G, N, L), (B, N, L) or (D, N)", "C: out of the state; per group of channels, or constant", 0},
    {"d", "(D)", "D: from input to output", OPTIONAL},
    {"z", "(B, D, L)", "the output is multiplied by silu(z)", OPTIONAL},
    {"delta_bias", "(D)", "added to delta", OPTIONAL},
    {"h0", "(B, D, N)", "state before the first step; absent: 0", OPTIONAL},
    {"seq_idx", "(B, L)", "i32; the state is forgotten where it changes", OPTIONAL | NO_GRAD | AMBI_SLOT_INTEGER},
    {"y", "(B, D, L)", "output", OUTPUT},
    {"h_last", "(B, D, N)", "state after the last step", OUTPUT | OPTIONAL},
    {"chunk_state", "(B, ceil(L/64), D, N)", "state before steps 0, 64, 128, .. of L",
     OUTPUT | OPTIONAL | NO_GRAD | AMBI_SLOT_SAVED},
};

/* The axes of each slot; b and c by their rank. */
static const char *const axes[SLOTS] = {"bdl", "bdl", "dn", NULL,  NULL,  "d",   "bdl",
                                        "d",   "bdn", "bl", "bdl", "bdn", "bsdn"};
static const char *const axes_by_rank[] = {NULL, NULL, "dn", "bnl", "bgnl"};

static const ambi_attr_info attributes[] = {
    {"softplus", "d = softplus(delta + delta_bias)", AMBI_ATTR_BOOL, offsetof(ambi_op, u.selective_scan.softplus), 0, 0,
     1, NULL},
    {"zoh", "zero-order hold: bbar = expm1(d A)/A B", AMBI_ATTR_BOOL, offsetof(ambi_op, u.selective_scan.zoh), 0, 0, 1,
     NULL},
    {"a_log", "slot a holds log(-A)", AMBI_ATTR_BOOL, offsetof(ambi_op, u.selective_scan.a_log), 0, 0, 1, NULL},
};

#define DGRAD(s) AMBI_GRAD(s)
static const int8_t in_place[][2] = {{Y, U},
                                     {Y, DELTA},
                                     {Y, Z},
                                     {H_LAST, H0},
                                     {DGRAD(U), DGRAD(Y)},
                                     {DGRAD(DELTA), DGRAD(Y)},
                                     {DGRAD(Z), DGRAD(Y)},
                                     {DGRAD(U), U},
                                     {DGRAD(DELTA), DELTA},
                                     {DGRAD(Z), Z},
                                     {DGRAD(H0), DGRAD(H_LAST)},
                                     {DGRAD(H0), H0},
                                     {-1, -1}};

/* ---- shapes ---- */
/* A constant B or C, and one of rank 3, counts as one group. */
static int64_t groups_of(const problem *p, int slot) { return p->t[slot].ndim == 4 ? p->t[slot].shape[1] : 1; }

static ambi_status expect_groups(problem *p, int slot) {
  TRY(expect_rank(p, slot, 2, 4));
  const ambi_tensor *t = &p->t[slot];
  const int64_t *u = p->t[U].shape, states = p->t[A].shape[1], groups = groups_of(p, slot);
  if (groups == 0 ? u[1] != 0 : u[1] % groups != 0)
    return fail_slot(AMBI_INVALID, p, slot, "its %lld groups do not divide the %lld channels of u", (long long)groups,
                     (long long)u[1]);
  if (t->ndim == 2) return expect(p, slot, t->dtype, 2, (int64_t[]){u[1], states});
  if (t->ndim == 3) return expect(p, slot, t->dtype, 3, (int64_t[]){u[0], states, u[2]});
  return expect(p, slot, t->dtype, 4, (int64_t[]){u[0], groups, states, u[2]});
}

/* B D L N, with empty axes counted as one: what workspaces are in proportion to stays far from 2^63 bytes. */
static ambi_status check_size(const problem *p) {
  const int64_t limit = INT64_C(1) << 48;
  const int64_t axes_of_all[] = {p->t[U].shape[0], p->t[U].shape[1], p->t[U].shape[2], p->t[A].shape[1]};
  int64_t updates = 1;
  for (int i = 0; i < 4; i++)
    if (mul_overflows(updates, axes_of_all[i] ? axes_of_all[i] : 1, &updates) || updates > limit)
      return fail(AMBI_INVALID, "selective_scan: B D L N is more than 2^48");
  if (ambi_numel(&p->t[B]) > limit || ambi_numel(&p->t[C]) > limit)
    return fail(AMBI_INVALID, "selective_scan: b or c has more than 2^48 elements");
  return AMBI_OK;
}

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, U, 3, 3));
  TRY(expect_rank(p, A, 2, 2));
  const ambi_dtype t = p->t[U].dtype, kept = t == AMBI_F64 ? AMBI_F64 : AMBI_F32;
  const int64_t batches = p->t[U].shape[0], channels = p->t[U].shape[1], length = p->t[U].shape[2];
  const int64_t states = p->t[A].shape[1], chunks = length / SCAN_CHUNK + (length % SCAN_CHUNK != 0);
  TRY(expect_like(p, DELTA, U));
  TRY(expect(p, A, t, 2, (int64_t[]){channels, states}));
  TRY(expect_groups(p, B));
  TRY(expect_groups(p, C));
  TRY(expect(p, D, t, 1, &channels));
  TRY(expect_like(p, Z, U));
  TRY(expect(p, DELTA_BIAS, t, 1, &channels));
  TRY(expect(p, H0, t, 3, (int64_t[]){batches, channels, states}));
  TRY(expect(p, SEQ_IDX, AMBI_I32, 2, (int64_t[]){batches, length}));
  TRY(expect_dtype(p, SEQ_IDX, AMBI_I32));
  TRY(expect_like(p, Y, U));
  TRY(expect(p, H_LAST, kept, 3, (int64_t[]){batches, channels, states}));
  TRY(expect(p, CHUNK_STATE, kept, 4, (int64_t[]){batches, chunks, channels, states}));
  return check_size(p);
}

/* ---- recipe ---- */
#define BIT AMBI_BIT
enum { DY = DGRAD(Y), DH_LAST = DGRAD(H_LAST) };

static const state_sources from = {
    .h = BIT(U) | BIT(DELTA) | BIT(DELTA_BIAS) | BIT(A) | BIT(B) | BIT(H0) | BIT(SEQ_IDX) | BIT(CHUNK_STATE),
    .dh = BIT(DELTA) | BIT(DELTA_BIAS) | BIT(A) | BIT(C) | BIT(DY) | BIT(Z) | BIT(DH_LAST) | BIT(SEQ_IDX)};

static const state_use uses[SLOTS] = {[U] = {false, true, BIT(B) | BIT(D)},
                                      [DELTA] = {true, true, 0},
                                      [A] = {true, true, 0},
                                      [B] = {false, true, BIT(U)},
                                      [C] = {true, false, BIT(DY) | BIT(Z)},
                                      [D] = {false, false, BIT(DY) | BIT(Z) | BIT(U)},
                                      [Z] = {true, false, BIT(DY) | BIT(Z) | BIT(C) | BIT(D)},
                                      [DELTA_BIAS] = {true, true, 0},
                                      [H0] = {false, true, 0}};

static void read_what_is_needed(problem *p, scan_recipe *r) {
  state_reads(p, uses, from, &r->needs_h, &r->needs_dh);
  if (reads_slot(p, CHUNK_STATE)) p->reads &= ~BIT(H0); /* it is the first of them */
}

static scan_strides strides_of(const problem *p, int slot) {
  const ambi_tensor *t = &p->t[slot];
  const char *names = axes[slot % AMBI_MAX_PRIMALS] ? axes[slot % AMBI_MAX_PRIMALS] : axes_by_rank[t->ndim];
  scan_strides s = {0};
  state_strides(t, names, "bsgdnl", (int64_t *const[]){&s.b, &s.s, &s.g, &s.d, &s.n, &s.l});
  return s;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) { return b ? greatest_common_divisor(b, a % b) : a; }

static ambi_status recipe(problem *p) {
  scan_recipe *r = (scan_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  memset(r, 0, sizeof *r);
  const ambi_tensor *u = &p->t[U];
  r->batches = u->shape[0], r->channels = u->shape[1], r->length = u->shape[2], r->states = p->t[A].shape[1];
  r->chunks = r->length / SCAN_CHUNK + (r->length % SCAN_CHUNK != 0);
  r->groups_b = groups_of(p, B), r->groups_c = groups_of(p, C);
  if (r->channels)
    r->channels_per_group = greatest_common_divisor(r->channels / r->groups_b, r->channels / r->groups_c);
  r->constant_b = p->t[B].ndim == 2, r->constant_c = p->t[C].ndim == 2;
  if (is_backward(p)) read_what_is_needed(p, r);
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1) r->stride[__builtin_ctz(m)] = strides_of(p, __builtin_ctz(m));
  int64_t updates = ambi_numel(u) * r->states;
  p->flops = (uint64_t)updates * (is_backward(p) ? 22 : 7);
  return AMBI_OK;
}

const op_def selective_scan_op = {
    .info = {.name = "selective_scan",
             .formula = "d = softplus(delta + delta_bias), or delta + delta_bias;  abar = exp(d A);  "
                        "bbar = d B (zoh: expm1(d A)/A B);  h_t = abar h_{t-1} + bbar u_t;  p = sum_n C h_t + D u_t;  "
                        "y = p silu(z), or p without z",
             .gradient = "dp = dy silu(z);  dh_t = C dp + abar_{t+1} dh_{t+1};  dC = dp h;  dB = dh bbar/B u;  "
                         "du = D dp + sum_n dh bbar;  dA = dh d abar h_{t-1} (zoh: + dh d^2 phi'(d A) B u, "
                         "phi(x) = expm1(x)/x);  ddelta = sum_n dh (A abar h_{t-1} + B u (zoh: abar B u)), "
                         "times sigmoid(delta + delta_bias) with softplus;  dz = dy p silu'(z);  dD = dp u;  "
                         "dh0 = abar_0 dh_0",
             .doc = "The state space of Mamba-1 (S6), over any number of states and steps.",
             .slots = SLOTS,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads =
        BIT(U) | BIT(DELTA) | BIT(A) | BIT(B) | BIT(C) | BIT(D) | BIT(Z) | BIT(DELTA_BIAS) | BIT(H0) | BIT(SEQ_IDX),
    .shapes = shapes,
    .recipe = recipe,
};
