/* test_cuda.c -- the CUDA device without a GPU: finding libraries, faults, the cache, graphs, plans from many threads.
 *
 * Kernels run for real, on stand-ins for the driver and NVRTC (fakecuda/); FAKECUDA_* make them fail: see
 * fakecuda/fake.h. What the kernels compute is checked by `ambi check cuda` on the same stand-ins. */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char cache[64] = "/tmp/ambi-cache-XXXXXX";

static ambi_status open_cuda(ambi_device **dev) {
  return ambi_device_open("cuda", &(ambi_device_options){.cache_dir = cache}, dev);
}

static ambi_op silu(int64_t n) {
  ambi_op op = {.kind = AMBI_UNARY};
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_F32, 1, &n);
  return op;
}

/* ---- a device -----------------------------------------------------------------------------------------------------
 */
typedef struct {
  ambi_device *dev;
  ambi_stream *stream;
  ambi_buf x, y;
  ambi_plan *plan;
} rig;

enum { N = 1000 };

static bool rig_open(rig *r) {
  float x[N];
  ambi_op op = silu(N);
  memset(r, 0, sizeof *r);
  for (int i = 0; i < N; i++) x[i] = (float)i / 100 - 5;
  return CHECK(open_cuda(&r->dev) == AMBI_OK && ambi_stream_create(r->dev, NULL, &r->stream) == AMBI_OK &&
                   ambi_alloc(r->dev, sizeof x, &r->x) == AMBI_OK && ambi_alloc(r->dev, sizeof x, &r->y) == AMBI_OK &&
                   ambi_upload(r->stream, r->x, x, sizeof x) == AMBI_OK &&
                   ambi_plan_create(r->dev, &op, &r->plan) == AMBI_OK,
               "%s", ambi_error());
}

static void rig_close(rig *r) {
  ambi_plan_destroy(r->plan);
  if (r->dev) ambi_free(r->dev, r->x), ambi_free(r->dev, r->y);
  ambi_stream_destroy(r->stream);
  ambi_device_close(r->dev);
}

static ambi_status rig_run(const rig *r) {
  ambi_buf slots[AMBI_SLOTS] = {[AMBI_UNARY_X] = r->x, [AMBI_UNARY_Y] = r->y};
  return ambi_run(r->plan, r->stream, slots, AMBI_SLOTS, (ambi_buf){0});
}

static void read_y(const rig *r, float *y) {
  CHECK(ambi_download(r->stream, y, r->y, N * sizeof *y) == AMBI_OK && ambi_stream_wait(r->stream) == AMBI_OK, "%s",
        ambi_error());
}

/* ---- libraries ------------------------------------------------------------------------------------------------------
 */
