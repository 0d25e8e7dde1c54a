/* softmax -- each row becomes positive numbers that sum to 1.
 *
 *   l = scale x;   y = e^l / sum(e^l)            log: y = l - log(sum(e^l))
 *
 *   dx = scale y (dy - sum(dy y))                log: dx = scale (dy - e^y sum(dy))
 *
 * All kernels subtract the row's largest l first, so that nothing overflows. Backward reads y and not x when y is
 * described; else it computes y again from x. */
#include <float.h>

#include "ops/rows.h"

enum { X = AMBI_SOFTMAX_X, Y = AMBI_SOFTMAX_Y };

static const ambi_slot_info slots[] = {
    {"x", "(.., C)", "input", 0},
    {"y", "(.., C)", "output; backward reads it instead of x when it is described", AMBI_SLOT_OUTPUT | AMBI_SLOT_SAVED},
};

static const ambi_attr_info attributes[] = {
    {"scale", "multiplies x", AMBI_ATTR_F64, offsetof(ambi_op, u.softmax.scale), 1, -DBL_MAX, DBL_MAX, NULL},
    {"log", "y is the logarithm", AMBI_ATTR_BOOL, offsetof(ambi_op, u.softmax.log), 0, 0, 1, NULL},
};

static const int8_t in_place[][2] = {
    {Y, X}, {AMBI_GRAD(X), AMBI_GRAD(Y)}, {AMBI_GRAD(X), X}, {AMBI_GRAD(X), Y}, {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 1, AMBI_MAX_DIMS));
  return expect_like(p, Y, X);
}

static ambi_status recipe(problem *p) {
  TRY(expect_number(p, "scale", p->op.u.softmax.scale));
  if (is_backward(p) && reads_slot(p, Y)) p->reads &= ~AMBI_BIT(X);
  rows_make(p, X, 0);
  p->flops = (uint64_t)ambi_numel(&p->t[X]) * (is_backward(p) && reads_slot(p, Y) ? 5 : 4); /* e^l counted as one */
  return AMBI_OK;
}

const op_def softmax_op = {
    .info = {.name = "softmax",
             .formula = "l = scale x;  y = e^l / sum(e^l);  log: y = l - log(sum(e^l))",
             .gradient = "dx = scale y (dy - sum(dy y));  log: dx = scale (dy - e^y sum(dy))",
             .doc = "Along the last axis: positive numbers that sum to 1, or their logarithms.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(X),
    .shapes = shapes,
    .recipe = recipe,
};
