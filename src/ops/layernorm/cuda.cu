/* layernorm on CUDA: a group of threads takes a row and keeps it in registers, so that memory sees each value once.
 *
 *   forward   m from sum s;  r from sum c^2, c = s - m;  y = c r w + b
 *   backward  m from sum s;  r from sum c^2, and with g = dy w also sum g, sum g c
 *             ds = r g - r mean(g) - c r (r^2 mean(g c)) + dsum;   dw += dy c r;   db += dy
 *
 * dw, db: a group of threads adds up a run of its rows in registers, a second kernel the runs, always in the same order.
 * The variance is that of the centred row: no difference of large squares. */

/* w or b: `otherwise` where it is absent */
inline void get_vector(real (&v)[VEC], const line &from, real otherwise, nth column, nth cols) {
  if (from.at) return get_line(v, from, column, cols);
  for (int k = 0; k < VEC; k++) v[k] = otherwise;
}

/* c = s - m */
inline void subtract(real (&s)[VEC], real m) {
  for (int k = 0; k < VEC; k++) s[k] -= m;
}

/* Zeros outside the row */
inline void mask(real (&c)[VEC], nth column, nth cols) {
  if (all_inside(column, cols)) return;
  for (int k = 0; k < VEC; k++) c[k] = inside(column + k, cols) ? c[k] : (real)0;
}

inline void centre(real (&s)[VEC], real m, nth column, nth cols) {
  subtract(s, m);
  mask(s, column, cols);
}

inline real dot(const real (&x)[VEC], const real (&y)[VEC]) {
  real sum = 0;
  for (int k = 0; k < VEC; k++) sum += x[k] * y[k];
  return sum;
}

inline real total(const real (&x)[VEC]) {
  real sum = 0;
  for (int k = 0; k < VEC; k++) sum += x[k];
  return sum;
}

#if !BACKWARD
inline real row_sum(real sum, real (&room)[2][1][32], int &turn) {
  real v[1] = {sum};
  group_sums<GROUP>(v, room, turn);
  return v[0];
}

inline void put_statistics(const args &a, i64 row, real m, real r) {
  if (HAS(MEAN) && threadIdx.x == 0) PUT(MEAN, ROW_OFFSET(MEAN, row), m);
  if (HAS(RSTD) && threadIdx.x == 0) PUT(RSTD, ROW_OFFSET(RSTD, row), r);
}

#if KEEP
struct statistics {
  real m, r;
};

/* y = (s - m) r w + b, at a thread's chunk */
inline void put_y(const args &a, i64 row, nth column, real (&s)[VEC], statistics of, const RAW(W) &w, const RAW(B) &b) {
  real weight[VEC], bias[VEC];
  if (HAS(W)) unpack(weight, w, DTYPE(W));
  if (HAS(B)) unpack(bias, b, DTYPE(B));
  for (int k = 0; k < VEC; k++) {
    const real c = (s[k] - of.m) * of.r;
    s[k] = c * (HAS(W) ? weight[k] : (real)1) + (HAS(B) ? bias[k] : (real)0);
  }
  put_line(LINE(Y, row), column, s, COLS);
}
#endif

#if QUEUED
KERNEL(layernorm_forward, THREADS, RESIDENT) {
  __shared__ real room[2][1][32];
  DYNAMIC_SHARED(memory);
  int turn = 0, stage = 0;
  RAW(W) w[KEPT];
  RAW(B) b[KEPT];
  ask_first_rows(a, memory);
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    if (HAS(W)) load_raw(w[j], VECTOR(W), MY_COLUMN(j), COLS);
    if (HAS(B)) load_raw(b[j], VECTOR(B), MY_COLUMN(j), COLS);
  }
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP, stage = (stage + 1) % STAGES) {
    real s[KEPT][VEC], sum = 0, squares = 0;
    await_row();
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) take_s(a, memory, stage, j, s[j]);
    ask_row(a, memory, stage, row + STAGES * ROW_STEP);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) sum += total(s[j]);
    const real m = row_sum(sum, room, turn) / (real)COLS;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      put_line(LINE(SUM, row), MY_COLUMN(j), s[j], COLS);
      centre(s[j], m, MY_COLUMN(j), COLS);
      squares += dot(s[j], s[j]);
    }
    const real r = rstd(row_sum(squares, room, turn), COLS, EPS);
    put_statistics(a, row, m, r);
    const statistics of = {0, r};
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) put_y(a, row, MY_COLUMN(j), s[j], of, w[j], b[j]);
  }
}
#elif KEEP
/* A warp finds the mean of its own values and their squares about it; then warps exchange both: one barrier, where m
 * first and c^2 second would take two. */
