/* sums.cu -- what the blocks of time.cu and channels.cu leave: their parts of dw and db, and dx0. */
/* PARTIAL is (PARTS, W + 1, D) */
KERNEL(conv1d_sums, 256) {
  FOR_POINTS(i, CHANNELS * (TAPS + 1)) {
    const i64 k = i / CHANNELS, d = i - k * CHANNELS;
    long_sum sum;
    sum.clear();
    for (i64 part = 0; part < PARTS; part++) sum.add(((const real *)PARTIAL)[part * (TAPS + 1) * CHANNELS + i]);
    put_sum(a, d, k, sum.total);
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
