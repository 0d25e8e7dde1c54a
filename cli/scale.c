/* scale.c -- how large the terms are that an output is summed from, and the error that follows.
 *
 * A sum of rounded products errs in proportion to the sum of the |terms|, not to the result, which may cancel. For ops
 * that are sums of products that sum is the op itself applied to absolute values; the others are written out below.
 *
 *   |error| <= u_storage |ref| + tiny + (u (16 + 2 log2 n + steps) + 6 sqrt(n) 2^-53) mag
 *
 * In f16 and bf16 a function may be off by one ulp more (unary, gated): 2 u_storage of every term.
 * u_storage rounds the result once; tiny is half a denormal of the storage dtype. u is the unit roundoff of the
 * arithmetic. A term is a product of at most six factors, one of them a function good to 4 ulp = 8u: 14u, and 2u more
 * for combining it. A blocked or pairwise sum of n terms adds log2 n, and the statistics inside a normalisation are
 * such a sum themselves: 2 log2 n. A recurrence passes a term on from step to step, see recurrence_magnitudes. The
 * reference adds naively in f64 and errs itself, by 6 sqrt(n) 2^-53 with a probability beyond doubt (Higham and Mary
 * 2019). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "trial.h"
#include "values.h"

static double most_terms(const trial *t) { return (double)(t->n > 1 ? t->n : 1); }

double trial_growth(const trial *t) { return 16 + 2 * log2(most_terms(t)) + t->steps; }

double trial_tolerance(const trial *t, double ref, double terms, double mag, ambi_dtype dtype, double u) {
  int halves = dtype == AMBI_F16 || dtype == AMBI_BF16;
  double function = t->approximate && halves ? 2 * value_unit(dtype) * terms : 0;
  return function + value_unit(dtype) * fabs(ref) + value_tiny(dtype) + (u * t->growth + t->own) * mag;
}

static int64_t numel(const trial *t, int s) { return ambi_numel(&t->op.t[s % AMBI_MAX_PRIMALS]); }

static double largest(const double *v, int64_t n) {
  double m = 0;
  for (int64_t i = 0; i < n; i++) m = fmax(m, fabs(v[i]));
  return m;
}

/* ---- sums of products: the op applied to absolute values ---- */
static void absolute_inputs(const trial *t, uint32_t keep, double **in) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    in[s] = NULL;
    if (!t->in[s]) continue;
    in[s] = values_new(numel(t, s));
    for (int64_t i = 0; i < numel(t, s); i++) in[s][i] = keep & AMBI_BIT(s) ? t->in[s][i] : fabs(t->in[s][i]);
  }
}

static void free_all(double **v) {
  for (int s = 0; s < AMBI_SLOTS; s++) free(v[s]);
}

/* Adds to mag the |answer| of either pass of op `o` (the trial's, or a linear relative of it) to `in`. */
static void add_answer(const target *ref, trial *t, const ambi_op *o, ambi_pass pass, double *const *in) {
  trial relative = *t;
  exec e;
  relative.op = *o;
  if (trial_reference(ref, &relative, pass, in, &e) == 0)
    for (int s = 0; s < AMBI_SLOTS; s++)
      for (int64_t i = 0, n = e.out[s] ? numel(t, s) : 0; i < n; i++) t->mag[s][i] += fabs(e.out[s][i]);
  exec_free(&e);
}

static void absolute_magnitudes(const target *ref, trial *t, uint32_t keep) {
  double *in[AMBI_SLOTS];
  ambi_op op = t->op;
  for (int a = 0; a < t->info->attrs; a++) {
    if (t->info->attr[a].type != AMBI_ATTR_F64) continue;
    double *v = (double *)(void *)((char *)&op + t->info->attr[a].offset);
    *v = fabs(*v);
  }
  absolute_inputs(t, keep, in);
  add_answer(ref, t, &op, AMBI_FORWARD, in);
  if (t->differentiable) add_answer(ref, t, &op, AMBI_BACKWARD, in);
  free_all(in);
}

static void sum_of_products(const target *ref, trial *t) { absolute_magnitudes(ref, t, 0); }

/* Copies: nothing is computed, so only storage rounds. */
static void exact(const target *ref, trial *t) { (void)ref, (void)t; }

/* ---- elementwise ---- */
/* A tail e^t errs by |t| u because t is rounded, in the reference and in a kernel alike: 2 |log f| u, next to 16 u. (In
 * f32 and below check_ulp.c asks for more.) */
