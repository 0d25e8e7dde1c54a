/* rmsnorm on the CPU: a task takes some rows, a few at a time; a row is read twice, the second time from the cache.
 *
 *   s = x + residual,  g = dy (w + offset)
 *   forward   pass 1: sum s^2, r = 1 / sqrt(mean(s^2) + eps)    pass 2: y = s r (w + offset)
 *   backward  pass 1: sum s^2, sum g s    pass 2: ds = r g - s r^3 mean(g s) + dsum;  dw += dy s r
 *
 * forward_rows: rstd_of each row, squares_tile by tile; then y_tile by tile. backward_rows: sums_tile, then ds_tile.
 * `kind` is how elements lie: as REALS, or as BF16S, of which a step is two vectors, its halves (io.h). What is done
 * for WebAssembly alone is in wasm.h. */
#include "backends/cpu/norm.h"
#include "ops/rmsnorm/wasm.h"

enum { X = AMBI_RMSNORM_X, W = AMBI_RMSNORM_W, RESIDUAL = AMBI_RMSNORM_RESIDUAL };
enum { Y = AMBI_RMSNORM_Y, SUM = AMBI_RMSNORM_SUM, RSTD = AMBI_RMSNORM_RSTD };
enum { DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y) };

/* w + offset, or 1 */
INLINE vr weight_half(int kind, const void *w, real offset, int64_t k, int half, int64_t left) {
  if (PLAIN_NORMS) return get_half(kind, w, k, half, left);
  return w ? get_half(kind, w, k, half, left) + offset : K(1);
}

/* r = 1 / sqrt(mean(s^2) + eps) */
static real rstd(const cpu_call *c, const cascade *squares) {
  return 1 / (real)sqrt((double)(cascade_total(squares) / (real)rows_of(c->p)->cols) + c->p->op.u.rmsnorm.eps);
}

/* ---- forward ---- */
/* s^2 to sum[0 .. 3] from column k on, `turn` vectors at a time; returns the first column not summed (fewer than `turn`
 * vectors remain). `result`: a row to prefetch, or NULL */
INLINE ptrdiff_t add_squares(int kind, int turn, source_view from, const next_row *next, const char *result, int64_t i,
                             ptrdiff_t k, int64_t n, vr *sum) {
  const int h = halves(kind);
  vr squares[TOGETHER];
  LANES_UNROLL
  for (; k + turn * VL <= n; k += turn * VL) UNROLL for (int j = 0; j < turn; j++) {
      const source_view at = source_from(kind, from, k);
      vr s = source_half(kind, at, j / h * h * VL, j % h, h * VL);
      if (j % h == 0) prefetch_source(kind, at, j * VL), prefetch_next(next, at, NULL, 0, i, k + j * VL);
      prefetch_result(result, k + j * VL);
      sum_add(&sum[j / TOGETHER % 4], squares, j, s * s);
    }
  return k;
}

/* Sum of s^2 over columns [i, i+n). y: the result row, touched to prefetch it (WebAssembly), or NULL */
PER_TILE real squares_tile(int kind, source_view from, const next_row *next, const char *y, int64_t i, int64_t n) {
  vr sum[4] = {{0}, {0}, {0}, {0}}, squares[TOGETHER];
  const int h = halves(kind);
  const char *const yi = result_from(y, i);
  ptrdiff_t k = 0;
  SUM_IN_TURNS(TURN, SPREAD, yi, turn, result, { k = add_squares(kind, turn, from, next, result, i, k, n, sum); });
  FOR_REST(k, n, h * VL, t) EACH_HALF(h) {
    vr s = source_half(kind, from, k, half, n - k);
    sum_add(&sum[half], squares, t, s * s);
  }
  return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* r of one row, whose result goes to `to` */
INLINE real rstd_of(const cpu_call *c, const source *from, const next_row *next, const strip *to, int kind) {
  const char *y = result_to_prefetch(c, to);
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS s_tiles[2][TILE];
  cascade squares;
  squares.count = 0;
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    cascade_add(&squares, squares_tile(kind, source_in(kind, from, i, n, s_tiles), next, y, i, n));
  }
  return rstd(c, &squares);
}

