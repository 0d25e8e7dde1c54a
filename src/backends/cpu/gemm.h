/* gemm.h -- C[m,n] (=|+=) A[m,k] B[k,n] (+ bias), for any sizes, dtypes and strides.
 *
 * How it works. C is cut in blocks of at most GEMM_ROWS x GEMM_COLS, the sum over k in blocks of at most `kc`. For each
 * block, all threads first pack the pieces of A and B they need into panels: mr rows of A (or nr columns of B) side by
 * side, k after k, converted to the arithmetic of the kernel. Then they multiply panels with a register-blocked
 * kernel, mr x nr results at a time. Packing is where strides, transposes and dtypes disappear.
 *
 * Each result is the sum over its k blocks, in order, whatever the number of threads: the same bits every time.      */
#ifndef AMBI_CPU_GEMM_H
#define AMBI_CPU_GEMM_H
#include <stdbool.h>

#include "ambi/ambi.h"

/* Where the rows (or columns) of a matrix are: several nested axes when they do not fold into one. */
typedef struct {
  int32_t ndim;
  int64_t shape[AMBI_MAX_DIMS], stride[AMBI_MAX_DIMS]; /* stride in elements */
} gemm_axis;

typedef struct {
  ambi_dtype dtype;
  gemm_axis row, col;
} gemm_matrix;

typedef struct {
  int64_t m, n, k;
  gemm_matrix a, b, c;
  ambi_dtype bias;         /* AMBI_NONE: there is none */
  int64_t bias_m, bias_n;  /* strides; broadcast over rows: bias_m = 0 */
  bool accumulate;
} gemm_shape;

typedef struct {
  const void *a, *b, *bias;
  void *c;
} gemm_data;

/* ---- what each instruction set supplies ---------------------------------------------------------------- */

/* A piece of a matrix on its way into a panel: element (w, k) is data[at_w[w] + at_k[k]]. */
typedef struct {
  const void *data;
  ambi_dtype dtype;
  int64_t nw, nk;
  const int64_t *at_w, *at_k;
  bool dense_w, dense_k; /* consecutive w (or k) are neighbours in memory */
} gemm_piece;

/* Where a tile of results goes: row i, column j is data[at_row[i] + j*col_stride]. */
typedef struct {
  void *data;
  ambi_dtype dtype;
  int64_t rows, cols;
  const int64_t *at_row;
  int64_t col_stride;
  bool add;           /* += */
  const void *bias;   /* NULL: none */
  ambi_dtype bias_dtype;
  int64_t bias_row, bias_col; /* strides */
} gemm_target;

/* Multiplies panels: tile[mr][nr] = sum over k of a[k][mr] b[k][nr]. */
typedef struct {
  const char *name;
  int32_t mr, nr;
  int32_t kc;      /* most k in one block */
  int32_t k_step;  /* panels are padded with zeros to a multiple of this */
  int32_t k_bytes; /* per k and row of a panel */
  int32_t real_bytes;
  void (*pack_a)(const gemm_piece *s, void *panel);
  void (*pack_b)(const gemm_piece *s, void *panel);
  void (*multiply)(int64_t k, const void *a, const void *b, void *tile);
  void (*begin)(void), (*end)(void); /* around a task's multiplications; may be NULL */
} gemm_tiles;

typedef struct {
  gemm_tiles tiles;
  /* target = (target +) tile (+ more) (+ bias); rows of tile and more are `ld` apart */
  void (*finish)(const void *tile, const void *more, int64_t ld, const gemm_target *t);
  /* tile[i][j] = sum over k of a[i][k] b[k][j], i < m <= GEMM_SKINNY, without packing b; a is real, rows k_pad apart. */
  void (*skinny)(int64_t m, const void *a, int64_t k_pad, const gemm_piece *b, void *tile);
} gemm_isa;
