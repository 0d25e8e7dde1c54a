/* linear_cross_entropy on CUDA: what happens to a block of rows between the products (cuda.c has the order).
 *
 *   FIRST, HERE    numbers: the block's first row, and how many it has
 *   CLASSES, LD    C, and from one row of logits to the next in the workspace
 *   X_BLOCK        (HERE, COLS), x as stored; rows that do not count are 0, so that they are left out of dw
 *   LOGITS         (HERE, LD) reals without the bias; backward leaves dlogits in their place, as D_DTYPE
 *   SMOOTHING, Z_LOSS, SOFTCAP, IGNORED, MEAN, EACH    the attributes; ops/cross_entropy/row.h has the formulas      */
enum { WIDE = 4, REAL_DTYPE = COMPUTE_F64 ? F64 : F32 };

inline i64 target_of(const args &a, i64 row) {
  return load_integer(DTYPE(TARGET), AT(TARGET), ROW_OFFSET(TARGET, row));
}
inline bool counts(i64 target, i64 ignored) { return target >= 0 && target != ignored; }
#define COUNTS(row) counts(target_of(a, row), IGNORED)

/* ---- once: the rows that count, as a divisor ---- */
KERNEL(lce_count, 1024) {
  __shared__ real scratch[32];
  real count = 0;
  for (i64 row = threadIdx.x; MEAN && row < TOTAL; row += 1024) count += COUNTS(row) ? (real)1 : (real)0;
  count = group_sum<1024>(count, scratch);
  if (threadIdx.x == 0) *(real *)DIVISOR = count > 0 ? count : (real)1;
}

/* ---- of each block: x in a dense copy ---- */
inline line row_of_block(char *block, i64 i, i64 cols, int dtype) {
  return make_line(true, block, i * cols, dtype, 1, false);
}

KERNEL(lce_gather, GROUP * GROUPS) {
  for (i64 i = FIRST_ROW; i < HERE; i += ROW_STEP) {
    const line from = LINE(X, FIRST + i), to = row_of_block(X_BLOCK, i, COLS, DTYPE(X));
    const bool in = COUNTS(FIRST + i);
    for (i64 j = 0; j < CHUNKS; j++) {
      real v[VEC];
      for (int k = 0; k < VEC; k++) v[k] = 0;
      if (in) get_line(v, from, COLUMN(i, j), COLS);
      put_line(to, COLUMN(i, j), v, COLS);
    }
  }
}

/* ---- a row of logits ---- */
#define CLASS(j) (((j) * ROW_THREADS + threadIdx.x) * WIDE) /* the first of a thread's classes */
#define CLASS_CHUNKS ((CLASSES + ROW_THREADS * WIDE - 1) / (ROW_THREADS * WIDE))

#undef m_tanh /* math_half.cu's has enough digits for a result, but l is an exponent */
inline real l_of(const args &a, real x) { return CAPPED ? SOFTCAP * m_tanh(x / SOFTCAP) : x; }

/* l of classes c .. c + WIDE - 1; beyond the last: `beyond` */
inline void get_logits(const args &a, const real *row, i64 c, real (&l)[WIDE], real beyond) {
  load_some<WIDE>(l, REAL_DTYPE, row, c, CLASSES - c);
#pragma unroll
  for (int k = 0; k < WIDE; k++) {
    const real b = HAS(B) && c + k < CLASSES ? GET(B, (c + k) * B_STRIDE) : (real)0;
    l[k] = c + k < CLASSES ? l_of(a, l[k] + b) : beyond;
  }
}

inline real group_max(real v, real *scratch) {
  v = warp_max(v);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  v = warp_max(threadIdx.x % 32 < ROW_THREADS / 32 ? scratch[threadIdx.x % 32] : -INFINITY);
  __syncthreads();
  return v;
}

struct row_result {
  real max, over, lse, loss; /* p = e^(l - max) over */
};

/* A thread's classes, read once: the largest l so far, and the sum of e^(l - largest), scaled down when that grows.
 * A NaN is passed over by the largest, not by the sum; where all are -inf, nothing is added. */
