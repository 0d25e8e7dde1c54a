/* vectors_adamw.c -- the case adamw_clip: four steps of AdamW with clipped gradients, each by grad_norm, then adamw.
 *
 * In f64 the file's norms and parameters must come out, to 1e-11. Otherwise p, m and v are f32, gradients are rounded
 * to the dtype, and the reference device makes the same steps in f64 from what was rounded. A step rounds p twice
 * (decay, update): 2 u || p ||. The update's own error: m / sqrt(v) is of size 1 and comes of fewer than 32 roundings,
 * so 32 u lr sqrt(n). After i steps, i times both. The norm is a sum of squares, which cannot cancel: 16 u. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "values.h"
#include "vectors_case.h"

typedef struct {
  const target *on;
  ambi_dtype state, gradient; /* of p, m, v; of g */
  int64_t n;
  double *p, *m, *v, lr, step, norm;
} optimizer;

static double number(const json_value *attrs, const char *key) {
  const json_value *v = json_get(attrs, key);
  return v && v->type == JSON_NUMBER ? v->number : NAN;
}

/* One value, of as many axes as the op says. */
static ambi_tensor scalar(ambi_kind kind, int slot, ambi_dtype dtype) {
  const int64_t one = 1;
  return ambi_dense(dtype, strchr(ambi_op_get_info(kind)->slot[slot].shape, '1') ? 1 : 0, &one);
}

static int run(const vectors_job *j, const char *c, const target *t, exec *e) {
  exec_run(t, e);
  if (e->status == AMBI_OK && !e->damage[0]) return 1;
  vectors_failure(j, c, "%s: %s", t->name, e->status == AMBI_OK ? e->damage : e->error);
  return 0;
}

/* norm = || g ||, *scale = min(1, max_norm / norm), *type its dtype. */
static int clip(const vectors_job *j, const char *c, optimizer *o, const double *g, double max_norm, double *scale,
                ambi_dtype *type) {
  exec e = {.op = {.kind = AMBI_GRAD_NORM}};
  e.op.t[AMBI_GRAD_NORM_G] = ambi_dense(o->gradient, 1, &o->n);
  e.op.want = AMBI_BIT(AMBI_GRAD_NORM_NORM) | AMBI_BIT(AMBI_GRAD_NORM_SCALE);
  e.op.u.grad_norm.max_norm = max_norm;
  e.in[AMBI_GRAD_NORM_G] = g;
  int ok = run(j, c, o->on, &e);
  if (ok) {
    o->norm = e.out[AMBI_GRAD_NORM_NORM][0];
    *scale = e.out[AMBI_GRAD_NORM_SCALE][0];
    *type = e.t[AMBI_GRAD_NORM_SCALE].dtype;
  }
  exec_free(&e);
  return ok;
}

static int step(const vectors_job *j, const char *c, optimizer *o, const double *g, double scale, ambi_dtype scale_type,
                const json_value *attrs) {
  exec e = {.op = {.kind = AMBI_ADAMW}};
  const double *vectors[] = {o->p, g, o->m, o->v}, *scalars[] = {&o->lr, &o->step, &scale};
  const ambi_dtype types[] = {o->state, AMBI_I64, scale_type};
  for (int i = 0; i < 4; i++) { /* p, g, m, v */
    e.op.t[AMBI_ADAMW_P + i] = ambi_dense(i == 1 ? o->gradient : o->state, 1, &o->n);
    e.in[AMBI_ADAMW_P + i] = vectors[i];
  }
  for (int i = 0; i < 3; i++) { /* lr, step, scale */
    e.op.t[AMBI_ADAMW_LR + i] = scalar(AMBI_ADAMW, AMBI_ADAMW_LR + i, types[i]);
    e.in[AMBI_ADAMW_LR + i] = scalars[i];
  }
  e.op.want = AMBI_BIT(AMBI_ADAMW_STEP_OUT);
  e.op.u.adamw.beta1 = number(attrs, "beta1");
  e.op.u.adamw.beta2 = number(attrs, "beta2");
  e.op.u.adamw.eps = number(attrs, "eps");
  e.op.u.adamw.weight_decay = number(attrs, "weight_decay");
  int ok = run(j, c, o->on, &e);
  if (ok) {
    size_t bytes = (size_t)o->n * sizeof(double);
    memcpy(o->p, e.out[AMBI_ADAMW_P_OUT], bytes);
    memcpy(o->m, e.out[AMBI_ADAMW_M_OUT], bytes);
    memcpy(o->v, e.out[AMBI_ADAMW_V_OUT], bytes);
    o->step = e.out[AMBI_ADAMW_STEP_OUT][0];
  }
  exec_free(&e);
  return ok;
}

static optimizer start(const target *on, ambi_dtype state, ambi_dtype gradient, const double *p0, int64_t n,
                       double lr) {
  optimizer o = {.on = on, .state = state, .gradient = gradient, .n = n, .lr = lr};
  o.p = values_new(n);
  o.m = values_new(n);
  o.v = values_new(n);
  memcpy(o.p, p0, (size_t)n * sizeof(double));
  return o;
}

