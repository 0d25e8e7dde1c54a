/* layernorm -- centre each row and divide it by its standard deviation.
 *
 *   s = x + residual             (s = x without a residual)
 *   m = mean(s);   r = 1 / sqrt(mean((s - m)^2) + eps)
 *   h = (s - m) r;   y = h w + b (w = 1 and b = 0 where absent)
 *
 * With g = dy w:
 *   ds = r (g - mean(g) - h mean(g h)) + dsum;   dx = dresidual = ds
 *   dw = sum over rows of dy h;   db = sum over rows of dy                                                         */
#include "ops/rows.h"

enum { X = AMBI_LAYERNORM_X, W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, RESIDUAL = AMBI_LAYERNORM_RESIDUAL };
enum { Y = AMBI_LAYERNORM_Y, SUM = AMBI_LAYERNORM_SUM, MEAN = AMBI_LAYERNORM_MEAN, RSTD = AMBI_LAYERNORM_RSTD };

enum { SAVED = AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_SAVED };

static const ambi_slot_info slots[] = {
    {"x", "(.., C)", "input", 0},
    {"w", "(C)", "weight; absent: 1", AMBI_SLOT_OPTIONAL},
    {"b", "(C)", "bias; absent: 0", AMBI_SLOT_OPTIONAL},
    {"residual", "(.., C)", "added to x before the norm", AMBI_SLOT_OPTIONAL},
    {"y", "(.., C)", "output", AMBI_SLOT_OUTPUT},
    {"sum", "(.., C)", "x + residual", SAVED},
    {"mean", "(..)", "m of each row", SAVED | AMBI_SLOT_NO_GRAD},
    {"rstd", "(..)", "r of each row", SAVED | AMBI_SLOT_NO_GRAD},
};

static const ambi_attr_info attributes[] = {
    {"eps", "added to the variance", AMBI_ATTR_F64, offsetof(ambi_op, u.layernorm.eps), 1e-5, 0, 1, NULL},
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
  ambi_dtype statistic = x.dtype == AMBI_F64 ? AMBI_F64 : AMBI_F32;
  TRY(expect(p, W, x.dtype, 1, &x.shape[x.ndim - 1]));
  TRY(expect(p, B, x.dtype, 1, &x.shape[x.ndim - 1]));
  TRY(expect_like(p, RESIDUAL, X));
  TRY(expect_like(p, Y, X));
  TRY(expect_like(p, SUM, X));
  TRY(expect(p, MEAN, statistic, x.ndim - 1, x.shape));
  TRY(expect(p, RSTD, statistic, x.ndim - 1, x.shape));
  if (has_slot(p, SUM) && !has_slot(p, RESIDUAL))
    return fail_slot(AMBI_INVALID, p, SUM, "is x + residual, but there is no residual");
  return AMBI_OK;
}

/* Backward reads s, its statistics and w only where a wanted gradient needs them. */
static uint32_t not_needed(const problem *p) {
  bool wants_ds = writes_slot(p, AMBI_GRAD(X)) || writes_slot(p, AMBI_GRAD(RESIDUAL));
  uint32_t unread = 0, s = AMBI_BIT(X) | AMBI_BIT(RESIDUAL);
  if (reads_slot(p, SUM)) unread |= s; /* s is at hand */
  if (!wants_ds) unread |= AMBI_BIT(W) | AMBI_BIT(AMBI_GRAD(SUM));
  if (!wants_ds && !writes_slot(p, AMBI_GRAD(W))) unread |= s | AMBI_BIT(SUM) | AMBI_BIT(MEAN) | AMBI_BIT(RSTD);
  return unread;
}

static ambi_status recipe(problem *p) {
  TRY(rows_have_elements(p, X, MEAN));
  TRY(rows_have_elements(p, X, RSTD));
  if (is_backward(p)) p->reads &= ~not_needed(p);
  rows_make(p, X, AMBI_BIT(W) | AMBI_BIT(B));
  p->flops = (uint64_t)ambi_numel(&p->t[X]) * (is_backward(p) ? 14 : 7);
  return AMBI_OK;
}

const op_def layernorm_op = {
    .info = {.name = "layernorm",
             .formula =
                 "s = x + residual;  m = mean(s);  r = 1/sqrt(mean((s - m)^2) + eps);  h = (s - m) r;  y = h w + b",
             .gradient = "g = dy w;  ds = r (g - mean(g) - h mean(g h)) + dsum;  dx = dresidual = ds;  "
                         "dw = sum over rows of dy h;  db = sum over rows of dy",
             .doc = "Centres each row and divides it by its standard deviation.",
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
