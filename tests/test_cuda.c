/* test_cuda.c -- the CUDA device without a GPU: finding libraries, faults, graphs.
 *
 * Kernels run for real, on stand-ins for the driver and NVRTC (fakecuda/); FAKECUDA_* make them fail: see
 * fakecuda/fake.h. What the kernels compute is checked by `ambi check cuda` on the same stand-ins. */
#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "standins.h"
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

/* ---- a device ---- */
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

/* ---- libraries ---- */
static void test_libraries(void) {
  ambi_device *dev;
  ambi_device_info info;
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/old", 1);
  CHECK_STATUS(open_cuda(&dev), AMBI_NO_DEVICE, "cuGraphLaunch", "too old", "install the driver", "525");
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
  CHECK(strstr(info.features, "too old; `pip install nvidia-cublas`"), "how to get cuBLASLt: %s", info.features);
  ambi_device_close(dev);
}

/* Whether what is said of an open device has these words. */
static bool finds(const char *words) {
  ambi_device *dev = NULL;
  ambi_device_info info = {.features = ""};
  if (!CHECK_OK(open_cuda(&dev))) return false;
  CHECK_OK(ambi_device_get_info(dev, &info));
  bool found = info.features && strstr(info.features, words);
  if (!found) printf("it says: %s\n", info.features);
  ambi_device_close(dev);
  return found;
}

/* A toolkit's folder with both versions: the one that the driver knows is taken, or what there is. */
static void test_versions(void) {
  char home[64] = "/tmp/ambi-toolkit-XXXXXX", command[400];
  if (!CHECK(mkdtemp(home) != NULL, "a folder")) return;
  snprintf(command, sizeof command,
           "mkdir %s/lib64 %s/only && cd %s/lib64 && from=%s && ln -s $from/libnvrtc.so libnvrtc.so.12 && "
           "ln -s $from/libnvrtc.so libnvrtc.so.13 && cd ../only && ln -s $from/libcuda.so.1 $from/libcublasLt.so .",
           home, home, home, LIBRARIES "/libraries");
  CHECK(system(command) == 0, "%s", command);
  snprintf(command, sizeof command, "%s/only", home);
  setenv("AMBI_CUDA_LIBRARIES", command, 1), setenv("CUDA_HOME", home, 1);
  setenv("FAKECUDA_DRIVER", "12040", 1);
  CHECK(finds("libnvrtc.so.12"), "a driver of CUDA 12 gets NVRTC 12");
  setenv("FAKECUDA_DRIVER", "13000", 1);
  CHECK(finds("libnvrtc.so.13"), "a driver of CUDA 13 gets NVRTC 13");
  snprintf(command, sizeof command, "cd %s/only && echo no library > libnvrtc.so", home);
  CHECK(system(command) == 0, "%s", command);
  CHECK(finds("libnvrtc.so.13"), "a file that is no library is passed over");
  unsetenv("FAKECUDA_DRIVER"), unsetenv("CUDA_HOME");
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  snprintf(command, sizeof command, "rm -r %s", home);
  CHECK(system(command) == 0, "%s", command);
}

static void test_cache_folder(void) {
  char longest[700];
  ambi_device *dev;
  memset(longest, 'x', sizeof longest);
  longest[0] = '/', longest[sizeof longest - 1] = 0;
  CHECK_STATUS(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = longest}, &dev), AMBI_INVALID, "cache_dir",
               "longer");
  const char *before = getenv("XDG_CACHE_HOME");
  char *xdg = before ? strdup(before) : NULL;
  static const char *const values[][2] = {{"relative", "/home/nobody/.cache/ambi"}, {"/folder", "/folder/ambi"}};
  setenv("HOME", "/home/nobody", 1);
  for (int i = 0; i < 3; i++) {
    ambi_device_info info;
    setenv("XDG_CACHE_HOME", i < 2 ? values[i][0] : longest, 1);
    if (!CHECK_OK(ambi_device_open("cuda", NULL, &dev))) continue;
    CHECK(ambi_device_get_info(dev, &info) == AMBI_OK && strstr(info.features, i < 2 ? values[i][1] : "nowhere"),
          "XDG_CACHE_HOME %d: %s", i, info.features);
    ambi_device_close(dev);
  }
  if (xdg)
    setenv("XDG_CACHE_HOME", xdg, 1);
  else
    unsetenv("XDG_CACHE_HOME");
  free(xdg);
}

/* ---- faults ---- */
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

