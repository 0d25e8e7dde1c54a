/* block.h -- a block: some heads of one batch that share B and C; its tiles, and how they are loaded and stored.
 *
 * Time is cut into chunks of STEPS steps, and a chunk into runs where the state is forgotten. A run is a matrix whose
 * rows are its steps, (steps, P) or (steps, N), or flipped, (P, steps) or (N, steps). A state is held as (N, P).     */
#ifndef AMBI_SSD_BLOCK_H
#define AMBI_SSD_BLOCK_H
#include "backends/cpu/math.h"
#include "backends/cpu/product.h"
#include "backends/cpu/sums.h"
#include "ops/ssd/op.h"

enum { X = AMBI_SSD_X, DELTA = AMBI_SSD_DELTA, A = AMBI_SSD_A, B = AMBI_SSD_B, C = AMBI_SSD_C, D = AMBI_SSD_D };
enum { DELTA_BIAS = AMBI_SSD_DELTA_BIAS, H0 = AMBI_SSD_H0, SEQ_IDX = AMBI_SSD_SEQ_IDX };
enum { Y = AMBI_SSD_Y, H_LAST = AMBI_SSD_H_LAST };
#define GRAD AMBI_GRAD

enum { STEPS = 64, ROOM = STEPS + 16 }; /* steps of a chunk, and room for them in whole tiles of MR and of vectors */
enum { HEADS = 4 };                     /* most heads in a block: C.B is computed once for all of them            */

/* ---- how the heads are cut into blocks: by the shape alone ---- */
typedef struct {
  int64_t width, per_group, per_batch, count; /* heads in a block; blocks in a group, .. */
} block_plan;

static block_plan plan_blocks(const ssd_recipe *r) {
  enum { ENOUGH = 8 }; /* blocks to share between threads */
  int64_t width = HEADS;
  while (width > 1 && r->batches * r->groups * ceil_div(r->heads_per_group, width) < ENOUGH) width /= 2;
  const int64_t per_group = ceil_div(r->heads_per_group, width);
  return (block_plan){width, per_group, r->groups * per_group, r->batches * r->groups * per_group};
}

typedef struct {
  const cpu_call *c;
  const ssd_recipe *r;
  int64_t batch, group, head, heads; /* its first head, and how many */
  real *memory;                      /* its part of the workspace    */
} block;

static int64_t block_reals(const problem *p); /* of workspace */

/* Blocks are numbered in the order of their heads, batch after batch. */
static block block_at(const cpu_call *c, int64_t index) {
  const ssd_recipe *r = ssd(c->p);
  const block_plan plan = plan_blocks(r);
  const int64_t per_group = max64(plan.per_group, 1), groups = max64(r->groups, 1); /* as there is a block */
  const int64_t first = index % per_group * plan.width, group = index / per_group;
  return (block){.c = c,
                 .r = r,
                 .batch = group / groups,
                 .group = group % groups,
                 .head = group % groups * r->heads_per_group + first,
                 .heads = min64(plan.width, r->heads_per_group - first),
                 .memory = (real *)(void *)c->workspace + index * block_reals(c->p)};
}

/* ---- memory: pieces of the workspace ---- */
typedef struct {
  real *base; /* NULL: only to be measured */
  int64_t used;
} memory;

static real *take(memory *m, int64_t n) {
  real *piece = m->base ? m->base + m->used : NULL;
  m->used += round_up(n, 64 / (int64_t)sizeof(real));
  return piece;
}

/* Rows or columns, with room for whole tiles; one vector more keeps rows from falling on the same cache lines. */
static int64_t depth_of(int64_t n) { return round_up(n + MR - 1, VL); }
static matrix take_matrix(memory *m, int64_t rows, int64_t columns) {
  const int64_t ld = depth_of(columns) + VL;
  return (matrix){take(m, depth_of(rows) * ld), ld};
}

/* ---- lines of a tensor ---- */
/* Zero for a slot that takes no part */
static void load_line(const strip *s, int64_t n, real *out) {
  if (s->at)
    read_reals(s->dtype, s->at, s->stride, n, out);
  else
    memset(out, 0, (size_t)n * sizeof(real));
}

static void store_line(const strip *s, int64_t n, const real *v) {
  for (int64_t i = 0; i < n; i += TILE) strip_put(s, i, min64(TILE, n - i), v + i);
}