inline real squares_about(real m, const real (&s)[VEC], nth column, nth cols) {
  const bool whole = all_inside(column, cols);
  real sum = 0;
  for (int k = 0; k < VEC; k++) {
    const real c = whole || inside(column + k, cols) ? s[k] - m : (real)0;
    sum += c * c;
  }
  return sum;
}

/* How many of the row's values a warp has */
inline int values_of(const args &a, i64 row, int warp, int cols) {
  int n = 0;
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    const int first = (j * (int)GROUP + warp * 32) * (int)VEC - PHASE(row), last = first + 32 * (int)VEC;
    n += max(min(last, cols) - max(first, 0), 0);
  }
  return EXACT ? CHUNKS * 32 * (int)VEC : n;
}

/* m and r of a row whose warps know the mean and the squares of their own n: sum c^2 is the sum over warps of squares
 * about their mean, and of n (mean - m)^2. */
inline statistics merge_warps(const args &a, i64 row, real mean, real squares, real (&room)[2][2][32], int &turn) {
  constexpr int WARPS = GROUP / 32;
  const int lane = (int)threadIdx.x % WARPS;
  statistics s = {mean, 0};
  if (WARPS > 1) {
    turn ^= 1;
    if (threadIdx.x % 32 == 0) room[turn][0][threadIdx.x / 32] = mean, room[turn][1][threadIdx.x / 32] = squares;
    __syncthreads();
    const real n = (real)values_of(a, row, lane, COLS);
    mean = room[turn][0][lane];
    s.m = lanes_sum<WARPS>(n * mean) / (real)COLS;
    squares = lanes_sum<WARPS>(room[turn][1][lane] + n * (mean - s.m) * (mean - s.m));
  }
  s.r = rstd(squares, COLS, EPS);
  put_statistics(a, row, s.m, s.r);
  return s;
}

/* of a warp's n values, from a thread's sum of them */
inline real mean_of_warp(const args &a, i64 row, real sum) {
  const int n = values_of(a, row, (int)threadIdx.x / 32, COLS);
  sum = warp_sum(sum);
  return n ? sum / (real)n : (real)0;
}

KERNEL(layernorm_forward, GROUP * GROUPS, RESIDENT) {
  __shared__ real room[2][2][32];
  int turn = 0;
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    held s[KEPT];
    real v[VEC], sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) s[j].load(a, row, MY_COLUMN(j));
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      s[j].get(a, v);
      sum += total(v);
    }
    const real mean = mean_of_warp(a, row, sum);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      s[j].get(a, v);
      squares += squares_about(mean, v, MY_COLUMN(j), COLS);
    }
    const statistics of = merge_warps(a, row, mean, warp_sum(squares), room, turn);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      RAW(W) w;
      RAW(B) b;
      if (HAS(W)) load_raw(w, VECTOR(W), MY_COLUMN(j), COLS); /* near, and registers are better used for more rows */
      if (HAS(B)) load_raw(b, VECTOR(B), MY_COLUMN(j), COLS);
      s[j].get(a, v);
      put_line(LINE(SUM, row), MY_COLUMN(j), v, COLS);
      put_y(a, row, MY_COLUMN(j), v, of, w, b);
    }
  }
}
#else
KERNEL(layernorm_forward, GROUP * GROUPS) {
  __shared__ real room[2][1][32];
  int turn = 0;
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    real c[VEC], w[VEC], b[VEC];
    long_sum values, squares;
    values.clear(), squares.clear();
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(c, COLUMN(row, j), COLS);
      values.add(total(c));
    }
    const real m = row_sum(values.total, room, turn) / (real)COLS;
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(c, COLUMN(row, j), COLS);
      centre(c, m, COLUMN(row, j), COLS);
      squares.add(dot(c, c));
    }
    const real r = rstd(row_sum(squares.total, room, turn), COLS, EPS);
    put_statistics(a, row, m, r);
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(c, COLUMN(row, j), COLS);
      get_vector(w, VECTOR(W), 1, COLUMN(row, j), COLS);
      get_vector(b, VECTOR(B), 0, COLUMN(row, j), COLS);
      put_line(LINE(SUM, row), COLUMN(row, j), c, COLS);
      for (int k = 0; k < VEC; k++) c[k] = (c[k] - m) * r * w[k] + b[k];
      put_line(LINE(Y, row), COLUMN(row, j), c, COLS);
    }
  }
}
#endif
#else
/* What ds needs of a row: shift = r mean(g), pull = r^2 mean(g c). */
struct factors {
  real m, r, shift, pull;
};

