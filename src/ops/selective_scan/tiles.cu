/* tiles.cu -- tiles of ROWS channels and TILE steps in shared memory, and the recurrence on them.
 *
 * The threads of a block share a tile, or, in the ring of ring.cu, those of each warp do.
 *
 * LANES threads share a channel, 4 states each in registers: lane = k WIDE + c holds states 4k .. 4k + 3 of OWN
 * channels of its warp, c and c + WIDE. With OWN = 2, lanes 16 .. 31 have their channels in the other order, and
 * backward lane c its states in the order j ^ (c % 4): so that in sums over lanes each gives the same place away.
 *
 * What all states of a channel share (d, d u, ..) is computed once, by the thread that loads it, and read from the tile
 * by the channel's lanes. B and C are f32 there, (TILE, PAD), 0 for the states that pad N. Steps beyond the last are
 * d = 0, so that they change nothing.                                                                             */
enum { IN_RING = RING_WARPS > 0, LANES = (int)LANES_EACH, WIDE = 32 / LANES, PAD = 4 * LANES };
enum { OWN = (int)CHANNELS_EACH, TWISTS = BACKWARD && OWN > 1 ? 4 : 1 };
enum { THREADS_EACH = IN_RING ? 32 : 32 * LANES, ROWS = THREADS_EACH / LANES * OWN, TILE = IN_RING ? 8 : 32 };
enum { PIECE = IN_RING ? 4 : 8, PIECES = ROWS * TILE / PIECE };
enum { EACH = PIECES > THREADS_EACH ? PIECES / THREADS_EACH : 1 };
#define MEMBER (IN_RING ? threadIdx.x % 32 : threadIdx.x) /* of those that share a tile */

/* Backward, N 16: lane k WIDE + c is another of the warp's threads. Shared memory gives 8 or 16 bytes a thread in half
 * the turns if all neighbours i, i ^ 1 (here of one channel, for d, u, ..) or all i, i ^ 2 (of the same states in the
 * same order, for B and C) want the same. IN_WARP: where a bit of the lane's number is in that of its thread. */
enum { PAIRED = BACKWARD && OWN == 2 && LANES == 4 };
#define IN_WARP(bit)  (!PAIRED || (bit) == 16 ? (bit) : (bit) == 8 ? 1 : (bit) == 4 ? 2 : 4 * (bit))
#define LANE_HAS(bit) ((threadIdx.x & IN_WARP(bit)) != 0)

/* ---- functions by the GPU's own 2^x and 1/x, right to 2^-22 ---- */
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

/* max(x, 0) + log(1 + e), e = e^-|x|: as log1p_unit of math.h. With the least float for 0, max is one instruction. */
inline float fast_softplus(float x) {
  const float e = fast_pow2(-fabsf(x) * LOG2_E), s = e * fast_rcp(1.0f + 0.5f * e), z = s * s;
  const float q = K(0.083333020356693089) +
                  z * (K(0.012506727263866939) + z * (K(0.0021876410389265104) + z * K(0.00054710910979057649)));
  return v_max(x, K(1e-45)) + (s + s * z * q);
}
/* sigmoid(x) = 1 - e^-d, d = softplus(x); where that cancels, d q(d), right to 2^-23.6 */
inline float sigmoid_of_softplus(float d) {
  const float q = K(0.9999999227245145) +
                  d * (K(-0.499992498472847) +
                       d * (K(0.16654815150185992) + d * (K(-0.04100127881857957) + d * K(0.006771037992165648))));
  return d < 0.5f ? d * q : 1.0f - fast_pow2(-d * LOG2_E);
}
inline float fast_sigmoid(float z) { return fast_rcp(1.0f + fast_pow2(-z * LOG2_E)); }
inline float fast_silu(float z) { return v_max(z, -1e30f) * fast_sigmoid(z); }

/* Zero-order hold: f = phi(x) and phi'(x) of common.cu, given e^x = f + x phi'. For |x| < 1, where f cancels, phi' comes
 * first, right to 2^-24. */
