/* together.c -- runs that need nothing of each other, spread over the caller's stream and a few beside it.
 *
 *   s:     .. what came before, begin ->  task 0, task 4, ..                     -> what comes next
 *   side:                            \->  tasks 1, 5, ..;  2, 6, ..;  3, 7, ..  -> end
 *
 * Task i is always on the same stream, and graphs are recorded so, too. */
#include <stdlib.h>

#include "core/core.h"

enum { SIDE = 3 }; /* with the caller's own, four: 1 MB tensors fill an H200 then, and more of them gain nothing */

struct side_streams {
  ambi_stream *stream[SIDE];
  ambi_event *begin, *end[SIDE];
};

void close_side_streams(ambi_stream *s) {
  if (!s->side) return;
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
  ambi_status status = fill_side_streams(s->dev, s->side);
  if (status != AMBI_OK) close_side_streams(s);
  return status;
}

static ambi_status run_task(const ambi_task *t, ambi_stream *s) {
  return ambi_run(t->plan, s, t->slots, t->n, t->workspace);
}

static ambi_status begin_side(ambi_stream *s) {
  TRY(ambi_event_record(s->side->begin, s));
  for (int i = 0; i < SIDE; i++) TRY(ambi_stream_wait_event(s->side->stream[i], s->side->begin));
  return AMBI_OK;
}

/* After a failure too: what was started is waited for, and a recording has no stream that does not come back. */
static ambi_status end_side(ambi_stream *s) {
  ambi_status status = AMBI_OK;
  for (int i = 0; i < SIDE; i++) {
    ambi_status ended = ambi_event_record(s->side->end[i], s->side->stream[i]);
    if (ended == AMBI_OK) ended = ambi_stream_wait_event(s, s->side->end[i]);
    if (status == AMBI_OK) status = ended;
  }
  return status;
}

static ambi_status run_beside(const ambi_task *tasks, size_t count, ambi_stream *s) {
  TRY(open_side_streams(s));
  ambi_status status = begin_side(s);
  for (size_t i = 0; i < count && status == AMBI_OK; i++) {
    const size_t turn = i % (SIDE + 1);
    status = run_task(&tasks[i], turn ? s->side->stream[turn - 1] : s);
  }
  const ambi_status ended = end_side(s);
  return status != AMBI_OK ? status : ended;
}

ambi_status ambi_run_all(const ambi_task *tasks, size_t count, ambi_stream *s) {
  if (!s) return fail(AMBI_INVALID, "ambi_run_all: stream is NULL");
  if (!tasks && count) return fail(AMBI_INVALID, "ambi_run_all: tasks is NULL");
  for (size_t i = 0; i < count; i++) {
    ambi_buf all[AMBI_SLOTS];
    TRY(check_run(tasks[i].plan, s, tasks[i].slots, tasks[i].n, tasks[i].workspace, all));
  }
  if (s->dev->be->queues && count > 1) return run_beside(tasks, count, s);
  for (size_t i = 0; i < count; i++) TRY(run_task(&tasks[i], s));
  return AMBI_OK;
}
