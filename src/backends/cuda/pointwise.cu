/* pointwise.cu -- ops that treat every element alike: point(a, in, out), which the op defines above, on all of them.
 *
 *   IN_SLOTS, OUT_SLOTS   8 bits each: the slots of in[0], in[1], .. and of out[0], ..     INS, OUTS   how many
 *   DIRECT                bits of the outputs with an element for every point; the others are sums over axes that their
 *                         strides repeat: output i has KEPT_i elements, REST_i points each                             */
#define IN_SLOT(i)  ((int)(IN_SLOTS >> 8 * (i)) & 255)
#define OUT_SLOT(i) ((int)(OUT_SLOTS >> 8 * (i)) & 255)

template <bool ALIGNED> inline void get_points(const args &a, place p, real (&in)[INS][VEC]) {
#pragma unroll
  for (int i = 0; i < INS; i++)
    if (HAS(IN_SLOT(i))) GET_AT(in[i], IN_SLOT(i), p);
}

template <bool ALIGNED> inline void put_points(const args &a, place p, real (&out)[OUTS][VEC]) {
#pragma unroll
  for (int i = 0; i < OUTS; i++)
    if (HAS(OUT_SLOT(i)) && (DIRECT >> i & 1)) PUT_AT(OUT_SLOT(i), p, out[i]);
}

inline void compute_points(const args &a, const real (&in)[INS][VEC], real (&out)[OUTS][VEC]) {
#pragma unroll
  for (int k = 0; k < VEC; k++) {
    real x[INS], y[OUTS];
    for (int i = 0; i < INS; i++) x[i] = HAS(IN_SLOT(i)) ? in[i][k] : (real)0;
    point(a, x, y);
    for (int i = 0; i < OUTS; i++) out[i][k] = y[i];
  }
}

template <bool ALIGNED> inline void take_points(const args &a) {
  const i64 vectors = VECTORS, mine = (i64)blockIdx.x * 256 + threadIdx.x;
  if (mine >= OUTER * vectors) return;
  const place at = place_of(mine, OUTER, vectors);
  real in[INS][VEC], out[OUTS][VEC];
  get_points<ALIGNED>(a, at, in);
  compute_points(a, in, out);
  put_points<ALIGNED>(a, at, out);
}

KERNEL(pointwise, 256) {
  if (VEC > 1 && EVEN && a.aligned)
    take_points<true>(a);
  else
    take_points<false>(a);
}

/* ---- outputs that are sums: 32 elements to a block, 32 threads to each, neighbours read neighbours ---- */
#define SUM_KERNEL(I)                                                                                                 \
  KERNEL(pointwise_sum_##I, 1024) {                                                                                   \
    __shared__ real column[32][33];                                                                                   \
    const i64 kept = (i64)blockIdx.x * 32 + threadIdx.x, mine = (i64)blockIdx.x * 32 + threadIdx.y;                   \
    long_sum sum;                                                                                                     \
    sum.clear();                                                                                                      \
    for (i64 rest = threadIdx.y; kept < KEPT_##I && rest < REST_##I; rest += 32) {                                    \
      real in[INS], out[OUTS];                                                                                        \
      for (int i = 0; i < INS; i++) {                                                                                 \
        const int s = IN_SLOT(i);                                                                                     \
        in[i] = HAS(s) ? GET(s, KEEP_##I##_OFFSET(s, kept) + SUM_##I##_OFFSET(s, rest)) : (real)0;                    \
      }                                                                                                               \
      point(a, in, out);                                                                                              \
      sum.add(out[I]);                                                                                                \
    }                                                                                                                 \
    column[threadIdx.y][threadIdx.x] = sum.total;                                                                     \
    __syncthreads();                                                                                                  \
    const real total = warp_sum(column[threadIdx.x][threadIdx.y]);                                                    \
    if (threadIdx.x == 0 && mine < KEPT_##I) PUT(OUT_SLOT(I), KEEP_##I##_OFFSET(OUT_SLOT(I), mine), total);           \
  }
#if !(DIRECT & 1)
SUM_KERNEL(0)
#endif
#if OUTS > 1 && !(DIRECT & 2)
SUM_KERNEL(1)
#endif
