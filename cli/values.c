/* values.c -- random numbers, dtypes and strided views, from their definitions. */
#include "values.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers: splitmix64 ---- */
uint64_t rng_next(rng *r) {
  uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

double rng_uniform(rng *r, double low, double high) {
  return low + (high - low) * ((double)(rng_next(r) >> 11) * 0x1p-53);
}

/* A sum of twelve uniforms: mean 0, variance 1, within +-6, and no libm, so the same bits everywhere. Sixteen bits each
 * are enough, with a last one that fills the digits below. */
double rng_normal(rng *r) {
  double sum = rng_uniform(r, 0, 0x1p-16) - 6;
  for (int i = 0; i < 3; i++) {
    uint64_t z = rng_next(r);
    sum += (double)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) * 0x1p-16;
  }
  return sum;
}

/* ---- dtypes: significant bits, exponent of the smallest denormal, exponent past the largest value -- ---- */
typedef struct {
  int bits, low, high;
} format;

static format format_of(ambi_dtype t) {
  static const format formats[] = {[AMBI_F32] = {24, -149, 128},
                                   [AMBI_F16] = {11, -24, 16},
                                   [AMBI_BF16] = {8, -133, 128},
                                   [AMBI_F64] = {53, -1074, 1024},
                                   [AMBI_U8] = {0, 0, 0}};
  return formats[t];
}

