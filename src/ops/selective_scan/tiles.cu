/* tiles.cu -- tiles of ROWS channels and TILE steps in shared memory, and the recurrence on them.
 *
 * LANES threads share a channel, 4 states each in registers: lane = k WIDE + c holds states 4k .. 4k + 3 of OWN
 * channels of its warp, c and c + WIDE. With OWN = 2, lanes 16 .. 31 have their channels in the other order, and
 * backward lane c its states in the order j ^ (c % 4): so that in sums over lanes each gives the same place away.
 *
 * What all states of a channel share (d, d u, ..) is computed once, by the thread that loads it, and read from the tile
 * by the channel's lanes. B and C are f32 there, (TILE, PAD), 0 for the states that pad N. Steps beyond the last are
 * d = 0, so that they change nothing.                                                                             */
enum { LANES = (int)LANES_EACH, WIDE = 32 / LANES, PAD = 4 * LANES, THREADS_EACH = 32 * LANES };
enum { OWN = (int)CHANNELS_EACH, TWISTS = BACKWARD && OWN > 1 ? 4 : 1 };
enum { ROWS = 32 * OWN, TILE = 32, PIECES = ROWS * TILE / 8, EACH = PIECES > THREADS_EACH ? PIECES / THREADS_EACH : 1 };

/* ---- functions by the GPU's own 2^x and 1/x, right to 2^-22 ------------------------------------------------------ */
#ifdef AMBI_EMULATED
inline float fast_pow2(float x) { return exp2f(x); }
inline float fast_rcp(float x) { return 1.0f / x; }
#else
inline float fast_pow2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
inline float fast_rcp(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif

/* max(x, 0) + log(1 + e), e = e^-|x|: as log1p_unit of math.h */
inline float fast_softplus(float x) {
  const float e = fast_pow2(-fabsf(x) * LOG2_E), s = e * fast_rcp(1.0f + 0.5f * e), z = s * s;
  const float q = K(0.083333020356693089) +
                  z * (K(0.012506727263866939) + z * (K(0.0021876410389265104) + z * K(0.00054710910979057649)));
  return v_max(x, 0.0f) + (s + s * z * q);
}
inline float fast_sigmoid(float z) { return fast_rcp(1.0f + fast_pow2(-z * LOG2_E)); }
inline float fast_silu(float z) { return v_max(z, -1e30f) * fast_sigmoid(z); }

/* ---- the channels of a block, and the thread's own --------------------------------------------------------------- */
struct block_at {
  i64 number;
  i64 batch, first;
  int count;       /* of ROWS channels, so many are there */
  int row, k;      /* the thread's first channel; its states are from 4k on */
  int twist, swap; /* the order of its states, and of its channels        */
  i64 group_b, group_c;
};

#define ROW_OF(b, q) ((b).row + ((q) ^ (b).swap) * WIDE) /* its channel q */

inline block_at find_block(const args &a, i64 number) {
  const i64 in_batch = number % PER_BATCH, in_set = in_batch % PER_SET * ROWS;
  block_at b;
  b.number = number;
  b.batch = number / PER_BATCH;
  b.first = in_batch / PER_SET * TOGETHER + in_set;
  b.count = (int)min((i64)ROWS, TOGETHER - in_set);
  b.row = threadIdx.x / 32 * WIDE * OWN + threadIdx.x % WIDE;
  b.k = threadIdx.x % 32 / WIDE;
  b.twist = threadIdx.x % TWISTS;
  b.swap = OWN > 1 && LANES > 1 ? threadIdx.x / 16 % 2 : 0;
  b.group_b = b.first / (CHANNELS / GROUPS_B);
  b.group_c = b.first / (CHANNELS / GROUPS_C);
  return b;
}

/* Where state j of the thread's channel q is in a slot; false where there is none */
inline bool state_at(const args &a, int s, const block_at &b, i64 chunk, int q, int j, i64 *offset) {
  const i64 n = 4 * b.k + (j ^ b.twist), row = ROW_OF(b, q);
  if (!HAS(s) || n >= STATES || row >= b.count) return false;
  *offset =
      b.batch * BATCH_STRIDE(s) + chunk * CHUNK_STRIDE(s) + (b.first + row) * CHANNEL_STRIDE(s) + n * STATE_STRIDE(s);
  return true;
}
inline void get_states(const args &a, int s, const block_at &b, i64 chunk, float (&v)[OWN][4]) {
  i64 at;
  for (int q = 0; q < OWN; q++)
    for (int j = 0; j < 4; j++) v[q][j] = state_at(a, s, b, chunk, q, j, &at) ? GET(s, at) : 0.0f;
}
inline void put_states(const args &a, int s, const block_at &b, i64 chunk, const float (&v)[OWN][4]) {
  i64 at;
  for (int q = 0; q < OWN; q++)
    for (int j = 0; j < 4; j++)
      if (state_at(a, s, b, chunk, q, j, &at)) PUT(s, at, v[q][j]);
}
inline float per_channel(const args &a, int s, const block_at &b, int row) {
  return HAS(s) && row < b.count ? GET(s, (b.first + row) * CHANNEL_STRIDE(s)) : 0.0f;
}

/* What a thread keeps of its channels: A (for the zero-order hold), A log2(e), and constant B and C */
struct constants {
  float a[OWN][4], a2[OWN][4], b[OWN][4], c[OWN][4];
};
inline constants get_constants(const args &a, const block_at &b) {
  constants v;
  i64 at;
  get_states(a, A, b, 0, v.a);
  for (int q = 0; q < OWN; q++)
    for (int j = 0; j < 4; j++) {
      if (state_at(a, A, b, 0, q, j, &at)) v.a[q][j] = decay(a, v.a[q][j]);
      v.a2[q][j] = m_clamp(v.a[q][j] * LOG2_E, -1e30f, 1e30f); /* 0 A is 0 in steps that pad a tile */
      v.b[q][j] = v.c[q][j] = 0;
    }
  if (CONSTANT_B) get_states(a, B, b, 0, v.b);
  if (CONSTANT_C) get_states(a, C, b, 0, v.c);
  return v;
}

/* ---- pieces: 8 neighbours along the dense axis of a tile, channels or steps -------------------------------------- */
struct piece {
  int row, step;
};
/* Two threads have a sector of 32 bytes; the next two another row (or step), in other banks of the tile. */
inline piece piece_of(int i) {
  const int p = threadIdx.x + i * THREADS_EACH, lines = CHANNEL_DENSE ? TILE : ROWS;
  const int line = p / 2 % lines, along = (p / 2 / lines * 2 + p % 2) * 8;
  piece at;
  at.row = CHANNEL_DENSE ? along : line;
  at.step = CHANNEL_DENSE ? line : along;
  return at;
}
#define HAS_PIECE(i)     (PIECES >= THREADS_EACH || threadIdx.x < PIECES)
#define PIECE_ROW(p, e)  ((p).row + (CHANNEL_DENSE ? (e) : 0))
#define PIECE_STEP(p, e) ((p).step + (CHANNEL_DENSE ? 0 : (e)))

/* How many of the piece's elements are there, in a tile that begins at step t */
inline i64 piece_left(const args &a, const block_at &b, const piece &p, i64 t) {
  if (CHANNEL_DENSE) return t + p.step < LENGTH ? b.count - p.row : 0;
  return p.row < b.count ? LENGTH - t - p.step : 0;
}
inline i64 piece_offset(const args &a, int s, const block_at &b, const piece &p, i64 t) {
  return b.batch * BATCH_STRIDE(s) + (b.first + p.row) * CHANNEL_STRIDE(s) + (t + p.step) * STEP_STRIDE(s);
}

/* Whether the tile at step t is whole, in channels, steps and states, and its pieces at multiples of 16 bytes: then
 * nothing is to be asked of a piece, and all loads are under way at once */
inline bool whole_tile(const args &a, const block_at &b, i64 t) {
  return EVEN && a.aligned && STATES == PAD && b.count == ROWS && t + TILE <= LENGTH;
}

/* 8 elements as they lie in memory, those that do not exist as 0 */
template <int BYTES>
inline void load_words_of(packed<8, BYTES> &r, const char *at, bool whole, i64 left) {
  if (whole) return load_words<true>(r.w, at);
  if (left >= 8) return load_words<false>(r.w, at);
  for (int k = 0; k < 2 * BYTES; k++) r.w[k] = 0;
  for (int k = 0; k < 8; k++) {
    if (k >= left) continue;
    if (BYTES == 2) r.w[k / 2] |= (u32)((const u16 *)at)[k] << 16 * (k % 2);
    if (BYTES == 4) r.w[k * BYTES / 4] = ((const u32 *)at)[k];
  }
}

/* The thread's pieces of a slot, on their way */
template <int S>
struct slot_pieces {
  packed<8, (int)bytes_of(DTYPE(S))> r[EACH];
};
template <int S>
inline void load_pieces(const args &a, const block_at &b, i64 t, bool whole, slot_pieces<S> &to) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(i);
    if (HAS(S) && HAS_PIECE(i))
      load_words_of(to.r[i], AT(S) + piece_offset(a, S, b, p, t) * bytes_of(DTYPE(S)), whole, piece_left(a, b, p, t));
  }
}
/* load(.., whole, to), of several slots: whole is a constant there */
template <typename T>
inline void load_tile(const args &a, const block_at &b, i64 t, T &to) {
  if (whole_tile(a, b, t))
    load(a, b, t, true, to);
  else
    load(a, b, t, false, to);
}
template <int S>
inline void get_piece(const args &a, const slot_pieces<S> &from, int i, float (&v)[8]) {
  for (int e = 0; e < 8; e++) v[e] = 0;
  if (HAS(S)) unpack(v, from.r[i], DTYPE(S));
}

