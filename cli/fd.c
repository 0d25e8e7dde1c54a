/* fd.c -- the reference's gradients against finite differences of its own forward pass, all in f64.
 *
 *   L(x) = sum over outputs of <dy, y(x)>,   dL/dx . v = <dx, v>
 *   D(h) = (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h = dL/dx . v + O(h^4)
 *
 * Allowed difference: truncation, for which |D(h) - D(2h)| stands (15 times the error of D(h), as it falls with h^4),
 * plus rounding: an error e in each L comes out of D as 1.5 e / h, and e is what scale.c allows y, weighted by |dy|.
 * Should both together exceed 1e-5 of the sum of |dx v|, the comparison proves nothing and that is a failure too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "values.h"

enum { DIRECTIONS = 2, ELEMENTS = 6, LARGEST = 1500 };
static const double step = 1e-3; /* eps^(1/5): truncation h^4 and rounding eps / h meet about here */

typedef struct {
  group *g;
  const trial *t;
  int slot;        /* the input that moves        */
  const double *v; /* along this direction        */
  double *moved;
} line;

/* y at x + h v, as L but before the sum, so that differences cancel element by element. NULL: it failed. */
static exec values_at(const line *l, double h) {
  double *in[AMBI_SLOTS];
  exec e;
  memcpy(in, l->t->in, sizeof in);
  for (int64_t i = 0, n = ambi_numel(&l->t->op.t[l->slot]); i < n; i++) l->moved[i] = in[l->slot][i] + h * l->v[i];
  in[l->slot] = l->moved;
  trial_reference(&l->g->ck->ref, l->t, AMBI_FORWARD, in, &e);
  return e;
}

/* L(h) - L(-h) */
static double central(const line *l, double h) {
  exec plus = values_at(l, h), minus = values_at(l, -h);
  double sum = plus.status || minus.status ? NAN : 0;
  for (int s = 0; s < l->t->info->slots && !isnan(sum); s++)
    if (l->t->arriving & AMBI_BIT(s))
      for (int64_t i = 0, n = ambi_numel(&plus.t[s]); i < n; i++)
        sum += l->t->in[AMBI_GRAD(s)][i] * (plus.out[s][i] - minus.out[s][i]);
  exec_free(&plus);
  exec_free(&minus);
  return sum;
}

static double rounding(const trial *t) {
  double e = 0;
  for (int s = 0; s < t->info->slots; s++)
    if (t->arriving & AMBI_BIT(s))
      for (int64_t i = 0, n = ambi_numel(&t->op.t[s]); i < n; i++)
        e += fabs(t->in[AMBI_GRAD(s)][i]) * trial_tolerance(t, t->ref[s][i], 0, t->mag[s][i], AMBI_F64, ldexp(1, -53));
  return 1.5 * e / step;
}

/* Error as a part of what is allowed; negative after a failure. */
static double compare(const line *l, const char *what) {
  const double *dx = l->t->ref[AMBI_GRAD(l->slot)];
  double c1 = central(l, step), c2 = central(l, 2 * step), c4 = central(l, 4 * step);
  double fine = (8 * c1 - c2) / (12 * step), coarse = (8 * c2 - c4) / (24 * step), exact = 0, size = 0;
  for (int64_t i = 0, n = ambi_numel(&l->t->op.t[l->slot]); i < n; i++) {
    exact += dx[i] * l->v[i];
    size += fabs(dx[i] * l->v[i]);
  }
  double round_off = rounding(l->t), allowed = fabs(fine - coarse) + round_off;
  char name[48];
  slot_name(&l->t->op, AMBI_GRAD(l->slot), name, sizeof name);
  if (!(fabs(fine - exact) <= allowed))
    return group_fail(l->g, l->t->text, "reference", "[%s] %s gives %.12g, finite differences %.12g +- %.2g", what,
                      name, exact, fine, allowed),
           -1;
  if (allowed > 1e-5 * size + 2 * round_off)
    return group_fail(l->g, l->t->text, "reference", "[%s] %s: finite differences do not converge: %.9g, %.9g", what,
                      name, fine, coarse),
           -1;
  return fabs(fine - exact) / allowed;
}

static double try_direction(line *l, double *v, int64_t n, rng *r) {
  for (int64_t i = 0; i < n; i++) v[i] = copysign(rng_uniform(r, 0.5, 1), rng_uniform(r, -1, 1));
  return compare(l, "random direction");
}

static double try_element(line *l, double *v, int64_t n, int64_t at) {
  char what[48];
  memset(v, 0, (size_t)n * sizeof *v);
  v[at] = 1;
  snprintf(what, sizeof what, "element %lld", (long long)at);
  return compare(l, what);
}

static void check_input(group *g, const trial *t, int slot, uint32_t *proven) {
  int64_t n = ambi_numel(&t->op.t[slot]);
  rng r = {(uint64_t)g->ck->seed + (uint64_t)slot};
  double *v = values_new(n), worst = 0, part = 0, largest = 0;
  line l = {g, t, slot, v, values_new(n)};
  for (int k = 0; k < DIRECTIONS && part >= 0; k++) worst = fmax(worst, part = try_direction(&l, v, n, &r));
  for (int k = 0; k < ELEMENTS && k < n && part >= 0; k++) {
    int64_t at = k == 0 ? 0 : k == 1 ? n - 1 : (int64_t)(rng_next(&r) % (uint64_t)n);
    worst = fmax(worst, part = try_element(&l, v, n, at));
  }
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(t->ref[AMBI_GRAD(slot)][i]));
  if (part >= 0) group_pass(g, worst);
  if (part >= 0 && largest > 0) *proven |= AMBI_BIT(slot);
  free(v);
  free(l.moved);
}

void check_differences(group *g, const char *text, uint32_t *proven) {
  static const mix f64 = {"f64", AMBI_F64, AMBI_F64, AMBI_NONE, 0};
  trial t;
  char err[400];
  checker *ck = g->ck;
  ambi_status s = trial_make(&ck->ref, text, &f64, (uint64_t)ck->seed, -1, 0, &t, err, sizeof err);
  if (s != AMBI_OK) group_fail(g, text, "reference", "%s: %s", ambi_status_name(s), err);
  for (int slot = 0; s == AMBI_OK && t.n <= LARGEST && slot < t.info->slots; slot++)
    if ((t.differentiable & AMBI_BIT(slot)) && ambi_numel(&t.op.t[slot]) > 0) check_input(g, &t, slot, proven);
  trial_free(&t);
}
