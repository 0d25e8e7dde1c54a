/* selective_scan on CUDA: the numbers of cuda.cu and of the text that does the work. */
#include "backends/cuda/cuda.h"

#include <string.h>

#include "backends/cuda/text.h"
#include "ops/selective_scan/op.h"

enum { A = AMBI_SCAN_A, B = AMBI_SCAN_B, C = AMBI_SCAN_C, D = AMBI_SCAN_D, DELTA_BIAS = AMBI_SCAN_DELTA_BIAS };
enum { CHUNK_STATE = AMBI_SCAN_CHUNK_STATE };
#define GRAD AMBI_GRAD

extern const char selective_scan_cu[], selective_scan_common_cu[], selective_scan_tiles_cu[];
extern const char selective_scan_coefficients_cu[], selective_scan_ends_cu[], selective_scan_outputs_cu[];
extern const char selective_scan_forward_cu[], selective_scan_ring_cu[];
extern const char selective_scan_tile_back_cu[], selective_scan_before_cu[], selective_scan_backward_cu[];
extern const char selective_scan_parts_cu[];

static bool is_constant(const problem *p, int s) {
  return (s == B && scan(p)->constant_b) || (s == C && scan(p)->constant_c);
}
/* dB or dC is wanted: a sum over time where B or C is constant, over channels where it is not. */
static bool sums_over_time(const problem *p, int s) { return writes_slot(p, GRAD(s)) && is_constant(p, s); }
static bool sums_over_channels(const problem *p, int s) { return writes_slot(p, GRAD(s)) && !is_constant(p, s); }

/* NAME: so many reals of workspace, or none */
static void reals(cuda_plan *k, const char *name, bool wanted, int64_t count) {
  cuda_workspace(k, name, wanted ? (uint64_t)count * real_bytes(k->p) : 0);
}

/* What common.cu wants, but for strides: sizes and options. */
static void say_problem(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  void (*const option)(cuda_plan *, const char *, int64_t) = k->special ? cuda_fix : cuda_number;
  cuda_number(k, "BATCHES", r->batches);
  cuda_number(k, "CHANNELS", r->channels);
  cuda_number(k, "LENGTH", r->length);
  cuda_number(k, "TOGETHER", r->channels_per_group);
  cuda_number(k, "GROUPS_B", r->groups_b);
  cuda_number(k, "GROUPS_C", r->groups_c);
  option(k, "STATES", r->states);
  option(k, "CONSTANT_B", r->constant_b);
  option(k, "CONSTANT_C", r->constant_c);
  option(k, "SOFTPLUS", k->p->op.u.selective_scan.softplus != 0);
  option(k, "ZOH", k->p->op.u.selective_scan.zoh != 0);
  option(k, "A_LOG", k->p->op.u.selective_scan.a_log != 0);
  option(k, "NEEDS_H", r->needs_h);
  option(k, "NEEDS_DH", r->needs_dh);
  cuda_fix(k, "TILED", k->special);
  cuda_part(k, selective_scan_common_cu);
}

/* How the channels of a batch, `each` to a block, are cut: channels of a block share B and C. */
typedef struct {
  int64_t per_set, per_batch, blocks;
} scan_split;

static scan_split count_blocks(const scan_recipe *r, int64_t each) {
  scan_split g = {.per_set = ceil_div(r->channels_per_group, each)};
  g.per_batch = r->channels_per_group ? r->channels / r->channels_per_group * g.per_set : 0;
  g.blocks = r->batches * g.per_batch;
  return g;
}
static scan_split split_channels(cuda_plan *k, int64_t each) {
  const scan_split g = count_blocks(scan(k->p), each);
  cuda_number(k, "PER_SET", g.per_set);
  cuda_number(k, "PER_BATCH", g.per_batch);
  return g;
}

