/* row_cpu.h -- the row of row.h on the CPU, for both cross entropies. A row of logits is a strip: a tensor's, or a line
 * of the workspace. */
#ifndef AMBI_CROSS_ENTROPY_ROW_CPU_H
#define AMBI_CROSS_ENTROPY_ROW_CPU_H
#include "backends/cpu/softmax.h"
#include "ops/cross_entropy/row.h"

/* ---- targets ---- */
static inline int64_t target_at(const cpu_call *c, int slot, int64_t row) {
  return integer_at(c, slot, grid_offset(&rows_of(c->p)->rows, slot, row));
}

/* How many rows count, as a divisor: 1 when it is not a mean, or when there are none. */
static inline real ce_divisor(const cpu_call *c, int slot) {
  int64_t count = 0, rows = ce_mean(c->p) ? rows_of(c->p)->rows.count : 0;
  for (int64_t row = 0; row < rows; row++) count += ce_counts(c->p, target_at(c, slot, row));
  return count ? (real)count : 1;
}

/* ---- the formula ---- */
typedef struct {
  logit_map map;
  real smoothing, z;
  int64_t cols;
} ce_formula;

static inline ce_formula ce_formula_of(const problem *p, int64_t cols) {
  return (ce_formula){{1, (real)p->op.u.cross_entropy.softcap},
                      (real)p->op.u.cross_entropy.label_smoothing,
                      (real)p->op.u.cross_entropy.z_loss,
                      cols};
}

typedef struct {
  real max, over; /* p = e^(l - max) over */
  real lse, loss;
} ce_row;

INLINE ce_row ce_row_of(int kind, const strip *x, const ce_formula *f, int64_t target) {
  row_stats s = row_stats_of(kind, x, f->map, f->cols, f->smoothing > 0, NULL, x);
  real log_sum = (real)log((double)s.sum);
  ce_row r = {.max = s.max, .over = 1 / s.sum, .lse = s.max + log_sum, .loss = (real)NAN};
  if (target >= f->cols) return r;
  vr l = logit_of(f->map, v_splat(strip_get(x, target)));
  r.loss = (1 - f->smoothing) * (log_sum + (s.max - l[0])) + f->z * r.lse * r.lse;
  if (f->smoothing > 0) r.loss += f->smoothing * (log_sum - s.below / (real)f->cols);
  return r;
}

/* A NaN of f32 may have low bits, which conversions of results of bf16 do not expect. */
static inline real plain_nan(real v) { return v == v ? v : (real)NAN; }

static inline ce_row ce_row_saved(real lse) {
  return (ce_row){.max = plain_nan(lse), .over = 1, .lse = plain_nan(lse)};
}

/* `value` in the lane of element y of a step, 0 in the others */
INLINE vr one_hot(int kind, int half, int64_t y, real value) {
  vi lane;
  for (int i = 0; i < VL; i++) lane[i] = i * halves(kind) + half;
  return v_select(lane == (ireal)y, v_splat(value), K(0));
}

/* to = g dlogits; to may be x */
INLINE void ce_dlogits(int kind, const strip *x, const strip *to, const ce_formula *f, const ce_row *r, int64_t target,
                       real g) {
  TILE_OF_REALS x_tile[TILE], d_tile[TILE];
  real max = r->max, over = r->over * (1 + 2 * f->z * r->lse), cap = f->map.cap;
  real all = f->smoothing / (real)f->cols, hot = 1 - f->smoothing;
  g = target < f->cols ? plain_nan(g) : (real)NAN;
  for (int64_t i = 0; i < f->cols; i += TILE) {
    int64_t n = min64(TILE, f->cols - i), y = target >= i && target < i + n ? target - i : -1;
    const void *xi = view_in(kind, x, i, n, x_tile);
    out_view out = view_out(kind, to, i, n, d_tile);
    FOR_STEPS(halves(kind) * VL, k, n, {
      vr d[2];
      prefetch_view(kind, xi, k);
      EACH_HALF(halves(kind)) {
        vr l = logit_of(f->map, get_half(kind, xi, k, half, left));
        d[half] = exp_below(l - max) * over - all;
        if (y >= k && y < k + halves(kind) * VL) d[half] -= one_hot(kind, half, y - k, hot);
        if (cap > 0) d[half] *= 1 - (l / cap) * (l / cap);
        d[half] *= g;
      }
      put_halves(kind, out, k, d, left);
    });
    view_put(kind, to, i, n, out);
  }
}

static inline void ce_zero_row(const strip *to, int64_t cols) {
  TILE_OF_REALS zeros[TILE] = {0};
  if (!to->at || to->accumulate) return;
  for (int64_t i = 0; i < cols; i += TILE) strip_put(to, i, min64(TILE, cols - i), zeros);
}

/* ---- the loss: of rows, or of all of them ---- */
static inline real ce_dloss(const cpu_call *c, int dloss, int64_t row, real divisor) {
  if (ce_each(c->p)) return row_get(c, dloss, row);
  strip s = strip_of(c, dloss, 0, 1);
  return strip_get(&s, 0) / divisor;
}

static inline void ce_put_total(const cpu_call *c, int loss, real total) {
  strip s = strip_of(c, loss, 0, 1);
  strip_put(&s, 0, 1, &total);
  stream_fence();
}

#endif
