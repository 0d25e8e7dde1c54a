/* skinny.h -- a few rows of A against all of B, which is read once, as it lies. Sums are kept for DEPTH k's and then
 * added up, as they are between the k blocks of larger products.                                                  */
#ifndef AMBI_CPU_SKINNY_H
#define AMBI_CPU_SKINNY_H
#include "backends/cpu/gemm/pack.h"

enum { DEPTH = 512 };

/* rows[w][k] as reals, ld apart */
static void widen(const gemm_piece *s, void *rows, int64_t ld) {
  for (int64_t w = 0; w < s->nw; w++) {
    real *row = (real *)rows + w * ld;
    read_reals(s->dtype, piece_at(s, w, 0), s->step_k, s->nk, row);
    memset(row + s->nk, 0, (size_t)(ld - s->nk) * sizeof(real));
  }
}

INLINE const char *b_at(const gemm_piece *b, int64_t w, int64_t k) {
  return (const char *)b->data + (w * b->step_w + k * b->step_k) * bytes_of(b->dtype);
}

/* n dense elements as reals, padded with zeros to a multiple of VL */
INLINE const real *stage_line(ambi_dtype t, const void *from, int64_t n, real *stage) {
  read_reals(t, from, 1, n, stage);
  for (int64_t i = n; i % VL; i++) stage[i] = 0;
  return stage;
}

/* ---- B's columns are lines in memory: dot products ---- */
/* DOT_ROWS x COLUMNS vectors of sums fit the registers. */
#if VBYTES == 64 || defined(AMBI_ISA_neon)
enum { DOT_ROWS = 4, COLUMNS = 4 };
#else
enum { DOT_ROWS = 2, COLUMNS = 4 };
#endif

/* c[i][j] += sum over n k's of a[i][k] b[j][k]; n is a multiple of VL */
INLINE void dot_rows(int rows, int kind, const real *a, int64_t lda, const void *const b[COLUMNS], int64_t n,
                     vr c[][COLUMNS]) {
  vr sum[DOT_ROWS][COLUMNS];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < COLUMNS; j++) sum[i][j] = (vr){0};
  for (int64_t k = 0; k < n; k += VL) {
    vr column[COLUMNS];
    UNROLL for (int j = 0; j < COLUMNS; j++) column[j] = get(kind, b[j], k, VL);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < COLUMNS; j++) sum[i][j] +=
        v_load(a + i * lda + k) * column[j];
  }
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < COLUMNS; j++) c[i][j] += sum[i][j];
}

INLINE void dot_all(int kind, int64_t m, const real *a, int64_t lda, const void *const b[COLUMNS], int64_t n,
                    vr c[][COLUMNS]) {
  int64_t i = 0;
  for (; i + DOT_ROWS <= m; i += DOT_ROWS) dot_rows(DOT_ROWS, kind, a + i * lda, lda, b, n, c + i);
  for (; i < m; i++) dot_rows(1, kind, a + i * lda, lda, b, n, c + i);
}

/* Whole vectors are used where they lie; the rest of a column, and other dtypes, are staged. */
static void skinny_columns(int64_t m, const real *a, int64_t lda, const gemm_piece *b, real *tile, int64_t ld) {
  _Alignas(64) real stage[COLUMNS][DEPTH];
  for (int64_t j = 0; j < b->nw; j += COLUMNS) {
    vr c[GEMM_SKINNY][COLUMNS] = {{{0}}};
    for (int64_t k = 0, n; k < b->nk; k += n) {
      n = min64(DEPTH, b->nk - k);
      int kind = n >= VL ? kind_of(b->dtype) : -1;
      if (kind >= 0) n = n / VL * VL;
      const void *column[COLUMNS];
      for (int64_t q = 0; q < COLUMNS; q++) {
        const char *from = b_at(b, min64(j + q, b->nw - 1), k);
        column[q] = kind >= 0 ? from : (const void *)stage_line(b->dtype, from, n, stage[q]);
      }
      if (HAS_BF16S && kind == BF16S)
        dot_all(BF16S, m, a + k, lda, column, n, c);
      else
        dot_all(REALS, m, a + k, lda, column, ceil_div(n, VL) * VL, c);
    }
    for (int64_t i = 0; i < m; i++)
      for (int64_t q = 0; q < min64(COLUMNS, b->nw - j); q++) tile[i * ld + j + q] = v_sum(c[i][q]);
  }
}

