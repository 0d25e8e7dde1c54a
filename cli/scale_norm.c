/* scale_norm.c -- the terms of rmsnorm and layernorm, row by row. M(v) bounds the error of v in units of u.
 *
 *   s = x + residual; c = s - mean (rmsnorm: c = s); r = 1 / sqrt(mean(c^2) + eps); h = c r; y = h w + b
 *   M(s) = |s|    M(c) = |s| + mean |s|    M(r) = r rho, rho = 1 + r^2 mean(|c| M(c))    M(h) = r M(c) + |h| rho
 *   M(y) = M(h) |w| + |b|
 *   dx = r (g - mean g - h mean(g h)), g = dy w:   r times rho (|g| + mean |g| + |h| mean |g h|) for the terms, and
 *   M(h) mean |g h| + |h| mean(|g| M(h)) for the errors h brings in. dw = sum dy h, db = sum dy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "trial.h"
#include "values.h"

typedef struct {
  trial *t;
  int x, w, b, residual, y, sum, mean, rstd; /* slots; -1: the op has none */
  int64_t rows, cols;
  double eps, offset;
  double *h, *mh; /* of the row: |h| and M(h) */
} norm;

static const double *values_of(const norm *n, int slot) { return slot < 0 ? NULL : n->t->in[slot]; }
static void raise_to(const norm *n, int slot, int64_t i, double m) {
  if (slot >= 0 && n->t->mag[slot]) n->t->mag[slot][i] += m;
}

static double sum_at(const norm *n, int64_t i) {
  const double *residual = values_of(n, n->residual);
  return n->t->in[n->x][i] + (residual ? residual[i] : 0);
}

static double weight_at(const norm *n, int64_t k) {
  const double *w = values_of(n, n->w);
  return w ? fabs(w[k]) + fabs(n->offset) : 1;
}

/* |h|, M(h) and the outputs of one row. Returns r, and rho. */
static double forward_row(norm *n, int64_t row, double *rho) {
  int64_t cols = n->cols, at = row * cols;
  double mean = 0, mean_abs = 0, square = 0, spread = 0;
  for (int64_t k = 0; k < cols && n->mean >= 0; k++) {
    mean += sum_at(n, at + k) / (double)cols;
    mean_abs += fabs(sum_at(n, at + k)) / (double)cols;
  }
  for (int64_t k = 0; k < cols; k++) {
    double s = sum_at(n, at + k), c = s - mean;
    square += c * c / (double)cols;
    spread += fabs(c) * (fabs(s) + mean_abs) / (double)cols;
  }
  double r = 1 / sqrt(square + n->eps);
  const double *b = values_of(n, n->b);
  *rho = 1 + r * r * spread;
  for (int64_t k = 0; k < cols; k++) {
    double s = sum_at(n, at + k);
    n->h[k] = fabs(s - mean) * r;
    n->mh[k] = r * (fabs(s) + mean_abs) + n->h[k] * *rho;
    raise_to(n, n->y, at + k, n->mh[k] * weight_at(n, k) + (b ? fabs(b[k]) : 0));
    raise_to(n, n->sum, at + k, fabs(s));
  }
  raise_to(n, n->rstd, row, r * *rho);
  raise_to(n, n->mean, row, mean_abs);
  return r;
}

static void backward_row(const norm *n, int64_t row, double r, double rho) {
  int64_t cols = n->cols, at = row * cols;
  const double *dy = n->t->in[AMBI_GRAD(n->y)];
  const double *dsum = n->sum >= 0 ? n->t->in[AMBI_GRAD(n->sum)] : NULL;
  double mean_g = 0, mean_gh = 0, mean_gmh = 0;
  for (int64_t k = 0; k < cols; k++) {
    double g = fabs(dy[at + k]) * weight_at(n, k) / (double)cols;
    mean_g += n->mean >= 0 ? g : 0;
    mean_gh += g * n->h[k];
    mean_gmh += g * n->mh[k];
  }
  for (int64_t k = 0; k < cols; k++) {
    double g = fabs(dy[at + k]) * weight_at(n, k), h = n->h[k];
    double m = r * (rho * (g + mean_g + h * mean_gh) + n->mh[k] * mean_gh + h * mean_gmh);
    if (dsum) m += fabs(dsum[at + k]);
    raise_to(n, AMBI_GRAD(n->x), at + k, m);
    if (n->residual >= 0) raise_to(n, AMBI_GRAD(n->residual), at + k, m);
    if (n->w >= 0) raise_to(n, AMBI_GRAD(n->w), k, fabs(dy[at + k]) * n->mh[k]);
    if (n->b >= 0) raise_to(n, AMBI_GRAD(n->b), k, fabs(dy[at + k]));
  }
}

/* The attribute, or its default where the op leaves it 0. */
static double attr_or_default(const trial *t, const char *name) {
  double v = case_attr(&t->op, name);
  for (int a = 0; v == 0 && a < t->info->attrs; a++)
    if (!strcmp(t->info->attr[a].name, name)) v = t->info->attr[a].def;
  return v;
}

void norm_magnitudes(const target *ref, trial *t) {
  (void)ref;
  norm n = {t,
            AMBI_RMSNORM_X,
            AMBI_RMSNORM_W,
            -1,
            AMBI_RMSNORM_RESIDUAL,
            AMBI_RMSNORM_Y,
            AMBI_RMSNORM_SUM,
            -1,
            AMBI_RMSNORM_RSTD,
            0,
            0,
            attr_or_default(t, "eps"),
            attr_or_default(t, "offset"),
            NULL,
            NULL};
  if (t->op.kind == AMBI_LAYERNORM) {
    n.w = AMBI_LAYERNORM_W, n.b = AMBI_LAYERNORM_B, n.residual = AMBI_LAYERNORM_RESIDUAL, n.y = AMBI_LAYERNORM_Y;
    n.sum = AMBI_LAYERNORM_SUM, n.mean = AMBI_LAYERNORM_MEAN, n.rstd = AMBI_LAYERNORM_RSTD;
  }
  const ambi_tensor *x = &t->op.t[n.x];
  if (ambi_numel(x) == 0) return;
  n.cols = x->shape[x->ndim - 1];
  n.rows = ambi_numel(x) / n.cols;
  n.h = values_new(n.cols);
  n.mh = values_new(n.cols);
  for (int64_t row = 0; row < n.rows; row++) {
    double rho, r = forward_row(&n, row, &rho);
    if (t->differentiable) backward_row(&n, row, r, rho);
  }
  free(n.h);
  free(n.mh);
}
