/* softmax.h -- what softmax and the cross entropies share: a row of logits, its largest one and its sum of e^l.
 *
 *   l = scale x, or cap tanh(x / cap);   max;   sum = sum of e^(l - max);   log(sum of e^l) = max + log(sum)
 *
 * A row is read once for max and once for the sum, the second time from the cache; meanwhile the next
 * row is prefetched. */
#ifndef AMBI_CPU_SOFTMAX_H
#define AMBI_CPU_SOFTMAX_H
#include "backends/cpu/math.h"
#include "backends/cpu/norm.h"

typedef struct {
  real scale, cap; /* cap 0: none */
} logit_map;

/* Rounded, as max is: else l - max of the largest is what the product lost, which for large l is anything. */
INLINE vr logit_of(logit_map f, vr x) {
  if (f.cap > 0) return v_rounded(f.cap * m_tanh(x / f.cap));
  return v_rounded(x * f.scale);
}

typedef struct {
  real max, sum, below; /* below: sum of l - max, if wanted */
} row_stats;

/* Independent sums along a tile; fewer where code is to be small: kernel packs may not pass 32 KiB. */
#ifdef AMBI_COMPACT
enum { WAYS = 1 };
#else
enum { WAYS = F32_ALONE ? 2 : 4 };
#endif

/* Half of a step of logits, with `other` past the end of the row */
INLINE vr logit_half(int kind, logit_map f, const void *x, int64_t k, int half, int64_t left, real other) {
  vr l = logit_of(f, get_half(kind, x, k, half, left));
  return left < halves(kind) * VL ? v_first_or(l, half_left(kind, half, left), other) : l;
}

/* The largest l of a tile and `most`; a NaN may be passed over: the sum will meet it. */
INLINE void max_tile(int kind, const void *x, logit_map f, int64_t n, vr most[2]) {
  FOR_STEPS(halves(kind) * VL, k, n, {
    prefetch_view(kind, x, k);
    EACH_HALF(halves(kind)) most[half] = v_max(most[half], logit_half(kind, f, x, k, half, left, (real)-INFINITY));
  });
}

INLINE real row_max(int kind, const strip *x, logit_map f, int64_t cols) {
  TILE_OF_REALS tile[TILE];
  vr most[2] = {K(-INFINITY), K(-INFINITY)};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    max_tile(kind, view_in(kind, x, i, n, tile), f, n, most);
  }
  vr all = v_max(most[0], most[1]);
  real max = all[0];
  for (int i = 1; i < VL; i++) max = all[i] > max ? all[i] : max;
  return max;
}

/* e^t, t = l - max <= 0: t is a rounded difference, so that |t| ulp are lost anyway. */
INLINE vr exp_below(vr t) {
#if AMBI_REAL == 32
  return v_now(m_exp2(v_now(t * K(1.4426950408889634))));
#else
  return m_exp(t);
#endif
}

/* Sum of e^(l - max) over a tile; kept: where they are left, halves one after another, or NULL;
 * next: the row to prefetch, columns from the tile's on, of `bytes` each */
INLINE real exp_tile(int kind, const void *x, logit_map f, real max, int64_t n, real *kept, const char *next,
                     int64_t bytes) {
  const int h = halves(kind);
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  for (; k + WAYS * VL <= n; k += WAYS * VL) UNROLL for (int j = 0; j < WAYS; j++) {
      int64_t at = k + j / h * h * VL;
      if (j % h == 0) prefetch_l2(next, at * bytes);
      vr e = exp_below(logit_of(f, get_half(kind, x, at, j % h, h * VL)) - max);
      if (kept) v_store(kept + k + j * VL, e);
      sum[j] += e;
    }
  for (; k < n; k += h * VL) EACH_HALF(h) {
      vr e = exp_below(logit_half(kind, f, x, k, half, n - k, (real)-INFINITY) - max);
      if (n - k < h * VL) e = v_first(e, half_left(kind, half, n - k)); /* max may be -inf too */
      if (kept) v_store(kept + k + half * VL, e);
      sum[half] += e;
    }
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Sum of l - max over a tile */
INLINE real below_tile(int kind, const void *x, logit_map f, real max, int64_t n) {
  TILE_OF_REALS t[TILE];
  FOR_LANES(k, n, { v_put(t + k, logit_of(f, get(kind, x, k, left)) - max, left); });
  return sum_tile(t, n);
}

/* `below`: whether that sum is wanted too. kept: where the e^(l - max) are left, or NULL. next: a row to prefetch. */
INLINE row_stats row_stats_of(int kind, const strip *x, logit_map f, int64_t cols, bool below, real *kept,
                              const strip *next) {
  row_stats s = {.max = row_max(kind, x, f, cols)};
  TILE_OF_REALS x_tile[TILE];
  cascade sum = {.count = 0}, drop = {.count = 0};
  int64_t bytes = prefetch_bytes(next);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *xi = view_in(kind, x, i, n, x_tile);
    if (below) cascade_add(&drop, below_tile(kind, xi, f, s.max, n));
    cascade_add(&sum, exp_tile(kind, xi, f, s.max, n, kept ? kept + i : NULL, next->at + i * bytes, bytes));
  }
  s.sum = cascade_total(&sum);
  s.below = cascade_total(&drop);
  return s;
}

/* ---- tasks: some rows each. Nothing is summed over rows, so one row may be enough. ---- */
static inline int64_t softmax_rows_each(int64_t rows, int64_t cols) {
  int64_t least = 16384 / max64(cols, 1), most = 4 * least; /* worth waking a thread for; where rows are many */
  return max64(min64(max64(least, min64(most, rows / 256)), rows), 1);
}
static inline int64_t softmax_tasks(int64_t rows, int64_t cols) {
  return ceil_div(rows, softmax_rows_each(rows, cols));
}

#endif
