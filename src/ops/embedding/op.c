/* embedding -- a row of a table for each token.
 *
 *   y[i] = w[tokens[i]]
 *   dw[v] = sum of dy[i] over every i with tokens[i] = v
 *
 * tokens is (..), w is (V, C) and y is (.., C). A token outside [0, V) names no row: its y is NaN, which cannot be
 * overlooked, and its dy goes nowhere. A row that no token names gets a gradient of 0. */
#include "ops/embedding/op.h"

#include <string.h>

enum { TOKENS = AMBI_EMBEDDING_TOKENS, W = AMBI_EMBEDDING_W, Y = AMBI_EMBEDDING_Y };
enum { DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y) };

static const ambi_slot_info slots[] = {
    {"tokens", "(..)", "row numbers", AMBI_SLOT_INTEGER | AMBI_SLOT_NO_GRAD},
    {"w", "(V, C)", "the table", 0},
    {"y", "(.., C)", "a row for each token; NaN where there is no such row", AMBI_SLOT_OUTPUT},
};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, TOKENS, 0, AMBI_MAX_DIMS - 1));
  TRY(expect_rank(p, W, 2, 2));
  const ambi_tensor *tokens = &p->t[TOKENS], *w = &p->t[W];
  int64_t shape[AMBI_MAX_DIMS];
  memcpy(shape, tokens->shape, sizeof shape);
  shape[tokens->ndim] = w->shape[1];
  return expect(p, Y, w->dtype, tokens->ndim + 1, shape);
}

/* The fewest bytes that can move: of w and of a dw that is added to, only rows that a token may name. */
static uint64_t least_bytes(const problem *p, uint64_t tokens, uint64_t words, uint64_t channels) {
  uint64_t named = tokens < words ? tokens : words;
  uint64_t bytes = tokens * (uint64_t)dtype_bytes(p->t[TOKENS].dtype);
  if (!is_backward(p))
    return bytes +
           channels * (named * (uint64_t)dtype_bytes(p->t[W].dtype) + tokens * (uint64_t)dtype_bytes(p->t[Y].dtype));
  uint64_t rows = p->accumulates & AMBI_BIT(DW) ? 2 * named : words;
  return bytes +
         channels * (rows * (uint64_t)dtype_bytes(p->t[DW].dtype) + tokens * (uint64_t)dtype_bytes(p->t[DY].dtype));
}

static ambi_status recipe(problem *p) {
  embedding_recipe *r = (embedding_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  int y = is_backward(p) ? DY : Y, rank = p->t[TOKENS].ndim;
  r->words = p->t[W].shape[0];
  r->channels = p->t[W].shape[1];
  grid_make(&r->tokens, p, AMBI_BIT(TOKENS) | AMBI_BIT(y), 0, rank, false);
  r->stride[y] = p->t[y].stride[rank];
  p->flops = is_backward(p) ? (uint64_t)ambi_numel(&p->t[y]) : 0;
  p->bytes = least_bytes(p, (uint64_t)r->tokens.count, (uint64_t)r->words, (uint64_t)r->channels);
  return AMBI_OK;
}

const op_def embedding_op = {
    .info = {.name = "embedding",
             .formula = "y[i] = w[tokens[i]]",
             .gradient = "dw[v] = sum of dy[i] over every i with tokens[i] = v",
             .doc = "A row of a table for each token. A token outside [0, V) gives NaN and takes no part in dw.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .backward = 1},
    .backward_reads = AMBI_BIT(TOKENS),
    .shapes = shapes,
    .recipe = recipe,
};
