/* tiles.c -- GEMM in one instruction set and arithmetic: packing, multiplying panels, storing results. See gemm.h. */
#include "backends/cpu/gemm.h"
#include "backends/cpu/gemm/transpose.h"
#include "backends/cpu/sums.h"

/* MR x NV vectors of results, NV of B and one of A fill the registers. */
#if defined(AMBI_ISA_avx512)
enum { MR = 12, NV = 2 };
#elif defined(AMBI_ISA_avx2)
enum { MR = 6, NV = 2 };
#elif defined(AMBI_ISA_neon)
enum { MR = 8, NV = 3 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { NR = NV * LANES, KC = AMBI_REAL == 64 ? 256 : 384 };
_Static_assert(MR * NR * sizeof(real) <= GEMM_TILE_BYTES, "tile");

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

/* ---- packing ----------------------------------------------------------------------------------------------- */
enum { STAGE = 64 }; /* k converted at a time */

static const real zeros[GEMM_SKINNY_COLS];

INLINE const char *piece_at(const gemm_piece *s, int64_t w, int64_t k) {
  return (const char *)s->data + (s->at_w[w] + s->at_k[k]) * (int64_t)ambi_dtype_size(s->dtype);
}

/* k by k: the width of the panel is a line in memory. */
INLINE void pack_lines(const gemm_piece *s, real *panel, int64_t width) {
  for (int64_t k = 0; k < s->nk; k++, panel += width) {
    read_reals(s->dtype, piece_at(s, 0, k), s->step_w, s->nw, panel);
    for (int64_t w = s->nw; w < width; w++) panel[w] = 0;
  }
}

/* Row w of the piece, k0 <= k < k0 + n, as reals, padded to a multiple of VL: in place when it can be. */
INLINE const real *stage_row(const gemm_piece *s, int64_t w, int64_t k0, int64_t n, real *stage) {
  if (w >= s->nw) return zeros;
  const char *at = piece_at(s, w, k0);
  if (s->dtype == REAL_DTYPE && s->step_k == 1 && n % VL == 0) return (const real *)(const void *)at;
  read_reals(s->dtype, at, s->step_k, n, stage);
  for (int64_t k = n; k % VL; k++) stage[k] = 0;
  return stage;
}

/* Row by row: lines in memory run along k and are transposed, VL rows at a time; the last k's are padded to VL. */
INLINE void pack_rows(const gemm_piece *s, real *panel, int64_t width) {
  _Alignas(64) real stage[LANES][STAGE];
  for (int64_t k = 0; k < s->nk; k += STAGE)
    for (int64_t w = 0; w < width; w += VL) {
      int64_t n = min64(STAGE, s->nk - k);
      const real *row[LANES];
      for (int64_t i = 0; i < VL; i++) row[i] = stage_row(s, w + i, k, n, stage[i]);
      transpose_rows(row, n, panel + k * width + w, width, min64(VL, width - w));
    }
}

INLINE void pack(const gemm_piece *s, real *panel, int64_t width) {
  bool lines = s->even_w && (s->step_w == 1 || s->step_k != 1);
  if (lines || !s->even_k)
    pack_lines(s, panel, width);
  else
    pack_rows(s, panel, width);
}

static void pack_a(const gemm_piece *s, void *panel) { pack(s, panel, MR); }
static void pack_b(const gemm_piece *s, void *panel) { pack(s, panel, NR); }

/* ---- multiplying: tile = sum over k of (column k of A's panel) x (row k of B's panel) ------------------------ */
static void multiply(int64_t k, const void *a_panel, const void *b_panel, void *tile) {
  const real *a = a_panel, *b = b_panel;
  real *out = tile;
  vr c[MR][NV];
  UNROLL for (int i = 0; i < MR; i++)
    UNROLL for (int j = 0; j < NV; j++) c[i][j] = (vr){0};
  for (; k > 0; k--, a += MR, b += NR) {
    vr row[NV];
    UNROLL for (int j = 0; j < NV; j++) row[j] = v_load(b + j * VL);
    UNROLL for (int i = 0; i < MR; i++)
      UNROLL for (int j = 0; j < NV; j++) c[i][j] += v_splat(a[i]) * row[j];
  }
  UNROLL for (int i = 0; i < MR; i++)
    UNROLL for (int j = 0; j < NV; j++) v_store(out + i * NR + j * VL, c[i][j]);
}

/* ---- finishing: target (=|+=) tile (+ more) (+ bias) ----------------------------------------------------------- */
static void add_row(const real *row, const real *more, const real *bias, const real *old, int64_t n, real *out) {
  for (int64_t j = 0; j < n; j += VL) {
    vr v = v_get(row + j, n - j);
    if (more) v += v_get(more + j, n - j);
    if (bias) v += v_get(bias + j, n - j);
    if (old) v += v_get(old + j, n - j);
    v_put(out + j, v, n - j);
  }
}

static void finish(const void *tile, const void *more, int64_t ld, const gemm_target *t) {
  TILE_OF_REALS sum[GEMM_SKINNY_COLS], bias[GEMM_SKINNY_COLS];
  strip out = {.stride = t->step, .dtype = t->dtype, .accumulate = t->add};
  int64_t size = (int64_t)ambi_dtype_size(t->dtype), bias_size = (int64_t)ambi_dtype_size(t->bias_dtype);
  for (int64_t i = 0; i < t->rows; i++) {
    const real *row = (const real *)tile + i * ld, *extra = more ? (const real *)more + i * ld : NULL;
    if (t->bias && (i == 0 || t->bias_row))
      read_reals(t->bias_dtype, (const char *)t->bias + i * t->bias_row * bias_size, t->bias_col, t->cols, bias);
    out.at = (char *)t->data + t->at[i] * size;
    real *direct = is_direct(&out) ? (real *)(void *)out.at : NULL;
    add_row(row, extra, t->bias ? bias : NULL, t->add ? direct : NULL, t->cols, direct ? direct : sum);
    if (!direct) strip_put(&out, 0, t->cols, sum);
  }
}

/* ---- a few rows of A against all of B, which is read once and not packed ----------------------------------------- */
static void widen(const gemm_piece *s, void *rows, int64_t ld) {
  for (int64_t w = 0; w < s->nw; w++) {
    real *row = (real *)rows + w * ld;
    read_reals(s->dtype, piece_at(s, w, 0), s->step_k, s->nk, row);
    memset(row + s->nk, 0, (size_t)(ld - s->nk) * sizeof(real));
  }
}

/* n reals of B, padded with zeros to a multiple of VL: in place when they can be. */
INLINE const real *line_of(const gemm_piece *b, int64_t at, int64_t step, int64_t n, real *stage) {
  const char *from = (const char *)b->data + at * (int64_t)ambi_dtype_size(b->dtype);
  if (b->dtype == REAL_DTYPE && step == 1 && n % VL == 0) return (const real *)(const void *)from;
  read_reals(b->dtype, from, step, n, stage);
  for (int64_t i = n; i % VL; i++) stage[i] = 0;
  return stage;
}

enum { COLUMNS = 4 }; /* of B at a time, when they run along k in memory */

/* c[i][j] += sum over n k's of a[i][k] b[j][k] */
INLINE void dot_rows(int rows, const real *a, int64_t lda, const real *const b[COLUMNS], int64_t n, vr c[][COLUMNS]) {
  for (int64_t k = 0; k < n; k += VL)
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int j = 0; j < COLUMNS; j++) c[i][j] += v_load(a + i * lda + k) * v_load(b[j] + k);
}

