/* ring.cu -- the outputs where channels are few: the warps of a block share its channels, and take turns in time.
 *
 * Warp w has the TILE steps from TILE (i RING_WARPS + w) on, i = 0, 1, .. It runs through them twice, with each exp(d A)
 * computed once: from h = 0, keeping the decays, when it likes; and from where they really begin, with outputs, when
 * the warp before has handed that state over. What it hands to the next itself is known at once (joined), so the state
 * goes round the ring faster than outputs are made, and no two warps need be at the same place of their work.       */
static_assert((int)GROUP_STEPS == (int)TILE && (int)OUTPUTS == (int)PIECE && EACH == 1, "one group, one piece a lane");
enum { ROUND = RING_WARPS * TILE };

/* What a lane keeps here, as registers are few: where its pieces are at step 0; what outputs need of a tile */
struct places {
  i64 piece;
  const char *coefficients;
};
struct __align__(16) gates {
  slot_pieces<U> u;
  slot_pieces<Z> z;
};
inline places find_places(const args &a, const block_at &b) {
  const piece p = piece_of(0);
  const i64 row = b.first + min(p.row, max(b.count - (CHANNEL_DENSE ? PIECE : 1), 0)); /* or the last */
  const i64 offset = b.batch * BATCH_STRIDE(U) + row * CHANNEL_STRIDE(U) + p.step * STEP_STRIDE(U);
  return places{offset, HAS_BOTH ? first_coefficients(a, b) : 0};
}
inline void know_places(block_at &b, const places &from) { b.piece = from.piece, b.coefficients = from.coefficients; }

/* Of one warp; 4 more steps, so that 8 channels are in different banks */
struct tile {
  __align__(16) float d[ROWS][TILE + 4], du[ROWS][TILE + 4];
  coefficients b, c;
  float bias[ROWS], skip[ROWS]; /* delta_bias, D */
  pieces next[32];
  places first[32];
  gates out[32];
  u8 reset[16];
};

struct ring {
  tile of[RING_WARPS];
  float4 state[OWN][32 * RING_WARPS];      /* after the steps of each warp, for the next */
  u64 left[RING_WARPS], taken[RING_WARPS]; /* barriers: that it is there, and that the next warp has it */
  float4 a2[OWN][32];                      /* of a lane's channels, the same in each warp */
};
static_assert(sizeof(ring) <= SHARED_BYTES, "as cuda.c counts");

/* ---- from warp to warp ---- */
#define WARP      (threadIdx.x / 32)
#define LAST_WARP (threadIdx.x >= 32 * (RING_WARPS - 1))

/* The state that warp w leaves at step t takes the place of the one before, once the next warp has that: a round ago,
 * so that none waits. The last warp has left h0 already. */
inline void wait_taken(ring &m, i64 t) {
  barrier_wait(shared_address(&m.taken[WARP]), ((u32)t / ROUND + !LAST_WARP) % 2);
}

inline void take_state(const ring &m, int thread, float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) take(h[q], (const float *)&m.state[q][thread]);
}
inline void leave_state(ring &m, const float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) m.state[q][threadIdx.x] = make_float4(h[q][0], h[q][1], h[q][2], h[q][3]);
  barrier_arrive(shared_address(&m.left[WARP]));
}

/* ---- a warp's steps ---- */
inline void stage(const args &a, const block_at &b, i64 t, tile &m) {
  const pieces &x = m.next[MEMBER];
  const piece p = piece_of(0);
  float d[PIECE], du[PIECE];
  get_steps(a, x.delta, x.u, 0, m.bias, d, du);
  for (int e = 0, left = (int)min(LENGTH - t, (i64)TILE); e < PIECE; e++)
    if (PIECE_STEP(p, e) >= left) d[e] = du[e] = 0;
  m.out[MEMBER].u = x.u, m.out[MEMBER].z = x.z;
#if CHANNEL_DENSE
  for (int e = 0; e < PIECE; e++) m.d[p.row + e][p.step] = d[e], m.du[p.row + e][p.step] = du[e];
#else
  *(float4 *)&m.d[p.row][p.step] = make_float4(d[0], d[1], d[2], d[3]);
  *(float4 *)&m.du[p.row][p.step] = make_float4(du[0], du[1], du[2], du[3]);
#endif
  stage_coefficients(a, b, t, x.coefficients, &m.b, &m.c);
  stage_resets(a, b, t, m.reset);
}