/* A row on its way through forward */
typedef struct {
  source from; /* s */
  next_row next;
  strip y, sum;
  row_cut cut; /* of y */
  real r;
} forward_line;

/* What y is made of and where it goes, from some column of a row on; sum: where s itself goes */
typedef struct {
  source_view s;
  const void *w;
  out_view y, sum;
  bool cast;
} forward_view;

INLINE forward_view forward_from(int kind, forward_view v, ptrdiff_t k) {
  return (forward_view){source_from(kind, v.s, k), view_from(kind, v.w, k), out_from(kind, v.y, k),
                        out_from(kind, v.sum, k), v.cast};
}

/* As LLaMA: s r rounded to the dtype of x */
INLINE vr rounded(const cpu_call *c, int kind, vr h) {
#if AMBI_REAL == 32
  if (kind == BF16S) return bf16_round(h);
#endif
  (void)kind;
  TILE_OF_REALS lanes[VBYTES / sizeof(real)];
  v_store(lanes, h);
  round_to(c->p->t[X].dtype, lanes, VL);
  return v_load(lanes);
}

/* y = s r (w + offset), and s itself, for columns [i, i+n) of one row */
INLINE void y_steps(const cpu_call *c, const forward_line *l, int kind, forward_view v, int64_t i, int64_t n) {
  real r = l->r, offset = (real)c->p->op.u.rmsnorm.offset;
  const next_row next = l->next; /* in registers: a store might change what l points to */
  FOR_TURNS(TURN, halves(kind) * VL, turn, k, n, {
    const forward_view at = forward_from(kind, v, turn);
    vr s[2], yk[2];
    prefetch_next(&next, at.s, NULL, 1, i, turn + k);
    EACH_HALF(halves(kind)) {
      s[half] = source_half(kind, at.s, k, half, left);
      vr h = s[half] * r;
      if (v.cast) h = rounded(c, kind, h);
      yk[half] = h * weight_half(kind, at.w, offset, k, half, left);
    }
    if (v.sum.p) put_halves(kind, at.sum, k, s, left);
    put_halves(kind, at.y, k, yk, left);
  });
}

PER_TILE void y_tile(const cpu_call *c, const forward_line *l, int kind, const void *w, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], out_tiles[2][TILE];
  forward_view v = {.s = source_in(kind, &l->from, i, n, s_tiles), .w = w, .cast = c->p->op.u.rmsnorm.cast != 0};
  v.y = view_out(kind, &l->y, i, n, out_tiles[0]), v.sum = sum_out(kind, &l->sum, i, n, out_tiles[1]);
  bool usual = is_usual(v.s, w) && !v.cast && !v.sum.p; /* a loop of its own, see norm.h */
  if (usual && v.y.past)
    y_steps(c, l, kind, (forward_view){.s = usual_source(v.s), .w = w, .y = {v.y.p, true}}, i, n);
  else if (usual)
    y_steps(c, l, kind, (forward_view){.s = usual_source(v.s), .w = w, .y = {v.y.p, false}}, i, n);
  else
    y_steps(c, l, kind, v, i, n);
  view_put(kind, &l->sum, i, n, v.sum);
  view_put(kind, &l->y, i, n, v.y);
}

/* The tile of one row at column i, n columns, in pieces (row_cut, norm.h); w from column i on */
INLINE void y_pieces(const cpu_call *c, const forward_line *l, int kind, const void *w, int64_t i, int64_t n) {
  int64_t end = cut_end(&l->cut, i, n, rows_of(c->p)->cols);
  for (int64_t k = cut_begin(&l->cut, i), stop; k < end; k = stop) {
    stop = piece_end(&l->cut, k, end);
    y_tile(c, l, kind, view_from(kind, w, k - i), k, stop - k);
  }
}

