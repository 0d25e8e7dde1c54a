/* check_ulp.c -- elementwise functions over the whole range of their arguments, and conversions bit by bit.
 *
 * The library's f64 reference is first held against functions.c, an oracle of its own; kernels are then held against
 * the reference: 4 ulp in f32, one ulp from the rounded value in f16 and bf16, for value and derivative (dy = 1, and a
 * small one: what is 1 beside e^x may not be lost beside dy).
 *
 * A derivative f' = g + x g' of f = x g(x) is a sum whose terms cancel near its root. No arithmetic keeps more digits
 * than the larger term has, so errors are measured in ulp of max(|f'|, |f / x|, |f' - f / x|): where nothing cancels
 * that is |f'| itself, and the second and third are the terms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "check.h"
#include "functions.h"
#include "sweep.h"
#include "values.h"

/* One function of an op, and what the reference says of it at x[0..n). */
typedef struct {
  checker *ck;
  ambi_op op;   /* kind and attributes; slots are described per run */
  int function; /* of functions.h                                   */
  double a, b;
  char text[96];        /* the case, for messages                           */
  int argument, result; /* slots: x and y, or g and y                       */
  int64_t n;
  double dy; /* exact in every dtype: gradients are slopes times it */
  double *x, *ones, *dys, *value, *slope;
} sweep;

static exec run_sweep(const sweep *s, const target *dev, ambi_dtype t, ambi_pass pass) {
  exec e = {.op = s->op};
  e.op.pass = pass;
  for (int i = 0; i <= s->result; i++) {
    e.op.t[i] = ambi_dense(t, 1, &s->n);
    e.in[i] = i == s->argument ? s->x : s->ones;
  }
  e.in[AMBI_GRAD(s->result)] = s->dys;
  e.op.want = pass == AMBI_BACKWARD ? AMBI_BIT(s->argument) : 0;
  exec_run(dev, &e);
  return e;
}

/* ---- the arguments, and the reference there ---- */
static void sweep_free(sweep *s) {
  free(s->x);
  free(s->ones);
  free(s->dys);
  free(s->value);
  free(s->slope);
  s->x = s->ones = s->dys = s->value = s->slope = NULL;
}

static void set_dy(sweep *s, double dy) {
  s->dy = dy;
  for (int64_t i = 0; i < s->n; i++) s->dys[i] = dy;
}

/* Takes x over; 0, or -1 after a failure. */
static int sweep_at(sweep *s, group *g, double *x, int64_t n) {
  sweep_free(s);
  s->x = x;
  s->n = n;
  s->ones = values_new(n);
  s->dys = values_new(n);
  for (int64_t i = 0; i < n; i++) s->ones[i] = 1;
  set_dy(s, 1);
  exec y = run_sweep(s, &s->ck->ref, AMBI_F64, AMBI_FORWARD), dx = run_sweep(s, &s->ck->ref, AMBI_F64, AMBI_BACKWARD);
  s->value = y.out[s->result];
  s->slope = dx.out[AMBI_GRAD(s->argument)];
  if (y.status == AMBI_OK && dx.status == AMBI_OK) return 0;
  group_fail(g, s->text, "reference", "%s", y.status ? y.error : dx.error);
  return -1;
}

static double largest_term(const sweep *s, int64_t i) {
  double whole = fabs(s->slope[i]), term = s->value[i] / s->x[i];
  if (!function_is_product(s->function) || !isfinite(term) || !isfinite(whole)) return whole;
  return fmax(whole, fmax(fabs(term), fabs(s->slope[i] - term)));
}

/* ---- the reference against functions.c ---- */
/* Both are right to a few ulp of f64, or as e^t to |t| ulp, since t is rounded before: and |t| is about |log v|. 64
 * leave room for either libm, and are 2^-23 of the bar for f32. Where e^t is a denormal, x e^t errs by |x| of their
 * spacing. */
static double close_enough(double v, double x) {
  double denormal = 0x1p-1070 * (1 + fmin(fabs(x), 1e4));
  return isfinite(v) && v != 0 ? (64 + 2 * fabs(log(fabs(v)))) * 0x1p-52 * fabs(v) + denormal : denormal;
}

/* At infinity x g(x) has the value of its limit, which the formula hides: 0 with its sign, or infinity. */
static long double exact_value(const sweep *s, double x) {
  long double y = isnan(x) ? (long double)NAN : function_value(s->function, s->a, s->b, x);
  if (isinf(x) && isnan(y) && (function_is_product(s->function) || s->function == AMBI_SOFTSIGN))
    y = function_value(s->function, s->a, s->b, copysign(1e30, x));
  return y;
}

static void check_values(group *g, const sweep *s) {
  for (int64_t i = 0; i < s->n; i++) {
    double exact = (double)exact_value(s, s->x[i]), got = s->value[i];
    int same = isnan(exact) ? isnan(got) : got == exact || fabs(got - exact) <= close_enough(exact, s->x[i]);
    if (same && (exact != 0 || isfinite(s->x[i]) || signbit(exact) == signbit(got))) continue;
    return group_fail(g, s->text, "reference", "value at %.9g is %.17g, expected %.17g", s->x[i], got, exact);
  }
  group_pass(g, 0);
}

