/* forward16.cu -- attention of f16 or bf16 by tensor cores: a block of QUERIES_HERE queries past KEYS_HERE keys at a
 * time.
 *
 *   s = q k^T;   most' = max(most, c s);   p = 2^(c s - most');   o = o 2^(most - most') + p v;   c = scale log2 e
 *
 * A warp has 16 MT queries. s, p and o stay in its registers (tensor.cu); p is rounded to 16 bits to be multiplied with
 * v, but summed as it is. The next keys and values are on their way while a tile is worked on. `most` follows the
 * maximum only when that has grown by a factor 2^8: o is seldom scaled, and p <= 2^8 is as exact as p <= 1.
 * Where there are few queries, SPLITS blocks share the keys of one, and a second kernel puts their parts together. */
namespace forward {
enum {
  MT = FORWARD_MT,
  WARPS = FORWARD_WARPS,
  THREADS = 32 * WARPS,
  QUERIES_HERE = 16 * MT * WARPS,
  KEYS_HERE = FORWARD_KEYS,
  NT = KEYS_HERE / 8,
  DT = DEPTH / 8,
  TILE_BYTES = KEYS_HERE * PITCH * 2
};
#ifdef LOADERS /* warps before those that have queries: forward90.cu */
#define MY_ROW (((int)threadIdx.x / 32 - LOADERS) * 16 * MT)
#else
#define MY_ROW ((int)threadIdx.x / 32 * 16 * MT) /* of the block */
#endif

struct forward_state {
  float o[MT][DT][4];
  float most[MT][2];   /* -inf: nothing was seen yet */
  long_sum sum[MT][2]; /* of this lane's columns     */
};

/* -inf where a query does not see a key */
inline void mask_scores(const args &a, float (&s)[MT][NT][4], int query, int key, int n) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const sight see = seen_by(a, query + 16 * m + 8 * h + LANE_ROW, n);
      const int lo = see.lo - key - LANE_COL, hi = see.hi - key - LANE_COL;
#pragma unroll
      for (int i = 0; i < NT; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * i + e < lo || 8 * i + e >= hi) s[m][i][2 * h + e] = -INFINITY;
    }
}

/* ---- online softmax ---- */
/* The largest of a row of scores: 4 lanes share it */
inline float row_most(const float (&s)[NT][4], int h) {
  float most = s[0][2 * h];
#pragma unroll
  for (int i = 0; i < NT; i++) most = fmaxf(most, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
  most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
  return fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
}

inline void scale_row(forward_state &f, int m, int h, float keep) {
#pragma unroll
  for (int d = 0; d < DT; d++) f.o[m][d][2 * h] *= keep, f.o[m][d][2 * h + 1] *= keep;
}

/* Brings `most` up to date; what was summed so far is to be multiplied by `keep`. */
inline void follow(forward_state &f, const float (&s)[MT][NT][4], float c, float (&keep)[MT][2]) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float now = row_most(s[m], h) * c;
      const bool grown = now > f.most[m][h] + 8.0f;
      keep[m][h] = grown ? fast_exp2(f.most[m][h] - now) : 1.0f;
      if (grown) f.most[m][h] = now;
      f.sum[m][h].total *= keep[m][h], f.sum[m][h].lost *= keep[m][h];
    }
}

inline void rescale(forward_state &f, const float (&keep)[MT][2]) {
#pragma unroll
  for (int i = 0; i < MT * 2; i++)
    if (__any_sync(ALL_LANES, keep[i / 2][i % 2] != 1.0f)) scale_row(f, i / 2, i % 2, keep[i / 2][i % 2]);
}

/* s becomes p. Where nothing was seen yet p is 0. */
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

/* The keys that some query of the block sees; of them the part that is blockIdx.y's */
inline sight keys_here(const args &a, const place &w) {
  sight s;
  s.lo = seen_by(a, w.first, w.valid).lo, s.hi = seen_by(a, w.first + QUERIES_HERE - 1, w.valid).hi;
#if SPLITTING
  const int each = (int)((s.hi - s.lo + KEYS_HERE * SPLITS - 1) / (KEYS_HERE * SPLITS)) * KEYS_HERE;
  const int lo = s.lo + (int)blockIdx.y * each;
  s.hi = lo + each < s.hi ? lo + each : s.hi;
  s.lo = lo;
#endif
  return s;
}

