/* pointwise.c -- elementwise ops on CUDA: rows of neighbours, and sums where a gradient repeats an axis. */
#include "backends/cuda/pointwise.h"

#include <stdio.h>

#include "backends/cuda/text.h"

void cuda_function(cuda_plan *k, ambi_function f, double a, double b) {
  cuda_math(k);
  cuda_part(k, function_text[f]);
  cuda_define(k, "VALUE", functions[f].name, "_value");
  cuda_define(k, "GRAD", functions[f].name, "_grad");
  cuda_real(k, "PARAMETER_A", a);
  cuda_real(k, "PARAMETER_B", b);
}

static bool repeats(const grid *g, int slot, int axis) { return g->stride[slot][axis] == 0 && g->shape[axis] != 1; }

static bool is_sum(const grid *g, int slot) {
  for (int i = 0; i < g->ndim; i++)
    if (repeats(g, slot, i)) return true;
  return false;
}

/* The axes of g that `slot` repeats, or the others. */
static grid some_axes(const cuda_plan *k, const grid *g, int slot, bool repeated) {
  grid part = {.count = 1};
  for (int i = 0; i < g->ndim && i < AMBI_MAX_DIMS; i++) {
    if (repeats(g, slot, i) != repeated) continue;
    part.shape[part.ndim] = g->shape[i];
    part.count *= g->shape[i];
    for (uint32_t m = k->p->reads | k->p->writes; m; m &= m - 1)
      part.stride[__builtin_ctz(m)][part.ndim] = g->stride[__builtin_ctz(m)][i];
    part.ndim++;
  }
  return part;
}

/* Output i: KEPT_i elements, each a sum over REST_i points. Runs before anything is overwritten in place. */
static void plan_sum(cuda_plan *k, const grid *g, int i, int slot) {
  static const char *const kernels[] = {"pointwise_sum_0", "pointwise_sum_1"};
  grid kept = some_axes(k, g, slot, false), rest = some_axes(k, g, slot, true);
  char name[32];
  cuda_grid(k, (snprintf(name, sizeof name, "KEEP_%d", i), name), &kept);
  cuda_grid(k, (snprintf(name, sizeof name, "SUM_%d", i), name), &rest);
  cuda_number(k, (snprintf(name, sizeof name, "KEPT_%d", i), name), kept.count);
  cuda_number(k, (snprintf(name, sizeof name, "REST_%d", i), name), rest.count);
  cuda_launch(k, kernels[i], ceil_div(kept.count, 32), 1, 32, 32, 0);
}

line_split cuda_lines(cuda_plan *k, const grid *g, uint32_t slots) {
  grid rows = *g;
  line_split split = {1, g->ndim ? g->shape[g->ndim - 1] : 1, 1};
  int64_t stride[AMBI_SLOTS] = {0}, largest = 1;
  bool dense = g->ndim > 0, even = true;
  if (rows.ndim) rows.ndim--;
  for (int i = 0; i < rows.ndim; i++) split.outer *= rows.shape[i];
  for (uint32_t m = (k->p->reads | k->p->writes) & slots; m; m &= m - 1) {
    int s = __builtin_ctz(m);
    if (g->ndim) stride[s] = g->stride[s][g->ndim - 1];
    dense = dense && stride[s] == 1;
    for (int i = 0; i < rows.ndim; i++) even = even && whole_words(g->stride[s][i], k->p->t[s].dtype);
    if (dtype_bytes(k->p->t[s].dtype) > largest) largest = dtype_bytes(k->p->t[s].dtype);
  }
  dense = cuda_specialise(k, dense);
  /* A word of 16 bytes of the largest dtype: with two, threads would leave gaps between the words that they ask for at
   * once. Uneven rows: neighbours still read neighbours. */
  if (dense && even) split.vec = 16 / largest;
  cuda_fix(k, "VEC", split.vec);
  cuda_fix(k, "WHOLE", dense && split.inner % split.vec == 0);
  cuda_fix(k, "EVEN", dense && even);
  (g->ndim > 1 || !dense ? cuda_number : cuda_fix)(k, "OUTER", split.outer);
  cuda_number(k, "INNER", split.inner);
  cuda_grid(k, "OUTER", &rows);
  if (dense)
    cuda_fix(k, "INNER_STRIDE(s)", 1);
  else
    cuda_strides(k, "INNER", stride);
  cuda_part(k, lines_cu);
  return split;
}

enum { NO_SLOT = 31 };

void cuda_pointwise(cuda_plan *k, cuda_points points) {
  const grid *g = &elementwise(k->p)->all;
  int64_t ins = points.ins ? 0 : NO_SLOT, outs = 0, direct = 0;
  for (int i = 0; i < points.ins; i++) ins |= (int64_t)points.in[i] << 8 * i;
  for (int i = 0; i < points.outs && i < 2; i++) {
    outs |= (int64_t)points.out[i] << 8 * i;
    if (!writes_slot(k->p, points.out[i]) || !is_sum(g, points.out[i])) direct |= 1 << i;
  }
  line_split split = cuda_lines(k, g, ~UINT32_C(0));
  k->variant = k->special ? "pointwise" : "general";
  cuda_fix(k, "IN_SLOTS", ins);
  cuda_fix(k, "OUT_SLOTS", outs);
  cuda_fix(k, "INS", points.ins > 0 ? points.ins : 1);
  cuda_fix(k, "OUTS", points.outs);
  cuda_fix(k, "DIRECT", direct);
  for (int i = 0; i < points.outs && i < 2; i++)
    if (!(direct >> i & 1)) plan_sum(k, g, i, points.out[i]);
  bool any = false;
  for (int i = 0; i < points.outs; i++) any = any || ((direct >> i & 1) && writes_slot(k->p, points.out[i]));
  if (any) cuda_launch(k, "pointwise", ceil_div(line_vectors(split), 256), 1, 256, 1, 0);
  k->last = pointwise_cu;
}