struct hold {
  float f, slope;
};
inline hold fast_hold(float x, float ex) {
  const float q = K(0.0069414773582971483) +
                  x * (K(0.0011913792084583786) + x * (K(0.00017851073550464328) + x * K(2.1846567905381133e-5)));
  const float near = K(0.49999998398985731) +
                     x * (K(0.33333340410440179) + x * (K(0.12500056277907564) + x * (K(0.033332797343126059) + x * q)));
  const float over = fast_rcp(x), far = (ex - 1.0f) * over;
  return v_abs(x) < 1.0f ? hold{ex - x * near, near} : hold{far, (ex - far) * over};
}

/* ---- the channels of a block, and the thread's own ---- */
struct block_at {
  i64 number;
  i64 batch, first;
  int count;       /* of ROWS channels, so many are there */
  int row, k;      /* the thread's first channel; its states are from 4k on */
  int twist, swap; /* the order of its states, and of its channels        */
  i64 group_b, group_c;
  i64 piece;                /* in the ring: where its piece is, if slots are ALIKE, and that of B or C, at step 0 */
  const char *coefficients;
};

/* A place in a tile that stays in a register: the compiler would compute it anew at each use */
inline int pinned(int x) {
#ifndef AMBI_EMULATED
  asm volatile("" : "+r"(x));
#endif
  return x;
}

#define ROW_OF(b, q) ((b).row + ((q) ^ (b).swap) * WIDE) /* its channel q */

inline void find_lane(block_at &b) {
  b.row = MEMBER / 32 * WIDE * OWN + threadIdx.x % WIDE;
  b.k = threadIdx.x % 32 / WIDE;
  b.twist = threadIdx.x % TWISTS;
  if (PAIRED) { /* rows in the order that has those of 8 threads in different banks, with the two steps they finish */
    b.row = threadIdx.x / 32 * WIDE * OWN + (threadIdx.x & 6) + LANE_HAS(2);
    b.k = LANE_HAS(8) + 2 * LANE_HAS(16);
    b.twist = LANE_HAS(1) + 2 * LANE_HAS(2);
  }
  b.swap = OWN > 1 && LANES > 1 ? threadIdx.x / 16 % 2 : 0;
}
inline block_at find_block(const args &a, i64 number) {
  const i64 in_batch = number % PER_BATCH, in_set = in_batch % PER_SET * ROWS;
  block_at b;
  b.number = number;
  b.batch = number / PER_BATCH;
  b.first = in_batch / PER_SET * TOGETHER + in_set;
  b.count = (int)min((i64)ROWS, TOGETHER - in_set);
  find_lane(b);
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
      if (ZOH) v.a[q][j] = m_clamp(v.a[q][j], -1e30f, 1e30f);
      v.b[q][j] = v.c[q][j] = 0;
    }
  if (CONSTANT_B) get_states(a, B, b, 0, v.b);
  if (CONSTANT_C) get_states(a, C, b, 0, v.c);
  return v;
}

/* ---- pieces: PIECE neighbours along the dense axis of a tile, channels or steps ---- */
struct piece {
  int row, step;
};
/* Two threads have a sector of 32 bytes; the next two another row (or step), in other banks of the tile. In the ring a
 * lane has the steps whose sums it will be left with. */