#ifndef LOADERS
inline void forward_keys(const args &a, const place &w, forward_state &f, shared_at q, shared_at k, int key) {
  const int query = w.first + MY_ROW;
  const sight first = seen_by(a, query, w.valid), last = seen_by(a, query + 16 * MT - 1, w.valid);
  const float c = (float)SCALE_LOG2;
  float s[MT][NT][4], keep[MT][2];
  if (query >= QUERIES || last.hi <= key || first.lo >= key + KEYS_HERE) return;
  clear_parts(s);
  add_dots<TYPE, MT, NT, DEPTH, PITCH>(s, q, MY_ROW, k, 0);
  cap_scores(a, s);
  if (last.lo > key || first.hi < key + KEYS_HERE) mask_scores(a, s, query, key, w.valid);
  follow(f, s, c, keep);
  rescale(f, keep);
  exponentials(f, s, c);
  if (HAS(V)) add_weighted<TYPE, MT, DT, NT, PITCH>(f.o, s, k + TILE_BYTES, 0);
}

/* ---- in and out ---- */
inline void load_keys(const args &a, const place &w, shared_at k, int key) {
  load_slot<KEYS_HERE, THREADS>(a, k, K, w.batch, w.group, key, w.valid);
  if (HAS(V)) load_slot<KEYS_HERE, THREADS>(a, k + TILE_BYTES, V, w.batch, w.group, key, w.valid);
  copies_asked();
}

/* The block past its keys. o is still to be divided by the sum of p. */
inline void solve(const args &a, const place &w, forward_state &f, shared_at q) {
  const sight first = seen_by(a, w.first, w.valid), last = seen_by(a, w.first + QUERIES_HERE - 1, w.valid);
  const sight keys = keys_here(a, w);
  shared_at here = q + QUERIES_HERE * PITCH * 2, next = here + 2 * TILE_BYTES;
  bool odd = false; /* v holds infinities or NaN, where some queries do not see it */
  clear_parts(f.o);
#pragma unroll
  for (int i = 0; i < MT * 2; i++) f.most[i / 2][i % 2] = -INFINITY, f.sum[i / 2][i % 2].clear();
  load_slot<QUERIES_HERE, THREADS>(a, q, Q, w.batch, w.head, w.first, (int)QUERIES);
  load_keys(a, w, here, keys.lo);
  for (int key = keys.lo; key < keys.hi; key += KEYS_HERE) {
    copies_done();
    __syncthreads();
    if (key + KEYS_HERE < keys.hi) load_keys(a, w, next, key + KEYS_HERE);
    if (HAS(V) && (last.lo > key || first.hi < key + KEYS_HERE) &&
        has_odd<TYPE, KEYS_HERE, DEPTH, PITCH, THREADS>(here + TILE_BYTES)) {
      clear_odd<TYPE, KEYS_HERE, DEPTH, PITCH, THREADS>(here + TILE_BYTES);
      odd = true;
    }
    forward_keys(a, w, f, q, here, key);
    const shared_at free = here;
    here = next, next = free;
  }
  copies_done();
  if (odd)
    add_odd<TYPE>(
        f.o, row_address(a, V, w.batch, w.group, 0), 2 * L_STRIDE(V), keys.lo, keys.hi, 0, (int)WIDTH,
        [&](int m, int h, int j) { return sees(a, w.first + MY_ROW + 16 * m + 8 * h + LANE_ROW, j, w.valid); });
}
#endif

inline float lanes_sum(float v) { /* of the 4 that share a row */
  v += __shfl_xor_sync(ALL_LANES, v, 1);
  return v + __shfl_xor_sync(ALL_LANES, v, 2);
}

inline float lse_of(float most, float sum) { return sum == 0 ? -INFINITY : most * 0.69314718056f + logf(sum); }

inline void store_row(const args &a, const place &w, const forward_state &f, int m, int h) {
  const int row = w.first + MY_ROW + 16 * m + 8 * h + LANE_ROW;
  const float sum = lanes_sum(f.sum[m][h].total), inverse = sum == 0 ? 0.0f : 1.0f / sum;
  const bool there = row < QUERIES;
  if (there && HAS(LSE) && LANE_COL == 0)
    PUT(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + row * L_STRIDE(LSE), lse_of(f.most[m][h], sum));
  put_row<TYPE>(false, row_address(a, O, w.batch, w.head, row), f.o[m], h, inverse, (int)WIDTH, there);
}
}  // namespace forward

#if SPLITTING
/* Of part y of query `row` of B H L: most, sum, o (WIDTH) */
#define PART(y, row) ((float *)PARTS + ((i64)(y) * (BATCHES * HEADS * QUERIES) + (row)) * (WIDTH + 2))

