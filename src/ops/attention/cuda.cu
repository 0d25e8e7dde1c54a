/* attention on CUDA: what its texts share. general.cu computes in real for everything; forward32.cu and backward32.cu
 * are for f32; forward16.cu and backward16.cu for f16 or bf16, by tensor cores; forward90.cu and backward90.cu the same
 * on Hopper.
 *
 * Numbers: BATCHES HEADS GROUPS QUERIES KEYS WIDTH (B H G L S D), TOGETHER = H/G, CAUSAL, WINDOW; SCALE, SOFTCAP;
 * STRIDES(s, i): element strides of a slot along its axes. */
#define B_STRIDE(s) STRIDES(s, 0)
#define H_STRIDE(s) STRIDES(s, 1)
#define L_STRIDE(s) STRIDES(s, 2)
#define D_STRIDE(s) STRIDES(s, 3)

#if ROWS_FIT_INT /* queries, keys and the window are below 2^30 */
typedef int at_row;
#else
typedef i64 at_row;
#endif

/* Query i sees the keys [lo, hi) of n valid ones: attention_seen of op.h. Both grow with i. */
struct sight {
  at_row lo, hi;
};

inline i64 clamp_key(i64 v, i64 most) { return v < 0 ? 0 : v < most ? v : most; }
inline at_row between(at_row v, at_row most) { return v < 0 ? 0 : v < most ? v : most; }

inline sight seen_by(const args &a, at_row i, at_row n) {
  const at_row position = i + n - (at_row)QUERIES, window = (at_row)WINDOW;
  at_row hi = n, lo = 0;
  if (CAUSAL)
    hi = position + 1;
  else if (window)
    hi = position + window;
  if (window) lo = position - window + 1;
  sight s;
  s.lo = between(lo, n), s.hi = between(hi, n);
  return s;
}

/* The queries [lo, hi) that see any of the keys [key, end), end <= n */
inline sight seeing(const args &a, at_row key, at_row end, at_row n) {
  const at_row shift = (at_row)QUERIES - n, window = (at_row)WINDOW;
  at_row lo = 0, hi = key < end ? (at_row)QUERIES : 0;
  if (CAUSAL)
    lo = key + shift;
  else if (window)
    lo = key + shift - window + 1;
  if (window && key < end) hi = end + shift + window - 1;
  sight s;
  s.lo = between(lo, (at_row)QUERIES), s.hi = between(hi, (at_row)QUERIES);
  return s;
}

inline sight seeing_key(const args &a, at_row key, at_row n) {
  sight s = seeing(a, key, key + 1, n);
  if (key >= n) s.hi = 0;
  return s;
}

inline bool sees(const args &a, at_row i, at_row j, at_row n) {
  const sight s = seen_by(a, i, n);
  return i < QUERIES && j >= s.lo && j < s.hi;
}

inline at_row valid_keys(const args &a, i64 batch) {
  return (at_row)(HAS(LENGTHS) ? clamp_key(load_integer(DTYPE(LENGTHS), AT(LENGTHS), batch * B_STRIDE(LENGTHS)), KEYS)
                               : KEYS);
}

/* A block of the grid: some rows, queries or keys, of one batch and head. Those with most to do come first. */
struct place {
  at_row batch, head, group; /* head: of q or, for rows that are keys, of k; group: of k, where head is of q */
  at_row first, valid;
};

inline place place_at(const args &a, u32 above, u32 block, u32 blocks, i64 heads, i64 each, bool last_first) {
  place w;
  w.batch = (at_row)(above / (u32)heads);
  w.head = (at_row)(above % (u32)heads);
  w.group = TOGETHER ? w.head / (at_row)TOGETHER : 0; /* q may have no heads */
  w.first = (at_row)(last_first ? blocks - 1 - block : block) * (at_row)each;
  w.valid = valid_keys(a, w.batch);
  return w;
}

inline place place_of(const args &a, i64 rows, i64 heads, i64 each, bool last_first) {
  const u32 blocks = (u32)((rows + each - 1) / each), above = blockIdx.x / blocks;
  return place_at(a, above, blockIdx.x - above * blocks, blocks, heads, each, last_first);
}

#define HEAD_OFFSET(s, b, h) ((b)*B_STRIDE(s) + (h)*H_STRIDE(s))

#if BACKWARD
#define WANTS_DT (HAS(DQ) || HAS(DK)) /* dv needs p alone */
/* Of query `row` of B H L: lse (+inf where nothing is seen: p = e^-inf = 0) and delta = do.o, in the workspace */
#define ROW_LSE(row)   (((real *)STATISTICS)[row])
#define ROW_DELTA(row) (((real *)STATISTICS)[BATCHES * HEADS * QUERIES + (row)])
#endif

