/* functions.c -- elementwise.def as text: NAME_value(x, a, b) and NAME_grad(x, dy, a, b) for kernels that are compiled
 * at run time. The bodies are turned into strings here, where none of their words means anything yet. */
#include "ambi/ambi.h"
#include "backends/cuda/text.h"

#define UNARY(name, NAME, formula, default_a, default_b, forward, backward)      \
  [AMBI_##NAME] =                                                                \
      "#define F(...) __VA_ARGS__\n#define B(...) __VA_ARGS__\n"                 \
      "inline real " #name "_value(real x, real a, real b) { " #forward          \
      " }\n"                                                                     \
      "inline real " #name "_grad(real x, real dy, real a, real b) { " #backward \
      " }\n"                                                                     \
      "#undef F\n#undef B\n",

const char *const function_text[AMBI_FUNCTIONS] = {
#include "ops/elementwise.def"
};