/* r of every row of a group, then y, a tile of all of them at a time */
INLINE void forward_rows(const cpu_call *c, const row_group *rows, int kind) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE + SPARE];
  strip w = vector_of(c, W);
  forward_line line[GROUP];
  int count = rows->count;
  for (int g = 0; g < count; g++) {
    int64_t row = rows->first + g;
    source next = source_of(c, row + rows->to_next, X, RESIDUAL, SUM);
    line[g].from = source_of(c, row, X, RESIDUAL, SUM);
    line[g].next = next_row_of(c, rows, &next, &(strip){0});
    line[g].y = row_of(c, Y, row);
    if (!PLAIN_NORMS) line[g].sum = row_of(c, SUM, row);
    line[g].cut = cut_of(&line[g].y, cols);
    line[g].r = rstd_of(c, &line[g].from, &line[g].next, &line[g].y, kind);
    row_put(c, RSTD, row, line[g].r);
  }
  const int64_t most = columns_at_once(&w, cols);
  for (int64_t i = 0; i < cols; i += most) {
    int64_t n = min64(most, cols - i);
    const void *wi = weight_in(kind, &w, i, with_spare(i, n, cols), w_tile);
    for (int g = 0; g < count; g++) y_pieces(c, &line[g], kind, wi, i, n);
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
  norm_rows(context, task, 0, norm_kind(context, AMBI_BIT(RSTD)), forward_group);
}

static void forward(const cpu_call *c) {
  if (rows_of(c->p)->cols > 0) pool_run(c->threads, norm_tasks(c->p), forward_task, (void *)c);
}

/* ---- backward ---- */
/* A row on its way through backward */
typedef struct {
  grad_row row;
  cascade squares, products; /* sums of s^2 and g s */
  real r, pull;              /* pull = r^3 mean(g s) */
} backward_line;

/* What is summed over: columns from i on */
typedef struct {
  source_view s;
  const void *dy, *w;
  real offset;
  int64_t i;
} sums_view;

/* As add_squares: s^2 to ss[0 .. 1], g s to gs[0 .. 1] */
INLINE ptrdiff_t add_sums(int kind, int turn, sums_view v, const next_row *next, const char *result, ptrdiff_t k,
                          int64_t n, vr *ss, vr *gs) {
  const int h = halves(kind);
  vr squares[TOGETHER], products[TOGETHER];
  LANES_UNROLL
  for (; k + turn * VL <= n; k += turn * VL) UNROLL for (int j = 0; j < turn; j++) {
      const ptrdiff_t begin = views_begin(k), at = k - begin + j / h * h * VL;
      const source_view s_at = source_from(kind, v.s, begin);
      const void *const dy_at = view_from(kind, v.dy, begin), *const w_at = view_from(kind, v.w, begin);
      vr s = source_half(kind, s_at, at, j % h, h * VL), dy = get_half(kind, dy_at, at, j % h, h * VL);
      if (j % h == 0) prefetch_source(kind, s_at, at), prefetch_view(kind, dy_at, at);
      if (j % h == 0) prefetch_next(next, s_at, dy_at, 0, v.i, begin + at);
      prefetch_result(result, begin + at);
      sum_add(&ss[j / TOGETHER % 2], squares, j, s * s);
      vr g = dy * weight_half(kind, w_at, v.offset, at, j % h, h * VL);
      sum_add(&gs[j / TOGETHER % 2], products, j, s * g);
    }
  return k;
}

/* Adds the sums of s^2 and g s over a tile. dx: the result row, touched to prefetch it (WebAssembly), or NULL */
PER_TILE void sums_tile(int kind, backward_line *l, const void *w, real offset, const char *dx, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE];
  const next_row *next = &l->row.next;
  const source_view from = source_in(kind, &l->row.from, i, n, s_tiles);
  const sums_view v = {from, view_in(kind, &l->row.dy, i, n, dy_tile), w, offset, i};
  vr ss[2] = {{0}, {0}}, gs[2] = {{0}, {0}}, squares[TOGETHER], products[TOGETHER];
  const int h = halves(kind);
  const char *const dxi = result_from(dx, i);
  ptrdiff_t k = 0;
  SUM_IN_TURNS(BACKWARD_TURN, BACKWARD_SPREAD, dxi, turn, result,
               { k = add_sums(kind, turn, v, next, result, k, n, ss, gs); });
  FOR_REST(k, n, h * VL, t) EACH_HALF(h) {
    vr s = source_half(kind, v.s, k, half, n - k), dy = get_half(kind, v.dy, k, half, n - k);
    sum_add(&ss[half], squares, t, s * s);
    vr g = dy * weight_half(kind, w, offset, k, half, n - k);
    sum_add(&gs[half], products, t, s * g);
  }
  cascade_add(&l->squares, v_sum(ss[0] + ss[1]));
  cascade_add(&l->products, v_sum(gs[0] + gs[1]));
}

