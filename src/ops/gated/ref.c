/* gated, the reference. */
#include "backends/ref/pointwise.h"
#include "ops/gated/op.h"

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };

static double act(const ref_call *c, double g) {
  return ref_function((int)gate_activation[c->p->op.u.gated.gate], g, elementwise(c->p)->a, 0);
}

static double y_at(const ref_call *c, at_index i) { return ref_get(c, V, i) * act(c, ref_get(c, G, i)); }
static double dv_at(const ref_call *c, at_index i) { return ref_get(c, AMBI_GRAD(Y), i) * act(c, ref_get(c, G, i)); }

static double dg_at(const ref_call *c, at_index i) {
  double dact = ref_get(c, AMBI_GRAD(Y), i) * ref_get(c, V, i);
  return ref_function_grad((int)gate_activation[c->p->op.u.gated.gate], ref_get(c, G, i), dact, elementwise(c->p)->a,
                           0);
}

static void forward(const ref_call *c) { ref_pointwise(c, Y, y_at); }

/* Both gradients of an element are computed before either is stored: they may lie where the inputs do. */
static void backward(const ref_call *c) {
  int64_t n = ambi_numel(&c->p->t[V]);
  bool plain = n > 0;
  for (int k = 0; k < c->p->t[V].ndim; k++)
    for (int s = 0; s < 2; s++)
      plain = plain && !(writes_slot(c->p, AMBI_GRAD(s)) && c->p->t[AMBI_GRAD(s)].stride[k] == 0);
  for (int64_t j = 0; plain && j < n; j++) {
    at_index i = ref_index(c, V, c->p->t[V].ndim, j);
    double dv = writes_slot(c->p, AMBI_GRAD(V)) ? dv_at(c, i) : 0;
    double dg = writes_slot(c->p, AMBI_GRAD(G)) ? dg_at(c, i) : 0;
    ref_set(c, AMBI_GRAD(V), i, dv);
    ref_set(c, AMBI_GRAD(G), i, dg);
  }
  if (plain) return;
  ref_pointwise(c, AMBI_GRAD(V), dv_at);
  ref_pointwise(c, AMBI_GRAD(G), dg_at);
}

const ref_kernel gated_ref = {.forward = forward, .backward = backward};