/* x = +-m 2^e: every scale that f32 arguments come in, near enough to 1 for finite differences. */
static int64_t slope_arguments(double **x) {
  int64_t n = 0;
  *x = values_new(2 * 27 * 25);
  for (int e = -20; e <= 6; e++)
    for (int m = 0; m < 25; m++) {
      (*x)[n++] = ldexp(1 + m / 25.0, e);
      (*x)[n++] = -ldexp(1 + m / 25.0, e);
    }
  return n;
}

static void check_slopes(group *g, sweep *s) {
  double *x;
  int64_t n = slope_arguments(&x), conclusive = 0, smooth = 0;
  if (sweep_at(s, g, x, n)) return;
  for (int64_t i = 0; i < n; i++) {
    long double error;
    if (!function_is_smooth(s->function, s->a, s->b, x[i], fmin(fabs(x[i]), 1) / 128)) continue;
    double exact = (double)function_slope(s->function, s->a, s->b, x[i], &error);
    double scale = largest_term(s, i), allowed = (double)error + close_enough(scale, x[i]);
    smooth++;
    conclusive += allowed <= 1e-6 * scale || scale < 1e-300;
    if (fabs(s->slope[i] - exact) <= allowed) continue;
    return group_fail(g, s->text, "reference", "derivative at %.9g is %.12g, finite differences give %.12g +- %.2g",
                      x[i], s->slope[i], exact, allowed);
  }
  if (2 * conclusive < smooth)
    return group_fail(g, s->text, "reference", "finite differences prove %lld of %lld derivatives only",
                      (long long)conclusive, (long long)smooth);
  group_pass(g, 0);
}

/* ---- kernels against the reference ---- */
typedef struct {
  double worst, got, want;
  int64_t at;
} peak;

enum { ALLOWED_ULPS = 4 }; /* in f32 */

static peak find_peak(const sweep *s, ambi_dtype t, const double *got, ambi_pass pass) {
  peak p = {0};
  for (int64_t i = 0; i < s->n; i++) {
    double want = pass ? s->slope[i] * s->dy : s->value[i], scale = pass ? largest_term(s, i) * s->dy : fabs(want);
    double error = sweep_error(t, got[i], want, scale, ALLOWED_ULPS);
    if (isinf(s->x[i]) && want == 0 && got[i] == 0 && !pass && signbit(want) != signbit(got[i])) error = INFINITY;
    if (error > p.worst) p = (peak){error, got[i], want, i};
  }
  return p;
}

static void check_target(group *g, const sweep *s, const target *dev, ambi_dtype t, ambi_pass pass) {
  exec e = run_sweep(s, dev, t, pass);
  if (e.status == AMBI_UNSUPPORTED) {
    group_skip(g, e.error);
  } else if (e.status != AMBI_OK || e.damage[0]) {
    group_fail(g, s->text, e.kernel, "[%s] %s", dev->name, e.status ? e.error : e.damage);
  } else {
    peak p = find_peak(s, t, e.out[pass ? AMBI_GRAD(s->argument) : s->result], pass);
    if (s->ck->verbose)
      printf("%-14s [%s] %s (dy = %g): %.2f of %s, at %.9g\n", s->text, dev->name, pass ? "derivative" : "value", s->dy,
             p.worst, g->limit, s->x[p.at]);
    if (p.worst <= 1)
      group_pass(g, p.worst);
    else
      group_fail(g, s->text, e.kernel,
                 "[%s] %s at %.9g (%a), dy = %g, is %.9g, expected %.9g: %.3g ulp off, %d allowed", dev->name,
                 pass ? "derivative" : "value", s->x[p.at], s->x[p.at], s->dy, p.got, p.want,
                 (t == AMBI_F32 ? ALLOWED_ULPS : 1) * p.worst, t == AMBI_F32 ? ALLOWED_ULPS : 1);
  }
  exec_free(&e);
}

static void check_targets(group *g, sweep *s, ambi_dtype t) {
  for (int i = 0; i < s->ck->target_count; i++)
    for (int pass = 0; pass <= 1; pass++) check_target(g, s, &s->ck->targets[i], t, (ambi_pass)pass);
  set_dy(s, t == AMBI_F16 ? 0x1.56p-8 : 0x1.56p-85);
  for (int i = 0; i < s->ck->target_count; i++) check_target(g, s, &s->ck->targets[i], t, AMBI_BACKWARD);
}

/* All 2^32 arguments of one function. */
static void check_exhaustively(group *g, sweep *s) {
  for (int chunk = 0; chunk < SWEEP_CHUNKS && g->failed == 0; chunk++) {
    double *x;
    int64_t n = sweep_chunk(chunk, &x);
    if (s->ck->terminal && chunk % 16 == 0) {
      printf("%s %5.1f%%\r", s->text, 100.0 * chunk / (double)SWEEP_CHUNKS);
      fflush(stdout);
    }
    if (sweep_at(s, g, x, n) == 0) check_targets(g, s, AMBI_F32);
  }
}

