/* case.c -- one line of text <-> ambi_op, by reflection only. Grammar: case.h. */
#include "case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a bounded text that only ever grows at its end ---- */
typedef struct {
  char *at;
  size_t left;
} text;

static void put(text *t, const char *format, ...) {
  if (t->left == 0) return;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->at, t->left, format, args);
  va_end(args);
  size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
  t->at += used;
  t->left -= used;
}

static text text_of(char *out, size_t n) {
  if (n > 0) out[0] = 0;
  return (text){out, n};
}

/* ---- names ---- */
ambi_kind case_find_op(const char *name) {
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *info = ambi_op_get_info((ambi_kind)k);
    if (info && !strcmp(info->name, name)) return (ambi_kind)k;
  }
  return AMBI_OP_NONE;
}

ambi_dtype case_find_dtype(const char *name) {
  for (int t = AMBI_F32; t <= AMBI_U8; t++)
    if (!strcmp(ambi_dtype_name((ambi_dtype)t), name)) return (ambi_dtype)t;
  return AMBI_NONE;
}

char *case_list_ops(char *out, size_t n) {
  text t = text_of(out, n);
  const char *comma = "";
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *info = ambi_op_get_info((ambi_kind)k);
    if (!info) continue;
    put(&t, "%s%s", comma, info->name);
    comma = ", ";
  }
  return out;
}

char *case_list_names(const ambi_op_info *info, char *out, size_t n) {
  text t = text_of(out, n);
  for (int s = 0; s < info->slots; s++) put(&t, "%s%s", s ? ", " : "", info->slot[s].name);
  for (int a = 0; a < info->attrs; a++) put(&t, "%s%s", a || info->slots ? ", " : "", info->attr[a].name);
  return out;
}

static int find_slot(const ambi_op_info *info, const char *name) {
  for (int s = 0; s < info->slots; s++)
    if (!strcmp(info->slot[s].name, name)) return s;
  return -1;
}

static const ambi_attr_info *find_attr(const ambi_op_info *info, const char *name) {
  for (int a = 0; a < info->attrs; a++)
    if (!strcmp(info->attr[a].name, name)) return &info->attr[a];
  return NULL;
}

static double attr_read(const ambi_op *op, const ambi_attr_info *a) {
  double real;
  int32_t whole;
  if (a->type == AMBI_ATTR_F64) {
    memcpy(&real, (const char *)op + a->offset, sizeof real);
    return real;
  }
  memcpy(&whole, (const char *)op + a->offset, sizeof whole);
  return whole;
}

double case_attr(const ambi_op *op, const char *name) {
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  const ambi_attr_info *a = info ? find_attr(info, name) : NULL;
  return a ? attr_read(op, a) : 0;
}

/* ---- shapes ---- */
void case_set_dense(ambi_tensor *t, ambi_dtype dtype) {
  t->dtype = dtype;
  int64_t stride = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    t->stride[i] = stride;
    if (__builtin_mul_overflow(stride, t->shape[i] > 1 ? t->shape[i] : 1, &stride)) stride = INT64_MAX;
  }
}

int case_is_dense(const ambi_tensor *t) {
  ambi_tensor dense = *t;
  case_set_dense(&dense, t->dtype);
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] > 1 && t->stride[i] != dense.stride[i]) return 0;
  return 1;
}

char *case_format_shape(const ambi_tensor *t, char *out, size_t n) {
  text o = text_of(out, n);
  for (int i = 0; i < t->ndim; i++) put(&o, "%s%lld", i ? "x" : "", (long long)t->shape[i]);
  if (t->ndim == 0) put(&o, "()");
  return out;
}

/* 7x33 or 40,1: up to AMBI_MAX_DIMS whole numbers with a separator between them; how many, -1 when it is no such list.
 */
static int read_list(const char *s, char separator, int64_t *out) {
  for (int n = 0;;) {
    char *end;
    long long v = strtoll(s, &end, 10);
    if (end == s || n == AMBI_MAX_DIMS) return -1;
    out[n++] = v;
    if (*end == 0) return n;
    if (*end != separator) return -1;
    s = end + 1;
  }
}

