/* grad_norm -- the L2 norm of a gradient, of one buffer or of many, and the scale that clips it.
 *
 *   sumsq = sum partial + sum g^2;   norm = sqrt(sumsq)  (partial: sumsq of other buffers; absent: 0)
 *   scale = min(1, max_norm / norm)                      (1 without a max_norm; 0 where the norm is not finite)
 *   nonfinite = 1 where the norm is not finite, else 0   (what adamw's skip reads)
 *
 *   dg = dnorm g / norm                                  (0 where the norm is 0)
 *
 * Squares are summed in f64 whatever the dtype of g, so that those of large f32 values do not overflow. Of many buffers
 * each gets a sumsq, side by side; the last takes them all as its partial. */
#include <float.h>

#include "ops/elementwise.h"

enum { G = AMBI_GRAD_NORM_G, PARTIAL = AMBI_GRAD_NORM_PARTIAL, NORM = AMBI_GRAD_NORM_NORM };
enum { SUMSQ = AMBI_GRAD_NORM_SUMSQ, SCALE = AMBI_GRAD_NORM_SCALE, NONFINITE = AMBI_GRAD_NORM_NONFINITE };

enum { EXTRA = AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_NO_GRAD };

static const ambi_slot_info slots[] = {
    {"g", "(..)", "gradient", 0},
    {"partial", "() or (P)", "sums of squares of other buffers", AMBI_SLOT_OPTIONAL | AMBI_SLOT_NO_GRAD},
    {"norm", "()", "norm of all of it", AMBI_SLOT_OUTPUT},
    {"sumsq", "()", "its square, in f64: for another call's partial", EXTRA},
    {"scale", "()", "what to multiply gradients by", EXTRA},
    {"nonfinite", "()", "1: the norm is not finite", EXTRA | AMBI_SLOT_INTEGER},
};

static const ambi_attr_info attributes[] = {
    {"max_norm", "largest norm that scale leaves alone; 0: any", AMBI_ATTR_F64, offsetof(ambi_op, u.grad_norm.max_norm),
     0, 0, DBL_MAX, NULL},
};

static const int8_t in_place[][2] = {{SUMSQ, PARTIAL}, {AMBI_GRAD(G), G}, {-1, -1}};

static ambi_status shapes(problem *p) {
  ambi_dtype norm = p->t[G].dtype == AMBI_F64 ? AMBI_F64 : AMBI_F32;
  if (ambi_numel(&p->t[PARTIAL]) != 1) TRY(expect_rank(p, PARTIAL, 0, 1)); /* one number, as sumsq is, of any rank */
  TRY(expect_one(p, NORM, norm));
  TRY(expect_one(p, SUMSQ, AMBI_F64));
  TRY(expect_one(p, SCALE, norm));
  return expect_one(p, NONFINITE, AMBI_I32);
}

static ambi_status recipe(problem *p) {
  uint32_t elements = (p->reads | p->writes) & (AMBI_BIT(G) | AMBI_BIT(AMBI_GRAD(G)));
  grid_make(&elementwise(p)->all, p, elements, 0, p->t[G].ndim, true);
  p->compute =
      p->t[G].dtype == AMBI_F64 || (is_backward(p) && p->t[AMBI_GRAD(G)].dtype == AMBI_F64) ? AMBI_F64 : AMBI_F32;
  p->flops = 2 * (uint64_t)ambi_numel(&p->t[G]);
  return AMBI_OK;
}

const op_def grad_norm_op = {
    .info = {.name = "grad_norm",
             .formula = "sumsq = sum partial + sum g^2;  norm = sqrt(sumsq);  scale = min(1, max_norm / norm);  "
                        "nonfinite = norm is not finite",
             .gradient = "dg = dnorm g / norm",
             .doc = "The L2 norm of a gradient, and the scale that clips it.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(G) | AMBI_BIT(PARTIAL),
    .sums = AMBI_F64,
    .shapes = shapes,
    .recipe = recipe,
};
