/* backward16.cu -- the gradients of attention for f16 or bf16, by tensor cores.
 *
 *   statistics   lse log2 e and delta = do.o of each query: cuda.cu where o and lse were saved, else forward16.cu
 *   dq           a warp has 16 DQ_MT queries, past DQ_KEYS keys at a time:   dq = scale dt k
 *   dkv          two warps have 32 keys, past DKV_QUERIES queries at a time: dk = scale dt^T q,  dv = p^T do
 *   where        s = q k^T;  p = 2^(c s - lse);  dp = do v^T;  dt = p (dp - delta) (1 - tanh^2);  c = scale log2 e
 *
 * In dq everything but tiles of q, k, v and do stays in registers. dkv computes s and dp once more, as s^T and dp^T,
 * each of its two warps for half of the queries; they exchange p^T and dt^T, rounded, and each sums half of the columns
 * of dk and dv. Every result is summed by one warp, in the order of the rows. */

/* p; and p (1 - tanh^2) in place of s */
inline float weight(const args &a, float &s, float c, float lse, bool in) {
  const float p = in ? fast_exp2(fmaf(s, c, -lse)) : 0.0f, capped = s * (float)CAP_INVERSE;
  s = HAS_SOFTCAP ? p * (1.0f - capped * capped) : p;
  return p;
}

/* p in place of s, dt in place of dp */
inline void weigh(const args &a, float &s, float &dp, float c, float lse, float delta, bool in) {
  const float p = weight(a, s, c, lse, in);
  dp = in ? s * (dp - delta) : 0.0f;
  s = p;
}

template <int MT, int NT>
inline void put_rows(const args &a, int s, i64 b, i64 h, int row, int end, int column, const float (&c)[MT][NT][4],
                     float factor) {
#pragma unroll
  for (int i = 0; i < MT * 2; i++) {
    const int here = row + 8 * i + LANE_ROW;
    put_row<TYPE>(ADDS(s), row_address(a, s, b, h, here) + 2 * column, c[i / 2], i % 2, factor, (int)WIDTH - column,
                  here < end);
  }
}

#ifndef LOADERS /* backward90.cu has its own */
/* ---- dq ---- */
namespace dq {
enum {
  MT = DQ_MT,
  NT = DQ_KEYS / 8,
  DT = DEPTH / 8,
  THREADS = 32 * DQ_WARPS,
  ROWS = 16 * MT * DQ_WARPS,
  TILE_BYTES = DQ_KEYS * PITCH * 2
};
#define DQ_ROW ((int)threadIdx.x / 32 * 16 * MT)

struct state {
  float dq[MT][DT][4], lse[MT][2], delta[MT][2];
};

template <bool WHOLE>
inline void weigh_tile(const args &a, const state &f, float (&s)[MT][NT][4], float (&dp)[MT][NT][4], int query, int key,
                       int n) {
  const float c = (float)SCALE_LOG2;
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
          weigh(a, s[m][i][2 * h + e], dp[m][i][2 * h + e], c, f.lse[m][h], f.delta[m][h],
                WHOLE || (8 * i + e >= lo && 8 * i + e < hi));
    }
}

/* odd: k holds infinities or NaN, and not every query of the block sees it */
inline void keys(const args &a, const place &w, state &f, shared_at q, shared_at k, int key, bool odd) {
  const int query = w.first + DQ_ROW;
  const sight first = seen_by(a, query, w.valid), last = seen_by(a, query + 16 * MT - 1, w.valid);
  const bool any = last.hi > key && first.lo < key + DQ_KEYS;
  float s[MT][NT][4], dp[MT][NT][4];
  clear_parts(s), clear_parts(dp);
  if (any) {
    add_dots<TYPE, MT, NT, DEPTH, PITCH>(s, q, DQ_ROW, k, 0);
    add_dots<TYPE, MT, NT, DEPTH, PITCH>(dp, q + ROWS * PITCH * 2, DQ_ROW, k + TILE_BYTES, 0);
    cap_scores(a, s);
    if (last.lo <= key && first.hi >= key + DQ_KEYS)
      weigh_tile<true>(a, f, s, dp, query, key, w.valid);
    else
      weigh_tile<false>(a, f, s, dp, query, key, w.valid);
  }
  if (odd) clear_odd<TYPE, DQ_KEYS, DEPTH, PITCH, THREADS>(k);
  if (any) add_weighted<TYPE, MT, DT, NT, PITCH>(f.dq, dp, k, 0);
}

