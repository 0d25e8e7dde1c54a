/* rows.c -- how rows are given to threads. */
#include "backends/cuda/rows.h"

#include "backends/cuda/text.h"

/* As few threads as let each hold `each` values: fewer threads reduce faster, more rows are under way. A single warp
 * may hold half as many again: it needs no barrier. */
static int group_for(int64_t cols, int64_t vec, int64_t each, bool queued) {
  int64_t vectors = ceil_div(cols, vec), own = each > vec ? each / vec : 1, least = ceil_div(vectors, 1024);
  if (queued && ceil_div(vectors, 32) * vec <= each + each / 2) return 32;
  if (own < least) own = least;
  int64_t warps = ceil_div(vectors, 32 * own);
  return warps < 1 ? 32 : (int)warps * 32;
}

/* A slot with a row for each of the grid's */
static bool has_rows(const cuda_plan *k, uint32_t scalars, int s) {
  return ((k->p->reads | k->p->writes) & ~scalars & AMBI_BIT(s)) && k->p->t[s].ndim > 1;
}

bool cuda_rows_are_even(const cuda_plan *k, uint32_t scalars) {
  const grid *g = &rows_of(k->p)->rows;
  for (int s = 0; s < AMBI_SLOTS; s++)
    for (int i = 0; i < g->ndim && has_rows(k, scalars, s); i++)
      if (!whole_words(g->stride[s][i], k->p->t[s].dtype)) return false;
  return true;
}

/* By how many elements a row's beginning moves from a multiple of vec to the next row's, where that is the same number
 * in all slots; else -1. Rows must follow each other upwards: what lies before a row belongs to the tensor. */
static int64_t phase_step(const cuda_plan *k, uint32_t scalars, int64_t vec) {
  const rows_recipe *r = rows_of(k->p);
  int64_t step = -1;
  for (int s = 0; s < AMBI_SLOTS && r->rows.ndim <= 1; s++) {
    if (!has_rows(k, scalars, s)) continue;
    int64_t stride = r->rows.ndim ? r->rows.stride[s][0] : 0;
    if ((r->rows.ndim && stride < r->cols) || (step >= 0 && stride % vec != step)) return -1;
    step = stride % vec;
  }
  return step;
}

static int64_t period_of(int64_t step, int64_t vec) {
  int64_t period = 1;
  while (step * period % vec) period *= 2;
  return period;
}

/* Bytes that a block's threads hold of a row in a queue */
static int64_t queue_row(const cuda_plan *k, const row_split *r, uint32_t queued) {
  int64_t bytes = 0;
  for (uint32_t m = queued & k->p->reads; m; m &= m - 1) bytes += dtype_bytes(k->p->t[__builtin_ctz(m)].dtype);
  return bytes * r->chunks * r->vec * r->group * r->groups;
}

/* As many rows under way as help, of the blocks that share a multiprocessor; 0: not even one fits. */
static int64_t queue_stages(const cuda_plan *k, const row_split *r, row_wishes w) {
  const int64_t enough = 160 << 10, own = 4096;
  int64_t row = queue_row(k, r, w.queued), stages = 4;
  while (stages > 1 && stages * row * r->at_once > enough) stages /= 2;
  return stages * row + own <= k->dev->shared_bytes ? stages : 0;
}

static int blocks_at_once(const row_split *r, row_wishes w) {
  int threads = r->group * r->groups, blocks = (w.resident + threads / 2) / threads;
  return blocks > 1 ? blocks : 1;
}

static void say_rows(cuda_plan *k, const row_split *r, int64_t step) {
  const rows_recipe *recipe = rows_of(k->p);
  cuda_grid(k, "ROW", &recipe->rows);
  cuda_number(k, "ROWS", r->rows);
  cuda_number(k, "COLS", recipe->cols);
  cuda_fix(k, "VEC", r->vec);
  cuda_fix(k, "GROUP", r->group);
  cuda_fix(k, "GROUPS", r->groups);
  cuda_fix(k, "KEEP", r->keep);
  cuda_fix(k, "COLS_FIT_INT", k->special && recipe->cols <= 1 << 30);
  cuda_fix(k, "UNEVEN", r->period > 1);
  cuda_number(k, "PHASE_STEP", step);
  cuda_fix(k, "EXACT", r->keep && r->period == 1 && recipe->cols == r->chunks * r->group * r->vec);
  (r->keep ? cuda_fix : cuda_number)(k, "CHUNKS", r->chunks);
  if (k->special)
    cuda_fix(k, "COL_STRIDE(s)", 1);
  else
    cuda_strides(k, "COL", recipe->col_stride);
  cuda_part(k, rows_cu);
}

row_split cuda_rows(cuda_plan *k, uint32_t scalars, row_wishes w) {
  const rows_recipe *r = rows_of(k->p);
  row_split split = {.rows = r->cols ? r->rows.count : 0, .vec = 1, .group = 128, .groups = 1, .period = 1};
  int64_t vec = cuda_vector(k, ~scalars), step = 0, stages = 0;
  bool fast = cuda_specialise(k, vec > 1);
  if (!cuda_rows_are_even(k, scalars)) step = w.phases ? phase_step(k, scalars, vec) : -1;
  if (step < 0) vec = 1; /* neighbours still read neighbours, as straddling vectors would not */
  if (fast && vec > 1) split.period = period_of(step, vec);
  int64_t reach = r->cols + (split.period > 1 ? vec - 1 : 0); /* columns from a multiple of vec on */
  if (fast) split.vec = vec, split.group = group_for(reach, vec, w.each, w.queued != 0);
  if (split.group == 32) split.groups = 4;
  split.chunks = ceil_div(reach, split.group * split.vec);
  split.keep = fast && vec > 1 && split.chunks * vec <= w.registers;
  split.at_once = blocks_at_once(&split, w);
  if (split.keep && w.queued) stages = queue_stages(k, &split, w), split.keep = stages > 0;
  if (!split.keep) split.at_once = blocks_at_once(&split, (row_wishes){.resident = 2048});
  split.shared = stages * queue_row(k, &split, w.queued);
  k->variant = !fast ? "general" : split.keep ? "rows" : "long rows";
  say_rows(k, &split, step > 0 ? step : 0);
  cuda_fix(k, "QUEUED", stages > 0);
  if (w.queued) cuda_fix(k, "STAGES", stages);
  if (w.resident) cuda_fix(k, "AT_ONCE", split.at_once);
  return split;
}

int64_t cuda_row_blocks(const cuda_plan *k, row_split r) {
  int64_t wanted = ceil_div(r.rows, r.groups), fit = r.shared ? (220 << 10) / (r.shared + 1024) : r.at_once;
  int64_t blocks = cuda_blocks(k, wanted, fit < 1 ? 1 : fit < r.at_once ? fit : r.at_once);
  if (blocks == wanted) return blocks;
  blocks = ceil_div(wanted, ceil_div(wanted, blocks));
  int64_t period = r.groups % r.period ? r.period : 1; /* in blocks */
  return blocks > period ? blocks - blocks % period : period;
}

void cuda_launch_sum(cuda_plan *k, const char *kernel) {
  cuda_launch(k, kernel, ceil_div(rows_of(k->p)->cols, 32), 1, 32, 32, 0);
}
