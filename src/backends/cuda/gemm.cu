/* gemm.cu -- C[m,n] (=|+=) sum over k of A[m,k] B[k,n] (+ bias[n]), for any sizes, strides and dtypes: see gemm.h.
 *
 * A block of 16 x 16 threads makes 64 x 64 results, each thread 4 x 4 of them, 16 steps apart so that neighbours store
 * neighbours. Tiles of A and B, 16 deep, pass through shared memory as reals: strides and dtypes end there.
 * A sum runs over 64 k's at a time, and those sums are added with Kahan's correction. Few results of long sums are
 * split over more blocks: part blockIdx.y of the workspace gets the sums over some k's, gemm_sum adds up the parts. */
enum { TILE_M = 64, TILE_N = 64, TILE_K = 16, SUM_K = 64, SIDE = 16, EACH = 4 };
enum { REAL_DTYPE = COMPUTE_F64 ? F64 : F32 };

inline bool dense(const gemm_axis &x) { return x.dims == 1 && x.stride[0] == 1; }

/* to[kk][w] = the element of column (or row) w of the tile at k + kk, 0 outside. at_w: element offsets. */
__noinline__ void load_tile(real (&to)[TILE_K][TILE_M + 4], const char *from, int dtype, const i64 *at_w,
                            const u8 *in_w, const i64 *at_k, int depth, bool along_k) {
  const int t = (int)(threadIdx.y * SIDE + threadIdx.x);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int e = t + i * SIDE * SIDE, w = along_k ? e / TILE_K : e % TILE_M, kk = along_k ? e % TILE_K : e / TILE_M;
    to[kk][w] = in_w[w] && kk < depth ? load(dtype, from, at_w[w] + at_k[kk]) : (real)0;
  }
}

inline void multiply_tile(const real (&a)[TILE_K][TILE_M + 4], const real (&b)[TILE_K][TILE_N + 4],
                          real (&sum)[EACH][EACH]) {
#pragma unroll 4
  for (int kk = 0; kk < TILE_K; kk++) {
    real x[EACH], y[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = a[kk][threadIdx.y + i * SIDE], y[i] = b[kk][threadIdx.x + i * SIDE];
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) sum[i][j] += x[i] * y[j];
  }
}

inline void add_sums(long_sum (&total)[EACH][EACH], real (&sum)[EACH][EACH]) {
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) total[i][j].add(sum[i][j]), sum[i][j] = 0;
}

__noinline__ void put_result(int dtype, bool adds, char *c, i64 at, real v) { put(dtype, adds, c, at, v); }

extern "C" __global__ void __launch_bounds__(256) gemm(const __grid_constant__ gemm_args g) {
  __shared__ real a[TILE_K][TILE_M + 4], b[TILE_K][TILE_N + 4];
  __shared__ i64 at_m[TILE_M], at_n[TILE_N], a_k[TILE_K], b_k[TILE_K];
  __shared__ u8 in_m[TILE_M], in_n[TILE_N];
  const i64 tiles_n = (g.n + TILE_N - 1) / TILE_N;
  const i64 m0 = (i64)blockIdx.x / tiles_n * TILE_M, n0 = (i64)blockIdx.x % tiles_n * TILE_N;
  const int t = (int)(threadIdx.y * SIDE + threadIdx.x);
  const bool a_along_k = dense(g.at_a.col), b_along_k = dense(g.at_b.row);
  real sum[EACH][EACH];
  long_sum total[EACH][EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) sum[i][j] = 0, total[i][j].clear();
  if (t < TILE_M) in_m[t] = m0 + t < g.m, at_m[t] = m0 + t < g.m ? along(g.at_a.row, m0 + t) : 0;
  if (t < TILE_N) in_n[t] = n0 + t < g.n, at_n[t] = n0 + t < g.n ? along(g.at_b.col, n0 + t) : 0;
  const i64 each = (g.k + g.splits * SUM_K - 1) / (g.splits * SUM_K) * SUM_K, first = blockIdx.y * each;
  const i64 last = first + each < g.k ? first + each : g.k;
  for (i64 k = first; k < last; k += TILE_K) {
    const int depth = last - k < TILE_K ? (int)(last - k) : TILE_K;
    if (t < depth) a_k[t] = along(g.at_a.col, k + t), b_k[t] = along(g.at_b.row, k + t);
    __syncthreads();
    load_tile(a, g.a, (int)g.at_a.dtype, at_m, in_m, a_k, depth, a_along_k);
    load_tile(b, g.b, (int)g.at_b.dtype, at_n, in_n, b_k, depth, b_along_k);
    __syncthreads();
    multiply_tile(a, b, sum);
    if ((k + TILE_K) % SUM_K == 0) add_sums(total, sum);
  }
  add_sums(total, sum);
  __syncthreads(); /* the tiles and their offsets are those of C and the bias from here on */
  const bool split = g.splits > 1, bias = g.bias_dtype && !split;
  if (t < TILE_M && in_m[t]) at_m[t] = split ? (blockIdx.y * g.m + m0 + t) * g.n : along(g.at_c.row, m0 + t);
  if (t < TILE_N && in_n[t]) at_n[t] = split ? n0 + t : along(g.at_c.col, n0 + t);
  if (t < TILE_N) b[0][t] = bias && in_n[t] ? load((int)g.bias_dtype, g.bias, (n0 + t) * g.bias_stride) : (real)0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int m = (int)threadIdx.y + i * SIDE, n = (int)threadIdx.x + j * SIDE;
      if (in_m[m] && in_n[n])
        put_result(split ? REAL_DTYPE : (int)g.at_c.dtype, !split && g.adds, split ? g.work : g.c, at_m[m] + at_n[n],
                   total[i][j].total + b[0][n]);
    }
}