inline piece piece_of(int i) {
  const int p = MEMBER + i * THREADS_EACH, lines = CHANNEL_DENSE ? TILE : ROWS;
  const bool as_sums = IN_RING && !CHANNEL_DENSE;
  const int line = as_sums ? p % WIDE + p / 16 * WIDE : p / 2 % lines;
  const int along = (as_sums ? p / WIDE % 2 : p / 2 / lines * 2 + p % 2) * PIECE;
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
/* ALIKE: the strides of all slots of (B, D, L) are those of u, and one offset does for all */
inline i64 piece_offset(const args &a, int slot, const block_at &b, const piece &p, i64 t) {
  const int s = ALIKE ? U : slot;
  const i64 step = CHANNEL_DENSE ? STEP_STRIDE(s) : 1;
  if (IN_RING && ALIKE) return b.piece + t * step;
  return b.batch * BATCH_STRIDE(s) + (b.first + p.row) * CHANNEL_STRIDE(s) + (t + p.step) * step;
}

/* Whether the tile at step t is whole, in channels, steps and states, and, if EVEN, its pieces at multiples of 16 bytes:
 * then nothing is to be asked of a piece, and all loads are under way at once */
inline bool whole_tile(const args &a, const block_at &b, i64 t) {
  const bool rows = b.count == ROWS || (IN_RING && ALIKE); /* there the last row stands for those that are not there */
  return (!EVEN || a.aligned) && STATES == PAD && rows && t + TILE <= LENGTH;
}

/* N elements as they lie in memory, those that do not exist as 0; in the ring, to shared memory */
template <int N, int BYTES>
inline void load_words_of(packed<N, BYTES> &r, const char *at, bool whole, i64 left) {
  if (whole && IN_RING) return copy_words_ahead(r.w, at);
  if (whole) return load_words<EVEN != 0, BYTES>(r.w, at);
  enum { WORD = N * BYTES < 16 ? N * BYTES : 16 };
  if (left >= N && (!EVEN || (u64)at % WORD == 0)) return load_words<EVEN != 0, BYTES>(r.w, at);
  for (int k = 0; k < N * BYTES / 4; k++) r.w[k] = 0;
  for (int k = 0; k < N; k++) {
    if (k >= left) continue;
    if (BYTES == 2) r.w[k / 2] |= (u32)((const u16 *)at)[k] << 16 * (k % 2);
    if (BYTES == 4) r.w[k * BYTES / 4] = ((const u32 *)at)[k];
  }
}

/* The thread's pieces of a slot, on their way */
template <int S>
struct alignas(IN_RING ? PIECE * (int)bytes_of(DTYPE(S)) : 4) slot_pieces {
  packed<PIECE, (int)bytes_of(DTYPE(S))> r[EACH];
};
/* A loop over pieces, each the first (or, as it is loaded, the last) in its turn, compiles sooner than all of them */
template <int S>
inline void take_turns(slot_pieces<S> &x) {
  for (int i = 1; i < EACH; i++) x.r[i - 1] = x.r[i];
}
/* `count` of them from piece `first` on */
template <int S>
inline void load_pieces(const args &a, const block_at &b, i64 t, bool whole, int first, int count, slot_pieces<S> &to) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const piece p = piece_of(first + i);
    if (i >= count || !HAS(S) || !HAS_PIECE(first + i)) continue;
    take_turns(to);
    load_words_of(to.r[EACH - 1], AT(S) + piece_offset(a, S, b, p, t) * bytes_of(DTYPE(S)), whole,
                  piece_left(a, b, p, t));
  }
}
/* load(.., whole, first, count, to), of several slots: whole and count are constants there. Few tiles are not whole,
 * unless states pad N: they are loaded in a loop. */
enum { EDGES_AT_ONCE = STATES == PAD ? 1 : EACH };
template <typename T>
inline void load_tile(const args &a, const block_at &b, i64 t, T &to) {
  if (whole_tile(a, b, t)) {
    load(a, b, t, true, 0, EACH, to);
    load_coefficients(a, b, t, true, to.coefficients);
  } else {
#pragma unroll(EDGES_AT_ONCE)
    for (int i = 0; i < EACH; i++) load(a, b, t, false, i, 1, to);
    load_coefficients(a, b, t, false, to.coefficients);
  }
}
template <int S>
inline void get_piece(const args &a, const slot_pieces<S> &from, int i, float (&v)[PIECE]) {
  for (int e = 0; e < PIECE; e++) v[e] = 0;
  if (HAS(S)) unpack(v, from.r[i], DTYPE(S));
}

/* d = softplus(delta + bias) of a piece, given delta */
inline void find_steps(const args &a, const piece &p, const float *bias, float (&d)[PIECE]) {
  for (int e = 0; e < PIECE; e++) d[e] += bias[PIECE_ROW(p, e)];
  for (int e = 0; e < PIECE && SOFTPLUS; e++) d[e] = fast_softplus(d[e]);
}

/* d and d u of piece i; all of it is computed before any is written, so that no read waits for a write */
inline void get_steps(const args &a, const slot_pieces<DELTA> &deltas, const slot_pieces<U> &us, int i,
                      const float *bias, float (&d)[PIECE], float (&du)[PIECE]) {
  get_piece(a, deltas, i, d), get_piece(a, us, i, du);
  find_steps(a, piece_of(i), bias, d);
  for (int e = 0; e < PIECE; e++) du[e] *= d[e];
}

