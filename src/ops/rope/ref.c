/* rope, the reference: the formulas of op.c, one pair at a time. */
#include "backends/ref/ref.h"

#include <math.h>

#include "ops/rope/op.h"

enum { X = AMBI_ROPE_X, POSITIONS = AMBI_ROPE_POSITIONS, FREQUENCIES = AMBI_ROPE_FREQUENCIES, Y = AMBI_ROPE_Y };

/* Channel k of row number `row`; x is (.., L, D), and so are y and the gradients. */
static at_index at(const ref_call *c, int64_t row, int64_t k) {
  int last = c->p->t[X].ndim - 1;
  at_index i = ref_index(c, X, last, row);
  i.i[last] = k;
  return i;
}

static double position_of(const ref_call *c, int64_t row) {
  at_index i = at(c, row, 0);
  int64_t l = i.i[c->p->t[X].ndim - 2];
  if (!reads_slot(c->p, POSITIONS)) return (double)c->p->op.u.rope.offset + (double)l;
  return ref_get(c, POSITIONS, c->p->t[POSITIONS].ndim == 2 ? AT(i.i[0], l) : AT(l));
}

static double frequency(const ref_call *c, int64_t i) {
  return reads_slot(c->p, FREQUENCIES) ? ref_get(c, FREQUENCIES, AT(i)) : rope_frequency(c->p, i);
}

/* Turns every pair of `from` by `direction` times its angle. */
static void rotate(const ref_call *c, int from, int to, double direction) {
  const rope_recipe *r = rope_of(c->p);
  int interleaved = c->p->op.u.rope.interleaved;
  int64_t rows = r->channels ? ambi_numel(&c->p->t[from]) / r->channels : 0;
  for (int64_t row = 0; row < rows; row++) {
    double position = position_of(c, row);
    for (int64_t i = 0; i < r->dims / 2; i++) {
      int64_t k1 = interleaved ? 2 * i : i, k2 = interleaved ? 2 * i + 1 : i + r->dims / 2;
      double angle = position * frequency(c, i), x1 = ref_get(c, from, at(c, row, k1)),
             x2 = ref_get(c, from, at(c, row, k2)), sine = direction * sin(angle), cosine = cos(angle);
      ref_set(c, to, at(c, row, k1), x1 * cosine - x2 * sine);
      ref_set(c, to, at(c, row, k2), x2 * cosine + x1 * sine);
    }
    for (int64_t k = r->dims; k < r->channels; k++) ref_set(c, to, at(c, row, k), ref_get(c, from, at(c, row, k)));
  }
}

static void forward(const ref_call *c) { rotate(c, X, Y, 1); }
static void backward(const ref_call *c) { rotate(c, AMBI_GRAD(Y), AMBI_GRAD(X), -1); }

const ref_kernel rope_ref = {.forward = forward, .backward = backward};
