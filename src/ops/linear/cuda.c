/* linear on CUDA: three matrix products, see backends/cuda/gemm.h, and db, the column sums of dy: by cuBLASLt in the
 * epilogue of dW where that pays, or by cuda.cu.
 *
 *            C = A B       m  n  k
 *   forward  y = x W^T     M  N  K   (+ b)
 *   dx         = dy W      M  K  N
 *   dW         = dy^T x    N  K  M   (and db, the row sums of dy^T)                                                  */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/gemm.h"
#include "backends/cuda/rows.h"
#include "backends/cuda/text.h"

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };

extern const char linear_cu[];

/* ---- the products ---- */
/* x, y and their gradients: a row for each m */
static cuda_matrix by_rows(const problem *p, int slot) {
  const rows_recipe *r = rows_of(p);
  return (cuda_matrix){p->t[slot].dtype, cuda_grid_axis(&r->rows, slot), cuda_plain_axis(r->col_stride[slot])};
}

static cuda_matrix weight(const problem *p, int slot) {
  const ambi_tensor *w = &p->t[slot];
  return (cuda_matrix){w->dtype, cuda_plain_axis(w->stride[0]), cuda_plain_axis(w->stride[1])};
}

typedef struct {
  int a, b, c; /* slots */
  cuda_gemm *gemm;
  uint64_t work; /* offset */
  int db[2];     /* dW's: held launches, for when its product does not give db; -1: none */
} step;

/* An epilogue writes db, and does not add to it. */
static bool db_joins_dw(const problem *p) {
  if (!writes_slot(p, DW) || !writes_slot(p, DB) || (p->accumulates & AMBI_BIT(DB))) return false;
  return p->t[DB].stride[0] == 1 || p->t[DB].shape[0] <= 1;
}

static cuda_product product_of(const problem *p, const step *s) {
  int64_t M = rows_of(p)->rows.count, N = p->t[W].shape[0], K = p->t[W].shape[1];
  cuda_product y = {
      .compute = p->compute, .accumulate = (p->accumulates & AMBI_BIT(s->c)) != 0, .tf32 = p->op.u.linear.tf32 != 0};
  y.m = s->c == DW ? N : M, y.n = s->c == Y ? N : K, y.k = s->c == Y ? K : s->c == DX ? N : M;
  y.a = s->c == DW ? cuda_transposed(by_rows(p, DY)) : by_rows(p, s->a);
  y.b = s->c == Y ? cuda_transposed(weight(p, W)) : s->c == DX ? weight(p, W) : by_rows(p, X);
  y.c = s->c == DW ? weight(p, DW) : by_rows(p, s->c);
  if (s->c == Y && has_slot(p, B)) y.bias = p->t[B].dtype, y.bias_stride = p->t[B].stride[0];
  if (s->c == DW && db_joins_dw(p)) y.db = p->t[DB].dtype;
  return y;
}

static ambi_status run_db(const cuda_plan *k, const step *s, const cuda_args *given, void *stream) {
  cuda_args args;
  if (s->db[1] < 0) return AMBI_OK;
  memcpy(&args, given, offsetof(cuda_args, n) + (size_t)k->numbers * sizeof *args.n);
  TRY(cuda_launch_held(k, s->db[0], &args, stream));
  return cuda_launch_held(k, s->db[1], &args, stream);
}

static ambi_status run_step(const cuda_plan *k, void *context, const cuda_args *args, void *stream) {
  const step *s = context;
  cuda_operands at = {.a = args->at[s->a], .b = args->at[s->b], .c = args->at[s->c], .work = args->work + s->work};
  if (s->c == Y) at.bias = args->at[B];
  if (s->c == DW) at.db = args->at[DB];
  if (s->c == DW && !cuda_gemm_gives_db(s->gemm, &at)) TRY(run_db(k, s, args, stream));
  return cuda_gemm_run(k, s->gemm, &at, (args->adds & AMBI_BIT(s->c)) != 0, stream);
}

