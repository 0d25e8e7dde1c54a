/* matrices.cu -- C[m,n] (=|+=) sum over k of A[m,k] B[k,n] (+ bias[n]): what gemm.cu, gemm16.cu and gemm90.cu are
 * told of it. */

/* Where the rows (or columns) of a matrix are, in elements: gemm.h has the same. */
struct gemm_axis {
  i64 dims, shape[8], stride[8];
};
struct gemm_matrix {
  i64 dtype;
  gemm_axis row, col;
};
struct alignas(64) gemm_args {
  u64 map_a[16], map_b[16]; /* boxed: as the driver describes A and B to the hardware that copies boxes of them */
  char *a, *b, *bias, *c;
  i64 m, n, k;
  gemm_matrix at_a, at_b, at_c;
  i64 bias_dtype, bias_stride; /* dtype 0: none */
  i64 adds;
  char *work; /* (splits, m, n) reals */
  i64 splits, boxed;
};

/* What is not inline here would otherwise take a second to compile. */
__noinline__ i64 along(const gemm_axis &x, i64 i) { return walk((int)x.dims, x.shape, x.stride, i); }

/* Sums that were split over blocks: a thread for each result. */
extern "C" __global__ void __launch_bounds__(256) gemm_sum(const __grid_constant__ gemm_args g) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= g.m * g.n) return;
  const i64 m = i / g.n, n = i % g.n;
  long_sum sum;
  sum.clear();
  for (i64 s = 0; s < g.splits; s++) sum.add(((const real *)g.work)[s * g.m * g.n + i]);
  if (g.bias_dtype) sum.add(load((int)g.bias_dtype, g.bias, n * g.bias_stride));
  put((int)g.at_c.dtype, g.adds != 0, g.c, along(g.at_c.row, m) + along(g.at_c.col, n), sum.total);
}
