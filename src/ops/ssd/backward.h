/* backward.h -- the way back through the runs of a block.
 *
 * h is the state before a run, dh the gradient of that after it; u = d x. For each head of the run:
 *   du_s = sum_{t >= s} l_ts (C_t.B_s) dy_t + to_s dh B_s;      dx = d du + D dy
 *   g_ts = l_ts dy_t.u_s, summed over the heads:                dC_t = sum_{s <= t} g_ts B_s + from_t h^T dy_t
 *                                                               dB_s = sum_{t >= s} g_ts C_t + to_s dh^T u_s
 *   e_t = abar_t <dh_t, h_{t-1}>, all that passes step t: the g_ij (C_i.B_j) of j < t <= i, what h gives to each i >=
 * t, what each j < t gives to dh, and what h gives to dh dd = A e + x.du;   dA += d e;   the new dh = all dh + sum_t
 * from_t dy_t C_t^T                                    */
#ifndef AMBI_SSD_BACKWARD_H
#define AMBI_SSD_BACKWARD_H
#include "ops/ssd/forward.h"

/* What is summed over batch and time, for each head */
static const int summed[] = {A, D, DELTA_BIAS};
enum { SUM_A, SUM_D, SUM_DELTA_BIAS, SUMS };

typedef struct {
  real *sum, *lost;                 /* (HEADS, SUMS)                                            */
  real *group[2];                   /* (L, N): dB and dC of the block, when its group has others */
  forward_tiles f;                  /* f.cb and f.weights are at [t][s] here; f.y holds du      */
  matrix c;                         /* (steps, N)                                               */
  matrix dy, dy_flipped, u_flipped; /* (steps, P), (P, steps)                                   */
  matrix g, all_g;                  /* at [t][s]: g of one head, then times C.B; g of all heads  */
  matrix part, db, dc;              /* (steps, N)                                               */
  matrix dh[HEADS];                 /* (N, P)                                                   */
  real *states;                     /* (chunks, heads, N, P): the state before each chunk       */
  real e[STEPS], dd[ROOM];          /* of one head                                              */
} back_tiles;

static const int grouped[2] = {B, C};

/* A group's dB and dC are sums over its blocks: when there are several, or none, they are added up at the end. */
static bool is_shared(const problem *p, int i) {
  return writes_slot(p, GRAD(grouped[i])) && plan_blocks(ssd(p)).per_group != 1;
}

static int64_t state_reals(const ssd_recipe *r) { return depth_of(r->states) * (depth_of(r->width) + VL); }

static void back_lay_out(const problem *p, memory *m, back_tiles *w) {
  const ssd_recipe *r = ssd(p);
  const int64_t P = r->width, N = r->states;
  w->sum = take(m, HEADS * SUMS), w->lost = take(m, HEADS * SUMS);
  for (int i = 0; i < 2; i++) w->group[i] = is_shared(p, i) ? take(m, r->length * N) : NULL;
  forward_lay_out(r, m, &w->f);
  w->c = take_matrix(m, STEPS, N);
  w->dy = take_matrix(m, STEPS, P);
  w->dy_flipped = take_matrix(m, P, STEPS), w->u_flipped = take_matrix(m, P, STEPS);
  w->g = take_matrix(m, STEPS, STEPS), w->all_g = take_matrix(m, STEPS, STEPS);
  w->part = take_matrix(m, STEPS, N), w->db = take_matrix(m, STEPS, N), w->dc = take_matrix(m, STEPS, N);
  for (int i = 0; i < HEADS; i++) w->dh[i] = take_matrix(m, N, P);
  w->states = take(m, r->needs_h ? chunks_of(r) * plan_blocks(r).width * state_reals(r) : 0);
}

/* ---- the state before each chunk ---- */
static matrix kept_state(const block *k, const back_tiles *w, int64_t chunk, int64_t i) {
  return (matrix){w->states + (chunk * k->heads + i) * state_reals(k->r), w->f.h[0].ld};
}

static void pass_run(const block *k, span t, bool fresh, forward_tiles *w) {
  load_rows(k, B, k->group, t, k->r->states, w->b);
  for (int64_t i = 0; i < k->heads; i++) {
    decay z;
    load_decay(k, k->head + i, t, &z);
    load_rows(k, X, k->head + i, t, k->r->width, w->u);
    scale_rows(t.count, k->r->width, z.d, w->u, w->u);
    advance_state(k, &z, t.count, fresh, w, w->h[i]);
  }
}