/* ---- B and C: a piece is 8 steps of a state, or 8 states of a step; each thread has one, B before C ---------------
 */
inline i64 group_offset(const args &a, int s, const block_at &b, i64 n, i64 t) {
  const i64 group = s == B ? b.group_b : b.group_c;
  return b.batch * BATCH_STRIDE(s) + group * GROUP_STRIDE(s) + n * STATE_STRIDE(s) + t * STEP_STRIDE(s);
}

struct coefficient_piece {
  int n, step;
  bool is_c;
};
inline coefficient_piece my_coefficients() {
  const int p = threadIdx.x % (THREADS_EACH / 2), across = STATES_DENSE ? PAD / 8 : PAD;
  coefficient_piece at;
  at.n = STATES_DENSE ? p % across * 8 : p % across;
  at.step = STATES_DENSE ? p / across : p / across * 8;
  at.is_c = threadIdx.x >= THREADS_EACH / 2;
  return at;
}

/* On its way; where B and C are not of one dtype, as f32 */
enum { OF_B = CONSTANT_B ? DTYPE(C) : DTYPE(B), OF_C = CONSTANT_C ? DTYPE(B) : DTYPE(C) };
enum { COEFFICIENT = !HAS(B) ? OF_C : !HAS(C) || OF_B == OF_C ? OF_B : F32 };
typedef packed<8, (int)bytes_of(COEFFICIENT)> coefficient_words;

