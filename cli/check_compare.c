/* check_compare.c -- is a run's answer the reference's, to within rounding? */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "values.h"

/* What slot s should hold, the |values| that is a sum of (itself, or along repeated axes), and their magnitude. */
typedef struct {
  double *want, *terms, *mag;
  double *narrow; /* NULL: the kernel rounds nothing to 16 bits inside */
  int64_t n;
} expectation;

/* A gradient with stride 0 is the sum over that axis: of terms at least as large as the elements. */
static void sum_axis(const ambi_tensor *t, int axis, double *v, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (first_along(t, axis, i) != i) v[first_along(t, axis, i)] += v[i];
  for (int64_t i = 0; i < n; i++) v[i] = v[first_along(t, axis, i)];
}

/* Tensor cores multiply 16-bit numbers: what a kernel computes itself is rounded before it is a factor. */
static int rounds_factors(const exec *e) { return strstr(e->kernel, "tensor cores") != NULL; }

static expectation expect(const trial *t, const exec *e, double *const *ref, int s) {
  const ambi_tensor *shape = &e->t[s];
  int added = s >= AMBI_MAX_PRIMALS && (e->op.accumulate & AMBI_BIT(s - AMBI_MAX_PRIMALS));
  expectation x = {.n = ambi_numel(shape)};
  x.want = values_new(x.n);
  x.terms = values_new(x.n);
  x.mag = values_new(x.n);
  memcpy(x.want, ref[s], (size_t)x.n * sizeof(double));
  memcpy(x.mag, t->mag[s], (size_t)x.n * sizeof(double));
  if (rounds_factors(e) && t->narrow[s]) {
    x.narrow = values_new(x.n);
    memcpy(x.narrow, t->narrow[s], (size_t)x.n * sizeof(double));
  }
  for (int64_t i = 0; i < x.n; i++) x.terms[i] = fabs(x.want[i]);
  for (int a = 0; a < shape->ndim; a++)
    if (shape->stride[a] == 0 && shape->shape[a] > 1) {
      for (int64_t i = 0; i < x.n; i++) x.mag[i] = fmax(x.mag[i], x.terms[i]);
      sum_axis(shape, a, x.want, x.n);
      sum_axis(shape, a, x.terms, x.n);
      sum_axis(shape, a, x.mag, x.n);
      if (x.narrow) sum_axis(shape, a, x.narrow, x.n);
    }
  for (int64_t i = 0; added && i < x.n; i++) {
    x.want[i] += e->in[s][i];
    x.mag[i] += fabs(e->in[s][i]);
  }
  return x;
}

/* |got - want| as a part of tol; infinite when they differ in kind. */
static double excess(double got, double want, double tol, double max) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
  if (got == want) return 0;
  if (!(tol >= 0)) return INFINITY; /* a tolerance that is no number proves nothing */
  if (isinf(got) && !isinf(want)) return fabs(want) + tol >= max && (got > 0) == (want > 0) ? 0 : INFINITY;
  return fabs(got - want) / (tol > 0 ? tol : 5e-324);
}

/* Unit roundoff of the arithmetic, by the rule of ambi.h: f64 when any floating slot is, but for single numbers and
 * grad_norm's partial, "() or (P)". */
static double arithmetic_unit(const exec *e) {
  const ambi_op_info *info = ambi_op_get_info(e->op.kind);
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!((e->reads | e->writes) & AMBI_BIT(s)) || e->t[s].dtype != AMBI_F64) continue;
    const char *shape = info->slot[s % AMBI_MAX_PRIMALS].shape;
    if (strcmp(shape, "()") && strcmp(shape, "() or (P)")) return ldexp(1, -53);
  }
  return ldexp(1, -24);
}

typedef struct {
  int64_t at; /* element with the largest excess */
  double worst, got, want, tol;
  int64_t flips;
} verdict;

/* A formula that rounds inside may round the other way where the value lies between two: by 2u of its terms, and
 * rarely, since the arithmetic is 2^13 times finer. */
static verdict compare(const trial *t, const exec *e, int s, const expectation *x) {
  verdict v = {0};
  ambi_dtype dtype = e->t[s].dtype;
  double u = arithmetic_unit(e), flip = s == t->flips ? 2 * value_unit(t->op.t[0].dtype) : 0;
  for (int64_t i = 0; i < x->n; i++) {
    double tol = trial_tolerance(t, x->want[i], x->terms[i], x->mag[i], dtype, u) + (x->narrow ? x->narrow[i] : 0);
    double part = excess(e->out[s][i], x->want[i], tol, value_max(dtype));
    if (part > 1 && excess(e->out[s][i], x->want[i], tol + flip * x->mag[i], value_max(dtype)) <= 1) {
      v.flips++;
      continue;
    }
    if (part > v.worst || i == 0) v = (verdict){i, part, e->out[s][i], x->want[i], tol, v.flips};
  }
  return v;
}

