/* adamw, the reference: the formulas of op.c, one element at a time. */
#include "backends/ref/ref.h"

#include <math.h>

enum { P = AMBI_ADAMW_P, G = AMBI_ADAMW_G, M = AMBI_ADAMW_M, V = AMBI_ADAMW_V };
enum { LR = AMBI_ADAMW_LR, STEP = AMBI_ADAMW_STEP, SCALE = AMBI_ADAMW_SCALE, SKIP = AMBI_ADAMW_SKIP };
enum { P_OUT = AMBI_ADAMW_P_OUT, M_OUT = AMBI_ADAMW_M_OUT, V_OUT = AMBI_ADAMW_V_OUT, P_COPY = AMBI_ADAMW_P_COPY };
enum { STEP_OUT = AMBI_ADAMW_STEP_OUT };

static void write(const ref_call *c, at_index i, double p, double m, double v) {
  ref_set(c, M_OUT, i, m);
  ref_set(c, V_OUT, i, v);
  ref_set(c, P_OUT, i, p);
  ref_set(c, P_COPY, i, p);
}

static void update(const ref_call *c, at_index i, double lr, double t, double scale) {
  double beta1 = c->p->op.u.adamw.beta1, beta2 = c->p->op.u.adamw.beta2;
  double g = scale * ref_get(c, G, i), p = ref_get(c, P, i);
  double m = beta1 * ref_get(c, M, i) + (1 - beta1) * g;
  double v = beta2 * ref_get(c, V, i) + (1 - beta2) * g * g;
  double mhat = m / (1 - pow(beta1, t)), vhat = v / (1 - pow(beta2, t));
  p = p * (1 - lr * c->p->op.u.adamw.weight_decay) - lr * mhat / (sqrt(vhat) + c->p->op.u.adamw.eps);
  if (t < 1) p = NAN; /* where v is 0, the formula has a number */
  write(c, i, p, m, v);
}

static void forward(const ref_call *c) {
  const ambi_tensor *p = &c->p->t[P];
  double lr = ref_get(c, LR, AT(0)), step = ref_get(c, STEP, AT(0));
  double scale = has_slot(c->p, SCALE) ? ref_get(c, SCALE, AT(0)) : 1;
  bool skip = has_slot(c->p, SKIP) && ref_get(c, SKIP, AT(0)) != 0;
  for (int64_t n = 0; n < ambi_numel(p); n++) {
    at_index i = ref_index(c, P, p->ndim, n);
    if (skip)
      write(c, i, ref_get(c, P, i), ref_get(c, M, i), ref_get(c, V, i));
    else
      update(c, i, lr, step + 1, scale);
  }
  ref_set(c, STEP_OUT, AT(0), skip ? step : step + 1);
}

const ref_kernel adamw_ref = {.forward = forward};
