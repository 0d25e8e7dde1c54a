/* simd.h -- one vector type, compiled once per instruction set and arithmetic.
 *
 * The build defines AMBI_ISA_<name> and AMBI_REAL (32 or 64). Kernels then see
 *   real   float or double            vr   VL reals in one register
 *   vi     VL integers of that width, also what comparing two vr gives (all ones = true)
 * and write arithmetic with the ordinary operators: y = x * r * (w + offset). The compiler contracts to FMA where the
 * instruction set has it. Everything here is static: no symbol of one instruction set can leak into another.       */
#ifndef AMBI_SIMD_H
#define AMBI_SIMD_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(AMBI_ISA_avx512)
#include <immintrin.h>
#define VBYTES 64
#elif defined(AMBI_ISA_avx2)
#include <immintrin.h>
#define VBYTES 32
#elif defined(AMBI_ISA_neon)
#include <arm_neon.h>
#define VBYTES 16
#elif defined(AMBI_ISA_wasm)
#include <wasm_simd128.h>
#ifdef AMBI_WIDE /* so many registers a vector: see v_now */
#define VBYTES (16 * AMBI_WIDE)
#else
#define VBYTES 16
#define WASM_V128
#endif
#elif defined(__SSE2__)
#include <emmintrin.h>
#define VBYTES 16
#else
#define VBYTES 16
#endif

#if AMBI_REAL == 64
typedef double real;
typedef int64_t ireal; /* an integer as wide as a real */
#else
typedef float real;
typedef int32_t ireal;
#endif
#define VL ((ptrdiff_t)(VBYTES / sizeof(real)))

typedef real vr __attribute__((vector_size(VBYTES)));
typedef ireal vi __attribute__((vector_size(VBYTES)));
typedef vi v_mask; /* what comparing gives: all ones = true */
typedef real vr_loose __attribute__((vector_size(VBYTES), aligned(sizeof(real)), may_alias)); /* unaligned access */
typedef real vr_pairs __attribute__((vector_size(VBYTES), aligned(2), may_alias)); /* of two 16-bit numbers a lane */

#define K(c) v_splat((real)(c)) /* a constant of the formula, in the precision of the kernel */

static inline vr v_splat(real a) { return a - (vr){0}; } /* a - 0 keeps -0 */
static inline vr v_load(const real *p) { return *(const vr_loose *)p; }
static inline vr v_load_pairs(const real *p) { return *(const vr_pairs *)(const void *)p; }
static inline void v_store(real *p, vr v) { *(vr_loose *)p = v; }

/* Loops over registers must be unrolled, or the registers become memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* All ones in the first n lanes, n <= VL */
#if defined(AMBI_ISA_avx2)
static inline vi v_first_lanes(int64_t n) {
  typedef vi vi_loose __attribute__((aligned(sizeof(ireal)), may_alias));
  static const ireal ones[2 * VBYTES / sizeof(ireal)] = {[0 ... VBYTES / sizeof(ireal) - 1] = -1};
  return *(const vi_loose *)(ones + VL - n);
}

/* The first bytes of v, an even number below 32. A store by a mask would take longer, and wait for its line. */
static inline void store_bytes(void *to, __m256i v, int64_t bytes) {
  char *p = to;
  __m128i rest = _mm256_castsi256_si128(v);
  if (bytes & 16) {
    _mm_storeu_si128((__m128i *)(void *)p, rest);
    rest = _mm256_extracti128_si256(v, 1), p += 16;
  }
  if (bytes & 8) {
    _mm_storel_epi64((__m128i *)(void *)p, rest);
    rest = _mm_srli_si128(rest, 8), p += 8;
  }
  const int64_t low = _mm_cvtsi128_si64(rest), high = low >> 32;
  if (bytes & 4) memcpy(p, &low, 4);
  if (bytes & 2) memcpy(p + (bytes & 4), bytes & 4 ? &high : &low, 2);
}
#endif

