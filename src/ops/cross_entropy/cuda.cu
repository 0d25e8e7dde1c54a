/* cross_entropy on CUDA: a group of threads takes a row, once for max and sum of e^(l - max), once for the gradient.
 *
 *   lse = max + log(sum);   loss = (1 - a) (lse - l_y) + a (lse - mean(l)) + z lse^2
 *   dl = g (e^(l - max) / sum (1 + 2 z lse) - (1 - a) [j = y] - a / C);   dlogits = dl (1 - (l / cap)^2)
 *
 * HELD: the row lies in shared memory between the two, so that memory sees it once; each thread has its own part there,
 * and asks for that part of the next row as soon as it is done with this one's. dlogits may overwrite the logits.
 * First a kernel counts the rows that count; the last adds up their losses. Both are one block: the order is fixed. */
#define TO        (BACKWARD ? DLOGITS : GRAD)
#define SAVED_LSE (BACKWARD && HAS(LSE))

inline i64 target_of(const args &a, i64 row) { return load_integer(DTYPE(TARGET), AT(TARGET), ROW_OFFSET(TARGET, row)); }
inline bool counts(const args &a, i64 target) { return target >= 0 && target != IGNORED; }

KERNEL(cross_entropy_count, 1024) {
  __shared__ real room[2][1][32];
  int turn = 0;
  i64 mine = 0;
  for (i64 row = threadIdx.x; row < ALL_ROWS; row += 1024) mine += counts(a, target_of(a, row));
  real low[1] = {(real)(mine & 0xfff)}, high[1] = {(real)(mine >> 12)}; /* sums of these are exact */
  group_sums<1024>(low, room, turn);
  group_sums<1024>(high, room, turn);
  const real count = high[0] * 4096 + low[0];
  if (threadIdx.x == 0) *(real *)DIVISOR = count > 0 ? count : (real)1;
}

/* ---- a row of logits ---- */
/* A thread's chunks of a row: its column moves by STRIDE from one to the next, its place in shared memory by HELD_STEP.
 * All rows of a group have the same phase, and so the same chunks. */
enum { STRIDE = GROUP * VEC };
inline nth chunks_of(const args &a, i64 row) {
  const nth column = COLUMN(row, 0), cols = (nth)COLS;
  return column < cols ? (cols - column + (nth)STRIDE - 1) / (nth)STRIDE : 0;
}

#if HELD
#define HELD_AT(memory) piece_at(memory, 0)
enum { HELD_STEP = PIECES_OF(LOGITS) * THREADS * 16 };
/* Asks for a thread's chunk of a row; whole: all of it is there, at a multiple of 16 bytes */
inline void fetch(const args &a, char *to, const line &x, nth column, bool whole) {
  const char *at = x.at + (i64)column * bytes_of(DTYPE(LOGITS));
  if (!whole) return ask_chunk<bytes_of(DTYPE(LOGITS))>(to, x, column, (int)COLS, a.aligned);
#pragma unroll
  for (int p = 0; p < PIECES_OF(LOGITS); p++) copy_ahead(to + p * (int)THREADS * 16, at + 16 * p);
}
inline void row_here() { copies_here<0>(); }
inline void row_asked() { copies_asked(); }
#else
#define HELD_AT(memory) (memory)
enum { HELD_STEP = 0 };
inline void fetch(const args &, char *, const line &, nth, bool) {}
inline void row_here() {}
inline void row_asked() {}
#endif

#undef m_tanh /* math_half.cu's has enough digits for a result, but l is an exponent */

/* l at a thread's chunk: from shared memory or from x */
inline void get_l(const args &a, real (&l)[VEC], const line &x, const char *held, nth column) {
#if HELD
  take_chunk<bytes_of(DTYPE(LOGITS))>(l, held, x.dtype); /* what is outside the row is seen to by those who ask */
#else
  get_line(l, x, column, COLS);
#endif
  for (int k = 0; k < VEC && CAPPED; k++) l[k] = CAP * m_tanh(l[k] / CAP);
}

