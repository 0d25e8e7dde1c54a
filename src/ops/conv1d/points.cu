/* points.cu -- conv1d a point at a time: any strides, any number of taps. Backward keeps dp in the workspace. */
#if !BACKWARD
KERNEL(conv1d_forward, 256) {
  FOR_POINTS(i, BATCHES * CHANNELS * LENGTH) {
    const point at = POINT(i, LENGTH);
    const real p = p_at(a, at.b, at.d, at.t);
    PUT(Y, OFFSET(Y, at.b, at.d, at.t), SILU ? silu(p) : p);
  }
}
#else
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
    if (threadIdx.x == 0) put_sum(a, d, k, total);
  }
}
#endif
