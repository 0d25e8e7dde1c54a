/* forward.h -- a block of queries past all the keys it sees, one block of keys at a time. A lane is a query.
 *
 *   most' = max(most, t);   keep = e^(most - most');   p = e^(t - most')
 *   sum = keep sum + sum of p;   o = keep o + sum of p v;      in the end o / sum, lse = most + log sum              */
#ifndef AMBI_ATTENTION_FORWARD_H
#define AMBI_ATTENTION_FORWARD_H
#include "ops/attention/block.h"

typedef struct {
  matrix q, k, v, rows, t; /* q and k flipped, (D, queries), (D, keys); v (keys, D); t, then p: (keys, queries) */
  total o;                 /* (D, queries)                                                                     */
  real most[WIDTH], sum[WIDTH], lost[WIDTH], keep[WIDTH]; /* of each query                                     */
  sight seen;
  mask mask;
} forward_state;

static void forward_begin(const block *w, forward_state *f, memory *m) {
  f->q = take_flipped(m, w->r), f->k = take_flipped(m, w->r);
  f->v = take_rows(m, w->r), f->rows = take_rows(m, w->r);
  f->t = take_tile(m, w->r);
  f->o = take_total(m, w->r);
  for (int64_t i = 0; i < WIDTH; i++) f->most[i] = -(real)INFINITY, f->sum[i] = f->lost[i] = 0;
}

static void mask_scores(const mask *m, matrix t, int64_t steps, int64_t n) {
  if (m->whole) return;
  for (int64_t s = 0; s < steps; s++)
    for (int64_t lane = 0; lane < n; lane += VL) {
      real *at = t.at + s * t.ld + lane;
      v_store(at, v_select(counts(m, s, lane), v_load(at), K(-INFINITY)));
    }
}

/* t becomes p, for one vector of queries. Where nothing was seen yet, most stays -inf and p is 0. */
static void exponentials(forward_state *f, int64_t lane, int64_t steps) {
  const vr none = K(-INFINITY), before = v_load(f->most + lane);
  real *t = f->t.at + lane;
  const int64_t ld = f->t.ld;
  vr most = before, sum[2] = {{0}, {0}};
  for (int64_t s = 0; s < steps; s++) most = v_max(v_load(t + s * ld), most);
  const vr base = v_select(most == none, (vr){0}, most), keep = m_exp(before - base);
  for (int64_t s = 0; s < steps; s++) {
    vr p = m_exp(v_load(t + s * ld) - base);
    v_store(t + s * ld, p);
    sum[s & 1] += p;
  }
  v_store(f->most + lane, most);
  v_store(f->keep + lane, keep);
  add_vector(f->sum + lane, f->lost + lane, keep, sum[0] + sum[1]);
}

/* The keys [key, key + keys), without o when only lse is wanted */
static void forward_keys(const block *w, forward_state *f, int64_t key, int64_t keys, bool wants_o) {
  load_flipped(w, K, key, keys, 1, f->rows, f->k);
  mask_make(&f->mask, &f->seen, w->n, key, keys, true);
  product(keys, w->n, w->r->width, f->k, f->q, f->t);
  cap_tile(w->r, f->t, keys, w->n);
  mask_scores(&f->mask, f->t, keys, w->n);
  for (int64_t lane = 0; lane < w->n; lane += VL) exponentials(f, lane, keys);
  if (!wants_o) return;
  load_rows(w, V, key, keys, 1, f->v);
  product_seen(w->r->width, w->n, keys, f->v, f->t, f->keep, &f->mask, &f->o);
}

static void forward_block(const block *w, forward_state *f, bool wants_o) {
  const int64_t steps = steps_of(w->r);
  load_flipped(w, Q, w->first, w->n, w->r->scale, f->rows, f->q);
  look(w, w->first, w->n, &f->seen);
  for (int64_t key = f->seen.lo; key < f->seen.hi; key += steps)
    forward_keys(w, f, key, min64(steps, f->seen.hi - key), wants_o);
}

/* o /= sum, 0 where nothing was seen; and lse in place of most */
static void forward_end(const block *w, forward_state *f, bool wants_o) {
  for (int64_t lane = 0; lane < w->n; lane += VL) {
    vr sum = v_load(f->sum + lane), inverse = v_select(sum == K(0), K(0), K(1) / sum);
    v_store(f->most + lane, v_select(sum == K(0), K(-INFINITY), v_load(f->most + lane) + m_log(sum)));
    for (int64_t d = 0; d < w->r->width && wants_o; d++) {
      real *o = f->o.sum.at + d * f->o.sum.ld + lane;
      v_store(o, v_load(o) * inverse);
    }
  }
}

static void forward_task(void *context, int64_t task) {
  TILE_OF_REALS room[ROOM];
  forward_state f;
  memory m = {room};
  const block w = block_at(context, task, rows_in_all(attention(((const cpu_call *)context)->p)));
  forward_begin(&w, &f, &m);
  forward_block(&w, &f, true);
  forward_end(&w, &f, true);
  store_flipped(&w, O, f.o.sum, f.rows);
  for (int64_t i = 0; i < w.n; i++) {
    strip lse = row_of(&w, LSE, w.first + i);
    if (lse.at) strip_put(&lse, 0, 1, &f.most[i]);
  }
  stream_fence();
}

#endif
