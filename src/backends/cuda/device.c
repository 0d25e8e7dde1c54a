/* device.c -- the device "cuda:N": a context of the driver, memory and streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/plan.h"
#include "core/environment.h"

enum { /* the driver's numbers */
       ATTRIBUTE_MULTIPROCESSORS = 16,
       ATTRIBUTE_L2_BYTES = 38,
       ATTRIBUTE_MAJOR = 75,
       ATTRIBUTE_MINOR = 76,
       ATTRIBUTE_SHARED_BYTES = 97,
       STREAM_NON_BLOCKING = 1
};

/* ---- context ---- */
bool cuda_is_ours(const cuda_device *d) { return d->process == getpid(); }

ambi_status cuda_enter(const cuda_device *d) {
  int error = d->api.cuCtxPushCurrent_v2(d->context);
  if (error && !cuda_is_ours(d))
    return fail(AMBI_NO_DEVICE,
                "cuda: this process was forked from the one that opened the device, and CUDA does not "
                "survive that; fork first, then open");
  return error ? api_check(&d->api, error, "making the context current") : AMBI_OK;
}

void cuda_leave(const cuda_device *d) {
  void *context;
  d->api.cuCtxPopCurrent_v2(&context);
}

static ambi_status find_device(ambi_device *dev, cuda_device *d, const char *which) {
  int count = 0;
  char *end;
  long n = strtol(*which ? which : "0", &end, 10);
  int error = d->api.cuInit(0);
  TRY(api_there(&d->api, error, error == 3 ? "cuInit (of no use in a process forked from one with CUDA)" : "cuInit"));
  TRY(api_there(&d->api, d->api.cuDeviceGetCount(&count), "counting devices"));
  if (*end || n < 0 || n >= count)
    return fail(AMBI_NO_DEVICE, "%s: there %s %d CUDA device%s, from cuda:0 on", dev->name, count == 1 ? "is" : "are",
                count, count == 1 ? "" : "s");
  return api_there(&d->api, d->api.cuDeviceGet(&d->device, (int)n), "cuDeviceGet");
}

static ambi_status attribute(const cuda_device *d, int number, int *out) {
  return api_check(&d->api, d->api.cuDeviceGetAttribute(out, number, d->device), "reading a device attribute");
}

static ambi_status read_attributes(cuda_device *d) {
  int major, minor, l2, shared;
  TRY(attribute(d, ATTRIBUTE_MAJOR, &major));
  TRY(attribute(d, ATTRIBUTE_MINOR, &minor));
  TRY(attribute(d, ATTRIBUTE_MULTIPROCESSORS, &d->multiprocessors));
  TRY(attribute(d, ATTRIBUTE_L2_BYTES, &l2));
  TRY(attribute(d, ATTRIBUTE_SHARED_BYTES, &shared));
  d->arch = 10 * major + minor;
  if (d->arch < OLDEST_ARCH)
    return fail(AMBI_NO_DEVICE, "cuda:%d is of compute capability %d.%d; ambi's kernels need %d.%d or newer", d->device,
                major, minor, OLDEST_ARCH / 10, OLDEST_ARCH % 10);
  d->l2_bytes = (uint64_t)l2;
  d->shared_bytes = shared;
  snprintf(d->isa, sizeof d->isa, "sm_%d", d->arch);
  return AMBI_OK;
}

static void describe(cuda_device *d) {
  char name[128] = "?";
  int driver = 0, major = 0, minor = 0;
  d->api.cuDeviceGetName(name, sizeof name - 1, d->device);
  d->api.cuDriverGetVersion(&driver);
  if (d->api.handle[LIB_COMPILER]) d->api.nvrtcVersion(&major, &minor);
  size_t used =
      (size_t)snprintf(d->features, sizeof d->features, "%s, %d multiprocessors, driver %d.%d\n  NVRTC: ", name,
                       d->multiprocessors, driver / 1000, driver % 1000 / 10);
  if (d->api.handle[LIB_COMPILER])
    used += (size_t)snprintf(d->features + used, sizeof d->features - used, "%d.%d, ", major, minor);
  snprintf(d->features + used, sizeof d->features - used, "%s\n  cuBLASLt: %s\n  kernels kept in: %s%s",
           d->api.found[LIB_COMPILER], d->api.found[LIB_BLAS],
           *d->cache_dir ? d->cache_dir : "nowhere (no folder for them)",
           *d->cache_dir && !d->keeps ? ", which cannot be written: new ones are not kept" : "");
}

