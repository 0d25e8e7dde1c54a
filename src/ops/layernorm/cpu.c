/* layernorm on the CPU: a task takes some rows, a few at a time; a row is read twice, the second time from the cache.
 *
 *   s = x + residual,  m = mean(s),  c = s - m,  g = dy w
 *   forward   pass 1: m, sum c^2, r = 1 / sqrt(mean(c^2) + eps)    pass 2: y = c r w + b
 *   backward  pass 1: m, sum c^2, sum g, sum g c
 *             pass 2: ds = r (g - mean(g)) - c r^3 mean(g c) + dsum;   dw += dy c r;   db += dy
 *
 * Pass 1 takes the sums of each tile around the mean of the tile and joins them: no difference of large squares. */
#include "backends/cpu/norm.h"

enum { X = AMBI_LAYERNORM_X, W = AMBI_LAYERNORM_W, B = AMBI_LAYERNORM_B, RESIDUAL = AMBI_LAYERNORM_RESIDUAL };
enum { Y = AMBI_LAYERNORM_Y, SUM = AMBI_LAYERNORM_SUM, MEAN = AMBI_LAYERNORM_MEAN, RSTD = AMBI_LAYERNORM_RSTD };
enum { DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };

/* ---- moments: of some elements of a row, how many, their mean, and sums around it ---- */
typedef struct {
  real n, mean, cc, g, gc; /* sums of c^2, g and g c, c = s - mean */
} moments;

static moments join(moments a, moments b) {
  real n = a.n + b.n, d = b.mean - a.mean, to_a = d * (b.n / n), to_b = d - to_a; /* their means, from the joint one */
  return (moments){n, a.mean + to_a, a.cc + b.cc + to_a * a.n * d, a.g + b.g,
                   (a.gc - to_a * a.g) + (b.gc + to_b * b.g)};
}

/* Pairwise, as sums are (sums.h): partial[k] is that of 2^k tiles. At least one. */
typedef struct {
  moments partial[56];
  uint64_t count;
} row_moments;

static void row_add(row_moments *r, moments m) {
  int k = 0;
  for (uint64_t n = r->count; n & 1; n >>= 1) m = join(r->partial[k++], m);
  r->partial[k] = m;
  r->count++;
}

static moments row_total(const row_moments *r) {
  uint64_t rest = r->count;
  moments sum = r->partial[__builtin_ctzll(rest)];
  while (rest &= rest - 1) sum = join(r->partial[__builtin_ctzll(rest)], sum);
  return sum;
}

/* One row on its way in. */
typedef struct {
  grad_row row; /* its gradients in backward alone */
  bool known;   /* the mean was saved */
  real mean;
} row_in;

