/* linear_cross_entropy on the CPU: rows that count are gathered into blocks; see backends/cpu/gemm.h for the products.
 *
 *   of each block (M rows)   logits = x W^T + b;   then row by row, see ops/cross_entropy/row_cpu.h:
 *   forward                  loss, lse
 *   backward                 logits become dlogits;   dx = dlogits W;   dW += dlogits^T x;   db += its column sums
 *
 * A block is cut by the number of rows that count alone, its sums over rows are in order: the same bits every time. */
#include "backends/cpu/gemm.h"
#include "ops/cross_entropy/row_cpu.h"

enum { X = AMBI_LINEAR_CE_X, W = AMBI_LINEAR_CE_W, B = AMBI_LINEAR_CE_B, TARGET = AMBI_LINEAR_CE_TARGET };
enum { LOSS = AMBI_LINEAR_CE_LOSS, LSE = AMBI_LINEAR_CE_LSE };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DLOSS = AMBI_GRAD(LOSS) };

extern const gemm_isa CPU_KERNEL(gemm);

/* A block has at most MOST_ROWS rows, and LEAST_ROWS even where they take more than BLOCK_BYTES. It is filled up with
 * rows of zeros to a multiple of ROW_STEP, so that few sizes of products occur. */
enum { MOST_ROWS = 2048, LEAST_ROWS = 128, BLOCK_BYTES = 64 << 20, ROW_STEP = 64 };

static int64_t rows_in(const problem *p) { return rows_of(p)->rows.count; }
static int64_t C_of(const problem *p) { return p->t[W].shape[0]; }
static int64_t K_of(const problem *p) { return p->t[W].shape[1]; }

static int64_t block_rows(const problem *p) {
  int64_t fit = BLOCK_BYTES / (int64_t)sizeof(real) / max64(C_of(p), 1);
  return min64(min64(max64(fit, LEAST_ROWS), MOST_ROWS), rows_in(p));
}
static bool many_blocks(const problem *p) { return rows_in(p) > block_rows(p); }

/* dW of several blocks is summed beside it where it could not hold the sums itself. */
static bool sums_dw(const problem *p) { return writes_slot(p, DW) && many_blocks(p) && p->t[DW].dtype != REAL_DTYPE; }

/* ---- products ---- */
static gemm_matrix dense(ambi_dtype t, int64_t cols) {
  return (gemm_matrix){t, gemm_plain_axis(cols), gemm_plain_axis(1)};
}

static gemm_matrix weight(const problem *p, int slot) {
  const ambi_tensor *w = &p->t[slot];
  return (gemm_matrix){w->dtype, gemm_plain_axis(w->stride[0]), gemm_plain_axis(w->stride[1])};
}

static gemm_shape logits_shape(const problem *p, int64_t m) {
  int64_t C = C_of(p), K = K_of(p);
  gemm_shape s = {.m = m, .n = C, .k = K, .a = dense(p->t[X].dtype, K), .c = dense(REAL_DTYPE, C)};
  s.b = gemm_transposed(weight(p, W));
  if (has_slot(p, B)) s.bias = p->t[B].dtype, s.bias_col = p->t[B].stride[0];
  return s;
}

static gemm_shape dx_shape(const problem *p, int64_t m) {
  int64_t C = C_of(p), K = K_of(p);
  return (gemm_shape){.m = m, .n = K, .k = C, .a = dense(REAL_DTYPE, C), .b = weight(p, W), .c = dense(REAL_DTYPE, K)};
}

static gemm_shape dw_shape(const problem *p, int64_t m, bool first) {
  int64_t C = C_of(p), K = K_of(p);
  gemm_shape s = {.m = C, .n = K, .k = m, .b = dense(p->t[X].dtype, K)};
  s.a = gemm_transposed(dense(REAL_DTYPE, C));
  s.c = sums_dw(p) ? dense(REAL_DTYPE, K) : weight(p, DW);
  s.accumulate = !first || (!sums_dw(p) && (p->accumulates & AMBI_BIT(DW)));
  return s;
}