/* What a driver's number stands for, and whether the device must be opened again. */
static void test_meanings(void) {
  static const struct {
    int error;
    ambi_status status;
    bool lost;
  } cases[] = {{2, AMBI_NO_MEMORY, false},    {221, AMBI_COMPILE_FAILED, false}, {223, AMBI_COMPILE_FAILED, false},
               {214, AMBI_DEVICE_LOST, true}, {220, AMBI_DEVICE_LOST, true},     {226, AMBI_DEVICE_LOST, true},
               {702, AMBI_TIMEOUT, true},     {721, AMBI_DEVICE_LOST, true},     {810, AMBI_DEVICE_LOST, true},
               {911, AMBI_DEVICE_LOST, true}, {1, AMBI_INVALID, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rig r;
    ambi_buf b;
    char rule[40];
    if (!rig_open(&r)) return rig_close(&r);
    snprintf(rule, sizeof rule, "cuMemAlloc_v2:1:%d", cases[i].error);
    setenv("FAKECUDA_FAIL", rule, 1);
    CHECK_STATUS(ambi_alloc(r.dev, 4096, &b), cases[i].status, "4096 bytes");
    unsetenv("FAKECUDA_FAIL");
    CHECK(cases[i].lost == (strstr(ambi_error(), "open it again") != NULL), "%d: %s", cases[i].error, ambi_error());
    rig_close(&r);
  }
}

/* Whatever keeps the driver from answering, there is no device to be lost. */
static void test_no_driver(void) {
  static const int errors[] = {3, 100, 102, 304, 719, 803, 808, 809, 999};
  static const char *const calls[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGet"};
  for (size_t i = 0; i < 3 * sizeof errors / sizeof *errors; i++) {
    ambi_device *dev;
    char rule[40];
    snprintf(rule, sizeof rule, "%s:1:%d", calls[i % 3], errors[i / 3]);
    setenv("FAKECUDA_FAIL", rule, 1);
    CHECK_STATUS(ambi_device_open("cuda", NULL, &dev), AMBI_NO_DEVICE, "cuda: ");
    unsetenv("FAKECUDA_FAIL");
    CHECK(!strstr(ambi_error(), "open it again"), "%s: %s", rule, ambi_error());
  }
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
  static const char *const full[] = {"nvrtcCreateProgram:1:1", "nvrtcCompileProgram:1:1"};
  for (int i = 0; i < 2; i++) {
    setenv("FAKECUDA_FAIL", full[i], 1);
    CHECK_STATUS(ambi_plan_create(r.dev, &op, &plan), AMBI_NO_MEMORY, "NVRTC has no memory");
  }
  unsetenv("FAKECUDA_FAIL");
  CHECK(ambi_plan_create(r.dev, &op, &plan) == AMBI_OK, "%s", ambi_error());
  CHECK(plan && strstr(ambi_plan_source(plan), "mish_value"), "the source of a plan lacks its function");
  ambi_plan_destroy(plan);
  rig_close(&r);
}

/* Plans of one text and other sizes: what one needs of shared memory must not be taken from the other. */
static void test_shared_text(void) {
  enum { X = AMBI_CE_LOGITS, TARGET = AMBI_CE_TARGET, GRAD = AMBI_CE_GRAD };
  static const int64_t classes[2] = {32000, 30528};
  rig r;
  ambi_plan *plan[2] = {NULL};
  ambi_buf slots[AMBI_SLOTS] = {{0}}, workspace = {0};
  if (!rig_open(&r)) return rig_close(&r);
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) CHECK_OK(ambi_alloc(r.dev, 2 * 32000 * sizeof(float), &slots[s]));
  CHECK_OK(ambi_alloc(r.dev, 1 << 20, &workspace));
  for (int i = 0; i < 2; i++) {
    ambi_op op = {.kind = AMBI_CROSS_ENTROPY};
    op.t[X] = op.t[GRAD] = ambi_dense(AMBI_BF16, 2, (int64_t[]){2, classes[i]});
    op.t[TARGET] = ambi_dense(AMBI_I64, 1, (int64_t[]){2});
    if (!CHECK_OK(ambi_plan_create(r.dev, &op, &plan[i]))) return rig_close(&r);
  }
  CHECK(ambi_plan_source(plan[0]) == ambi_plan_source(plan[1]), "they share a text");
  for (int i = 0; i < 2; i++) CHECK_OK(ambi_run(plan[i], r.stream, slots, AMBI_SLOTS, workspace));
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) ambi_free(r.dev, slots[s]);
  ambi_free(r.dev, workspace), ambi_plan_destroy(plan[0]), ambi_plan_destroy(plan[1]);
  rig_close(&r);
}

static void check_locale(void) {
  rig r;
  ambi_plan *plan = NULL;
  ambi_op op = {.kind = AMBI_CROSS_ENTROPY}; /* its logits have an i */
  op.t[AMBI_CE_LOGITS] = ambi_dense(AMBI_F32, 2, (int64_t[]){2, 5});
  op.t[AMBI_CE_TARGET] = ambi_dense(AMBI_I64, 1, (int64_t[]){2});
  if (rig_open(&r) && CHECK_OK(ambi_plan_create(r.dev, &op, &plan)))
    CHECK(strstr(ambi_plan_source(plan), " LOGITS = 0,"), "names of slots: %.200s", ambi_plan_source(plan));
  ambi_plan_destroy(plan);
  rig_close(&r);
}

