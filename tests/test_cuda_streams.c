/* test_cuda_streams.c -- events, and contexts and streams of the caller's.
 *
 *   test_cuda_streams             on the stand-in for the driver (fakecuda/)
 *   test_cuda_streams cuda:0      on a GPU: without faults, counts of objects, and what no real driver survives
 *
 * The stand-in refuses a stream or a kernel outside its context, and a capture whose streams do not join: what passes
 * here asks for nothing that a real driver would refuse. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "event_checks.h"
#include "standins.h"
#include "together_checks.h"

enum { N = 1000 };
static char cache[64] = "/tmp/ambi-cache-XXXXXX";

/* ---- the driver, as a program beside ambi would call it ---- */
/* clang-format off */
#define DRIVER(F)                                                       \
  F(cuInit, (unsigned))                                                 \
  F(cuDevicePrimaryCtxRetain, (void **, int))                           \
  F(cuDevicePrimaryCtxRelease_v2, (int))                                \
  F(cuCtxCreate_v2, (void **, unsigned, int))                           \
  F(cuCtxDestroy_v2, (void *))                                          \
  F(cuCtxSetCurrent, (void *))                                          \
  F(cuCtxGetCurrent, (void **))                                         \
  F(cuCtxPushCurrent_v2, (void *))                                      \
  F(cuCtxPopCurrent_v2, (void **))                                      \
  F(cuStreamCreate, (void **, unsigned))                                \
  F(cuStreamDestroy_v2, (void *))                                       \
  F(cuStreamQuery, (void *))                                            \
  F(cuStreamBeginCapture_v2, (void *, int))                             \
  F(cuStreamEndCapture, (void *, void **))                              \
  F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
  F(cuGraphLaunch, (void *, void *))                                    \
  F(cuGraphExecDestroy, (void *))                                       \
  F(cuGraphDestroy, (void *))
/* clang-format on */
#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)
static long (*fakecuda_live)(const char *);
static bool on_gpu;

static bool find_driver(void) {
  bool all = true;
  void *library = dlopen(on_gpu ? "libcuda.so.1" : LIBRARIES "/libraries/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
#define FIND(name, args) all = library && (*(void **)&name = dlsym(library, #name)) && all;
  DRIVER(FIND)
  if (!on_gpu) FIND(fakecuda_live, )
  return CHECK(all && cuInit(0) == 0, "the driver, or its stand-in");
}

/* So many objects of that kind (NULL: of any) are there. */
static void check_live(const char *kind, long wanted) {
  if (on_gpu) return;
  const long live = fakecuda_live(kind);
  CHECK(live == wanted, "%ld of %s are there, not %ld", live, kind ? kind : "anything", wanted);
}

static void *current(void) {
  void *c = NULL;
  cuCtxGetCurrent(&c);
  return c;
}

/* ---- a device with one plan ---- */
typedef struct {
  ambi_device *dev;
  ambi_stream *stream;
  ambi_buf x, y, z;
  ambi_plan *plan;
} rig;

static bool rig_open(rig *r, void *context, void *stream) {
  float x[N];
  int64_t n = N;
  ambi_op op = {.kind = AMBI_UNARY};
  memset(r, 0, sizeof *r);
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_F32, 1, &n);
  for (int i = 0; i < N; i++) x[i] = (float)i / 100 - 5;
  return CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.native = context, .cache_dir = cache}, &r->dev)) &&
         CHECK_OK(ambi_stream_create(r->dev, stream, &r->stream)) && CHECK_OK(ambi_alloc(r->dev, sizeof x, &r->x)) &&
         CHECK_OK(ambi_alloc(r->dev, sizeof x, &r->y)) && CHECK_OK(ambi_alloc(r->dev, sizeof x, &r->z)) &&
         CHECK_OK(ambi_upload(r->stream, r->x, x, sizeof x)) && CHECK_OK(ambi_plan_create(r->dev, &op, &r->plan));
}

static void rig_close(rig *r) {
  ambi_plan_destroy(r->plan);
  ambi_free(r->dev, r->x), ambi_free(r->dev, r->y), ambi_free(r->dev, r->z);
  ambi_stream_destroy(r->stream);
  ambi_device_close(r->dev);
  memset(r, 0, sizeof *r);
}

static ambi_status apply(const rig *r, ambi_stream *s, ambi_buf from, ambi_buf to) {
  ambi_buf slots[AMBI_SLOTS] = {[AMBI_UNARY_X] = from, [AMBI_UNARY_Y] = to};
  return ambi_run(r->plan, s, slots, AMBI_SLOTS, (ambi_buf){0});
}

