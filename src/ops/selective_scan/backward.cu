/* backward.cu -- the gradients, tile after tile from the last step of a block's part of time to the first.
 *
 * The state before a tile comes from chunk_state, or from scan_ends and scan_fold. From there the tile is run ahead
 * once, keeping the state before every CHUNK steps; then each chunk, the last first, is run ahead again with h and abar
 * of its steps in registers, and back. Chunks end where the tile's steps end, so that nothing comes after the last
 * step, not even a step of d = 0, which an A that is NaN would not survive; the first may begin in the FRONT columns,
 * where all is 0.
 *
 * dh needs what comes later, where time is in parts. Channels that cannot fill a GPU: scan_ends and scan_fold find dh
 * after each part too. Channels that fill it, but not a whole number of times: parts are a chain, in which a block
 * waits for that of the next part and takes dh from it; so the last places are empty for one part only.
 *
 * Sums over the states of a channel (p, du, ddelta) are scattered over its lanes, and the lane with the sum finishes
 * the step. Sums over channels (dB, dC): over the warp by sum_channels, over warps in shared memory, over blocks by
 * scan_sums. Sums over time (dA, dD, ddelta_bias): in the thread; over parts and batches by scan_sums too.         */
enum { CHUNK = 8, CHUNKS = TILE / CHUNK, WARPS = THREADS_EACH / 32 };
enum { FRONT = BEFORE, COLUMNS = FRONT + TILE }; /* step t of a tile is column FRONT + t */
enum { TOGETHER_STEPS = LANES > OWN ? LANES / OWN : 1, SUMS = OWN * TOGETHER_STEPS, LEFT = SUMS / LANES };

struct tile {
  float4 at[ROWS][COLUMNS + 1];           /* d, u, dp, dy silu'(z); then du, ddelta, -, dz */
  coefficients b, c;                      /* with FRONT */
  float4 kept[CHUNKS][OWN][THREADS_EACH]; /* the state before each chunk */
  float da[2][OWN * 4][THREADS_EACH];     /* dA over time, and what rounding took from it */
  float sums[WARPS][COLUMNS][2 * PAD];    /* dB and dC of each warp */
  float bias[ROWS], skip[ROWS];           /* delta_bias, D */
  u32 ticket;
  u8 reset[COLUMNS];
};
static_assert(sizeof(tile) <= SHARED_BYTES, "as cuda.c counts");

