/* scale_loss.c -- the terms of cross_entropy and linear_cross_entropy, row by row. M(v) bounds the error of v in units
 * of u. M(r) of a logit r is 0 when it is given, and sum |x w| + |b| when it is computed.
 *
 *   l = cap tanh(r / cap), slope = 1 - (l / cap)^2:   M(l) = |l| + slope M(r),  M(slope) = 1 + 2 slope M(r) / cap
 *   t = l - max;  s = sum e^t;  p = e^t / s;  lse = max + log s        (without a cap M(l) = M(r), slope = 1, exact)
 *   M(t) = |t| + M(l) + M(max)    M(s) = s S, S = 1 + sum p M(t)    M(p) = p (1 + M(t) + S + log s)
 *   M(lse) = |max| + M(max) + log s + S
 *   M(loss) = (1 - a) (M(t_y) + log s + S) + a (mean M(t) + log s + S) + z (2 |lse| M(lse) + lse^2)
 *   dl = p (1 + 2 z lse) - (1 - a) [j = y] - a / C:
 *   M(dl) = (1 + 2 z |lse|) (p + M(p)) + 2 z p M(lse) + (1 - a) [j = y] + a / C,   M(dlogits) = M(dl) (slope +
 * M(slope)) (p and log s both come from a saved lse, or from the same sum.) dx, dw and db are sums of dlogits times w,
 * x and 1. A product adds up to 512 terms in order, each time rounding by u of what it has: nothing beside M where
 * terms differ, but rows whose x is the same have the same p, and then all are rounded alike: dw may err by 512 u more.
 * Where x and w are bf16, dlogits may be rounded to bf16 in between: by 2^-8 |dlogits| = 2^16 u |dlogits|,
 * once, not as often as the growth that scale.c multiplies M by. A tiny dlogits of f32 is rounded to multiples of
 * 2^-149 in up to four steps (e^t, / s, dloss / rows, their product): by 4 2^-150 = 2^-124 u. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "trial.h"
#include "values.h"

typedef struct {
  trial *t;
  int logits, target, loss, lse, grad; /* slots; -1: the op has none   */
  int x, w, b;                         /* linear_cross_entropy's, or -1 */
  int64_t rows, C, K;
  double a, z, cap, divisor;
  double halves;            /* 2^16 / growth where dlogits may be bf16, else 0 */
  double tiny;              /* 2^-124 / growth where dlogits are computed on the way, else 0 */
  double alike;             /* 1 + (rows that are added in order) / growth, for dw */
  double *r, *mr;           /* logits and M(r) of a row            */
  double *l, *ml, *mt, *md; /* of the row; md: M(dlogits), dloss 1 */
  double max, log_sum, S, M_max;
} loss_terms;

/* ---- the row's logits ---- */
static void given_logits(loss_terms *n, int64_t row) {
  memcpy(n->r, n->t->in[n->logits] + row * n->C, (size_t)n->C * sizeof(double));
  memset(n->mr, 0, (size_t)n->C * sizeof(double));
}

static void computed_logits(loss_terms *n, int64_t row) {
  const double *x = n->t->in[n->x] + row * n->K, *w = n->t->in[n->w], *b = n->t->in[n->b];
  for (int64_t j = 0; j < n->C; j++) {
    n->r[j] = b ? b[j] : 0;
    n->mr[j] = fabs(n->r[j]);
    for (int64_t k = 0; k < n->K; k++) {
      n->r[j] += x[k] * w[j * n->K + k];
      n->mr[j] += fabs(x[k] * w[j * n->K + k]);
    }
  }
}

static double slope_at(const loss_terms *n, int64_t j) {
  return n->cap > 0 ? 1 - n->l[j] / n->cap * (n->l[j] / n->cap) : 1;
}

/* ---- forward ---- */
static void row_terms(loss_terms *n) {
  double sum = 0;
  n->max = -INFINITY, n->M_max = 0, n->S = 1;
  for (int64_t j = 0; j < n->C; j++) {
    n->l[j] = n->cap > 0 ? n->cap * tanh(n->r[j] / n->cap) : n->r[j];
    n->ml[j] = n->cap > 0 ? fabs(n->l[j]) + slope_at(n, j) * n->mr[j] : n->mr[j];
    if (n->l[j] > n->max) n->max = n->l[j], n->M_max = n->ml[j];
  }
  for (int64_t j = 0; j < n->C; j++) sum += exp(n->l[j] - n->max);
  n->log_sum = log(sum);
  for (int64_t j = 0; j < n->C; j++) {
    n->mt[j] = n->max - n->l[j] + n->ml[j] + n->M_max;
    n->S += trial_part(exp(n->l[j] - n->max) / sum, n->mt[j]);
  }
}

static double error_of_lse(const loss_terms *n) { return fabs(n->max) + n->M_max + n->log_sum + n->S; }

static double error_of_loss(const loss_terms *n, int64_t y) {
  double lse = n->max + n->log_sum, mean = 0;
  for (int64_t j = 0; j < n->C; j++) mean += n->mt[j] / (double)n->C;
  return (1 - n->a) * n->mt[y] + trial_part(n->a, mean) + n->log_sum + n->S +
         n->z * (2 * fabs(lse) * error_of_lse(n) + lse * lse);
}

