/* conv1d on CUDA.
 *
 *   z = x0 ++ x;   p[t] = b + sum_k w[k] z[t + k];   y = p or silu(p)
 *   dp = dy or dy silu'(p);  dw[k] = sum dp[t] z[t + k];  db = sum dp;  dz[j] = sum_k w[k] dp[j - k] + dx_last[j - L]
 *
 * BY_TIME, BY_CHANNEL: time or channels are dense and taps are few, so that a thread takes VEC neighbours in time, or
 * VEC channels for SPAN steps. Otherwise a thread computes a point at a time, and backward keeps dp in the workspace.*/
#define OFFSET(s, b, d, t) ((b) * BATCH_STRIDE(s) + (d) * CHANNEL_STRIDE(s) + (t) * TIME_STRIDE(s))
#define ALIGNED_LINES      (EVEN && ON_WORDS(X) && ON_WORDS(Y) && ON_WORDS(DX) && ON_WORDS(DY))
#define THREAD             ((i64)blockIdx.x * 256 + threadIdx.x)
#define FOR_POINTS(i, n)   for (i64 i = THREAD, end = n; i < end; i += (i64)gridDim.x * 256)

inline real silu(real p) { return m_gate(v_max(p, K(-1e30)), m_logit(p)); }
#ifdef m_gate_grad /* 16-bit results (math_half.cu): dy (s + p s (1 - s)), s = sigmoid(p), which is 0 below p = -88 */
inline real silu_grad(real dy, real p) {
  const real v = m_clamp(p, K(-1e30), K(1e30)), s = half_rcp(K(1.0) + half_pow2(p * K(-1.4426950408889634)));
  return dy * (s + v * (s - s * s));
}
#else
inline real silu_grad(real dy, real p) { return m_gate_grad(dy, p, m_logit(p)); }
#endif

/* ---- a point at a time -------------------------------------------------------------------------------------- */
struct point {
  i64 b, d, t;
};

/* Number i of (B, D, length), or of (B, length, D) */
inline point point_of(i64 i, i64 channels, i64 length, bool channel_inner) {
  const i64 inner = channel_inner ? channels : length, outer = channel_inner ? length : channels;
  const i64 rest = quotient(i, inner), low = i - rest * inner, b = quotient(rest, outer);
  const i64 high = rest - b * outer;
  const point p = {b, channel_inner ? low : high, channel_inner ? high : low};
  return p;
}
#define POINT(i, length) point_of(i, CHANNELS, length, CHANNEL_INNER != 0)

inline real z_at(const args &a, i64 b, i64 d, i64 j) {
  if (j >= TAPS - 1) return GET(X, OFFSET(X, b, d, j - (TAPS - 1)));
  return HAS(X0) ? GET(X0, OFFSET(X0, b, d, j)) : (real)0;
}

inline real p_at(const args &a, i64 b, i64 d, i64 t) {
  long_sum p;
  p.clear();
  if (HAS(B)) p.add(GET(B, d * CHANNEL_STRIDE(B)));
  for (i64 k = 0; k < TAPS; k++) p.add(GET(W, OFFSET(W, 0, d, k)) * z_at(a, b, d, t + k));
  return p.total;
}

/* 0 outside [0, L) */
inline real compute_dp(const args &a, i64 b, i64 d, i64 t) {
  if (t < 0 || t >= LENGTH) return 0;
  const real dy = GET(DY, OFFSET(DY, b, d, t));
  return SILU ? silu_grad(dy, p_at(a, b, d, t)) : dy;
}

#if !BACKWARD
/* A line at a time, upwards: x_last may lie over x0, whose later elements are still to be read. */
KERNEL(conv1d_x_last, 256) {
  FOR_POINTS(line, BATCHES * CHANNELS) {
    const i64 b = line / CHANNELS, d = line % CHANNELS;
    for (i64 i = 0; i < TAPS - 1; i++) PUT(X_LAST, OFFSET(X_LAST, b, d, i), z_at(a, b, d, LENGTH + i));
  }
}
#endif

