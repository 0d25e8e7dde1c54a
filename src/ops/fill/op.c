/* fill -- y = value, everywhere. It has no input, so there is no backward. */
#include <math.h>

#include "ops/elementwise.h"

enum { Y = AMBI_FILL_Y };

static const ambi_slot_info slots[] = {{"y", "(..)", "output", AMBI_SLOT_OUTPUT}};

static const ambi_attr_info attributes[] = {{"value", "what every element becomes", AMBI_ATTR_F64,
                                             offsetof(ambi_op, u.fill.value), 0, -INFINITY, INFINITY, NULL}};

static ambi_status shapes(problem *p) {
  if (p->t[Y].dtype == AMBI_NONE)
    return fail_slot(AMBI_INVALID, p, Y, "must be described: nothing else says its shape");
  return AMBI_OK;
}

static ambi_status recipe(problem *p) {
  elementwise(p)->a = p->op.u.fill.value;
  elementwise_make(p, 0);
  return AMBI_OK;
}

const op_def fill_op = {
    .info = {.name = "fill",
             .formula = "y = value",
             .gradient = "none: there is no input",
             .doc = "Sets every element.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes},
    .shapes = shapes,
    .recipe = recipe,
};