static int reads_repeated(const exec *e) {
  for (int s = 0; s < AMBI_SLOTS; s++)
    for (int a = 0; (e->reads & AMBI_BIT(s)) && a < e->t[s].ndim; a++)
      if (e->t[s].stride[a] == 0 && e->t[s].shape[a] > 1) return 1;
  return 0;
}

/* Where one magnitude stands for all elements (scale.c): the error of the norm, as a part of what is allowed. Terms of
 * repeated inputs, or too few, may cancel in all elements: they have none. */
static double compare_norms(const trial *t, const exec *e, int s, const expectation *x) {
  enum { ENOUGH = 8 };
  double off = 0, all = 0, allowed = t->growth * arithmetic_unit(e) + value_unit(e->t[s].dtype);
  if (s < AMBI_MAX_PRIMALS || !(t->by_norm & AMBI_BIT(s - AMBI_MAX_PRIMALS))) return 0;
  if (x->n < ENOUGH || reads_repeated(e)) return 0;
  for (int64_t i = 0; i < x->n; i++) {
    if (isinf(e->out[s][i])) continue; /* beyond the storage dtype's range: compare */
    off += (e->out[s][i] - x->want[i]) * (e->out[s][i] - x->want[i]);
    all += x->want[i] * x->want[i];
  }
  if (x->narrow) allowed += t->norm[s];
  allowed = allowed * sqrt(all) + value_tiny(e->t[s].dtype) * sqrt((double)x->n);
  return isfinite(all) && all > 0 ? sqrt(off) / allowed : 0;
}

static void where(const ambi_tensor *t, int64_t i, char *out, size_t n) {
  int64_t index[AMBI_MAX_DIMS];
  for (int a = t->ndim - 1; a >= 0; a--) {
    int64_t extent = t->shape[a] > 0 ? t->shape[a] : 1;
    index[a] = i % extent;
    i /= extent;
  }
  size_t used = (size_t)snprintf(out, n, "[");
  for (int a = 0; a < t->ndim && used < n; a++)
    used += (size_t)snprintf(out + used, n - used, "%s%lld", a ? "," : "", (long long)index[a]);
  if (used < n) snprintf(out + used, n - used, "]");
}

/* 1 when slot s is right; raises *worst. */
static int judge_slot(group *g, const trial *t, const exec *e, double *const *ref, int s, const char *label,
                      double *worst) {
  char name[64], index[128];
  slot_name(&e->op, s, name, sizeof name);
  if (!ref[s]) return group_fail(g, t->text, e->kernel, "[%s] wrote %s, which nobody asked for", label, name), 0;
  expectation x = expect(t, e, ref, s);
  verdict v = compare(t, e, s, &x);
  const double norm = compare_norms(t, e, s, &x);
  free(x.want);
  free(x.terms);
  free(x.mag);
  free(x.narrow);
  where(&e->t[s], v.at, index, sizeof index);
  if (v.flips > 1 + x.n / 100)
    return group_fail(g, t->text, e->kernel, "[%s] %s: %lld of %lld elements were not rounded inside as they should be",
                      label, name, (long long)v.flips, (long long)x.n),
           0;
  if (v.worst > 1)
    return group_fail(g, t->text, e->kernel, "[%s] %s%s = %.9g, expected %.9g +- %.2g", label, name, index, v.got,
                      v.want, v.tol),
           0;
  if (!(norm <= 1))
    return group_fail(g, t->text, e->kernel, "[%s] %s as a whole is off by %.2g times what is allowed", label, name,
                      norm),
           0;
  *worst = fmax(*worst, fmax(v.worst, norm));
  return 1;
}

/* Gradients that were wanted are written, and no others. */
static uint32_t expected_writes(const trial *t, const exec *e) {
  if (e->op.pass == AMBI_FORWARD) return e->writes;
  return (e->op.want ? e->op.want : t->differentiable) << AMBI_MAX_PRIMALS;
}

void judge(group *g, const trial *t, const target *dev, const exec *e, double *const *ref, const char *label) {
  char what[256];
  double worst = 0;
  snprintf(what, sizeof what, "%s, %s, seed %lld", dev->name, label, (long long)g->ck->seed);
  if (e->status == AMBI_UNSUPPORTED) return group_skip(g, e->error);
  if (e->status != AMBI_OK)
    return group_fail(g, t->text, e->kernel, "[%s] %s: %s", what, ambi_status_name(e->status), e->error);
  if (e->damage[0]) return group_fail(g, t->text, e->kernel, "[%s] %s", what, e->damage);
  if (e->writes != expected_writes(t, e))
    return group_fail(g, t->text, e->kernel, "[%s] writes slots %#x instead of %#x", what, e->writes,
                      expected_writes(t, e));
  for (int s = 0; s < AMBI_SLOTS; s++)
    if ((e->writes & AMBI_BIT(s)) && !judge_slot(g, t, e, ref, s, what, &worst)) return;
  group_pass(g, worst);
  if (g->ck->verbose) printf("ok    %s [%s] %.2f  %s\n", g->name, what, worst, t->text);
}
