/* scale_softmax.c -- the terms of softmax, row by row. M(v) bounds the error of v in units of u.
 *
 *   l = scale x;  t = l - max;  s = sum e^t;  p = e^t / s
 *   M(l) = |l| (0 when scale is 1)    M(t) = |t| + M(l) + M(max)    M(s) = s S, S = 1 + sum p M(t)
 *   M(p) = p (1 + M(t) + S)           M(log s) = log s + S
 *   y = p, or t - log s.   dx = scale p (dy - D), D = sum dy p:   scale (M(p) (|dy| + sum |dy p|) + p (|dy| + M(D)));
 *   log: dx = scale (dy - p D), D = sum dy:   scale (|dy| + (M(p) + p) sum |dy|). */
#include <math.h>
#include <stdlib.h>

#include "trial.h"
#include "values.h"

typedef struct {
  trial *t;
  int64_t cols;
  double scale, log_sum, S;
  double *l, *p, *mt; /* of the row */
} softmax_row;

static double error_of_l(const softmax_row *r, double l) { return r->scale == 1 ? 0 : fabs(l); }
static double error_of_p(const softmax_row *r, int64_t k) { return trial_part(r->p[k], 1 + r->mt[k] + r->S); }

static void forward_row(softmax_row *r, int64_t at) {
  double max = -INFINITY, sum = 0;
  for (int64_t k = 0; k < r->cols; k++) max = fmax(max, r->l[k] = r->scale * r->t->in[AMBI_SOFTMAX_X][at + k]);
  for (int64_t k = 0; k < r->cols; k++) sum += r->p[k] = exp(r->l[k] - max);
  r->log_sum = log(sum);
  r->S = 1;
  for (int64_t k = 0; k < r->cols; k++) {
    r->p[k] /= sum;
    r->mt[k] = fabs(r->l[k] - max) + error_of_l(r, r->l[k]) + error_of_l(r, max);
    r->S += trial_part(r->p[k], r->mt[k]);
  }
  for (int64_t k = 0; k < r->cols; k++)
    r->t->mag[AMBI_SOFTMAX_Y][at + k] = r->t->op.u.softmax.log ? r->mt[k] + r->log_sum + r->S : error_of_p(r, k);
}

static void backward_row(const softmax_row *r, int64_t at) {
  const double *dy = r->t->in[AMBI_GRAD(AMBI_SOFTMAX_Y)] + at;
  double *mag = r->t->mag[AMBI_GRAD(AMBI_SOFTMAX_X)] + at, all = 0, size = 0, error = 0;
  for (int64_t k = 0; k < r->cols; k++) {
    all += fabs(dy[k]);
    size += fabs(dy[k]) * r->p[k];
    error += fabs(dy[k]) * error_of_p(r, k);
  }
  for (int64_t k = 0; k < r->cols; k++) {
    double p = r->p[k], mp = error_of_p(r, k), d = fabs(dy[k]);
    mag[k] = fabs(r->scale) * (r->t->op.u.softmax.log ? d + (mp + p) * all : mp * (d + size) + p * (d + error));
  }
}

void softmax_magnitudes(const target *ref, trial *t) {
  (void)ref;
  const ambi_tensor *x = &t->op.t[AMBI_SOFTMAX_X];
  double scale = t->op.u.softmax.scale != 0 ? t->op.u.softmax.scale : 1;
  if (ambi_numel(x) == 0) return;
  softmax_row r = {.t = t, .cols = x->shape[x->ndim - 1], .scale = scale};
  r.l = values_new(r.cols), r.p = values_new(r.cols), r.mt = values_new(r.cols);
  for (int64_t at = 0; at < ambi_numel(x); at += r.cols) {
    forward_row(&r, at);
    if (t->differentiable) backward_row(&r, at);
  }
  free(r.l), free(r.p), free(r.mt);
}
