/* backward.h -- the way back through the chunks of a block, and the sums that blocks share. */
#ifndef AMBI_SCAN_BACKWARD_H
#define AMBI_SCAN_BACKWARD_H
#include "ops/selective_scan/forward.h"

/* ---- a block's part of the workspace ---- */
/* What is summed over batch and time, for each channel: per state, or once */
static const int summed[] = {A, B, C, D, DELTA_BIAS};
enum { SUM_A, SUM_B, SUM_C, SUM_D, SUM_DELTA_BIAS, SUMS };
static bool has_states(int i) { return i != SUM_D && i != SUM_DELTA_BIAS; }

typedef struct {
  real *kept;      /* (chunks, N, WIDTH): the state before each chunk                          */
  real *h, *dh;    /* (N, WIDTH)                                                               */
  real *sum[SUMS]; /* (rows, WIDTH), and as much again for what rounding took from it          */
  real *group[2];  /* (L, N): dB and dC of the block's channels, when a group has other blocks */
} back_memory;

static int64_t sum_rows(const problem *p, int i) {
  const scan_recipe *r = scan(p);
  bool per_group = (i == SUM_B && !r->constant_b) || (i == SUM_C && !r->constant_c);
  if (!writes_slot(p, GRAD(summed[i])) || per_group) return 0;
  return has_states(i) ? padded_states(r) : 1;
}

/* dB (i = 0) or dC (i = 1) of each group is a sum over so many blocks. */
static const int grouped[2] = {B, C};
static int64_t blocks_in_group(const scan_recipe *r, int i) {
  const int64_t groups = i ? r->groups_c : r->groups_b;
  return groups ? plan_blocks(r).per_batch / groups : 0;
}

/* .. and when there are several, or none, they are added up at the end. */
static bool is_shared(const problem *p, int i) {
  const scan_recipe *r = scan(p);
  return writes_slot(p, GRAD(grouped[i])) && !(i ? r->constant_c : r->constant_b) && blocks_in_group(r, i) != 1;
}

static bool keeps_states(const problem *p) { return scan(p)->needs_h && !reads_slot(p, CHUNK_STATE); }

/* Lays the parts out from `at` on; returns how many reals they take. */
static int64_t lay_out(const problem *p, back_memory *m, real *at) {
  const scan_recipe *r = scan(p);
  const int64_t state = padded_states(r) * WIDTH, all = r->length * r->states;
  int64_t used = 0, size[5 + SUMS] = {keeps_states(p) ? r->chunks * state : 0, state, state, is_shared(p, 0) ? all : 0,
                                      is_shared(p, 1) ? all : 0};
  real **part[5 + SUMS] = {&m->kept, &m->h, &m->dh, &m->group[0], &m->group[1]};
  for (int i = 0; i < SUMS; i++) {
    part[5 + i] = &m->sum[i];
    size[5 + i] = 2 * WIDTH * sum_rows(p, i);
  }
  for (int i = 0; i < 5 + SUMS; i++) {
    *part[i] = size[i] && at ? at + used : NULL;
    used += ceil_div(size[i], WIDTH) * WIDTH;
  }
  return used;
}

/* ---- tiles of one chunk ---- */
typedef struct {
  TILE_OF_REALS d[STEPS * WIDTH], u[STEPS * WIDTH], du[STEPS * WIDTH], p[STEPS * WIDTH];
  TILE_OF_REALS dp[STEPS * WIDTH], slope[STEPS * WIDTH]; /* dy silu(z), dy silu'(z)                 */
  TILE_OF_REALS s[STEPS * WIDTH], dd[STEPS * WIDTH];     /* as in scan_tiles; then gradients of u, delta */
} chunk_tiles;

static void load_dp(const block *k, span t, chunk_tiles *w) {
  load_channels(k, GRAD(Y), t, w->dp);
  if (!reads_slot(k->c->p, Z)) return;
  load_channels(k, Z, t, w->slope);
  for (int64_t v = 0; v < vectors(k); v++)
    for (int64_t i = v * STEPS * VL; i < (v * STEPS + t.count) * VL; i += VL) {
      const vr dy = v_load(w->dp + i), z = v_load(w->slope + i), sigmoid = m_sigmoid(z);
      const vr silu = m_clamp(z, K(-1e30), K(1e30)) * sigmoid; /* its derivative: sigmoid + silu (1 - sigmoid) */
      v_store(w->dp + i, dy * silu);
      v_store(w->slope + i, dy * (sigmoid + silu * (K(1.0) - sigmoid)));
    }
}

static void load_chunk(const block *k, span t, chunk_tiles *w) {
  const size_t used = (size_t)(vectors(k) * STEPS * VL) * sizeof(real);
  load_d(k, t, w->d);
  load_channels(k, U, t, w->u);
  multiply_u(k, t, w->d, w->u, w->du, w->p);
  load_dp(k, t, w);
  memset(w->s, 0, used);
  memset(w->dd, 0, used);
}

