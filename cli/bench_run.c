/* bench_run.c -- time one case. Its buffers exist in several sets that together pass s->rotate bytes, and each run
 * takes the next set: with 1 GiB, nothing it reads or writes is still in a cache. A graph takes fewer of them: see
 * turns_of. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "case.h"
#include "values.h"

enum { TILE = 65536, MIN_RUNS = 5, MAX_RUNS = 1000, MAX_SETS = 1 << 22, MAX_TURNS = 8192 };

typedef struct {
  ambi_plan *plan;
  ambi_plan_info info;
  ambi_tensor t[AMBI_SLOTS];
  int8_t home[AMBI_SLOTS];     /* the slot whose memory this one uses: itself, or its in-place partner */
  uint64_t at[AMBI_SLOTS];     /* bytes from the start of a set                                      */
  uint64_t set_bytes, scratch; /* where its workspace is, if each has one                          */
  int sets, next;
  ambi_task *tasks; /* one a set, with its slots, where runs are given to the device together; or NULL */
  ambi_buf *slots;
} layout;

static void give_up(bench_case *c, ambi_status s, const char *why) {
  c->status = s;
  snprintf(c->error, sizeof c->error, "%s", why);
}

/* ---- the op ---- */

int bench_make_op(ambi_device *dev, bench_case *c) {
  char why[300];
  if (case_parse(c->text, c->dtype, &c->op, why, sizeof why)) return give_up(c, AMBI_INVALID, why), -1;
  const ambi_status status = case_set_pass(dev, &c->op, c->pass);
  return status == AMBI_OK ? 0 : (give_up(c, status, ambi_error()), -1);
}

static int make_plan(bench_session *s, bench_case *c, layout *l) {
  ambi_status status = ambi_plan_create(s->target->dev, &c->op, &l->plan);
  if (status == AMBI_OK) status = ambi_plan_get_info(l->plan, &l->info);
  if (status != AMBI_OK) return give_up(c, status, ambi_error()), -1;
  for (int i = 0; i < AMBI_SLOTS; i++) l->t[i] = ambi_plan_tensor(l->plan, i);
  snprintf(c->kernel, sizeof c->kernel, "%s", l->info.kernel);
  c->bytes = l->info.bytes;
  c->flops = l->info.flops;
  c->workspace = l->info.workspace;
  return 0;
}

/* ---- buffers ---- */

static int used(const layout *l, int slot) {
  return ((l->info.reads | l->info.writes) & AMBI_BIT(slot)) && ambi_numel(&l->t[slot]) > 0;
}

static void share_in_place(const bench_case *c, layout *l) {
  for (int i = 0; i < AMBI_SLOTS; i++) l->home[i] = (int8_t)i;
  const int8_t(*pair)[2] = ambi_op_get_info(c->op.kind)->in_place;
  for (; c->flags & BENCH_IN_PLACE && pair && (*pair)[0] >= 0; pair++) {
    int out = (*pair)[0], in = (*pair)[1];
    if (used(l, out) && used(l, in) && l->home[out] == out && l->t[out].dtype == l->t[in].dtype)
      l->home[out] = (int8_t)in;
  }
}

static uint64_t align_up(uint64_t n) { return (n + 255) & ~UINT64_C(255); }

/* Where each slot lies in a set, and how many sets there are; the workspace comes after the last, or is in each. */
static int lay_out(bench_session *s, bench_case *c, layout *l) {
  share_in_place(c, l);
  for (int i = 0; i < AMBI_SLOTS; i++) {
    if (!used(l, i) || l->home[i] != i) continue;
    int64_t span = ambi_span(&l->t[i]);
    l->at[i] = l->set_bytes + align_up((uint64_t)values_origin(&l->t[i]));
    l->set_bytes = align_up(l->at[i] + (uint64_t)span);
  }
  l->scratch = l->set_bytes;
  if (c->flags & BENCH_TOGETHER) l->set_bytes += align_up(l->info.workspace);
  uint64_t sets = l->set_bytes ? s->rotate / l->set_bytes + 1 : 1;
  l->sets = (int)(sets < MAX_SETS ? sets : MAX_SETS);
  uint64_t total = l->set_bytes * (uint64_t)l->sets + l->info.workspace + 256;
  if (total <= s->capacity) return 0;
  if (s->memory.data) ambi_free(s->target->dev, s->memory);
  s->memory = (ambi_buf){0};
  s->capacity = 0;
  ambi_status status = ambi_alloc(s->target->dev, (size_t)total, &s->memory);
  if (status != AMBI_OK) return give_up(c, status, ambi_error()), -1;
  s->capacity = (size_t)total;
  return 0;
}

static ambi_buf place(const bench_session *s, uint64_t at) { return (ambi_buf){s->memory.data, s->memory.offset + at}; }

/* A tile of suitable values for a slot, encoded; the caller frees it. Outputs get them too: that touches their pages.
 */
