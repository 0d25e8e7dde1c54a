/* block.h -- a block: up to WIDTH channels of one batch that share B and C. It is what a task works on. */
#ifndef AMBI_SCAN_BLOCK_H
#define AMBI_SCAN_BLOCK_H
#include "ops/selective_scan/steps.h"

/* ---- how the channels are cut into blocks: by the shape alone ---- */
typedef struct {
  int64_t width, per_set, per_batch, count; /* channels in a block; blocks in a set of channels of one group, .. */
} block_plan;

static block_plan plan_blocks(const scan_recipe *r) {
  enum { ENOUGH = 8, NARROW = 32 }; /* blocks to share between threads; the width of a block when they are fewer */
  const int64_t sets = r->channels_per_group ? r->channels / r->channels_per_group : 0;
  const bool few = r->batches * sets * ceil_div(r->channels_per_group, WIDTH) < ENOUGH;
  const int64_t width = few ? NARROW : WIDTH, per_set = ceil_div(r->channels_per_group, width);
  return (block_plan){width, per_set, sets * per_set, r->batches * sets * per_set};
}

typedef struct {
  const cpu_call *c;
  const scan_recipe *r;
  int64_t batch, channel, lanes; /* its first channel, and how many */
  real *memory;                  /* its part of the workspace       */
} block;

static uint64_t block_bytes(const problem *p); /* of workspace */
static real *block_memory(const cpu_call *c, int64_t index) {
  return (real *)(void *)(c->workspace + index * (int64_t)block_bytes(c->p));
}

/* Blocks are numbered in the order of their channels, batch after batch. */
static block block_at(const cpu_call *c, int64_t index) {
  const scan_recipe *r = scan(c->p);
  const block_plan plan = plan_blocks(r);
  const int64_t per_batch = max64(plan.per_batch, 1), per_set = max64(plan.per_set, 1); /* as there is a block */
  const int64_t in_batch = index % per_batch, first = in_batch % per_set * plan.width;
  return (block){.c = c,
                 .r = r,
                 .batch = index / per_batch,
                 .channel = in_batch / per_set * r->channels_per_group + first,
                 .lanes = min64(plan.width, r->channels_per_group - first),
                 .memory = block_memory(c, index)};
}

static int64_t vectors(const block *k) { return ceil_div(k->lanes, VL); }
static int64_t padded_states(const scan_recipe *r) { return ceil_div(r->states, SOME) * SOME; }

/* ---- tiles of a block ---- */
static const tile_layout as_channels = {STEPS * VL, VL}, as_states = {VL, WIDTH}, as_group = {VL, STATES};

/* A span of steps, or of states, is [first, first + count). */
typedef struct {
  int64_t first, count;
} span;

/* (b, d.., t..) of u, delta, z, y: lanes are channels, rows steps */
static tile_view channel_view(const block *k, int slot, span t) {
  const scan_strides *s = &k->r->stride[slot];
  return (tile_view){k->c, slot, k->batch * s->b + k->channel * s->d + t.first * s->l, s->d, s->l, k->lanes, t.count};
}

/* (b, chunk, d.., n..) of a, h0, h_last, chunk_state, constant b and c: lanes are channels, rows states */
static tile_view state_view(const block *k, int slot, int64_t chunk, span n) {
  const scan_strides *s = &k->r->stride[slot];
  const int64_t offset = k->batch * s->b + chunk * s->s + k->channel * s->d + n.first * s->n;
  return (tile_view){k->c, slot, offset, s->d, s->n, k->lanes, n.count};
}

/* The group of B, or of C, that a block is in */
static int64_t group_of(const block *k, int slot) {
  return k->channel / (k->r->channels / (slot == B ? k->r->groups_b : k->r->groups_c));
}