/* Four steps of the thread's channels */
inline void take_steps(float (&v)[OWN][4], const float (&from)[ROWS][TILE + 4], const block_at &b, int t) {
  for (int q = 0; q < OWN; q++) take(v[q], &from[ROW_OF(b, q)][t]);
}

/* From h = 0; abar of each step is kept */
inline void run_apart(const block_at &b, const constants &v, const tile &m, float (&abar)[TILE][OWN][4], ended &x) {
  float d[OWN][4], du[OWN][4];
#pragma unroll
  for (int i = 0; i < TILE; i++) {
    const bool reset = HAS(SEQ_IDX) && m.reset[i];
    float bt[4];
    take_coefficients(bt, m.b, FIRST_COEFFICIENT(b), i);
    if (i % 4 == 0) take_steps(d, m.d, b, i), take_steps(du, m.du, b, i);
#pragma unroll
    for (int q = 0; q < OWN; q++) {
      for (int j = 0; j < 4; j++) abar[i][q][j] = fast_pow2(d[q][i % 4] * v.a2[q][j]);
      step_by(x.end[q], abar[i][q], v, q, d[q][i % 4], du[q][i % 4], bt, reset);
      x.span[q] = reset ? INFINITY : x.span[q] + d[q][i % 4];
    }
  }
}

/* From h, with sum_n C h over the thread's own states */
inline void run_steps(const block_at &b, const constants &v, const tile &m, const float (&abar)[TILE][OWN][4],
                      float (&h)[OWN][4], float (&p)[SUMS]) {
  float d[OWN][4] = {}, du[OWN][4];
#pragma unroll
  for (int i = 0; i < TILE; i++) {
    float bt[4], ct[4];
    take_coefficients(bt, m.b, FIRST_COEFFICIENT(b), i);
    take_coefficients(ct, m.c, FIRST_COEFFICIENT(b), i);
    if (i % 4 == 0) take_steps(du, m.du, b, i);
    if (i % 4 == 0 && ZOH) take_steps(d, m.d, b, i);
#pragma unroll
    for (int q = 0; q < OWN; q++) {
      step_by(h[q], abar[i][q], v, q, d[q][i % 4], du[q][i % 4], bt, HAS(SEQ_IDX) && m.reset[i]);
      float sum = 0;
      for (int j = 0; j < 4; j++) sum += (CONSTANT_C ? v.c[q][j] : ct[j]) * h[q][j];
      p[q * TILE + i] = sum;
    }
  }
}

/* y = (p + D u) silu(z): the sums p of a lane are those of its piece, or become so in place of d u */
inline void put_outputs(const args &a, const block_at &b, i64 t, tile &m, float (&p)[SUMS]) {
  const piece at = piece_of(0);
  const i64 offset = piece_offset(a, Y, b, at, t);
  float u[PIECE], z[PIECE], y[PIECE];
  get_piece(a, m.out[MEMBER].u, 0, u), get_piece(a, m.out[MEMBER].z, 0, z);
  scatter_sums<SUMS>(p);
#if CHANNEL_DENSE
  __syncwarp();
  for (int i = 0; i < OUTPUTS; i++) m.du[MY_ROW(b, i)][MY_STEP(b, i)] = p[i];
  __syncwarp();
  for (int e = 0; e < PIECE; e++) p[e] = m.du[at.row + e][at.step];
#endif
  for (int e = 0; e < PIECE; e++) {
    y[e] = p[e] + (HAS(D) ? m.skip[PIECE_ROW(at, e)] * u[e] : 0.0f);
    if (HAS(Z)) y[e] *= fast_silu(z[e]);
  }
  if (!whole_tile(a, b, t))
    put_some<PIECE>(DTYPE(Y), ADDS(Y), AT(Y), offset, y, piece_left(a, b, at, t));
  else if (at.row < b.count)
    put_some<PIECE, true>(DTYPE(Y), ADDS(Y), AT(Y), offset, y, PIECE);
}

