/* pointwise.c -- see pointwise.h. */
#include "backends/ref/pointwise.h"

#include "backends/ref/math.h"

/* Indices where every repeated axis (stride 0) is 0 name the elements; the others add to them. */
static double sum_over_repeats(const ref_call *c, int slot, at_index i, double (*fn)(const ref_call *, at_index)) {
  const ambi_tensor *t = &c->p->t[slot];
  double sum = -0.0; /* -0 + v is v, even when v is -0 */
  for (;;) {
    sum += fn(c, i);
    int k = t->ndim - 1;
    for (; k >= 0; k--) {
      if (t->stride[k] != 0) continue;
      if (++i.i[k] < t->shape[k]) break;
      i.i[k] = 0;
    }
    if (k < 0) return sum;
  }
}

void ref_pointwise(const ref_call *c, int slot, double (*fn)(const ref_call *c, at_index i)) {
  if (!writes_slot(c->p, slot)) return;
  const ambi_tensor *t = &c->p->t[slot];
  int64_t count = ambi_numel(t);
  for (int64_t n = 0; n < count; n++) {
    at_index i = ref_index(c, slot, t->ndim, n);
    bool names = true;
    for (int k = 0; k < t->ndim; k++) names = names && (t->stride[k] != 0 || i.i[k] == 0);
    if (names) ref_set(c, slot, i, sum_over_repeats(c, slot, i, fn));
  }
}

/* ---- elementwise.def, in f64 ---- */
#define UNARY(name, NAME, formula, default_a, default_b, forward, backward) \
  static double name##_value(double x, double a, double b) {                \
    (void)a, (void)b;                                                       \
    forward                                                                 \
  }                                                                         \
  static double name##_grad(double x, double dy, double a, double b) {      \
    (void)x, (void)a, (void)b;                                              \
    backward                                                                \
  }
#include "ops/elementwise.def"
#undef UNARY

static const struct {
  double (*value)(double x, double a, double b);
  double (*grad)(double x, double dy, double a, double b);
} table[AMBI_FUNCTIONS] = {
#define UNARY(name, NAME, formula, default_a, default_b, forward, backward) [AMBI_##NAME] = {name##_value, name##_grad},
#include "ops/elementwise.def"
#undef UNARY
};

double ref_function(int function, double x, double a, double b) { return table[function].value(x, a, b); }
double ref_function_grad(int function, double x, double dy, double a, double b) {
  return table[function].grad(x, dy, a, b);
}
