/* linear on the CPU: three matrix products, see backends/cpu/gemm.h, and the column sums of dy.
 *
 *            C = A B       m  n  k
 *   forward  y = x W^T     M  N  K   (+ b)
 *   dx         = dy W      M  K  N
 *   dW         = dy^T x    N  K  M                                                                                  */
#include "backends/cpu/gemm.h"
#include "backends/cpu/norm.h"

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };

extern const gemm_isa CPU_KERNEL(gemm);

/* x, y and their gradients: a row for each m */
static gemm_matrix by_rows(const problem *p, int slot) {
  const rows_recipe *r = rows_of(p);
  return (gemm_matrix){p->t[slot].dtype, gemm_grid_axis(&r->rows, slot), gemm_plain_axis(r->col_stride[slot])};
}

static gemm_matrix weight(const problem *p, int slot) {
  const ambi_tensor *w = &p->t[slot];
  return (gemm_matrix){w->dtype, gemm_plain_axis(w->stride[0]), gemm_plain_axis(w->stride[1])};
}

static gemm_shape product(const problem *p, gemm_matrix a, gemm_matrix b, int c, int64_t m, int64_t n, int64_t k) {
  gemm_shape s = {.m = m, .n = n, .k = k, .a = a, .b = b};
  s.c = c == DW ? weight(p, c) : by_rows(p, c);
  s.accumulate = (p->accumulates & AMBI_BIT(c)) != 0;
  return s;
}

static gemm_shape product_of(const problem *p, int slot) {
  int64_t M = rows_of(p)->rows.count, N = p->t[W].shape[0], K = p->t[W].shape[1];
  if (slot == DX) return product(p, by_rows(p, DY), weight(p, W), DX, M, K, N);
  if (slot == DW) return product(p, gemm_transposed(by_rows(p, DY)), by_rows(p, X), DW, N, K, M);
  gemm_shape y = product(p, by_rows(p, X), gemm_transposed(weight(p, W)), Y, M, N, K);
  if (has_slot(p, B)) y.bias = p->t[B].dtype, y.bias_col = p->t[B].stride[0];
  return y;
}

static void multiply(const cpu_call *c, int slot, int a, int b) {
  gemm_shape s = product_of(c->p, slot);
  gemm_data d = {.a = c->at[a], .b = c->at[b], .bias = slot == Y ? c->at[B] : NULL, .c = c->at[slot]};
  gemm_run(&CPU_KERNEL(gemm), c->features, &s, &d, c->workspace, c->threads);
}

static void forward(const cpu_call *c) { multiply(c, Y, X, W); }

/* ---- db: each task sums some rows, then the tasks' sums are added ---- */
static void db_rows(void *context, int64_t task) {
  const cpu_call *c = context;
  int64_t rows = rows_of(c->p)->rows.count, N = c->p->t[W].shape[0], each = rows_per_task(rows, N);
  column_sums db = column_sums_at(c->workspace + task * (int64_t)column_sums_bytes(N), N);
  TILE_OF_REALS tile[TILE];
  column_sums_clear(&db);
  for (int64_t m = task * each; m < min64((task + 1) * each, rows); m++) {
    strip dy = row_of(c, DY, m);
    for (int64_t i = 0; i < N; i += TILE) {
      int64_t n = min64(TILE, N - i);
      const real *d = strip_in(&dy, i, n, tile);
      for (int64_t k = 0; k < n; k++) db.block[i + k] += d[k];
    }
    column_sums_rows_done(&db, 1);
  }
  column_sums_flush(&db);
}

static void db_total(void *context, int64_t task) {
  const cpu_call *c = context;
  int64_t rows = rows_of(c->p)->rows.count, N = c->p->t[W].shape[0], i = task * TILE, n = min64(TILE, N - i);
  TILE_OF_REALS total[TILE];
  strip db = strip_of(c, DB, 0, c->p->t[DB].stride[0]);
  if (n < 1) return; /* it never is, but without this gcc warns of a tile not written */
  column_sums_total(c->workspace, row_tasks(rows, N), N, i, n, total);
  strip_put(&db, i, n, total);
  stream_fence();
}

static void backward(const cpu_call *c) {
  int64_t rows = rows_of(c->p)->rows.count, N = c->p->t[W].shape[0];
  if (writes_slot(c->p, DX)) multiply(c, DX, DY, W);
  if (writes_slot(c->p, DW)) multiply(c, DW, DY, X);
  if (!writes_slot(c->p, DB)) return;
  pool_run(c->threads, row_tasks(rows, N), db_rows, (void *)c);
  pool_run(c->threads, ceil_div(N, TILE), db_total, (void *)c);
}

/* The products and the sums take turns in one workspace. */
static uint64_t workspace(const problem *p, const cpu_features *features) {
  static const int products[] = {Y, DX, DW};
  int64_t N = p->t[W].shape[0];
  uint64_t bytes = writes_slot(p, DB) ? (uint64_t)row_tasks(rows_of(p)->rows.count, N) * column_sums_bytes(N) : 0;
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    if (!writes_slot(p, products[i])) continue;
    gemm_shape s = product_of(p, products[i]);
    uint64_t needs = gemm_workspace(&CPU_KERNEL(gemm), features, &s);
    if (needs > bytes) bytes = needs;
  }
  return bytes;
}

const cpu_kernel CPU_KERNEL(linear) = {"gemm", workspace, forward, backward};
