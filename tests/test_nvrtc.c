/* test_nvrtc.c -- every kernel text compiles for real, without a GPU: NVRTC for sm_80, sm_90 and the newest it knows.
 *
 *   test_nvrtc [OP] [--arch N|newest] [--dtype T] [--quick]
 *
 * sm_90 gets every case, others a tenth; with --quick a tenth and a sixtieth, and texts without wgmma are compiled as
 * fast as NVRTC can, which optimises less. The largest case of each op is always among them.
 *
 * For every architecture each op must have a text in each pass and each of the four dtypes, or the one asked for. What
 * cannot be parsed, or a warning, is a failure; what is not supported is counted. Without NVRTC everything is skipped.
 *
 * The driver is played by functions here that do nothing. */
#include <pthread.h>
#include <stdlib.h>

#include "../cli/case.h"
#include "backends/cuda/cuda.h"
#include "test.h"

static const struct {
  const char *text;
  bool is_long;
} cases[] = {
#define CASE(text) {text, false},
#define LONG(text) {text, true},
#include "../cli/cases.def"
#undef CASE
#undef LONG
};
enum { CASES = sizeof cases / sizeof *cases };

/* Where backward reads what forward saved it may have a text of its own. */
static const char *const saved[] = {
    "attention q=1x2x200x64 k=1x1x300x64 v=1x1x300x64 o=1x2x200x64 lse=1x2x200:f32 causal=true",
    "attention q=2x2x70x96 k=2x1x140x96 v=2x1x140x96 o=2x2x70x96 lse=2x2x70:f32 lengths=2 window=60 softcap=5",
    "attention q=1x4x300x128 k=1x2x600x128 v=1x2x600x128 o=1x4x300x128 lse=1x4x300:f32 causal=true window=100",
};

static cuda_api real;
static int compiled;
static bool quick;
static _Thread_local bool fast; /* the text at hand, for which no warning depends on how far it is optimised */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER; /* a plan's texts are compiled side by side */

/* ---- a driver that does nothing ---- */
static int fake_push(void *context) { return (void)context, 0; }
static int fake_pop(void **context) { return (void)context, 0; }
static int fake_load(void **module, const void *code) { return (void)code, *module = module, 0; }
static int fake_unload(void *module) { return (void)module, 0; }
static int fake_function(void **f, void *module, const char *name) { return (void)module, (void)name, *f = f, 0; }
static int fake_attribute(void *f, int attribute, int value) { return (void)f, (void)attribute, (void)value, 0; }
static int fake_asked(int *value, int attribute, void *f) { return (void)f, (void)attribute, *value = 0, 0; }
static int fake_error(int error, const char **text) { return (void)error, *text = "error", 0; }

static int create(void **program, const char *text, const char *name, int n, const char *const *headers,
                  const char *const *names) {
  int major = 0, minor;
  fast = quick && !strstr(text, "wgmma.mma_async") && !real.nvrtcVersion(&major, &minor) && major >= 13;
  return real.nvrtcCreateProgram(program, text, name, n, headers, names);
}

/* Compiles for real, and looks at what the compiler has to say. */
static int compile(void *program, int count, const char *const *options) {
  const char *all[16] = {"--Ofast-compile=max"};
  size_t bytes = 0;
  for (int i = 0; i < count; i++) all[fast + i] = options[i];
  int error = real.nvrtcCompileProgram(program, fast + count, all);
  char *log = real.nvrtcGetProgramLogSize(program, &bytes) ? NULL : calloc(1, bytes + 1);
  if (log) real.nvrtcGetProgramLog(program, log);
  pthread_mutex_lock(&counting);
  compiled++;
  CHECK(error || !log || !*log, "a warning: %.400s", log ? log : "");
  if (error && log) fprintf(stderr, "%.2000s\n", log);
  pthread_mutex_unlock(&counting);
  free(log);
  return error;
}

/* Bytes that a block may ask for: tiles are chosen by them. */
static int shared_of(int arch) {
  if (arch == 80 || arch == 87) return 163 << 10;
  return arch == 86 || arch == 89 || arch >= 120 ? 99 << 10 : 227 << 10;
}

