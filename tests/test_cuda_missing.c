/* test_cuda_missing.c -- a machine without the driver, NVRTC or cuBLASLt, whatever this one has: what a program is told
 * and how to get it, what still works, and what `ambi info` says.
 *
 * The linker hands this program the library's calls of dlopen and glob, and only the folder of a test is let through.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../cli/commands.h"
#include "../util/files.h"
#include "standins.h"
#include "test.h"

static char root[64] = "/tmp/ambi-missing-XXXXXX";

/* ---- nothing but $AMBI_CUDA_LIBRARIES is there ---- */
void *__real_dlopen(const char *name, int how);
void *__wrap_dlopen(const char *name, int how);
int __real_glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found);
int __wrap_glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found);

static int hidden; /* what was asked for and hidden */
static bool is_hidden(const char *path) {
  const bool inside = strncmp(path, root, strlen(root)) == 0;
  hidden += !inside;
  return !inside;
}

void *__wrap_dlopen(const char *name, int how) { return name && is_hidden(name) ? NULL : __real_dlopen(name, how); }
int __wrap_glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found) {
  return is_hidden(pattern) ? GLOB_NOMATCH : __real_glob(pattern, flags, failed, found);
}

/* ---- folders: named for what they have ---- */
typedef enum { NOTHING, DRIVER_ONLY, NO_BLAS, NO_COMPILER, ALL, BROKEN, ODD_NAME, NO_DRIVER, NOWHERE, FOLDERS } folder;
static const struct {
  const char *name;
  bool driver, compiler, blas;
} folders[FOLDERS] = {[NOTHING] = {"nothing", false, false, false},
                      [DRIVER_ONLY] = {"driver", true, false, false},
                      [NO_BLAS] = {"no-blas", true, true, false},
                      [NO_COMPILER] = {"no-compiler", true, false, true},
                      [ALL] = {"all", true, true, true},
                      [BROKEN] = {"broken", true, false, false},
                      [ODD_NAME] = {"o[d]d * name?", true, true, true},
                      [NO_DRIVER] = {"no-driver", false, true, true},
                      [NOWHERE] = {"nowhere", false, false, false}}; /* which is not made */

static bool add_library_as(const char *to, const char *name, const char *as) {
  char from[400], path[200];
  snprintf(from, sizeof from, "%s/libraries-blas/%s", LIBRARIES, name);
  snprintf(path, sizeof path, "%s/%s", to, as);
  return access(from, R_OK) == 0 && symlink(from, path) == 0;
}
static bool add_library(const char *to, const char *name) { return add_library_as(to, name, name); }

static bool make_folders(void) {
  char path[120], broken[140];
  bool ok = mkdtemp(root) != NULL;
  for (int i = 0; i < NOWHERE && ok; i++) {
    snprintf(path, sizeof path, "%s/%s", root, folders[i].name);
    ok = mkdir(path, 0700) == 0 && (!folders[i].driver || add_library(path, "libcuda.so.1")) &&
         (!folders[i].compiler || add_library(path, "libnvrtc.so")) &&
         (!folders[i].blas || add_library(path, "libcublasLt.so"));
  }
  snprintf(broken, sizeof broken, "%s/%s/libnvrtc.so", root, folders[BROKEN].name);
  FILE *f = ok ? fopen(broken, "w") : NULL;
  if (f) fputs("no library\n", f), fclose(f);
  return CHECK(f != NULL, "folders of libraries");
}

static const char *kept(void) { /* where kernels are kept */
  static char path[100];
  snprintf(path, sizeof path, "%s/kept", root);
  return path;
}

static void use_folder(folder which) {
  char path[120];
  snprintf(path, sizeof path, "%s/%s", root, folders[which].name);
  setenv("AMBI_CUDA_LIBRARIES", path, 1);
}

/* ---- devices ---- */
static atomic_int compiles; /* a plan's texts are compiled side by side */
static void count_compile(void *context, const char *what) { (void)context, (void)what, compiles++; }