/* ---- cuda.cu: a warp takes up to 32 channels that share B and C ---- */
/* TILES: as cuda.cu counts them, forward and backward */
static void general_workspace(cuda_plan *k, int64_t warps) {
  enum { TILES_AHEAD = 3, TILES_BACK = 8 };
  const scan_recipe *r = scan(k->p);
  const problem *p = k->p;
  const int64_t threads = 32 * warps, states = r->states * threads, parts = warps * r->length * r->states;
  reals(k, "TILES", true, (is_backward(p) ? TILES_BACK : TILES_AHEAD) * SCAN_CHUNK * threads);
  reals(k, "STATE", true, states);
  reals(k, "KEPT", is_backward(p) && r->needs_h && !reads_slot(p, CHUNK_STATE), r->chunks * states);
  reals(k, "PART_B", sums_over_channels(p, B), parts);
  reals(k, "PART_C", sums_over_channels(p, C), parts);
  reals(k, "SUM_A", writes_slot(p, GRAD(A)), 2 * states);
  reals(k, "SUM_B", sums_over_time(p, B), 2 * states);
  reals(k, "SUM_C", sums_over_time(p, C), 2 * states);
  reals(k, "SUM_D", writes_slot(p, GRAD(D)), 2 * threads);
  reals(k, "SUM_BIAS", writes_slot(p, GRAD(DELTA_BIAS)), 2 * threads);
}

static bool wants_sums(const problem *p) {
  const int summed[] = {A, B, C, D, DELTA_BIAS};
  bool sums = false;
  for (int i = 0; i < 5; i++) sums = sums || writes_slot(p, GRAD(summed[i]));
  return sums;
}

/* Sums over the warps of a group, and over the batches */
static void general_sums(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  const problem *p = k->p;
  const int64_t updates = r->batches * r->length * r->states, rows = r->channels * (r->states ? r->states : 1);
  if (sums_over_channels(p, B)) cuda_launch(k, "scan_groups_b", ceil_div(updates * r->groups_b, 256), 1, 256, 1, 0);
  if (sums_over_channels(p, C)) cuda_launch(k, "scan_groups_c", ceil_div(updates * r->groups_c, 256), 1, 256, 1, 0);
  if (wants_sums(p)) cuda_launch(k, "scan_channels", ceil_div(rows, 256), 1, 256, 1, 0);
}

static void plan_general(cuda_plan *k) {
  const problem *p = k->p;
  k->variant = "general";
  const int64_t warps = split_channels(k, 32).blocks;
  cuda_number(k, "ALL_THREADS", 32 * warps);
  general_workspace(k, warps);
  cuda_launch(k, is_backward(p) ? "scan_backward" : "scan_forward", warps, 1, 32, 1, 0);
  if (is_backward(p)) general_sums(k);
}

/* ---- tiles.cu, forward.cu: four states a thread ---- */
enum { ROWS = 32, TILE = 32 }; /* channels and steps of a tile */

/* Slots of (B, D, L), forward and backward, that a problem has: f of each, added up */
static int64_t sum_slots(const problem *p, int64_t (*f)(const problem *, int)) {
  static const int slots[] = {AMBI_SCAN_U, AMBI_SCAN_DELTA, AMBI_SCAN_Z, AMBI_SCAN_Y};
  int64_t sum = 0;
  for (int i = 0; i < 8; i++) {
    const int s = i < 4 ? slots[i] : GRAD(slots[i - 4]);
    if (reads_slot(p, s) || writes_slot(p, s)) sum += f(p, s);
  }
  return sum;
}
static int64_t step_apart(const problem *p, int s) { return scan(p)->stride[s].l != 1 && scan(p)->length != 1; }
static int64_t channel_apart(const problem *p, int s) { return scan(p)->stride[s].d != 1 && scan(p)->channels != 1; }
static int64_t unlike_u(const problem *p, int s) {
  return memcmp(&scan(p)->stride[s], &scan(p)->stride[AMBI_SCAN_U], sizeof(scan_strides)) != 0;
}
static int64_t element_bytes(const problem *p, int s) { return (int64_t)dtype_bytes(p->t[s].dtype); }
static bool steps_dense(const problem *p) { return sum_slots(p, step_apart) == 0; }
static bool channels_dense(const problem *p) { return sum_slots(p, channel_apart) == 0; }

