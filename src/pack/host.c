/* host.c -- a host: its engine, the ticker of deadlines, packs and which of them is active. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pack/pack.h"

enum { TICK_NS = 1000000, PATIENCE = 200 }; /* ticks without a call before the ticker sleeps */
enum { MOST_TICKS = 60000 };                /* where the host says nothing else */

/* ---- the ticker ---- */
int64_t ticks_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec) / TICK_NS;
}

/* Until a call begins or the host ends; false: it ended. A call that begins now either sees `asleep` or is seen. */
static bool sleep_until_called(ticker *t) {
  pthread_mutex_lock(&t->lock);
  atomic_store(&t->asleep, true);
  if (atomic_load(&t->calls) == 0)
    while (atomic_load(&t->asleep) && !t->stop) pthread_cond_wait(&t->wake, &t->lock);
  atomic_store(&t->asleep, false);
  bool go_on = !t->stop;
  pthread_mutex_unlock(&t->lock);
  return go_on;
}

/* As many epochs as milliseconds have passed, however late the thread is woken. */
static void *tick(void *context) {
  ambi_pack_host *h = context;
  const struct timespec pause = {0, TICK_NS};
  while (sleep_until_called(&h->ticker)) {
    for (int quiet = 0; quiet < PATIENCE; quiet++) {
      nanosleep(&pause, NULL);
      for (int64_t now = ticks_now(); atomic_load(&h->ticker.last) < now; atomic_fetch_add(&h->ticker.last, 1))
        h->w.wasmtime_engine_increment_epoch(h->engine);
      if (atomic_load(&h->ticker.calls)) quiet = 0;
    }
  }
  return NULL;
}

/* Whoever wakes the ticker says from when on it counts: the time it slept is no time of any call. */
void ticker_begin(ambi_pack_host *h) {
  ticker *t = &h->ticker;
  atomic_fetch_add(&t->calls, 1);
  if (!atomic_load(&t->asleep)) return;
  pthread_mutex_lock(&t->lock);
  if (atomic_load(&t->asleep)) {
    atomic_store(&t->last, ticks_now());
    atomic_store(&t->asleep, false);
    pthread_cond_signal(&t->wake);
  }
  pthread_mutex_unlock(&t->lock);
}

/* A ticker that is late will make up for it: those epochs are none of this call's. Again if it did just now. */
void ticker_limit(ambi_pack_host *h, wasmtime_context *c, uint32_t ticks) {
  int64_t end = ticks_now() + ticks, last;
  do {
    last = atomic_load(&h->ticker.last);
    h->w.wasmtime_context_set_epoch_deadline(c, end > last ? (uint64_t)(end - last) + 1 : 1);
  } while (atomic_load(&h->ticker.last) != last);
}

void ticker_end(ambi_pack_host *h) { atomic_fetch_sub(&h->ticker.calls, 1); }

static void ticker_stop(ticker *t) {
  if (!t->started) return;
  pthread_mutex_lock(&t->lock);
  t->stop = true;
  pthread_cond_signal(&t->wake);
  pthread_mutex_unlock(&t->lock);
  pthread_join(t->thread, NULL);
}

/* ---- hosts ---- */
static void *duplicate(const void *data, size_t bytes, bool *good) {
  void *copy = bytes ? malloc(bytes) : NULL;
  if (copy) memcpy(copy, data, bytes);
  if (bytes && !copy) *good = false;
  return copy;
}

static ambi_status copy_options(ambi_pack_host *h, const ambi_pack_options *o) {
  bool good = true;
  h->o = *o;
  h->o.trusted = duplicate(o->trusted, o->trusted_count * 32, &good);
  h->o.revoked = duplicate(o->revoked, o->revoked_count * 32, &good);
  ambi_pack_allowed *list = duplicate(o->allowed, o->allowed_count * sizeof *list, &good);
  h->o.allowed = list;
  for (size_t i = 0; i < o->allowed_count && list; i++) {
    list[i].id = duplicate(o->allowed[i].id, strlen(o->allowed[i].id) + 1, &good);
    list[i].hash = duplicate(o->allowed[i].hash, strlen(o->allowed[i].hash) + 1, &good);
  }
  h->o.state = o->state ? duplicate(o->state, strlen(o->state) + 1, &good) : NULL;
  return good ? AMBI_OK : fail(AMBI_NO_MEMORY, "no memory for a host of kernel packs");
}

