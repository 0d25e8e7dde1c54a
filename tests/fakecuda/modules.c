/* modules.c -- modules are shared objects (what nvrtc.c calls a cubin); their kernels are found and launched here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "rules.h"

typedef struct module {
  object o;
  void *handle; /* NULL: of EMPTY_CODE */
  int file;     /* its image, for module_line, if it was compiled for races.c; or -1 */
} module;

/* ---- loading ---- */
/* The table of sections ends the file. */
static result image_size(const unsigned char *image, size_t *bytes) {
  Elf64_Ehdr head;
  if (!image) return INVALID_VALUE;
  if (memcmp(image, ELFMAG, SELFMAG) != 0 || image[EI_CLASS] != ELFCLASS64) return INVALID_IMAGE;
  memcpy(&head, image, sizeof head);
  if (head.e_machine == 190) return NO_BINARY; /* code for a real device */
  *bytes = head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
  return OK;
}

/* dlopen wants a name of its own for each; the file can go as soon as it is loaded. */
static void *load(const void *image, size_t bytes, int *image_file) {
  char path[256];
  const char *folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/fakecuda-XXXXXX", folder && *folder ? folder : "/tmp");
  const int file = mkstemp(path);
  if (file < 0) return NULL;
  const bool written = write(file, image, bytes) == (ssize_t)bytes;
  void *handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  const bool watched = handle && dlsym(handle, "emu_watched");
  *image_file = watched ? file : -1;
  if (!watched) close(file);
  if (written && !handle) fprintf(stderr, "fakecuda: %s\n", dlerror());
  unlink(path);
  return handle;
}

static result module_empty(void **out) {
  module *m = object_new(MODULE, sizeof *m);
  if (!m) return OUT_OF_MEMORY;
  m->handle = NULL, m->file = -1;
  *out = m;
  return OK;
}

static result module_load(void **out, const void *image) {
  if (out && image && memcmp(image, EMPTY_CODE, sizeof EMPTY_CODE - 1) == 0) return module_empty(out);
  size_t bytes;
  const result bad = image_size(image, &bytes);
  if (bad || !out) return bad ? bad : INVALID_VALUE;
  int file = -1;
  void *handle = load(image, bytes, &file);
  const emu_machine **emu = handle ? dlsym(handle, "emu") : NULL;
  module *m = emu ? object_new(MODULE, sizeof *m) : NULL;
  if (!m) {
    if (handle) dlclose(handle);
    if (file >= 0) close(file);
    return emu ? OUT_OF_MEMORY : INVALID_IMAGE;
  }
  *emu = &machine;
  m->handle = handle, m->file = file;
  *out = m;
  return OK;
}

EXPORT result cuModuleLoadData(void **m, const void *image) {
  ENTER(CONTEXT);
  return module_load(m, image);
}
EXPORT result cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *options, void **values) {
  ENTER(CONTEXT);
  (void)n, (void)options, (void)values;
  return module_load(m, image);
}

EXPORT result cuModuleUnload(void *handle) {
  ENTER(CLEANUP);
  module *m = object_of(MODULE, handle);
  if (!m) return INVALID_HANDLE;
  for (object *o = object_first(), *next; o; o = next) {
    next = o->next;
    if (o->kind == FUNCTION && ((function *)o)->module == m) object_end(o);
  }
  memory_forget(m);
  if (m->handle) dlclose(m->handle);
  if (m->file >= 0) close(m->file);
  object_end(m);
  return lost;
}

/* ---- what is in a module ---- */
/* Shared arrays are thread-local variables of the module (emulate.h): where this thread has them, and their bytes,
 * those of all its kernels together. */
typedef struct {
  ElfW(Addr) base;
  shared_memory memory;
} shared_place;
typedef struct {
  unsigned long module, offset;
} tls_index;
extern void *__tls_get_addr(tls_index *index); /* glibc's, that compiled code calls */

static int find_shared(struct dl_phdr_info *info, size_t size, void *found) {
  shared_place *p = found;
  (void)size;
  if (info->dlpi_addr != p->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_TLS) {
      p->memory.at = __tls_get_addr(&(tls_index){info->dlpi_tls_modid, 0});
      p->memory.bytes = info->dlpi_phdr[i].p_memsz;
    }
  return 1;
}

