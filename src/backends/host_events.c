/* host_events.c -- events where the device is the host: work is done when its call returns, so that a recorded event
 * has passed, and its time is that of the call. */
#include <time.h>

#include "backends/host.h"

static ambi_status host_event_open(ambi_event *e) {
  (void)e;
  return AMBI_OK;
}

static void host_event_close(ambi_event *e) { (void)e; }

/* The wall clock would do but for being set back and forth. */
static ambi_status host_event_record(ambi_event *e, ambi_stream *s) {
  (void)s;
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now)) return fail(AMBI_UNSUPPORTED, "%s: there is no clock", e->dev->name);
  e->when = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
  return AMBI_OK;
}

static ambi_status host_event_hold(ambi_stream *s, ambi_event *e) {
  (void)s, (void)e;
  return AMBI_OK;
}

static ambi_status host_event_wait(ambi_event *e) {
  (void)e;
  return AMBI_OK;
}

static ambi_status host_event_query(ambi_event *e, int32_t *passed) {
  (void)e;
  *passed = 1;
  return AMBI_OK;
}

static ambi_status host_event_elapsed(ambi_event *from, ambi_event *to, double *ms) {
  *ms = (double)((int64_t)to->when - (int64_t)from->when) * 1e-6;
  return AMBI_OK;
}

const event_calls host_events = {.open = host_event_open,
                                 .close = host_event_close,
                                 .record = host_event_record,
                                 .hold = host_event_hold,
                                 .wait = host_event_wait,
                                 .query = host_event_query,
                                 .elapsed = host_event_elapsed};