static void test_libraries(void) {
  ambi_device *dev;
  ambi_device_info info;
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/old", 1);
  CHECK_STATUS(open_cuda(&dev), AMBI_NO_DEVICE, "cuGraphLaunch", "too old");
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  setenv("FAKECUDA_DEVICES", "0", 1);
  CHECK_STATUS(open_cuda(&dev), AMBI_NO_DEVICE, "no CUDA-capable device");
  unsetenv("FAKECUDA_DEVICES");
  CHECK_STATUS(ambi_device_open("cuda:7", NULL, &dev), AMBI_NO_DEVICE, "cuda:7", "cuda:0");
  CHECK_STATUS(ambi_device_open("cuda:x", NULL, &dev), AMBI_NO_DEVICE, "cuda:x");
  CHECK_STATUS(ambi_device_open("cuda", &(ambi_device_options){.max_isa = "avx2"}, &dev), AMBI_INVALID, "special",
               "avx2");
  setenv("FAKECUDA_FAIL", "cuInit:1:100", 1);
  CHECK_STATUS(open_cuda(&dev), AMBI_NO_DEVICE, "cuInit");
  setenv("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:1:2", 1);
  CHECK_STATUS(open_cuda(&dev), AMBI_NO_MEMORY, "context");
  unsetenv("FAKECUDA_FAIL");
  if (!CHECK(open_cuda(&dev) == AMBI_OK, "%s", ambi_error())) return;
  CHECK(ambi_device_get_info(dev, &info) == AMBI_OK && strstr(info.features, "NVRTC") && strstr(info.features, cache),
        "features: %s", info.features);
  ambi_device_close(dev);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */
static void test_faults(void) {
  rig r;
  ambi_buf b;
  ambi_op op = silu(N + 1);
  ambi_plan *plan = NULL;
  if (!rig_open(&r)) return rig_close(&r);
  setenv("FAKECUDA_FAIL", "cuMemAlloc_v2:1:2", 1);
  CHECK_STATUS(ambi_alloc(r.dev, 4096, &b), AMBI_NO_MEMORY, "4096 bytes", "free");
  setenv("FAKECUDA_FAIL", "cuLaunchKernel:1:1", 1);
  CHECK_STATUS(rig_run(&r), AMBI_INVALID, "pointwise");
  setenv("FAKECUDA_FAIL", "cuModuleGetFunction:1:500", 1);
  CHECK_STATUS(ambi_plan_create(r.dev, &op, &plan), AMBI_INVALID, "pointwise");
  unsetenv("FAKECUDA_FAIL");
  CHECK(rig_run(&r) == AMBI_OK && ambi_stream_wait(r.stream) == AMBI_OK, "after faults: %s", ambi_error());
  setenv("FAKECUDA_FAIL", "cuStreamSynchronize:1:719", 1);
  CHECK_STATUS(ambi_stream_wait(r.stream), AMBI_DEVICE_LOST, "lost", "open it again");
  unsetenv("FAKECUDA_FAIL");
  CHECK(rig_run(&r) == AMBI_DEVICE_LOST, "a lost device runs on");
  rig_close(&r);
}

static void test_compile_failure(void) {
  rig r;
  ambi_op op = silu(7);
  op.u.unary.function = AMBI_MISH;
  ambi_plan *plan = NULL;
  if (!rig_open(&r)) return rig_close(&r);
  setenv("FAKENVRTC_FAIL", "1", 1);
  CHECK_STATUS(ambi_plan_create(r.dev, &op, &plan), AMBI_COMPILE_FAILED, "NVRTC");
  unsetenv("FAKENVRTC_FAIL");
  CHECK(ambi_plan_create(r.dev, &op, &plan) == AMBI_OK, "%s", ambi_error());
  CHECK(plan && strstr(ambi_plan_source(plan), "mish_value"), "the source of a plan lacks its function");
  ambi_plan_destroy(plan);
  rig_close(&r);
}

/* ---- cache ------------------------------------------------------------------------------------------------------- */
/* Calls f on every file of the cache; how many there are. */
static int each_file(void (*f)(const char *path)) {
  char path[400];
  int n = 0;
  DIR *d = opendir(cache);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%.300s", cache, e->d_name);
    if (f) f(path);
    n++;
  }
  if (d) closedir(d);
  return n;
}

static void flip_last_byte(const char *path) {
  FILE *f = fopen(path, "r+b");
  if (!f || fseek(f, -1, SEEK_END)) return;
  int c = fgetc(f);
  fseek(f, -1, SEEK_END);
  fputc(c ^ 1, f);
  fclose(f);
}

static void cut_short(const char *path) { CHECK(truncate(path, 40) == 0, "truncate"); }
static void empty_file(const char *path) { CHECK(truncate(path, 0) == 0, "truncate"); }
static void delete_file(const char *path) { unlink(path); }

static int compiles;
static void count_compile(void *context, const char *what) { (void)context, (void)what, compiles++; }

/* How many texts are compiled for one plan on a fresh device. */
static int compiles_of_a_plan(const char *where) {
  ambi_device *dev;
  ambi_plan *plan = NULL;
  ambi_op op = silu(5);
  compiles = 0;
  if (!CHECK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = where, .notify = count_compile}, &dev) ==
                 AMBI_OK,
             "%s", ambi_error()))
    return -1;
  CHECK(ambi_plan_create(dev, &op, &plan) == AMBI_OK, "%s", ambi_error());
  ambi_plan_destroy(plan);
  ambi_device_close(dev);
  return compiles;
}

