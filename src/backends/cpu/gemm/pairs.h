/* pairs.h -- panels of bf16 for dot-product instructions: two neighbours along k share a 32-bit word, the first of them
 * in the low half. Pairs travel in vectors of 32-bit lanes; nothing is converted.                                   */
#ifndef AMBI_CPU_PAIRS_H
#define AMBI_CPU_PAIRS_H
#include "backends/cpu/gemm.h"
#include "backends/cpu/gemm/transpose.h"

enum { PAIRS = 16, PAIRS_K = 2 * PAIRS }; /* panels are padded with zeros to this many */
_Static_assert(LANES == PAIRS, "pairs fill vectors of 512 bits");

static inline const uint16_t *bf16_at(const gemm_piece *s, int64_t w, int64_t k) {
  return (const uint16_t *)s->data + s->at_w[w] + s->at_k[k];
}

/* out[i] = (k0 + 2i, k0 + 2i + 1) of row w, for n k's, then zeros to a multiple of PAIRS */
static inline void pairs_along_k(const gemm_piece *s, int64_t w, int64_t k0, int64_t n, real *out) {
  int64_t padded = ceil_div(n, PAIRS_K) * PAIRS_K;
  uint16_t *half = (uint16_t *)(void *)out;
  if (w >= s->nw) n = 0;
  if (n < padded) memset(half + n, 0, (size_t)(padded - n) * sizeof *half);
  if (s->step_k == 1 && n > 0)
    memcpy(half, bf16_at(s, w, k0), (size_t)n * sizeof *half);
  else
    for (int64_t k = 0; k < n; k++) memcpy(half + k, bf16_at(s, w, k0 + k), sizeof *half);
}

/* out[w] = (low[w], high[w]), vectors at a time */
static inline void pairs_of_lines(const uint16_t *low, const uint16_t *high, int64_t width, real *out) {
  for (int64_t w = 0; w < width; w += PAIRS) {
    const __m512i l = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(low + w)));
    const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(high + w)));
    _mm512_storeu_si512(out + w, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
  }
}

/* out[w] = (k, k + 1) of row w, zero outside the piece */
static inline void pairs_along_w(const gemm_piece *s, int64_t k, int64_t width, real *out) {
  const uint16_t *low = k < s->nk ? bf16_at(s, 0, k) : NULL, *high = k + 1 < s->nk ? bf16_at(s, 0, k + 1) : NULL;
  if (s->step_w == 1 && s->nw == width && width % PAIRS == 0 && high) {
    pairs_of_lines(low, high, width, out);
    return;
  }
  uint32_t pair[64] = {0};
  if (s->step_w == 1 && s->nw == width && high) /* a loop of constant length */
    for (int64_t w = 0; w < width; w++) pair[w] = low[w] | (uint32_t)high[w] << 16;
  else
    for (int64_t w = 0; w < s->nw && low; w++)
      pair[w] = low[w * s->step_w] | (high ? (uint32_t)high[w * s->step_w] << 16 : 0);
  memcpy(out, pair, (size_t)width * sizeof *out);
}

/* The pairs of row w, n k's from k0 on, padded with zeros: where they lie when that can be, else in `stage`. */
static inline const real *row_of_pairs(const gemm_piece *s, int64_t w, int64_t k0, int64_t n, real *stage) {
  if (s->step_k == 1 && w < s->nw && n % PAIRS_K == 0) return (const real *)(const void *)bf16_at(s, w, k0);
  pairs_along_k(s, w, k0, n, stage);
  return stage;
}

/* What comes next is prefetched: lines too far apart, or too many at once, for the hardware to foresee. */
static inline void prefetch_lines(const gemm_piece *s, int64_t k) {
  enum { AHEAD = 16 };
  for (int64_t i = k + AHEAD; i < min64(k + AHEAD + 2, s->nk); i++) __builtin_prefetch(bf16_at(s, 0, i));
}
static inline void prefetch_row(const gemm_piece *s, int64_t w, int64_t k, int64_t n) {
  for (int64_t i = k; s->step_k == 1 && w < s->nw && i < min64(k + n, s->nk); i += 32)
    __builtin_prefetch(bf16_at(s, w, i));
}

/* panel[k pair][width] */
static inline __attribute__((always_inline)) void pack_pairs(const gemm_piece *s, real *panel, int64_t width) {
  enum { STAGE = 4 * PAIRS };
  _Alignas(64) real stage[PAIRS][STAGE];
  if (lines_along_w(s)) {
    for (int64_t k = 0; k < ceil_div(s->nk, PAIRS_K) * PAIRS_K; k += 2) {
      prefetch_lines(s, k);
      pairs_along_w(s, k, width, panel + k / 2 * width);
    }
    return;
  }
  for (int64_t k = 0; k < s->nk; k += 2 * STAGE)
    for (int64_t w = 0; w < width; w += PAIRS) {
      int64_t n = min64(2 * STAGE, s->nk - k);
      const real *row[PAIRS];
      for (int64_t i = 0; i < PAIRS; i++) {
        row[i] = row_of_pairs(s, w + i, k, n, stage[i]);
        prefetch_row(s, w + i, k + 2 * STAGE, 2 * STAGE);
      }
      transpose_rows(row, ceil_div(n, 2), panel + k / 2 * width + w, width, min64(PAIRS, width - w));
    }
}

#endif