static ambi_status open_with(folder which, const char *cache, ambi_device **dev) {
  *dev = NULL;
  compiles = 0;
  use_folder(which);
  return ambi_device_open("cuda", &(ambi_device_options){.cache_dir = cache, .notify = count_compile}, dev);
}

/* What a device says of itself has all of these words. */
static void check_features(folder which, const char *const *words) {
  ambi_device *dev;
  ambi_device_info info = {.features = ""};
  if (!CHECK_OK(open_with(which, "", &dev))) return;
  CHECK_OK(ambi_device_get_info(dev, &info));
  for (; *words; words++)
    CHECK(strstr(info.features, *words), "%s: '%s' is not said: %s", folders[which].name, *words, info.features);
  ambi_device_close(dev);
}
#define CHECK_FEATURES(which, ...) check_features(which, (const char *const[]){__VA_ARGS__, NULL})

#define NVRTC_MISSING "no NVRTC (libnvrtc.so.13 or .12)", "`pip install nvidia-cuda-nvrtc`", "CUDA_HOME"
#define BLAS_MISSING \
  "no cuBLASLt (libcublasLt.so.13 or .12): linear uses ambi's own kernel", "`pip install nvidia-cublas`"

static bool ends_in(const char *text, size_t n, const char *words) {
  return n >= strlen(words) && !memcmp(text + n - strlen(words), words, strlen(words));
}

static void test_sentences(void) {
  ambi_device *dev;
  CHECK_STATUS(open_with(NOTHING, "", &dev), AMBI_NO_DEVICE,
               "no NVIDIA driver (libcuda.so.1); install the driver of the GPU", NVRTC_MISSING, BLAS_MISSING);
  CHECK(ends_in(ambi_error(), strlen(ambi_error()), "a CUDA toolkit"), "no room for all of it: %s", ambi_error());
  CHECK_STATUS(open_with(NO_DRIVER, "", &dev), AMBI_NO_DEVICE, "(libcuda.so.1)", "NVRTC: found, ", "cuBLASLt: found, ");
  CHECK_STATUS(open_with(NOWHERE, "", &dev), AMBI_NO_DEVICE, "AMBI_CUDA_LIBRARIES names",
               "nowhere, which is no folder");
  CHECK(hidden > 0, "a machine's own libraries are looked for through dlopen and glob");
  CHECK_FEATURES(DRIVER_ONLY, NVRTC_MISSING, BLAS_MISSING);
  CHECK_FEATURES(NO_COMPILER, NVRTC_MISSING, "libcublasLt.so");
  CHECK_FEATURES(NO_BLAS, "NVRTC: 13.0", BLAS_MISSING);
  CHECK_FEATURES(BROKEN, "libnvrtc.so", "it is there but does not load");
  CHECK_FEATURES(ODD_NAME, "NVRTC: 13.0", "o[d]d * name?/libnvrtc.so", "o[d]d * name?/libcublasLt.so");
}

/* Of two in the folder that is named, the newest that is no newer than the driver; else the one that is there. */
static void test_versions(void) {
  char both[120];
  snprintf(both, sizeof both, "%s/%s", root, folders[DRIVER_ONLY].name);
  if (!CHECK(add_library_as(both, "libnvrtc.so", "libnvrtc.so.13"), "libnvrtc.so.13")) return;
  setenv("FAKECUDA_DRIVER", "12040", 1);
  CHECK_FEATURES(DRIVER_ONLY, "driver 12.4", "libnvrtc.so.13");
  CHECK(add_library_as(both, "libnvrtc.so", "libnvrtc.so.12"), "libnvrtc.so.12");
  CHECK_FEATURES(DRIVER_ONLY, "driver 12.4", "libnvrtc.so.12");
  unsetenv("FAKECUDA_DRIVER");
  CHECK_FEATURES(DRIVER_ONLY, "driver 13.0", "libnvrtc.so.13");
}