static uint64_t bits_of(double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

/* e of |v| in [2^(e-1), 2^e), as frexp; only for normal v. */
static int exponent_of(double v) { return (int)(bits_of(v) >> 52 & 0x7ff) - 1022; }

/* 2^e, as ldexp(1, e). */
static double power_of_two(int e) {
  uint64_t bits = (uint64_t)(e + 1023) << 52;
  double v;
  if (e < -1022 || e > 1023) return ldexp(1, e);
  memcpy(&v, &bits, sizeof v);
  return v;
}

int value_is_float(ambi_dtype t) { return format_of(t).bits > 0; }
double value_unit(ambi_dtype t) { return value_is_float(t) ? power_of_two(-format_of(t).bits) : 0; }
double value_tiny(ambi_dtype t) { return value_is_float(t) ? power_of_two(format_of(t).low - 1) : 0; }

double value_max(ambi_dtype t) {
  static const double whole[] = {[AMBI_I32] = 2147483647.0, [AMBI_I64] = 9223372036854774784.0, [AMBI_U8] = 255};
  format f = format_of(t);
  return f.bits ? (2 - power_of_two(1 - f.bits)) * power_of_two(f.high - 1) : whole[t];
}

double value_ulp(ambi_dtype t, double v) {
  format f = format_of(t);
  int e = fabs(v) >= DBL_MIN && isfinite(v) ? exponent_of(v) : isfinite(v) ? f.low : f.high;
  if (e > f.high) e = f.high;
  return power_of_two(e - f.bits > f.low ? e - f.bits : f.low);
}

double value_round(ambi_dtype t, double v) {
  format f = format_of(t);
  if (t == AMBI_F64 || (f.bits && (!isfinite(v) || v == 0))) return v;
  if (t == AMBI_F32) return (float)v; /* C rounds to nearest even */
  if (!f.bits) {
    double low = t == AMBI_U8 ? 0 : t == AMBI_I32 ? -2147483648.0 : -9223372036854775808.0;
    return isnan(v) ? 0 : v < low ? low : v > value_max(t) ? value_max(t) : nearbyint(v);
  }
  double ulp = value_ulp(t, v), r = nearbyint(v / ulp) * ulp; /* ulp is a power of two: both exact but for nearbyint */
  return fabs(r) > value_max(t) ? copysign(INFINITY, v) : r;
}

static uint16_t encode_f16(double v) {
  unsigned sign = signbit(v) ? 0x8000u : 0;
  if (isnan(v)) return (uint16_t)(sign | 0x7e00u);
  double r = fabs(value_round(AMBI_F16, v));
  if (isinf(r)) return (uint16_t)(sign | 0x7c00u);
  if (r < 0x1p-14) return (uint16_t)(sign | (unsigned)(r * 0x1p24)); /* denormals count in units of 2^-24 */
  int e = exponent_of(r); /* biased e + 14; ten bits below the leading one, which falls off */
  return (uint16_t)(sign | ((unsigned)(e + 14) << 10) | ((unsigned)(r * power_of_two(11 - e)) & 0x3ffu));
}

static double decode_f16(uint16_t h) {
  int e = h >> 10 & 31, m = h & 0x3ff;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? (m + 1024) * power_of_two(e - 25) : m * 0x1p-24;
  return h & 0x8000 ? -v : v;
}

/* bf16 is the upper half of an f32. */
static uint16_t encode_bf16(double v) {
  float f = isnan(v) ? (float)v : (float)value_round(AMBI_BF16, v);
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (uint16_t)(bits >> 16 | (isnan(v) ? 0x40u : 0));
}

static double decode_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

void value_encode(ambi_dtype t, double v, void *at) {
  switch (t) {
    case AMBI_F32:
      memcpy(at, &(float){(float)v}, 4);
      break;
    case AMBI_F16:
      memcpy(at, &(uint16_t){encode_f16(v)}, 2);
      break;
    case AMBI_BF16:
      memcpy(at, &(uint16_t){encode_bf16(v)}, 2);
      break;
    case AMBI_F64:
      memcpy(at, &v, 8);
      break;
    case AMBI_I32:
      memcpy(at, &(int32_t){(int32_t)value_round(t, v)}, 4);
      break;
    case AMBI_I64:
      memcpy(at, &(int64_t){(int64_t)value_round(t, v)}, 8);
      break;
    case AMBI_U8:
      *(uint8_t *)at = (uint8_t)value_round(t, v);
      break;
    case AMBI_NONE:
      break;
  }
}

double value_decode(ambi_dtype t, const void *at) {
  float f32 = 0;
  double f64 = NAN;
  uint16_t half = 0;
  int32_t i32 = 0;
  int64_t i64 = 0;
  switch (t) {
    case AMBI_F32:
      return memcpy(&f32, at, 4), f32;
    case AMBI_F16:
      return memcpy(&half, at, 2), decode_f16(half);
    case AMBI_BF16:
      return memcpy(&half, at, 2), decode_bf16(half);
    case AMBI_F64:
      return memcpy(&f64, at, 8), f64;
    case AMBI_I32:
      return memcpy(&i32, at, 4), i32;
    case AMBI_I64:
      return memcpy(&i64, at, 8), (double)i64;
    case AMBI_U8:
      return *(const uint8_t *)at;
    case AMBI_NONE:
      break;
  }
  return NAN;
}

/* ---- views ---- */
void values_each(const ambi_tensor *t, values_run *f, void *context) {
  int64_t at[AMBI_MAX_DIMS] = {0}, offset = 0, n = ambi_numel(t), size = (int64_t)ambi_dtype_size(t->dtype);
  int last = t->ndim - 1;
  int64_t count = t->ndim ? t->shape[last] : 1, step = t->ndim ? t->stride[last] * size : size;
  for (int64_t i = 0; i < n; i += count) {
    f(context, i, offset * size, count, step);
    for (int a = last - 1; a >= 0; a--) {
      offset += t->stride[a];
      if (++at[a] < t->shape[a]) break;
      offset -= t->stride[a] * t->shape[a];
      at[a] = 0;
    }
  }
}

typedef struct {
  ambi_dtype dtype;
  const double *from;
  double *to;
  char *at;
} transfer;

static void load_run(void *context, int64_t index, int64_t offset, int64_t count, int64_t step) {
  const transfer *x = context;
  for (int64_t i = 0; i < count; i++) value_encode(x->dtype, x->from[index + i], x->at + offset + i * step);
}

static void store_run(void *context, int64_t index, int64_t offset, int64_t count, int64_t step) {
  const transfer *x = context;
  for (int64_t i = 0; i < count; i++) x->to[index + i] = value_decode(x->dtype, x->at + offset + i * step);
}

void values_load(const ambi_tensor *t, const double *v, void *at) {
  values_each(t, load_run, &(transfer){.dtype = t->dtype, .from = v, .at = at});
}

void values_store(const ambi_tensor *t, const void *at, double *v) {
  values_each(t, store_run, &(transfer){.dtype = t->dtype, .to = v, .at = (char *)(uintptr_t)at});
}

int64_t values_origin(const ambi_tensor *t) {
  int64_t low = 0;
  for (int a = 0; a < t->ndim; a++)
    if (t->stride[a] < 0 && t->shape[a] > 1) low -= t->stride[a] * (t->shape[a] - 1);
  return low * (int64_t)ambi_dtype_size(t->dtype);
}

int values_overlap(const ambi_tensor *t) { return ambi_span(t) / (int64_t)ambi_dtype_size(t->dtype) < ambi_numel(t); }

double *values_new(int64_t n) {
  double *v = calloc(n > 0 ? (size_t)n : 1, sizeof *v);
  if (v) return v;
  fprintf(stderr, "ambi: no memory for %lld values\n", (long long)n);
  exit(2);
}