/* A text is the same whatever the host's locale: in a Turkish one the capital of i is no I. */
static void test_locale(void) {
  char folder[] = "/tmp/ambi-locale-XXXXXX", command[200];
  if (!CHECK(mkdtemp(folder) != NULL, "a folder")) return;
  snprintf(command, sizeof command, "localedef -i tr_TR -f UTF-8 %s/tr_TR.UTF-8 2> /dev/null", folder);
  const bool made = system(command) == 0;
  setenv("LOCPATH", folder, 1);
  if (made && setlocale(LC_ALL, "tr_TR.UTF-8"))
    check_locale();
  else
    test_skip("a Turkish locale", "none can be made here");
  setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0, "%s", command);
}

static int count(const char *text, const char *word) {
  int n = 0;
  while ((text = strstr(text, word))) text += strlen(word), n++;
  return n;
}

static void check_texts(ambi_device *dev, const ambi_op *op, const char *kernel) {
  ambi_plan *plan = NULL;
  if (!CHECK_OK(ambi_plan_create(dev, op, &plan))) return;
  const char *text = ambi_plan_source(plan);
  const int own = count(text, kernel), products = count(text, " gemm("), preludes = count(text, "#define NUMBERS ");
  CHECK(own == 1 && products == 1 && preludes == 2, "%s is there %d times, gemm %d times, in %d texts", kernel, own,
        products, preludes);
  ambi_plan_destroy(plan);
}

/* Matrix products have a text of their own, which a plan's source has beside the op's, once for all products. */
static void test_all_texts(void) {
  ambi_device *dev;
  ambi_op linear = {.kind = AMBI_LINEAR, .pass = AMBI_BACKWARD}, loss = {.kind = AMBI_LINEAR_CROSS_ENTROPY};
  linear.t[AMBI_LINEAR_X] = loss.t[AMBI_LINEAR_CE_X] = ambi_dense(AMBI_F32, 2, (int64_t[]){4, 8});
  linear.t[AMBI_LINEAR_W] = loss.t[AMBI_LINEAR_CE_W] = ambi_dense(AMBI_F32, 2, (int64_t[]){6, 8});
  linear.t[AMBI_LINEAR_B] = ambi_dense(AMBI_F32, 1, (int64_t[]){6});
  loss.t[AMBI_LINEAR_CE_TARGET] = ambi_dense(AMBI_I64, 1, (int64_t[]){4});
  if (!CHECK_OK(open_cuda(&dev))) return;
  check_texts(dev, &linear, "KERNEL(linear_db,");
  check_texts(dev, &loss, "KERNEL(lce_loss,");
  loss.pass = AMBI_BACKWARD;
  check_texts(dev, &loss, "KERNEL(lce_dlogits,");
  ambi_device_close(dev);
}

static void test_old_gpu(void) {
  ambi_device *dev;
  setenv("FAKECUDA_CAPABILITY", "75", 1);
  CHECK_STATUS(open_cuda(&dev), AMBI_NO_DEVICE, "7.5", "8.0");
  unsetenv("FAKECUDA_CAPABILITY");
}

static void check_kernel(ambi_device *dev, const ambi_op *op, const char *wanted) {
  ambi_plan *plan = NULL;
  ambi_plan_info info = {0};
  if (!CHECK_OK(ambi_plan_create(dev, op, &plan))) return;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  CHECK(strstr(info.kernel, wanted) != NULL, "%s, and not %s", info.kernel, wanted);
  ambi_plan_destroy(plan);
}

/* Tensors of 400 MB fit, but no launch has so many blocks along an axis: more memory would not help. */
static void test_too_many_blocks(void) {
  rig r;
  ambi_plan *plan = NULL;
  ambi_op op = {.kind = AMBI_SSD};
  op.t[AMBI_SSD_X] = ambi_dense(AMBI_F32, 4, (int64_t[]){1, 1, 1, 100000000});
  op.t[AMBI_SSD_DELTA] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, 1, 1});
  op.t[AMBI_SSD_A] = ambi_dense(AMBI_F32, 1, (int64_t[]){1});
  op.t[AMBI_SSD_B] = op.t[AMBI_SSD_C] = ambi_dense(AMBI_F32, 4, (int64_t[]){1, 1, 1, 1});
  if (rig_open(&r))
    CHECK_STATUS(ambi_plan_create(r.dev, &op, &plan), AMBI_UNSUPPORTED, "ssd: too large for this device: ssd_",
                 "blocks in y, and may have 65535");
  rig_close(&r);
}

