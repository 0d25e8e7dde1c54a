/* lanes.h -- one vector straight from and to memory: reals, or bf16 converted on the way.
 *
 * `left` is how many elements remain: fewer than VL are read (the rest as zero) and written. With `stream` the vector
 * is stored past the cache; the address must then be aligned to the bytes written. */
#ifndef AMBI_LANES_H
#define AMBI_LANES_H
#include "backends/convert.h"
#include "backends/cpu/simd.h"

/* Engines of WebAssembly do not unroll, and each turn of a loop costs them a look at the clock, for which some put all
 * registers aside. */
#if defined(WASM_V128) && !defined(AMBI_PACK_SMALL) && !defined(AMBI_COMPACT) && !defined(AMBI_STEPS)
#define LANES_UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define LANES_UNROLL
#endif

/* A loop over n elements, `step` (a vector, or two) at a time: the body sees the index i and how many elements are
 * `left` to it. Written twice, so that whole steps are handled without asking; once where code is to be small.      */
#if defined(AMBI_COMPACT)
#define FOR_STEPS(step, i, n, ...)                          \
  do                                                        \
    for (int64_t i = 0; i < (n); i += (step)) {             \
      const int64_t left = (n)-i < (step) ? (n)-i : (step); \
      __VA_ARGS__                                           \
    }                                                       \
  while (0)
#else
#define FOR_STEPS(step, i, n, ...)           \
  do {                                       \
    int64_t i = 0;                           \
    LANES_UNROLL                             \
    for (; i + (step) <= (n); i += (step)) { \
      const int64_t left = (step);           \
      __VA_ARGS__                            \
    }                                        \
    if (i < (n)) {                           \
      const int64_t left = (n)-i;            \
      __VA_ARGS__                            \
    }                                        \
  } while (0)
#endif
#define FOR_LANES(i, n, ...) FOR_STEPS(VL, i, n, __VA_ARGS__)

/* FOR_STEPS in turns of `most` steps, for engines that do not unroll: the body moves its pointers to where the `turn`
 * begins and then sees the index i within it, a constant. Such addresses need not be computed. A turn costs stores of
 * its own, as engines put registers aside: turns are long, and what is left is taken in short ones, then singly. */
#ifdef AMBI_STEPS
enum { SHORT_TURN = 8 };
#define TURNS_OF(steps, one, turn, i, n, ...)                               \
  for (; turn + (steps) * (one) <= (ptrdiff_t)(n); turn += (steps) * (one)) \
    UNROLL for (int which = 0; which < (steps); which++) {                  \
      const ptrdiff_t i = which * one;                                      \
      const int64_t left = one;                                             \
      __VA_ARGS__                                                           \
    }
#define FOR_TURNS(most, step, turn, i, n, ...)                                    \
  do {                                                                            \
    const ptrdiff_t one = (ptrdiff_t)(step);                                      \
    ptrdiff_t turn = 0;                                                           \
    TURNS_OF(most, one, turn, i, n, __VA_ARGS__)                                  \
    if ((most) > SHORT_TURN) TURNS_OF(SHORT_TURN, one, turn, i, n, __VA_ARGS__)   \
    for (; turn < (ptrdiff_t)(n); turn += one) {                                  \
      const ptrdiff_t i = 0;                                                      \
      const int64_t left = (ptrdiff_t)(n)-turn < one ? (ptrdiff_t)(n)-turn : one; \
      __VA_ARGS__                                                                 \
    }                                                                             \
  } while (0)
#else
#define FOR_TURNS(most, step, turn, i, n, ...) \
  do {                                         \
    const ptrdiff_t turn = 0;                  \
    FOR_STEPS(step, i, n, __VA_ARGS__);        \
  } while (0)
#endif

/* A statement for each half of a step: one for reals, two for bf16s (see below). */
#define EACH_HALF(halves) UNROLL for (int half = 0; half < (halves); half++)

/* Prefetches what lies a little further along: hardware alone does not keep wide vectors fed from memory. */
enum { AHEAD = 2048 }; /* bytes */
static inline void prefetch_ahead(const void *p) { __builtin_prefetch((const char *)p + AHEAD, 0, 3); }

