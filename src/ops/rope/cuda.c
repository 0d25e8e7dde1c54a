/* rope on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "ops/rope/op.h"

enum { X = AMBI_ROPE_X, POSITIONS = AMBI_ROPE_POSITIONS, FREQUENCIES = AMBI_ROPE_FREQUENCIES, Y = AMBI_ROPE_Y };
enum { THREADS = 256 };
enum { WINDOW = 128 }; /* pairs of a launch: their frequencies travel in its arguments */

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
    if (!reads_slot(k->p, s) && !writes_slot(k->p, s)) continue;
    const ambi_dtype t = k->p->t[s].dtype;
    if (!whole_words(r->batch_stride[s] | r->row_stride[s], t)) return false;
    for (int axis = 0; axis < r->heads.ndim; axis++)
      if (!whole_words(r->heads.stride[s][axis], t)) return false;
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

/* ---- launches: a window of pairs each ---- */
/* Its frequencies are those that the CPU would use, bit for bit: the position multiplies an ulp more or less. */
typedef struct {
  int rotate;       /* the held launch */
  int first, table; /* of the numbers FIRST_PAIR and PAIRS; of the frequencies */
} windows;

static void fill_window(const problem *p, const windows *w, int64_t first, int64_t *n) {
  int64_t left = rope_of(p)->dims / 2 - first;
  n[w->first] = first;
  n[w->first + 1] = left < WINDOW ? left : WINDOW;
  for (int64_t i = 0; i < n[w->first + 1] && !reads_slot(p, FREQUENCIES); i++) {
    double frequency = rope_frequency(p, first + i);
    memcpy(&n[w->table + i], &frequency, sizeof frequency);
  }
}

static ambi_status rotate_windows(const cuda_plan *k, void *context, const cuda_args *given, void *stream) {
  const windows *w = context;
  cuda_args args;
  memcpy(&args, given, offsetof(cuda_args, n) + (size_t)k->numbers * sizeof *args.n);
  for (int64_t first = 0; first < rope_of(k->p)->dims / 2; first += WINDOW) {
    if (first > 0) fill_window(k->p, w, first, args.n); /* the plan has the first */
    TRY(cuda_launch_held(k, w->rotate, &args, stream));
  }
  return AMBI_OK;
}

static void free_windows(const cuda_device *d, void *context) {
  (void)d;
  free(context);
}

/* Heads that a thread turns by the angles it has computed, all under way at once: of f32, whose vectors are as many
 * bytes and half the pairs, fewer are faster. */
static int64_t heads_each(const cuda_plan *k) {
  return k->special && dtype_bytes(k->p->t[is_backward(k->p) ? AMBI_GRAD(Y) : X].dtype) == 4 ? 2 : 4;
}

/* Blocks in y share the heads. */
static int64_t head_blocks(const cuda_plan *k) {
  int64_t groups = ceil_div(rope_of(k->p)->heads.count, heads_each(k));
  return groups < 65535 ? groups : 65535;
}

static ambi_status plan_rotation(cuda_plan *k, int64_t vec) {
  const rope_recipe *r = rope_of(k->p);
  int64_t pairs = r->dims / 2 < WINDOW ? r->dims / 2 : WINDOW, rows = r->batches * r->length;
  int64_t blocks_x = ceil_div(rows * (pairs / vec), THREADS);
  windows *w = calloc(1, sizeof *w);
  if (!w) return fail(AMBI_NO_MEMORY, "rope: no memory for a plan");
  w->first = k->numbers;
  cuda_number(k, "FIRST_PAIR", 0);
  cuda_number(k, "PAIRS", 0);
  w->table = cuda_numbers(k, "FREQUENCY_BITS", WINDOW);
  w->rotate = cuda_held(k, "rope_rotate", blocks_x, head_blocks(k), THREADS, 1);
  if (!k->failed) fill_window(k->p, w, 0, k->args.n);
  cuda_then(k, rotate_windows, w, free_windows);
  return AMBI_OK;
}

static ambi_status plan(cuda_plan *k) {
  const rope_recipe *r = rope_of(k->p);
  int64_t rows = r->batches * r->length, rest = r->channels - r->dims, vec = vector_of(k, r);
  if (!cuda_specialise(k, vec > 1)) vec = 1;
  k->variant = k->special ? "heads" : "general";
  say_strides(k, r);
  cuda_fix(k, "VEC", vec);
  cuda_fix(k, "EVEN", k->special && rows_are_even(k, r));
  cuda_fix(k, "HEADS_EACH", heads_each(k));
  cuda_fix(k, "WINDOW", WINDOW);
  cuda_fix(k, "INTERLEAVED", k->p->op.u.rope.interleaved);
  cuda_number(k, "LENGTH", r->length);
  cuda_number(k, "POSITIONED", rows);
  cuda_number(k, "HEADS", r->heads.count);
  cuda_number(k, "HALF", r->dims / 2);
  cuda_number(k, "DIMS", r->dims);
  cuda_number(k, "REST", rest);
  cuda_number(k, "FIRST_POSITION", k->p->op.u.rope.offset);
  if (ambi_numel(&k->p->t[is_backward(k->p) ? AMBI_GRAD(X) : Y]) == 0) return AMBI_OK;
  if (r->dims) TRY(plan_rotation(k, vec));
  int64_t blocks_x = cuda_blocks(k, ceil_div(rows * rest, THREADS), 64);
  cuda_launch(k, "rope_rest", blocks_x, head_blocks(k), THREADS, 1, 0);
  return AMBI_OK;
}

const cuda_kernel rope_cuda = {rope_cu, plan};
