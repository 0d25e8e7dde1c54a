/* linear_cross_entropy on CUDA: blocks of rows one after another, in one call of the plan; see backends/cuda/gemm.h for
 * the products and cuda.cu for what lies between them.
 *
 *   of each block (M rows)   x of the rows that count;   logits = x W^T;   then row by row, adding b:
 *   forward                  loss, lse
 *   backward                 logits become dlogits;   dx = dlogits W;   dW += dlogits^T x;   db += its column sums
 *
 * Where x and W are bf16, so are dlogits: the products then are those of bf16, as if logits had been a tensor.      */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/gemm.h"
#include "backends/cuda/rows.h"
#include "ops/cross_entropy/row.h"

enum { X = AMBI_LINEAR_CE_X, W = AMBI_LINEAR_CE_W, B = AMBI_LINEAR_CE_B, TARGET = AMBI_LINEAR_CE_TARGET };
enum { LOSS = AMBI_LINEAR_CE_LOSS, LSE = AMBI_LINEAR_CE_LSE };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B) };

extern const char linear_cross_entropy_cu[];

/* A block has at most MOST_ROWS rows, and LEAST_ROWS even where they take more than BLOCK_BYTES. */
enum { MOST_ROWS = 2048, LEAST_ROWS = 128, BLOCK_BYTES = 256 << 20 };

static int64_t C_of(const problem *p) { return p->t[W].shape[0]; }
static int64_t K_of(const problem *p) { return p->t[W].shape[1]; }
static int64_t rows_in(const problem *p) { return rows_of(p)->rows.count; }
static int64_t ld_of(const problem *p) { return ceil_div(C_of(p), 8) * 8; } /* rows of logits begin at 16 bytes */

static int64_t block_rows(const problem *p) {
  int64_t row = ld_of(p) * (int64_t)real_bytes(p), fit = BLOCK_BYTES / (row ? row : 1) / LEAST_ROWS * LEAST_ROWS;
  fit = fit < LEAST_ROWS ? LEAST_ROWS : fit > MOST_ROWS ? MOST_ROWS : fit;
  return fit < rows_in(p) ? fit : rows_in(p);
}

/* Threads to a row of logits, which each take 4 at a time. */
static int row_threads(int64_t C) { return C <= 256 ? 32 : C < 8192 ? 256 : 512; }

/* What dlogits are stored as. */
static ambi_dtype d_dtype(const problem *p) {
  bool halves = p->t[X].dtype == AMBI_BF16 && p->t[W].dtype == AMBI_BF16 && p->compute == AMBI_F32;
  return halves ? AMBI_BF16 : p->compute;
}

/* dW of several blocks is summed beside it where it could not hold the sums itself. */
static bool sums_dw(const problem *p) {
  return writes_slot(p, DW) && rows_in(p) > block_rows(p) && p->t[DW].dtype != p->compute;
}

/* ---- the products of a block of m rows ---- */
enum { LOGITS_PRODUCT, DX_PRODUCT, DW_PRODUCT, PRODUCTS };

static cuda_matrix weight(const problem *p, int slot) {
  const ambi_tensor *w = &p->t[slot];
  return (cuda_matrix){w->dtype, cuda_plain_axis(w->stride[0]), cuda_plain_axis(w->stride[1])};
}

static cuda_product product_of(const problem *p, int which, int64_t m) {
  int64_t C = C_of(p), K = K_of(p);
  ambi_dtype d = d_dtype(p);
  cuda_matrix x = cuda_dense_matrix(p->t[X].dtype, K), logits = cuda_dense_matrix(p->compute, ld_of(p));
  cuda_matrix dlogits = cuda_dense_matrix(d, ld_of(p) * (int64_t)real_bytes(p) / dtype_bytes(d));
  cuda_matrix dw = sums_dw(p) ? cuda_dense_matrix(p->compute, K) : weight(p, writes_slot(p, DW) ? DW : W);
  const cuda_product all[PRODUCTS] = {
      [LOGITS_PRODUCT] = {.m = m, .n = C, .k = K, .a = x, .b = cuda_transposed(weight(p, W)), .c = logits},
      [DX_PRODUCT] = {.m = m, .n = K, .k = C, .a = dlogits, .b = weight(p, W), .c = cuda_dense_matrix(p->compute, K)},
      [DW_PRODUCT] = {.m = C, .n = K, .k = m, .a = cuda_transposed(dlogits), .b = x, .c = dw},
  };
  return all[which];
}