/* ---- loading ---- */
inline void touch(const void *p) { /* on its way to the cache */
#ifndef AMBI_EMULATED
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

inline int load_acquire(const int *p) { /* .. and what was written before it is seen after */
#ifdef AMBI_EMULATED
  return *(const volatile int *)p;
#else
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
#endif
}

/* A slot's part of a tile: sectors of 32 bytes */
inline void touch_slot(const args &a, int s, const block_at &b, i64 t) {
  if (!HAS(s)) return;
  const int per = 32 / bytes_of(DTYPE(s)), across = (CHANNEL_DENSE ? ROWS : TILE) / per;
  const char *first =
      AT(s) + (b.batch * BATCH_STRIDE(s) + b.first * CHANNEL_STRIDE(s) + t * STEP_STRIDE(s)) * (32 / per);
#pragma unroll
  for (int k = 0; k < ROWS * TILE / per; k += THREADS_EACH) {
    const int p = k + threadIdx.x, along = p % across * per, line = p / across;
    const int row = CHANNEL_DENSE ? along : line, step = CHANNEL_DENSE ? line : along;
    if (row < b.count && t + step < LENGTH)
      touch(first + (row * CHANNEL_STRIDE(s) + step * STEP_STRIDE(s)) * (32 / per));
  }
}

inline void touch_tile(const args &a, const block_at &b, i64 t) {
  touch_slot(a, DELTA, b, t), touch_slot(a, U, b, t), touch_slot(a, Z, b, t), touch_slot(a, DY, b, t);
}

/* .. and the state before the tile of step t, where scan_ends has left it */
inline void touch_state(const args &a, const block_at &b, i64 t) {
  const i64 number = t / TILE;
  if (!NEEDS_H || HAS(CHUNK_STATE)) return;
  touch((const float4 *)STARTS + IN_PART(b, number / ENDS_TILES, 0));
  if (number % ENDS_TILES == 0) return;
  touch((const float4 *)ENDS + IN_PART(b, number - 1, 0));
  touch((const float *)SPANS + IN_PART(b, number - 1, 0));
}

/* d of a step, 0 beyond the last */
inline float step_size(const args &a, float delta, bool there) {
  const float d = SOFTPLUS ? fast_softplus(delta) : delta;
  return there ? d : 0.0f;
}

/* (d, u, dp, dy silu'(z)) of one element */
inline float4 step_of(const args &a, float d, float u, float dy, float z) {
  if (!HAS(Z)) return make_float4(d, u, dy, 0.0f);
  const float s = fast_sigmoid(z), gate = m_clamp(z, -1e30f, 1e30f) * s;
  return make_float4(d, u, dy * gate, dy * (s + gate * (1.0f - s)));
}

/* What a tile is made of, as the thread loads it */
struct pieces {
  slot_pieces<DELTA> delta;
  slot_pieces<U> u;
  slot_pieces<Z> z;
  slot_pieces<DY> dy;
  coefficient_words coefficients;
};
inline void load(const args &a, const block_at &b, i64 t, bool whole, pieces &x) {
  load_pieces(a, b, t, whole, x.delta), load_pieces(a, b, t, whole, x.u), load_pieces(a, b, t, whole, x.z);
  load_pieces(a, b, t, whole, x.dy), load_coefficients(a, b, t, whole, x.coefficients);
}

/* The whole tile at step t, or only what states need */
inline void stage_tile(const args &a, const block_at &b, i64 t, const pieces &x, bool states_only, tile &m) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    const int left = (int)min(piece_left(a, b, p, t), 8ll);
    float d[8], u[8], z[8], dy[8];
    float4 to[8];
    get_piece(a, x.delta, i, d), get_piece(a, x.u, i, u), get_piece(a, x.z, i, z), get_piece(a, x.dy, i, dy);
    for (int e = 0; e < 8; e++) d[e] += m.bias[PIECE_ROW(p, e)];
    for (int e = 0; e < 8; e++) to[e] = step_of(a, step_size(a, d[e], e < left), u[e], dy[e], z[e]);
    for (int e = 0; e < 8; e++) {
      float4 &at = m.at[PIECE_ROW(p, e)][FRONT + PIECE_STEP(p, e)];
      if (states_only)
        *(float2 *)&at = make_float2(to[e].x, to[e].y);
      else
        at = to[e];
    }
  }
  stage_coefficients(a, b, t, x.coefficients, &m.b, states_only ? 0 : &m.c);
  stage_resets(a, b, t, m.reset + FRONT);
}

/* ---- ahead ---- */
/* h through the chunk whose first column is `first` */
inline void run_ahead(const args &a, const block_at &b, const constants &v, const tile &m, int first,
                      float (&h)[OWN][4]) {
#pragma unroll
  for (int i = 0; i < CHUNK; i++) {
    float coefficient[4];
    take_coefficients(coefficient, m.b, b, first + i);
    for (int q = 0; q < OWN; q++) {
      const float2 x = *(const float2 *)&m.at[ROW_OF(b, q)][first + i];
      step_ahead(h[q], v, q, x.x, x.x * x.y, coefficient, HAS(SEQ_IDX) && m.reset[first + i]);
    }
  }
}

/* The state before the tile of step t. chunk_state has every other one: the tile after it is run ahead for the next,
 * and the states before its chunks are left in AHEAD for when it is its turn. */
#define CHUNK_AHEAD(part, i) ((part)*CHUNKS + (i))
inline bool was_run(const args &a, i64 t) {
  return NEEDS_H && HAS(CHUNK_STATE) && t % (2 * TILE) == 0 && t + TILE < LENGTH;
}
inline void find_state(const args &a, const block_at &b, const constants &v, i64 part, i64 t, tile &m,
                       float (&h)[OWN][4]) {
  const i64 number = t / TILE;
  if (!HAS(CHUNK_STATE)) {
    kept_states(STARTS, b, number / ENDS_TILES, h);
    if (number % ENDS_TILES == 0) return;
    ended x;
    get_end(ENDS, number - 1, SPANS, number - 1, b, x);
    join(a, h, v, x);
    return;
  }
  get_states(a, CHUNK_STATE, b, number / 2, h);
  if (number % 2 == 0) return;
  pieces x = {};
  load_tile(a, b, t - TILE, x);
  stage_tile(a, b, t - TILE, x, true, m);
  __syncthreads();
  for (int i = 0; i < CHUNKS; i++) {
    keep_states(AHEAD, b, CHUNK_AHEAD(part, i), h);
    run_ahead(a, b, v, m, FRONT + i * CHUNK, h);
  }
  __syncthreads();
}