static double with_tail(double y, double f) {
  double t = log(fabs(f));
  return fabs(y) * (isfinite(t) ? 1 + fabs(t) / 8 : 1);
}

/* dx = dy f'(x): near a root of f' its terms are of the size of f'' x and f/x, at most about 1 for these functions. */
static void unary_magnitudes(const target *ref, trial *t) {
  (void)ref;
  for (int64_t i = 0; i < numel(t, AMBI_UNARY_X); i++) {
    double y = t->ref[AMBI_UNARY_Y][i];
    t->mag[AMBI_UNARY_Y][i] = with_tail(y, y);
    if (!t->differentiable) continue;
    double dy = t->in[AMBI_GRAD(AMBI_UNARY_Y)][i];
    t->mag[AMBI_GRAD(AMBI_UNARY_X)][i] = fabs(t->ref[AMBI_GRAD(AMBI_UNARY_X)][i]) + fabs(dy);
  }
}

static void gated_magnitudes(const target *ref, trial *t) {
  (void)ref;
  for (int64_t i = 0; i < numel(t, AMBI_GATED_Y); i++) {
    double v = t->in[AMBI_GATED_V][i], y = t->ref[AMBI_GATED_Y][i];
    t->mag[AMBI_GATED_Y][i] = with_tail(y, y / v);
    if (!t->differentiable) continue;
    double dy = t->in[AMBI_GRAD(AMBI_GATED_Y)][i];
    t->mag[AMBI_GRAD(AMBI_GATED_V)][i] = with_tail(t->ref[AMBI_GRAD(AMBI_GATED_V)][i], y / v);
    t->mag[AMBI_GRAD(AMBI_GATED_G)][i] = fabs(t->ref[AMBI_GRAD(AMBI_GATED_G)][i]) + fabs(dy * v);
  }
}

/* ---- conv1d: y = silu(p), p = b + sum w x ---- */
/* |silu'| <= 1.1 and |silu''| <= 1/2, so y errs by 1.1 M(p) + |y|, and dp = dy silu'(p) by |dy| (1.1 + M(p) / 2): the
 * rest is the linear convolution of absolute values. */
static void conv1d_magnitudes(const target *ref, trial *t) {
  double *in[AMBI_SLOTS];
  ambi_op linear = t->op;
  linear.u.conv1d.silu = 0;
  absolute_inputs(t, 0, in);
  add_answer(ref, t, &linear, AMBI_FORWARD, in);
  double *mag = t->mag[AMBI_CONV1D_Y], *dp = in[AMBI_GRAD(AMBI_CONV1D_Y)];
  for (int64_t i = 0; t->op.u.conv1d.silu && i < numel(t, AMBI_CONV1D_Y); i++) {
    if (dp) dp[i] *= 1.1 + mag[i] / 2;
    mag[i] = 1.1 * mag[i] + fabs(t->ref[AMBI_CONV1D_Y][i]);
  }
  if (t->differentiable) add_answer(ref, t, &linear, AMBI_BACKWARD, in);
  free_all(in);
}

/* ---- selective_scan and ssd ---- */
static void spread(trial *t, int s, double value) {
  for (int64_t i = 0, n = t->mag[s] ? numel(t, s) : 0; i < n; i++) t->mag[s][i] = value;
}

/* The slots and axes of a state space: h_t = exp(d A) h_{t-1} + d B u_t */
typedef struct {
  int u, delta, a, delta_bias, seq_idx;
  int64_t batches, length, width; /* width: elements of u that one delta belongs to */
  double gate;                    /* how much silu(z) may raise terms               */
} recurrence;

/* Everything but delta, its bias and A enters linearly (|silu z| <= silu |z| and |silu' z| <= 2 silu' |z|: gate). For
 * those three gradients one number, the largest, stands for all elements. ddelta_t = sum dh (A abar h + B u) has terms
 * of both signs; the second is |u| / d times what du is summed from, for each u, and the first is the difference, so
 * together at most |ddelta| + 2 |u| du width / d; softplus multiplies that by its slope, which is below d. Each step
 * multiplies the state by exp(dA) and adds: 4 roundings. After L of them a term carries at most 4 L; as they are
 * independent, 24 sqrt(L) bounds them with a probability beyond doubt (Higham and Mary 2019, lambda = 6).
 *
 * One number for all elements would let a small one be anything. But terms of both signs add up to about the root of
 * the sum of their squares, and so do their errors: in the norm over all elements a gradient errs by no more of itself
 * than a term does of a term (by_norm). */