/* Backward: a thread has two channels, and its tile of shared memory is as tile_back.cu declares it. */
enum { OWN_BACK = 2, CHUNK_BACK = 8 };
static int64_t lanes_for(const scan_recipe *r) {
  int64_t lanes = 1;
  while (4 * lanes < r->states) lanes *= 2;
  return lanes;
}
static int64_t skew(int64_t lanes) { return lanes == 4 ? 8 : 4; }
/* GAP: of places between chunks, 4 where there is room; 0 costs bank conflicts */
static int64_t shared_back(const problem *p, int64_t lanes, int64_t gap) {
  const scan_recipe *r = scan(p);
  const int64_t rows = ROWS * OWN_BACK, threads = 32 * lanes, pad = 4 * lanes, chunks = TILE / CHUNK_BACK;
  const int64_t left = lanes > 1 ? 1 : 2; /* steps that a lane finishes together */
  const int64_t at = rows * (chunks * (CHUNK_BACK + gap) + 1) * 16, kept = chunks * OWN_BACK * threads * 16;
  const int64_t varying = !r->constant_b + !r->constant_c; /* of B and C */
  const int64_t coefficients = (varying > 1 ? 2 : 1) * 4 * (TILE * pad + skew(lanes)) * 4;
  const int64_t of_state = 1 + sums_over_time(p, B) + sums_over_time(p, C);
  const int64_t over_time = 2 * (of_state * OWN_BACK * 4 + 2 * left) * threads * 4;
  const int64_t block = 96; /* its place and part of time */
  const int64_t sums = (varying ? lanes : 1) * TILE * 2 * pad * 4 + 2 * rows * 4 + 4 + TILE;
  return at + coefficients + kept + over_time + block + ceil_div(sums, 16) * 16;
}

/* .. and that of scan_ends, as ends.cu does */
static int64_t shared_ends(int64_t lanes, int64_t own, bool back, bool h, bool dh) {
  const int64_t rows = ROWS * own, orders = back ? 4 : 1;
  const int64_t steps = rows * (TILE + 2) * 8 + 2 * rows * 4 + TILE, dp = (dh ? rows : 1) * (TILE + 2) * 4;
  const int64_t coefficients = (h && dh ? 2 : 1) * orders * (TILE * 4 * lanes + (back ? skew(lanes) : 4)) * 4;
  return steps + coefficients + ceil_div(dp, 16) * 16;
}

/* H, DH: which of them scan_ends finds, in one segment if WHOLE, with h after every so many STEPS */
static void say_ends(cuda_plan *k, bool h, bool dh, bool whole, int64_t steps, int64_t shared) {
  cuda_fix(k, "ENDS_OF_H", h);
  cuda_fix(k, "ENDS_OF_DH", dh);
  cuda_fix(k, "ENDS_WHOLE", whole);
  cuda_fix(k, "ENDS_STEPS", steps);
  cuda_fix(k, "ENDS_BYTES", shared);
}

static bool can_tile(const cuda_plan *k) {
  const problem *p = k->p;
  const scan_recipe *r = scan(p);
  const bool some = r->batches > 0 && r->length > 0 && r->states > 0 && r->states <= 64 && r->channels_per_group >= 8;
  if (!some || p->compute != AMBI_F32 || (!steps_dense(p) && !channels_dense(p))) return false;
  if (!is_backward(p)) return true;
  return r->states <= 32 && ceil_div(r->length, TILE) <= 65535 &&
         shared_back(p, lanes_for(r), 0) <= k->dev->shared_bytes;
}

/* Time is cut into parts where channels alone are too few to keep a GPU busy: by the shape, not by the GPU, if that has
 * memory for the ring. Enough are as many warps (backward: twice as many) as the registers of 132 multiprocessors hold.
 */
