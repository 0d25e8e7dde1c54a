/* unary, the reference. */
#include "backends/ref/pointwise.h"
#include "ops/elementwise.h"

enum { X = AMBI_UNARY_X, Y = AMBI_UNARY_Y };

static double y_at(const ref_call *c, at_index i) {
  const elementwise_recipe *e = elementwise(c->p);
  return ref_function(c->p->op.u.unary.function, ref_get(c, X, i), e->a, e->b);
}

static double dx_at(const ref_call *c, at_index i) {
  const elementwise_recipe *e = elementwise(c->p);
  return ref_function_grad(c->p->op.u.unary.function, ref_get(c, X, i), ref_get(c, AMBI_GRAD(Y), i), e->a, e->b);
}

static void forward(const ref_call *c) { ref_pointwise(c, Y, y_at); }
static void backward(const ref_call *c) { ref_pointwise(c, AMBI_GRAD(X), dx_at); }

const ref_kernel unary_ref = {.forward = forward, .backward = backward};