static float last_of(const rig *r, ambi_buf b) {
  float v[N] = {0};
  CHECK_OK(ambi_download(r->stream, v, b, sizeof v));
  CHECK_OK(ambi_stream_wait(r->stream));
  return v[N - 1];
}

static void clear(const rig *r, ambi_buf b) {
  static const float zero[N];
  CHECK_OK(ambi_upload(r->stream, b, zero, sizeof zero));
}

/* ---- events ---- */
static void fail_in(const char *call) { setenv("FAKECUDA_FAIL", call, 1); }

/* A call that fails in a recording leaves it as it was, and says why it failed. */
static void check_together_fails(ambi_device *dev, const char *rule, const char *word) {
  together t;
  ambi_graph *graph = NULL;
  if (together_open(&t, dev) && CHECK_OK(at_once(&t)) && CHECK_OK(ambi_record(t.stream))) {
    fail_in(rule);
    CHECK_STATUS(at_once(&t), AMBI_NO_MEMORY, word, "out of memory");
    fail_in("");
    CHECK_OK(at_once(&t));
    if (CHECK_OK(ambi_recorded(t.stream, &graph))) CHECK_OK(ambi_replay(graph, t.stream));
    CHECK_OK(ambi_stream_wait(t.stream));
  }
  ambi_graph_destroy(graph);
  together_close(&t);
}

/* Every call that can fail does. */
static void check_event_faults(const rig *r) {
  ambi_event *e = NULL, *none = NULL;
  int32_t passed = 7;
  double ms;
  check_together_fails(r->dev, "cuStreamWaitEvent:2:2:1", "wait for an event");
  check_together_fails(r->dev, "cuEventRecord:1:2:1", "recording an event");
  check_together_fails(r->dev, "cuLaunchKernel:3:2:1", "pointwise");
  if (!CHECK_OK(ambi_event_create(r->dev, &e)) || !CHECK_OK(ambi_event_record(e, r->stream))) return;
  fail_in("cuEventQuery:1:600");
  CHECK(ambi_event_query(e, &passed) == AMBI_OK && passed == 0, "an event that has not passed: %s", ambi_error());
  fail_in("cuEventCreate:1:2");
  CHECK_STATUS(ambi_event_create(r->dev, &none), AMBI_NO_MEMORY, "event", "out of memory");
  CHECK(none == NULL, "an event that was not made is NULL");
  fail_in("cuEventRecord:1:400");
  CHECK_STATUS(ambi_event_record(e, r->stream), AMBI_INVALID, "recording an event");
  fail_in("cuStreamWaitEvent:1:400");
  CHECK_STATUS(ambi_stream_wait_event(r->stream, e), AMBI_INVALID, "wait for an event");
  fail_in("cuEventElapsedTime:1:999");
  CHECK_STATUS(ambi_event_elapsed(e, e, &ms), AMBI_DEVICE_LOST, "time between");
  fail_in("cuEventSynchronize:1:700");
  CHECK_STATUS(ambi_event_wait(e), AMBI_DEVICE_LOST, "waiting for an event", "open it again");
  fail_in("");
  CHECK_STATUS(ambi_event_record(e, r->stream), AMBI_DEVICE_LOST, "lost");
  ambi_event_destroy(e);
}

static void test_events(void) {
  rig r;
  ambi_device *ref = NULL;
  if (!rig_open(&r, NULL, NULL) || !CHECK_OK(ambi_device_open("ref", NULL, &ref))) return rig_close(&r);
  check_events(r.dev, ref);
  check_together(r.dev, ref);
  ambi_device_close(ref);
  check_live("event", 0);
  check_live("stream", 2); /* the device's and the rig's */
  if (!on_gpu) check_event_faults(&r);
  rig_close(&r);
  check_live(NULL, 0);
}

/* ---- two streams, one graph ---- */
typedef struct {
  rig r;
  ambi_stream *side;
  ambi_event *fork, *join;
} pair;

static bool pair_open(pair *p) {
  memset(p, 0, sizeof *p);
  return rig_open(&p->r, NULL, NULL) && CHECK_OK(ambi_stream_create(p->r.dev, NULL, &p->side)) &&
         CHECK_OK(ambi_event_create(p->r.dev, &p->fork)) && CHECK_OK(ambi_event_create(p->r.dev, &p->join));
}

static void pair_close(pair *p) {
  ambi_event_destroy(p->fork), ambi_event_destroy(p->join);
  ambi_stream_destroy(p->side);
  rig_close(&p->r);
}

