/* layernorm on the CPU: a task takes some rows; a row is read again from the cache until its statistics are known.
 *
 *   forward   pass 1: sum s     pass 2: sum c^2, c = s - m         pass 3: y = c r w + b
 *   backward  pass 1: sum s     pass 2: sum c^2, sum g, sum g c
 *             pass 3: ds = r (g - mean(g) - c r^2 mean(g c)) + dsum;   dw += dy c r;   db += dy
 *
 * The variance is that of the centred row: no difference of large squares. A saved mean spares pass 1. */
#include "backends/cpu/norm.h"

enum { X = AMBI_LAYERNORM_X, W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, RESIDUAL = AMBI_LAYERNORM_RESIDUAL };
enum { Y = AMBI_LAYERNORM_Y, SUM = AMBI_LAYERNORM_SUM, MEAN = AMBI_LAYERNORM_MEAN, RSTD = AMBI_LAYERNORM_RSTD };
enum { DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };

INLINE real sum_tile_of(int kind, source_view from, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  for (; k + 4 * VL <= n; k += 4 * VL)
    for (int j = 0; j < 4; j++) {
      source_ahead(kind, from, k + j * VL);
      sum[j] += source_get(kind, from, k + j * VL, VL);
    }
  for (; k < n; k += VL) sum[0] += source_get(kind, from, k, n - k);
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

INLINE real mean_of(const cpu_call *c, const source *from, int64_t row, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE];
  if (reads_slot(c->p, MEAN)) return row_get(c, MEAN, row);
  cascade sum = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    cascade_add(&sum, sum_tile_of(kind, source_in(kind, from, i, n, s_tiles), n));
  }
  return cascade_total(&sum) / (real)cols;
}

/* c = s - m, with zeros past the end of the row */
INLINE vr centred(int kind, source_view from, real m, int64_t k, int64_t left) {
  vr c = source_get(kind, from, k, left) - m;
  return left >= VL ? c : v_first(c, left);
}

static real rstd(const cpu_call *c, const cascade *squares) {
  return 1 / (real)sqrt((double)(cascade_total(squares) / (real)rows_of(c->p)->cols) + c->p->op.u.layernorm.eps);
}

/* ---- forward ---------------------------------------------------------------------------------------- */
/* sum of c^2 over a tile */
INLINE real squares_tile(int kind, source_view from, real m, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  for (; k + 4 * VL <= n; k += 4 * VL)
    for (int j = 0; j < 4; j++) {
      vr c = source_get(kind, from, k + j * VL, VL) - m;
      sum[j] += c * c;
    }
  for (; k < n; k += VL) {
    vr c = centred(kind, from, m, k, n - k);
    sum[0] += c * c;
  }
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

typedef struct {
  source from;
  strip y, sum;
  real m, r;
} forward_line;

INLINE void find_moments(const cpu_call *c, forward_line *l, int64_t row, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE];
  cascade squares = {.count = 0};
  l->m = mean_of(c, &l->from, row, kind);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    cascade_add(&squares, squares_tile(kind, source_in(kind, &l->from, i, n, s_tiles), l->m, n));
  }
  l->r = rstd(c, &squares);
  row_put(c, MEAN, row, l->m);
  row_put(c, RSTD, row, l->r);
}

/* y = (s - m) r w + b, and s itself, for columns [i, i+n) of one row */
INLINE void y_tile(const forward_line *l, int kind, const void *w, const void *b, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], out_tiles[2][TILE];
  source_view s = source_in(kind, &l->from, i, n, s_tiles);
  out_view y = view_out(kind, &l->y, i, out_tiles[0]), sum = sum_out(kind, &l->sum, i, out_tiles[1]);
  real m = l->m, r = l->r;
  FOR_LANES(k, n, {
    vr v = source_get(kind, s, k, left), h = (v - m) * r;
    if (sum.p) put(kind, sum, k, v, left);
    put(kind, y, k, h * vector_get(kind, w, 1, k, left) + vector_get(kind, b, 0, k, left), left);
  });
  view_put(kind, &l->sum, i, n, sum);
  view_put(kind, &l->y, i, n, y);
}

INLINE void forward_rows(const cpu_call *c, int64_t first, int count, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE], b_tile[TILE];
  strip w = vector_of(c, W), b = vector_of(c, B);
  forward_line line[GROUP];
  for (int g = 0; g < count; g++) {
    int64_t row = first + g;
    line[g] = (forward_line){source_of(c, row, X, RESIDUAL, SUM), row_of(c, Y, row), row_of(c, SUM, row), 0, 0};
    find_moments(c, &line[g], row, kind);
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile), *bi = view_in(kind, &b, i, n, b_tile);
    for (int g = 0; g < count; g++) y_tile(&line[g], kind, wi, bi, i, n);
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
  norm_rows(context, task, 0, norm_kind(context, AMBI_BIT(MEAN) | AMBI_BIT(RSTD)), forward_group);
}

static void forward(const cpu_call *c) {
  if (rows_of(c->p)->cols > 0) pool_run(c->threads, norm_tasks(c->p), forward_task, (void *)c);
}

/* ---- backward --------------------------------------------------------------------------------------- */
typedef struct {
  source from;
  strip dy;
  sink to;
  cascade cc, g, gc;       /* sums of c^2, g and g c */
  real m, r, mean_g, pull; /* pull = r^2 mean(g c)   */
} backward_line;

