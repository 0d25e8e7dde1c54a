/* backward90.cu -- dq, dk and dv on Hopper: backward16.cu's formulas, by products of whole groups of warps (wgmma.cu).
 *
 *   dq    a group has 64 queries, past KEYS_HERE keys at a time:     s = q k^T;    dp = do v^T;    dq += dt k
 *   dkv   a group has 64 keys, past QUERIES_HERE queries at a time:  s^T = k q^T;  dp^T = v do^T;  dv += p^T do,
 *         dk += dt^T q
 *
 * p and dt stay in registers. One group of warps brings the tiles that the others read. The scores of the next tile are
 * under way while the sums of the last one are, and dp while p is computed. Each sum is one group's, in the order of
 * the rows. A tile that holds infinities or NaN, and is not seen whole, is cleared of them after s and dp (odd tiles).
 */
enum { WORKERS = 8, WORKING = 32 * WORKERS }; /* warps, threads */
#define MY_GROUP ((int)threadIdx.x / GROUP - LOADERS / 4)
#define MY_ROW   (((int)threadIdx.x / 32 - LOADERS) * 16)

/* Stages of tiles, their barriers, and the number of the last odd tile of a stage */
template <int STAGES>
struct stages {
  shared_at at; /* came, read: a barrier each for every stage; one for the rows of a place; then the numbers */
  shared_at came(int stage) const { return at + 8u * (u32)stage; }
  shared_at read(int stage) const { return at + 8u * (u32)(STAGES + stage); }
  shared_at rows_read() const { return at + 16u * STAGES; }
  shared_at odd(int stage) const { return at + 16u * STAGES + 8 + 4u * (u32)stage; }
  void begin() const {
    barrier_init(rows_read(), WORKERS);
    for (int i = 0; i < STAGES; i++) {
      barrier_init(came(i), GROUP), barrier_init(read(i), WORKING);
      store_shared(odd(i), 0);
    }
  }
};

/* Both groups are done with the tile's first products: nothing odd is in it for the others. */
template <int ROWS>
inline void clear_tiles(shared_at tile, int tiles) {
  products_done<0>();
  group_barrier(1, WORKING);
  for (int i = 0; i < tiles; i++)
    clear_panels<TYPE, ROWS, DEPTH>(tile + (u32)(i * ROWS * PITCH * 2), (int)threadIdx.x - GROUP, WORKING);
  shared_to_products();
  group_barrier(1, WORKING);
}

/* Tiles of two slots, one behind the other. A loop compiles sooner than both side by side. */
template <int ROWS>
inline void bring_two(const args &a, shared_at tile, int first_slot, int second_slot, i64 b, i64 h, int first, int end,
                      bool quick) {
#pragma unroll 1
  for (int i = 0; i < 2; i++)
    bring_slot<ROWS>(a, tile + (u32)(i * ROWS * PITCH * 2), i ? second_slot : first_slot, b, h, first, end, quick);
}

template <int NT, int ROWS_X>
inline void begin_dots(float (&c)[1][NT][4], shared_at x, shared_at y) {
  hold(c[0]);
  products_begin();
  group_dots<TYPE, NT, DEPTH, ROWS_X, 8 * NT>(c[0], x, MY_GROUP * 64, y);
  products_issued();
}
template <int NT, int KT>
inline void begin_sum(float (&c)[1][NT][4], const u32 (&w)[KT][4], shared_at y) {
  hold(c[0]);
  products_begin();
  group_weighted<TYPE, NT, KT, 16 * KT>(c[0], w, y);
  products_issued();
}

/* ---- dq ---- */
namespace dq {
enum {
  KEYS_HERE = DQ_KEYS,
  NT = KEYS_HERE / 8,
  DT = DEPTH / 8,
  ROWS = 16 * WORKERS,
  STAGES = 2,
  ROWS_BYTES = ROWS * PITCH * 2,
  TILE_BYTES = KEYS_HERE * PITCH * 2,
  STAGES_AT = 2 * ROWS_BYTES, /* after q, do: k, v */
  BARRIERS_AT = STAGES_AT + STAGES * 2 * TILE_BYTES
};

struct state {
  float dq[1][DT][4], lse[2], delta[2];
};

inline void begin(const args &a, const place &w, state &f) {
  clear_parts(f.dq);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = w.first + MY_ROW + 8 * h + LANE_ROW;
    const i64 at = (w.batch * HEADS + w.head) * QUERIES + row;
    f.lse[h] = row < QUERIES ? ROW_LSE(at) : 0.0f;
    f.delta[h] = row < QUERIES ? ROW_DELTA(at) : 0.0f;
  }
}