struct running {
  real max;
  long_sum sum;
  void add(const real (&l)[WIDE]) {
    real most = max, part = 0;
#pragma unroll
    for (int k = 0; k < WIDE; k++) most = l[k] > most ? l[k] : most;
    if (most > max) {
      const real down = m_exp(max - most);
      sum.total *= down, sum.lost *= down, max = most;
    }
    const real shift = max > -INFINITY ? max : (real)0;
#pragma unroll
    for (int k = 0; k < WIDE; k++) part += m_exp(l[k] - shift);
    sum.add(part);
  }
};

/* The sum of l - max: what the smoothed part of the loss is made of. */
inline real sum_below(const args &a, const real *row, real max, real *scratch) {
  long_sum drop;
  drop.clear();
  for (i64 j = 0; j < CLASS_CHUNKS; j++) {
    real l[WIDE], below = 0;
    get_logits(a, row, CLASS(j), l, max);
    for (int k = 0; k < WIDE; k++) below += CLASS(j) + k < CLASSES ? l[k] - max : (real)0;
    drop.add(below);
  }
  return group_sum<ROW_THREADS>(drop.total, scratch);
}

inline row_result read_row(const args &a, const real *row, i64 target, real *scratch) {
  running mine;
  mine.max = -INFINITY, mine.sum.clear();
  for (i64 j = 0; j < CLASS_CHUNKS; j++) {
    real l[WIDE];
    get_logits(a, row, CLASS(j), l, -INFINITY);
    mine.add(l);
  }
  row_result r;
  r.max = group_max(mine.max, scratch);
  const real below = CLASSES == 0 ? (real)0 : mine.max - r.max; /* without classes both are -inf, and lse too */
  const real total = group_sum<ROW_THREADS>(mine.sum.total * m_exp(below), scratch);
  const real log_sum = (real)log((double)total);
  r.over = 1 / total;
  r.lse = r.max + log_sum;
  r.loss = NAN;
  if (BACKWARD || target >= CLASSES) return r;
  const real at = l_of(a, row[target] + (HAS(B) ? GET(B, target * B_STRIDE) : (real)0));
  r.loss = (1 - SMOOTHING) * (log_sum + (r.max - at)) + Z_LOSS * r.lse * r.lse;
  if (SMOOTHING > 0) r.loss += SMOOTHING * (log_sum - sum_below(a, row, r.max, scratch) / (real)CLASSES);
  return r;
}

#if !BACKWARD
KERNEL(lce_loss, ROW_THREADS) {
  __shared__ real scratch[32];
  for (i64 i = blockIdx.x; i < HERE; i += gridDim.x) {
    const i64 row = FIRST + i, target = target_of(a, row);
    row_result r;
    r.lse = r.loss = 0;
    if (counts(target, IGNORED)) r = read_row(a, (const real *)LOGITS + i * LD, target, scratch);
    if (threadIdx.x > 0) continue;
    if (HAS(LSE)) PUT(LSE, ROW_OFFSET(LSE, row), r.lse);
    if (EACH && HAS(LOSS)) PUT(LOSS, ROW_OFFSET(LOSS, row), r.loss);
    if (!EACH) ((real *)ROW_LOSS)[row] = r.loss;
  }
}

KERNEL(lce_total, 1024) {
  __shared__ real scratch[32];
  long_sum sum;
  sum.clear();
  for (i64 row = threadIdx.x; row < TOTAL; row += 1024) sum.add(((const real *)ROW_LOSS)[row]);
  const real total = group_sum<1024>(sum.total, scratch);
  if (threadIdx.x == 0) PUT(LOSS, 0, total / *(const real *)DIVISOR);
}
#else
/* dlogits take the place of the logits they come from: a chunk is read by all before any of it is written. */
inline void put_dlogits(const args &a, real *row, const row_result &r, i64 target, real g) {
  const real z = 1 + 2 * Z_LOSS * r.lse, all = SMOOTHING / (real)CLASSES;
  if (target >= CLASSES) g = NAN;
  for (i64 j = 0; j < CLASS_CHUNKS; j++) {
    real l[WIDE], d[WIDE];
    get_logits(a, row, CLASS(j), l, 0);
#pragma unroll
    for (int k = 0; k < WIDE; k++) {
      d[k] = m_exp(l[k] - r.max) * r.over * z - all - (CLASS(j) + k == target ? 1 - SMOOTHING : (real)0);
      if (CAPPED) d[k] *= 1 - (l[k] / SOFTCAP) * (l[k] / SOFTCAP);
      d[k] *= g;
    }
    __syncthreads();
    put_some<WIDE>(D_DTYPE, false, row, CLASS(j), d, CLASSES - CLASS(j));
  }
}