/* What ds and dw are made of and where they go, from some column of a row on; dw NULL: not wanted */
typedef struct {
  source_view s;
  const void *dy, *w;
  sink_view out;
  real *dw;
} backward_view;

INLINE backward_view backward_from(int kind, backward_view v, ptrdiff_t k) {
  const sink_view out = {out_from(kind, v.out.dx, k), out_from(kind, v.out.dresidual, k),
                         view_from(kind, v.out.dsum, k)};
  return (backward_view){source_from(kind, v.s, k), view_from(kind, v.dy, k), view_from(kind, v.w, k), out,
                         v.dw ? v.dw + k : NULL};
}

/* ds = r g - s r^3 mean(g s) + dsum and dw += dy s r, for columns [i, i+n) of one row */
INLINE void ds_steps(const backward_line *l, int kind, int most, backward_view v, real offset, int64_t i, int64_t n) {
  const next_row next = l->row.next;
  (void)most; /* of engines that do not unroll */
  const vr r = v_splat(l->r), minus_pull = v_splat(-l->pull);
  FOR_TURNS(most, halves(kind) * VL, turn, k, n, {
    const backward_view at = backward_from(kind, v, turn);
    vr ds[2], dy[2], sr[2];
    prefetch_next(&next, at.s, at.dy, 1, i, turn + k);
    EACH_HALF(halves(kind)) {
      vr s = source_half(kind, at.s, k, half, left);
      dy[half] = get_half(kind, at.dy, k, half, left);
      sr[half] = s * r;
      vr g = dy[half] * weight_half(kind, at.w, offset, k, half, left);
      ds[half] = v_mul_add(s, minus_pull, g * r);
    }
    if (v.dw) add_products(kind, at.dw, k, dy, sr, left);
    sink_set(kind, at.out, k, ds, left);
  });
}

/* dw += dy s r */
INLINE void dw_steps(const backward_line *l, int kind, int most, backward_view v, int64_t n) {
  const vr r = v_splat(l->r);
  (void)most;
  FOR_TURNS(most, halves(kind) * VL, turn, k, n, {
    const backward_view at = backward_from(kind, v, turn);
    vr dy[2], sr[2];
    EACH_HALF(halves(kind)) {
      dy[half] = get_half(kind, at.dy, k, half, left);
      sr[half] = source_half(kind, at.s, k, half, left) * r;
    }
    add_products(kind, at.dw, k, dy, sr, left);
  });
}

/* As ds_steps, but see sums_apart. dw comes first: dx may lie over dy. */
INLINE void ds_apart(const backward_line *l, int kind, int most, backward_view v, real offset, int64_t i, int64_t n) {
  if (v.dw) dw_steps(l, kind, most, v, n);
  v.dw = NULL;
  ds_steps(l, kind, most, v, offset, i, n);
}

/* Kernel packs: a turn of dw, a turn of ds, and so on. What is left takes short turns, as code must be small. */
INLINE void ds_in_turns(const backward_line *l, int kind, backward_view v, real offset, int64_t i, int64_t n) {
  ptrdiff_t k = 0;
  for (; k + BACKWARD_TURN * VL <= n; k += BACKWARD_TURN * VL)
    ds_apart(l, kind, BACKWARD_TURN, backward_from(kind, v, k), offset, i + k, BACKWARD_TURN * VL);
  ds_apart(l, kind, BACKWARD_TURN / 4, backward_from(kind, v, k), offset, i + k, n - k);
}

