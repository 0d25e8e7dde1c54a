/* layernorm, the reference: the formulas of op.c, one element at a time. */
#include <math.h>

#include "backends/ref/rows.h"

enum { X = AMBI_LAYERNORM_X, W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, RESIDUAL = AMBI_LAYERNORM_RESIDUAL };
enum { Y = AMBI_LAYERNORM_Y, SUM = AMBI_LAYERNORM_SUM, MEAN = AMBI_LAYERNORM_MEAN, RSTD = AMBI_LAYERNORM_RSTD };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DRESIDUAL = AMBI_GRAD(RESIDUAL), DY = AMBI_GRAD(Y) };

typedef struct {
  double m, r;
} statistics;

static double s_at(const ref_call *c, int64_t row, int64_t col) { return ref_sum_at(c, RESIDUAL, SUM, row, col); }

static statistics statistics_of(const ref_call *c, int64_t row) {
  int64_t cols = rows_of(c->p)->cols;
  statistics v = {0, 0};
  double squares = 0;
  for (int64_t i = 0; i < cols; i++) v.m += s_at(c, row, i) / (double)cols;
  if (reads_slot(c->p, MEAN)) v.m = ref_get(c, MEAN, at(c, row, 0));
  for (int64_t i = 0; i < cols; i++) squares += (s_at(c, row, i) - v.m) * (s_at(c, row, i) - v.m);
  v.r = 1 / sqrt(squares / (double)cols + c->p->op.u.layernorm.eps);
  if (reads_slot(c->p, RSTD)) v.r = ref_get(c, RSTD, at(c, row, 0));
  return v;
}

static double h_at(const ref_call *c, statistics v, int64_t row, int64_t col) {
  return (s_at(c, row, col) - v.m) * v.r;
}

static double weight(const ref_call *c, int64_t col) { return has_slot(c->p, W) ? ref_get(c, W, AT(col)) : 1; }
static double bias(const ref_call *c, int64_t col) { return has_slot(c->p, B) ? ref_get(c, B, AT(col)) : 0; }

static void forward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  for (int64_t row = 0; n->cols && row < n->rows.count; row++) {
    statistics v = statistics_of(c, row);
    ref_set(c, MEAN, at(c, row, 0), v.m);
    ref_set(c, RSTD, at(c, row, 0), v.r);
    for (int64_t i = 0; i < n->cols; i++) {
      double s = s_at(c, row, i), h = h_at(c, v, row, i);
      ref_set(c, SUM, at(c, row, i), s);
      ref_set(c, Y, at(c, row, i), h * weight(c, i) + bias(c, i));
    }
  }
}

/* ds of one row */
static void backward_row(const ref_call *c, int64_t row, statistics v) {
  int64_t cols = rows_of(c->p)->cols;
  double mean_g = 0, mean_gh = 0;
  for (int64_t i = 0; i < cols; i++) {
    double g = ref_get(c, DY, at(c, row, i)) * weight(c, i);
    mean_g += g / (double)cols;
    mean_gh += g * h_at(c, v, row, i) / (double)cols;
  }
  for (int64_t i = 0; i < cols; i++) {
    double g = ref_get(c, DY, at(c, row, i)) * weight(c, i);
    double ds = v.r * (g - mean_g - h_at(c, v, row, i) * mean_gh);
    if (reads_slot(c->p, AMBI_GRAD(SUM))) ds += ref_get(c, AMBI_GRAD(SUM), at(c, row, i));
    ref_set(c, DX, at(c, row, i), ds);
    ref_set(c, DRESIDUAL, at(c, row, i), ds);
  }
}

/* dw and db */
static void sum_columns(const ref_call *c, const statistics *v) {
  const rows_recipe *n = rows_of(c->p);
  for (int64_t i = 0; i < n->cols; i++) {
    double dw = 0, db = 0;
    for (int64_t row = 0; row < n->rows.count; row++) {
      double dy = ref_get(c, DY, at(c, row, i));
      db += dy;
      if (writes_slot(c->p, DW)) dw += dy * h_at(c, v[row], row, i);
    }
    ref_set(c, DW, AT(i), dw);
    ref_set(c, DB, AT(i), db);
  }
}

static void backward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  statistics *v = (statistics *)(void *)c->scratch; /* (rows) */
  bool wants_ds = writes_slot(c->p, DX) || writes_slot(c->p, DRESIDUAL);
  for (int64_t row = 0; (wants_ds || writes_slot(c->p, DW)) && row < n->rows.count; row++)
    v[row] = statistics_of(c, row);
  sum_columns(c, v);
  for (int64_t row = 0; wants_ds && row < n->rows.count; row++) backward_row(c, row, v[row]);
}

static uint64_t scratch(const problem *p) { return 2 * (uint64_t)rows_of(p)->rows.count; }

const ref_kernel layernorm_ref = {.forward = forward, .backward = backward, .scratch = scratch};