inline void put_zeros(const args &a, real *row) {
  for (i64 j = 0; j < CLASS_CHUNKS; j++) {
    real none[WIDE] = {0, 0, 0, 0};
    put_some<WIDE>(D_DTYPE, false, row, CLASS(j), none, CLASSES - CLASS(j));
  }
}

KERNEL(lce_dlogits, ROW_THREADS) {
  __shared__ real scratch[32];
  for (i64 i = blockIdx.x; i < HERE; i += gridDim.x) {
    const i64 row = FIRST + i, target = target_of(a, row);
    real *logits = (real *)LOGITS + i * LD;
    if (!counts(target, IGNORED)) {
      put_zeros(a, logits);
      continue;
    }
    row_result r;
    if (HAS(LSE)) {
      r.max = r.lse = GET(LSE, ROW_OFFSET(LSE, row));
      r.over = 1;
    } else {
      r = read_row(a, logits, target, scratch);
    }
    const real g = EACH ? GET(DLOSS, ROW_OFFSET(DLOSS, row)) : GET(DLOSS, 0) / *(const real *)DIVISOR;
    put_dlogits(a, logits, r, target, g);
  }
}

/* ---- gradients of the block ---- */
KERNEL(lce_scatter, GROUP * GROUPS) {
  for (i64 i = FIRST_ROW; i < HERE; i += ROW_STEP) {
    const line to = LINE(DX, FIRST + i), from = row_of_block(DX_BLOCK, i, COLS, REAL_DTYPE);
    const bool in = COUNTS(FIRST + i);
    if (!in && to.adds) continue;
    for (i64 j = 0; j < CHUNKS; j++) {
      real v[VEC];
      for (int k = 0; k < VEC; k++) v[k] = 0;
      if (in) get_line(v, from, COLUMN(i, j), COLS);
      put_line(to, COLUMN(i, j), v, COLS);
    }
  }
}

/* db of the blocks so far, and what rounding took from it: a thread for each class, 32 rows at a time */
KERNEL(lce_db, 256) {
  const i64 c = (i64)blockIdx.x * 256 + threadIdx.x;
  if (c >= CLASSES) return;
  real *sums = (real *)DB_SUMS;
  const i64 step = LD * bytes_of(REAL_DTYPE) / bytes_of(D_DTYPE);
  long_sum sum;
  sum.clear();
  if (FIRST > 0) sum.total = sums[c], sum.lost = sums[CLASSES + c];
  for (i64 i = 0; i < HERE; i += 32) {
    real part = 0;
#pragma unroll 8
    for (i64 r = i; r < (i + 32 < HERE ? i + 32 : HERE); r++) part += load(D_DTYPE, LOGITS, r * step + c);
    sum.add(part);
  }
  sums[c] = sum.total, sums[CLASSES + c] = sum.lost;
}

/* ---- after the last block ---- */
KERNEL(lce_put_db, 256) {
  const i64 c = (i64)blockIdx.x * 256 + threadIdx.x;
  if (c < CLASSES) PUT(DB, c * DB_STRIDE, ((const real *)DB_SUMS)[c]);
}

KERNEL(lce_put_dw, 256) {
  for (i64 c = blockIdx.x; c < CLASSES; c += gridDim.x)
    for (i64 k = threadIdx.x; k < COLS; k += 256)
      PUT(DW, c * DW_ROW + k * DW_COL, ((const real *)DW_SUMS)[c * COLS + k]);
}
#endif
