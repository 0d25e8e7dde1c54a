/* events.c -- events of the CUDA device: the driver's own. */
#include "backends/cuda/cuda.h"

static void *stream_of(const cuda_device *d, const ambi_stream *s) { return s ? s->impl : d->stream; }

static ambi_status cuda_event_open(ambi_event *e) {
  enum { WITH_TIMES = 0 };
  const cuda_device *d = cuda_of(e->dev);
  INSIDE(d, d->api.cuEventCreate(&e->impl, WITH_TIMES), "making an event");
  return AMBI_OK;
}

static void cuda_event_close(ambi_event *e) {
  const cuda_device *d = cuda_of(e->dev);
  if (cuda_enter(d) != AMBI_OK) return;
  d->api.cuEventDestroy_v2(e->impl);
  cuda_leave(d);
}

static ambi_status cuda_event_record(ambi_event *e, ambi_stream *s) {
  const cuda_device *d = cuda_of(e->dev);
  int capturing = 0;
  INSIDE(d, d->api.cuStreamIsCapturing(stream_of(d, s), &capturing), "asking whether a stream records a graph");
  INSIDE(d, d->api.cuEventRecord(e->impl, stream_of(d, s)), "recording an event");
  e->in_graph = capturing != 0;
  return AMBI_OK;
}

/* Inside a graph only its own events can be waited for, and outside it none of them: the driver refuses, but of the
 * latter it says no more than that a value is invalid. */
static ambi_status cuda_event_hold(ambi_stream *s, ambi_event *e) {
  const cuda_device *d = cuda_of(e->dev);
  INSIDE(d, d->api.cuStreamWaitEvent(stream_of(d, s), e->impl, 0),
         e->in_graph
             ? "making a stream wait for an event that was recorded into a graph, as only streams of that recording can"
             : "making a stream wait for an event");
  return AMBI_OK;
}

static ambi_status cuda_event_wait(ambi_event *e) {
  const cuda_device *d = cuda_of(e->dev);
  INSIDE(d, d->api.cuEventSynchronize(e->impl), "waiting for an event");
  return AMBI_OK;
}

static ambi_status cuda_event_query(ambi_event *e, int32_t *passed) {
  enum { NOT_READY = 600 };
  const cuda_device *d = cuda_of(e->dev);
  TRY(cuda_enter(d));
  int error = d->api.cuEventQuery(e->impl);
  cuda_leave(d);
  *passed = error == 0;
  return error == NOT_READY ? AMBI_OK : api_check(&d->api, error, "asking whether an event has passed");
}

static ambi_status cuda_event_elapsed(ambi_event *from, ambi_event *to, double *ms) {
  const cuda_device *d = cuda_of(from->dev);
  float time = 0;
  INSIDE(d, d->api.cuEventElapsedTime(&time, from->impl, to->impl), "measuring the time between two events");
  *ms = (double)time;
  return AMBI_OK;
}

const event_calls cuda_events = {.open = cuda_event_open,
                                 .close = cuda_event_close,
                                 .record = cuda_event_record,
                                 .hold = cuda_event_hold,
                                 .wait = cuda_event_wait,
                                 .query = cuda_event_query,
                                 .elapsed = cuda_event_elapsed};
