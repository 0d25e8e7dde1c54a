/* sums.h -- sums whose order depends on the shape alone and whose error does not grow with the number of terms.
 *
 * Along a row: VL lanes by 4 over a tile, then tiles pairwise (cascade): error grows with log2(tiles).
 * Down columns: blocks of 32 rows, then blocks with Kahan's correction, per task; tasks likewise at the end.      */
#ifndef AMBI_SUMS_H
#define AMBI_SUMS_H
#include "backends/cpu/io.h"

/* ---- pairwise: partial[k] holds the sum of 2^k terms when bit k of count is set ---- */
typedef struct {
  real partial[56];
  uint64_t count;
} cascade;

static inline void cascade_add(cascade *c, real term) {
  int k = 0;
  for (uint64_t n = c->count; n & 1; n >>= 1) term += c->partial[k++];
  c->partial[k] = term;
  c->count++;
}

static inline real cascade_total(const cascade *c) {
  real sum = 0;
  for (int k = 0; c->count >> k; k++)
    if (c->count >> k & 1) sum += c->partial[k];
  return sum;
}

/* ---- sum += the j-th of many terms; short ones are added to each other first, TOGETHER at a time ---- */
#if defined(AMBI_ISA_wasm) && defined(AMBI_TOGETHER)
#if AMBI_REAL != 32 || !defined(AMBI_STEPS)
#error "AMBI_TOGETHER is for modules of f32, with AMBI_STEPS: v_load_n must take what is not there"
#endif
enum { TOGETHER = AMBI_TOGETHER };
INLINE void sum_add(vr *sum, vr *terms, int j, vr term) {
  static volatile vr unread __attribute__((unused)); /* see v_now */
  terms[j % TOGETHER] = term;
  if ((j + 1) % TOGETHER != 0) return;
  UNROLL for (int n = TOGETHER / 2; n > 0; n /= 2) UNROLL for (int i = 0; i < n; i++) terms[i] += terms[i + n];
  *sum += terms[0];
  unread = *sum;
}
#else
enum { TOGETHER = 1 };
INLINE void sum_add(vr *sum, vr *terms, int j, vr term) {
  (void)terms, (void)j;
  *sum += term;
}
#endif

/* What whole turns leave: steps up to n, or, where terms are added TOGETHER, just as many, some of them of nothing. */
#if defined(AMBI_ISA_wasm) && defined(AMBI_TOGETHER)
#define FOR_REST(k, n, step, t) \
  if (k < (n)) UNROLL for (int t = 0; t < TOGETHER; t++, k += (step))
#else
#define FOR_REST(k, n, step, t) for (const int t = 0; k < (n); k += (step))
#endif

/* sum of a[i] b[i] over a tile */
static inline real dot_tile(const real *a, const real *b, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL)
    for (int k = 0; k < 4; k++) sum[k] += v_load(a + i + k * VL) * v_load(b + i + k * VL);
  for (; i < n; i += VL) sum[0] += v_get(a + i, n - i) * v_get(b + i, n - i);
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static inline real sum_tile(const real *a, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL)
    for (int k = 0; k < 4; k++) sum[k] += v_load(a + i + k * VL);
  for (; i < n; i += VL) sum[0] += v_get(a + i, n - i);
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* ---- column sums: each task adds rows to `block`; every 32 rows that moves into `sum` ---- */
enum { BLOCK_ROWS = 32 };
#ifdef AMBI_PACK
enum { MOST_ROW_TASKS = 1 }; /* one thread, and memory is dear */
#else
enum { MOST_ROW_TASKS = 256 };
#endif

typedef struct {
  real *block, *sum, *lost; /* (cols) each; lost: what rounding took from sum */
  int64_t cols;
  int rows;  /* in block */
  bool more; /* sum holds some already: the first block is copied there */
} column_sums;

/* So many columns that what follows them begins on a line, as every vector then does. */
static inline int64_t whole_lines(int64_t cols) {
  return ceil_div(cols, LINE / (int64_t)sizeof(real)) * (LINE / (int64_t)sizeof(real));
}

static inline uint64_t column_sums_bytes(int64_t cols) { return 3 * (uint64_t)cols * sizeof(real); }

static inline column_sums column_sums_at(char *memory, int64_t cols) {
  real *m = (real *)(void *)memory;
  return (column_sums){m, m + cols, m + 2 * cols, cols, 0, false};
}

static inline void column_sums_clear(column_sums *s) {
  memset(s->block, 0, (size_t)s->cols * sizeof(real));
  memset(s->lost, 0, (size_t)s->cols * sizeof(real));
}

/* sum += term, keeping in `lost` what the addition rounded away (Kahan) */
static inline void kahan_add(real *sum, real *lost, real *term, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    real y = term[i] - lost[i], t = sum[i] + y;
    real rest = (t - sum[i]) - y;
    lost[i] = rest == rest ? rest : 0; /* an infinite sum has lost nothing */
    sum[i] = t;
  }
}

static inline void column_sums_flush(column_sums *s) {
  if (s->more && s->rows == 0) return;
  if (s->more)
    kahan_add(s->sum, s->lost, s->block, s->cols);
  else
    memcpy(s->sum, s->block, (size_t)s->cols * sizeof(real));
  s->more = true;
  memset(s->block, 0, (size_t)s->cols * sizeof(real));
  s->rows = 0;
}

static inline void column_sums_rows_done(column_sums *s, int rows) {
  s->rows += rows;
  if (s->rows >= BLOCK_ROWS) column_sums_flush(s);
}

/* Rows are cut into tasks by their number alone. */
static inline int64_t rows_per_task(int64_t rows, int64_t cols) {
  int64_t enough = max64(BLOCK_ROWS, 16384 / max64(cols, 1)); /* worth waking a thread for */
  return max64(min64(enough, max64(rows, 1)), ceil_div(rows, MOST_ROW_TASKS));
}
static inline int64_t row_tasks(int64_t rows, int64_t cols) { return ceil_div(rows, rows_per_task(rows, cols)); }

/* The tasks' sums together: columns [i, i+n) of `tasks` column_sums that lie one after another in memory. */
static inline void column_sums_total(char *memory, int64_t tasks, int64_t cols, int64_t i, int64_t n, real *out) {
  TILE_OF_REALS lost[TILE];
  const int64_t each = (int64_t)column_sums_bytes(cols);
  if (tasks > 0)
    memcpy(out, column_sums_at(memory, cols).sum + i, (size_t)n * sizeof(real));
  else
    memset(out, 0, (size_t)n * sizeof(real));
  memset(lost, 0, (size_t)n * sizeof(real));
  for (int64_t k = 1; k < tasks; k++) kahan_add(out, lost, column_sums_at(memory + k * each, cols).sum + i, n);
}

#endif
