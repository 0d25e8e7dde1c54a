/* test_cuda_faults.c -- every function of the driver fails once, in each of its first calls, in a program that uses all
 * of a device: it gets a status and a sentence, nothing is left behind, and the next program works.
 *
 * On the stand-ins for the driver and NVRTC (fakecuda/), which count what is alive. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "standins.h"
#include "test.h"

enum { N = 64, CLASSES = 32000, CALLS = 9 };
static char cache[64] = "/tmp/ambi-cache-XXXXXX";
static long (*live)(const char *);
static int (*current_context)(void **), (*pop_context)(void **), (*release_context)(int);

static const char *const functions[] = {
#define DRIVER(name, parameters) #name,
#define COMPILER(name, parameters)
#define BLAS(name, parameters)
#include "backends/cuda/api.def"
#undef DRIVER
#undef COMPILER
#undef BLAS
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- a program that uses all of it ---- */
typedef struct {
  ambi_device *dev;
  ambi_stream *stream, *side;
  ambi_event *from, *to;
  ambi_graph *graph;
  ambi_plan *plan, *loss;
  ambi_buf x, y, z;
} program;

static ambi_status make(program *p) {
  ambi_op op = {.kind = AMBI_UNARY}, loss = {.kind = AMBI_CROSS_ENTROPY};
  ambi_status s;
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_F32, 1, (int64_t[]){N});
  loss.t[AMBI_CE_LOGITS] = loss.t[AMBI_CE_GRAD] = ambi_dense(AMBI_BF16, 2, (int64_t[]){1, CLASSES});
  loss.t[AMBI_CE_TARGET] = ambi_dense(AMBI_I64, 1, (int64_t[]){1}); /* its kernel has dynamic shared memory */
#define STEP(call) \
  if ((s = (call)) != AMBI_OK) return s
  STEP(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = cache}, &p->dev));
  STEP(ambi_stream_create(p->dev, NULL, &p->stream));
  STEP(ambi_stream_create(p->dev, NULL, &p->side));
  STEP(ambi_event_create(p->dev, &p->from));
  STEP(ambi_event_create(p->dev, &p->to));
  STEP(ambi_alloc(p->dev, N * sizeof(float), &p->x));
  STEP(ambi_alloc(p->dev, N * sizeof(float), &p->y));
  STEP(ambi_alloc(p->dev, N * sizeof(float), &p->z));
  STEP(ambi_plan_create(p->dev, &op, &p->plan));
  return ambi_plan_create(p->dev, &loss, &p->loss);
}

static ambi_status use(const program *p, ambi_graph **graph) {
  ambi_buf slots[AMBI_SLOTS] = {[AMBI_UNARY_X] = p->x, [AMBI_UNARY_Y] = p->y};
  float v[N] = {1};
  int32_t passed;
  double ms;
  ambi_status s;
  STEP(ambi_upload(p->stream, p->x, v, sizeof v));
  STEP(ambi_event_record(p->from, p->stream));
  STEP(ambi_run(p->plan, p->stream, slots, AMBI_SLOTS, (ambi_buf){0}));
  STEP(ambi_event_record(p->to, p->stream));
  STEP(ambi_stream_wait_event(p->side, p->to));
  STEP(ambi_event_query(p->to, &passed));
  STEP(ambi_event_wait(p->to));
  STEP(ambi_event_elapsed(p->from, p->to, &ms));
  STEP(ambi_copy(p->side, p->x, p->y, sizeof v));
  STEP(ambi_stream_wait(p->side));
  const ambi_buf others[] = {[AMBI_UNARY_X] = p->x, [AMBI_UNARY_Y] = p->z};
  const ambi_task tasks[] = {{.plan = p->plan, .slots = slots, .n = 2}, {.plan = p->plan, .slots = others, .n = 2}};
  STEP(ambi_run_all(tasks, 2, p->stream));
  STEP(ambi_record(p->stream));
  s = ambi_run(p->plan, p->stream, slots, AMBI_SLOTS, (ambi_buf){0});
  const ambi_status ended =
      ambi_recorded(p->stream, s == AMBI_OK ? graph : NULL); /* in any case: it is of no use else */
  STEP(s != AMBI_OK ? s : ended);
  STEP(ambi_replay(*graph, p->stream));
  STEP(ambi_download(p->stream, v, p->y, sizeof v));
  return ambi_stream_wait(p->stream);
#undef STEP
}

static void end(program *p) {
  ambi_graph_destroy(p->graph);
  ambi_plan_destroy(p->loss), ambi_plan_destroy(p->plan);
  if (p->dev) ambi_free(p->dev, p->x), ambi_free(p->dev, p->y), ambi_free(p->dev, p->z);
  ambi_event_destroy(p->from), ambi_event_destroy(p->to);
  ambi_stream_destroy(p->side), ambi_stream_destroy(p->stream);
  if (p->dev) ambi_device_close(p->dev);
}