/* M(dlogits) for dloss = 1 */
static void gradient_terms(loss_terms *n, int64_t y) {
  double lse = n->max + n->log_sum, z = 1 + 2 * n->z * fabs(lse);
  for (int64_t j = 0; j < n->C; j++) {
    double p = exp(n->l[j] - lse), mp = trial_part(p, 1 + n->mt[j] + n->S + n->log_sum), slope = slope_at(n, j);
    double dl = z * (p + mp) + 2 * n->z * p * error_of_lse(n) + (j == y ? 1 - n->a : 0) + n->a / (double)n->C;
    n->md[j] = n->cap > 0 ? dl * (slope + 1 + 2 * slope * n->mr[j] / n->cap) : dl;
    n->md[j] += n->halves * slope * fabs(p * (1 + 2 * n->z * lse) - (j == y ? 1 - n->a : 0) - n->a / (double)n->C);
  }
}

/* ---- where they go ---- */
static void raise(const loss_terms *n, int slot, int64_t i, double m) {
  if (slot >= 0 && n->t->mag[slot]) n->t->mag[slot][i] += m;
}

static void spread_gradient(const loss_terms *n, int64_t row, double g) {
  for (int64_t j = 0; j < n->C; j++) {
    const double m = g * n->md[j] + n->tiny;
    if (n->x < 0) raise(n, AMBI_GRAD(n->logits), row * n->C + j, m);
    if (n->x < 0) continue;
    raise(n, AMBI_GRAD(n->b), j, m);
    for (int64_t k = 0; k < n->K; k++) {
      raise(n, AMBI_GRAD(n->x), row * n->K + k, m * fabs(n->t->in[n->w][j * n->K + k]));
      raise(n, AMBI_GRAD(n->w), j * n->K + k, n->alike * m * fabs(n->t->in[n->x][row * n->K + k]));
    }
  }
}

static int counts(const loss_terms *n, int64_t row) {
  double y = n->t->in[n->target][row], ignored = n->t->op.u.cross_entropy.ignore_index;
  return y >= 0 && (ignored == 0 || y != ignored);
}

static void add_row(loss_terms *n, int64_t row) {
  int each = n->t->op.u.cross_entropy.reduction == AMBI_EACH;
  int64_t y = (int64_t)n->t->in[n->target][row], at = each ? row : 0;
  if (n->x < 0)
    given_logits(n, row);
  else
    computed_logits(n, row);
  row_terms(n);
  raise(n, n->lse, row, error_of_lse(n));
  raise(n, n->loss, at, error_of_loss(n, y) / n->divisor);
  gradient_terms(n, y);
  for (int64_t j = 0; j < n->C; j++) raise(n, n->grad, row * n->C + j, n->md[j] / n->divisor);
  if (n->t->differentiable) spread_gradient(n, row, fabs(n->t->in[AMBI_GRAD(n->loss)][at]) / n->divisor);
}

static void add_rows(loss_terms *n) {
  int64_t count = 0;
  for (int64_t row = 0; row < n->rows; row++) count += counts(n, row);
  n->divisor = n->t->op.u.cross_entropy.reduction == AMBI_MEAN && count ? (double)count : 1;
  double *room = values_new(6 * n->C);
  n->r = room, n->mr = room + n->C, n->l = room + 2 * n->C, n->ml = room + 3 * n->C;
  n->mt = room + 4 * n->C, n->md = room + 5 * n->C;
  for (int64_t row = 0; row < n->rows; row++)
    if (counts(n, row)) add_row(n, row);
  free(room);
}

/* The attributes of the two ops lie alike. */
static loss_terms terms_of(trial *t) {
  return (loss_terms){.t = t,
                      .x = -1,
                      .grad = -1,
                      .a = t->op.u.cross_entropy.label_smoothing,
                      .z = t->op.u.cross_entropy.z_loss,
                      .cap = t->op.u.cross_entropy.softcap};
}

void cross_entropy_magnitudes(const target *ref, trial *t) {
  (void)ref;
  const ambi_tensor *x = &t->op.t[AMBI_CE_LOGITS];
  loss_terms n = terms_of(t);
  n.logits = AMBI_CE_LOGITS, n.target = AMBI_CE_TARGET, n.loss = AMBI_CE_LOSS, n.lse = AMBI_CE_LSE;
  n.grad = AMBI_CE_GRAD;
  n.C = x->shape[x->ndim - 1];
  n.rows = ambi_numel(&t->op.t[n.target]);
  if (n.C > 0) add_rows(&n);
}

void linear_cross_entropy_magnitudes(const target *ref, trial *t) {
  (void)ref;
  loss_terms n = terms_of(t);
  n.x = AMBI_LINEAR_CE_X, n.w = AMBI_LINEAR_CE_W, n.b = AMBI_LINEAR_CE_B;
  n.target = AMBI_LINEAR_CE_TARGET, n.loss = AMBI_LINEAR_CE_LOSS, n.lse = AMBI_LINEAR_CE_LSE;
  n.C = t->op.t[n.w].shape[0];
  n.K = t->op.t[n.w].shape[1];
  n.rows = ambi_numel(&t->op.t[n.target]);
  const double growth = trial_growth(t);
  if (t->op.t[n.x].dtype == AMBI_BF16 && t->op.t[n.w].dtype == AMBI_BF16) n.halves = ldexp(1, 16) / growth;
  n.tiny = ldexp(1, -124) / growth;
  n.alike = 1 + fmin((double)n.rows, 512) / growth;
  if (n.C > 0) add_rows(&n);
}
