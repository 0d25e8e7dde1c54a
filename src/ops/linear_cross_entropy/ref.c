/* linear_cross_entropy, the reference: the formulas of op.c, one row of logits at a time. */
#include "ops/cross_entropy/row_ref.h"

enum { X = AMBI_LINEAR_CE_X, W = AMBI_LINEAR_CE_W, B = AMBI_LINEAR_CE_B, TARGET = AMBI_LINEAR_CE_TARGET };
enum { LOSS = AMBI_LINEAR_CE_LOSS, LSE = AMBI_LINEAR_CE_LSE };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DLOSS = AMBI_GRAD(LOSS) };

static int64_t rows_in(const ref_call *c) { return rows_of(c->p)->rows.count; }
static int64_t C_of(const ref_call *c) { return c->p->t[W].shape[0]; }
static int64_t K_of(const ref_call *c) { return c->p->t[W].shape[1]; }
static bool counts(const ref_call *c, int64_t row) { return ce_counts(c->p, ref_target(c, TARGET, row)); }

static void l_row(const ref_call *c, int64_t row, double *l) {
  for (int64_t j = 0; j < C_of(c); j++) {
    l[j] = has_slot(c->p, B) ? ref_get(c, B, AT(j)) : 0;
    for (int64_t k = 0; k < K_of(c); k++) l[j] += ref_get(c, X, at(c, row, k)) * ref_get(c, W, AT(j, k));
  }
  ref_softcap(c->p, l, C_of(c));
}

static void forward(const ref_call *c) {
  double divisor = ref_divisor(c, TARGET), *l = c->scratch;
  ref_sum sum = {0, 0};
  for (int64_t row = 0; row < rows_in(c); row++) {
    double lse = 0, loss = 0;
    if (counts(c, row)) {
      l_row(c, row, l);
      lse = ref_lse(l, C_of(c));
      loss = ref_loss(c->p, l, C_of(c), ref_target(c, TARGET, row), lse);
    }
    ref_set(c, LSE, at(c, row, 0), lse);
    ref_take_loss(c, LOSS, row, loss, &sum);
  }
  ref_put_loss(c, LOSS, &sum, divisor);
}

/* ---- backward: with d = dlogits (rows, C) in the scratch; rows that do not count are left out ---- */
static void dlogits(const ref_call *c, double *d) {
  double divisor = ref_divisor(c, TARGET);
  int64_t C = C_of(c);
  for (int64_t row = 0; row < rows_in(c); row++, d += C) {
    if (!counts(c, row)) continue;
    l_row(c, row, d);
    double lse = reads_slot(c->p, LSE) ? ref_get(c, LSE, at(c, row, 0)) : ref_lse(d, C);
    ref_dlogits(c->p, d, C, ref_target(c, TARGET, row), lse, ref_dloss(c, DLOSS, row, divisor));
  }
}

static void put_dw_db(const ref_call *c, const double *d) {
  int64_t C = C_of(c), K = K_of(c);
  for (int64_t j = 0; j < C; j++) {
    ref_sum db = {0, 0};
    for (int64_t row = 0; row < rows_in(c); row++)
      if (counts(c, row)) ref_add(&db, d[row * C + j]);
    ref_set(c, DB, AT(j), db.total);
    for (int64_t k = 0; k < K && writes_slot(c->p, DW); k++) {
      ref_sum dw = {0, 0};
      for (int64_t row = 0; row < rows_in(c); row++)
        if (counts(c, row)) ref_add(&dw, d[row * C + j] * ref_get(c, X, at(c, row, k)));
      ref_set(c, DW, AT(j, k), dw.total);
    }
  }
}

static void put_dx(const ref_call *c, const double *d) {
  int64_t C = C_of(c), K = K_of(c);
  for (int64_t row = 0; row < rows_in(c); row++)
    for (int64_t k = 0; k < K; k++) {
      ref_sum dx = {0, 0};
      for (int64_t j = 0; j < C && counts(c, row); j++) ref_add(&dx, d[row * C + j] * ref_get(c, W, AT(j, k)));
      ref_set(c, DX, at(c, row, k), dx.total);
    }
}

static void backward(const ref_call *c) {
  dlogits(c, c->scratch);
  put_dw_db(c, c->scratch);
  if (writes_slot(c->p, DX)) put_dx(c, c->scratch); /* last: it may overwrite x */
}

static uint64_t scratch(const problem *p) {
  return (uint64_t)p->t[W].shape[0] * (is_backward(p) ? (uint64_t)rows_of(p)->rows.count : 1);
}

const ref_kernel linear_cross_entropy_ref = {.forward = forward, .backward = backward, .scratch = scratch};
