/* op.h -- conv1d's sizes and strides, for every backend. */
#ifndef AMBI_CONV1D_H
#define AMBI_CONV1D_H
#include "core/core.h"

typedef struct {
  int64_t batch, channels, length, taps;
  int64_t stride[AMBI_SLOTS][3]; /* of batch, channel and time (or tap); 0 where a slot has no such axis */
} conv1d_recipe;

static inline const conv1d_recipe *conv1d(const problem *p) { return (const conv1d_recipe *)(const void *)p->recipe; }

#endif
