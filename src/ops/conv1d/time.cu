/* time.cu -- conv1d where time is dense: a thread takes vectors of VEC neighbours in time.
 *
 * ALIKE: the lines of all sequences begin equally far from a multiple of VEC elements. Vectors then begin at such
 * multiples (at time -phase, VEC - phase, ..), so that they lie on words of 16 bytes although lines may not, and only
 * the first and the last of a line are partly outside of it. Otherwise they begin at time 0.
 * WHOLE: no vector is partly outside.                                                                               */
#define LINES   (BACKWARD ? DY : X)
#define SIZE    ((int)LENGTH)
#define OWN(s)  (b * BATCH_STRIDE(s) + d * CHANNEL_STRIDE(s)) /* where a line begins */
#define VECTORS (ALIKE && ALL_ON_WORDS)

constexpr inline int power_of_two(int least) { return least > 1 ? 2 * power_of_two((least + 1) / 2) : 1; }

enum {
  X_BYTES = bytes_of(DTYPE(X)),
  WORD = X_BYTES < 4 ? 2 : 1,
  BEFORE = power_of_two(TAPS - 1 > WORD ? TAPS - 1 : WORD) /* x that a thread reads before its own */
};

inline int phase_of(const args &a, i64 b, i64 d) { return EVEN ? 0 : (int)(OWN(LINES) & (VEC - 1)); }

/* The vector at time t; !LAST: it is known to end before the line does. */
template <bool LAST = true> inline bool inside(const args &a, int t) {
  return (WHOLE || t >= 0) && (!LAST || t + (int)(WHOLE ? 1 : VEC) <= SIZE);
}

/* Those at time t: `there`, or some of them. The others read as 0. */
template <bool ALIGNED, int N, int BYTES>
inline void load_packed(const args &a, packed<N, BYTES> &r, const char *at, int t, bool there) {
  if (there) return load_words<ALIGNED, BYTES>(r.w, at);
#pragma unroll
  for (int i = 0; i < N * BYTES / 2; i++) {
    const bool in = !WHOLE && (u32)(t + i * 2 / BYTES) < (u32)SIZE;
    const u32 half = in ? ((const u16 *)at)[i] : 0;
    r.w[i / 2] = i % 2 ? r.w[i / 2] | half << 16 : half;
  }
}

/* x on its way */
struct sequence {
  packed<BEFORE, X_BYTES> before;
  packed<VEC, X_BYTES> now;
};

/* Where WHOLE, a vector beyond the line and what is before it are 0. */
template <bool ALIGNED, bool LAST> inline void load_sequence(const args &a, sequence &s, const char *at, int t) {
  load_packed<ALIGNED>(a, s.now, at, t, inside<LAST>(a, t));
  if (TAPS > 1)
    load_packed<ALIGNED>(a, s.before, at - BEFORE * X_BYTES, t - BEFORE,
                         t >= BEFORE && (!LAST || t + (int)WHOLE <= SIZE));
}

/* z at times t - BEFORE .. t + VEC - 1 */
struct window {
  real v[BEFORE + VEC];
  real at(int i) const { return v[BEFORE - (TAPS - 1) + i]; } /* at time t + i - (W - 1) */
};

inline void get_window(const args &a, window &z, const sequence &s, i64 b, i64 d, int t) {
  real before[BEFORE], now[VEC];
  if (TAPS > 1) unpack(before, s.before, DTYPE(X));
  unpack(now, s.now, DTYPE(X));
#pragma unroll
  for (int i = 0; i < BEFORE + VEC; i++) z.v[i] = i < BEFORE ? (TAPS > 1 ? before[i] : (real)0) : now[i - BEFORE];
  if (HAS(X0) && t < BEFORE)
#pragma unroll
    for (int i = 0; i < (WHOLE ? BEFORE : BEFORE + VEC); i++) {
      const int j = t - BEFORE + i + TAPS - 1;
      if (j >= 0 && j < TAPS - 1) z.v[i] = GET(X0, OFFSET(X0, b, d, j));
    }
}

struct filter {
  real w[TAPS], bias;
};

inline void get_filter(const args &a, filter &f, i64 d) {
  for (int k = 0; k < TAPS && HAS(W); k++) f.w[k] = GET(W, OFFSET(W, 0, d, k));
  f.bias = HAS(B) ? GET(B, d * CHANNEL_STRIDE(B)) : (real)0;
}

