/* registry.c -- the list of ops, from registry.def. */
#include "core/core.h"

#define OP(kind, name) extern const op_def name##_op;
#include "ops/registry.def"
#undef OP

static const op_def *const ops[AMBI_KINDS] = {
#define OP(kind, name) [kind] = &name##_op,
#include "ops/registry.def"
#undef OP
};

const op_def *find_op(ambi_kind kind) { return (unsigned)kind < AMBI_KINDS ? ops[kind] : NULL; }

const ambi_op_info *ambi_op_get_info(ambi_kind kind) {
  const op_def *def = find_op(kind);
  return def ? &def->info : NULL;
}
