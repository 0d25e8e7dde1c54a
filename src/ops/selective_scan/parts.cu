/* parts.cu -- backward, before and after backward.cu: where parts of time begin, and the sums of what blocks left. */

/* ---- before ------------------------------------------------------------------------------------------------------ */
/* The state before each part of ENDS_TILES tiles but the first; and no part of a chain is done */
KERNEL(scan_fold, THREADS_EACH) {
  const block_at b = find_block(a, blockIdx.x);
  if (CHAINED && threadIdx.x == 0) {
    ((int *)DONE)[b.number] = 0;
    if (b.number == 0) ((int *)DONE)[gridDim.x] = 0; /* tickets taken */
  }
  if (!NEEDS_H || HAS(CHUNK_STATE)) return;
  const constants v = get_constants(a, b);
  float h[OWN][4];
  kept_states(STARTS, b, 0, h);
  for (i64 tile = ENDS_TILES; tile * TILE < LENGTH; tile += ENDS_TILES) {
    join(h, b, v, ENDS, SPANS, tile - 1);
    keep_states(STARTS, b, tile / ENDS_TILES, h);
  }
}

struct ends_back_pieces {
  slot_pieces<DELTA> delta;
  slot_pieces<Z> z;
  slot_pieces<DY> dy;
  coefficient_words c;
};
inline void load(const args &a, const block_at &b, i64 t, bool whole, ends_back_pieces &to) {
  load_pieces(a, b, t, whole, to.delta), load_pieces(a, b, t, whole, to.z), load_pieces(a, b, t, whole, to.dy);
  load_coefficients(a, b, t, whole, to.c);
}

/* dh before each part but the first, when it is 0 after the part; dh_last is copied, as dh0 may overwrite it */
KERNEL(scan_ends_back, THREADS_EACH) {
  DYNAMIC_SHARED(memory);
  steps &m = ((ends_tile *)memory)->in; /* (d, dp) */
  coefficients &c_tile = ((ends_tile *)memory)->k;
  const block_at b = find_block(a, blockIdx.x);
  const constants v = get_constants(a, b);
  const i64 first = ((i64)blockIdx.y + 1) * PART_TILES * TILE, end = min(LENGTH, first + PART_TILES * TILE);
  float dh[OWN][4] = {}, span[OWN] = {};
  if (end == LENGTH) {
    float dh_last[OWN][4];
    get_states(a, DH_LAST, b, 0, dh_last);
    keep_states(STARTS_BACK, b, 0, dh_last);
  }
  load_rows(a, b, m);
  ends_back_pieces in = {};
  load_tile(a, b, (end - 1) / TILE * TILE, in);
  for (i64 t = (end - 1) / TILE * TILE; t >= first; t -= TILE) {
    float sum[OWN] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const piece p = piece_of(i);
      const int left = (int)min(piece_left(a, b, p, t), 8ll);
      float d[8], z[8], dy[8];
      get_piece(a, in.delta, i, d), get_piece(a, in.z, i, z), get_piece(a, in.dy, i, dy);
      for (int e = 0; e < 8; e++) d[e] += m.bias[PIECE_ROW(p, e)];
      for (int e = 0; e < 8; e++) d[e] = step_size(a, d[e], e < left), dy[e] = step_of(a, d[e], 0.0f, dy[e], z[e]).z;
      for (int e = 0; e < 8; e++) m.at[PIECE_ROW(p, e)][PIECE_STEP(p, e)] = make_float2(d[e], dy[e]);
    }
    stage_coefficients(a, b, t, in.c, 0, &c_tile);
    stage_resets(a, b, t, m.reset);
    __syncthreads();
    if (t > first) load_tile(a, b, t - TILE, in);
#pragma unroll 8
    for (int i = TILE - 1; i >= 0; i--) {
      if (t + i >= LENGTH) continue;
      const bool reset = HAS(SEQ_IDX) && m.reset[i];
      float ct[4];
      take_coefficients(ct, c_tile, b, BEFORE + i);
      for (int q = 0; q < OWN; q++) {
        const float2 x = m.at[ROW_OF(b, q)][i];
        for (int j = 0; j < 4; j++) dh[q][j] = reset ? 0.0f : (dh[q][j] + ct[j] * x.y) * fast_pow2(x.x * v.a2[q][j]);
        sum[q] = reset ? INFINITY : sum[q] + x.x;
      }
    }
    for (int q = 0; q < OWN; q++) span[q] += sum[q];
    __syncthreads();
  }
  keep_states(ENDS_BACK, b, blockIdx.y, dh);
  for (int q = 0; q < OWN; q++) ((float *)SPANS_BACK)[IN_PART(b, blockIdx.y, q)] = span[q];
}

/* ---- after ------------------------------------------------------------------------------------------------------- */
/* dB or dC of one group, step and state, over the blocks of the group */
inline void sum_group(const args &a, int s, i64 groups, const char *parts) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, n = i % STATES, t = i / STATES % LENGTH;
  const i64 group = i / STATES / LENGTH, blocks = PER_BATCH / groups;
  if (group >= groups * BATCHES) return;
  long_sum sum;
  sum.clear();
#pragma unroll 4
  for (i64 w = group * blocks; w < (group + 1) * blocks; w++)
    sum.add(((const float *)parts)[(w * LENGTH + t) * STATES + n]);
  const i64 offset = group / groups * BATCH_STRIDE(s) + group % groups * GROUP_STRIDE(s) + n * STATE_STRIDE(s);
  PUT(s, offset + t * STEP_STRIDE(s), sum.total);
}
KERNEL(scan_groups_b, 256) {
  if (HAS(DB)) sum_group(a, DB, GROUPS_B, PART_B);
}
KERNEL(scan_groups_c, 256) {
  if (HAS(DC)) sum_group(a, DC, GROUPS_C, PART_C);
}

/* Element i of the sums, over parts and batches */
inline float sum_parts_of(const args &a, const char *sums, i64 i, i64 rows) {
  long_sum sum;
  sum.clear();
  for (i64 p = 0; p < PARTS * BATCHES; p++) sum.add(((const float *)sums)[p * rows + i]);
  return sum.total;
}

KERNEL(scan_channels, 256) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, rows = CHANNELS * STATES;
  const place p = {0, 0, i / STATES, i % STATES, true};
  if (i >= rows) return;
  if (p.state == 0 && HAS(DD)) set_value(a, DD, p, sum_parts_of(a, SUM_D, p.channel, CHANNELS));
  if (p.state == 0 && HAS(DDELTA_BIAS)) set_value(a, DDELTA_BIAS, p, sum_parts_of(a, SUM_BIAS, p.channel, CHANNELS));
  if (HAS(DA)) set_value(a, DA, p, sum_parts_of(a, SUM_A, i, rows) * (A_LOG ? decay(a, value(a, A, p)) : K(1.0)));
}
