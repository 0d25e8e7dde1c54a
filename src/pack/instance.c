/* instance.c -- an instance of a module: its linear memory, what it may use, and one call into it.
 *
 * What the memory is when the instance begins belongs to the module. The host grows it and puts there, each at a
 * multiple of 64 bytes: the descriptor, then the regions of a call. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pack/pack.h"

enum { DESCRIPTOR = 40, ALIGN = 64, HUGE_PAGE = 1 << 21 };
enum { APART = 17 * ALIGN }; /* between regions, which else often lie whole pages apart and contend for cache lines */

void instance_free(ambi_pack_host *h, instance *i) {
  if (!i) return;
  if (i->store) h->w.wasmtime_store_delete(i->store);
  free(i);
}

/* f(a, b) -> *code, or -1 where it did not return. */
static ambi_status call_function(const ambi_pack_kernel *k, instance *i, const wasmtime_extern *f, const char *name,
                                 int32_t a, int32_t b, int32_t *code) {
  const wasmtime_api *w = &k->pack->host->w;
  wasmtime_value v[2] = {{.i32 = a}, {.i32 = b}};
  wasm_trap *trap = NULL;
  char what[MOST_TEXT + 40];
  wasmtime_error *e = w->wasmtime_func_call_unchecked(i->context, f->of, v, 2, &trap);
  *code = e || trap ? -1 : v[0].i32;
  if (!e && !trap) return AMBI_OK;
  snprintf(what, sizeof what, "%s: %s", k->m->id, name);
  return wasmtime_failed(w, AMBI_DEVICE_LOST, what, e, trap);
}

static bool get_export(const wasmtime_api *w, instance *i, const wasmtime_instance *of, const char *name,
                       wasmtime_extern *out) {
  return w->wasmtime_instance_export_get(i->context, of, name, strlen(name), out);
}

static ambi_status start(ambi_pack_kernel *k, uint32_t ticks, instance *i) {
  ambi_pack_host *h = k->pack->host;
  const wasmtime_api *w = &h->w;
  wasmtime_instance in;
  wasmtime_extern init;
  wasm_trap *trap = NULL;
  int32_t code = 0;
  i->store = w->wasmtime_store_new(h->engine, NULL, NULL);
  if (!i->store) return fail(AMBI_NO_MEMORY, "%s: no memory for an instance", k->m->id);
  i->context = w->wasmtime_store_context(i->store);
  w->wasmtime_store_limiter(i->store, (int64_t)k->m->pages * WASM_PAGE, k->m->table, 1, 8, 1);
  ticker_limit(h, i->context, ticks);
  wasmtime_error *e = w->wasmtime_instance_new(i->context, k->code->module, NULL, 0, &in, &trap);
  if (e || trap) return wasmtime_failed(w, trap ? AMBI_DEVICE_LOST : AMBI_DENIED, k->m->id, e, trap);
  bool all = get_export(w, i, &in, "memory", &i->memory) && get_export(w, i, &in, k->m->entry, &i->forward) &&
             get_export(w, i, &in, "kernel_init", &init);
  if (k->code->has_backward) all = all && get_export(w, i, &in, "kernel_backward", &i->backward);
  if (!all) return fail(AMBI_DENIED, "%s: an export of the ABI is missing", k->m->id);
  TRY(call_function(k, i, &init, "kernel_init", 0, 0, &code));
  return code == 0 ? AMBI_OK : fail(AMBI_DENIED, "%s: kernel_init returned %d", k->m->id, code);
}

ambi_status instance_new(ambi_pack_kernel *k, uint32_t ticks, instance **out) {
  instance *i = calloc(1, sizeof *i);
  int64_t begin = ticks_now();
  *out = NULL;
  if (!i) return fail(AMBI_NO_MEMORY, "%s: no memory for an instance", k->m->id);
  i->kernel = k;
  ambi_status s = start(k, ticks, i);
  i->spent = (uint32_t)(ticks_now() - begin);
  if (s == AMBI_OK)
    *out = i;
  else
    instance_free(k->pack->host, i);
  return s;
}

