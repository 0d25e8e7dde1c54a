/* backward.h -- the gradients, from scores that are computed again.
 *
 *   1. of each query lse and delta = do.o, into the workspace: as saved by forward, or by forward's own block
 *   2. dq: a block of queries past the keys they see. A lane is a query.
 *   3. dk and dv: a block of keys past the queries, of all heads that share them, that see it. A lane is a key.
 * Each result is written by one task, which adds in the order of the keys or queries.                               */
#ifndef AMBI_ATTENTION_BACKWARD_H
#define AMBI_ATTENTION_BACKWARD_H
#include "ops/attention/forward.h"

/* ---- the workspace: lse and delta of every query, in the order of rows ---- */
typedef struct {
  real *lse, *delta; /* of the block's batch and group; lse is +inf where nothing is seen: p = e^-inf = 0 */
} statistics;

static statistics statistics_of(const block *w) {
  const int64_t rows = rows_in_all(w->r), all = w->r->batches * w->r->groups * rows;
  real *lse = (real *)(void *)w->c->workspace + (w->batch * w->r->groups + w->group) * rows;
  return (statistics){lse, lse + all};
}

static bool wants_dt(const problem *p) { return writes_slot(p, DQ) || writes_slot(p, DK); }

static real saved_lse(const block *w, int64_t row) {
  strip s = row_of(w, LSE, row);
  return strip_get(&s, 0);
}

/* delta of the rows, o in `o`; `rows` is room for do */
static void put_delta(const block *w, const statistics *s, matrix o, matrix rows) {
  load_rows(w, DO, w->first, w->n, 1, rows);
  for (int64_t i = 0; i < w->n; i++)
    s->delta[w->first + i] = dot_tile(o.at + i * o.ld, rows.at + i * rows.ld, w->r->width);
}

static void statistics_task(void *context, int64_t task) {
  const cpu_call *c = context;
  TILE_OF_REALS room[ROOM];
  memory m = {room};
  const block w = block_at(c, task, rows_in_all(attention(c->p)));
  const statistics s = statistics_of(&w);
  const bool has_lse = reads_slot(c->p, LSE), has_o = reads_slot(c->p, O), computes_o = wants_dt(c->p) && !has_o;
  forward_state f;
  forward_begin(&w, &f, &m);
  if (!has_lse || computes_o) {
    forward_block(&w, &f, computes_o);
    forward_end(&w, &f, computes_o);
  }
  if (computes_o) flip(f.o.sum, w.r->width, w.n, f.v, round_up(w.r->width, VL));
  if (has_o) load_rows(&w, O, w.first, w.n, 1, f.v);
  if (wants_dt(c->p)) put_delta(&w, &s, f.v, f.rows);
  for (int64_t i = 0; i < w.n; i++) {
    real lse = has_lse ? saved_lse(&w, w.first + i) : f.most[i];
    /* o is the sum of p v: with the saved lse in p, should it differ */
    if (has_lse && computes_o && f.sum[i] != 0) s.delta[w.first + i] *= (real)exp((double)(f.most[i] - lse));
    s.lse[w.first + i] = lse == -(real)INFINITY ? (real)INFINITY : lse;
  }
}

/* ---- p and dt of one vector ---- */
typedef struct {
  matrix p, dt; /* hold t and dp before */
  const mask *mask;
  real bend; /* 1 / softcap^2, or 0 */
} tiles;

INLINE void weigh(const tiles *x, bool needs_dt, int64_t step, int64_t lane, vr lse, vr delta) {
  real *p_at = x->p.at + step * x->p.ld + lane, *dt_at = x->dt.at + step * x->dt.ld + lane;
  vr t = v_load(p_at), p = m_exp(t - lse);
  const vi in = x->mask->whole ? p == p : counts(x->mask, step, lane);
  if (!x->mask->whole) p = v_select(in, p, (vr){0});
  v_store(p_at, p);
  if (!needs_dt) return;
  vr dt = p * (v_load(dt_at) - delta);
  if (x->bend > 0) dt *= 1 - t * t * x->bend;
  if (!x->mask->whole) dt = v_select(in, dt, (vr){0});
  v_store(dt_at, dt);
}

static real bend_of(const attention_recipe *r) { return r->softcap > 0 ? (real)(1 / (r->softcap * r->softcap)) : 0; }

/* ---- dq ---- */
typedef struct {
  matrix q, dout, k, k_flipped, v; /* q, dout and v flipped, k (keys, D) */
  matrix rows;
  tiles x; /* (keys, queries) */
  total dq;
  real lse[WIDTH], delta[WIDTH], keep[WIDTH];
  sight seen;
  mask mask;
} dq_state;

static void dq_keys(const block *w, dq_state *f, int64_t key, int64_t keys) {
  const int64_t D = w->r->width;
  load_flipped(w, V, key, keys, 1, f->rows, f->v);
  load_flipped(w, K, key, keys, 1, f->k, f->k_flipped);
  mask_make(&f->mask, &f->seen, w->n, key, keys, true);
  product(keys, w->n, D, f->k_flipped, f->q, f->x.p);
  product(keys, w->n, D, f->v, f->dout, f->x.dt);
  cap_tile(w->r, f->x.p, keys, w->n);
  for (int64_t lane = 0; lane < w->n; lane += VL) {
    const vr lse = v_load(f->lse + lane), delta = v_load(f->delta + lane);
    for (int64_t s = 0; s < keys; s++) weigh(&f->x, true, s, lane, lse, delta);
  }
  product_seen(D, w->n, keys, f->k, f->x.dt, f->keep, &f->mask, &f->dq);
}