/* ---- the call ---- */
typedef struct {
  int64_t rows, block;
  cuda_gemm *gemm[2][PRODUCTS];        /* of whole blocks, and of the last when it has fewer rows; NULL: not wanted */
  uint64_t x, logits, dx, dw, work;    /* in the workspace */
  int gather, row_kernel, scatter, db; /* held launches */
  int first;                           /* of the numbers FIRST and HERE */
  bool sums_dw;
} job;

static void free_job(const cuda_device *d, void *context) {
  job *j = context;
  for (int i = 0; i < 2 * PRODUCTS; i++) cuda_gemm_free(d, j->gemm[i / PRODUCTS][i % PRODUCTS]);
  free(j);
}

static ambi_status run_dx(const cuda_plan *k, const job *j, const cuda_gemm *g, cuda_args *args, void *stream) {
  const uint64_t work = args->work;
  if (!g) return AMBI_OK;
  TRY(cuda_gemm_run(
      k, g, &(cuda_operands){.a = work + j->logits, .b = args->at[W], .c = work + j->dx, .work = work + j->work}, false,
      stream));
  return cuda_launch_held(k, j->scatter, args, stream);
}

static ambi_status run_dw(const cuda_plan *k, const job *j, const cuda_gemm *g, const cuda_args *args, bool first,
                          void *stream) {
  const uint64_t work = args->work;
  if (!g) return AMBI_OK;
  bool adds = !first || (!j->sums_dw && (args->adds & AMBI_BIT(DW)));
  return cuda_gemm_run(k, g,
                       &(cuda_operands){.a = work + j->logits,
                                        .b = work + j->x,
                                        .c = j->sums_dw ? work + j->dw : args->at[DW],
                                        .work = work + j->work},
                       adds, stream);
}

static ambi_status run_block(const cuda_plan *k, const job *j, cuda_args *args, int64_t first, void *stream) {
  const int64_t left = j->rows - first, here = left < j->block ? left : j->block;
  cuda_gemm *const *g = j->gemm[here < j->block];
  const uint64_t work = args->work;
  args->n[j->first] = first;
  args->n[j->first + 1] = here;
  TRY(cuda_launch_held(k, j->gather, args, stream));
  TRY(cuda_gemm_run(k, g[LOGITS_PRODUCT],
                    &(cuda_operands){.a = work + j->x, .b = args->at[W], .c = work + j->logits, .work = work + j->work},
                    false, stream));
  TRY(cuda_launch_held(k, j->row_kernel, args, stream));
  TRY(run_dw(k, j, g[DW_PRODUCT], args, first == 0, stream));
  TRY(cuda_launch_held(k, j->db, args, stream));
  return run_dx(k, j, g[DX_PRODUCT], args, stream);
}

static ambi_status run_blocks(const cuda_plan *k, void *context, const cuda_args *given, void *stream) {
  const job *j = context;
  cuda_args args;
  memcpy(&args, given, offsetof(cuda_args, n) + (size_t)k->numbers * sizeof *args.n);
  int64_t first = 0;
  do { /* once even without rows: the sums are then 0 */
    TRY(run_block(k, j, &args, first, stream));
    first += j->block;
  } while (first < j->rows);
  return AMBI_OK;
}

/* ---- the plan ---- */
static void say_numbers(cuda_plan *k) {
  const problem *p = k->p;
  const int64_t C = C_of(p);
  cuda_math(k);
  cuda_number(k, "TOTAL", rows_in(p));
  cuda_number(k, "CLASSES", C);
  cuda_number(k, "LD", ld_of(p));
  cuda_number(k, "IGNORED", p->op.u.cross_entropy.ignore_index);
  cuda_number(k, "MEAN", ce_mean(p));
  cuda_number(k, "EACH", ce_each(p));
  cuda_number(k, "B_STRIDE", has_slot(p, B) ? p->t[B].stride[0] : 0);
  cuda_real(k, "SMOOTHING", p->op.u.cross_entropy.label_smoothing);
  cuda_real(k, "Z_LOSS", p->op.u.cross_entropy.z_loss);
  cuda_real(k, "SOFTCAP", p->op.u.cross_entropy.softcap);
  (k->special ? cuda_fix : cuda_number)(k, "CAPPED", p->op.u.cross_entropy.softcap > 0);
  (k->special ? cuda_fix : cuda_number)(k, "D_DTYPE", d_dtype(p));
  cuda_fix(k, "ROW_THREADS", row_threads(C));
}

/* Where NAME begins. */
static uint64_t room(cuda_plan *k, const char *name, int64_t rows, int64_t cols, int64_t bytes) {
  uint64_t at = k->workspace;
  cuda_workspace(k, name, (uint64_t)rows * (uint64_t)cols * (uint64_t)bytes);
  return at;
}