static void free_step(const cuda_device *d, void *context) {
  cuda_gemm_free(d, ((step *)context)->gemm);
  free(context);
}

/* The products take turns in one workspace, which ends the plan's. */
static ambi_status plan_product(cuda_plan *k, const step *wanted, uint64_t *needs) {
  if (!writes_slot(k->p, wanted->c)) return AMBI_OK;
  step *s = malloc(sizeof *s);
  if (!s) return fail(AMBI_NO_MEMORY, "linear: no memory for a plan");
  *s = *wanted;
  const cuda_product p = product_of(k->p, s);
  ambi_status status = cuda_gemm_make(k, &p, &s->gemm);
  if (status != AMBI_OK) return free_step(k->dev, s), status;
  uint64_t bytes = cuda_gemm_workspace(s->gemm);
  if (bytes > *needs) *needs = bytes;
  k->variant = cuda_gemm_name(s->gemm);
  cuda_then(k, run_step, s, free_step);
  return AMBI_OK;
}

/* ---- db: PARTS sums over some rows each, then the sum of those ---- */
static void plan_db(cuda_plan *k, step *dw) {
  enum { WIDTH = 64, ROWS_AT_ONCE = 4 }; /* threads of a block: WIDTH x ROWS_AT_ONCE */
  const rows_recipe *r = rows_of(k->p);
  int64_t M = r->rows.count, N = k->p->t[W].shape[0], vec = cuda_vector(k, AMBI_BIT(DY));
  if (!cuda_specialise(k, vec > 1)) vec = 1;
  int64_t blocks = ceil_div(N, WIDTH * vec), parts = ceil_div(M, 8 * ROWS_AT_ONCE), most = 65535;
  if (blocks > 0) most = ceil_div((int64_t)k->dev->multiprocessors * 8, blocks);
  if (parts > most) parts = most;
  cuda_grid(k, "ROW", &r->rows);
  cuda_number(k, "ROWS", M);
  cuda_number(k, "COLS", N);
  cuda_number(k, "PARTS", parts);
  cuda_fix(k, "VEC", vec);
  cuda_fix(k, "GROUP", WIDTH);
  cuda_fix(k, "UNEVEN", 0);
  cuda_fix(k, "CHUNKS", 1);
  cuda_fix(k, "KEEP", 0);
  cuda_fix(k, "EXACT", 0);
  cuda_strides(k, "COL", r->col_stride);
  cuda_part(k, rows_cu);
  cuda_workspace(k, "PARTIAL", (uint64_t)parts * (uint64_t)N * real_bytes(k->p));
  if (db_joins_dw(k->p)) {
    dw->db[0] = cuda_held(k, "linear_db_parts", blocks, parts, WIDTH, ROWS_AT_ONCE);
    dw->db[1] = cuda_held(k, "linear_db", ceil_div(N, 32), 1, 32, 32);
    return;
  }
  cuda_launch(k, "linear_db_parts", blocks, parts, WIDTH, ROWS_AT_ONCE, 0);
  cuda_launch(k, "linear_db", ceil_div(N, 32), 1, 32, 32, 0);
}

static ambi_status plan(cuda_plan *k) {
  uint64_t bytes = 0;
  step y = {.a = X, .b = W, .c = Y}, dx = {.a = DY, .b = W, .c = DX}, dw = {.a = DY, .b = X, .c = DW, .db = {-1, -1}};
  if (writes_slot(k->p, DB)) plan_db(k, &dw);
  y.work = dx.work = dw.work = k->workspace;
  TRY(plan_product(k, &y, &bytes));
  TRY(plan_product(k, &dx, &bytes));
  TRY(plan_product(k, &dw, &bytes));
  k->workspace += bytes;
  return AMBI_OK;
}

const cuda_kernel linear_cuda = {linear_cu, plan};