inline real mean_of(const args &a, real saved, real sum, real (&room)[2][3][32], int &turn) {
  real v[1] = {sum};
  if (HAS(MEAN)) return saved;
  group_sums<GROUP>(v, room, turn);
  return v[0] / (real)COLS;
}

/* v: a thread's sums of g, g c and c^2; saved: what forward left of r */
inline factors factors_of(const args &a, real saved, real m, real (&v)[3], real (&room)[2][3][32], int &turn) {
  const real over = 1 / (real)COLS;
  factors f = {m, 0, 0, 0};
  real two[2] = {v[0], v[1]};
  if (!HAS(RSTD)) group_sums<GROUP>(v, room, turn);
  if (HAS(RSTD) && WANTS_DS) {
    group_sums<GROUP>(two, room, turn);
    v[0] = two[0], v[1] = two[1];
  }
  f.r = HAS(RSTD) ? saved : rstd(v[2], COLS, EPS);
  f.shift = f.r * (v[0] * over);
  f.pull = f.r * (f.r * (v[1] * over));
  return f;
}

/* ds = r g - shift - c r pull + dsum, at a thread's chunk */
inline void put_ds(const args &a, i64 row, nth column, const real (&g)[VEC], const real (&c)[VEC], factors f) {
  real ds[VEC];
  for (int k = 0; k < VEC; k++) ds[k] = (g[k] * f.r - f.shift) - (c[k] * f.r) * f.pull;
  put_gradient(a, row, column, ds);
}

#if KEEP
/* g = dy w of a thread's chunk */
inline void get_g(const args &a, real (&g)[VEC], const real (&d)[VEC], const RAW(W) &w) {
  if (HAS(W)) unpack(g, w, DTYPE(W));
  for (int k = 0; k < VEC; k++) g[k] = HAS(W) ? g[k] * d[k] : d[k];
}

/* s becomes c */
inline factors row_factors(const args &a, incoming &in, saved here, real (&s)[KEPT][VEC], real (&d)[KEPT][VEC],
                           const RAW(W) (&w)[KEPT], real (&room)[2][3][32], int &turn) {
  real sum = 0, v[3] = {0, 0, 0};
  factors none = {0, 0, 0, 0};
  if (!READS_S) return none;
#pragma unroll
  for (int j = 0; j < CHUNKS && !HAS(MEAN); j++) {
    if (TWICE) in.take_chunk(a, j, s[j], d[j]);
    sum += total(s[j]);
  }
  const real m = mean_of(a, here.mean, sum, room, turn);
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    real g[VEC];
    if (TWICE) in.take_chunk(a, j, s[j], d[j]);
    subtract(s[j], m);
    if (!HAS(RSTD)) mask(s[j], MY_COLUMN(j), COLS); /* where only g c is summed, g is 0 outside */
    get_g(a, g, d[j], w[j]);
    v[0] += total(g), v[1] += dot(g, s[j]), v[2] += dot(s[j], s[j]);
  }
  return factors_of(a, here.rstd, m, v, room, turn);
}

