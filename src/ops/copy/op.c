/* copy -- y = x, bit for bit, between any two layouts of one dtype.
 *
 *   dx = dy                                                                                                    */
#include "ops/elementwise.h"

enum { X = AMBI_COPY_X, Y = AMBI_COPY_Y };

static const ambi_slot_info slots[] = {
    {"x", "(..)", "input", AMBI_SLOT_ANY_DTYPE},
    {"y", "(..)", "the same bits", AMBI_SLOT_OUTPUT | AMBI_SLOT_ANY_DTYPE},
};

static ambi_status shapes(problem *p) {
  TRY(expect_like(p, Y, X));
  return expect_dtype(p, Y, p->t[X].dtype);
}

static ambi_status recipe(problem *p) {
  if (is_backward(p) && p->t[AMBI_GRAD(X)].dtype != p->t[AMBI_GRAD(Y)].dtype)
    return fail_slot(AMBI_INVALID, p, AMBI_GRAD(X), "expected dtype %s, that of the gradient of y; use cast to convert",
                     ambi_dtype_name(p->t[AMBI_GRAD(Y)].dtype));
  elementwise_make(p, 0);
  return AMBI_OK;
}

const op_def copy_op = {
    .info = {.name = "copy",
             .formula = "y = x",
             .gradient = "dx = dy",
             .doc = "Copies between any two layouts of one dtype, bit for bit, integers included.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .backward = 1},
    .sums_gradients = true,
    .shapes = shapes,
    .recipe = recipe,
};