/* Does each(n, e, h, in) for the parts of a tile from `key` on; in: the query sees the key */
template <bool WHOLE, class EACH>
inline void every_part(const args &a, const place &w, int key, EACH each) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const sight see = seen_by(a, w.first + MY_ROW + 8 * h + LANE_ROW, w.valid);
    const int lo = see.lo - key - LANE_COL, hi = see.hi - key - LANE_COL;
#pragma unroll
    for (int i = 0; i < NT * 2; i++) {
      const int column = i / 2 * 8 + i % 2;
      each(i / 2, 2 * h + i % 2, h, WHOLE || (column >= lo && column < hi));
    }
  }
}

template <bool WHOLE>
inline void weights(const args &a, const place &w, const state &f, float (&s)[1][NT][4], int key) {
  cap_scores(a, s);
  every_part<WHOLE>(a, w, key,
                    [&](int n, int e, int h, bool in) { weight(a, s[0][n][e], (float)SCALE_LOG2, f.lse[h], in); });
}
template <bool WHOLE>
inline void slopes(const args &a, const place &w, const state &f, const float (&s)[1][NT][4], float (&dp)[1][NT][4],
                   int key) {
  every_part<WHOLE>(a, w, key, [&](int n, int e, int h, bool in) {
    dp[0][n][e] = in ? s[0][n][e] * (dp[0][n][e] - f.delta[h]) : 0.0f;
  });
}

/* The keys that some query of a place sees */
inline sight keys_here(const args &a, const place &w) {
  sight keys;
  keys.lo = seen_by(a, w.first, w.valid).lo, keys.hi = seen_by(a, w.first + ROWS - 1, w.valid).hi;
  return keys;
}

inline void bring_place(const args &a, const place &w, const sight &keys, shared_at q, const stages<STAGES> &b,
                        ring<STAGES> &at, u32 &number) {
  const sight first = seen_by(a, w.first, w.valid), last = seen_by(a, w.first + ROWS - 1, w.valid);
  const bool quick = (((u64)AT(Q) | (u64)AT(K) | (u64)AT(V) | (u64)AT(DO)) & 15) == 0;
  bring_two<ROWS>(a, q, Q, DO, w.batch, w.head, w.first, (int)QUERIES, quick);
  for (int key = keys.lo; key < keys.hi; key += KEYS_HERE, at.next()) {
    const shared_at k = q + (u32)(STAGES_AT + at.stage * 2 * TILE_BYTES);
    const bool some = last.lo > key || first.hi < key + KEYS_HERE;
    number++;
    barrier_wait(b.read(at.stage), at.phase ^ 1);
    bring_two<KEYS_HERE>(a, k, K, V, w.batch, w.group, key, w.valid, quick);
    if (some) {
      copies_done();
      if (brought_odd<TYPE, KEYS_HERE, DEPTH>(k)) store_shared(b.odd(at.stage), number);
    }
    tile_came(b.came(at.stage), quick && !some);
  }
}

inline void bring_all(const args &a, shared_at q, const stages<STAGES> &b) {
  ring<STAGES> at;
  u32 turn = 0, number = 0, phase = 1;
  place w;
  while (next_place(a, turn, QUERIES, HEADS, ROWS, CAUSAL, w)) {
    const sight keys = keys_here(a, w);
    if (keys.lo >= keys.hi) continue;
    barrier_wait(b.rows_read(), phase);
    phase ^= 1;
    bring_place(a, w, keys, q, b, at, number);
  }
}

