/* ends.cu -- parts of time: where one begins depends on those before, and its dh on those after.
 *
 * A segment of ENDS_TILES tiles that begins with h = 0 ends with ENDS; its dh, 0 after it, is ENDS_BACK before it. Both
 * come of one way ahead, with each exp(d A) computed once: with P_t the product of abar up to step t of the segment,
 *   dh before = sum_t P_t C_t dp_t.
 * SPANS: the sum of d, over which a state decays by exp(A sum d); infinite where the state was forgotten on the way.
 * Forward: each part joins the segments before it. Backward: scan_fold of parts.cu joins them.
 *
 * Where blocks are many, backward has one segment (ENDS_WHOLE), which begins with h0: its states are what they are.
 *
 * ENDS: (segments, blocks, OWN, threads, 4), like SPANS: (.., blocks, ROWS). Backward: (1 + length / ENDS_STEPS, ..),
 * element i before step i ENDS_STEPS.
 * STARTS: h0, which the last part may overwrite with h_last; backward: the state before each segment.              */
#define SEGMENT              (ENDS_TILES * TILE) /* its steps */
#define ALL_IN_PART(b, part) (((i64)(part)*gridDim.x + (b).number) * OWN * THREADS_EACH)
#define IN_PART(b, part, q)  (ALL_IN_PART(b, part) + (q)*THREADS_EACH + threadIdx.x)

inline void keep_states(char *at, const block_at &b, i64 part, const float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) ((float4 *)at)[IN_PART(b, part, q)] = make_float4(h[q][0], h[q][1], h[q][2], h[q][3]);
}
inline void kept_states(const char *at, const block_at &b, i64 part, float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) take(h[q], (const float *)at + 4 * IN_PART(b, part, q));
}

#define SPAN_AT(spans, b, at, q) (((float *)(spans))[((i64)(at)*gridDim.x + (b).number) * ROWS + ROW_OF(b, q)])

/* A segment's end and span; AT_ONCE of them are under way together */
enum { AT_ONCE = 8 };
inline void get_end(const char *ends, i64 end_at, const char *spans, i64 span_at, const block_at &b, ended &to) {
  kept_states(ends, b, end_at, to.end);
  for (int q = 0; q < OWN; q++) to.span[q] = SPAN_AT(spans, b, span_at, q);
}

/* Steps after the last: d = 0 */
inline void clear_steps(int left, steps &to) {
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    for (int e = 0; e < PIECE; e++)
      if (HAS_PIECE(i) && PIECE_STEP(p, e) >= left) to.at[PIECE_ROW(p, e)][PIECE_STEP(p, e)] = make_float2(0, 0);
  }
}

/* d and d u of a tile */
inline void stage_steps(const args &a, const block_at &b, i64 t, const slot_pieces<DELTA> &deltas,
                        const slot_pieces<U> &us, steps &to) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float d[PIECE], du[PIECE];
    if (!HAS_PIECE(i)) continue;
    get_steps(a, deltas, us, i, to.bias, d, du);
    for (int e = 0; e < PIECE; e++) to.at[PIECE_ROW(p, e)][PIECE_STEP(p, e)] = make_float2(d[e], du[e]);
  }
  if (t + TILE > LENGTH) clear_steps((int)(LENGTH - t), to);
  stage_resets(a, b, t, to.reset);
}

/* The shared memory of scan_ends: dynamic, as that of a text's kernels is not added up then */
enum { OF_H = (int)ENDS_OF_H, OF_DH = (int)ENDS_OF_DH }; /* which are to be found */
struct ends_tile {
  steps in;
  coefficients k[OF_H && OF_DH ? 2 : 1]; /* B, C */
  float dp[OF_DH ? ROWS : 1][TILE + 2];
};
static_assert(sizeof(ends_tile) <= ENDS_BYTES, "as cuda.c counts");

struct ends_pieces {
  slot_pieces<DELTA> delta;
  slot_pieces<U> u;
  slot_pieces<Z> z;
  slot_pieces<DY> dy;
  coefficient_words coefficients;
};
inline void load(const args &a, const block_at &b, i64 t, bool whole, int first, int count, ends_pieces &to) {
  load_pieces(a, b, t, whole, first, count, to.delta);
  if (OF_H) load_pieces(a, b, t, whole, first, count, to.u);
  if (OF_DH) load_pieces(a, b, t, whole, first, count, to.z), load_pieces(a, b, t, whole, first, count, to.dy);
}

/* dp = dy silu(z) of a tile */
inline void stage_dp(const args &a, const ends_pieces &x, ends_tile &m) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float z[PIECE], dy[PIECE];
    get_piece(a, x.z, i, z), get_piece(a, x.dy, i, dy);
    for (int e = 0; e < PIECE; e++) dy[e] *= HAS(Z) ? m_clamp(z[e], -1e30f, 1e30f) * fast_sigmoid(z[e]) : 1.0f;
    for (int e = 0; e < PIECE; e++) m.dp[PIECE_ROW(p, e)][PIECE_STEP(p, e)] = dy[e];
  }
}
inline void stage_ends(const args &a, const block_at &b, i64 t, const ends_pieces &x, ends_tile &m) {
  stage_steps(a, b, t, x.delta, x.u, m.in);
  if (OF_DH) stage_dp(a, x, m);
  stage_coefficients(a, b, t, x.coefficients, OF_H ? &m.k[0] : 0, OF_DH ? &m.k[OF_H] : 0);
}