INLINE real sum_tile_of(int kind, source_view from, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  const int h = halves(kind);
  int64_t k = 0;
  for (; k + 4 * VL <= n; k += 4 * VL) UNROLL for (int j = 0; j < 4; j++) {
      if (j % h == 0) prefetch_source(kind, from, k + j * VL);
      sum[j] += source_half(kind, from, k + j / h * h * VL, j % h, h * VL);
    }
  for (; k < n; k += h * VL) EACH_HALF(h) sum[half] += source_half(kind, from, k, half, n - k);
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* One vector's share of c^2, g, g c. Past the end of the row c is 0, as g is. */
INLINE void add_terms(int kind, source_view from, const void *dy, const void *w, real m, int64_t k, int half,
                      int64_t left, vr sum[3]) {
  vr c = source_half(kind, from, k, half, left) - m;
  if (left < halves(kind) * VL) c = v_first(c, half_left(kind, half, left));
  sum[0] += c * c;
  if (!dy) return;
  vr g = get_half(kind, dy, k, half, left) * vector_half(kind, w, 1, k, half, left);
  sum[1] += g;
  sum[2] += g * c;
}

/* The sums of columns [i, i+n) around m; backward: with g, of w as it is there, or NULL */
INLINE moments moments_about(real m, int kind, bool backward, const row_in *r, source_view from, const void *dy,
                             const void *w, int64_t i, int64_t n) {
  const int h = halves(kind), ways = backward ? 2 : 4; /* independent sums: as many as registers allow */
  vr sum[4][3] = {{{0}}};
  int64_t k = 0;
  for (; k + ways * VL <= n; k += ways * VL) UNROLL for (int j = 0; j < ways; j++) {
      int64_t at = k + j / h * h * VL;
      if (j % h == 0) prefetch_next(&r->row.next, from, dy, 0, i, at);
      if (j % h == 0 && backward) prefetch_view(kind, dy, at);
      add_terms(kind, from, dy, w, m, at, j % h, h * VL, sum[j]);
    }
  for (; k < n; k += h * VL) EACH_HALF(h) add_terms(kind, from, dy, w, m, k, half, n - k, sum[half]);
  vr all[3];
  UNROLL for (int q = 0; q < 3; q++) all[q] = (sum[0][q] + sum[1][q]) + (sum[2][q] + sum[3][q]);
  return (moments){(real)n, m, v_sum(all[0]), backward ? v_sum(all[1]) : 0, backward ? v_sum(all[2]) : 0};
}

/* The mean of columns that hardly differ, from their differences to the first: exact where they are all the same. */
static real mean_of_alike(int kind, source_view from, int64_t n) {
  const real first = source_half(kind, from, 0, 0, n)[0];
  real sum = 0;
  for (int64_t k = 0; k < n; k += halves(kind) * VL) EACH_HALF(halves(kind)) {
      vr s = source_half(kind, from, k, half, n - k);
      sum += v_sum(v_first(s - first, half_left(kind, half, n - k)));
    }
  return first + sum / (real)n;
}

/* Columns whose spread may be lost in the rounding of their mean: 4 VL sums of n / (4 VL) terms, then a few more */
static bool is_flat(moments m) {
  const real u = AMBI_REAL == 32 ? (real)0x1p-24 : (real)0x1p-53, off = m.mean * u * (m.n / (4 * VL) + 8);
  return m.mean != 0 && isfinite(m.mean) && !(m.cc > m.n * off * off); /* the last two may be infinite */
}

/* Columns [i, i+n) of a row */
INLINE moments moments_tile(int kind, bool backward, const row_in *r, const void *w, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE];
  source_view from = source_in(kind, &r->row.from, i, n, s_tiles);
  const void *dy = backward ? view_in(kind, &r->row.dy, i, n, dy_tile) : NULL;
  real m = r->known ? r->mean : sum_tile_of(kind, from, n) / (real)n;
  for (bool again = false;; again = true) {
    moments found = moments_about(m, kind, backward, r, from, dy, w, i, n);
    if (again || r->known || !is_flat(found)) return found;
    m = mean_of_alike(kind, from, n);
  }
}

static real rstd(const cpu_call *c, real cc) {
  return 1 / (real)sqrt((double)(cc / (real)rows_of(c->p)->cols) + c->p->op.u.layernorm.eps);
}

static row_in row_in_of(const cpu_call *c, const row_group *rows, int64_t row) {
  bool known = reads_slot(c->p, MEAN);
  return (row_in){grad_row_of(c, rows, row, X, RESIDUAL, SUM, Y), known, known ? row_get(c, MEAN, row) : 0};
}

/* ---- forward ---- */
/* A row on its way through forward */
typedef struct {
  row_in in;
  strip y, sum;
  row_cut cut; /* of y */
  real m, r;
} forward_line;

/* What y is made of and where it goes, from some column of a row on; sum: where s itself goes */
typedef struct {
  source_view s;
  const void *w, *b;
  out_view y, sum;
} forward_view;

