/* softmax on the CPU: a task takes some rows; a row is read from memory once, then from the cache.
 *
 *   forward   pass 1: max   pass 2: sum of e^(l - max)   pass 3: y
 *   backward  pass 1: sum of dy y, or log: of dy         pass 2: dx      (before them forward's, unless y was saved)
 * Of rows that are not too long the e^(l - max) are kept, so that they need not be computed again. */
#include "backends/cpu/softmax.h"

enum { X = AMBI_SOFTMAX_X, Y = AMBI_SOFTMAX_Y, DX = AMBI_GRAD(X), DY = AMBI_GRAD(Y) };

enum { MOST_KEPT = 8 * TILE };

/* e^l / sum(e^l) of a row, by x or by the y that was saved */
typedef struct {
  strip from;
  logit_map map;
  real max, over;   /* over = 1 / sum          */
  const real *kept; /* e^(l - max), or NULL    */
  bool saved, log;
} row_source;

/* Elements i + k on; `from` begins at i. */
INLINE vr p_get(int kind, const row_source *r, const void *from, int64_t i, int64_t k, int64_t left) {
  if (r->kept) return v_get(r->kept + i + k, left) * r->over;
  vr v = get(kind, from, k, left);
  if (r->saved) return r->log ? m_exp(v) : v;
  return m_exp(logit_of(r->map, v) - r->max) * r->over;
}

/* kept: room for MOST_KEPT */
INLINE row_source source_of_row(const cpu_call *c, int64_t row, int kind, real *kept, real *log_sum) {
  bool saved = reads_slot(c->p, Y);
  row_source r = {.from = row_of(c, saved ? Y : X, row), .saved = saved, .log = c->p->op.u.softmax.log != 0};
  r.map.scale = (real)c->p->op.u.softmax.scale;
  if (saved) return r;
  if (rows_of(c->p)->cols <= MOST_KEPT) r.kept = kept;
  row_stats s = row_stats_of(kind, &r.from, r.map, rows_of(c->p)->cols, false, r.kept ? kept : NULL);
  r.max = s.max;
  r.over = 1 / s.sum;
  *log_sum = (real)log((double)s.sum);
  return r;
}

/* ---- forward ---------------------------------------------------------------------------------------- */
INLINE void forward_row(const cpu_call *c, int64_t row, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS kept[MOST_KEPT];
  real log_sum = 0;
  row_source r = source_of_row(c, row, kind, kept, &log_sum);
  strip to = row_of(c, Y, row);
  TILE_OF_REALS x_tile[TILE], y_tile[TILE];
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *x = view_in(kind, &r.from, i, n, x_tile);
    out_view y = view_out(kind, &to, i, y_tile);
    if (r.log)
      FOR_LANES(k, n, { put(kind, y, k, (logit_of(r.map, get(kind, x, k, left)) - r.max) - log_sum, left); });
    else
      FOR_LANES(k, n, { put(kind, y, k, p_get(kind, &r, x, i, k, left), left); });
    view_put(kind, &to, i, n, y);
  }
}

/* ---- backward --------------------------------------------------------------------------------------- */
/* sum of dy y, or log: of dy */
INLINE real dy_sum(const row_source *r, const strip *dy, int kind, int64_t cols) {
  TILE_OF_REALS from_tile[TILE], dy_tile[TILE], term[TILE];
  cascade sum = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *from = view_in(kind, &r->from, i, n, from_tile), *d = view_in(kind, dy, i, n, dy_tile);
    if (r->log)
      FOR_LANES(k, n, { v_put(term + k, get(kind, d, k, left), left); });
    else
      FOR_LANES(k, n, { v_put(term + k, get(kind, d, k, left) * p_get(kind, r, from, i, k, left), left); });
    cascade_add(&sum, sum_tile(term, n));
  }
  return cascade_total(&sum);
}

INLINE void backward_row(const cpu_call *c, int64_t row, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS kept[MOST_KEPT];
  real unused, scale = (real)c->p->op.u.softmax.scale;
  row_source r = source_of_row(c, row, kind, kept, &unused);
  strip dy = row_of(c, DY, row), to = row_of(c, DX, row);
  real sum = dy_sum(&r, &dy, kind, cols);
  TILE_OF_REALS from_tile[TILE], dy_tile[TILE], dx_tile[TILE];
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *from = view_in(kind, &r.from, i, n, from_tile), *d = view_in(kind, &dy, i, n, dy_tile);
    out_view dx = view_out(kind, &to, i, dx_tile);
    FOR_LANES(k, n, {
      vr p = p_get(kind, &r, from, i, k, left);
      vr g = get(kind, d, k, left);
      put(kind, dx, k, (r.log ? g - p * sum : p * (g - sum)) * scale, left);
    });
    view_put(kind, &to, i, n, dx);
  }
}

/* ---- tasks ------------------------------------------------------------------------------------------ */
typedef void row_fn(const cpu_call *c, int64_t row);
static void forward_reals(const cpu_call *c, int64_t row) { forward_row(c, row, REALS); }
static void forward_bf16s(const cpu_call *c, int64_t row) { forward_row(c, row, BF16S); }
static void backward_reals(const cpu_call *c, int64_t row) { backward_row(c, row, REALS); }
static void backward_bf16s(const cpu_call *c, int64_t row) { backward_row(c, row, BF16S); }

static void task(void *context, int64_t task) {
  static row_fn *const fns[2][2] = {[REALS] = {forward_reals, backward_reals},
                                    [BF16S] = {HAS_BF16S ? forward_bf16s : NULL, HAS_BF16S ? backward_bf16s : NULL}};
  const cpu_call *c = context;
  const rows_recipe *n = rows_of(c->p);
  int64_t each = softmax_rows_each(n->rows.count, n->cols), end = min64((task + 1) * each, n->rows.count);
  row_fn *fn = fns[norm_kind(c, 0)][is_backward(c->p)];
  for (int64_t row = task * each; row < end; row++) fn(c, row);
  stream_fence();
}

static void run(const cpu_call *c) {
  const rows_recipe *n = rows_of(c->p);
  if (n->cols > 0) pool_run(c->threads, softmax_tasks(n->rows.count, n->cols), task, (void *)c);
}

const cpu_kernel CPU_KERNEL(softmax) = {"rows", NULL, run, run};
