/* tile_back.cu -- backward's tile in shared memory: what it holds, how it is loaded and stored, and where in it the
 * thread's share is. */
enum { CHUNK = (int)CHUNK_EACH, CHUNKS = TILE / CHUNK, WARPS = THREADS_EACH / 32 };
enum { TOGETHER_STEPS = LANES > OWN ? LANES / OWN : 1, SUMS = OWN * TOGETHER_STEPS, LEFT = SUMS / LANES };
/* How many of B and C vary; dB and dC: sums over channels of one that does, over time of one that is constant */
enum { VARYING = !CONSTANT_B + !CONSTANT_C, C_AT = VARYING > 1 }; /* C_AT: in tile.k */
enum { GROUP_DB = HAS(DB) && !CONSTANT_B, GROUP_DC = HAS(DC) && !CONSTANT_C };
enum { TIME_DB = HAS(DB) && CONSTANT_B, TIME_DC = HAS(DC) && CONSTANT_C };
enum { STATE_SUMS = 1 + TIME_DB + TIME_DC, TIME_SUMS = STATE_SUMS * OWN * 4 + 2 * LEFT };

/* Step t of a row of `at` is at PLACE(t). Rows are so long that 8 of them are in different banks; a GAP of 4 after each
 * chunk has the steps that two neighbouring threads stage in different banks too. */
enum { APART = CHUNK + (int)GAP, ROW = CHUNKS * APART + 1 };
#define PLACE(t) ((t) / CHUNK * APART + (t) % CHUNK)

struct tile {
  float4 at[ROWS][ROW];                           /* d, u, dp, dy silu'(z); then du, ddelta, -, dz */
  coefficients k[VARYING > 1 ? 2 : 1];            /* B and C, if they vary */
  float4 kept[CHUNKS][OWN][THREADS_EACH];         /* the state before each chunk */
  float over_time[2][TIME_SUMS][THREADS_EACH];    /* time_sums, and what rounding took from them */
  float sums[VARYING ? WARPS : 1][TILE][2 * PAD]; /* dB and dC of each warp */
  float bias[ROWS], skip[ROWS];                   /* delta_bias, D */
  block_at block;                                 /* here, with the part of time, as registers are few: block_of */
  i64 part;
  u32 ticket;
  u8 reset[TILE];
};
static_assert(sizeof(tile) <= SHARED_BYTES, "as cuda.c counts");

inline block_at block_of(const tile &m) {
  block_at b = m.block;
  find_lane(b);
  return b;
}

/* ---- loading ---- */
inline void touch(const void *p) { /* on its way to the cache */
#ifndef AMBI_EMULATED
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

/* A slot's part of a tile: sectors of 32 bytes */
inline void touch_slot(const args &a, int s, const block_at &b, i64 t) {
  if (!HAS(s)) return;
  const int per = 32 / bytes_of(DTYPE(s)), across = (CHANNEL_DENSE ? ROWS : TILE) / per;
#pragma unroll
  for (int k = 0; k < ROWS * TILE / per; k += THREADS_EACH) {
    const int p = k + threadIdx.x, along = p % across * per, line = p / across;
    const int row = CHANNEL_DENSE ? along : line, step = CHANNEL_DENSE ? line : along;
    const piece at = {min(row, b.count - 1), min(step, (int)min(LENGTH - t, (i64)TILE) - 1)};
    touch(AT(s) + piece_offset(a, s, b, at, t) * (32 / per));
  }
}

inline void touch_tile(const args &a, const block_at &b, i64 t) {
  touch_slot(a, DELTA, b, t), touch_slot(a, U, b, t), touch_slot(a, Z, b, t), touch_slot(a, DY, b, t);
}

/* .. and the states of the tile of step t, where scan_ends has left them */
inline void touch_state(const args &a, const block_at &b, i64 t) {
  if (!NEEDS_H || HAS(CHUNK_STATE)) return;
  if (!ENDS_WHOLE) touch((const float4 *)STARTS + ALL_IN_PART(b, t / SEGMENT) + OWN * threadIdx.x);
#pragma unroll
  for (int i = 0; i < TILE / ENDS_STEPS; i++) {
    touch((const float4 *)ENDS + ALL_IN_PART(b, t / ENDS_STEPS + i) + OWN * threadIdx.x);
    if (!ENDS_WHOLE) touch(&SPAN_AT(SPANS, b, t / ENDS_STEPS + i, 0));
  }
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
inline void load(const args &a, const block_at &b, i64 t, bool whole, int first, int count, pieces &x) {
  load_pieces(a, b, t, whole, first, count, x.delta), load_pieces(a, b, t, whole, first, count, x.u);
  load_pieces(a, b, t, whole, first, count, x.z), load_pieces(a, b, t, whole, first, count, x.dy);
}

enum { PIECES_AT_ONCE = EACH > 2 ? EACH : 1 }; /* two take turns */

/* The tile at step t, or only what states need of it */
inline void stage_tile(const args &a, const block_at &b, i64 t, pieces &x, bool states_only, tile &m) {
#pragma unroll(PIECES_AT_ONCE)
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float d[8], u[8], z[8], dy[8];
    float4 to[8];
    get_piece(a, x.delta, 0, d), get_piece(a, x.u, 0, u), get_piece(a, x.z, 0, z), get_piece(a, x.dy, 0, dy);
    take_turns(x.delta), take_turns(x.u), take_turns(x.z), take_turns(x.dy);
    find_steps(a, p, m.bias, d);
    for (int e = 0; e < 8; e++) to[e] = step_of(a, d[e], u[e], dy[e], z[e]);
    for (int e = 0; e < 8; e++) {
      float4 &at = m.at[PIECE_ROW(p, e)][PLACE(PIECE_STEP(p, e))];
      if (states_only)
        *(float2 *)&at = make_float2(to[e].x, to[e].y);
      else
        at = to[e];
    }
  }
  stage_coefficients(a, b, t, x.coefficients, &m.k[0], states_only ? 0 : &m.k[C_AT]);
  stage_resets(a, b, t, m.reset);
}

/* ---- storing ---- */
/* dB and dC of the block's channels: a thread has one state of either, and every fourth step */
inline void store_groups(const args &a, const block_at &b, i64 t, const tile &m) {
  enum { STEPS = THREADS_EACH / (2 * PAD) };
  const int column = threadIdx.x % (2 * PAD), n = column % PAD, first = threadIdx.x / (2 * PAD);
  const bool is_c = column >= PAD, wanted = n < STATES && (is_c ? GROUP_DC : GROUP_DB);
  const int count = (int)min((i64)TILE, LENGTH - t);
  float *to = (float *)(is_c ? PART_C : PART_B) + (b.number * LENGTH + t + first) * STATES + n;
#pragma unroll
  for (int i = 0; i < TILE / STEPS; i++) {
    const int step = first + i * STEPS;
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += m.sums[w][step][column];
    if (wanted && step < count) to[i * STEPS * STATES] = sum;
  }
}

/* Rare pieces, of which a part is there, by a loop over a copy in memory: that compiles sooner */
inline void store_part(int dtype, char *to, i64 at, const float (&r)[8], i64 left) {
  float copy[8];
  for (int e = 0; e < 8; e++) copy[e] = r[e];
#pragma unroll 1
  for (int e = 0; e < 8 && e < left; e++) store(dtype, to, at + e, copy[e]);
}

inline void store_piece(const args &a, int s, const block_at &b, const piece &p, i64 t, bool whole, float (&r)[8]) {
  if (!HAS(s)) return;
  const i64 at = piece_offset(a, s, b, p, t), left = piece_left(a, b, p, t);
  if (ADDS(s)) return put_some<8>(DTYPE(s), true, AT(s), at, r, left);
  if (whole || (left >= 8 && (!EVEN || ON_WORDS(s))))
    store_all<8, EVEN != 0>(DTYPE(s), AT(s), at, r);
  else
    store_part(DTYPE(s), AT(s), at, r, left);
}

inline void store_tile(const args &a, const block_at &b, i64 t, const tile &m) {
  const bool whole = whole_tile(a, b, t);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    float du[8], ddelta[8], dz[8];
    for (int e = 0; e < 8; e++) {
      const float4 x = m.at[PIECE_ROW(p, e)][PLACE(PIECE_STEP(p, e))];
      du[e] = x.x, ddelta[e] = x.y, dz[e] = x.w;
    }
    store_piece(a, DU, b, p, t, whole, du), store_piece(a, DDELTA, b, p, t, whole, ddelta);
    store_piece(a, DZ, b, p, t, whole, dz);
  }
  if (GROUP_DB || GROUP_DC) store_groups(a, b, t, m);
}

