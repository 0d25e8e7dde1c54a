/* backward.cu -- the gradients, tile after tile from the last step of a block's part of time to the first.
 *
 * From the state before it (before.cu) each chunk, the last first, is run ahead with h and abar of its steps in
 * registers, and back. Steps after the last whole chunk (RESTS: there are some) are taken one at a time: to run a chunk
 * that ends with steps of d = 0 would change dh, if A is NaN, and the sums over time.
 *
 * dh needs what comes later, where time is in parts. Channels that cannot fill a GPU: scan_ends and scan_fold find dh
 * after each part too. Channels that fill it, but not a whole number of times: parts are a chain, in which a block
 * waits for that of the next part and takes dh from it; so the last places are empty for one part only.
 *
 * Sums over the states of a channel (p, du, ddelta) are scattered over its lanes, and the lane with the sum finishes
 * the step. Sums over channels (dB, dC): over the warp by sum_channels, over warps in shared memory, over blocks by
 * scan_sums. Sums over time (dA, dD, ddelta_bias, dB and dC of constant B and C): in the thread; over parts and batches
 * by scan_sums too.                                                                                               */

/* ---- sums over time ---- */
struct time_sums {
  float of_state[STATE_SUMS][OWN][4]; /* dA, TIME_DB, TIME_DC */
  float dskip[LEFT], dbias[LEFT];
};
inline float &sum_of(time_sums &x, int i) {
  const int k = i - STATE_SUMS * OWN * 4;
  return k < 0 ? x.of_state[i / (OWN * 4)][i / 4 % OWN][i % 4] : k < LEFT ? x.dskip[k] : x.dbias[k - LEFT];
}

/* .. of some tiles, to those of all */
inline void add_sums(tile &m, time_sums &sum) {
#pragma unroll
  for (int i = 0; i < TIME_SUMS; i++) {
    long_sum total = {m.over_time[0][i][threadIdx.x], m.over_time[1][i][threadIdx.x]};
    total.add(sum_of(sum, i));
    sum_of(sum, i) = 0;
    m.over_time[0][i][threadIdx.x] = total.total, m.over_time[1][i][threadIdx.x] = total.lost;
  }
}

/* Sums over the block's part of time: (parts, batches, channels, N), (parts, batches, channels) */
inline void store_state_sums(const block_at &b, i64 first, int which, float *to, const tile &m) {
  for (int i = 0; i < OWN * 4; i++) {
    const int n = 4 * b.k + (i % 4 ^ b.twist), row = ROW_OF(b, i / 4);
    if (n < STATES && row < b.count)
      to[(first + row) * STATES + n] = m.over_time[0][which * OWN * 4 + i][threadIdx.x];
  }
}
inline void store_sums(const args &a, const block_at &b, i64 part, const tile &m) {
  enum { FIRST_D = STATE_SUMS * OWN * 4, FIRST_BIAS = FIRST_D + LEFT };
  const i64 first = (part * BATCHES + b.batch) * CHANNELS + b.first;
  if (HAS(DA)) store_state_sums(b, first, 0, (float *)SUM_A, m);
  if (TIME_DB) store_state_sums(b, first, 1, (float *)PART_B, m);
  if (TIME_DC) store_state_sums(b, first, 1 + TIME_DB, (float *)PART_C, m);
  for (int l = 0; l < LEFT; l++) {
    float d = m.over_time[0][FIRST_D + l][threadIdx.x], bias = m.over_time[0][FIRST_BIAS + l][threadIdx.x];
    for (int bit = WIDE; bit < WIDE * TOGETHER_STEPS; bit *= 2) { /* the lanes that have a channel's other steps */
      d += __shfl_xor_sync(ALL_LANES, d, IN_WARP(bit));
      bias += __shfl_xor_sync(ALL_LANES, bias, IN_WARP(bit));
    }
    if (MY_STEP(b, l) || MY_ROW(b, l) >= b.count) continue;
    if (HAS(DD)) ((float *)SUM_D)[first + MY_ROW(b, l)] = d;
    if (HAS(DDELTA_BIAS)) ((float *)SUM_BIAS)[first + MY_ROW(b, l)] = bias;
  }
}