/* ---- the formula ---- */
struct ce_row {
  real max, sum, lse, loss; /* e^(l - lse) = e^(l - max) / sum */
};

/* l_y: the target's */
inline ce_row row_of_lump(const args &a, const lump &s, real l_y) {
  const real log_sum = s.max == (real)-INFINITY && COLS == 0 ? (real)-INFINITY : m_log(s.sum);
  ce_row r = {s.max, s.sum, s.max + log_sum, NAN};
  r.loss = (1 - SMOOTHING) * (log_sum + (s.max - l_y)) + Z_LOSS * r.lse * r.lse;
  if (BELOW) r.loss += SMOOTHING * (log_sum - s.below / (real)COLS);
  return r;
}

/* What dl is made of: e^(l - max) scale - all - hot [j = y] */
struct ce_slope {
  real scale, all, hot;
};

inline ce_slope slope_of(const args &a, const ce_row &r, i64 target, real g) {
  if (target >= COLS) g = NAN;
  ce_slope s = {(1 + 2 * Z_LOSS * r.lse) / r.sum * g, SMOOTHING / (real)COLS * g, (1 - SMOOTHING) * g};
  return s;
}

/* l becomes dlogits; y: which of them is the target's, if HOT */
template <bool HOT> inline void gradient(const args &a, real (&l)[VEC], real max, const ce_slope &s, nth y) {
#pragma unroll
  for (int k = 0; k < VEC; k++) {
    const real v = l[k];
    l[k] = exp_below(v - max) * s.scale - s.all;
    if (HOT && k == y) l[k] -= s.hot;
    if (CAPPED) l[k] *= 1 - (v / CAP) * (v / CAP);
  }
}

/* ---- rows ---- */
/* The loss and lse of a row that counts, by all its threads */
inline ce_row read_row(const args &a, i64 row, const line &x, char *memory, i64 target, lump (&room)[2][32], int &turn) {
  running_lump mine;
  real l[VEC], l_y = NAN; /* read before any thread may overwrite it */
  if (target < COLS && threadIdx.x == 0) l_y = load(x.dtype, x.at, target * x.step);
  if (CAPPED) l_y = CAP * m_tanh(l_y / CAP);
  mine.clear();
  const nth chunks = chunks_of(a, row), cols = (nth)COLS;
  nth column = COLUMN(row, 0);
  const char *held = HELD_AT(memory);
#pragma unroll 2
  for (nth j = 0; j < chunks; j++, column += STRIDE, held += HELD_STEP) {
    get_l(a, l, x, held, column);
    if (all_inside(column, cols)) {
      mine.add(l, column, cols);
    } else {
      for (int k = 0; k < VEC; k++) l[k] = inside(column + k, cols) ? l[k] : (real)-INFINITY;
      mine.add(l, column, cols);
    }
  }
  return row_of_lump(a, group_merge(mine.done(), room, turn), l_y);
}

/* A thread's chunk of dlogits; then its place in shared memory is free for the next row, if there is one. */
inline void put_chunk(const args &a, const line &to, const line &next, char *held, nth column, real (&l)[VEC]) {
  const bool whole = VEC > 1 && a.aligned && all_inside(column, (nth)COLS);
  if (whole)
    put_some<VEC, true>(to.dtype, to.adds, to.at, column, l, VEC);
  else
    put_line(to, column, l, COLS);
  if (HELD && next.at) fetch(a, held, next, column, whole);
}

/* dlogits of a row that counts */
inline void put_row(const args &a, i64 row, const line &x, const line &next, char *memory, i64 target, const ce_row &r,
                    real g) {
  const line to = LINE(TO, row);
  const ce_slope s = slope_of(a, r, target, g);
  const nth chunks = chunks_of(a, row), hot = target < COLS ? (nth)target : (nth)COLS;
  nth column = COLUMN(row, 0);
  char *held = HELD_AT(memory);
  for (nth j = 0; j < chunks; j++, column += STRIDE, held += HELD_STEP) {
    const nth y = hot - column;
    real l[VEC];
    get_l(a, l, x, held, column);
    if (y >= 0 && y < (nth)VEC)
      gradient<true>(a, l, r.max, s, y);
    else
      gradient<false>(a, l, r.max, s, y);
    put_chunk(a, to, next, held, column, l);
  }
}

