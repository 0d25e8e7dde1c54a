/* linear on CUDA: db = column sums of dy. The products are backends/cuda/gemm.c's.
 *
 * Block (i, part) takes 64 VEC columns and every PARTS'th run of 4 rows, a row to each line of threads; its lines are
 * added up in order. A second kernel adds up the parts.                                                             */
#define UNROLL 4 /* rows of a thread under way at once */

/* Adds the VEC columns from `column` on of rows row, row + step, .. */
inline void add_rows(const args &a, long_sum (&sum)[VEC], i64 column, i64 row, i64 step) {
  for (; row < ROWS; row += UNROLL * step) {
    real d[UNROLL][VEC];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      for (int v = 0; v < VEC; v++) d[u][v] = 0;
      if (row + u * step < ROWS) get_line(d[u], LINE(DY, row + u * step), column, COLS);
    }
    for (int v = 0; v < VEC; v++) {
      real part = d[0][v];
      for (int u = 1; u < UNROLL; u++) part += d[u][v];
      sum[v].add(part);
    }
  }
}

KERNEL(linear_db_parts, 256) {
  __shared__ real lines[4][64 * VEC];
  const int mine = threadIdx.x * VEC;
  const i64 first = (i64)blockIdx.x * 64 * VEC, column = first + mine;
  long_sum sum[VEC];
  for (int v = 0; v < VEC; v++) sum[v].clear();
  if (column < COLS) add_rows(a, sum, column, (i64)blockIdx.y * 4 + threadIdx.y, (i64)gridDim.y * 4);
  for (int v = 0; v < VEC; v++) lines[threadIdx.y][mine + v] = sum[v].total;
  __syncthreads();
  for (int c = threadIdx.y * 64 + threadIdx.x; c < 64 * VEC && first + c < COLS; c += 256) { /* neighbours beside */
    real total = lines[0][c];
    for (int line = 1; line < 4; line++) total += lines[line][c];
    ((real *)PARTIAL)[(i64)blockIdx.y * COLS + first + c] = total;
  }
}

KERNEL(linear_db, 1024) {
  const by_column places = {COLS};
  sum_parts((const real *)PARTIAL, places, PARTS, VECTOR(DB), COLS);
}
