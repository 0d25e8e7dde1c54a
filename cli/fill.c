/* fill.c -- random values that suit each op: inside the domain of its functions, away from their kinks, and of a size
 * that keeps sums well inside f16. What is not in the table is normal(0, 1). */
#include <math.h>
#include <string.h>

#include "case.h"
#include "values.h"

typedef double draw(rng *r, const ambi_op *op, double low, double high);

static double draw_uniform(rng *r, const ambi_op *op, double low, double high) {
  (void)op;
  return rng_uniform(r, low, high);
}

/* -e^t, t uniform: time constants from the very long to the very short (zero-order hold needs small |dA| too). With the
 * attribute a_log the slot holds t itself. */
static double draw_decay(rng *r, const ambi_op *op, double low, double high) {
  double t = rng_uniform(r, low, high);
  return case_attr(op, "a_log") != 0 ? t : -exp(t);
}

/* A step: positive, or what softplus makes one of, from 1/400 to 3 */
static double draw_step(rng *r, const ambi_op *op, double low, double high) {
  return case_attr(op, "softplus") != 0 ? rng_uniform(r, -6, 3) : rng_uniform(r, low, high);
}

static double draw_square(rng *r, const ambi_op *op, double low, double high) {
  double v = rng_normal(r);
  (void)op, (void)low;
  return high * v * v;
}

static double draw_integer(rng *r, const ambi_op *op, double low, double high) {
  (void)op;
  return floor(rng_uniform(r, low, high + 1));
}

/* Lengths of a sequence of keys: none, some, all, and one more or less than there can be (u8 holds no -1). */
static double draw_length(rng *r, const ambi_op *op, double low, double high) {
  const ambi_tensor *keys = &op->t[AMBI_ATTENTION_K];
  double most = keys->ndim > 2 ? (double)keys->shape[2] : 0;
  if (op->t[AMBI_ATTENTION_LENGTHS].dtype == AMBI_U8) low = 0;
  return draw_integer(r, op, low, most + high);
}

/* Steps: the first few, where bias corrections matter most, and now and then very many. */
static double draw_count(rng *r, const ambi_op *op, double low, double high) {
  double n = draw_integer(r, op, low, high);
  return n == high ? 1e6 : n;
}

/* Words, the low ones often: some occur many times, some never. */
static double draw_token(rng *r, const ambi_op *op, double low, double high) {
  double u = rng_uniform(r, low, high);
  return floor((double)op->t[AMBI_EMBEDDING_W].shape[0] * u * u * u);
}

/* Kinks of piecewise functions lie at multiples of 1/2 here (so do the a and b of the cases): finite differences need a
 * smooth neighbourhood, so nothing comes nearer to one than 1/50. */
static double off_kinks(double x) {
  double nearest = round(2 * x) / 2, distance = x - nearest;
  return fabs(distance) >= 0.02 ? x : nearest + (distance < 0 ? -0.02 : 0.02) + distance;
}

static double draw_argument(rng *r, const ambi_op *op, double low, double high) {
  double x = off_kinks(2.5 * rng_normal(r));
  int f = op->kind == AMBI_UNARY ? (int)case_attr(op, "function") : AMBI_SILU;
  (void)low, (void)high;
  if (f == AMBI_LOG || f == AMBI_SQRT || f == AMBI_RSQRT) return 0.2 + fabs(x);
  return f == AMBI_RECIPROCAL ? copysign(0.4 + fabs(x), x) : x;
}

typedef struct {
  const char *op, *slot;
  draw *draw;
  double low, high;
} distribution;