#ifdef HEAD_DEPTH /* ---- one dtype, dense along D: all texts but general.cu ---- */
enum { TYPE = DTYPE(Q), DEPTH = HEAD_DEPTH }; /* DEPTH: WIDTH rounded up */

inline char *row_address(const args &a, int s, i64 b, i64 h, i64 row) {
  return AT(s) + bytes_of(TYPE) * (HEAD_OFFSET(s, b, h) + row * L_STRIDE(s));
}

#if BACKWARD
/* Of each query lse log2 e and delta, where lse and o were saved: 8 lanes to a query, 16 bytes each at a time */
KERNEL(attention_statistics, 128) {
  enum { EACH = 16 / bytes_of(TYPE) };
  const i64 row = (i64)blockIdx.x * 16 + threadIdx.x / 8, above = row / QUERIES, i = row - above * QUERIES;
  const i64 b = above / HEADS, h = above - b * HEADS;
  const bool there = row < BATCHES * HEADS * QUERIES;
  float delta = 0;
  for (int d = (int)threadIdx.x % 8 * EACH; WANTS_DT && there && d < WIDTH; d += 8 * EACH) {
    float o[EACH], g[EACH];
    load_all<EACH>(o, TYPE, row_address(a, O, b, h, i), d);
    load_all<EACH>(g, TYPE, row_address(a, DO, b, h, i), d);
    for (int k = 0; k < EACH; k++) delta += o[k] * g[k];
  }
  for (int step = 4; step > 0; step /= 2) delta += __shfl_xor_sync(ALL_LANES, delta, step);
  if (!there || threadIdx.x % 8 != 0) return;
  const float lse = GET(LSE, HEAD_OFFSET(LSE, b, h) + i * L_STRIDE(LSE));
  ROW_LSE(row) = lse == -INFINITY ? INFINITY : lse * 1.44269504089f;
  ROW_DELTA(row) = delta;
}
#endif
#endif

#ifdef BLOCK_ROWS /* ---- by multiply-adds: forward32.cu, backward32.cu ---- */
enum { ROWS = BLOCK_ROWS, THREADS = 2 * ROWS, PITCH = DEPTH + 4, NH = DEPTH / 32 };
#define MY_ROW ((int)threadIdx.x / 32 * 16) /* of the block */

template <int COUNT>
inline void bring_slot(const args &a, float *tile, int s, i64 b, i64 h, int first, int end) {
  bring_rows<COUNT, DEPTH, THREADS>(tile, row_address(a, s, b, h, first), 4 * L_STRIDE(s), end - first, (int)WIDTH);
  copies_asked();
}

/* What was asked for is there, and what all warps have read may be overwritten. */
inline void tiles_here() {
  copies_here<0>();
  __syncthreads();
}

/* The rows of a warp, and which columns count for them: queries and the keys they see, or keys and the queries that
 * see them. */
struct warp_rows {
  int row, valid; /* this lane's first */
  bool of_keys;
  sight any, all; /* columns that count for some row, for every row */
  bool any_in(int first, int count) const { return any.hi > first && any.lo < first + count; }
  bool all_in(int first, int count) const { return all.lo <= first && all.hi >= first + count; }
};

/* The columns of this lane's row i, counted from `first` */
inline sight columns_of(const args &a, const warp_rows &r, int i, int first) {
  const int row = r.row + 4 * i;
  sight s = r.of_keys ? seeing_key(a, row, r.valid) : seen_by(a, row, r.valid);
  s.lo -= first, s.hi -= first;
  return s;
}

inline warp_rows warp_queries(const args &a, const place &w) {
  const int row = w.first + MY_ROW;
  const sight first = seen_by(a, row, w.valid), last = seen_by(a, row + 15, w.valid);
  warp_rows r;
  r.row = row + LANE_Y, r.valid = w.valid, r.of_keys = false;
  r.any.lo = first.lo, r.any.hi = row < QUERIES ? last.hi : 0;
  r.all.lo = last.lo, r.all.hi = first.hi;
  return r;
}

inline warp_rows warp_keys(const args &a, const place &w) {
  const int row = w.first + MY_ROW, end = row + 16 < w.valid ? row + 16 : w.valid;
  warp_rows r;
  r.row = row + LANE_Y, r.valid = w.valid, r.of_keys = true;
  r.any = seeing(a, row, end, w.valid);
  r.all.lo = seeing_key(a, row + 15, w.valid).lo;
  r.all.hi = row + 15 < w.valid ? seeing_key(a, row, w.valid).hi : 0;
  return r;
}

