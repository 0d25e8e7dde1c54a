/* backward32.cu -- the gradients of attention for f32 in f32.
 *
 *   statistics   lse log2 e and delta = do.o of each query: cuda.cu where o and lse were saved, else forward32.cu
 *   dq           a block of ROWS queries, past COLUMNS keys at a time:   dq = scale dt k
 *   dkv          a block of ROWS keys, past COLUMNS queries at a time:   dk = scale dt^T q,  dv = p^T do
 *   where        s = q k^T;  p = 2^(c s - lse);  dp = do v^T;  dt = p (dp - delta) (1 - tanh^2);  c = scale log2 e
 *
 * A warp has 16 rows; s, dp and the gradients lie in its registers, p and dt pass through shared memory (ffma.cu). dkv
 * computes s and dp once more, as s^T and dp^T. Every result is summed by one lane, in the order of the rows. */
enum { COLUMNS = BACKWARD_COLUMNS, NJ = COLUMNS / 8, W_PITCH = COLUMNS + 8 };

/* p in place of s, dt in place of dp */
inline void weigh(const args &a, float &s, float &dp, float lse, float delta, bool in) {
  const float p = in ? exp2f(fmaf(s, (float)EXPONENT, -lse)) : 0.0f, bend = HAS_SOFTCAP ? s / (float)SOFTCAP : 0.0f;
  dp = in ? p * (dp - delta) * (1.0f - bend * bend) : 0.0f;
  s = p;
}

inline void put_rows(const args &a, int slot, i64 b, i64 h, int first, int end, const float (&sum)[4][NH][4],
                     float factor) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = first + MY_ROW + LANE_Y + 4 * i;
    if (row < end) put_sums(ADDS(slot), (float *)row_address(a, slot, b, h, row), sum[i], factor, (int)WIDTH);
  }
}

/* ---- dq ---- */
namespace dq {
struct state {
  float dq[4][NH][4], lse[4], delta[4];
};

inline void begin(const args &a, const place &w, state &f) {
  clear_sums(f.dq);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = w.first + MY_ROW + LANE_Y + 4 * i;
    const i64 at = (w.batch * HEADS + w.head) * QUERIES + row;
    f.lse[i] = row < QUERIES ? ROW_LSE(at) : 0.0f;
    f.delta[i] = row < QUERIES ? ROW_DELTA(at) : 0.0f;
  }
}

/* dp becomes dt, in shared memory */
inline void weigh_keys(const args &a, const warp_rows &r, const state &f, float (&dp)[4][NJ], const float *q,
                       const float *k, float *dt, int key) {
  float s[4][NJ];
  multiply_dots<DEPTH>(s, q, k);
  cap_scores(a, s);
  for_dots<NJ>(a, r, key, [&](int i, int j, bool in) { weigh(a, s[i][j], dp[i][j], f.lse[i], f.delta[i], in); });
  store_dots(dt, dp);
  __syncwarp();
}
}  // namespace dq

KERNEL(attention_dq, THREADS, BLOCKS) {
  using namespace dq;
  DYNAMIC_SHARED(memory);
  float *q = (float *)memory, *dout = q + ROWS * PITCH, *k = dout + ROWS * PITCH, *v = k + COLUMNS * PITCH;
  float *dt = v + COLUMNS * PITCH + MY_ROW * W_PITCH;
  const float one[4] = {1, 1, 1, 1};
  const place w = place_of(a, QUERIES, HEADS, ROWS, CAUSAL);
  const sight keys = {seen_by(a, w.first, w.valid).lo, seen_by(a, w.first + ROWS - 1, w.valid).hi};
  const warp_rows r = warp_queries(a, w);
  state f;
  begin(a, w, f);
  bring_slot<ROWS>(a, q, Q, w.batch, w.head, w.first, (int)QUERIES);
  bring_slot<ROWS>(a, dout, DO, w.batch, w.head, w.first, (int)QUERIES);
  bring_slot<COLUMNS>(a, v, V, w.batch, w.group, keys.lo, w.valid);
  for (int key = keys.lo; key < keys.hi; key += COLUMNS) {
    const bool any = r.any_in(key, COLUMNS);
    float dp[4][NJ];
    tiles_here(); /* v; k is free */
    bring_slot<COLUMNS>(a, k, K, w.batch, w.group, key, w.valid);
    if (any) multiply_dots<DEPTH>(dp, dout + MY_ROW * PITCH, v);
    tiles_here(); /* k; v is free */
    if (key + COLUMNS < keys.hi) bring_slot<COLUMNS>(a, v, V, w.batch, w.group, key + COLUMNS, w.valid);
    if (any) weigh_keys(a, r, f, dp, q + MY_ROW * PITCH, k, dt, key);
    if (any) add_seen<COLUMNS>(a, r, f.dq, one, dt, k, key);
  }
  copies_here<0>();
  put_rows(a, DQ, w.batch, w.head, w.first, (int)QUERIES, f.dq, (float)SCALE);
}