/* ---- the thread's places in a tile ---- */
/* Lane k ends with the sums LEFT k .. of the (channel q, step i) = q TOGETHER_STEPS + i: its channel and its step */
#define MY_ROW(b, l)  ((b).row + ((b).k * LEFT + (l)) / TOGETHER_STEPS * WIDE)
#define MY_STEP(b, l) (((b).k * LEFT + (l)) % TOGETHER_STEPS)

/* Where its channels and the steps it finishes are in `at`, its states in b and c, and its dB or dC in sums: in bytes,
 * pinned in registers, as they would be computed anew for each chunk */
struct places {
  int row[OWN], mine[LEFT], coefficients, sums;
};
inline places find_places(const block_at &b) {
  places to;
  for (int q = 0; q < OWN; q++) to.row[q] = pinned(ROW_OF(b, q) * ROW * 16);
  for (int l = 0; l < LEFT; l++) to.mine[l] = pinned((MY_ROW(b, l) * ROW + MY_STEP(b, l)) * 16);
  to.coefficients = pinned(FIRST_COEFFICIENT(b) * 4);
  to.sums = pinned((threadIdx.x / 32 * TILE * 2 * PAD + (WIDE > 4 && LANE_HAS(4) ? PAD : 0) + 4 * b.k + b.twist) * 4);
  return to;
}
/* .. from where a chunk begins; and at step i of that */
static_assert(sizeof(kept_coefficient) == 4, "as is counted here");
inline places in_chunk(places p, int chunk) {
  for (int q = 0; q < OWN; q++) p.row[q] += chunk * APART * 16;
  for (int l = 0; l < LEFT; l++) p.mine[l] += chunk * APART * 16;
  p.coefficients += chunk * CHUNK * PAD * 4, p.sums += chunk * CHUNK * 2 * PAD * 4;
  return p;
}
#define IN_ROW(m, p, q, i)      (*(const float4 *)((const char *)(m).at + (p).row[q] + (i)*16))
#define IN_MINE(m, p, l, i)     (*(float4 *)((char *)(m).at + (p).mine[l] + (i)*16))
#define COEFFICIENT_AT(x, p, i) ((const float *)((const char *)(x).at + (p).coefficients + (i)*PAD * 4))
#define SUM_AT(m, p, i)         ((float *)((char *)(m).sums + (p).sums + (i)*2 * PAD * 4))
#define RESET(m, chunk, i)      (HAS(SEQ_IDX) && (m).reset[(chunk)*CHUNK + (i)])
