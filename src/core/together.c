/* together.c -- runs that need nothing of each other, spread over the caller's stream and a few beside it.
 *
 *   s:     .. what came before, begin ->  task 0, task 4, ..                     -> what comes next
 *   side:                            \->  tasks 1, 5, ..;  2, 6, ..;  3, 7, ..  -> end
 *
 * Task i of as many is always on the same stream, and graphs are recorded so, too. */
#include <stdio.h>
#include <stdlib.h>

#include "core/core.h"

/* With the caller's own, four: tensors of 0.84 million floats fill an H200 then, and eight gain nothing. */
enum { SIDE = 3 };

struct side_streams {
  ambi_stream *stream[SIDE];
  ambi_event *begin, *end[SIDE];
};

static void close_side_streams(ambi_stream *s) {
  for (int i = 0; i < SIDE; i++) {
    ambi_stream_destroy(s->side->stream[i]);
    ambi_event_destroy(s->side->end[i]);
  }
  ambi_event_destroy(s->side->begin);
  free(s->side);
  s->side = NULL;
}

static ambi_status fill_side_streams(ambi_device *dev, struct side_streams *side) {
  TRY(ambi_event_create(dev, &side->begin));
  for (int i = 0; i < SIDE; i++) {
    TRY(ambi_stream_create(dev, NULL, &side->stream[i]));
    TRY(ambi_event_create(dev, &side->end[i]));
  }
  return AMBI_OK;
}

static ambi_status open_side_streams(ambi_stream *s) {
  if (s->side) return AMBI_OK;
  s->side = calloc(1, sizeof *s->side);
  if (!s->side) return fail(AMBI_NO_MEMORY, "ambi_run_all: no memory");
  s->close_side = close_side_streams;
  ambi_status status = fill_side_streams(s->dev, s->side);
  if (status != AMBI_OK) close_side_streams(s);
  return status;
}

static ambi_status run_task(const ambi_task *t, ambi_stream *s) {
  return ambi_run(t->plan, s, t->slots, t->n, t->workspace);
}

/* How many of `wanted` streams come after what s was given so far; if not all, *status says why. */
static int begin_side(ambi_stream *s, int wanted, ambi_status *status) {
  int begun = 0;
  *status = ambi_event_record(s->side->begin, s);
  while (*status == AMBI_OK && begun < wanted) {
    *status = ambi_stream_wait_event(s->side->stream[begun], s->side->begin);
    if (*status == AMBI_OK) begun++;
  }
  return begun;
}

/* s goes on after them, after a failure too: what was started is waited for, and a recording has all it began. */
static ambi_status end_side(ambi_stream *s, int begun) {
  ambi_status status = AMBI_OK;
  for (int i = 0; i < begun; i++) {
    ambi_status ended = ambi_event_record(s->side->end[i], s->side->stream[i]);
    if (ended == AMBI_OK) ended = ambi_stream_wait_event(s, s->side->end[i]);
    if (status == AMBI_OK) status = ended;
  }
  return status;
}

static ambi_status run_beside(const ambi_task *tasks, size_t count, ambi_stream *s) {
  char why[ERROR_BYTES] = "";
  ambi_status status;
  TRY(open_side_streams(s));
  const int begun = begin_side(s, count - 1 < SIDE ? (int)count - 1 : SIDE, &status);
  for (size_t i = 0; i < count && status == AMBI_OK; i++) {
    const size_t turn = i % (size_t)(begun + 1);
    status = run_task(&tasks[i], turn ? s->side->stream[turn - 1] : s);
  }
  if (status != AMBI_OK) snprintf(why, sizeof why, "%s", ambi_error()); /* the first failure is what is said */
  const ambi_status ended = end_side(s, begun);
  return status != AMBI_OK ? fail(status, "%s", why) : ended;
}

static ambi_status check_task(const ambi_task *t, size_t number, const ambi_stream *s) {
  char why[ERROR_BYTES];
  ambi_buf all[AMBI_SLOTS];
  const ambi_status status = check_run(t->plan, s, t->slots, t->n, t->workspace, all);
  if (status == AMBI_OK) return AMBI_OK;
  snprintf(why, sizeof why, "%s", ambi_error());
  return fail(status, "ambi_run_all: task %zu: %s", number, why);
}

ambi_status ambi_run_all(const ambi_task *tasks, size_t count, ambi_stream *s) {
  if (!s) return fail(AMBI_INVALID, "ambi_run_all: stream is NULL");
  if (!tasks && count) return fail(AMBI_INVALID, "ambi_run_all: tasks is NULL");
  for (size_t i = 0; i < count; i++) TRY(check_task(&tasks[i], i, s));
  if (s->dev->be->queues && count > 1) return run_beside(tasks, count, s);
  for (size_t i = 0; i < count; i++) TRY(run_task(&tasks[i], s));
  return AMBI_OK;
}