#define BY_POINT (!BY_TIME && !BY_CHANNEL)
#if BY_POINT && !BACKWARD
KERNEL(conv1d_forward, 256) {
  FOR_POINTS(i, BATCHES * CHANNELS * LENGTH) {
    const point at = POINT(i, LENGTH);
    const real p = p_at(a, at.b, at.d, at.t);
    PUT(Y, OFFSET(Y, at.b, at.d, at.t), SILU ? silu(p) : p);
  }
}
#elif BY_POINT
KERNEL(conv1d_dp, 256) {
  FOR_POINTS(i, BATCHES * CHANNELS * LENGTH) {
    const point at = POINT(i, LENGTH);
    ((real *)DP)[i] = compute_dp(a, at.b, at.d, at.t);
  }
}

inline real dp_at(const args &a, i64 b, i64 d, i64 t) {
  if (t < 0 || t >= LENGTH) return 0;
  if (!SILU) return GET(DY, OFFSET(DY, b, d, t));
  return ((const real *)DP)[CHANNEL_INNER ? (b * LENGTH + t) * CHANNELS + d : (b * CHANNELS + d) * LENGTH + t];
}

KERNEL(conv1d_dz, 256) {
  FOR_POINTS(i, BATCHES * CHANNELS * (LENGTH + TAPS - 1)) {
    const point at = POINT(i, LENGTH + TAPS - 1);
    const bool before = at.t < TAPS - 1;
    if (before ? !HAS(DX0) : !HAS(DX)) continue;
    long_sum dz;
    dz.clear();
    for (i64 k = 0; k < TAPS; k++) dz.add(GET(W, OFFSET(W, 0, at.d, k)) * dp_at(a, at.b, at.d, at.t - k));
    if (HAS(DX_LAST) && at.t >= LENGTH) dz.add(GET(DX_LAST, OFFSET(DX_LAST, at.b, at.d, at.t - LENGTH)));
    if (before)
      PUT(DX0, OFFSET(DX0, at.b, at.d, at.t), dz.total);
    else
      PUT(DX, OFFSET(DX, at.b, at.d, at.t - (TAPS - 1)), dz.total);
  }
}

/* A block for each channel and tap; after the taps, db */
KERNEL(conv1d_sums, 256) {
  __shared__ real scratch[32];
  for (i64 i = blockIdx.x; i < CHANNELS * (TAPS + 1); i += gridDim.x) {
    const i64 d = i % CHANNELS, k = i / CHANNELS;
    if (k < TAPS ? !HAS(DW) : !HAS(DB)) continue;
    long_sum sum;
    sum.clear();
    for (i64 j = threadIdx.x; j < BATCHES * LENGTH; j += 256) {
      const i64 b = quotient(j, LENGTH), t = j - b * LENGTH;
      sum.add(dp_at(a, b, d, t) * (k < TAPS ? z_at(a, b, d, t + k) : (real)1));
    }
    const real total = group_sum<256>(sum.total, scratch);
    if (threadIdx.x == 0 && k < TAPS) PUT(DW, OFFSET(DW, 0, d, k), total);
    if (threadIdx.x == 0 && k == TAPS) PUT(DB, d * CHANNEL_STRIDE(DB), total);
  }
}
#endif

/* ---- VEC neighbours in time ---------------------------------------------------------------------------------- */
#if BY_TIME
#define PAST (TAPS > 1) /* vectors before a thread's own that it looks at: W - 1 <= VEC */

/* z at time t + i - (W - 1) of a thread's vector at t */
struct window {
  real v[PAST + 1][VEC];
  real at(int i) const { return v[(i + PAST * VEC - (TAPS - 1)) / VEC][(i + PAST * VEC - (TAPS - 1)) % VEC]; }
};

#define LEFT(t) (WHOLE ? ((t) < LENGTH ? VEC : 0) : LENGTH - (t)) /* of the line */

enum { X_BYTES = bytes_of(DTYPE(X)), BEFORE = ((TAPS > 1 ? TAPS - 1 : 1) * X_BYTES + 3) / 4 }; /* words */