/* Blocks of RTX cards have 99 KB of shared memory: the usual heads and scans keep the kernels made for them. */
static void test_little_shared_memory(void) {
  rig r;
  setenv("FAKECUDA_CAPABILITY", "86", 1);
  ambi_op attention = {.kind = AMBI_ATTENTION, .pass = AMBI_BACKWARD},
          scan = {.kind = AMBI_SELECTIVE_SCAN, .pass = AMBI_BACKWARD};
  for (int s = AMBI_ATTENTION_Q; s <= AMBI_ATTENTION_V; s++)
    attention.t[s] = ambi_dense(AMBI_BF16, 4, (int64_t[]){1, 2, 64, 128});
  scan.t[AMBI_SCAN_U] = scan.t[AMBI_SCAN_DELTA] = ambi_dense(AMBI_BF16, 3, (int64_t[]){2, 64, 64});
  scan.t[AMBI_SCAN_A] = ambi_dense(AMBI_F32, 2, (int64_t[]){64, 16});
  scan.t[AMBI_SCAN_B] = scan.t[AMBI_SCAN_C] = ambi_dense(AMBI_BF16, 3, (int64_t[]){2, 16, 64});
  if (rig_open(&r)) {
    check_kernel(r.dev, &attention, "tensor cores");
    check_kernel(r.dev, &scan, "tiles");
  }
  rig_close(&r);
  unsetenv("FAKECUDA_CAPABILITY");
}

/* ---- graphs ---- */
/* The driver refuses a launch, and then the recording that it spoiled. */
static void check_dropped(rig *r) {
  CHECK_OK(ambi_record(r->stream));
  setenv("FAKECUDA_FAIL", "cuLaunchKernel:1:900:1,cuStreamEndCapture:1:901:1", 1);
  const ambi_status s = rig_run(r);
  CHECK(s != AMBI_OK && strstr(ambi_error(), "900"), "the launch fails: %s", ambi_error());
  CHECK_OK(ambi_recorded(r->stream, NULL));
  CHECK(strstr(ambi_error(), "900"), "what failed is still said: %s", ambi_error());
  unsetenv("FAKECUDA_FAIL");
  setenv("FAKECUDA_FAIL", "cuCtxPushCurrent_v2:1:2:1", 1);
  CHECK_STATUS(ambi_recorded(r->stream, NULL), AMBI_NO_MEMORY, "current"); /* it could not be dropped, and says so */
  unsetenv("FAKECUDA_FAIL");
  CHECK_OK(ambi_recorded(r->stream, NULL)); /* the stand-in, which was told to refuse, still records */
  CHECK(rig_run(r) == AMBI_OK, "%s", ambi_error());
}

static void test_graph(void) {
  rig r;
  float direct[N], replayed[N];
  ambi_graph *graph = NULL, *none = NULL;
  if (!rig_open(&r)) return rig_close(&r);
  CHECK(rig_run(&r) == AMBI_OK, "%s", ambi_error());
  read_y(&r, direct);
  memset(replayed, 0, sizeof replayed);
  CHECK(ambi_upload(r.stream, r.y, replayed, sizeof replayed) == AMBI_OK, "%s", ambi_error());
  ambi_buf meanwhile = {0}; /* a thread that records may do other things */
  CHECK(ambi_record(r.stream) == AMBI_OK && ambi_alloc(r.dev, 64, &meanwhile) == AMBI_OK && rig_run(&r) == AMBI_OK &&
            ambi_recorded(r.stream, &graph) == AMBI_OK,
        "%s", ambi_error());
  read_y(&r, replayed);
  CHECK(replayed[N - 1] == 0, "recording runs nothing");
  for (int i = 0; i < 2 && graph; i++) CHECK(ambi_replay(graph, r.stream) == AMBI_OK, "%s", ambi_error());
  read_y(&r, replayed);
  CHECK(!memcmp(direct, replayed, sizeof direct), "a replay gives other bits");
  CHECK_STATUS(ambi_recorded(r.stream, &none), AMBI_INVALID, "recording");
  check_dropped(&r);
  ambi_free(r.dev, meanwhile);
  ambi_graph_destroy(graph);
  rig_close(&r);
}

int main(void) {
  char remove[100];
  if (!mkdtemp(cache)) return 1;
  if (stand_ins_missing()) return 0;
  test_libraries();
  test_versions();
  test_cache_folder();
  test_faults();
  test_meanings();
  test_no_driver();
  test_compile_failure();
  test_shared_text();
  test_locale();
  test_all_texts();
  test_old_gpu();
  test_too_many_blocks();
  test_little_shared_memory();
  test_graph();
  snprintf(remove, sizeof remove, "rm -r %s", cache);
  return system(remove) ? 1 : test_done();
}
