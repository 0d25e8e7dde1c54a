/* rope's loops: batches, each with its own positions or all with the same; the other leading axes (heads), which share
 * them; positions; channels. */
#ifndef AMBI_ROPE_H
#define AMBI_ROPE_H
#include <math.h>

#include "core/core.h"

typedef struct {
  grid heads;              /* leading axes that share positions: all but the first when positions is (B, L) */
  int64_t batches, length; /* B (1 when positions is (L) or absent), L                                      */
  int64_t channels, dims;  /* D, and how many of them rotate                                                */
  int64_t batch_stride[AMBI_SLOTS], row_stride[AMBI_SLOTS], channel_stride[AMBI_SLOTS];
} rope_recipe;

static inline const rope_recipe *rope_of(const problem *p) { return (const rope_recipe *)(const void *)p->recipe; }

/* theta^(-2i/dims), where no frequencies are given */
static inline double rope_frequency(const problem *p, int64_t i) {
  return pow(p->op.u.rope.theta, -2 * (double)i / (double)rope_of(p)->dims);
}

#endif