/* ---- the states of one chunk ---- */
typedef struct {
  TILE_OF_REALS a[STATES * WIDTH], b[COEFFICIENTS], c[COEFFICIENTS];
  TILE_OF_REALS da[STATES * WIDTH], db[COEFFICIENTS + LANES], dc[COEFFICIENTS + LANES];
  TILE_OF_REALS record[STEPS * RECORD]; /* of each step and SOME states: abar, h before, and dB and dC lane by lane */
} state_tiles;
enum { ABAR = 0, BEFORE = SOME * LANES, LANES_B = 2 * SOME * LANES, LANES_C = 3 * SOME * LANES }; /* in a record */

/* Sums of neighbours: of a in the even lanes, of b in the odd ones */
static inline vr zip_add(vr a, vr b) {
  return __builtin_shufflevector(a, b, ZIP_LOW) + __builtin_shufflevector(a, b, ZIP_HIGH);
}

/* out[t * stride + j] = the sum of the lanes of state j of record t, j < states <= SOME; clears them for the next */
static void sum_lanes(real *lanes, int64_t steps, int64_t states, int64_t stride, real *out) {
  for (int64_t i = 0; i < steps * SOME; i += VL) {
    vr v[LANES];
    TILE_OF_REALS sum[LANES];
    _Pragma("GCC unroll 16") for (int j = 0; j < LANES; j++) {
      real *at = lanes + (i + j) / SOME * RECORD + (i + j) % SOME * VL;
      v[j] = v_load(at);
      v_store(at, (vr){0});
    }
    _Pragma("GCC unroll 4") for (int half = LANES / 2; half; half /= 2) {
      _Pragma("GCC unroll 8") for (int j = 0; j < half; j++) v[j] = zip_add(v[j], v[j + half]);
    }
    v_store(sum, v[0]); /* lane j: the sum of v[j] */
    for (int64_t j = i; j < min64(i + VL, steps * SOME); j++)
      if (j % SOME < states) out[j / SOME * stride + j % SOME] = sum[j - i];
  }
}

/* The states of each run, then the gradients of each run, from the last to the first */
static void backward_runs(const scan_tiles *x, scan_kind kind, bool reverse, const run_list *runs) {
  for (int64_t i = 0; i < runs->count; i++) {
    if (i || runs->fresh) clear_some(x->h);
    if (is_plain(kind))
      again_steps(x, plain, runs->start[i], runs->start[i + 1]);
    else
      again_steps(x, kind, runs->start[i], runs->start[i + 1]);
  }
  for (int64_t i = runs->count - 1; reverse && i >= 0; i--) {
    if (is_plain(kind))
      backward_steps(x, plain, runs->start[i], runs->start[i + 1]);
    else
      backward_steps(x, kind, runs->start[i], runs->start[i + 1]);
    if (i || runs->fresh) clear_some(x->dh);
  }
}

/* One vector of channels, states j .. of the loaded ones */
static void backward_vector(const block *k, const run_list *runs, chunk_tiles *w, state_tiles *m, int64_t v, int64_t j,
                            real *h, real *dh) {
  const scan_kind kind = kind_of(k);
  const int64_t at = v * STEPS * VL, state = j * WIDTH + v * VL;
  const scan_tiles x = {.d = w->d + at,
                        .u = w->u + at,
                        .du = w->du + at,
                        .dp = w->dp + at,
                        .a = m->a + state,
                        .b = m->b + (kind.constant_b ? state : j),
                        .c = m->c + (kind.constant_c ? state : j),
                        .h = h + state,
                        .p = w->p + at,
                        .dh = dh + state,
                        .da = m->da + state,
                        .s = w->s + at,
                        .dd = w->dd + at,
                        .db = kind.constant_b ? m->db + state : m->record + LANES_B,
                        .dc = kind.constant_c ? m->dc + state : m->record + LANES_C,
                        .db_step = kind.constant_b ? 0 : RECORD,
                        .dc_step = kind.constant_c ? 0 : RECORD,
                        .db_state = kind.constant_b ? WIDTH : VL,
                        .dc_state = kind.constant_c ? WIDTH : VL,
                        .abar = m->record + ABAR,
                        .before = m->record + BEFORE};
  backward_runs(&x, kind, k->r->needs_dh, runs);
}

static void add_sum(const block *k, const back_memory *to, int i, int64_t row, int64_t rows, real *term) {
  if (!to->sum[i]) return;
  real *sum = to->sum[i] + row * WIDTH, *lost = sum + sum_rows(k->c->p, i) * WIDTH;
  kahan_add(sum, lost, term, rows * WIDTH);
}

