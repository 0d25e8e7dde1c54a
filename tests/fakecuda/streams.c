/* streams.c -- copies and fills, streams, events, and graphs captured from streams. Work is done at once, in the call,
 * so that the order of streams is trivial; a capturing stream writes its work down instead. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "context.h"

typedef struct graph {
  object o; /* a GRAPH, or an EXEC with a copy of its work */
  work *list;
  size_t count, room;
  int streams; /* that took part in its capture */
} graph;
/* How much of each stream of a capture comes before a point in one of them: all of it must come before the end. */
enum { MAX_CAPTURING = 8 };
typedef struct {
  size_t seen[MAX_CAPTURING];
} past;
typedef struct stream {
  object o;
  graph *capture;  /* the graph being written, NULL when not capturing */
  bool began, bad; /* the capture began in this stream; it was spoilt */
  int mode;        /* CUstreamCaptureMode */
  int number;      /* among the streams of the capture */
  past past;
} stream;
typedef struct event {
  object o;
  bool recorded;
  struct timespec when;
  graph *capture; /* recorded in a stream that was capturing it */
  past past;
} event;
static graph ended; /* stands for graphs whose capture has ended */
#define ENDED (&ended)
static stream default_stream;

/* NULL and the two names of the default stream (1 and 2) are streams too; others are good in their context only. */
static stream *stream_of(void *handle) {
  if ((uintptr_t)handle <= 2) return &default_stream;
  stream *s = object_of(STREAM, handle);
  return s && s->o.context == current_context() ? s : NULL;
}

#define EACH_STREAM(s)                                                   \
  for (stream *s = (stream *)object_first(); s; s = (stream *)s->o.next) \
    if (s->o.kind == STREAM)

/* A relaxed capture (2) lets the thread do anything meanwhile. */
bool capturing(void) {
  bool any = false;
  EACH_STREAM(s) if (s->capture && s->began && s->mode != 2) any = s->bad = true;
  return any;
}

/* ---- work ---- */
static bool has_arguments(const work *w) { return w->what == LAUNCH || w->what == CALL; }

static void fill(const work *w) {
  for (size_t i = 0; i < w->bytes; i += w->width) memcpy((char *)w->to + i, &w->value, w->width);
}

static bool in_range(const work *w) {
  if (w->to_device && !memory_holds((pointer)(uintptr_t)w->to, w->bytes)) return false;
  if (w->from_device && !memory_holds((pointer)(uintptr_t)w->from, w->bytes)) return false;
  return has_arguments(w) || !w->bytes || (w->to && (w->what == FILL || w->from));
}

static result perform(const work *w) {
  if (!in_range(w)) return INVALID_VALUE;
  if (w->what == LAUNCH) return launch_run(w);
  if (w->what == CALL) return w->call(w->from), OK;
  if (w->what == FILL) return fill(w), OK;
  if (w->bytes) memmove(w->to, w->from, w->bytes);
  return OK;
}

static bool write_down(graph *g, const work *w) {
  if (g->count == g->room) {
    const size_t room = 2 * g->room + 16;
    work *list = realloc(g->list, room * sizeof *list);
    if (!list) return false;
    g->list = list, g->room = room;
  }
  work copy = *w;
  if (has_arguments(w)) {  /* they are those of the moment of capture */
    enum { ALIGNED = 64 }; /* as tensor maps among them want it */
    void *args = aligned_alloc(ALIGNED, (w->bytes + ALIGNED - 1) / ALIGNED * ALIGNED);
    if (!args) return false;
    copy.from = memcpy(args, w->from, w->bytes);
  }
  g->list[g->count++] = copy;
  return true;
}

result work_submit(void *handle, const work *w) {
  stream *s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (!s->capture) return perform(w);
  if (s->bad) return CAPTURE_INVALIDATED;
  if (!in_range(w)) return INVALID_VALUE;
  s->past.seen[s->number]++;
  return write_down(s->capture, w) ? OK : OUT_OF_MEMORY;
}

EXPORT result fakecuda_call(void *s, void (*call)(const void *args), const void *args, size_t bytes) {
  ENTER(CONTEXT);
  return work_submit(s, &(work){.what = CALL, .call = call, .from = args, .bytes = bytes});
}

static result copy(pointer to, pointer from, size_t bytes, void *s, bool to_device, bool from_device) {
  return work_submit(s, &(work){.what = COPY,
                                .to = (void *)(uintptr_t)to,
                                .from = (void *)(uintptr_t)from,
                                .bytes = bytes,
                                .to_device = to_device,
                                .from_device = from_device});
}