KERNEL(layernorm_backward, GROUP * GROUPS, RESIDENT) {
  __shared__ real room[2][3][32];
  ROW_QUEUE(memory);
  int turn = 0;
  RAW(W) w[KEPT];
  incoming in;
  in.start(a, memory);
#pragma unroll
  for (int j = 0; j < CHUNKS && HAS(W); j++) load_raw(w[j], VECTOR(W), MY_COLUMN(j), COLS);
  i64 row = FIRST_ROW;
  for (i64 part = FIRST_ROW; part < PARTS; part += ROW_STEP) {
    real dw[KEPT][VEC] = {}, db[KEPT][VEC] = {};
    for (int i = 0; i < RUN && row < ROWS; i++, row += ROW_STEP) {
      real c[KEPT][VEC], d[KEPT][VEC], g[VEC];
      const saved here = in.take(a, row, c, d);
      const factors f = row_factors(a, in, here, c, d, w, room, turn);
#pragma unroll
      for (int j = 0; j < CHUNKS; j++) {
        if (TWICE) in.take_chunk(a, j, c[j], d[j]);
        if (TWICE && READS_S) subtract(c[j], f.m);
        for (int k = 0; k < VEC; k++) {
          if (HAS(DW)) dw[j][k] += d[j][k] * (c[j][k] * f.r);
          if (HAS(DB)) db[j][k] += d[j][k];
        }
        get_g(a, g, d[j], w[j]);
        if (WANTS_DS) put_ds(a, row, MY_COLUMN(j), g, c[j], f);
      }
      in.done(a, row);
    }
    if (HAS(DW)) put_partial((real *)PARTIAL_DW, part, dw);
    if (HAS(DB)) put_partial((real *)PARTIAL_DB, part, db);
  }
}
#else /* long rows: first the factors of every row, then dw and db, then ds, which may overwrite dy */
KERNEL(layernorm_sums, GROUP * GROUPS) {
  __shared__ real room[2][3][32];
  int turn = 0;
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; READS_S && row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    real s[VEC], d[VEC], weight[VEC];
    long_sum sum, g, gc, squares;
    sum.clear(), g.clear(), gc.clear(), squares.clear();
    for (i64 j = 0; !HAS(MEAN) && j < CHUNKS; j++) {
      from.get(s, COLUMN(row, j), COLS);
      sum.add(total(s));
    }
    const real mean = HAS(MEAN) ? GET(MEAN, ROW_OFFSET(MEAN, row)) : 0;
    const real m = mean_of(a, mean, sum.total, room, turn);
    for (i64 j = 0; j < CHUNKS; j++) {
      from.get(s, COLUMN(row, j), COLS);
      centre(s, m, COLUMN(row, j), COLS);
      get_line(d, dy, COLUMN(row, j), COLS);
      get_vector(weight, w, 1, COLUMN(row, j), COLS);
      for (int k = 0; k < VEC; k++) d[k] *= weight[k];
      g.add(total(d)), gc.add(dot(d, s)), squares.add(dot(s, s));
    }
    real v[3] = {g.total, gc.total, squares.total};
    const real r = HAS(RSTD) ? GET(RSTD, ROW_OFFSET(RSTD, row)) : 0;
    const factors f = factors_of(a, r, m, v, room, turn);
    if (threadIdx.x == 0) ((factors *)ROW_SUMS)[row] = f;
  }
}

/* part blockIdx.y of the rows, 256 columns to a block */
KERNEL(layernorm_partial, 256) {
  const i64 c = (i64)blockIdx.x * 256 + threadIdx.x;
  long_sum dw, db;
  dw.clear(), db.clear();
  for (i64 row = blockIdx.y; c < COLS && row < ROWS; row += gridDim.y) {
    const line dy = LINE(DY, row);
    const real d = load(dy.dtype, dy.at, c * dy.step);
    db.add(d);
    if (!HAS(DW)) continue;
    const source from = source_of(a, row);
    const factors f = ((const factors *)ROW_SUMS)[row];
    real s = load(from.x.dtype, from.x.at, c * from.x.step);
    if (from.residual.at) s += load(from.residual.dtype, from.residual.at, c * from.residual.step);
    dw.add(d * ((s - f.m) * f.r));
  }
  if (c < COLS && HAS(DW)) ((real *)PARTIAL_DW)[(i64)blockIdx.y * COLS + c] = dw.total;
  if (c < COLS && HAS(DB)) ((real *)PARTIAL_DB)[(i64)blockIdx.y * COLS + c] = db.total;
}

KERNEL(layernorm_backward, GROUP * GROUPS) {
  const line w = VECTOR(W);
  for (i64 row = FIRST_ROW; WANTS_DS && row < ROWS; row += ROW_STEP) {
    const source from = source_of(a, row);
    const line dy = LINE(DY, row);
    const factors f = ((const factors *)ROW_SUMS)[row];
    for (i64 j = 0; j < CHUNKS; j++) {
      real s[VEC], d[VEC], weight[VEC];
      from.get(s, COLUMN(row, j), COLS);
      centre(s, f.m, COLUMN(row, j), COLS);
      get_line(d, dy, COLUMN(row, j), COLS);
      get_vector(weight, w, 1, COLUMN(row, j), COLS);
      for (int k = 0; k < VEC; k++) d[k] *= weight[k];
      put_ds(a, row, COLUMN(row, j), d, s, f);
    }
  }
}
#endif

/* dw, and in the second half of the blocks db */
KERNEL(layernorm_columns, 1024) {
  const bool second = blockIdx.y == 1 || !HAS(DW);
  const real *partial = (const real *)(second ? PARTIAL_DB : PARTIAL_DW);
  sum_parts(partial, PARTIAL_PLACES, PARTS, second ? VECTOR(DB) : VECTOR(DW), COLS);
}
#endif