static void recurrence_magnitudes(const target *ref, trial *t, recurrence r) {
  uint32_t keep = AMBI_BIT(r.delta) | AMBI_BIT(r.a) | AMBI_BIT(r.delta_bias);
  absolute_magnitudes(ref, t, keep | AMBI_BIT(r.seq_idx));
  for (int s = 0; s < AMBI_SLOTS; s++)
    for (int64_t i = 0, n = t->mag[s] ? numel(t, s) : 0; i < n; i++) t->mag[s][i] *= r.gate;
  t->steps = fmin(4 * (double)r.length, 24 * sqrt((double)r.length));
  if (numel(t, r.delta) == 0 || !t->differentiable) return;
  spread(t, AMBI_GRAD(r.a), largest(t->mag[AMBI_GRAD(r.a)], numel(t, r.a)));
  double d = INFINITY, u = largest(t->in[r.u], numel(t, r.u));
  for (int64_t i = 0; i < numel(t, r.delta); i++) d = fmin(d, t->in[r.delta][i] - 0.15);
  if (case_attr(&t->op, "softplus") != 0) d = 1;
  t->by_norm = (AMBI_BIT(r.a) | AMBI_BIT(r.delta) | AMBI_BIT(r.delta_bias)) & t->differentiable;
  double ddelta = largest(t->mag[AMBI_GRAD(r.delta)], numel(t, r.delta)) +
                  2 * (double)r.width * u * largest(t->mag[AMBI_GRAD(r.u)], numel(t, r.u)) / d;
  spread(t, AMBI_GRAD(r.delta), ddelta);
  if (t->mag[AMBI_GRAD(r.delta_bias)]) spread(t, AMBI_GRAD(r.delta_bias), ddelta * (double)(r.length * r.batches));
}

static void scan_magnitudes(const target *ref, trial *t) {
  const int64_t *u = t->op.t[AMBI_SCAN_U].shape;
  recurrence_magnitudes(ref, t,
                        (recurrence){AMBI_SCAN_U, AMBI_SCAN_DELTA, AMBI_SCAN_A, AMBI_SCAN_DELTA_BIAS, AMBI_SCAN_SEQ_IDX,
                                     u[0], u[2], 1, 2});
}

/* Tensor cores multiply numbers of 16 bits. Where x is bf16 a kernel may round to that what it multiplies further: the
 * weights l C.B d, g of dB and dC, what a step and what a chunk add to a state (or to its gradient), and the state that
 * is read. A term of y, dx, dB, dC or of a state has at most three such factors; one of e, which ddelta and dA are made
 * of, a state and a gradient of one: six. bf16 has the range of f32, so each costs u16 of the term. */
static void ssd_narrow(trial *t) {
  static const int through_e[] = {AMBI_SSD_DELTA, AMBI_SSD_A, AMBI_SSD_DELTA_BIAS};
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!t->mag[s]) continue;
    double factors = 3;
    for (int i = 0; i < 3; i++)
      if (s == AMBI_GRAD(through_e[i])) factors = 6;
    t->norm[s] = factors * value_unit(AMBI_BF16);
    t->narrow[s] = values_new(numel(t, s));
    for (int64_t i = 0; i < numel(t, s); i++) t->narrow[s][i] = factors * value_unit(AMBI_BF16) * t->mag[s][i];
  }
}

static void ssd_magnitudes(const target *ref, trial *t) {
  const int64_t *x = t->op.t[AMBI_SSD_X].shape;
  recurrence_magnitudes(
      ref, t,
      (recurrence){AMBI_SSD_X, AMBI_SSD_DELTA, AMBI_SSD_A, AMBI_SSD_DELTA_BIAS, AMBI_SSD_SEQ_IDX, x[0], x[1], x[3], 1});
  if (t->op.t[AMBI_SSD_X].dtype == AMBI_BF16) ssd_narrow(t);
}

