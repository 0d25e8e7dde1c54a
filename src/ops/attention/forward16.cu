/* forward16.cu -- attention of f16 or bf16 by tensor cores: a block of QUERIES_HERE queries past KEYS_HERE keys at a time.
 *
 *   s = q k^T;   most' = max(most, s);   p = 2^(c (s - most'));   o = o 2^(c (most - most')) + p v;   c = scale log2 e
 *
 * A warp has 16 MT queries. s, p and o stay in its registers (tensor.cu); p is rounded to 16 bits to be multiplied with v,
 * but summed as it is. The next keys and values are on their way while a tile is worked on. `most` follows the maximum
 * only when that has grown by a factor 2^8: o is seldom scaled, and p <= 2^8 is as exact as p <= 1. */
enum {
  TYPE = DTYPE(Q),
  DEPTH = HEAD_DEPTH, /* WIDTH rounded up to 16 */
  PITCH = DEPTH <= 32 ? 32 : DEPTH <= 64 ? 64 : DEPTH <= 128 ? 128 : 256,
  MT = FORWARD_MT,
  WARPS = FORWARD_WARPS,
  THREADS = 32 * WARPS,
  QUERIES_HERE = 16 * MT * WARPS,
  KEYS_HERE = FORWARD_KEYS,
  NT = KEYS_HERE / 8,
  DT = DEPTH / 8,
  TILE_BYTES = KEYS_HERE * PITCH * 2
};
#define LANE_ROW ((int)threadIdx.x % 32 / 4)     /* g of tensor.cu */
#define LANE_COL ((int)threadIdx.x % 4 * 2)      /* 2 t            */
#define MY_ROW   ((int)threadIdx.x / 32 * 16 * MT) /* of the block */

struct forward_state {
  float o[MT][DT][4];
  float most[MT][2]; /* times c */
  long_sum sum[MT][2]; /* of this lane's columns */
};

/* ---- scores ------------------------------------------------------------------------------------------------------- */
#if HAS_SOFTCAP
/* softcap tanh(s scale / softcap) / scale, as everything else multiplies by c: tanh x = 1 - 2 / (1 + e^2x) */
inline float capped(const args &a, float s) {
  const float u = fast_exp2(s * (float)CAP_IN);
  return (float)CAP_OUT * (1.0f - 2.0f * fast_rcp(1.0f + u));
}
#endif

/* -inf where query row .. does not see key .. */
inline void mask_scores(const args &a, float (&s)[MT][NT][4], i64 query, i64 key, i64 n) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const sight see = seen_by(a, query + 16 * m + 8 * h + LANE_ROW, n);
      const int lo = (int)clamp_key(see.lo - key, KEYS_HERE), hi = (int)clamp_key(see.hi - key, KEYS_HERE);
#pragma unroll
      for (int i = 0; i < NT; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int j = 8 * i + LANE_COL + e;
          if (j < lo || j >= hi) s[m][i][2 * h + e] = -INFINITY;
        }
    }
}

/* ---- online softmax ------------------------------------------------------------------------------------------------- */
/* The largest of a row of scores: 4 lanes share it */
inline float row_most(const float (&s)[NT][4], int h) {
  float most = s[0][2 * h];
#pragma unroll
  for (int i = 0; i < NT; i++) most = fmaxf(most, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
  most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
  return fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
}

/* Brings `most` up to date, and with it what was summed so far. */
inline void follow(forward_state &f, const float (&s)[MT][NT][4], float c) {
  float keep[MT][2];
  bool any = false;
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float now = row_most(s[m], h) * c;
      const bool grown = now > f.most[m][h] + 8.0f;
      keep[m][h] = grown ? fast_exp2(f.most[m][h] - now) : 1.0f;
      if (grown) f.most[m][h] = now;
      any = any || grown;
    }
  if (!__any_sync(ALL_LANES, any)) return;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) f.sum[m][h].total *= keep[m][h], f.sum[m][h].lost *= keep[m][h];
#pragma unroll
    for (int d = 0; d < DT; d++)
#pragma unroll
      for (int e = 0; e < 4; e++) f.o[m][d][e] *= keep[m][e / 2];
  }
}

/* s becomes p. Where nothing was seen yet, most is -inf and p is 0. */
inline void exponentials(forward_state &f, float (&s)[MT][NT][4], float c) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float base = f.most[m][h] == -INFINITY ? 0.0f : f.most[m][h];
      float sum[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < NT; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float p = fast_exp2(fmaf(s[m][i][2 * h + e], c, -base));
          s[m][i][2 * h + e] = p;
          sum[e] += p;
        }
      f.sum[m][h].add(sum[0] + sum[1]);
    }
}

