/* channels.cu -- conv1d where channels are dense: a thread takes VEC of them for SPAN steps. */
#define ALIGNED_LINES (EVEN && ALL_ON_WORDS)
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

#if !BACKWARD
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

KERNEL(conv1d_forward, 256) {
  if (ALIGNED_LINES)
    forward<true>(a);
  else
    forward<false>(a);
}
#else
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