static void test_cache(void) {
  each_file(delete_file);
  CHECK(compiles_of_a_plan(cache) == 1, "a cold start compiles once");
  CHECK(each_file(NULL) == 1, "one file appears, and no temporary one stays");
  CHECK(compiles_of_a_plan(cache) == 0, "a warm start compiles nothing");
  static void (*const damages[])(const char *) = {flip_last_byte, cut_short, empty_file};
  for (int i = 0; i < 3; i++) {
    each_file(damages[i]);
    CHECK(compiles_of_a_plan(cache) == 1, "damage %d: the file is not believed", i);
    CHECK(compiles_of_a_plan(cache) == 0, "damage %d: and it is written again", i);
  }
  setenv("FAKENVRTC_VERSION", "12.4", 1);
  CHECK(compiles_of_a_plan(cache) == 1, "another compiler has its own file");
  unsetenv("FAKENVRTC_VERSION");
  CHECK(compiles_of_a_plan("") == 1, "without a folder");
  CHECK(compiles_of_a_plan("/proc/nowhere/ambi") == 1, "a folder that cannot be made costs time only");
}

/* ---- graphs and threads ------------------------------------------------------------------------------------------ */
static void test_graph(void) {
  rig r;
  float direct[N], replayed[N];
  ambi_graph *graph = NULL, *none = NULL;
  if (!rig_open(&r)) return rig_close(&r);
  CHECK(rig_run(&r) == AMBI_OK, "%s", ambi_error());
  read_y(&r, direct);
  memset(replayed, 0, sizeof replayed);
  CHECK(ambi_upload(r.stream, r.y, replayed, sizeof replayed) == AMBI_OK, "%s", ambi_error());
  CHECK(ambi_record(r.stream) == AMBI_OK && rig_run(&r) == AMBI_OK && ambi_recorded(r.stream, &graph) == AMBI_OK, "%s",
        ambi_error());
  read_y(&r, replayed);
  CHECK(replayed[N - 1] == 0, "recording runs nothing");
  for (int i = 0; i < 2 && graph; i++) CHECK(ambi_replay(graph, r.stream) == AMBI_OK, "%s", ambi_error());
  read_y(&r, replayed);
  CHECK(!memcmp(direct, replayed, sizeof direct), "a replay gives other bits");
  CHECK_STATUS(ambi_recorded(r.stream, &none), AMBI_INVALID, "recording");
  ambi_graph_destroy(graph);
  rig_close(&r);
}

typedef struct {
  ambi_device *dev;
  int bad;
} crew;

static void *make_plans(void *context) {
  crew *c = context;
  for (int f = 0; f < 6; f++) {
    ambi_plan *plan = NULL;
    ambi_op op = silu(64 + f);
    op.u.unary.function = f;
    if (ambi_plan_create(c->dev, &op, &plan) != AMBI_OK) c->bad++;
    ambi_plan_destroy(plan);
  }
  return NULL;
}

static void test_threads(void) {
  enum { THREADS = 4 };
  pthread_t id[THREADS];
  crew c[THREADS];
  ambi_device *dev;
  each_file(delete_file);
  if (!CHECK(open_cuda(&dev) == AMBI_OK, "%s", ambi_error())) return;
  for (int i = 0; i < THREADS; i++) c[i] = (crew){dev, 0}, pthread_create(&id[i], NULL, make_plans, &c[i]);
  for (int i = 0; i < THREADS; i++)
    pthread_join(id[i], NULL), CHECK(c[i].bad == 0, "thread %d: %d plans failed", i, c[i].bad);
  CHECK(each_file(NULL) == 6, "%d files for 6 texts", each_file(NULL));
  ambi_device_close(dev);
}

int main(void) {
  if (!mkdtemp(cache)) return 1;
  if (system("c++ --version > /dev/null 2>&1")) {
    printf("SKIPPED: the stand-ins need a C++ compiler\n0 passed, 0 failed, 1 skipped\n");
    return 0;
  }
  test_libraries();
  test_faults();
  test_compile_failure();
  test_cache();
  test_graph();
  test_threads();
  each_file(delete_file);
  rmdir(cache);
  return test_done();
}
