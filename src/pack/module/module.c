/* module.c -- the exports of a module: every region and size is checked in 64 bits before memory is touched.
 *
 * The linear memory up to __heap_base is the module's own (data and stack), as are the pages it grows for a workspace.
 * All other pages are the host's: it grows the memory and puts its regions there. */
#include "pack/module/module.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

enum { PAGE = 65536 };

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name), used)) int32_t name
extern char __heap_base;

static uint64_t memory_bytes(void) { return (uint64_t)__builtin_wasm_memory_size(0) * PAGE; }
static bool memory_grow(uint64_t pages) {
  return pages <= PAGE && __builtin_wasm_memory_grow(0, (size_t)pages) != SIZE_MAX;
}
static uint64_t own_bytes(void) { return (uintptr_t)&__heap_base; }
char *address(uint32_t offset) { return (char *)(uintptr_t)offset; }

/* ---- the library's core, with nobody to tell about failures ---- */
ambi_status fail(ambi_status s, const char *format, ...) {
  (void)format;
  return s;
}
ambi_status fail_slot(ambi_status s, const problem *p, int slot, const char *format, ...) {
  (void)p, (void)slot, (void)format;
  return s;
}
int snprintf(char *s, size_t n, const char *format, ...) {
  (void)format;
  if (n) *s = 0;
  return 0;
}
const op_def *find_op(ambi_kind kind) { return kind == module.kind ? module.op : NULL; }
void pool_run(pool *p, int64_t tasks, task_fn *fn, void *context) {
  (void)p;
  for (int64_t i = 0; i < tasks; i++) fn(context, i);
}
int pool_threads(const pool *p) {
  (void)p;
  return 1;
}
static pool *threads(void) { return NULL; }
#else /* tests/fuzz_pack.c: a memory of its own, and the whole library */
#define EXPORT(name) int32_t name
#include "pack/module/native.h"
char *address(uint32_t offset) { return native_memory + offset; }
#endif

/* ---- the workspace: grown once for the largest call so far ---- */
static uint64_t workspace_at, workspace_size;

static bool reserve(uint64_t bytes) {
  if (bytes <= workspace_size) return true;
  uint64_t end = memory_bytes(), pages = (bytes + PAGE - 1) / PAGE;
  bool last = workspace_at + workspace_size == end && workspace_size > 0;
  if (last) pages -= workspace_size / PAGE; /* nothing lies behind it: it can be extended */
  if (!memory_grow(pages)) return false;
  if (!last) workspace_at = end;
  workspace_size = memory_bytes() - workspace_at;
  return true;
}

/* ---- checks ---- */
static bool meets(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
  return a < b + b_size && b < a + a_size && a_size > 0 && b_size > 0;
}

/* The host's, all of it */
static bool is_hosts(uint64_t offset, uint64_t size) {
  if (offset + size > memory_bytes() || offset < own_bytes()) return false;
  return !meets(offset, size, workspace_at, workspace_size);
}

bool in_memory(region r) { return r.size == 0 || (r.offset % 4 == 0 && is_hosts(r.offset, r.size)); }

static int check_regions(const descriptor *d) {
  if (!in_memory(d->a) || !in_memory(d->b)) return BAD_INPUT;
  if (!in_memory(d->out) || !in_memory(d->scratch)) return BAD_OUTPUT;
  return DONE;
}

int count_rows(const call *c, uint32_t num_elements, uint32_t hidden, uint32_t *rows) {
  if (hidden == 0) return BAD_PARAMS;
  *rows = num_elements;
  if (holds(c->d.a, (uint64_t)num_elements * hidden)) return DONE;
  *rows = num_elements / hidden;
  return num_elements % hidden == 0 && holds(c->d.a, num_elements) ? DONE : BAD_INPUT;
}

/* An output may lie exactly over an input where the op runs in place there, and over nothing else. */
static bool in_place(const problem *p, int output, int other) {
  for (const int8_t(*pair)[2] = p->def->info.in_place; (*pair)[0] >= 0; pair++)
    if ((*pair)[0] == output && (*pair)[1] == other) return true;
  return false;
}

static int check_overlaps(const call *c, const problem *p) {
  for (uint32_t w = p->writes; w; w &= w - 1) {
    int out = __builtin_ctz(w);
    region o = c->at[out];
    for (uint32_t m = (p->reads | p->writes) & ~AMBI_BIT(out); m; m &= m - 1) {
      int s = __builtin_ctz(m);
      region r = c->at[s];
      bool same = o.offset == r.offset && o.size == r.size && in_place(p, out, s);
      if (!same && meets(o.offset, o.size, r.offset, r.size)) return BAD_OUTPUT;
    }
  }
  return DONE;
}

