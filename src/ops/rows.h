/* rows.h -- the loops of ops that work along the last axis: rows are all the other axes together. */
#ifndef AMBI_ROWS_H
#define AMBI_ROWS_H
#include "core/core.h"

typedef struct {
  grid rows;    /* all axes but the last */
  int64_t cols; /* the last              */
  int64_t col_stride[AMBI_SLOTS];
} rows_recipe;

static inline const rows_recipe *rows_of(const problem *p) { return (const rows_recipe *)(const void *)p->recipe; }

/* x is (.., C), as is every slot that takes part but those in `vectors`, which are (C) themselves. */
static inline void rows_make(problem *p, int x, uint32_t vectors) {
  rows_recipe *r = (rows_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  int last = p->t[x].ndim - 1;
  grid_make(&r->rows, p, (p->reads | p->writes) & ~(vectors | vectors << AMBI_MAX_PRIMALS), 0, last, false);
  r->cols = p->t[x].shape[last];
  for (int s = 0; s < AMBI_SLOTS; s++) r->col_stride[s] = p->t[s].ndim ? p->t[s].stride[p->t[s].ndim - 1] : 0;
}

/* A statistic of rows without elements is nothing that could be written. */
static inline ambi_status rows_have_elements(const problem *p, int x, int statistic) {
  const ambi_tensor *t = &p->t[x];
  const bool none = t->shape[t->ndim - 1] == 0 && ambi_numel(&p->t[statistic]) > 0;
  if (!none || !writes_slot(p, statistic)) return AMBI_OK;
  return fail_slot(AMBI_INVALID, p, statistic, "the rows of x have no elements, and so no such number");
}

#endif