/* ---- ahead ---- */
/* What the way back needs of a chunk's steps */
struct history {
  float h[CHUNK][OWN][4], abar[CHUNK][OWN][4];
};

/* h through step i of a chunk, with abar */
inline void run_step(const places &at, const constants &v, const tile &m, int i, bool reset, float (&h)[OWN][4],
                     float (&abar)[OWN][4]) {
  float bt[4];
  take(bt, COEFFICIENT_AT(m.k[0], at, i));
  for (int q = 0; q < OWN; q++) {
    const float2 s = *(const float2 *)&IN_ROW(m, at, q, i);
    const float du = s.x * s.y;
    for (int j = 0; j < 4; j++) {
      abar[q][j] = fast_pow2(s.x * v.a2[q][j]);
      h[q][j] = step_of(h[q][j], abar[q][j], v, q, j, s.x, du, bt[j], reset);
    }
  }
}

/* The chunk again */
inline void run_again(const args &a, const places &at, const constants &v, const tile &m, int chunk, history &x) {
  float h[OWN][4];
  take_kept(m, chunk, h);
#pragma unroll
  for (int i = 0; i < CHUNK; i++) {
    run_step(at, v, m, i, RESET(m, chunk, i), h, x.abar[i]);
    for (int k = 0; k < OWN * 4; k++) x.h[i][k / 4][k % 4] = h[k / 4][k % 4];
  }
}

/* ---- back ---- */
/* dB and dC of one step over the channels of a warp. Lane c has state j ^ (c % 4) in place j, so that at each exchange
 * it keeps the lower places and gives the upper: no lane has to choose. It ends with dB or dC of state c % 4. */
inline void sum_channels(float (&db)[4], float (&dc)[4], float *to) {
  for (int j = 0; j < 4; j += 2) {
    db[j] += __shfl_xor_sync(ALL_LANES, db[j + 1], IN_WARP(1));
    dc[j] += __shfl_xor_sync(ALL_LANES, dc[j + 1], IN_WARP(1));
  }
  db[0] += __shfl_xor_sync(ALL_LANES, db[2], IN_WARP(2));
  dc[0] += __shfl_xor_sync(ALL_LANES, dc[2], IN_WARP(2));
  if (WIDE == 4) {
    to[0] = db[0], to[PAD] = dc[0];
    return;
  }
  const bool upper = LANE_HAS(4);
  float sum = (upper ? dc[0] : db[0]) + __shfl_xor_sync(ALL_LANES, upper ? db[0] : dc[0], IN_WARP(4));
  for (int bit = 8; bit < WIDE; bit *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, bit);
  if (PAIRED || threadIdx.x % WIDE < 8) to[0] = sum;
}

/* What is summed over the states of a channel, of TOGETHER_STEPS steps. A is in a2 as A log2(e), so dd is log2(e) times
 * what it should be. */
struct state_sums {
  float p[SUMS], s[SUMS], dd[SUMS];
};

/* .. and of those, the steps that this lane finishes */
struct my_steps {
  float4 in[LEFT];
};
inline void read_mine(const places &at, const tile &m, int i, my_steps &to) {
  for (int l = 0; l < LEFT; l++) to.in[l] = IN_MINE(m, at, l, i);
}

/* Of `steps` from step i on: du = D dp + d s;  ddelta = (dd + u s) sigmoid(delta + bias), with zero-order hold without
 * u s, which differs from state to state and is in dd;  dz = p dy silu'(z);  dD, ddelta_bias += */
inline void finish_steps(const args &a, const block_at &b, const places &at, tile &m, int i, int steps,
                         const my_steps &mine, state_sums &of, time_sums &sum) {
  if (HAS(DZ)) scatter_sums<SUMS>(of.p);
  scatter_sums<SUMS>(of.s);
  scatter_sums<SUMS>(of.dd);
  __syncwarp(); /* every lane has read these steps */
  for (int l = 0; l < LEFT; l++) {
    if (MY_STEP(b, l) >= steps) continue;
    const float skip = m.skip[MY_ROW(b, l)];
    const float d = mine.in[l].x, u = mine.in[l].y, dp = mine.in[l].z, slope = mine.in[l].w;
    float ddelta = of.dd[l] * K(0.69314718055994531) + (ZOH ? 0.0f : u * of.s[l]);
    if (SOFTPLUS) ddelta *= sigmoid_of_softplus(d);
    sum.dskip[l] += dp * u;
    sum.dbias[l] += ddelta;
    IN_MINE(m, at, l, i) =
        make_float4(skip * dp + d * of.s[l], ddelta, 0.0f, HAS(DZ) ? (of.p[l] + skip * u) * slope : 0.0f);
  }
}

