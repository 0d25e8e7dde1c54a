/* softmax, the reference: the formulas of op.c, one element at a time. */
#include <math.h>

#include "backends/ref/rows.h"

enum { X = AMBI_SOFTMAX_X, Y = AMBI_SOFTMAX_Y, DX = AMBI_GRAD(X), DY = AMBI_GRAD(Y) };

static double l_at(const ref_call *c, int64_t row, int64_t col) {
  return c->p->op.u.softmax.scale * ref_get(c, X, at(c, row, col));
}

/* The row's y, computed from x */
static void compute_y(const ref_call *c, int64_t row, double *y) {
  int64_t cols = rows_of(c->p)->cols;
  double *l = y, max = -INFINITY; /* y takes the place of l */
  ref_sum sum = {0, 0};
  for (int64_t i = 0; i < cols; i++) l[i] = l_at(c, row, i);
  for (int64_t i = 0; i < cols; i++) max = fmax(max, l[i]); /* a NaN is left to the sum */
  for (int64_t i = 0; i < cols; i++) ref_add(&sum, exp(l[i] - max));
  for (int64_t i = 0; i < cols; i++)
    y[i] = c->p->op.u.softmax.log ? (l[i] - max) - log(sum.total) : exp(l[i] - max) / sum.total;
}

static void y_row(const ref_call *c, int64_t row, double *y) {
  if (!reads_slot(c->p, Y)) {
    compute_y(c, row, y);
    return;
  }
  for (int64_t i = 0; i < rows_of(c->p)->cols; i++) y[i] = ref_get(c, Y, at(c, row, i)); /* saved */
}

static void forward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  for (int64_t row = 0; row < n->rows.count; row++) {
    y_row(c, row, c->scratch);
    for (int64_t i = 0; i < n->cols; i++) ref_set(c, Y, at(c, row, i), c->scratch[i]);
  }
}

static void backward_row(const ref_call *c, int64_t row) {
  int64_t cols = rows_of(c->p)->cols;
  bool log = c->p->op.u.softmax.log != 0;
  double *y = c->scratch;
  ref_sum sum = {0, 0};
  y_row(c, row, y);
  for (int64_t i = 0; i < cols; i++) ref_add(&sum, ref_get(c, DY, at(c, row, i)) * (log ? 1 : y[i]));
  for (int64_t i = 0; i < cols; i++) {
    double dy = ref_get(c, DY, at(c, row, i));
    double dl = log ? dy - exp(y[i]) * sum.total : y[i] * (dy - sum.total);
    ref_set(c, DX, at(c, row, i), c->p->op.u.softmax.scale * dl);
  }
}

static void backward(const ref_call *c) {
  for (int64_t row = 0; row < rows_of(c->p)->rows.count; row++) backward_row(c, row);
}

static uint64_t scratch(const problem *p) { return (uint64_t)rows_of(p)->cols; }

const ref_kernel softmax_ref = {.forward = forward, .backward = backward, .scratch = scratch};