/* A vector of x on its way. The words before it come from the lane before; lane 0 asks for them itself. */
struct sequence {
  packed<VEC, X_BYTES> now;
  u32 before[BEFORE];
};

/* The first `left` exist */
template <bool ALIGNED, int BYTES> inline void load_packed(packed<VEC, BYTES> &r, const char *at, i64 left) {
  if (left >= VEC) return load_words<ALIGNED>(r.w, at);
  for (int i = 0; i < VEC * BYTES / 2; i++) {
    const u32 half = i * 2 / BYTES < left ? ((const u16 *)at)[i] : 0;
    r.w[i / 2] = i % 2 ? r.w[i / 2] | half << 16 : half;
  }
}

template <bool ALIGNED> inline void load_sequence(const args &a, sequence &s, i64 b, i64 d, i64 t) {
  const char *at = AT(X) + (b * BATCH_STRIDE(X) + d * CHANNEL_STRIDE(X) + t) * X_BYTES;
  load_packed<ALIGNED>(s.now, at, LEFT(t));
  for (int i = 0; i < BEFORE; i++) s.before[i] = 0;
  if (PAST && threadIdx.x % 32 == 0 && t > 0 && t < LENGTH) load_words<ALIGNED>(s.before, at - 4 * BEFORE);
}

/* By all lanes of a warp, whose vectors follow each other */
inline void get_window(const args &a, window &z, const sequence &s, i64 b, i64 d, i64 t) {
  enum { WORDS = VEC * X_BYTES / 4, COUNT = 4 * BEFORE / X_BYTES };
  packed<COUNT, X_BYTES> past;
  real v[COUNT];
  unpack(z.v[PAST], s.now, DTYPE(X));
#pragma unroll
  for (int i = 0; i < BEFORE && PAST; i++) {
    const u32 other = __shfl_up_sync(ALL_LANES, s.now.w[WORDS - BEFORE + i], 1);
    past.w[i] = threadIdx.x % 32 ? other : s.before[i];
  }
  if (PAST) unpack(v, past, DTYPE(X));
#pragma unroll
  for (int i = 1; i < TAPS; i++) z.v[0][VEC - i] = v[COUNT - i];
  if (PAST && t <= 0)
    for (int i = VEC - (TAPS - 1); i < VEC; i++) z.v[0][i] = z_at(a, b, d, i - (VEC - (TAPS - 1)));
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
#endif

#if BY_TIME && !BACKWARD
/* threadIdx.x, blockIdx.y: time;  threadIdx.y, blockIdx.x: lines */
template <bool ALIGNED> inline void forward(const args &a) {
  const i64 line = (i64)blockIdx.x * blockDim.y + threadIdx.y, b = quotient(line, CHANNELS), d = line - b * CHANNELS;
  const i64 first = ((i64)blockIdx.y * UNROLL * blockDim.x + threadIdx.x) * VEC, step = (i64)blockDim.x * VEC;
  if (line >= BATCHES * CHANNELS) return;
  filter f;
  sequence x[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) load_sequence<ALIGNED>(a, x[u], b, d, first + u * step);
  get_filter(a, f, d);
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const i64 t = first + u * step;
    window z;
    real y[VEC];
    get_window(a, z, x[u], b, d, t);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const real p = p_of(f, z, i);
      y[i] = SILU ? silu(p) : p;
    }
    if (t < LENGTH)
      put_some<VEC, ALIGNED>(DTYPE(Y), false, AT(Y), b * BATCH_STRIDE(Y) + d * CHANNEL_STRIDE(Y) + t, y, LEFT(t));
  }
}
#elif BY_TIME
/* dp at a thread's vector, then the W - 1 after it */
struct gradient {
  real v[VEC + TAPS - 1];
};

/* The sums of a thread: dw, then db */
struct totals {
  real v[TAPS + 1];
};