inline real p_of(const filter &f, const window &z, int i) {
  real p = f.bias;
#pragma unroll
  for (int k = 0; k < TAPS; k++) p += f.w[k] * z.at(i + k);
  return p;
}

/* What is inside of the line, at time t */
template <bool ALIGNED> inline void put_vector(const args &a, int dtype, bool adds, char *at, int t, real (&v)[VEC]) {
  if (inside(a, t)) return put_some<VEC, ALIGNED>(dtype, adds, at, 0, v, VEC);
#pragma unroll
  for (int i = 0; i < VEC; i++)
    if (!WHOLE && (u32)(t + i) < (u32)SIZE) put(dtype, adds, at, i, v[i]);
}

#if !BACKWARD
/* threadIdx.x (ALONG of them), blockIdx.y: time;  threadIdx.y, blockIdx.x: lines */
template <bool ALIGNED> inline void forward(const args &a) {
  enum { STEP = ALONG * VEC };
  const u32 line = blockIdx.x * (256 / ALONG) + threadIdx.y;
  const i64 b = line / (u32)CHANNELS, d = line - (u32)b * (u32)CHANNELS;
  if (line >= BATCHES * CHANNELS) return;
  const int first = (int)(blockIdx.y * (u32)UNROLL * STEP + threadIdx.x * (u32)VEC) - (ALIGNED ? phase_of(a, b, d) : 0);
  const char *from = AT(X) + (OWN(X) + first) * X_BYTES;
  char *to = AT(Y) + (OWN(Y) + first) * bytes_of(DTYPE(Y));
  filter f;
  sequence x[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) load_sequence<ALIGNED, true>(a, x[u], from + u * STEP * X_BYTES, first + u * STEP);
  get_filter(a, f, d);
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const int t = first + u * STEP;
    window z;
    real y[VEC];
    if (t >= SIZE) return;
    get_window(a, z, x[u], b, d, t);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const real p = p_of(f, z, i);
      y[i] = SILU ? silu(p) : p;
    }
    put_vector<ALIGNED>(a, DTYPE(Y), false, to + u * STEP * bytes_of(DTYPE(Y)), t, y);
  }
}

KERNEL(conv1d_forward, 256) {
  if (VECTORS)
    forward<true>(a);
  else
    forward<false>(a);
}
#else
/* dp at a thread's vector, then the W - 1 after it; the sum of its own */
struct gradient {
  real v[VEC + TAPS - 1], sum;
  void add() {
    sum = v[0];
#pragma unroll
    for (int i = 1; i < VEC; i++) sum += v[i];
  }
};

/* The sums of a thread: dw, then db */
struct totals {
  real v[TAPS + 1];
};

/* A thread's vector of a chunk */
struct place {
  int t;
  const char *x, *dy;
  char *dx;
  void move(int by) { t += by, x += by * X_BYTES, dy += by * bytes_of(DTYPE(DY)), dx += by * bytes_of(DTYPE(DX)); }
};

/* dp where something is NaN, as it may be for a p that is infinite: `i` after the place */
inline real careful_dp(const args &a, const filter &f, const place &at, i64 b, i64 d, int i) {
  real p = f.bias;
#pragma unroll
  for (int k = 0; k < TAPS; k++) {
    const int j = i + k - (TAPS - 1), t = at.t + j;
    real z = 0;
    if (t >= 0 && t < SIZE) z = load(DTYPE(X), at.x, j);
    if (HAS(X0) && t < 0 && t > -TAPS) z = GET(X0, OFFSET(X0, b, d, t + TAPS - 1));
    p += f.w[k] * z;
  }
  return (u32)(at.t + i) < (u32)SIZE ? silu_grad(load(DTYPE(DY), at.dy, i), p) : (real)0;
}

inline void compute_again(const args &a, const filter &f, gradient &dp, const place &at, i64 b, i64 d) {
#pragma unroll 1
  for (int i = 0; i < VEC; i++) {
    const real v = careful_dp(a, f, at, b, d, i);
#pragma unroll
    for (int k = 0; k < VEC; k++) dp.v[k] = k == i ? v : dp.v[k];
  }
  dp.add();
}

