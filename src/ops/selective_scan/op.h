/* op.h -- selective_scan's sizes and strides, for every backend. */
#ifndef AMBI_SELECTIVE_SCAN_H
#define AMBI_SELECTIVE_SCAN_H
#include "core/core.h"

enum { SCAN_CHUNK = 64 }; /* steps between the states that are kept */

/* Element strides of a slot along each axis of the formula; 0 along those it does not have. */
typedef struct {
  int64_t b, s, g, d, n, l;
} scan_strides;

typedef struct {
  int64_t batches, channels, states, length, chunks; /* B D N L, and chunks in L                           */
  int64_t groups_b, groups_c;                        /* channel d is in group d / (D/G) of B, and of C      */
  int64_t channels_per_group;                        /* so many channels in a row are in one group of both  */
  bool constant_b, constant_c;                       /* B, C are (D, N); they then count as one group       */
  bool needs_h, needs_dh;                            /* backward: h_t, their gradients                      */
  scan_strides stride[AMBI_SLOTS];
} scan_recipe;

static inline const scan_recipe *scan(const problem *p) { return (const scan_recipe *)(const void *)p->recipe; }

#endif