static ambi_status run_program(char *sentence, size_t n) {
  program p = {0};
  ambi_status s = make(&p);
  if (s == AMBI_OK) s = use(&p, &p.graph);
  snprintf(sentence, n, "%s", s == AMBI_OK ? "" : ambi_error());
  end(&p);
  return s;
}

/* ---- faults ---- */
/* Functions that give back: what one of them refuses is still there, and nobody is told. */
static bool gives_back(const char *name) {
  static const char *const words[] = {"Destroy", "Free", "Unload", "Release", "PopCurrent"};
  for (int i = 0; i < 5; i++)
    if (strstr(name, words[i])) return true;
  return false;
}

/* Questions whose answer is for a sentence only */
static bool is_remark(const char *name) {
  static const char *const names[] = {"cuGetErrorString", "cuGetErrorName", "cuMemGetInfo_v2", "cuDriverGetVersion",
                                      "cuDeviceGetName"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

/* Calls that look for a device: there is none yet that could be lost */
static bool looks(const char *name) {
  return !strcmp(name, "cuInit") || !strcmp(name, "cuDeviceGetCount") || !strcmp(name, "cuDeviceGet");
}

/* As if the program had ended: the contexts that a refusal left behind go. */
static void end_process(void) {
  while (pop_context(NULL) == 0) continue;
  while (release_context(0) == 0) continue;
}

/* Whether call number `call` of it was reached. */
static bool try_fault(const char *name, int call, int code) {
  char rule[100], sentence[600];
  void *context = NULL;
  const long before = live(NULL);
  snprintf(rule, sizeof rule, "%s:%d:%d:1", name, call, code);
  setenv("FAKECUDA_FAIL", rule, 1);
  const ambi_status s = run_program(sentence, sizeof sentence);
  setenv("FAKECUDA_FAIL", "", 1);
  if (gives_back(name) || is_remark(name)) return end_process(), CHECK(s == AMBI_OK, "%s: %s", rule, sentence);
  if (s == AMBI_OK) return false;
  CHECK(strstr(sentence, "cuda: ") && strlen(sentence) > 20, "%s: it says '%s'", rule, sentence);
  CHECK(code != 2 || s == AMBI_NO_MEMORY, "%s: out of memory is %s: %s", rule, ambi_status_name(s), sentence);
  const ambi_status lost = looks(name) ? AMBI_NO_DEVICE : AMBI_DEVICE_LOST;
  CHECK(code != 719 || (s == lost && !strstr(sentence, "open it again") == looks(name)), "%s: a lost device is %s: %s",
        rule, ambi_status_name(s), sentence);
  CHECK(current_context(&context) == 0 && context == NULL, "%s: a context stays current", rule);
  const bool ends = !strcmp(name, "cuStreamEndCapture"); /* refused, it keeps what was captured */
  CHECK(ends || live(NULL) == before, "%s: %ld objects are left", rule, live(NULL) - before);
  CHECK(release_context(0) != 0, "%s: the context is still held", rule);
  return true;
}

static void test_all(void) {
  static const int codes[] = {1, 2, 719};
  char sentence[600];
  if (!CHECK(run_program(sentence, sizeof sentence) == AMBI_OK, "%s", sentence)) return;
  CHECK(live(NULL) == 0, "%ld objects are left", live(NULL));
  for (int f = 0; f < FUNCTIONS; f++)
    for (int c = 0; c < 3; c++) {
      int reached = 0;
      if (codes[c] >= 700 && (gives_back(functions[f]) || is_remark(functions[f]))) continue;
      while (reached < CALLS && try_fault(functions[f], reached + 1, codes[c])) reached++;
      const bool rare = !strcmp(functions[f], "cuCtxGetDevice") || /* of adopted contexts: see test_cuda_streams */
                        !strcmp(functions[f], "cuStreamQuery") ||  /* after cuBLASLt's failures: test_cuda_blas */
                        !strcmp(functions[f], "cuTensorMapEncodeTiled"); /* done without: tests/run, "no boxes" */
      CHECK(reached > 0 || rare, "%s: a failure goes unnoticed", functions[f]);
    }
  CHECK(run_program(sentence, sizeof sentence) == AMBI_OK, "after all of them: %s", sentence);
}

int main(void) {
  char remove[100];
  if (stand_ins_missing()) return 0;
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  void *driver = dlopen(LIBRARIES "/libraries/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver || !mkdtemp(cache)) return CHECK(false, "the stand-in for the driver"), test_done();
  *(void **)&live = dlsym(driver, "fakecuda_live");
  *(void **)&current_context = dlsym(driver, "cuCtxGetCurrent");
  *(void **)&pop_context = dlsym(driver, "cuCtxPopCurrent_v2");
  *(void **)&release_context = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
  test_all();
  snprintf(remove, sizeof remove, "rm -r %s", cache);
  return system(remove) ? 1 : test_done();
}