/* Where WHOLE, dy and x are 0 beyond the end, and so is dp, but for weights that are infinite. */
inline void get_dp(const args &a, const filter &f, const window &z, const real (&dy)[VEC], gradient &dp,
                   const place &at, i64 b, i64 d) {
#pragma unroll
  for (int i = 0; i < VEC; i++) dp.v[i] = SILU ? plain_silu_grad(dy[i], p_of(f, z, i)) : dy[i];
  if (WHOLE ? SILU && !PLAIN && at.t >= SIZE : !inside(a, at.t))
#pragma unroll
    for (int i = 0; i < VEC; i++)
      if ((u32)(at.t + i) >= (u32)SIZE) dp.v[i] = 0; /* whatever p is there */
  dp.add();
  if (SILU && PLAIN && !(dp.sum == dp.sum)) compute_again(a, f, dp, at, b, d);
}

/* From the next lane; the last one's are those at the start of the chunk after this one, and it keeps this one's. */
inline void get_later(gradient &dp, real (&carry)[TAPS]) {
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++) {
    const real next = __shfl_sync(ALL_LANES, dp.v[i], (threadIdx.x + 1) % 32);
    dp.v[VEC + i] = threadIdx.x == 31 ? carry[i] : next;
    carry[i] = next;
  }
}

template <bool ALIGNED>
inline void put_dx(const args &a, const filter &f, const gradient &dp, i64 b, i64 d, int t, char *at) {
  real dx[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    dx[i] = 0;
#pragma unroll
    for (int k = 0; k < TAPS; k++) dx[i] += f.w[k] * dp.v[i + TAPS - 1 - k];
  }
  if (HAS(DX_LAST) && t + VEC + TAPS - 1 > SIZE)
    for (int i = 0; i < VEC; i++) {
      const int j = t + i + TAPS - 1 - SIZE;
      if (j >= 0 && t + i < SIZE && t + i >= 0) dx[i] += GET(DX_LAST, OFFSET(DX_LAST, b, d, j));
    }
  put_vector<ALIGNED>(a, DTYPE(DX), ADDS(DX), at, t, dx);
}

/* Plainly: a segment is short. !ALL: of those inside only, as 0 times an infinite z is not 0 */
template <bool ALL> inline void add_totals(const args &a, totals &sum, const window &z, const gradient &dp, int t) {
#pragma unroll
  for (int k = 0; k < TAPS && HAS(DW); k++)
#pragma unroll
    for (int i = 0; i < VEC; i++)
      if (ALL || (u32)(t + i) < (u32)SIZE) sum.v[k] += dp.v[i] * z.at(i + k);
  if (HAS(DB)) sum.v[TAPS] += dp.sum;
}

/* x and dy of a chunk, on their way */
struct inputs {
  sequence x;
  packed<VEC, bytes_of(DTYPE(DY))> dy;
};

/* `by` from there */
template <bool ALIGNED, bool LAST> inline void load_inputs(const args &a, inputs &in, const place &at, int by) {
  const int t = at.t + by;
  load_packed<ALIGNED>(a, in.dy, at.dy + by * bytes_of(DTYPE(DY)), t, inside<LAST>(a, t));
  if (HAS(X)) load_sequence<ALIGNED, LAST>(a, in.x, at.x + by * X_BYTES, t);
}

/* A segment of a line: sequence b, its chunks, which end at time `to`; a thread's place in the last of them. A line that
 * is not even may end before its last segment: that has a chunk of nothing, so that what comes next is still asked for. */
struct segment {
  i64 b;
  int chunks, to;
  place last;
};

inline segment segment_of(const args &a, i64 d, i64 pair) {
  const i64 b = quotient(pair, SEGMENTS);
  const int chunk = 32 * VEC, from = (int)(pair - b * SEGMENTS) * (int)(STEPS * chunk);
  const int first = from - (ALIKE ? phase_of(a, b, d) : 0);
  const int some = min((int)STEPS, (SIZE - first + chunk - 1) / chunk);
  const int chunks = EVEN ? some : max(some, 1), to = first + chunks * chunk;
  segment s = {b, chunks, to, {0, AT(X) + OWN(X) * X_BYTES, AT(DY) + OWN(DY) * bytes_of(DTYPE(DY)),
                               AT(DX) + OWN(DX) * bytes_of(DTYPE(DX))}};
  s.last.move(to - chunk + (int)(threadIdx.x * (u32)VEC));
  return s;
}

/* A warp's next segment is asked for before the sums of this one: 2% faster in 16 bits on an H200, 2% slower in 32. */
enum { AHEAD = VEC > 4 };