static void keep_states(const block *k, back_tiles *w) {
  for (int64_t i = 0; i < k->heads; i++) load_state(k, H0, k->head + i, w->f.rows, w->f.h[i]);
  for (int64_t chunk = 0; chunk < chunks_of(k->r); chunk++) {
    const run_list runs = find_runs(k, chunk);
    for (int64_t i = 0; i < k->heads; i++)
      memcpy(kept_state(k, w, chunk, i).at, w->f.h[i].at, (size_t)state_reals(k->r) * sizeof(real));
    for (int64_t j = 0; chunk + 1 < chunks_of(k->r) && j < runs.count; j++)
      pass_run(k, runs.of[j], j || runs.fresh, &w->f);
  }
}

/* ---- one head of one run ---- */
/* What is wanted of a run, and what there is */
typedef struct {
  span t;
  bool du, e, db, dc; /* to be computed                               */
  bool fresh;         /* nothing passes its first step                */
  bool keeps;         /* the gradient of the state before it is asked for */
  bool has_dh;        /* dh is more than zero                         */
} run;

/* g becomes g C.B, all_g gets its part, weights are l C.B: row t from row t - 1, l_ts = abar_t l_{t-1,s} */
static void weigh_back(const decay *z, int64_t count, back_tiles *w) {
  vr l[ROOM / LANES] = {{0}};
  for (int64_t t = 0; t < count; t++)
    for (int64_t s = 0; s < min64(count, t + MR); s += VL) {
      const vr n = numbers_from(s), now = v_splat((real)t);
      const vi in = n <= now;
      l[s / VL] = v_select(n < now, l[s / VL] * z->abar[t], v_select(n == now, K(1), K(0)));
      real *g = w->g.at + t * w->g.ld + s, *sum = w->all_g.at + t * w->all_g.ld + s;
      const vr cb = v_load(w->f.cb.at + t * w->f.cb.ld + s), lg = v_select(in, l[s / VL] * v_load(g), K(0));
      v_store(w->f.weights.at + t * w->f.weights.ld + s, v_select(in, l[s / VL] * cb, K(0)));
      v_store(sum, v_load(sum) + lg);
      v_store(g, v_select(in, lg * cb, K(0)));
    }
}

/* e_t = the sum of g_ij C.B over j < t <= i */
static void sum_passing(int64_t count, matrix g, real *e) {
  vr below[ROOM / LANES] = {{0}}; /* of column j: the sum over i >= t */
  for (int64_t t = count - 1; t >= 0; t--) {
    vr sum = {0};
    for (int64_t j = 0; j < min64(count, t + MR); j += VL) {
      below[j / VL] += v_load(g.at + t * g.ld + j);
      sum += v_select(numbers_from(j) < v_splat((real)t), below[j / VL], K(0));
    }
    e[t] = v_sum(sum);
  }
}

/* sum[t] += scale[t] part[t]; out[t] = scale[t] part[t].with[t] */
static void add_part(int64_t count, int64_t n, const real *scale, matrix part, matrix with, matrix sum, real *out) {
  for (int64_t t = 0; t < count; t++) {
    real *row = part.at + t * part.ld, *to = sum.at + t * sum.ld;
    for (int64_t lane = 0; lane < n; lane += VL) v_store(to + lane, v_load(to + lane) + v_load(row + lane) * scale[t]);
    out[t] = scale[t] * dot_tile(row, with.at + t * with.ld, n);
  }
}

/* dC += from h^T dy; e_t += what h gives to each i >= t, and to dh */
static void through_h(const block *k, const run *r, const decay *z, matrix h, matrix dh, back_tiles *w) {
  const int64_t P = k->r->width, N = k->r->states;
  real given[STEPS], passing = 0;
  flip_all(h, N, P, w->f.rows);
  product_long(r->t.count, N, P, w->dy_flipped, w->f.rows, w->part);
  add_part(r->t.count, N, z->from, w->part, w->c, w->dc, given);
  for (int64_t n = 0; n < N && r->has_dh && r->e; n++) passing += dot_tile(h.at + n * h.ld, dh.at + n * dh.ld, P);
  passing *= z->all;
  if (!r->has_dh) passing = 0;
  for (int64_t t = r->t.count - 1; t >= 0; t--) w->e[t] += passing += given[t];
}

