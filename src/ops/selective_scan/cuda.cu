/* selective_scan on CUDA. Names and formulas are those of op.c.
 *
 *   common.cu     where the elements of a slot are, and functions
 *   cuda.cu       any number of states, any strides, dtypes and options: below
 *   tiles.cu      few states, f32 arithmetic: tiles of channels and steps in shared memory, for
 *   forward.cu    .. four states in the registers of each thread, time in parts where there are few channels
 *   backward.cu   .. the same from the last step to the first; before.cu: the states it begins with
 *   parts.cu      .. what backward.cu needs before and leaves to add up after
 *
 * A thread takes one channel of one batch through time, in chunks of STEPS; inside a chunk one state after another, so
 * that h and dh are registers. What the states share (d, u, ..) is a tile of the workspace.
 *
 * A warp is a block, and its channels share B and C: dB and dC of a step are summed over the warp, left in the
 * workspace, and added up over the warps of the group by scan_groups. Sums over time are added up over the batches by
 * scan_channels. Both in a fixed order.                                                                            */
#if !TILED
enum { STEPS = 64 };
enum { TILE_D, TILE_U, TILE_P, TILE_DP, TILE_SLOPE, TILE_S, TILE_DD, TILE_BEFORE, TILES_BACK, TILES_AHEAD = TILE_DP };

/* Arrays of the workspace: element i of this thread, thread after thread */
#define MINE(array)     ((real *)(array) + (i64)blockIdx.x * 32 + threadIdx.x)
#define IN_TILE(row, t) (((row)*STEPS + (t)) * ALL_THREADS)

inline place place_of(const args &a) {
  const i64 in_batch = blockIdx.x % PER_BATCH, first = in_batch % PER_SET * 32 + threadIdx.x;
  place p = {blockIdx.x / PER_BATCH, 0, in_batch / PER_SET * TOGETHER + first, 0, first < TOGETHER};
  return p;
}

/* d, u and p = D u of the chunk that starts at `first` */
inline void load_tile(const args &a, const place &p, i64 first, i64 count, real *tile) {
  const line u = line_of(a, U, p), delta = line_of(a, DELTA, p);
  const real bias = value(a, DELTA_BIAS, p), skip = value(a, D, p);
  for (i64 t = 0; t < count; t++) {
    const real x = get(delta, first + t) + bias, ut = get(u, first + t);
    tile[IN_TILE(TILE_D, t)] = SOFTPLUS ? m_softplus(x) : x;
    tile[IN_TILE(TILE_U, t)] = ut;
    tile[IN_TILE(TILE_P, t)] = skip * ut;
  }
}

/* Where dB or dC of a step goes: to the warp's part (L, N) of the group's sum, or, constant, to the channel's own */
struct group_sum_of {
  bool wanted, constant;
  real *part; /* state n of the warp's part */
  i64 states;
  real sum;
  void add(i64 t, real term) {
    if (!wanted) return;
    if (constant) sum += term;
    if (constant) return;
    term = warp_sum(term);
    if (threadIdx.x == 0) part[t * states] = term;
  }
};

inline group_sum_of start_sum(const args &a, bool wanted, bool constant, char *parts, i64 n) {
  group_sum_of s = {wanted, constant, (real *)parts + (i64)blockIdx.x * LENGTH * STATES + n, STATES, 0};
  return s;
}

/* h of one state through a chunk; p += C h. For the way back it keeps h_{t-1}, and dC += dp h */
inline real run_state(const args &a, const place &p, i64 first, i64 count, real *tile, real h, group_sum_of *dc) {
  const real decays = decay(a, value(a, A, p)), a2 = decays * LOG2_E;
  const line b = line_of(a, B, p), c = line_of(a, C, p), seq_idx = line_of(a, SEQ_IDX, p);
  for (i64 t = 0; t < count; t++) {
    const real d = tile[IN_TILE(TILE_D, t)], du = d * tile[IN_TILE(TILE_U, t)];
    if (resets(seq_idx, first + t)) h = 0;
    if (dc) tile[IN_TILE(TILE_BEFORE, t)] = h;
    h = m_exp2(d * a2) * h + (ZOH ? du * phi(d * decays) : du) * get(b, first + t);
    tile[IN_TILE(TILE_P, t)] += get(c, first + t) * h;
    if (dc) dc->add(first + t, tile[IN_TILE(TILE_DP, t)] * h);
  }
  return h;
}