/* B's columns are lines in memory: dot products. */
static void skinny_columns(int64_t m, const real *a, int64_t lda, const gemm_piece *b, real *tile, int64_t ld) {
  enum { DEPTH = 512 };
  _Alignas(64) real stage[COLUMNS][DEPTH];
  for (int64_t j = 0; j < b->nw; j += COLUMNS) {
    vr c[GEMM_SKINNY][COLUMNS] = {{{0}}};
    for (int64_t k = 0; k < b->nk; k += DEPTH) {
      const real *column[COLUMNS];
      int64_t n = min64(DEPTH, b->nk - k), i = 0;
      for (int64_t q = 0; q < COLUMNS; q++)
        column[q] = line_of(b, min64(j + q, b->nw - 1) * b->step_w + k * b->step_k, b->step_k, n, stage[q]);
      for (; i + 2 <= m; i += 2) dot_rows(2, a + i * lda + k, lda, column, n, c + i);
      if (i < m) dot_rows(1, a + i * lda + k, lda, column, n, c + i);
    }
    for (int64_t i = 0; i < m; i++)
      for (int64_t q = 0; q < min64(COLUMNS, b->nw - j); q++) tile[i * ld + j + q] = v_sum(c[i][q]);
  }
}

/* B's rows are lines in memory: each adds a multiple of itself to every row of the tile, eight at a time. */
static void skinny_lines(int64_t m, const real *a, int64_t lda, const gemm_piece *b, real *tile, int64_t ld) {
  enum { DEPTH = 8 };
  _Alignas(64) real stage[DEPTH][GEMM_SKINNY_COLS];
  memset(tile, 0, (size_t)(m * ld) * sizeof(real));
  for (int64_t k = 0; k < b->nk; k += DEPTH) {
    const real *line[DEPTH];
    for (int64_t q = 0; q < DEPTH; q++) 
      line[q] = k + q < b->nk ? line_of(b, (k + q) * b->step_k, b->step_w, b->nw, stage[q]) : zeros;
    for (int64_t j = 0; j < b->nw; j += VL)
      for (int64_t i = 0; i < m; i++) {
        vr c = v_load(tile + i * ld + j);
        UNROLL for (int q = 0; q < DEPTH; q++) c += v_splat(a[i * lda + k + q]) * v_load(line[q] + j);
        v_store(tile + i * ld + j, c);
      }
  }
}

static void skinny(int64_t m, const void *a, int64_t lda, const gemm_piece *b, void *tile, int64_t ld) {
  (b->step_k == 1 ? skinny_columns : skinny_lines)(m, a, lda, b, tile, ld);
}

const gemm_isa CPU_KERNEL(gemm) = {
    .tiles = {.name = "panels",
              .mr = MR,
              .nr = NR,
              .kc = KC,
              .k_step = LANES,
              .k_bytes = sizeof(real),
              .pack_a = pack_a,
              .pack_b = pack_b,
              .multiply = multiply},
    .real_bytes = sizeof(real),
    .finish = finish,
    .widen = widen,
    .skinny = skinny,
};