inline void load_keys(const args &a, const place &w, shared_at k, int key) {
  load_slot<DQ_KEYS, THREADS>(a, k, K, w.batch, w.group, key, w.valid);
  load_slot<DQ_KEYS, THREADS>(a, k + TILE_BYTES, V, w.batch, w.group, key, w.valid);
  copies_asked();
}

inline void begin(const args &a, const place &w, state &f) {
  clear_parts(f.dq);
#pragma unroll
  for (int i = 0; i < MT * 2; i++) {
    const int row = w.first + DQ_ROW + 8 * i + LANE_ROW;
    const i64 at = (w.batch * HEADS + w.head) * QUERIES + row;
    f.lse[i / 2][i % 2] = row < QUERIES ? ROW_LSE(at) : 0.0f;
    f.delta[i / 2][i % 2] = row < QUERIES ? ROW_DELTA(at) : 0.0f;
  }
}
}  // namespace dq

KERNEL(attention_dq, 32 * DQ_WARPS) {
  using namespace dq;
  DYNAMIC_SHARED(memory);
  const shared_at q = shared_address(memory);
  const place w = place_of(a, QUERIES, HEADS, ROWS, CAUSAL);
  const sight first = seen_by(a, w.first, w.valid), last = seen_by(a, w.first + ROWS - 1, w.valid);
  shared_at here = q + 2 * ROWS * PITCH * 2, next = here + 2 * TILE_BYTES;
  state f;
  load_slot<ROWS, THREADS>(a, q, Q, w.batch, w.head, w.first, (int)QUERIES);
  load_slot<ROWS, THREADS>(a, q + ROWS * PITCH * 2, DO, w.batch, w.head, w.first, (int)QUERIES);
  load_keys(a, w, here, first.lo);
  begin(a, w, f);
  for (int key = first.lo; key < last.hi; key += DQ_KEYS) {
    copies_done();
    __syncthreads();
    if (key + DQ_KEYS < last.hi) load_keys(a, w, next, key + DQ_KEYS);
    const bool some = last.lo > key || first.hi < key + DQ_KEYS;
    dq::keys(a, w, f, q, here, key, some && has_odd<TYPE, DQ_KEYS, DEPTH, PITCH, THREADS>(here));
    const shared_at free = here;
    here = next, next = free;
  }
  copies_done();
  put_rows(a, DQ, w.batch, w.head, w.first + DQ_ROW, (int)QUERIES, 0, f.dq, (float)SCALE);
}

