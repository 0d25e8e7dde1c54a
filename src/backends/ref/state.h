/* state.h -- what the references of the state spaces share: selective_scan and ssd. */
#ifndef AMBI_REF_STATE_H
#define AMBI_REF_STATE_H
#include "backends/ref/math.h"
#include "backends/ref/ref.h"
#undef B /* the slot, not the macro of elementwise.def */
#undef F

/* Zero for what is absent, or not needed. */
static inline double ref_read(const ref_call *c, int slot, at_index i) {
  return reads_slot(c->p, slot) ? ref_get(c, slot, i) : 0;
}

/* Whether step t begins another sequence. */
static inline bool ref_resets(const ref_call *c, int seq_idx, int64_t b, int64_t t) {
  return t > 0 && reads_slot(c->p, seq_idx) && ref_get(c, seq_idx, AT(b, t)) != ref_get(c, seq_idx, AT(b, t - 1));
}

/* The gradient of `slot`, from a dense array. */
static inline void ref_put_gradient(const ref_call *c, int slot, const double *v) {
  const ambi_tensor *t = &c->p->t[slot];
  for (int64_t i = 0; i < ambi_numel(t) && writes_slot(c->p, AMBI_GRAD(slot)); i++)
    ref_set(c, AMBI_GRAD(slot), ref_index(c, slot, t->ndim, i), v[i]);
}

/* Arrays one behind the other from `m` on; the number of doubles, also when m is NULL. */
typedef struct {
  double **at;
  uint64_t size;
} ref_part;

static inline uint64_t ref_lay_out(const ref_part *parts, size_t count, double *m) {
  uint64_t used = 0;
  for (size_t i = 0; i < count; i++) {
    *parts[i].at = m ? m + used : NULL;
    used += parts[i].size;
  }
  return used;
}

#endif