inline void load_coefficients_of(const args &a, int s, const block_at &b, i64 t, bool whole, coefficient_words &to) {
  const coefficient_piece at = my_coefficients();
  const i64 steps = LENGTH - t - at.step, states = STATES - at.n, offset = group_offset(a, s, b, at.n, t + at.step);
  const i64 left = STATES_DENSE ? (steps > 0 ? states : 0) : states > 0 ? steps : 0;
  if (DTYPE(s) == COEFFICIENT) return load_words_of(to, AT(s) + offset * bytes_of(DTYPE(s)), whole, left);
  for (int e = 0; e < 8; e++)
    to.w[e % (sizeof(to.w) / 4)] = __float_as_uint(e < left ? load(DTYPE(s), AT(s), offset + e) : 0.0f);
}
inline void load_coefficients(const args &a, const block_at &b, i64 t, bool whole, coefficient_words &to) {
  if (!STEPS_DENSE && !STATES_DENSE) return;
  if (!my_coefficients().is_c) {
    if (HAS(B) && !CONSTANT_B) load_coefficients_of(a, B, b, t, whole, to);
  } else {
    if (HAS(C) && !CONSTANT_C) load_coefficients_of(a, C, b, t, whole, to);
  }
}

inline void take(float (&v)[4], const float *from) {
  const float4 x = *(const float4 *)from;
  v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}

/* (BEFORE + TILE, PAD) for each order of a thread's states; 4 more, so that the orders are in different banks. In
 * forward with OWN = 1, which waits for shared memory more than for anything, 16-bit B and C stay as they are. */
