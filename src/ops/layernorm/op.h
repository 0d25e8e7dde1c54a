/* op.h -- layernorm's loops are those of rows.h. */
#ifndef AMBI_LAYERNORM_H
#define AMBI_LAYERNORM_H
#include "ops/rows.h"

#endif