static void free_options(ambi_pack_options *o) {
  for (size_t i = 0; i < o->allowed_count && o->allowed; i++) {
    free((void *)(uintptr_t)o->allowed[i].id);
    free((void *)(uintptr_t)o->allowed[i].hash);
  }
  free((void *)(uintptr_t)o->trusted);
  free((void *)(uintptr_t)o->revoked);
  free((void *)(uintptr_t)o->allowed);
  free((void *)(uintptr_t)o->state);
}

/* What no module of the ABI needs, and less code of the engine to trust. Older ones know not all of these. */
static void switch_off(const wasmtime_api *w, wasm_config *c) {
  static const char *const proposals[] = {"threads",           "memory64",
                                          "multi_memory",      "gc",
                                          "exceptions",        "function_references",
                                          "tail_call",         "stack_switching",
                                          "relaxed_simd",      "wide_arithmetic",
                                          "custom_page_sizes", "component_model"};
  char name[80];
  void (*set)(wasm_config *, bool);
  for (size_t i = 0; i < sizeof proposals / sizeof *proposals; i++) {
    snprintf(name, sizeof name, "wasmtime_config_wasm_%s_set", proposals[i]);
    *(void **)(void *)&set = dlsym(w->library, name);
    if (set) set(c, false);
  }
}

static ambi_status start_engine(ambi_pack_host *h) {
  const wasmtime_api *w = &h->w;
  wasm_config *c = w->wasm_config_new();
  if (!c) return fail(AMBI_NO_MEMORY, "no memory for a host of kernel packs");
  w->wasmtime_config_epoch_interruption_set(c, true);
  w->wasmtime_config_max_wasm_stack_set(c, STACK_BYTES);
  switch_off(w, c);
  w->wasmtime_config_parallel_compilation_set(c, false); /* no threads but the ticker */
  h->engine = w->wasm_engine_new_with_config(c);
  if (!h->engine) return fail(AMBI_NO_MEMORY, "no memory for a host of kernel packs");
  atomic_store(&h->ticker.last, ticks_now());
  h->ticker.started = pthread_create(&h->ticker.thread, NULL, tick, h) == 0;
  return h->ticker.started ? AMBI_OK : fail(AMBI_NO_MEMORY, "the ticker of deadlines could not be started");
}

static ambi_status check_options(const ambi_pack_options *o) {
  const char *missing = o->trusted_count && !o->trusted   ? "trusted"
                        : o->revoked_count && !o->revoked ? "revoked"
                        : o->allowed_count && !o->allowed ? "allowed"
                                                          : NULL;
  if (missing) return fail(AMBI_INVALID, "ambi_pack_host_create: %s is NULL, and its count is not 0", missing);
  for (size_t i = 0; i < o->allowed_count; i++)
    if (!o->allowed[i].id || !o->allowed[i].hash)
      return fail(AMBI_INVALID, "ambi_pack_host_create: allowed[%zu] has no %s", i, o->allowed[i].id ? "hash" : "id");
  if (o->insecure_accept_unsigned_packs_for_development && !o->report)
    return fail(AMBI_INVALID, "insecure_accept_unsigned_packs_for_development: needs a report function");
  return AMBI_OK;
}

ambi_status ambi_pack_host_create(const ambi_pack_options *o, ambi_pack_host **out) {
  if (out) *out = NULL;
  if (!o || !out) return fail(AMBI_INVALID, "ambi_pack_host_create: %s is NULL", o ? "out" : "o");
  TRY(check_options(o));
  ambi_pack_host *h = calloc(1, sizeof *h);
  if (!h) return fail(AMBI_NO_MEMORY, "no memory for a host of kernel packs");
  pthread_mutex_init(&h->lock, NULL);
  pthread_mutex_init(&h->ticker.lock, NULL);
  pthread_cond_init(&h->ticker.wake, NULL);
  ambi_status s = copy_options(h, o);
  if (s == AMBI_OK) s = sodium_load(&h->sodium);
  if (s == AMBI_OK && !o->verify_only) s = wasmtime_load(&h->w);
  if (s == AMBI_OK) s = trust_load_names(h);
  if (s == AMBI_OK && !o->verify_only) s = start_engine(h);
  if (s == AMBI_OK)
    *out = h;
  else
    ambi_pack_host_destroy(h);
  return s;
}