static ElfW(Addr) base_of(const module *m) {
  struct link_map *map = NULL;
  return dlinfo(m->handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_addr : 0;
}

static shared_memory shared_of(const module *m) {
  shared_place p = {.base = base_of(m)};
  if (p.base) dl_iterate_phdr(find_shared, &p);
  return p.memory;
}

/* "FILE:LINE", by addr2line from what -g1 left in the image */
void module_line(const void *pc, char *line, size_t size) {
  Dl_info info;
  char command[128];
  snprintf(line, size, "%p", pc);
  if (!dladdr(pc, &info)) return;
  for (object *o = object_first(); o; o = o->next) {
    const module *m = (const module *)o;
    if (o->kind != MODULE || m->file < 0 || base_of(m) != (ElfW(Addr))(uintptr_t)info.dli_fbase) continue;
    snprintf(command, sizeof command, "addr2line -s -e /proc/%d/fd/%d %#lx", (int)getpid(), m->file,
             (unsigned long)((const char *)pc - (const char *)info.dli_fbase - 1));
    FILE *said = popen(command, "r");
    if (said && fgets(line, (int)size, said)) line[strcspn(line, " \n")] = 0;
    if (said) pclose(said);
  }
}

static void *symbol(const module *m, const char *prefix, const char *name) {
  char text[256];
  if (snprintf(text, sizeof text, "%s%s", prefix, name) >= (int)sizeof text) return NULL;
  return dlsym(m->handle, text);
}

/* A kernel is one function, however often it is asked for: what is set for it is set for all. */
static function *known(const module *m, const void *call) {
  for (object *o = object_first(); o; o = o->next)
    if (o->kind == FUNCTION && ((function *)o)->module == m && memcmp(&((function *)o)->call, &call, sizeof call) == 0)
      return (function *)o;
  return NULL;
}

static result function_empty(module *m, void **out) {
  function *f = object_new(FUNCTION, sizeof *f);
  if (!f) return OUT_OF_MEMORY;
  f->module = m, f->bounds = MAX_THREADS, f->max_dynamic = SHARED_DEFAULT;
  *out = f;
  return OK;
}

EXPORT result cuModuleGetFunction(void **out, void *handle, const char *name) {
  ENTER(CONTEXT);
  module *m = object_of(MODULE, handle);
  if (!m) return INVALID_HANDLE;
  if (!out || !name) return INVALID_VALUE;
  if (!m->handle) return function_empty(m, out);
  void *call = symbol(m, "emu_call_", name);
  const unsigned long *size = symbol(m, "emu_size_", name);
  const int *bounds = symbol(m, "emu_bounds_", name);
  if (!call || !size || !bounds) return NOT_FOUND;
  function *f = known(m, call);
  if (f) return *out = f, OK;
  f = object_new(FUNCTION, sizeof *f);
  if (!f) return OUT_OF_MEMORY;
  f->module = m, f->size = *size, f->bounds = *bounds ? *bounds : MAX_THREADS;
  f->fixed_shared = (int)shared_of(m).bytes;
  f->max_dynamic = f->fixed_shared < SHARED_DEFAULT ? SHARED_DEFAULT - f->fixed_shared : 0;
  memcpy(&f->call, &call, sizeof call);
  *out = f;
  return OK;
}

EXPORT result cuModuleGetGlobal_v2(pointer *p, size_t *bytes, void *handle, const char *name) {
  ENTER(CONTEXT);
  module *m = object_of(MODULE, handle);
  if (!m) return INVALID_HANDLE;
  if (!name) return INVALID_VALUE;
  void *at = !m->handle ? NULL : symbol(m, "", name);
  Dl_info info;
  void *entry = NULL;
  if (!at || !dladdr1(at, &info, &entry, RTLD_DL_SYMENT) || !entry) return NOT_FOUND;
  const size_t size = ((const ElfW(Sym) *)entry)->st_size;
  memory_know(at, size, m);
  if (p) *p = (pointer)(uintptr_t)at;
  if (bytes) *bytes = size;
  return OK;
}

/* ---- functions ---- */
enum {
  ATTR_MAX_THREADS = 0,
  ATTR_SHARED = 1,
  ATTR_LOCAL = 3,
  ATTR_REGISTERS = 4,
  ATTR_MAX_DYNAMIC = 8,
  ATTR_CARVEOUT = 9
};

EXPORT result cuFuncSetAttribute(void *handle, int attribute, int value) {
  ENTER(CONTEXT);
  function *f = object_of(FUNCTION, handle);
  if (!f) return INVALID_HANDLE;
  if (attribute == ATTR_CARVEOUT) return value < -1 || value > 100 ? INVALID_VALUE : OK;
  if (attribute != ATTR_MAX_DYNAMIC || value < 0 || value > most_shared() - f->fixed_shared) return INVALID_VALUE;
  f->max_dynamic = value;
  return OK;
}

EXPORT result cuFuncGetAttribute(int *value, int attribute, void *handle) {
  ENTER(CONTEXT);
  const function *f = object_of(FUNCTION, handle);
  if (!f) return INVALID_HANDLE;
  if (!value) return INVALID_VALUE;
  switch (attribute) {
    case ATTR_MAX_THREADS:
      *value = f->bounds;
      return OK;
    case ATTR_SHARED:
      *value = f->fixed_shared;
      return OK;
    case ATTR_LOCAL:
      *value = 0;
      return OK;
    case ATTR_REGISTERS:
      *value = 32;
      return OK;
    case ATTR_MAX_DYNAMIC:
      *value = f->max_dynamic;
      return OK;
    default:
      return INVALID_VALUE;
  }
}

EXPORT result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *handle, int threads, size_t dynamic) {
  ENTER(CONTEXT);
  const function *f = object_of(FUNCTION, handle);
  if (!f) return INVALID_HANDLE;
  if (!blocks || threads <= 0) return INVALID_VALUE;
  const int warps = (threads + EMU_WARP - 1) / EMU_WARP;
  const size_t by_threads = (size_t)(2048 / (warps * EMU_WARP)), shared = dynamic + (size_t)f->fixed_shared + 1024;
  const size_t by_shared = (228u << 10) / shared;
  size_t n = by_threads < by_shared ? by_threads : by_shared;
  if (n > 32) n = 32;
  *blocks = threads > f->bounds || dynamic > (size_t)f->max_dynamic ? 0 : (int)n;
  return OK;
}

