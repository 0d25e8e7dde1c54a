/* library.c -- the file that the environment names, and only that; otherwise the first of the usual names. */
#include "pack/library.h"

#include <dlfcn.h>
#include <stdio.h>

#include "core/environment.h"

static void *open_any(const library_request *r, const char **tried) {
  void *handle = NULL;
  const char *named = environment(r->variable);
  if (named && *named) {
    *tried = named;
    return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  }
  for (int i = 0; r->names[i] && !handle; i++) {
    *tried = r->names[i];
    handle = dlopen(r->names[i], RTLD_NOW | RTLD_LOCAL);
  }
  return handle;
}

ambi_status library_load(const library_request *r, void **handle) {
  const char *tried = "";
  *handle = open_any(r, &tried);
  if (!*handle) {
    const char *why = dlerror();
    return fail(AMBI_UNSUPPORTED, "kernel packs need %s, which was not found (%s names its shared library; %s): %.200s",
                r->title, r->variable, r->how, why ? why : tried);
  }
  for (size_t i = 0; i < r->count; i++) {
    *r->targets[i] = dlsym(*handle, r->symbols[i]);
    if (*r->targets[i]) continue;
    dlclose(*handle);
    *handle = NULL;
    return fail(AMBI_UNSUPPORTED, "kernel packs need %s: %s has no function %s", r->title, tried, r->symbols[i]);
  }
  return AMBI_OK;
}