inline void work(const args &a, const place &w, state &f, const sight &keys, shared_at q, const stages<STAGES> &b,
                 ring<STAGES> &at, u32 &number) {
  const int query = w.first + MY_ROW;
  const sight first = seen_by(a, query, w.valid), last = seen_by(a, query + 15, w.valid);
  float s[1][NT][4], dp[1][NT][4];
  u32 dt[NT / 2][4];
  hold(f.dq[0]); /* zeros now: set among products, they would keep these from overlapping */
  for (int key = keys.lo; key < keys.hi; key += KEYS_HERE, at.next()) {
    const shared_at k = q + (u32)(STAGES_AT + at.stage * 2 * TILE_BYTES);
    const bool whole = last.lo <= key && first.hi >= key + KEYS_HERE;
    barrier_wait(b.came(at.stage), at.phase);
    shared_to_products();
    begin_dots<NT, ROWS>(s, q, k);
    products_done<1>();
    hold(f.dq[0]);
    if (key > keys.lo) barrier_arrive(b.read(at.stage ^ 1));
    number++;
    begin_dots<NT, ROWS>(dp, q + ROWS_BYTES, k + TILE_BYTES);
    products_done<1>();
    hold(s[0]);
    whole ? weights<true>(a, w, f, s, key) : weights<false>(a, w, f, s, key);
    products_done<0>();
    hold(dp[0]);
    whole ? slopes<true>(a, w, f, s, dp, key) : slopes<false>(a, w, f, s, dp, key);
    pack_parts<TYPE>(dt, dp[0]);
    if (load_shared(b.odd(at.stage)) == number) clear_tiles<KEYS_HERE>(k, 1);
    begin_sum(f.dq, dt, k);
  }
  products_done<0>();
  hold(f.dq[0]);
  if (keys.lo < keys.hi) barrier_arrive(b.read(at.stage ^ 1)), warp_arrives(b.rows_read());
}

inline void work_all(const args &a, shared_at q, const stages<STAGES> &b) {
  ring<STAGES> at;
  u32 turn = 0, number = 0;
  place w;
  while (next_place(a, turn, QUERIES, HEADS, ROWS, CAUSAL, w)) {
    state f;
    begin(a, w, f);
    work(a, w, f, keys_here(a, w), q, b, at, number);
    put_rows(a, DQ, w.batch, w.head, w.first + MY_ROW, (int)QUERIES, 0, f.dq, (float)SCALE);
  }
}
}  // namespace dq

KERNEL(attention_dq, 32 * (WORKERS + LOADERS), 1) {
  using namespace dq;
  DYNAMIC_SHARED(memory);
  const shared_at q = first_atom(memory);
  const stages<STAGES> b = {q + BARRIERS_AT};
  if (threadIdx.x == 0) b.begin();
  __syncthreads();
  if (threadIdx.x < GROUP) {
    fewer_registers<40>();
    bring_all(a, q, b);
  } else {
    more_registers<232>();
    work_all(a, q, b);
  }
}

