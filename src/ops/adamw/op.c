/* adamw -- one step of Adam with decoupled weight decay, on every element by itself.
 *
 *   t = step + 1;   g' = scale g
 *   m_out = beta1 m + (1 - beta1) g';   v_out = beta2 v + (1 - beta2) g'^2
 *   mhat = m_out / (1 - beta1^t);   vhat = v_out / (1 - beta2^t)
 *   p_out = p (1 - lr weight_decay) - lr mhat / (sqrt(vhat) + eps);   p_copy = p_out
 *   step_out = t
 *
 * A step below 0 has no mhat and vhat: p_out is NaN. Where skip is given and not 0, nothing moves: every output is a
 * copy of its input, and step_out = step. lr, step, scale and skip are read when the op runs: a recorded sequence of
 * runs needs no change from step to step. */
#include <float.h>

#include "ops/elementwise.h"

enum { P = AMBI_ADAMW_P, G = AMBI_ADAMW_G, M = AMBI_ADAMW_M, V = AMBI_ADAMW_V };
enum { LR = AMBI_ADAMW_LR, STEP = AMBI_ADAMW_STEP, SCALE = AMBI_ADAMW_SCALE, SKIP = AMBI_ADAMW_SKIP };
enum { P_OUT = AMBI_ADAMW_P_OUT, M_OUT = AMBI_ADAMW_M_OUT, V_OUT = AMBI_ADAMW_V_OUT, P_COPY = AMBI_ADAMW_P_COPY };
enum { STEP_OUT = AMBI_ADAMW_STEP_OUT };

enum { SCALARS = AMBI_BIT(LR) | AMBI_BIT(STEP) | AMBI_BIT(SCALE) | AMBI_BIT(SKIP) | AMBI_BIT(STEP_OUT) };
enum { OPTIONAL_OUTPUT = AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL };

static const ambi_slot_info slots[] = {
    {"p", "(..)", "parameters", AMBI_SLOT_NO_GRAD},
    {"g", "(..)", "their gradient", AMBI_SLOT_NO_GRAD},
    {"m", "(..)", "first moment", AMBI_SLOT_NO_GRAD},
    {"v", "(..)", "second moment", AMBI_SLOT_NO_GRAD},
    {"lr", "()", "learning rate", AMBI_SLOT_NO_GRAD},
    {"step", "()", "steps completed, 0 before the first; i32 or i64. Below 0 there is no p_out: it is NaN",
     AMBI_SLOT_NO_GRAD | AMBI_SLOT_INTEGER},
    {"scale", "()", "multiplies g, as grad_norm gives it; absent: 1", AMBI_SLOT_NO_GRAD | AMBI_SLOT_OPTIONAL},
    {"skip", "()", "not 0: change nothing", AMBI_SLOT_NO_GRAD | AMBI_SLOT_OPTIONAL | AMBI_SLOT_INTEGER},
    {"p_out", "(..)", "new parameters", AMBI_SLOT_OUTPUT | AMBI_SLOT_NO_GRAD},
    {"m_out", "(..)", "new first moment", AMBI_SLOT_OUTPUT | AMBI_SLOT_NO_GRAD},
    {"v_out", "(..)", "new second moment", AMBI_SLOT_OUTPUT | AMBI_SLOT_NO_GRAD},
    {"p_copy", "(..)", "new parameters again, in another dtype", OPTIONAL_OUTPUT | AMBI_SLOT_NO_GRAD},
    {"step_out", "()", "step + 1", OPTIONAL_OUTPUT | AMBI_SLOT_NO_GRAD | AMBI_SLOT_INTEGER},
};

#define BELOW_ONE 0.999999
static const ambi_attr_info attributes[] = {
    {"beta1", "decay of m", AMBI_ATTR_F64, offsetof(ambi_op, u.adamw.beta1), 0.9, 0, BELOW_ONE, NULL},
    {"beta2", "decay of v", AMBI_ATTR_F64, offsetof(ambi_op, u.adamw.beta2), 0.999, 0, BELOW_ONE, NULL},
    {"eps", "added to sqrt(vhat)", AMBI_ATTR_F64, offsetof(ambi_op, u.adamw.eps), 1e-8, 0, DBL_MAX, NULL},
    {"weight_decay", "of p, times lr", AMBI_ATTR_F64, offsetof(ambi_op, u.adamw.weight_decay), 0, 0, DBL_MAX, NULL},
};

static const int8_t in_place[][2] = {{P_OUT, P}, {M_OUT, M}, {V_OUT, V}, {STEP_OUT, STEP}, {-1, -1}};

static ambi_status count(problem *p, int slot, ambi_dtype dtype) {
  TRY(expect_one(p, slot, dtype));
  if (!has_slot(p, slot) || p->t[slot].dtype != AMBI_U8) return AMBI_OK;
  return fail_slot(AMBI_INVALID, p, slot, "expected dtype i32 or i64, got u8");
}

static ambi_status shapes(problem *p) {
  static const int like_p[] = {G, P_OUT, P_COPY};
  for (int i = 0; i < 3; i++) TRY(expect_like(p, like_p[i], P));
  TRY(expect_like(p, M, P));
  TRY(expect_like(p, V, P));
  TRY(expect_like(p, M_OUT, M));
  TRY(expect_like(p, V_OUT, V));
  TRY(expect_one(p, LR, AMBI_F32));
  TRY(expect_one(p, SCALE, AMBI_F32));
  TRY(expect_one(p, SKIP, AMBI_I32));
  TRY(count(p, STEP, AMBI_I64));
  return count(p, STEP_OUT, p->t[STEP].dtype);
}

static ambi_status recipe(problem *p) {
  uint32_t elements = (p->reads | p->writes) & ~(uint32_t)SCALARS;
  grid_make(&elementwise(p)->all, p, elements, 0, p->t[P].ndim, true);
  p->flops = 14 * (uint64_t)ambi_numel(&p->t[P]);
  p->compute = AMBI_F32;
  for (uint32_t m = elements; m; m &= m - 1) /* an lr in f64 does not make the arithmetic f64 */
    if (p->t[__builtin_ctz(m)].dtype == AMBI_F64) p->compute = AMBI_F64;
  return AMBI_OK;
}

const op_def adamw_op = {
    .info = {.name = "adamw",
             .formula =
                 "t = step + 1;  m_out = beta1 m + (1 - beta1) scale g;  v_out = beta2 v + (1 - beta2) (scale g)^2;  "
                 "p_out = p (1 - lr weight_decay) - lr mhat / (sqrt(vhat) + eps);  mhat = m_out / (1 - beta1^t);  "
                 "vhat = v_out / (1 - beta2^t)",
             .gradient = "",
             .doc = "One step of Adam with decoupled weight decay.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 0,
             .in_place = in_place},
    .shapes = shapes,
    .recipe = recipe,
};
