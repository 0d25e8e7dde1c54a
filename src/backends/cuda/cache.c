/* cache.c -- compiled modules: in memory while the device is open, on disk (disk.c) across runs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

typedef struct entry {
  struct entry *next;
  unsigned char key[32];
  bool ready; /* else a thread is making it, and others wait */
  cuda_module module;
} entry;

enum { BUCKETS = 256 };
struct module_cache {
  pthread_mutex_t lock;
  pthread_cond_t settled; /* some entry is ready, or given up */
  entry *bucket[BUCKETS];
};

/* ---- memory ---- */
static void free_entry(entry *e) {
  free(e->module.source);
  free(e);
}

module_cache *modules_new(void) {
  module_cache *c = calloc(1, sizeof *c);
  if (c) pthread_mutex_init(&c->lock, NULL), pthread_cond_init(&c->settled, NULL);
  return c;
}

void modules_lock(module_cache *c) { pthread_mutex_lock(&c->lock); }
void modules_unlock(module_cache *c) { pthread_mutex_unlock(&c->lock); }

void modules_free(cuda_device *d, bool inside) {
  module_cache *c = d->modules;
  if (!c) return;
  for (int i = 0; i < BUCKETS; i++)
    while (c->bucket[i]) {
      entry *e = c->bucket[i];
      c->bucket[i] = e->next;
      if (inside) d->api.cuModuleUnload(e->module.handle);
      free_entry(e);
    }
  if (cuda_is_ours(d)) { /* in a forked copy these would wait for threads that are not there */
    pthread_cond_destroy(&c->settled);
    pthread_mutex_destroy(&c->lock);
  }
  free(c);
  d->modules = NULL;
}

/* The caller holds the lock. */
static entry *find_held(const module_cache *c, const unsigned char key[32]) {
  entry *e = c->bucket[key[0]];
  while (e && memcmp(e->key, key, 32)) e = e->next;
  return e;
}

/* The entry of that text once it is ready; or, in `fresh`'s place, one that is the caller's to make ready or give up.
 * Where another thread gives up, the next of those that wait tries for itself: memory may be back by then. */
static entry *claim(module_cache *c, entry *fresh) {
  entry **bucket = &c->bucket[fresh->key[0]], *e;
  modules_lock(c);
  while ((e = find_held(c, fresh->key)) && !e->ready) pthread_cond_wait(&c->settled, &c->lock);
  if (!e) e = fresh, fresh->next = *bucket, *bucket = fresh;
  modules_unlock(c);
  return e;
}

/* Ends what claim began, and wakes those who wait for it. */
static void settle(module_cache *c, entry *e, bool made) {
  entry **at = &c->bucket[e->key[0]];
  modules_lock(c);
  e->ready = made;
  while (*at != e) at = &(*at)->next;
  if (!made) *at = e->next;
  pthread_cond_broadcast(&c->settled);
  modules_unlock(c);
  if (!made) free_entry(e);
}

static void make_key(const cuda_device *d, const sha256 *source, int arch, bool hopper, int version,
                     unsigned char key[32]) {
  char with[300];
  sha256 s = *source;
  compile_key(d, arch, hopper, version, with, sizeof with);
  sha256_add(&s, with, strlen(with) + 1);
  sha256_end(&s, key);
}

/* Code that was kept for another driver */
static bool is_stale(int error) { return error == 200 || error == 209 || error == 218 || error == 222; }

/* Whether something of this driver's is kept by that name; *error: what loading it gave */
static bool load_kept(const cuda_device *d, entry *e, const unsigned char *key, int *error) {
  image code;
  if (!disk_read(d->cache_dir, key, &code)) return false;
  *error = d->api.cuModuleLoadData(&e->module.handle, code.bytes);
  free(code.bytes);
  return !is_stale(*error);
}

/* Without a compiler, what any version of it has made will do: for this GPU, or PTX for an older one. */
static bool find_kept(const cuda_device *d, entry *e, const sha256 *source, bool hopper, int *error) {
  unsigned char key[32];
  if (d->api.handle[LIB_COMPILER]) return load_kept(d, e, e->key, error);
  for (int arch = d->arch; arch >= OLDEST_ARCH && (arch == d->arch || !hopper); arch--)
    for (int version = 14009; version >= 12000; version -= version % 1000 ? 1 : 991) { /* 14.9 to 14.0, 13.9 .. */
      make_key(d, source, arch, hopper, version, key);
      if (load_kept(d, e, key, error)) return true;
    }
  return false;
}

/* Machine code that the driver refuses is often that of a compiler newer than the driver. */
static ambi_status refused(const cuda_device *d, int error) {
  char what[120] = "loading a kernel";
  int driver = 0, compiler = compiler_version(d);
  if (!d->api.cuDriverGetVersion(&driver) && compiler / 1000 > driver / 1000)
    snprintf(what, sizeof what, "loading a kernel (NVRTC %d.%d is newer than the driver, which is of CUDA %d.%d)",
             compiler / 1000, compiler % 1000, driver / 1000, driver % 1000 / 10);
  return api_check(&d->api, error, what);
}

static ambi_status load(cuda_device *d, entry *e, const cuda_text *t) {
  image code;
  int error = 0;
  if (find_kept(d, e, &t->begun, t->hopper, &error)) return error ? refused(d, error) : AMBI_OK;
  if (d->notify && d->api.handle[LIB_COMPILER])
    d->notify(d->notify_context, d->keeps ? "compiling kernels for this GPU; they are kept for the next time"
                                          : "compiling kernels for this GPU");
  TRY(compile_text(d, e->module.source, t->hopper, &code));
  error = d->api.cuModuleLoadData(&e->module.handle, code.bytes);
  if (error == 0) disk_write(d->cache_dir, e->key, &code);
  free(code.bytes);
  return error ? refused(d, error) : AMBI_OK;
}

/* The text has a module: its own source is freed, if that is another. */
static void give(cuda_text *t, const cuda_module *m) {
  if (t->source != m->source) free(t->source);
  t->module = m;
  t->source = m->source;
}

bool module_find(cuda_device *d, cuda_text *t) {
  sha256_begin(&t->begun);
  sha256_add(&t->begun, t->source, strlen(t->source));
  make_key(d, &t->begun, compile_target(d), t->hopper, compiler_version(d), t->key);
  modules_lock(d->modules);
  const entry *e = find_held(d->modules, t->key);
  const bool found = e && e->ready;
  modules_unlock(d->modules);
  if (found) give(t, &e->module);
  return found;
}

ambi_status module_get(cuda_device *d, cuda_text *t) {
  entry *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return fail(AMBI_NO_MEMORY, "cuda: no memory for a kernel");
  memcpy(fresh->key, t->key, sizeof fresh->key);
  entry *e = claim(d->modules, fresh);
  if (e != fresh) return free(fresh), give(t, &e->module), AMBI_OK;
  e->module.source = t->source; /* its own from here on */
  t->source = NULL;
  const ambi_status s = load(d, e, t); /* without the lock: other texts are compiled meanwhile */
  if (s == AMBI_OK) give(t, &e->module);
  settle(d->modules, e, s == AMBI_OK);
  return s;
}
