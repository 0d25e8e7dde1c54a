/* general.cu -- attention for every dtype and stride: TILE queries past TILE keys at a time, all in shared memory.
 *
 *   forward     a block of queries past the keys it sees, as in forward.h
 *   backward    statistics of each query; dq of a block of queries; dk and dv of a block of keys, past the queries of
 *               all heads that share them, in their order
 *
 * TILE x DEPTH values lie in a tile (D is padded to DEPTH by zeros). Thread (y, x) of SIDE x SIDE has the rows
 * y + SIDE i, and of those the columns x + SIDE j. Sums over keys or queries keep what they lose (long_sum). */
enum {
  DEPTH = GENERAL_DEPTH,
  TILE = GENERAL_TILE,
  SIDE = TILE < 16 ? TILE : 16,
  PITCH = DEPTH + 1,
  SQUARE = TILE + 1,
  EACH = TILE / SIDE,
  COLUMNS = DEPTH / SIDE,
  THREADS = SIDE * SIDE
};
#define Y(i) ((int)threadIdx.x / SIDE + SIDE * (i))
#define X(j) ((int)threadIdx.x % SIDE + SIDE * (j))

typedef real tile_part[EACH][EACH];
typedef long_sum row_part[EACH][COLUMNS];

struct tiles {
  real *mine[2], *other[2], *p, *dt; /* (TILE, DEPTH) of the block, and of what it goes past; (queries, keys) */
  u8 *seen;                          /* (queries, keys) */
};

inline tiles tiles_at(char *shared) {
  tiles t;
  real *at = (real *)shared;
  t.mine[0] = at, t.other[0] = at + TILE * PITCH, t.other[1] = at + 2 * TILE * PITCH;
  t.p = at + 3 * TILE * PITCH;
  t.mine[1] = t.p + TILE * SQUARE;
  t.dt = t.mine[1] + (BACKWARD ? TILE * PITCH : 0);
  t.seen = (u8 *)(t.dt + (BACKWARD ? TILE * SQUARE : 0));
  return t;
}

/* Rows [first, first + TILE) of a slot; 0 from `end` on */
inline void load_rows(const args &a, int s, i64 b, i64 h, i64 first, i64 end, real *tile) {
  const i64 head = HEAD_OFFSET(s, b, h);
  for (int n = threadIdx.x; n < TILE * DEPTH; n += THREADS) {
    const i64 row = first + n / DEPTH, d = n % DEPTH;
    tile[n / DEPTH * PITCH + d] = row < end && d < WIDTH ? GET(s, head + row * L_STRIDE(s) + d * D_STRIDE(s)) : (real)0;
  }
}

inline void store_rows(const args &a, int s, i64 b, i64 h, i64 first, i64 end, const row_part &r, real factor) {
  const i64 head = HEAD_OFFSET(s, b, h);
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
      if (first + Y(i) < end && X(c) < WIDTH)
        PUT(s, head + (first + Y(i)) * L_STRIDE(s) + X(c) * D_STRIDE(s), r[i][c].total * factor);
}

inline void clear(row_part &r) {
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) r[i][c].clear();
}

/* t = row of x . row of y, over `width` */
inline void dots(tile_part &t, const real *x, const real *y, i64 width) {
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) t[i][j] = 0;
  for (int d = 0; d < (int)width; d++)
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) t[i][j] += x[Y(i) * PITCH + d] * y[X(j) * PITCH + d];
}

/* part = w x over the TILE rows of x: w[i][k] lies at i * down + k * along, and so does seen[i][k]. Where w is zero
 * because a pair is not seen, an infinity or NaN in x does not count either. */
template <bool WHOLE>
inline void multiply(real (&part)[EACH][COLUMNS], const real *w, const u8 *seen, int down, int along, const real *x) {
#pragma unroll
  for (int n = 0; n < EACH * COLUMNS; n++) part[n / COLUMNS][n % COLUMNS] = 0;
#pragma unroll 4
  for (int k = 0; k < TILE; k++) {
    real left[EACH];
    bool in[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      left[i] = w[Y(i) * down + k * along];
      in[i] = WHOLE || seen[Y(i) * down + k * along];
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      const real right = x[k * PITCH + X(c)];
#pragma unroll
      for (int i = 0; i < EACH; i++) part[i][c] += in[i] ? left[i] * right : (real)0;
    }
  }
}