/* What one step of the way back reads. The step before is read before this one's sums are written, as the compiler
 * would not know that they lie elsewhere. */
struct step_back {
  float b[4], c[4];
  float4 in[OWN];
};
inline void read_step(const places &at, const tile &m, int i, step_back &to) {
  take(to.b, COEFFICIENT_AT(m.k[0], at, i));
  take(to.c, COEFFICIENT_AT(m.k[C_AT], at, i));
  for (int q = 0; q < OWN; q++) to.in[q] = IN_ROW(m, at, q, i);
}

/* dB and dC of one step, of the thread's channels */
struct channel_sums {
  float db[4], dc[4];
};

/* Channel q: dh from after a step to before it, given the states around it. Place `to` of the sums over states. */
inline void back_channel(const args &a, const step_back &now, const constants &v, int q, bool reset,
                         const float *before, const float *h, const float *abar, float (&dh)[4], channel_sums &group,
                         state_sums &of, int to, time_sums &sum) {
  const float d = now.in[q].x, du = now.in[q].x * now.in[q].y, dp = now.in[q].z;
  float p = 0, s = 0, dd = 0;
  for (int j = 0; j < 4; j++) {
    const float bt = CONSTANT_B ? v.b[q][j] : now.b[j], ct = CONSTANT_C ? v.c[q][j] : now.c[j];
    const float g = dh[j] + ct * dp;
    const hold by = ZOH ? fast_hold(d * v.a[q][j], abar[j]) : hold{1.0f, 0.0f};
    const float gf = ZOH ? g * by.f : g;
    (TIME_DC ? sum.of_state[TIME_DC + TIME_DB][q][j] : group.dc[j]) += dp * h[j];
    (TIME_DB ? sum.of_state[TIME_DB][q][j] : group.db[j]) += gf * du;
    if (HAS(DZ)) p += ct * h[j];
    s += gf * bt;
    dh[j] = g * abar[j];
    const float gh = dh[j] * (reset ? 0.0f : before[j]);
    dd += gh * v.a2[q][j];
    sum.of_state[0][q][j] += gh * d;
    if (ZOH) { /* bbar = d f B: its slope is abar B over d, d^2 phi' B over A */
      dd += dh[j] * bt * now.in[q].y * LOG2_E;
      sum.of_state[0][q][j] += g * bt * du * d * by.slope;
    }
    if (reset) dh[j] = 0; /* what was before does not matter */
  }
  of.p[to] = p, of.s[to] = s, of.dd[to] = dd;
}

/* dh from after the chunk to before it */
inline void run_back(const args &a, const block_at &b, const places &at, const constants &v, tile &m, int chunk,
                     const history &x, float (&dh)[OWN][4], time_sums &sum) {
  state_sums of;
  my_steps mine;
  step_back next;
  read_step(at, m, CHUNK - 1, next);
#pragma unroll
  for (int i = CHUNK - 1; i >= 0; i--) {
    const step_back now = next;
    channel_sums group = {};
    if (i > 0) read_step(at, m, i - 1, next);
    if ((i + 1) % TOGETHER_STEPS == 0) read_mine(at, m, i + 1 - TOGETHER_STEPS, mine);
    float first[OWN][4]; /* the state before the chunk */
    if (i == 0) take_kept(m, chunk, first);
#pragma unroll
    for (int q = 0; q < OWN; q++)
      back_channel(a, now, v, q, RESET(m, chunk, i), i > 0 ? x.h[i > 0 ? i - 1 : 0][q] : first[q], x.h[i][q],
                   x.abar[i][q], dh[q], group, of, q * TOGETHER_STEPS + i % TOGETHER_STEPS, sum);
    if (GROUP_DB || GROUP_DC) sum_channels(group.db, group.dc, SUM_AT(m, at, i));
    if (i % TOGETHER_STEPS == 0) finish_steps(a, b, at, m, i, TOGETHER_STEPS, mine, of, sum);
  }
}

