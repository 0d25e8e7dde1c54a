/* selective_scan on the CPU. A lane is a channel, so that no sum of the recurrence crosses lanes.
 *
 * A task takes a block of channels (block.h) through time, a chunk of STEPS steps at a time: the chunk's part of every
 * tensor becomes a tile of reals (tiles.h), and the recurrence runs over it (steps.h), a few states at a time, with the
 * state in registers. What the states share, d and d u, is computed once a chunk.
 *
 * Backward first runs forward to find the state before each chunk (unless forward saved them), then takes the chunks
 * from the last to the first: the states of the chunk again, then the gradients in reverse. Sums over channels and over
 * batches are left in the workspace, block by block, and added up in order at the end.                            */
#include "backends/cpu/simd.h"
#define LOG2_E 1.4426950408889634
enum {
  STEPS = 64,                     /* of a chunk                                       */
  WIDTH = 256 / (AMBI_REAL / 8),  /* most channels in a block                         */
  STATES = 16,                    /* whose A, B and C are loaded at a time            */
  SOME = 4,                       /* states in registers                              */
  COEFFICIENTS = STEPS * STATES,  /* in a tile of B or C, constant or not             */
  VECTOR = VBYTES * 8 / AMBI_REAL,
  RECORD = (4 * SOME + 1) * VECTOR, /* what backward keeps of a step; odd, as stores 4096 bytes apart hold up loads */
  MOST_ROWS = STEPS               /* of a tile                                        */
};
#include "ops/selective_scan/tiles.h"
#include "ops/selective_scan/steps.h"
#include "ops/selective_scan/block.h"

enum { U = AMBI_SCAN_U, DELTA = AMBI_SCAN_DELTA, A = AMBI_SCAN_A, B = AMBI_SCAN_B, C = AMBI_SCAN_C, D = AMBI_SCAN_D };
enum { Z = AMBI_SCAN_Z, DELTA_BIAS = AMBI_SCAN_DELTA_BIAS, H0 = AMBI_SCAN_H0 };
enum { Y = AMBI_SCAN_Y, H_LAST = AMBI_SCAN_H_LAST, CHUNK_STATE = AMBI_SCAN_CHUNK_STATE };
#define GRAD AMBI_GRAD

_Static_assert((int)STEPS == (int)SCAN_CHUNK && STEPS % LANES == 0 && WIDTH / 2 % LANES == 0, "whole vectors");
_Static_assert(COEFFICIENTS >= STATES * WIDTH && STATES % SOME == 0 && STEPS <= (int)TILE && WIDTH <= (int)TILE, "tiles");

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

/* What this chunk will write, and what the next one will read */
static lookahead look_ahead_to(const block *k, int64_t chunk, int64_t next) {
  static const int outputs[] = {Y, GRAD(U), GRAD(DELTA), GRAD(Z)}, inputs[] = {U, DELTA, Z, GRAD(Y)};
  lookahead a = {.calls = max64(vectors(k) * ceil_div(k->r->states, SOME), 1)};
  for (int i = 0; i < 4; i++)
    if (writes_slot(k->c->p, outputs[i])) look_ahead_at(&a, channel_view(k, outputs[i], chunk_span(k->r, chunk)));
  for (int i = 0; i < 4 && next >= 0 && next < k->r->chunks; i++)
    look_ahead_at(&a, channel_view(k, inputs[i], chunk_span(k->r, next)));
  return a;
}

static void clear_some(real *h) {
  for (int j = 0; j < SOME; j++) v_store(h + j * WIDTH, (vr){0});
}

/* ---- forward ------------------------------------------------------------------------------------------ */
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
  const int64_t b_state = kind.constant_b ? WIDTH : 1, c_state = kind.constant_c ? WIDTH : 1;
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
                              .b = b + j * b_state + (kind.constant_b ? v * VL : 0),
                              .c = c + j * c_state + (kind.constant_c ? v * VL : 0),
                              .h = h + n * WIDTH + state,
                              .p = p + at};
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

static uint64_t block_bytes(const problem *p);

static void forward_block(const cpu_call *c, int64_t index) {
  const block k = block_at(c, index, block_bytes(c->p));
  real *h = k.memory; /* (N, WIDTH) */
  load_state(&k, H0, 0, h);
  for (int64_t chunk = 0; chunk < k.r->chunks; chunk++) forward_chunk(&k, chunk, h);
  store_state(&k, H_LAST, 0, h);
}

static void forward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const int64_t each = blocks_per_task(c->p), end = min64((task + 1) * each, plan_blocks(scan(c->p)).count);
  for (int64_t i = task * each; i < end; i++) forward_block(c, i);
  stream_fence();
}

static void forward(const cpu_call *c) {
  pool_run(c->threads, ceil_div(plan_blocks(scan(c->p)).count, blocks_per_task(c->p)), forward_task, (void *)c);
}

/* ---- backward ----------------------------------------------------------------------------------------- */
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

#include "ops/selective_scan/backward.h"

static void backward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const int64_t each = blocks_per_task(c->p), end = min64((task + 1) * each, plan_blocks(scan(c->p)).count);
  for (int64_t i = task * each; i < end; i++) backward_block(c, i);
  stream_fence();
}

static void backward(const cpu_call *c) {
  const scan_recipe *r = scan(c->p);
  const block_plan plan = plan_blocks(r);
  bool sums = false;
  for (int i = 0; i < SUMS; i++) sums |= sum_rows(c->p, i) != 0;
  pool_run(c->threads, ceil_div(plan.count, blocks_per_task(c->p)), backward_task, (void *)c);
  if (is_shared(c->p, 0) || is_shared(c->p, 1))
    pool_run(c->threads, r->batches * r->groups * r->chunks, group_task, (void *)c);
  if (sums) pool_run(c->threads, r->groups * plan.per_group, channel_task, (void *)c);
}

static uint64_t block_bytes(const problem *p) {
  back_memory m;
  int64_t reals = is_backward(p) ? lay_out(p, &m, NULL) : padded_states(scan(p)) * WIDTH;
  return (uint64_t)reals * sizeof(real);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return (uint64_t)plan_blocks(scan(p)).count * block_bytes(p);
}

const cpu_kernel CPU_KERNEL(selective_scan) = {"chunks", workspace, forward, backward};
