/* norm.h -- what the normalisations share: their rows in tasks, s = x + residual, and gradients on their way out. */
#ifndef AMBI_CPU_NORM_H
#define AMBI_CPU_NORM_H
#include "backends/cpu/sums.h"
#include "ops/rows.h"

static inline strip row_of(const cpu_call *c, int slot, int64_t row) {
  const rows_recipe *n = rows_of(c->p);
  return strip_of(c, slot, grid_offset(&n->rows, slot, row), n->col_stride[slot]);
}

/* Rows are taken GROUP at a time, so that a tile of the weight and of its gradient serves them all. Engines of
 * WebAssembly make calls dear: kernel packs take one row, whole, which is then read again from the nearest cache. */
enum { GROUP = DENSE_ALONE ? 1 : 4 };

/* One number of each row: the saved statistics. */
static inline real row_get(const cpu_call *c, int slot, int64_t row) {
  strip s = row_of(c, slot, row);
  return strip_get(&s, 0);
}
static inline void row_put(const cpu_call *c, int slot, int64_t row, real value) {
  strip s = row_of(c, slot, row);
  if (s.at) strip_put(&s, 0, 1, &value);
}

/* Kernel packs have norms without residuals: what those need is then not compiled. */
enum { PLAIN_NORMS = DENSE_ALONE };

/* The usual rows, without residuals, get loops of their own that ask about nothing: one stores past the cache. Where
 * the size of the code counts, they do not. WebAssembly has no prefetches. */
#ifdef __wasm__
enum { USUAL_APART = 0, PREFETCHES = 0 };
#else
enum { USUAL_APART = 1, PREFETCHES = 1 };
#endif

/* Where s itself goes, if it is wanted. */
INLINE out_view sum_out(int kind, const strip *sum, int64_t i, int64_t n, real *tile) {
  return PLAIN_NORMS ? (out_view){NULL, false} : view_out(kind, sum, i, n, tile);
}

/* ---- columns of a row whose result is stored past the cache: [head, whole) are whole lines ----
 * The tiles of such a row begin `shift` columns later, on lines, so that there is one beginning and one end of a row to
 * store apart, and no line is left half stored while other rows have their turn. Tiles of a weight have SPARE for it.
 */
typedef struct {
  int64_t head, whole, shift, each; /* each: columns in a line */
} row_cut;

enum { SPARE = GROUP * LINE / 2 };

INLINE row_cut cut_of(const strip *to, int64_t cols) {
  const int64_t bytes = dtype_bytes(to->dtype);
  if (!STREAMS || !to->at || !to->stream || (uintptr_t)to->at % (uintptr_t)bytes != 0) return (row_cut){0, cols, 0, 1};
  const int64_t each = LINE / bytes, head = min64((int64_t)(-(uintptr_t)to->at & (LINE - 1)) / bytes, cols);
  row_cut cut = {head, head + (cols - head) / each * each, head, each};
  if (cut.head > 0) __builtin_prefetch(to->at, 1); /* later stores would wait for these lines */
  if (cut.whole < cols) __builtin_prefetch(to->at + cut.whole * bytes, 1);
  return cut;
}

/* Sums over rows take them in their order: no tile of a row may end after that of the row before it. */
INLINE void cut_before(row_cut *c, const row_cut *next) {
  if (STREAMS) c->shift = next->shift + ((c->head - next->shift) & (c->each - 1));
}

/* Of the tile of n columns at i: where it begins and ends, and where the piece ends that begins at column k of it. */
INLINE int64_t cut_begin(const row_cut *c, int64_t i) { return STREAMS && i > 0 ? i + c->shift : i; }
INLINE int64_t cut_end(const row_cut *c, int64_t i, int64_t n, int64_t cols) {
  return STREAMS ? min64(i + n + c->shift, cols) : i + n;
}
INLINE int64_t piece_end(const row_cut *c, int64_t k, int64_t end) {
  if (!STREAMS) return end;
  return min64(k < c->head ? c->head : k < c->whole ? c->whole : end, min64(k + TILE, end));
}
INLINE int64_t with_spare(int64_t i, int64_t n, int64_t cols) { return STREAMS ? min64(n + SPARE, cols - i) : n; }

/* ---- in: s of one row: x + residual, or the saved sum ---- */
typedef struct {
  strip x, residual;
} source;

static inline source source_of(const cpu_call *c, int64_t row, int x, int residual, int sum) {
  source s = {.x = row_of(c, !PLAIN_NORMS && reads_slot(c->p, sum) ? sum : x, row)};
  if (!PLAIN_NORMS && reads_slot(c->p, residual)) s.residual = row_of(c, residual, row);
  return s;
}

/* Columns [i, i+n) of s */
typedef struct {
  const void *x, *residual;
} source_view;