inline void forward_keys(const args &a, const place &w, forward_state &f, shared_at q, shared_at k, shared_at v, i64 key) {
  const i64 query = w.first + MY_ROW;
  const sight first = seen_by(a, query, w.valid), last = seen_by(a, query + 16 * MT - 1, w.valid);
  const float c = (float)SCALE_LOG2;
  float s[MT][NT][4];
  if (last.hi <= key || first.lo >= key + KEYS_HERE) return;
  clear_parts(s);
  add_dots<TYPE, MT, NT, DEPTH, PITCH>(s, q, MY_ROW, k, 0);
#if HAS_SOFTCAP
#pragma unroll
  for (int i = 0; i < MT * NT * 4; i++) s[i / (NT * 4)][i / 4 % NT][i % 4] = capped(a, s[i / (NT * 4)][i / 4 % NT][i % 4]);
#endif
  if (last.lo > key || first.hi < key + KEYS_HERE) mask_scores(a, s, query, key, w.valid);
  follow(f, s, c);
  exponentials(f, s, c);
  add_weighted<TYPE, MT, DT, NT, PITCH>(f.o, s, v, 0);
}

/* ---- in and out ------------------------------------------------------------------------------------------------------ */
inline void load_keys(const args &a, const place &w, shared_at k, shared_at v, i64 key) {
  const i64 group = w.head / TOGETHER, left = w.valid - key;
  load_tile<KEYS_HERE, DEPTH, PITCH, THREADS>(
      k, AT(K) + 2 * (HEAD_OFFSET(K, w.batch, group) + key * L_STRIDE(K)), 2 * L_STRIDE(K), left, (int)WIDTH);
  load_tile<KEYS_HERE, DEPTH, PITCH, THREADS>(
      v, AT(V) + 2 * (HEAD_OFFSET(V, w.batch, group) + key * L_STRIDE(V)), 2 * L_STRIDE(V), left, (int)WIDTH);
  copies_issued();
}

inline void store_output(const args &a, const place &w, forward_state &f) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const i64 row = w.first + MY_ROW + 16 * m + 8 * h + LANE_ROW;
      float sum = f.sum[m][h].total;
      sum += __shfl_xor_sync(ALL_LANES, sum, 1);
      sum += __shfl_xor_sync(ALL_LANES, sum, 2);
      const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
      if (row >= QUERIES) continue;
      if (HAS(LSE) && LANE_COL == 0)
        PUT(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + row * L_STRIDE(LSE),
            sum == 0 ? -INFINITY : f.most[m][h] * 0.69314718056f + logf(sum));
      char *o = AT(O) + 2 * (HEAD_OFFSET(O, w.batch, w.head) + row * L_STRIDE(O));
#pragma unroll
      for (int d = 0; d < DT; d++)
        if (8 * d < WIDTH)
          store_pair<TYPE>(o, 8 * d + LANE_COL, f.o[m][d][2 * h] * inverse, f.o[m][d][2 * h + 1] * inverse);
    }
}

KERNEL(attention_forward, THREADS) {
  DYNAMIC_SHARED(memory);
  const shared_at q = shared_address(memory), keys = q + QUERIES_HERE * PITCH * 2;
  const place w = place_of(a, QUERIES, HEADS, QUERIES_HERE, CAUSAL);
  const i64 lo = seen_by(a, w.first, w.valid).lo, hi = seen_by(a, w.first + QUERIES_HERE - 1, w.valid).hi;
  forward_state f;
  clear_parts(f.o);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) f.most[m][h] = -INFINITY, f.sum[m][h].clear();
  load_tile<QUERIES_HERE, DEPTH, PITCH, THREADS>(
      q, AT(Q) + 2 * (HEAD_OFFSET(Q, w.batch, w.head) + w.first * L_STRIDE(Q)), 2 * L_STRIDE(Q), QUERIES - w.first,
      (int)WIDTH);
  int turn = 0;
  load_keys(a, w, keys, keys + TILE_BYTES, lo);
  for (i64 key = lo; key < hi; key += KEYS_HERE, turn ^= 1) {
    const shared_at here = keys + (u32)(turn * 2 * TILE_BYTES), next = keys + (u32)((turn ^ 1) * 2 * TILE_BYTES);
    copies_done();
    __syncthreads();
    if (key + KEYS_HERE < hi) load_keys(a, w, next, next + TILE_BYTES, key + KEYS_HERE);
    forward_keys(a, w, f, q, here, here + TILE_BYTES, key);
  }
  copies_done();
  store_output(a, w, f);
}