static inline vr v_get(const real *p, int64_t left) { return left >= VL ? v_load(p) : v_load_n(p, left); }

static inline void v_put(real *p, vr v, int64_t left) {
  if (left >= VL)
    v_store(p, v);
  else
    v_store_n(p, v, left);
}

static inline void v_stream(real *p, vr v) {
#if defined(AMBI_ISA_avx512)
  _mm512_stream_si512((__m512i *)(void *)p, (__m512i)v);
#elif defined(AMBI_ISA_avx2)
  _mm256_stream_si256((__m256i *)(void *)p, (__m256i)v);
#elif defined(__SSE2__)
  _mm_stream_si128((__m128i *)(void *)p, (__m128i)v);
#else
  v_store(p, v);
#endif
}

static inline void v_put_past(real *p, vr v, int64_t left, bool stream) {
  if (stream && left >= VL)
    v_stream(p, v);
  else
    v_put(p, v, left);
}

#if AMBI_REAL == 32
typedef uint32_t vu __attribute__((vector_size(VBYTES)));
typedef uint16_t vh __attribute__((vector_size(VBYTES / 2))); /* VL bf16s */
typedef uint16_t vh_loose __attribute__((vector_size(VBYTES / 2), aligned(2), may_alias));

/* The ends of lines, kept out of the loops so that whole vectors stay in registers. */
static __attribute__((noinline, unused)) vh bf16_load_n(const uint16_t *p, int64_t n) {
  vh h = {0};
  memcpy(&h, p, (size_t)n * sizeof *p);
  return h;
}
static __attribute__((noinline, unused)) void bf16_store_n(uint16_t *p, vh h, int64_t n) {
  memcpy(p, &h, (size_t)n * sizeof *p);
}

static inline vr bf16_get(const uint16_t *p, int64_t left) {
  vh h = left >= VL ? (vh) * (const vh_loose *)p : bf16_load_n(p, left);
#if defined(AMBI_ISA_avx512)
  return (vr)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif defined(AMBI_ISA_avx2)
  return (vr)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
  return (vr)(__builtin_convertvector(h, vu) << 16);
#endif
}

static inline vh bf16_top(vu u) { /* the upper halves */
#if defined(AMBI_ISA_avx512)
  return (vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)u, 16));
#elif defined(AMBI_ISA_avx2)
  __m256i top = _mm256_srli_epi32((__m256i)u, 16), packed = _mm256_packus_epi32(top, top); /* within each half */
  return (vh)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
#else
  return __builtin_convertvector(u >> 16, vh);
#endif
}

static inline vu bf16_rounded(vr v) { return (vu)v + 0x7fff + (((vu)v >> 16) & 1); }

/* With NaNs of any kind: a bit set keeps what is cut off from being all of them. */
static inline vu bf16_rounded_any(vr v) { return (vu)v_select(v != v, (vr)((vu)v | 0x400000), (vr)bf16_rounded(v)); }
static inline vh bf16_of(vr v) { return bf16_top(bf16_rounded_any(v)); }

/* The same for results of arithmetic on bf16s. Their NaNs have 16 low zeros, so rounding cannot carry out of them. */
static inline vh bf16_of_bf16s(vr v) { return bf16_top(bf16_rounded(v)); }

static inline void bf16_store_past(uint16_t *p, vh h, int64_t left, bool stream) {
#if defined(AMBI_ISA_avx512)
  if (stream && left >= VL) {
    _mm256_stream_si256((__m256i *)(void *)p, (__m256i)h);
    return;
  }
#elif defined(AMBI_ISA_avx2)
  if (stream && left >= VL) {
    _mm_stream_si128((__m128i *)(void *)p, (__m128i)h);
    return;
  }
#endif
  (void)stream;
  if (left >= VL)
    *(vh_loose *)p = h;
  else
    bf16_store_n(p, h, left);
}

static inline void bf16_put_past(uint16_t *p, vr v, int64_t left, bool stream) {
  bf16_store_past(p, bf16_of_bf16s(v), left, stream);
}