/* y = c r w + b, and s itself, for columns [i, i+n) of one row */
INLINE void y_steps(const forward_line *l, int kind, forward_view v, int64_t i, int64_t n) {
  real m = l->m, r = l->r;
  const next_row next = l->in.row.next; /* in registers: a store might change what l points to */
  FOR_STEPS(halves(kind) * VL, k, n, {
    vr s[2], yk[2];
    prefetch_next(&next, v.s, NULL, 1, i, k);
    EACH_HALF(halves(kind)) {
      s[half] = source_half(kind, v.s, k, half, left);
      vr wk = vector_half(kind, v.w, 1, k, half, left), bk = vector_half(kind, v.b, 0, k, half, left);
      yk[half] = v_mul_add((s[half] - m) * r, wk, bk);
    }
    if (v.sum.p) put_halves(kind, v.sum, k, s, left);
    put_halves(kind, v.y, k, yk, left);
  });
}

INLINE void y_tile(const forward_line *l, int kind, const void *w, const void *b, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], out_tiles[2][TILE];
  forward_view v = {.s = source_in(kind, &l->in.row.from, i, n, s_tiles), .w = w, .b = b};
  v.y = view_out(kind, &l->y, i, n, out_tiles[0]), v.sum = sum_out(kind, &l->sum, i, n, out_tiles[1]);
  bool usual = is_usual(v.s, w) && b && !v.sum.p; /* a loop of its own, see norm.h */
  if (usual && v.y.past)
    y_steps(l, kind, (forward_view){usual_source(v.s), w, b, .y = {v.y.p, true}}, i, n);
  else if (usual)
    y_steps(l, kind, (forward_view){usual_source(v.s), w, b, .y = {v.y.p, false}}, i, n);
  else
    y_steps(l, kind, v, i, n);
  view_put(kind, &l->sum, i, n, v.sum);
  view_put(kind, &l->y, i, n, v.y);
}

/* The tile of one row at column i, n columns, in pieces (row_cut, norm.h); w and b from column i on */
INLINE void y_pieces(const forward_line *l, int kind, const void *w, const void *b, int64_t i, int64_t n) {
  int64_t end = cut_end(&l->cut, i, n, l->in.row.cols);
  for (int64_t k = cut_begin(&l->cut, i), stop; k < end; k = stop) {
    stop = piece_end(&l->cut, k, end);
    y_tile(l, kind, view_from(kind, w, k - i), view_from(kind, b, k - i), k, stop - k);
  }
}

/* m and r of every row of a group, then y, a tile of all of them at a time */
INLINE void forward_rows(const cpu_call *c, const row_group *rows, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE + SPARE], b_tile[TILE + SPARE];
  strip w = vector_of(c, W), b = vector_of(c, B);
  forward_line line[GROUP];
  int count = rows->count;
  for (int g = 0; g < count; g++) {
    forward_line *l = &line[g];
    int64_t row = rows->first + g;
    *l = (forward_line){.in = row_in_of(c, rows, row), .y = row_of(c, Y, row), .sum = row_of(c, SUM, row)};
    l->cut = cut_of(&l->y, cols);
    row_moments found;
    found.count = 0;
    for (int64_t i = 0; i < cols; i += TILE)
      row_add(&found, moments_tile(kind, false, &l->in, NULL, i, min64(TILE, cols - i)));
    moments all = row_total(&found);
    l->m = all.mean;
    l->r = rstd(c, all.cc);
    row_put(c, MEAN, row, l->m);
    row_put(c, RSTD, row, l->r);
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i), more = with_spare(i, n, cols);
    const void *wi = view_in(kind, &w, i, more, w_tile), *bi = view_in(kind, &b, i, more, b_tile);
    for (int g = 0; g < count; g++) y_pieces(&line[g], kind, wi, bi, i, n);
  }
}

static void forward_group(const cpu_call *c, const row_group *g, column_sums *none) {
  (void)none;
  if (HAS_BF16S && g->kind == BF16S)
    forward_rows(c, g, BF16S);
  else
    forward_rows(c, g, REALS);
}