enum { ENOUGH_AHEAD = 2560, ENOUGH_PAIRS = 1536, ENOUGH_BACK = 2048 };
static int64_t tiles_in_part(const scan_recipe *r, int64_t warps, int64_t enough) {
  enum { LEAST = 4, MOST = 32 }; /* tiles in a part, parts */
  const int64_t tiles = ceil_div(r->length, TILE);
  int64_t parts = enough / (warps > 0 ? warps : 1);
  if (parts > MOST) parts = MOST;
  if (parts < 2) return tiles;
  const int64_t least = ceil_div(tiles, parts);
  const int64_t whole = least > 64 ? 8 : 2; /* chunks of 64 steps; 4 segments of a long part, backward's of 8 tiles */
  const int64_t each = ceil_div(least, whole) * whole;
  return each < LEAST ? LEAST : each;
}

/* .. or into the parts of a chain where channels fill it, but not a whole number of times: as many as are done first on
 * a large GPU, if a part costs half a tile more than its tiles. 0: no chain. */
static int64_t tiles_in_chain(const scan_recipe *r, int64_t blocks) {
  enum { PLACES = 264, LEAST = 2, MOST = 16 }; /* blocks that the GPU holds; tiles in a part, parts */
  const int64_t tiles = ceil_div(r->length, TILE), waves = ceil_div(blocks, PLACES);
  int64_t best = tiles, half_tiles = waves * (2 * tiles + 1);
  if (blocks < PLACES || waves > 2 * MOST) return 0;
  for (int64_t parts = 2; parts <= MOST && parts * LEAST <= tiles; parts++) {
    const int64_t each = ceil_div(ceil_div(tiles, parts), 2) * 2; /* whole chunks of 64 */
    const int64_t takes = ceil_div(blocks * ceil_div(tiles, each), PLACES) * (2 * each + 1);
    if (takes < half_tiles) best = each, half_tiles = takes;
  }
  return best < tiles ? best : 0;
}

/* B and C: steps side by side, or else states */
static bool by_steps(const scan_recipe *r) {
  return (r->constant_b || r->stride[B].l == 1) && (r->constant_c || r->stride[C].l == 1);
}
static bool by_states(const scan_recipe *r, int64_t lanes) {
  return !by_steps(r) && lanes > 1 && (r->constant_b || r->stride[B].n == 1) && (r->constant_c || r->stride[C].n == 1);
}

/* Backward reads a constant B or C once, into registers. So does forward, but there they count: two channels a thread,
 * which even pieces are for, were slower with them (0.27 ms, not 0.25). */
static bool read_once(const problem *p, int s) { return is_backward(p) && is_constant(p, s); }
/* Whether pieces of 8 lie at multiples of 16 bytes, if tensors begin there and B and C are of one dtype */
static bool pieces_even(const problem *p, int64_t lanes) {
  static const int slots[] = {AMBI_SCAN_U, AMBI_SCAN_DELTA, AMBI_SCAN_Z, AMBI_SCAN_Y, B, C};
  const scan_recipe *r = scan(p);
  const bool alike = p->t[B].dtype == p->t[C].dtype || read_once(p, B) || read_once(p, C);
  bool even = reads_slot(p, B) && reads_slot(p, C) && alike;
  even = even && (by_steps(r) || by_states(r, lanes)) && (steps_dense(p) || r->channels_per_group % 8 == 0);
  for (int i = 0; i < 12 && even; i++) {
    const int s = i < 6 ? slots[i] : GRAD(slots[i - 6]);
    const scan_strides *of = &r->stride[s];
    if (!(reads_slot(p, s) || writes_slot(p, s)) || s == GRAD(B) || s == GRAD(C) || read_once(p, s)) continue;
    const int64_t row = s == B || s == C ? (by_steps(r) ? of->n : of->l) : steps_dense(p) ? of->d : of->l;
    even = whole_words(of->b | of->g | row, p->t[s].dtype);
  }
  return even;
}

/* The dtype of both B and C, if it has 16 bits and tiles keep it */
static int64_t half_coefficients(const problem *p, int64_t own) {
  const ambi_dtype t = p->t[B].dtype;
  return own == 1 && (t == AMBI_F16 || t == AMBI_BF16) && p->t[C].dtype == t ? (int64_t)t : 0;
}

