/* together_checks.h -- what holds of ambi_run_all on any device: the bits of the same runs one by one, after what came
 * before and before what comes next, in a graph too; a refused task, and none has run. */
#ifndef TOGETHER_CHECKS_H
#define TOGETHER_CHECKS_H
#include <math.h>
#include <stdlib.h>

#include "test.h"

enum { TASKS = 11, LONGEST = 4000 };

/* Task i: y[i] = silu(x[i]), of another length each; the sixth has none. */
typedef struct {
  ambi_device *dev;
  ambi_stream *stream;
  ambi_plan *plan[TASKS];
  ambi_buf x, y; /* TASKS rows of LONGEST floats each */
  ambi_buf slots[TASKS][2];
  ambi_task task[TASKS];
} together;

static int64_t task_length(int i) { return i == 5 ? 0 : LONGEST - 311 * i; }
static uint64_t task_at(int i) { return (uint64_t)i * LONGEST * sizeof(float); }

static bool together_open(together *t, ambi_device *dev) {
  const size_t bytes = task_at(TASKS);
  *t = (together){.dev = dev};
  bool ok = CHECK_OK(ambi_stream_create(dev, NULL, &t->stream)) && CHECK_OK(ambi_alloc(dev, bytes, &t->x)) &&
            CHECK_OK(ambi_alloc(dev, bytes, &t->y));
  for (int i = 0; i < TASKS && ok; i++) {
    const int64_t n = task_length(i);
    ambi_op op = {.kind = AMBI_UNARY};
    op.t[AMBI_UNARY_X] = ambi_dense(AMBI_F32, 1, &n);
    ok = CHECK_OK(ambi_plan_create(dev, &op, &t->plan[i]));
    t->slots[i][AMBI_UNARY_X] = (ambi_buf){t->x.data, t->x.offset + task_at(i)};
    t->slots[i][AMBI_UNARY_Y] = (ambi_buf){t->y.data, t->y.offset + task_at(i)};
    t->task[i] = (ambi_task){.plan = t->plan[i], .slots = t->slots[i], .n = 2};
  }
  return ok;
}

static void together_close(together *t) {
  for (int i = 0; i < TASKS; i++) ambi_plan_destroy(t->plan[i]);
  ambi_free(t->dev, t->x), ambi_free(t->dev, t->y);
  ambi_stream_destroy(t->stream);
}

/* Step `step`'s inputs are uploaded before the runs, and its results downloaded after them, all on one stream. */
typedef float rows[TASKS][LONGEST];
static void inputs_of(int step, float *x) {
  for (int i = 0; i < TASKS * LONGEST; i++) x[i] = (float)((i * 37 + step * 11) % 1000) / 97 - 5;
}
static bool ran(together *t, int step, ambi_status (*run)(together *), float *x, float *y) {
  inputs_of(step, x);
  memset(y, 0x7f, sizeof(rows));
  return CHECK_OK(ambi_upload(t->stream, t->x, x, sizeof(rows))) &&
         CHECK_OK(ambi_upload(t->stream, t->y, y, sizeof(rows))) && CHECK_OK(run(t)) &&
         CHECK_OK(ambi_download(t->stream, y, t->y, sizeof(rows))) && CHECK_OK(ambi_stream_wait(t->stream));
}

static ambi_status one_by_one(together *t) {
  for (int i = 0; i < TASKS; i++) {
    ambi_status s = ambi_run(t->plan[i], t->stream, t->slots[i], 2, (ambi_buf){0});
    if (s != AMBI_OK) return s;
  }
  return AMBI_OK;
}
static ambi_status at_once(together *t) { return ambi_run_all(t->task, TASKS, t->stream); }
/* Twice in a graph: the second must wait for the first, whose results it overwrites with the same */
static ambi_status as_graph(together *t) {
  ambi_graph *graph = NULL;
  ambi_status s = ambi_record(t->stream);
  if (s == AMBI_UNSUPPORTED) return at_once(t);
  if (s == AMBI_OK) s = at_once(t);
  if (s == AMBI_OK) s = at_once(t);
  ambi_status ended = ambi_recorded(t->stream, &graph);
  if (s == AMBI_OK) s = ended;
  for (int i = 0; i < 2 && s == AMBI_OK; i++) s = ambi_replay(graph, t->stream);
  if (s == AMBI_OK) s = ambi_stream_wait(t->stream);
  ambi_graph_destroy(graph);
  return s;
}

static void check_same(together *t, float *x, float *want, float *y) {
  static ambi_status (*const ways[])(together *) = {at_once, as_graph, at_once};
  for (int step = 0; step < 3; step++) {
    if (!ran(t, step, one_by_one, x, want) || !ran(t, step, ways[step], x, y)) return;
    CHECK(memcmp(want, y, sizeof(rows)) == 0, "way %d: the same bits, and nothing else is written", step);
  }
}

/* What is refused, whichever task it is, leaves everything as it was. */
static ambi_status without_a_buffer(together *t) {
  t->slots[TASKS - 1][AMBI_UNARY_Y].data = NULL;
  CHECK_STATUS(at_once(t), AMBI_INVALID, "ambi_run_all", "task 10", "unary", "no buffer");
  t->slots[TASKS - 1][AMBI_UNARY_Y].data = t->y.data;
  return AMBI_OK;
}
static ambi_status without_a_plan(together *t) {
  t->task[3].plan = NULL;
  CHECK_STATUS(at_once(t), AMBI_INVALID, "ambi_run_all", "task 3", "plan", "NULL");
  t->task[3].plan = t->plan[3];
  CHECK_STATUS(ambi_run_all(t->task, TASKS, NULL), AMBI_INVALID, "ambi_run_all", "stream");
  CHECK_STATUS(ambi_run_all(NULL, 1, t->stream), AMBI_INVALID, "ambi_run_all", "tasks");
  return ambi_run_all(NULL, 0, t->stream);
}
static void check_refused(together *t, float *x, float *want, float *y) {
  static ambi_status (*const ways[])(together *) = {without_a_buffer, without_a_plan};
  memset(want, 0x7f, sizeof(rows));
  for (int i = 0; i < 2; i++)
    if (ran(t, i, ways[i], x, y)) CHECK(memcmp(want, y, sizeof(rows)) == 0, "refused, and yet something was written");
}

