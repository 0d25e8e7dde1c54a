/* convert.h -- one element between its storage type and f32 or f64. To nearest even; NaN stays NaN. No branches, so
 * that compilers turn loops over these into vector code. */
#ifndef AMBI_CONVERT_H
#define AMBI_CONVERT_H
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}
static inline float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline float bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

static inline uint16_t f32_to_bf16(float f) {
  uint32_t u = bits_of(f), rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
  return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/* The 15 low bits shifted into place read as a float 2^112 too small; exponent 31 means inf or NaN. */
static inline float f16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t finite = bits_of(float_of(u) * 0x1p112f), special = u | 0x7f800000;
  return float_of(sign | (u >= (31u << 23) ? special : finite));
}

/* Below 2^-14 the result is a multiple of 2^-24: adding 0.5 rounds to one, since the ulp of 0.5 is 2^-24. */
static inline uint16_t f32_to_f16(float f) {
  uint32_t u = bits_of(f), a = u & 0x7fffffff, sign = (u >> 16) & 0x8000;
  uint32_t tiny = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
  uint32_t normal = (a - (112u << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
  normal = normal > 0x7c00 ? 0x7c00 : normal;
  uint32_t h = a < (113u << 23) ? tiny : normal;
  h = a >= 0x47800000 ? 0x7c00 : h;
  h = a > 0x7f800000 ? 0x7e00 : h;
  return (uint16_t)(sign | h);
}

/* f64 -> f32 rounded to odd: a second rounding, to 16 bits, then gives what rounding once would have. */
static inline float f64_to_odd_f32(double d) {
  float f = (float)d;
  uint32_t u = bits_of(f);
  double back = (double)f;
  if (back == d || d != d || (u & 1)) return f;
  if ((u & 0x7fffffff) == 0x7f800000) return f; /* beyond f32, so beyond f16 and bf16 too */
  return float_of((back < d) == (d > 0) ? u + 1 : u - 1);
}

#endif
