/* row.h -- what cross_entropy and linear_cross_entropy share: the attributes, which rows count, the shape of the loss.
 *
 * Their attributes have the same fields in the same places, so u.cross_entropy reads those of either.
 *
 * Of one row of C logits, with target y, smoothing a and z = z_loss:
 *   l = softcap tanh(logits / softcap)      (l = logits without softcap)
 *   lse = log(sum(e^l));   loss = (1 - a) (lse - l_y) + a (lse - mean(l)) + z lse^2
 *   p = e^(l - lse);       dl = p (1 + 2 z lse) - (1 - a) [j = y] - a / C;   dlogits = dl (1 - (l / softcap)^2)  */
#ifndef AMBI_CROSS_ENTROPY_ROW_H
#define AMBI_CROSS_ENTROPY_ROW_H
#include <float.h>

#include "ops/rows.h"

_Static_assert(offsetof(ambi_op, u.cross_entropy.reduction) == offsetof(ambi_op, u.linear_cross_entropy.reduction) &&
                   offsetof(ambi_op, u.cross_entropy.softcap) == offsetof(ambi_op, u.linear_cross_entropy.softcap),
               "the attributes of the two lie alike");

#define CE_DOC                                                                                              \
  "Rows whose target is negative or equals ignore_index do not count: their loss, lse and gradient are 0, " \
  "whatever their logits; when none counts, so is the mean. A target of C or more makes its row NaN."

static const char *const ce_reductions[] = {"mean", "sum", "each", NULL};
static const ambi_attr_info ce_attributes[] __attribute__((unused)) = {
    {"label_smoothing", "part of the target that all classes share", AMBI_ATTR_F64,
     offsetof(ambi_op, u.cross_entropy.label_smoothing), 0, 0, 1, NULL},
    {"z_loss", "weight of lse^2", AMBI_ATTR_F64, offsetof(ambi_op, u.cross_entropy.z_loss), 0, 0, DBL_MAX, NULL},
    {"softcap", "bound of |l|; 0: none", AMBI_ATTR_F64, offsetof(ambi_op, u.cross_entropy.softcap), 0, 0, DBL_MAX,
     NULL},
    {"ignore_index", "rows with this target do not count; 0 means -100, so class 0 cannot be ignored", AMBI_ATTR_I32,
     offsetof(ambi_op, u.cross_entropy.ignore_index), -100, INT32_MIN, INT32_MAX, NULL},
    {"reduction", "of the rows' losses: their mean over the rows that count, their sum, or none", AMBI_ATTR_ENUM,
     offsetof(ambi_op, u.cross_entropy.reduction), AMBI_MEAN, AMBI_MEAN, AMBI_EACH, ce_reductions},
};

static inline bool ce_counts(const problem *p, int64_t target) {
  return target >= 0 && target != p->op.u.cross_entropy.ignore_index;
}
static inline bool ce_each(const problem *p) { return p->op.u.cross_entropy.reduction == AMBI_EACH; }
static inline bool ce_mean(const problem *p) { return p->op.u.cross_entropy.reduction == AMBI_MEAN; }

/* target, loss and lse beside an x that is (.., C) */
static inline ambi_status ce_shapes(problem *p, int x, int target, int loss, int lse) {
  const ambi_tensor *t = &p->t[x];
  int64_t shape[AMBI_MAX_DIMS];
  int rows = t->ndim - 1;
  ambi_dtype sums = t->dtype == AMBI_F64 ? AMBI_F64 : AMBI_F32;
  for (int i = 0; i < rows; i++) shape[i] = t->shape[i];
  TRY(expect(p, target, AMBI_I64, rows, shape));
  TRY(ce_each(p) ? expect(p, loss, sums, rows, shape) : expect_one(p, loss, sums));
  return expect(p, lse, sums, rows, shape);
}

/* The slots that are no rows of their own. */
static inline uint32_t ce_vectors(const problem *p, int loss) { return ce_each(p) ? 0 : AMBI_BIT(loss); }

#endif
