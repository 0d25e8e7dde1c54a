/* ssd on CUDA: the numbers of its texts. */
#include "backends/cuda/cuda.h"

#include "backends/cuda/text.h"
#include "ops/ssd/op.h"

enum { X = AMBI_SSD_X, DELTA = AMBI_SSD_DELTA, A = AMBI_SSD_A, B = AMBI_SSD_B, C = AMBI_SSD_C, D = AMBI_SSD_D };
enum { DELTA_BIAS = AMBI_SSD_DELTA_BIAS, H0 = AMBI_SSD_H0, Y = AMBI_SSD_Y };
#define GRAD AMBI_GRAD

extern const char ssd_cu[], ssd_tiles_cu[], ssd_backward_cu[];

enum { THREADS = 256 };

/* How the texts compute: steps of a chunk, and side of a tile; elements loaded at once; by tensor cores */
typedef struct {
  int64_t steps, vector;
  bool tensor;
} way;

static int64_t tile_bytes(const problem *p, way y) {
  return y.tensor ? y.steps * y.steps * 2 : y.steps * (y.steps + 1) * (int64_t)real_bytes(p);
}

/* Whether every slot of heads (P) and of groups (N) is dense along its last axis */
static bool is_dense(const problem *p) {
  static const int slots[] = {X, B, C, Y, GRAD(X), GRAD(B), GRAD(C), GRAD(Y)};
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
    const int s = slots[i];
    const ssd_strides *stride = &ssd(p)->stride[s];
    if ((reads_slot(p, s) || writes_slot(p, s)) && stride->p + stride->n != 1) return false;
  }
  return true;
}

/* All factors of products are bf16. Of f16 they could overflow where results do not. */
static bool is_bf16(const problem *p) {
  static const int slots[] = {X, B, C, GRAD(Y)};
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
    if (reads_slot(p, slots[i]) && p->t[slots[i]].dtype != AMBI_BF16) return false;
  return p->compute == AMBI_F32;
}

static way choose_way(cuda_plan *k) {
  const bool tensor = k->dev->arch >= 80 && is_bf16(k->p);
  const way fast = {64, k->p->t[X].dtype == AMBI_F32 ? 4 : 8, tensor}, general = {32, 1, false};
  const bool possible =
      k->p->compute == AMBI_F32 && is_dense(k->p) && 6 * tile_bytes(k->p, fast) <= k->dev->shared_bytes;
  return cuda_specialise(k, possible) ? fast : general;
}

static bool writes_any(const problem *p, uint32_t primals) { return (p->writes >> AMBI_MAX_PRIMALS & primals) != 0; }

/* Gradients that e, all that passes a step, is needed for */
static const uint32_t through_e = AMBI_BIT(DELTA) | AMBI_BIT(A) | AMBI_BIT(DELTA_BIAS);

static void say_problem(cuda_plan *k, way y) {
  const problem *p = k->p;
  const ssd_recipe *r = ssd(p);
  void (*const option)(cuda_plan *, const char *, int64_t) = k->special ? cuda_fix : cuda_number;
  cuda_fix(k, "STEPS", y.steps);
  cuda_fix(k, "LOAD_VEC", y.vector);
  cuda_fix(k, "TENSOR", y.tensor);
  cuda_number(k, "BATCHES", r->batches);
  cuda_number(k, "LENGTH", r->length);
  cuda_number(k, "HEADS", r->heads);
  cuda_number(k, "WIDTH", r->width);
  cuda_number(k, "GROUPS", r->groups);
  cuda_number(k, "STATES", r->states);
  cuda_number(k, "TOGETHER", r->heads_per_group);
  cuda_number(k, "CHUNKS", ceil_div(r->length, y.steps));
  cuda_number(k, "TILES_P", ceil_div(r->width, y.steps));
  cuda_number(k, "TILES_N", ceil_div(r->states, y.steps));
  option(k, "SOFTPLUS", p->op.u.ssd.softplus != 0);
  option(k, "A_LOG", p->op.u.ssd.a_log != 0);
  option(k, "HAS_H0", has_slot(p, H0));
  option(k, "NEEDS_H", r->needs_h);
  option(k, "NEEDS_DH", r->needs_dh);
  option(k, "NEEDS_E", is_backward(p) && writes_any(p, through_e));
  cuda_math(k);
  if (y.tensor) cuda_part(k, tensor_cu);
  cuda_part(k, ssd_tiles_cu);
}

/* NAME: so many elements of states; bf16 where tensor cores read them */
static void states_of(cuda_plan *k, const char *name, way y, int64_t count) {
  cuda_workspace(k, name, (uint64_t)count * (y.tensor ? 2 : real_bytes(k->p)));
}

/* NAME: so many reals of workspace */
static void reals(cuda_plan *k, const char *name, int64_t count) {
  cuda_workspace(k, name, (uint64_t)count * real_bytes(k->p));
}