inline void get_dp(const args &a, const filter &f, const window &z, const real (&dy)[VEC], gradient &dp, i64 t) {
#pragma unroll
  for (int i = 0; i < VEC; i++) dp.v[i] = SILU ? silu_grad(dy[i], p_of(f, z, i)) : dy[i];
  const i64 left = LEFT(t);
  for (int i = 0; i < VEC && left < VEC; i++)
    if (i >= left) dp.v[i] = 0; /* whatever p is there */
}

/* From the next lane; the last one's are those at the start of the chunk after this one, which become this one's. */
inline void get_later(gradient &dp, real (&carry)[TAPS]) {
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++) {
    const real next = __shfl_down_sync(ALL_LANES, dp.v[i], 1);
    dp.v[VEC + i] = threadIdx.x == 31 ? carry[i] : next;
    carry[i] = __shfl_sync(ALL_LANES, dp.v[i], 0);
  }
}

template <bool ALIGNED>
inline void put_dx(const args &a, const filter &f, const gradient &dp, i64 b, i64 d, i64 t) {
  real dx[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    dx[i] = 0;
#pragma unroll
    for (int k = 0; k < TAPS; k++) dx[i] += f.w[k] * dp.v[i + TAPS - 1 - k];
  }
  if (HAS(DX_LAST) && t + VEC + TAPS - 1 > LENGTH)
    for (int i = 0; i < VEC; i++) {
      const i64 j = t + i + TAPS - 1 - LENGTH;
      if (j >= 0 && t + i < LENGTH) dx[i] += GET(DX_LAST, OFFSET(DX_LAST, b, d, j));
    }
  const i64 line = b * BATCH_STRIDE(DX) + d * CHANNEL_STRIDE(DX);
  put_some<VEC, ALIGNED>(DTYPE(DX), ADDS(DX), AT(DX), line + t, dx, LEFT(t));
}

/* Of eight products first, so that errors do not add up along the line */
inline void add_totals(totals &sum, const window &z, const gradient &dp) {
#pragma unroll
  for (int k = 0; k <= TAPS; k++) {
    if (k < TAPS ? !HAS(DW) : !HAS(DB)) continue;
    real part = 0;
#pragma unroll
    for (int i = 0; i < VEC; i++) part += k < TAPS ? dp.v[i] * z.at(i + k) : dp.v[i];
    sum.v[k] += part;
  }
}

/* x and dy of a chunk, on their way */
struct inputs {
  sequence x;
  packed<VEC, bytes_of(DTYPE(DY))> dy;
};

template <bool ALIGNED> inline void load_inputs(const args &a, inputs &in, i64 b, i64 d, i64 t) {
  const i64 offset = b * BATCH_STRIDE(DY) + d * CHANNEL_STRIDE(DY) + t;
  load_packed<ALIGNED>(in.dy, AT(DY) + offset * bytes_of(DTYPE(DY)), LEFT(t));
  if (HAS(X)) load_sequence<ALIGNED>(a, in.x, b, d, t);
}

/* A segment of a line, from its end to its beginning, so that the dp after a chunk are known; the chunk before is asked
 * for meanwhile. */
template <bool ALIGNED> inline void walk_segment(const args &a, const filter &f, i64 b, i64 d, i64 from, totals &sum) {
  const i64 chunk = 32 * VEC, to = min(from + STEPS * chunk, (LENGTH + chunk - 1) / chunk * chunk);
  real carry[TAPS];
  inputs next;
  load_inputs<ALIGNED>(a, next, b, d, to - chunk + threadIdx.x * VEC);
  const real after = HAS(DX) && (int)threadIdx.x + 1 < TAPS ? compute_dp(a, b, d, to + threadIdx.x) : (real)0;
  for (int i = 0; i < TAPS - 1; i++) carry[i] = __shfl_sync(ALL_LANES, after, i);
  for (i64 t = to - chunk + threadIdx.x * VEC; t >= from; t -= chunk) {
    const inputs in = next;
    window z;
    gradient dp;
    real dy[VEC];
    if (t - chunk >= from) load_inputs<ALIGNED>(a, next, b, d, t - chunk);
    if (HAS(X)) get_window(a, z, in.x, b, d, t);
    unpack(dy, in.dy, DTYPE(DY));
    get_dp(a, f, z, dy, dp, t);
    if (HAS(DX)) get_later(dp, carry);
    if (HAS(DX) && t < LENGTH) put_dx<ALIGNED>(a, f, dp, b, d, t);
    if (HAS(DW) || HAS(DB)) add_totals(sum, z, dp);
  }
}

