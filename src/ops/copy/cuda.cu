/* copy on CUDA: bits forwards, so that integers and NaNs survive; values backwards, where sums may be asked for. */
#if BACKWARD
inline void point(const args &a, const real (&in)[INS], real (&out)[OUTS]) { out[0] = in[0]; }
#else
inline void copy_element(char *y, const char *x, i64 bytes) {
  if (bytes == 1) *y = *x;
  if (bytes == 2) *(u16 *)y = *(const u16 *)x;
  if (bytes == 4) *(u32 *)y = *(const u32 *)x;
  if (bytes == 8) *(u64 *)y = *(const u64 *)x;
}

inline char *vector_at(char *at, i64 offset, i64 stride, place p, i64 bytes) {
  return at + (offset + p.column * stride) * bytes;
}
#define VECTOR_AT(s, p) vector_at(AT(s), OUTER_OFFSET(s, (p).row), INNER_STRIDE(s), p, bytes_of(DTYPE(s)))

KERNEL(copy_forward, 256) {
  const i64 vectors = VECTORS, total = OUTER * vectors, bytes = bytes_of(DTYPE(X));
  const i64 first = (i64)blockIdx.x * (256 * UNROLL) + threadIdx.x;
  char *x[UNROLL], *y[UNROLL];
  bool whole[UNROLL]; /* 16 bytes to 16 bytes */
  i64 count[UNROLL];
  uint4 word[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= total) break;
    const place p = place_of(first + u * 256, OUTER, vectors);
    x[u] = VECTOR_AT(X, p), y[u] = VECTOR_AT(Y, p);
    count[u] = min(INNER - p.column, (i64)VEC);
    whole[u] = VEC * bytes == 16 && count[u] == VEC && ((u64)x[u] | (u64)y[u]) % 16 == 0;
    if (whole[u]) word[u] = __ldcs((const uint4 *)x[u]);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= total) break;
    if (whole[u]) __stcs((uint4 *)y[u], word[u]);
    for (i64 i = 0; i < count[u] && !whole[u]; i++) copy_element(y[u] + i * bytes, x[u] + i * bytes, bytes);
  }
}
#endif
