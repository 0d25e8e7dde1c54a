/* test_cuda_graph.c -- a training step as a graph: what it does is, to the bit, what the same runs do one by one.
 *
 *   y = x w^T + b;   dy = y - target;   dw, db = backward(dy);   scale = clip(|dw, db|);   adamw(w), adamw(b)
 *
 * lr, step and scale are in device memory, so that each replay is the next step; lr changes between them. Then once
 * more with the first two of these on a stream of their own, which events join to the graph. On the stand-in for the
 * driver (fakecuda/); on a GPU: test_cuda_graph cuda:0 */
#include <stdlib.h>

#include "standins.h"
#include "test.h"

enum { ROWS = 37, IN = 96, OUT = 130, STEPS = 6, MAX_RUNS = 8 };
enum { W = IN * OUT }; /* elements: enough for a text of its own */

/* ---- buffers: everything in one allocation, by name ---- */
typedef enum {
  X,
  TARGET,
  Y,
  DY,
  WEIGHT,
  BIAS,
  DW,
  DB,
  MW,
  VW,
  MB,
  VB,
  LR,
  STEP,
  NORM,
  SUMSQ,
  SCALE,
  SKIP,
  PLACES
} place;
static const struct {
  ambi_dtype dtype;
  int ndim;
  int64_t shape[2];
} tensors[PLACES] = {
    [X] = {AMBI_F32, 2, {ROWS, IN}},   [TARGET] = {AMBI_F32, 2, {ROWS, OUT}}, [Y] = {AMBI_F32, 2, {ROWS, OUT}},
    [DY] = {AMBI_F32, 2, {ROWS, OUT}}, [WEIGHT] = {AMBI_F32, 2, {OUT, IN}},   [BIAS] = {AMBI_F32, 1, {OUT}},
    [DW] = {AMBI_F32, 2, {OUT, IN}},   [DB] = {AMBI_F32, 1, {OUT}},           [MW] = {AMBI_F32, 2, {OUT, IN}},
    [VW] = {AMBI_F32, 2, {OUT, IN}},   [MB] = {AMBI_F32, 1, {OUT}},           [VB] = {AMBI_F32, 1, {OUT}},
    [LR] = {AMBI_F32, 0, {0}},         [STEP] = {AMBI_I64, 0, {0}},           [NORM] = {AMBI_F32, 0, {0}},
    [SUMSQ] = {AMBI_F64, 0, {0}},      [SCALE] = {AMBI_F32, 0, {0}},          [SKIP] = {AMBI_I32, 0, {0}},
};

static ambi_tensor tensor(place p) { return ambi_dense(tensors[p].dtype, tensors[p].ndim, tensors[p].shape); }
static size_t bytes_of(place p) {
  ambi_tensor t = tensor(p);
  return (size_t)ambi_span(&t);
}
static uint64_t place_at(place p) {
  uint64_t at = 0;
  for (int i = 0; i < (int)p; i++) at += (bytes_of((place)i) + 255) / 256 * 256;
  return at;
}

/* ---- the step ---- */
typedef struct {
  ambi_plan *plan;
  int8_t at[AMBI_SLOTS]; /* the place of each slot, -1: none */
} one_run;

typedef struct {
  ambi_device *dev;
  ambi_stream *stream, *side;
  ambi_event *fork, *join;
  bool apart; /* y and dy on the side */
  ambi_buf memory, workspace;
  one_run run[MAX_RUNS];
  int runs;
} trainer;

typedef struct {
  int slot;
  place at;
} binding;

/* The op with its slots at those places. A gradient is described through its own place. */
static bool add(trainer *t, ambi_op op, const binding *bindings, int n) {
  one_run *r = &t->run[t->runs++];
  memset(r->at, -1, sizeof r->at);
  for (int i = 0; i < n; i++) {
    const int slot = bindings[i].slot;
    *(slot < AMBI_MAX_PRIMALS ? &op.t[slot] : &op.grad[slot - AMBI_MAX_PRIMALS]) = tensor(bindings[i].at);
    r->at[slot] = (int8_t)bindings[i].at;
  }
  return CHECK_OK(ambi_plan_create(t->dev, &op, &r->plan));
}
#define ADD(t, op, ...) \
  add(t, op, (const binding[]){__VA_ARGS__}, (int)(sizeof((const binding[]){__VA_ARGS__}) / sizeof(binding)))

static bool add_linear(trainer *t) {
  ambi_op forward = {.kind = AMBI_LINEAR}, subtract = {.kind = AMBI_ADD, .u.add = {1, -1}};
  ambi_op backward = {.kind = AMBI_LINEAR, .pass = AMBI_BACKWARD};
  backward.want = AMBI_BIT(AMBI_LINEAR_W) | AMBI_BIT(AMBI_LINEAR_B);
  return ADD(t, forward, {AMBI_LINEAR_X, X}, {AMBI_LINEAR_W, WEIGHT}, {AMBI_LINEAR_B, BIAS}, {AMBI_LINEAR_Y, Y}) &&
         ADD(t, subtract, {AMBI_ADD_A, Y}, {AMBI_ADD_B, TARGET}, {AMBI_ADD_Y, DY}) &&
         ADD(t, backward, {AMBI_LINEAR_X, X}, {AMBI_LINEAR_W, WEIGHT}, {AMBI_LINEAR_B, BIAS}, {AMBI_LINEAR_Y, Y},
             {AMBI_GRAD(AMBI_LINEAR_Y), DY}, {AMBI_GRAD(AMBI_LINEAR_W), DW}, {AMBI_GRAD(AMBI_LINEAR_B), DB});
}