/* sum += w x */
inline void add_product(row_part &sum, const real *w, const u8 *seen, int down, int along, const real *x, bool whole) {
  real part[EACH][COLUMNS];
  if (whole)
    multiply<true>(part, w, seen, down, along, x);
  else
    multiply<false>(part, w, seen, down, along, x);
#pragma unroll
  for (int n = 0; n < EACH * COLUMNS; n++) sum[n / COLUMNS][n % COLUMNS].add(part[n / COLUMNS][n % COLUMNS]);
}

inline real row_sum(real v) {
#pragma unroll
  for (int step = SIDE / 2; step > 0; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  return v;
}

inline real row_max(real v) {
#pragma unroll
  for (int step = SIDE / 2; step > 0; step /= 2) v = v_max(v, __shfl_xor_sync(ALL_LANES, v, step));
  return v;
}

/* ---- scores of TILE queries from `query` and TILE keys from `key` ---- */
/* Whether they all see each other */
inline bool all_see(const args &a, i64 query, i64 key, i64 n) {
  const i64 last = query + TILE - 1;
  return last < QUERIES && seen_by(a, last, n).lo <= key && seen_by(a, query, n).hi >= key + TILE;
}

/* t = scale q.k, capped */
inline void scores(const args &a, tile_part &t, const real *q, const real *k) {
  dots(t, q, k, WIDTH);
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      t[i][j] *= SCALE;
      if (SOFTCAP > 0) t[i][j] = SOFTCAP * m_tanh(t[i][j] / SOFTCAP);
    }
}

/* ---- forward: o, and the largest score and the sum of e^(t - most) of each row ---- */
struct forward_state {
  row_part o;
  long_sum sum[EACH]; /* of this thread's columns */
  real most[EACH];
};

/* sum - lost, times keep */
inline void keep_part(long_sum &s, real keep) { s.total *= keep, s.lost *= keep; }

/* t becomes p, in shared memory; what was summed before is scaled to the new maximum. Where nothing was seen yet, most
 * stays -inf and p is 0. */
inline void exponentials(const args &a, forward_state &f, tile_part &t, const tiles &m, i64 query, i64 key, i64 n,
                         bool whole) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    real most = f.most[i], sum = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const bool in = whole || sees(a, query + Y(i), key + X(j), n);
      if (!in) t[i][j] = -INFINITY;
      m.seen[Y(i) * SQUARE + X(j)] = in;
      most = v_max(most, t[i][j]);
    }
    most = row_max(most);
    const real base = most == -INFINITY ? (real)0 : most, keep = m_exp(f.most[i] - base);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const real p = m_exp(t[i][j] - base);
      m.p[Y(i) * SQUARE + X(j)] = p;
      sum += p;
    }
    f.most[i] = most;
    keep_part(f.sum[i], keep);
    f.sum[i].add(sum);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) keep_part(f.o[i][c], keep);
  }
}

inline void forward_keys(const args &a, const place &w, forward_state &f, const tiles &m, i64 key, bool wants_o) {
  const bool whole = all_see(a, w.first, key, w.valid);
  tile_part t;
  load_rows(a, K, w.batch, w.group, key, w.valid, m.other[0]);
  if (wants_o) load_rows(a, V, w.batch, w.group, key, w.valid, m.other[1]);
  __syncthreads();
  scores(a, t, m.mine[0], m.other[0]);
  exponentials(a, f, t, m, w.first, key, w.valid, whole);
  __syncthreads();
  if (wants_o) add_product(f.o, m.p, m.seen, SQUARE, 1, m.other[1], whole);
  __syncthreads();
}

/* In the end o is divided by the sum (0 where nothing was seen), and most is lse. */
inline void forward_end(forward_state &f) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const real sum = row_sum(f.sum[i].total), inverse = sum == 0 ? (real)0 : 1 / sum;
    f.most[i] = sum == 0 ? (real)-INFINITY : f.most[i] + m_log(sum);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) f.o[i][c].total *= inverse;
  }
}