inline void take_ahead(const args &a, const block_at &b, i64 part, tile &m) {
  float4 h[CHUNKS * OWN];
  for (int i = 0; i < CHUNKS * OWN; i++)
    h[i] = ((const float4 *)AHEAD)[IN_PART(b, CHUNK_AHEAD(part, i / OWN), i % OWN)];
  for (int i = 0; i < CHUNKS * OWN; i++) m.kept[i / OWN][i % OWN][threadIdx.x] = h[i];
}

inline void keep_chunk(tile &m, int chunk, const float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) m.kept[chunk][q][threadIdx.x] = make_float4(h[q][0], h[q][1], h[q][2], h[q][3]);
}

/* What the way back needs of a chunk's steps */
struct history {
  float h[CHUNK][OWN][4], abar[CHUNK][OWN][4];
};

/* The chunk again */
inline void run_again(const args &a, const block_at &b, const constants &v, const tile &m, int chunk, int first,
                      history &x) {
  float h[OWN][4];
  for (int q = 0; q < OWN; q++) take(h[q], (const float *)&m.kept[chunk][q][threadIdx.x]);
#pragma unroll
  for (int i = 0; i < CHUNK; i++) {
    const bool reset = HAS(SEQ_IDX) && m.reset[first + i];
    float bt[4];
    take_coefficients(bt, m.b, b, first + i);
    for (int q = 0; q < OWN; q++) {
      const float2 s = *(const float2 *)&m.at[ROW_OF(b, q)][first + i];
      const float du = s.x * s.y;
      for (int j = 0; j < 4; j++) {
        x.abar[i][q][j] = fast_pow2(s.x * v.a2[q][j]);
        h[q][j] = x.abar[i][q][j] * (reset ? 0.0f : h[q][j]) + du * bt[j];
        x.h[i][q][j] = h[q][j];
      }
    }
  }
}

/* ---- back ---- */
/* dB and dC of one step over the channels of a warp. Lane c has state j ^ (c % 4) in place j, so that at each exchange
 * it keeps the lower places and gives the upper: no lane has to choose. It ends with dB or dC of state c % 4. */
inline void sum_channels(const block_at &b, float (&db)[4], float (&dc)[4], float *to) {
  for (int j = 0; j < 4; j += 2) {
    db[j] += __shfl_xor_sync(ALL_LANES, db[j + 1], IN_WARP(1));
    dc[j] += __shfl_xor_sync(ALL_LANES, dc[j + 1], IN_WARP(1));
  }
  db[0] += __shfl_xor_sync(ALL_LANES, db[2], IN_WARP(2));
  dc[0] += __shfl_xor_sync(ALL_LANES, dc[2], IN_WARP(2));
  if (WIDE == 4) {
    to[4 * b.k + b.twist] = db[0], to[PAD + 4 * b.k + b.twist] = dc[0];
    return;
  }
  const bool upper = LANE_HAS(4);
  float sum = (upper ? dc[0] : db[0]) + __shfl_xor_sync(ALL_LANES, upper ? db[0] : dc[0], IN_WARP(4));
  for (int bit = 8; bit < WIDE; bit *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, bit);
  if (PAIRED || threadIdx.x % WIDE < 8) to[(upper ? PAD : 0) + 4 * b.k + b.twist] = sum;
}

struct time_sums {
  float da[OWN][4], dskip[LEFT], dbias[LEFT];
};

/* Lane k ends with the sums LEFT k .. of the (channel q, step i) = q TOGETHER_STEPS + i: its channel and its step */
#define MY_ROW(b, l)  ((b).row + ((b).k * LEFT + (l)) / TOGETHER_STEPS * WIDE)
#define MY_STEP(b, l) (((b).k * LEFT + (l)) % TOGETHER_STEPS)

/* What is summed over the states of a channel, of TOGETHER_STEPS steps. A is in a2 as A log2(e), so dd is log2(e) times
 * what it should be. */
struct state_sums {
  float p[SUMS], s[SUMS], dd[SUMS];
};

/* .. and of those, the steps that this lane finishes */
struct my_steps {
  float4 in[LEFT];
};
inline void read_mine(const block_at &b, const tile &m, int t, my_steps &to) {
  for (int l = 0; l < LEFT; l++) to.in[l] = m.at[MY_ROW(b, l)][t + MY_STEP(b, l)];
}

