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
    for (int j = 0; j < 4; j++) sum[j] += source_get(kind, from, k + j * VL, VL);
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
  real m, r;
} moments;

INLINE moments moments_of(const cpu_call *c, int64_t row, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE];
  source from = source_of(c, row, X, RESIDUAL, SUM);
  real m = mean_of(c, &from, row, kind);
  cascade squares = {.count = 0};
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    cascade_add(&squares, squares_tile(kind, source_in(kind, &from, i, n, s_tiles), m, n));
  }
  return (moments){m, rstd(c, &squares)};
}

/* The weight and bias for columns [i, i+n): NULL where absent */
typedef struct {
  const void *w, *b;
} affine;

/* y = (s - m) r w + b, and s itself, for columns [i, i+n) of one row */
INLINE void y_tile(const cpu_call *c, int64_t row, int kind, moments f, affine by, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], out_tiles[2][TILE];
  source from = source_of(c, row, X, RESIDUAL, SUM), later = source_of(c, row_ahead(c, row), X, RESIDUAL, SUM);
  strip y = row_of(c, Y, row), sum = row_of(c, SUM, row);
  source_view s = source_in(kind, &from, i, n, s_tiles), coming = source_at(&later, i);
  void *yi = view_out(kind, &y, i, out_tiles[0]), *si = view_out(kind, &sum, i, out_tiles[1]);
  for (int64_t k = 0; k < n; k += VL) {
    vr v = source_get(kind, s, k, n - k), h = (v - f.m) * f.r;
    source_ahead(kind, coming, k);
    if (si) put(kind, si, k, v, n - k);
    put(kind, yi, k, h * vector_get(kind, by.w, 1, k, n - k) + vector_get(kind, by.b, 0, k, n - k), n - k);
  }
  view_put(kind, &sum, i, n, si);
  view_put(kind, &y, i, n, yi);
}

INLINE void forward_rows(const cpu_call *c, int64_t first, int count, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE], b_tile[TILE];
  strip w = vector_of(c, W), b = vector_of(c, B);
  moments f[GROUP];
  for (int g = 0; g < count; g++) {
    f[g] = moments_of(c, first + g, kind);
    row_put(c, MEAN, first + g, f[g].m);
    row_put(c, RSTD, first + g, f[g].r);
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    affine by = {view_in(kind, &w, i, n, w_tile), view_in(kind, &b, i, n, b_tile)};
    for (int g = 0; g < count; g++) y_tile(c, first + g, kind, f[g], by, i, n);
  }
}

static void forward_group(const cpu_call *c, int64_t first, int count, int kind, column_sums *none) {
  (void)none;
  if (kind == BF16S)
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
  real m, r, mean_g, pull; /* pull = r^2 mean(g c) */
} factors;

typedef struct {
  cascade cc, g, gc; /* sums of c^2, g and g c */
} row_sums;

INLINE void sums_tile(int kind, row_sums *t, source_view from, const void *dy, const void *w, real m, int64_t n) {
  vr cc[2] = {{0}, {0}}, sum_g[2] = {{0}, {0}}, gc[2] = {{0}, {0}};
  for (int64_t k = 0, j = 0; k < n; k += VL, j ^= 1) {
    vr c = centred(kind, from, m, k, n - k), g = get(kind, dy, k, n - k) * vector_get(kind, w, 1, k, n - k);
    cc[j] += c * c;
    sum_g[j] += g;
    gc[j] += g * c;
  }
  cascade_add(&t->cc, v_sum(cc[0] + cc[1]));
  cascade_add(&t->g, v_sum(sum_g[0] + sum_g[1]));
  cascade_add(&t->gc, v_sum(gc[0] + gc[1]));
}

INLINE void factors_of(const cpu_call *c, int64_t first, int count, int kind, factors *f) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE], w_tile[TILE], dy_tile[TILE];
  strip w = vector_of(c, W);
  row_sums t[GROUP];
  for (int g = 0; g < count; g++) {
    source from = source_of(c, first + g, X, RESIDUAL, SUM);
    f[g].m = mean_of(c, &from, first + g, kind);
    t[g].cc.count = t[g].g.count = t[g].gc.count = 0;
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < count; g++) {
      source from = source_of(c, first + g, X, RESIDUAL, SUM);
      strip dy = row_of(c, DY, first + g);
      source_view s = source_in(kind, &from, i, n, s_tiles);
      sums_tile(kind, &t[g], s, view_in(kind, &dy, i, n, dy_tile), wi, f[g].m, n);
    }
  }
  for (int g = 0; g < count; g++) {
    f[g].r = reads_slot(c->p, RSTD) ? row_get(c, RSTD, first + g) : rstd(c, &t[g].cc);
    f[g].mean_g = cascade_total(&t[g].g) / (real)cols;
    f[g].pull = f[g].r * f[g].r * (cascade_total(&t[g].gc) / (real)cols);
  }
}

/* The sums over rows: dw, if wanted, then db */
static int64_t db_column(const problem *p) { return writes_slot(p, DW) ? rows_of(p)->cols : 0; }
static int64_t summed(const problem *p) { return db_column(p) + (writes_slot(p, DB) ? rows_of(p)->cols : 0); }

static inline void add_lane(real *sum, vr term, int64_t left) { v_put(sum, v_get(sum, left) + term, left); }

/* ds, dw and db for columns [i, i+n) of one row; dw, db NULL: not wanted */
INLINE void ds_tile(const cpu_call *c, int64_t row, int kind, const factors *f, const void *w, real *dw, real *db,
                    int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE], ds_tiles[3][TILE];
  int64_t after = row_ahead(c, row);
  source from = source_of(c, row, X, RESIDUAL, SUM), later = source_of(c, after, X, RESIDUAL, SUM);
  strip dy = row_of(c, DY, row), later_dy = row_of(c, DY, after);
  sink to = sink_of(c, row, X, RESIDUAL, SUM);
  source_view s = source_in(kind, &from, i, n, s_tiles), coming = source_at(&later, i);
  const void *d = view_in(kind, &dy, i, n, dy_tile), *coming_dy = lies_at(&later_dy, i);
  sink_view out = sink_out(kind, &to, i, n, ds_tiles);
  for (int64_t k = 0; k < n; k += VL) {
    vr g = get(kind, d, k, n - k), h = s.x ? source_get(kind, s, k, n - k) - f->m : K(0);
    if (s.x) source_ahead(kind, coming, k);
    ahead(kind, coming_dy, k);
    if (dw) add_lane(dw + k, g * (h * f->r), n - k);
    if (db) add_lane(db + k, g, n - k);
    sink_set(kind, out, k, (g * vector_get(kind, w, 1, k, n - k) - f->mean_g - h * f->pull) * f->r, n - k);
  }
  sink_put(kind, &to, i, n, out);
}

INLINE void backward_rows(const cpu_call *c, int64_t first, int count, int kind, real *dw, real *db) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE];
  strip w = vector_of(c, W);
  factors f[GROUP] = {{0}};
  bool reads_s = reads_slot(c->p, X) || reads_slot(c->p, SUM); /* db alone does not */
  if (reads_s) factors_of(c, first, count, kind, f);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < count; g++)
      ds_tile(c, first + g, kind, &f[g], wi, dw ? dw + i : NULL, db ? db + i : NULL, i, n);
  }
}

static void backward_group(const cpu_call *c, int64_t first, int count, int kind, column_sums *sums) {
  real *dw = writes_slot(c->p, DW) ? sums->block : NULL;
  real *db = writes_slot(c->p, DB) ? sums->block + db_column(c->p) : NULL;
  if (kind == BF16S)
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