/* A span of steps is [first, first + count). */
typedef struct {
  int64_t first, count;
} span;

/* Step t of a head (x, y: P elements) or of a group (b, c: N elements) */
static strip row_of(const block *k, int slot, int64_t index, int64_t t) {
  const ssd_strides *s = &k->r->stride[slot];
  return strip_of(k->c, slot, k->batch * s->b + t * s->l + index * (s->h + s->g), s->p + s->n);
}

static void load_rows(const block *k, int slot, int64_t index, span t, int64_t n, matrix to) {
  for (int64_t i = 0; i < t.count; i++) {
    const strip s = row_of(k, slot, index, t.first + i);
    load_line(&s, n, to.at + i * to.ld);
  }
}

static void store_rows(const block *k, int slot, int64_t index, span t, int64_t n, matrix from) {
  if (!writes_slot(k->c->p, slot)) return;
  for (int64_t i = 0; i < t.count; i++) {
    const strip s = row_of(k, slot, index, t.first + i);
    store_line(&s, n, from.at + i * from.ld);
  }
}

/* Steps t of delta or its gradient, of one head */
static strip steps_of(const block *k, int slot, int64_t head, int64_t first) {
  const ssd_strides *s = &k->r->stride[slot];
  return strip_of(k->c, slot, k->batch * s->b + first * s->l + head * s->h, s->l);
}

/* One number a head; zero when absent */
static real number_of(const block *k, int slot, int64_t head) {
  const strip s = strip_of(k->c, slot, head * k->r->stride[slot].h, 1);
  return s.at ? strip_get(&s, 0) : 0;
}

static real a_of(const block *k, int64_t head) {
  const real a = number_of(k, A, head);
  return k->c->p->op.u.ssd.a_log ? (real)-exp((double)a) : a;
}

/* out[j][i] = in[i][j], some columns at a time: flip() pads with zeros from a row of so many */
static void flip_all(matrix in, int64_t m, int64_t n, matrix out) {
  enum { COLUMNS = 256 };
  for (int64_t j = 0; j < n; j += COLUMNS)
    flip((matrix){in.at + j, in.ld}, m, min64(COLUMNS, n - j), (matrix){out.at + j * out.ld, out.ld}, depth_of(m));
}

/* The state of a head, (N, P), by way of `rows`, (P, N), as it lies in memory */
static strip state_row(const block *k, int slot, int64_t head, int64_t p) {
  const ssd_strides *s = &k->r->stride[slot];
  return strip_of(k->c, slot, k->batch * s->b + head * s->h + p * s->p, s->n);
}

static void load_state(const block *k, int slot, int64_t head, matrix rows, matrix h) {
  for (int64_t p = 0; p < k->r->width; p++) {
    const strip s = state_row(k, slot, head, p);
    load_line(&s, k->r->states, rows.at + p * rows.ld);
  }
  flip_all(rows, k->r->width, k->r->states, h);
}

static void store_state(const block *k, int slot, int64_t head, matrix h, matrix rows) {
  if (!writes_slot(k->c->p, slot)) return;
  flip_all(h, k->r->states, k->r->width, rows);
  for (int64_t p = 0; p < k->r->width; p++) {
    const strip s = state_row(k, slot, head, p);
    store_line(&s, k->r->states, rows.at + p * rows.ld);
  }
}

static void clear_rows(matrix m, int64_t rows) { memset(m.at, 0, (size_t)(rows * m.ld) * sizeof(real)); }

/* ---- runs ---- */
typedef struct {
  int64_t count;
  span of[STEPS];
  bool fresh; /* run 0 starts without a state too, as all others do */
} run_list;

static int64_t chunks_of(const ssd_recipe *r) { return ceil_div(r->length, STEPS); }

static run_list find_runs(const block *k, int64_t chunk) {
  const ssd_strides *s = &k->r->stride[SEQ_IDX];
  const int64_t first = chunk * STEPS, end = min64(first + STEPS, k->r->length);
  run_list runs = {.count = 1, .fresh = first == 0 && !has_slot(k->c->p, H0)};
  runs.of[0].first = first;
  const bool packed = reads_slot(k->c->p, SEQ_IDX);
  const int32_t *id = packed ? (const int32_t *)(void *)k->c->at[SEQ_IDX] + k->batch * s->b : NULL;
  for (int64_t t = max64(first, 1); packed && t < end; t++) {
    if (id[t * s->l] == id[(t - 1) * s->l]) continue;
    if (t == first)
      runs.fresh = true;
    else
      runs.of[runs.count++].first = t;
  }
  for (int64_t i = 0; i < runs.count; i++)
    runs.of[i].count = (i + 1 < runs.count ? runs.of[i + 1].first : end) - runs.of[i].first;
  return runs;
}

