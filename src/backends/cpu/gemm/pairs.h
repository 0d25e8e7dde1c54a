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

/* out[w] = (k, k + 1) of row w, zero outside the piece */
static inline void pairs_along_w(const gemm_piece *s, int64_t k, int64_t width, real *out) {
  uint32_t pair[64] = {0};
  const uint16_t *low = k < s->nk ? bf16_at(s, 0, k) : NULL, *high = k + 1 < s->nk ? bf16_at(s, 0, k + 1) : NULL;
  if (s->step_w == 1 && s->nw == width && high)
    for (int64_t w = 0; w < width; w++) pair[w] = low[w] | (uint32_t)high[w] << 16;
  else
    for (int64_t w = 0; w < s->nw && low; w++)
      pair[w] = low[w * s->step_w] | (high ? (uint32_t)high[w * s->step_w] << 16 : 0);
  memcpy(out, pair, (size_t)width * sizeof *out);
}

/* panel[k pair][width] */
static inline __attribute__((always_inline)) void pack_pairs(const gemm_piece *s, real *panel, int64_t width) {
  enum { STAGE = 4 * PAIRS };
  _Alignas(64) real stage[PAIRS][STAGE];
  if (lines_along_w(s)) {
    for (int64_t k = 0; k < ceil_div(s->nk, PAIRS_K) * PAIRS_K; k += 2)
      pairs_along_w(s, k, width, panel + k / 2 * width);
    return;
  }
  for (int64_t k = 0; k < s->nk; k += 2 * STAGE)
    for (int64_t w = 0; w < width; w += PAIRS) {
      int64_t n = min64(2 * STAGE, s->nk - k);
      const real *row[PAIRS];
      for (int64_t i = 0; i < PAIRS; i++) {
        pairs_along_k(s, w + i, k, n, stage[i]);
        row[i] = stage[i];
      }
      transpose_rows(row, ceil_div(n, 2), panel + k / 2 * width + w, width, min64(PAIRS, width - w));
    }
}

#endif