/* One vector's share of the sums */
INLINE void add_products(int kind, source_view from, const void *dy, const void *w, real m, int64_t k, int64_t left,
                         vr sum[3]) {
  vr c = centred(kind, from, m, k, left), g = get(kind, dy, k, left) * vector_get(kind, w, 1, k, left);
  ahead(kind, dy, k);
  sum[0] += c * c;
  sum[1] += g;
  sum[2] += g * c;
}

INLINE void sums_tile(int kind, backward_line *l, const void *w, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE];
  source_view from = source_in(kind, &l->from, i, n, s_tiles);
  const void *dy = view_in(kind, &l->dy, i, n, dy_tile);
  vr even[3] = {{0}, {0}, {0}}, odd[3] = {{0}, {0}, {0}};
  int64_t k = 0;
  for (; k + 2 * VL <= n; k += 2 * VL) {
    add_products(kind, from, dy, w, l->m, k, VL, even);
    add_products(kind, from, dy, w, l->m, k + VL, VL, odd);
  }
  for (; k < n; k += VL) add_products(kind, from, dy, w, l->m, k, n - k, even);
  cascade_add(&l->cc, v_sum(even[0] + odd[0]));
  cascade_add(&l->g, v_sum(even[1] + odd[1]));
  cascade_add(&l->gc, v_sum(even[2] + odd[2]));
}

/* What ds needs of each row */
INLINE void find_factors(const cpu_call *c, backward_line *line, int64_t first, int count, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE];
  strip w = vector_of(c, W);
  for (int g = 0; g < count; g++) line[g].m = mean_of(c, &line[g].from, first + g, kind);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < count; g++) sums_tile(kind, &line[g], wi, i, n);
  }
  for (int g = 0; g < count; g++) {
    backward_line *l = &line[g];
    l->r = reads_slot(c->p, RSTD) ? row_get(c, RSTD, first + g) : rstd(c, &l->cc);
    l->mean_g = cascade_total(&l->g) / (real)cols;
    l->pull = l->r * l->r * (cascade_total(&l->gc) / (real)cols);
  }
}

/* The sums over rows: dw, if wanted, then db */
static int64_t db_column(const problem *p) { return writes_slot(p, DW) ? rows_of(p)->cols : 0; }
static int64_t summed(const problem *p) { return db_column(p) + (writes_slot(p, DB) ? rows_of(p)->cols : 0); }

static inline void add_lane(real *sum, vr term, int64_t left) { v_put(sum, v_get(sum, left) + term, left); }

/* ds, dw and db for columns [i, i+n) of one row; dw, db NULL: not wanted */
INLINE void ds_tile(const backward_line *l, int kind, const void *w, real *dw, real *db, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE], ds_tiles[3][TILE];
  source_view s = source_in(kind, &l->from, i, n, s_tiles);
  const void *dy = view_in(kind, &l->dy, i, n, dy_tile);
  sink_view out = sink_out(kind, &l->to, i, n, ds_tiles);
  real m = l->m, r = l->r, mean_g = l->mean_g, pull = l->pull;
  FOR_LANES(k, n, {
    vr g = get(kind, dy, k, left), h = s.x ? source_get(kind, s, k, left) - m : K(0);
    if (dw) add_lane(dw + k, g * (h * r), left);
    if (db) add_lane(db + k, g, left);
    sink_set(kind, out, k, (g * vector_get(kind, w, 1, k, left) - mean_g - h * pull) * r, left);
  });
  sink_put(kind, &l->to, i, n, out);
}

INLINE void backward_rows(const cpu_call *c, int64_t first, int count, int kind, real *dw, real *db) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE];
  strip w = vector_of(c, W);
  backward_line line[GROUP];
  bool reads_s = reads_slot(c->p, X) || reads_slot(c->p, SUM); /* db alone does not */
  for (int g = 0; g < count; g++)
    line[g] = (backward_line){.from = source_of(c, first + g, X, RESIDUAL, SUM),
                              .dy = row_of(c, DY, first + g),
                              .to = sink_of(c, first + g, X, RESIDUAL, SUM)};
  if (reads_s) find_factors(c, line, first, count, kind);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < count; g++) ds_tile(&line[g], kind, wi, dw ? dw + i : NULL, db ? db + i : NULL, i, n);
  }
}

static void backward_group(const cpu_call *c, int64_t first, int count, int kind, column_sums *sums) {
  real *dw = writes_slot(c->p, DW) ? sums->block : NULL;
  real *db = writes_slot(c->p, DB) ? sums->block + db_column(c->p) : NULL;
  if (HAS_BF16S && kind == BF16S)
    backward_rows(c, first, count, BF16S, dw, db);
  else
    backward_rows(c, first, count, REALS, dw, db);
}

static void backward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  uint32_t apart = AMBI_BIT(MEAN) | AMBI_BIT(RSTD) | AMBI_BIT(DW) | AMBI_BIT(DB);
  norm_rows(c, task, summed(c->p), norm_kind(c, apart), backward_group);
}

static void sums_task(void *context, int64_t task) {
  const cpu_call *c = context;
  norm_put_sums(c, DW, summed(c->p), 0, task);
  norm_put_sums(c, DB, summed(c->p), db_column(c->p), task);
}

static void backward(const cpu_call *c) {
  int64_t cols = rows_of(c->p)->cols;
  if (cols == 0) return;
  pool_run(c->threads, norm_tasks(c->p), backward_task, (void *)c);
  if (summed(c->p)) pool_run(c->threads, ceil_div(cols, TILE), sums_task, (void *)c);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return norm_workspace(p, summed(p));
}

const cpu_kernel CPU_KERNEL(layernorm) = {"rows", workspace, forward, backward};
