/* rmsnorm on CUDA: a group of threads takes a row and keeps it in registers, so that memory sees each value once.
 *
 *   forward   r from sum s^2;  y = s r (w + offset)
 *   backward  r from sum s^2, and sum g s;  ds = r g - s r^3 mean(g s) + dsum;  dw += dy s r
 *
 * dw: a group of threads adds up a run of its rows in registers, a second kernel the runs, always in the same order. */

/* w + offset, or 1 */
inline void get_weight(real (&r)[VEC], const line &w, real offset, nth column, nth cols) {
  if (w.at) get_line(r, w, column, cols);
  for (int k = 0; k < VEC; k++) r[k] = w.at ? r[k] + offset : (real)1;
}

#if !BACKWARD
/* y = s r (w + offset), and s itself, at a thread's chunk */
inline void put_y(const args &a, i64 row, nth column, real (&s)[VEC], real (&weight)[VEC], real r) {
  for (int k = 0; k < VEC; k++) weight[k] *= CAST ? rounded(DTYPE(X), s[k] * r) : s[k] * r;
  put_line(LINE(SUM, row), column, s, COLS);
  put_line(LINE(Y, row), column, weight, COLS);
}

inline real row_rstd(const args &a, i64 row, real squares, real (&room)[2][1][32], int &turn) {
  real v[1] = {squares};
  group_sums<GROUP>(v, room, turn);
  const real r = rstd(v[0], COLS, EPS);
  if (HAS(RSTD) && threadIdx.x == 0) PUT(RSTD, ROW_OFFSET(RSTD, row), r);
  return r;
}

#if QUEUED
KERNEL(rmsnorm_forward, THREADS, RESIDENT) {
  __shared__ real room[2][1][32];
  DYNAMIC_SHARED(memory);
  int turn = 0, stage = 0;
  RAW(W) w[KEPT];
  ask_first_rows(a, memory);
#pragma unroll
  for (int j = 0; j < CHUNKS && HAS(W); j++) load_raw(w[j], VECTOR(W), MY_COLUMN(j), COLS);
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP, stage = (stage + 1) % STAGES) {
    real s[KEPT][VEC], weight[VEC], squares = 0;
    await_row();
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) take_s(a, memory, stage, j, s[j]);
    ask_row(a, memory, stage, row + STAGES * ROW_STEP);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
      for (int k = 0; k < VEC; k++) squares += s[j][k] * s[j][k];
    const real r = row_rstd(a, row, squares, room, turn);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      if (HAS(W)) unpack(weight, w[j], DTYPE(W));
      for (int k = 0; k < VEC; k++) weight[k] = HAS(W) ? weight[k] + OFFSET : (real)1;
      put_y(a, row, MY_COLUMN(j), s[j], weight, r);
    }
  }
}
#elif KEEP
KERNEL(rmsnorm_forward, GROUP * GROUPS, RESIDENT) {
  __shared__ real room[2][1][32];
  int turn = 0;
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    held s[KEPT];
    RAW(W) w[KEPT];
    real v[VEC], weight[VEC], squares = 0;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      s[j].load(a, row, COLUMN(row, j));
      if (HAS(W)) load_raw(w[j], VECTOR(W), COLUMN(row, j), COLS); /* under way while the row is summed */
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      s[j].get(a, v);
      for (int k = 0; k < VEC; k++) squares += v[k] * v[k];
    }
    const real r = row_rstd(a, row, squares, room, turn);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      s[j].get(a, v);
      if (HAS(W)) unpack(weight, w[j], DTYPE(W));
      for (int k = 0; k < VEC; k++) weight[k] = HAS(W) ? weight[k] + OFFSET : (real)1;
      put_y(a, row, COLUMN(row, j), v, weight, r);
    }
  }
}
#else
KERNEL(rmsnorm_forward, GROUP * GROUPS) {
  __shared__ real room[2][1][32];
  int turn = 0;
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    real s[VEC], weight[VEC];
    long_sum squares;
    squares.clear();
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(s, COLUMN(row, j), COLS);
      for (int k = 0; k < VEC; k++) squares.add(s[k] * s[k]);
    }
    const real r = row_rstd(a, row, squares.total, room, turn);
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(s, COLUMN(row, j), COLS);
      get_weight(weight, VECTOR(W), OFFSET, COLUMN(row, j), COLS);
      put_y(a, row, COLUMN(row, j), s, weight, r);
    }
  }
}
#endif
#else
/* ds of one row, given r and pull = r^3 mean(g s), at a thread's chunk */
inline void put_ds(const args &a, i64 row, nth column, const real (&s)[VEC], const real (&g)[VEC], real r, real pull) {
  real ds[VEC];
  for (int k = 0; k < VEC; k++) ds[k] = g[k] * r - s[k] * pull;
  put_gradient(a, row, column, ds);
}

