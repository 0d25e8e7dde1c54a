/* forward.h -- a block through time: its heads through one run, one chunk, all chunks.
 *
 *   y_t = sum_{s <= t} l_ts (C_t.B_s) d_s x_s + (abar_0 .. abar_t) h C_t + D x_t
 *   h' = (abar_0 ..) h + sum_s (abar_{s+1} ..) d_s x_s B_s^T                     h before the run, h' after it      */
#ifndef AMBI_SSD_FORWARD_H
#define AMBI_SSD_FORWARD_H
#include "ops/ssd/block.h"

typedef struct {
  matrix b, b_flipped, c_flipped; /* (steps, N), (N, steps)                                   */
  matrix cb, weights;             /* C_t.B_s and l_ts C_t.B_s, at [s][t]: zero where s > t     */
  matrix x, u, y, part;           /* (steps, P): x, d x, y, a part of y                        */
  matrix rows;                    /* (P, N): room to flip a state                              */
  matrix h[HEADS];                /* (N, P)                                                    */
} forward_tiles;

static void forward_lay_out(const ssd_recipe *r, memory *m, forward_tiles *w) {
  const int64_t P = r->width, N = r->states;
  w->b = take_matrix(m, STEPS, N), w->b_flipped = take_matrix(m, N, STEPS), w->c_flipped = take_matrix(m, N, STEPS);
  w->cb = take_matrix(m, STEPS, STEPS), w->weights = take_matrix(m, STEPS, STEPS);
  w->x = take_matrix(m, STEPS, P), w->u = take_matrix(m, STEPS, P);
  w->y = take_matrix(m, STEPS, P), w->part = take_matrix(m, STEPS, P);
  w->rows = take_matrix(m, P, N);
  for (int i = 0; i < HEADS; i++) w->h[i] = take_matrix(m, N, P);
}

/* B and C of the run, and C_t.B_s at [s][t] for t >= s */
static void load_group(const block *k, span t, forward_tiles *w) {
  const int64_t N = k->r->states;
  load_rows(k, C, k->group, t, N, w->b); /* on its way */
  flip_all(w->b, t.count, N, w->c_flipped);
  load_rows(k, B, k->group, t, N, w->b);
  flip_all(w->b, t.count, N, w->b_flipped);
  for (int64_t s = 0; s < t.count; s += MR) {
    const int64_t lane = s / VL * VL;
    product_long(1, t.count - lane, N, (matrix){w->b_flipped.at + s, w->b_flipped.ld},
                 (matrix){w->c_flipped.at + lane, w->c_flipped.ld}, (matrix){w->cb.at + s * w->cb.ld + lane, w->cb.ld});
  }
}

/* l_ts C_t.B_s: row s from row s + 1, l_ts = abar_{s+1} l_{t,s+1} */
static void weigh(const decay *z, int64_t count, matrix cb, matrix weights) {
  vr l[ROOM / LANES] = {{0}};
  for (int64_t s = count - 1; s >= 0; s--)
    for (int64_t t = max64(s - MR + 1, 0) / VL * VL; t < count; t += VL) {
      const vr n = numbers_from(t), now = v_splat((real)s);
      const vr next = v_select(n > now, l[t / VL] * z->abar[s + 1], v_select(n == now, K(1), K(0)));
      l[t / VL] = next;
      const vr w = next * v_load(cb.at + s * cb.ld + t);
      v_store(weights.at + s * weights.ld + t, v_select(n >= now, w, K(0)));
    }
}

/* y += what the state before the run gives; then D x */
static void add_outputs(const block *k, const decay *z, int64_t head, int64_t count, bool fresh, forward_tiles *w) {
  const real skip = number_of(k, D, head);
  const bool skips = reads_slot(k->c->p, D);
  for (int64_t t = 0; t < count; t++)
    for (int64_t p = 0; p < k->r->width; p += VL) {
      vr y = v_load(w->y.at + t * w->y.ld + p);
      if (!fresh) y += v_load(w->part.at + t * w->part.ld + p) * z->from[t];
      if (skips) y += v_load(w->x.at + t * w->x.ld + p) * skip;
      v_store(w->y.at + t * w->y.ld + p, y);
    }
}

/* The state after the run from that before it; u = d x is used up */
static void advance_state(const block *k, const decay *z, int64_t count, bool fresh, forward_tiles *w, matrix h) {
  scale_rows(count, k->r->width, z->to, w->u, w->u);
  if (fresh)
    product(k->r->states, k->r->width, count, w->b, w->u, h);
  else
    product_into(k->r->states, k->r->width, count, w->b, w->u, z->all, h);
}

static void forward_head(const block *k, int64_t i, span t, bool fresh, forward_tiles *w) {
  const int64_t head = k->head + i, P = k->r->width, N = k->r->states;
  decay z;
  load_decay(k, head, t, &z);
  load_rows(k, X, head, t, P, w->x);
  scale_rows(t.count, P, z.d, w->x, w->u);
  if (N) {
    weigh(&z, t.count, w->cb, w->weights);
    product_lower(t.count, P, w->weights, w->u, w->y);
  } else {
    clear_rows(w->y, t.count); /* the sum of no states, even where d or x is NaN */
  }
  if (!fresh) product_long(t.count, P, N, w->c_flipped, w->h[i], w->part);
  add_outputs(k, &z, head, t.count, fresh || !N, w);
  store_rows(k, Y, head, t, P, w->y);
  advance_state(k, &z, t.count, fresh, w, w->h[i]);
}

static void forward_block(const block *k) {
  memory m = {k->memory, 0};
  forward_tiles w;
  forward_lay_out(k->r, &m, &w);
  for (int64_t i = 0; i < k->heads; i++) load_state(k, H0, k->head + i, w.rows, w.h[i]);
  for (int64_t chunk = 0; chunk < chunks_of(k->r); chunk++) {
    const run_list runs = find_runs(k, chunk);
    for (int64_t j = 0; j < runs.count; j++) {
      load_group(k, runs.of[j], &w);
      for (int64_t i = 0; i < k->heads; i++) forward_head(k, i, runs.of[j], j || runs.fresh, &w);
    }
  }
  for (int64_t i = 0; i < k->heads; i++) store_state(k, H_LAST, k->head + i, w.h[i], w.rows);
}

#endif
