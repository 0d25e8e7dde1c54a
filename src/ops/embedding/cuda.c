/* embedding on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/cuda.h"

#include "ops/embedding/op.h"

enum { TOKENS = AMBI_EMBEDDING_TOKENS, W = AMBI_EMBEDDING_W, Y = AMBI_EMBEDDING_Y };
enum { DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y), THREADS = 256, UNROLL = 4 };
enum {
  PIECE = 64,
  LONG = 4096
}; /* tokens summed by one group of threads; those of one word that are not sorted by rank */

extern const char embedding_cu[];

/* A row for `along` threads of a block, which takes THREADS / along at once */
static int threads_along(int64_t vectors) {
  int along = 32;
  while (along < THREADS && along < vectors) along *= 2;
  return along;
}

static void plan_backward(cuda_plan *k, const embedding_recipe *r, int along) {
  const uint64_t n = (uint64_t)r->tokens.count, v = (uint64_t)r->words, word = sizeof(int64_t);
  int64_t pieces = 2 * (r->tokens.count / PIECE), rows = THREADS / along;
  cuda_fix(k, "PIECE", PIECE);
  cuda_fix(k, "LONG", LONG);
  cuda_workspace(k, "CURSORS", 2 * word);
  cuda_workspace(k, "COUNT", v * word);
  cuda_workspace(k, "START", v * word);
  cuda_workspace(k, "FIRST_PIECE", v * word);
  cuda_workspace(k, "NUMBER", n * word);
  cuda_workspace(k, "UNSORTED", n * word);
  cuda_workspace(k, "SORTED", n * word);
  cuda_workspace(k, "PIECE_WORD", (uint64_t)pieces * word);
  cuda_workspace(k, "PIECE_SUM", (uint64_t)pieces * (uint64_t)r->channels * real_bytes(k->p));
  cuda_launch(k, "embedding_clear", cuda_blocks(k, ceil_div(r->words, THREADS), 16), 1, THREADS, 1, 0);
  if (n > 0) {
    int64_t blocks = cuda_blocks(k, ceil_div(r->tokens.count, THREADS), 16);
    cuda_launch(k, "embedding_count", blocks, 1, THREADS, 1, 0);
    cuda_launch(k, "embedding_start", cuda_blocks(k, ceil_div(r->words, THREADS), 16), 1, THREADS, 1, 0);
    cuda_launch(k, "embedding_place", blocks, 1, THREADS, 1, 0);
    cuda_launch(k, "embedding_rank", cuda_blocks(k, ceil_div(r->tokens.count, THREADS / 32), 16), 1, 32, THREADS / 32,
                0);
  }
  if (r->tokens.count > LONG)
    cuda_launch(k, "embedding_collect", cuda_blocks(k, ceil_div(r->words, 32), 4), 1, THREADS, 1, 0);
  cuda_launch(k, "embedding_pieces", cuda_blocks(k, ceil_div(pieces, rows), 8), 1, along, (int)rows, 0);
  cuda_launch(k, "embedding_backward", cuda_blocks(k, ceil_div(r->words, rows), 64), 1, along, (int)rows, 0);
}

/* Every row begins at a multiple of 16 bytes where the first does. */
static bool rows_are_even(const cuda_plan *k, const embedding_recipe *r) {
  int rows = is_backward(k->p) ? DY : Y, words = is_backward(k->p) ? DW : W;
  for (int axis = 0; axis < r->tokens.ndim; axis++)
    if (!whole_words(r->tokens.stride[rows][axis], k->p->t[rows].dtype)) return false;
  return whole_words(k->p->t[words].stride[0], k->p->t[words].dtype);
}

static ambi_status plan(cuda_plan *k) {
  const embedding_recipe *r = embedding_of(k->p);
  bool back = is_backward(k->p);
  int64_t vec = cuda_vector(k, ~AMBI_BIT(TOKENS)), stride[AMBI_SLOTS] = {0};
  bool fast = cuda_specialise(k, vec > 1);
  if (!fast) vec = 1;
  stride[back ? DY : Y] = r->stride[back ? DY : Y];
  stride[back ? DW : W] = k->p->t[back ? DW : W].stride[1];
  k->variant = fast ? "rows" : "general";
  cuda_grid(k, "TOKEN", &r->tokens);
  cuda_number(k, "COUNT_OF_TOKENS", r->tokens.count);
  cuda_number(k, "WORDS", r->words);
  cuda_number(k, "CHANNELS", r->channels);
  cuda_number(k, "WORD_STRIDE", k->p->t[back ? DW : W].stride[0]);
  cuda_fix(k, "VEC", vec);
  cuda_fix(k, "WHOLE", r->channels % vec == 0);
  cuda_fix(k, "EVEN", fast && rows_are_even(k, r));
  cuda_fix(k, "UNROLL", UNROLL);
  if (fast)
    cuda_fix(k, "CHANNEL_STRIDE(s)", 1);
  else
    cuda_strides(k, "CHANNEL", stride);
  int64_t vectors = ceil_div(r->channels, vec);
  int along = threads_along(vectors);
  if (vectors == 0) return AMBI_OK;
  if (back && r->words > 0)
    plan_backward(k, r, along);
  else if (!back)
    cuda_launch(k, "embedding_forward", ceil_div(r->tokens.count, THREADS / along * UNROLL), 1, along, THREADS / along,
                0);
  return AMBI_OK;
}

const cuda_kernel embedding_cuda = {embedding_cu, plan};
