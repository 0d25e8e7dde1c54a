/* rmsnorm on the CPU: a task takes some rows, a few at a time; a row is read twice, the second time from the cache.
 *
 *   forward   pass 1: sum s^2            pass 2: y = s r (w + offset)
 *   backward  pass 1: sum s^2, sum g s   pass 2: ds = r g - s r^3 mean(g s) + dsum;  dw += dy s r                   */
#include "backends/cpu/norm.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
enum { Y = AMBI_RMSNORM_Y, SUM = AMBI_RMSNORM_SUM, RSTD = AMBI_RMSNORM_RSTD };
enum { DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y) };

/* w + offset, or 1 */
INLINE vr weight_get(int kind, const void *w, real offset, int64_t k, int64_t left) {
  return w ? get(kind, w, k, left) + offset : K(1);
}

static real rstd(const cpu_call *c, const cascade *squares) {
  return 1 / (real)sqrt((double)(cascade_total(squares) / (real)rows_of(c->p)->cols) + c->p->op.u.rmsnorm.eps);
}

/* ---- forward ---------------------------------------------------------------------------------------- */
INLINE real squares_tile(int kind, source_view from, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  LANES_UNROLL
  for (; k + 4 * VL <= n; k += 4 * VL)
    for (int j = 0; j < 4; j++) {
      vr s = source_get(kind, from, k + j * VL, VL);
      source_ahead(kind, from, k + j * VL);
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

/* r of one row */
INLINE real rstd_of(const cpu_call *c, const source *from, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE];
  cascade squares = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    cascade_add(&squares, squares_tile(kind, source_in(kind, from, i, n, s_tiles), n));
  }
  return rstd(c, &squares);
}

typedef struct {
  source from;
  strip y, sum;
  real r;
} forward_line;

/* y = s r w, and s itself, for columns [i, i+n) of one row */
INLINE void y_tile(const cpu_call *c, const forward_line *l, int kind, const void *w, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], out_tiles[2][TILE];
  source_view s = source_in(kind, &l->from, i, n, s_tiles);
  out_view y = view_out(kind, &l->y, i, out_tiles[0]), sum = sum_out(kind, &l->sum, i, out_tiles[1]);
  real r = l->r, offset = (real)c->p->op.u.rmsnorm.offset;
  bool cast = c->p->op.u.rmsnorm.cast != 0;
  FOR_LANES(k, n, {
    vr v = source_get(kind, s, k, left), h = v * r;
    if (cast) h = rounded(c, h);
    if (sum.p) put(kind, sum, k, v, left);
    put(kind, y, k, h * weight_get(kind, w, offset, k, left), left);
  });
  view_put(kind, &l->sum, i, n, sum);
  view_put(kind, &l->y, i, n, y);
}

INLINE void forward_rows(const cpu_call *c, int64_t first, int count, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE];
  strip w = vector_of(c, W);
  forward_line line[GROUP];
  for (int g = 0; g < count; g++) {
    int64_t row = first + g;
    line[g] = (forward_line){source_of(c, row, X, RESIDUAL, SUM), row_of(c, Y, row), row_of(c, SUM, row), 0};
    line[g].r = rstd_of(c, &line[g].from, kind);
    row_put(c, RSTD, row, line[g].r);
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < count; g++) y_tile(c, &line[g], kind, wi, i, n);
  }
}

static void forward_group(const cpu_call *c, int64_t first, int count, int kind, column_sums *none) {
  (void)none;
  if (HAS_BF16S && kind == BF16S)
    forward_rows(c, first, count, BF16S);
  else
    forward_rows(c, first, count, REALS);
}

static void forward_task(void *context, int64_t task) {
  norm_rows(context, task, 0, norm_kind(context, AMBI_BIT(RSTD)), forward_group);
}

static void forward(const cpu_call *c) {
  if (rows_of(c->p)->cols > 0) pool_run(c->threads, norm_tasks(c->p), forward_task, (void *)c);
}