/* ---- the recurrence ---- */
/* (d, d u) of a channel's steps; a row more than TILE, so that 8 channels are in different banks */
struct steps {
  float2 at[ROWS][TILE + 2];
  float bias[ROWS], skip[ROWS]; /* delta_bias, D */
  u8 reset[TILE];
};

template <typename T>
inline void load_rows(const args &a, const block_at &b, T &to) {
  for (int row = MEMBER; row < ROWS; row += THREADS_EACH) {
    to.bias[row] = per_channel(a, DELTA_BIAS, b, row);
    to.skip[row] = per_channel(a, D, b, row);
  }
  __syncthreads();
}

inline void stage_resets(const args &a, const block_at &b, i64 t, u8 *reset) {
  if (!HAS(SEQ_IDX) || MEMBER >= TILE) return;
  const i64 now = t + MEMBER, step = STEP_STRIDE(SEQ_IDX);
  const int *id = (const int *)AT(SEQ_IDX) + b.batch * BATCH_STRIDE(SEQ_IDX) + now * step;
  reset[MEMBER] = now > 0 && now < LENGTH && id[0] != id[-step];
}

/* h of state j of channel q through one step, given abar = exp(d A) */
inline float step_of(float h, float abar, const constants &v, int q, int j, float d, float du, float b, bool reset) {
  return abar * (reset ? 0.0f : h) + (ZOH ? du * fast_hold(d * v.a[q][j], abar).f : du) * (CONSTANT_B ? v.b[q][j] : b);
}
inline void step_ahead(float (&h)[4], const constants &v, int q, float d, float du, const float (&b)[4], bool reset) {
  for (int j = 0; j < 4; j++) h[j] = step_of(h[j], fast_pow2(d * v.a2[q][j]), v, q, j, d, du, b[j], reset);
}
inline void step_by(float (&h)[4], const float (&abar)[4], const constants &v, int q, float d, float du,
                    const float (&b)[4], bool reset) {
  for (int j = 0; j < 4; j++) h[j] = step_of(h[j], abar[j], v, q, j, d, du, b[j], reset);
}

/* Steps that begin with h = 0: their end, and the sum of d, over which a state decays by exp(A sum d); infinite where
 * the state was forgotten on the way */
struct ended {
  float end[OWN][4], span[OWN];
};

/* exp(A sum d) of a state; and the state (or its gradient) after those steps, given that before */
inline float decay_over(const constants &v, int q, int j, float span) {
  return span == INFINITY ? 0.0f : fast_pow2(v.a2[q][j] * span);
}
inline float joined(const args &a, float h, float decays, float end, float span) {
  const bool forgotten = HAS(SEQ_IDX) && span == INFINITY; /* even if it is NaN */
  return h == 0.0f || forgotten ? end : decays * h + end;
}

inline void join(const args &a, float (&h)[OWN][4], const constants &v, const ended &x) {
  for (int q = 0; q < OWN; q++)
    for (int j = 0; j < 4; j++)
      h[q][j] = joined(a, h[q][j], decay_over(v, q, j, x.span[q]), x.end[q][j], x.span[q]);
}

/* v[i] summed over the LANES threads of a channel: lane k is left with those from k COUNT/LANES on, in v[0] .. The
 * first exchange is between lanes of other order, if v is channel after channel. */
template <int COUNT, int BIT, int ALL>
inline void halve_sums(float (&v)[ALL]) {
  if constexpr (BIT >= WIDE) {
    const bool swapped = LANE_HAS(BIT) && !(OWN > 1 && BIT == 16);
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
      const float low = v[i], high = v[i + COUNT / 2];
      v[i] = (swapped ? high : low) + __shfl_xor_sync(ALL_LANES, swapped ? low : high, IN_WARP(BIT));
    }
    halve_sums<COUNT / 2, BIT / 2>(v);
  }
}
template <int COUNT>
inline void scatter_sums(float (&v)[COUNT]) {
  halve_sums<COUNT, 16>(v);
}
