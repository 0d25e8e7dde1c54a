/* environment.h -- variables that say what is loaded or where is written: not heard in a program that has more rights
 * than whoever started it (set-user-ID), as the loader does not hear LD_LIBRARY_PATH there. */
#ifndef AMBI_ENVIRONMENT_H
#define AMBI_ENVIRONMENT_H
#include <stdlib.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

static inline const char *environment(const char *name) {
#ifdef __linux__
  if (getauxval(AT_SECURE)) return NULL;
#endif
  return getenv(name);
}
#endif