void ambi_pack_host_destroy(ambi_pack_host *h) {
  if (!h) return;
  if (h->active) pack_release(h->active);
  if (h->previous) pack_release(h->previous);
  ticker_stop(&h->ticker);
  code_free_all(h);
  if (h->engine) h->w.wasm_engine_delete(h->engine);
  pthread_cond_destroy(&h->ticker.wake);
  pthread_mutex_destroy(&h->ticker.lock);
  pthread_mutex_destroy(&h->lock);
  free_options(&h->o);
  free(h->names);
  free(h);
}

/* ---- packs ---- */
static void pack_free(ambi_pack *p) {
  for (int i = 0; i < p->m.count; i++) {
    kernel_unload(&p->kernels[i]);
    pthread_mutex_destroy(&p->kernels[i].lock);
    free(p->bytes[i]);
  }
  manifest_free(&p->m);
  free(p->text);
  free(p);
}

void pack_release(ambi_pack *p) {
  if (atomic_fetch_sub(&p->users, 1) == 1) pack_free(p);
}

/* The smaller of what the manifest asks for and the host allows. */
static void hold(const ambi_pack_options *o, manifest_kernel *k) {
  uint32_t ticks = o->most_ticks ? o->most_ticks : MOST_TICKS;
  if (k->ticks > ticks) k->ticks = ticks;
  if (o->most_pages && k->pages > o->most_pages) k->pages = o->most_pages;
}

ambi_status ambi_pack_open(ambi_pack_host *h, const char *folder, ambi_pack **out) {
  if (out) *out = NULL;
  if (!h || !folder || !out)
    return fail(AMBI_INVALID, "ambi_pack_open: %s is NULL", !h ? "host" : !folder ? "folder" : "out");
  ambi_pack *p = calloc(1, sizeof *p);
  if (!p) return fail(AMBI_NO_MEMORY, "no memory for a pack");
  p->host = h;
  atomic_init(&p->users, 1);
  ambi_status s = trust_verify(h, folder, p);
  for (int i = 0; i < p->m.count; i++) {
    p->kernels[i].pack = p;
    p->kernels[i].m = &p->m.kernels[i];
    hold(&h->o, &p->m.kernels[i]);
    pthread_mutex_init(&p->kernels[i].lock, NULL);
  }
  if (s == AMBI_OK)
    *out = p;
  else
    pack_free(p);
  return s;
}

void ambi_pack_close(ambi_pack *p) {
  if (p) pack_release(p);
}

ambi_status ambi_pack_get_info(const ambi_pack *p, ambi_pack_info *info) {
  if (!p || !info) return fail(AMBI_INVALID, "ambi_pack_get_info: %s is NULL", p ? "info" : "pack");
  *info = (ambi_pack_info){p->m.name, p->m.version_text, p->m.description, p->m.count, p->text, p->text_bytes};
  return AMBI_OK;
}

ambi_status ambi_pack_get_kernel_info(const ambi_pack *p, int32_t index, ambi_pack_kernel_info *info) {
  if (!p || !info) return fail(AMBI_INVALID, "ambi_pack_get_kernel_info: %s is NULL", p ? "info" : "pack");
  if (index < 0 || index >= p->m.count) return fail(AMBI_INVALID, "the pack has %d kernels", p->m.count);
  const manifest_kernel *m = &p->m.kernels[index];
  *info = (ambi_pack_kernel_info){.id = m->id,
                                  .name = m->name,
                                  .category = m->category,
                                  .path = m->path,
                                  .bytes = p->sizes[index],
                                  .max_memory_pages = m->pages,
                                  .max_epoch_ticks = m->ticks,
                                  .max_table_elements = m->table,
                                  .self_tests = m->self_test ? (int32_t)m->self_test->length : 0};
  memcpy(info->hash, m->hash, 71);
  return AMBI_OK;
}

/* ---- kernels ---- */
static ambi_pack_kernel *kernel_named(ambi_pack *p, const char *id) {
  const manifest_kernel *m = manifest_find(&p->m, id);
  return m ? &p->kernels[m - p->m.kernels] : NULL;
}

/* A kernel that cannot be used is told of, even where another steps in for it. */
static ambi_status load_and_tell(ambi_pack_kernel *k) {
  char why[MOST_SENTENCE];
  ambi_status s = kernel_load(k);
  if (s == AMBI_OK) return s;
  snprintf(why, sizeof why, "%s", ambi_error());
  trust_tell(k->pack->host, "kernel", false, why);
  return fail(s, "%s", why);
}