static void say_rooms(cuda_plan *k, job *j) {
  const problem *p = k->p;
  const int64_t C = C_of(p), K = K_of(p), bytes = (int64_t)real_bytes(p);
  room(k, "DIVISOR", 1, 1, bytes);
  j->x = room(k, "X_BLOCK", j->block, K, dtype_bytes(p->t[X].dtype));
  j->logits = room(k, "LOGITS", j->block, ld_of(p), bytes);
  if (!is_backward(p)) room(k, "ROW_LOSS", j->rows, 1, bytes);
  if (!is_backward(p)) return;
  j->dx = room(k, "DX_BLOCK", writes_slot(p, DX) ? j->block : 0, K, bytes);
  j->dw = room(k, "DW_SUMS", j->sums_dw ? C : 0, K, bytes);
  room(k, "DB_SUMS", writes_slot(p, DB) ? 2 : 0, C, bytes);
  cuda_number(k, "DW_ROW", writes_slot(p, DW) ? p->t[DW].stride[0] : 0);
  cuda_number(k, "DW_COL", writes_slot(p, DW) ? p->t[DW].stride[1] : 0);
  cuda_number(k, "DB_STRIDE", writes_slot(p, DB) ? p->t[DB].stride[0] : 0);
}

static ambi_status plan_products(cuda_plan *k, job *j) {
  const bool wanted[PRODUCTS] = {true, writes_slot(k->p, DX), writes_slot(k->p, DW)};
  const int64_t sizes[2] = {j->block, j->block ? j->rows % j->block : 0};
  uint64_t most = 0;
  for (int i = 0; i < 2 * PRODUCTS; i++) {
    int64_t m = sizes[i / PRODUCTS];
    if (!wanted[i % PRODUCTS] || (i >= PRODUCTS && m == 0)) continue;
    cuda_gemm **g = &j->gemm[i / PRODUCTS][i % PRODUCTS];
    cuda_product p = product_of(k->p, i % PRODUCTS, m);
    p.compute = k->p->compute;
    TRY(cuda_gemm_make(k, &p, g));
    if (cuda_gemm_workspace(*g) > most) most = cuda_gemm_workspace(*g);
  }
  k->variant = cuda_gemm_name(j->gemm[0][LOGITS_PRODUCT]);
  j->work = k->workspace;
  k->workspace += most;
  return AMBI_OK;
}

static void plan_launches(cuda_plan *k, job *j, row_split r) {
  const problem *p = k->p;
  const int64_t C = C_of(p), lines = cuda_blocks(k, ceil_div(j->block, r.groups), 16);
  const int64_t rows = cuda_blocks(k, j->block, 8);
  cuda_launch(k, "lce_count", 1, 1, 1024, 1, 0);
  j->gather = cuda_held(k, "lce_gather", lines, 1, r.group, r.groups);
  j->row_kernel = cuda_held(k, is_backward(p) ? "lce_dlogits" : "lce_loss", rows, 1, row_threads(C), 1);
  j->scatter = writes_slot(p, DX) ? cuda_held(k, "lce_scatter", lines, 1, r.group, r.groups) : -1;
  j->db = writes_slot(p, DB) ? cuda_held(k, "lce_db", ceil_div(C, 256), 1, 256, 1) : -1;
}

static ambi_status plan(cuda_plan *k) {
  const problem *p = k->p;
  job *j = calloc(1, sizeof *j);
  if (!j) return fail(AMBI_NO_MEMORY, "linear_cross_entropy: no memory for a plan");
  j->rows = rows_in(p), j->block = block_rows(p), j->sums_dw = sums_dw(p);
  row_split r = cuda_rows(k, ~(AMBI_BIT(X) | AMBI_BIT(DX)), (row_wishes){.each = 16});
  j->first = k->numbers;
  cuda_number(k, "FIRST", 0);
  cuda_number(k, "HERE", 0);
  say_numbers(k);
  say_rooms(k, j);
  plan_launches(k, j, r);
  ambi_status status = plan_products(k, j);
  if (status != AMBI_OK) return free_job(k->dev, j), status;
  cuda_then(k, run_blocks, j, free_job);
  if (writes_slot(p, LOSS) && !ce_each(p)) cuda_launch(k, "lce_total", 1, 1, 1024, 1, 0);
  if (writes_slot(p, DB)) cuda_launch(k, "lce_put_db", ceil_div(C_of(p), 256), 1, 256, 1, 0);
  if (sums_dw(p)) cuda_launch(k, "lce_put_dw", cuda_blocks(k, C_of(p), 8), 1, 256, 1, 0);
  return AMBI_OK;
}

const cuda_kernel linear_cross_entropy_cuda = {linear_cross_entropy_cu, plan};
