/* norm.h -- what the normalisations share: their rows in tasks, s = x + residual, and gradients on their way out. */
#ifndef AMBI_CPU_NORM_H
#define AMBI_CPU_NORM_H
#include "backends/cpu/sums.h"
#include "ops/rows.h"

static inline strip row_of(const cpu_call *c, int slot, int64_t row) {
  const rows_recipe *n = rows_of(c->p);
  return strip_of(c, slot, grid_offset(&n->rows, slot, row), n->col_stride[slot]);
}

/* ---- in: s of one row: x + residual, or the saved sum ------------------------------------------------ */
typedef struct {
  strip x, residual;
} source;

static inline source source_of(const cpu_call *c, int64_t row, int x, int residual, int sum) {
  source s = {.x = row_of(c, reads_slot(c->p, sum) ? sum : x, row)};
  if (reads_slot(c->p, residual)) s.residual = row_of(c, residual, row);
  return s;
}

static inline const real *source_tile(const source *s, int64_t i, int64_t n, real *tile) {
  const real *x = strip_in(&s->x, i, n, tile);
  if (!s->residual.at) return x;
  TILE_OF_REALS buffer[TILE];
  const real *residual = strip_in(&s->residual, i, n, buffer);
  for (int64_t k = 0; k < n; k++) tile[k] = x[k] + residual[k];
  return tile;
}

/* Columns i.. of a slot that is (C), or `absent` */
static inline const real *vector_tile(const cpu_call *c, int slot, real absent, int64_t i, int64_t n, real *tile) {
  strip v = strip_of(c, slot, 0, rows_of(c->p)->col_stride[slot]);
  if (v.at) return strip_in(&v, i, n, tile);
  for (int64_t k = 0; k < n; k++) tile[k] = absent;
  return tile;
}

/* ---- out: ds of one row, which is dx and dresidual, each with dsum added ------------------------------ */
typedef struct {
  strip dx, dresidual, dsum;
} sink;

static inline sink sink_of(const cpu_call *c, int64_t row, int x, int residual, int sum) {
  return (sink){row_of(c, AMBI_GRAD(x), row), row_of(c, AMBI_GRAD(residual), row), row_of(c, AMBI_GRAD(sum), row)};
}

static inline bool sink_wanted(const sink *k) { return k->dx.at || k->dresidual.at; }

/* Where to compute ds */
static inline real *sink_tile(const sink *k, int64_t i, real *tile) {
  return k->dx.at && !k->dresidual.at && !k->dsum.at ? strip_out(&k->dx, i, tile) : tile;
}

static inline void sink_put(const sink *k, int64_t i, int64_t n, real *ds) {
  if (k->dsum.at) {
    TILE_OF_REALS buffer[TILE];
    const real *dsum = strip_in(&k->dsum, i, n, buffer);
    for (int64_t j = 0; j < n; j++) ds[j] += dsum[j];
  }
  if (k->dx.at) strip_put(&k->dx, i, n, ds);
  if (k->dresidual.at) strip_put(&k->dresidual, i, n, ds);
}

/* ---- tasks: some rows each, with sums over rows of `summed` columns (0: none) in the workspace -------- */
typedef void row_fn(const cpu_call *c, int64_t row, column_sums *sums);

static inline int64_t norm_tasks(const problem *p) { return row_tasks(rows_of(p)->rows.count, rows_of(p)->cols); }
static inline uint64_t norm_workspace(const problem *p, int64_t summed) {
  return (uint64_t)norm_tasks(p) * column_sums_bytes(summed);
}

static inline void norm_rows(const cpu_call *c, int64_t task, int64_t summed, row_fn *fn) {
  const rows_recipe *n = rows_of(c->p);
  int64_t each = rows_per_task(n->rows.count, n->cols), end = min64((task + 1) * each, n->rows.count);
  column_sums sums = {0};
  if (summed) {
    sums = column_sums_at(c->workspace + task * (int64_t)column_sums_bytes(summed), summed);
    column_sums_clear(&sums);
  }
  for (int64_t row = task * each; row < end; row++) {
    fn(c, row, &sums);
    if (summed) column_sums_row_done(&sums);
  }
  if (summed) column_sums_flush(&sums);
  stream_fence();
}

/* Tile number `tile` of a gradient that is (C): the tasks' sums of columns from `first` on. */
static inline void norm_put_sums(const cpu_call *c, int slot, int64_t summed, int64_t first, int64_t tile) {
  const rows_recipe *n = rows_of(c->p);
  int64_t i = tile * TILE, count = min64(TILE, n->cols - i);
  TILE_OF_REALS total[TILE];
  strip d = strip_of(c, slot, 0, n->col_stride[slot]);
  if (!d.at) return;
  column_sums_total(c->workspace, norm_tasks(c->p), summed, first + i, count, total);
  strip_put(&d, i, count, total);
  stream_fence();
}

#endif
