/* embedding's loops: the tokens, one after another. */
#ifndef AMBI_EMBEDDING_H
#define AMBI_EMBEDDING_H
#include "core/core.h"

typedef struct {
  grid tokens;                /* all axes of tokens: with y, or with dy */
  int64_t words, channels;    /* V, C                                   */
  int64_t stride[AMBI_SLOTS]; /* of y and dy along C                    */
} embedding_recipe;

static inline const embedding_recipe *embedding_of(const problem *p) {
  return (const embedding_recipe *)(const void *)p->recipe;
}

#endif
