/* ahead.h -- kernels of a tape compiled side by side, before the tape makes its plans one after the other. */
#ifndef MODELS_AHEAD_H
#define MODELS_AHEAD_H
#include "tape.h"

/* Calls `write` with a tape that is thrown away, and makes the plans it took on dev, from several threads: dev keeps
 * what was compiled. Does nothing where plans are cheap. Failures are left to the tape that is written for real. */
void compile_ahead(ambi_device *dev, void (*write)(tape *t, void *context), void *context);

#endif
