/* conv1d on CUDA: what its texts share. points.cu, time.cu or channels.cu follows.
 *
 *   z = x0 ++ x;   p[t] = b + sum_k w[k] z[t + k];   y = p or silu(p)
 *   dp = dy or dy silu'(p);  dw[k] = sum dp[t] z[t + k];  db = sum dp;  dz[j] = sum_k w[k] dp[j - k] + dx_last[j - L]
 */
#define OFFSET(s, b, d, t) ((b) * BATCH_STRIDE(s) + (d) * CHANNEL_STRIDE(s) + (t) * TIME_STRIDE(s))
#define ALL_ON_WORDS       (ON_WORDS(X) && ON_WORDS(Y) && ON_WORDS(DX) && ON_WORDS(DY))
#define THREAD             ((i64)blockIdx.x * 256 + threadIdx.x)
#define FOR_POINTS(i, n)   for (i64 i = THREAD, end = n; i < end; i += (i64)gridDim.x * 256)

#if COMPUTE_F64
inline real silu(real p) { return m_gate(v_max(p, K(-1e30)), m_logit(p)); }
inline real silu_grad(real dy, real p) { return m_gate_grad(dy, p, m_logit(p)); }
enum { PLAIN = false };
inline real plain_silu_grad(real dy, real p) { return silu_grad(dy, p); }
#else
/* s = sigmoid(p) = 1 / (1 + e), e = 2^(-p log2(e)), by the GPU's own 2^x and 1/x: e is as uncertain as p, a sum, is.
 * s is 0 below p = -87. */
inline real e_of(real p) { return half_pow2(p * K(-1.4426950408889634)); }
inline real s_of(real e) { return half_rcp(K(1.0) + e); }
inline real silu(real p) { return v_max(p, K(-1e30)) * s_of(e_of(p)); }

/* dy silu' = dy (s + p s (1 - s)); 1 - s = e s keeps all digits, which 16-bit results (math_half.cu) do not ask for */
inline real slope(real dy, real p, real s, real e) {
#ifdef m_gate_grad
  return dy * (s + p * (s - s * s));
#else
  return dy * (s + p * (s * (e * s)));
#endif
}
inline real silu_grad(real dy, real p) { /* 0 exactly below -87, where e would not be a number for long */
  const real q = m_clamp(p, K(-87.0), K(1e30)), e = e_of(q);
  return slope(dy, q, p < K(-87.0) ? K(0.0) : s_of(e), e);
}
enum { PLAIN = true };
inline real plain_silu_grad(real dy, real p) { /* quicker, but NaN where p is infinite, and in f32 below -88 */
  const real e = e_of(p);
  return slope(dy, p, s_of(e), e);
}
#endif

/* ---- a point at a time ---- */
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

#if BACKWARD
/* Of channel d: dw[k], or db after the taps */
inline void put_sum(const args &a, i64 d, i64 k, real total) {
  if (k < TAPS && HAS(DW)) PUT(DW, OFFSET(DW, 0, d, k), total);
  if (k == TAPS && HAS(DB)) PUT(DB, d * CHANNEL_STRIDE(DB), total);
}
#else
/* A line at a time, upwards: x_last may lie over x0, whose later elements are still to be read. */
KERNEL(conv1d_x_last, 256) {
  FOR_POINTS(line, BATCHES * CHANNELS) {
    const i64 b = line / CHANNELS, d = line % CHANNELS;
    for (i64 i = 0; i < TAPS - 1; i++) PUT(X_LAST, OFFSET(X_LAST, b, d, i), z_at(a, b, d, LENGTH + i));
  }
}
#endif
