/* linear, the reference: the formulas of op.c, one element at a time. */
#include "backends/ref/rows.h"

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };

static int64_t m_of(const ref_call *c) { return rows_of(c->p)->rows.count; }
static int64_t n_of(const ref_call *c) { return c->p->t[W].shape[0]; }
static int64_t k_of(const ref_call *c) { return c->p->t[W].shape[1]; }

static void forward(const ref_call *c) {
  for (int64_t m = 0; m < m_of(c); m++)
    for (int64_t n = 0; n < n_of(c); n++) {
      double y = has_slot(c->p, B) ? ref_get(c, B, AT(n)) : 0;
      for (int64_t k = 0; k < k_of(c); k++) y += ref_get(c, X, at(c, m, k)) * ref_get(c, W, AT(n, k));
      ref_set(c, Y, at(c, m, n), y);
    }
}

static void backward(const ref_call *c) {
  for (int64_t m = 0; m < m_of(c) && writes_slot(c->p, DX); m++)
    for (int64_t k = 0; k < k_of(c); k++) {
      double dx = 0;
      for (int64_t n = 0; n < n_of(c); n++) dx += ref_get(c, DY, at(c, m, n)) * ref_get(c, W, AT(n, k));
      ref_set(c, DX, at(c, m, k), dx);
    }
  for (int64_t n = 0; n < n_of(c) && writes_slot(c->p, DW); n++)
    for (int64_t k = 0; k < k_of(c); k++) {
      double dw = 0;
      for (int64_t m = 0; m < m_of(c); m++) dw += ref_get(c, DY, at(c, m, n)) * ref_get(c, X, at(c, m, k));
      ref_set(c, DW, AT(n, k), dw);
    }
  for (int64_t n = 0; n < n_of(c) && writes_slot(c->p, DB); n++) {
    double db = 0;
    for (int64_t m = 0; m < m_of(c); m++) db += ref_get(c, DY, at(c, m, n));
    ref_set(c, DB, AT(n), db);
  }
}

const ref_kernel linear_ref = {.forward = forward, .backward = backward};
