/* pointwise.h -- runs a function of dense reals over the index space of a pointwise op, on all threads.
 *
 * An output that repeats an axis (a gradient with stride 0) receives the sum over that axis.                  */
#ifndef AMBI_CPU_POINTWISE_H
#define AMBI_CPU_POINTWISE_H
#include "backends/cpu/sums.h"
#include "ops/elementwise.h"

enum { MOST_IN = 4, MOST_OUT = 4, MOST_PARAMS = 10, PIECE = 16 * TILE };

/* out[j][k] = f(in[0][k], in[1][k], ..; params) for k < n, stored past the cache where `stream` is set. Every pointer
 * is valid: what is computed for an output that is not wanted is dropped, and an input that is not there (only such
 * outputs need it) holds some other input's elements. */
typedef void pointwise_fn(const void *const *in, void *const *out, int64_t n, const real *params, bool stream);

typedef struct {
  const cpu_call *c;
  pointwise_fn *fn;                          /* on dense reals                                            */
  pointwise_fn *bf16;                        /* the same on dense bf16s, without tiles; may be NULL        */
  bool moves;                                /* fn is its only argument: a line is converted, or copied     */
  int in[MOST_IN], out[MOST_OUT], ins, outs; /* slots */
  real params[MOST_PARAMS];
  int only;    /* the one output to write; -1: all of them */
  bool summed; /* that output is a sum                      */
} pointwise;

/* Strips of every slot: `offset` says where each starts. */
typedef struct {
  strip in[MOST_IN], out[MOST_OUT];
} lines;

static inline bool wanted(const pointwise *w, const lines *l, int j) {
  return l->out[j].at && (w->only < 0 || w->only == j);
}

/* One tile of every input through fn; `out` is set to where each output's reals are. */
static inline void pointwise_tile(const pointwise *w, const lines *l, int64_t i, int64_t n,
                                  real tiles[MOST_IN + MOST_OUT][TILE], void *out[MOST_OUT]) {
  const void *in[MOST_IN], *any = NULL;
  for (int j = w->ins - 1; j >= 0; j--) any = in[j] = l->in[j].at ? strip_in(&l->in[j], i, n, tiles[j]) : any;
  for (int j = 0; j < w->outs; j++) {
    real *tile = tiles[MOST_IN + j];
    out[j] = wanted(w, l, j) && !w->summed ? strip_out(&l->out[j], i, tile) : tile;
  }
  w->fn(in, out, n, w->params, false);
}

static inline int64_t inner_of(const grid *g) { return g->ndim ? g->shape[g->ndim - 1] : 1; }

/* ---- every output has its own elements: rows of the last axis, in pieces ---- */
static inline strip line_at(const cpu_call *c, int slot, int64_t row) {
  const grid *g = &elementwise(c->p)->all;
  int64_t start = grid_offset(g, slot, row * inner_of(g));
  return strip_of(c, slot, start, g->ndim ? g->stride[slot][g->ndim - 1] : 1);
}

static inline lines lines_at(const pointwise *w, int64_t row) {
  lines l = {0};
  for (int j = 0; j < w->ins; j++) l.in[j] = line_at(w->c, w->in[j], row);
  for (int j = 0; j < w->outs; j++) l.out[j] = line_at(w->c, w->out[j], row);
  return l;
}

static inline int64_t pieces_of(const grid *g) { return ceil_div(inner_of(g), PIECE); }

/* The loop for lines as they lie: all dense and of one type that there is one for; or NULL. What it computes must not
 * depend on addresses: another loop might round otherwise. */
static inline pointwise_fn *direct_fn(const pointwise *w, const lines *l) {
  ambi_dtype t = l->out[0].dtype;
  bool direct = (t == REAL_DTYPE || (t == AMBI_BF16 && w->bf16)) && w->only < 0;
  for (int j = 0; j < w->ins; j++) direct = direct && l->in[j].at && l->in[j].dtype == t && l->in[j].stride == 1;
  for (int j = 0; j < w->outs; j++) {
    const strip *s = &l->out[j];
    direct = direct && s->at && s->dtype == t && s->stride == 1 && !s->accumulate;
  }
  return !direct ? NULL : t == REAL_DTYPE ? w->fn : w->bf16;
}

/* Vectors are streamed to their own multiples alone; elsewhere tiles are, once they are computed. */
static inline bool streams_tiles(const pointwise *w, const lines *l, int64_t i) {
  bool astray = false;
  for (int j = 0; j < w->outs; j++) astray = astray || (uintptr_t)strip_at(&l->out[j], i) % VBYTES != 0;
  return w->c->stream && astray;
}

static inline void direct_piece(const pointwise *w, const lines *l, pointwise_fn *fn, int64_t first, int64_t end) {
  TILE_OF_REALS tiles[MOST_OUT][TILE];
  bool tiled = !DENSE_ALONE && streams_tiles(w, l, first);
  for (int64_t i = first, n; i < end; i += n) {
    const void *in[MOST_IN];
    void *out[MOST_OUT];
    n = tiled ? min64(TILE, end - i) : end - i;
    for (int j = 0; j < w->ins; j++) in[j] = strip_at(&l->in[j], i);
    for (int j = 0; j < w->outs; j++) out[j] = tiled ? (void *)tiles[j] : strip_at(&l->out[j], i);
    fn(in, out, n, w->params, w->c->stream && !tiled);
    for (int j = 0; j < w->outs && tiled; j++)
      stream_bytes(strip_at(&l->out[j], i), out[j], n * dtype_bytes(l->out[j].dtype));
  }
}