namespace forward {
inline void store_part(const args &a, const place &w, const forward_state &f, int m, int h) {
  const int row = w.first + MY_ROW + 16 * m + 8 * h + LANE_ROW;
  const float sum = lanes_sum(f.sum[m][h].total);
  if (row >= QUERIES) return;
  float *part = PART(blockIdx.y, (w.batch * HEADS + w.head) * QUERIES + row);
  if (LANE_COL == 0) part[0] = f.most[m][h], part[1] = sum;
#pragma unroll
  for (int d = 0; d < DT; d++)
    if (8 * d < WIDTH) *(float2 *)(part + 2 + 8 * d + LANE_COL) = make_float2(f.o[m][d][2 * h], f.o[m][d][2 * h + 1]);
}

/* What part y counts for, when the largest `most` is that */
inline float part_weight(const float *part, float most) { return part[1] == 0 ? 0.0f : fast_exp2(part[0] - most); }
}  // namespace forward

/* A warp has a query. */
KERNEL(attention_combine, 128) {
  using namespace forward;
  const i64 row = (i64)blockIdx.x * 4 + threadIdx.x / 32, above = row / QUERIES, i = row - above * QUERIES;
  const i64 b = above / HEADS, h = above - b * HEADS;
  float most = -INFINITY, sum = 0;
  if (row >= BATCHES * HEADS * QUERIES) return;
  for (int y = 0; y < SPLITS; y++) most = fmaxf(most, PART(y, row)[0]);
  for (int y = 0; y < SPLITS; y++) sum += PART(y, row)[1] * part_weight(PART(y, row), most);
  if (HAS(LSE) && threadIdx.x % 32 == 0) PUT(LSE, HEAD_OFFSET(LSE, b, h) + i * L_STRIDE(LSE), lse_of(most, sum));
  for (int d = (int)threadIdx.x % 32; d < WIDTH; d += 32) {
    float o = 0;
    for (int y = 0; y < SPLITS; y++) o += PART(y, row)[2 + d] * part_weight(PART(y, row), most);
    PUT(O, HEAD_OFFSET(O, b, h) + i * L_STRIDE(O) + d, sum == 0 ? 0.0f : o / sum);
  }
}
#endif

#ifdef LOADERS
#elif !BACKWARD
KERNEL(attention_forward, 32 * FORWARD_WARPS) {
  using namespace forward;
  DYNAMIC_SHARED(memory);
  const place w = place_of(a, QUERIES, HEADS, QUERIES_HERE, CAUSAL);
  forward_state f;
  solve(a, w, f, shared_address(memory));
#pragma unroll
#if SPLITTING
  for (int i = 0; i < MT * 2; i++) store_part(a, w, f, i / 2, i % 2);
#else
  for (int i = 0; i < MT * 2; i++) store_row(a, w, f, i / 2, i % 2);
#endif
}
#else
namespace forward {
/* This lane's part of do.o of one row; o as saved, or in f */
inline float delta_part(const args &a, const place &w, const forward_state &f, int m, int h, int row, float inverse) {
  float delta = 0;
#pragma unroll
  for (int i = 0; i < DT * 2; i++) {
    const int column = i / 2 * 8 + LANE_COL + i % 2;
    if (row >= QUERIES || column >= WIDTH) continue;
    const float o =
        HAS(O) ? load(TYPE, row_address(a, O, w.batch, w.head, row), column) : f.o[m][i / 2][2 * h + i % 2] * inverse;
    delta += o * load(TYPE, row_address(a, DO, w.batch, w.head, row), column);
  }
  return lanes_sum(delta);
}
}  // namespace forward

/* lse and delta of backward16.cu, where lse or o were not saved */
KERNEL(attention_solve, 32 * FORWARD_WARPS) {
  using namespace forward;
  DYNAMIC_SHARED(memory);
  const place w = place_of(a, QUERIES, HEADS, QUERIES_HERE, CAUSAL);
  forward_state f;
  solve(a, w, f, shared_address(memory));
#pragma unroll
  for (int i = 0; i < MT * 2; i++) {
    const int m = i / 2, h = i % 2, row = w.first + MY_ROW + 8 * i + LANE_ROW;
    const i64 at = (w.batch * HEADS + w.head) * QUERIES + row;
    const float sum = lanes_sum(f.sum[m][h].total), mine = lse_of(f.most[m][h], sum);
    float delta = WANTS_DT ? delta_part(a, w, f, m, h, row, sum == 0 ? 0.0f : 1.0f / sum) : 0.0f, lse = mine;
    if (row >= QUERIES || LANE_COL != 0) continue;
    if (HAS(LSE)) lse = GET(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + row * L_STRIDE(LSE));
    /* o is the sum of p v: with the saved lse in p, should it differ */
    if (HAS(LSE) && !HAS(O) && sum != 0) delta *= fast_exp2((mine - lse) * 1.44269504089f);
    ROW_LSE(at) = lse == -INFINITY ? INFINITY : lse * 1.44269504089f;
    ROW_DELTA(at) = delta;
  }
}
#endif