inline void forward_block(const args &a, const place &w, forward_state &f, const tiles &m, bool wants_o) {
  const i64 last = w.first + TILE < QUERIES ? w.first + TILE - 1 : QUERIES - 1;
  const i64 lo = seen_by(a, w.first, w.valid).lo, hi = seen_by(a, last, w.valid).hi;
  load_rows(a, Q, w.batch, w.head, w.first, QUERIES, m.mine[0]);
  for (i64 key = lo; key < hi; key += TILE) forward_keys(a, w, f, m, key, wants_o);
  forward_end(f);
}

inline void forward_begin(forward_state &f) {
  clear(f.o);
#pragma unroll
  for (int i = 0; i < EACH; i++) f.sum[i].clear(), f.most[i] = -INFINITY;
}

#if !BACKWARD
KERNEL(attention_forward, THREADS) {
  DYNAMIC_SHARED(shared);
  const tiles m = tiles_at(shared);
  const place w = place_of(a, QUERIES, HEADS, TILE, CAUSAL);
  forward_state f;
  forward_begin(f);
  forward_block(a, w, f, m, true);
  store_rows(a, O, w.batch, w.head, w.first, QUERIES, f.o, 1);
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (HAS(LSE) && X(0) == 0 && w.first + Y(i) < QUERIES)
      PUT(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + (w.first + Y(i)) * L_STRIDE(LSE), f.most[i]);
}
#else

/* ---- backward: lse and delta ---- */
/* This thread's part of do.o of its rows; o as saved, or in f */
inline real delta_part(const args &a, const place &w, const forward_state &f, int i) {
  real delta = 0;
  const i64 row = w.first + Y(i);
#pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    if (row >= QUERIES || X(c) >= WIDTH) continue;
    const real o =
        HAS(O) ? GET(O, HEAD_OFFSET(O, w.batch, w.head) + row * L_STRIDE(O) + X(c) * D_STRIDE(O)) : f.o[i][c].total;
    delta += o * GET(DO, HEAD_OFFSET(DO, w.batch, w.head) + row * L_STRIDE(DO) + X(c) * D_STRIDE(DO));
  }
  return delta;
}

KERNEL(attention_statistics, THREADS) {
  DYNAMIC_SHARED(shared);
  const tiles m = tiles_at(shared);
  const place w = place_of(a, QUERIES, HEADS, TILE, CAUSAL);
  const bool computes_o = WANTS_DT && !HAS(O);
  forward_state f;
  forward_begin(f);
  if (!HAS(LSE) || computes_o) forward_block(a, w, f, m, computes_o);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const i64 row = w.first + Y(i), at = (w.batch * HEADS + w.head) * QUERIES + row;
    real delta = WANTS_DT ? row_sum(delta_part(a, w, f, i)) : (real)0, lse = f.most[i];
    if (row >= QUERIES || X(0) != 0) continue;
    if (HAS(LSE)) lse = GET(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + row * L_STRIDE(LSE));
    /* o is the sum of p v: with the saved lse in p, should it differ */
    if (HAS(LSE) && computes_o && f.most[i] != -INFINITY) delta *= m_exp(f.most[i] - lse);
    ROW_LSE(at) = lse == -INFINITY ? (real)INFINITY : lse;
    ROW_DELTA(at) = delta;
  }
}

/* ---- p and dt of a tile, in shared memory ---- */
/* row: number of query `query` in the workspace */
inline void weigh(const args &a, tile_part &t, const tile_part &dp, const tiles &m, i64 row, i64 query, i64 key, i64 n,
                  bool whole) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const bool there = query + Y(i) < QUERIES;
    const real lse = there ? ROW_LSE(row + Y(i)) : (real)0, delta = there ? ROW_DELTA(row + Y(i)) : (real)0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const bool in = whole || sees(a, query + Y(i), key + X(j), n);
      const real p = in ? m_exp(t[i][j] - lse) : (real)0, bend = SOFTCAP > 0 ? t[i][j] / SOFTCAP : (real)0;
      m.seen[Y(i) * SQUARE + X(j)] = in;
      m.p[Y(i) * SQUARE + X(j)] = p;
      m.dt[Y(i) * SQUARE + X(j)] = in ? p * (dp[i][j] - delta) * (1 - bend * bend) : (real)0;
    }
  }
}