enum { BEFORE = BACKWARD ? 8 : 0 }; /* steps before the tile: see backward.cu */
#if HALF_COEFFICIENTS
typedef u16 kept_coefficient;
#else
typedef float kept_coefficient;
#endif
struct coefficients {
  __align__(16) kept_coefficient at[TWISTS][(BEFORE + TILE) * PAD + 4];
};
inline void set_coefficient(coefficients &to, int step, int n, float v) {
  for (int x = 0; x < TWISTS; x++) {
    kept_coefficient &at = to.at[x][(BEFORE + step) * PAD + (n ^ x)];
#if HALF_COEFFICIENTS
    at = (u16)(HALF_COEFFICIENTS == BF16 ? f32_to_bf16(v) : f32_to_f16(v));
#else
    at = v;
#endif
  }
}
/* 8 states of a step */
inline void set_states(coefficients &to, int step, int n, const float (&v)[8]) {
#if HALF_COEFFICIENTS
  for (int e = 0; e < 8; e++) set_coefficient(to, step, n + e, v[e]);
#else
  for (int x = 0; x < TWISTS; x++)
    for (int e = 0; e < 8; e += 4)
      *(float4 *)&to.at[x][(BEFORE + step) * PAD + n + e] =
          make_float4(v[e + (0 ^ x)], v[e + (1 ^ x)], v[e + (2 ^ x)], v[e + (3 ^ x)]);
#endif
}
inline void stage_coefficients(const args &a, const block_at &b, i64 t, const coefficient_words &words,
                               coefficients *to_b, coefficients *to_c) {
  const bool has_b = HAS(B) && !CONSTANT_B && to_b, has_c = HAS(C) && !CONSTANT_C && to_c;
#if STEPS_DENSE || STATES_DENSE
  const coefficient_piece at = my_coefficients();
  if (at.is_c ? !has_c : !has_b) return;
  coefficients &to = at.is_c ? *to_c : *to_b;
  float r[8];
  unpack(r, words, COEFFICIENT);
  if (STATES_DENSE) set_states(to, at.step, at.n, r);
  for (int e = 0; e < 8 && !STATES_DENSE; e++) set_coefficient(to, at.step + e, at.n, r[e]);
#else
  for (int i = threadIdx.x; i < TILE * PAD; i += THREADS_EACH) {
    const int n = i % PAD, step = i / PAD;
    const bool there = n < STATES && t + step < LENGTH;
    if (has_b) set_coefficient(*to_b, step, n, there ? GET(B, group_offset(a, B, b, n, t + step)) : 0.0f);
    if (has_c) set_coefficient(*to_c, step, n, there ? GET(C, group_offset(a, C, b, n, t + step)) : 0.0f);
  }
#endif
}

/* B or C of the thread's states, in its order; steps count from BEFORE the tile */
inline void take_coefficients(float (&v)[4], const coefficients &from, const block_at &b, int step) {
  const kept_coefficient *at = &from.at[b.twist][step * PAD + 4 * b.k];
#if HALF_COEFFICIENTS
  const uint2 x = *(const uint2 *)at;
  const u32 bits[4] = {x.x & 0xffff, x.x >> 16, x.y & 0xffff, x.y >> 16};
  for (int j = 0; j < 4; j++) v[j] = HALF_COEFFICIENTS == BF16 ? bf16_to_f32(bits[j]) : f16_to_f32(bits[j]);
#else
  take(v, at);
#endif
}

/* ---- the recurrence ---------------------------------------------------------------------------------------------- */
/* (d, d u) of a channel's steps; a row more than TILE, so that 8 channels are in different banks */
struct steps {
  float2 at[ROWS][TILE + 2];
  float bias[ROWS], skip[ROWS]; /* delta_bias, D */
  u8 reset[TILE];
};

inline void load_rows(const args &a, const block_at &b, steps &to) {
  for (int row = threadIdx.x; row < ROWS; row += THREADS_EACH) {
    to.bias[row] = per_channel(a, DELTA_BIAS, b, row);
    to.skip[row] = per_channel(a, D, b, row);
  }
  __syncthreads();
}

inline void stage_resets(const args &a, const block_at &b, i64 t, u8 *reset) {
  if (!HAS(SEQ_IDX) || threadIdx.x >= TILE) return;
  const i64 now = t + threadIdx.x, step = STEP_STRIDE(SEQ_IDX);
  const int *id = (const int *)AT(SEQ_IDX) + b.batch * BATCH_STRIDE(SEQ_IDX) + now * step;
  reset[threadIdx.x] = now > 0 && now < LENGTH && id[0] != id[-step];
}

/* h of channel q through one step */
inline void step_ahead(float (&h)[4], const constants &v, int q, float d, float du, const float (&b)[4], bool reset) {
  for (int j = 0; j < 4; j++) {
    if (reset) h[j] = 0;
    h[j] = fast_pow2(d * v.a2[q][j]) * h[j] + (ZOH ? du * phi(d * v.a[q][j]) : du) * (CONSTANT_B ? v.b[q][j] : b[j]);
  }
}

/* v[i] summed over the LANES threads of a channel: lane k is left with those from k COUNT/LANES on, in v[0] .. The
 * first exchange is between lanes of other order, if v is channel after channel. */
template <int COUNT, int BIT, int ALL>
inline void halve_sums(float (&v)[ALL]) {
  if constexpr (BIT >= WIDE) {
    const bool swapped = (threadIdx.x & BIT) && !(OWN > 1 && BIT == 16);
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
      const float low = v[i], high = v[i + COUNT / 2];
      v[i] = (swapped ? high : low) + __shfl_xor_sync(ALL_LANES, swapped ? low : high, BIT);
    }
    halve_sums<COUNT / 2, BIT / 2>(v);
  }
}
template <int COUNT>
inline void scatter_sums(float (&v)[COUNT]) {
  halve_sums<COUNT, 16>(v);
}
