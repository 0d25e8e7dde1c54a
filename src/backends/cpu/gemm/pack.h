/* pack.h -- pieces of matrices into panels of reals: panel[k][w], `width` wide, zeros where the piece is narrower. */
#ifndef AMBI_CPU_PACK_H
#define AMBI_CPU_PACK_H
#include "backends/cpu/gemm.h"
#include "backends/cpu/gemm/transpose.h"
#include "backends/cpu/io.h"

INLINE int64_t bytes_of(ambi_dtype t) { return t == AMBI_F64 ? 8 : t == AMBI_F32 ? 4 : 2; }

/* What vectors of a dtype can be read as without staging: REALS or BF16S; -1: neither. */
INLINE int kind_of(ambi_dtype t) { return t == REAL_DTYPE ? REALS : HAS_BF16S && t == AMBI_BF16 ? BF16S : -1; }

INLINE const char *piece_at(const gemm_piece *s, int64_t w, int64_t k) {
  return (const char *)s->data + (s->at_w[w] + s->at_k[k]) * bytes_of(s->dtype);
}

/* ---- lines in memory run along the width ---- */
INLINE void pack_lines(const gemm_piece *s, real *panel, int64_t width) {
  for (int64_t k = 0; k < s->nk; k++, panel += width) {
    read_reals(s->dtype, piece_at(s, 0, k), s->step_w, s->nw, panel);
    for (int64_t w = s->nw; w < width; w++) panel[w] = 0;
  }
}

/* What is left of a line behind its whole vectors: few elements, and as many as the compiler knows. */
INLINE void pack_rest(int kind, const char *line, int64_t whole, int64_t width, real *panel) {
  if (kind == REALS)
    memcpy(panel + whole, line + whole * (int64_t)sizeof(real), (size_t)(width - whole) * sizeof(real));
  else
    read_reals(AMBI_BF16, line + 2 * whole, 1, width - whole, panel + whole);
}

/* The same for whole, dense lines of reals or bf16. The next ones are far apart: they are prefetched. */
INLINE void pack_whole_lines(int kind, const gemm_piece *s, real *panel, int64_t width) {
  enum { LINES_AHEAD = 16 };
  int64_t whole = width / VL * VL;
  for (int64_t k = 0; k < s->nk; k++, panel += width) {
    const char *line = piece_at(s, 0, k), *next = piece_at(s, 0, min64(k + LINES_AHEAD, s->nk - 1));
    for (int64_t w = 0; w < whole; w += VL) {
      v_store(panel + w, get(kind, line, w, VL));
      __builtin_prefetch(next + w * bytes_of(s->dtype));
    }
    if (whole < width) pack_rest(kind, line, whole, width, panel);
  }
}

/* ---- lines in memory run along k ---- */
enum { STAGE = 64 }; /* k's at a time */

static const real zeros[STAGE];

/* Row w, k0 <= k < k0 + n, as reals, padded to a multiple of VL: in place when it can be. */
INLINE const real *stage_row(const gemm_piece *s, int64_t w, int64_t k0, int64_t n, real *stage) {
  if (w >= s->nw) return zeros;
  const char *at = piece_at(s, w, k0);
  if (s->dtype == REAL_DTYPE && s->step_k == 1 && n % VL == 0) return (const real *)(const void *)at;
  read_reals(s->dtype, at, s->step_k, n, stage);
  for (int64_t k = n; k % VL; k++) stage[k] = 0;
  return stage;
}

/* The next STAGE k's of VL rows: too many streams for the hardware to foresee. */
INLINE void prefetch_rows(const gemm_piece *s, int64_t w, int64_t k) {
  for (int64_t i = w; i < min64(w + VL, s->nw) && s->step_k == 1 && k < s->nk; i++)
    for (int64_t b = 0; b < STAGE * bytes_of(s->dtype); b += 64) __builtin_prefetch(piece_at(s, i, k) + b, 0, 2);
}

/* VL rows at a time are transposed; what is padded along k falls into the panel's spare room. */
INLINE void pack_rows(const gemm_piece *s, real *panel, int64_t width) {
  _Alignas(64) real stage[LANES][STAGE];
  for (int64_t k = 0; k < s->nk; k += STAGE)
    for (int64_t w = 0; w < width; w += VL) {
      int64_t n = min64(STAGE, s->nk - k);
      const real *row[LANES];
      for (int64_t i = 0; i < VL; i++) row[i] = stage_row(s, w + i, k, n, stage[i]);
      prefetch_rows(s, w, k + STAGE);
      transpose_rows(row, n, panel + k * width + w, width, min64(VL, width - w));
    }
}

INLINE void pack(const gemm_piece *s, real *panel, int64_t width) {
  bool whole = s->step_w == 1 && s->nw == width;
  if (!lines_along_w(s))
    pack_rows(s, panel, width);
  else if (whole && kind_of(s->dtype) == REALS)
    pack_whole_lines(REALS, s, panel, width);
  else if (whole && kind_of(s->dtype) == BF16S)
    pack_whole_lines(BF16S, s, panel, width);
  else
    pack_lines(s, panel, width);
}

#endif