/* .. of one that does not */
inline void put_zeros(const args &a, i64 row, const line &next, char *memory) {
  const line to = LINE(TO, row);
  const nth chunks = chunks_of(a, row);
  nth column = COLUMN(row, 0);
  char *held = HELD_AT(memory);
  for (nth j = 0; j < chunks; j++, column += STRIDE, held += HELD_STEP) {
    real zero[VEC] = {};
    put_chunk(a, to, next, held, column, zero);
  }
}

inline void put_scalars(const args &a, i64 row, const ce_row &r) {
  if (BACKWARD || threadIdx.x) return;
  if (HAS(LSE)) PUT(LSE, ROW_OFFSET(LSE, row), r.lse);
  if (EACH)
    PUT(LOSS, ROW_OFFSET(LOSS, row), r.loss);
  else
    ((real *)LOSSES)[row] = r.loss;
}

/* The gradient that arrives on a row's own loss */
inline real dloss_of(const args &a, i64 row) {
  if (BACKWARD && EACH) return GET(DLOSS, ROW_OFFSET(DLOSS, row));
  return (BACKWARD ? GET(DLOSS, 0) : (real)1) / (MEAN_OF_ROWS ? *(const real *)DIVISOR : (real)1);
}

/* The logits of a row, if there is such a row */
inline line next_row(const args &a, i64 row) {
  line l = LINE(LOGITS, row);
  if (row >= ALL_ROWS) l.at = 0;
  if (HELD) l.at = once(l.at);
  return l;
}

inline void fetch_row(const args &a, i64 row, const line &x, char *memory) {
  const nth chunks = HELD && x.at ? chunks_of(a, row) : 0;
  nth column = COLUMN(row, 0);
  char *held = HELD_AT(memory);
  for (nth j = 0; j < chunks; j++, column += STRIDE, held += HELD_STEP) fetch(a, held, x, column, false);
}

KERNEL(cross_entropy_rows, GROUP * GROUPS, AT_ONCE) {
  __shared__ lump room[2][32];
  int turn = 0;
  line x = next_row(a, FIRST_ROW);
#if HELD
  DYNAMIC_SHARED(memory);
#else
  char *const memory = 0;
#endif
  fetch_row(a, FIRST_ROW, x, memory);
  row_asked();
  for (i64 row = FIRST_ROW; row < ALL_ROWS; row += ROW_STEP) {
    const line next = next_row(a, row + ROW_STEP);
    const i64 target = target_of(a, row);
    ce_row r = {0, 1, 0, 0};
    row_here();
    if (SAVED_LSE) r.max = r.lse = GET(LSE, ROW_OFFSET(LSE, row));
    if (counts(a, target) && !SAVED_LSE) r = read_row(a, row, x, memory, target, room, turn);
    put_scalars(a, row, r);
    if (HAS(TO) && counts(a, target))
      put_row(a, row, x, next, memory, target, r, dloss_of(a, row));
    else if (HAS(TO))
      put_zeros(a, row, next, memory);
    if (!HAS(TO)) fetch_row(a, row + ROW_STEP, next, memory);
    row_asked();
    x = next;
  }
}

#if !BACKWARD && !EACH
KERNEL(cross_entropy_loss, 1024) {
  __shared__ real room[2][1][32];
  int turn = 0;
  long_sum mine;
  mine.clear();
  for (i64 row = threadIdx.x; row < ALL_ROWS; row += 1024) mine.add(((const real *)LOSSES)[row]);
  real sum[1] = {mine.total};
  group_sums<1024>(sum, room, turn);
  if (threadIdx.x == 0) PUT(LOSS, 0, sum[0] / (MEAN_OF_ROWS ? *(const real *)DIVISOR : (real)1));
}
#endif
