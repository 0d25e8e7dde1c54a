/* test_nvrtc.c -- every kernel text compiles for real, without a GPU: NVRTC for sm_80, sm_90 and the newest it knows.
 *
 *   test_nvrtc [OP] [--arch N|newest] [--dtype T] [--quick]
 *
 * sm_90 gets every case; others, unless one is asked for, a tenth, the largest of each op, and whatever kernel is not
 * among those. For that every plan of every case is first made by a compiler that does nothing (half a second), to know
 * which kernels there are: op, pass, dtype and variant, as ambi_plan_info calls them, and each value where a case says
 * NAME=*. With --quick each kernel is compiled once, by its smallest case, and on all but sm_90 only one of f16 for
 * each op and pass, where bf16 has the same kernels; values are spread over the dtypes; and texts without wgmma are
 * compiled as fast as NVRTC can, which optimises less.
 *
 * Every kernel met must have been compiled; and for every architecture each op must have a text in each pass and each
 * of the four dtypes, or the one asked for. What cannot be parsed, or a warning, is a failure; what is not supported is
 * counted. Without NVRTC everything is skipped.
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

/* 16-bit cases that are compiled besides: where backward reads what forward saved it may have a text of its own, and a
 * row of 16384 gives blocks of 1024 threads, of which only some GPUs hold two. */
static const char *const besides[] = {
    "rmsnorm x=2x16384 w=16384",
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

/* A compiler that does nothing either: every plan is made, to know which kernels there are. */
static int dry_create(void **program, const char *text, const char *name, int n, const char *const *headers,
                      const char *const *names) {
  return (void)text, (void)name, (void)n, (void)headers, (void)names, *program = program, 0;
}
static int dry_compile(void *program, int count, const char *const *options) {
  return (void)program, (void)count, (void)options, 0;
}
static int dry_size(void *program, size_t *bytes) { return (void)program, *bytes = 1, 0; }
static int dry_code(void *program, char *code) { return (void)program, *code = 0; }
static int dry_destroy(void **program) { return *program = NULL, 0; }

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

static void open_dry(cuda_device *d, ambi_device *dev, int arch) {
  open_device(d, dev, arch);
  d->api.nvrtcCreateProgram = dry_create;
  d->api.nvrtcCompileProgram = dry_compile;
  d->api.nvrtcGetCUBINSize = d->api.nvrtcGetPTXSize = dry_size;
  d->api.nvrtcGetCUBIN = d->api.nvrtcGetPTX = dry_code;
  d->api.nvrtcDestroyProgram = dry_destroy;
}

static const ambi_dtype dtypes[] = {AMBI_BF16, AMBI_F32, AMBI_F16, AMBI_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };
static bool left_out[DTYPES];
static int texts[AMBI_KINDS][AMBI_U8 + 1][2], unsupported; /* plans with a text, by op, dtype and pass */

/* ---- kernels: what ambi_plan_info calls by one name, and each value that an attribute's "*" stands for ---- */
typedef struct {
  char name[160], text[400]; /* the case */
  const char *value;
  ambi_op op;
  ambi_dtype dtype;
  int64_t size;
  bool compiled;
} kernel;

enum { MOST = 1200 };
static kernel kernels[MOST];
static int met;
static bool dry;
static const char *value = ""; /* of the case at hand */

static int64_t elements(const ambi_op *op) {
  int64_t n = 0;
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) n += op->t[s].dtype ? ambi_numel(&op->t[s]) : 0;
  return n;
}

/* Small is good, but where something is empty kernels may be missing. */
static int64_t size_of(const ambi_op *op) {
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++)
    if (op->t[s].dtype && ambi_numel(&op->t[s]) == 0) return INT64_MAX;
  return elements(op);
}

static kernel *find_kernel(const char *name) {
  int i = 0;
  while (i < met && strcmp(kernels[i].name, name)) i++;
  if (!CHECK(i < MOST, "more than %d kernels", MOST)) return NULL;
  if (i == met) {
    kernels[met++] = (kernel){.size = -1};
    snprintf(kernels[i].name, sizeof kernels[i].name, "%s", name);
  }
  return &kernels[i];
}

/* A plan with a text has been made: its kernel is one to compile by the smallest case of it, or is compiled. */
static void note(const ambi_plan *made, const char *text, const ambi_op *op, ambi_dtype dtype) {
  char name[160];
  ambi_plan_info info;
  if (!CHECK(ambi_plan_get_info(made, &info) == AMBI_OK, "%s: %s", text, ambi_error())) return;
  snprintf(name, sizeof name, "%s%s%s", info.kernel, *value ? " " : "", value);
  kernel *k = find_kernel(name);
  if (!k) return;
  if (!dry) {
    k->compiled = true;
    texts[op->kind][dtype][op->pass == AMBI_BACKWARD]++;
  } else if (k->size < 0 || size_of(op) < k->size) {
    k->op = *op, k->dtype = dtype, k->value = value, k->size = size_of(op);
    snprintf(k->text, sizeof k->text, "%s", text);
  }
}