/* ---- a call ---- */
enum { ASKED_BYTES = offsetof(call, op) }; /* of a call, what its descriptor and params say: words alone */
static const cpu_features no_features;

static struct {
  word params[MOST_PARAMS_WORDS];
  uint32_t words;
} initial; /* what kernel_init was given */

static int take_params(call *c, uint64_t offset, uint64_t size) {
  if (!is_hosts(offset, size)) return BAD_PARAMS;
  if (size != 4 * module.sizes[0] && size != 4 * module.sizes[1]) return BAD_PARAMS;
  memcpy(c->params, address((uint32_t)offset), (size_t)size);
  c->words = (uint32_t)size / 4;
  return DONE;
}

static int take_descriptor(call *c, uint32_t at) {
  if (!is_hosts(at, sizeof c->d)) return BAD_INPUT;
  memcpy(&c->d, address(at), sizeof c->d);
  CHECK(check_regions(&c->d));
  if (c->d.params.size) return take_params(c, c->d.params.offset, c->d.params.size);
  if (initial.words == 0) return BAD_PARAMS;
  memcpy(c->params, initial.params, sizeof c->params);
  c->words = initial.words;
  return DONE;
}

/* What was asked for last in a pass, and what became of it. */
typedef struct {
  call c;
  problem p;
  cpu_call k;
  bool ready;
} planned;

static int make_plan(planned *l, const call *asked, ambi_pass pass) {
  call *c = &l->c;
  problem *p = &l->p;
  l->ready = false;
  memset(c, 0, sizeof *c);
  memcpy(c, asked, ASKED_BYTES);
  c->op.kind = module.kind;
  c->op.pass = pass;
  CHECK(module.plan(c));
  if (make_problem(&c->op, p) != AMBI_OK) return BAD_PARAMS;
  if (module.adjust) module.adjust(c, p);
  CHECK(check_overlaps(c, p));
  if (module.kernel->workspace && !reserve(module.kernel->workspace(p, &no_features))) return NO_ROOM;
  l->k = (cpu_call){.p = p, .features = &no_features, .threads = threads()};
  for (int s = 0; s < AMBI_SLOTS; s++) l->k.at[s] = address(c->at[s].offset);
  l->ready = true;
  return DONE;
}

/* By words: memcmp goes byte by byte. */
static bool asks_the_same(const call *a, const call *b) {
  const uint32_t *x = (const uint32_t *)a, *y = (const uint32_t *)b;
  uint32_t differ = 0;
  for (size_t i = 0; i < ASKED_BYTES / sizeof *x; i++) differ |= x[i] ^ y[i];
  return !differ;
}

/* A call that asks for the same as the one before is planned already: memory never shrinks, and the workspace grows
 * into new pages alone, so what was the host's then still is. */
static int run(uint32_t descriptor_at, ambi_pass pass) {
  static call asked;
  static planned last[2];
  planned *l = &last[pass];
  memset(&asked, 0, ASKED_BYTES);
  CHECK(take_descriptor(&asked, descriptor_at));
  if (!l->ready || !asks_the_same(&asked, &l->c)) CHECK(make_plan(l, &asked, pass));
  l->k.workspace = address((uint32_t)workspace_at);
  (pass == AMBI_BACKWARD ? module.kernel->backward : module.kernel->forward)(&l->k);
  if (pass == AMBI_FORWARD && module.finish) module.finish(&l->c);
  return DONE;
}

EXPORT(kernel_forward)(uint32_t descriptor_at) { return run(descriptor_at, AMBI_FORWARD); }
EXPORT(kernel_backward)(uint32_t descriptor_at) { return run(descriptor_at, AMBI_BACKWARD); }

EXPORT(kernel_init)(uint32_t params_at, uint32_t params_size) {
  static call c;
  if (params_size == 0) return DONE; /* every call brings its own */
  memset(&c, 0, sizeof c);           /* no words of longer params before */
  CHECK(take_params(&c, params_at, params_size));
  memcpy(initial.params, c.params, sizeof initial.params);
  initial.words = c.words;
  return DONE;
}

EXPORT(kernel_info)(uint32_t info_at) {
  information i = {.name = (uint32_t)(uintptr_t)module.name, .name_length = (uint32_t)strlen(module.name)};
  if (!is_hosts(info_at, sizeof i)) return BAD_OUTPUT;
  i.major = AMBI_VERSION / 10000, i.minor = AMBI_VERSION / 100 % 100, i.patch = AMBI_VERSION % 100;
  i.supports_backward = module.kernel->backward != NULL;
  memcpy(address(info_at), &i, sizeof i);
  return DONE;
}

EXPORT(kernel_cleanup)(void) {
  initial.words = 0;
  return DONE;
}
