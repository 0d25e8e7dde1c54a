/* rmsnorm on the CPU: a task takes some rows; a row is read twice, the second time from the cache.
 *
 *   forward   pass 1: sum s^2            pass 2: y = s r (w + offset)
 *   backward  pass 1: sum s^2, sum g s   pass 2: ds = r g - s r^3 mean(g s) + dsum;  dw += dy s r                   */
#include "backends/cpu/sums.h"
#include "ops/rmsnorm/op.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
enum { Y = AMBI_RMSNORM_Y, SUM = AMBI_RMSNORM_SUM, RSTD = AMBI_RMSNORM_RSTD };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DRESIDUAL = AMBI_GRAD(RESIDUAL), DY = AMBI_GRAD(Y), DSUM = AMBI_GRAD(SUM) };

static strip row_of(const cpu_call *c, int slot, int64_t row) {
  const rmsnorm_recipe *n = rmsnorm(c->p);
  return strip_of(c, slot, grid_offset(&n->rows, slot, row), n->col_stride[slot]);
}

/* s of one row: x + residual, or the saved sum */
typedef struct {
  strip x, residual;
} source;

static source source_of(const cpu_call *c, int64_t row) {
  source s = {.x = row_of(c, reads_slot(c->p, SUM) ? SUM : X, row)};
  if (reads_slot(c->p, RESIDUAL)) s.residual = row_of(c, RESIDUAL, row);
  return s;
}

static const real *source_tile(const source *s, int64_t i, int64_t n, real *tile) {
  const real *x = strip_in(&s->x, i, n, tile);
  if (!s->residual.at) return x;
  TILE_OF_REALS buffer[TILE];
  const real *residual = strip_in(&s->residual, i, n, buffer);
  for (int64_t k = 0; k < n; k++) tile[k] = x[k] + residual[k];
  return tile;
}

/* w + offset for columns i.., or 1 */
static const real *weight_tile(const cpu_call *c, int64_t i, int64_t n, real *tile) {
  strip w = strip_of(c, W, 0, rmsnorm(c->p)->col_stride[W]);
  real offset = (real)c->p->op.u.rmsnorm.offset;
  if (w.at && offset == 0) return strip_in(&w, i, n, tile);
  if (!w.at) {
    for (int64_t k = 0; k < n; k++) tile[k] = 1;
    return tile;
  }
  const real *plain = strip_in(&w, i, n, tile);
  for (int64_t k = 0; k < n; k++) tile[k] = plain[k] + offset;
  return tile;
}

static real rstd(const cpu_call *c, const cascade *squares) {
  return 1 / (real)sqrt((double)(cascade_total(squares) / (real)rmsnorm(c->p)->cols) + c->p->op.u.rmsnorm.eps);
}

/* ---- forward ---------------------------------------------------------------------------------------- */
static void scale_tile(const cpu_call *c, real *y, const real *s, const real *w, real r, int64_t n) {
  if (!c->p->op.u.rmsnorm.cast) {
    for (int64_t k = 0; k < n; k += VL) v_put(y + k, v_get(s + k, n - k) * r * v_get(w + k, n - k), n - k);
    return;
  }
  TILE_OF_REALS rounded[TILE];
  for (int64_t k = 0; k < n; k++) rounded[k] = s[k] * r;
  round_to(c->p->t[X].dtype, rounded, n);
  for (int64_t k = 0; k < n; k++) y[k] = rounded[k] * w[k];
}

static void forward_row(const cpu_call *c, int64_t row) {
  int64_t cols = rmsnorm(c->p)->cols;
  TILE_OF_REALS s_tile[TILE], w_tile[TILE], y_tile[TILE];
  source from = source_of(c, row);
  strip y = row_of(c, Y, row), sum = row_of(c, SUM, row), saved = row_of(c, RSTD, row);
  cascade squares = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const real *s = source_tile(&from, i, n, s_tile);
    cascade_add(&squares, dot_tile(s, s, n));
  }
  real r = rstd(c, &squares);
  if (saved.at) strip_put(&saved, 0, 1, &r);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const real *s = source_tile(&from, i, n, s_tile), *w = weight_tile(c, i, n, w_tile);
    real *out = strip_out(&y, i, y_tile);
    scale_tile(c, out, s, w, r, n);
    if (sum.at) strip_put(&sum, i, n, s);
    strip_put(&y, i, n, out);
  }
}

static void forward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const rmsnorm_recipe *n = rmsnorm(c->p);
  int64_t each = rows_per_task(n->rows.count, n->cols), end = min64((task + 1) * each, n->rows.count);
  for (int64_t row = task * each; row < end; row++) forward_row(c, row);
  stream_fence();
}

static void forward(const cpu_call *c) {
  const rmsnorm_recipe *n = rmsnorm(c->p);
  if (n->cols > 0) pool_run(c->threads, row_tasks(n->rows.count, n->cols), forward_task, (void *)c);
}