/* ---- dk and dv ---- */
namespace dkv {
enum {
  QUERIES_HERE = DKV_QUERIES,
  NT = QUERIES_HERE / 8,
  DT = DEPTH / 8,
  ROWS = 16 * WORKERS,
  STAGES = 3,
  ROWS_BYTES = ROWS * PITCH * 2,
  TILE_BYTES = QUERIES_HERE * PITCH * 2,
  STATISTICS_BYTES = QUERIES_HERE * 4, /* lse, then delta, of a stage */
  STAGES_AT = 2 * ROWS_BYTES,          /* after k, v: q, do           */
  STATISTICS_AT = STAGES_AT + STAGES * 2 * TILE_BYTES,
  BARRIERS_AT = STATISTICS_AT + STAGES * 2 * STATISTICS_BYTES
};
static_assert(2 * QUERIES_HERE == GROUP, "a thread of the loaders has one number of the statistics");

struct state {
  float dk[1][DT][4], dv[1][DT][4];
};

/* The tiles in turn: of every head that shares the keys, the queries that see some of them */
struct walk_queries {
  int head, end, query;
  sight seen;
  walk_queries(const args &a, const place &w) {
    seen = seeing(a, w.first, w.first + ROWS < w.valid ? w.first + ROWS : w.valid, w.valid);
    head = w.head * (int)TOGETHER, query = seen.lo;
    end = seen.lo < seen.hi ? head + (int)TOGETHER : head;
  }
  bool more() const { return head < end; }
  void next() {
    query += QUERIES_HERE;
    if (query >= seen.hi) head++, query = seen.lo;
  }
};

inline void bring_queries(const args &a, const place &w, const walk_queries &at, shared_at q, shared_at statistics,
                          bool quick) {
  const i64 row = (w.batch * HEADS + at.head) * QUERIES + at.query;
  const int i = (int)threadIdx.x % GROUP, j = i % QUERIES_HERE;
  const float *from = i < QUERIES_HERE ? &ROW_LSE(row) : &ROW_DELTA(row);
  const bool there = at.query + j < QUERIES;
  bring_two<QUERIES_HERE>(a, q, Q, DO, w.batch, at.head, at.query, (int)QUERIES, quick);
  copy_4(statistics + 4u * (u32)i, there ? from + j : from, there);
}

inline void bring_place(const args &a, const place &w, shared_at k, const stages<STAGES> &b, ring<STAGES> &at,
                        u32 &number) {
  const bool quick = (((u64)AT(Q) | (u64)AT(K) | (u64)AT(V) | (u64)AT(DO)) & 15) == 0;
  bring_two<ROWS>(a, k, K, V, w.batch, w.head, w.first, w.valid, quick);
  for (walk_queries i(a, w); i.more(); i.next(), at.next()) {
    const shared_at q = k + (u32)(STAGES_AT + at.stage * 2 * TILE_BYTES);
    const bool some = seen_by(a, i.query + QUERIES_HERE - 1, w.valid).lo > w.first ||
                      seen_by(a, i.query, w.valid).hi < w.first + ROWS;
    number++;
    barrier_wait(b.read(at.stage), at.phase ^ 1);
    bring_queries(a, w, i, q, k + (u32)(STATISTICS_AT + at.stage * 2 * STATISTICS_BYTES), quick);
    if (some) {
      copies_done();
      if (brought_odd<TYPE, QUERIES_HERE, DEPTH>(q) || brought_odd<TYPE, QUERIES_HERE, DEPTH>(q + TILE_BYTES))
        store_shared(b.odd(at.stage), number);
    }
    tile_came(b.came(at.stage), quick && !some);
  }
}

inline void bring_all(const args &a, shared_at k, const stages<STAGES> &b) {
  ring<STAGES> at;
  u32 turn = 0, number = 0, phase = 1;
  place w;
  while (next_place(a, turn, KEYS, GROUPS, ROWS, false, w)) {
    if (!walk_queries(a, w).more()) continue;
    barrier_wait(b.rows_read(), phase);
    phase ^= 1;
    bring_place(a, w, k, b, at, number);
  }
}

/* Does each(n, e, in, number) for the parts of a tile of (keys, queries) from `query` on; number: of its query, from
 * `statistics` */
template <bool WHOLE, class EACH>
inline void every_part(const args &a, const place &w, int query, shared_at statistics, EACH each) {
  int lo[2], hi[2]; /* the columns, queries, that see this lane's two keys */
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const sight see = seeing_key(a, w.first + MY_ROW + 8 * h + LANE_ROW, w.valid);
    lo[h] = see.lo - query - LANE_COL, hi[h] = see.hi - query - LANE_COL;
  }
#pragma unroll
  for (int n = 0; n < NT; n++) {
    const float2 numbers = load_shared_pair(statistics + 4u * (u32)(8 * n + LANE_COL));
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int column = 8 * n + e % 2;
      each(n, e, WHOLE || (column >= lo[e / 2] && column < hi[e / 2]), e % 2 ? numbers.y : numbers.x);
    }
  }
}

/* p, rounded */
template <bool WHOLE>
inline void weights(const args &a, const place &w, u32 (&p)[NT / 2][4], float (&s)[1][NT][4], int query,
                    shared_at statistics) {
  float low = 0; /* of a pair: the parts come in order */
  cap_scores(a, s);
  every_part<WHOLE>(a, w, query, statistics, [&](int n, int e, bool in, float lse) {
    const float v = weight(a, s[0][n][e], (float)SCALE_LOG2, lse, in);
    if (e % 2) p[n / 2][n % 2 * 2 + e / 2] = two_halves<TYPE>(low, v);
    low = v;
  });
}
template <bool WHOLE>
inline void slopes(const args &a, const place &w, const float (&s)[1][NT][4], float (&dp)[1][NT][4], int query,
                   shared_at statistics) {
  every_part<WHOLE>(a, w, query, statistics + STATISTICS_BYTES, [&](int n, int e, bool in, float delta) {
    dp[0][n][e] = in ? s[0][n][e] * (dp[0][n][e] - delta) : 0.0f;
  });
}

