/* gemm.h -- C[m,n] (=|+=) A[m,k] B[k,n] (+ bias), for any sizes, dtypes and strides.
 *
 * C is cut into blocks that the cache can hold, and the sum over k into blocks too. For each, the threads
 *   1. pack: copy the pieces of A and B into panels, `mr` rows of A (or `nr` columns of B) side by side, k after k,
 *      in the arithmetic of the kernel. Strides, transposes and dtypes end here.
 *   2. multiply: panel by panel, mr x nr results in registers at a time, and finish: add, convert, store.
 * A few rows (generating text) are multiplied without packing B: there, reading B once is all the time it takes.
 *
 * Each result is the sum over its k blocks, in order, whatever the number of threads: the same bits every time.
 * With u the unit roundoff, its error is at most about (kc + k/kc) u sum |a b|.                                  */
#ifndef AMBI_CPU_GEMM_H
#define AMBI_CPU_GEMM_H
#include "backends/cpu/kernel.h"

/* Where the rows (or columns) of a matrix are, in elements: nested axes when they do not fold into one. */
typedef struct {
  int32_t ndim;
  int64_t shape[AMBI_MAX_DIMS], stride[AMBI_MAX_DIMS];
} gemm_axis;

typedef struct {
  ambi_dtype dtype;
  gemm_axis row, col; /* at most one of them nested; for C, only the rows */
} gemm_matrix;

typedef struct {
  int64_t m, n, k;
  gemm_matrix a, b, c;
  ambi_dtype bias;            /* AMBI_NONE: absent */
  int64_t bias_row, bias_col; /* strides; 0 repeats it */
  bool accumulate;
} gemm_shape;

typedef struct {
  const void *a, *b, *bias;
  void *c;
} gemm_data;

gemm_axis gemm_plain_axis(int64_t stride);
gemm_axis gemm_grid_axis(const grid *g, int slot);
gemm_matrix gemm_transposed(gemm_matrix x);

/* ---- what an instruction set supplies ---- */
enum { GEMM_TILE_BYTES = 4096, GEMM_SKINNY = 16, GEMM_SKINNY_COLS = 256, GEMM_TASK_ROWS = 256, GEMM_DEPTH = 1280 };

/* A piece of a matrix: element (w, k) is data[at_w[w] + at_k[k]]; w runs along a panel's width. */
typedef struct {
  const void *data;
  ambi_dtype dtype;
  int64_t nw, nk;
  const int64_t *at_w, *at_k;
  bool even_w, even_k; /* one stride: */
  int64_t step_w, step_k;
} gemm_piece;

/* Whether a piece is read along its width or along k: one way is dense, or at least even. */
static inline bool lines_along_w(const gemm_piece *s) {
  return !s->even_k || (s->even_w && (s->step_w == 1 || s->step_k != 1));
}

/* Where results go: element (i, j) is data[at[i] + j * step]. */
typedef struct {
  void *data;
  ambi_dtype dtype, bias_dtype;
  int64_t rows, cols;
  const int64_t *at;
  int64_t step;
  const void *bias; /* NULL: none */
  int64_t bias_row, bias_col;
  bool add;
} gemm_target;

typedef struct {
  const char *name;
  int32_t mr, nr;    /* results in registers                                 */
  int32_t kc;        /* most k in a block                                    */
  int32_t k_step;    /* panels have room for a multiple of this              */
  int32_t k_bytes;   /* of a panel, for each row (or column) and k           */
  int32_t task_rows; /* most of a task, up to GEMM_TASK_ROWS: with kc k's their panels fit the second-level cache */
  void (*pack_a)(const gemm_piece *s, void *panel);
  void (*pack_b)(const gemm_piece *s, void *panel);
  void (*multiply)(int64_t k, const void *a, const void *b, void *tile); /* tile[mr][nr] = sum_k a[k][mr] b[k][nr] */
  void (*begin)(void), (*end)(void);                                     /* around a task; NULL: nothing to do     */
} gemm_tiles;

typedef struct {
  gemm_tiles tiles;
  int32_t real_bytes;
  /* target (=|+=) tile (+ more) (+ bias); the rows of tile and more are ld apart */
  void (*finish)(const void *tile, const void *more, int64_t ld, const gemm_target *t);
  /* rows[w][k] of a piece as reals, rows ld apart and padded with zeros */
  void (*widen)(const gemm_piece *s, void *rows, int64_t ld);
  /* tile[i][j] = sum_k a[i][k] b[k][j] for i < m <= GEMM_SKINNY; the rows of a are lda apart, those of tile ld.
   * b has at most GEMM_SKINNY_COLS columns, starts at its data, is even both ways and dense one way.              */
  void (*skinny)(int64_t m, const void *a, int64_t lda, const gemm_piece *b, void *tile, int64_t ld);
} gemm_isa;

extern const gemm_isa gemm_baseline_f32, gemm_baseline_f64, gemm_neon_f32, gemm_neon_f64, gemm_wasm_f32, gemm_wasm_f64;
extern const gemm_isa gemm_avx2_f32, gemm_avx2_f64, gemm_avx512_f32, gemm_avx512_f64;
extern const gemm_tiles gemm_avx512_bf16, gemm_amx_bf16; /* pairs of bf16, sums in f32 */

/* ---- what an op calls ---- */
uint64_t gemm_workspace(const gemm_isa *isa, const cpu_features *f, const gemm_shape *s);
void gemm_run(const gemm_isa *isa, const cpu_features *f, const gemm_shape *s, const gemm_data *d, char *workspace,
              pool *threads);
/* The multiplier a shape would get, for reports. */
const gemm_tiles *gemm_choose(const gemm_isa *isa, const cpu_features *f, const gemm_shape *s);

#endif
