/* pointwise.cu -- ops that treat every element alike: point(a, in, out), which the op defines above, on all of them.
 *
 *   IN_SLOTS, OUT_SLOTS   8 bits each: the slots of in[0], in[1], .. and of out[0], ..     INS, OUTS   how many
 *   OUTER, INNER          numbers: OUTER rows of INNER elements     OUTER_OFFSET(s, row), INNER_STRIDE(s)
 *   VEC                   neighbours a thread takes
 *   WHOLE                 1: VEC divides INNER                       EVEN     1: rows keep the alignment of row 0
 *   DIRECT                bits of the outputs with an element for every point; the others are sums over axes that their
 *                         strides repeat: output i has KEPT_i elements, REST_i points each                             */
#define IN_SLOT(i)  ((int)(IN_SLOTS >> 8 * (i)) & 255)
#define OUT_SLOT(i) ((int)(OUT_SLOTS >> 8 * (i)) & 255)

struct place {
  i64 row, column;
};

inline place place_of(i64 vector, i64 outer, i64 vectors) { /* vectors: in a row */
  place p = {0, vector * VEC};
  if (outer == 1) return p;
  p.row = (vector | vectors) < (1ll << 31) ? (u32)vector / (u32)vectors : vector / vectors;
  p.column = (vector - p.row * vectors) * VEC;
  return p;
}

template <bool ALIGNED> inline void get_points(const args &a, place p, real (&in)[INS][VEC]) {
#pragma unroll
  for (int i = 0; i < INS; i++) {
    const int s = IN_SLOT(i);
    if (!HAS(s)) continue;
    const i64 offset = OUTER_OFFSET(s, p.row);
    if (VEC > 1) load_some<VEC, ALIGNED>(in[i], DTYPE(s), AT(s), offset + p.column, WHOLE ? VEC : INNER - p.column);
    if (VEC == 1) in[i][0] = GET(s, offset + p.column * INNER_STRIDE(s));
  }
}

template <bool ALIGNED> inline void put_points(const args &a, place p, real (&out)[OUTS][VEC]) {
#pragma unroll
  for (int i = 0; i < OUTS; i++) {
    const int s = OUT_SLOT(i);
    if (!HAS(s) || !(DIRECT >> i & 1)) continue;
    const i64 offset = OUTER_OFFSET(s, p.row);
    if (VEC > 1) put_some<VEC, ALIGNED>(DTYPE(s), ADDS(s), AT(s), offset + p.column, out[i], WHOLE ? VEC : INNER - p.column);
    if (VEC == 1) PUT(s, offset + p.column * INNER_STRIDE(s), out[i][0]);
  }
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
  const i64 vectors = (INNER + VEC - 1) / VEC, mine = (i64)blockIdx.x * 256 + threadIdx.x;
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

/* ---- outputs that are sums: 32 elements to a block, 32 threads to each, neighbours read neighbours ------------------- */
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
