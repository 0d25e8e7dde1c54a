/* block.h -- a block: up to WIDTH channels of one group of one batch. It is what a task works on, chunk after chunk.
 * Included by cpu.c only.                                                                                         */

/* ---- how the channels are cut into blocks: by the shape alone ---------------------------------------------- */
typedef struct {
  int64_t width, per_group, count; /* channels in a block, blocks in a group, blocks in all */
} block_plan;

static block_plan plan_blocks(const scan_recipe *r) {
  enum { ENOUGH = 16 }; /* blocks to share between threads */
  int64_t channels = r->groups ? r->channels / r->groups : 0, sets = r->batches * r->groups;
  int64_t width = sets * ceil_div(channels, WIDTH) < ENOUGH ? WIDTH / 2 : WIDTH, per_group = ceil_div(channels, width);
  return (block_plan){width, per_group, sets * per_group};
}

typedef struct {
  const cpu_call *c;
  const scan_recipe *r;
  int64_t batch, group, channel, lanes; /* its first channel, and how many */
  real *memory;                         /* its part of the workspace       */
} block;

static block block_at(const cpu_call *c, int64_t index, uint64_t bytes) {
  const scan_recipe *r = scan(c->p);
  const block_plan plan = plan_blocks(r);
  const int64_t of_group = r->channels / r->groups, set = index / plan.per_group, group = set % r->groups;
  const int64_t first = index % plan.per_group * plan.width;
  return (block){.c = c,
                 .r = r,
                 .batch = set / r->groups,
                 .group = group,
                 .channel = group * of_group + first,
                 .lanes = min64(plan.width, of_group - first),
                 .memory = (real *)(void *)(c->workspace + index * (int64_t)bytes)};
}

/* Blocks are short when the sequence is: a task takes enough of them to be worth waking a thread for. */
static int64_t blocks_per_task(const problem *p) {
  enum { UPDATES = 1 << 15 };
  const scan_recipe *r = scan(p);
  int64_t updates = plan_blocks(r).width * max64(r->length, 1) * max64(r->states, 1); /* cannot overflow: see recipe */
  return ceil_div(UPDATES, updates);
}

static int64_t vectors(const block *k) { return ceil_div(k->lanes, VL); }
static int64_t padded_states(const scan_recipe *r) { return ceil_div(r->states, SOME) * SOME; }

/* ---- tiles of a block ---------------------------------------------------------------------------------------- */
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
  return (tile_view){k->c,  slot,     k->batch * s->b + chunk * s->s + k->channel * s->d + n.first * s->n, s->d, s->n,
                     k->lanes, n.count};
}

/* (b, g, n.., t..) of b and c: lanes are states, rows steps */
static tile_view group_view(const block *k, int slot, span n, span t) {
  const scan_strides *s = &k->r->stride[slot];
  return (tile_view){k->c,  slot,    k->batch * s->b + k->group * s->g + n.first * s->n + t.first * s->l, s->n, s->l,
                     n.count, t.count};
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
  tile_view v = state_view(k, AMBI_SCAN_A, 0, n);
  load_tile(&v, a, as_states);
  for (int64_t i = 0; k->c->p->op.u.selective_scan.a_log && i < n.count; i++)
    for (int64_t j = 0; j < k->lanes; j += VL) v_store(a + i * WIDTH + j, -m_exp(v_load(a + i * WIDTH + j)));
  for (int64_t i = n.count; i % SOME; i++) memset(a + i * WIDTH, 0, WIDTH * sizeof(real));
}

/* B or C: (STEPS, STATES) shared by the channels, or (STATES, WIDTH) constant in time; padding states are 0 */
static void load_coefficients(const block *k, int slot, bool constant, span n, span t, real *tile) {
  tile_view v = constant ? state_view(k, slot, 0, n) : group_view(k, slot, n, t);
  if (n.count % SOME) memset(tile, 0, COEFFICIENTS * sizeof(real));
  load_tile(&v, tile, constant ? as_states : as_group);
}

/* ---- runs: steps between two resets of the state --------------------------------------------------------------- */
typedef struct {
  int64_t count, start[STEPS + 1]; /* run i is [start[i], start[i + 1]), from the chunk's first step */
  bool fresh;                      /* run 0 starts from zero too, as all others do                   */
} run_list;

static run_list find_runs(const block *k, span t) {
  enum { SEQ_IDX = AMBI_SCAN_SEQ_IDX };
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