PER_TILE void ds_tile(const backward_line *l, int kind, const void *w, real offset, real *dw, int64_t i, int64_t n) {
  TILE_OF_REALS s_tiles[2][TILE], dy_tile[TILE], ds_tiles[3][TILE];
  backward_view v = {.s = source_in(kind, &l->row.from, i, n, s_tiles), .w = w, .dw = dw};
  v.dy = view_in(kind, &l->row.dy, i, n, dy_tile);
  v.out = sink_out(kind, &l->row.to, i, n, ds_tiles);
  const backward_view plain = {usual_source(v.s), v.dy, w, usual_sink(v.out, false), dw};
  bool usual = is_usual(v.s, w) && sink_usual(v.out) && dw, apart = sums_apart(kind, v.out);
  if (PLAIN_NORMS)
    ds_in_turns(l, kind, v, offset, i, n);
  else if (usual && v.out.dx.past)
    ds_steps(l, kind, BACKWARD_TURN, (backward_view){usual_source(v.s), v.dy, w, usual_sink(v.out, true), dw}, offset,
             i, n);
  else if (usual && apart)
    ds_apart(l, kind, BACKWARD_TURN, plain, offset, i, n);
  else if (usual)
    ds_steps(l, kind, BACKWARD_TURN, plain, offset, i, n);
  else if (apart)
    ds_apart(l, kind, BACKWARD_TURN, v, offset, i, n);
  else
    ds_steps(l, kind, BACKWARD_TURN, v, offset, i, n);
  sink_put(kind, &l->row.to, i, n, v.out);
}

/* The tile of one row at column i, n columns, in pieces (row_cut, norm.h); w and dw from column i on */
INLINE void ds_pieces(const backward_line *l, int kind, const void *w, real offset, real *dw, int64_t i, int64_t n) {
  const row_cut *cut = &l->row.cut;
  int64_t end = cut_end(cut, i, n, l->row.cols);
  for (int64_t k = cut_begin(cut, i), stop; k < end; k = stop) {
    stop = piece_end(cut, k, end);
    ds_tile(l, kind, view_from(kind, w, k - i), offset, dw ? dw + (k - i) : NULL, k, stop - k);
  }
}

/* Sums of every row of a group, what they give, then ds and dw, a tile of all of them at a time */
INLINE void backward_rows(const cpu_call *c, const row_group *rows, int kind, real *dw) {
  int64_t cols = rows_of(c->p)->cols;
  TILE_OF_REALS w_tile[TILE + SPARE];
  strip w = vector_of(c, W);
  real offset = (real)c->p->op.u.rmsnorm.offset;
  backward_line line[GROUP];
  for (int g = 0; g < rows->count; g++) {
    line[g].row = grad_row_of(c, rows, rows->first + g, X, RESIDUAL, SUM, Y);
    line[g].squares.count = line[g].products.count = 0;
  }
  for (int g = rows->count - 1; g > 0; g--) cut_before(&line[g - 1].row.cut, &line[g].row.cut);
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = weight_in(kind, &w, i, n, w_tile);
    for (int g = 0; g < rows->count; g++)
      sums_tile(kind, &line[g], wi, offset, result_to_prefetch(c, &line[g].row.to.dx), i, n);
  }
  for (int g = 0; g < rows->count; g++) {
    backward_line *l = &line[g];
    l->r = reads_slot(c->p, RSTD) ? row_get(c, RSTD, rows->first + g) : rstd(c, &l->squares);
    l->pull = l->r * (l->r * (l->r * (cascade_total(&l->products) / (real)cols))); /* r^3 might overflow */
  }
  for (int64_t i = 0; i < cols; i += TILE) {
    int64_t n = min64(TILE, cols - i);
    const void *wi = weight_in(kind, &w, i, with_spare(i, n, cols), w_tile);
    for (int g = 0; g < rows->count; g++) ds_pieces(&line[g], kind, wi, offset, dw ? dw + i : NULL, i, n);
  }
}

static void backward_group(const cpu_call *c, const row_group *g, column_sums *dw) {
  if (HAS_BF16S && g->kind == BF16S)
    backward_rows(c, g, BF16S, dw->block);
  else
    backward_rows(c, g, REALS, dw->block);
}

static int64_t summed(const problem *p) { return writes_slot(p, DW) ? whole_lines(rows_of(p)->cols) : 0; }

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
