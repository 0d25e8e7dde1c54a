/* rmsnorm, the reference: the formulas of op.c, one element at a time. */
#include <math.h>

#include "backends/convert.h"
#include "backends/ref/rows.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
enum { Y = AMBI_RMSNORM_Y, SUM = AMBI_RMSNORM_SUM, RSTD = AMBI_RMSNORM_RSTD };

static double s_at(const ref_call *c, int64_t row, int64_t col) { return ref_sum_at(c, RESIDUAL, SUM, row, col); }

static double r_of(const ref_call *c, int64_t row) {
  int64_t cols = rows_of(c->p)->cols;
  if (reads_slot(c->p, RSTD)) return ref_get(c, RSTD, at(c, row, 0));
  double squares = 0;
  for (int64_t i = 0; i < cols; i++) squares += s_at(c, row, i) * s_at(c, row, i);
  return 1 / sqrt(squares / (double)cols + c->p->op.u.rmsnorm.eps);
}

/* w + offset, or 1 */
static double weight(const ref_call *c, int64_t col) {
  return has_slot(c->p, W) ? ref_get(c, W, AT(col)) + c->p->op.u.rmsnorm.offset : 1;
}

static double cast(const ref_call *c, double v) {
  ambi_dtype t = c->p->t[X].dtype;
  if (!c->p->op.u.rmsnorm.cast || t == AMBI_F64) return v;
  float f = f64_to_odd_f32(v);
  if (t == AMBI_F16) return (double)f16_to_f32(f32_to_f16(f));
  if (t == AMBI_BF16) return (double)bf16_to_f32(f32_to_bf16(f));
  return (double)(float)v;
}

static void forward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  for (int64_t row = 0; n->cols && row < n->rows.count; row++) {
    double r = r_of(c, row);
    ref_set(c, RSTD, at(c, row, 0), r);
    for (int64_t i = 0; i < n->cols; i++) {
      double s = s_at(c, row, i);
      ref_set(c, SUM, at(c, row, i), s);
      ref_set(c, Y, at(c, row, i), cast(c, s * r) * weight(c, i));
    }
  }
}

/* ds of one row */
static void backward_row(const ref_call *c, int64_t row, double r) {
  int64_t cols = rows_of(c->p)->cols;
  double gs = 0;
  for (int64_t i = 0; i < cols; i++) gs += ref_get(c, AMBI_GRAD(Y), at(c, row, i)) * weight(c, i) * s_at(c, row, i);
  for (int64_t i = 0; i < cols; i++) {
    double g = ref_get(c, AMBI_GRAD(Y), at(c, row, i)) * weight(c, i);
    double ds = r * (g - s_at(c, row, i) * r * r * gs / (double)cols);
    if (reads_slot(c->p, AMBI_GRAD(SUM))) ds += ref_get(c, AMBI_GRAD(SUM), at(c, row, i));
    ref_set(c, AMBI_GRAD(X), at(c, row, i), ds);
    ref_set(c, AMBI_GRAD(RESIDUAL), at(c, row, i), ds);
  }
}

static void backward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  double *r = c->scratch; /* (rows) */
  for (int64_t row = 0; row < n->rows.count; row++) r[row] = r_of(c, row);
  for (int64_t i = 0; i < n->cols && writes_slot(c->p, AMBI_GRAD(W)); i++) {
    double dw = 0;
    for (int64_t row = 0; row < n->rows.count; row++)
      dw += ref_get(c, AMBI_GRAD(Y), at(c, row, i)) * s_at(c, row, i) * r[row];
    ref_set(c, AMBI_GRAD(W), AT(i), dw);
  }
  bool wants_ds = writes_slot(c->p, AMBI_GRAD(X)) || writes_slot(c->p, AMBI_GRAD(RESIDUAL));
  for (int64_t row = 0; wants_ds && row < n->rows.count; row++) backward_row(c, row, r[row]);
}

static uint64_t scratch(const problem *p) { return (uint64_t)rows_of(p)->rows.count; }

const ref_kernel rmsnorm_ref = {.forward = forward, .backward = backward, .scratch = scratch};
