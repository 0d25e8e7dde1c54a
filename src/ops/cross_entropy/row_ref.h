/* row_ref.h -- the row of row.h in f64, for the references of both cross entropies. */
#ifndef AMBI_CROSS_ENTROPY_ROW_REF_H
#define AMBI_CROSS_ENTROPY_ROW_REF_H
#include <math.h>

#include "backends/ref/rows.h"
#include "ops/cross_entropy/row.h"

static inline int64_t ref_target(const ref_call *c, int slot, int64_t row) {
  return ref_integer(c, slot, at(c, row, 0));
}

/* How many rows count, as a divisor: 1 when it is not a mean, or when there are none. */
static inline double ref_divisor(const ref_call *c, int slot) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows_of(c->p)->rows.count; row++) count += ce_counts(c->p, ref_target(c, slot, row));
  return ce_mean(c->p) && count ? (double)count : 1;
}

/* logits become l */
static inline void ref_softcap(const problem *p, double *l, int64_t C) {
  double cap = p->op.u.cross_entropy.softcap;
  for (int64_t j = 0; j < C && cap > 0; j++) l[j] = cap * tanh(l[j] / cap);
}

static inline double ref_lse(const double *l, int64_t C) {
  double max = -INFINITY;
  ref_sum sum = {0, 0};
  for (int64_t j = 0; j < C; j++) max = fmax(max, l[j]); /* a NaN is left to the sum */
  for (int64_t j = 0; j < C; j++) ref_add(&sum, exp(l[j] - max));
  return max + log(sum.total);
}

static inline double ref_loss(const problem *p, const double *l, int64_t C, int64_t target, double lse) {
  double a = p->op.u.cross_entropy.label_smoothing;
  ref_sum below = {0, 0};
  if (target >= C) return NAN;
  for (int64_t j = 0; j < C && a > 0; j++) ref_add(&below, lse - l[j]); /* infinite where a class is masked */
  return (1 - a) * (lse - l[target]) + a * below.total / (double)C + p->op.u.cross_entropy.z_loss * lse * lse;
}

/* l becomes g dlogits */
static inline void ref_dlogits(const problem *p, double *l, int64_t C, int64_t target, double lse, double g) {
  double a = p->op.u.cross_entropy.label_smoothing, z = p->op.u.cross_entropy.z_loss;
  double cap = p->op.u.cross_entropy.softcap;
  for (int64_t j = 0; j < C; j++) {
    double dl = exp(l[j] - lse) * (1 + 2 * z * lse) - (j == target ? 1 - a : 0) - a / (double)C;
    double slope = cap > 0 ? 1 - l[j] / cap * (l[j] / cap) : 1;
    l[j] = target < C ? g * dl * slope : NAN;
  }
}

/* The gradient that arrives on a row's own loss */
static inline double ref_dloss(const ref_call *c, int dloss, int64_t row, double divisor) {
  return ce_each(c->p) ? ref_get(c, dloss, at(c, row, 0)) : ref_get(c, dloss, AT(0)) / divisor;
}

/* A row's loss: on its own, or into the sum, which ref_put_loss writes. */
static inline void ref_take_loss(const ref_call *c, int loss, int64_t row, double value, ref_sum *sum) {
  if (ce_each(c->p)) ref_set(c, loss, at(c, row, 0), value);
  ref_add(sum, value);
}

static inline void ref_put_loss(const ref_call *c, int loss, const ref_sum *sum, double divisor) {
  if (!ce_each(c->p)) ref_set(c, loss, AT(0), sum->total / divisor);
}

#endif
