/* test_cuda_cache.c -- compiled kernels on disk: damaged and foreign files, no compiler, many threads, many processes;
 * and in memory: threads that want one text, or several.
 * On the stand-ins for the driver and NVRTC (fakecuda/). */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/cuda/cuda.h"
#include "standins.h"
#include "test.h"

extern char **environ;
static char cache[64] = "/tmp/ambi-cache-XXXXXX";

static ambi_op silu(int64_t n) {
  ambi_op op = {.kind = AMBI_UNARY};
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_F32, 1, &n);
  return op;
}

/* ---- cache ---- */
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

static atomic_int compiles; /* a plan's texts are compiled side by side */
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
  setenv("FAKECUDA_CAPABILITY", "80", 1);
  CHECK(compiles_of_a_plan(cache) == 1, "so has another GPU");
  unsetenv("FAKECUDA_CAPABILITY");
  CHECK(compiles_of_a_plan("") == 1, "without a folder");
  CHECK(compiles_of_a_plan("/proc/nowhere/ambi") == 1, "a folder that cannot be made costs time only");
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
  if (!CHECK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = cache}, &dev) == AMBI_OK, "%s", ambi_error()))
    return;
  for (int i = 0; i < THREADS; i++) c[i] = (crew){dev, 0}, pthread_create(&id[i], NULL, make_plans, &c[i]);
  for (int i = 0; i < THREADS; i++)
    pthread_join(id[i], NULL), CHECK(c[i].bad == 0, "thread %d: %d plans failed", i, c[i].bad);
  CHECK(each_file(NULL) == 6, "%d files for 6 texts", each_file(NULL));
  ambi_device_close(dev);
}

/* ---- threads that compile ---- */
enum { CROWD = 4 };
typedef struct {
  ambi_device *dev;
  ambi_op op;
  ambi_status status;
  char said[300];
} wish;
static atomic_int wishing, expected, begun;

/* Told before a compilation: it begins when every thread is on its way to module_get, most likely inside. */
static void hold_up(void *context, const char *what) {
  (void)context, (void)what;
  begun++;
  for (int i = 0; i < 6000 && wishing < expected; i++) usleep(10000);
  usleep(200000);
}

static void *make_wish(void *context) {
  wish *w = context;
  ambi_plan *plan = NULL;
  wishing++;
  w->status = ambi_plan_create(w->dev, &w->op, &plan);
  snprintf(w->said, sizeof w->said, "%s", w->status == AMBI_OK ? "" : ambi_error());
  ambi_plan_destroy(plan);
  return NULL;
}

/* That many threads at once, for `texts` texts; how many plans were made. */
static int make_wishes(ambi_device *dev, wish *w, int threads, int texts) {
  pthread_t id[CROWD];
  int made = 0;
  wishing = 0;
  begun = 0;
  expected = threads;
  for (int i = 0; i < threads; i++) {
    w[i] = (wish){.dev = dev, .op = silu(5)};
    w[i].op.u.unary.function = i % texts;
    CHECK(pthread_create(&id[i], NULL, make_wish, &w[i]) == 0, "thread %d", i);
  }
  for (int i = 0; i < threads; i++) pthread_join(id[i], NULL), made += w[i].status == AMBI_OK;
  return made;
}

/* On a fresh device each time, as nothing may be compiled yet. */
static int wish_afresh(wish *w, int threads, int texts) {
  ambi_device *dev;
  if (!CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = "", .notify = hold_up}, &dev))) return -1;
  const int made = make_wishes(dev, w, threads, texts);
  unsetenv("FAKENVRTC_FAIL"), unsetenv("FAKENVRTC_MEET"), unsetenv("FAKECUDA_FAIL");
  wish again[1];
  const int compiled = begun;
  CHECK(make_wishes(dev, again, 1, 1) == 1, "and the device is well: %s", again->said);
  begun = compiled;
  ambi_device_close(dev);
  return made;
}