/* du = D dp + d s;  ddelta = (dd + u s) sigmoid(delta + bias);  dz = p dy silu'(z);  dD, ddelta_bias += */
inline void finish_steps(const args &a, const block_at &b, tile &m, int t, const my_steps &mine, state_sums &of,
                         time_sums &sum) {
  if (HAS(DZ)) scatter_sums<SUMS>(of.p);
  scatter_sums<SUMS>(of.s);
  scatter_sums<SUMS>(of.dd);
  for (int l = 0; l < LEFT; l++) {
    const float skip = m.skip[MY_ROW(b, l)];
    const float d = mine.in[l].x, u = mine.in[l].y, dp = mine.in[l].z, slope = mine.in[l].w;
    float ddelta = of.dd[l] * K(0.69314718055994531) + u * of.s[l];
    if (SOFTPLUS) ddelta *= -m_expm1(-d); /* sigmoid(x) = 1 - e^-softplus(x) */
    sum.dskip[l] += dp * u;
    sum.dbias[l] += ddelta;
    if (l == 0) __syncwarp(); /* every lane has read these steps */
    m.at[MY_ROW(b, l)][t + MY_STEP(b, l)] =
        make_float4(skip * dp + d * of.s[l], ddelta, 0.0f, HAS(DZ) ? (of.p[l] + skip * u) * slope : 0.0f);
  }
}

/* What one step of the way back reads. The step before is read before this one's sums are written, as the compiler
 * would not know that they lie elsewhere. */
struct step_back {
  float b[4], c[4];
  float4 in[OWN];
};
inline void read_step(const block_at &b, const tile &m, int t, step_back &to) {
  take_coefficients(to.b, m.b, b, t);
  take_coefficients(to.c, m.c, b, t);
  for (int q = 0; q < OWN; q++) to.in[q] = m.at[ROW_OF(b, q)][t];
}

/* dh from after the chunk to before it */
inline void run_back(const args &a, const block_at &b, const constants &v, tile &m, int chunk, int first,
                     const history &x, float (&dh)[OWN][4], time_sums &sum) {
  state_sums of;
  my_steps mine;
  step_back next;
  read_step(b, m, first + CHUNK - 1, next);
#pragma unroll
  for (int i = CHUNK - 1; i >= 0; i--) {
    const int t = first + i;
    const bool reset = HAS(SEQ_IDX) && m.reset[t];
    const step_back now = next;
    float db[4] = {}, dc[4] = {};
    if (i > 0) read_step(b, m, t - 1, next);
    if ((i + 1) % TOGETHER_STEPS == 0) read_mine(b, m, t + 1 - TOGETHER_STEPS, mine);
#pragma unroll
    for (int q = 0; q < OWN; q++) {
      const float d = now.in[q].x, du = now.in[q].x * now.in[q].y, dp = now.in[q].z;
      float before[4], p = 0, s = 0, dd = 0;
      if (i > 0)
        for (int j = 0; j < 4; j++) before[j] = x.h[i > 0 ? i - 1 : 0][q][j];
      else
        take(before, (const float *)&m.kept[chunk][q][threadIdx.x]);
      for (int j = 0; j < 4; j++) {
        const float g = dh[q][j] + now.c[j] * dp;
        dc[j] += dp * x.h[i][q][j];
        db[j] += g * du;
        if (HAS(DZ)) p += now.c[j] * x.h[i][q][j];
        s += g * now.b[j];
        dh[q][j] = g * x.abar[i][q][j];
        const float gh = dh[q][j] * (reset ? 0.0f : before[j]);
        if (reset) dh[q][j] = 0; /* what was before does not matter */
        dd += gh * v.a2[q][j];
        sum.da[q][j] += gh * d;
      }
      const int at = q * TOGETHER_STEPS + i % TOGETHER_STEPS;
      of.p[at] = p, of.s[at] = s, of.dd[at] = dd;
    }
    if (HAS(DB) || HAS(DC)) sum_channels(b, db, dc, m.sums[threadIdx.x / 32][t]);
    if (i % TOGETHER_STEPS == 0) finish_steps(a, b, m, t, mine, of, sum);
  }
}