/* SHAPE[:DTYPE][@STRIDES]; cuts `s` into its parts. */
static int read_tensor(char *s, ambi_dtype dtype, ambi_tensor *t, text *err) {
  char *strides = strchr(s, '@'), *type = strchr(s, ':');
  if (strides) *strides++ = 0;
  if (type) *type++ = 0;
  *t = (ambi_tensor){.dtype = dtype};
  if (type && (t->dtype = case_find_dtype(type)) == AMBI_NONE)
    return put(err, "'%s' is no dtype: one of f32, f16, bf16, f64, i32, i64, u8", type), -1;
  if (strcmp(s, "()")) t->ndim = read_list(s, 'x', t->shape);
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] < 0) t->ndim = -1;
  if (t->ndim < 0) return put(err, "'%s' is no shape: write up to %d extents as 7x33", s, AMBI_MAX_DIMS), -1;
  case_set_dense(t, t->dtype);
  int64_t stride[AMBI_MAX_DIMS] = {0};
  if (strides && read_list(strides, ',', stride) != t->ndim)
    return put(err, "'%s' are no strides for %d axes: write elements as 40,1", strides, t->ndim), -1;
  if (strides) memcpy(t->stride, stride, sizeof stride);
  return 0;
}

/* ---- reading ---- */
static int attr_value(const ambi_attr_info *a, const char *s, double *v, text *err) {
  if (a->type == AMBI_ATTR_ENUM && a->names) {
    for (int i = 0; a->names[i]; i++)
      if (!strcmp(a->names[i], s)) return *v = i, 0;
    put(err, "'%s' is no value of %s: one of", s, a->name);
    for (int i = 0; a->names[i]; i++) put(err, "%s %s", i ? "," : "", a->names[i]);
    return -1;
  }
  if (a->type == AMBI_ATTR_BOOL && (!strcmp(s, "true") || !strcmp(s, "false"))) return *v = *s == 't', 0;
  char *end;
  *v = strtod(s, &end);
  int whole = a->type != AMBI_ATTR_F64;
  if (end == s || *end || (whole && (*v != floor(*v) || fabs(*v) > INT32_MAX)))
    return put(err, "%s wants a %s, not '%s'", a->name, whole ? "whole number" : "number", s), -1;
  return 0;
}

static int set_attr(ambi_op *op, const ambi_attr_info *a, const char *s, text *err) {
  double v = 0;
  if (attr_value(a, s, &v, err)) return -1;
  int32_t whole = (int32_t)(a->type == AMBI_ATTR_F64 ? 0 : v);
  if (a->type == AMBI_ATTR_F64)
    memcpy((char *)op + a->offset, &v, sizeof v);
  else
    memcpy((char *)op + a->offset, &whole, sizeof whole);
  return 0;
}

/* One `name=value` or `name` of the op. */
static int read_word(char *word, ambi_dtype dtype, const ambi_op_info *info, ambi_op *op, text *err) {
  char names[512];
  char *value = strchr(word, '=');
  if (value) *value++ = 0;
  int s = find_slot(info, word);
  const ambi_attr_info *a = s < 0 ? find_attr(info, word) : NULL;
  int d = s < 0 && !a && word[0] == 'd' ? find_slot(info, word + 1) : -1;
  if (s >= 0 && (info->slot[s].flags & AMBI_SLOT_INTEGER)) dtype = AMBI_I32;
  if (s >= 0 && value) return read_tensor(value, dtype, &op->t[s], err);
  if (d >= 0 && value) return read_tensor(value, dtype, &op->grad[d], err);
  if (a && value) return set_attr(op, a, value, err);
  if (s >= 0 && (info->slot[s].flags & AMBI_SLOT_OUTPUT)) return op->want |= AMBI_BIT(s), 0;
  if (d >= 0 && !(info->slot[d].flags & AMBI_SLOT_OUTPUT)) return op->want |= AMBI_BIT(d), 0;
  if (s >= 0 || d >= 0 || a)
    put(err, "%s of %s wants a value: %s=%s", word, info->name, word, a ? "NUMBER" : "7x33");
  else
    put(err, "%s has no '%s': it has %s", info->name, word, case_list_names(info, names, sizeof names));
  return -1;
}