/* RING: so many warps take turns in time; 0: none do */
static void say_tiles(cuda_plan *k, int64_t lanes, int64_t own, int64_t ring) {
  cuda_fix(k, "RING_WARPS", ring);
  cuda_fix(k, "LANES_EACH", lanes);
  cuda_fix(k, "CHANNELS_EACH", own);
  cuda_fix(k, "HALF_COEFFICIENTS", half_coefficients(k->p, own));
  cuda_fix(k, "ALIKE", reads_slot(k->p, AMBI_SCAN_U) && sum_slots(k->p, unlike_u) == 0);
  cuda_fix(k, "STREAMS", !ring); /* in the ring it was not tried */
  cuda_fix(k, "CHANNEL_DENSE", !steps_dense(k->p));
  cuda_fix(k, "STEPS_DENSE", by_steps(scan(k->p)));
  cuda_fix(k, "STATES_DENSE", by_states(scan(k->p), lanes));
  cuda_fix(k, "EVEN", pieces_even(k->p, lanes));
  cuda_part(k, selective_scan_tiles_cu);
  cuda_part(k, selective_scan_coefficients_cu);
  cuda_part(k, is_backward(k->p) || !ring ? selective_scan_ends_cu : selective_scan_outputs_cu);
}

/* Channels of a thread: two read B and C once for both, if no more places are empty then and pieces are read whole */
static int64_t own_ahead(const problem *p, int64_t lanes) {
  const int64_t over = scan(p)->channels_per_group % (2 * ROWS);
  return lanes == 4 && pieces_even(p, lanes) && (over == 0 || over > ROWS) ? 2 : 1;
}

/* ring.cu: where channels are too few to keep a GPU busy alone, but its blocks leave no third of it without work */
enum { RING = 16, RING_OWN = 2, RING_LANES = 4, RING_ROWS = 32 / RING_LANES * RING_OWN, RING_TILE = 8 };
static int64_t shared_ring(void) {
  const int64_t steps = 2 * RING_ROWS * (RING_TILE + 4) * 4, coefficients = 2 * (RING_TILE * 4 * RING_LANES + 16) * 4;
  const int64_t rows = 2 * RING_ROWS * 4, lane = 3 * 16 + 32 + 16 + 2 * 16, state = RING_OWN * 32 * 16;
  return RING * (steps + coefficients + rows + 32 * lane + state + 16 + 16) + state;
}
static bool can_ring(const cuda_plan *k, int64_t lanes) {
  enum { PLACES = 132 }; /* a multiprocessor of an H200 each */
  const scan_recipe *r = scan(k->p);
  const int64_t blocks = count_blocks(r, RING_ROWS).blocks;
  const bool varying = !is_constant(k->p, B) && !is_constant(k->p, C); /* with others it was not tried */
  const bool fits = shared_ring() <= k->dev->shared_bytes && r->length < (int64_t)1 << 36;
  return fits && varying && lanes == RING_LANES && pieces_even(k->p, lanes) &&
         3 * blocks >= 2 * PLACES * ceil_div(blocks, PLACES);
}

static void plan_ring(cuda_plan *k) {
  k->variant = "ring";
  say_tiles(k, RING_LANES, RING_OWN, RING);
  cuda_part(k, barriers_cu);
  k->last = selective_scan_ring_cu;
  cuda_fix(k, "SHARED_BYTES", shared_ring());
  cuda_launch(k, "scan_forward", split_channels(k, RING_ROWS).blocks, 1, 32 * RING, 1, shared_ring());
}

