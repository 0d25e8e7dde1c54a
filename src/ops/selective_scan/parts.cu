/* parts.cu -- backward, before and after backward.cu: where parts of time begin, and the sums of what blocks left. */

/* ---- before ---- */
#define SEGMENTS_OF(tiles)  (((tiles) + ENDS_TILES - 1) / ENDS_TILES)
#define LAST_END(s, tiles)  (min(((s) + 1) * ENDS_TILES, (tiles)) * (TILE / ENDS_STEPS))

/* The state before each segment but the first */
inline void fold_ahead(const args &a, const block_at &b, const constants &v) {
  const i64 tiles = (LENGTH + TILE - 1) / TILE, last = SEGMENTS_OF(tiles) - 1;
  float h[OWN][4];
  kept_states(STARTS, b, 0, h);
  for (i64 s = 0; s < last; s += AT_ONCE) {
    ended x[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const i64 at = LAST_END(min(s + k, last), tiles);
      get_end(ENDS, at, SPANS, at, b, x[k]);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      if (s + k >= last) continue;
      join(a, h, v, x[k]);
      keep_states(STARTS, b, s + k + 1, h);
    }
  }
}

/* dh after each part: those have whole segments. dh_last is copied, as dh0 may overwrite it */
inline void fold_back(const args &a, const block_at &b, const constants &v) {
  const i64 tiles = (LENGTH + TILE - 1) / TILE, in_part = PART_TILES / ENDS_TILES;
  float dh[OWN][4];
  get_states(a, DH_LAST, b, 0, dh);
  keep_states(STARTS_BACK, b, PARTS - 1, dh);
  for (i64 s = SEGMENTS_OF(tiles) - 1; s > 0; s -= AT_ONCE) {
    ended x[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const i64 at = max(s - k, 0ll);
      get_end(ENDS_BACK, at, SPANS, LAST_END(at, tiles), b, x[k]);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      if (s - k <= 0) continue;
      join(a, dh, v, x[k]);
      if ((s - k) % in_part == 0) keep_states(STARTS_BACK, b, (s - k) / in_part - 1, dh);
    }
  }
}

/* What scan_ends found, joined: h in blocks (.., 0), dh in (.., 1); and no part of a chain is done */
KERNEL(scan_fold, THREADS_EACH) {
  const block_at b = find_block(a, blockIdx.x);
  if (CHAINED && threadIdx.x == 0 && blockIdx.y == 0) {
    ((int *)DONE)[b.number] = 0;
    if (b.number == 0) ((int *)DONE)[gridDim.x] = 0; /* tickets taken */
  }
  if ((!OF_H || ENDS_WHOLE) && !OF_DH) return;
  const constants v = get_constants(a, b);
  if (OF_H && !ENDS_WHOLE && blockIdx.y == 0) fold_ahead(a, b, v);
  if (OF_DH && blockIdx.y == gridDim.y - 1) fold_back(a, b, v);
}

/* ---- after ---- */
/* dB or dC of one group and step, of neighbouring states, over the blocks of the group */
enum { NEIGHBOURS = STATES % 4 == 0 ? 4 : 1 };
inline void sum_group(const args &a, int s, i64 groups, const char *parts) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, across = STATES / NEIGHBOURS;
  const i64 group = quotient(i, LENGTH * across), in_group = i - group * LENGTH * across;
  const i64 batch = quotient(group, groups), blocks = quotient(PER_BATCH, groups);
  if (batch >= BATCHES) return;
  const float *from = (const float *)parts + group * blocks * LENGTH * STATES + in_group * NEIGHBOURS;
  long_sum sum[NEIGHBOURS];
  for (int j = 0; j < NEIGHBOURS; j++) sum[j].clear();
#pragma unroll 8
  for (i64 w = 0; w < blocks; w++, from += LENGTH * STATES) {
    float v[4] = {from[0], 0.0f, 0.0f, 0.0f};
    if (NEIGHBOURS == 4) take(v, from);
    for (int j = 0; j < NEIGHBOURS; j++) sum[j].add(v[j]);
  }
  const i64 t = in_group / across, n = in_group % across * NEIGHBOURS;
  const i64 offset = batch * BATCH_STRIDE(s) + (group - batch * groups) * GROUP_STRIDE(s) + t * STEP_STRIDE(s);
  for (int j = 0; j < NEIGHBOURS; j++) PUT(s, offset + (n + j) * STATE_STRIDE(s), sum[j].total);
}

/* Element i of the sums, over parts and batches */
inline float sum_parts_of(const args &a, const char *sums, i64 i, i64 rows) {
  long_sum sum;
  sum.clear();
#pragma unroll 8
  for (i64 p = 0; p < PARTS * BATCHES; p++) sum.add(((const float *)sums)[p * rows + i]);
  return sum.total;
}

inline void sum_channel(const args &a) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, rows = CHANNELS * STATES;
  const place p = {0, 0, i / STATES, i % STATES, true};
  if (i >= rows) return;
  if (p.state == 0 && HAS(DD)) set_value(a, DD, p, sum_parts_of(a, SUM_D, p.channel, CHANNELS));
  if (p.state == 0 && HAS(DDELTA_BIAS)) set_value(a, DDELTA_BIAS, p, sum_parts_of(a, SUM_BIAS, p.channel, CHANNELS));
  if (HAS(DB) && CONSTANT_B) set_value(a, DB, p, sum_parts_of(a, PART_B, i, rows));
  if (HAS(DC) && CONSTANT_C) set_value(a, DC, p, sum_parts_of(a, PART_C, i, rows));
  if (HAS(DA)) set_value(a, DA, p, sum_parts_of(a, SUM_A, i, rows) * (A_LOG ? decay(a, value(a, A, p)) : K(1.0)));
}

/* Blocks (.., 0): dB;  (.., 1): dC;  (.., 2): dA, dD, ddelta_bias, constant dB and dC */
KERNEL(scan_sums, 256) {
  if (blockIdx.y == 2) sum_channel(a);
  if (blockIdx.y == 1 && HAS(DC) && !CONSTANT_C) sum_group(a, DC, GROUPS_C, PART_C);
  if (blockIdx.y == 0 && HAS(DB) && !CONSTANT_B) sum_group(a, DB, GROUPS_B, PART_B);
}