static void forward_task(void *context, int64_t task) {
  norm_rows(context, task, 0, norm_kind(context, AMBI_BIT(MEAN) | AMBI_BIT(RSTD)), forward_group);
}

static void forward(const cpu_call *c) {
  if (rows_of(c->p)->cols > 0) pool_run(c->threads, norm_tasks(c->p), forward_task, (void *)c);
}

/* ---- backward ---- */
/* A row on its way through backward */
typedef struct {
  row_in in;
  real m, r, mean_g, pull; /* pull = r^3 mean(g c) */
} backward_line;

/* What ds needs of each row */
INLINE void find_factors(const cpu_call *c, backward_line *line, const row_group *rows, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE];
  strip w = vector_of(c, W);
  row_moments found[GROUP];
  for (int g = 0; g < rows->count; g++) found[g].count = 0;
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < rows->count; g++) row_add(&found[g], moments_tile(kind, true, &line[g].in, wi, i, n));
  }
  for (int g = 0; g < rows->count; g++) {
    backward_line *l = &line[g];
    moments all = row_total(&found[g]);
    l->m = all.mean;
    l->r = reads_slot(c->p, RSTD) ? row_get(c, RSTD, rows->first + g) : rstd(c, all.cc);
    l->mean_g = all.g / (real)cols;
    l->pull = l->r * (l->r * (l->r * (all.gc / (real)cols))); /* r^3 might overflow */
  }
}

/* The sums over rows: dw, if wanted, then db */
static int64_t db_column(const problem *p) { return writes_slot(p, DW) ? whole_lines(rows_of(p)->cols) : 0; }
static int64_t summed(const problem *p) {
  return db_column(p) + (writes_slot(p, DB) ? whole_lines(rows_of(p)->cols) : 0);
}

/* What ds, dw and db are made of and where they go, from some column of a row on; dw, db NULL: not wanted */
typedef struct {
  source_view s;
  const void *dy, *w;
  sink_view out;
  real *dw, *db;
} backward_view;

/* ds = r (g - mean(g)) - c r^3 mean(g c) + dsum, dw += dy c r and db += dy, for columns [i, i+n) of one row */
INLINE void ds_steps(const backward_line *l, int kind, backward_view v, int64_t i, int64_t n) {
  const next_row next = l->in.row.next;
  const vr m = v_splat(l->m), r = v_splat(l->r), minus_mean_g = v_splat(-l->mean_g), minus_pull = v_splat(-l->pull);
  FOR_STEPS(halves(kind) * VL, k, n, {
    vr dy[2], cr[2], ds[2];
    prefetch_next(&next, v.s, v.dy, 1, i, k);
    EACH_HALF(halves(kind)) {
      vr c = v.s.x ? source_half(kind, v.s, k, half, left) - m : K(0);
      dy[half] = get_half(kind, v.dy, k, half, left);
      cr[half] = c * r;
      vr g = v_mul_add(dy[half], vector_half(kind, v.w, 1, k, half, left), minus_mean_g);
      ds[half] = v_mul_add(c, minus_pull, g * r);
    }
    if (v.dw) add_products(kind, v.dw, k, dy, cr, left);
    if (v.db) add_halves(kind, v.db, k, dy, left);
    sink_set(kind, v.out, k, ds, left);
  });
}

/* db += dy, then dw += dy c r */
INLINE void sums_steps(const backward_line *l, int kind, backward_view v, int64_t n) {
  const vr m = v_splat(l->m), r = v_splat(l->r);
  if (v.db)
    FOR_STEPS(halves(kind) * VL, k, n, {
      vr dy[2];
      EACH_HALF(halves(kind)) dy[half] = get_half(kind, v.dy, k, half, left);
      add_halves(kind, v.db, k, dy, left);
    });
  if (v.dw)
    FOR_STEPS(halves(kind) * VL, k, n, {
      vr dy[2], cr[2];
      EACH_HALF(halves(kind)) {
        dy[half] = get_half(kind, v.dy, k, half, left);
        cr[half] = (source_half(kind, v.s, k, half, left) - m) * r;
      }
      add_products(kind, v.dw, k, dy, cr, left);
    });
}