/* ---- dk and dv: of wide heads a block has 128 columns, blockIdx.y says which ---- */
namespace dkv {
enum {
  MT = 2,
  NT = DKV_QUERIES / 16,                         /* of s^T: half of the queries */
  DT = DEPTH <= 128 ? (DEPTH + 31) / 32 * 2 : 8, /* of dk and dv: half of the columns */
  THREADS = 32 * DKV_WARPS,
  ROWS = 16 * DKV_WARPS,
  TILE_BYTES = DKV_QUERIES * PITCH * 2,
  STATISTICS_BYTES = DKV_QUERIES * 4,
  STAGE_BYTES = 2 * TILE_BYTES + 2 * STATISTICS_BYTES, /* q, do, lse, delta */
  EXCHANGE_BYTES = 16 * MT * DKV_QUERIES * 2           /* p^T or dt^T of two warps */
};
#define DKV_PAIR  ((int)threadIdx.x / 64)
#define DKV_SIDE  ((int)threadIdx.x / 32 % 2)
#define DKV_ROW   (16 * MT * DKV_PAIR)
#define DKV_FIRST ((int)blockIdx.y * 8 + DKV_SIDE * (DT / 2)) /* 16 columns each */

struct state {
  float dk[MT][DT][4], dv[MT][DT][4];
};

inline void load_queries(const args &a, const place &w, shared_at q, int head, int query) {
  const i64 row = (w.batch * HEADS + head) * QUERIES + query;
  load_slot<DKV_QUERIES, THREADS>(a, q, Q, w.batch, head, query, (int)QUERIES);
  load_slot<DKV_QUERIES, THREADS>(a, q + TILE_BYTES, DO, w.batch, head, query, (int)QUERIES);
  for (int i = threadIdx.x; i < 2 * DKV_QUERIES; i += THREADS) {
    const int j = i % DKV_QUERIES;
    const bool there = query + j < QUERIES;
    const float *from = i < DKV_QUERIES ? &ROW_LSE(row) : &ROW_DELTA(row);
    copy_4(q + 2 * TILE_BYTES + 4 * i, there ? from + j : from, there);
  }
  copies_asked();
}

/* s and dp are (keys, queries): p^T and dt^T */
template <bool WHOLE>
inline void weigh_tile(const args &a, float (&s)[MT][NT][4], float (&dp)[MT][NT][4], shared_at statistics, int query,
                       int key, int n) {
  const float c = (float)SCALE_LOG2;
  int lo[2 * MT], hi[2 * MT]; /* the columns, queries, that see this lane's keys */
#pragma unroll
  for (int h = 0; h < 2 * MT; h++) {
    const sight see = seeing_key(a, key + 8 * h + LANE_ROW, n);
    lo[h] = see.lo - query - LANE_COL, hi[h] = see.hi - query - LANE_COL;
  }
#pragma unroll
  for (int i = 0; i < NT; i++) {
    const float2 lse = load_shared_pair(statistics + 4 * (8 * i + LANE_COL));
    const float2 delta = load_shared_pair(statistics + STATISTICS_BYTES + 4 * (8 * i + LANE_COL));
#pragma unroll
    for (int e = 0; e < MT * 4; e++) {
      const int column = 8 * i + e % 2;
      weigh(a, s[e / 4][i][e % 4], dp[e / 4][i][e % 4], c, e % 2 ? lse.y : lse.x, e % 2 ? delta.y : delta.x,
            WHOLE || (column >= lo[e / 2] && column < hi[e / 2]));
    }
  }
}

/* p^T and dt^T of these keys and half of the queries, into the tiles that both warps read */
inline void exchange(const args &a, const place &w, shared_at k, shared_at q, shared_at p, int query, bool whole) {
  const int mine = DKV_SIDE * (DKV_QUERIES / 2), key = w.first + DKV_ROW;
  const shared_at statistics = q + 2 * TILE_BYTES + 4 * mine;
  float s[MT][NT][4], dp[MT][NT][4];
  clear_parts(s), clear_parts(dp);
  add_dots<TYPE, MT, NT, DEPTH, PITCH>(s, k, DKV_ROW, q, mine);
  if (HAS(DK)) add_dots<TYPE, MT, NT, DEPTH, PITCH>(dp, k + ROWS * PITCH * 2, DKV_ROW, q + TILE_BYTES, mine);
  cap_scores(a, s);
  if (whole)
    weigh_tile<true>(a, s, dp, statistics, query + mine, key, w.valid);
  else
    weigh_tile<false>(a, s, dp, statistics, query + mine, key, w.valid);
  if (HAS(DV)) store_parts<TYPE, MT, NT, DKV_QUERIES>(p, mine / 8, s);
  if (HAS(DK)) store_parts<TYPE, MT, NT, DKV_QUERIES>(p + EXCHANGE_BYTES, mine / 8, dp);
}

/* odd: q or do hold infinities or NaN, and not every key of the block is seen. p: of this pair of warps */
inline void queries(const args &a, const place &w, state &f, shared_at k, shared_at q, shared_at p, int query,
                    bool odd) {
  const int key = w.first + DKV_ROW, key_end = key + 16 * MT;
  const sight first = seen_by(a, query, w.valid), last = seen_by(a, query + DKV_QUERIES - 1, w.valid);
  const bool any = last.hi > key && first.lo < key_end;
  if (any) exchange(a, w, k, q, p, query, last.lo <= key && first.hi >= key_end);
  group_barrier(1 + DKV_PAIR, 64); /* of all pairs: race checkers take warps to pass as many barriers each */
  if (odd) {
    clear_odd<TYPE, DKV_QUERIES, DEPTH, PITCH, THREADS>(q);
    clear_odd<TYPE, DKV_QUERIES, DEPTH, PITCH, THREADS>(q + TILE_BYTES);
  }
  if (any && HAS(DV))
    add_product<TYPE, MT, DT, DKV_QUERIES / 16, DKV_QUERIES, PITCH>(f.dv, p, q + TILE_BYTES, DKV_FIRST);
  if (any && HAS(DK))
    add_product<TYPE, MT, DT, DKV_QUERIES / 16, DKV_QUERIES, PITCH>(f.dk, p + EXCHANGE_BYTES, q, DKV_FIRST);
}

/* What is odd in do, of the heads that share these keys: p do holds it where p is not zero by the mask. (What is odd in
 * q is in p already.) */
inline void put_back(const args &a, const place &w, state &f, const sight &seen) {
  for (int head = w.head * (int)TOGETHER; HAS(DV) && head < (w.head + 1) * TOGETHER; head++)
    add_odd<TYPE>(
        f.dv, row_address(a, DO, w.batch, head, 0), 2 * L_STRIDE(DO), seen.lo, seen.hi, 16 * DKV_FIRST, (int)WIDTH,
        [&](int m, int h, int j) { return sees(a, j, w.first + DKV_ROW + 8 * h + LANE_ROW + 16 * m, w.valid); });
}
}  // namespace dkv