/* ---- one norm of many gradients: a sumsq of each but the last, side by side; the last adds them ---- */
typedef struct {
  ambi_plan *first[TASKS], *last; /* first[TASKS - 1]: none */
  ambi_buf workspace, sums, norm;
  uint64_t apart; /* bytes from a workspace to the next */
} norms;

static bool norms_open(norms *n, const together *t) {
  const int64_t others = TASKS - 1;
  *n = (norms){.apart = 256};
  for (int i = 0; i < TASKS; i++) {
    const int64_t length = task_length(i);
    ambi_op op = {.kind = AMBI_GRAD_NORM, .want = AMBI_BIT(AMBI_GRAD_NORM_SUMSQ)};
    ambi_plan_info info;
    op.t[AMBI_GRAD_NORM_G] = ambi_dense(AMBI_F32, 1, &length);
    if (i == others) op.t[AMBI_GRAD_NORM_PARTIAL] = ambi_dense(AMBI_F64, 1, &others), op.want = 0;
    ambi_plan **plan = i == others ? &n->last : &n->first[i];
    if (!CHECK_OK(ambi_plan_create(t->dev, &op, plan)) || !CHECK_OK(ambi_plan_get_info(*plan, &info))) return false;
    if (info.workspace > n->apart) n->apart = (info.workspace + 255) / 256 * 256;
  }
  return CHECK_OK(ambi_alloc(t->dev, TASKS * n->apart, &n->workspace)) &&
         CHECK_OK(ambi_alloc(t->dev, TASKS * sizeof(double), &n->sums)) &&
         CHECK_OK(ambi_alloc(t->dev, TASKS * sizeof(float), &n->norm));
}

static ambi_status norms_run(const norms *n, const together *t) {
  ambi_task tasks[TASKS];
  ambi_buf slots[TASKS][AMBI_SLOTS] = {{{0}}};
  for (int i = 0; i < TASKS; i++) {
    slots[i][AMBI_GRAD_NORM_G] = t->slots[i][AMBI_UNARY_X];
    slots[i][AMBI_GRAD_NORM_NORM] = (ambi_buf){n->norm.data, n->norm.offset + (uint64_t)i * sizeof(float)};
    slots[i][AMBI_GRAD_NORM_SUMSQ] = (ambi_buf){n->sums.data, n->sums.offset + (uint64_t)i * sizeof(double)};
    const ambi_buf scratch = {n->workspace.data, n->workspace.offset + (uint64_t)i * n->apart};
    tasks[i] = (ambi_task){n->first[i], slots[i], AMBI_SLOTS, scratch};
  }
  slots[TASKS - 1][AMBI_GRAD_NORM_PARTIAL] = n->sums;
  const ambi_status s = ambi_run_all(tasks, TASKS - 1, t->stream);
  return s == AMBI_OK ? ambi_run(n->last, t->stream, slots[TASKS - 1], AMBI_SLOTS, tasks[TASKS - 1].workspace) : s;
}

static void check_norms(const together *t, float *x) {
  norms n;
  float norms_read[TASKS];
  double want = 0;
  inputs_of(0, x);
  for (int i = 0; i < TASKS; i++)
    for (int k = 0; k < task_length(i); k++) want += (double)x[i * LONGEST + k] * (double)x[i * LONGEST + k];
  if (norms_open(&n, t) && CHECK_OK(ambi_upload(t->stream, t->x, x, sizeof(rows)))) {
    CHECK_OK(norms_run(&n, t));
    CHECK_OK(ambi_download(t->stream, norms_read, n.norm, sizeof norms_read));
    CHECK_OK(ambi_stream_wait(t->stream));
    const double got = (double)norms_read[TASKS - 1];
    CHECK(fabs(got - sqrt(want)) <= 1.2e-7 * sqrt(want), "the norm of %d gradients is %.9g, not %.9g", TASKS, got,
          sqrt(want)); /* one rounding to f32 */
  }
  for (int i = 0; i < TASKS; i++) ambi_plan_destroy(n.first[i]);
  ambi_plan_destroy(n.last);
  ambi_free(t->dev, n.workspace), ambi_free(t->dev, n.sums), ambi_free(t->dev, n.norm);
}

/* `other`: another device. */
static void check_together(ambi_device *dev, ambi_device *other) {
  together t = {.dev = dev};
  ambi_stream *strange = NULL;
  float *x = malloc(sizeof(rows)), *want = malloc(sizeof(rows)), *y = malloc(sizeof(rows));
  if (CHECK(x && want && y, "memory") && together_open(&t, dev)) {
    check_same(&t, x, want, y);
    check_refused(&t, x, want, y);
    check_norms(&t, x);
    if (CHECK_OK(ambi_stream_create(other, NULL, &strange)))
      CHECK_STATUS(ambi_run_all(t.task, TASKS, strange), AMBI_INVALID, "another device");
    ambi_stream_destroy(strange);
  }
  together_close(&t);
  free(x), free(want), free(y);
}

#endif