/* ---- launching ---- */
static bool shape_fits(const function *f, const launch_shape *s) {
  const emu_dim g = s->grid, b = s->block;
  if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z) return false;
  if (g.x > 0x7fffffff || g.y > 65535 || g.z > 65535 || b.x > 1024 || b.y > 1024 || b.z > 64) return false;
  return (uint64_t)b.x * b.y * b.z <= (uint64_t)f->bounds && s->dynamic <= (unsigned)f->max_dynamic;
}

result launch_run(const work *w) {
  if (!object_of(FUNCTION, w->function)) return INVALID_HANDLE; /* a graph may outlive its module */
  const module *m = w->function->module;
  if (!m->handle) return OK;
  if (flag_of("FAKECUDA_RACES") && m->file < 0) {
    fprintf(stderr, "fakecuda: this kernel was compiled without FAKECUDA_RACES\n");
    return lose(EMU_LAUNCH_FAILED);
  }
  result failed = machine_run(w->function->call, w->from, &w->shape, shared_of(m), m->file >= 0);
  if (!failed) failed = memory_check();
  if (failed) lose(failed);
  return flag_of("FAKECUDA_LATE") ? OK : failed;
}

static result launch(void *handle, launch_shape shape, void *stream, void **params, void **extra) {
  function *f = object_of(FUNCTION, handle);
  if (!f || f->o.context != current_context()) return INVALID_HANDLE;
  if (!shape_fits(f, &shape) || extra || !params || !params[0]) return INVALID_VALUE;
  return work_submit(stream,
                     &(work){.what = LAUNCH, .from = params[0], .bytes = f->size, .function = f, .shape = shape});
}

/* ---- boxes: of 16-bit elements, in rows of 128 bytes, as emulate.h copies them ---- */
/* The driver refuses what the hardware cannot copy, and goes on; here that is the end, as whoever asks should know. */
EXPORT result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const unsigned long long *shape,
                                     const unsigned long long *strides, const unsigned *box, const unsigned *steps,
                                     int interleave, int swizzle, int promotion, int fill) {
  enum { U16 = 1, SWIZZLE_128 = 3, PROMOTIONS = 4, MOST = 256, ROW = 64 };
  ENTER(INITIALIZED);
  if (!map || (uintptr_t)map % 64 || type != U16 || rank != 2 || interleave || swizzle != SWIZZLE_128 || fill)
    return lose(INVALID_VALUE);
  if ((unsigned)promotion >= PROMOTIONS || !at || (uintptr_t)at % 16 || strides[0] % 16 || strides[0] >> 40)
    return lose(INVALID_VALUE);
  for (int i = 0; i < 2; i++)
    if (!shape[i] || shape[i] > 1ull << 32 || !box[i] || box[i] > MOST || steps[i] != 1) return lose(INVALID_VALUE);
  if (box[0] > ROW) return lose(INVALID_VALUE);
  *(emu_map *)map = (emu_map){(uintptr_t)at, {shape[0], shape[1]}, strides[0], {box[0], box[1]}};
  return OK;
}

EXPORT result cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned dynamic, void *stream, void **params, void **extra) {
  ENTER(CONTEXT);
  return launch(f, (launch_shape){{gx, gy, gz}, {bx, by, bz}, dynamic}, stream, params, extra);
}
