/* elementwise.h -- what the pointwise ops share: one index space, the functions by name, and their parameters. */
#ifndef AMBI_ELEMENTWISE_H
#define AMBI_ELEMENTWISE_H
#include "core/core.h"

typedef struct {
  grid all;    /* every axis of every slot, the densest last, merged where possible */
  double a, b; /* parameters of the function, defaults filled in                 */
} elementwise_recipe;

static inline elementwise_recipe *elementwise(const problem *p) { return (elementwise_recipe *)(uintptr_t)p->recipe; }

/* Lays out the loops over every slot that is read or written; `flops` of one element. */
void elementwise_make(problem *p, uint64_t flops);

/* ---- elementwise.def as tables ---- */
typedef struct {
  const char *name, *formula;
  double a, b; /* defaults */
} function_info;

extern const function_info functions[AMBI_FUNCTIONS];
extern const char *const function_names[AMBI_FUNCTIONS + 1]; /* ends in NULL */

#endif