/* The caller's folder, else the user's: $XDG_CACHE_HOME/ambi or ~/.cache/ambi. A name that is too long is none. */
static ambi_status choose_cache(cuda_device *d, const char *wanted) {
  const char *xdg = environment("XDG_CACHE_HOME"), *home = environment("HOME");
  int length = 0;
  if (wanted)
    length = snprintf(d->cache_dir, sizeof d->cache_dir, "%s", wanted);
  else if (xdg && *xdg == '/') /* what is relative is ignored, as the standard has it */
    length = snprintf(d->cache_dir, sizeof d->cache_dir, "%s/ambi", xdg);
  else if (home && *home == '/')
    length = snprintf(d->cache_dir, sizeof d->cache_dir, "%s/.cache/ambi", home);
  if (length < (int)sizeof d->cache_dir) return AMBI_OK;
  d->cache_dir[0] = 0;
  return wanted ? fail(AMBI_INVALID, "cuda: the name of cache_dir is longer than %zu bytes", sizeof d->cache_dir - 1)
                : AMBI_OK;
}

static ambi_status choose_texts(cuda_device *d, const char *max_isa) {
  static const char *const names[] = {[SPECIAL_LARGE] = "", [SPECIAL_ALWAYS] = "special", [SPECIAL_NEVER] = "general"};
  for (int i = 0; i < 3; i++)
    if (!strcmp(max_isa ? max_isa : "", names[i])) return d->special = (specialising)i, AMBI_OK;
  return fail(AMBI_INVALID, "cuda: max_isa is \"special\" or \"general\" here, not %.40s", max_isa);
}

static ambi_status find_context(ambi_device *dev, cuda_device *d, void *native, bool named) {
  int device = d->device;
  d->context = native;
  if (!native) {
    TRY(api_check(&d->api, d->api.cuDevicePrimaryCtxRetain(&d->context, d->device), "making a context"));
    d->retained = true;
    return AMBI_OK;
  }
  INSIDE(d, d->api.cuCtxGetDevice(&d->device), "asking the adopted context for its device");
  if (!named || d->device == device) return AMBI_OK;
  return fail(AMBI_INVALID, "%s: the adopted context is one of cuda:%d", dev->name, d->device);
}

static ambi_status open_device(ambi_device *dev, cuda_device *d, const char *which, const ambi_device_options *o) {
  d->process = getpid();
  TRY(api_load(&d->api));
  TRY(choose_texts(d, o->max_isa));
  TRY(find_device(dev, d, which));
  TRY(find_context(dev, d, o->native, *which));
  TRY(read_attributes(d));
  TRY(choose_cache(d, o->cache_dir));
  d->keeps = disk_prepare(d->cache_dir);
  d->notify = o->notify;
  d->notify_context = o->notify_context;
  INSIDE(d, d->api.cuStreamCreate(&d->stream, STREAM_NON_BLOCKING), "making a stream");
  d->modules = modules_new();
  if (!d->modules) return fail(AMBI_NO_MEMORY, "%s: no memory", dev->name);
  describe(d);
  return AMBI_OK;
}

/* Of a context that cannot be entered any more, or is another process's, only the host's side is left to free. */
static void cuda_close(ambi_device *dev) {
  cuda_device *d = cuda_of(dev);
  const bool ours = cuda_is_ours(d), inside = ours && d->context && cuda_enter(d) == AMBI_OK;
  modules_free(d, inside);
  if (inside) {
    if (d->blas) d->api.cublasLtDestroy(d->blas);
    if (d->stream) d->api.cuStreamDestroy_v2(d->stream);
    cuda_leave(d);
  }
  if (d->retained && ours) d->api.cuDevicePrimaryCtxRelease_v2(d->device);
  api_unload(&d->api);
  free(d);
}

static ambi_status cuda_open(ambi_device *dev, const char *which, const ambi_device_options *o) {
  cuda_device *d = calloc(1, sizeof *d);
  if (!d) return fail(AMBI_NO_MEMORY, "%s: no memory", dev->name);
  dev->impl = d;
  ambi_status s = open_device(dev, d, which, o);
  if (s != AMBI_OK) cuda_close(dev);
  return s;
}

static void cuda_info(const ambi_device *dev, ambi_device_info *info) {
  const cuda_device *d = cuda_of(dev);
  info->isa = d->isa;
  info->features = d->features;
  info->cache_bytes = d->l2_bytes;
}

/* ---- memory and streams ---- */
static ambi_status cuda_alloc(ambi_device *dev, size_t bytes, ambi_buf *out) {
  const cuda_device *d = cuda_of(dev);
  uint64_t at = 0;
  TRY(cuda_enter(d));
  int error = d->api.cuMemAlloc_v2(&at, bytes ? bytes : 1);
  size_t available = 0, total = 0;
  if (error) d->api.cuMemGetInfo_v2(&available, &total);
  char what[120];
  snprintf(what, sizeof what, "allocating %zu bytes (%zu of %zu are free)", bytes, available, total);
  ambi_status s = api_check(&d->api, error, what);
  cuda_leave(d);
  if (s == AMBI_OK) out->data = (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr): an address of the device */
  return s;
}

static void cuda_free(ambi_device *dev, ambi_buf b) {
  const cuda_device *d = cuda_of(dev);
  if (cuda_enter(d) != AMBI_OK) return;
  d->api.cuMemFree_v2((uint64_t)(uintptr_t)b.data);
  cuda_leave(d);
}