static const distribution distributions[] = {
    {"unary", "x", draw_argument, 0, 0},
    {"gated", "g", draw_argument, 0, 0},
    {"selective_scan", "a", draw_decay, -7, 0.7},
    {"selective_scan", "delta", draw_step, 0.2, 0.9},
    {"selective_scan", "delta_bias", draw_uniform, -0.15, 0.15}, /* delta + bias stays positive without softplus */
    {"ssd", "a", draw_decay, -7, 0.7},
    {"ssd", "delta", draw_step, 0.2, 0.9},
    {"ssd", "delta_bias", draw_uniform, -0.15, 0.15},
    {"adamw", "m", draw_uniform, -0.1, 0.1},
    {"adamw", "v", draw_square, 0, 0.01},
    {"adamw", "g", draw_uniform, -0.3, 0.3},
    {"adamw", "lr", draw_uniform, 1e-3, 1e-1},
    {"adamw", "step", draw_count, 0, 9},
    {"adamw", "scale", draw_uniform, 0.25, 1},
    {"adamw", "skip", draw_integer, 0, 1},
    {"attention", "lengths", draw_length, -1, 1},
    {"grad_norm", "partial", draw_uniform, 0, 9},
    {"embedding", "tokens", draw_token, 0, 1},
    {"rope", "positions", draw_integer, -10, 1 << 20}, /* angles of up to a million */
    {"rope", "frequencies", draw_uniform, 0.001, 1},
};

static const distribution *find_distribution(const char *op, const char *slot) {
  for (size_t i = 0; i < sizeof distributions / sizeof *distributions; i++)
    if (!strcmp(distributions[i].op, op) && !strcmp(distributions[i].slot, slot)) return &distributions[i];
  return NULL;
}

/* Sequence numbers along the last axis: never falling, a new one about every sixth step, some of length one. Kernels
 * cut the steps at multiples of 64: there, a new one every other time. */
static void fill_sequences(const ambi_tensor *t, rng *r, double *v) {
  int64_t n = ambi_numel(t), length = t->ndim ? t->shape[t->ndim - 1] : 1;
  double id = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t step = i % length;
    int fresh = step % 64 ? rng_next(r) % 6 == 0 : step / 64 % 2 == 1;
    v[i] = id = step == 0 ? 0 : id + fresh;
  }
}

/* Targets of a loss: a class of the row's, and every fifth or so not to be counted (not the first, so that some is). */
static void fill_targets(const ambi_op *op, const ambi_tensor *t, rng *r, uint64_t seed, double *v) {
  const ambi_tensor *classes = &op->t[op->kind == AMBI_LINEAR_CROSS_ENTROPY ? AMBI_LINEAR_CE_W : AMBI_CE_LOGITS];
  int64_t n = ambi_numel(t), many = classes->shape[op->kind == AMBI_LINEAR_CROSS_ENTROPY ? 0 : classes->ndim - 1];
  double ignored = case_attr(op, "ignore_index");
  int ignores = ignored != 0 || t->dtype != AMBI_U8; /* a negative number is no u8 */
  for (int64_t i = 0; i < n; i++) {
    int counts = i == 0 || seed == CONSTANT || !ignores || rng_next(r) % 5 > 0;
    double any = many > 0 ? (double)(rng_next(r) % (uint64_t)many) : 0;
    v[i] = seed == CONSTANT ? 0 : any;
    if (i == 0 && v[i] == ignored) v[i] = many > 1 ? (double)((int64_t)(v[i] + 1) % many) : v[i];
    if (!counts) v[i] = ignored != 0 && (t->dtype == AMBI_U8 || rng_next(r) % 2) ? ignored : -100;
  }
}

void values_fill(const ambi_op *op, int slot, uint64_t seed, double *v) {
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  const char *name = info->slot[slot % AMBI_MAX_PRIMALS].name;
  const distribution *d = slot < AMBI_MAX_PRIMALS ? find_distribution(info->name, name) : NULL;
  const ambi_tensor *t = &op->t[slot % AMBI_MAX_PRIMALS];
  rng r = {seed * 1000003u + (uint64_t)slot};
  if (!strcmp(name, "seq_idx")) {
    fill_sequences(t, &r, v);
    return;
  }
  if (!strcmp(name, "target")) {
    fill_targets(op, t, &r, seed, v);
    return;
  }
  for (int64_t i = 0, n = ambi_numel(t); i < n; i++) {
    if (seed == CONSTANT)
      v[i] = i == 0 ? (d ? d->draw(&r, op, d->low, d->high) : 1.1) : v[0];
    else
      v[i] = d ? d->draw(&r, op, d->low, d->high) : rng_normal(&r);
  }
}