/* dB += to dh^T u; du += to dh B; e_t += what each j < t gives to dh */
static void through_dh(const block *k, const run *r, const decay *z, matrix dh, back_tiles *w) {
  const int64_t P = k->r->width, N = k->r->states;
  real given[STEPS], passing = 0;
  product_long(r->t.count, P, N, w->f.b_flipped, dh, w->f.part);
  for (int64_t s = 0; s < r->t.count; s++)
    for (int64_t p = 0; p < P; p += VL) {
      real *du = w->f.y.at + s * w->f.y.ld + p;
      v_store(du, v_load(du) + v_load(w->f.part.at + s * w->f.part.ld + p) * z->to[s]);
    }
  if (!r->e && !r->db) return;
  flip_all(dh, N, P, w->f.rows);
  product_long(r->t.count, N, P, w->u_flipped, w->f.rows, w->part);
  add_part(r->t.count, N, z->to, w->part, w->f.b, w->db, given);
  for (int64_t t = 0; t < r->t.count; passing += given[t++]) w->e[t] += passing;
}

/* Within the run: du, g of all heads, e */
static void within_run(const block *k, const run *r, const decay *z, back_tiles *w) {
  const int64_t P = k->r->width, count = r->t.count;
  flip_all(w->dy, count, P, w->dy_flipped);
  flip_all(w->f.u, count, P, w->u_flipped);
  if (r->e || r->db || r->dc)
    for (int64_t t = 0; t < count; t += MR)
      product_long(1, min64(count, t + MR), P, (matrix){w->dy_flipped.at + t, w->dy_flipped.ld}, w->u_flipped,
                   (matrix){w->g.at + t * w->g.ld, w->g.ld});
  else
    clear_rows(w->g, count);
  weigh_back(z, count, w);
  if (r->du) product_upper(count, P, w->f.weights, w->dy, w->f.y);
  if (r->e) sum_passing(count, w->g, w->e);
}

/* dx = d du + D dy, ddelta, and the sums */
static void finish_head(const block *k, const run *r, const decay *z, int64_t i, back_tiles *w) {
  const int64_t head = k->head + i, P = k->r->width;
  const bool empty = P == 0 || k->r->states == 0; /* sums of nothing, even where d or A is NaN */
  const real skip = number_of(k, D, head);
  real term[SUMS] = {0};
  for (int64_t t = 0; t < r->t.count; t++) {
    const real *x = w->f.x.at + t * w->f.x.ld, *dy = w->dy.at + t * w->dy.ld;
    real *du = w->f.y.at + t * w->f.y.ld, dd = empty ? 0 : dot_tile(x, du, P);
    const bool passed = !empty && (t || !r->fresh);
    if (passed) dd += z->a * w->e[t];
    if (k->c->p->op.u.ssd.softplus) dd *= (real)-expm1((double)-z->d[t]); /* sigmoid(x) = 1 - e^-softplus(x) */
    for (int64_t p = 0; p < P; p += VL) {
      const vr direct = v_load(dy + p) * skip;
      v_store(du + p, empty ? direct : v_load(du + p) * z->d[t] + direct);
    }
    w->dd[t] = dd;
    if (passed) term[SUM_A] += z->d[t] * w->e[t];
    term[SUM_D] += dot_tile(dy, x, P);
    term[SUM_DELTA_BIAS] += dd;
  }
  kahan_add(w->sum + i * SUMS, w->lost + i * SUMS, term, SUMS);
  const strip ddelta = steps_of(k, GRAD(DELTA), head, r->t.first);
  if (ddelta.at) store_line(&ddelta, r->t.count, w->dd);
  store_rows(k, GRAD(X), head, r->t, P, w->f.y);
}

/* h: NULL when there is none */
static void backward_head(const block *k, const run *r, int64_t i, const matrix *h, back_tiles *w) {
  const int64_t head = k->head + i, P = k->r->width, N = k->r->states, count = r->t.count;
  decay z;
  load_decay(k, head, r->t, &z);
  load_rows(k, X, head, r->t, P, w->f.x);
  load_rows(k, GRAD(Y), head, r->t, P, w->dy);
  scale_rows(count, P, z.d, w->f.x, w->f.u);
  memset(w->e, 0, sizeof w->e);
  if (P && N) {
    within_run(k, r, &z, w);
    if (h && (r->e || r->dc)) through_h(k, r, &z, *h, w->dh[i], w);
    if (r->has_dh && (r->du || r->db)) through_dh(k, r, &z, w->dh[i], w);
  }
  finish_head(k, r, &z, i, w);
  if (!r->keeps) return;
  scale_rows(count, P, z.from, w->dy, w->dy);
  if (r->has_dh)
    product_into(N, P, count, w->c, w->dy, z.all, w->dh[i]);
  else
    product(N, P, count, w->c, w->dy, w->dh[i]);
}