static unsigned char *make_tile(const bench_case *c, const layout *l, int slot, uint64_t *bytes) {
  const ambi_tensor *t = &l->t[slot];
  uint64_t size = ambi_dtype_size(t->dtype), span = (uint64_t)ambi_span(t);
  int64_t n = (int64_t)(span / size) < TILE ? (int64_t)(span / size) : TILE;
  ambi_op small = c->op;
  small.t[slot % AMBI_MAX_PRIMALS] = ambi_dense(t->dtype, 1, &n);
  double *v = values_new(n);
  unsigned char *tile = malloc((size_t)n * size);
  values_fill(&small, slot, 1, v);
  for (int64_t i = 0; tile && i < n; i++) value_encode(t->dtype, v[i], tile + (size_t)i * size);
  free(v);
  *bytes = (uint64_t)n * size;
  return tile;
}

static int fill_slot(bench_session *s, bench_case *c, const layout *l, int slot) {
  uint64_t tile_bytes, span = (uint64_t)ambi_span(&l->t[slot]), low = (uint64_t)values_origin(&l->t[slot]);
  unsigned char *tile = make_tile(c, l, slot, &tile_bytes);
  if (!tile) return give_up(c, AMBI_NO_MEMORY, "no memory for values"), -1;
  ambi_status status = AMBI_OK;
  for (int set = 0; set < l->sets && status == AMBI_OK; set++) {
    uint64_t base = l->set_bytes * (uint64_t)set + l->at[slot] - low;
    status = ambi_upload(s->target->stream, place(s, base), tile, (size_t)tile_bytes);
    for (uint64_t at = tile_bytes; at < span && status == AMBI_OK; at *= 2) /* what is there, once more */
      status =
          ambi_copy(s->target->stream, place(s, base + at), place(s, base), (size_t)(span - at < at ? span - at : at));
  }
  if (status == AMBI_OK) status = ambi_stream_wait(s->target->stream);
  free(tile);
  return status == AMBI_OK ? 0 : (give_up(c, status, ambi_error()), -1);
}

/* ---- time ---- */

static void set_slots(const bench_session *s, const layout *l, int set, ambi_buf *slots) {
  for (int i = 0; i < AMBI_SLOTS; i++)
    if (used(l, i)) slots[i] = place(s, l->set_bytes * (uint64_t)set + l->at[l->home[i]]);
}

/* ---- runs that are given to the device together: a task for each set ---- */
static int make_tasks(bench_session *s, bench_case *c, layout *l) {
  if (!(c->flags & BENCH_TOGETHER) || l->sets < 2) return 0;
  l->tasks = calloc((size_t)l->sets, sizeof *l->tasks);
  l->slots = calloc((size_t)l->sets * AMBI_SLOTS, sizeof *l->slots);
  if (!l->tasks || !l->slots) return give_up(c, AMBI_NO_MEMORY, "no memory for tasks"), -1;
  for (int i = 0; i < l->sets; i++) {
    l->tasks[i] = (ambi_task){.plan = l->plan, .slots = l->slots + (size_t)i * AMBI_SLOTS, .n = AMBI_SLOTS};
    l->tasks[i].workspace = place(s, l->set_bytes * (uint64_t)i + l->scratch);
    set_slots(s, l, i, l->slots + (size_t)i * AMBI_SLOTS);
  }
  return 0;
}

static ambi_status start_together(bench_session *s, layout *l, int batch) {
  ambi_status status = AMBI_OK;
  for (int done = 0, now; done < batch && status == AMBI_OK; done += now) {
    const int left = batch - done, room = l->sets - l->next % l->sets;
    now = left < room ? left : room; /* no set twice in a call */
    status = ambi_run_all(l->tasks + l->next % l->sets, (size_t)now, s->target->stream);
    l->next += now;
  }
  return status;
}