/* ---- storing ---- */
/* dB and dC of the block's channels: a thread has one state of either, and every fourth step */
inline void store_groups(const args &a, const block_at &b, i64 t, const tile &m) {
  enum { APART = THREADS_EACH / (2 * PAD) };
  const int column = threadIdx.x % (2 * PAD), n = column % PAD, first = threadIdx.x / (2 * PAD);
  const bool is_c = column >= PAD, wanted = n < STATES && (is_c ? HAS(DC) : HAS(DB));
  const int count = (int)min((i64)TILE, LENGTH - t);
  float *to = (float *)(is_c ? PART_C : PART_B) + (b.number * LENGTH + t + first) * STATES + n;
#pragma unroll
  for (int i = 0; i < TILE / APART; i++) {
    const int step = first + i * APART;
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += m.sums[w][FRONT + step][column];
    if (wanted && step < count) to[i * APART * STATES] = sum;
  }
}

inline void store_piece(const args &a, int s, const block_at &b, const piece &p, i64 t, bool whole, float (&r)[8]) {
  if (!HAS(s)) return;
  const i64 at = piece_offset(a, s, b, p, t);
  if (whole && !ADDS(s))
    store_all<8, EVEN != 0>(DTYPE(s), AT(s), at, r);
  else
    put_some<8>(DTYPE(s), ADDS(s), AT(s), at, r, piece_left(a, b, p, t));
}

inline void store_tile(const args &a, const block_at &b, i64 t, const tile &m) {
  const bool whole = whole_tile(a, b, t);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float du[8], ddelta[8], dz[8];
    for (int e = 0; e < 8; e++) {
      const float4 x = m.at[PIECE_ROW(p, e)][FRONT + PIECE_STEP(p, e)];
      du[e] = x.x, ddelta[e] = x.y, dz[e] = x.w;
    }
    store_piece(a, DU, b, p, t, whole, du), store_piece(a, DDELTA, b, p, t, whole, ddelta);
    store_piece(a, DZ, b, p, t, whole, dz);
  }
  if (HAS(DB) || HAS(DC)) store_groups(a, b, t, m);
}

inline void add_da(tile &m, const time_sums &sum) {
  for (int i = 0; i < OWN * 4; i++) {
    long_sum total = {m.da[0][i][threadIdx.x], m.da[1][i][threadIdx.x]};
    total.add(sum.da[i / 4][i % 4]);
    m.da[0][i][threadIdx.x] = total.total, m.da[1][i][threadIdx.x] = total.lost;
  }
}

/* Sums over the block's part of time: (parts, batches, channels, N), (parts, batches, channels) */
inline void store_sums(const args &a, const block_at &b, i64 part, const tile &m, const long_sum (&dskip)[LEFT],
                       const long_sum (&dbias)[LEFT]) {
  const i64 first = (part * BATCHES + b.batch) * CHANNELS + b.first;
  for (int i = 0; i < OWN * 4 && HAS(DA); i++) {
    const int n = 4 * b.k + (i % 4 ^ b.twist), row = ROW_OF(b, i / 4);
    if (n < STATES && row < b.count) ((float *)SUM_A)[(first + row) * STATES + n] = m.da[0][i][threadIdx.x];
  }
  for (int l = 0; l < LEFT; l++) {
    float d = dskip[l].total, bias = dbias[l].total;
    for (int bit = WIDE; bit < WIDE * TOGETHER_STEPS; bit *= 2) { /* the lanes that have a channel's other steps */
      d += __shfl_xor_sync(ALL_LANES, d, IN_WARP(bit));
      bias += __shfl_xor_sync(ALL_LANES, bias, IN_WARP(bit));
    }
    if (MY_STEP(b, l) || MY_ROW(b, l) >= b.count) continue;
    if (HAS(DD)) ((float *)SUM_D)[first + MY_ROW(b, l)] = d;
    if (HAS(DDELTA_BIAS)) ((float *)SUM_BIAS)[first + MY_ROW(b, l)] = bias;
  }
}

/* ---- kernels ---- */
inline void start_rows(const args &a, const block_at &b, tile &m) {
  for (int row = threadIdx.x; row < ROWS; row += THREADS_EACH) {
    if (row < FRONT) m.reset[row] = 0;
    m.bias[row] = per_channel(a, DELTA_BIAS, b, row);
    m.skip[row] = per_channel(a, D, b, row);
  }
  for (int i = threadIdx.x; i < ROWS * FRONT; i += THREADS_EACH)
    m.at[i / FRONT][i % FRONT] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = threadIdx.x; i < TWISTS * FRONT * PAD; i += THREADS_EACH)
    m.b.at[i % TWISTS][i / TWISTS] = m.c.at[i % TWISTS][i / TWISTS] = 0;
  for (int i = 0; i < OWN * 4; i++) m.da[0][i][threadIdx.x] = m.da[1][i][threadIdx.x] = 0;
  __syncthreads();
}

