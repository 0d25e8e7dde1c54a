/* product.h -- the small matrix products that attention and ssd are made of, MR x NV vectors of results in registers.
 *
 *   c[i][lane] = sum over k of a[k][i] b[k][lane]        i < m, lane < n
 *
 * Rows of a, b and c are ld apart. a has room for m rounded up to MR, b and c for n rounded up to VL, c for as many
 * rows as a has columns; what lies there takes no part in other results. A sum over many products is kept with Kahan's
 * correction, so that its error does not grow with their number. */
#ifndef AMBI_CPU_PRODUCT_H
#define AMBI_CPU_PRODUCT_H
#include "backends/cpu/gemm/transpose.h"
#include "backends/cpu/io.h"

#if defined(AMBI_ISA_avx512)
enum { MR = 8, NV = 3 };
#elif defined(AMBI_ISA_avx2)
enum { MR = 6, NV = 2 };
#else
enum { MR = 4, NV = 2 };
#endif

typedef struct {
  real *at;
  int64_t ld;
} matrix;

/* sum += term: sum - lost is what was meant. */
typedef struct {
  matrix sum;
  real *lost; /* rows sum.ld apart too */
} total;

static inline int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

INLINE void multiply(int nv, int64_t k, const real *a, int64_t lda, const real *b, int64_t ldb, vr c[MR][NV]) {
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) c[i][j] = (vr){0};
  for (; k > 0; k--, a += lda, b += ldb) {
    vr row[NV];
    UNROLL for (int j = 0; j < nv; j++) row[j] = v_load(b + j * VL);
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) c[i][j] += v_splat(a[i]) * row[j];
  }
}

/* How many vectors of the `left` that remain are taken together: 2 and 2 rather than 3 and 1 */
static inline int64_t take_vectors(int64_t left) {
  if (left >= NV && left != NV + 1) return NV;
  return left >= 2 ? 2 : 1;
}

/* ---- c = a b ---- */
INLINE void set_tile(int nv, int64_t k, const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  vr t[MR][NV];
  multiply(nv, k, a, lda, b, ldb, t);
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) v_store(c + i * ldc + j * VL, t[i][j]);
}

SHARED void product(int64_t m, int64_t n, int64_t k, matrix a, matrix b, matrix c) {
  for (int64_t lane = 0, nv; lane < n; lane += nv * VL) {
    nv = take_vectors(ceil_div(n - lane, VL));
    const real *row = b.at + lane;
    for (int64_t i = 0; i < m; i += MR) {
      real *to = c.at + i * c.ld + lane;
      if (nv == NV)
        set_tile(NV, k, a.at + i, a.ld, row, b.ld, to, c.ld);
      else if (nv == 2)
        set_tile(2, k, a.at + i, a.ld, row, b.ld, to, c.ld);
      else
        set_tile(1, k, a.at + i, a.ld, row, b.ld, to, c.ld);
    }
  }
}

/* c = keep c + a b, with one number for all, and plainly added */
INLINE void into_tile(int nv, int64_t k, const real *a, int64_t lda, const real *b, int64_t ldb, real keep, real *c,
                      int64_t ldc) {
  vr t[MR][NV];
  multiply(nv, k, a, lda, b, ldb, t);
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) {
    real *at = c + i * ldc + j * VL;
    v_store(at, v_load(at) * keep + t[i][j]);
  }
}

SHARED void product_into(int64_t m, int64_t n, int64_t k, matrix a, matrix b, real keep, matrix c) {
  for (int64_t lane = 0, nv; lane < n; lane += nv * VL) {
    nv = take_vectors(ceil_div(n - lane, VL));
    const real *row = b.at + lane;
    for (int64_t i = 0; i < m; i += MR) {
      real *to = c.at + i * c.ld + lane;
      if (nv == NV)
        into_tile(NV, k, a.at + i, a.ld, row, b.ld, keep, to, c.ld);
      else if (nv == 2)
        into_tile(2, k, a.at + i, a.ld, row, b.ld, keep, to, c.ld);
      else
        into_tile(1, k, a.at + i, a.ld, row, b.ld, keep, to, c.ld);
    }
  }
}

/* ---- c = keep c + a b ---- */
/* One vector of a total; an infinite sum has lost nothing. */
INLINE void add_vector(real *sum, real *lost, vr keep, vr term) {
  vr old = v_load(sum) * keep, y = term - v_load(lost) * keep, t = old + y, rest = (t - old) - y;
  v_store(sum, t);
  v_store(lost, v_select(rest == rest, rest, K(0)));
}

INLINE void add_tile(int nv, int64_t k, const real *a, int64_t lda, const real *b, int64_t ldb, const real *keep,
                     const total *c, int64_t at) {
  vr t[MR][NV];
  multiply(nv, k, a, lda, b, ldb, t);
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) {
    int64_t to = at + i * c->sum.ld + j * VL;
    add_vector(c->sum.at + to, c->lost + to, v_load(keep + j * VL), t[i][j]);
  }
}

/* keep: one number for each lane */
SHARED void product_add(int64_t m, int64_t n, int64_t k, matrix a, matrix b, const real *keep, const total *c) {
  int64_t lane = 0, ld = c->sum.ld;
  for (; lane + (NV - 1) * VL < n; lane += NV * VL)
    for (int64_t i = 0; i < m; i += MR)
      add_tile(NV, k, a.at + i, a.ld, b.at + lane, b.ld, keep + lane, c, i * ld + lane);
  for (; lane < n; lane += VL)
    for (int64_t i = 0; i < m; i += MR)
      add_tile(1, k, a.at + i, a.ld, b.at + lane, b.ld, keep + lane, c, i * ld + lane);
}

static inline bool all_finite(matrix rows, int64_t m, int64_t n) {
  vr odd = {0};
  for (int64_t i = 0; i < m; i++)
    FOR_LANES(k, n, {
      vr v = v_get(rows.at + i * rows.ld + k, left);
      odd += v - v; /* 0, or NaN */
    });
  return !v_any(odd != odd);
}

/* ---- the other way round: out[j][i] = in[i][j] for i < m, j < n ---- */
enum { ZEROS = 320 };
static const real zero_row[ZEROS];

/* Columns of out up to `padded`, a multiple of VL, are filled with zeros; rows up to n rounded up to VL are written. */
static inline void flip(matrix in, int64_t m, int64_t n, matrix out, int64_t padded) {
  for (int64_t i = 0; i < padded; i += VL) {
    const real *row[LANES];
    for (int64_t k = 0; k < VL; k++) row[k] = i + k < m ? in.at + (i + k) * in.ld : zero_row;
    transpose_rows(row, round_up(n, VL), out.at + i, out.ld, VL);
  }
}

#endif