/* ---- backward --------------------------------------------------------------------------------------- */
/* r and r^3 mean(g s) of one row */
static void row_factors(const cpu_call *c, const source *from, const strip *dy, int64_t row, real *r, real *pull) {
  int64_t cols = rmsnorm(c->p)->cols;
  TILE_OF_REALS s_tile[TILE], w_tile[TILE], dy_tile[TILE], g[TILE];
  strip saved = row_of(c, RSTD, row);
  cascade squares = {.count = 0}, gs = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const real *s = source_tile(from, i, n, s_tile), *w = weight_tile(c, i, n, w_tile);
    const real *d = strip_in(dy, i, n, dy_tile);
    for (int64_t k = 0; k < n; k += VL) v_store(g + k, v_get(d + k, n - k) * v_get(w + k, n - k));
    cascade_add(&gs, dot_tile(g, s, n));
    if (!saved.at) cascade_add(&squares, dot_tile(s, s, n));
  }
  *r = saved.at ? strip_get(&saved, 0) : rstd(c, &squares);
  *pull = *r * *r * *r * (cascade_total(&gs) / (real)cols);
}

static void ds_tile(real *ds, const real *dy, const real *w, const real *s, real r, real pull, int64_t n) {
  for (int64_t k = 0; k < n; k += VL) {
    vr g = v_get(dy + k, n - k) * v_get(w + k, n - k);
    v_put(ds + k, g * r - v_get(s + k, n - k) * pull, n - k);
  }
}

static void dw_tile(real *dw, const real *dy, const real *s, real r, int64_t n) {
  for (int64_t k = 0; k < n; k += VL)
    v_put(dw + k, v_get(dw + k, n - k) + v_get(dy + k, n - k) * (v_get(s + k, n - k) * r), n - k);
}

static void backward_row(const cpu_call *c, int64_t row, column_sums *dw) {
  int64_t cols = rmsnorm(c->p)->cols;
  TILE_OF_REALS s_tile[TILE], w_tile[TILE], dy_tile[TILE], dx_tile[TILE], dsum_tile[TILE];
  source from = source_of(c, row);
  strip dy = row_of(c, DY, row), dsum = row_of(c, DSUM, row), dx = row_of(c, DX, row), dres = row_of(c, DRESIDUAL, row);
  strip *first = dx.at ? &dx : &dres; /* the gradient that is computed; the other is the same */
  real r, pull;
  row_factors(c, &from, &dy, row, &r, &pull);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const real *s = source_tile(&from, i, n, s_tile), *d = strip_in(&dy, i, n, dy_tile);
    if (writes_slot(c->p, DW)) dw_tile(dw->block + i, d, s, r, n);
    if (!first->at) continue;
    const real *w = weight_tile(c, i, n, w_tile), *extra = dsum.at ? strip_in(&dsum, i, n, dsum_tile) : NULL;
    real *ds = first == &dx && !dres.at && !extra ? strip_out(&dx, i, dx_tile) : dx_tile;
    ds_tile(ds, d, w, s, r, pull, n);
    for (int64_t k = 0; extra && k < n; k++) ds[k] += extra[k];
    if (dx.at) strip_put(&dx, i, n, ds);
    if (dres.at) strip_put(&dres, i, n, ds);
  }
}

static void backward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const rmsnorm_recipe *n = rmsnorm(c->p);
  int64_t each = rows_per_task(n->rows.count, n->cols), end = min64((task + 1) * each, n->rows.count);
  column_sums dw = {0};
  if (writes_slot(c->p, DW)) {
    dw = column_sums_at(c->workspace + task * (int64_t)column_sums_bytes(n->cols), n->cols);
    column_sums_clear(&dw);
  }
  for (int64_t row = task * each; row < end; row++) {
    backward_row(c, row, &dw);
    if (dw.sum) column_sums_row_done(&dw);
  }
  if (dw.sum) column_sums_flush(&dw);
  stream_fence();
}

static void dw_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const rmsnorm_recipe *n = rmsnorm(c->p);
  int64_t i = task * TILE, count = min64(TILE, n->cols - i);
  TILE_OF_REALS total[TILE];
  column_sums_total(c->workspace, row_tasks(n->rows.count, n->cols), n->cols, i, count, total);
  strip dw = strip_of(c, DW, 0, n->col_stride[DW]);
  strip_put(&dw, i, count, total);
  stream_fence();
}

static void backward(const cpu_call *c) {
  const rmsnorm_recipe *n = rmsnorm(c->p);
  if (n->cols == 0) return;
  pool_run(c->threads, row_tasks(n->rows.count, n->cols), backward_task, (void *)c);
  if (writes_slot(c->p, DW)) pool_run(c->threads, ceil_div(n->cols, TILE), dw_task, (void *)c);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  const rmsnorm_recipe *n = rmsnorm(p);
  return writes_slot(p, DW) ? (uint64_t)row_tasks(n->rows.count, n->cols) * column_sums_bytes(n->cols) : 0;
}

const cpu_kernel CPU_KERNEL(rmsnorm) = {"rows", workspace, forward, backward};
