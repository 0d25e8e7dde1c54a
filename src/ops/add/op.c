/* add -- y = alpha a + beta b.
 *
 *   da = alpha dy;   db = beta dy
 *
 * With b broadcast (stride 0) its gradient, described the same way, is the sum over the repeated axes.         */
#include <float.h>

#include "ops/elementwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

static const ambi_slot_info slots[] = {
    {"a", "(..)", "first term", 0},
    {"b", "(..)", "second term", 0},
    {"y", "(..)", "output", AMBI_SLOT_OUTPUT},
};

static const ambi_attr_info attributes[] = {
    {"alpha", "factor of a", AMBI_ATTR_F64, offsetof(ambi_op, u.add.alpha), 1, -DBL_MAX, DBL_MAX, NULL},
    {"beta", "factor of b", AMBI_ATTR_F64, offsetof(ambi_op, u.add.beta), 1, -DBL_MAX, DBL_MAX, NULL},
};

static const int8_t in_place[][2] = {
    {Y, A}, {Y, B}, {AMBI_GRAD(A), AMBI_GRAD(Y)}, {AMBI_GRAD(B), AMBI_GRAD(Y)}, {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_like(p, B, A));
  return expect_like(p, Y, A);
}

static ambi_status recipe(problem *p) {
  elementwise(p)->a = p->op.u.add.alpha;
  elementwise(p)->b = p->op.u.add.beta;
  elementwise_make(p, 2);
  return AMBI_OK;
}

const op_def add_op = {
    .info = {.name = "add",
             .formula = "y = alpha a + beta b",
             .gradient = "da = alpha dy;  db = beta dy",
             .doc = "A weighted sum of two tensors.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .sums_gradients = true,
    .shapes = shapes,
    .recipe = recipe,
};