static void plan_forward(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  const int64_t lanes = lanes_for(r), own = own_ahead(k->p, lanes), blocks = count_blocks(r, own * ROWS).blocks;
  const int64_t each = tiles_in_part(r, blocks * lanes, own > 1 ? ENOUGH_PAIRS : ENOUGH_AHEAD);
  const int64_t parts = ceil_div(r->length, each * TILE), threads = own * blocks * 32 * lanes;
  const int64_t in_part = each > 64 ? 4 : 1, segments = (parts - 1) * in_part; /* many small blocks find the ends */
  const int64_t shared = shared_ends(lanes, own, false, true, false);
  if (parts > 1 && can_ring(k, lanes)) {
    plan_ring(k);
    return;
  }
  k->variant = parts > 1 ? "tiles, time in parts" : "tiles";
  say_tiles(k, lanes, own, 0);
  cuda_part(k, selective_scan_outputs_cu);
  k->last = selective_scan_forward_cu;
  split_channels(k, own * ROWS);
  cuda_number(k, "PART_TILES", each);
  cuda_number(k, "ENDS_TILES", parts > 1 ? each / in_part : 1);
  say_ends(k, true, false, false, TILE, shared);
  reals(k, "STARTS", parts > 1, 4 * threads);
  reals(k, "ENDS", parts > 1, 4 * segments * threads);
  reals(k, "SPANS", parts > 1, segments * threads / lanes);
  if (parts > 1) cuda_launch(k, "scan_ends", blocks, segments, (int)(32 * lanes), 1, shared);
  cuda_launch(k, "scan_forward", blocks, parts, (int)(32 * lanes), 1, 0);
}

/* Whether blocks keep a large GPU busy to the end, if each runs through time by itself: 8 warps in each place */
static bool fill_evenly(int64_t blocks, int64_t lanes) {
  enum { PLACES = 132 };
  return 10 * blocks >= 9 * PLACES * ceil_div(blocks, PLACES) && 10 * blocks * lanes >= 9 * 8 * PLACES;
}

/* Whether scan_ends is to find the state before each chunk, not only before each tile: that spares backward a tenth of
 * its work, if these states, of EACH threads' channels, take no more memory than the tensors of (B, D, L) do. */
static bool may_find_chunks(const problem *p, int64_t each) {
  const scan_recipe *r = scan(p);
  const int64_t state = 4 * each * (int64_t)real_bytes(p);
  return state <= CHUNK_BACK * r->batches * r->channels * sum_slots(p, element_bytes);
}

/* Before scan_backward: states before tiles or chunks (STARTS, ENDS, SPANS; or, where forward left every other tile's,
 * AHEAD), and dh after each of PARTS parts of time, found here or handed from block to block of a chain */
static void plan_ends(cuda_plan *k, int64_t blocks, int64_t lanes, int64_t part_tiles, bool chained) {
  const scan_recipe *r = scan(k->p);
  const int64_t each = OWN_BACK * blocks * 32 * lanes, tiles = ceil_div(r->length, TILE);
  const int64_t parts = ceil_div(tiles, part_tiles);
  const bool h = r->needs_h && !reads_slot(k->p, CHUNK_STATE), dh = parts > 1 && !chained;
  const bool even = pieces_even(k->p, lanes), whole = h && !dh && even && fill_evenly(blocks, lanes);
  const bool joins = dh || (h && !whole);
  const int64_t segment = whole ? tiles : part_tiles % 8 == 0 || chained ? 8 : 2, segments = ceil_div(tiles, segment);
  const int64_t steps = h && even && may_find_chunks(k->p, each) ? CHUNK_BACK : TILE;
  const int64_t ends = tiles * (TILE / steps) + 1;
  const int64_t shared = shared_ends(lanes, OWN_BACK, true, h, dh);
  say_ends(k, h, dh, whole, steps, shared);
  (whole ? cuda_number : cuda_fix)(k, "ENDS_TILES", segment); /* 8 or 2: divides without dividing */
  cuda_number(k, "CHAINED", chained);
  cuda_workspace(k, "DONE", chained ? (uint64_t)(blocks + 1) * sizeof(int) : 0);
  reals(k, "CROSSING", chained, 4 * each);
  reals(k, "AHEAD", r->needs_h && !h, 4 * parts * (TILE / CHUNK_BACK) * each);
  reals(k, "STARTS", h && !whole, 4 * segments * each);
  reals(k, "ENDS", h, 4 * ends * each);
  reals(k, "SPANS", joins, ends * each / lanes);
  reals(k, "STARTS_BACK", dh, 4 * parts * each);
  reals(k, "ENDS_BACK", dh, 4 * segments * each);
  if (h || dh) cuda_launch(k, "scan_ends", blocks, segments, (int)(32 * lanes), 1, shared);
  if (joins || chained) cuda_launch(k, "scan_fold", blocks, h && dh ? 2 : 1, (int)(32 * lanes), 1, 0);
}

