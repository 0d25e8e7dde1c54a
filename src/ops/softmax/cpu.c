/* softmax on the CPU: a task takes some rows; a row is read from memory once, then from the cache.
 *
 *   l = scale x,  p = e^l / sum(e^l);  y = p, or log: y = l - log(sum(e^l))
 *   forward   pass 1: max   pass 2: sum of e^(l - max)   pass 3: y
 *   backward  pass 1: sum of dy y, or log: of dy         pass 2: dx      (before them forward's, unless y was saved)
 * Of rows that are not too long the e^(l - max) are kept, so that they need not be computed again. */
#include "backends/cpu/softmax.h"

enum { X = AMBI_SOFTMAX_X, Y = AMBI_SOFTMAX_Y, DX = AMBI_GRAD(X), DY = AMBI_GRAD(Y) };

enum { MOST_KEPT = 8 * TILE };

/* p of a row, computed from x, or read from the saved y */
typedef struct {
  strip from;
  logit_map map;
  real max, over;   /* over = 1 / sum          */
  const real *kept; /* e^(l - max), halves one after another, or NULL */
  bool saved, log;
} row_source;

/* Half of a step of p: elements i + k on; `from` begins at i. */
INLINE vr p_half(int kind, const row_source *r, const void *from, int64_t i, int64_t k, int half, int64_t left) {
  if (r->kept) return v_load(r->kept + i + k + half * VL) * r->over;
  vr v = get_half(kind, from, k, half, left);
  if (r->saved) return r->log ? m_exp(v) : v;
  return exp_below(logit_of(r->map, v) - r->max) * r->over;
}

/* kept: room for MOST_KEPT; next: the row to prefetch, or this one again */
INLINE row_source source_of_row(const cpu_call *c, int64_t row, int64_t next, int kind, real *kept, real *log_sum) {
  bool saved = reads_slot(c->p, Y);
  row_source r = {.from = row_of(c, saved ? Y : X, row), .saved = saved, .log = c->p->op.u.softmax.log != 0};
  r.map.scale = (real)c->p->op.u.softmax.scale;
  if (saved) return r;
  if (rows_of(c->p)->cols <= MOST_KEPT) r.kept = kept;
  strip next_x = row_of(c, X, next);
  row_stats s = row_stats_of(kind, &r.from, r.map, rows_of(c->p)->cols, false, r.kept ? kept : NULL, &next_x);
  r.max = s.max;
  r.over = 1 / s.sum;
  *log_sum = (real)log((double)s.sum);
  return r;
}

/* ---- forward ---- */
INLINE void forward_row(const cpu_call *c, int64_t row, int64_t next, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS kept[MOST_KEPT];
  real log_sum = 0;
  row_source r = source_of_row(c, row, next, kind, kept, &log_sum);
  strip to = row_of(c, Y, row);
  TILE_OF_REALS x_tile[TILE], y_tile[TILE];
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *x = view_in(kind, &r.from, i, n, x_tile);
    out_view y = view_out(kind, &to, i, n, y_tile);
    FOR_STEPS(halves(kind) * VL, k, n, {
      vr v[2];
      EACH_HALF(halves(kind)) {
        if (r.log)
          v[half] = (logit_of(r.map, get_half(kind, x, k, half, left)) - r.max) - log_sum;
        else
          v[half] = p_half(kind, &r, x, i, k, half, left);
      }
      put_halves(kind, y, k, v, left);
    });
    view_put(kind, &to, i, n, y);
  }
}