KERNEL(attention_dq, THREADS) {
  DYNAMIC_SHARED(shared);
  const tiles m = tiles_at(shared);
  const place w = place_of(a, QUERIES, HEADS, TILE, CAUSAL);
  const i64 last = w.first + TILE < QUERIES ? w.first + TILE - 1 : QUERIES - 1;
  const i64 lo = seen_by(a, w.first, w.valid).lo, hi = seen_by(a, last, w.valid).hi;
  const i64 row = (w.batch * HEADS + w.head) * QUERIES + w.first;
  tile_part t, dp;
  row_part dq;
  clear(dq);
  load_rows(a, Q, w.batch, w.head, w.first, QUERIES, m.mine[0]);
  load_rows(a, DO, w.batch, w.head, w.first, QUERIES, m.mine[1]);
  for (i64 key = lo; key < hi; key += TILE) {
    const bool whole = all_see(a, w.first, key, w.valid);
    load_rows(a, K, w.batch, w.group, key, w.valid, m.other[0]);
    load_rows(a, V, w.batch, w.group, key, w.valid, m.other[1]);
    __syncthreads();
    scores(a, t, m.mine[0], m.other[0]);
    dots(dp, m.mine[1], m.other[1], WIDTH);
    weigh(a, t, dp, m, row, w.first, key, w.valid, whole);
    __syncthreads();
    add_product(dq, m.dt, m.seen, SQUARE, 1, m.other[0], whole);
    __syncthreads();
  }
  store_rows(a, DQ, w.batch, w.head, w.first, QUERIES, dq, SCALE);
}

/* The queries from `query` of head h of q past the block's keys */
inline void add_queries(const args &a, const place &w, const tiles &m, row_part &dk, row_part &dv, i64 h, i64 query) {
  const bool whole = all_see(a, query, w.first, w.valid);
  tile_part t, dp;
  load_rows(a, Q, w.batch, h, query, QUERIES, m.other[0]);
  load_rows(a, DO, w.batch, h, query, QUERIES, m.other[1]);
  __syncthreads();
  scores(a, t, m.other[0], m.mine[0]);
  dots(dp, m.other[1], m.mine[1], HAS(DK) ? WIDTH : 0);
  weigh(a, t, dp, m, (w.batch * HEADS + h) * QUERIES + query, query, w.first, w.valid, whole);
  __syncthreads();
  if (HAS(DV)) add_product(dv, m.p, m.seen, 1, SQUARE, m.other[1], whole);
  if (HAS(DK)) add_product(dk, m.dt, m.seen, 1, SQUARE, m.other[0], whole);
  __syncthreads();
}

KERNEL(attention_dkv, THREADS) {
  DYNAMIC_SHARED(shared);
  const tiles m = tiles_at(shared);
  const place w = place_of(a, KEYS, GROUPS, TILE, false);
  row_part dk, dv;
  clear(dk), clear(dv);
  load_rows(a, K, w.batch, w.head, w.first, w.valid, m.mine[0]);
  if (HAS(DK)) load_rows(a, V, w.batch, w.head, w.first, w.valid, m.mine[1]);
  const sight seen = seeing(a, w.first, w.first + TILE < w.valid ? w.first + TILE : w.valid, w.valid);
  for (i64 h = w.head * TOGETHER; h < (w.head + 1) * TOGETHER; h++)
    for (i64 query = seen.lo; query < seen.hi; query += TILE) add_queries(a, w, m, dk, dv, h, query);
  if (HAS(DK)) store_rows(a, DK, w.batch, w.head, w.first, KEYS, dk, SCALE);
  if (HAS(DV)) store_rows(a, DV, w.batch, w.head, w.first, KEYS, dv, 1);
}
#endif
