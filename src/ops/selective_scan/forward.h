/* forward.h -- a block through one chunk, and through all of them. */
#ifndef AMBI_SCAN_FORWARD_H
#define AMBI_SCAN_FORWARD_H
#include "ops/selective_scan/block.h"

static span chunk_span(const scan_recipe *r, int64_t chunk) {
  return (span){chunk * STEPS, min64(STEPS, r->length - chunk * STEPS)};
}
static span states_from(const scan_recipe *r, int64_t n) { return (span){n, min64(STATES, r->states - n)}; }

static scan_kind kind_of(const block *k) {
  return (scan_kind){k->c->p->op.u.selective_scan.zoh != 0, k->r->constant_b, k->r->constant_c};
}

/* d = softplus(delta + delta_bias) of one chunk */
static void load_d(const block *k, span t, real *d) {
  TILE_OF_REALS bias[WIDTH];
  load_channels(k, DELTA, t, d);
  load_per_channel(k, DELTA_BIAS, bias);
  bool softplus = k->c->p->op.u.selective_scan.softplus;
  for (int64_t v = 0; v < vectors(k); v++)
    for (int64_t i = v * STEPS * VL; i < (v * STEPS + t.count) * VL; i += VL) {
      vr x = v_load(d + i) + v_load(bias + v * VL);
      v_store(d + i, softplus ? m_softplus(x) : x);
    }
}

/* d u (may lie on u) and p = D u */
static void multiply_u(const block *k, span t, const real *d, const real *u, real *du, real *p) {
  TILE_OF_REALS skip[WIDTH];
  load_per_channel(k, D, skip);
  for (int64_t v = 0; v < vectors(k); v++)
    for (int64_t i = v * STEPS * VL; i < (v * STEPS + t.count) * VL; i += VL) {
      const vr x = v_load(u + i);
      v_store(du + i, v_load(d + i) * x);
      v_store(p + i, v_load(skip + v * VL) * x);
    }
}

/* What `chunk` will write, and what `next` will read; -1: nothing */
static lookahead look_ahead_to(const block *k, int64_t chunk, int64_t next) {
  static const int outputs[] = {Y, GRAD(U), GRAD(DELTA), GRAD(Z)}, inputs[] = {U, DELTA, Z, GRAD(Y)};
  lookahead a = {.calls = max64(vectors(k) * ceil_div(k->r->states, SOME), 1)};
  for (int i = 0; i < 4 && chunk >= 0; i++)
    if (writes_slot(k->c->p, outputs[i])) look_ahead_at(&a, channel_view(k, outputs[i], chunk_span(k->r, chunk)));
  for (int i = 0; i < 4 && next >= 0 && next < k->r->chunks; i++)
    look_ahead_at(&a, channel_view(k, inputs[i], chunk_span(k->r, next)));
  return a;
}

static void clear_some(real *h) {
  for (int j = 0; j < SOME; j++) v_store(h + j * WIDTH, (vr){0});
}

/* ---- forward ---- */
static void forward_runs(const scan_tiles *x, scan_kind kind, bool output, const run_list *runs) {
  for (int64_t i = 0; i < runs->count; i++) {
    int64_t t = runs->start[i], end = runs->start[i + 1];
    if (i || runs->fresh) clear_some(x->h);
    if (!is_plain(kind))
      forward_steps(x, kind, output, t, end);
    else if (output)
      forward_steps(x, plain, true, t, end);
    else
      forward_steps(x, plain, false, t, end);
  }
}

/* The states h through one chunk; p += sum_n C h, unless p is NULL */
static void forward_states(const block *k, span t, const real *d, const real *du, real *h, real *p, lookahead *next) {
  TILE_OF_REALS a[STATES * WIDTH], b[COEFFICIENTS], c[COEFFICIENTS];
  const scan_kind kind = kind_of(k);
  const run_list runs = find_runs(k, t);
  for (int64_t n = 0; n < k->r->states; n += STATES) {
    const span some = states_from(k->r, n);
    load_a(k, some, a);
    load_coefficients(k, B, kind.constant_b, some, t, b);
    if (p) load_coefficients(k, C, kind.constant_c, some, t, c);
    for (int64_t v = 0; v < vectors(k); v++)
      for (int64_t j = 0; j < some.count; j += SOME) {
        const int64_t at = v * STEPS * VL, state = j * WIDTH + v * VL;
        const scan_tiles x = {.d = d + at,
                              .du = du + at,
                              .a = a + state,
                              .b = b + (kind.constant_b ? state : j),
                              .c = c + (kind.constant_c ? state : j),
                              .h = h + n * WIDTH + state,
                              .p = p ? p + at : NULL};
        forward_runs(&x, kind, p != NULL, &runs);
        look_ahead(next);
      }
  }
}

/* y = p silu(z) */
static void gate_output(const block *k, span t, real *p) {
  if (!reads_slot(k->c->p, Z)) return;
  TILE_OF_REALS z[STEPS * WIDTH];
  load_channels(k, Z, t, z);
  for (int64_t v = 0; v < vectors(k); v++)
    for (int64_t i = v * STEPS * VL; i < (v * STEPS + t.count) * VL; i += VL)
      v_store(p + i, v_load(p + i) * silu(v_load(z + i)));
}

static void forward_chunk(const block *k, int64_t chunk, real *h) {
  TILE_OF_REALS d[STEPS * WIDTH], du[STEPS * WIDTH], p[STEPS * WIDTH];
  const span t = chunk_span(k->r, chunk);
  lookahead next = look_ahead_to(k, chunk, chunk + 1);
  store_state(k, CHUNK_STATE, chunk, h);
  load_d(k, t, d);
  load_channels(k, U, t, du);
  multiply_u(k, t, d, du, du, p);
  forward_states(k, t, d, du, h, p, &next);
  gate_output(k, t, p);
  store_channels(k, Y, t, p);
}

static void forward_block(const block *k) {
  real *h = k->memory; /* (N, WIDTH) */
  load_state(k, H0, 0, h);
  for (int64_t chunk = 0; chunk < k->r->chunks; chunk++) forward_chunk(k, chunk, h);
  store_state(k, H_LAST, 0, h);
}

#endif
