/* tensor.c -- arithmetic on descriptions: sizes, ranges and overlap, with every product checked. */
#include <stdio.h>
#include <string.h>

#include "core/core.h"

static const struct {
  const char *name;
  size_t size;
  bool is_float;
} dtypes[] = {{"none", 0, false}, {"f32", 4, true},  {"f16", 2, true},  {"bf16", 2, true},
              {"f64", 8, true},   {"i32", 4, false}, {"i64", 8, false}, {"u8", 1, false}};

static bool known(ambi_dtype t) { return (unsigned)t < sizeof dtypes / sizeof *dtypes; }
const char *ambi_dtype_name(ambi_dtype t) { return known(t) ? dtypes[t].name : "unknown"; }
size_t ambi_dtype_size(ambi_dtype t) { return known(t) ? dtypes[t].size : 0; }
bool is_float(ambi_dtype t) { return known(t) && dtypes[t].is_float; }

bool mul_overflows(int64_t a, int64_t b, int64_t *out) { return __builtin_mul_overflow(a, b, out) || *out < 0; }

static bool has_axes(const ambi_tensor *t) { return t && t->ndim >= 0 && t->ndim <= AMBI_MAX_DIMS; }

ambi_tensor ambi_dense(ambi_dtype dtype, int32_t ndim, const int64_t *shape) {
  ambi_tensor t = {.dtype = dtype, .ndim = ndim};
  if (!has_axes(&t)) return t;                         /* refused when planned: the rank says why */
  if (ndim && !shape) return (ambi_tensor){.ndim = 0}; /* absent */
  int64_t stride = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    if (shape[i] > 0 && mul_overflows(stride, shape[i], &stride)) stride = INT64_MAX; /* refused when planned */
  }
  return t;
}

ambi_tensor ambi_split(const ambi_tensor *packed, int axis, int half, uint64_t *offset) {
  ambi_tensor t = has_axes(packed) ? *packed : (ambi_tensor){.ndim = 0};
  int64_t size = (int64_t)ambi_dtype_size(t.dtype), skip = 0;
  if (offset) *offset = 0;
  if (axis < 0) axis += t.ndim;
  if (axis < 0 || axis >= t.ndim || size == 0 || t.shape[axis] < 0 || t.shape[axis] % 2)
    return (ambi_tensor){.ndim = 0};
  t.shape[axis] /= 2;
  bool fits = (half == 0 || half == 1) && !__builtin_mul_overflow(t.shape[axis] * half, t.stride[axis], &skip) &&
              !mul_overflows(skip, size, &skip);
  if (!fits) return (ambi_tensor){.ndim = 0}; /* the second half of a line that runs backwards lies before the first */
  if (offset) *offset = (uint64_t)skip;
  return t;
}

int64_t ambi_numel(const ambi_tensor *t) {
  int64_t n = 1;
  bool empty = false;
  if (!has_axes(t)) return -1;
  for (int i = 0; i < t->ndim; i++) empty = empty || t->shape[i] == 0;
  if (empty) return 0;
  for (int i = 0; i < t->ndim; i++)
    if (mul_overflows(n, t->shape[i], &n)) return -1;
  return n;
}

/* The bytes [low, high) that the view touches, counted from its element 0. Strides may be negative. */
bool tensor_range(const ambi_tensor *t, int64_t *low, int64_t *high) {
  int64_t size = (int64_t)ambi_dtype_size(t->dtype), step;
  *low = *high = 0;
  if (ambi_numel(t) == 0) return true;
  for (int i = 0; i < t->ndim; i++) {
    if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &step)) return false;
    if (__builtin_mul_overflow(step, size, &step)) return false;
    int64_t *end = step < 0 ? low : high;
    if (__builtin_add_overflow(*end, step, end)) return false;
  }
  int64_t all;
  return !__builtin_add_overflow(*high, size, high) && !__builtin_sub_overflow(*high, *low, &all);
}

