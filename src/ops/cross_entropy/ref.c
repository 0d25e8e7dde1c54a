/* cross_entropy, the reference: the formulas of op.c, one row at a time. */
#include "ops/cross_entropy/row_ref.h"

enum { LOGITS = AMBI_CE_LOGITS, TARGET = AMBI_CE_TARGET };
enum { LOSS = AMBI_CE_LOSS, LSE = AMBI_CE_LSE, GRAD = AMBI_CE_GRAD };

/* l of a row, in the scratch */
static double *l_row(const ref_call *c, int64_t row) {
  int64_t C = rows_of(c->p)->cols;
  for (int64_t j = 0; j < C; j++) c->scratch[j] = ref_get(c, LOGITS, at(c, row, j));
  ref_softcap(c->p, c->scratch, C);
  return c->scratch;
}

static void put_row(const ref_call *c, int slot, int64_t row, const double *v) {
  for (int64_t j = 0; j < rows_of(c->p)->cols; j++) ref_set(c, slot, at(c, row, j), v ? v[j] : 0);
}

static void forward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  double divisor = ref_divisor(c, TARGET);
  ref_sum sum = {0, 0};
  for (int64_t row = 0; row < n->rows.count; row++) {
    int64_t target = ref_target(c, TARGET, row);
    double *l = NULL, lse = 0, loss = 0;
    if (ce_counts(c->p, target)) {
      l = l_row(c, row);
      lse = ref_lse(l, n->cols);
      loss = ref_loss(c->p, l, n->cols, target, lse);
      ref_dlogits(c->p, l, n->cols, target, lse, 1 / divisor);
    }
    ref_set(c, LSE, at(c, row, 0), lse);
    ref_take_loss(c, LOSS, row, loss, &sum);
    put_row(c, GRAD, row, l);
  }
  ref_put_loss(c, LOSS, &sum, divisor);
}

static void backward(const ref_call *c) {
  const rows_recipe *n = rows_of(c->p);
  double divisor = ref_divisor(c, TARGET);
  for (int64_t row = 0; row < n->rows.count; row++) {
    int64_t target = ref_target(c, TARGET, row);
    double *l = NULL;
    if (ce_counts(c->p, target)) {
      l = l_row(c, row);
      double lse = reads_slot(c->p, LSE) ? ref_get(c, LSE, at(c, row, 0)) : ref_lse(l, n->cols);
      ref_dlogits(c->p, l, n->cols, target, lse, ref_dloss(c, AMBI_GRAD(LOSS), row, divisor));
    }
    put_row(c, AMBI_GRAD(LOGITS), row, l);
  }
}

static uint64_t scratch(const problem *p) { return (uint64_t)rows_of(p)->cols; }

const ref_kernel cross_entropy_ref = {.forward = forward, .backward = backward, .scratch = scratch};