/* r of the row, and pull; v: a thread's sums of s^2 and g s; saved: what forward left of r */
inline real row_sums(const args &a, real saved, real (&v)[2], real (&room)[2][2][32], int &turn, real *pull) {
  real one[1] = {v[1]};
  if (!HAS(RSTD)) group_sums<GROUP>(v, room, turn);
  if (HAS(RSTD) && WANTS_DS) group_sums<GROUP>(one, room, turn);
  const real r = HAS(RSTD) ? saved : rstd(v[0], COLS, EPS);
  if (HAS(RSTD)) v[1] = one[0];
  *pull = r * (r * (r * (v[1] * (1 / (real)COLS)))); /* r^3 might overflow */
  return r;
}

#if KEEP
KERNEL(rmsnorm_backward, GROUP * GROUPS, RESIDENT) {
  __shared__ real room[2][2][32];
  ROW_QUEUE(memory);
  int turn = 0;
  real w[KEPT][VEC];
  incoming in;
  in.start(a, memory);
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) get_weight(w[j], VECTOR(W), OFFSET, MY_COLUMN(j), COLS);
  i64 row = FIRST_ROW;
  for (i64 part = FIRST_ROW; part < PARTS; part += ROW_STEP) {
    real dw[KEPT][VEC] = {};
    for (int i = 0; i < RUN && row < ROWS; i++, row += ROW_STEP) {
      real s[KEPT][VEC], d[KEPT][VEC], v[2] = {0, 0}, pull;
      const saved here = in.take(a, row, s, d);
#pragma unroll
      for (int j = 0; j < CHUNKS; j++) {
        if (TWICE) in.take_chunk(a, j, s[j], d[j]);
        for (int k = 0; k < VEC; k++) v[0] += s[j][k] * s[j][k], v[1] += s[j][k] * (d[j][k] * w[j][k]);
      }
      const real r = row_sums(a, here.rstd, v, room, turn, &pull);
#pragma unroll
      for (int j = 0; j < CHUNKS; j++) {
        real g[VEC];
        if (TWICE) in.take_chunk(a, j, s[j], d[j]);
        for (int k = 0; k < VEC; k++) {
          if (HAS(DW)) dw[j][k] += d[j][k] * (s[j][k] * r);
          g[k] = d[j][k] * w[j][k];
        }
        if (WANTS_DS) put_ds(a, row, MY_COLUMN(j), s[j], g, r, pull);
      }
      in.done(a, row);
    }
    if (HAS(DW)) put_partial((real *)PARTIAL, part, dw);
  }
}
#else /* long rows: first r and pull of every row, then dw, then ds, which may overwrite dy */
KERNEL(rmsnorm_sums, GROUP * GROUPS) {
  __shared__ real room[2][2][32];
  int turn = 0;
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    real s[VEC], d[VEC], weight[VEC], pull;
    long_sum squares, products;
    squares.clear(), products.clear();
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(s, COLUMN(row, j), COLS);
      get_line(d, dy, COLUMN(row, j), COLS);
      get_weight(weight, w, OFFSET, COLUMN(row, j), COLS);
      for (int k = 0; k < VEC; k++) squares.add(s[k] * s[k]), products.add(s[k] * (d[k] * weight[k]));
    }
    real v[2] = {squares.total, products.total};
    const real saved = HAS(RSTD) ? GET(RSTD, ROW_OFFSET(RSTD, row)) : 0;
    const real r = row_sums(a, saved, v, room, turn, &pull);
    if (threadIdx.x == 0) ((real *)ROW_SUMS)[2 * row] = r, ((real *)ROW_SUMS)[2 * row + 1] = pull;
  }
}

/* part blockIdx.y of the rows, 256 columns to a block */
KERNEL(rmsnorm_partial, 256) {
  const i64 c = (i64)blockIdx.x * 256 + threadIdx.x;
  long_sum dw;
  dw.clear();
  for (i64 row = blockIdx.y; c < COLS && row < ROWS; row += gridDim.y) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    real s = load(from.x.dtype, from.x.at, c * from.x.step);
    if (from.residual.at) s += load(from.residual.dtype, from.residual.at, c * from.residual.step);
    dw.add(load(dy.dtype, dy.at, c * dy.step) * (s * ((const real *)ROW_SUMS)[2 * row]));
  }
  if (c < COLS) ((real *)PARTIAL)[(i64)blockIdx.y * COLS + c] = dw.total;
}

KERNEL(rmsnorm_backward, GROUP * GROUPS) {
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    const real r = ((const real *)ROW_SUMS)[2 * row], pull = ((const real *)ROW_SUMS)[2 * row + 1];
    for (i64 j = 0; j < CHUNKS; j++) {
      real s[VEC], d[VEC], weight[VEC];
      from.get(s, COLUMN(row, j), COLS);
      get_line(d, dy, COLUMN(row, j), COLS);
      get_weight(weight, w, OFFSET, COLUMN(row, j), COLS);
      for (int k = 0; k < VEC; k++) weight[k] *= d[k];
      put_ds(a, row, COLUMN(row, j), s, weight, r, pull);
    }
  }
}
#endif

KERNEL(rmsnorm_dw, 1024) { sum_parts((const real *)PARTIAL, PARTIAL_PLACES, PARTS, VECTOR(DW), COLS); }
#endif