/* ---- adamw: p (1 - lr wd) - lr mhat / (sqrt(vhat) + eps) ---- */
/* On absolute values that difference cancels, so the update is at most |answer| + |p|: both terms, |answer| + 2 |p|. */
static void adamw_magnitudes(const target *ref, trial *t) {
  sum_of_products(ref, t);
  for (int64_t i = 0; i < numel(t, AMBI_ADAMW_P); i++) {
    t->mag[AMBI_ADAMW_P_OUT][i] += 2 * fabs(t->in[AMBI_ADAMW_P][i]);
    if (t->mag[AMBI_ADAMW_P_COPY]) t->mag[AMBI_ADAMW_P_COPY][i] = t->mag[AMBI_ADAMW_P_OUT][i];
  }
}

/* ---- embedding: y is a copy, dw a sum ---- */
static void embedding_magnitudes(const target *ref, trial *t) {
  double *in[AMBI_SLOTS];
  if (!t->differentiable) return;
  absolute_inputs(t, AMBI_BIT(AMBI_EMBEDDING_TOKENS), in);
  add_answer(ref, t, &t->op, AMBI_BACKWARD, in);
  free_all(in);
}

/* ---- rope: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin ---- */
/* cos and sin are at most 1, so y1 and y2 have terms of |x1| + |x2|. Angles are products in double by definition, the
 * reference's and a kernel's alike: however large, they add nothing. Channels that do not rotate are copied. */
static void rope_pairs(const trial *t, const double *in, double *mag) {
  const ambi_tensor *x = &t->op.t[AMBI_ROPE_X];
  int64_t channels = x->shape[x->ndim - 1], dims = t->op.u.rope.dims ? t->op.u.rope.dims : channels;
  int64_t next = t->op.u.rope.interleaved ? 1 : dims / 2; /* from x1 to x2 */
  for (int64_t i = 0; i < numel(t, AMBI_ROPE_X); i++) {
    int64_t k = i % channels, second = next == 1 ? k % 2 : k >= next;
    if (k < dims) mag[i] = fabs(in[i]) + fabs(in[second ? i - next : i + next]);
  }
}

static void rope_magnitudes(const target *ref, trial *t) {
  (void)ref;
  rope_pairs(t, t->in[AMBI_ROPE_X], t->mag[AMBI_ROPE_Y]);
  if (t->differentiable) rope_pairs(t, t->in[AMBI_GRAD(AMBI_ROPE_Y)], t->mag[AMBI_GRAD(AMBI_ROPE_X)]);
}

static void (*const magnitudes[AMBI_KINDS])(const target *, trial *) = {
    [AMBI_UNARY] = unary_magnitudes,
    [AMBI_GATED] = gated_magnitudes,
    [AMBI_ADD] = sum_of_products,
    [AMBI_CAST] = exact,
    [AMBI_COPY] = exact,
    [AMBI_FILL] = exact,
    [AMBI_RMSNORM] = norm_magnitudes,
    [AMBI_LAYERNORM] = norm_magnitudes,
    [AMBI_LINEAR] = sum_of_products,
    [AMBI_CONV1D] = conv1d_magnitudes,
    [AMBI_ADAMW] = adamw_magnitudes,
    [AMBI_SELECTIVE_SCAN] = scan_magnitudes,
    [AMBI_GRAD_NORM] = sum_of_products,
    [AMBI_SOFTMAX] = softmax_magnitudes,
    [AMBI_CROSS_ENTROPY] = cross_entropy_magnitudes,
    [AMBI_LINEAR_CROSS_ENTROPY] = linear_cross_entropy_magnitudes,
    [AMBI_EMBEDDING] = embedding_magnitudes,
    [AMBI_ROPE] = rope_magnitudes,
    [AMBI_ATTENTION] = attention_magnitudes,
    [AMBI_SSD] = ssd_magnitudes,
};

void trial_magnitudes(const target *ref, trial *t) {
  for (int s = 0; s < AMBI_SLOTS; s++)
    if (t->ref[s]) t->mag[s] = values_new(numel(t, s));
  (magnitudes[t->op.kind] ? magnitudes[t->op.kind] : sum_of_products)(ref, t);
  t->approximate = t->op.kind == AMBI_UNARY || t->op.kind == AMBI_GATED;
  t->growth = trial_growth(t);
  t->own = ldexp(6 * sqrt(most_terms(t)), -53);
  if (t->op.kind == AMBI_LINEAR && t->op.u.linear.tf32)
    t->own += ldexp(2, -10); /* both factors may be cut to 10 bits */
}