/* dB or dC of some states, which lie side by side: to its place, or to the block's part of the sum */
static void put_group(const block *k, const back_memory *to, int i, span n, span t, const real *tile) {
  tile_view v = group_view(k, GRAD(grouped[i]), group_of(k, grouped[i]), n, t);
  if (to->group[i])
    memcpy(to->group[i] + t.first * k->r->states + n.first * t.count, tile, (size_t)(n.count * t.count) * sizeof(real));
  else
    store_tile(&v, tile, (tile_layout){VL, n.count});
}

static void backward_states(const block *k, const back_memory *to, span t, chunk_tiles *w, real *h, lookahead *next) {
  state_tiles m;
  const scan_recipe *r = k->r;
  const run_list runs = find_runs(k, t);
  memset(m.record, 0, sizeof m.record);
  for (int64_t n = 0; n < r->states; n += STATES) {
    const span some = states_from(r, n);
    load_a(k, some, m.a);
    load_coefficients(k, B, r->constant_b, some, t, m.b);
    load_coefficients(k, C, r->constant_c, some, t, m.c);
    memset(m.da, 0, sizeof m.da);
    memset(m.db, 0, sizeof m.db);
    memset(m.dc, 0, sizeof m.dc);
    for (int64_t j = 0; j < some.count; j += SOME) {
      for (int64_t v = 0; v < vectors(k); v++) {
        backward_vector(k, &runs, w, &m, v, j, h + n * WIDTH, to->dh + n * WIDTH);
        look_ahead(next);
      }
      const int64_t states = min64(SOME, some.count - j);
      if (!r->constant_b) sum_lanes(m.record + LANES_B, t.count, states, some.count, m.db + j);
      if (!r->constant_c) sum_lanes(m.record + LANES_C, t.count, states, some.count, m.dc + j);
    }
    add_sum(k, to, SUM_A, n, some.count, m.da);
    add_sum(k, to, SUM_B, n, some.count, m.db);
    add_sum(k, to, SUM_C, n, some.count, m.dc);
    if (!r->constant_b) put_group(k, to, 0, some, t, m.db);
    if (!r->constant_c) put_group(k, to, 1, some, t, m.dc);
  }
}

/* ---- one chunk ---- */
/* du = D dp + d s;  ddelta = dd sigmoid(delta + bias);  dz = dy p silu'(z);  dD, ddelta_bias += */
static void finish_vector(const block *k, span t, chunk_tiles *w, int64_t v, vr skip, real *sum_d, real *sum_bias) {
  const bool gated = reads_slot(k->c->p, Z);
  const bool zoh = k->c->p->op.u.selective_scan.zoh, softplus = k->c->p->op.u.selective_scan.softplus;
  vr dskip = K(0.0), dbias = K(0.0);
  for (int64_t i = v * STEPS * VL; i < (v * STEPS + t.count) * VL; i += VL) {
    const vr d = v_load(w->d + i), u = v_load(w->u + i), dp = v_load(w->dp + i), s = v_load(w->s + i);
    vr du = skip * dp, dd = v_load(w->dd + i);
    if (k->r->states) { /* without states these are sums of nothing, even where d or u is NaN */
      du += d * s;
      if (!zoh) dd += u * s;
    }
    if (softplus) dd *= -m_expm1(-d); /* sigmoid(x) = 1 - e^-softplus(x) */
    v_store(w->s + i, du);
    v_store(w->dd + i, dd);
    if (gated) v_store(w->p + i, v_load(w->p + i) * v_load(w->slope + i));
    dskip += dp * u;
    dbias += dd;
  }
  v_store(sum_d + v * VL, dskip);
  v_store(sum_bias + v * VL, dbias);
}

static void backward_chunk(const block *k, const back_memory *to, int64_t chunk) {
  const span t = chunk_span(k->r, chunk);
  chunk_tiles w;
  TILE_OF_REALS skip[WIDTH], sum_d[WIDTH] = {0}, sum_bias[WIDTH] = {0};
  lookahead next = look_ahead_to(k, chunk, chunk - 1);
  load_chunk(k, t, &w);
  real *h = to->kept ? to->kept + chunk * padded_states(k->r) * WIDTH : to->h;
  if (!to->kept) load_state(k, CHUNK_STATE, chunk, h); /* zero when no state is needed */
  if (k->r->needs_h || k->r->needs_dh) backward_states(k, to, t, &w, h, &next);
  load_per_channel(k, D, skip);
  for (int64_t v = 0; v < vectors(k); v++) finish_vector(k, t, &w, v, v_load(skip + v * VL), sum_d, sum_bias);
  add_sum(k, to, SUM_D, 0, 1, sum_d);
  add_sum(k, to, SUM_DELTA_BIAS, 0, 1, sum_bias);
  store_channels(k, GRAD(U), t, w.s);
  store_channels(k, GRAD(DELTA), t, w.dd);
  store_channels(k, GRAD(Z), t, w.p);
}