/* Sums over the blocks of a group, and over parts and batches: in one launch, as each alone is over in no time */
static void tile_sums(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  const int64_t neighbours = r->states % 4 ? 1 : 4, updates = r->batches * r->length * r->states / neighbours;
  const int64_t of_b = r->constant_b ? 0 : r->groups_b, of_c = r->constant_c ? 0 : r->groups_c;
  const int64_t groups = of_b > of_c ? of_b : of_c;
  const int64_t rows = r->channels * r->states, most = updates * groups > rows ? updates * groups : rows;
  if (wants_sums(k->p)) cuda_launch(k, "scan_sums", ceil_div(most, 256), 3, 256, 1, 0);
}

static void plan_backward(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  const problem *p = k->p;
  const int64_t lanes = lanes_for(r), gap = shared_back(p, lanes, 4) <= k->dev->shared_bytes ? 4 : 0;
  const int64_t shared = shared_back(p, lanes, gap);
  say_tiles(k, lanes, OWN_BACK, 0);
  cuda_fix(k, "GAP", gap);
  cuda_fix(k, "CHUNK_EACH", CHUNK_BACK);
  cuda_fix(k, "RESTS", r->length % CHUNK_BACK != 0);
  cuda_part(k, selective_scan_tile_back_cu);
  cuda_part(k, selective_scan_before_cu);
  k->last = selective_scan_backward_cu;
  k->more = selective_scan_parts_cu;
  const int64_t blocks = split_channels(k, ROWS * OWN_BACK).blocks, chain = tiles_in_chain(r, blocks);
  const int64_t each = chain ? chain : tiles_in_part(r, OWN_BACK * blocks * lanes, ENOUGH_BACK);
  const int64_t parts = ceil_div(r->length, each * TILE), sums = parts * r->batches * r->channels;
  const int64_t groups = blocks * r->length * r->states;
  k->variant = chain ? "tiles, time in a chain" : parts > 1 ? "tiles, time in parts" : "tiles";
  cuda_number(k, "PART_TILES", each);
  cuda_number(k, "PARTS", parts);
  cuda_fix(k, "SHARED_BYTES", shared);
  reals(k, "PART_B", writes_slot(p, GRAD(B)), r->constant_b ? sums * r->states : groups);
  reals(k, "PART_C", writes_slot(p, GRAD(C)), r->constant_c ? sums * r->states : groups);
  reals(k, "SUM_A", writes_slot(p, GRAD(A)), sums * r->states);
  reals(k, "SUM_D", writes_slot(p, GRAD(D)), sums);
  reals(k, "SUM_BIAS", writes_slot(p, GRAD(DELTA_BIAS)), sums);
  plan_ends(k, blocks, lanes, each, chain > 0);
  cuda_launch(k, "scan_backward", blocks, parts, (int)(32 * lanes), 1, shared);
  tile_sums(k);
}

static ambi_status plan(cuda_plan *k) {
  cuda_specialise(k, can_tile(k));
  cuda_math(k);
  say_problem(k);
  if (k->special && is_backward(k->p))
    plan_backward(k);
  else if (k->special)
    plan_forward(k);
  else
    plan_general(k);
  _Static_assert(sizeof(scan_strides) == 6 * sizeof(int64_t), "one row of the table");
  cuda_table(k, "STRIDE", 6, &scan(k->p)->stride[0].b);
  return AMBI_OK;
}

const cuda_kernel selective_scan_cuda = {selective_scan_cu, plan};
