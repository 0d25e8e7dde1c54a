/* rmsnorm on the CPU: a task takes some rows; a row is read twice, the second time from the cache.
 *
 *   forward   pass 1: sum s^2            pass 2: y = s r (w + offset)
 *   backward  pass 1: sum s^2, sum g s   pass 2: ds = r g - s r^3 mean(g s) + dsum;  dw += dy s r                   */
#include "backends/cpu/norm.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
enum { Y = AMBI_RMSNORM_Y, SUM = AMBI_RMSNORM_SUM, RSTD = AMBI_RMSNORM_RSTD };
enum { DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y) };

static vector weight_of(const cpu_call *c) { return vector_of(c, W, (real)c->p->op.u.rmsnorm.offset, 1); }

static real rstd(const cpu_call *c, const cascade *squares) {
  return 1 / (real)sqrt((double)(cascade_total(squares) / (real)rows_of(c->p)->cols) + c->p->op.u.rmsnorm.eps);
}

/* ---- forward ---------------------------------------------------------------------------------------- */
INLINE real squares_tile(int kind, source_view from, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  for (; k + 4 * VL <= n; k += 4 * VL)
    for (int j = 0; j < 4; j++) {
      vr s = source_get(kind, from, k + j * VL, VL);
      sum[j] += s * s;
    }
  for (; k < n; k += VL) {
    vr s = source_get(kind, from, k, n - k);
    sum[0] += s * s;
  }
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* As LLaMA: s r rounded to the dtype of x */
static vr rounded(const cpu_call *c, vr h) {
  TILE_OF_REALS lanes[VBYTES / sizeof(real)];
  v_store(lanes, h);
  round_to(c->p->t[X].dtype, lanes, VL);
  return v_load(lanes);
}

INLINE void forward_pass(const cpu_call *c, int64_t row, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE], w_tile[TILE], y_tile[TILE], sum_tile[TILE];
  source from = source_of(c, row, X, RESIDUAL, SUM), next = source_of(c, next_row(c, row), X, RESIDUAL, SUM);
  strip y = row_of(c, Y, row), sum = row_of(c, SUM, row);
  vector w = weight_of(c);
  cascade squares = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    cascade_add(&squares, squares_tile(kind, source_in(kind, &from, i, n, s_tiles), n));
  }
  real r = rstd(c, &squares);
  row_put(c, RSTD, row, r);
  bool cast = c->p->op.u.rmsnorm.cast != 0;
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    source_view s = source_in(kind, &from, i, n, s_tiles);
    const void *wi = view_in(kind, &w.v, i, n, w_tile);
    void *yi = view_out(kind, &y, i, y_tile), *si = view_out(kind, &sum, i, sum_tile);
    source_view coming = source_at(&next, i);
    for (int64_t k = 0; k < n; k += VL) {
      vr v = source_get(kind, s, k, n - k), h = v * r;
      source_ahead(kind, coming, k);
      if (cast) h = rounded(c, h);
      if (si) put(kind, si, k, v, n - k);
      put(kind, yi, k, h * vector_get(kind, wi, w.plus, k, n - k), n - k);
    }
    view_put(kind, &sum, i, n, si);
    view_put(kind, &y, i, n, yi);
  }
}

static void forward_row(const cpu_call *c, int64_t row, int kind, column_sums *none) {
  (void)none;
  if (kind == BF16S)
    forward_pass(c, row, BF16S);
  else
    forward_pass(c, row, REALS);
}

static void forward_task(void *context, int64_t task) {
  norm_rows(context, task, 0, norm_kind(context, AMBI_BIT(RSTD)), forward_row);
}

static void forward(const cpu_call *c) {
  if (rows_of(c->p)->cols > 0) pool_run(c->threads, norm_tasks(c->p), forward_task, (void *)c);
}

