/* scan.h -- what compiling a module would cost. */
#ifndef AMBI_PACK_SCAN_H
#define AMBI_PACK_SCAN_H
#include "pack/bytes.h"

typedef struct {
  uint64_t code, types, functions, depth, height, locals, joins, merges, branches, values,
      arity;     /* bytes; see scan.c */
  reader import; /* the first; at NULL: none */
  bool readable;
} module_work;

module_work scan_module(const void *bytes, size_t n); /* any bytes */
ambi_status scan_check(const char *id, const void *bytes, size_t n);

#endif
