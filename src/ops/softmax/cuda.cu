/* softmax on CUDA: a group of threads takes a row and keeps it in registers; a row too long for that is read again.
 *
 *   forward   max and sum of e^(l - max);  y = e^(l - max) / sum, or (l - max) - log(sum)
 *   backward  p = e^l / sum(e^l), by the y that was saved or as in forward
 *             D = sum dy p, dx = scale p (dy - D);   log: D = sum dy, dx = scale (dy - p D)
 *
 * In registers the exponentials take the place of the logits: of a thread's own max, and later of the row's. */
#define FROM_Y (BACKWARD && HAS(Y))

/* a b, not contracted with what is added to it: l - max of the largest l is 0, though |l| be large */
inline float rounded(float a, float b) { return __fmul_rn(a, b); }
inline double rounded(double a, double b) { return __dmul_rn(a, b); }

/* x becomes l = scale x, -inf past the row's end */
inline void to_l(const args &a, real (&l)[VEC], nth column) {
  for (int k = 0; k < VEC; k++) l[k] = inside(column + k, COLS) ? rounded(l[k], SCALE) : (real)-INFINITY;
}

inline void get_l(const args &a, real (&l)[VEC], const line &x, nth column) {
  get_line(l, x, column, COLS);
  to_l(a, l, column);
}

#if KEEP
/* A row as it lies in memory: all of it is asked for before any of it is looked at. */
template <int BYTES> inline void load_row(const args &a, i64 row, raw<BYTES> (&r)[KEPT], const line &from) {
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) load_raw(r[j], from, COLUMN(row, j), COLS);
}

/* l of a row, or e^(l - max) with the thread's own max */
template <int BYTES>
inline lump read_row(const args &a, i64 row, const raw<BYTES> (&x)[KEPT], int dtype, real (&l)[KEPT][VEC]) {
  lump mine = {(real)-INFINITY, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    unpack(l[j], x[j], dtype);
    to_l(a, l[j], COLUMN(row, j));
    mine.max = max_of(l[j], mine.max);
  }
  const real base = base_of(mine.max);
#pragma unroll
  for (int j = 0; j < CHUNKS; j++)
    for (int k = 0; k < VEC; k++) {
      const real e = exp_below(l[j][k] - base);
      mine.sum += e;
      if (BACKWARD || !LOG) l[j][k] = e;
    }
  return mine;
}
#else
inline lump read_row(const args &a, i64 row, const line &x, real (&l)[KEPT][VEC]) {
  running_lump mine;
  mine.clear();
  for (i64 j = 0; j < CHUNKS; j++) {
    get_l(a, l[0], x, COLUMN(row, j));
    mine.add(l[0], COLUMN(row, j), COLS);
  }
  return mine.done();
}
#endif

#if !BACKWARD
KERNEL(softmax_forward, GROUP * GROUPS, COMPUTE_F64 ? 1 : 1536 / (GROUP * GROUPS)) {
  __shared__ lump room[2][32];
  int turn = 0;
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const line x = LINE(X, row), y = LINE(Y, row);
    real l[KEPT][VEC], out[VEC];
#if KEEP
    RAW(X) packed[KEPT];
    load_row(a, row, packed, x);
    const lump mine = read_row(a, row, packed, DTYPE(X), l), all = group_merge(mine, room, turn);
#else
    const lump mine = read_row(a, row, x, l), all = group_merge(mine, room, turn);
#endif
    const real log_sum = LOG ? m_log(all.sum) : (real)0;
    const real over = (KEEP ? exp_below(mine.max - all.max) : (real)1) / all.sum;
#pragma unroll(KEPT)
    for (int j = 0; j < CHUNKS; j++) {
      if (!KEEP) get_l(a, l[0], x, COLUMN(row, j));
      for (int k = 0; k < VEC; k++) {
        const real v = l[KEEP ? j : 0][k];
        out[k] = LOG ? (v - all.max) - log_sum : (KEEP ? v : exp_below(v - all.max)) * over;
      }
      put_line(y, COLUMN(row, j), out, COLS);
    }
  }
}
#else
/* p at a thread's chunk, from memory: all.max and all.sum are the row's, unless y was saved */
inline void get_p(const args &a, real (&p)[VEC], const line &from, const lump &all, nth column) {
  if (FROM_Y) {
    get_line(p, from, column, COLS);
    for (int k = 0; k < VEC && LOG; k++) p[k] = exp_below(p[k]);
  } else {
    get_l(a, p, from, column);
    for (int k = 0; k < VEC; k++) p[k] = exp_below(p[k] - all.max) / all.sum;
  }
}

