/* library.h -- shared libraries that are looked for at run time. */
#ifndef AMBI_PACK_LIBRARY_H
#define AMBI_PACK_LIBRARY_H
#include "core/core.h"

typedef struct {
  const char *title, *variable; /* "Wasmtime"; the environment variable that names the file */
  const char *how;              /* to get it                                                */
  const char *const *names;     /* otherwise these, ends in NULL                            */
  const char *const *symbols;
  void **const *targets; /* where the address of each symbol goes                           */
  size_t count;
} library_request;

ambi_status library_load(const library_request *r, void **handle);

#endif
