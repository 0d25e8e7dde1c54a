/* api.c -- finding libcuda, libnvrtc and libcublasLt: in $AMBI_CUDA_LIBRARIES, where the system looks, in $CUDA_HOME,
 * and in the packages that pip installs beside PyTorch. */
#include "backends/cuda/api.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/environment.h"

/* A virtual environment that is not active is not found: $VIRTUAL_ENV names one. */
#define PIP_SEEN "in an active virtual environment or for the user"

enum { MAX_NAMES = 3, ANY_MAJOR = 0 };
static const struct {
  struct {
    const char *name;
    int major;               /* of CUDA */
  } names[MAX_NAMES];        /* newest first */
  const char *missing, *how; /* what is missing without it; how to get it */
} libraries[CUDA_LIBS] = {
    [LIB_DRIVER] = {{{"libcuda.so.1", 1}, {"libcuda.so", ANY_MAJOR}},
                    "no NVIDIA driver (libcuda.so.1)",
                    "install the driver of the GPU, 525 (CUDA 12.0) or newer"},
    [LIB_COMPILER] = {{{"libnvrtc.so.13", 13}, {"libnvrtc.so.12", 12}, {"libnvrtc.so", ANY_MAJOR}},
                      "no NVRTC (libnvrtc.so.13 or .12), which compiles the kernels",
                      "`pip install nvidia-cuda-nvrtc` (nvidia-cuda-nvrtc-cu12 for a driver of CUDA 12) " PIP_SEEN
                      ", or set CUDA_HOME to a CUDA toolkit"},
    [LIB_BLAS] = {{{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12}, {"libcublasLt.so", ANY_MAJOR}},
                  "no cuBLASLt (libcublasLt.so.13 or .12): linear uses ambi's own kernel",
                  "`pip install nvidia-cublas` (nvidia-cublas-cu12 for a driver of CUDA 12) " PIP_SEEN
                  ", or set CUDA_HOME to a CUDA toolkit"},
};

/* Folders that are looked through in order: an environment variable, and a pattern below it. */
static const struct {
  const char *variable, *below;
} places[] = {
    {"AMBI_CUDA_LIBRARIES", "/"},
    {NULL, ""}, /* the system's own search */
    {"CUDA_HOME", "/lib64/"},
    {"CUDA_HOME", "/lib/"},
    {"CUDA_PATH", "/lib64/"},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib/"},
    {"CONDA_PREFIX", "/lib/"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib/"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib/"},
    {"", "/usr/local/cuda/lib64/"},
    {"", "/usr/local/cuda/lib/"},
    {"", "/usr/lib/python3/dist-packages/nvidia/*/lib/"},
    {"", "/usr/lib*/python3*/site-packages/nvidia/*/lib/"},
    {"", "/usr/local/lib/python3*/*-packages/nvidia/*/lib/"},
    {"", "/usr/lib/wsl/lib/"},
};
enum { PLACES = sizeof places / sizeof *places };

/* To stay: what they start and allocate for themselves does not all end with dlclose, and opening a device again is
 * quick. */