/* Returns whether any tile was odd. */
inline bool work(const args &a, const place &w, state &f, shared_at k, const stages<STAGES> &b, ring<STAGES> &at,
                 u32 &number) {
  const int key = w.first + MY_ROW;
  int before = -1;
  bool spoilt = false;
  float s[1][NT][4], dp[1][NT][4];
  u32 p[NT / 2][4], dt[NT / 2][4];
  hold(f.dv[0]), hold(f.dk[0]);
  for (walk_queries i(a, w); i.more(); i.next(), at.next()) {
    const shared_at q = k + (u32)(STAGES_AT + at.stage * 2 * TILE_BYTES);
    const shared_at statistics = k + (u32)(STATISTICS_AT + at.stage * 2 * STATISTICS_BYTES);
    const bool whole =
        seen_by(a, i.query + QUERIES_HERE - 1, w.valid).lo <= key && seen_by(a, i.query, w.valid).hi >= key + 16;
    barrier_wait(b.came(at.stage), at.phase);
    shared_to_products();
    begin_dots<NT, ROWS>(s, k, q);
    products_done<1>();
    hold(f.dv[0]), hold(f.dk[0]);
    if (before >= 0) barrier_arrive(b.read(before));
    before = at.stage;
    number++;
    begin_dots<NT, ROWS>(dp, k + ROWS_BYTES, q + TILE_BYTES);
    products_done<1>();
    hold(s[0]);
    whole ? weights<true>(a, w, p, s, i.query, statistics) : weights<false>(a, w, p, s, i.query, statistics);
    if (load_shared(b.odd(at.stage)) == number) {
      clear_tiles<QUERIES_HERE>(q, 2);
      spoilt = true;
    }
    begin_sum(f.dv, p, q + TILE_BYTES);
    products_done<1>();
    hold(dp[0]);
    whole ? slopes<true>(a, w, s, dp, i.query, statistics) : slopes<false>(a, w, s, dp, i.query, statistics);
    pack_parts<TYPE>(dt, dp[0]);
    begin_sum(f.dk, dt, q);
  }
  products_done<0>();
  hold(f.dv[0]), hold(f.dk[0]);
  if (before >= 0) barrier_arrive(b.read(before)), warp_arrives(b.rows_read());
  return spoilt;
}

/* What is odd in do, of the heads that share these keys: p do holds it where p is not zero by the mask. (What is odd in
 * q is in p already.) */
inline void put_back(const args &a, const place &w, state &f) {
  const sight seen = walk_queries(a, w).seen;
  for (int head = w.head * (int)TOGETHER; head < (w.head + 1) * TOGETHER; head++)
    add_odd<TYPE>(f.dv, row_address(a, DO, w.batch, head, 0), 2 * L_STRIDE(DO), seen.lo, seen.hi, 0, (int)WIDTH,
                  [&](int, int h, int j) { return sees(a, j, w.first + MY_ROW + 8 * h + LANE_ROW, w.valid); });
}

/* dk, then dv in its place: a loop, as in bring_two */
inline void put_both(const args &a, const place &w, state &f) {
#pragma unroll 1
  for (int turn = 0; turn < 2; turn++) {
    put_rows(a, turn ? DV : DK, w.batch, w.head, w.first + MY_ROW, (int)KEYS, 0, f.dk, turn ? 1.0f : (float)SCALE);
#pragma unroll
    for (int i = 0; i < DT * 4; i++) f.dk[0][i / 4][i % 4] = f.dv[0][i / 4][i % 4];
  }
}

inline void work_all(const args &a, shared_at k, const stages<STAGES> &b) {
  ring<STAGES> at;
  u32 turn = 0, number = 0;
  place w;
  while (next_place(a, turn, KEYS, GROUPS, ROWS, false, w)) {
    state f;
    clear_parts(f.dk), clear_parts(f.dv);
    if (work(a, w, f, k, b, at, number)) put_back(a, w, f);
    put_both(a, w, f);
  }
}
}  // namespace dkv

KERNEL_APART(attention_dkv, 32 * (WORKERS + LOADERS), 1) {
  using namespace dkv;
  DYNAMIC_SHARED(memory);
  const shared_at k = first_atom(memory);
  const stages<STAGES> b = {k + BARRIERS_AT};
  if (threadIdx.x == 0) b.begin();
  __syncthreads();
  if (threadIdx.x < GROUP) {
    fewer_registers<24>();
    bring_all(a, k, b);
  } else {
    more_registers<240>();
    work_all(a, k, b);
  }
}