static void test_crowd(void) {
  wish w[CROWD];
  int made;
  setenv("FAKENVRTC_MEET", "2", 1);
  made = wish_afresh(w, 2, 2);
  CHECK(made == 2, "two texts are compiled side by side: %s%s", w[0].said, w[1].said);
  made = wish_afresh(w, CROWD, 1);
  CHECK(made == CROWD && begun == 1, "one text, wanted by all: %d plans, compiled %d times", made, begun);
  setenv("FAKENVRTC_FAIL", "1", 1);
  made = wish_afresh(w, CROWD, 1);
  CHECK(made == 0, "what cannot be compiled: %d plans", made);
  for (int i = 0; i < CROWD; i++)
    CHECK(w[i].status == AMBI_COMPILE_FAILED && strstr(w[i].said, "told to fail"), "thread %d is told: %s", i,
          w[i].said);
  setenv("FAKECUDA_FAIL", "cuModuleLoadData:1:2:1", 1);
  made = wish_afresh(w, CROWD, 1);
  CHECK(made == CROWD - 1 && begun == 2, "only the first fails: %d plans, compiled %d times", made, begun);
}

/* ---- files that are not the cache's own ---- */
static void let_others_write(const char *path) { CHECK(chmod(path, 0666) == 0, "chmod"); }
static void make_pipe(const char *path) { CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0, "a pipe"); }
static void make_folder(const char *path) { CHECK(unlink(path) == 0 && mkdir(path, 0700) == 0, "a folder"); }
static void remove_folder(const char *path) { rmdir(path); }
static void other_version(const char *path) { /* of a later ambi, say: its first line differs */
  FILE *f = fopen(path, "r+b");
  if (f) fputs("ambi kernel 2\n", f), fclose(f);
}
static int modes;
static void note_mode(const char *path) {
  struct stat s;
  if (stat(path, &s) == 0) modes |= (int)(s.st_mode & 077);
}

static void test_foreign(void) {
  static void (*const damages[])(const char *) = {other_version, let_others_write, make_pipe};
  struct stat s;
  char inside[100], remove[120];
  each_file(delete_file);
  compiles_of_a_plan(cache);
  each_file(note_mode);
  CHECK(modes == 0, "a file of the cache is nobody else's: mode %o", (unsigned)modes);
  for (int i = 0; i < 3; i++) {
    each_file(damages[i]);
    CHECK(compiles_of_a_plan(cache) == 1, "foreign file %d: it is not believed", i);
    CHECK(compiles_of_a_plan(cache) == 0, "foreign file %d: and it is replaced", i);
  }
  each_file(make_folder);
  CHECK(compiles_of_a_plan(cache) == 1 && compiles_of_a_plan(cache) == 1, "a folder of that name stays");
  CHECK(each_file(NULL) == 1, "and nothing temporary is left beside it");
  each_file(remove_folder);
  snprintf(inside, sizeof inside, "%s/new/folder", cache);
  CHECK(compiles_of_a_plan(inside) == 1 && compiles_of_a_plan(inside) == 0, "folders are made");
  CHECK(stat(inside, &s) == 0 && (s.st_mode & 077) == 0, "for nobody else");
  snprintf(remove, sizeof remove, "rm -r %s/new", cache);
  CHECK(system(remove) == 0, "%s", remove);
}