/* blockIdx.x: the channel;  blockIdx.y: which of its segments, a warp takes every eighth */
KERNEL(conv1d_backward, 256, COMPUTE_F64 ? 1 : 4) {
  __shared__ long_sum sums[8][TAPS + 1];
  const i64 d = blockIdx.x, first = (i64)blockIdx.y * EACH, end = min(first + EACH, PAIRS);
  filter f;
  get_filter(a, f, d);
  if (threadIdx.x <= TAPS) sums[threadIdx.y][threadIdx.x].clear();
  __syncthreads();
  for (i64 pair = first + threadIdx.y; pair < end; pair += 8) {
    const i64 b = quotient(pair, SEGMENTS);
    totals part;
    for (int k = 0; k <= TAPS; k++) part.v[k] = 0;
    if (ALIGNED_LINES)
      walk_segment<true>(a, f, b, d, (pair - b * SEGMENTS) * STEPS * 32 * VEC, part);
    else
      walk_segment<false>(a, f, b, d, (pair - b * SEGMENTS) * STEPS * 32 * VEC, part);
#pragma unroll
    for (int k = 0; k <= TAPS && (HAS(DW) || HAS(DB)); k++) {
      const real total = warp_sum(part.v[k]);
      if (threadIdx.x == 0) sums[threadIdx.y][k].add(total);
    }
  }
  __syncthreads();
  if ((!HAS(DW) && !HAS(DB)) || threadIdx.y > 0 || threadIdx.x > TAPS) return;
  real total = 0;
  for (int warp = 0; warp < 8; warp++) total += sums[warp][threadIdx.x].total;
  ((real *)PARTIAL)[((i64)blockIdx.y * (TAPS + 1) + threadIdx.x) * CHANNELS + d] = total;
}
#endif

/* ---- VEC channels, SPAN steps -------------------------------------------------------------------------------- */
#if BY_CHANNEL
#define FIRST_CHANNEL (((i64)blockIdx.x * 32 + threadIdx.x) * VEC)
#define PAIR          ((i64)blockIdx.y * 8 + threadIdx.y) /* of a batch and a span: b SPANS + s */

#define LEFT(d, t) ((t) >= LENGTH ? 0 : WHOLE ? VEC : CHANNELS - (d)) /* of the channels */

/* z at time t of channels d .. d + VEC - 1; 0 after the end */
template <bool ALIGNED> inline void get_z(const args &a, real (&r)[VEC], i64 b, i64 d, i64 t) {
  const i64 offset = b * BATCH_STRIDE(X) + t * TIME_STRIDE(X) + d;
  if (t >= 0) return load_some<VEC, ALIGNED>(r, DTYPE(X), AT(X), offset, LEFT(d, t));
  for (int i = 0; i < VEC; i++) r[i] = d + i < CHANNELS ? z_at(a, b, d + i, t + TAPS - 1) : (real)0;
}

struct filters {
  real w[TAPS][VEC], bias[VEC];
};

inline void get_filters(const args &a, filters &f, i64 d) {
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    const i64 channel = min(d + i, CHANNELS - 1);
    f.bias[i] = HAS(B) ? GET(B, channel * CHANNEL_STRIDE(B)) : (real)0;
    for (int k = 0; k < TAPS; k++) f.w[k][i] = HAS(W) ? GET(W, OFFSET(W, 0, channel, k)) : (real)0;
  }
}

/* The rows of z that STEPS outputs need */
struct rows {
  real v[TAPS - 1 + STEPS][VEC];
};

inline void shift(rows &r) {
#pragma unroll
  for (int k = 0; k < TAPS - 1; k++)
    for (int i = 0; i < VEC; i++) r.v[k][i] = r.v[k + STEPS][i];
}

