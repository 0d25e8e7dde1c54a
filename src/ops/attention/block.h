/* block.h -- blocks of queries and of keys: which rows they are, what those see, and how they are loaded and stored.
 *
 * All heads that share a head of k and v are taken together: row (h, i) of their R = H/G L queries is number h L + i.
 * A block of rows is held as it lies, (rows, D), or flipped, (D, rows): then a lane is a row.                       */
#ifndef AMBI_ATTENTION_BLOCK_H
#define AMBI_ATTENTION_BLOCK_H
#include "backends/cpu/math.h"
#include "backends/cpu/product.h"
#include "backends/cpu/sums.h"
#include "ops/attention/op.h"

enum { Q = AMBI_ATTENTION_Q, K = AMBI_ATTENTION_K, V = AMBI_ATTENTION_V, LENGTHS = AMBI_ATTENTION_LENGTHS };
enum { O = AMBI_ATTENTION_O, LSE = AMBI_ATTENTION_LSE };
enum { DQ = AMBI_GRAD(Q), DK = AMBI_GRAD(K), DV = AMBI_GRAD(V), DO = AMBI_GRAD(O) };

enum { WIDTH = 384 * 8 / AMBI_REAL }; /* most rows in a block */

/* Rows that are lanes, and rows that are looped over: fewer where heads are wide, as blocks lie on the stack. */
static int64_t lanes_of(const attention_recipe *r) { return r->width <= ATTENTION_WIDTH / 2 ? WIDTH : WIDTH / 2; }
static int64_t steps_of(const attention_recipe *r) { return lanes_of(r) / MR * MR; }

static int64_t rows_in_all(const attention_recipe *r) { return r->heads_per_group * r->queries; }
static int64_t blocks_of(const attention_recipe *r, int64_t rows) { return ceil_div(rows, lanes_of(r)); }

/* A block: rows [first, first + n) of one batch and group of heads */
typedef struct {
  const cpu_call *c;
  const attention_recipe *r;
  int64_t batch, group, valid; /* keys */
  int64_t first, n;
} block;

static int64_t valid_keys(const cpu_call *c, int64_t batch) {
  const attention_recipe *r = attention(c->p);
  if (!reads_slot(c->p, LENGTHS)) return r->keys;
  return attention_clamp(integer_at(c, LENGTHS, batch * r->stride[LENGTHS].b), r->keys);
}

/* Block number `task`, of blocks of so many rows in each batch and group */
static block block_at(const cpu_call *c, int64_t task, int64_t rows) {
  const attention_recipe *r = attention(c->p);
  int64_t blocks = blocks_of(r, rows), place = task / blocks, first = task % blocks * lanes_of(r);
  block w = {.c = c, .r = r, .batch = place / r->groups, .group = place % r->groups, .first = first};
  w.n = min64(lanes_of(r), rows - first);
  w.valid = valid_keys(c, w.batch);
  return w;
}

static bool has_keys(int slot) { return slot % AMBI_MAX_PRIMALS == K || slot % AMBI_MAX_PRIMALS == V; }

static strip row_of(const block *w, int slot, int64_t row) {
  const attention_strides *s = &w->r->stride[slot];
  int64_t head = has_keys(slot) ? w->group : w->group * w->r->heads_per_group + row / w->r->queries;
  int64_t at = has_keys(slot) ? row : row % w->r->queries;
  return strip_of(w->c, slot, w->batch * s->b + head * s->h + at * s->l, s->d);
}

/* ---- memory: pieces of one array on the stack ---- */
/* What the largest task, that of dk and dv, takes: four flipped blocks, two totals, two blocks of rows, two tiles. */
#define DEPTH(width) (((width) + MR - 1 + LANES - 1) / LANES * LANES)
#define NEEDS(width, lanes) \
  ((8 * DEPTH(width) + 2 * (lanes)) * ((lanes) + LANES) + 2 * (lanes) * (DEPTH(width) + LANES))
enum { NEEDS_NARROW = NEEDS(ATTENTION_WIDTH / 2, WIDTH), NEEDS_WIDE = NEEDS(ATTENTION_WIDTH, WIDTH / 2) };
enum { ROOM = (NEEDS_NARROW > NEEDS_WIDE ? NEEDS_NARROW : NEEDS_WIDE) + 16 * 64 }; /* and 16 roundings of take() */
typedef struct {
  real *at;
} memory;

static real *take(memory *m, int64_t n) {
  real *piece = m->at;
  m->at += round_up(n, 64 / (int64_t)sizeof(real));
  return piece;
}

/* One vector more than needed keeps rows from falling on the same cache lines. */
static matrix take_rows(memory *m, const attention_recipe *r) {
  int64_t ld = DEPTH(r->width) + VL;
  return (matrix){take(m, lanes_of(r) * ld), ld};
}
static matrix take_flipped(memory *m, const attention_recipe *r) {
  int64_t ld = lanes_of(r) + VL;
  return (matrix){take(m, DEPTH(r->width) * ld), ld};
}
static matrix take_tile(memory *m, const attention_recipe *r) {
  int64_t ld = lanes_of(r) + VL;
  return (matrix){take(m, lanes_of(r) * ld), ld};
}
static total take_total(memory *m, const attention_recipe *r) {
  total t = {take_flipped(m, r), NULL};
  int64_t n = round_up(r->width, MR) * t.sum.ld;
  t.lost = take_flipped(m, r).at;
  memset(t.sum.at, 0, (size_t)n * sizeof(real));
  memset(t.lost, 0, (size_t)n * sizeof(real));
  return t;
}

