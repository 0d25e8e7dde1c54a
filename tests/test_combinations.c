/* test_combinations.c -- what `ambi check` tries one at a time, drawn together at random: outputs in place, gradients
 * wanted, added to or summed over axes of stride 0, and layouts. On the cpu and on the reference itself
 * (`test_combinations DEVICE`: on that), against the reference alone: dense, nothing shared. */
#include <math.h>
#include <stdlib.h>

#include "../cli/case.h"
#include "../cli/layout.h"
#include "../cli/trial.h"
#include "../cli/values.h"
#include "test.h"

static const char *const cases[] = {
    "unary x=7x33 function=silu",
    "gated v=7x33 g=7x33 gate=swiglu",
    "gated v=2x1x5x17 g=2x1x5x17 gate=geglu",
    "add a=7x33 b=7x33 alpha=-2",
    "add a=2x1x5x17 b=2x1x5x17",
    "cast x=7x33",
    "rmsnorm x=7x33 residual=7x33 w=33 sum rstd",
    "layernorm x=7x33 residual=7x33 w=33 b=33 sum mean",
    "softmax x=7x33",
    "conv1d x=2x5x9 w=5x3 b=5 x0=2x5x2 silu=true x_last",
    "rope x=2x3x5x8",
    "cross_entropy logits=7x33 target=7 label_smoothing=0.1 lse grad",
    "linear_cross_entropy x=7x9 w=33x9 b=33 target=7",
    "selective_scan u=2x6x37 delta=2x6x37 a=6x5 b=2x5x37 c=2x5x37 d=6 z=2x6x37 delta_bias=6 h0=2x6x5 softplus=1 h_last",
    "ssd x=1x70x4x6 delta=1x70x4 a=4 b=1x70x2x5 c=1x70x2x5 d=4 delta_bias=4 h0=1x4x6x5 softplus=true h_last",
    "adamw p=65 g=65 m=65 v=65 lr=1 step=1:i64 step_out",
    "grad_norm g=7x33 partial=1 sumsq scale max_norm=1",
};
enum { CASES = sizeof cases / sizeof *cases, ROUNDS = 40 };

static rng draws = {1};
static unsigned draw(unsigned n) { return (unsigned)(rng_next(&draws) >> 33) % n; }

static ambi_tensor tensor_of(const ambi_op *op, int slot) {
  int s = slot % AMBI_MAX_PRIMALS;
  return slot == s || op->grad[s].dtype == AMBI_NONE ? op->t[s] : op->grad[s];
}

/* Strides of 0 along some axes of a gradient, and the same sum in the dense layout of the reference. */
static void sum_some_axes(ambi_op *op, ambi_op *plain, int s) {
  ambi_tensor g = tensor_of(op, AMBI_GRAD(s)), dense = g;
  int64_t stride = 1;
  for (int a = g.ndim - 1; a >= 0; a--) {
    bool summed = draw(2) && g.shape[a] > 1;
    if (summed) g.stride[a] = 0;
    dense.stride[a] = summed ? 0 : stride;
    if (!summed) stride *= g.shape[a];
  }
  dense.dtype = AMBI_F64;
  op->grad[s] = g;
  plain->grad[s] = dense;
}

static bool same_view(const ambi_tensor *a, const ambi_tensor *b) {
  bool same = a->dtype != AMBI_NONE && a->dtype == b->dtype && a->ndim == b->ndim && !values_overlap(a);
  for (int i = 0; i < a->ndim && same; i++)
    same = a->shape[i] == b->shape[i] && (a->shape[i] <= 1 || a->stride[i] == b->stride[i]);
  return same;
}

/* Some of the pairs that may share memory do; returns the outputs that lie over an input. */
static uint32_t share_some(exec *e, const ambi_op_info *info, uint32_t written) {
  uint32_t over = 0, under = 0;
  for (const int8_t(*pair)[2] = info->in_place; pair && (*pair)[0] >= 0; pair++) {
    int out = (*pair)[0], in = (*pair)[1];
    ambi_tensor a = tensor_of(&e->op, out), b = tensor_of(&e->op, in);
    if (!(written & ~over & AMBI_BIT(out)) || (under & AMBI_BIT(in)) || !e->in[in]) continue;
    if (!same_view(&a, &b) || draw(2)) continue;
    e->share[out] = (int8_t)(in + 1);
    over |= AMBI_BIT(out);
    under |= AMBI_BIT(in);
  }
  return over;
}