/* ---- two vectors of bf16s at once ----
 * 2 VL bf16s in a register are VL pairs: half 0 are those of even index, half 1 the others, and each half is one
 * instruction away from being reals. Where the order of elements does not matter, that is the cheapest way.        */
typedef uint32_t vu_loose __attribute__((vector_size(VBYTES), aligned(2), may_alias));

/* a, then b, each in its own order */
static inline void bf16_store_both(uint16_t *p, vr a, vr b, bool stream) {
  vu both;
#if defined(AMBI_ISA_avx2)
  __m256i low = _mm256_srli_epi32((__m256i)bf16_rounded_any(a), 16);
  __m256i high = _mm256_srli_epi32((__m256i)bf16_rounded_any(b), 16);
  both = (vu)_mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8); /* packed within each half */
#else
  vh h[2] = {bf16_of(a), bf16_of(b)};
  memcpy(&both, h, sizeof both);
#endif
  if (stream)
    v_stream((real *)(void *)p, (vr)both);
  else
    *(vu_loose *)p = both;
}

#if defined(AMBI_ISA_avx512)
static inline vu pairs_load_n(const uint16_t *p, int64_t n) {
  return (vu)_mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p);
}
static inline void pairs_store_n(uint16_t *p, vu v, int64_t n) {
  _mm512_mask_storeu_epi16(p, (__mmask32)((1u << n) - 1), (__m512i)v);
}
#elif defined(AMBI_ISA_avx2) /* whole pairs by a mask, then half of one */
static inline vu pairs_load_n(const uint16_t *p, int64_t n) {
  const vi whole = v_first_lanes(n / 2);
  const vu pairs = (vu)_mm256_maskload_epi32((const int *)(const void *)p, (__m256i)whole);
  return n % 2 ? pairs | ((vu)(v_first_lanes(n / 2 + 1) & ~whole) & p[n - 1]) : pairs;
}
static inline void pairs_store_n(uint16_t *p, vu v, int64_t n) { store_bytes(p, (__m256i)v, n * (int64_t)sizeof *p); }
#else
static __attribute__((noinline, unused)) vu pairs_load_n(const uint16_t *p, int64_t n) {
  vu v = {0};
  memcpy(&v, p, (size_t)n * sizeof *p);
  return v;
}
static __attribute__((noinline, unused)) void pairs_store_n(uint16_t *p, vu v, int64_t n) {
  memcpy(p, &v, (size_t)n * sizeof *p);
}
#endif

static inline vr bf16_half(const uint16_t *p, int half, int64_t left) {
  vu pairs = left >= 2 * VL ? (vu) * (const vu_loose *)p : pairs_load_n(p, left);
  return (vr)(half ? pairs & 0xffff0000 : pairs << 16);
}

/* v rounded to bf16, as reals; of results of arithmetic on bf16s. */
static inline vr bf16_round(vr v) { return (vr)(bf16_rounded(v) & 0xffff0000); }

/* Both halves rounded. AVX2 rounds them together, in 16 bits: what low + 0x7fff + (the last bit of high) carries is on
 * top of the mean of low and the rest. */
static inline vu bf16_pairs(vr even, vr odd) {
#if defined(AMBI_ISA_avx2)
  const __m256i a = (__m256i)even, b = (__m256i)odd;
  const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
  const __m256i low = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
  const __m256i last = _mm256_and_si256(high, _mm256_set1_epi16(1));
  const __m256i mean = _mm256_avg_epu16(low, _mm256_or_si256(last, _mm256_set1_epi16(0x7ffe)));
  return (vu)_mm256_add_epi16(high, _mm256_srli_epi16(mean, 15));
#else
  return (bf16_rounded(even) >> 16) | (bf16_rounded(odd) & 0xffff0000);
#endif
}

static inline void bf16_put_halves(uint16_t *p, const vr v[2], int64_t left, bool stream) {
  vu pairs = bf16_pairs(v[0], v[1]);
  if (stream && left >= 2 * VL)
    v_stream((real *)(void *)p, (vr)pairs);
  else if (left >= 2 * VL)
    *(vu_loose *)p = pairs;
  else
    pairs_store_n(p, pairs, left);
}
#endif

#endif
