/* scan.h -- what compiling a module would cost. */
#ifndef AMBI_PACK_SCAN_H
#define AMBI_PACK_SCAN_H
#include "core/core.h"

typedef struct {
  uint64_t code, functions, depth, joins, branches, values, arity; /* bytes; see scan.c */
  bool readable;
} module_work;

module_work scan_module(const void *bytes, size_t n); /* any bytes */
ambi_status scan_check(const char *id, const void *bytes, size_t n);

#endif