INLINE source_view source_in(int kind, const source *s, int64_t i, int64_t n, real tiles[2][TILE]) {
  const void *residual = PLAIN_NORMS ? NULL : view_in(kind, &s->residual, i, n, tiles[1]);
  return (source_view){view_in(kind, &s->x, i, n, tiles[0]), residual};
}

INLINE vr source_half(int kind, source_view s, int64_t k, int half, int64_t left) {
  vr x = get_half(kind, s.x, k, half, left);
  return s.residual ? x + get_half(kind, s.residual, k, half, left) : x;
}

INLINE source_view source_from(int kind, source_view s, int64_t k) {
  return (source_view){view_from(kind, s.x, k), view_from(kind, s.residual, k)};
}

INLINE void prefetch_source(int kind, source_view s, int64_t k) {
  prefetch_view(kind, s.x, k);
  if (s.residual) prefetch_view(kind, s.residual, k);
}

/* A slot that is (C) */
static inline strip vector_of(const cpu_call *c, int slot) {
  return strip_of(c, slot, 0, rows_of(c->p)->col_stride[slot]);
}

/* v, or `absent` */
INLINE vr vector_half(int kind, const void *v, real absent, int64_t k, int half, int64_t left) {
  return v ? get_half(kind, v, k, half, left) : v_splat(absent);
}

/* ---- prefetching the next row ----
 * Memory should not idle while rows that it has delivered are worked on. So each of the two passes over a row also
 * prefetches half of the row a group further on, if that much is likely to be in the cache still when it is read. */
typedef struct {
  int64_t first; /* row */
  int count, kind;
  int64_t to_next; /* from a row to the one to prefetch; 0: none */
} row_group;

enum { MOST_PREFETCHED = 1 << 17 }; /* bytes of a slot in a group */

/* Of a row to prefetch: where its slots begin */
typedef struct {
  const char *x, *residual, *dy;
  int64_t bytes, cols; /* of an element, 0: do not prefetch; of a row */
} next_row;

static inline bool lies_as_read(const strip *s, int kind) { return !s->at || kind == BF16S || is_direct(s); }

static inline next_row next_row_of(const cpu_call *c, const row_group *g, const source *from, const strip *dy) {
  if (!PREFETCHES) return (next_row){0};
  bool wanted = g->to_next && lies_as_read(&from->x, g->kind) && lies_as_read(&from->residual, g->kind) &&
                lies_as_read(dy, g->kind);
  return (next_row){from->x.at, from->residual.at, dy->at, wanted ? dtype_bytes(from->x.dtype) : 0,
                    rows_of(c->p)->cols};
}

/* Bytes from one element to the next of a row to prefetch; 0: it is not dense, and its beginning alone is. */
static inline int64_t prefetch_bytes(const strip *s) { return s->stride == 1 ? dtype_bytes(s->dtype) : 0; }

INLINE void prefetch_l2(const char *row, int64_t at) { __builtin_prefetch(row + at, 0, 2); }

/* At column i + k of pass 0 or 1. Each line is prefetched at least twice: the CPU may drop prefetches under load. */
INLINE void prefetch_next(const next_row *next, source_view now, const void *dy, int pass, int64_t i, int64_t k) {
  if (!PREFETCHES || k % (LINE / (int64_t)sizeof(real)) != 0) return;
  int64_t at = ((pass * next->cols + i) / 2 + (int64_t)((uint64_t)k / 2)) * next->bytes;
  if (now.x) prefetch_l2(next->x, at);
  if (now.residual) prefetch_l2(next->residual, at);
  if (dy) prefetch_l2(next->dy, at);
}

/* ---- out: ds of one row, which is dx and dresidual, each with dsum added ---- */
typedef struct {
  strip dx, dresidual, dsum;
} sink;

static inline sink sink_of(const cpu_call *c, int64_t row, int x, int residual, int sum) {
  return (sink){row_of(c, AMBI_GRAD(x), row), row_of(c, AMBI_GRAD(residual), row), row_of(c, AMBI_GRAD(sum), row)};
}

/* Columns [i, i+n) of them */
typedef struct {
  out_view dx, dresidual;
  const void *dsum;
} sink_view;

INLINE sink_view sink_out(int kind, const sink *k, int64_t i, int64_t n, real tiles[3][TILE]) {
  out_view dx = view_out(kind, &k->dx, i, n, tiles[0]);
  if (PLAIN_NORMS) return (sink_view){dx, {NULL, false}, NULL};
  return (sink_view){dx, view_out(kind, &k->dresidual, i, n, tiles[1]), view_in(kind, &k->dsum, i, n, tiles[2])};
}

INLINE void sink_set(int kind, sink_view v, int64_t k, vr *ds, int64_t left) {
  if (v.dsum) EACH_HALF(halves(kind)) ds[half] += get_half(kind, v.dsum, k, half, left);
  if (PLAIN_NORMS || v.dx.p) put_halves(kind, v.dx, k, ds, left);
  if (v.dresidual.p) put_halves(kind, v.dresidual, k, ds, left);
}