/* Code that the driver refuses is not kept; kept code that it refuses is compiled again. */
static void test_refused(void) {
  ambi_device *dev;
  ambi_plan *plan = NULL;
  ambi_op op = silu(5);
  each_file(delete_file);
  if (!CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = cache}, &dev))) return;
  setenv("FAKECUDA_FAIL", "cuModuleLoadData:1:222", 1), setenv("FAKECUDA_DRIVER", "12040", 1);
  CHECK_STATUS(ambi_plan_create(dev, &op, &plan), AMBI_COMPILE_FAILED, "NVRTC 13.0 is newer", "12.4");
  CHECK(each_file(NULL) == 0, "what cannot be loaded is not kept");
  unsetenv("FAKECUDA_FAIL"), unsetenv("FAKECUDA_DRIVER");
  ambi_device_close(dev);
  compiles_of_a_plan(cache);
  setenv("FAKECUDA_FAIL", "cuModuleLoadData:1:209:1", 1);
  CHECK(compiles_of_a_plan(cache) == 1, "what is kept and cannot be loaded is compiled again");
  setenv("FAKECUDA_FAIL", "cuModuleLoadData:1:2", 1);
  compiles = 0;
  if (CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = cache, .notify = count_compile}, &dev))) {
    CHECK_STATUS(ambi_plan_create(dev, &op, &plan), AMBI_NO_MEMORY, "loading a kernel");
    CHECK(compiles == 0, "a full device is no reason to compile again");
    ambi_device_close(dev);
  }
  unsetenv("FAKECUDA_FAIL");
}

/* Twenty files of 1000 bytes, the first the oldest; a draft that was left behind, one under way, and somebody's. */
static void test_tidy(void) {
  char path[200], bytes[1000] = {0};
  each_file(delete_file);
  for (int i = 0; i < 23; i++) {
    static const char *const odd[] = {".abcdef", ".ghijkl", "-notes"};
    snprintf(path, sizeof path, "%s/%064x%s", cache, (unsigned)i, i < 20 ? "" : odd[i - 20]);
    FILE *f = fopen(path, "wb");
    if (!CHECK(f && fwrite(bytes, sizeof bytes, 1, f) == 1 && fclose(f) == 0, "%s", path)) return;
    const struct timespec age[2] = {{.tv_sec = time(NULL) - 10000 + 100 * i}, {.tv_sec = time(NULL) - 10000 + 100 * i}};
    if (i != 21) CHECK(utimensat(AT_FDCWD, path, age, 0) == 0, "its time");
  }
  disk_tidy(cache, 20000);
  CHECK(each_file(NULL) == 22, "only the draft that was left behind is gone: %d files", each_file(NULL));
  disk_tidy(cache, 5500);
  CHECK(each_file(NULL) == 7, "five kernels are left, and two that are none: %d files", each_file(NULL));
  snprintf(path, sizeof path, "%s/%064x", cache, 15u);
  CHECK(access(path, F_OK) == 0, "of kernels, the newest");
  snprintf(path, sizeof path, "%s/%064x", cache, 14u);
  CHECK(access(path, F_OK) != 0, "and not an older one");
  each_file(delete_file);
}

/* Processes that tidy at once delete what one of them would. */
static void test_tidy_together(void) {
  enum { PROCESSES = 4, FILES = 2000, KEPT = 1800 };
  char path[200], bytes[10] = {0};
  pid_t id[PROCESSES];
  each_file(delete_file);
  for (int i = 0; i < FILES; i++) {
    snprintf(path, sizeof path, "%s/%064x", cache, (unsigned)i);
    FILE *f = fopen(path, "wb");
    if (!CHECK(f && fwrite(bytes, sizeof bytes, 1, f) == 1 && fclose(f) == 0, "%s", path)) return;
  }
  for (int i = 0; i < PROCESSES; i++)
    if ((id[i] = fork()) == 0) disk_tidy(cache, KEPT * (int64_t)sizeof bytes), _exit(0);
  for (int i = 0; i < PROCESSES; i++) CHECK(waitpid(id[i], NULL, 0) == id[i], "process %d", i);
  CHECK(each_file(NULL) >= KEPT - PROCESSES, "%d of %d files are left", each_file(NULL), KEPT);
  each_file(delete_file);
}