/* ---- backward --------------------------------------------------------------------------------------- */
/* adds the sums of s^2 and g s over a tile */
INLINE void sums_tile(int kind, source_view from, const void *dy, const void *w, real offset, int64_t n,
                      cascade *squares, cascade *products) {
  vr ss[2] = {{0}, {0}}, gs[2] = {{0}, {0}};
  int64_t k = 0;
  LANES_UNROLL
  for (; k + 2 * VL <= n; k += 2 * VL)
    for (int j = 0; j < 2; j++) {
      vr s = source_get(kind, from, k + j * VL, VL), g = get(kind, dy, k + j * VL, VL);
      source_ahead(kind, from, k + j * VL);
      ahead(kind, dy, k + j * VL);
      ss[j] += s * s;
      gs[j] += s * (g * weight_get(kind, w, offset, k + j * VL, VL));
    }
  for (; k < n; k += VL) {
    vr s = source_get(kind, from, k, n - k), g = get(kind, dy, k, n - k);
    ss[0] += s * s;
    gs[0] += s * (g * weight_get(kind, w, offset, k, n - k));
  }
  cascade_add(squares, v_sum(ss[0] + ss[1]));
  cascade_add(products, v_sum(gs[0] + gs[1]));
}

typedef struct {
  source from;
  strip dy;
  sink to;
  cascade squares, products;
  real r, pull; /* pull = r^3 mean(g s) */
} backward_line;

/* ds and dw for columns [i, i+n) of one row; dw NULL: not wanted */
INLINE void ds_tile(const backward_line *l, int kind, const void *w, real offset, real *dw, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE], ds_tiles[3][TILE];
  source_view s = source_in(kind, &l->from, i, n, s_tiles);
  const void *dy = view_in(kind, &l->dy, i, n, dy_tile);
  sink_view out = sink_out(kind, &l->to, i, n, ds_tiles);
  real r = l->r, pull = l->pull;
  FOR_LANES(k, n, {
    vr v = source_get(kind, s, k, left), g = get(kind, dy, k, left);
    if (dw) v_put(dw + k, v_get(dw + k, left) + g * (v * r), left);
    sink_set(kind, out, k, g * weight_get(kind, w, offset, k, left) * r - v * pull, left);
  });
  sink_put(kind, &l->to, i, n, out);
}

INLINE void backward_rows(const cpu_call *c, int64_t first, int count, int kind, real *dw) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE], s_tiles[2][TILE], dy_tile[TILE];
  strip w = vector_of(c, W);
  real offset = (real)c->p->op.u.rmsnorm.offset;
  backward_line line[GROUP];
  for (int g = 0; g < count; g++) {
    backward_line *l = &line[g];
    l->from = source_of(c, first + g, X, RESIDUAL, SUM);
    l->dy = row_of(c, DY, first + g);
    l->to = sink_of(c, first + g, X, RESIDUAL, SUM);
    l->squares.count = l->products.count = 0;
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (backward_line *l = line; l < line + count; l++)
      sums_tile(kind, source_in(kind, &l->from, i, n, s_tiles), view_in(kind, &l->dy, i, n, dy_tile), wi, offset, n,
                &l->squares, &l->products);
  }
  for (int g = 0; g < count; g++) {
    backward_line *l = &line[g];
    l->r = reads_slot(c->p, RSTD) ? row_get(c, RSTD, first + g) : rstd(c, &l->squares);
    l->pull = l->r * l->r * l->r * (cascade_total(&l->products) / (real)cols);
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < count; g++) ds_tile(&line[g], kind, wi, offset, dw ? dw + i : NULL, i, n);
  }
}

static void backward_group(const cpu_call *c, int64_t first, int count, int kind, column_sums *dw) {
  if (HAS_BF16S && kind == BF16S)
    backward_rows(c, first, count, BF16S, dw->block);
  else
    backward_rows(c, first, count, REALS, dw->block);
}

static int64_t summed(const problem *p) { return writes_slot(p, DW) ? rows_of(p)->cols : 0; }

static void backward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  norm_rows(c, task, summed(c->p), norm_kind(c, AMBI_BIT(RSTD) | AMBI_BIT(DW)), backward_group);
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
