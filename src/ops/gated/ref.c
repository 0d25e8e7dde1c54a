/* gated, the reference: the formulas of op.c, one element at a time. */
#include "backends/ref/pointwise.h"
#include "ops/gated/op.h"

enum { V = AMBI_GATED_V, G = AMBI_GATED_G, Y = AMBI_GATED_Y };
enum { DV = AMBI_GRAD(V), DG = AMBI_GRAD(G), DY = AMBI_GRAD(Y) };

static double act(const ref_call *c, double g) {
  return ref_function((int)gate_activation[c->p->op.u.gated.gate], g, elementwise(c->p)->a, 0);
}

static double y_at(const ref_call *c, at_index i) { return ref_get(c, V, i) * act(c, ref_get(c, G, i)); }
static double dv_at(const ref_call *c, at_index i) { return ref_get(c, DY, i) * act(c, ref_get(c, G, i)); }

static double dg_at(const ref_call *c, at_index i) {
  double dact = ref_get(c, DY, i) * ref_get(c, V, i);
  return ref_function_grad((int)gate_activation[c->p->op.u.gated.gate], ref_get(c, G, i), dact, elementwise(c->p)->a,
                           0);
}

static void forward(const ref_call *c) { ref_pointwise(c, Y, y_at); }

static bool sums(const ref_call *c, int slot) {
  const ambi_tensor *t = &c->p->t[slot];
  bool any = false;
  for (int k = 0; k < t->ndim; k++) any = any || (t->stride[k] == 0 && t->shape[k] > 1);
  return any && writes_slot(c->p, slot);
}

/* Gradients may lie over inputs, unless they are sums. So sums are stored first; without any, both gradients of an
 * element are computed before either is stored. */
static void backward(const ref_call *c) {
  if (sums(c, DV) || sums(c, DG)) {
    bool v_first = sums(c, DV);
    ref_pointwise(c, v_first ? DV : DG, v_first ? dv_at : dg_at);
    ref_pointwise(c, v_first ? DG : DV, v_first ? dg_at : dv_at);
    return;
  }
  int64_t n = ambi_numel(&c->p->t[V]);
  for (int64_t j = 0; j < n; j++) {
    at_index i = ref_index(c, V, c->p->t[V].ndim, j);
    double dv = writes_slot(c->p, DV) ? dv_at(c, i) : 0, dg = writes_slot(c->p, DG) ? dg_at(c, i) : 0;
    ref_set(c, DV, i, dv);
    ref_set(c, DG, i, dg);
  }
}

const ref_kernel gated_ref = {.forward = forward, .backward = backward};