/* ---- backward --------------------------------------------------------------------------------------- */
/* adds the sums of s^2 and g s over a tile */
INLINE void sums_tile(int kind, source_view from, const void *dy, const void *w, real plus, int64_t n, cascade *squares,
                      cascade *products) {
  vr ss[2] = {{0}, {0}}, gs[2] = {{0}, {0}};
  int64_t k = 0;
  for (; k + 2 * VL <= n; k += 2 * VL)
    for (int j = 0; j < 2; j++) {
      vr s = source_get(kind, from, k + j * VL, VL), g = get(kind, dy, k + j * VL, VL);
      ss[j] += s * s;
      gs[j] += s * (g * vector_get(kind, w, plus, k + j * VL, VL));
    }
  for (; k < n; k += VL) {
    vr s = source_get(kind, from, k, n - k), g = get(kind, dy, k, n - k);
    ss[0] += s * s;
    gs[0] += s * (g * vector_get(kind, w, plus, k, n - k));
  }
  cascade_add(squares, v_sum(ss[0] + ss[1]));
  cascade_add(products, v_sum(gs[0] + gs[1]));
}

INLINE void backward_pass(const cpu_call *c, int64_t row, int kind, real *dw) {
  int64_t cols = rows_of(c->p)->cols, after = next_row(c, row);
  TILE_OF_REALS s_tiles[2][TILE], w_tile[TILE], dy_tile[TILE], ds_tiles[3][TILE];
  source from = source_of(c, row, X, RESIDUAL, SUM), next = source_of(c, after, X, RESIDUAL, SUM);
  strip dy = row_of(c, DY, row), next_dy = row_of(c, DY, after);
  sink to = sink_of(c, row, X, RESIDUAL, SUM);
  vector w = weight_of(c);
  cascade squares = {.count = 0}, products = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *d = view_in(kind, &dy, i, n, dy_tile), *wi = view_in(kind, &w.v, i, n, w_tile);
    sums_tile(kind, source_in(kind, &from, i, n, s_tiles), d, wi, w.plus, n, &squares, &products);
  }
  real r = reads_slot(c->p, RSTD) ? row_get(c, RSTD, row) : rstd(c, &squares);
  real pull = r * r * r * (cascade_total(&products) / (real)cols);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    source_view s = source_in(kind, &from, i, n, s_tiles);
    const void *d = view_in(kind, &dy, i, n, dy_tile), *wi = view_in(kind, &w.v, i, n, w_tile);
    sink_view out = sink_out(kind, &to, i, n, ds_tiles);
    source_view coming = source_at(&next, i);
    const void *coming_dy = lies_at(&next_dy, i);
    for (int64_t k = 0; k < n; k += VL) {
      vr v = source_get(kind, s, k, n - k), g = get(kind, d, k, n - k);
      source_ahead(kind, coming, k);
      ahead(kind, coming_dy, k);
      if (dw) v_put(dw + i + k, v_get(dw + i + k, n - k) + g * (v * r), n - k);
      sink_set(kind, out, k, g * vector_get(kind, wi, w.plus, k, n - k) * r - v * pull, n - k);
    }
    sink_put(kind, &to, i, n, out);
  }
}

static void backward_row(const cpu_call *c, int64_t row, int kind, column_sums *dw) {
  if (kind == BF16S)
    backward_pass(c, row, BF16S, dw->block);
  else
    backward_pass(c, row, REALS, dw->block);
}

static int64_t summed(const problem *p) { return writes_slot(p, DW) ? rows_of(p)->cols : 0; }

static void backward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  norm_rows(c, task, summed(c->p), norm_kind(c, AMBI_BIT(RSTD) | AMBI_BIT(DW)), backward_row);
}

static void dw_task(void *context, int64_t task) {
  const cpu_call *c = context;
  norm_put_sums(c, DW, summed(c->p), 0, task);
}

static void backward(const cpu_call *c) {
  int64_t cols = rows_of(c->p)->cols;
  if (cols == 0) return;
  pool_run(c->threads, norm_tasks(c->p), backward_task, (void *)c);
  if (writes_slot(c->p, DW)) pool_run(c->threads, ceil_div(cols, TILE), dw_task, (void *)c);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return norm_workspace(p, summed(p));
}

const cpu_kernel CPU_KERNEL(rmsnorm) = {"rows", workspace, forward, backward};
