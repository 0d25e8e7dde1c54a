/* op.h -- ssd's sizes and strides, for every backend. */
#ifndef AMBI_SSD_H
#define AMBI_SSD_H
#include "core/core.h"

/* Element strides of a slot along each axis of the formula; 0 along those it does not have. */
typedef struct {
  int64_t b, l, h, g, p, n;
} ssd_strides;

typedef struct {
  int64_t batches, length, heads, width, groups, states; /* B L H P G N                                   */
  int64_t heads_per_group;                               /* H/G: so many heads in a row share B and C     */
  bool needs_h, needs_dh;                                /* backward: the states h_t, their gradients     */
  ssd_strides stride[AMBI_SLOTS];
} ssd_recipe;

static inline const ssd_recipe *ssd(const problem *p) { return (const ssd_recipe *)(const void *)p->recipe; }

#endif