/* What goes through a segment: h, from 0 or h0; the product of abar, and dh before */
struct both_ends {
  float h[OWN][4], product[OWN][4], dh[OWN][4], span[OWN];
  bool forgotten;
  int steps; /* constant C: that are there, of ENDS_STEPS; those that pad a tile are d = 0, but C may be infinite */
};

/* Where the thread's channels and states are in a tile */
struct ends_places {
  int row[OWN], coefficients;
};
inline ends_places find_ends_places(const block_at &b) {
  ends_places to;
  for (int q = 0; q < OWN; q++) to.row[q] = pinned(ROW_OF(b, q) * (TILE + 2));
  to.coefficients = pinned(FIRST_COEFFICIENT(b));
  return to;
}

/* ENDS_STEPS steps of a tile from `first` on */
inline void run_ends(const args &a, const ends_places &at, const constants &v, const ends_tile &m, int first,
                     both_ends &x) {
  float sum[OWN] = {};
#pragma unroll 8
  for (int i = first; i < first + (OF_DH && CONSTANT_C ? x.steps : ENDS_STEPS); i++) {
    const bool reset = HAS(SEQ_IDX) && m.in.reset[i];
    float bt[4] = {}, ct[4] = {};
    if (OF_H) take_coefficients(bt, m.k[0], at.coefficients, i);
    if (OF_DH) take_coefficients(ct, m.k[OF_H], at.coefficients, i);
    if (reset) x.forgotten = true;
    for (int q = 0; q < OWN; q++) {
      const float2 s = ((const float2 *)m.in.at)[at.row[q] + i];
      const float dp = OF_DH ? ((const float *)m.dp)[at.row[q] + i] : 0.0f;
      if (OF_H) step_ahead(x.h[q], v, q, s.x, s.y, bt, reset);
      for (int j = 0; j < 4 && OF_DH && !x.forgotten; j++) {
        x.product[q][j] *= fast_pow2(s.x * v.a2[q][j]);
        x.dh[q][j] += x.product[q][j] * ((CONSTANT_C ? v.c[q][j] : ct[j]) * dp);
      }
      sum[q] = reset ? INFINITY : sum[q] + s.x;
    }
  }
  for (int q = 0; q < OWN; q++) x.span[q] = HAS(SEQ_IDX) && sum[q] == INFINITY ? INFINITY : x.span[q] + sum[q];
}

inline void keep_ends(const args &a, const block_at &b, i64 t, bool last, const both_ends &x) {
  const i64 at = BACKWARD ? t / ENDS_STEPS + 1 : blockIdx.y;
  if (OF_H ? !BACKWARD && !last : !last) return;
  if (OF_H) keep_states(ENDS, b, at, x.h);
  for (int q = 0; q < OWN && b.k == 0 && !ENDS_WHOLE; q++) SPAN_AT(SPANS, b, at, q) = x.span[q];
#if ENDS_OF_DH
  if (last) keep_states(ENDS_BACK, b, blockIdx.y, x.dh);
#endif
}

KERNEL(scan_ends, THREADS_EACH, (OF_DH ? 384 : OWN > 1 ? 512 : 1024) / THREADS_EACH) {
  DYNAMIC_SHARED(memory);
  ends_tile &m = *(ends_tile *)memory;
  const block_at b = find_block(a, blockIdx.x);
  const constants v = get_constants(a, b);
  const i64 first = (i64)blockIdx.y * ENDS_TILES * TILE, end = min(LENGTH, first + ENDS_TILES * TILE);
  const ends_places at = find_ends_places(b);
  both_ends x = {};
  for (int i = 0; i < OWN * 4; i++) x.product[i / 4][i % 4] = 1;
  ends_pieces in = {};
  if (OF_H && blockIdx.y == 0) {
    float h0[OWN][4];
    get_states(a, H0, b, 0, h0);
    keep_states(ENDS_WHOLE ? ENDS : STARTS, b, 0, h0);
    for (int i = 0; i < OWN * 4 && ENDS_WHOLE; i++) x.h[i / 4][i % 4] = h0[i / 4][i % 4];
  }
  load_rows(a, b, m.in);
  for (i64 t = first - TILE; t < end; t += TILE) { /* at first the first tile is loaded, and no more */
    const i64 next = t + TILE;
    if (t >= first) stage_ends(a, b, t, in, m);
    __syncthreads();
    if (next < end) load_tile(a, b, next, in);
    if (t < first) continue;
#pragma unroll(OF_DH ? 1 : TILE / ENDS_STEPS)
    for (int i = 0; i < TILE; i += ENDS_STEPS) {
      if (OF_DH && CONSTANT_C) x.steps = (int)max(min(LENGTH - t - i, (i64)ENDS_STEPS), 0ll);
      run_ends(a, at, v, m, i, x);
      keep_ends(a, b, t + i, next >= end && i + ENDS_STEPS == TILE, x);
    }
    __syncthreads();
  }
}