static void open_device(cuda_device *d, ambi_device *dev, int arch) {
  *d = (cuda_device){.api = real, .arch = arch, .multiprocessors = 132, .l2_bytes = 50 << 20};
  d->shared_bytes = shared_of(arch);
  d->api.cuCtxPushCurrent_v2 = fake_push;
  d->api.cuCtxPopCurrent_v2 = fake_pop;
  d->api.cuModuleLoadData = fake_load;
  d->api.cuModuleUnload = fake_unload;
  d->api.cuModuleGetFunction = fake_function;
  d->api.cuFuncSetAttribute = fake_attribute;
  d->api.cuFuncGetAttribute = fake_asked;
  d->api.cuGetErrorString = d->api.cuGetErrorName = fake_error;
  d->api.nvrtcCreateProgram = create;
  d->api.nvrtcCompileProgram = compile;
  d->modules = modules_new();
  snprintf(d->isa, sizeof d->isa, "sm_%d", arch);
  *dev = (ambi_device){.be = &cuda_backend, .name = "cuda", .impl = d};
}

/* ---- plans ---- */
static const ambi_dtype dtypes[] = {AMBI_BF16, AMBI_F32, AMBI_F16, AMBI_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };
static bool left_out[DTYPES];
static int texts[AMBI_KINDS][AMBI_U8 + 1][2], unsupported; /* plans with a text, by op, dtype and pass */

static void plan(ambi_device *dev, const char *text, const ambi_op *op, ambi_dtype dtype) {
  ambi_plan *made = NULL;
  ambi_status s = ambi_plan_create(dev, op, &made);
  if (s == AMBI_UNSUPPORTED && !strstr(ambi_error(), "too large")) { /* no case is: its launches ask for too much */
    unsupported++;
    return;
  }
  CHECK(s == AMBI_OK, "%s, %s: %s", text, op->pass ? "backward" : "forward", ambi_error());
  if (made && ambi_plan_source(made)) texts[op->kind][dtype][op->pass == AMBI_BACKWARD]++;
  ambi_plan_destroy(made);
}

static void plan_case(ambi_device *dev, const char *text, ambi_dtype dtype) {
  ambi_op op;
  char why[400];
  if (!CHECK(!case_parse(text, dtype, &op, why, sizeof why), "%s: %s", text, why)) return;
  const ambi_op_info *info = ambi_op_get_info(op.kind);
  plan(dev, text, &op, dtype);
  for (int i = 0; i < info->slots; i++)
    if ((info->slot[i].flags & AMBI_SLOT_ANY_DTYPE) && op.t[i].dtype >= AMBI_I32) return; /* integers: no gradient */
  if (!info->backward) return;
  op.pass = AMBI_BACKWARD;
  op.want = 0;
  plan(dev, text, &op, dtype);
}

/* The attribute whose name ends where `star` points. */
static const ambi_attr_info *attribute_before(const char *text, const char *star) {
  char name[40];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(text, " "), text);
  const ambi_op_info *info = ambi_op_get_info(case_find_op(name));
  for (int i = 0; info && i < info->attrs; i++) {
    const size_t n = strlen(info->attr[i].name);
    if (star > text + n && !strncmp(star - n, info->attr[i].name, n) && star[-n - 1] == ' ') return &info->attr[i];
  }
  return NULL;
}

/* NAME=* stands for every value, here spread over the dtypes. */
static void plan_values(ambi_device *dev, const char *text, int t) {
  const char *star = strstr(text, "=*");
  if (!star) return plan_case(dev, text, dtypes[t]);
  const ambi_attr_info *a = attribute_before(text, star);
  if (!CHECK(a && a->names, "%s: it has no values", text)) return;
  for (int i = 0; a->names[i]; i++) {
    char one[400];
    snprintf(one, sizeof one, "%.*s=%s%s", (int)(star - text), text, a->names[i], star + 2);
    if (!quick || i % DTYPES == t) plan_case(dev, one, dtypes[t]);
  }
}

static bool is_case_of(const char *op, const char *text) {
  return !op || (!strncmp(text, op, strlen(op)) && text[strlen(op)] == ' ');
}

static int64_t elements(const char *text) {
  ambi_op op;
  char why[400];
  int64_t n = 0;
  if (strstr(text, "=*") || case_parse(text, AMBI_BF16, &op, why, sizeof why)) return 0;
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) n += op.t[s].dtype ? ambi_numel(&op.t[s]) : 0;
  return n;
}

