/* cast -- y = x in another dtype, rounded to nearest even.
 *
 *   dx = dy                                                                                                    */
#include "ops/elementwise.h"

enum { X = AMBI_CAST_X, Y = AMBI_CAST_Y };

static const ambi_slot_info slots[] = {
    {"x", "(..)", "input", 0},
    {"y", "(..)", "the same values; its dtype says which", AMBI_SLOT_OUTPUT},
};

static const int8_t in_place[][2] = {{Y, X}, {AMBI_GRAD(X), AMBI_GRAD(Y)}, {-1, -1}};

static ambi_status shapes(problem *p) { return expect_like(p, Y, X); }

static ambi_status recipe(problem *p) {
  elementwise_make(p, 0);
  return AMBI_OK;
}

const op_def cast_op = {
    .info = {.name = "cast",
             .formula = "y = x",
             .gradient = "dx = dy",
             .doc = "Converts between f32, f16, bf16 and f64, and between strides.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .backward = 1,
             .in_place = in_place},
    .sums_gradients = true,
    .shapes = shapes,
    .recipe = recipe,
};