static bool add_norm(trainer *t) {
  ambi_op first = {.kind = AMBI_GRAD_NORM}, all = {.kind = AMBI_GRAD_NORM, .u.grad_norm.max_norm = 1};
  return ADD(t, first, {AMBI_GRAD_NORM_G, DW}, {AMBI_GRAD_NORM_NORM, NORM}, {AMBI_GRAD_NORM_SUMSQ, SUMSQ}) &&
         ADD(t, all, {AMBI_GRAD_NORM_G, DB}, {AMBI_GRAD_NORM_PARTIAL, SUMSQ}, {AMBI_GRAD_NORM_NORM, NORM},
             {AMBI_GRAD_NORM_SCALE, SCALE}, {AMBI_GRAD_NORM_NONFINITE, SKIP});
}

/* Both read the step; the last moves it on. */
static bool add_adamw(trainer *t) {
  ambi_op op = {.kind = AMBI_ADAMW, .u.adamw = {0.9, 0.99, 1e-8, 0.1}};
  return ADD(t, op, {AMBI_ADAMW_P, WEIGHT}, {AMBI_ADAMW_G, DW}, {AMBI_ADAMW_M, MW}, {AMBI_ADAMW_V, VW},
             {AMBI_ADAMW_LR, LR}, {AMBI_ADAMW_STEP, STEP}, {AMBI_ADAMW_SCALE, SCALE}, {AMBI_ADAMW_SKIP, SKIP},
             {AMBI_ADAMW_P_OUT, WEIGHT}, {AMBI_ADAMW_M_OUT, MW}, {AMBI_ADAMW_V_OUT, VW}) &&
         ADD(t, op, {AMBI_ADAMW_P, BIAS}, {AMBI_ADAMW_G, DB}, {AMBI_ADAMW_M, MB}, {AMBI_ADAMW_V, VB},
             {AMBI_ADAMW_LR, LR}, {AMBI_ADAMW_STEP, STEP}, {AMBI_ADAMW_SCALE, SCALE}, {AMBI_ADAMW_SKIP, SKIP},
             {AMBI_ADAMW_P_OUT, BIAS}, {AMBI_ADAMW_M_OUT, MB}, {AMBI_ADAMW_V_OUT, VB}, {AMBI_ADAMW_STEP_OUT, STEP});
}

static bool trainer_open(trainer *t, const char *device) {
  uint64_t most = 256;
  memset(t, 0, sizeof *t);
  bool made = CHECK_OK(ambi_device_open(device, NULL, &t->dev)) &&
              CHECK_OK(ambi_stream_create(t->dev, NULL, &t->stream)) &&
              CHECK_OK(ambi_stream_create(t->dev, NULL, &t->side)) && CHECK_OK(ambi_event_create(t->dev, &t->fork)) &&
              CHECK_OK(ambi_event_create(t->dev, &t->join)) && add_linear(t) && add_norm(t) && add_adamw(t);
  for (int i = 0; i < t->runs && made; i++) {
    ambi_plan_info info;
    if (ambi_plan_get_info(t->run[i].plan, &info) == AMBI_OK && info.workspace > most) most = info.workspace;
  }
  return made && CHECK_OK(ambi_alloc(t->dev, place_at(PLACES), &t->memory)) &&
         CHECK_OK(ambi_alloc(t->dev, most, &t->workspace));
}

static void trainer_close(trainer *t) {
  for (int i = 0; i < t->runs; i++) ambi_plan_destroy(t->run[i].plan);
  ambi_free(t->dev, t->memory), ambi_free(t->dev, t->workspace);
  ambi_event_destroy(t->fork), ambi_event_destroy(t->join);
  ambi_stream_destroy(t->side), ambi_stream_destroy(t->stream);
  ambi_device_close(t->dev);
}

static ambi_buf buffer(const trainer *t, place p) { return (ambi_buf){t->memory.data, place_at(p)}; }

static ambi_status run_some(const trainer *t, int from, int to, ambi_stream *stream) {
  ambi_status s = AMBI_OK;
  for (const one_run *r = t->run + from; r < t->run + to && s == AMBI_OK; r++) {
    ambi_buf slots[AMBI_SLOTS] = {{0}};
    for (int i = 0; i < AMBI_SLOTS; i++)
      if (r->at[i] >= 0) slots[i] = buffer(t, (place)r->at[i]);
    s = ambi_run(r->plan, stream, slots, AMBI_SLOTS, t->workspace);
  }
  return s;
}