/* As pip lays them out: CUDA 12's packages have a folder each, CUDA 13's share one. */
static bool make_packages(void) {
  char command[900];
  snprintf(
      command, sizeof command,
      "mkdir %s/pip && cd %s/pip && ln -s . .local && mkdir -p lib/python3.11/site-packages/nvidia && "
      "cd lib/python3.11/site-packages/nvidia && mkdir -p cuda_nvrtc/lib cublas/lib cu13/lib && from=%s && "
      "ln -s $from/libnvrtc.so cuda_nvrtc/lib/libnvrtc.so.12 && ln -s $from/libnvrtc.so cu13/lib/libnvrtc.so.13 && "
      "ln -s $from/libcublasLt.so cublas/lib/libcublasLt.so.12 && "
      "ln -s $from/libcublasLt.so cu13/lib/libcublasLt.so.13",
      root, root, LIBRARIES "/libraries-blas");
  return CHECK(system(command) == 0, "%s", command);
}

/* In a virtual environment that is active, and where `pip install --user` puts them: what the advice names. */
static void test_packages(void) {
  static const char *const places[] = {"VIRTUAL_ENV", "HOME"};
  char pip[100];
  if (!make_packages()) return;
  snprintf(pip, sizeof pip, "%s/pip", root);
  CHECK_FEATURES(DRIVER_ONLY, "nvrtc-cu12 for a driver of CUDA 12) in an active virtual environment or for the user",
                 "cublas-cu12 for a driver of CUDA 12) in an active virtual environment or for the user");
  for (int i = 0; i < 2; i++) {
    const char *value = getenv(places[i]);
    char *before = value ? strdup(value) : NULL;
    setenv(places[i], pip, 1);
    setenv("FAKECUDA_DRIVER", "12040", 1);
    CHECK_FEATURES(DRIVER_ONLY, "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cublas/lib/libcublasLt.so.12");
    setenv("FAKECUDA_DRIVER", "13000", 1);
    CHECK_FEATURES(DRIVER_ONLY, "nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libcublasLt.so.13");
    unsetenv("FAKECUDA_DRIVER"), unsetenv(places[i]);
    if (before) setenv(places[i], before, 1);
    free(before);
  }
}

/* ---- a linear layer ---- */
enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y, SIZE = 24 };
typedef struct {
  float y[SIZE * SIZE];
  char kernel[100];
} answer;

static ambi_status plan_layer(ambi_device *dev, ambi_plan **plan) {
  ambi_op op = {.kind = AMBI_LINEAR};
  op.t[X] = op.t[W] = ambi_dense(AMBI_F32, 2, (int64_t[]){SIZE, SIZE});
  op.t[B] = ambi_dense(AMBI_F32, 1, (int64_t[]){SIZE});
  return ambi_plan_create(dev, &op, plan);
}

/* Whole numbers: every sum is exact, whoever adds up. */
static void run_layer(ambi_device *dev, const ambi_plan *plan, answer *out) {
  ambi_buf slots[AMBI_SLOTS] = {{0}}, workspace = {0};
  ambi_stream *stream = NULL;
  float v[SIZE * SIZE];
  CHECK(ambi_stream_create(dev, NULL, &stream) == AMBI_OK && ambi_alloc(dev, 1 << 20, &workspace) == AMBI_OK, "%s",
        ambi_error());
  for (int s = X; s <= Y; s++) {
    for (int i = 0; i < SIZE * SIZE; i++) v[i] = (float)((s * 5 + i * 7) % 11 - 5);
    CHECK_OK(ambi_alloc(dev, sizeof v, &slots[s]));
    CHECK_OK(ambi_upload(stream, slots[s], v, sizeof v));
    CHECK_OK(ambi_stream_wait(stream));
  }
  CHECK_OK(ambi_run(plan, stream, slots, AMBI_SLOTS, workspace));
  CHECK_OK(ambi_download(stream, out->y, slots[Y], sizeof out->y));
  CHECK_OK(ambi_stream_wait(stream));
  for (int s = X; s <= Y; s++) ambi_free(dev, slots[s]);
  ambi_free(dev, workspace), ambi_stream_destroy(stream);
}

