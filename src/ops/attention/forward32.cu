/* forward32.cu -- attention of f32 in f32: a block of ROWS queries past KEYS_HERE keys at a time.
 *
 *   s = q k^T;   most' = max(most, c s);   p = 2^(c s - most');   o = o 2^(most - most') + p v;   c = scale log2 e
 *
 * A warp has 16 queries; s and o lie in its registers, p passes through shared memory (ffma.cu). Keys are on their way
 * while the values before them are multiplied, and values while the scores of their keys are. */
namespace forward {
enum { KEYS_HERE = FORWARD_KEYS, NJ = KEYS_HERE / 8 };

struct state {
  float o[4][NH][4];
  float most[4];   /* -inf: nothing was seen yet */
  long_sum sum[4]; /* of this lane's columns     */
};

/* s becomes p; what was summed before is to be multiplied by `keep`. Where nothing was seen yet p is 0. */
inline void exponentials(state &f, float (&s)[4][NJ], float c, float (&keep)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float now = s[i][0], sum = 0;
#pragma unroll
    for (int j = 1; j < NJ; j++) now = fmaxf(now, s[i][j]);
    const float most = fmaxf(f.most[i], row_max(now) * c), base = most == -INFINITY ? 0.0f : most;
#pragma unroll
    for (int j = 0; j < NJ; j++) s[i][j] = exp2f(fmaf(s[i][j], c, -base)), sum += s[i][j];
    keep[i] = exp2f(f.most[i] - base);
    f.most[i] = most;
    f.sum[i].total *= keep[i], f.sum[i].lost *= keep[i];
    f.sum[i].add(sum);
  }
}

/* p of a tile of keys, in shared memory */
inline void weigh_keys(const args &a, const warp_rows &r, state &f, const float *q, const float *k, float *p, int key,
                       float (&keep)[4]) {
  float s[4][NJ];
  multiply_dots<DEPTH>(s, q, k);
  cap_scores(a, s);
  for_dots<NJ>(a, r, key, [&](int i, int j, bool in) {
    if (!in) s[i][j] = -INFINITY;
  });
  exponentials(f, s, (float)EXPONENT, keep);
  store_dots(p, s);
}

inline void begin(state &f) {
  clear_sums(f.o);
#pragma unroll
  for (int i = 0; i < 4; i++) f.most[i] = -INFINITY, f.sum[i].clear();
}

/* The block past its keys. o is still to be divided by the sum of p. */
inline void solve(const args &a, const place &w, state &f, float *q) {
  float *k = q + ROWS * PITCH, *v = k + KEYS_HERE * PITCH, *p = v + KEYS_HERE * PITCH + MY_ROW * (KEYS_HERE + 8);
  const sight keys = {seen_by(a, w.first, w.valid).lo, seen_by(a, w.first + ROWS - 1, w.valid).hi};
  const warp_rows r = warp_queries(a, w);
  begin(f);
  bring_slot<ROWS>(a, q, Q, w.batch, w.head, w.first, (int)QUERIES);
  bring_slot<KEYS_HERE>(a, k, K, w.batch, w.group, keys.lo, w.valid);
  for (int key = keys.lo; key < keys.hi; key += KEYS_HERE) {
    const bool any = r.any_in(key, KEYS_HERE);
    float keep[4];
    tiles_here(); /* k; v is free */
    if (HAS(V)) bring_slot<KEYS_HERE>(a, v, V, w.batch, w.group, key, w.valid);
    if (any) weigh_keys(a, r, f, q + MY_ROW * PITCH, k, p, key, keep);
    tiles_here(); /* v and p; k is free */
    if (key + KEYS_HERE < keys.hi) bring_slot<KEYS_HERE>(a, k, K, w.batch, w.group, key + KEYS_HERE, w.valid);
    if (any && HAS(V)) add_seen<KEYS_HERE>(a, r, f.o, keep, p, v, key);
  }
  copies_here<0>();
}

inline float lse_of(float most, float sum) { return sum == 0 ? -INFINITY : most * 0.69314718056f + logf(sum); }

/* Solves a block's queries and does each(f, i, row, sum) for this lane's: row i of f has what `row` sees, times sum. */
template <class EACH> inline void solve_rows(const args &a, const place &w, float *memory, EACH each) {
  state f;
  solve(a, w, f, memory);
#pragma unroll
  for (int i = 0; i < 4; i++) each(f, i, w.first + MY_ROW + LANE_Y + 4 * i, row_sum(f.sum[i].total));
}
}  // namespace forward

#if !BACKWARD
KERNEL(attention_forward, THREADS, BLOCKS) {
  using namespace forward;
  DYNAMIC_SHARED(memory);
  const place w = place_of(a, QUERIES, HEADS, ROWS, CAUSAL);
  solve_rows(a, w, (float *)memory, [&](const state &f, int i, int row, float sum) {
    if (row >= QUERIES) return;
    if (HAS(LSE) && LANE_X == 0)
      PUT(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + row * L_STRIDE(LSE), lse_of(f.most[i], sum));
    put_sums(false, (float *)row_address(a, O, w.batch, w.head, row), f.o[i], sum == 0 ? 0.0f : 1.0f / sum, (int)WIDTH);
  });
}
#else
namespace forward {
/* This lane's part of do.o of one row; o as saved, or in f */
inline float delta_part(const args &a, const place &w, const float (&o)[NH][4], int row, float inverse) {
  float delta = 0;
#pragma unroll
  for (int n = 0; n < 4 * NH; n++) {
    const int column = 4 * LANE_X + n / 4 * 32 + n % 4;
    if (row >= QUERIES || column >= WIDTH) continue;
    const float out = HAS(O) ? load(F32, row_address(a, O, w.batch, w.head, row), column) : o[n / 4][n % 4] * inverse;
    delta += out * load(F32, row_address(a, DO, w.batch, w.head, row), column);
  }
  return row_sum(delta);
}
}  // namespace forward

/* lse and delta of backward32.cu, where lse or o were not saved */
KERNEL(attention_solve, THREADS, BLOCKS) {
  using namespace forward;
  DYNAMIC_SHARED(memory);
  const place w = place_of(a, QUERIES, HEADS, ROWS, CAUSAL);
  solve_rows(a, w, (float *)memory, [&](const state &f, int i, int row, float sum) {
    const i64 at = (w.batch * HEADS + w.head) * QUERIES + row;
    const float mine = lse_of(f.most[i], sum);
    float delta = WANTS_DT ? delta_part(a, w, f.o[i], row, sum == 0 ? 0.0f : 1.0f / sum) : 0.0f, lse = mine;
    if (row >= QUERIES || LANE_X != 0) return;
    if (HAS(LSE)) lse = GET(LSE, HEAD_OFFSET(LSE, w.batch, w.head) + row * L_STRIDE(LSE));
    /* o is the sum of p v: with the saved lse in p, should it differ */
    if (HAS(LSE) && !HAS(O) && sum != 0) delta *= exp2f((mine - lse) * 1.44269504089f);
    ROW_LSE(at) = lse == -INFINITY ? INFINITY : lse * 1.44269504089f;
    ROW_DELTA(at) = delta;
  });
}
#endif
