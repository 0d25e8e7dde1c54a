/* conv1d, the reference: the formulas of op.c, one element at a time. */
#include "backends/ref/ref.h"

#include <math.h>

#include "ops/conv1d/op.h"

enum { X = AMBI_CONV1D_X, W = AMBI_CONV1D_W, B = AMBI_CONV1D_B, X0 = AMBI_CONV1D_X0 };
enum { Y = AMBI_CONV1D_Y, X_LAST = AMBI_CONV1D_X_LAST };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DX0 = AMBI_GRAD(X0), DY = AMBI_GRAD(Y) };

static double z_at(const ref_call *c, int64_t b, int64_t d, int64_t j) {
  int64_t before = conv1d(c->p)->taps - 1;
  if (j >= before) return ref_get(c, X, AT(b, d, j - before));
  return has_slot(c->p, X0) ? ref_get(c, X0, AT(b, d, j)) : 0;
}

static double p_at(const ref_call *c, int64_t b, int64_t d, int64_t t) {
  double p = has_slot(c->p, B) ? ref_get(c, B, AT(d)) : 0;
  for (int64_t k = 0; k < conv1d(c->p)->taps; k++) p += ref_get(c, W, AT(d, k)) * z_at(c, b, d, t + k);
  return p;
}

static double sigmoid(double v) { return v < 0 ? exp(v) / (1 + exp(v)) : 1 / (1 + exp(-v)); }

static double dp_at(const ref_call *c, int64_t b, int64_t d, int64_t t) {
  if (t < 0 || t >= conv1d(c->p)->length) return 0;
  double dy = ref_get(c, DY, AT(b, d, t));
  if (!c->p->op.u.conv1d.silu) return dy;
  double p = p_at(c, b, d, t), s = sigmoid(p);
  return s == 0 || s == 1 ? dy * s : dy * s * (1 + p * (1 - s));
}

/* One line of time: y, then x_last, which may lie over x0 */
static void forward_line(const ref_call *c, int64_t b, int64_t d) {
  const conv1d_recipe *r = conv1d(c->p);
  for (int64_t t = 0; t < r->length; t++) {
    double p = p_at(c, b, d, t);
    ref_set(c, Y, AT(b, d, t), !c->p->op.u.conv1d.silu ? p : p < -1e30 ? -0.0 : p * sigmoid(p));
  }
  for (int64_t i = 0; i < r->taps - 1; i++) ref_set(c, X_LAST, AT(b, d, i), z_at(c, b, d, r->length + i));
}

static void forward(const ref_call *c) {
  const conv1d_recipe *r = conv1d(c->p);
  for (int64_t b = 0; b < r->batch; b++)
    for (int64_t d = 0; d < r->channels; d++) forward_line(c, b, d);
}

/* dx0 ++ dx of one line */
static void dz_line(const ref_call *c, int64_t b, int64_t d) {
  const conv1d_recipe *r = conv1d(c->p);
  for (int64_t j = 0; j < r->length + r->taps - 1; j++) {
    double dz = 0;
    for (int64_t k = 0; k < r->taps; k++) dz += ref_get(c, W, AT(d, k)) * dp_at(c, b, d, j - k);
    if (j >= r->length && reads_slot(c->p, AMBI_GRAD(X_LAST)))
      dz += ref_get(c, AMBI_GRAD(X_LAST), AT(b, d, j - r->length));
    if (j < r->taps - 1)
      ref_set(c, DX0, AT(b, d, j), dz);
    else
      ref_set(c, DX, AT(b, d, j - r->taps + 1), dz);
  }
}

/* dw[k], or db where k is the number of taps */
static double sum_of(const ref_call *c, int64_t d, int64_t k) {
  const conv1d_recipe *r = conv1d(c->p);
  ref_sum sum = {0, 0};
  for (int64_t b = 0; b < r->batch; b++)
    for (int64_t t = 0; t < r->length; t++) ref_add(&sum, dp_at(c, b, d, t) * (k < r->taps ? z_at(c, b, d, t + k) : 1));
  return sum.total;
}

static void backward(const ref_call *c) {
  const conv1d_recipe *r = conv1d(c->p);
  bool wants_dz = writes_slot(c->p, DX) || writes_slot(c->p, DX0);
  for (int64_t d = 0; d < r->channels; d++) {
    for (int64_t k = 0; writes_slot(c->p, DW) && k < r->taps; k++) ref_set(c, DW, AT(d, k), sum_of(c, d, k));
    if (writes_slot(c->p, DB)) ref_set(c, DB, AT(d), sum_of(c, d, r->taps));
    for (int64_t b = 0; wants_dz && b < r->batch; b++) dz_line(c, b, d);
  }
}

const ref_kernel conv1d_ref = {.forward = forward, .backward = backward};