/* y = f(x) on one stream, then z = f(y) on the other, then the first goes on. */
static bool both(const pair *p, bool join) {
  const rig *r = &p->r;
  return CHECK_OK(apply(r, r->stream, r->x, r->y)) && CHECK_OK(ambi_event_record(p->fork, r->stream)) &&
         CHECK_OK(ambi_stream_wait_event(p->side, p->fork)) && CHECK_OK(apply(r, p->side, r->y, r->z)) &&
         CHECK_OK(ambi_event_record(p->join, p->side)) &&
         (!join || CHECK_OK(ambi_stream_wait_event(r->stream, p->join)));
}

/* An event that was recorded into a graph orders its work, and that is all. */
static void check_in_graph(const pair *p) {
  int32_t passed;
  double ms;
  CHECK_STATUS(ambi_event_wait(p->join), AMBI_INVALID, "ambi_event_wait", "into a graph");
  CHECK_STATUS(ambi_event_query(p->join, &passed), AMBI_INVALID, "ambi_event_query", "into a graph");
  CHECK_STATUS(ambi_event_elapsed(p->fork, p->join, &ms), AMBI_INVALID, "ambi_event_elapsed", "into a graph");
}

static void test_joined(void) {
  pair p;
  ambi_graph *graph = NULL;
  if (!pair_open(&p)) return pair_close(&p);
  const rig *r = &p.r;
  both(&p, true);
  const float y = last_of(r, r->y), z = last_of(r, r->z);
  CHECK(y != 0 && z != 0 && y != z, "two functions of the last element: %g, %g", (double)y, (double)z);
  for (int joins = 0; joins < 2; joins++) {
    clear(r, r->y), clear(r, r->z);
    CHECK_OK(ambi_record(r->stream));
    both(&p, joins);
    check_in_graph(&p);
    if (joins)
      CHECK_OK(ambi_recorded(r->stream, &graph));
    else
      CHECK_STATUS(ambi_recorded(r->stream, &graph), AMBI_INVALID, "unjoined", "waited for, through an event");
    CHECK(last_of(r, r->z) == 0, "recording runs nothing");
  }
  check_in_graph(&p);
  CHECK_STATUS(ambi_stream_wait_event(p.side, p.join), AMBI_INVALID, "into a graph");
  for (int i = 0; i < 2; i++) {
    clear(r, r->y), clear(r, r->z);
    CHECK_OK(ambi_replay(graph, r->stream));
    CHECK(last_of(r, r->y) == y && last_of(r, r->z) == z, "replay %d", i);
  }
  CHECK_OK(ambi_event_record(p.join, r->stream)); /* outside, it is an event like any other */
  CHECK_OK(ambi_event_wait(p.join));
  ambi_graph_destroy(graph);
  pair_close(&p);
}

/* Work of before cannot be waited for inside a graph: the recording is spoilt, the streams are not. */
static void test_isolation(void) {
  pair p;
  ambi_graph *graph = NULL;
  if (!pair_open(&p)) return pair_close(&p);
  CHECK_OK(ambi_event_record(p.fork, p.side));
  CHECK_OK(ambi_record(p.r.stream));
  CHECK_STATUS(ambi_stream_wait_event(p.r.stream, p.fork), AMBI_INVALID, "wait for an event", "uncaptured");
  CHECK_STATUS(ambi_recorded(p.r.stream, &graph), AMBI_INVALID, "ending a recording");
  CHECK(graph == NULL, "no graph");
  both(&p, true);
  CHECK(last_of(&p.r, p.r.z) != 0, "both streams work again");
  pair_close(&p);
}

/* ---- adopted contexts and streams ---- */
/* Everything a program does with a device; `found` is current all the time. */
static void use_all(rig *r, void *context, void *stream, void *found) {
  ambi_event *e = NULL;
  ambi_buf b;
  double ms;
#define STAYS(what) CHECK(current() == found, "%s changes the current context", what)
  rig_open(r, context, stream), STAYS("opening");
  CHECK_OK(apply(r, r->stream, r->x, r->y)), STAYS("a run");
  CHECK_OK(apply(r, NULL, r->x, r->z)), STAYS("a run on the device's own stream");
  CHECK(last_of(r, r->y) != 0, "it ran"), STAYS("waiting");
  CHECK_OK(ambi_copy(r->stream, r->z, r->y, 4)), STAYS("a copy");
  CHECK_OK(ambi_event_create(r->dev, &e)), STAYS("making an event");
  CHECK_OK(ambi_event_record(e, r->stream)), STAYS("recording an event");
  CHECK_OK(ambi_event_elapsed(e, e, &ms)), STAYS("elapsed");
  ambi_event_destroy(e), STAYS("destroying an event");
  static const char *const faults[] = {"cuMemAlloc_v2:1:2", "cuLaunchKernel:1:1", "cuStreamSynchronize:1:1",
                                       "cuMemcpyHtoDAsync_v2:1:1", "cuEventCreate:1:2"};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    fail_in(faults[i]);
    if (ambi_alloc(r->dev, 64, &b) == AMBI_OK) ambi_free(r->dev, b);
    (void)apply(r, r->stream, r->x, r->y);
    (void)ambi_upload(r->stream, r->x, "", 1);
    (void)ambi_stream_wait(r->stream);
    if (ambi_event_create(r->dev, &e) == AMBI_OK) ambi_event_destroy(e);
    STAYS(faults[i]);
  }
  fail_in("");
