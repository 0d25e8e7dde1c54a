/* op.h -- gated is a pointwise op; each gate has an activation from elementwise.def. */
#ifndef AMBI_GATED_H
#define AMBI_GATED_H
#include "ops/elementwise.h"

extern const ambi_function gate_activation[AMBI_GATES];

#endif