static void pointwise_piece(const pointwise *w, int64_t piece) {
  const grid *g = &elementwise(w->c->p)->all;
  int64_t inner = inner_of(g), pieces = pieces_of(g);
  lines l = lines_at(w, piece / pieces);
  int64_t first = piece % pieces * PIECE, end = min64(first + PIECE, inner);
  if (w->moves) {
    strip_copy(&l.out[0], first, &l.in[0], first, end - first);
    return;
  }
  pointwise_fn *direct = direct_fn(w, &l);
  if (direct) {
    direct_piece(w, &l, direct, first, end);
    return;
  }
  TILE_OF_REALS tiles[MOST_IN + MOST_OUT][TILE];
  for (int64_t i = first; i < end; i += TILE) {
    int64_t n = min64(TILE, end - i);
    void *out[MOST_OUT];
    pointwise_tile(w, &l, i, n, tiles, out);
    for (int j = 0; j < w->outs; j++)
      if (wanted(w, &l, j)) strip_put(&l.out[j], i, n, out[j]);
  }
}

static inline int64_t all_pieces(const grid *g) { return g->count / inner_of(g) * pieces_of(g); }

/* Short rows share a task; pieces do where they are many, as each task waits for its stores past the cache. */
static inline int64_t pieces_per_task(const grid *g) {
  int64_t least = max64(1, PIECE / inner_of(g));
  return least * max64(1, min64(4, all_pieces(g) / (256 * least)));
}

static inline int64_t pointwise_tasks(const grid *g) { return ceil_div(all_pieces(g), pieces_per_task(g)); }

static void pointwise_task(void *context, int64_t task) {
  const pointwise *w = context;
  const grid *g = &elementwise(w->c->p)->all;
  int64_t each = pieces_per_task(g), end = min64((task + 1) * each, all_pieces(g));
  for (int64_t piece = task * each; piece < end; piece++) pointwise_piece(w, piece);
  stream_fence();
}

/* ---- one output is a sum over some axes: pairwise, an element at a time ---- */
/* Offset of point `index` of the axes whose stride in `chooser` is (summed ? 0 : not 0). */
static inline int64_t part_offset(const grid *g, int chooser, bool summed, int slot, int64_t index) {
  int64_t offset = 0;
  for (int k = g->ndim - 1; k >= 0; k--) {
    if ((g->stride[chooser][k] == 0) != summed) continue;
    offset += index % g->shape[k] * g->stride[slot][k];
    index /= g->shape[k];
  }
  return offset;
}

static inline int64_t part_count(const grid *g, int chooser, bool summed) {
  int64_t count = 1;
  for (int k = 0; k < g->ndim; k++)
    if ((g->stride[chooser][k] == 0) == summed) count *= g->shape[k];
  return count;
}

static inline int last_summed_axis(const grid *g, int chooser) {
  int k = g->ndim - 1;
  while (g->stride[chooser][k] != 0) k--;
  return k;
}

/* Element number `task` of the summed output. */
static void summed_task(void *context, int64_t task) {
  const pointwise *w = context;
  const grid *g = &elementwise(w->c->p)->all;
  int to = w->out[w->only], axis = last_summed_axis(g, to);
  int64_t inner = g->shape[axis], lines_count = part_count(g, to, true) / inner;
  TILE_OF_REALS tiles[MOST_IN + MOST_OUT][TILE];
  cascade total = {.count = 0};
  lines l = {0};
  l.out[w->only] = strip_of(w->c, to, part_offset(g, to, false, to, task), 1);
  for (int64_t line = 0; line < lines_count; line++) {
    for (int j = 0; j < w->ins; j++) {
      int64_t start = part_offset(g, to, false, w->in[j], task) + part_offset(g, to, true, w->in[j], line * inner);
      l.in[j] = strip_of(w->c, w->in[j], start, g->stride[w->in[j]][axis]);
    }
    for (int64_t i = 0; i < inner; i += TILE) {
      int64_t n = min64(TILE, inner - i);
      void *out[MOST_OUT];
      pointwise_tile(w, &l, i, n, tiles, out);
      cascade_add(&total, sum_tile(out[w->only], n));
    }
  }
  real sum = cascade_total(&total);
  strip_put(&l.out[w->only], 0, 1, &sum);
}

static inline bool repeats(const pointwise *w, int j) {
  const grid *g = &elementwise(w->c->p)->all;
  bool any = false;
  for (int k = 0; k < g->ndim; k++) any = any || g->stride[w->out[j]][k] == 0;
  return any && writes_slot(w->c->p, w->out[j]);
}

/* fn of ops that only move values: where they are summed it is still called */
static inline void move_values(const void *const *in, void *const *out, int64_t n, const real *none, bool stream) {
  (void)none;
  const real *from = in[0];
  real *to = out[0];
  FOR_LANES(i, n, v_put_past(to + i, v_get(from + i, left), left, stream););
}

SHARED void pointwise_run(const cpu_call *c, pointwise w) {
  const grid *g = &elementwise(c->p)->all;
  w.c = c;
  w.params[0] = (real)elementwise(c->p)->a;
  w.params[1] = (real)elementwise(c->p)->b;
  w.only = -1;
  w.summed = false;
  if (g->count == 0) return;
  bool any_summed = false;
  for (int j = 0; j < w.outs; j++) { /* sums first and one by one: they never lie over an input, others may */
    if (!repeats(&w, j)) continue;
    any_summed = true;
    w.only = j, w.summed = true;
    pool_run(c->threads, part_count(g, w.out[j], false), summed_task, &w);
  }
  w.summed = false;
  for (int j = 0; j < w.outs; j++) {
    w.only = any_summed ? j : -1;
    if (any_summed && (repeats(&w, j) || !writes_slot(c->p, w.out[j]))) continue;
    pool_run(c->threads, pointwise_tasks(g), pointwise_task, &w);
    if (!any_summed) return; /* all outputs in one go */
  }
}

#endif