static ambi_status step(const trainer *t) {
  enum { ASIDE = 2 };
  if (!t->apart) return run_some(t, 0, t->runs, t->stream);
  ambi_status s = ambi_event_record(t->fork, t->stream);
  if (s == AMBI_OK) s = ambi_stream_wait_event(t->side, t->fork);
  if (s == AMBI_OK) s = run_some(t, 0, ASIDE, t->side);
  if (s == AMBI_OK) s = ambi_event_record(t->join, t->side);
  if (s == AMBI_OK) s = ambi_stream_wait_event(t->stream, t->join);
  return s == AMBI_OK ? run_some(t, ASIDE, t->runs, t->stream) : s;
}

/* ---- runs ---- */
/* Everything 0, but for data, target and weights. */
static void reset(const trainer *t, unsigned char *all) {
  static const place filled[] = {X, TARGET, WEIGHT, BIAS};
  uint32_t seed = 1;
  memset(all, 0, place_at(PLACES));
  for (int i = 0; i < 4; i++) {
    float *v = (float *)(void *)(all + place_at(filled[i]));
    for (size_t k = 0; k < bytes_of(filled[i]) / sizeof *v; k++) {
      seed = seed * 1664525u + 1013904223u;
      v[k] = (float)(seed >> 8) / (1 << 24) - 0.5f;
    }
  }
  CHECK_OK(ambi_upload(t->stream, t->memory, all, place_at(PLACES)));
  CHECK_OK(ambi_stream_wait(t->stream));
}

/* STEPS of them, each run or replayed, with a learning rate that falls (or not); everything afterwards in `all`. */
static void train(const trainer *t, const ambi_graph *graph, bool falls, unsigned char *all) {
  reset(t, all);
  for (int i = 0; i < STEPS; i++) {
    float lr = falls ? 0.01f / (float)(1 + i) : 0.01f;
    CHECK_OK(ambi_upload(t->stream, buffer(t, LR), &lr, sizeof lr));
    CHECK_OK(ambi_stream_wait(t->stream)); /* lr is the loop's */
    CHECK_OK(graph ? ambi_replay(graph, t->stream) : step(t));
  }
  CHECK_OK(ambi_download(t->stream, all, t->memory, place_at(PLACES)));
  CHECK_OK(ambi_stream_wait(t->stream));
}

/* That the step is one: numbers are finite, clipping is at work, the loss falls, the count goes up. */
static void check_step(const unsigned char *all) {
  int64_t steps;
  float scale, norm, weights[W];
  int32_t skip;
  memcpy(&steps, all + place_at(STEP), sizeof steps);
  memcpy(&scale, all + place_at(SCALE), sizeof scale);
  memcpy(&norm, all + place_at(NORM), sizeof norm);
  memcpy(&skip, all + place_at(SKIP), sizeof skip);
  memcpy(weights, all + place_at(WEIGHT), sizeof weights);
  int moved = 0;
  for (int i = 0; i < W; i++) moved += weights[i] == weights[i] && (weights[i] > 0.5f || weights[i] < -0.5f);
  CHECK(steps == STEPS, "%lld steps", (long long)steps);
  CHECK(norm > 1 && scale > 0 && scale < 1, "clipped: norm %g, scale %g", (double)norm, (double)scale);
  CHECK(skip == 0 && moved > 0, "%d weights have left the range they began in", moved);
}

static void compare(const unsigned char *a, const unsigned char *b) {
  for (int p = 0; p < PLACES; p++)
    CHECK(!memcmp(a + place_at((place)p), b + place_at((place)p), bytes_of((place)p)), "tensor %d has other bits", p);
}

static void check_graph(const trainer *t) {
  unsigned char *direct = malloc(place_at(PLACES)), *replayed = malloc(place_at(PLACES));
  ambi_graph *graph = NULL;
  train(t, NULL, true, direct);
  check_step(direct);
  reset(t, replayed);
  if (CHECK_OK(ambi_record(t->stream)) && CHECK_OK(step(t)) && CHECK_OK(ambi_recorded(t->stream, &graph))) {
    CHECK_OK(ambi_download(t->stream, direct + place_at(STEP), buffer(t, STEP), bytes_of(STEP)));
    CHECK_OK(ambi_stream_wait(t->stream));
    CHECK(direct[place_at(STEP)] == 0, "recording takes no step");
    train(t, NULL, true, direct);
    for (int again = 0; again < 2; again++) {
      train(t, graph, true, replayed);
      compare(direct, replayed);
    }
    train(t, graph, false, replayed);
    CHECK(memcmp(direct + place_at(WEIGHT), replayed + place_at(WEIGHT), bytes_of(WEIGHT)) != 0,
          "another learning rate in the device's memory makes no difference");
  }
  ambi_graph_destroy(graph);
  free(direct), free(replayed);
}

int main(int argc, char **argv) {
  trainer t;
  if (argc < 2) {
    if (stand_ins_missing()) return 0;
    setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  }
  if (trainer_open(&t, argc > 1 ? argv[1] : "cuda"))
    for (int apart = 0; apart < 2; apart++) t.apart = apart, check_graph(&t);
  trainer_close(&t);
  return test_done();
}
