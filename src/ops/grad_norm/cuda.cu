/* grad_norm on CUDA: each block sums the squares of some chunks, then one block sums the blocks, both in an order that
 * depends on the shape alone. In f64, as f32 squares overflow; f64 squares with Kahan's correction.
 *
 *   sumsq = sum partial + sum g^2;  norm = sqrt(sumsq);  scale = min(1, max_norm / norm);  dg = dnorm / norm g        */
#if COMPUTE_F64
typedef long_sum wide_sum;
#else
struct wide_sum {
  double total;
  void clear() { total = 0; }
  void add(double term) { total += term; }
};
#endif

/* Over the block, for its thread 0 */
template <int THREADS> inline double block_sum(double v) {
  __shared__ double warp[32];
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x < THREADS / 32 ? warp[threadIdx.x] : 0;
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  return v;
}

template <bool ALIGNED> inline void add_chunks(const args &a, wide_sum (&sum)[VEC]) {
  const i64 vectors = VECTORS, total = OUTER * vectors, step = (i64)gridDim.x * (256 * UNROLL);
  for (i64 first = (i64)blockIdx.x * (256 * UNROLL) + threadIdx.x; first < total; first += step) {
    real g[UNROLL][VEC];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      for (int k = 0; k < VEC; k++) g[u][k] = 0;
      if (first + u * 256 < total) GET_AT(g[u], G, place_of(first + u * 256, OUTER, vectors));
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      for (int k = 0; k < VEC; k++) sum[k].add((double)g[u][k] * (double)g[u][k]);
  }
}

KERNEL(grad_norm_squares, 256) {
  wide_sum sum[VEC];
  for (int k = 0; k < VEC; k++) sum[k].clear();
  if (VEC > 1 && EVEN && ON_WORDS(G))
    add_chunks<true>(a, sum);
  else
    add_chunks<false>(a, sum);
  for (int half = VEC / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) sum[k].total += sum[k + half].total;
  const double total = block_sum<256>(sum[0].total);
  if (threadIdx.x == 0) ((double *)SUMS)[blockIdx.x] = total;
}

inline void put_scalar(int dtype, void *p, double v) {
  if (dtype == F64)
    *(double *)p = v;
  else if (dtype >= I32)
    store_integer(dtype, p, 0, (i64)v);
  else if (dtype == F32)
    *(float *)p = (float)v;
  else
    *(u16 *)p = (u16)(dtype == F16 ? f32_to_f16(odd(v)) : f32_to_bf16(odd(v)));
}

inline double partial(const args &a, i64 i) {
  return load_scalar(DTYPE(PARTIAL), (const char *)AT(PARTIAL) + i * PARTIAL_STRIDE * bytes_of(DTYPE(PARTIAL)));
}

KERNEL(grad_norm_finish, 1024) {
  double sumsq = 0;
  for (i64 part = threadIdx.x; part < PARTS; part += 1024) sumsq += ((const double *)SUMS)[part];
  if (HAS(PARTIAL))
    for (i64 i = threadIdx.x; i < PARTIALS; i += 1024) sumsq += partial(a, i);
  sumsq = block_sum<1024>(sumsq);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sumsq);
#if BACKWARD
  *(double *)FACTOR = norm == 0 ? 0 : load_scalar(DTYPE(DNORM), AT(DNORM)) / norm;
#else
  const bool finite = norm - norm == 0;
  const double scale = MAX_NORM > 0 && norm > MAX_NORM ? MAX_NORM / norm : 1;
  if (HAS(NORM)) put_scalar(DTYPE(NORM), AT(NORM), norm);
  if (HAS(SUMSQ)) put_scalar(DTYPE(SUMSQ), AT(SUMSQ), sumsq);
  if (HAS(SCALE)) put_scalar(DTYPE(SCALE), AT(SCALE), finite ? scale : 0);
  if (HAS(NONFINITE)) put_scalar(DTYPE(NONFINITE), AT(NONFINITE), finite ? 0 : 1);
#endif
}

#if BACKWARD
template <bool ALIGNED> inline void scale_chunk(const args &a) {
  const i64 vectors = VECTORS, total = OUTER * vectors, first = (i64)blockIdx.x * (256 * UNROLL) + threadIdx.x;
  const double factor = *(const double *)FACTOR; /* may be beyond f32 */
  real g[UNROLL][VEC];
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * 256 < total) GET_AT(g[u], G, place_of(first + u * 256, OUTER, vectors));
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= total) break;
    for (int k = 0; k < VEC; k++) g[u][k] = (real)((double)g[u][k] * factor);
    PUT_AT(DG, place_of(first + u * 256, OUTER, vectors), g[u]);
  }
}

KERNEL(grad_norm_scale, 256) {
  if (VEC > 1 && EVEN && ON_WORDS(G) && ON_WORDS(DG))
    scale_chunk<true>(a);
  else
    scale_chunk<false>(a);
}
#endif
