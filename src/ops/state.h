/* state.h -- what the state spaces (selective_scan, ssd) share: what backward reads, and strides by the axis' letter.
 */
#ifndef AMBI_STATE_H
#define AMBI_STATE_H
#include <string.h>

#include "core/core.h"

/* What the gradient of a slot is made from: the states h, their gradients dh, other slots. */
typedef struct {
  bool h, dh;
  uint32_t more;
} state_use;

/* The slots from which h is found, and those from which dh is. */
typedef struct {
  uint32_t h, dh;
} state_sources;

/* Leaves in p->reads what the wanted gradients need; says whether that is h, dh. */
static inline void state_reads(problem *p, const state_use *uses, state_sources from, bool *needs_h, bool *needs_dh) {
  uint32_t needed = 0;
  for (int s = 0; s < p->def->info.slots; s++) {
    if (!writes_slot(p, AMBI_GRAD(s))) continue;
    *needs_h |= uses[s].h;
    *needs_dh |= uses[s].dh;
    needed |= uses[s].more;
  }
  p->reads &= needed | (*needs_h ? from.h : 0) | (*needs_dh ? from.dh : 0);
}

/* t's axes are called `names`: the stride of the one called letters[i] goes to *of[i]. */
static inline void state_strides(const ambi_tensor *t, const char *names, const char *letters, int64_t *const *of) {
  for (int i = 0; i < t->ndim; i++) *of[strchr(letters, names[i]) - letters] = t->stride[i];
}

#endif
