/* elementwise.c -- the index space of pointwise ops, and elementwise.def as tables. */
#include "ops/elementwise.h"

void elementwise_make(problem *p, uint64_t flops) {
  elementwise_recipe *r = elementwise(p);
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  uint32_t slots = p->reads | p->writes;
  const ambi_tensor *any = &p->t[__builtin_ctz(slots)];
  grid_make(&r->all, p, slots, 0, any->ndim, true);
  p->flops = flops * (uint64_t)ambi_numel(any);
}

#define UNARY(name, NAME, formula, a, b, forward, backward) [AMBI_##NAME] = {#name, formula, a, b},
const function_info functions[AMBI_FUNCTIONS] = {
#include "ops/elementwise.def"
};
#undef UNARY

#define UNARY(name, NAME, formula, a, b, forward, backward) [AMBI_##NAME] = #name,
const char *const function_names[AMBI_FUNCTIONS + 1] = {
#include "ops/elementwise.def"
};
#undef UNARY