#if !BACKWARD
KERNEL(scan_forward, 32) {
  place p = place_of(a);
  real *h = MINE(STATE), *tile = MINE(TILES);
  const line y = line_of(a, Y, p), z = line_of(a, Z, p);
  for (p.state = 0; p.state < STATES; p.state++) h[p.state * ALL_THREADS] = value(a, H0, p);
  for (p.chunk = 0; p.chunk * STEPS < LENGTH; p.chunk++) {
    const i64 first = p.chunk * STEPS, count = min((i64)STEPS, LENGTH - first);
    p.state = 0;
    load_tile(a, p, first, count, tile);
    for (; p.state < STATES; p.state++) {
      set_value(a, CHUNK_STATE, p, h[p.state * ALL_THREADS]);
      h[p.state * ALL_THREADS] = run_state(a, p, first, count, tile, h[p.state * ALL_THREADS], 0);
    }
    for (i64 t = 0; t < count; t++) {
      const real out = tile[IN_TILE(TILE_P, t)];
      set(y, first + t, z.at ? out * silu(get(z, first + t)) : out);
    }
  }
  for (p.state = 0; p.state < STATES; p.state++) set_value(a, H_LAST, p, h[p.state * ALL_THREADS]);
}
#else
/* ---- sums ---- */
/* A sum over time that lives in the workspace: (rows, 2, ALL_THREADS), the total and what rounding took from it */
inline void add_to(const args &a, real *sums, i64 row, real term) {
  long_sum sum = {sums[2 * row * ALL_THREADS], sums[(2 * row + 1) * ALL_THREADS]};
  sum.add(term);
  sums[2 * row * ALL_THREADS] = sum.total, sums[(2 * row + 1) * ALL_THREADS] = sum.lost;
}

/* ---- one chunk ---- */
/* dp = dy silu(z) and dy silu'(z); clears what the states add to */
inline void load_dp(const args &a, const place &p, i64 first, i64 count, real *tile) {
  const line dy = line_of(a, DY, p), z = line_of(a, Z, p);
  for (i64 t = 0; t < count; t++) {
    const real g = get(dy, first + t), zt = get(z, first + t);
    tile[IN_TILE(TILE_DP, t)] = z.at ? g * silu(zt) : g;
    tile[IN_TILE(TILE_SLOPE, t)] = z.at ? silu_slope(g, zt) : (real)0;
    tile[IN_TILE(TILE_S, t)] = tile[IN_TILE(TILE_DD, t)] = 0;
  }
}

/* The way back of one state: dh before the chunk from dh after it */
inline real run_back(const args &a, const place &p, i64 first, i64 count, real *tile, real dh) {
  const real decays = decay(a, value(a, A, p)), a2 = decays * LOG2_E;
  const line b = line_of(a, B, p), c = line_of(a, C, p), seq_idx = line_of(a, SEQ_IDX, p);
  group_sum_of db = start_sum(a, HAS(DB), CONSTANT_B, PART_B, p.state);
  real da = 0;
  for (i64 t = count - 1; t >= 0; t--) {
    const real d = tile[IN_TILE(TILE_D, t)], u = tile[IN_TILE(TILE_U, t)], bt = get(b, first + t);
    const real abar = m_exp2(d * a2), g = dh + get(c, first + t) * tile[IN_TILE(TILE_DP, t)];
    const real f = ZOH ? phi(d * decays) : (real)1, gf = g * f;
    dh = g * abar;
    const real gh = dh * tile[IN_TILE(TILE_BEFORE, t)];
    tile[IN_TILE(TILE_DD, t)] += gh * decays + (ZOH ? dh * u * bt : (real)0);
    da += gh * d + (ZOH ? g * (d * u) * d * phi_slope(d * decays, abar, f) * bt : (real)0);
    tile[IN_TILE(TILE_S, t)] += gf * bt;
    db.add(first + t, gf * (d * u));
    if (resets(seq_idx, first + t)) dh = 0;
  }
  if (HAS(DA)) add_to(a, MINE(SUM_A), p.state, da);
  if (db.wanted && db.constant) add_to(a, MINE(SUM_B), p.state, db.sum);
  return dh;
}