static void stop(optimizer *o) {
  free(o->p);
  free(o->m);
  free(o->v);
}

static double nth(const json_value *list, int i) {
  const json_value *v = list && list->type == JSON_ARRAY ? list->child : NULL;
  while (v && i-- > 0) v = v->next;
  return v ? v->number : NAN;
}

/* torch clips by max_norm / (norm + 1e-6), grad_norm by max_norm / norm: what makes the second the first. */
static double max_norm_of(const json_value *attrs, int i) {
  double norm = nth(json_get(attrs, "norms"), i);
  return number(attrs, "max_norm") * norm / (norm + 1e-6);
}

/* The i-th step of both, from gradient i of the file. */
static int advance(const vectors_job *j, const char *c, const json_value *attrs, optimizer *dev, optimizer *ref,
                   int i) {
  char name[32];
  ambi_tensor shape;
  snprintf(name, sizeof name, "grad_%d", i);
  double *g = vectors_tensor(j, c, name, &shape);
  int ok = g && ambi_numel(&shape) == dev->n;
  if (g && !ok) vectors_failure(j, c, "%s has another size than p0", name);
  for (int64_t k = 0; k < dev->n && ok; k++) g[k] = value_round(dev->gradient, g[k]);
  optimizer *const both[] = {dev, ref};
  for (int b = 0; b < 2 && ok; b++) {
    double scale = 1;
    ambi_dtype type = AMBI_F32;
    ok = clip(j, c, both[b], g, max_norm_of(attrs, i), &scale, &type) && step(j, c, both[b], g, scale, type, attrs);
  }
  free(g);
  return ok;
}

/* p and the norm after step i, against the file (f64) or the reference. */
static int compare(const vectors_job *j, const char *c, const json_value *attrs, const optimizer *dev,
                   const optimizer *ref, int i) {
  char name[32], what[64];
  int exact = dev->state == AMBI_F64;
  double u = value_unit(AMBI_F32), norm = exact ? nth(json_get(attrs, "norms"), i) : ref->norm;
  double norm_bar = (exact ? 1e-11 : 16 * u) * norm;
  snprintf(name, sizeof name, "p%d", i + 1);
  snprintf(what, sizeof what, "%s norm of step %d", ambi_dtype_name(dev->gradient), i + 1);
  vectors_compare(j, c, what, dev->state, &dev->norm, &norm, 1, norm_bar);
  ambi_tensor shape;
  double *file = vectors_tensor(j, c, name, &shape);
  int ok = file && ambi_numel(&shape) == dev->n;
  if (file && !ok) vectors_failure(j, c, "%s has another size than p0", name);
  if (ok) {
    const double *want = exact ? file : ref->p;
    double size = vectors_norm(want, dev->n), steps = i + 1;
    double narrow = steps * (2 * u * size + 32 * u * dev->lr * sqrt((double)dev->n));
    snprintf(what, sizeof what, "%s %s", ambi_dtype_name(dev->gradient), name);
    vectors_compare(j, c, what, dev->state, dev->p, want, dev->n, exact ? 1e-11 * size : narrow);
  }
  free(file);
  return ok;
}

void vectors_adamw(const vectors_job *j, const char *c, const json_value *attrs) {
  static const ambi_dtype dtypes[] = {AMBI_F64, AMBI_F32, AMBI_F16, AMBI_BF16};
  if (!ambi_op_get_info(AMBI_GRAD_NORM)) {
    printf("vectors: skipped %s: there is no op grad_norm\n", c);
    j->result->skipped++;
    return;
  }
  ambi_tensor shape;
  double *p0 = vectors_tensor(j, c, "p0", &shape), steps = number(attrs, "steps");
  if (!(steps >= 1)) vectors_failure(j, c, "ops.json does not say how many steps");
  for (int d = 0; p0 && steps >= 1 && d < 4; d++) {
    ambi_dtype state = dtypes[d] == AMBI_F64 ? AMBI_F64 : AMBI_F32;
    int64_t n = ambi_numel(&shape);
    if (state == AMBI_F32) {
      for (int64_t k = 0; k < n; k++) p0[k] = value_round(AMBI_F32, p0[k]);
    }
    optimizer dev = start(j->dev, state, dtypes[d], p0, n, number(attrs, "lr"));
    optimizer ref = start(j->ref, AMBI_F64, AMBI_F64, p0, n, dev.lr);
    if (state == AMBI_F32) dev.lr = ref.lr = value_round(AMBI_F32, dev.lr);
    for (int i = 0; i < steps && advance(j, c, attrs, &dev, &ref, i) && compare(j, c, attrs, &dev, &ref, i); i++)
      continue;
    stop(&dev);
    stop(&ref);
  }
  free(p0);
}