static bool answer_of(folder which, answer *out) {
  ambi_device *dev;
  ambi_plan *plan = NULL;
  ambi_plan_info info;
  memset(out, 0, sizeof *out);
  if (!CHECK_OK(open_with(which, kept(), &dev))) return false;
  const bool ok = CHECK_OK(plan_layer(dev, &plan)) && CHECK_OK(ambi_plan_get_info(plan, &info));
  if (ok) snprintf(out->kernel, sizeof out->kernel, "%s", info.kernel), run_layer(dev, plan, out);
  ambi_plan_destroy(plan), ambi_device_close(dev);
  return ok;
}

/* What was never compiled cannot be without NVRTC; what was kept runs; and cuBLASLt is not needed. */
static void test_layer(void) {
  answer with, without, from_disk;
  ambi_device *dev;
  ambi_plan *plan = NULL;
  if (CHECK_OK(open_with(DRIVER_ONLY, kept(), &dev))) {
    CHECK_STATUS(plan_layer(dev, &plan), AMBI_COMPILE_FAILED, "cuda: ", NVRTC_MISSING);
    CHECK(compiles == 0, "no compilation is announced");
    ambi_device_close(dev);
  }
  if (!answer_of(ALL, &with) || !answer_of(NO_BLAS, &without)) return;
  CHECK(strstr(with.kernel, "cuBLASLt") && !strstr(without.kernel, "cuBLASLt"), "kernels: %s, and without cuBLASLt %s",
        with.kernel, without.kernel);
  CHECK(!memcmp(with.y, without.y, sizeof with.y) && with.y[0] != 0, "ambi's own kernel gives other results");
  if (answer_of(DRIVER_ONLY, &from_disk))
    CHECK(compiles == 0 && !memcmp(with.y, from_disk.y, sizeof with.y), "a kept kernel gives other results");
}

/* ---- ambi info ---- */
static char said[2][400000]; /* stdout and stderr */

static void read_back(int fd, int was, const char *path, char *text, size_t n) {
  char err[200];
  size_t bytes;
  dup2(was, fd), close(was);
  char *all = file_read(path, n - 1, &bytes, err, sizeof err);
  snprintf(text, n, "%s", all ? all : err);
  free(all);
}

static int info(folder which, const char *option) { /* or a name */
  char name[] = "info", flag[20], *argv[] = {name, option ? flag : NULL, NULL}, path[2][100];
  int was[2];
  snprintf(flag, sizeof flag, "%s", option ? option : "");
  use_folder(which);
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    snprintf(path[i], sizeof path[i], "%s/said-%d", root, i);
    const int file = open(path[i], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    was[i] = dup(i + 1), dup2(file, i + 1), close(file);
  }
  const int rc = info_main(option ? 2 : 1, argv);
  fflush(NULL);
  for (int i = 0; i < 2; i++) read_back(i + 1, was[i], path[i], said[i], sizeof said[i]);
  return rc;
}

static void check_info(folder which, const char *const *words) {
  CHECK(info(which, NULL) == 0, "%s: ambi info fails: %s", folders[which].name, said[1]);
  for (; *words; words++)
    CHECK(strstr(said[0], *words) || strstr(said[1], *words), "%s: ambi info does not say '%s': %.1200s%s",
          folders[which].name, *words, said[0], said[1]);
}
#define CHECK_INFO(which, ...) check_info(which, (const char *const[]){__VA_ARGS__, NULL})

