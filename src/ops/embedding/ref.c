/* embedding, the reference: the formulas of op.c, one element at a time. */
#include "backends/ref/ref.h"

#include <math.h>

#include "ops/embedding/op.h"

enum { TOKENS = AMBI_EMBEDDING_TOKENS, W = AMBI_EMBEDDING_W, Y = AMBI_EMBEDDING_Y };

/* Channel k of token number i, in y or dy */
static at_index at(const ref_call *c, int64_t i, int64_t k) {
  int last = c->p->t[TOKENS].ndim;
  at_index index = ref_index(c, TOKENS, last, i);
  index.i[last] = k;
  return index;
}

/* The row that token number i names, or -1 */
static int64_t row_of_token(const ref_call *c, int64_t i) {
  int64_t row = ref_integer(c, TOKENS, ref_index(c, TOKENS, c->p->t[TOKENS].ndim, i));
  return row >= 0 && row < embedding_of(c->p)->words ? row : -1;
}

static void forward(const ref_call *c) {
  const embedding_recipe *r = embedding_of(c->p);
  for (int64_t i = 0; i < r->tokens.count; i++) {
    int64_t row = row_of_token(c, i);
    for (int64_t k = 0; k < r->channels; k++)
      ref_set(c, Y, at(c, i, k), row < 0 ? (double)NAN : ref_get(c, W, AT(row, k)));
  }
}

static void backward(const ref_call *c) {
  const embedding_recipe *r = embedding_of(c->p);
  ref_sum *dw = (ref_sum *)(void *)c->scratch; /* of one channel: (V) */
  for (int64_t k = 0; k < r->channels; k++) {
    for (int64_t v = 0; v < r->words; v++) dw[v] = (ref_sum){0, 0};
    for (int64_t i = 0; i < r->tokens.count; i++) {
      int64_t row = row_of_token(c, i);
      if (row >= 0) ref_add(&dw[row], ref_get(c, AMBI_GRAD(Y), at(c, i, k)));
    }
    for (int64_t v = 0; v < r->words; v++) ref_set(c, AMBI_GRAD(W), AT(v, k), dw[v].total);
  }
}

static uint64_t scratch(const problem *p) {
  return is_backward(p) ? (uint64_t)embedding_of(p)->words * (sizeof(ref_sum) / sizeof(double)) : 0;
}

const ref_kernel embedding_ref = {.forward = forward, .backward = backward, .scratch = scratch};