/* ---- one run, for all heads of the block ---- */
static void load_group_back(const block *k, span t, back_tiles *w) {
  const int64_t N = k->r->states;
  load_rows(k, B, k->group, t, N, w->f.b);
  load_rows(k, C, k->group, t, N, w->c);
  flip_all(w->f.b, t.count, N, w->f.b_flipped);
  flip_all(w->c, t.count, N, w->f.c_flipped);
  for (int64_t i = 0; i < t.count; i += MR)
    product_long(1, min64(t.count, i + MR), N, (matrix){w->f.c_flipped.at + i, w->f.c_flipped.ld}, w->f.b_flipped,
                 (matrix){w->f.cb.at + i * w->f.cb.ld, w->f.cb.ld});
  clear_rows(w->all_g, t.count);
  clear_rows(w->db, t.count);
  clear_rows(w->dc, t.count);
}

static void put_group(const block *k, int i, span t, matrix sum, const back_tiles *w) {
  const int64_t N = k->r->states;
  for (int64_t s = 0; s < t.count; s++)
    for (int64_t n = 0; n < N; n += VL) {
      real *at = sum.at + s * sum.ld + n;
      v_store(at, v_load(at) + v_load(w->part.at + s * w->part.ld + n));
    }
  if (!w->group[i]) store_rows(k, GRAD(grouped[i]), k->group, t, N, sum);
  for (int64_t s = 0; w->group[i] && s < t.count; s++)
    memcpy(w->group[i] + (t.first + s) * N, sum.at + s * sum.ld, (size_t)N * sizeof(real));
}

/* A sum over no channels is zero, even where B or C is NaN. */
static void finish_group(const block *k, const run *r, back_tiles *w) {
  const int64_t N = k->r->states, count = r->t.count;
  clear_rows(w->part, count);
  if (r->db) {
    if (k->r->width) product_upper(count, N, w->all_g, w->c, w->part);
    put_group(k, 0, r->t, w->db, w);
  }
  if (!r->dc) return;
  flip_all(w->all_g, count, count, w->f.weights);
  if (k->r->width) product_lower(count, N, w->f.weights, w->f.b, w->part);
  put_group(k, 1, r->t, w->dc, w);
}

static bool writes_any(const problem *p, uint32_t primals) { return (p->writes >> AMBI_MAX_PRIMALS & primals) != 0; }

/* Whether the run before gets a dh from this one is what it returns. */
static bool backward_run(const block *k, span t, int64_t chunk, bool fresh, bool has_dh, back_tiles *w) {
  const problem *p = k->c->p;
  const uint32_t through_e = AMBI_BIT(DELTA) | AMBI_BIT(A) | AMBI_BIT(DELTA_BIAS);
  const run r = {.t = t,
                 .du = writes_any(p, through_e | AMBI_BIT(X)),
                 .e = writes_any(p, through_e),
                 .db = writes_any(p, AMBI_BIT(B)),
                 .dc = writes_any(p, AMBI_BIT(C)),
                 .fresh = fresh,
                 .keeps = !fresh && k->r->needs_dh,
                 .has_dh = has_dh && k->r->needs_dh};
  load_group_back(k, t, w);
  for (int64_t i = 0; i < k->heads; i++) {
    const matrix h = kept_state(k, w, chunk, i);
    backward_head(k, &r, i, fresh || !k->r->needs_h ? NULL : &h, w);
  }
  finish_group(k, &r, w);
  return r.keeps;
}

static void backward_block(const block *k) {
  memory m = {k->memory, 0};
  back_tiles w;
  back_lay_out(k->c->p, &m, &w);
  memset(w.sum, 0, HEADS * SUMS * sizeof(real));
  memset(w.lost, 0, HEADS * SUMS * sizeof(real));
  if (k->r->needs_h) keep_states(k, &w);
  for (int64_t i = 0; i < k->heads; i++) load_state(k, GRAD(H_LAST), k->head + i, w.f.rows, w.dh[i]);
  bool has_dh = reads_slot(k->c->p, GRAD(H_LAST));
  for (int64_t chunk = chunks_of(k->r) - 1; chunk >= 0; chunk--) {
    const run_list runs = find_runs(k, chunk);
    for (int64_t j = runs.count - 1; j >= 0; j--)
      has_dh = backward_run(k, runs.of[j], chunk, j || runs.fresh, has_dh, &w);
  }
  for (int64_t i = 0; i < k->heads; i++) store_state(k, GRAD(H0), k->head + i, w.dh[i], w.f.rows);
}

#endif
