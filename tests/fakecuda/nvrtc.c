/* nvrtc.c -- the stand-in for NVRTC: kernel text is compiled by the host's C++ compiler, behind emulate.h; the "cubin"
 * (and the "PTX") is a shared object that only the stand-in for the driver can load.
 *
 * Twice through the compiler: once to preprocess, so that the kernels can be found whatever macros made them; then with
 * a function appended for each, through which the emulator calls it (machine.h). A kernel takes one struct by value.
 *
 * Environment, looked at in every call:
 *   FAKENVRTC_VERSION=12.4  what nvrtcVersion says, 13.0 unless given
 *   FAKENVRTC_FAIL=1        every compilation fails, with a log
 *   FAKENVRTC_EMPTY=1       nothing is compiled: kernels do nothing, for whoever looks at plans only
 *   FAKENVRTC_MEET=N        the first N compilations wait for each other, and fail after a minute alone
 *   FAKECUDA_FAIL=NAME:N..  the Nth call of NAME fails, as in fake.h; CODE is an nvrtcResult
 *   FAKENVRTC_CXX=clang++   the compiler, g++ unless given (which FAKECUDA_RACES needs)
 *   FAKECUDA_RACES=1        code tells of every access to memory (races.c); the version is another one, as kernels kept
 *                           on disk are kept for a version
 * Exported for tests: long fakenvrtc_live(void), how many programs are not yet destroyed. */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rules.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  OK = 0,
  OUT_OF_MEMORY = 1,
  CREATION_FAILURE = 2,
  INVALID_INPUT = 3,
  INVALID_PROGRAM = 4,
  INVALID_OPTION = 5,
  COMPILATION = 6,
  INTERNAL_ERROR = 11
};
typedef int result; /* an nvrtcResult */

typedef struct {
  char *bytes;
  size_t size;
} text; /* one more byte is allocated, a zero */
typedef struct {
  text source, log, code;
  char name[128];
} program;
static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
enum { ARCHS = sizeof archs / sizeof *archs, MAX_ARGS = 64, MAX_KERNELS = 64 };

/* ---- text ---- */
__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
  va_list args;
  char *more = NULL;
  va_start(args, format);
  const int n = vasprintf(&more, format, args);
  va_end(args);
  char *bytes = n < 0 ? NULL : realloc(t->bytes, t->size + (size_t)n + 1);
  if (bytes) {
    memcpy(bytes + t->size, more, (size_t)n + 1);
    t->bytes = bytes, t->size += (size_t)n;
  }
  if (n >= 0) free(more);
}

static void drop(text *t) {
  free(t->bytes);
  *t = (text){NULL, 0};
}

static text file_read(const char *path) {
  text t = {NULL, 0};
  FILE *f = fopen(path, "rb");
  if (!f) return t;
  fseek(f, 0, SEEK_END);
  const long size = ftell(f);
  rewind(f);
  t.bytes = size < 0 ? NULL : malloc((size_t)size + 1);
  if (t.bytes) {
    t.size = fread(t.bytes, 1, (size_t)size, f);
    t.bytes[t.size] = 0;
  }
  fclose(f);
  return t;
}

static int file_write(const char *path, const text *t) {
  FILE *f = fopen(path, "wb");
  if (!f) return 0;
  const int whole = fwrite(t->bytes, 1, t->size, f) == t->size;
  return fclose(f) == 0 && whole;
}

