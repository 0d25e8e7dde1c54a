/* unary -- y = f(x), one of the functions of elementwise.def.
 *
 *   dx = dy f'(x)                                                                                              */
#include <float.h>
#include <math.h>

#include "ops/elementwise.h"

enum { X = AMBI_UNARY_X, Y = AMBI_UNARY_Y };

static const ambi_slot_info slots[] = {
    {"x", "(..)", "input", 0},
    {"y", "(..)", "f(x)", AMBI_SLOT_OUTPUT},
};

static const ambi_attr_info attributes[] = {
    {"function", "which f", AMBI_ATTR_ENUM, offsetof(ambi_op, u.unary.function), 0, 0, AMBI_FUNCTIONS - 1,
     function_names},
    {"a", "first parameter of f; a = b = 0: its defaults", AMBI_ATTR_F64, offsetof(ambi_op, u.unary.a), 0, -DBL_MAX,
     DBL_MAX, NULL},
    {"b", "second parameter of f", AMBI_ATTR_F64, offsetof(ambi_op, u.unary.b), 0, -DBL_MAX, DBL_MAX, NULL},
};

static const int8_t in_place[][2] = {{Y, X}, {AMBI_GRAD(X), AMBI_GRAD(Y)}, {AMBI_GRAD(X), X}, {-1, -1}};

static ambi_status shapes(problem *p) { return expect_like(p, Y, X); }

static ambi_status recipe(problem *p) {
  const function_info *f = &functions[p->op.u.unary.function];
  bool defaults = p->op.u.unary.a == 0 && p->op.u.unary.b == 0;
  elementwise(p)->a = defaults ? f->a : p->op.u.unary.a;
  elementwise(p)->b = defaults ? f->b : p->op.u.unary.b;
  elementwise_make(p, is_backward(p) ? 8 : 4);
  return AMBI_OK;
}

const op_def unary_op = {
    .info = {.name = "unary",
             .formula = "y = f(x)",
             .gradient = "dx = dy f'(x)",
             .doc = "Applies one function to every element.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(X),
    .sums_gradients = true,
    .shapes = shapes,
    .recipe = recipe,
};
