/* diagnose.h -- where numbers stop being finite.
 *
 * The last batch is run once more, op by op: parameters are looked at first, then what each op leaves, in the order in
 * which they run. Gradients are of no use afterwards. */
#ifndef MODELS_DIAGNOSE_H
#define MODELS_DIAGNOSE_H
#include "trainer.h"

/* "first in layer 3, in what comes out of selective_scan"; 0: nothing was found. */
int diagnose_nonfinite(trainer *r, char *out, size_t n);

#endif