/* In words, as there is nothing of cuda's but strings. */
static void test_info_json(void) {
  CHECK(info(ALL, "--json") == 0 && strstr(said[0], "\"name\":\"cuda\",\"isa\":\"sm_90\""), "all: %.600s", said[0]);
  CHECK(info(NO_COMPILER, "--json") == 0 && strstr(said[0], "no NVRTC") && strstr(said[0], "pip install"),
        "no compiler: %.600s", said[0]);
  CHECK(info(NOTHING, "--json") == 0 && strstr(said[0], "no NVIDIA driver") && strstr(said[0], "install the driver"),
        "without a driver, --json gives no reason: %.600s", said[0]);
  CHECK(strstr(said[0], "\"name\":\"cpu\"") && !strstr(said[0], "sm_90"), "the other devices are there: %.600s",
        said[0]);
}

static void test_info(void) {
  setenv("XDG_CACHE_HOME", root, 1);
  CHECK_INFO(ALL, "device cuda", "sm_90", "132 multiprocessors", "libnvrtc.so", "libcublasLt.so", "kernels kept in");
  CHECK_INFO(DRIVER_ONLY, "device cuda", "sm_90", NVRTC_MISSING, BLAS_MISSING);
  CHECK_INFO(NO_BLAS, "NVRTC: 13.0", BLAS_MISSING);
  CHECK_INFO(NO_COMPILER, NVRTC_MISSING, "libcublasLt.so");
  CHECK_INFO(NOTHING, "cuda", "no NVIDIA driver", "libcuda.so.1", "install the driver", NVRTC_MISSING, BLAS_MISSING);
  const char *line = strstr(said[0], "device cuda: not here: "), *end = line ? strchr(line, '\n') : NULL;
  CHECK(end && ends_in(line, (size_t)(end - line), "a CUDA toolkit"),
        "what is missing, and how to get it, is one line of stdout: %.600s", said[0]);
  CHECK(info(NOTHING, "cuda") == 2 && strstr(said[0], "no NVIDIA driver") && !strstr(said[0], "cpu"),
        "info cuda: %.600s%s", said[0], said[1]);
  CHECK(!strstr(said[0], "sm_90"), "a device that is not there has no isa");
  test_info_json();
}

/* ---- a program with more rights than whoever started it ---- */
enum { HEARD_NOTHING = 10, HEARD, NO_RIGHTS };

/* In a copy of this program that belongs to root and is set-user-ID */
static int open_with_rights(const char *where) {
  ambi_device *dev;
  if (geteuid() == getuid()) return NO_RIGHTS; /* as on a file system that gives none */
  snprintf(root, sizeof root, "%s", where);
  use_folder(ALL);
  return ambi_device_open("cuda", &(ambi_device_options){.cache_dir = ""}, &dev) == AMBI_OK ? HEARD : HEARD_NOTHING;
}

static void test_rights(void) {
  enum { NOBODY = 65534 };
  char copy[120], command[500];
  int status = 0;
  snprintf(copy, sizeof copy, "%s/copy", root);
  snprintf(command, sizeof command, "cp /proc/%d/exe %s && chmod 4755 %s && chmod 755 %s", (int)getpid(), copy, copy,
           root);
  if (geteuid() != 0) return test_skip("rights", "only root can give them");
  if (!CHECK(system(command) == 0, "%s", command)) return;
  pid_t child = fork();
  if (child == 0) {
    if (setgid(NOBODY) == 0 && setuid(NOBODY) == 0) execl(copy, copy, root, (char *)NULL);
    _exit(127);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "the copy: status %d", status);
  if (WEXITSTATUS(status) == NO_RIGHTS) return test_skip("rights", "there is no set-user-ID here");
  CHECK(WEXITSTATUS(status) == HEARD_NOTHING, "what to load is heard from anyone: %d", WEXITSTATUS(status));
}

int main(int argc, char **argv) {
  char remove[100];
  if (argc > 1) _exit(open_with_rights(argv[1]));
  if (stand_ins_missing()) return 0;
  if (make_folders()) {
    test_sentences();
    test_packages();
    test_layer();
    test_info();
    test_versions();
    test_rights();
  }
  snprintf(remove, sizeof remove, "rm -r %s", root);
  return system(remove) ? 1 : test_done();
}