static bool sums_gradients(ambi_kind k) {
  return k == AMBI_UNARY || k == AMBI_GATED || k == AMBI_ADD || k == AMBI_CAST;
}

/* The same draw for both: `e` in a layout, with memory shared; `plain` as the reference likes it. */
static void draw_both(const trial *t, exec *e, exec *plain) {
  ambi_pass pass = t->differentiable && draw(4) ? AMBI_BACKWARD : AMBI_FORWARD;
  e->op = trial_op(t, pass), plain->op = trial_reference_op(t, pass);
  layout_apply_op(&e->op, (layout)draw(LAYOUTS));
  e->skew = (int)draw(4);
  for (int s = 0; s < AMBI_SLOTS; s++) e->in[s] = plain->in[s] = t->in[s];
  uint32_t want = (uint32_t)rng_next(&draws) & t->differentiable, written = t->outputs;
  if (pass == AMBI_BACKWARD) {
    e->op.want = plain->op.want = want;
    written = (want ? want : t->differentiable) << AMBI_MAX_PRIMALS;
  }
  for (int s = 0; s < t->info->slots; s++)
    if ((written & AMBI_BIT(AMBI_GRAD(s))) && sums_gradients(e->op.kind) && draw(2))
      sum_some_axes(&e->op, &plain->op, s);
  uint32_t added = written & ~share_some(e, t->info, written) & (uint32_t)rng_next(&draws);
  for (int s = 0; s < t->info->slots; s++) /* what is added to must be one value where the gradient is one element */
    if (e->op.grad[s].dtype != AMBI_NONE && values_overlap(&e->op.grad[s])) added &= ~AMBI_BIT(AMBI_GRAD(s));
  e->op.accumulate = plain->op.accumulate = added >> AMBI_MAX_PRIMALS;
}

/* A wrong order or a lost gradient is off by as much as the values are; rounding is off by far less. */
static void compare(const trial *t, const target *dev, const exec *e, const exec *plain, double tolerance) {
  char name[48], text[900];
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!(e->writes & AMBI_BIT(s))) continue;
    double worst = 0, largest = 1e-3;
    for (int64_t i = 0; i < ambi_numel(&e->t[s]); i++) {
      double error = fabs(e->out[s][i] - plain->out[s][i]);
      worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
      largest = fmax(largest, fabs(plain->out[s][i]));
    }
    CHECK(worst <= tolerance * largest, "%s: %s is off by %g of %g: %s\n  %s", dev->name,
          slot_name(&e->op, s, name, sizeof name), worst, largest, t->text, case_format(&e->op, text, sizeof text));
  }
}

static void try_case(const target *dev, const target *ref, const char *text, const mix *m, double tolerance) {
  trial t;
  char err[400];
  ambi_status made = trial_make(ref, text, m, 1 + draw(1000), -1, 0, &t, err, sizeof err);
  int rounds = CHECK(made == AMBI_OK, "%s: %s", text, err) ? ROUNDS : 0;
  for (int round = 0; round < rounds; round++) {
    exec e = {.skew = 0}, plain = {.skew = 0};
    draw_both(&t, &e, &plain);
    exec_run(dev, &e);
    exec_run(ref, &plain);
    CHECK(plain.status == AMBI_OK, "%s: the reference: %s", text, plain.error);
    if (CHECK(e.status == AMBI_OK && !e.damage[0], "%s: %s%s", text, e.error, e.damage) && plain.status == AMBI_OK)
      compare(&t, dev, &e, &plain, tolerance);
    exec_free(&e);
    exec_free(&plain);
  }
  trial_free(&t);
}

int main(int argc, char **argv) {
  static const mix f64 = {"f64", AMBI_F64, AMBI_F64, AMBI_NONE, 0}, f32 = {"f32", AMBI_F32, AMBI_F32, AMBI_NONE, 0};
  const char *name = argc > 1 ? argv[1] : "cpu";
  target ref, dev;
  if (target_open("ref", NULL, 0, &ref) || target_open(name, NULL, 2, &dev)) return puts(ambi_error()), 1;
  for (int i = 0; i < CASES; i++) {
    if (argc == 1) try_case(&ref, &ref, cases[i], &f64, 1e-9);
    try_case(&dev, &ref, cases[i], &f64, 1e-9);
    try_case(&dev, &ref, cases[i], &f32, 2e-3);
  }
  target_close(&ref);
  target_close(&dev);
  return test_done();
}