/* ---- B's rows are lines in memory: each adds a multiple of itself to every row of the tile ---- */
enum { LINES = 8 }; /* at a time */

/* sum[i][j] += sum over LINES k's of a[i][k] line[k][j]; n is a multiple of VL. The next lines are `next` bytes on. */
INLINE void add_lines(int kind, int64_t m, const real *a, int64_t lda, const void *const line[LINES], int64_t n,
                      int64_t next, real *sum) {
  for (int64_t j = 0; j < n; j += VL) {
    vr v[LINES];
    UNROLL for (int q = 0; q < LINES; q++) {
      v[q] = get(kind, line[q], j, VL);
      __builtin_prefetch((const char *)line[q] + j * (kind == BF16S ? 2 : (int64_t)sizeof(real)) + next);
    }
    for (int64_t i = 0; i < m; i++) {
      real *at = sum + i * GEMM_SKINNY_COLS + j;
      vr c = v_load(at);
      UNROLL for (int q = 0; q < LINES; q++) c += v_splat(a[i * lda + q]) * v[q];
      v_store(at, c);
    }
  }
}

/* sum += the k's from k0 to k1. Past the last of B's, a is zero, and so is the line. */
static void skinny_depth(int64_t m, const real *a, int64_t lda, const gemm_piece *b, int64_t k0, int64_t k1,
                         real *sum) {
  static const real nothing[GEMM_SKINNY_COLS];
  _Alignas(64) real stage[LINES][GEMM_SKINNY_COLS];
  int kind = b->nw % VL == 0 ? kind_of(b->dtype) : -1;
  for (int64_t k = k0; k < k1; k += LINES) {
    const void *line[LINES];
    int64_t next = k + 2 * LINES <= b->nk ? LINES * b->step_k * bytes_of(b->dtype) : 0;
    for (int64_t q = 0; q < LINES; q++) {
      const char *from = b_at(b, 0, min64(k + q, k1 - 1));
      line[q] = kind >= 0 ? from : (const void *)stage_line(b->dtype, from, b->nw, stage[q]);
      if (k + q >= k1) line[q] = nothing;
    }
    if (HAS_BF16S && kind == BF16S)
      add_lines(BF16S, m, a + k, lda, line, b->nw, next, sum);
    else
      add_lines(REALS, m, a + k, lda, line, ceil_div(b->nw, VL) * VL, next, sum);
  }
}

static void skinny_lines(int64_t m, const real *a, int64_t lda, const gemm_piece *b, real *tile, int64_t ld) {
  _Alignas(64) real sum[GEMM_SKINNY * GEMM_SKINNY_COLS];
  for (int64_t i = 0; i < m; i++) memset(tile + i * ld, 0, (size_t)b->nw * sizeof(real));
  for (int64_t k = 0; k < b->nk; k += DEPTH) {
    memset(sum, 0, (size_t)(m * GEMM_SKINNY_COLS) * sizeof(real));
    skinny_depth(m, a, lda, b, k, min64(k + DEPTH, b->nk), sum);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < b->nw; j++) tile[i * ld + j] += sum[i * GEMM_SKINNY_COLS + j];
  }
}

static void skinny(int64_t m, const void *a, int64_t lda, const gemm_piece *b, void *tile, int64_t ld) {
  (b->step_k == 1 ? skinny_columns : skinny_lines)(m, a, lda, b, tile, ld);
}

#endif