/* ---- the workspace ---- */
typedef struct {
  int64_t *row, *target; /* (M): which rows the block has                      */
  real *loss;            /* (M)                                                */
  char *x;               /* (M, K), as stored                                  */
  real *logits;          /* (M, C), then dlogits                               */
  real *dx;              /* (M, K)                                             */
  real *dw;              /* (C, K), when sums_dw                               */
  real *db, *db_lost;    /* (C) each: sums, and what rounding took from them   */
  char *gemm;
  uint64_t bytes;
} room;

static char *take(room *r, char *base, int64_t count, size_t size) {
  char *at = base ? base + r->bytes : NULL;
  r->bytes += ((uint64_t)count * size + 63) / 64 * 64;
  return at;
}

static uint64_t gemm_most(const problem *p, const cpu_features *f) {
  uint64_t most = 0;
  for (int64_t m = 0, M = block_rows(p);; m = min64(m + ROW_STEP, M)) {
    const gemm_shape s[] = {logits_shape(p, m), dx_shape(p, m), dw_shape(p, m, true)};
    const bool used[] = {true, writes_slot(p, DX), writes_slot(p, DW)};
    for (int i = 0; i < 3; i++) {
      uint64_t needs = used[i] ? gemm_workspace(&CPU_KERNEL(gemm), f, &s[i]) : 0;
      if (needs > most) most = needs;
    }
    if (m == M) return most;
  }
}

static room room_at(const problem *p, char *base) {
  int64_t M = block_rows(p), C = C_of(p), K = K_of(p);
  room r = {.bytes = 0};
  r.row = (int64_t *)(void *)take(&r, base, M, sizeof(int64_t));
  r.target = (int64_t *)(void *)take(&r, base, M, sizeof(int64_t));
  r.loss = (real *)(void *)take(&r, base, M, sizeof(real));
  r.x = take(&r, base, M * K, (size_t)dtype_bytes(p->t[X].dtype));
  r.logits = (real *)(void *)take(&r, base, M * C, sizeof(real));
  r.dx = (real *)(void *)take(&r, base, writes_slot(p, DX) ? M * K : 0, sizeof(real));
  r.dw = (real *)(void *)take(&r, base, sums_dw(p) ? C * K : 0, sizeof(real));
  r.db = (real *)(void *)take(&r, base, writes_slot(p, DB) ? C : 0, sizeof(real));
  r.db_lost = (real *)(void *)take(&r, base, writes_slot(p, DB) ? C : 0, sizeof(real));
  r.gemm = take(&r, base, 0, 1);
  return r;
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  return room_at(p, NULL).bytes + gemm_most(p, features);
}

/* ---- a block ---- */
typedef struct {
  const cpu_call *c;
  room r;
  ce_formula f;
  real divisor;
  int64_t next;     /* the first row not yet looked at      */
  int64_t count, m; /* of rows in the block; with the zeros */
  bool first;
} job;

static strip line_of(real *matrix, int64_t i, int64_t cols) {
  return (strip){.at = (char *)(matrix + i * cols), .stride = 1, .dtype = REAL_DTYPE};
}

/* Lines of the block in tasks of some lines each. */
static int64_t lines_each(const job *j, int64_t cols) { return softmax_rows_each(max64(j->m, 1), cols); }
static void for_lines(job *j, int64_t cols, task_fn *fn) {
  pool_run(j->c->threads, ceil_div(j->m, lines_each(j, cols)), fn, j);
}

static void choose_rows(job *j) {
  const problem *p = j->c->p;
  int64_t M = block_rows(p);
  j->count = 0;
  for (; j->next < rows_in(p) && j->count < M; j->next++) {
    int64_t target = target_at(j->c, TARGET, j->next);
    if (!ce_counts(p, target)) continue;
    j->r.row[j->count] = j->next;
    j->r.target[j->count++] = target;
  }
  j->m = min64(ceil_div(j->count, ROW_STEP) * ROW_STEP, M);
}

