/* rows.h -- what references of the normalisations share. */
#ifndef AMBI_REF_ROWS_H
#define AMBI_REF_ROWS_H
#include "backends/ref/ref.h"
#include "ops/rows.h"

/* Element `col` of row `row`; x is slot 0. */
static inline at_index at(const ref_call *c, int64_t row, int64_t col) {
  int last = c->p->t[0].ndim - 1;
  at_index i = ref_index(c, 0, last, row);
  i.i[last] = col;
  return i;
}

/* s = x + residual, or the saved sum */
static inline double ref_sum_at(const ref_call *c, int residual, int sum, int64_t row, int64_t col) {
  if (reads_slot(c->p, sum)) return ref_get(c, sum, at(c, row, col));
  double x = ref_get(c, 0, at(c, row, col));
  return has_slot(c->p, residual) ? x + ref_get(c, residual, at(c, row, col)) : x;
}

#endif