inline real p_of(const filters &f, const rows &z, int step, int i) {
  real p = f.bias[i];
#pragma unroll
  for (int k = 0; k < TAPS; k++) p += f.w[k][i] * z.v[step + k][i];
  return p;
}
#endif

#if BY_CHANNEL && !BACKWARD
template <bool ALIGNED> inline void forward(const args &a) {
  const i64 d = FIRST_CHANNEL, b = quotient(PAIR, SPANS), from = (PAIR - b * SPANS) * SPAN;
  if (d >= CHANNELS || b >= BATCHES) return;
  filters f;
  rows z;
  get_filters(a, f, d);
  for (int k = 0; k < TAPS - 1; k++) get_z<ALIGNED>(a, z.v[k], b, d, from + k - (TAPS - 1));
  for (i64 t = from; t < min(from + SPAN, LENGTH); t += STEPS) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) get_z<ALIGNED>(a, z.v[TAPS - 1 + s], b, d, t + s);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      real y[VEC];
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        const real p = p_of(f, z, s, i);
        y[i] = SILU ? silu(p) : p;
      }
      const i64 offset = b * BATCH_STRIDE(Y) + (t + s) * TIME_STRIDE(Y) + d;
      if (t + s < LENGTH) put_some<VEC, ALIGNED>(DTYPE(Y), false, AT(Y), offset, y, LEFT(d, t + s));
    }
    shift(z);
  }
}
#elif BY_CHANNEL
/* dy at t, where its dp will be */
template <bool ALIGNED> inline void get_dy(const args &a, rows &dp, i64 b, i64 d, i64 t, int step) {
  const i64 offset = b * BATCH_STRIDE(DY) + t * TIME_STRIDE(DY) + d;
  load_some<VEC, ALIGNED>(dp.v[TAPS - 1 + step], DTYPE(DY), AT(DY), offset, LEFT(d, t));
}

inline void get_dp(const filters &f, const rows &z, rows &dp, bool there, int step) {
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    real &v = dp.v[TAPS - 1 + step][i];
    if (SILU) v = there ? silu_grad(v, p_of(f, z, step, i)) : (real)0;
  }
}

/* dx at t, where row `step` of dp is that of t and the W - 1 after it follow */
template <bool ALIGNED>
inline void put_dx(const args &a, const filters &f, const rows &dp, i64 b, i64 d, i64 t, int step) {
  real dx[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    dx[i] = 0;
#pragma unroll
    for (int k = 0; k < TAPS; k++) dx[i] += f.w[k][i] * dp.v[step + TAPS - 1 - k][i];
  }
  const i64 j = t + TAPS - 1 - LENGTH;
  if (HAS(DX_LAST) && j >= 0)
    for (int i = 0; i < VEC; i++)
      if (d + i < CHANNELS) dx[i] += GET(DX_LAST, OFFSET(DX_LAST, b, d + i, j));
  const i64 offset = b * BATCH_STRIDE(DX) + t * TIME_STRIDE(DX) + d;
  put_some<VEC, ALIGNED>(DTYPE(DX), ADDS(DX), AT(DX), offset, dx, LEFT(d, t));
}

/* The sums of a thread: dw, then db. */
struct totals {
  real v[TAPS + 1][VEC];
};

inline void add_totals(totals &sum, const rows &z, const rows &dp, int step) {
#pragma unroll
  for (int k = 0; k <= TAPS; k++)
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const real g = dp.v[TAPS - 1 + step][i];
      if (k < TAPS ? HAS(DW) : HAS(DB)) sum.v[k][i] += k < TAPS ? g * z.v[step + k][i] : g;
    }
}

