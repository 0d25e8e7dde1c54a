/* code.c -- modules: compiled once a hash; one without the exports of the ABI is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"
#include "pack/scan.h"

/* ---- exports ---- */
/* (i32 .. i32) -> i32, with so many parameters */
static bool is_function(const wasmtime_api *w, const void *type, size_t params) {
  if (w->wasm_externtype_kind(type) != WASM_EXTERN_FUNC) return false;
  const void *f = w->wasm_externtype_as_functype_const(type);
  const wasm_vec *in = w->wasm_functype_params(f), *out = w->wasm_functype_results(f);
  if (in->size != params || out->size != 1) return false;
  for (size_t i = 0; i < params; i++)
    if (w->wasm_valtype_kind(((void **)in->data)[i]) != WASM_I32) return false;
  return w->wasm_valtype_kind(((void **)out->data)[0]) == WASM_I32;
}

static const void *find_export(const wasmtime_api *w, const wasm_vec *exports, const char *name) {
  for (size_t i = 0; i < exports->size; i++) {
    const void *e = ((void **)exports->data)[i];
    const wasm_vec *n = w->wasm_exporttype_name(e);
    if (n->size == strlen(name) && memcmp(n->data, name, n->size) == 0) return w->wasm_exporttype_type(e);
  }
  return NULL;
}

static ambi_status check_exports(const wasmtime_api *w, const manifest_kernel *k, compiled *c) {
  const struct {
    const char *name;
    size_t params;
    bool required;
  } functions[] = {{k->entry, 1, true},
                   {"kernel_backward", 1, false},
                   {"kernel_init", 2, true},
                   {"kernel_info", 1, true},
                   {"kernel_cleanup", 0, true}};
  wasm_vec v;
  const char *wrong = NULL;
  w->wasmtime_module_exports(c->module, &v);
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !wrong; i++) {
    const void *type = find_export(w, &v, functions[i].name);
    if (type ? !is_function(w, type, functions[i].params) : functions[i].required) wrong = functions[i].name;
  }
  const void *memory = find_export(w, &v, "memory");
  if (!memory || w->wasm_externtype_kind(memory) != WASM_EXTERN_MEMORY) wrong = "memory";
  c->has_backward = find_export(w, &v, "kernel_backward") != NULL;
  w->wasm_exporttype_vec_delete(&v);
  if (!wrong) return AMBI_OK;
  return fail(AMBI_DENIED, "refused by exports: %s has no %s, or one of another type than the ABI's", k->id, wrong);
}

/* ---- compiling ---- */
static void compiled_free(const wasmtime_api *w, compiled *c) {
  if (c->module) w->wasmtime_module_delete(c->module);
  free(c);
}

static ambi_status compile(ambi_pack_host *h, const manifest_kernel *m, const void *bytes, size_t n, compiled **out) {
  const wasmtime_api *w = &h->w;
  compiled *c = calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return fail(AMBI_NO_MEMORY, "%s: no memory to compile it", m->id);
  snprintf(c->hash, sizeof c->hash, "%s", m->hash);
  snprintf(c->entry, sizeof c->entry, "%s", m->entry);
  ambi_status s = scan_check(m->id, bytes, n);
  wasmtime_error *e = s != AMBI_OK ? NULL : w->wasmtime_module_new(h->engine, bytes, n, &c->module);
  if (e) s = wasmtime_failed(w, AMBI_COMPILE_FAILED, m->id, e, NULL);
  if (s == AMBI_OK) s = check_exports(w, m, c);
  if (s == AMBI_OK)
    *out = c;
  else
    compiled_free(w, c);
  return s;
}

static compiled *find_module(ambi_pack_host *h, const manifest_kernel *m) {
  for (compiled *c = h->modules; c; c = c->next)
    if (strcmp(c->hash, m->hash) == 0 && strcmp(c->entry, m->entry) == 0) return c;
  return NULL;
}

/* Compiling takes long, so it is done outside the lock; if two threads do it at once, one of them in vain. */
ambi_status code_get(ambi_pack_host *h, const manifest_kernel *m, const void *bytes, size_t n, compiled **out) {
  pthread_mutex_lock(&h->lock);
  compiled *c = find_module(h, m), *fresh = NULL;
  if (c) c->users++;
  pthread_mutex_unlock(&h->lock);
  *out = c;
  if (c) return AMBI_OK;
  TRY(compile(h, m, bytes, n, &fresh));
  if (!fresh) return AMBI_NO_MEMORY; /* it never is */
  pthread_mutex_lock(&h->lock);
  c = find_module(h, m);
  if (!c) {
    fresh->next = h->modules;
    h->modules = fresh;
  }
  *out = c ? c : fresh;
  (*out)->users++;
  pthread_mutex_unlock(&h->lock);
  if (c) compiled_free(&h->w, fresh);
  return AMBI_OK;
}

/* Some that nobody uses are kept: the next version of a pack will have most of them. The oldest go first. */
void code_release(ambi_pack_host *h, compiled *c) {
  int unused = 0;
  compiled *dropped = NULL;
  pthread_mutex_lock(&h->lock);
  c->users--;
  for (compiled **at = &h->modules; *at;) {
    compiled *m = *at;
    if (m->users == 0 && ++unused > MOST_UNUSED_MODULES) {
      *at = m->next;
      m->next = dropped;
      dropped = m;
    } else {
      at = &m->next;
    }
  }
  pthread_mutex_unlock(&h->lock);
  while (dropped) {
    compiled *next = dropped->next;
    compiled_free(&h->w, dropped);
    dropped = next;
  }
}

void code_free_all(ambi_pack_host *h) {
  while (h->modules) {
    compiled *next = h->modules->next;
    compiled_free(&h->w, h->modules);
    h->modules = next;
  }
}