/* As ds_steps, but see sums_apart. The sums come first: dx may lie over dy. */
INLINE void ds_apart(const backward_line *l, int kind, backward_view v, int64_t i, int64_t n) {
  sums_steps(l, kind, v, n);
  v.dw = v.db = NULL;
  ds_steps(l, kind, v, i, n);
}

INLINE void ds_tile(const backward_line *l, int kind, const void *w, real *dw, real *db, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE], ds_tiles[3][TILE];
  backward_view v = {.s = source_in(kind, &l->in.row.from, i, n, s_tiles), .w = w, .dw = dw, .db = db};
  v.dy = view_in(kind, &l->in.row.dy, i, n, dy_tile);
  v.out = sink_out(kind, &l->in.row.to, i, n, ds_tiles);
  const backward_view plain = {usual_source(v.s), v.dy, w, usual_sink(v.out, false), dw, db};
  bool usual = is_usual(v.s, w) && sink_usual(v.out) && dw && db, apart = sums_apart(kind, v.out);
  if (usual && v.out.dx.past)
    ds_steps(l, kind, (backward_view){usual_source(v.s), v.dy, w, usual_sink(v.out, true), dw, db}, i, n);
  else if (usual && apart)
    ds_apart(l, kind, plain, i, n);
  else if (usual)
    ds_steps(l, kind, plain, i, n);
  else if (apart)
    ds_apart(l, kind, v, i, n);
  else
    ds_steps(l, kind, v, i, n);
  sink_put(kind, &l->in.row.to, i, n, v.out);
}

/* The tile of one row at column i, n columns, in pieces (row_cut, norm.h); w, dw and db from column i on */
INLINE void ds_pieces(const backward_line *l, int kind, const void *w, real *dw, real *db, int64_t i, int64_t n) {
  const row_cut *cut = &l->in.row.cut;
  int64_t end = cut_end(cut, i, n, l->in.row.cols);
  for (int64_t k = cut_begin(cut, i), stop; k < end; k = stop) {
    stop = piece_end(cut, k, end);
    ds_tile(l, kind, view_from(kind, w, k - i), dw ? dw + (k - i) : NULL, db ? db + (k - i) : NULL, k, stop - k);
  }
}

INLINE void backward_rows(const cpu_call *c, const row_group *rows, int kind, real *dw, real *db) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE + SPARE];
  strip w = vector_of(c, W);
  backward_line line[GROUP];
  bool reads_s = reads_slot(c->p, X) || reads_slot(c->p, SUM); /* db alone does not */
  for (int g = 0; g < rows->count; g++) line[g] = (backward_line){.in = row_in_of(c, rows, rows->first + g)};
  for (int g = rows->count - 1; g > 0; g--) cut_before(&line[g - 1].in.row.cut, &line[g].in.row.cut);
  if (reads_s) find_factors(c, line, rows, kind);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = view_in(kind, &w, i, with_spare(i, n, cols), w_tile);
    for (int g = 0; g < rows->count; g++) ds_pieces(&line[g], kind, wi, dw ? dw + i : NULL, db ? db + i : NULL, i, n);
  }
}

static void backward_group(const cpu_call *c, const row_group *g, column_sums *sums) {
  real *dw = writes_slot(c->p, DW) ? sums->block : NULL;
  real *db = writes_slot(c->p, DB) ? sums->block + db_column(c->p) : NULL;
  if (HAS_BF16S && g->kind == BF16S)
    backward_rows(c, g, BF16S, dw, db);
  else
    backward_rows(c, g, REALS, dw, db);
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