/* True, as LENGTH is below 2^36; but the compiler does not know, and so cannot compute these later than here */
inline bool computed(const args &a, const float (&v)[OWN][4], const float (&w)[OWN][4]) {
  u32 bits = 0;
  for (int i = 0; i < OWN * 4; i++) bits |= __float_as_uint(v[i / 4][i % 4]) | __float_as_uint(w[i / 4][i % 4]);
  return (bits & (u32)(LENGTH >> 36)) == 0;
}

/* h before the warp's steps from t on, from the warp before; and after them, to the next or as h_last. As the others
 * wait, all that can be done before h comes is, and what can wait until it has gone on does. */
inline void hand_over(const args &a, const block_at &b, const constants &v, ring &m, ended &x, i64 t, bool last,
                      float (&h)[OWN][4]) {
  const int thread = (threadIdx.x + 32 * (RING_WARPS - 1)) % (32 * RING_WARPS);
  float decays[OWN][4], after[OWN][4];
  for (int i = 0; i < OWN * 4; i++) decays[i / 4][i % 4] = decay_over(v, i / 4, i % 4, x.span[i / 4]);
  wait_taken(m, t);
  if (computed(a, decays, x.end)) {
    barrier_wait(shared_address(&m.left[thread / 32]), (u32)t / ROUND % 2);
    take_state(m, thread, h);
  }
  for (int i = 0; i < OWN * 4; i++)
    after[i / 4][i % 4] = joined(a, h[i / 4][i % 4], decays[i / 4][i % 4], x.end[i / 4][i % 4], x.span[i / 4]);
  if (!last || !LAST_WARP)
    leave_state(m, after);
  else
    put_states(a, H_LAST, b, 0, after);
  barrier_arrive(shared_address(&m.taken[thread / 32]));
}

inline void load_next(const args &a, block_at &b, i64 t, tile &m) {
  know_places(b, m.first[MEMBER]);
  load_tile(a, b, t, m.next[MEMBER]);
  copies_asked();
}

KERNEL(scan_forward, 32 * RING_WARPS, 1) {
  DYNAMIC_SHARED(memory);
  ring &all = *(ring *)memory;
  tile &m = all.of[WARP];
  block_at b = find_block(a, blockIdx.x);
  constants v = get_constants(a, b);
  i64 t = WARP * TILE;
  float h[OWN][4];
  for (int q = 0; q < OWN && LAST_WARP; q++)
    all.a2[q][MEMBER] = make_float4(v.a2[q][0], v.a2[q][1], v.a2[q][2], v.a2[q][3]);
  if (MEMBER == 0) {
    barrier_init(shared_address(&all.left[WARP]), 32);
    barrier_init(shared_address(&all.taken[WARP]), 32);
  }
  load_rows(a, b, m); /* with a barrier for all */
  m.first[MEMBER] = find_places(a, b);
  load_next(a, b, t, m);
  if (LAST_WARP) {
    get_states(a, H0, b, 0, h);
    leave_state(all, h);
  }
  for (int left = (int)((LENGTH + ROUND - 1) / ROUND); left > 0; left--, t += ROUND) {
    float abar[TILE][OWN][4], p[SUMS];
    ended x = {};
    copies_here<0>();
    stage(a, b, t, m);
    __syncwarp();
    if (left > 1) load_next(a, b, t + ROUND, m);
    for (int q = 0; q < OWN; q++) take(v.a2[q], (const float *)&all.a2[q][MEMBER]);
    run_apart(b, v, m, abar, x);
    hand_over(a, b, v, all, x, t, left == 1, h);
    if (HAS(CHUNK_STATE) && t % 64 == 0 && t < LENGTH) put_states(a, CHUNK_STATE, b, t / 64, h);
    run_steps(b, v, m, abar, h, p);
    know_places(b, m.first[MEMBER]);
    put_outputs(a, b, t, m, p);
    __syncwarp();
  }
}