/* From its end to its beginning, so that the dp after a chunk are known. `next` is the chunk to be taken: the one before
 * is asked for meanwhile, and at the beginning of the line the last one of pair `then` (-1: there is none). */
template <bool ALIGNED>
inline void walk_segment(const args &a, const filter &f, i64 d, const segment &s, i64 then, inputs &next, totals &sum) {
  const int chunk = 32 * VEC;
  place at = s.last;
  real carry[TAPS];
  if (!AHEAD) load_inputs<ALIGNED, true>(a, next, at, 0);
  const real after = HAS(DX) && (int)threadIdx.x + 1 < TAPS ? compute_dp(a, s.b, d, s.to + threadIdx.x) : (real)0;
  for (int i = 0; i < TAPS - 1; i++) carry[i] = __shfl_sync(ALL_LANES, after, i);
#pragma unroll 1
  for (int n = s.chunks; n > 0; n--, at.move(-chunk)) {
    const inputs in = next;
    window z;
    gradient dp;
    real dy[VEC];
    if (n > 1)
      load_inputs<ALIGNED, false>(a, next, at, -chunk);
    else if (AHEAD && then >= 0)
      load_inputs<ALIGNED, true>(a, next, segment_of(a, d, then).last, 0);
    if (HAS(X)) get_window(a, z, in.x, s.b, d, at.t);
    unpack(dy, in.dy, DTYPE(DY));
    get_dp(a, f, z, dy, dp, at, s.b, d);
    if (HAS(DX)) get_later(dp, carry);
    if (HAS(DX)) put_dx<ALIGNED>(a, f, dp, s.b, d, at.t, at.dx);
    if (!HAS(DW) && !HAS(DB)) continue;
    if (WHOLE || inside(a, at.t))
      add_totals<true>(a, sum, z, dp, at.t);
    else
      add_totals<false>(a, sum, z, dp, at.t);
  }
}

/* The segments of channel d that are this warp's: first, first + WALKERS, .. before end */
template <bool ALIGNED> inline void walk(const args &a, i64 d, i64 first, i64 end, long_sum (&sums)[TAPS + 1]) {
  filter f;
  inputs next;
  get_filter(a, f, d);
  if (AHEAD && first < end) load_inputs<ALIGNED, true>(a, next, segment_of(a, d, first).last, 0);
  for (i64 pair = first; pair < end; pair += WALKERS) {
    const i64 then = pair + WALKERS < end ? pair + WALKERS : -1;
    totals part;
    real mine = 0;
    for (int k = 0; k <= TAPS; k++) part.v[k] = 0;
    walk_segment<ALIGNED>(a, f, d, segment_of(a, d, pair), then, next, part);
#pragma unroll
    for (int k = 0; k <= TAPS && (HAS(DW) || HAS(DB)); k++) {
      const real total = warp_sum(part.v[k]);
      if ((int)threadIdx.x == k) mine = total;
    }
    if (threadIdx.x <= TAPS) sums[threadIdx.x].add(mine);
  }
}

/* blockIdx.x: the channel;  blockIdx.y: which of its segments, taken by WALKERS warps in turns */
KERNEL(conv1d_backward, 32 * WALKERS, COMPUTE_F64 ? 1 : 32 / WALKERS) {
  __shared__ long_sum sums[WALKERS][TAPS + 1];
  const i64 d = blockIdx.x, first = (i64)blockIdx.y * EACH, end = min(first + EACH, PAIRS);
  if (threadIdx.x <= TAPS) sums[threadIdx.y][threadIdx.x].clear();
  __syncwarp();
  if (VECTORS)
    walk<true>(a, d, first + threadIdx.y, end, sums[threadIdx.y]);
  else
    walk<false>(a, d, first + threadIdx.y, end, sums[threadIdx.y]);
  __syncthreads();
  if ((!HAS(DW) && !HAS(DB)) || threadIdx.y > 0 || threadIdx.x > TAPS) return;
  real total = 0;
  for (int warp = 0; warp < WALKERS; warp++) total += sums[warp][threadIdx.x].total;
  if (PARTS)
    ((real *)PARTIAL)[((i64)blockIdx.y * (TAPS + 1) + threadIdx.x) * CHANNELS + d] = total;
  else
    put_sum(a, d, threadIdx.x, total);
}
#endif