/* `batch` runs, each on the next set. */
static ambi_status start_runs(bench_session *s, layout *l, int batch) {
  if (l->tasks) return start_together(s, l, batch);
  ambi_buf workspace = place(s, l->set_bytes * (uint64_t)l->sets);
  ambi_status status = AMBI_OK;
  ambi_buf slots[AMBI_SLOTS] = {{0}};
  for (int b = 0; b < batch && status == AMBI_OK; b++) {
    const int set = l->next++ % l->sets;
    if (b == 0 || l->sets > 1) set_slots(s, l, set, slots);
    status = ambi_run(l->plan, s->target->stream, slots, AMBI_SLOTS, workspace);
  }
  return status;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Runs in a graph, each on a set of its own: 64, or what 4 times the cache takes, up to MAX_TURNS. Where going through
 * all sets is done in less than some milliseconds, it is done again. */
static int turns_of(const bench_session *s, const bench_case *c, const layout *l, double seconds) {
  ambi_device_info info;
  const int many = (int)ceil(fmin(5e-3 / seconds, 500));
  if (many > l->sets) return many;
  uint64_t cold = s->rotate; /* where the cache is not known */
  if (ambi_device_get_info(s->target->dev, &info) == AMBI_OK && info.cache_bytes)
    cold = smaller(cold, 4 * info.cache_bytes);
  const uint64_t touched = smaller(c->bytes, l->set_bytes); /* by a run: of a table perhaps a part */
  const uint64_t turns = touched ? smaller(cold / touched + 1, MAX_TURNS) : 1;
  return (int)smaller(turns > 64 ? turns : 64, (uint64_t)l->sets);
}

/* The same as a graph, where the device has them: what is timed then is the device alone, not the calls. */
static ambi_graph *record_runs(bench_session *s, bench_case *c, layout *l, int batch) {
  ambi_graph *graph = NULL;
  ambi_status status = ambi_record(s->target->stream);
  if (status == AMBI_UNSUPPORTED) return NULL;
  if (status == AMBI_OK) status = start_runs(s, l, batch);
  const ambi_status ended = ambi_recorded(s->target->stream, status == AMBI_OK ? &graph : NULL);
  if (status == AMBI_OK) status = ended;
  if (status != AMBI_OK) give_up(c, status, ambi_error());
  return graph;
}

/* Seconds of one run, or of its call, averaged over `batch` of them; negative after a failure. */
static double time_runs(bench_session *s, bench_case *c, layout *l, int batch, const ambi_graph *graph) {
  double begin = bench_now();
  ambi_status status = graph ? ambi_replay(graph, s->target->stream) : start_runs(s, l, batch);
  const double called = bench_now();
  if (status == AMBI_OK) status = ambi_stream_wait(s->target->stream);
  if (status != AMBI_OK) return give_up(c, status, ambi_error()), -1;
  return ((c->flags & BENCH_CALLS ? called : bench_now()) - begin) / batch;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(bench_session *s, bench_case *c, layout *l) {
  static const double least = 200e-6; /* a sample shorter than this is a batch of runs */
  static const double most = 20;      /* a run longer than this is not repeated (the reference, on large cases) */
  double sample[MAX_RUNS], spent = 0, warm = time_runs(s, c, l, 1, NULL);
  if (warm > most) {
    c->runs = 1;
    c->best = c->median = warm;
    return;
  }
  if (warm >= 0) warm = time_runs(s, c, l, 1, NULL);
  if (warm < 0) return;
  int batch = warm < least ? (int)ceil(least / fmax(warm, 1e-8)) : 1;
  const int turns = turns_of(s, c, l, warm);
  ambi_graph *graph = c->flags & BENCH_CALLS ? NULL : record_runs(s, c, l, turns);
  if (c->status != AMBI_OK) return;
  if (graph) batch = turns;
  while (c->runs < MIN_RUNS || (spent < s->seconds && c->runs < MAX_RUNS)) {
    double t = time_runs(s, c, l, batch, graph);
    if (t < 0) break;
    sample[c->runs++] = t;
    spent += t * batch;
  }
  ambi_graph_destroy(graph);
  if (c->status != AMBI_OK) return;
  qsort(sample, (size_t)c->runs, sizeof *sample, by_value);
  c->best = sample[0];
  c->median = (sample[(c->runs - 1) / 2] + sample[c->runs / 2]) / 2;
}

void bench_run(bench_session *s, bench_case *c) {
  layout l = {0};
  c->status = AMBI_OK;
  c->error[0] = c->kernel[0] = 0;
  c->runs = 0;
  if (bench_make_op(s->target->dev, c) == 0 && make_plan(s, c, &l) == 0 && lay_out(s, c, &l) == 0) {
    for (int i = 0; i < AMBI_SLOTS && c->status == AMBI_OK; i++) {
      if (used(&l, i) && l.home[i] == i) fill_slot(s, c, &l, i);
    }
    if (c->status == AMBI_OK && make_tasks(s, c, &l) == 0) measure(s, c, &l);
    if (l.tasks) snprintf(c->kernel + strlen(c->kernel), sizeof c->kernel - strlen(c->kernel), ", together");
    free(l.tasks), free(l.slots);
  }
  if (l.plan) ambi_plan_destroy(l.plan);
}

void bench_close(bench_session *s) {
  if (s->memory.data) ambi_free(s->target->dev, s->memory);
  s->memory = (ambi_buf){0};
  s->capacity = 0;
}

/* ---- overhead ---- */

int bench_overhead(const target *t, const char *text, double *run_us, double *plan_us) {
  enum { PLANS = 2000 };
  bench_session s = {.target = t, .seconds = 0.1}; /* always the same buffers */
  bench_case c = {.text = text, .dtype = AMBI_F32, .flags = BENCH_CALLS};
  bench_run(&s, &c);
  bench_close(&s);
  if (c.status != AMBI_OK) return -1;
  double begin = bench_now();
  for (int i = 0; i < PLANS; i++) {
    ambi_plan *plan;
    if (ambi_plan_create(t->dev, &c.op, &plan) != AMBI_OK) return -1;
    ambi_plan_destroy(plan);
  }
  *plan_us = (bench_now() - begin) / PLANS * 1e6;
  *run_us = c.median * 1e6;
  return 0;
}
