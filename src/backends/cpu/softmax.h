/* softmax.h -- what softmax and the cross entropies share: a row of logits, its largest one and its sum of e^l.
 *
 *   l = scale x, or cap tanh(x / cap);   max;   sum = sum of e^(l - max);   log(sum of e^l) = max + log(sum)
 *
 * A row is read once for max and once for the sum, the second time from the cache. */
#ifndef AMBI_CPU_SOFTMAX_H
#define AMBI_CPU_SOFTMAX_H
#include "backends/cpu/math.h"
#include "backends/cpu/norm.h"

typedef struct {
  real scale, cap; /* cap 0: none */
} logit_map;

INLINE vr logit_of(logit_map f, vr x) {
  if (f.cap > 0) return f.cap * m_tanh(x / f.cap);
  return x * f.scale;
}

typedef struct {
  real max, sum, below; /* below: sum of l - max, when asked for */
} row_stats;

/* The largest l of a tile and `most`; a NaN may be passed over: the sum will meet it. */
INLINE vr max_tile(int kind, const void *x, logit_map f, int64_t n, vr most) {
  FOR_LANES(k, n, {
    vr l = logit_of(f, get(kind, x, k, left));
    ahead(kind, x, k);
    most = v_max(most, left < VL ? v_first_or(l, left, (real)-INFINITY) : l);
  });
  return most;
}

INLINE real row_max(int kind, const strip *x, logit_map f, int64_t cols) {
  TILE_OF_REALS tile[TILE];
  vr most = K(-INFINITY);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    most = max_tile(kind, view_in(kind, x, i, n, tile), f, n, most);
  }
  real max = most[0];
  for (int i = 1; i < VL; i++) max = most[i] > max ? most[i] : max;
  return max;
}

/* `below`: whether that sum is wanted too. kept: where the e^(l - max) are left, or NULL. */
INLINE row_stats row_stats_of(int kind, const strip *x, logit_map f, int64_t cols, bool below, real *kept) {
  row_stats s = {.max = row_max(kind, x, f, cols)};
  TILE_OF_REALS x_tile[TILE], t_tile[TILE];
  cascade sum = {.count = 0}, drop = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *xi = view_in(kind, x, i, n, x_tile);
    real *t = kept ? kept + i : t_tile;
    FOR_LANES(k, n, { v_put(t + k, logit_of(f, get(kind, xi, k, left)) - s.max, left); });
    if (below) cascade_add(&drop, sum_tile(t, n));
    FOR_LANES(k, n, { v_put(t + k, m_exp(v_get(t + k, left)), left); });
    cascade_add(&sum, sum_tile(t, n));
  }
  s.sum = cascade_total(&sum);
  s.below = cascade_total(&drop);
  return s;
}

/* ---- tasks: some rows each. Nothing is summed over rows, so one row may be enough. ------------------------ */
static inline int64_t softmax_rows_each(int64_t rows, int64_t cols) {
  return max64(min64(16384 / max64(cols, 1), rows), 1);
}
static inline int64_t softmax_tasks(int64_t rows, int64_t cols) {
  return ceil_div(rows, softmax_rows_each(rows, cols));
}

#endif
