/* rope on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/cuda.h"

#include "ops/rope/op.h"

enum { X = AMBI_ROPE_X, POSITIONS = AMBI_ROPE_POSITIONS, FREQUENCIES = AMBI_ROPE_FREQUENCIES, Y = AMBI_ROPE_Y };
enum { THREADS = 256, TABLE_ROWS = 4, HEADS_EACH = 4 };

extern const char rope_cu[];

/* Pairs that a thread takes: whole vectors of x1 and of x2, or two vectors of both in turn */
static int64_t vector_of(const cuda_plan *k, const rope_recipe *r) {
  int64_t vec = cuda_vector(k, ~(AMBI_BIT(POSITIONS) | AMBI_BIT(FREQUENCIES)));
  return r->dims / 2 % vec == 0 ? vec : 1;
}

/* Every row begins at a multiple of 16 bytes where the first does. */
static bool rows_are_even(const cuda_plan *k, const rope_recipe *r) {
  static const int slots[] = {X, Y, AMBI_GRAD(X), AMBI_GRAD(Y)};
  for (int i = 0; i < 4; i++) {
    int s = slots[i];
    int64_t bytes = reads_slot(k->p, s) || writes_slot(k->p, s) ? dtype_bytes(k->p->t[s].dtype) : 0;
    if (r->batch_stride[s] * bytes % 16 || r->row_stride[s] * bytes % 16) return false;
    for (int axis = 0; axis < r->heads.ndim; axis++)
      if (r->heads.stride[s][axis] * bytes % 16) return false;
  }
  return true;
}

static void say_strides(cuda_plan *k, const rope_recipe *r) {
  const ambi_tensor *positions = &k->p->t[POSITIONS];
  bool given = reads_slot(k->p, POSITIONS);
  cuda_grid(k, "HEAD", &r->heads);
  cuda_strides(k, "BATCH", r->batch_stride);
  cuda_strides(k, "ROW", r->row_stride);
  if (k->special)
    cuda_fix(k, "CHANNEL_STRIDE(s)", 1);
  else
    cuda_strides(k, "CHANNEL", r->channel_stride);
  cuda_number(k, "POSITION_BATCH_STRIDE", given && positions->ndim == 2 ? positions->stride[0] : 0);
  cuda_number(k, "POSITION_STRIDE", given ? positions->stride[positions->ndim - 1] : 0);
  cuda_number(k, "FREQUENCY_STRIDE", reads_slot(k->p, FREQUENCIES) ? k->p->t[FREQUENCIES].stride[0] : 0);
}

static ambi_status plan(cuda_plan *k) {
  const rope_recipe *r = rope_of(k->p);
  int64_t half = r->dims / 2, rows = r->batches * r->length, groups = ceil_div(r->heads.count, HEADS_EACH);
  int64_t vec = vector_of(k, r), blocks_y = groups < 65535 ? groups : 65535;
  bool any = ambi_numel(&k->p->t[is_backward(k->p) ? AMBI_GRAD(X) : Y]) > 0;
  if (!cuda_specialise(k, vec > 1)) vec = 1;
  k->variant = k->special ? "table" : "general";
  say_strides(k, r);
  cuda_fix(k, "VEC", vec);
  cuda_fix(k, "EVEN", k->special && rows_are_even(k, r));
  cuda_fix(k, "HEADS_EACH", HEADS_EACH);
  cuda_fix(k, "TABLE_ROWS", TABLE_ROWS);
  cuda_fix(k, "INTERLEAVED", k->p->op.u.rope.interleaved);
  cuda_number(k, "LENGTH", r->length);
  cuda_number(k, "POSITIONED", rows);
  cuda_number(k, "HEADS", r->heads.count);
  cuda_number(k, "HALF", half);
  cuda_number(k, "DIMS", r->dims);
  cuda_number(k, "REST", r->channels - r->dims);
  cuda_number(k, "FIRST_POSITION", k->p->op.u.rope.offset);
  cuda_wide(k, "THETA", k->p->op.u.rope.theta);
  cuda_workspace(k, "TABLE", (uint64_t)rows * (uint64_t)r->dims * real_bytes(k->p));
  if (!any) return AMBI_OK;
  cuda_launch(k, "rope_table", cuda_blocks(k, ceil_div(half, 32) * ceil_div(rows, 8 * TABLE_ROWS), 64), 1, 32, 8, 0);
  cuda_launch(k, "rope_rotate", cuda_blocks(k, ceil_div(rows * (half / vec), THREADS), 4096), blocks_y, THREADS, 1, 0);
  if (r->channels > r->dims)
    cuda_launch(k, "rope_rest", cuda_blocks(k, ceil_div(rows * (r->channels - r->dims), THREADS), 64), blocks_y,
                THREADS, 1, 0);
  return AMBI_OK;
}

const cuda_kernel rope_cuda = {rope_cu, plan};
