/* grid.c -- an index space that several slots share, with as few axes as their strides allow. */
#include <string.h>

#include "core/core.h"

static int highest(uint32_t slots) { return 31 - __builtin_clz(slots); }

static int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

static void swap_axes(grid *g, uint32_t slots, int i, int j) {
  int64_t n = g->shape[i];
  g->shape[i] = g->shape[j], g->shape[j] = n;
  for (uint32_t m = slots; m; m &= m - 1) {
    int64_t *s = g->stride[__builtin_ctz(m)], kept = s[i];
    s[i] = s[j], s[j] = kept;
  }
}

static void sort_axes(grid *g, uint32_t slots) {
  const int64_t *key = g->stride[highest(slots)];
  for (int i = 1; i < g->ndim; i++)
    for (int j = i; j > 0 && magnitude(key[j - 1]) < magnitude(key[j]); j--) swap_axes(g, slots, j - 1, j);
}

/* Axis i walks on where axis i+1 ends, in every slot. */
static bool mergeable(const grid *g, uint32_t slots, int i) {
  for (uint32_t m = slots; m; m &= m - 1) {
    const int64_t *s = g->stride[__builtin_ctz(m)];
    int64_t whole;
    if (__builtin_mul_overflow(s[i + 1], g->shape[i + 1], &whole) || s[i] != whole) return false;
  }
  return true;
}

static void drop_axis(grid *g, uint32_t slots, int i) {
  size_t after = (size_t)(g->ndim - i - 1) * sizeof(int64_t);
  memmove(g->shape + i, g->shape + i + 1, after);
  for (uint32_t m = slots; m; m &= m - 1) {
    int64_t *s = g->stride[__builtin_ctz(m)];
    memmove(s + i, s + i + 1, after);
  }
  g->ndim--;
}

void grid_make(grid *g, const problem *p, uint32_t slots, int first, int last, bool sorted) {
  g->ndim = 0;
  g->count = 1;
  const ambi_tensor *lead = &p->t[highest(slots)];
  for (int axis = first; axis < last; axis++) {
    g->count *= lead->shape[axis]; /* cannot overflow: the slot's elements were counted */
    if (lead->shape[axis] == 1) continue;
    g->shape[g->ndim] = lead->shape[axis];
    for (uint32_t m = slots; m; m &= m - 1) {
      int s = __builtin_ctz(m);
      g->stride[s][g->ndim] = p->t[s].stride[axis];
    }
    g->ndim++;
  }
  if (g->count == 0) return;
  if (sorted) sort_axes(g, slots);
  for (int i = g->ndim - 2; i >= 0; i--)
    if (mergeable(g, slots, i)) {
      g->shape[i + 1] *= g->shape[i];
      drop_axis(g, slots, i);
    }
}

int64_t grid_offset(const grid *g, int slot, int64_t index) {
  const int64_t *stride = g->stride[slot];
  int64_t offset = 0;
  for (int i = g->ndim - 1; i > 0; i--) {
    offset += index % g->shape[i] * stride[i];
    index /= g->shape[i];
  }
  return g->ndim ? offset + index * stride[0] : 0;
}
