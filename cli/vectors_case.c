/* vectors_case.c -- results are counted and printed here, and a case is read: names to slots, attributes to words. */
#define _POSIX_C_SOURCE 200809L
#include "vectors_case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "case.h"
#include "values.h"

/* ---- results ---- */

void vectors_failure(const vectors_job *j, const char *c, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  printf("vectors: FAILED %s: ", c);
  vprintf(format, ap);
  printf("\n");
  va_end(ap);
  j->result->failed++;
}

double vectors_norm(const double *v, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
  return sqrt(sum);
}

/* || got - want ||; where the value overflows the dtype, an infinity of the right sign is exact. */
double vectors_distance(ambi_dtype t, const double *got, const double *want, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = got[i] - want[i], beyond = want[i] * (1 + 2 * value_unit(t));
    if (isinf(got[i]) && value_round(t, beyond) == got[i]) continue;
    sum += d * d;
  }
  return sqrt(sum); /* NaN and stray infinities stay visible */
}

void vectors_compare(const vectors_job *j, const char *c, const char *what, ambi_dtype t, const double *got,
                     const double *want, int64_t n, double bar) {
  double d = vectors_distance(t, got, want, n), size = vectors_norm(want, n);
  int ok = d <= bar;
  if (ok) j->result->passed++;
  if (ok && j->verbose) printf("vectors: ok %s %s: off by %.2g of %.2g allowed, norm %.3g\n", c, what, d, bar, size);
  if (!ok) vectors_failure(j, c, "%s: off by %.3g, allowed %.3g, norm %.3g (%s)", what, d, bar, size, j->dev->name);
}

/* ---- reading a case ---- */

static double element(const safetensors_tensor *t, int64_t i) {
  static const struct {
    const char *name;
    ambi_dtype dtype;
  } dtypes[] = {{"F64", AMBI_F64},   {"F32", AMBI_F32}, {"F16", AMBI_F16},
                {"BF16", AMBI_BF16}, {"I64", AMBI_I64}, {"I32", AMBI_I32}};
  for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
    unsigned char raw[8];
    size_t size = ambi_dtype_size(dtypes[k].dtype);
    if (strcmp(dtypes[k].name, t->dtype) != 0) continue;
    memcpy(raw, (const unsigned char *)t->data + (size_t)i * size, size);
    return value_decode(dtypes[k].dtype, raw);
  }
  return NAN; /* compares unequal to everything */
}

double *vectors_tensor(const vectors_job *j, const char *c, const char *name, ambi_tensor *shape) {
  char key[200];
  snprintf(key, sizeof key, "%s/%s", c, name);
  const safetensors_tensor *t = safetensors_find(j->file, key);
  if (!t) return vectors_failure(j, c, "the file has no tensor %s", key), NULL;
  double *v = values_new(t->count);
  for (int64_t i = 0; i < t->count; i++) v[i] = element(t, i);
  if (shape) {
    *shape = ambi_dense(AMBI_F64, t->ndim, t->shape);
    if (t->dtype[0] == 'I') shape->dtype = strcmp(t->dtype, "I32") ? AMBI_I64 : AMBI_I32;
  }
  return v;
}

/* The slot a name of the file means: a trailing underscore and the letters' case do not count. */
static int find_slot(const ambi_op_info *op, const char *name) {
  size_t n = strlen(name);
  if (n > 1 && name[n - 1] == '_') n--;
  for (int s = 0; s < op->slots; s++) {
    if (strlen(op->slot[s].name) == n && strncasecmp(op->slot[s].name, name, n) == 0) return s;
  }
  return -1;
}

static void append(vectors_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(vectors_case *c, const char *format, ...) {
  size_t used = strlen(c->text);
  va_list ap;
  va_start(ap, format);
  vsnprintf(c->text + used, sizeof c->text - used, format, ap);
  va_end(ap);
}

/* Attributes as words of the case language. "layout" only says the order of the axes, which the shapes say too. */
static void append_attrs(vectors_case *c, const json_value *attrs) {
  for (const json_value *a = attrs ? attrs->child : NULL; a; a = a->next) {
    if (strcmp(a->key, "layout") == 0) continue;
    if (a->type == JSON_STRING) append(c, " %s=%s", a->key, a->text);
    if (a->type == JSON_BOOL) append(c, " %s=%s", a->key, a->integer ? "true" : "false");
    if (a->type == JSON_NUMBER) append(c, " %s=%.17g", a->key, a->number);
  }
}

/* Reads `prefix`name for every name of the list into c->v[offset + slot], and adds the slots to *mask. */
static int read_list(const vectors_job *j, vectors_case *c, const ambi_op_info *op, const json_value *names,
                     const char *prefix, int offset, uint32_t *mask, ambi_tensor *shapes) {
  for (const json_value *n = names ? names->child : NULL; n; n = n->next) {
    const char *name = json_text(n);
    int s = name ? find_slot(op, name) : -1;
    if (s < 0) return vectors_failure(j, c->name, "%s has no slot '%s'", op->name, name ? name : "?"), -1;
    char full[120];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    c->v[offset + s] = vectors_tensor(j, c->name, full, &shapes[offset + s]);
    if (!c->v[offset + s]) return -1;
    c->n[offset + s] = ambi_numel(&shapes[offset + s]);
    *mask |= AMBI_BIT(s);
  }
  return 0;
}

int vectors_read(const vectors_job *j, const json_value *json, const ambi_op_info *op, vectors_case *c) {
  ambi_tensor shapes[AMBI_SLOTS] = {{0}};
  const json_value *outputs = json_get(json, "outputs");
  uint32_t arriving = 0;
  if (read_list(j, c, op, json_get(json, "inputs"), "", 0, &c->in, shapes) ||
      read_list(j, c, op, outputs, "", 0, &c->out, shapes) ||
      read_list(j, c, op, outputs, "grad_", AMBI_MAX_PRIMALS, &arriving, shapes) ||
      read_list(j, c, op, json_get(json, "gradients"), "grad_", AMBI_MAX_PRIMALS, &c->gradient, shapes))
    return -1;
  append(c, "%s", op->name);
  for (int s = 0; s < op->slots; s++) {
    char shape[120];
    if (c->out & AMBI_BIT(s) && c->n[s] != c->n[AMBI_GRAD(s)])
      return vectors_failure(j, c->name, "%s and its gradient differ in size", op->slot[s].name), -1;
    if (c->in & AMBI_BIT(s)) append(c, " %s=%s", op->slot[s].name, case_format_shape(&shapes[s], shape, sizeof shape));
    if (c->in & AMBI_BIT(s) && !value_is_float(shapes[s].dtype)) append(c, ":%s", ambi_dtype_name(shapes[s].dtype));
    if (c->out & AMBI_BIT(s)) append(c, " %s", op->slot[s].name);
  }
  append_attrs(c, json_get(json, "attrs"));
  char why[300];
  if (case_parse(c->text, AMBI_F64, &c->op, why, sizeof why)) return vectors_failure(j, c->name, "%s", why), -1;
  for (int s = 0; s < op->slots; s++) { /* gradients that arrive on optional outputs */
    if (c->out & AMBI_BIT(s) && op->slot[s].flags & AMBI_SLOT_OPTIONAL) c->op.grad[s] = shapes[AMBI_GRAD(s)];
  }
  return 0;
}