EXPORT result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *s) {
  ENTER(CONTEXT);
  return copy(to, (pointer)(uintptr_t)from, bytes, s, true, false);
}
EXPORT result cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t bytes, void *s) {
  ENTER(CONTEXT);
  return copy((pointer)(uintptr_t)to, from, bytes, s, false, true);
}
EXPORT result cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *s) {
  ENTER(CONTEXT);
  return copy(to, from, bytes, s, true, true);
}
EXPORT result cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes) {
  ENTER(CONTEXT);
  return capturing() ? CAPTURE_UNSUPPORTED : copy(to, (pointer)(uintptr_t)from, bytes, NULL, true, false);
}
EXPORT result cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes) {
  ENTER(CONTEXT);
  return capturing() ? CAPTURE_UNSUPPORTED : copy((pointer)(uintptr_t)to, from, bytes, NULL, false, true);
}

static result set(pointer to, unsigned value, unsigned width, size_t n, void *s) {
  if (n > SIZE_MAX / width || to % width) return INVALID_VALUE;
  return work_submit(s, &(work){.what = FILL,
                                .to = (void *)(uintptr_t)to,
                                .bytes = n * width,
                                .to_device = true,
                                .value = value,
                                .width = width});
}
EXPORT result cuMemsetD8Async(pointer to, unsigned char value, size_t n, void *s) {
  ENTER(CONTEXT);
  return set(to, value, 1, n, s);
}
EXPORT result cuMemsetD32Async(pointer to, unsigned value, size_t n, void *s) {
  ENTER(CONTEXT);
  return set(to, value, 4, n, s);
}

/* ---- streams ---- */
EXPORT result cuStreamCreate(void **s, unsigned flags) {
  ENTER(CONTEXT);
  if (!s || flags > 1) return INVALID_VALUE;
  *s = object_new(STREAM, sizeof(stream));
  return *s ? OK : OUT_OF_MEMORY;
}

EXPORT result cuStreamDestroy_v2(void *handle) {
  ENTER(CLEANUP);
  if (!object_of(STREAM, handle)) return INVALID_HANDLE;
  object_end(handle);
  return lost;
}

/* Waiting for work that is only being written down cannot be. */
static result wait_for(void *handle) {
  stream *s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (!s->capture) return OK;
  s->bad = true;
  return CAPTURE_UNSUPPORTED;
}
EXPORT result cuStreamSynchronize(void *s) {
  ENTER(CONTEXT);
  return wait_for(s);
}
EXPORT result cuStreamQuery(void *s) {
  ENTER(CONTEXT);
  return wait_for(s);
}

/* A stream that waits for an event of a capture joins it. */
static result join(stream *s, const event *e) {
  if (!s->capture) {
    if (s == &default_stream || e->capture->streams == MAX_CAPTURING) return CAPTURE_UNSUPPORTED;
    s->capture = e->capture;
    s->number = e->capture->streams++;
    s->past = (past){{0}};
  }
  for (int i = 0; i < MAX_CAPTURING; i++)
    if (e->past.seen[i] > s->past.seen[i]) s->past.seen[i] = e->past.seen[i];
  return OK;
}

EXPORT result cuStreamWaitEvent(void *handle, void *event_handle, unsigned flags) {
  ENTER(CONTEXT);
  stream *s = stream_of(handle);
  const event *e = object_of(EVENT, event_handle);
  if (!s || !e) return INVALID_HANDLE;
  if (flags > 1) return INVALID_VALUE;
  if (e->capture == ENDED && !s->capture) return INVALID_VALUE; /* as a driver of CUDA 13.0 does */
  if (s->capture && s->capture != e->capture) return s->bad = true, e->capture ? CAPTURE_MERGE : CAPTURE_ISOLATION;
  return e->capture ? join(s, e) : OK;
}

/* ---- events ---- */
EXPORT result cuEventCreate(void **e, unsigned flags) {
  ENTER(CONTEXT);
  if (!e || flags > 7) return INVALID_VALUE;
  *e = object_new(EVENT, sizeof(event));
  return *e ? OK : OUT_OF_MEMORY;
}

EXPORT result cuEventDestroy_v2(void *e) {
  ENTER(CLEANUP);
  if (!object_of(EVENT, e)) return INVALID_HANDLE;
  object_end(e);
  return lost;
}

EXPORT result cuEventRecord(void *handle, void *stream_handle) {
  ENTER(CONTEXT);
  event *e = object_of(EVENT, handle);
  const stream *s = stream_of(stream_handle);
  if (!e || !s) return INVALID_HANDLE;
  if (s->bad) return CAPTURE_INVALIDATED;
  e->capture = s->capture;
  e->past = s->past;
  e->recorded = !s->capture;
  clock_gettime(CLOCK_MONOTONIC, &e->when);
  return OK;
}

/* Neither is allowed to a thread that captures, be the event of the capture or not. */
static result passed(const event *e) {
  if (!e) return INVALID_HANDLE;
  if (e->capture) return CAPTURED_EVENT;
  return capturing() ? CAPTURE_UNSUPPORTED : OK;
}
EXPORT result cuEventSynchronize(void *handle) {
  ENTER(CONTEXT);
  return passed(object_of(EVENT, handle));
}
EXPORT result cuEventQuery(void *handle) {
  ENTER(CONTEXT);
  return passed(object_of(EVENT, handle));
}

