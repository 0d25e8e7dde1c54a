/* together_checks.h -- what holds of ambi_run_all on any device: the bits of the same runs one by one, after what came
 * before and before what comes next, in a graph too; a refused task, and none has run. */
#ifndef TOGETHER_CHECKS_H
#define TOGETHER_CHECKS_H
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

/* `other`: another device. */
static void check_together(ambi_device *dev, ambi_device *other) {
  together t = {.dev = dev};
  ambi_stream *strange = NULL;
  float *x = malloc(sizeof(rows)), *want = malloc(sizeof(rows)), *y = malloc(sizeof(rows));
  if (CHECK(x && want && y, "memory") && together_open(&t, dev)) {
    check_same(&t, x, want, y);
    check_refused(&t, x, want, y);
    if (CHECK_OK(ambi_stream_create(other, NULL, &strange)))
      CHECK_STATUS(ambi_run_all(t.task, TASKS, strange), AMBI_INVALID, "another device");
    ambi_stream_destroy(strange);
  }
  together_close(&t);
  free(x), free(want), free(y);
}

#endif