inline real products(const real (&p)[VEC], const real (&d)[VEC]) {
  real sum = 0;
  for (int k = 0; k < VEC; k++) sum += LOG ? d[k] : d[k] * p[k];
  return sum;
}

inline void put_dx(const args &a, const line &dx, nth column, const real (&p)[VEC], const real (&d)[VEC], real D) {
  real out[VEC];
  for (int k = 0; k < VEC; k++) out[k] = SCALE * (LOG ? d[k] - p[k] * D : p[k] * (d[k] - D));
  put_line(dx, column, out, COLS);
}

#if KEEP
enum { FROM = FROM_Y ? Y : X };

/* p of a row: the exponentials divided by the row's sum, or what was saved */
inline void read_p(const args &a, i64 row, const RAW(FROM) (&from)[KEPT], real (&p)[KEPT][VEC], lump (&room)[2][32],
                   int &turn) {
#pragma unroll
  for (int j = 0; j < CHUNKS && FROM_Y; j++) {
    unpack(p[j], from[j], DTYPE(FROM));
    for (int k = 0; k < VEC && LOG; k++) p[j][k] = exp_below(p[j][k]);
  }
  if (FROM_Y) return;
  const lump mine = read_row(a, row, from, DTYPE(FROM), p), all = group_merge(mine, room, turn);
  const real over = exp_below(mine.max - all.max) / all.sum;
#pragma unroll
  for (int j = 0; j < CHUNKS; j++)
    for (int k = 0; k < VEC; k++) p[j][k] *= over;
}
#endif

KERNEL(softmax_backward, GROUP * GROUPS, COMPUTE_F64 ? 1 : 1024 / (GROUP * GROUPS)) {
  __shared__ lump room[2][32];
  __shared__ real sums[2][1][32];
  int turn = 0, other = 0;
  for (i64 row = FIRST_ROW; row < ROWS; row += ROW_STEP) {
    const line from = FROM_Y ? LINE(Y, row) : LINE(X, row), dy = LINE(DY, row), dx = LINE(DX, row);
    real p[KEPT][VEC], d[KEPT][VEC], D[1];
    lump all = {0, 1, 0, 0};
    long_sum sum;
    sum.clear();
#if KEEP
    RAW(FROM) packed[KEPT];
    RAW(DY) packed_dy[KEPT];
    load_row(a, row, packed, from);
    load_row(a, row, packed_dy, dy);
    read_p(a, row, packed, p, room, turn);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) unpack(d[j], packed_dy[j], DTYPE(DY));
#else
    if (!FROM_Y) all = group_merge(read_row(a, row, from, p), room, turn);
#endif
#pragma unroll(KEPT)
    for (int j = 0; j < CHUNKS; j++) {
      if (!KEEP) get_p(a, p[0], from, all, COLUMN(row, j)), get_line(d[0], dy, COLUMN(row, j), COLS);
      sum.add(products(p[KEEP ? j : 0], d[KEEP ? j : 0]));
    }
    D[0] = sum.total;
    group_sums<GROUP>(D, sums, other);
#pragma unroll(KEPT)
    for (int j = 0; j < CHUNKS; j++) {
      if (!KEEP) get_p(a, p[0], from, all, COLUMN(row, j)), get_line(d[0], dy, COLUMN(row, j), COLS);
      put_dx(a, dx, COLUMN(row, j), p[KEEP ? j : 0], d[KEEP ? j : 0], D[0]);
    }
  }
}
#endif