/* The first n < VL lanes; the others read as zero and are not written. */
#if defined(AMBI_ISA_avx2) && AMBI_REAL == 32
static inline vr v_load_n(const real *p, int64_t n) { return _mm256_maskload_ps(p, (__m256i)v_first_lanes(n)); }
static inline void v_store_n(real *p, vr v, int64_t n) { store_bytes(p, (__m256i)v, n * (int64_t)sizeof(real)); }
#elif defined(AMBI_ISA_avx2)
static inline vr v_load_n(const real *p, int64_t n) { return _mm256_maskload_pd(p, (__m256i)v_first_lanes(n)); }
static inline void v_store_n(real *p, vr v, int64_t n) { store_bytes(p, (__m256i)v, n * (int64_t)sizeof(real)); }
#elif defined(AMBI_ISA_avx512) && AMBI_REAL == 32
static inline vr v_load_n(const real *p, int64_t n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
static inline void v_store_n(real *p, vr v, int64_t n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v); }
#elif defined(AMBI_ISA_avx512)
static inline vr v_load_n(const real *p, int64_t n) { return _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p); }
static inline void v_store_n(real *p, vr v, int64_t n) { _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), v); }
#elif defined(WASM_V128) && defined(AMBI_STEPS) /* engines have no short copies; n <= 0: none, see FOR_REST */
static inline vr v_load_n(const real *p, int64_t n) {
  const v128_t two = n >= 2 ? wasm_v128_load64_zero(p) : n == 1 ? wasm_v128_load32_zero(p) : wasm_f32x4_splat(0);
  return (vr)(n == 3 ? wasm_v128_load32_lane(p + 2, two, 2) : two);
}
static inline void v_store_n(real *p, vr v, int64_t n) {
  if (n >= 2) wasm_v128_store64_lane(p, (v128_t)v, 0);
  if (n == 3) wasm_v128_store32_lane(p + 2, (v128_t)v, 2);
  if (n == 1) wasm_v128_store32_lane(p, (v128_t)v, 0);
}
#else
#if defined(AMBI_COMPACT) || defined(AMBI_WIDE)
#define RARELY static __attribute__((noinline, unused)) /* a call is shorter than what it does */
#else
#define RARELY static inline
#endif
#if defined(AMBI_ISA_wasm) && defined(AMBI_WIDE) /* engines have no short copies: eights, fours, twos and ones */
typedef int64_t two_loose __attribute__((aligned(sizeof(real)), may_alias));
static inline void lanes_copy(real *to, const real *from, int64_t n) {
  UNROLL for (int lanes = VL / 2; lanes >= 1; lanes /= 2) {
    if (!(n & lanes)) continue;
    UNROLL for (int i = 0; i + 4 <= lanes; i += 4) wasm_v128_store(to + i, wasm_v128_load(from + i));
    if (lanes == 2) *(two_loose *)to = *(const two_loose *)from;
    if (lanes == 1) *to = *from;
    to += lanes, from += lanes;
  }
}
#else
static inline void lanes_copy(real *to, const real *from, int64_t n) { memcpy(to, from, (size_t)n * sizeof(real)); }
#endif
RARELY vr v_load_n(const real *p, int64_t n) {
  vr v = {0};
  lanes_copy((real *)&v, p, n);
  return v;
}
RARELY void v_store_n(real *p, vr v, int64_t n) { lanes_copy(p, (const real *)&v, n); }
#endif

#define LANES (VBYTES * 8 / AMBI_REAL) /* VL, for #if */

/* a0 b0 a1 b1 .. from the low (or high) halves of a and b */
#if LANES == 2
#define ZIP_LOW  0, 2
#define ZIP_HIGH 1, 3
#elif LANES == 4
#define ZIP_LOW  0, 4, 1, 5
#define ZIP_HIGH 2, 6, 3, 7
#elif LANES == 8
#define ZIP_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define ZIP_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif

/* Even and odd elements, side by side again. */
static inline void v_zip(vr v[2]) {
#if LANES > 16 /* wide vectors of WebAssembly */
  vr both[2];
  for (int i = 0; i < 2 * LANES; i++) both[i / LANES][i % LANES] = v[i % 2][i / 2];
  memcpy(v, both, sizeof both);
#else
  vr low = __builtin_shufflevector(v[0], v[1], ZIP_LOW);
  v[1] = __builtin_shufflevector(v[0], v[1], ZIP_HIGH);
  v[0] = low;
#endif
}

static inline vi v_bits(vr v) { return (vi)v; }
static inline vr v_from_bits(vi v) { return (vr)v; }
static inline vr v_real(vi v) { return __builtin_convertvector(v, vr); }

/* pick(no, yes, cond): the shared spelling of a lane-wise choice. Both sides are evaluated. */
static inline vr v_select(vi cond, vr yes, vr no) {
#if defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  return _mm256_blendv_ps(no, yes, (__m256)cond);
#elif defined(AMBI_ISA_avx2)
  return _mm256_blendv_pd(no, yes, (__m256d)cond);
#elif defined(WASM_V128)
  return (vr)wasm_v128_bitselect((v128_t)yes, (v128_t)no, (v128_t)cond);
#else
  return (vr)((cond & (vi)yes) | (~cond & (vi)no)); /* AVX-512: the compiler makes masked moves of this */
#endif
}