KERNEL_APART(attention_dkv, 32 * DKV_WARPS) {
  using namespace dkv;
  DYNAMIC_SHARED(memory);
  const shared_at k = shared_address(memory);
  const place w = place_of(a, KEYS, GROUPS, ROWS, false);
  const int end = w.first + ROWS < w.valid ? w.first + ROWS : w.valid;
  const sight seen = seeing(a, w.first, end, w.valid);
  shared_at here = k + 2 * ROWS * PITCH * 2, next = here + STAGE_BYTES;
  const shared_at p = here + 2 * STAGE_BYTES + (u32)(DKV_PAIR * 2 * EXCHANGE_BYTES);
  int head = w.head * (int)TOGETHER;
  const int heads_end = seen.lo < seen.hi ? head + (int)TOGETHER : head;
  int query = seen.lo;
  bool spoilt = false;
  state f;
  clear_parts(f.dk), clear_parts(f.dv);
  load_slot<ROWS, THREADS>(a, k, K, w.batch, w.head, w.first, w.valid);
  if (HAS(DK)) load_slot<ROWS, THREADS>(a, k + ROWS * PITCH * 2, V, w.batch, w.head, w.first, w.valid);
  if (head < heads_end) load_queries(a, w, here, head, query);
  while (head < heads_end) {
    const bool turns = query + DKV_QUERIES >= seen.hi;
    const int next_head = turns ? head + 1 : head;
    const int next_query = turns ? seen.lo : query + DKV_QUERIES;
    copies_done();
    __syncthreads();
    if (next_head < heads_end) load_queries(a, w, next, next_head, next_query);
    const bool some =
        seen_by(a, query + DKV_QUERIES - 1, w.valid).lo > w.first || seen_by(a, query, w.valid).hi < w.first + ROWS;
    const bool odd = some && (has_odd<TYPE, DKV_QUERIES, DEPTH, PITCH, THREADS>(here) ||
                              has_odd<TYPE, DKV_QUERIES, DEPTH, PITCH, THREADS>(here + TILE_BYTES));
    queries(a, w, f, k, here, p, query, odd);
    spoilt = spoilt || odd;
    head = next_head, query = next_query;
    const shared_at free = here;
    here = next, next = free;
  }
  copies_done();
  if (spoilt) put_back(a, w, f, seen);
  const int column = 16 * DKV_FIRST;
  if (HAS(DK)) put_rows(a, DK, w.batch, w.head, w.first + DKV_ROW, (int)KEYS, column, f.dk, (float)SCALE);
  if (HAS(DV)) put_rows(a, DV, w.batch, w.head, w.first + DKV_ROW, (int)KEYS, column, f.dv, 1.0f);
}
#endif
