/* test_cuda_lib_faults.c -- every function of NVRTC and of cuBLASLt fails once, in each of its first calls: a plan or a
 * run gets a status and a sentence or is right without it, nothing is left behind, and the next try works. The driver's
 * functions: test_cuda_faults.
 *
 * On the stand-ins (fakecuda/), which count what is alive and which calls they have refused. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "standins.h"
#include "test.h"

enum { CALLS = 40 };
static char cache[64] = "/tmp/ambi-cache-XXXXXX";

#define DRIVER(name, parameters)
#define COMPILER(name, parameters) #name,
#define BLAS(name, parameters)
static const char *const compiler_functions[] = {
#include "backends/cuda/api.def"
};
#undef COMPILER
#undef BLAS
#define COMPILER(name, parameters)
#define BLAS(name, parameters) #name,
static const char *const blas_functions[] = {
#include "backends/cuda/api.def"
};
enum {
  COMPILER_FUNCTIONS = sizeof compiler_functions / sizeof *compiler_functions,
  BLAS_FUNCTIONS = sizeof blas_functions / sizeof *blas_functions
};

/* ---- the stand-ins ---- */
static long (*driver_live)(const char *), (*compiler_live)(void), (*compiler_refused)(void), (*blas_refused)(void);
static int (*blas_live)(void);

static void *open_stand_in(const char *name) {
  char path[400];
  snprintf(path, sizeof path, "%s/libraries-blas/%s", LIBRARIES, name);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, "there is a stand-in %s", path);
  return library;
}

static bool open_stand_ins(void) {
  void *driver = open_stand_in("libcuda.so.1"), *compiler = open_stand_in("libnvrtc.so"),
       *blas = open_stand_in("libcublasLt.so");
  if (!driver || !compiler || !blas) return false;
  *(void **)&driver_live = dlsym(driver, "fakecuda_live");
  *(void **)&compiler_live = dlsym(compiler, "fakenvrtc_live");
  *(void **)&compiler_refused = dlsym(compiler, "fakecuda_provoked");
  *(void **)&blas_live = dlsym(blas, "fakeblas_live");
  *(void **)&blas_refused = dlsym(blas, "fakecuda_provoked");
  return true;
}

static void set_rule(char *rule, size_t n, const char *function, int call, int code) {
  snprintf(rule, n, "%s:%d:%d:1", function, call, code);
  setenv("FAKECUDA_FAIL", rule, 1);
}

/* Functions that give back: what one of them refuses is still there, and nobody is told. */
static bool gives_back(const char *name) { return strstr(name, "Destroy") != NULL; }

static void check_sentence(const char *rule, const char *library) {
  const char *said = ambi_error();
  CHECK(strstr(said, "cuda: ") && strstr(said, library) && strlen(said) > 20, "%s: it says '%s'", rule, said);
}

/* ---- NVRTC: a plan whose text is compiled every time ---- */
/* Where the GPU is newer than any the compiler knows it gives PTX; where it refuses the text it is asked why. */
typedef struct {
  const char *gpu, *refuses;
} setting;
static const setting settings[] = {{"90", ""}, {"130", ""}, {"90", "1"}};
enum { SETTINGS = sizeof settings / sizeof *settings };

static ambi_status make_plan(ambi_device *dev) {
  ambi_op op = {.kind = AMBI_FILL};
  ambi_plan *plan = NULL;
  op.t[AMBI_FILL_Y] = ambi_dense(AMBI_F32, 1, (int64_t[]){5});
  const ambi_status s = ambi_plan_create(dev, &op, &plan);
  ambi_plan_destroy(plan);
  return s;
}