/* ---- the compiler ---- */
/* Runs it in `folder` with what it says in the file "log" there; 0 when it succeeded, -1 when there is none. */
static int run(const char *folder, char *const *args) {
  char log[256];
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status;
  snprintf(log, sizeof log, "%s/log", folder);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  const int failed = posix_spawnp(&child, args[0], &actions, NULL, args, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? (WEXITSTATUS(status) == 127 ? -1 : WEXITSTATUS(status)) : 1;
}

typedef struct {
  char *list[MAX_ARGS + 1];
  int count;
} arguments;
static void give(arguments *a, const char *one) {
  if (a->count < MAX_ARGS) a->list[a->count++] = (char *)(size_t)one; /* exec takes what it does not change */
}
static void give_all(arguments *a, const char *const *list) {
  for (; *list; list++) give(a, *list);
}

/* A frame is touched page by page, so that none can jump over the page below a stack (fibers.c). A vector that is not
 * aligned is a fault, as on a GPU. A shared array of an inline function is each module's own; g++ would have it one of
 * the process, of the size that the first module gave it. */
static arguments compiler(void) {
  static const char *const flags[] = {"-std=c++17",
                                      "-fPIC",
                                      "-w",
                                      "-fno-strict-aliasing",
                                      "-fno-exceptions",
                                      "-fno-rtti",
                                      "-fno-math-errno",
                                      "-fstack-clash-protection",
                                      "-fsanitize=alignment",
                                      "-fsanitize-undefined-trap-on-error",
                                      NULL};
  const char *given = getenv("FAKENVRTC_CXX"), *cxx = given && *given ? given : "g++";
  arguments a = {.count = 0};
  give(&a, cxx);
  if (!strstr(cxx, "clang")) give(&a, "-fno-gnu-unique"); /* which clang does not know, nor do */
  give_all(&a, flags);
  return a;
}

static int flag_of(const char *variable) {
  const char *value = getenv(variable);
  return value && atoi(value);
}

/* Calls before each access (emulate.h has what is called), and lines for what is found. */
static void watch(arguments *a) {
  if (flag_of("FAKECUDA_RACES"))
    give_all(a, (const char *const[]){"-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-g1",
                                      "-DEMU_WATCHED", NULL});
}

/* ---- options: definitions are kept, an architecture must be known, the rest changes nothing here ---- */
static int arch_known(const char *option) {
  const char *eq = strchr(option, '='), *digits = eq ? strchr(eq, '_') : NULL;
  if (!digits) return 0;
  for (int i = 0; i < ARCHS; i++)
    if (atoi(digits + 1) == archs[i]) return 1;
  return 0;
}

static result read_options(arguments *defines, int *contract, int n, const char *const *options) {
  *contract = 1;
  for (int i = 0; i < n; i++) {
    const char *o = options[i];
    if (strcmp(o, "-D") == 0 && i + 1 < n)
      give(defines, o), give(defines, options[++i]);
    else if (strncmp(o, "-D", 2) == 0)
      give(defines, o);
    else if (strstr(o, "fmad=false"))
      *contract = 0;
    else if (strncmp(o, "--gpu-architecture", 18) == 0 || strncmp(o, "-arch", 5) == 0)
      if (!arch_known(o)) return INVALID_OPTION;
  }
  return OK;
}

/* ---- kernels in preprocessed text ---- */
static const char *close_of(const char *open) { /* the ')' that belongs to the '(' at `open`, or the text's end */
  int depth = 0;
  for (; *open; open++) {
    depth += (*open == '(') - (*open == ')');
    if (!depth) return open;
  }
  return open;
}
static int is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* After `__global__`: [bounds] void [bounds] NAME(TYPE parameter). Appends what calls it; returns where it ended. */
static const char *add_kernel(text *out, const char *at, char seen[][64], int *count) {
  const char *bounds = "0", *open = strchr(at, '('), *end;
  int bounds_size = 1;
  for (;; open = strchr(end, '(')) {
    if (!open) return at + strlen(at);
    end = close_of(open);
    const char *said = strstr(open, "emu_bounds");
    if (open - at < 13 || !memmem(at, (size_t)(open - at), "__attribute__", 13)) break;
    if (said && said < end) {
      bounds = strchr(said, '(');
      bounds_size = (int)(close_of(bounds) - bounds) + 1;
    }
    at = end;
  }
  const char *name = open;
  while (name > at && isspace((unsigned char)name[-1])) name--;
  const char *name_end = name;
  while (name > at && is_name(name[-1])) name--;
  const char *type_end = end;
  while (type_end > open && isspace((unsigned char)type_end[-1])) type_end--;
  while (type_end > open && is_name(type_end[-1])) type_end--;
  char n[64];
  snprintf(n, sizeof n, "%.*s", (int)(name_end - name), name);
  for (int i = 0; i < *count; i++)
    if (strcmp(seen[i], n) == 0) return end;
  if (*count == MAX_KERNELS) return end;
  memcpy(seen[(*count)++], n, sizeof n);
  const int type = (int)(type_end - open - 1);
  add(out, "extern \"C\" void emu_call_%s(const void *p) { %s(*(%.*s *)p); }\n", n, n, type, open + 1);
  add(out, "extern \"C\" { unsigned long emu_size_%s = sizeof(%.*s); int emu_bounds_%s = %s%.*s; }\n", n, type,
      open + 1, n, bounds_size > 1 ? "emu_first" : "", bounds_size, bounds);
  return end;
}

static void add_kernels(text *t) {
  static const char mark[] = "__attribute__((emu_global))";
  char seen[MAX_KERNELS][64];
  int count = 0;
  text calls = {NULL, 0};
  for (const char *at = strstr(t->bytes, mark); at; at = strstr(at, mark))
    at = add_kernel(&calls, at + sizeof mark - 1, seen, &count);
  if (calls.size) add(t, "\n# 1 \"calls of kernels\"\n%s", calls.bytes);
  drop(&calls);
}

/* ---- compiling: text.cu -> text.ii -> code in a folder of its own ---- */
static int preprocess(const char *folder, const program *p, const arguments *defines, const char *in, const char *out) {
  text t = {NULL, 0};
  add(&t, "#include \"emulate.h\"\n#line 1 \"%s\"\n%s\n", p->name, p->source.bytes);
  const int written = file_write(in, &t);
  drop(&t);
  if (!written) return -1;
  static const char here[] = "-I" FAKECUDA_FOLDER;
  arguments a = compiler();
  watch(&a);
  give_all(&a, (const char *const[]){"-E", "-x", "c++", here, "-o", out, in, NULL});
  give_all(&a, (const char *const *)defines->list);
  return run(folder, a.list);
}

/* Most kernels run for less time than -O1 takes; but fewer accesses are left to tell of. */
static int translate(const char *folder, const char *in, const char *out, int contract) {
  arguments a = compiler();
  watch(&a);
  give_all(&a, (const char *const[]){"-shared", "-nodefaultlibs", "-Wl,-Bsymbolic", "-Wl,-z,defs", NULL});
  give(&a, flag_of("FAKECUDA_RACES") ? "-O1" : "-Og");
  give(&a, contract ? "-ffp-contract=fast" : "-ffp-contract=off");
#ifdef __x86_64__
  if (__builtin_cpu_supports("fma")) give(&a, "-mfma");
#endif
  give_all(&a, (const char *const[]){"-x", "c++-cpp-output", "-o", out, in, "-lm", "-lc", "-lgcc", NULL});
  return run(folder, a.list);
}

static int compile_in(const char *folder, program *p, const arguments *defines, int contract) {
  char cu[256], ii[256], so[256];
  snprintf(cu, sizeof cu, "%s/text.cu", folder);
  snprintf(ii, sizeof ii, "%s/text.ii", folder);
  snprintf(so, sizeof so, "%s/code", folder);
  int failed = preprocess(folder, p, defines, cu, ii);
  if (!failed) {
    text t = file_read(ii);
    if (t.bytes) add_kernels(&t);
    failed = t.bytes && file_write(ii, &t) ? translate(folder, ii, so, contract) : -1;
    drop(&t);
  }
  if (!failed) p->code = file_read(so);
  unlink(cu), unlink(ii), unlink(so);
  return failed;
}

static result compile(program *p, const arguments *defines, int contract) {
  char folder[128], log[160];
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.100s/fakenvrtc-XXXXXX", temporary && *temporary ? temporary : "/tmp");
  if (!mkdtemp(folder)) return INTERNAL_ERROR;
  const int failed = compile_in(folder, p, defines, contract);
  snprintf(log, sizeof log, "%s/log", folder);
  drop(&p->log);
  p->log = file_read(log);
  if (failed < 0) add(&p->log, "the C++ compiler cannot be run\n");
  unlink(log), rmdir(folder);
  if (!failed) return p->code.size ? OK : INTERNAL_ERROR;
  return failed < 0 ? INTERNAL_ERROR : COMPILATION;
}

/* FAKENVRTC_MEET: whether the others came. */
static int meet(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
  static int begun;
  const char *value = getenv("FAKENVRTC_MEET");
  const int wanted = value ? atoi(value) : 0;
  struct timespec until;
  int late = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 60;
  pthread_mutex_lock(&lock);
  begun = wanted ? begun + 1 : 0;
  pthread_cond_broadcast(&came);
  while (begun < wanted && !late) late = pthread_cond_timedwait(&came, &lock, &until);
  pthread_mutex_unlock(&lock);
  return !late;
}

EXPORT result nvrtcCompileProgram(program *p, int n, const char *const *options) {
  FAIL_IF_TOLD;
  arguments defines = {.count = 0};
  int contract;
  if (!p || n < 0 || (n && !options)) return p ? INVALID_INPUT : INVALID_PROGRAM;
  drop(&p->code), drop(&p->log);
  const char *why = flag_of("FAKENVRTC_FAIL") ? "this compilation was told to fail (FAKENVRTC_FAIL)" : NULL;
  if (!why && !meet()) why = "no other compilation came (FAKENVRTC_MEET)";
  if (why) return add(&p->log, "%s(1): error: %s\n", p->name, why), COMPILATION;
  const result bad = read_options(&defines, &contract, n, options);
  if (!bad && flag_of("FAKENVRTC_EMPTY")) return add(&p->code, EMPTY_CODE), OK;
  return bad ? bad : compile(p, &defines, contract);
}

/* ---- the rest of the API ---- */
EXPORT result nvrtcVersion(int *major, int *minor) {
  FAIL_IF_TOLD;
  const char *version = getenv("FAKENVRTC_VERSION");
  if (!major || !minor) return INVALID_INPUT;
  *major = 13, *minor = flag_of("FAKECUDA_RACES") + 2 * flag_of("FAKENVRTC_EMPTY"); /* what each makes is kept apart */
  if (version) sscanf(version, "%d.%d", major, minor);
  return OK;
}

EXPORT result nvrtcGetNumSupportedArchs(int *n) {
  FAIL_IF_TOLD;
  return n ? (*n = ARCHS, OK) : INVALID_INPUT;
}
EXPORT result nvrtcGetSupportedArchs(int *list) {
  FAIL_IF_TOLD;
  if (!list) return INVALID_INPUT;
  memcpy(list, archs, sizeof archs);
  return OK;
}

static atomic_long live;
EXPORT long fakenvrtc_live(void);
long fakenvrtc_live(void) { return live; }

EXPORT result nvrtcCreateProgram(program **out, const char *source, const char *name, int headers,
                                 const char *const *contents, const char *const *names) {
  FAIL_IF_TOLD;
  (void)contents, (void)names;
  if (!out || !source || headers) return INVALID_INPUT; /* kernels here are free of headers */
  program *p = calloc(1, sizeof *p);
  if (!p) return OUT_OF_MEMORY;
  snprintf(p->name, sizeof p->name, "%s", name ? name : "default_program");
  add(&p->source, "%s", source);
  *out = p;
  live++;
  return OK;
}

EXPORT result nvrtcDestroyProgram(program **p) {
  FAIL_IF_TOLD_KEEPING(p ? *p : NULL);
  if (!p || !*p) return INVALID_PROGRAM;
  drop(&(*p)->source), drop(&(*p)->log), drop(&(*p)->code);
  free(*p);
  *p = NULL;
  live--;
  return OK;
}

/* Sizes of a log count its final zero. */
EXPORT result nvrtcGetProgramLogSize(const program *p, size_t *size) {
  FAIL_IF_TOLD;
  return p && size ? (*size = p->log.size + 1, OK) : INVALID_INPUT;
}
EXPORT result nvrtcGetProgramLog(const program *p, char *log) {
  FAIL_IF_TOLD;
  if (!p || !log) return INVALID_INPUT;
  memcpy(log, p->log.bytes ? p->log.bytes : "", p->log.size + 1);
  return OK;
}
static result code_size(const program *p, size_t *size) {
  return p && size && p->code.size ? (*size = p->code.size, OK) : INVALID_PROGRAM;
}
static result code_bytes(const program *p, char *code) {
  if (!p || !code || !p->code.size) return INVALID_PROGRAM;
  memcpy(code, p->code.bytes, p->code.size);
  return OK;
}
EXPORT result nvrtcGetCUBINSize(const program *p, size_t *size) {
  FAIL_IF_TOLD;
  return code_size(p, size);
}
EXPORT result nvrtcGetCUBIN(const program *p, char *code) {
  FAIL_IF_TOLD;
  return code_bytes(p, code);
}
EXPORT result nvrtcGetPTXSize(const program *p, size_t *size) {
  FAIL_IF_TOLD;
  return code_size(p, size);
}
EXPORT result nvrtcGetPTX(const program *p, char *code) {
  FAIL_IF_TOLD;
  return code_bytes(p, code);
}

EXPORT const char *nvrtcGetErrorString(result code) {
  static const struct {
    result code;
    const char *name;
  } names[] = {{OK, "NVRTC_SUCCESS"},
               {OUT_OF_MEMORY, "NVRTC_ERROR_OUT_OF_MEMORY"},
               {CREATION_FAILURE, "NVRTC_ERROR_PROGRAM_CREATION_FAILURE"},
               {INVALID_INPUT, "NVRTC_ERROR_INVALID_INPUT"},
               {INVALID_PROGRAM, "NVRTC_ERROR_INVALID_PROGRAM"},
               {INVALID_OPTION, "NVRTC_ERROR_INVALID_OPTION"},
               {COMPILATION, "NVRTC_ERROR_COMPILATION"},
               {INTERNAL_ERROR, "NVRTC_ERROR_INTERNAL_ERROR"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].code == code) return names[i].name;
  return "NVRTC_ERROR unknown";
}