static ambi_status cuda_stream_open(ambi_stream *s, void *native) {
  const cuda_device *d = cuda_of(s->dev);
  s->impl = native;
  s->adopted = native != NULL;
  if (!native) INSIDE(d, d->api.cuStreamCreate(&s->impl, STREAM_NON_BLOCKING), "making a stream");
  return AMBI_OK;
}

static void cuda_stream_close(ambi_stream *s) {
  const cuda_device *d = cuda_of(s->dev);
  if (s->adopted || cuda_enter(d) != AMBI_OK) return;
  d->api.cuStreamDestroy_v2(s->impl);
  cuda_leave(d);
}

static ambi_status cuda_upload(ambi_stream *s, ambi_buf dst, const void *src, size_t bytes) {
  const cuda_device *d = cuda_of(s->dev);
  if (bytes)
    INSIDE(d, d->api.cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)dst.data + dst.offset, src, bytes, s->impl),
           "uploading");
  return AMBI_OK;
}

static ambi_status cuda_download(ambi_stream *s, void *dst, ambi_buf src, size_t bytes) {
  const cuda_device *d = cuda_of(s->dev);
  if (bytes)
    INSIDE(d, d->api.cuMemcpyDtoHAsync_v2(dst, (uint64_t)(uintptr_t)src.data + src.offset, bytes, s->impl),
           "downloading");
  return AMBI_OK;
}

static ambi_status cuda_copy(ambi_stream *s, ambi_buf dst, ambi_buf src, size_t bytes) {
  const cuda_device *d = cuda_of(s->dev);
  uint64_t to = (uint64_t)(uintptr_t)dst.data + dst.offset, from = (uint64_t)(uintptr_t)src.data + src.offset;
  if (bytes) INSIDE(d, d->api.cuMemcpyDtoDAsync_v2(to, from, bytes, s->impl), "copying");
  return AMBI_OK;
}

static ambi_status cuda_wait(ambi_stream *s) {
  const cuda_device *d = cuda_of(s->dev);
  INSIDE(d, d->api.cuStreamSynchronize(s->impl), "waiting for a stream");
  return AMBI_OK;
}

/* ---- graphs ---- */
enum { CAPTURE_RELAXED = 2, CAPTURE_UNJOINED = 904 }; /* relaxed: the thread may allocate and make plans meanwhile */

static ambi_status cuda_record(ambi_stream *s) {
  const cuda_device *d = cuda_of(s->dev);
  INSIDE(d, d->api.cuStreamBeginCapture_v2(s->impl, CAPTURE_RELAXED), "starting to record");
  return AMBI_OK;
}

static ambi_status make_graph(const cuda_device *d, int error, void *recording, ambi_graph *g) {
  TRY(api_check(&d->api, error,
                error == CAPTURE_UNJOINED
                    ? "ending a recording (each stream that joined it must be waited for, through an event)"
                    : "ending a recording"));
  return api_check(&d->api, d->api.cuGraphInstantiateWithFlags(&g->impl, recording, 0),
                   "making a graph of a recording");
}

/* Of one that is dropped (g NULL) nobody asks whether it could be a graph: what led to that has been said. */
static ambi_status cuda_recorded(ambi_stream *s, ambi_graph *g) {
  const cuda_device *d = cuda_of(s->dev);
  void *recording = NULL;
  TRY(cuda_enter(d));
  const int error = d->api.cuStreamEndCapture(s->impl, &recording);
  const ambi_status status = g ? make_graph(d, error, recording, g) : AMBI_OK;
  if (recording) d->api.cuGraphDestroy(recording);
  cuda_leave(d);
  return status;
}

static ambi_status cuda_replay(const ambi_graph *g, ambi_stream *s) {
  const cuda_device *d = cuda_of(s->dev);
  INSIDE(d, d->api.cuGraphLaunch(g->impl, s->impl), "replaying a graph");
  return AMBI_OK;
}

static void cuda_forget(ambi_graph *g) {
  const cuda_device *d = cuda_of(g->dev);
  if (cuda_enter(d) != AMBI_OK) return;
  d->api.cuGraphExecDestroy(g->impl);
  cuda_leave(d);
}

const backend cuda_backend = {.name = "cuda",
                              .flat = true,
                              .open = cuda_open,
                              .close = cuda_close,
                              .info = cuda_info,
                              .alloc = cuda_alloc,
                              .free = cuda_free,
                              .stream_open = cuda_stream_open,
                              .stream_close = cuda_stream_close,
                              .upload = cuda_upload,
                              .download = cuda_download,
                              .copy = cuda_copy,
                              .wait = cuda_wait,
                              .record = cuda_record,
                              .recorded = cuda_recorded,
                              .replay = cuda_replay,
                              .forget = cuda_forget,
                              .events = &cuda_events,
                              .queues = true,
                              .has_kernel = cuda_has_kernel,
                              .plan = cuda_make_plan,
                              .unplan = cuda_unplan,
                              .source = cuda_source,
                              .run = cuda_run,
                              .kernel = cuda_kernel_info};