#undef STAYS
}

/* The caller's context and stream are used, left as they were, and never destroyed. */
static void adopt(void *context, void *found) {
  void *stream = NULL;
  rig r;
  cuCtxPushCurrent_v2(context);
  CHECK(cuStreamCreate(&stream, 1) == 0, "a stream of the caller's");
  cuCtxPopCurrent_v2(NULL);
  cuCtxSetCurrent(found);
  use_all(&r, context, stream, found);
  rig_close(&r);
  CHECK(current() == found, "closing changes the current context");
  CHECK(cuCtxPushCurrent_v2(context) == 0 && cuStreamQuery(stream) == 0, "context and stream are still there");
  check_live("stream", 1), check_live(NULL, 1);
  CHECK(cuStreamDestroy_v2(stream) == 0, "the stream was the caller's to destroy");
  cuCtxPopCurrent_v2(NULL);
}

static void test_adopted(void) {
  void *made = NULL, *other = NULL, *primary = NULL;
  CHECK(cuCtxCreate_v2(&made, 0, 0) == 0 && cuCtxCreate_v2(&other, 0, 0) == 0, "contexts of the caller's");
  CHECK(cuDevicePrimaryCtxRetain(&primary, 0) == 0, "the primary one");
  cuCtxPopCurrent_v2(NULL), cuCtxPopCurrent_v2(NULL);
  adopt(made, NULL);    /* none is current */
  adopt(made, made);    /* it is current already */
  adopt(made, other);   /* another one is */
  adopt(primary, made); /* PyTorch's, while somebody else's is current */
  cuCtxSetCurrent(NULL);
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0, "the caller holds the primary context still");
  CHECK(on_gpu || cuCtxPushCurrent_v2(primary) == 201, "and was the last to");
  CHECK(cuCtxDestroy_v2(made) == 0 && cuCtxDestroy_v2(other) == 0, "contexts were the caller's to destroy");
}

/* What runs on an adopted stream is in that stream: a capture that the caller began there holds it. */
static void test_stream_is_used(void) {
  void *context = NULL, *stream = NULL, *graph = NULL, *exec = NULL;
  rig r;
  CHECK(cuCtxCreate_v2(&context, 0, 0) == 0 && cuStreamCreate(&stream, 1) == 0, "a context and a stream");
  if (rig_open(&r, context, stream)) {
    clear(&r, r.y);
    CHECK(cuStreamBeginCapture_v2(stream, 1) == 0, "the caller captures");
    CHECK_OK(apply(&r, r.stream, r.x, r.y));
    CHECK(cuStreamEndCapture(stream, &graph) == 0 && cuGraphInstantiateWithFlags(&exec, graph, 0) == 0, "a graph");
    CHECK(last_of(&r, r.y) == 0, "the run was captured");
    CHECK(cuGraphLaunch(exec, stream) == 0 && last_of(&r, r.y) != 0, "and is in the graph");
    cuGraphExecDestroy(exec), cuGraphDestroy(graph);
  }
  rig_close(&r);
  CHECK(cuStreamDestroy_v2(stream) == 0 && cuCtxDestroy_v2(context) == 0, "both are still there");
}

/* Two devices over one context, closed in the order they were opened in; streams adopted twice. */
static void test_twice(void) {
  void *context = NULL, *stream = NULL;
  rig a, b;
  ambi_stream *again = NULL;
  CHECK(cuCtxCreate_v2(&context, 0, 0) == 0 && cuStreamCreate(&stream, 1) == 0, "a context and a stream");
  bool open = rig_open(&a, context, stream);
  if (rig_open(&b, context, stream) && open) {
    CHECK_OK(ambi_stream_create(b.dev, stream, &again));
    CHECK_STATUS(apply(&b, a.stream, b.x, b.y), AMBI_INVALID, "another device");
    ambi_stream_destroy(again);
    rig_close(&a);
    CHECK_OK(apply(&b, b.stream, b.x, b.y));
    CHECK(last_of(&b, b.y) != 0, "the second works on");
  }
  rig_close(&b);
  CHECK(current() == context, "it is current as before");
  CHECK(cuStreamDestroy_v2(stream) == 0 && cuCtxDestroy_v2(context) == 0, "both are still there");
}