static void gather_task(void *context, int64_t task) {
  const job *j = context;
  int64_t K = K_of(j->c->p), each = lines_each(j, K);
  ambi_dtype t = j->c->p->t[X].dtype;
  TILE_OF_REALS tile[TILE];
  for (int64_t i = task * each; i < min64((task + 1) * each, j->m); i++) {
    char *to = j->r.x + i * K * dtype_bytes(t);
    if (i >= j->count) {
      memset(to, 0, (size_t)(K * dtype_bytes(t)));
      continue;
    }
    strip x = row_of(j->c, X, j->r.row[i]);
    for (int64_t k = 0; k < K; k += TILE) {
      int64_t n = min64(TILE, K - k);
      write_reals(t, to + k * dtype_bytes(t), 1, n, strip_in(&x, k, n, tile));
    }
  }
}

static void multiply(const job *j, const gemm_shape *s, const void *a, const void *b, void *to) {
  gemm_data d = {.a = a, .b = b, .bias = s->bias ? j->c->at[B] : NULL, .c = to};
  gemm_run(&CPU_KERNEL(gemm), j->c->features, s, &d, j->r.gemm, j->c->threads);
}

/* Gathers the next block and computes its logits. */
static void next_block(job *j) {
  choose_rows(j);
  for_lines(j, K_of(j->c->p), gather_task);
  gemm_shape s = logits_shape(j->c->p, j->m);
  multiply(j, &s, j->r.x, j->c->at[W], j->r.logits);
}

/* Rows that do not count: loss, lse and dx are 0. */
static void ignored_task(void *context, int64_t task) {
  const job *j = context;
  const cpu_call *c = j->c;
  int64_t rows = rows_in(c->p), each = softmax_rows_each(rows, K_of(c->p));
  for (int64_t row = task * each; row < min64((task + 1) * each, rows); row++) {
    if (ce_counts(c->p, target_at(c, TARGET, row))) continue;
    if (writes_slot(c->p, LSE)) row_put(c, LSE, row, 0);
    if (writes_slot(c->p, LOSS) && ce_each(c->p)) row_put(c, LOSS, row, 0);
    strip dx = row_of(c, DX, row);
    ce_zero_row(&dx, K_of(c->p));
  }
  stream_fence();
}

static job begin(const cpu_call *c) {
  job j = {.c = c, .r = room_at(c->p, c->workspace), .f = ce_formula_of(c->p, C_of(c->p)), .first = true};
  j.divisor = ce_divisor(c, TARGET);
  pool_run(c->threads, softmax_tasks(rows_in(c->p), K_of(c->p)), ignored_task, &j);
  return j;
}

/* ---- forward ---- */
static void loss_task(void *context, int64_t task) {
  const job *j = context;
  int64_t each = lines_each(j, j->f.cols);
  for (int64_t i = task * each; i < min64((task + 1) * each, j->count); i++) {
    strip x = line_of(j->r.logits, i, j->f.cols);
    ce_row r = ce_row_of(REALS, &x, &j->f, j->r.target[i]);
    j->r.loss[i] = r.loss;
    row_put(j->c, LSE, j->r.row[i], r.lse);
    if (ce_each(j->c->p)) row_put(j->c, LOSS, j->r.row[i], r.loss);
  }
  stream_fence();
}

static void forward(const cpu_call *c) {
  job j = begin(c);
  cascade sum = {.count = 0};
  while (j.next < rows_in(c->p)) {
    next_block(&j);
    for_lines(&j, j.f.cols, loss_task);
    for (int64_t i = 0; i < j.count; i++) cascade_add(&sum, j.r.loss[i]);
  }
  if (!ce_each(c->p)) ce_put_total(c, LOSS, cascade_total(&sum) / j.divisor);
}