/* ---- the decays of a run, for one head ---- */
typedef struct {
  TILE_OF_REALS d[ROOM], abar[ROOM]; /* zero after the last                                                       */
  real from[STEPS], to[STEPS];       /* abar_0 .. abar_t: from the state before; abar_{t+1} .. : to the last step's */
  real all, a;                       /* all abar; A                                                               */
} decay;

static void load_decay(const block *k, int64_t head, span t, decay *w) {
  const bool softplus = k->c->p->op.u.ssd.softplus;
  const strip delta = steps_of(k, DELTA, head, t.first);
  const real bias = number_of(k, DELTA_BIAS, head);
  memset(w->d, 0, sizeof w->d);
  memset(w->abar, 0, sizeof w->abar);
  load_line(&delta, t.count, w->d);
  w->a = a_of(k, head);
  FOR_LANES(i, t.count, {
    const vr x = v_load(w->d + i) + bias;
    const vr d = softplus ? m_softplus(x) : x;
    v_put(w->d + i, d, left);
    v_put(w->abar + i, m_exp(d * w->a), left);
  });
  real product = 1;
  for (int64_t i = 0; i < t.count; i++) w->from[i] = product *= w->abar[i];
  w->all = product;
  product = 1;
  for (int64_t i = t.count - 1; i >= 0; product *= w->abar[i--]) w->to[i] = product;
}

/* out[t] = scale[t] in[t] */
static void scale_rows(int64_t count, int64_t n, const real *scale, matrix in, matrix out) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t lane = 0; lane < n; lane += VL)
      v_store(out.at + i * out.ld + lane, v_load(in.at + i * in.ld + lane) * scale[i]);
}

/* ---- products of a run ---- */
/* A sum of any length, in pieces: the error of one grows with its length. */
static void product_long(int64_t m, int64_t n, int64_t k, matrix a, matrix b, matrix c) {
  enum { PIECE = 128 };
  product(m, n, min64(k, PIECE), a, b, c);
  for (int64_t i = PIECE; i < k; i += PIECE)
    product_into(m, n, min64(PIECE, k - i), (matrix){a.at + i * a.ld, a.ld}, (matrix){b.at + i * b.ld, b.ld}, 1, c);
}

/* c[i] = sum of a[k][i] b[k] over k <= i (or k >= i): elsewhere a is zero, but b may hold an infinity or NaN. */
static void product_exactly(int64_t count, int64_t n, bool lower, matrix a, matrix b, matrix c) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t lane = 0; lane < n; lane += VL) {
      vr sum = {0};
      for (int64_t k = lower ? 0 : i; k < (lower ? i + 1 : count); k++)
        sum += v_load(b.at + k * b.ld + lane) * a.at[k * a.ld + i];
      v_store(c.at + i * c.ld + lane, sum);
    }
}

static void product_lower(int64_t count, int64_t n, matrix a, matrix b, matrix c) {
  if (!all_finite(b, count, n)) {
    product_exactly(count, n, true, a, b, c);
    return;
  }
  for (int64_t i = 0; i < count; i += MR)
    product(1, n, min64(count, i + MR), (matrix){a.at + i, a.ld}, b, (matrix){c.at + i * c.ld, c.ld});
}

static void product_upper(int64_t count, int64_t n, matrix a, matrix b, matrix c) {
  if (!all_finite(b, count, n)) {
    product_exactly(count, n, false, a, b, c);
    return;
  }
  for (int64_t i = 0; i < count; i += MR)
    product(1, n, count - i, (matrix){a.at + i * a.ld + i, a.ld}, (matrix){b.at + i * b.ld, b.ld},
            (matrix){c.at + i * c.ld, c.ld});
}

static inline vr numbers_from(int64_t first) {
  vr v;
  for (int i = 0; i < LANES; i++) v[i] = (real)(first + i);
  return v;
}

#endif