/* Without NVRTC, what it has made before is used, and nothing else can be. */
static void test_no_compiler(void) {
  ambi_device *dev;
  ambi_plan *plan = NULL;
  ambi_op op = silu(5);
  each_file(delete_file);
  setenv("FAKENVRTC_VERSION", "12.4", 1);
  CHECK(compiles_of_a_plan(cache) == 1, "NVRTC 12.4 fills the folder");
  unsetenv("FAKENVRTC_VERSION");
  CHECK(compiles_of_a_plan(cache) == 1 && each_file(NULL) == 2, "and 13.0 another file");
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries-none", 1);
  CHECK(compiles_of_a_plan(cache) == 0, "which serve without a compiler");
  setenv("FAKECUDA_FAIL", "cuModuleLoadData:1:222:1", 1);
  CHECK(compiles_of_a_plan(cache) == 0, "the older one too, where the driver does not know the newer");
  unsetenv("FAKECUDA_FAIL");
  if (CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = "", .notify = count_compile}, &dev))) {
    compiles = 0;
    CHECK_STATUS(ambi_plan_create(dev, &op, &plan), AMBI_COMPILE_FAILED, "libnvrtc", "nvrtcVersion");
    CHECK(compiles == 0, "no compilation is announced");
    ambi_device_close(dev);
  }
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
}

/* A GPU that the compiler did not know yet runs PTX of an older one. */
static void test_kept_ptx(void) {
  each_file(delete_file);
  setenv("FAKECUDA_CAPABILITY", "130", 1);
  CHECK(compiles_of_a_plan(cache) == 1, "PTX is kept");
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries-none", 1);
  CHECK(compiles_of_a_plan(cache) == 0, "and found without a compiler");
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  unsetenv("FAKECUDA_CAPABILITY");
}

static const char *last_word;
static void keep_word(void *context, const char *what) { (void)context, last_word = what; }

/* A folder that cannot be made, or is none: nothing is promised. */
static void test_no_folder(const char *where) {
  ambi_device *dev;
  ambi_plan *plan = NULL;
  ambi_device_info info;
  ambi_op op = silu(5);
  const ambi_device_options o = {.cache_dir = where, .notify = keep_word};
  if (!CHECK_OK(ambi_device_open("cuda", &o, &dev))) return;
  CHECK(ambi_device_get_info(dev, &info) == AMBI_OK && strstr(info.features, "cannot be written"), "%s", info.features);
  CHECK_OK(ambi_plan_create(dev, &op, &plan));
  CHECK(last_word && !strstr(last_word, "kept"), "%s", last_word);
  ambi_plan_destroy(plan);
  ambi_device_close(dev);
}

/* ---- a plan of several texts ---- */
enum { SIDE_BY_SIDE = 3 }; /* linear's gradients in 16 bits: dx, dw and db have a text each */
static atomic_int alone;

/* Told before a compilation: the others begin before this one goes on. */
static void meet(void *context, const char *what) {
  (void)context, (void)what;
  begun++;
  for (int i = 0; i < 2000 && begun < SIDE_BY_SIDE; i++) usleep(10000);
  alone += begun < SIDE_BY_SIDE;
}

static ambi_op linear_back(void) {
  ambi_op op = {.kind = AMBI_LINEAR, .pass = AMBI_BACKWARD};
  op.t[AMBI_LINEAR_X] = ambi_dense(AMBI_BF16, 2, (int64_t[]){8, 16});
  op.t[AMBI_LINEAR_W] = ambi_dense(AMBI_BF16, 2, (int64_t[]){24, 16});
  op.t[AMBI_LINEAR_B] = ambi_dense(AMBI_BF16, 1, (int64_t[]){24});
  return op;
}

static void test_side_by_side(void) {
  const ambi_device_options o = {.cache_dir = "", .max_isa = "special", .notify = meet};
  ambi_op op = linear_back();
  ambi_device *dev;
  ambi_plan *plan = NULL;
  if (!CHECK_OK(ambi_device_open("cuda", &o, &dev))) return;
  begun = 0;
  alone = 0;
  CHECK_OK(ambi_plan_create(dev, &op, &plan));
  CHECK(begun == SIDE_BY_SIDE && alone == 0, "%d texts, %d compiled after others", (int)begun, (int)alone);
  ambi_plan_destroy(plan);
  ambi_device_close(dev);
}