/* The caller destroys first: calls say so, closing is quiet. */
static void test_wrong_order(void) {
  void *context = NULL, *stream = NULL;
  rig r;
  ambi_device *dev;
  CHECK(cuCtxCreate_v2(&context, 0, 0) == 0 && cuStreamCreate(&stream, 1) == 0, "a context and a stream");
  if (rig_open(&r, context, stream)) {
    CHECK(cuStreamDestroy_v2(stream) == 0, "the stream goes first");
    CHECK_STATUS(apply(&r, r.stream, r.x, r.y), AMBI_INVALID, "invalid resource handle");
    CHECK_STATUS(ambi_stream_wait(r.stream), AMBI_INVALID, "waiting for a stream");
    CHECK_OK(apply(&r, NULL, r.x, r.y));
    CHECK(cuCtxDestroy_v2(context) == 0, "then the context");
    CHECK_STATUS(apply(&r, NULL, r.x, r.y), AMBI_INVALID, "context", "current");
  }
  rig_close(&r);
  CHECK(current() == NULL, "no context is current");
  CHECK_STATUS(ambi_device_open("cuda", &(ambi_device_options){.native = context}, &dev), AMBI_INVALID, "context");
}

/* A context knows its device. */
static void test_other_device(void) {
  void *context = NULL;
  ambi_device *dev = NULL;
  setenv("FAKECUDA_DEVICES", "2", 1);
  CHECK(cuCtxCreate_v2(&context, 0, 1) == 0, "a context of the second device");
  CHECK_STATUS(ambi_device_open("cuda:0", &(ambi_device_options){.native = context}, &dev), AMBI_INVALID, "cuda:0",
               "cuda:1");
  if (CHECK_OK(ambi_device_open("cuda:1", &(ambi_device_options){.native = context}, &dev))) ambi_device_close(dev);
  if (CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.native = context}, &dev))) ambi_device_close(dev);
  setenv("FAKECUDA_CAPABILITY", "75", 1);
  CHECK_STATUS(ambi_device_open("cuda", &(ambi_device_options){.native = context}, &dev), AMBI_NO_DEVICE,
               "cuda:1 is of", "7.5");
  unsetenv("FAKECUDA_CAPABILITY");
  CHECK(cuCtxDestroy_v2(context) == 0, "it is still there");
  unsetenv("FAKECUDA_DEVICES");
}

/* ---- a process forked from one that uses CUDA ---- */
static void in_child(rig *r) {
  ambi_device *dev;
  CHECK_STATUS(apply(r, r->stream, r->x, r->y), AMBI_NO_DEVICE, "forked");
  CHECK_STATUS(ambi_device_open("cuda", NULL, &dev), AMBI_NO_DEVICE, "cuInit", "forked");
  rig_close(r);
}

static void test_fork(void) {
  rig r;
  int status = -1;
  if (!rig_open(&r, NULL, NULL)) return rig_close(&r);
  const int before = test_failed;
  pid_t child = fork();
  if (child == 0) {
    in_child(&r);
    fflush(stdout);
    _exit(test_failed != before);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child's checks: status %d", status);
  CHECK_OK(apply(&r, r.stream, r.x, r.y));
  CHECK(last_of(&r, r.y) != 0, "the parent works on");
  rig_close(&r);
}

int main(int argc, char **argv) {
  char remove[100];
  on_gpu = argc > 1 && !strcmp(argv[1], "cuda:0");
  if (!CHECK(argc == 1 || on_gpu, "usage: test_cuda_streams [cuda:0]")) return test_done();
  if (!on_gpu && stand_ins_missing()) return 0;
  if (!on_gpu) setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  if (!mkdtemp(cache) || !find_driver()) return test_done();
  test_events();
  test_joined();
  test_isolation();
  test_adopted();
  test_stream_is_used();
  test_twice();
  test_fork();
  if (!on_gpu) test_other_device();
  if (!on_gpu) test_wrong_order(); /* leaves what the destroyed context held */
  snprintf(remove, sizeof remove, "rm -r %s", cache);
  return system(remove) ? 1 : test_done();
}