/* ---- backward ---- */
static void dlogits_task(void *context, int64_t task) {
  const job *j = context;
  const cpu_call *c = j->c;
  int64_t each = lines_each(j, j->f.cols);
  for (int64_t i = task * each; i < min64((task + 1) * each, j->m); i++) {
    strip x = line_of(j->r.logits, i, j->f.cols);
    if (i >= j->count) {
      ce_zero_row(&x, j->f.cols);
      continue;
    }
    int64_t row = j->r.row[i], target = j->r.target[i];
    ce_row r = reads_slot(c->p, LSE) ? ce_row_saved(row_get(c, LSE, row)) : ce_row_of(REALS, &x, &j->f, target);
    ce_dlogits(REALS, &x, &x, &j->f, &r, target, ce_dloss(c, DLOSS, row, j->divisor));
  }
}

static void scatter_task(void *context, int64_t task) {
  const job *j = context;
  int64_t K = K_of(j->c->p), each = lines_each(j, K);
  for (int64_t i = task * each; i < min64((task + 1) * each, j->count); i++) {
    strip dx = row_of(j->c, DX, j->r.row[i]);
    for (int64_t k = 0; k < K; k += TILE) strip_put(&dx, k, min64(TILE, K - k), j->r.dx + i * K + k);
  }
  stream_fence();
}

static void put_dx(job *j) {
  gemm_shape s = dx_shape(j->c->p, j->m);
  multiply(j, &s, j->r.logits, j->c->at[W], j->r.dx);
  for_lines(j, K_of(j->c->p), scatter_task);
}

static void add_dw(const job *j) {
  gemm_shape s = dw_shape(j->c->p, j->m, j->first);
  multiply(j, &s, j->r.logits, j->r.x, sums_dw(j->c->p) ? (void *)j->r.dw : j->c->at[DW]);
}

/* Column sums of some columns: 32 rows at a time, then those with Kahan's correction. */
static void db_task(void *context, int64_t task) {
  const job *j = context;
  int64_t C = j->f.cols, first = task * TILE, n = min64(TILE, C - first);
  TILE_OF_REALS part[TILE];
  if (j->first) memset(j->r.db + first, 0, (size_t)n * sizeof(real));
  if (j->first) memset(j->r.db_lost + first, 0, (size_t)n * sizeof(real));
  for (int64_t i = 0; i < j->count; i += BLOCK_ROWS) {
    memset(part, 0, sizeof part);
    for (int64_t r = i; r < min64(i + BLOCK_ROWS, j->count); r++)
      for (int64_t k = 0; k < n; k++) part[k] += j->r.logits[r * C + first + k];
    kahan_add(j->r.db + first, j->r.db_lost + first, part, n);
  }
}

static void put_sums_of_dw(void *context, int64_t c) {
  const job *j = context;
  int64_t K = K_of(j->c->p);
  const ambi_tensor *t = &j->c->p->t[DW];
  strip dw = strip_of(j->c, DW, c * t->stride[0], t->stride[1]);
  for (int64_t k = 0; k < K; k += TILE) strip_put(&dw, k, min64(TILE, K - k), j->r.dw + c * K + k);
  stream_fence();
}

static void put_db(const job *j) {
  strip db = strip_of(j->c, DB, 0, j->c->p->t[DB].stride[0]);
  for (int64_t k = 0; k < j->f.cols; k += TILE) strip_put(&db, k, min64(TILE, j->f.cols - k), j->r.db + k);
  stream_fence();
}

static void backward(const cpu_call *c) {
  job j = begin(c);
  do { /* once even without rows: the sums are then 0 */
    next_block(&j);
    for_lines(&j, j.f.cols, dlogits_task);
    if (writes_slot(c->p, DX)) put_dx(&j);
    if (writes_slot(c->p, DW)) add_dw(&j);
    if (writes_slot(c->p, DB)) pool_run(c->threads, ceil_div(j.f.cols, TILE), db_task, &j);
    j.first = false;
  } while (j.next < rows_in(c->p));
  if (sums_dw(c->p)) pool_run(c->threads, C_of(c->p), put_sums_of_dw, &j);
  if (writes_slot(c->p, DB)) put_db(&j);
}

const cpu_kernel CPU_KERNEL(linear_cross_entropy) = {"blocks", workspace, forward, backward};