/* The kernel, or the one it falls back to, or that one's: each at most once, so that a ring of them ends. */
ambi_status ambi_pack_kernel_open(ambi_pack *p, const char *id, ambi_pack_kernel **out) {
  if (out) *out = NULL;
  if (!p || !id || !out)
    return fail(AMBI_INVALID, "ambi_pack_kernel_open: %s is NULL", !p ? "pack" : !id ? "id" : "out");
  ambi_status s = fail(AMBI_INVALID, "the pack %s has no kernel %.64s", p->m.name, id);
  bool tried[MOST_KERNELS] = {false};
  for (; id; id = json_text(json_get(p->m.fallbacks, id))) {
    ambi_pack_kernel *k = kernel_named(p, id);
    if (k && tried[k - p->kernels]) break;
    if (k) tried[k - p->kernels] = true, s = load_and_tell(k);
    if (k && s == AMBI_OK) {
      atomic_fetch_add(&p->users, 1);
      *out = k;
      return AMBI_OK;
    }
  }
  return s;
}

const char *ambi_pack_kernel_id(const ambi_pack_kernel *k) { return k ? k->m->id : ""; }

void ambi_pack_kernel_close(ambi_pack_kernel *k) {
  if (k) pack_release(k->pack);
}

/* ---- the active pack ---- */
ambi_status ambi_pack_swap(ambi_pack_host *h, ambi_pack *p) {
  if (!h || !p) return fail(AMBI_INVALID, "ambi_pack_swap: %s is NULL", h ? "pack" : "host");
  if (p->host != h) return fail(AMBI_INVALID, "ambi_pack_swap: the pack was opened by another host");
  ambi_pack_kernel *used[MOST_KERNELS] = {NULL};
  for (int i = 0; i < p->m.count; i++) { /* each, or what steps in for it */
    TRY(ambi_pack_kernel_open(p, p->m.kernels[i].id, &used[i]));
    ambi_pack_kernel_close(used[i]);
  }
  ambi_pack *old = NULL;
  char why[MOST_SENTENCE] = "";
  pthread_mutex_lock(&h->lock);
  ambi_status s = trust_activate(h, &p->m, why);
  if (s == AMBI_OK) {
    old = h->previous;
    h->previous = h->active;
    h->active = p;
    memcpy(p->used, used, sizeof used);
    atomic_fetch_add(&p->users, 1);
  }
  pthread_mutex_unlock(&h->lock);
  if (old) pack_release(old);
  return *why ? trust_tell(h, "downgrade", false, why) : s;
}

ambi_status ambi_pack_rollback(ambi_pack_host *h) {
  if (!h) return fail(AMBI_INVALID, "ambi_pack_rollback: host is NULL");
  pthread_mutex_lock(&h->lock);
  ambi_pack *old = h->previous ? h->active : NULL;
  if (old) {
    h->active = h->previous;
    h->previous = NULL;
  }
  pthread_mutex_unlock(&h->lock);
  if (!old) return fail(AMBI_INVALID, "there is no pack to roll back to");
  pack_release(old);
  return AMBI_OK;
}

/* As the swap has decided: a kernel that failed its self-test then is not tried again by every call. */
static ambi_pack_kernel *kernel_in_use(ambi_pack *p, const char *id) {
  ambi_pack_kernel *k = kernel_named(p, id);
  const char *instead = k ? NULL : json_text(json_get(p->m.fallbacks, id));
  if (instead) k = kernel_named(p, instead);
  return k ? p->used[k - p->kernels] : NULL;
}

ambi_status ambi_pack_active(ambi_pack_host *h, const char *id, ambi_pack_kernel **out) {
  if (out) *out = NULL;
  if (!h || !id || !out) return fail(AMBI_INVALID, "ambi_pack_active: %s is NULL", !h ? "host" : !id ? "id" : "out");
  pthread_mutex_lock(&h->lock);
  ambi_pack *p = h->active;
  if (p) atomic_fetch_add(&p->users, 1); /* the kernel's */
  ambi_pack_kernel *k = p ? kernel_in_use(p, id) : NULL;
  pthread_mutex_unlock(&h->lock);
  if (!p) return fail(AMBI_INVALID, "no pack is active");
  *out = k;
  if (k) return AMBI_OK;
  ambi_status s = fail(AMBI_INVALID, "the pack %s has no kernel %.64s", p->m.name, id);
  pack_release(p);
  return s;
}

ambi_status ambi_pack_run_active(ambi_pack_host *h, const char *id, ambi_pack_call *call) {
  ambi_pack_kernel *k;
  TRY(ambi_pack_active(h, id, &k));
  ambi_status s = ambi_pack_run(k, call);
  ambi_pack_kernel_close(k);
  return s;
}