/* Whether call number `call` of it was reached. */
static bool try_compiler(const char *function, int call, const setting *how) {
  char rule[100];
  ambi_device *dev = NULL;
  const long refused = compiler_refused(), live = compiler_live();
  set_rule(rule, sizeof rule, function, call, 1 + call % 5);
  if (CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = ""}, &dev))) {
    setenv("FAKENVRTC_FAIL", how->refuses, 1);
    const ambi_status s = make_plan(dev);
    if (s != AMBI_OK) check_sentence(rule, "NVRTC");
    CHECK(s == AMBI_OK || s == AMBI_COMPILE_FAILED, "%s: %s", rule, ambi_status_name(s));
    setenv("FAKENVRTC_FAIL", "", 1), setenv("FAKECUDA_FAIL", "", 1);
    if (s != AMBI_OK && call == 1) CHECK(make_plan(dev) == AMBI_OK, "after %s: %s", rule, ambi_error());
    ambi_device_close(dev);
  }
  CHECK(gives_back(function) || compiler_live() == live, "%s: %ld programs are left", rule, compiler_live() - live);
  CHECK(driver_live(NULL) == 0, "%s: %ld objects of the driver are left", rule, driver_live(NULL));
  return compiler_refused() > refused;
}

/* What has no say in the machine code is asked for many times: the last calls are like the first. */
static bool is_question(const char *function) { return strstr(function, "Archs") || strstr(function, "Version"); }

static void test_compiler(void) {
  for (int f = 0; f < COMPILER_FUNCTIONS; f++) {
    int reached = 0;
    for (int i = 0; i < SETTINGS; i++) {
      const int most = is_question(compiler_functions[f]) ? 5 : CALLS;
      setenv("FAKECUDA_CAPABILITY", settings[i].gpu, 1);
      for (int call = 1; call <= most && try_compiler(compiler_functions[f], call, &settings[i]); call++) reached++;
    }
    CHECK(reached > 0, "%s is never called", compiler_functions[f]);
  }
  unsetenv("FAKECUDA_CAPABILITY"), unsetenv("FAKENVRTC_FAIL");
}

/* ---- cuBLASLt: a linear layer and its gradients, db in the epilogue of dW ---- */
enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };
enum { SIZE = 8, ELEMENTS = SIZE * SIZE }; /* of every slot; B and DB take the first of them */

typedef struct {
  ambi_device *dev;
  ambi_stream *stream;
  ambi_buf slots[AMBI_SLOTS], workspace;
  ambi_plan *plan[2];
} layer;
typedef struct {
  float of[4][ELEMENTS];
} results;

static bool layer_open(layer *l) {
  const ambi_device_options o = {.cache_dir = cache, .max_isa = "special"}; /* special: the epilogue at every size */
  float v[ELEMENTS];
  *l = (layer){0};
  bool ok = ambi_device_open("cuda", &o, &l->dev) == AMBI_OK &&
            ambi_stream_create(l->dev, NULL, &l->stream) == AMBI_OK &&
            ambi_alloc(l->dev, 1 << 20, &l->workspace) == AMBI_OK;
  for (int s = 0; s < AMBI_SLOTS && ok; s++) {
    for (int i = 0; i < ELEMENTS; i++) v[i] = (float)((s * 5 + i * 7) % 5 - 2); /* whole: every sum is exact */
    ok = ambi_alloc(l->dev, sizeof v, &l->slots[s]) == AMBI_OK &&
         ambi_upload(l->stream, l->slots[s], v, sizeof v) == AMBI_OK && ambi_stream_wait(l->stream) == AMBI_OK;
  }
  return CHECK(ok, "%s", ambi_error());
}

static void layer_close(layer *l) {
  for (int pass = 0; pass < 2; pass++) ambi_plan_destroy(l->plan[pass]);
  if (!l->dev) return;
  for (int s = 0; s < AMBI_SLOTS; s++) ambi_free(l->dev, l->slots[s]);
  ambi_free(l->dev, l->workspace);
  ambi_stream_destroy(l->stream);
  ambi_device_close(l->dev);
}