/* du = D dp + d s;  ddelta = dd sigmoid(delta + bias);  dz = dy p silu'(z);  dD, ddelta_bias += */
inline void finish_chunk(const args &a, const place &p, i64 first, i64 count, const real *tile) {
  const line du_at = line_of(a, DU, p), ddelta_at = line_of(a, DDELTA, p), dz_at = line_of(a, DZ, p);
  const real skip = value(a, D, p);
  real dskip = 0, dbias = 0;
  for (i64 t = 0; t < count; t++) {
    const real d = tile[IN_TILE(TILE_D, t)], u = tile[IN_TILE(TILE_U, t)], s = tile[IN_TILE(TILE_S, t)];
    const real dp = tile[IN_TILE(TILE_DP, t)];
    real du = skip * dp, dd = tile[IN_TILE(TILE_DD, t)];
    if (STATES) du += d * s; /* without states these are sums of nothing, even where d or u is NaN */
    if (STATES && !ZOH) dd += u * s;
    if (SOFTPLUS) dd *= -m_expm1(-d); /* sigmoid(x) = 1 - e^-softplus(x) */
    set(du_at, first + t, du);
    set(ddelta_at, first + t, dd);
    set(dz_at, first + t, tile[IN_TILE(TILE_P, t)] * tile[IN_TILE(TILE_SLOPE, t)]);
    dskip += dp * u;
    dbias += dd;
  }
  if (HAS(DD)) add_to(a, MINE(SUM_D), 0, dskip);
  if (HAS(DDELTA_BIAS)) add_to(a, MINE(SUM_BIAS), 0, dbias);
}

inline void backward_chunk(const args &a, place p, real *tile, real *dh) {
  const i64 first = p.chunk * STEPS, count = min((i64)STEPS, LENGTH - first);
  p.state = 0;
  load_tile(a, p, first, count, tile);
  load_dp(a, p, first, count, tile);
  for (; p.state < STATES && (NEEDS_H || NEEDS_DH); p.state++) {
    real h = 0;
    if (NEEDS_H)
      h = HAS(CHUNK_STATE) ? value(a, CHUNK_STATE, p) : MINE(KEPT)[(p.chunk * STATES + p.state) * ALL_THREADS];
    group_sum_of dc = start_sum(a, HAS(DC), CONSTANT_C, PART_C, p.state);
    run_state(a, p, first, count, tile, h, &dc);
    if (dc.wanted && dc.constant) add_to(a, MINE(SUM_C), p.state, dc.sum);
    if (NEEDS_DH) dh[p.state * ALL_THREADS] = run_back(a, p, first, count, tile, dh[p.state * ALL_THREADS]);
  }
  p.state = 0;
  finish_chunk(a, p, first, count, tile);
}

/* The state before each chunk */
inline void keep_states(const args &a, place p, real *tile) {
  real *kept = MINE(KEPT); /* (chunks, N, ALL_THREADS) */
  for (p.state = 0; p.state < STATES && LENGTH > 0; p.state++) kept[p.state * ALL_THREADS] = value(a, H0, p);
  for (p.chunk = 0; (p.chunk + 1) * STEPS < LENGTH; p.chunk++) {
    p.state = 0;
    load_tile(a, p, p.chunk * STEPS, STEPS, tile);
    for (; p.state < STATES; p.state++) {
      const i64 at = p.chunk * STATES + p.state;
      kept[(at + STATES) * ALL_THREADS] = run_state(a, p, p.chunk * STEPS, STEPS, tile, kept[at * ALL_THREADS], 0);
    }
  }
}