static bool same_op(const char *a, const char *b) { return strncmp(a, b, strcspn(a, " ") + 1) == 0; }

/* Every step-th case, and of each op the largest, which has a text of its own. Enums matter to no architecture: they
 * are for steps that are small. */
static void choose(bool *chosen, size_t step) {
  for (size_t from = 0, to; from < CASES; from = to) {
    size_t largest = from;
    for (to = from; to < CASES && same_op(cases[to].text, cases[from].text); to++) {
      chosen[to] = strstr(cases[to].text, "=*") ? step <= 10 : to % step == 0;
      if (!cases[to].is_long && elements(cases[to].text) > elements(cases[largest].text)) largest = to;
    }
    chosen[largest] = true;
  }
}

/* Nothing may be missing because its cases were passed over. */
static void check_texts(int arch, const char *only) {
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *info = ambi_op_get_info((ambi_kind)k);
    if (!info || (only && strcmp(only, info->name))) continue;
    for (int t = 0; t < DTYPES; t++)
      for (int pass = 0; pass <= (info->backward != 0) && !left_out[t]; pass++)
        CHECK(texts[k][dtypes[t]][pass] > 0, "sm_%d: %s has no text in %s, %s", arch, info->name,
              ambi_dtype_name(dtypes[t]), pass ? "backward" : "forward");
  }
}

static void plan_all(int arch, const char *op, size_t step) {
  cuda_device d;
  ambi_device dev;
  bool chosen[CASES];
  const int before = compiled;
  open_device(&d, &dev, arch);
  choose(chosen, step);
  memset(texts, 0, sizeof texts), unsupported = 0;
  for (size_t i = 0; i < CASES; i++)
    for (int t = 0; t < DTYPES && chosen[i]; t++)
      if (is_case_of(op, cases[i].text) && !left_out[t]) plan_values(&dev, cases[i].text, t);
  for (size_t i = 0; i < sizeof saved / sizeof *saved; i++)
    for (int t = 0; t < DTYPES; t++)
      if (is_case_of(op, saved[i]) && ambi_dtype_size(dtypes[t]) == 2 && !left_out[t])
        plan_case(&dev, saved[i], dtypes[t]);
  check_texts(arch, op);
  printf("sm_%d: %d texts compiled, %d plans not supported\n", arch, compiled - before, unsupported);
  modules_free(&d, false);
}

static int newest(void) {
  int count = 0, archs[64];
  if (real.nvrtcGetNumSupportedArchs(&count) || count < 1 || count > 64 || real.nvrtcGetSupportedArchs(archs))
    return 90;
  return archs[count - 1];
}

static bool only_dtype(const char *name) {
  bool known = false;
  for (int t = 0; t < DTYPES; t++) {
    left_out[t] = strcmp(name, ambi_dtype_name(dtypes[t])) != 0;
    known |= !left_out[t];
  }
  return known;
}

int main(int argc, char **argv) {
  const char *op = NULL, *name = NULL, *dtype = NULL;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--arch") && i + 1 < argc)
      name = argv[++i];
    else if (!strcmp(argv[i], "--quick"))
      quick = true;
    else if (!strcmp(argv[i], "--dtype") && i + 1 < argc)
      dtype = argv[++i];
    else
      op = argv[i];
  }
  if (dtype && !CHECK(only_dtype(dtype), "%s: no dtype of kernels", dtype)) return test_done();
  api_load(&real);
  if (!real.handle[LIB_COMPILER]) { /* nothing is looked for where AMBI_CUDA_LIBRARIES is wrong: the error says so */
    const char *missing = real.found[LIB_COMPILER];
    printf("SKIPPED: %s\n0 passed, 0 failed, 1 skipped\n", *missing ? missing : ambi_error());
    return 0;
  }
  const int arch = !name ? 0 : strcmp(name, "newest") ? atoi(name) : newest();
  const int archs[] = {arch ? arch : 80, 90, newest()};
  for (int i = 0; i < (arch ? 1 : 3); i++) {
    const bool closely = archs[i] == 90 || (arch && !quick);
    static const size_t steps[2][2] = {{10, 60}, {1, 10}};
    plan_all(archs[i], op, steps[closely][quick]);
  }
  return test_done();
}
