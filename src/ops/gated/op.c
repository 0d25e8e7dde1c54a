/* gated -- y = v act(g): a value let through by a gate.
 *
 *   dv = dy act(g);   dg = dy v act'(g)
 *
 * A packed (.., 2D) tensor is two views of one buffer: ambi_split makes them, for the gradients too.          */
#include "ops/gated/op.h"

#include <float.h>

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };

const ambi_function gate_activation[AMBI_GATES] = {
    [AMBI_SWIGLU] = AMBI_SILU, [AMBI_GLU] = AMBI_SIGMOID,          [AMBI_REGLU] = AMBI_RELU,
    [AMBI_GEGLU] = AMBI_GELU,  [AMBI_GEGLU_TANH] = AMBI_GELU_TANH, [AMBI_BILINEAR] = AMBI_IDENTITY,
};

static const char *const gates[] = {
    [AMBI_SWIGLU] = "swiglu",         [AMBI_GLU] = "glu",           [AMBI_REGLU] = "reglu", [AMBI_GEGLU] = "geglu",
    [AMBI_GEGLU_TANH] = "geglu_tanh", [AMBI_BILINEAR] = "bilinear", [AMBI_GATES] = NULL,
};

static const ambi_slot_info slots[] = {
    {"v", "(..)", "value", 0},
    {"g", "(..)", "gate, before its activation", 0},
    {"y", "(..)", "output", AMBI_SLOT_OUTPUT},
};

static const ambi_attr_info attributes[] = {
    {"gate", "act: silu (swiglu), sigmoid (glu), relu (reglu), gelu (geglu), gelu_tanh, or none (bilinear)",
     AMBI_ATTR_ENUM, offsetof(ambi_op, u.gated.gate), 0, 0, AMBI_GATES - 1, gates},
    {"beta", "swiglu: act(g) = g sigmoid(beta g)", AMBI_ATTR_F64, offsetof(ambi_op, u.gated.beta), 1, -DBL_MAX, DBL_MAX,
     NULL},
};

static const int8_t in_place[][2] = {{Y, V},
                                     {Y, G},
                                     {AMBI_GRAD(V), AMBI_GRAD(Y)},
                                     {AMBI_GRAD(G), AMBI_GRAD(Y)},
                                     {AMBI_GRAD(V), V},
                                     {AMBI_GRAD(G), G},
                                     {AMBI_GRAD(V), G},
                                     {AMBI_GRAD(G), V},
                                     {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_like(p, G, V));
  return expect_like(p, Y, V);
}

static ambi_status recipe(problem *p) {
  if (is_backward(p) && !writes_slot(p, AMBI_GRAD(G))) p->reads &= ~AMBI_BIT(V); /* dv needs g alone */
  elementwise(p)->a = p->op.u.gated.beta;
  elementwise(p)->b = 0;
  elementwise_make(p, is_backward(p) ? 12 : 5);
  return AMBI_OK;
}

const op_def gated_op = {
    .info = {.name = "gated",
             .formula = "y = v act(g)",
             .gradient = "dv = dy act(g);  dg = dy v act'(g)",
             .doc = "A value let through by a gate: swiglu and its relatives.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(V) | AMBI_BIT(G),
    .sums_gradients = true,
    .shapes = shapes,
    .recipe = recipe,
};