static void check_range(sweep *s, group *reference, group *kernels) {
  static const ambi_dtype dtypes[] = {AMBI_F32, AMBI_F16, AMBI_BF16};
  double *x;
  check_slopes(reference, s);
  for (int k = 0; k < 3; k++) {
    int64_t n = sweep_arguments(dtypes[k], &x);
    if (sweep_at(s, reference, x, n)) continue;
    if (k == 0) check_values(reference, s);
    check_targets(&kernels[k], s, dtypes[k]);
  }
  if (s->ck->exhaustive) check_exhaustively(&kernels[0], s);
  sweep_free(s);
}

/* Every value of the op's first enum: its function, or its gate. */
static void check_functions(checker *ck, ambi_kind kind) {
  const ambi_op_info *info = ambi_op_get_info(kind);
  int gated = kind == AMBI_GATED;
  group reference = group_begin(ck, info->name, "f64", "range");
  group kernels[3] = {group_begin(ck, info->name, "f32", "range"), group_begin(ck, info->name, "f16", "range"),
                      group_begin(ck, info->name, "bf16", "range")};
  kernels[0].limit = "4 ulp";
  kernels[1].limit = kernels[2].limit = "1 ulp from the rounded value";
  for (int f = 0; f < (gated ? (int)AMBI_GATES : (int)AMBI_FUNCTIONS); f++) {
    sweep s = {.ck = ck, .op = {.kind = kind}, .function = gated ? gate_function(f) : f};
    s.argument = gated ? AMBI_GATED_G : AMBI_UNARY_X;
    s.result = gated ? AMBI_GATED_Y : AMBI_UNARY_Y;
    if (gated)
      s.op.u.gated.gate = f;
    else
      s.op.u.unary.function = f;
    case_format(&s.op, s.text, sizeof s.text);
    if (is_mine(ck, f)) check_range(&s, &reference, kernels);
  }
  group_end(&reference);
  for (int k = 0; k < 3; k++) group_end(&kernels[k]);
}

/* ---- conversions ---- */
static void check_conversion(group *g, const target *dev, ambi_dtype from, ambi_dtype to, const double *x, int64_t n) {
  exec e = {.op = {.kind = AMBI_CAST}};
  char text[96];
  int64_t i = 0;
  e.op.t[AMBI_CAST_X] = ambi_dense(from, 1, &n);
  e.op.t[AMBI_CAST_Y] = ambi_dense(to, 1, &n);
  e.in[AMBI_CAST_X] = x;
  exec_run(dev, &e);
  case_format(&e.op, text, sizeof text);
  for (; e.status == AMBI_OK && i < n; i++) {
    double want = value_round(to, x[i]), got = e.out[AMBI_CAST_Y][i];
    if (isnan(want) ? !isnan(got) : memcmp(&want, &got, sizeof want) != 0) break;
  }
  if (e.status == AMBI_UNSUPPORTED)
    group_skip(g, e.error);
  else if (e.status != AMBI_OK || e.damage[0])
    group_fail(g, text, e.kernel, "[%s] %s", dev->name, e.status ? e.error : e.damage);
  else if (i < n)
    group_fail(g, text, e.kernel, "[%s] %s %.17g (%a) becomes %s %.17g, expected %.17g", dev->name,
               ambi_dtype_name(from), x[i], x[i], ambi_dtype_name(to), e.out[AMBI_CAST_Y][i], value_round(to, x[i]));
  else
    group_pass(g, 0);
  exec_free(&e);
}

static void check_conversions(checker *ck) {
  static const ambi_dtype floats[] = {AMBI_F32, AMBI_F16, AMBI_BF16, AMBI_F64};
  group g = group_begin(ck, "cast", "all", "range");
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++) {
      if (!is_mine(ck, 4 * from + to)) continue;
      int halved = (floats[to] == AMBI_F16 || floats[to] == AMBI_BF16) && value_unit(floats[from]) < 1e-6;
      double *all, *middle = NULL;
      int64_t n = sweep_arguments(floats[from] == AMBI_F64 ? AMBI_F32 : floats[from], &all);
      int64_t m = halved ? sweep_midpoints(floats[from], floats[to], &middle) : 0;
      for (int i = 0; i < ck->target_count; i++) {
        check_conversion(&g, &ck->targets[i], floats[from], floats[to], all, n);
        if (m) check_conversion(&g, &ck->targets[i], floats[from], floats[to], middle, m);
      }
      free(all);
      free(middle);
    }
  group_end(&g);
}

void check_elementwise(checker *ck, ambi_kind kind) {
  if (kind == AMBI_UNARY || kind == AMBI_GATED) check_functions(ck, kind);
  if (kind == AMBI_CAST) check_conversions(ck);
}