/* sum = keep sum + w y, over COLUMNS columns of w from `first` that count; SOME * 32 columns of y at a time */
template <int COLUMNS, int SOME = NH>
inline void add_seen(const args &a, const warp_rows &r, float (&sum)[4][NH][4], const float (&keep)[4], const float *w,
                     const float *y, int first) {
  float part[4][SOME][4];
#pragma unroll
  for (int h = 0; h < NH; h += SOME) {
    if (r.all_in(first, COLUMNS)) {
      multiply_rows<DEPTH, COLUMNS>(part, w, y + 32 * h, [](int, int) { return true; });
    } else {
      const sight s[4] = {columns_of(a, r, 0, first), columns_of(a, r, 1, first), columns_of(a, r, 2, first),
                          columns_of(a, r, 3, first)};
      multiply_rows<DEPTH, COLUMNS>(part, w, y + 32 * h, [&](int i, int k) { return k >= s[i].lo && k < s[i].hi; });
    }
    add_part(sum, keep, part, h);
  }
}

/* A number for each row i and column LANE_X + 8 j of N from `first`: f(i, j, whether it counts) */
template <int N, class F>
inline void for_dots(const args &a, const warp_rows &r, int first, const F &f) {
  if (r.all_in(first, 8 * N)) {
#pragma unroll
    for (int n = 0; n < 4 * N; n++) f(n / N, n % N, true);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const sight s = columns_of(a, r, i, first + LANE_X);
#pragma unroll
    for (int j = 0; j < N; j++) f(i, j, 8 * j >= s.lo && 8 * j < s.hi);
  }
}

/* q.k becomes softcap tanh(scale q.k / softcap) */
template <int N>
inline void cap_scores(const args &a, float (&s)[4][N]) {
#if HAS_SOFTCAP
#pragma unroll
  for (int n = 0; n < 4 * N; n++) s[n / N][n % N] = (float)SOFTCAP * m_tanh(s[n / N][n % N] * (float)CAP_IN);
#endif
}
#elif defined HEAD_DEPTH /* ---- by tensor cores: forward16.cu, backward16.cu ---- */
enum { PITCH = DEPTH <= 32 ? 32 : DEPTH <= 64 ? 64 : DEPTH <= 128 ? 128 : 256 };
#define LANE_ROW ((int)threadIdx.x % 32 / 4) /* g of tensor.cu */
#define LANE_COL ((int)threadIdx.x % 4 * 2)  /* 2 t            */

template <int ROWS, int THREADS>
inline void load_slot(const args &a, shared_at tile, int s, i64 b, i64 h, at_row first, at_row end) {
  load_tile<ROWS, DEPTH, PITCH, THREADS>(tile, row_address(a, s, b, h, first), 2 * L_STRIDE(s), end - first,
                                         (int)WIDTH);
}

#ifdef LOADERS /* forward90.cu, backward90.cu: so many warps bring tiles to the others */
/* The next place of this block of the grid; `turn` begins at 0. PAIRED: the block with most to do of a head is followed
 * by the one with least, and so on. */
inline bool next_place(const args &a, u32 &turn, i64 rows, i64 heads, i64 each, bool last_first, place &w) {
  const u32 blocks = (u32)((rows + each - 1) / each), here = PAIRED ? (blocks + 1) / 2 : blocks;
  for (;;) {
    const u32 item = blockIdx.x + (PAIRED ? turn / 2 : turn) * gridDim.x, above = item / here;
    const u32 first = item - above * here, last = blocks - 1 - first;
    const bool partner = PAIRED && turn % 2;
    if (above >= (u32)(BATCHES * heads)) return false;
    turn++;
    if (partner && first == last) continue; /* the one in the middle has none */
    w = place_at(a, above, partner ? last : first, blocks, heads, each, last_first);
    return true;
  }
}

template <int ROWS>
inline void bring_slot(const args &a, shared_at tile, int s, i64 b, i64 h, at_row first, at_row end, bool quick) {
  bring_tile<ROWS, DEPTH>(tile, row_address(a, s, b, h, first), 2 * L_STRIDE(s), end - first, (int)WIDTH, quick);
}
#endif

/* s = q.k becomes softcap tanh(scale s / softcap) / scale: tanh x = 1 - 2 / (1 + e^2x) */
template <int MT, int NT>
inline void cap_scores(const args &a, float (&s)[MT][NT][4]) {
  const float in = (float)CAP_IN, out = (float)CAP_OUT;
#pragma unroll
  for (int i = 0; HAS_SOFTCAP && i < MT * NT * 4; i++) {
    float &x = s[i / (NT * 4)][i / 4 % NT][i % 4];
    x = out * (1.0f - 2.0f * fast_rcp(1.0f + fast_exp2(x * in)));
  }
}
#endif