/* (b, g, n.., t..) of b and c and their gradients: lanes are states, rows steps */
static tile_view group_view(const block *k, int slot, int64_t group, span n, span t) {
  const scan_strides *s = &k->r->stride[slot];
  const int64_t offset = k->batch * s->b + group * s->g + n.first * s->n + t.first * s->l;
  return (tile_view){k->c, slot, offset, s->n, s->l, n.count, t.count};
}

static void load_channels(const block *k, int slot, span t, real *tile) {
  tile_view v = channel_view(k, slot, t);
  load_tile(&v, tile, as_channels);
}

static void store_channels(const block *k, int slot, span t, const real *tile) {
  tile_view v = channel_view(k, slot, t);
  store_tile(&v, tile, as_channels);
}

/* d or delta_bias: one value a channel, (WIDTH) */
static void load_per_channel(const block *k, int slot, real *row) {
  tile_view v = {k->c, slot, k->channel * k->r->stride[slot].d, k->r->stride[slot].d, 0, k->lanes, 1};
  load_tile(&v, row, as_states);
}

/* All states at once, (N, WIDTH), STATES at a time */
static void load_state(const block *k, int slot, int64_t chunk, real *h) {
  for (int64_t n = 0; n < k->r->states; n += STATES) {
    tile_view v = state_view(k, slot, chunk, (span){n, min64(STATES, k->r->states - n)});
    load_tile(&v, h + n * WIDTH, as_states);
  }
  for (int64_t n = k->r->states; n < padded_states(k->r); n++) memset(h + n * WIDTH, 0, WIDTH * sizeof(real));
}

static void store_state(const block *k, int slot, int64_t chunk, const real *h) {
  for (int64_t n = 0; n < k->r->states; n += STATES) {
    tile_view v = state_view(k, slot, chunk, (span){n, min64(STATES, k->r->states - n)});
    store_tile(&v, h + n * WIDTH, as_states);
  }
}

/* A of some states, (STATES, WIDTH); states that pad the last group of SOME do nothing: A = 0 */
static void load_a(const block *k, span n, real *a) {
  tile_view v = state_view(k, A, 0, n);
  load_tile(&v, a, as_states);
  for (int64_t i = 0; k->c->p->op.u.selective_scan.a_log && i < n.count; i++)
    for (int64_t j = 0; j < k->lanes; j += VL) v_store(a + i * WIDTH + j, -m_exp(v_load(a + i * WIDTH + j)));
  for (int64_t i = n.count; i % SOME; i++) memset(a + i * WIDTH, 0, WIDTH * sizeof(real));
}

/* B or C: (STEPS, STATES) shared by the channels, or (STATES, WIDTH) constant in time; padding states are 0 */
static void load_coefficients(const block *k, int slot, bool constant, span n, span t, real *tile) {
  tile_view v = constant ? state_view(k, slot, 0, n) : group_view(k, slot, group_of(k, slot), n, t);
  if (n.count % SOME) memset(tile, 0, COEFFICIENTS * sizeof(real));
  load_tile(&v, tile, constant ? as_states : as_group);
}

/* ---- runs: steps between two resets of the state ---- */
typedef struct {
  int64_t count, start[STEPS + 1]; /* run i is [start[i], start[i + 1]), from the chunk's first step */
  bool fresh;                      /* run 0 starts from zero too, as all others do                   */
} run_list;

static run_list find_runs(const block *k, span t) {
  run_list runs = {.count = 1, .start = {0}};
  const scan_strides *s = &k->r->stride[SEQ_IDX];
  if (reads_slot(k->c->p, SEQ_IDX)) {
    const int32_t *id = (const int32_t *)(void *)k->c->at[SEQ_IDX] + k->batch * s->b + t.first * s->l;
    runs.fresh = t.first > 0 && id[0] != id[-s->l];
    for (int64_t i = 1; i < t.count; i++)
      if (id[i * s->l] != id[(i - 1) * s->l]) runs.start[runs.count++] = i;
  }
  runs.start[runs.count] = t.count;
  return runs;
}

#endif
