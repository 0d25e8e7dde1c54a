/* forward.cu -- the outputs, tile after tile of a block's part of time; the next is loaded while one is computed. */

/* (D u, silu(z)) of a tile; then y in place of D u */
struct gates {
  float2 at[ROWS][TILE + 2];
};

struct tile {
  steps in;
  coefficients b, c;
  gates out;
};

inline void stage_gates(const args &a, const steps &m, const pieces &x, gates &to) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float u[PIECE], z[PIECE];
    if (!HAS_PIECE(i)) continue;
    get_piece(a, x.u, i, u), get_piece(a, x.z, i, z);
    for (int e = 0; e < PIECE; e++) u[e] = HAS(D) ? m.skip[PIECE_ROW(p, e)] * u[e] : 0.0f;
    for (int e = 0; e < PIECE; e++) z[e] = HAS(Z) ? fast_silu(z[e]) : 1.0f;
    for (int e = 0; e < PIECE; e++) to.at[PIECE_ROW(p, e)][PIECE_STEP(p, e)] = make_float2(u[e], z[e]);
  }
}

inline void store_outputs(const args &a, const block_at &b, i64 t, const gates &from) {
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float y[PIECE];
    if (!HAS_PIECE(i)) continue;
    for (int e = 0; e < PIECE; e++) y[e] = from.at[PIECE_ROW(p, e)][PIECE_STEP(p, e)].x;
    put_some<PIECE>(DTYPE(Y), ADDS(Y), AT(Y), piece_offset(a, Y, b, p, t), y, piece_left(a, b, p, t));
  }
}

/* h through GROUP_STEPS steps, and sum_n C h over the thread's own states */
inline void run_steps(const block_at &b, const constants &v, const tile &m, int t, bool resets_here, float (&h)[OWN][4],
                      float (&p)[SUMS]) {
  float4 x[OWN]; /* (d, d u) of two steps */
#pragma unroll
  for (int i = 0; i < GROUP_STEPS; i++) {
    float bt[4], ct[4];
    take_coefficients(bt, m.b, FIRST_COEFFICIENT(b), t + i);
    take_coefficients(ct, m.c, FIRST_COEFFICIENT(b), t + i);
#pragma unroll
    for (int q = 0; q < OWN; q++) {
      if (i % 2 == 0) x[q] = *(const float4 *)&m.in.at[ROW_OF(b, q)][t + i];
      step_ahead(h[q], v, q, i % 2 ? x[q].z : x[q].x, i % 2 ? x[q].w : x[q].y, bt, resets_here && m.in.reset[t + i]);
      float sum = 0;
      for (int j = 0; j < 4; j++) sum += (CONSTANT_C ? v.c[q][j] : ct[j]) * h[q][j];
      p[q * GROUP_STEPS + i] = sum;
    }
  }
}

inline void scan_tile(const block_at &b, const constants &v, tile &m, float (&h)[OWN][4], bool resets_here) {
  for (int t = 0; t < TILE; t += GROUP_STEPS) {
    float p[SUMS];
    float2 gate[OUTPUTS]; /* read before outputs are written, as the compiler would not know that they lie elsewhere */
    for (int i = 0; i < OUTPUTS; i++) gate[i] = m.out.at[MY_ROW(b, i)][t + MY_STEP(b, i)];
    run_steps(b, v, m, t, resets_here, h, p);
    scatter_sums<SUMS>(p);
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) m.out.at[MY_ROW(b, i)][t + MY_STEP(b, i)].x = (p[i] + gate[i].x) * gate[i].y;
  }
}

/* The state after so many segments */
inline void find_start(const args &a, const block_at &b, const constants &v, i64 segments, float (&h)[OWN][4]) {
  kept_states(STARTS, b, 0, h);
  for (i64 s = 0; s < segments; s += AT_ONCE) {
    ended x[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) get_end(ENDS, min(s + k, segments - 1), SPANS, min(s + k, segments - 1), b, x[k]);
    for (int k = 0; k < AT_ONCE; k++)
      if (s + k < segments) join(a, h, v, x[k]);
  }
}

/* h_last once more, from the state before the last tile: the steps that pad that are d = 0, but constant B may be
 * infinite */
enum { LAST_AGAIN = CONSTANT_B && HAS(H_LAST) };
inline void run_last(const args &a, const block_at &b, const constants &v, const tile &m, int count,
                     float (&h)[OWN][4]) {
  const float none[4] = {}; /* B is constant */
  for (int i = 0; i < count; i++)
    for (int q = 0; q < OWN; q++) {
      const float2 x = m.in.at[ROW_OF(b, q)][i];
      step_ahead(h[q], v, q, x.x, x.y, none, HAS(SEQ_IDX) && m.in.reset[i]);
    }
}

KERNEL(scan_forward, THREADS_EACH, OWN > 1 ? 384 / THREADS_EACH : THREADS_EACH < 640 ? 640 / THREADS_EACH : 1) {
  __shared__ tile m;
  const block_at b = find_block(a, blockIdx.x);
  const constants v = get_constants(a, b);
  const i64 first = (i64)blockIdx.y * PART_TILES * TILE, end = min(LENGTH, first + PART_TILES * TILE);
  float h[OWN][4] = {}, before[OWN][4];
  pieces next = {};
  if (gridDim.y == 1) get_states(a, H0, b, 0, h);
  if (gridDim.y > 1) find_start(a, b, v, blockIdx.y * (PART_TILES / ENDS_TILES), h);
  load_rows(a, b, m.in);
  load_tile(a, b, first, next);
  for (i64 t = first; t < end; t += TILE) {
    if (HAS(CHUNK_STATE) && t % 64 == 0) put_states(a, CHUNK_STATE, b, t / 64, h);
    stage_steps(a, b, t, next.delta, next.u, m.in);
    stage_gates(a, m.in, next, m.out);
    stage_coefficients(a, b, t, next.coefficients, &m.b, &m.c);
    __syncthreads();
    if (t + TILE < end) load_tile(a, b, t + TILE, next);
    for (int i = 0; i < OWN * 4 && LAST_AGAIN; i++) before[i / 4][i % 4] = h[i / 4][i % 4];
    scan_tile(b, v, m, h, HAS(SEQ_IDX));
    __syncthreads();
    store_outputs(a, b, t, m.out);
  }
  if (LAST_AGAIN && end == LENGTH && LENGTH % TILE) {
    run_last(a, b, v, m, (int)(LENGTH % TILE), before);
    put_states(a, H_LAST, b, 0, before);
  } else if (end == LENGTH) {
    put_states(a, H_LAST, b, 0, h);
  }
}