inline void backward_tile(const args &a, const block_at &b, const constants &v, i64 part, i64 t, tile &m,
                          float (&dh)[OWN][4], time_sums &sum) {
  float h[OWN][4] = {};
  pieces x = {};
  load_tile(a, b, t, x); /* under way while the state is found */
  const bool ahead = was_run(a, t);
  if (ahead)
    take_ahead(a, b, part, m);
  else if (NEEDS_H)
    find_state(a, b, v, part, t, m, h);
  stage_tile(a, b, t, x, false, m);
  __syncthreads();
  const int count = (int)min((i64)TILE, LENGTH - t), chunks = (count + CHUNK - 1) / CHUNK;
  const int first = FRONT + count - chunks * CHUNK;
  for (int i = 0; i < chunks && !ahead; i++) {
    keep_chunk(m, i, h);
    if (NEEDS_H && i + 1 < chunks) run_ahead(a, b, v, m, first + i * CHUNK, h);
  }
#pragma unroll 1
  for (int i = chunks - 1; i >= 0; i--) {
    history past;
    run_again(a, b, v, m, i, first + i * CHUNK, past);
    run_back(a, b, v, m, i, first + i * CHUNK, past, dh, sum);
  }
  __syncthreads();
  store_tile(a, b, t, m);
}

/* dh after the part, when the block of the next part has it; each element is the same thread's in every part */
inline void wait_for(const args &a, const block_at &b, i64 parts_done, float (&dh)[OWN][4]) {
  if (threadIdx.x == 0)
    while (load_acquire((const int *)DONE + b.number) < parts_done) {
    }
  __syncthreads();
  kept_states(CROSSING, b, 0, dh);
}
inline void hand_over(const args &a, const block_at &b, i64 parts_done, const float (&dh)[OWN][4]) {
  keep_states(CROSSING, b, 0, dh);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  *((volatile int *)DONE + b.number) = (int)parts_done;
}

/* Blocks in the order in which they start, the last part of time first: the block that one waits for has started. */
inline u32 take_ticket(const args &a, tile &m) {
  if (threadIdx.x == 0) m.ticket = atomicAdd((u32 *)DONE + gridDim.x, 1);
  __syncthreads();
  return m.ticket;
}

KERNEL(scan_backward, THREADS_EACH) {
  DYNAMIC_SHARED(memory);
  tile &m = *(tile *)memory;
  const u32 ticket = CHAINED ? take_ticket(a, m) : 0;
  const u32 later = CHAINED ? ticket / gridDim.x : gridDim.y - 1 - blockIdx.y; /* parts after this one */
  const block_at b = find_block(a, CHAINED ? ticket % gridDim.x : blockIdx.x);
  const i64 part = gridDim.y - 1 - later;
  const i64 first = part * PART_TILES * TILE, end = min(LENGTH, first + PART_TILES * TILE);
  const constants v = get_constants(a, b);
  float dh[OWN][4] = {};
  long_sum dskip[LEFT] = {}, dbias[LEFT] = {};
  touch_tile(a, b, (end - 1) / TILE * TILE);
  start_rows(a, b, m);
  if (later > 0 && CHAINED)
    wait_for(a, b, later, dh);
  else if (PARTS > 1 && !CHAINED)
    kept_states(STARTS_BACK, b, part, dh);
  else
    get_states(a, DH_LAST, b, 0, dh);
  for (i64 t = (end - 1) / TILE * TILE; t >= first; t -= TILE) {
    time_sums sum = {};
    if (t > first) touch_tile(a, b, t - TILE), touch_state(a, b, t - TILE);
    backward_tile(a, b, v, part, t, m, dh, sum);
    add_da(m, sum);
    for (int l = 0; l < LEFT; l++) dskip[l].add(sum.dskip[l]), dbias[l].add(sum.dbias[l]);
    __syncthreads();
  }
  if (part > 0 && CHAINED) hand_over(a, b, later + 1, dh);
  store_sums(a, b, part, m, dskip, dbias);
  if (part == 0) put_states(a, DH0, b, 0, dh);
}
