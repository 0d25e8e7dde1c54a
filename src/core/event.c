/* event.c -- events: checked here, done by the backend. */
#include <stdlib.h>

#include "core/core.h"

ambi_status ambi_event_create(ambi_device *dev, ambi_event **out) {
  if (out) *out = NULL;
  if (!dev || !out) return fail(AMBI_INVALID, "ambi_event_create: %s is NULL", dev ? "out" : "dev");
  if (!dev->be->events) return fail(AMBI_UNSUPPORTED, "ambi_event_create: %s has no events", dev->name);
  ambi_event *e = calloc(1, sizeof *e);
  if (!e) return fail(AMBI_NO_MEMORY, "ambi_event_create: no memory");
  e->dev = dev;
  ambi_status status = dev->be->events->open(e);
  if (status == AMBI_OK)
    *out = e;
  else
    free(e);
  return status;
}

void ambi_event_destroy(ambi_event *e) {
  if (!e) return;
  e->dev->be->events->close(e);
  free(e);
}

/* There is an event, and the stream, if it is not the device's own, is of the same device. */
static ambi_status check_pair(const char *call, const ambi_event *e, const ambi_stream *s) {
  if (!e) return fail(AMBI_INVALID, "%s: the event is NULL", call);
  if (!s || s->dev == e->dev) return AMBI_OK;
  return fail(AMBI_INVALID, "%s: the stream belongs to another device (%s) than the event (%s)", call, s->dev->name,
              e->dev->name);
}

static ambi_status check_recorded(const char *call, const ambi_event *e) {
  return e->recorded ? AMBI_OK : fail(AMBI_INVALID, "%s: the event was never recorded", call);
}

/* For what the host does with an event. */
static ambi_status check_passes(const char *call, const ambi_event *e) {
  if (!e) return fail(AMBI_INVALID, "%s: the event is NULL", call);
  TRY(check_recorded(call, e));
  if (!e->in_graph) return AMBI_OK;
  return fail(AMBI_INVALID, "%s: the event was recorded into a graph, where it only orders work; record one outside it",
              call);
}

ambi_status ambi_event_record(ambi_event *e, ambi_stream *s) {
  TRY(check_pair("ambi_event_record", e, s));
  TRY(e->dev->be->events->record(e, s));
  e->recorded = true;
  return AMBI_OK;
}

ambi_status ambi_stream_wait_event(ambi_stream *s, ambi_event *e) {
  TRY(check_pair("ambi_stream_wait_event", e, s));
  TRY(check_recorded("ambi_stream_wait_event", e));
  return e->dev->be->events->hold(s, e);
}

ambi_status ambi_event_wait(ambi_event *e) {
  TRY(check_passes("ambi_event_wait", e));
  return e->dev->be->events->wait(e);
}

ambi_status ambi_event_query(ambi_event *e, int32_t *passed) {
  if (passed) *passed = 0;
  TRY(check_passes("ambi_event_query", e));
  if (!passed) return fail(AMBI_INVALID, "ambi_event_query: passed is NULL");
  return e->dev->be->events->query(e, passed);
}

ambi_status ambi_event_elapsed(ambi_event *from, ambi_event *to, double *ms) {
  if (ms) *ms = 0;
  TRY(check_passes("ambi_event_elapsed", from));
  TRY(check_passes("ambi_event_elapsed", to));
  if (!ms) return fail(AMBI_INVALID, "ambi_event_elapsed: ms is NULL");
  if (from->dev != to->dev)
    return fail(AMBI_INVALID, "ambi_event_elapsed: the events are of two devices (%s, %s), whose clocks differ",
                from->dev->name, to->dev->name);
  const event_calls *calls = from->dev->be->events;
  TRY(calls->wait(from));
  TRY(calls->wait(to));
  return calls->elapsed(from, to, ms);
}