/* ---- backward ---- */
/* sum of dy y over a tile, or log: of dy. Past the end of the row dy is 0. */
INLINE real dy_sum_tile(const row_source *r, const void *from, const void *dy, int kind, int64_t i, int64_t n) {
  const int h = halves(kind);
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  for (; k + WAYS * VL <= n; k += WAYS * VL) UNROLL for (int j = 0; j < WAYS; j++) {
      int64_t at = k + j / h * h * VL;
      vr d = get_half(kind, dy, at, j % h, h * VL);
      if (j % h == 0) prefetch_view(kind, dy, at);
      if (j % h == 0 && r->saved && !r->log) prefetch_view(kind, from, at);
      sum[j] += r->log ? d : d * p_half(kind, r, from, i, at, j % h, h * VL);
    }
  for (; k < n; k += h * VL) EACH_HALF(h) {
      vr d = get_half(kind, dy, k, half, n - k);
      sum[half] += r->log ? d : d * v_first(p_half(kind, r, from, i, k, half, n - k), half_left(kind, half, n - k));
    }
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

INLINE real dy_sum(const row_source *r, const strip *dy, int kind, int64_t cols) {
  TILE_OF_REALS from_tile[TILE], dy_tile[TILE];
  cascade sum = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *from = view_in(kind, &r->from, i, n, from_tile), *d = view_in(kind, dy, i, n, dy_tile);
    cascade_add(&sum, dy_sum_tile(r, from, d, kind, i, n));
  }
  return cascade_total(&sum);
}

INLINE void backward_row(const cpu_call *c, int64_t row, int64_t next, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS kept[MOST_KEPT];
  real unused, scale = (real)c->p->op.u.softmax.scale;
  row_source r = source_of_row(c, row, next, kind, kept, &unused);
  strip dy = row_of(c, DY, row), next_dy = row_of(c, DY, next), next_y = row_of(c, Y, next), to = row_of(c, DX, row);
  real sum = dy_sum(&r, &dy, kind, cols);
  int64_t bytes = prefetch_bytes(&next_dy), y_bytes = prefetch_bytes(&next_y);
  TILE_OF_REALS from_tile[TILE], dy_tile[TILE], dx_tile[TILE];
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *from = view_in(kind, &r.from, i, n, from_tile), *d = view_in(kind, &dy, i, n, dy_tile);
    out_view dx = view_out(kind, &to, i, n, dx_tile);
    FOR_STEPS(halves(kind) * VL, k, n, {
      vr v[2];
      prefetch_l2(next_dy.at, (i + k) * bytes);
      if (r.saved) prefetch_l2(next_y.at, (i + k) * y_bytes);
      EACH_HALF(halves(kind)) {
        vr p = p_half(kind, &r, from, i, k, half, left), g = get_half(kind, d, k, half, left);
        v[half] = (r.log ? g - p * sum : p * (g - sum)) * scale;
      }
      put_halves(kind, dx, k, v, left);
    });
    view_put(kind, &to, i, n, dx);
  }
}

/* ---- tasks ---- */
typedef void row_fn(const cpu_call *c, int64_t row, int64_t next);
static void forward_reals(const cpu_call *c, int64_t row, int64_t next) { forward_row(c, row, next, REALS); }
static void forward_bf16s(const cpu_call *c, int64_t row, int64_t next) { forward_row(c, row, next, BF16S); }
static void backward_reals(const cpu_call *c, int64_t row, int64_t next) { backward_row(c, row, next, REALS); }
static void backward_bf16s(const cpu_call *c, int64_t row, int64_t next) { backward_row(c, row, next, BF16S); }

static void task(void *context, int64_t task) {
  static row_fn *const fns[2][2] = {[REALS] = {forward_reals, backward_reals},
                                    [BF16S] = {HAS_BF16S ? forward_bf16s : NULL, HAS_BF16S ? backward_bf16s : NULL}};
  const cpu_call *c = context;
  const rows_recipe *n = rows_of(c->p);
  int64_t each = softmax_rows_each(n->rows.count, n->cols), end = min64((task + 1) * each, n->rows.count);
  row_fn *fn = fns[norm_kind(c, 0)][is_backward(c->p)];
  for (int64_t row = task * each; row < end; row++) fn(c, row, min64(row + 1, end - 1));
  stream_fence();
}

static void run(const cpu_call *c) {
  const rows_recipe *n = rows_of(c->p);
  if (n->cols > 0) pool_run(c->threads, softmax_tasks(n->rows.count, n->cols), task, (void *)c);
}

const cpu_kernel CPU_KERNEL(softmax) = {"rows", NULL, run, run};
