/* rmsnorm -- divide each row by its root mean square.
 *
 *   s = x + residual             (s = x without a residual)
 *   r = 1 / sqrt(mean(s^2) + eps)
 *   y = s r (w + offset)         (y = s r without a weight)
 *
 * With g = dy (w + offset):
 *   ds = r (g - s r^2 mean(g s)) + dsum;   dx = dresidual = ds;   dw = sum over rows of dy s r
 *
 * With cast = 1, s r is rounded to the dtype of x before the weight multiplies it, as LLaMA does; backward treats that
 * rounding as the identity. */
#include <float.h>

#include "ops/rows.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
enum { Y = AMBI_RMSNORM_Y, SUM = AMBI_RMSNORM_SUM, RSTD = AMBI_RMSNORM_RSTD };

static const ambi_slot_info slots[] = {
    {"x", "(.., C)", "input", 0},
    {"w", "(C)", "weight; absent: y = s r, offset is not used", AMBI_SLOT_OPTIONAL},
    {"residual", "(.., C)", "added to x before the norm", AMBI_SLOT_OPTIONAL},
    {"y", "(.., C)", "output", AMBI_SLOT_OUTPUT},
    {"sum", "(.., C)", "x + residual", AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_SAVED},
    {"rstd", "(..)", "r of each row", AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_SAVED | AMBI_SLOT_NO_GRAD},
};

static const ambi_attr_info attributes[] = {
    {"eps", "added to the mean square", AMBI_ATTR_F64, offsetof(ambi_op, u.rmsnorm.eps), 1e-6, 0, 1, NULL},
    {"offset", "added to the weight (Gemma: 1)", AMBI_ATTR_F64, offsetof(ambi_op, u.rmsnorm.offset), 0, -DBL_MAX,
     DBL_MAX, NULL},
    {"cast", "round s r to the dtype of x before the weight", AMBI_ATTR_BOOL, offsetof(ambi_op, u.rmsnorm.cast), 0, 0,
     1, NULL},
};

static const int8_t in_place[][2] = {{Y, X},
                                     {Y, RESIDUAL},
                                     {SUM, RESIDUAL},
                                     {SUM, X},
                                     {AMBI_GRAD(X), AMBI_GRAD(Y)},
                                     {AMBI_GRAD(RESIDUAL), AMBI_GRAD(Y)},
                                     {AMBI_GRAD(X), AMBI_GRAD(SUM)},
                                     {AMBI_GRAD(RESIDUAL), AMBI_GRAD(SUM)},
                                     {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 1, AMBI_MAX_DIMS));
  const ambi_tensor x = p->t[X];
  TRY(expect(p, W, x.dtype, 1, &x.shape[x.ndim - 1]));
  TRY(expect_like(p, RESIDUAL, X));
  TRY(expect_like(p, Y, X));
  TRY(expect_like(p, SUM, X));
  TRY(expect(p, RSTD, x.dtype == AMBI_F64 ? AMBI_F64 : AMBI_F32, x.ndim - 1, x.shape));
  if (has_slot(p, SUM) && !has_slot(p, RESIDUAL))
    return fail_slot(AMBI_INVALID, p, SUM, "is x + residual, but there is no residual");
  return AMBI_OK;
}

static ambi_status recipe(problem *p) {
  TRY(rows_have_elements(p, X, RSTD));
  if (is_backward(p)) {
    bool wants_ds = writes_slot(p, AMBI_GRAD(X)) || writes_slot(p, AMBI_GRAD(RESIDUAL));
    if (reads_slot(p, SUM)) p->reads &= ~(AMBI_BIT(X) | AMBI_BIT(RESIDUAL)); /* s is at hand */
    if (!wants_ds) p->reads &= ~(AMBI_BIT(W) | AMBI_BIT(AMBI_GRAD(SUM)));
  }
  rows_make(p, X, AMBI_BIT(W));
  p->flops = (uint64_t)ambi_numel(&p->t[X]) * (is_backward(p) ? 10 : 4);
  return AMBI_OK;
}

const op_def rmsnorm_op = {
    .info = {.name = "rmsnorm",
             .formula = "s = x + residual;  r = 1/sqrt(mean(s^2) + eps);  y = s r (w + offset)",
             .gradient = "g = dy (w + offset);  ds = r (g - s r^2 mean(g s)) + dsum;  dx = dresidual = ds;  "
                         "dw = sum over rows of dy s r",
             .doc = "Divides each row by its root mean square.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(X) | AMBI_BIT(W) | AMBI_BIT(RESIDUAL),
    .shapes = shapes,
    .recipe = recipe,
};
