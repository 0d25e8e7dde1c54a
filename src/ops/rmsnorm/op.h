/* op.h -- rmsnorm's loops, for every backend. */
#ifndef AMBI_RMSNORM_H
#define AMBI_RMSNORM_H
#include "core/core.h"

typedef struct {
  grid rows;                       /* all axes but the last */
  int64_t cols;                    /* the last              */
  int64_t col_stride[AMBI_SLOTS];
} rmsnorm_recipe;

static inline const rmsnorm_recipe *rmsnorm(const problem *p) { return (const rmsnorm_recipe *)(const void *)p->recipe; }

#endif