/* One of them is refused, whichever it is: the plan says so, and the next one is made. */
static void test_one_refused(void) {
  for (int i = 1; i <= SIDE_BY_SIDE + 1; i++) {
    char rule[64];
    ambi_op op = linear_back();
    ambi_device *dev;
    ambi_plan *plan = NULL;
    if (!CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = "", .max_isa = "special"}, &dev)))
      return;
    snprintf(rule, sizeof rule, "nvrtcCompileProgram:%d:6:1", i);
    setenv("FAKECUDA_FAIL", rule, 1);
    if (i <= SIDE_BY_SIDE) CHECK_STATUS(ambi_plan_create(dev, &op, &plan), AMBI_COMPILE_FAILED, "NVRTC", "refused");
    CHECK_OK(ambi_plan_create(dev, &op, &plan));
    unsetenv("FAKECUDA_FAIL");
    ambi_plan_destroy(plan);
    ambi_device_close(dev);
  }
}

/* ---- processes ---- */
/* While one thread compiles and another waits for it, the process forks: the child has neither, and closes the device.
 */
static void test_fork(void) {
  pthread_t id[2];
  wish w[2];
  ambi_device *dev;
  int status = -1;
  if (!CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = "", .notify = hold_up}, &dev))) return;
  wishing = 0;
  begun = 0;
  expected = 3; /* one that never comes: they are held up until the fork is over */
  for (int i = 0; i < 2; i++) {
    w[i] = (wish){.dev = dev, .op = silu(5)};
    CHECK(pthread_create(&id[i], NULL, make_wish, &w[i]) == 0, "thread %d", i);
  }
  for (int i = 0; i < 6000 && (begun < 1 || wishing < 2); i++) usleep(10000);
  usleep(200000); /* so that the second waits */
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    ambi_device_close(dev);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0, "closing in a child: status %d", status);
  expected = 2;
  for (int i = 0; i < 2; i++) pthread_join(id[i], NULL), CHECK(w[i].status == AMBI_OK, "the parent: %s", w[i].said);
  ambi_device_close(dev);
}

/* This program again, PROCESSES times at once, each making one plan in the same folder. */
static void test_processes(char *self) {
  enum { PROCESSES = 4 };
  char one[] = "--one", *const args[] = {self, one, cache, NULL};
  pid_t id[PROCESSES];
  each_file(delete_file);
  for (int i = 0; i < PROCESSES; i++) CHECK(posix_spawn(&id[i], self, NULL, NULL, args, environ) == 0, "process %d", i);
  for (int i = 0; i < PROCESSES; i++) {
    int status = -1;
    CHECK(waitpid(id[i], &status, 0) == id[i] && status == 0, "process %d: status %d", i, status);
  }
  CHECK(each_file(NULL) == 1, "%d files for one text", each_file(NULL));
  CHECK(compiles_of_a_plan(cache) == 0, "and it is whole");
}

int main(int argc, char **argv) {
  char remove[100];
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  if (argc == 3 && !strcmp(argv[1], "--one")) return compiles_of_a_plan(argv[2]) < 0 || test_failed;
  if (stand_ins_missing()) return 0;
  if (!mkdtemp(cache)) return 1;
  test_cache();
  test_foreign();
  test_refused();
  test_tidy();
  test_tidy_together();
  test_no_compiler();
  test_side_by_side();
  test_one_refused();
  test_kept_ptx();
  test_no_folder("/dev/null/ambi");
  test_no_folder(argv[0]); /* a plain file */
  test_threads();
  test_crowd();
  test_processes(argv[0]);
  test_fork();
  snprintf(remove, sizeof remove, "rm -r %s", cache);
  return system(remove) ? 1 : test_done();
}
