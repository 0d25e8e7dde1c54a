/* before.cu -- backward: the state before each chunk of a tile, in tile.kept.
 *
 * Each, or only that before the first chunk, was found by scan_ends: from h0 on (ENDS_WHOLE), or from where its segment
 * begins, and is joined with the state there. Or forward left chunk_state. The others are found by running ahead.  */

/* h through a chunk; `at` is in that chunk, here and below */
inline void run_ahead(const args &a, const places &at, const constants &v, const tile &m, int chunk,
                      float (&h)[OWN][4]) {
#pragma unroll
  for (int i = 0; i < CHUNK; i++) {
    float bt[4];
    take(bt, COEFFICIENT_AT(m.k[0], at, i));
    for (int q = 0; q < OWN; q++) {
      const float2 x = *(const float2 *)&IN_ROW(m, at, q, i);
      step_ahead(h[q], v, q, x.x, x.x * x.y, bt, RESET(m, chunk, i));
    }
  }
}

inline void keep_chunk(tile &m, int chunk, const float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) m.kept[chunk][q][threadIdx.x] = make_float4(h[q][0], h[q][1], h[q][2], h[q][3]);
}
inline void take_kept(const tile &m, int chunk, float (&h)[OWN][4]) {
  for (int q = 0; q < OWN; q++) take(h[q], (const float *)&m.kept[chunk][q][threadIdx.x]);
}

/* ---- found by scan_ends, one for ENDS_STEPS steps ---- */
#define WAS_FOUND(chunk) ((chunk)*CHUNK % ENDS_STEPS == 0)
inline void take_found(const args &a, const block_at &b, const constants &v, i64 t, tile &m) {
  float start[OWN][4];
  if (!ENDS_WHOLE) kept_states(STARTS, b, t / SEGMENT, start);
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const i64 step = t + i * CHUNK, found = step / ENDS_STEPS;
    float h[OWN][4];
    ended x;
    if (!WAS_FOUND(i)) continue;
    if (ENDS_WHOLE) {
      kept_states(ENDS, b, found, h);
    } else {
      for (int e = 0; e < OWN * 4; e++) h[e / 4][e % 4] = start[e / 4][e % 4];
      if (step % SEGMENT) get_end(ENDS, found, SPANS, found, b, x), join(a, h, v, x);
    }
    keep_chunk(m, i, h);
  }
}

/* ---- chunk_state: that before every other tile ---- */
/* The tile after it is run ahead for the next one; the states before its chunks are left in AHEAD until its turn. */
#define CHUNK_AHEAD(part, i) ((part)*CHUNKS + (i))
inline bool was_run(const args &a, i64 t) { return t % (2 * TILE) == 0 && t + TILE < LENGTH; }

inline void take_ahead(const args &a, const block_at &b, i64 part, tile &m) {
  float4 h[CHUNKS * OWN];
  for (int i = 0; i < CHUNKS * OWN; i++)
    h[i] = ((const float4 *)AHEAD)[IN_PART(b, CHUNK_AHEAD(part, i / OWN), i % OWN)];
  for (int i = 0; i < CHUNKS * OWN; i++) m.kept[i / OWN][i % OWN][threadIdx.x] = h[i];
}

inline void take_chunk_state(const args &a, const block_at &b, const places &at, const constants &v, i64 part, i64 t,
                             tile &m) {
  float h[OWN][4];
  get_states(a, CHUNK_STATE, b, t / (2 * TILE), h);
  if (t % (2 * TILE)) {
    pieces x = {};
    load_tile(a, b, t - TILE, x);
    stage_tile(a, b, t - TILE, x, true, m);
    __syncthreads();
    for (int i = 0; i < CHUNKS; i++) {
      keep_states(AHEAD, b, CHUNK_AHEAD(part, i), h);
      run_ahead(a, in_chunk(at, i), v, m, i, h);
    }
    __syncthreads();
  }
  keep_chunk(m, 0, h);
}

/* ---- any ---- */
/* The states that are there before the tile is: whether that is all of them */
inline bool take_states(const args &a, const block_at &b, const places &at, const constants &v, i64 part, i64 t,
                        tile &m) {
  const float none[OWN][4] = {};
  if (!NEEDS_H) {
    for (int i = 0; i < CHUNKS; i++) keep_chunk(m, i, none);
    return true;
  }
  if (!HAS(CHUNK_STATE)) {
    take_found(a, b, v, t, m);
    return ENDS_STEPS == CHUNK;
  }
  if (was_run(a, t)) {
    take_ahead(a, b, part, m);
    return true;
  }
  take_chunk_state(a, b, at, v, part, t, m);
  return false;
}

/* The others of the first `starts`, each from that before it */
inline void find_others(const args &a, const places &at, const constants &v, int starts, tile &m) {
  float h[OWN][4];
  for (int i = 1; i < starts; i++) {
    if (WAS_FOUND(i)) continue;
    take_kept(m, i - 1, h);
    run_ahead(a, in_chunk(at, i - 1), v, m, i - 1, h);
    keep_chunk(m, i, h);
  }
}