/* The state before each chunk */
static void keep_states(const block *k, const back_memory *to) {
  TILE_OF_REALS d[STEPS * WIDTH], du[STEPS * WIDTH], p[STEPS * WIDTH];
  const int64_t state = padded_states(k->r) * WIDTH;
  load_state(k, H0, 0, to->kept);
  for (int64_t chunk = 0; chunk + 1 < k->r->chunks; chunk++) {
    const span t = chunk_span(k->r, chunk);
    real *h = to->kept + (chunk + 1) * state;
    lookahead next = look_ahead_to(k, -1, chunk + 1);
    memcpy(h, h - state, (size_t)state * sizeof(real));
    load_d(k, t, d);
    load_channels(k, U, t, du);
    multiply_u(k, t, d, du, du, p);
    forward_states(k, t, d, du, h, NULL, &next);
  }
}

static void backward_block(const block *k) {
  back_memory m;
  lay_out(k->c->p, &m, k->memory);
  for (int i = 0; i < SUMS; i++)
    if (m.sum[i]) memset(m.sum[i], 0, (size_t)(2 * WIDTH * sum_rows(k->c->p, i)) * sizeof(real));
  if (m.kept) keep_states(k, &m);
  load_state(k, GRAD(H_LAST), 0, m.dh);
  for (int64_t chunk = k->r->chunks - 1; chunk >= 0; chunk--) backward_chunk(k, &m, chunk);
  store_state(k, GRAD(H0), 0, m.dh);
}

/* ---- sums over blocks ---- */
static back_memory memory_of(const cpu_call *c, int64_t index) {
  back_memory m;
  lay_out(c->p, &m, block_memory(c, index));
  return m;
}

static int64_t group_tasks(const problem *p, int i) {
  const scan_recipe *r = scan(p);
  return is_shared(p, i) ? r->batches * (i ? r->groups_c : r->groups_b) * r->chunks : 0;
}

/* dB, then dC, of one group of one batch in one chunk: over the blocks of the group */
static void group_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const scan_recipe *r = scan(c->p);
  const int i = task >= group_tasks(c->p, 0);
  if (i) task -= group_tasks(c->p, 0);
  const int64_t groups = i ? r->groups_c : r->groups_b, blocks = blocks_in_group(r, i), group = task / r->chunks;
  const block k = {.c = c, .r = r, .batch = group / groups};
  const span t = chunk_span(r, task % r->chunks);
  for (int64_t n = 0; n < r->states; n += STATES) {
    TILE_OF_REALS sum[COEFFICIENTS + LANES] = {0}, lost[COEFFICIENTS] = {0};
    const span some = states_from(r, n);
    for (int64_t j = group * blocks; j < (group + 1) * blocks; j++)
      kahan_add(sum, lost, memory_of(c, j).group[i] + t.first * r->states + n * t.count, some.count * t.count);
    tile_view v = group_view(&k, GRAD(grouped[i]), group % groups, some, t);
    store_tile(&v, sum, (tile_layout){VL, some.count});
  }
  stream_fence();
}

/* da_log = dA A */
static void times_a(const block *k, span n, real *da) {
  TILE_OF_REALS a[STATES * WIDTH];
  load_a(k, n, a);
  for (int64_t i = 0; i < n.count; i++)
    for (int64_t j = i * WIDTH; j < i * WIDTH + k->lanes; j += VL) v_store(da + j, v_load(da + j) * v_load(a + j));
}

static tile_view sum_view(const block *k, int i, span n) {
  if (has_states(i)) return state_view(k, GRAD(summed[i]), 0, n);
  const int64_t stride = k->r->stride[GRAD(summed[i])].d;
  return (tile_view){k->c, GRAD(summed[i]), k->channel * stride, stride, 0, k->lanes, 1};
}

/* dA, dD, ddelta_bias and constant dB, dC of the channels of one block: over the batches */
static void channel_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const scan_recipe *r = scan(c->p);
  const block k = block_at(c, task);
  const int64_t blocks = plan_blocks(r).per_batch;
  for (int i = 0; i < SUMS; i++)
    for (int64_t n = 0, rows = sum_rows(c->p, i); n < rows; n += STATES) {
      TILE_OF_REALS sum[STATES * WIDTH] = {0}, lost[STATES * WIDTH] = {0};
      const span some = {n, has_states(i) ? min64(STATES, r->states - n) : 1};
      for (int64_t b = 0; b < r->batches; b++)
        kahan_add(sum, lost, memory_of(c, b * blocks + task).sum[i] + n * WIDTH, some.count * WIDTH);
      if (i == SUM_A && c->p->op.u.selective_scan.a_log) times_a(&k, some, sum);
      tile_view v = sum_view(&k, i, some);
      store_tile(&v, sum, as_states);
    }
  stream_fence();
}

#endif