/* ---- rows, in and out ---- */
/* Rows [first, first + n) of a slot, times factor */
static void load_rows(const block *w, int slot, int64_t first, int64_t n, double factor, matrix to) {
  const int64_t D = w->r->width;
  for (int64_t i = 0; i < n; i++) {
    strip s = row_of(w, slot, first + i);
    real *row = to.at + i * to.ld;
    const real *from = strip_in(&s, 0, D, row);
    FOR_LANES(k, D, { v_put(row + k, v_get(from + k, left) * (real)factor, left); });
    memset(row + D, 0, (size_t)(to.ld - D) * sizeof(real));
  }
}

static void load_flipped(const block *w, int slot, int64_t first, int64_t n, double factor, matrix rows, matrix to) {
  load_rows(w, slot, first, n, factor, rows);
  flip(rows, n, w->r->width, to, round_up(round_up(n, MR), VL));
}

/* The block's rows of a slot, which lie flipped in `from`; `rows` is room for them. */
static void store_flipped(const block *w, int slot, matrix from, matrix rows) {
  const int64_t D = w->r->width;
  flip(from, D, w->n, rows, round_up(D, VL));
  for (int64_t i = 0; i < w->n; i++) {
    strip s = row_of(w, slot, w->first + i);
    strip_put(&s, 0, D, rows.at + i * rows.ld);
  }
}

/* ---- what rows see ---- */
typedef struct {
  attention_keys of[WIDTH];
  int64_t lo, hi; /* of all of them together */
} sight;

static void look(const block *w, int64_t first, int64_t n, sight *s) {
  s->lo = w->valid, s->hi = 0;
  for (int64_t i = 0; i < n; i++) {
    s->of[i] = attention_seen(w->r, (first + i) % w->r->queries, w->valid);
    if (s->of[i].lo >= s->of[i].hi) continue;
    s->lo = min64(s->lo, s->of[i].lo);
    s->hi = max64(s->hi, s->of[i].hi);
  }
}

/* Which elements of a tile count: rows by keys or keys by rows. Positions within the tile are small, so reals do. */
typedef struct {
  bool whole;   /* all of them      */
  bool by_lane; /* a lane is a row  */
  real lo[WIDTH + 16], hi[WIDTH + 16], number[WIDTH + 16];
} mask;

static void mask_make(mask *m, const sight *s, int64_t rows, int64_t key, int64_t keys, bool by_lane) {
  m->whole = true;
  m->by_lane = by_lane;
  for (int64_t i = 0; i < round_up(rows, VL); i++) {
    attention_keys see = i < rows ? s->of[i] : (attention_keys){0, 0};
    m->lo[i] = (real)attention_clamp(see.lo - key, keys);
    m->hi[i] = (real)attention_clamp(see.hi - key, keys);
    if (i < rows && (see.lo > key || see.hi < key + keys)) m->whole = false;
  }
  for (int64_t i = 0; i < WIDTH + 16 && !by_lane && !m->whole; i++) m->number[i] = (real)i;
}

INLINE vi counts(const mask *m, int64_t step, int64_t lane) {
  vr at = m->by_lane ? v_splat((real)step) : v_load(m->number + lane);
  vr lo = m->by_lane ? v_load(m->lo + lane) : v_splat(m->lo[step]);
  vr hi = m->by_lane ? v_load(m->hi + lane) : v_splat(m->hi[step]);
  return (at >= lo) & (at < hi);
}

/* c = keep c + a b, where b is zero in what does not count. There an infinity or NaN in a must not count either. */
static void product_seen(int64_t m, int64_t n, int64_t k, matrix a, matrix b, const real *keep, const mask *seen,
                         const total *c) {
  if (seen->whole || all_finite(a, k, m)) {
    product_add(m, n, k, a, b, keep, c);
    return;
  }
  for (int64_t i = 0; i < m; i++)
    for (int64_t lane = 0; lane < n; lane += VL) {
      vr sum = {0};
      for (int64_t s = 0; s < k; s++) {
        vr term = v_load(b.at + s * b.ld + lane) * a.at[s * a.ld + i];
        sum += v_select(counts(seen, s, lane), term, (vr){0});
      }
      int64_t at = i * c->sum.ld + lane;
      add_vector(c->sum.at + at, c->lost + at, v_load(keep + lane), sum);
    }
}

/* t = softcap tanh(t / softcap) */
static void cap_tile(const attention_recipe *r, matrix t, int64_t steps, int64_t n) {
  const real cap = (real)r->softcap, inverse = (real)(1 / r->softcap);
  if (r->softcap == 0) return;
  for (int64_t s = 0; s < steps; s++)
    for (int64_t lane = 0; lane < n; lane += VL) {
      real *at = t.at + s * t.ld + lane;
      v_store(at, cap * m_tanh(v_load(at) * inverse));
    }
}

#endif
