/* grad_norm, the reference: the formulas of op.c, one element at a time. */
#include "backends/ref/ref.h"

#include <math.h>

enum { G = AMBI_GRAD_NORM_G, PARTIAL = AMBI_GRAD_NORM_PARTIAL, NORM = AMBI_GRAD_NORM_NORM };
enum { SUMSQ = AMBI_GRAD_NORM_SUMSQ, SCALE = AMBI_GRAD_NORM_SCALE, NONFINITE = AMBI_GRAD_NORM_NONFINITE };

static double sum_of_squares(const ref_call *c) {
  const ambi_tensor *g = &c->p->t[G];
  const ambi_tensor *partial = &c->p->t[PARTIAL];
  ref_sum sum = {0, 0};
  for (int64_t n = 0; has_slot(c->p, PARTIAL) && n < ambi_numel(partial); n++)
    ref_add(&sum, ref_get(c, PARTIAL, ref_index(c, PARTIAL, partial->ndim, n)));
  for (int64_t n = 0; n < ambi_numel(g); n++) {
    double v = ref_get(c, G, ref_index(c, G, g->ndim, n));
    ref_add(&sum, v * v);
  }
  return sum.total;
}

static void forward(const ref_call *c) {
  double sumsq = sum_of_squares(c), norm = sqrt(sumsq), max_norm = c->p->op.u.grad_norm.max_norm;
  double scale = max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
  ref_set(c, NORM, AT(0), norm);
  ref_set(c, SUMSQ, AT(0), sumsq);
  ref_set(c, SCALE, AT(0), isfinite(norm) ? scale : 0);
  ref_set(c, NONFINITE, AT(0), isfinite(norm) ? 0 : 1);
}

static void backward(const ref_call *c) {
  const ambi_tensor *g = &c->p->t[G];
  double norm = sqrt(sum_of_squares(c)), dnorm = ref_get(c, AMBI_GRAD(NORM), AT(0));
  for (int64_t n = 0; n < ambi_numel(g); n++) {
    at_index i = ref_index(c, G, g->ndim, n);
    ref_set(c, AMBI_GRAD(G), i, norm == 0 ? 0 : dnorm * ref_get(c, G, i) / norm);
  }
}

const ref_kernel grad_norm_ref = {.forward = forward, .backward = backward};
