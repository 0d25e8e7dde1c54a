/* rmsnorm on CUDA: a group of threads takes a row and keeps it in registers, so that memory sees each value once.
 *
 *   forward   r from sum s^2;  y = s r (w + offset)
 *   backward  r from sum s^2, and sum g s;  ds = r g - s r^3 mean(g s) + dsum;  dw += dy s r
 *
 * dw: a block adds up its own rows in registers, then a second kernel adds up the blocks, always in the same order. */

/* w + offset, or 1 */
inline void get_weight(real (&r)[VEC], const line &w, real offset, i64 column, i64 cols) {
  if (w.at) get_line(r, w, column, cols);
  for (int k = 0; k < VEC; k++) r[k] = w.at ? r[k] + offset : (real)1;
}

#if !BACKWARD
KERNEL(rmsnorm_forward, GROUP * GROUPS) {
  __shared__ real scratch[32];
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line y = LINE(Y, row), sum = LINE(SUM, row);
    real s[KEPT][VEC], weight[VEC], out[VEC];
    long_sum squares;
    squares.clear();
#pragma unroll(KEPT)
    for (int j = 0; j < CHUNKS; j++) {
      real part = 0;
      from.get(s[KEEP ? j : 0], COLUMN(j), COLS);
      for (int k = 0; k < VEC; k++) part += s[KEEP ? j : 0][k] * s[KEEP ? j : 0][k];
      squares.add(part);
    }
    const real r = rstd(group_sum<GROUP>(squares.total, scratch), COLS, EPS);
    if (HAS(RSTD) && threadIdx.x == 0) PUT(RSTD, ROW_OFFSET(RSTD, row), r);
#pragma unroll(KEPT)
    for (int j = 0; j < CHUNKS; j++) {
      real(&v)[VEC] = s[KEEP ? j : 0];
      if (!KEEP) from.get(v, COLUMN(j), COLS);
      get_weight(weight, w, OFFSET, COLUMN(j), COLS);
      for (int k = 0; k < VEC; k++) out[k] = (CAST ? rounded(DTYPE(X), v[k] * r) : v[k] * r) * weight[k];
      put_line(sum, COLUMN(j), v, COLS);
      put_line(y, COLUMN(j), out, COLS);
    }
  }
}
#else
/* ds of one row, given r and pull = r^3 mean(g s), at a thread's chunk */
inline void put_ds(const args &a, i64 row, i64 column, const real (&s)[VEC], const real (&g)[VEC], real r, real pull) {
  real ds[VEC];
  for (int k = 0; k < VEC; k++) ds[k] = g[k] * r - s[k] * pull;
  put_gradient(a, row, column, ds);
}

/* r of the row, and pull */
inline real row_sums(const args &a, i64 row, real squares, real products, real *scratch, real *pull) {
  squares = HAS(RSTD) ? 0 : group_sum<GROUP>(squares, scratch);
  const real r = HAS(RSTD) ? GET(RSTD, ROW_OFFSET(RSTD, row)) : rstd(squares, COLS, EPS);
  *pull = HAS(DX) || HAS(DRESIDUAL) ? r * r * r * (group_sum<GROUP>(products, scratch) / (real)COLS) : 0;
  return r;
}

#if KEEP
KERNEL(rmsnorm_backward, GROUP * GROUPS) {
  __shared__ real scratch[32];
  const line w = VECTOR(W);
  long_sum dw[KEPT][VEC];
  for (int j = 0; j < CHUNKS; j++)
    for (int k = 0; k < VEC; k++) dw[j][k].clear();
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    real s[KEPT][VEC], d[KEPT][VEC], weight[VEC], squares = 0, products = 0, pull;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      from.get(s[j], COLUMN(j), COLS);
      get_line(d[j], dy, COLUMN(j), COLS);
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      get_weight(weight, w, OFFSET, COLUMN(j), COLS);
      for (int k = 0; k < VEC; k++) squares += s[j][k] * s[j][k], products += s[j][k] * (d[j][k] * weight[k]);
    }
    const real r = row_sums(a, row, squares, products, scratch, &pull);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      get_weight(weight, w, OFFSET, COLUMN(j), COLS);
      for (int k = 0; k < VEC; k++) {
        if (HAS(DW)) dw[j][k].add(d[j][k] * (s[j][k] * r));
        weight[k] *= d[j][k];
      }
      put_ds(a, row, COLUMN(j), s[j], weight, r, pull);
    }
  }
  real *partial = (real *)PARTIAL + FIRST_ROW * COLS; /* (PARTS, COLS) */
  for (int j = 0; j < CHUNKS && HAS(DW); j++)
    for (int k = 0; k < VEC; k++)
      if (COLUMN(j) + k < COLS) partial[COLUMN(j) + k] = dw[j][k].total;
}
#else /* long rows: first r and pull of every row, then dw, then ds, which may overwrite dy */
KERNEL(rmsnorm_sums, GROUP * GROUPS) {
  __shared__ real scratch[32];
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    real s[VEC], d[VEC], weight[VEC], pull;
    long_sum squares, products;
    squares.clear(), products.clear();
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(s, COLUMN(j), COLS);
      get_line(d, dy, COLUMN(j), COLS);
      get_weight(weight, w, OFFSET, COLUMN(j), COLS);
      for (int k = 0; k < VEC; k++) squares.add(s[k] * s[k]), products.add(s[k] * (d[k] * weight[k]));
    }
    const real r = row_sums(a, row, squares.total, products.total, scratch, &pull);
    if (threadIdx.x == 0) ((real *)ROW_SUMS)[2 * row] = r, ((real *)ROW_SUMS)[2 * row + 1] = pull;
  }
}

/* part blockIdx.y of the rows, 256 columns to a block */
KERNEL(rmsnorm_partial, 256) {
  const i64 c = (i64)blockIdx.x * 256 + threadIdx.x;
  long_sum dw;
  dw.clear();
  for (i64 row = blockIdx.y; c < COLS && row < ROWS; row += gridDim.y) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    real s = load(from.x.dtype, from.x.at, c * from.x.step);
    if (from.residual.at) s += load(from.residual.dtype, from.residual.at, c * from.residual.step);
    dw.add(load(dy.dtype, dy.at, c * dy.step) * (s * ((const real *)ROW_SUMS)[2 * row]));
  }
  if (c < COLS) ((real *)PARTIAL)[(i64)blockIdx.y * COLS + c] = dw.total;
}

KERNEL(rmsnorm_backward, GROUP * GROUPS) {
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    const real r = ((const real *)ROW_SUMS)[2 * row], pull = ((const real *)ROW_SUMS)[2 * row + 1];
    for (i64 j = 0; j < CHUNKS; j++) {
      real s[VEC], d[VEC], weight[VEC];
      from.get(s, COLUMN(j), COLS);
      get_line(d, dy, COLUMN(j), COLS);
      get_weight(weight, w, OFFSET, COLUMN(j), COLS);
      for (int k = 0; k < VEC; k++) weight[k] *= d[k];
      put_ds(a, row, COLUMN(j), s, weight, r, pull);
    }
  }
}
#endif

KERNEL(rmsnorm_dw, 1024) { sum_parts((const real *)PARTIAL, PARTS, VECTOR(DW), COLS); }
#endif