static void dq_begin(const block *w, dq_state *f, memory *m) {
  const attention_recipe *r = w->r;
  const statistics s = statistics_of(w);
  f->q = take_flipped(m, r), f->dout = take_flipped(m, r), f->k_flipped = take_flipped(m, r);
  f->v = take_flipped(m, r), f->k = take_rows(m, r), f->rows = take_rows(m, r);
  f->x = (tiles){take_tile(m, r), take_tile(m, r), &f->mask, bend_of(r)};
  f->dq = take_total(m, r);
  for (int64_t i = 0; i < WIDTH; i++) {
    f->lse[i] = i < w->n ? s.lse[w->first + i] : 0;
    f->delta[i] = i < w->n ? s.delta[w->first + i] : 0;
    f->keep[i] = 1;
  }
  load_flipped(w, Q, w->first, w->n, r->scale, f->rows, f->q);
  load_flipped(w, DO, w->first, w->n, 1, f->rows, f->dout);
  look(w, w->first, w->n, &f->seen);
}

static void dq_task(void *context, int64_t task) {
  const cpu_call *c = context;
  TILE_OF_REALS room[ROOM];
  memory m = {room};
  const block w = block_at(c, task, rows_in_all(attention(c->p)));
  const int64_t steps = steps_of(w.r);
  const real scale = (real)w.r->scale;
  dq_state f;
  dq_begin(&w, &f, &m);
  for (int64_t key = f.seen.lo; key < f.seen.hi; key += steps) dq_keys(&w, &f, key, min64(steps, f.seen.hi - key));
  for (int64_t d = 0; d < w.r->width; d++)
    for (int64_t lane = 0; lane < w.n; lane += VL) {
      real *at = f.dq.sum.at + d * f.dq.sum.ld + lane;
      v_store(at, v_load(at) * scale);
    }
  store_flipped(&w, DQ, f.dq.sum, f.rows);
  stream_fence();
}

/* ---- dk and dv ---- */
typedef struct {
  matrix k, v, q, q_flipped, dout, dout_flipped; /* k and v flipped, (D, keys); q and dout (queries, D) */
  tiles x;                                       /* (queries, keys) */
  total dk, dv;
  real keep[WIDTH];
  statistics of;
  sight seen;
  mask mask;
} dk_state;

static void dk_begin(const block *w, dk_state *f, memory *m) {
  const attention_recipe *r = w->r;
  const bool needs_dt = writes_slot(w->c->p, DK);
  f->k = take_flipped(m, r), f->v = take_flipped(m, r);
  f->q_flipped = take_flipped(m, r), f->dout_flipped = take_flipped(m, r);
  f->q = take_rows(m, r), f->dout = take_rows(m, r);
  f->x = (tiles){take_tile(m, r), take_tile(m, r), &f->mask, bend_of(r)};
  f->dk = take_total(m, r), f->dv = take_total(m, r);
  f->of = statistics_of(w);
  for (int64_t i = 0; i < WIDTH; i++) f->keep[i] = 1;
  load_flipped(w, K, w->first, w->n, 1, f->q, f->k);
  if (needs_dt) load_flipped(w, V, w->first, w->n, 1, f->q, f->v);
}

/* The queries [row, row + rows) */
static void dk_rows(const block *w, dk_state *f, int64_t row, int64_t rows) {
  const int64_t D = w->r->width;
  const bool needs_dt = writes_slot(w->c->p, DK);
  look(w, row, rows, &f->seen);
  if (f->seen.lo >= w->first + w->n || f->seen.hi <= w->first) return;
  mask_make(&f->mask, &f->seen, rows, w->first, w->n, false);
  load_flipped(w, Q, row, rows, w->r->scale, f->q, f->q_flipped);
  load_flipped(w, DO, row, rows, 1, f->dout, f->dout_flipped);
  product(rows, w->n, D, f->q_flipped, f->k, f->x.p);
  if (needs_dt) product(rows, w->n, D, f->dout_flipped, f->v, f->x.dt);
  cap_tile(w->r, f->x.p, rows, w->n);
  for (int64_t s = 0; s < rows; s++) {
    const vr lse = v_splat(f->of.lse[row + s]), delta = v_splat(needs_dt ? f->of.delta[row + s] : 0);
    for (int64_t lane = 0; lane < w->n; lane += VL) weigh(&f->x, needs_dt, s, lane, lse, delta);
  }
  if (writes_slot(w->c->p, DV)) product_seen(D, w->n, rows, f->dout, f->x.p, f->keep, &f->mask, &f->dv);
  if (needs_dt) product_seen(D, w->n, rows, f->q, f->x.dt, f->keep, &f->mask, &f->dk);
}

static void dk_task(void *context, int64_t task) {
  const cpu_call *c = context;
  TILE_OF_REALS room[ROOM];
  memory m = {room};
  const block w = block_at(c, task, attention(c->p)->keys);
  const int64_t all = rows_in_all(w.r), steps = steps_of(w.r);
  dk_state f;
  dk_begin(&w, &f, &m);
  for (int64_t row = 0; row < all; row += steps) dk_rows(&w, &f, row, min64(steps, all - row));
  if (writes_slot(c->p, DK)) store_flipped(&w, DK, f.dk.sum, f.q);
  if (writes_slot(c->p, DV)) store_flipped(&w, DV, f.dv.sum, f.q);
  stream_fence();
}

#endif