/* ---- plans ---- */
static void forget_texts(cuda_device *d) { /* thousands */
  modules_free(d, false);
  d->modules = modules_new();
}

static void plan(ambi_device *dev, const char *text, const ambi_op *op, ambi_dtype dtype) {
  ambi_plan *made = NULL;
  ambi_status s = ambi_plan_create(dev, op, &made);
  if (s == AMBI_UNSUPPORTED && !strstr(ambi_error(), "too large")) { /* no case is: its launches ask for too much */
    unsupported += dry;
    return;
  }
  CHECK(s == AMBI_OK, "%s, %s: %s", text, op->pass ? "backward" : "forward", ambi_error());
  if (made && ambi_plan_source(made)) note(made, text, op, dtype);
  ambi_plan_destroy(made);
  if (dry) forget_texts(cuda_of(dev));
}

static void plan_kernel(ambi_device *dev, const kernel *k) {
  value = k->value;
  plan(dev, k->text, &k->op, k->dtype);
  value = "";
}

/* Whether a kernel of f16 may be left to that of bf16, which is the same but for conversions. The first of each op and
 * pass is not. */
static bool is_spared(const kernel *k, int arch) {
  char name[sizeof k->name];
  const char *half = strstr(k->name, " f16 ");
  if (!quick || arch == 90 || !half || !texts[k->op.kind][k->dtype][k->op.pass == AMBI_BACKWARD]) return false;
  snprintf(name, sizeof name, "%.*s bf16 %s", (int)(half - k->name), k->name, half + strlen(" f16 "));
  for (int i = 0; i < met; i++)
    if (!strcmp(kernels[i].name, name)) return kernels[i].compiled;
  return false;
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
    value = a->names[i];
    if (!quick || i % DTYPES == t) plan_case(dev, one, dtypes[t]);
    value = "";
  }
}

static bool is_case_of(const char *op, const char *text) {
  return !op || (!strncmp(text, op, strlen(op)) && text[strlen(op)] == ' ');
}

static int64_t case_elements(const char *text) {
  ambi_op op;
  char why[400];
  return strstr(text, "=*") || case_parse(text, AMBI_BF16, &op, why, sizeof why) ? 0 : elements(&op);
}

static bool same_op(const char *a, const char *b) { return strncmp(a, b, strcspn(a, " ") + 1) == 0; }

/* Every step-th case, every enum, and of each op the largest, which has a text of its own. */
static void choose(bool *chosen, size_t step) {
  for (size_t from = 0, to; from < CASES; from = to) {
    size_t largest = from;
    for (to = from; to < CASES && same_op(cases[to].text, cases[from].text); to++) {
      chosen[to] = to % step == 0 || strstr(cases[to].text, "=*");
      if (!cases[to].is_long && case_elements(cases[to].text) > case_elements(cases[largest].text)) largest = to;
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
  for (const kernel *k = kernels; k < kernels + met; k++)
    CHECK(k->compiled || is_spared(k, arch), "%s was never compiled (%s)", k->name, k->text);
}

static void plan_chosen(ambi_device *dev, const char *op, const bool *chosen) {
  for (size_t i = 0; i < CASES; i++)
    for (int t = 0; t < DTYPES && chosen[i]; t++)
      if (is_case_of(op, cases[i].text) && !left_out[t]) plan_values(dev, cases[i].text, t);
  for (size_t i = 0; i < sizeof besides / sizeof *besides; i++)
    for (int t = 0; t < DTYPES; t++)
      if (is_case_of(op, besides[i]) && ambi_dtype_size(dtypes[t]) == 2 && !left_out[t])
        plan_case(dev, besides[i], dtypes[t]);
}

/* Which kernels there are, in all cases */
static void meet_kernels(int arch, const char *op) {
  cuda_device d;
  ambi_device dev;
  bool all[CASES];
  open_dry(&d, &dev, arch);
  choose(all, 1);
  dry = true, met = unsupported = 0;
  plan_chosen(&dev, op, all);
  dry = false;
  modules_free(&d, false);
}

static void plan_all(int arch, const char *op, size_t step) {
  cuda_device d;
  ambi_device dev;
  bool chosen[CASES] = {false};
  const int before = compiled;
  meet_kernels(arch, op);
  open_device(&d, &dev, arch);
  if (step) choose(chosen, step);
  memset(texts, 0, sizeof texts);
  plan_chosen(&dev, op, chosen);
  for (int i = 0; i < met; i++)
    if (!kernels[i].compiled && !is_spared(&kernels[i], arch)) plan_kernel(&dev, &kernels[i]);
  check_texts(arch, op);
  printf("sm_%d: %d kernels in %d texts compiled, %d plans not supported\n", arch, met, compiled - before, unsupported);
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
    const bool closely = archs[i] == 90 || arch;
    plan_all(archs[i], op, quick ? 0 : closely ? 1 : 10);
  }
  return test_done();
}