/* Steps on to W - 1 beyond the span, whose dp its last dx need */
template <bool ALIGNED> inline void walk_span(const args &a, i64 b, i64 d, i64 from, totals &sum) {
  filters f;
  rows z, dp;
  const i64 to = min(from + SPAN, LENGTH);
  get_filters(a, f, d);
  for (int k = 0; k < TAPS - 1; k++) {
    if (HAS(X)) get_z<ALIGNED>(a, z.v[k], b, d, from + k - (TAPS - 1));
    for (int i = 0; i < VEC; i++) dp.v[k][i] = 0;
  }
  for (i64 t = from; t < to + (HAS(DX) ? TAPS - 1 : 0); t += STEPS) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      if (HAS(X)) get_z<ALIGNED>(a, z.v[TAPS - 1 + s], b, d, t + s);
      get_dy<ALIGNED>(a, dp, b, d, t + s, s);
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      const i64 out = t + s - (TAPS - 1);
      get_dp(f, z, dp, t + s < LENGTH, s);
      if ((HAS(DW) || HAS(DB)) && t + s < to) add_totals(sum, z, dp, s);
      if (HAS(DX) && out >= from && out < to) put_dx<ALIGNED>(a, f, dp, b, d, out, s);
    }
    if (HAS(X)) shift(z);
    shift(dp);
  }
}

KERNEL(conv1d_backward, 256) {
  __shared__ real shared[8][32 * VEC];
  const i64 d = FIRST_CHANNEL, b = quotient(PAIR, SPANS), from = (PAIR - b * SPANS) * SPAN;
  totals sum;
  for (int k = 0; k <= TAPS; k++)
    for (int i = 0; i < VEC; i++) sum.v[k][i] = 0;
  if (d < CHANNELS && b < BATCHES && ALIGNED_LINES)
    walk_span<true>(a, b, d, from, sum);
  else if (d < CHANNELS && b < BATCHES)
    walk_span<false>(a, b, d, from, sum);
  if (!HAS(DW) && !HAS(DB)) return;
#pragma unroll
  for (int k = 0; k <= TAPS; k++) {
    for (int i = 0; i < VEC; i++) shared[threadIdx.y][threadIdx.x * VEC + i] = sum.v[k][i];
    __syncthreads();
    for (int c = threadIdx.y * 32 + threadIdx.x; c < 32 * VEC; c += 256) {
      const i64 channel = (i64)blockIdx.x * 32 * VEC + c;
      real total = 0;
      for (int y = 0; y < 8; y++) total += shared[y][c];
      if (channel < CHANNELS) ((real *)PARTIAL)[((i64)blockIdx.y * (TAPS + 1) + k) * CHANNELS + channel] = total;
    }
    __syncthreads();
  }
}
#endif

#if !BY_POINT && !BACKWARD
KERNEL(conv1d_forward, 256) {
  if (ALIGNED_LINES)
    forward<true>(a);
  else
    forward<false>(a);
}
#endif

/* ---- what the blocks leave ----------------------------------------------------------------------------------- */
#if BACKWARD && !BY_POINT
/* PARTIAL is (PARTS, W + 1, D) */
KERNEL(conv1d_sums, 256) {
  FOR_POINTS(i, CHANNELS * (TAPS + 1)) {
    const i64 k = i / CHANNELS, d = i - k * CHANNELS;
    long_sum sum;
    sum.clear();
    for (i64 part = 0; part < PARTS; part++) sum.add(((const real *)PARTIAL)[part * (TAPS + 1) * CHANNELS + i]);
    if (k < TAPS && HAS(DW)) PUT(DW, OFFSET(DW, 0, d, k), sum.total);
    if (k == TAPS && HAS(DB)) PUT(DB, d * CHANNEL_STRIDE(DB), sum.total);
  }
}

KERNEL(conv1d_dx0, 256) {
  FOR_POINTS(i, BATCHES * CHANNELS * (TAPS - 1)) {
    const point at = point_of(i, CHANNELS, TAPS - 1, false);
    real dz = 0;
    for (i64 k = 0; k < TAPS; k++) dz += GET(W, OFFSET(W, 0, at.d, k)) * compute_dp(a, at.b, at.d, at.t - k);
    if (HAS(DX_LAST) && at.t >= LENGTH) dz += GET(DX_LAST, OFFSET(DX_LAST, at.b, at.d, at.t - LENGTH));
    PUT(DX0, OFFSET(DX0, at.b, at.d, at.t), dz);
  }
}
#endif