/* The same for the first `count` steps of a chunk that is not whole, each run ahead to from its beginning */
inline void run_back_rest(const args &a, const block_at &b, const places &at, const constants &v, tile &m, int chunk,
                          int count, float (&dh)[OWN][4], time_sums &sum) {
#pragma unroll 1
  for (int i = count - 1; i >= 0; i--) {
    float before[OWN][4], h[OWN][4], abar[OWN][4];
    channel_sums group = {};
    state_sums of = {};
    my_steps mine;
    step_back now;
    take_kept(m, chunk, h);
#pragma unroll 1
    for (int k = 0; k <= i; k++) {
      for (int e = 0; e < OWN * 4; e++) before[e / 4][e % 4] = h[e / 4][e % 4];
      run_step(at, v, m, k, RESET(m, chunk, k), h, abar);
    }
    read_step(at, m, i, now);
    read_mine(at, m, i, mine);
    for (int q = 0; q < OWN; q++)
      back_channel(a, now, v, q, RESET(m, chunk, i), before[q], h[q], abar[q], dh[q], group, of, q * TOGETHER_STEPS,
                   sum);
    if (GROUP_DB || GROUP_DC) sum_channels(group.db, group.dc, SUM_AT(m, at, i));
    finish_steps(a, b, at, m, i, 1, mine, of, sum);
    __syncwarp(); /* read_mine reads what is written there, too, if in vain */
  }
}

/* ---- a chain of parts ---- */
inline int load_acquire(const int *p) { /* what was written before it is seen after */
#ifdef AMBI_EMULATED
  return *(const volatile int *)p;
#else
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
#endif
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

/* ---- the kernel ---- */
inline void backward_tile(const args &a, const places &at, const constants &v, i64 t, tile &m, float (&dh)[OWN][4],
                          time_sums &sum) {
  pieces x = {};
  const block_at b = block_of(m);
  const int count = (int)min((i64)TILE, LENGTH - t), whole = count / CHUNK, rest = RESTS ? count % CHUNK : 0;
  load_tile(a, b, t, x); /* under way while states are taken */
  const bool all = take_states(a, b, at, v, m.part, t, m);
  stage_tile(a, b, t, x, false, m);
  __syncthreads();
  if (!all) find_others(a, at, v, whole + (rest > 0), m);
  if (rest > 0) run_back_rest(a, b, in_chunk(at, whole), v, m, whole, rest, dh, sum);
#pragma unroll 1
  for (int i = whole - 1; i >= 0; i--) {
    const places here = in_chunk(at, i);
    history past;
    run_again(a, here, v, m, i, past);
    run_back(a, b, here, v, m, i, past, dh, sum);
  }
  __syncthreads();
  store_tile(a, block_of(m), t, m);
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
  if (threadIdx.x == 0) m.block = b, m.part = part;
  touch_tile(a, b, (end - 1) / TILE * TILE);
  for (int i = 0; i < TIME_SUMS; i++) m.over_time[0][i][threadIdx.x] = m.over_time[1][i][threadIdx.x] = 0;
  load_rows(a, b, m); /* with a barrier */
  if (later > 0 && CHAINED)
    wait_for(a, b, later, dh);
  else if (PARTS > 1 && !CHAINED)
    kept_states(STARTS_BACK, b, part, dh);
  else
    get_states(a, DH_LAST, b, 0, dh);
  const places at = find_places(b);
  time_sums sum = {};
  for (i64 t = (end - 1) / TILE * TILE; t >= m.part * PART_TILES * TILE; t -= TILE) {
    const bool last = t == m.part * PART_TILES * TILE;
    if (!last) touch_tile(a, block_of(m), t - TILE), touch_state(a, block_of(m), t - TILE);
    backward_tile(a, at, v, t, m, dh, sum);
    if (last || t % (4 * TILE) == 0) add_sums(m, sum);
    __syncthreads();
  }
  if (m.part > 0 && CHAINED) hand_over(a, block_of(m), gridDim.y - m.part, dh);
  store_sums(a, block_of(m), m.part, m);
  if (m.part == 0) put_states(a, DH0, block_of(m), 0, dh);
}
