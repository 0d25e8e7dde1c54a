/* add, the reference. */
#include "backends/ref/pointwise.h"
#include "ops/elementwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

static double y_at(const ref_call *c, at_index i) {
  const elementwise_recipe *e = elementwise(c->p);
  return e->a * ref_get(c, A, i) + e->b * ref_get(c, B, i);
}
static double da_at(const ref_call *c, at_index i) { return elementwise(c->p)->a * ref_get(c, AMBI_GRAD(Y), i); }
static double db_at(const ref_call *c, at_index i) { return elementwise(c->p)->b * ref_get(c, AMBI_GRAD(Y), i); }

static void forward(const ref_call *c) { ref_pointwise(c, Y, y_at); }
/* The gradient that lies over dy is stored last. */
static void backward(const ref_call *c) {
  bool a_last = c->at[AMBI_GRAD(A)] == c->at[AMBI_GRAD(Y)];
  if (!a_last) ref_pointwise(c, AMBI_GRAD(A), da_at);
  ref_pointwise(c, AMBI_GRAD(B), db_at);
  if (a_last) ref_pointwise(c, AMBI_GRAD(A), da_at);
}

const ref_kernel add_ref = {.forward = forward, .backward = backward};
