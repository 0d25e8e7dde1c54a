/* rows.c -- how rows are given to threads. */
#include "backends/cuda/rows.h"

#include "backends/cuda/text.h"

/* As few threads as let each hold `each` values, or a few more: fewer threads reduce faster, more rows are under way.
 */
static int group_for(int64_t cols, int64_t vec, int64_t each) {
  int group = 32;
  while (group < 1024 && (int64_t)group * each < cols - cols / 8) group *= 2;
  while (group > 32 && (int64_t)group / 2 * vec >= cols) group /= 2;
  return group;
}

/* Every row begins at a multiple of 16 bytes if the first does. Otherwise threads take one element each:
 * neighbours still read neighbours, as straddling vectors would not. */
static bool rows_are_even(const cuda_plan *k, uint32_t scalars) {
  const grid *g = &rows_of(k->p)->rows;
  for (uint32_t m = (k->p->reads | k->p->writes) & ~scalars; m; m &= m - 1) {
    int s = __builtin_ctz(m);
    for (int i = 0; i < g->ndim; i++)
      if (k->p->t[s].ndim > 1 && g->stride[s][i] * dtype_bytes(k->p->t[s].dtype) % 16) return false;
  }
  return true;
}

row_split cuda_rows(cuda_plan *k, uint32_t scalars, int64_t each, int64_t registers) {
  const rows_recipe *r = rows_of(k->p);
  row_split split = {.rows = r->cols ? r->rows.count : 0, .vec = 1, .group = 128, .groups = 1};
  int64_t vec = cuda_vector(k, ~scalars);
  bool fast = cuda_specialise(k, vec > 1);
  if (!rows_are_even(k, scalars)) vec = 1;
  if (fast) split.vec = vec, split.group = group_for(r->cols, vec, each);
  if (split.group == 32) split.groups = 4;
  split.chunks = ceil_div(r->cols, split.group * split.vec);
  split.keep = fast && split.chunks * split.vec <= registers;
  k->variant = !fast ? "general" : split.keep ? "rows" : "long rows";
  cuda_grid(k, "ROW", &r->rows);
  cuda_number(k, "ROWS", split.rows);
  cuda_number(k, "COLS", r->cols);
  cuda_fix(k, "VEC", split.vec);
  cuda_fix(k, "GROUP", split.group);
  cuda_fix(k, "GROUPS", split.groups);
  cuda_fix(k, "KEEP", split.keep);
  cuda_fix(k, "EXACT", split.keep && r->cols == split.chunks * split.group * split.vec);
  (split.keep ? cuda_fix : cuda_number)(k, "CHUNKS", split.chunks);
  if (fast)
    cuda_fix(k, "COL_STRIDE(s)", 1);
  else
    cuda_strides(k, "COL", r->col_stride);
  cuda_part(k, rows_cu);
  return split;
}

void cuda_launch_sum(cuda_plan *k, const char *kernel) {
  cuda_launch(k, kernel, ceil_div(rows_of(k->p)->cols, 32), 1, 32, 32, 0);
}