/* Whether gradients of weights are added to in loops of their own, before ds is stored: with stores that alternate
 * between places backward took up to 1.4 times as long in a cache of a Xeon. bf16s stay in one loop, as they would be
 * converted twice, and so do rows stored past the cache, which were slower apart. */
INLINE bool sums_apart(int kind, sink_view v) {
  return kind == REALS && (v.dx.p || v.dresidual.p) && !v.dx.past && !v.dresidual.past;
}

INLINE bool is_usual(source_view s, const void *w) { return USUAL_APART && s.x && !s.residual && w; }
INLINE source_view usual_source(source_view s) { return (source_view){s.x, NULL}; }
INLINE bool sink_usual(sink_view v) { return v.dx.p && !v.dresidual.p && !v.dsum; }
INLINE sink_view usual_sink(sink_view v, bool past) { return (sink_view){.dx = {v.dx.p, past}}; }

INLINE void sink_put(int kind, const sink *k, int64_t i, int64_t n, sink_view v) {
  view_put(kind, &k->dx, i, n, v.dx);
  view_put(kind, &k->dresidual, i, n, v.dresidual);
}

/* ---- a row of backward: what is read and written ---- */
typedef struct {
  source from;
  strip dy;
  sink to;
  row_cut cut; /* of dx, or of dresidual if that alone is wanted */
  int64_t cols;
  next_row next;
} grad_row;

static inline grad_row grad_row_of(const cpu_call *c, const row_group *g, int64_t row, int x, int residual, int sum,
                                   int y) {
  source next = source_of(c, row + g->to_next, x, residual, sum);
  strip next_dy = row_of(c, AMBI_GRAD(y), row + g->to_next);
  sink to = sink_of(c, row, x, residual, sum);
  int64_t cols = rows_of(c->p)->cols;
  return (grad_row){source_of(c, row, x, residual, sum),
                    row_of(c, AMBI_GRAD(y), row),
                    to,
                    cut_of(to.dx.at ? &to.dx : &to.dresidual, cols),
                    cols,
                    next_row_of(c, g, &next, &next_dy)};
}

/* ---- tasks: some rows each, with sums over rows of `summed` columns (0: none) in the workspace ---- */
typedef void group_fn(const cpu_call *c, const row_group *g, column_sums *sums);

/* The kind of element of the rows and of the slots that are (C): `saved` are statistics, which have their own dtype. */
static inline int norm_kind(const cpu_call *c, uint32_t saved) {
  const rows_recipe *n = rows_of(c->p);
  bool dense = true;
  for (uint32_t m = (c->p->reads | c->p->writes) & ~saved; m; m &= m - 1)
    dense = dense && n->col_stride[__builtin_ctz(m)] == 1;
  return dense && all_bf16(c, ~saved) ? BF16S : REALS;
}

static inline int64_t norm_tasks(const problem *p) { return row_tasks(rows_of(p)->rows.count, rows_of(p)->cols); }
static inline uint64_t norm_workspace(const problem *p, int64_t summed) {
  return (uint64_t)norm_tasks(p) * column_sums_bytes(summed);
}

static inline void norm_rows(const cpu_call *c, int64_t task, int64_t summed, int kind, group_fn *fn) {
  const rows_recipe *n = rows_of(c->p);
  int64_t each = rows_per_task(n->rows.count, n->cols), end = min64((task + 1) * each, n->rows.count);
  column_sums sums = {0};
  if (summed) {
    sums = column_sums_at(c->workspace + task * (int64_t)column_sums_bytes(summed), summed);
    column_sums_clear(&sums);
  }
  bool fits = GROUP * n->cols * (int64_t)sizeof(real) <= MOST_PREFETCHED;
  for (int64_t row = task * each; row < end; row += GROUP) {
    row_group g = {row, (int)min64(GROUP, end - row), kind, fits && row + 2 * GROUP <= end ? GROUP : 0};
    fn(c, &g, &sums);
    if (summed) column_sums_rows_done(&sums, g.count);
  }
  if (summed) column_sums_flush(&sums);
  stream_fence();
}

/* Tile number `tile` of a gradient that is (C): the tasks' sums of columns from `first` on. */
static inline void norm_put_sums(const cpu_call *c, int slot, int64_t summed, int64_t first, int64_t tile) {
  const rows_recipe *n = rows_of(c->p);
  int64_t i = tile * TILE, count = min64(TILE, n->cols - i);
  TILE_OF_REALS total[TILE];
  strip d = strip_of(c, slot, 0, n->col_stride[slot]);
  if (!d.at) return;
  column_sums_total(c->workspace, norm_tasks(c->p), summed, first + i, count, total);
  strip_put(&d, i, count, total);
  stream_fence();
}

#endif