static result elapsed(float *ms, const event *from, const event *to) {
  if (!ms) return INVALID_VALUE;
  if (!from || !to || !from->recorded || !to->recorded) return INVALID_HANDLE;
  const double seconds = (double)(to->when.tv_sec - from->when.tv_sec);
  *ms = (float)(seconds * 1e3 + (double)(to->when.tv_nsec - from->when.tv_nsec) * 1e-6);
  return OK;
}
EXPORT result cuEventElapsedTime(float *ms, void *from, void *to) {
  ENTER(CONTEXT);
  return elapsed(ms, object_of(EVENT, from), object_of(EVENT, to));
}
EXPORT result cuEventElapsedTime_v2(float *ms, void *from, void *to) {
  ENTER(CONTEXT);
  return elapsed(ms, object_of(EVENT, from), object_of(EVENT, to));
}

/* ---- graphs ---- */
static void graph_end(graph *g) {
  for (size_t i = 0; i < g->count; i++)
    if (has_arguments(&g->list[i])) free((void *)(uintptr_t)g->list[i].from);
  free(g->list);
  object_end(g);
}

EXPORT result cuStreamBeginCapture_v2(void *handle, int mode) {
  ENTER(CONTEXT);
  stream *s = object_of(STREAM, handle);
  if (!s) return (uintptr_t)handle <= 2 ? CAPTURE_UNSUPPORTED : INVALID_HANDLE;
  if (s->capture || mode < 0 || mode > 2) return INVALID_VALUE;
  s->capture = object_new(GRAPH, sizeof(graph));
  if (!s->capture) return OUT_OF_MEMORY;
  s->began = true, s->bad = false, s->mode = mode;
  s->number = s->capture->streams++;
  s->past = (past){{0}};
  return OK;
}

EXPORT result cuStreamIsCapturing(void *handle, int *status) {
  ENTER(CONTEXT);
  const stream *s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (!status) return INVALID_VALUE;
  *status = s->capture ? (s->bad ? 2 : 1) : 0;
  return OK;
}

/* The streams of the capture go on as usual; its events are of no more use. OK, or what is wrong with the capture. */
static result capture_end(const stream *first, const graph *g) {
  const past seen = first->past;
  result wrong = OK;
  EACH_STREAM(t) if (t->capture == g) {
    if (!wrong && t->past.seen[t->number] > seen.seen[t->number]) wrong = CAPTURE_UNJOINED;
    if (t->bad) wrong = CAPTURE_INVALIDATED;
    t->capture = NULL, t->began = t->bad = false;
  }
  for (object *o = object_first(); o; o = o->next)
    if (o->kind == EVENT && ((event *)o)->capture == g) ((event *)o)->capture = ENDED;
  return wrong;
}

EXPORT result cuStreamEndCapture(void *handle, void **out) {
  ENTER(CLEANUP);
  stream *s = object_of(STREAM, handle);
  if (!s || !out) return s ? INVALID_VALUE : INVALID_HANDLE;
  if (!s->capture) return INVALID_VALUE;
  if (!s->began) return CAPTURE_UNMATCHED;
  graph *g = s->capture;
  const result wrong = capture_end(s, g);
  *out = wrong ? NULL : g;
  if (!wrong) return lost;
  graph_end(g);
  return wrong;
}

EXPORT result cuGraphInstantiateWithFlags(void **exec, void *handle, unsigned long long flags) {
  ENTER(CONTEXT);
  (void)flags;
  const graph *g = object_of(GRAPH, handle);
  if (!g || !exec) return g ? INVALID_VALUE : INVALID_HANDLE;
  graph *x = object_new(EXEC, sizeof *x);
  if (!x) return OUT_OF_MEMORY;
  for (size_t i = 0; i < g->count; i++)
    if (!write_down(x, &g->list[i])) return graph_end(x), OUT_OF_MEMORY;
  *exec = x;
  return OK;
}

#ifndef FAKECUDA_WITHOUT_GRAPH_LAUNCH /* a driver too old for it */
EXPORT result cuGraphLaunch(void *handle, void *stream_handle) {
  ENTER(CONTEXT);
  const graph *x = object_of(EXEC, handle);
  if (!x || !stream_of(stream_handle)) return INVALID_HANDLE;
  result failed = OK;
  machine_replays(true);
  for (size_t i = 0; i < x->count && !failed; i++) failed = work_submit(stream_handle, &x->list[i]);
  machine_replays(false);
  return failed;
}
#endif

EXPORT result cuGraphExecDestroy(void *x) {
  ENTER(CLEANUP);
  if (!object_of(EXEC, x)) return INVALID_HANDLE;
  graph_end(x);
  return lost;
}

EXPORT result cuGraphDestroy(void *g) {
  ENTER(CLEANUP);
  if (!object_of(GRAPH, g)) return INVALID_HANDLE;
  graph_end(g);
  return lost;
}