inline void clear(const args &a, real *sums, i64 rows) {
  for (i64 i = 0; i < 2 * rows; i++) sums[i * ALL_THREADS] = 0;
}

KERNEL(scan_backward, 32) {
  place p = place_of(a);
  real *dh = MINE(STATE), *tile = MINE(TILES);
  if (HAS(DA)) clear(a, MINE(SUM_A), STATES);
  if (HAS(DB) && CONSTANT_B) clear(a, MINE(SUM_B), STATES);
  if (HAS(DC) && CONSTANT_C) clear(a, MINE(SUM_C), STATES);
  if (HAS(DD)) clear(a, MINE(SUM_D), 1);
  if (HAS(DDELTA_BIAS)) clear(a, MINE(SUM_BIAS), 1);
  if (NEEDS_H && !HAS(CHUNK_STATE)) keep_states(a, p, tile);
  for (p.state = 0; p.state < STATES; p.state++) dh[p.state * ALL_THREADS] = value(a, DH_LAST, p);
  for (p.chunk = (LENGTH + STEPS - 1) / STEPS - 1; p.chunk >= 0; p.chunk--) backward_chunk(a, p, tile, dh);
  p.chunk = 0;
  for (p.state = 0; p.state < STATES; p.state++) set_value(a, DH0, p, dh[p.state * ALL_THREADS]);
}

/* ---- sums over the warps of a group, and over the batches ---- */
/* dB (or dC) of one group, step and state: over `warps` parts from the group's first on */
inline void sum_group(const args &a, int s, i64 groups, char *parts) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, n = i % STATES, t = i / STATES % LENGTH;
  const i64 group = i / STATES / LENGTH, warps = PER_BATCH / groups;
  if (group >= groups * BATCHES) return;
  long_sum sum;
  sum.clear();
  for (i64 w = group * warps; w < (group + 1) * warps; w++)
    sum.add(((const real *)parts)[(w * LENGTH + t) * STATES + n]);
  const i64 offset = group / groups * BATCH_STRIDE(s) + group % groups * GROUP_STRIDE(s) + n * STATE_STRIDE(s);
  PUT(s, offset + t * STEP_STRIDE(s), sum.total);
}
KERNEL(scan_groups_b, 256) { sum_group(a, DB, GROUPS_B, PART_B); }
KERNEL(scan_groups_c, 256) { sum_group(a, DC, GROUPS_C, PART_C); }

/* Row n of the sums of one channel, over the batches */
inline real sum_batches(const args &a, char *sums, const place &p) {
  const i64 set = p.channel / TOGETHER, in_set = p.channel % TOGETHER;
  const i64 thread = (set * PER_SET + in_set / 32) * 32 + in_set % 32;
  long_sum sum;
  sum.clear();
  for (i64 b = 0; b < BATCHES; b++) sum.add(((real *)sums)[2 * p.state * ALL_THREADS + b * PER_BATCH * 32 + thread]);
  return sum.total;
}

KERNEL(scan_channels, 256) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, rows = max(STATES, 1ll);
  place p = {0, 0, i / rows, i % rows, i / rows < CHANNELS};
  if (!p.there) return;
  if (p.state == 0 && HAS(DD)) set_value(a, DD, p, sum_batches(a, SUM_D, p));
  if (p.state == 0 && HAS(DDELTA_BIAS)) set_value(a, DDELTA_BIAS, p, sum_batches(a, SUM_BIAS, p));
  if (p.state >= STATES) return;
  if (HAS(DA)) set_value(a, DA, p, sum_batches(a, SUM_A, p) * (A_LOG ? decay(a, value(a, A, p)) : K(1.0)));
  if (HAS(DB) && CONSTANT_B) set_value(a, DB, p, sum_batches(a, SUM_B, p));
  if (HAS(DC) && CONSTANT_C) set_value(a, DC, p, sum_batches(a, SUM_C, p));
}
#endif
#endif