/* Sizes of the grid: chunks of all heads, tiles of a state, elements of all states */
typedef struct {
  int64_t chunks, all, tiles_p, tiles_n, states;
} extent;

static extent extent_of(const problem *p, way y) {
  const ssd_recipe *r = ssd(p);
  const int64_t chunks = ceil_div(r->length, y.steps), heads = r->batches * r->heads;
  return (extent){chunks, heads * chunks, ceil_div(r->width, y.steps), ceil_div(r->states, y.steps),
                  heads * r->width * r->states};
}

/* Elements of a state that a thread takes through the scan */
static int64_t scan_vector(const cuda_plan *k, way y) {
  const int64_t vector = y.tensor ? 8 : 4;
  return k->special && ssd(k->p)->states % vector == 0 ? vector : 1;
}

static void plan_states(cuda_plan *k, way y, extent e, const char *states, const char *scan) {
  const int64_t tile = tile_bytes(k->p, y);
  cuda_launch(k, states, e.states ? e.all : 0, e.tiles_p, THREADS, 1, 2 * tile);
  cuda_launch(k, scan, ceil_div(e.states, THREADS * scan_vector(k, y)), 1, THREADS, 1, 0);
}

static void plan_forward(cuda_plan *k, way y, extent e) {
  plan_states(k, y, e, "ssd_states", "ssd_scan");
  cuda_launch(k, "ssd_forward", e.all, e.tiles_p, THREADS, 1, 3 * tile_bytes(k->p, y));
}

/* The heads of a group are cut into parts where chunks and groups alone are few: by the shape. */
static int64_t head_parts(const ssd_recipe *r, extent e) {
  enum { ENOUGH = 1024 };
  const int64_t blocks = r->batches * r->groups * e.chunks, parts = blocks ? ENOUGH / blocks : 1;
  return parts < 1 ? 1 : parts < r->heads_per_group ? parts : r->heads_per_group ? r->heads_per_group : 1;
}

static void plan_backward(cuda_plan *k, way y, extent e) {
  const problem *p = k->p;
  const ssd_recipe *r = ssd(p);
  const int64_t tile = tile_bytes(p, y), groups = r->batches * r->groups * e.chunks, parts = head_parts(r, e);
  const bool grouped = writes_any(p, through_e | AMBI_BIT(B) | AMBI_BIT(C));
  const bool headed = writes_any(p, through_e | AMBI_BIT(X) | AMBI_BIT(D));
  cuda_number(k, "HEAD_PARTS", parts);
  states_of(k, "DSTATE", y, r->needs_dh ? e.states * e.chunks : 0);
  reals(k, "PASSED", grouped ? e.all * y.steps : 0);
  reals(k, "G_PARTS", grouped ? groups * parts * y.steps * y.steps : 0);
  reals(k, "GIVENS", grouped ? e.tiles_n * e.all * 2 * y.steps : 0);
  reals(k, "GIVENS_ALL", grouped ? e.tiles_n * e.all : 0);
  reals(k, "CHUNK_SUMS", e.all * 3);
  if (r->needs_h) plan_states(k, y, e, "ssd_states", "ssd_scan");
  if (r->needs_dh) plan_states(k, y, e, "ssd_states_back", "ssd_scan_back");
  if (grouped) cuda_launch(k, "ssd_within", groups, parts, THREADS, 1, 2 * tile);
  if (grouped) cuda_launch(k, "ssd_groups", groups, e.tiles_n, THREADS, 1, 6 * tile);
  if (headed) cuda_launch(k, "ssd_backward", e.all, 1, THREADS, 1, 3 * tile);
  if (headed) cuda_launch(k, "ssd_heads", r->heads, 1, 32, 1, 0);
}

static ambi_status plan(cuda_plan *k) {
  const problem *p = k->p;
  const way y = choose_way(k);
  const extent e = extent_of(p, y);
  k->variant = y.tensor ? "tensor cores" : k->special ? "tiles" : "general";
  say_problem(k, y);
  states_of(k, "STATE", y, !is_backward(p) || ssd(p)->needs_h ? e.states * e.chunks : 0);
  reals(k, "ENDS", 2 * y.steps * e.all);
  reals(k, "KEEPS", 2 * e.all);
  cuda_fix(k, "SCAN_VEC", scan_vector(k, y));
  if (e.states) cuda_launch(k, "ssd_ends", e.all, 1, (int)y.steps, 1, 0);
  if (is_backward(p)) k->last = ssd_backward_cu;
  if (is_backward(p))
    plan_backward(k, y, e);
  else
    plan_forward(k, y, e);
  _Static_assert(sizeof(ssd_strides) == 6 * sizeof(int64_t), "one row of the table");
  cuda_table(k, "STRIDE", 6, &ssd(p)->stride[0].b);
  return AMBI_OK;
}

const cuda_kernel ssd_cuda = {ssd_cu, plan};