/* The next word of *s, copied into `word`; 0 at the end, -1 when it is too long. */
static int next_word(const char **s, char *word, size_t n) {
  const char *begin = *s + strspn(*s, " \t\r\n");
  size_t length = strcspn(begin, " \t\r\n");
  *s = begin + length;
  if (length >= n) return -1;
  memcpy(word, begin, length);
  word[length] = 0;
  return length > 0;
}

int case_parse(const char *line, ambi_dtype dtype, ambi_op *op, char *err, size_t n) {
  char word[256], names[512];
  text why = text_of(err, n);
  memset(op, 0, sizeof *op);
  int more = next_word(&line, word, sizeof word);
  if (more == 0) return put(&why, "the case is empty: write OP name=value .."), -1;
  op->kind = more > 0 ? case_find_op(word) : AMBI_OP_NONE;
  if (op->kind == AMBI_OP_NONE)
    return put(&why, "there is no op '%.64s': one of %s", word, case_list_ops(names, sizeof names)), -1;
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  while ((more = next_word(&line, word, sizeof word)) > 0)
    if (read_word(word, dtype, info, op, &why)) return -1;
  if (more < 0) put(&why, "a word of the case has more than %zu characters", sizeof word - 1);
  return more;
}

/* ---- writing ---- */
static void put_tensor(text *out, const char *prefix, const char *name, const ambi_tensor *t) {
  char shape[128];
  put(out, " %s%s=%s", prefix, name, case_format_shape(t, shape, sizeof shape));
  if (t->dtype != AMBI_NONE) put(out, ":%s", ambi_dtype_name(t->dtype));
  if (case_is_dense(t)) return;
  for (int i = 0; i < t->ndim; i++) put(out, "%c%lld", i ? ',' : '@', (long long)t->stride[i]);
}

/* Enum values by name, numbers in the fewest digits that read back the same; zero is the default and not said. */
static void put_attr(text *out, const ambi_attr_info *a, double v) {
  int names = 0;
  while (a->type == AMBI_ATTR_ENUM && a->names && a->names[names]) names++;
  if (a->names && v >= 0 && v < names) {
    put(out, " %s=%s", a->name, a->names[(int)v]);
  } else if (v != 0) {
    char digits[32];
    for (int p = 3; p <= 17; p++) {
      snprintf(digits, sizeof digits, "%.*g", p, v);
      if (strtod(digits, NULL) == v) break;
    }
    put(out, " %s=%s", a->name, digits);
  }
}

static int present(const ambi_tensor *t) { return t->dtype != AMBI_NONE || t->ndim > 0; }

ambi_status case_set_pass(ambi_device *dev, ambi_op *op, ambi_pass pass) {
  const uint32_t wanted = op->want;
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  uint32_t outputs = 0;
  for (int i = 0; i < info->slots; i++) outputs |= info->slot[i].flags & AMBI_SLOT_OUTPUT ? AMBI_BIT(i) : 0;
  op->want &= outputs;
  if (pass == AMBI_FORWARD) return AMBI_OK;
  ambi_plan *forward;
  ambi_status status = ambi_plan_create(dev, op, &forward);
  if (status != AMBI_OK) return status;
  for (int i = 0; i < AMBI_MAX_PRIMALS; i++)
    if (op->want & AMBI_BIT(i)) op->t[i] = ambi_plan_tensor(forward, i);
  ambi_plan_destroy(forward);
  op->pass = pass;
  op->want = wanted & ~outputs;
  return AMBI_OK;
}

char *case_format(const ambi_op *op, char *out, size_t n) {
  text o = text_of(out, n);
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  if (!info) return put(&o, "(no op %d)", (int)op->kind), out;
  put(&o, "%s", info->name);
  for (int s = 0; s < info->slots; s++) {
    int output = (info->slot[s].flags & AMBI_SLOT_OUTPUT) != 0;
    if (present(&op->t[s]))
      put_tensor(&o, "", info->slot[s].name, &op->t[s]);
    else if (output && (op->want & AMBI_BIT(s)))
      put(&o, " %s", info->slot[s].name);
    if (present(&op->grad[s])) put_tensor(&o, "d", info->slot[s].name, &op->grad[s]);
  }
  for (int i = 0; i < info->attrs; i++) put_attr(&o, &info->attr[i], attr_read(op, &info->attr[i]));
  return out;
}