/* the first n lanes, the others zero or `other` */
static inline vr v_first_or(vr v, int64_t n, real other) {
#if defined(AMBI_ISA_avx2)
  return v_select(v_first_lanes(n), v, v_splat(other));
#else
  vr kept = v_splat(other);
  memcpy(&kept, &v, (size_t)n * sizeof(real));
  return kept;
#endif
}
static inline vr v_first(vr v, int64_t n) { return v_first_or(v, n, 0); }

/* As the comparison says: a NaN in `a` comes through, so clamping keeps NaN. */
static inline vr v_min(vr a, vr limit) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  return _mm512_min_ps(limit, a);
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  return _mm256_min_ps(limit, a);
#elif defined(WASM_V128) && AMBI_REAL == 32
  return (vr)wasm_f32x4_pmin((v128_t)a, (v128_t)limit);
#elif defined(__SSE2__) && AMBI_REAL == 32 && VBYTES == 16
  return _mm_min_ps(limit, a);
#else
  return v_select(limit < a, limit, a);
#endif
}
static inline vr v_max(vr a, vr limit) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  return _mm512_max_ps(limit, a);
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  return _mm256_max_ps(limit, a);
#elif defined(WASM_V128) && AMBI_REAL == 32
  return (vr)wasm_f32x4_pmax((v128_t)a, (v128_t)limit);
#elif defined(__SSE2__) && AMBI_REAL == 32 && VBYTES == 16
  return _mm_max_ps(limit, a);
#else
  return v_select(limit > a, limit, a);
#endif
}

static inline vr v_abs(vr a) { return (vr)((vi)a & (vi) ~(vi)K(-0.0)); }

static inline vr v_sqrt(vr a) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  return _mm512_sqrt_ps(a);
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  return _mm256_sqrt_ps(a);
#elif defined(AMBI_ISA_neon) && AMBI_REAL == 32
  return vsqrtq_f32(a);
#elif defined(WASM_V128) && AMBI_REAL == 32
  return (vr)wasm_f32x4_sqrt((v128_t)a);
#elif defined(__SSE2__) && AMBI_REAL == 32 && VBYTES == 16
  return _mm_sqrt_ps(a);
#else
  for (int i = 0; i < VL; i++) a[i] = (real)sqrt((double)a[i]);
  return a;
#endif
}

/* a / b for b between 2^-100 and 2^100, to about 1.5 ulp: division is slow where vectors are wide. */
static inline vr v_ratio(vr a, vr b) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  vr y = _mm512_rcp14_ps(b);
  return a * (y + y * (1 - b * y)); /* Newton's step: 14 bits become 28 */
#else
  return a / b;
#endif
}

/* The same to about 0.5 ulp, for two steps more: the remainder a - b q is exact. */
static inline vr v_quotient(vr a, vr b) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  const vr y = _mm512_rcp14_ps(b), q = a * y;
  return q + y * (a - b * q);
#else
  return a / b;
#endif
}

/* 1 / b to 2^-14, b likewise. */
static inline vr v_rough_inverse(vr b) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  return _mm512_rcp14_ps(b);
#else
  return K(1.0) / b;
#endif
}

/* a b + c with one rounding, where an error term depends on it (elsewhere the operators are contracted anyway). */
static inline vr v_fma(vr a, vr b, vr c) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  return _mm512_fmadd_ps(a, b, c);
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  return _mm256_fmadd_ps(a, b, c);
#elif defined(AMBI_ISA_neon) && AMBI_REAL == 32
  return vfmaq_f32(c, a, b);
#elif AMBI_REAL == 32
  typedef double vd __attribute__((vector_size(2 * VBYTES))); /* a double holds the product of two floats */
  return __builtin_convertvector(
      __builtin_convertvector(a, vd) * __builtin_convertvector(b, vd) + __builtin_convertvector(c, vd), vr);
#else
  for (int i = 0; i < VL; i++) a[i] = fma(a[i], b[i], c[i]);
  return a;
#endif
}

/* a b + c, rounded once where an instruction does so, in every loop: what compilers contract may differ from one to the
 * next, and which loop an element falls to may depend on where its buffer lies. */
static inline vr v_mul_add(vr a, vr b, vr c) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 64
  return _mm512_fmadd_pd(a, b, c);
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 64
  return _mm256_fmadd_pd(a, b, c);
#elif (defined(AMBI_ISA_avx512) || defined(AMBI_ISA_avx2) || defined(AMBI_ISA_neon)) && AMBI_REAL == 32
  return v_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/* v as it is: a product that is compared with others like it must not be contracted with what is added to it. */
static inline vr v_rounded(vr v) {
#if defined(AMBI_ISA_avx512)
  __asm__("" : "+v"(v));
#elif defined(AMBI_ISA_avx2)
  __asm__("" : "+x"(v));
#elif defined(AMBI_ISA_neon)
  __asm__("" : "+w"(v));
#endif
  return v;
}