static ambi_status layer_plan(layer *l, int pass) {
  const ambi_tensor square = ambi_dense(AMBI_F32, 2, (int64_t[]){SIZE, SIZE});
  ambi_op op = {.kind = AMBI_LINEAR, .pass = pass ? AMBI_BACKWARD : AMBI_FORWARD};
  op.t[X] = op.t[W] = square;
  op.t[B] = ambi_dense(AMBI_F32, 1, (int64_t[]){SIZE});
  return l->plan[pass] ? AMBI_OK : ambi_plan_create(l->dev, &op, &l->plan[pass]);
}

/* Forward and backward; plans that are made already are used again. */
static ambi_status layer_use(layer *l, results *out) {
  static const int slots[4] = {Y, DX, DW, DB};
  ambi_status s = AMBI_OK;
  for (int pass = 0; pass < 2 && s == AMBI_OK; pass++) {
    s = layer_plan(l, pass);
    if (s == AMBI_OK) s = ambi_run(l->plan[pass], l->stream, l->slots, AMBI_SLOTS, l->workspace);
  }
  memset(out, 0, sizeof *out);
  for (int i = 0; i < 4 && s == AMBI_OK; i++)
    s = ambi_download(l->stream, out->of[i], l->slots[slots[i]], sizeof out->of[i]);
  return s == AMBI_OK ? ambi_stream_wait(l->stream) : s;
}

static bool try_blas(const char *function, int call, int code, const results *right) {
  char rule[100];
  layer l;
  results got;
  const long refused = blas_refused(), live = blas_live();
  if (!layer_open(&l)) return layer_close(&l), false;
  set_rule(rule, sizeof rule, function, call, code);
  const ambi_status s = layer_use(&l, &got);
  if (s != AMBI_OK) {
    check_sentence(rule, "cublasLt");
    CHECK(code != 3 || s == AMBI_NO_MEMORY, "%s: out of memory is %s", rule, ambi_status_name(s));
    CHECK(code != 13 || s == AMBI_INVALID, "%s: a launch that fails in a healthy context is %s", rule,
          ambi_status_name(s));
    CHECK(layer_use(&l, &got) == AMBI_OK, "after %s: %s", rule, ambi_error());
  }
  CHECK(!memcmp(&got, right, sizeof got), "%s: other results", rule);
  layer_close(&l);
  CHECK(gives_back(function) || blas_live() == live, "%s: %ld objects of cuBLASLt are left", rule, blas_live() - live);
  CHECK(driver_live(NULL) == 0, "%s: %ld objects of the driver are left", rule, driver_live(NULL));
  setenv("FAKECUDA_FAIL", "", 1);
  return blas_refused() > refused;
}

/* The results without faults, by cuBLASLt. */
static bool find_right(results *right) {
  layer l;
  ambi_plan_info info = {.kernel = ""};
  const bool ok = layer_open(&l) && CHECK_OK(layer_use(&l, right)) && CHECK_OK(ambi_plan_get_info(l.plan[1], &info));
  CHECK(strstr(info.kernel, "cuBLASLt, db in its epilogue"), "the kernel is '%s'", info.kernel);
  layer_close(&l);
  return ok;
}

static void test_blas(void) {
  static const int codes[] = {1, 3, 13}; /* not initialised, out of memory, a launch that failed */
  results right;
  if (!find_right(&right)) return;
  for (int f = 0; f < BLAS_FUNCTIONS; f++)
    for (int c = 0; c < 3; c++) {
      int reached = 0;
      while (reached < CALLS && try_blas(blas_functions[f], reached + 1, codes[c], &right)) reached++;
      CHECK(reached > 0 && reached < CALLS, "%s is called %d times", blas_functions[f], reached);
    }
}

int main(void) {
  char remove[100];
  if (stand_ins_missing()) return 0;
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries-blas", 1);
  if (!open_stand_ins() || !mkdtemp(cache)) return test_done();
  test_compiler();
  test_blas();
  snprintf(remove, sizeof remove, "rm -r %s", cache);
  return system(remove) ? 1 : test_done();
}