/* ---- memory ---- */
static uint64_t aligned(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* Large buffers on large pages, where the system has them: it need not look up where every 4 KiB lie. Only advice. */
static void prefer_huge_pages(const wasmtime_api *w, const instance *i) {
#ifdef MADV_HUGEPAGE
  uint8_t *memory = w->wasmtime_memory_data(i->context, i->memory.of);
  uintptr_t first = ((uintptr_t)memory + i->base + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  uintptr_t end = ((uintptr_t)memory + i->base + i->room) / HUGE_PAGE * HUGE_PAGE;
  if (first < end) madvise(memory + (first - (uintptr_t)memory), end - first, MADV_HUGEPAGE);
#else
  (void)w, (void)i;
#endif
}

/* Pages behind the memory as it is, or more behind those the host has already. */
static ambi_status grow(ambi_pack_kernel *k, instance *i, uint64_t bytes) {
  const wasmtime_api *w = &k->pack->host->w;
  uint64_t size = w->wasmtime_memory_size(i->context, i->memory.of) * WASM_PAGE, before;
  bool last = i->room > 0 && i->base + i->room == size;
  uint64_t base = last ? i->base : size, pages = (bytes - (last ? i->room : 0) + WASM_PAGE - 1) / WASM_PAGE;
  if (base + bytes > UINT32_MAX) return fail(AMBI_NO_MEMORY, "%s: more than 4 GiB of buffers", k->m->id);
  wasmtime_error *e = w->wasmtime_memory_grow(i->context, i->memory.of, pages, &before);
  if (e) return wasmtime_failed(w, AMBI_NO_MEMORY, k->m->id, e, NULL);
  i->base = base;
  i->room = (size + pages * WASM_PAGE) - base;
  prefer_huge_pages(w, i);
  return AMBI_OK;
}

ambi_status instance_place(ambi_pack_kernel *k, instance *i, const size_t bytes[AMBI_PACK_REGIONS]) {
  uint64_t need = aligned(DESCRIPTOR), at[AMBI_PACK_REGIONS];
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) {
    if (bytes[r] > UINT32_MAX) return fail(AMBI_NO_MEMORY, "%s: more than 4 GiB of buffers", k->m->id);
    at[r] = need;
    need += aligned(bytes[r] + (r == AMBI_PACK_PARAMS ? 8 : 0)); /* where the weight is, if there is one */
    if (bytes[r]) need += APART;
  }
  if (need > i->room) TRY(grow(k, i, need));
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) {
    i->offset[r] = (uint32_t)(i->base + at[r]);
    i->bytes[r] = bytes[r];
  }
  return AMBI_OK;
}

void *instance_at(ambi_pack_host *h, const instance *i, int region) {
  return h->w.wasmtime_memory_data(i->context, i->memory.of) + i->offset[region];
}

/* ---- a call ---- */
static void put_word(uint8_t *at, size_t word, uint64_t v) {
  for (int b = 0; b < 4; b++) at[4 * word + (size_t)b] = (uint8_t)(v >> 8 * b);
}

/* The descriptor, and what the params say of the weight. */
static void describe(ambi_pack_host *h, instance *i, const ambi_pack_call *call) {
  static const int order[] = {AMBI_PACK_A, AMBI_PACK_B, AMBI_PACK_OUT, AMBI_PACK_SCRATCH, AMBI_PACK_PARAMS};
  uint8_t *memory = h->w.wasmtime_memory_data(i->context, i->memory.of), *d = memory + i->base;
  bool weighted = call->bytes[AMBI_PACK_WEIGHT] > 0;
  for (size_t r = 0; r < sizeof order / sizeof *order; r++) {
    put_word(d, 2 * r, i->offset[order[r]]);
    put_word(d, 2 * r + 1, call->bytes[order[r]] + (weighted && order[r] == AMBI_PACK_PARAMS ? 8 : 0));
  }
  if (!weighted) return;
  uint8_t *end = memory + i->offset[AMBI_PACK_PARAMS] + call->bytes[AMBI_PACK_PARAMS];
  put_word(end, 0, i->offset[AMBI_PACK_WEIGHT]);
  put_word(end, 1, call->bytes[AMBI_PACK_WEIGHT]);
}

static ambi_status returned(const ambi_pack_kernel *k, const ambi_pack_call *call) {
  static const struct {
    ambi_status status;
    const char *name;
  } codes[] = {{AMBI_OK, "ok"},
               {AMBI_INVALID, "invalid input"},
               {AMBI_INVALID, "invalid output"},
               {AMBI_INVALID, "invalid params"},
               {AMBI_NO_MEMORY, "out of memory"},
               {AMBI_UNSUPPORTED, "not implemented"},
               {AMBI_DEVICE_LOST, "internal error"}};
  if (call->code == 0) return AMBI_OK;
  bool known = call->code > 0 && (size_t)call->code < sizeof codes / sizeof *codes;
  return fail(known ? codes[call->code].status : AMBI_DEVICE_LOST, "%s: %s returned %d, %s", k->m->id,
              call->pass == AMBI_BACKWARD ? "kernel_backward" : k->m->entry, call->code,
              known ? codes[call->code].name : "which is none of the ABI's codes");
}

uint32_t ticks_of(const ambi_pack_kernel *k, const ambi_pack_call *call) {
  return call->ticks && call->ticks < k->m->ticks ? call->ticks : k->m->ticks;
}

ambi_status instance_call(ambi_pack_kernel *k, instance *i, ambi_pack_call *call, bool *alive) {
  bool back = call->pass == AMBI_BACKWARD;
  uint32_t ticks = ticks_of(k, call);
  *alive = true;
  call->code = 5;
  if (back && !k->code->has_backward) return returned(k, call);
  describe(k->pack->host, i, call);
  ticker_limit(k->pack->host, i->context, ticks > i->spent ? ticks - i->spent : 0);
  i->spent = 0;
  ambi_status s = call_function(k, i, back ? &i->backward : &i->forward, back ? "kernel_backward" : k->m->entry,
                                (int32_t)(uint32_t)i->base, 0, &call->code);
  *alive = s == AMBI_OK && call->code != 4; /* a refused growth ends it too */
  return s == AMBI_OK ? returned(k, call) : s;
}
