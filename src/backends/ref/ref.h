/* ref.h -- what an op's ref.c is written with: any element of any slot as a double.
 *
 * A reference is plain C in f64: never optimised, never deleted, the oracle for every other kernel.             */
#ifndef AMBI_REF_H
#define AMBI_REF_H
#include <string.h>

#include "core/core.h"

typedef struct {
  const problem *p;
  char *at[AMBI_SLOTS];
  int64_t step[AMBI_SLOTS][AMBI_MAX_DIMS]; /* bytes along each axis, 0 beyond the last */
  double *scratch;                         /* as many doubles as ref_kernel.scratch asked for */
} ref_call;

typedef struct {
  void (*forward)(const ref_call *c);
  void (*backward)(const ref_call *c);
  uint64_t (*scratch)(const problem *p); /* NULL: none */
} ref_kernel;

/* Element [i0, i1, ..] of a slot; missing trailing indices are 0. */
typedef struct {
  int64_t i[AMBI_MAX_DIMS];
} at_index;
#define AT(...) ((at_index){{__VA_ARGS__}})

static inline char *ref_element(const ref_call *c, int slot, at_index at) {
  const int64_t *i = at.i, *s = c->step[slot]; /* written out, so that indices that are 0 cost nothing */
  return c->at[slot] + (i[0] * s[0] + i[1] * s[1] + i[2] * s[2] + i[3] * s[3] + i[4] * s[4] + i[5] * s[5] +
                        i[6] * s[6] + i[7] * s[7]);
}

double ref_load(ambi_dtype dtype, const char *at);

static inline double ref_get(const ref_call *c, int slot, at_index i) {
  const char *at = ref_element(c, slot, i);
  double v;
  if (c->p->t[slot].dtype != AMBI_F64) return ref_load(c->p->t[slot].dtype, at);
  memcpy(&v, at, sizeof v);
  return v;
}
int64_t ref_integer(const ref_call *c, int slot, at_index i); /* of an integer slot; i64 may be beyond a double */
/* Gradients that accumulate are added to; a slot that is not written is left alone. */
void ref_set(const ref_call *c, int slot, at_index i, double value);

/* Index number n, row-major, of the first `ndim` axes of a slot's shape. */
at_index ref_index(const ref_call *c, int slot, int ndim, int64_t n);

/* A long sum, with what each addition rounded away put back by the next (Kahan): its error does not grow. */
typedef struct {
  double total, lost;
} ref_sum;

static inline void ref_add(ref_sum *s, double term) {
  double y = term - s->lost, t = s->total + y;
  s->lost = t - t == 0 ? (t - s->total) - y : 0; /* nothing is lost from an infinity */
  s->total = t;
}

#endif