enum { HOW = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

/* The first that loads. What is there and does not load is worth knowing, if nothing else is found. */
static void *open_pattern(const char *pattern, char *found, size_t n) {
  glob_t g;
  void *handle = NULL;
  if (glob(pattern, 0, NULL, &g)) return NULL;
  for (size_t i = 0; i < g.gl_pathc && !handle; i++) {
    handle = dlopen(g.gl_pathv[i], HOW);
    const char *why = handle ? NULL : dlerror();
    snprintf(found, n, "%s%.300s", handle ? "" : "it is there but does not load: ", why ? why : g.gl_pathv[i]);
  }
  globfree(&g);
  return handle;
}

/* A folder's name with nothing in it that glob would take for a pattern; false: it has no room. */
static bool plain_name(const char *name, char *out, size_t n) {
  size_t used = 0;
  for (; *name && used + 2 < n; name++) {
    if (strchr("*?[\\", *name)) out[used++] = '\\';
    out[used++] = *name;
  }
  out[used] = 0;
  return !*name;
}

static void *open_in(size_t place, const char *name, char *found, size_t n) {
  const char *variable = places[place].variable, *value;
  char folder[800], pattern[1024];
  if (!variable) {
    void *handle = dlopen(name, HOW);
    if (handle) snprintf(found, n, "%s", name);
    return handle;
  }
  value = *variable ? environment(variable) : "";
  if (!value || (*variable && !*value) || !plain_name(value, folder, sizeof folder)) return NULL;
  snprintf(pattern, sizeof pattern, "%s%s%s", folder, places[place].below, name);
  return open_pattern(pattern, found, n);
}

/* First the folder that was named, then everywhere; in each first for what is no newer than the driver, as a newer
 * compiler may make code that it does not load, then for anything. */
enum { SWEEPS = 4 };
static bool wanted(int sweep, size_t place, int major, int driver) {
  const bool fits = major != ANY_MAJOR && major <= driver;
  return (place == 0) == (sweep < 2) && (fits || sweep % 2);
}

static void open_library(cuda_api *api, cuda_lib lib, int driver) {
  char *found = api->found[lib];
  for (int sweep = 0; sweep < SWEEPS; sweep++)
    for (size_t place = 0; place < PLACES; place++)
      for (int i = 0; i < MAX_NAMES && libraries[lib].names[i].name; i++) {
        if (!wanted(sweep, place, libraries[lib].names[i].major, driver)) continue;
        api->handle[lib] = open_in(place, libraries[lib].names[i].name, found, sizeof api->found[lib]);
        if (api->handle[lib]) return;
      }
  if (!*found) snprintf(found, sizeof api->found[lib], "%s; %s", libraries[lib].missing, libraries[lib].how);
}

/* The newest version of CUDA that the driver knows of. */
static int driver_major(const cuda_api *api) {
  int (*get)(int *) = NULL, version = 0;
  if (api->handle[LIB_DRIVER]) *(void **)&get = dlsym(api->handle[LIB_DRIVER], "cuDriverGetVersion");
  return get && get(&version) == 0 ? version / 1000 : 1;
}

/* The function, or NULL and a note that the library is of no use. */
static void *symbol(cuda_api *api, cuda_lib lib, const char *name) {
  if (!api->handle[lib]) return NULL;
  void *f = dlsym(api->handle[lib], name);
  if (f) return f;
  char where[160];
  snprintf(where, sizeof where, "%.150s", api->found[lib]);
  snprintf(api->found[lib], sizeof api->found[lib], "%s has no function %s: it is too old; %s", where, name,
           libraries[lib].how);
  dlclose(api->handle[lib]);
  api->handle[lib] = NULL;
  return NULL;
}

#define LOAD(lib, name)            *(void **)&api->name = symbol(api, lib, #name);
#define DRIVER(name, parameters)   LOAD(LIB_DRIVER, name)
#define COMPILER(name, parameters) LOAD(LIB_COMPILER, name)
#define BLAS(name, parameters)     LOAD(LIB_BLAS, name)
static void load_symbols(cuda_api *api) {
#include "backends/cuda/api.def"
}
#undef DRIVER
#undef COMPILER
#undef BLAS

/* Whoever names a folder that is not there would not know that another one's libraries were taken. */
static ambi_status check_named(void) {
  const char *named = environment("AMBI_CUDA_LIBRARIES");
  struct stat st;
  if (!named || !*named || (stat(named, &st) == 0 && S_ISDIR(st.st_mode))) return AMBI_OK;
  return fail(AMBI_NO_DEVICE, "cuda: AMBI_CUDA_LIBRARIES names %.200s, which is no folder", named);
}

ambi_status api_load(cuda_api *api) {
  memset(api, 0, sizeof *api);
  TRY(check_named());
  for (int lib = 0; lib < CUDA_LIBS; lib++) open_library(api, (cuda_lib)lib, driver_major(api));
  load_symbols(api);
  if (api->handle[LIB_DRIVER]) return AMBI_OK;
  const char *const seen[] = {"", "found, "};
  return fail(AMBI_NO_DEVICE, "cuda: %s. NVRTC: %s%s. cuBLASLt: %s%s", api->found[LIB_DRIVER],
              seen[api->handle[LIB_COMPILER] != NULL], api->found[LIB_COMPILER], seen[api->handle[LIB_BLAS] != NULL],
              api->found[LIB_BLAS]);
}

void api_unload(cuda_api *api) {
  for (int lib = 0; lib < CUDA_LIBS; lib++)
    if (api->handle[lib]) dlclose(api->handle[lib]);
  memset(api->handle, 0, sizeof api->handle);
}

/* ---- errors ---- */
static const struct {
  int error;
  ambi_status status;
} meanings[] = {
    {2, AMBI_NO_MEMORY},        /* out of memory                                           */
    {3, AMBI_NO_DEVICE},        /* not initialised: no GPU, or a driver that does not fit  */
    {34, AMBI_NO_DEVICE},       /* the toolkit's libcuda, which is for linking only       */
    {46, AMBI_NO_DEVICE},       /* busy: used exclusively by somebody                      */
    {100, AMBI_NO_DEVICE},      /* no device                                               */
    {101, AMBI_NO_DEVICE},      /* no such device                                          */
    {102, AMBI_NO_DEVICE},      /* one without a licence                                   */
    {304, AMBI_NO_DEVICE},      /* the operating system refuses                            */
    {802, AMBI_NO_DEVICE},      /* not ready yet: its fabric manager has not started        */
    {803, AMBI_NO_DEVICE},      /* driver and library do not fit                           */
    {804, AMBI_NO_DEVICE},      /* nor do they in compatibility mode                       */
    {805, AMBI_NO_DEVICE},      /* the multi-process server cannot be reached,             */
    {806, AMBI_NO_DEVICE},      /* fails,                                                  */
    {807, AMBI_NO_DEVICE},      /* is not ready,                                           */
    {808, AMBI_NO_DEVICE},      /* has as many clients as it takes,                        */
    {809, AMBI_NO_DEVICE},      /* or as many connections                                  */
    {200, AMBI_COMPILE_FAILED}, /* machine code that is none,                           */
    {209, AMBI_COMPILE_FAILED}, /* is for another GPU,                                  */
    {218, AMBI_COMPILE_FAILED}, /* or is PTX that is none,                              */
    {221, AMBI_COMPILE_FAILED}, /* which a driver without its compiler cannot translate, */
    {222, AMBI_COMPILE_FAILED}, /* or is of a compiler newer than the driver,           */
    {223, AMBI_COMPILE_FAILED}, /* or shall not be translated (CUDA_DISABLE_PTX_JIT)    */
    {801, AMBI_UNSUPPORTED},    /* the device or driver does not do that                   */
    {4, AMBI_DEVICE_LOST},      /* the driver is shutting down                             */
    {214, AMBI_DEVICE_LOST},    /* uncorrectable memory error                              */
    {220, AMBI_DEVICE_LOST},    /* uncorrectable error of a link                           */
    {226, AMBI_DEVICE_LOST},    /* the same, contained                                     */
    {700, AMBI_DEVICE_LOST},    /* illegal address: the context is gone                    */
    {701, AMBI_UNSUPPORTED},    /* out of registers or shared memory                       */
    {702, AMBI_TIMEOUT},        /* the display's watchdog                                  */
    {708, AMBI_DEVICE_LOST},    {709, AMBI_DEVICE_LOST}, {710, AMBI_DEVICE_LOST}, {714, AMBI_DEVICE_LOST},
    {715, AMBI_DEVICE_LOST},    {716, AMBI_DEVICE_LOST}, {717, AMBI_DEVICE_LOST}, {718, AMBI_DEVICE_LOST},
    {719, AMBI_DEVICE_LOST}, /* a launch failed: the context is gone                    */
    {721, AMBI_DEVICE_LOST}, /* tensor memory was not given back                        */
    {810, AMBI_DEVICE_LOST}, /* the multi-process server ended this client              */
    {911, AMBI_DEVICE_LOST}, /* an error of a device that is none of CUDA's             */
    {999, AMBI_DEVICE_LOST},
};

static const char *advice(ambi_status s) {
  if (s != AMBI_DEVICE_LOST && s != AMBI_TIMEOUT) return "";
  return "; the context is lost: close the device, and whatever else holds that context, and open it again";
}

static ambi_status say(const cuda_api *api, ambi_status status, int error, const char *what) {
  const char *text = NULL, *name = NULL;
  if (api->cuGetErrorString(error, &text) || !text) text = "unknown error";
  if (api->cuGetErrorName(error, &name) || !name) name = "";
  return fail(status, "cuda: %s: %s (%s%s%d)%s", what, text, name, *name ? ", " : "", error, advice(status));
}

static ambi_status meaning_of(int error) {
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
    if (meanings[i].error == error) return meanings[i].status;
  return AMBI_INVALID;
}

ambi_status api_check(const cuda_api *api, int error, const char *what) {
  return error ? say(api, meaning_of(error), error, what) : AMBI_OK;
}

ambi_status api_there(const cuda_api *api, int error, const char *what) {
  const ambi_status status = meaning_of(error) == AMBI_NO_MEMORY ? AMBI_NO_MEMORY : AMBI_NO_DEVICE;
  return error ? say(api, status, error, what) : AMBI_OK;
}