/* ---- dk and dv ---- */
namespace dkv {
/* p^T in s, dt^T in dp: row is the number of query 0 of the head in the workspace */
inline void weigh_queries(const args &a, const warp_rows &r, float (&s)[4][NJ], float (&dp)[4][NJ], const float *k,
                          const float *q, i64 row, int query) {
  float lse[NJ], delta[NJ];
#pragma unroll
  for (int j = 0; j < NJ; j++) {
    const int column = query + LANE_X + 8 * j;
    lse[j] = column < QUERIES ? ROW_LSE(row + column) : 0.0f;
    delta[j] = HAS(DK) && column < QUERIES ? ROW_DELTA(row + column) : 0.0f;
  }
  multiply_dots<DEPTH>(s, k, q);
  cap_scores(a, s);
  for_dots<NJ>(a, r, query, [&](int i, int j, bool in) { weigh(a, s[i][j], dp[i][j], lse[j], delta[j], in); });
}
}  // namespace dkv

KERNEL_APART(attention_dkv, THREADS, BLOCKS) {
  using namespace dkv;
  DYNAMIC_SHARED(memory);
  float *k = (float *)memory, *v = k + ROWS * PITCH, *q = v + ROWS * PITCH, *dout = q + COLUMNS * PITCH;
  float *pt = dout + COLUMNS * PITCH + MY_ROW * W_PITCH;
  const float one[4] = {1, 1, 1, 1};
  const place w = place_of(a, KEYS, GROUPS, ROWS, false);
  const sight seen = seeing(a, w.first, w.first + ROWS < w.valid ? w.first + ROWS : w.valid, w.valid);
  const warp_rows r = warp_keys(a, w);
  int head = w.head * (int)TOGETHER, query = seen.lo;
  const int heads_end = seen.lo < seen.hi ? head + (int)TOGETHER : head;
  float dk[4][NH][4], dv[4][NH][4];
  clear_sums(dk), clear_sums(dv);
  bring_slot<ROWS>(a, k, K, w.batch, w.head, w.first, w.valid);
  if (HAS(DK)) bring_slot<ROWS>(a, v, V, w.batch, w.head, w.first, w.valid);
  if (head < heads_end) bring_slot<COLUMNS>(a, dout, DO, w.batch, head, query, (int)QUERIES);
  while (head < heads_end) {
    const bool turns = query + COLUMNS >= seen.hi, any = r.any_in(query, COLUMNS);
    const int next_head = turns ? head + 1 : head, next = turns ? seen.lo : query + COLUMNS;
    float s[4][NJ], dp[4][NJ] = {};
    tiles_here(); /* do; q is free */
    bring_slot<COLUMNS>(a, q, Q, w.batch, head, query, (int)QUERIES);
    if (any && HAS(DK)) multiply_dots<DEPTH>(dp, v + MY_ROW * PITCH, dout);
    tiles_here(); /* q */
    if (any) weigh_queries(a, r, s, dp, k + MY_ROW * PITCH, q, (w.batch * HEADS + head) * QUERIES, query);
    if (any && HAS(DV)) {
      store_dots(pt, s);
      __syncwarp();
      add_seen<COLUMNS, NH == 4 ? 2 : NH>(a, r, dv, one, pt, dout, query);
    }
    __syncthreads(); /* do and pt are free */
    if (next_head < heads_end) bring_slot<COLUMNS>(a, dout, DO, w.batch, next_head, next, (int)QUERIES);
    if (any && HAS(DK)) {
      store_dots(pt, dp);
      __syncwarp();
      add_seen<COLUMNS>(a, r, dk, one, pt, q, query);
    }
    head = next_head, query = next;
  }
  copies_here<0>();
  if (HAS(DK)) put_rows(a, DK, w.batch, w.head, w.first, (int)KEYS, dk, (float)SCALE);
  if (HAS(DV)) put_rows(a, DV, w.batch, w.head, w.first, (int)KEYS, dv, 1.0f);
}