#if AMBI_REAL == 32
/* The nearest integer, ties to even; |a| < 2^22. */
static inline vr v_rint(vr a) {
#if defined(AMBI_ISA_avx512)
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(AMBI_ISA_avx2)
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(AMBI_ISA_neon)
  return vrndnq_f32(a);
#elif defined(WASM_V128)
  return (vr)wasm_f32x4_nearest((v128_t)a);
#else
  return (a + K(12582912.0)) - K(12582912.0); /* 1.5 2^23: above it floats are integers */
#endif
}

/* n as an integer, which it is; |n| < 2^22. */
static inline vi v_integer(vr n) {
#if defined(WASM_V128)
  return (vi)(n + K(12582912.0)) - 0x4b400000; /* converting would have to saturate: several instructions */
#else
  return __builtin_convertvector(n, vi);
#endif
}

/* v, computed here and now. Engines of WebAssembly leave a step until something stored needs it: of a wide vector that
 * would be one register's chain of steps after another's, and a processor would wait for most of them. A store that
 * nobody reads, now and then along a chain, keeps the registers side by side. */
#if defined(AMBI_ISA_wasm) && defined(AMBI_WIDE)
static inline vr v_now(vr v) {
  static volatile vr unread __attribute__((unused));
  unread = v;
  return v;
}
#else
static inline vr v_now(vr v) { return v; }
#endif

/* c = 2^n = p q, |n| <= 252: 2^n itself may not exist. a 2^n is v_times(a * c.p, c), rounded once. */
typedef struct {
  vr p, q; /* AVX-512: 1 and n */
} pow2;

#define POW2_BIAS K(12583166.0) /* 1.5 2^23 + 254: above 2^23 floats are integers, so the lowest bits are n + 254 */
static inline pow2 pow2_of(vr sum, vr *n) {
  const vi both = v_bits(sum), half = both >> 1;
  *n = sum - POW2_BIAS;
  return (pow2){v_from_bits(half << 23), v_from_bits((both - half) << 23)}; /* what is above the exponent falls out */
}

static inline pow2 v_pow2(vr a, vr *n) { /* n: the nearest integer to a */
#if defined(AMBI_ISA_avx512)
  *n = v_rint(a);
  return (pow2){K(1.0), *n};
#else
  return pow2_of(v_now(a + POW2_BIAS), n);
#endif
}

/* c = 4^m, m the nearest integer to a, |m| <= 126: p and q are both 2^m, in fewer steps. Not for AVX-512. */
static inline pow2 v_pow4(vr a, vr *m) {
  const vr sum = a + K(12583039.0), p = v_from_bits(v_bits(sum) << 23); /* 1.5 2^23 + 127 */
  *m = sum - K(12583039.0);
  return (pow2){p, p};
}

static inline vr v_times(vr a, pow2 c) {
#if defined(AMBI_ISA_avx512)
  return _mm512_scalef_ps(a, c.q);
#else
  return a * c.q;
#endif
}
#endif

static inline int v_any(vi cond) {
#if defined(AMBI_ISA_avx512)
  return _mm512_test_epi32_mask((__m512i)cond, (__m512i)cond) != 0;
#elif defined(AMBI_ISA_avx2)
  return _mm256_movemask_epi8((__m256i)cond) != 0;
#elif defined(WASM_V128)
  return wasm_v128_any_true((v128_t)cond);
#else
  ireal any = 0;
  for (int i = 0; i < VL; i++) any |= cond[i];
  return any != 0;
#endif
}

/* Sum of all lanes, always in the same order: halves, then halves of halves. */
#if defined(AMBI_ISA_avx512) || defined(AMBI_ISA_avx2)
#if AMBI_REAL == 32
static inline real sum_half(__m256 v) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
#else
static inline real sum_half(__m256d v) {
  __m128d q = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)));
}
#endif
#if defined(AMBI_ISA_avx2)
static inline real v_sum(vr v) { return sum_half(v); }
#elif AMBI_REAL == 32
static inline real v_sum(vr v) { return sum_half(_mm512_castps512_ps256(v) + _mm512_extractf32x8_ps(v, 1)); }
#else
static inline real v_sum(vr v) { return sum_half(_mm512_castpd512_pd256(v) + _mm512_extractf64x4_pd(v, 1)); }
#endif
#else
static inline real v_sum(vr v) {
  real s[VBYTES / sizeof(real)];
  memcpy(s, &v, sizeof s);
  for (int64_t n = VL / 2; n > 0; n /= 2)
    for (int64_t i = 0; i < n; i++) s[i] += s[i + n];
  return s[0];
}
#endif

#endif
