/* selective_scan on CUDA: the numbers of cuda.cu and of the text that does the work. */
#include "backends/cuda/cuda.h"

#include "ops/selective_scan/op.h"

enum { A = AMBI_SCAN_A, B = AMBI_SCAN_B, C = AMBI_SCAN_C, D = AMBI_SCAN_D, DELTA_BIAS = AMBI_SCAN_DELTA_BIAS };
enum { CHUNK_STATE = AMBI_SCAN_CHUNK_STATE };
#define GRAD AMBI_GRAD

extern const char selective_scan_cu[], selective_scan_general_cu[];

static uint64_t real_bytes(const problem *p) { return p->compute == AMBI_F64 ? 8 : 4; }

/* NAME: so many reals of workspace, or none */
static void reals(cuda_plan *k, const char *name, bool wanted, int64_t count) {
  cuda_workspace(k, name, wanted ? (uint64_t)count * real_bytes(k->p) : 0);
}

/* What cuda.cu wants: sizes, options, and the stride of every slot along every axis. */
static void say_problem(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  void (*const option)(cuda_plan *, const char *, int64_t) = k->special ? cuda_fix : cuda_number;
  static const struct {
    const char *name;
    size_t at;
  } axes[] = {{"BATCH", offsetof(scan_strides, b)}, {"CHUNK", offsetof(scan_strides, s)},
              {"GROUP", offsetof(scan_strides, g)}, {"CHANNEL", offsetof(scan_strides, d)},
              {"STATE", offsetof(scan_strides, n)}, {"STEP", offsetof(scan_strides, l)}};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
    int64_t stride[AMBI_SLOTS];
    for (int s = 0; s < AMBI_SLOTS; s++)
      stride[s] = *(const int64_t *)(const void *)((const char *)&r->stride[s] + axes[i].at);
    cuda_strides(k, axes[i].name, stride);
  }
  cuda_number(k, "BATCHES", r->batches);
  cuda_number(k, "CHANNELS", r->channels);
  cuda_number(k, "LENGTH", r->length);
  option(k, "STATES", r->states);
  option(k, "GROUPS_B", r->groups_b);
  option(k, "GROUPS_C", r->groups_c);
  option(k, "CONSTANT_B", r->constant_b);
  option(k, "CONSTANT_C", r->constant_c);
  option(k, "SOFTPLUS", k->p->op.u.selective_scan.softplus != 0);
  option(k, "ZOH", k->p->op.u.selective_scan.zoh != 0);
  option(k, "A_LOG", k->p->op.u.selective_scan.a_log != 0);
  option(k, "NEEDS_H", r->needs_h);
  option(k, "NEEDS_DH", r->needs_dh);
}

/* ---- general.cu: a warp takes up to 32 channels that share B and C
 * --------------------------------------------------- */
typedef struct {
  int64_t per_set, per_batch, warps, threads;
} general_split;

static general_split split_channels(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  general_split g = {.per_set = ceil_div(r->together, 32)};
  g.per_batch = r->together ? r->channels / r->together * g.per_set : 0;
  g.warps = r->batches * g.per_batch;
  g.threads = g.warps * 32;
  cuda_number(k, "TOGETHER", r->together);
  cuda_number(k, "PER_SET", g.per_set);
  cuda_number(k, "PER_BATCH", g.per_batch);
  cuda_number(k, "ALL_THREADS", g.threads);
  return g;
}

/* TILES: as general.cu counts them, forward and backward */
static void general_workspace(cuda_plan *k, const general_split *g) {
  enum { TILES_AHEAD = 3, TILES_BACK = 8 };
  const scan_recipe *r = scan(k->p);
  const problem *p = k->p;
  const bool db = writes_slot(p, GRAD(B)), dc = writes_slot(p, GRAD(C));
  const int64_t states = r->states * g->threads, parts = g->warps * r->length * r->states;
  reals(k, "TILES", true, (is_backward(p) ? TILES_BACK : TILES_AHEAD) * SCAN_CHUNK * g->threads);
  reals(k, "STATE", true, states);
  reals(k, "KEPT", is_backward(p) && r->needs_h && !reads_slot(p, CHUNK_STATE), r->chunks * states);
  reals(k, "PART_B", db && !r->constant_b, parts);
  reals(k, "PART_C", dc && !r->constant_c, parts);
  reals(k, "SUM_A", writes_slot(p, GRAD(A)), 2 * states);
  reals(k, "SUM_B", db && r->constant_b, 2 * states);
  reals(k, "SUM_C", dc && r->constant_c, 2 * states);
  reals(k, "SUM_D", writes_slot(p, GRAD(D)), 2 * g->threads);
  reals(k, "SUM_BIAS", writes_slot(p, GRAD(DELTA_BIAS)), 2 * g->threads);
}

static void plan_general(cuda_plan *k) {
  const scan_recipe *r = scan(k->p);
  const problem *p = k->p;
  k->variant = "general";
  k->last = selective_scan_general_cu;
  general_split g = split_channels(k);
  general_workspace(k, &g);
  cuda_launch(k, is_backward(p) ? "scan_backward" : "scan_forward", g.warps, 1, 32, 1, 0);
  if (!is_backward(p)) return;
  const int64_t updates = r->batches * r->length * r->states, rows = r->channels * (r->states ? r->states : 1);
  if (writes_slot(p, GRAD(B)) && !r->constant_b)
    cuda_launch(k, "scan_groups_b", ceil_div(updates * r->groups_b, 256), 1, 256, 1, 0);
  if (writes_slot(p, GRAD(C)) && !r->constant_c)
    cuda_launch(k, "scan_groups_c", ceil_div(updates * r->groups_c, 256), 1, 256, 1, 0);
  const int summed[] = {A, B, C, D, DELTA_BIAS};
  bool sums = false;
  for (int i = 0; i < 5; i++) sums = sums || writes_slot(p, GRAD(summed[i]));
  if (sums) cuda_launch(k, "scan_channels", ceil_div(rows, 256), 1, 256, 1, 0);
}

static ambi_status plan(cuda_plan *k) {
  cuda_specialise(k, false);
  cuda_math(k);
  say_problem(k);
  plan_general(k);
  return AMBI_OK;
}

const cuda_kernel selective_scan_cuda = {selective_scan_cu, plan};