int64_t ambi_span(const ambi_tensor *t) {
  int64_t low, high;
  return ambi_numel(t) >= 0 && tensor_range(t, &low, &high) ? high - low : -1;
}

bool same_shape(const ambi_tensor *a, const ambi_tensor *b) {
  return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

bool same_view(const ambi_tensor *a, const ambi_tensor *b) {
  if (a->dtype != b->dtype || !same_shape(a, b)) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] > 1 && a->stride[i] != b->stride[i]) return false;
  return true;
}

/* Axes longer than 1, by growing |stride|. */
static int sorted_axes(const ambi_tensor *t, int64_t *stride, int64_t *shape) {
  int n = 0;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] <= 1) continue;
    int64_t s = t->stride[i] < 0 ? -t->stride[i] : t->stride[i];
    int k = n++;
    for (; k > 0 && stride[k - 1] > s; k--) stride[k] = stride[k - 1], shape[k] = shape[k - 1];
    stride[k] = s, shape[k] = t->shape[i];
  }
  return n;
}

/* Sufficient for disjoint elements: each axis steps over all that the shorter steps reach. */
bool self_overlaps(const ambi_tensor *t) {
  int64_t stride[AMBI_MAX_DIMS], shape[AMBI_MAX_DIMS], reach = 1;
  if (ambi_numel(t) == 0) return false;
  int n = sorted_axes(t, stride, shape);
  for (int k = 0; k < n; k++) {
    if (stride[k] < reach) return true;
    reach += (shape[k] - 1) * stride[k]; /* cannot overflow: tensor_range was checked */
  }
  return false;
}

/* Where a view's elements lie, seen modulo pitch: from *low, that many. Axes that step by whole pitches do not count.
 */
static int64_t reach_within(const ambi_tensor *t, int64_t pitch, int64_t *low) {
  int64_t high = *low = 0;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] <= 1 || t->stride[i] % pitch == 0) continue;
    *(t->stride[i] < 0 ? low : &high) += (t->shape[i] - 1) * t->stride[i]; /* tensor_range was checked */
  }
  return high - *low + 1;
}

/* Two views interleave without touching when, modulo some pitch, one lies in the gap of the other: the two halves of a
 * packed (M, 2D) tensor; queries, keys and values side by side in a row.                                            */
static bool interleaved(const ambi_tensor *a, const ambi_tensor *b, int64_t distance) {
  int64_t stride[AMBI_MAX_DIMS], shape[AMBI_MAX_DIMS];
  int n = sorted_axes(a, stride, shape);
  for (int k = 0; k < n; k++) {
    int64_t pitch = stride[k], low_a, low_b;
    if (pitch == 0) continue;
    int64_t reach_a = reach_within(a, pitch, &low_a), reach_b = reach_within(b, pitch, &low_b);
    int64_t gap = (distance + low_b - low_a) % pitch;
    if (gap < 0) gap += pitch;
    if (gap >= reach_a && pitch - gap >= reach_b) return true;
  }
  return false;
}

bool views_overlap(const ambi_tensor *a, intptr_t at_a, const ambi_tensor *b, intptr_t at_b) {
  int64_t low_a, high_a, low_b, high_b;
  if (ambi_numel(a) == 0 || ambi_numel(b) == 0) return false;
  if (!tensor_range(a, &low_a, &high_a) || !tensor_range(b, &low_b, &high_b)) return true;
  if (at_a + high_a <= at_b + low_b || at_b + high_b <= at_a + low_a) return false;
  int64_t size = (int64_t)ambi_dtype_size(a->dtype), distance = at_b - at_a;
  return size == 0 || size != (int64_t)ambi_dtype_size(b->dtype) || distance % size != 0 ||
         !interleaved(a, b, distance / size);
}

void shape_text(const ambi_tensor *t, char *out, size_t n) {
  size_t used = (size_t)snprintf(out, n, "(");
  for (int i = 0; i < t->ndim && used < n; i++)
    used += (size_t)snprintf(out + used, n - used, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
  if (used < n) snprintf(out + used, n - used, ")");
}
