/* rows.h -- how rows are given to threads: the numbers that rows.cu wants. */
#ifndef AMBI_CUDA_ROWS_H
#define AMBI_CUDA_ROWS_H
#include "backends/cuda/cuda.h"
#include "ops/rows.h"

typedef struct {
  int64_t rows, vec, chunks;
  int group, groups; /* threads to a row; rows a block works on at once */
  bool keep;
} row_split;

/* Says them all, adds the part, and returns what launches need. `scalars`: slots with one element a row.
 * A thread gets about `each` values of a row, as long as there are threads; `registers`: how many it may keep. */
row_split cuda_rows(cuda_plan *k, uint32_t scalars, int64_t each, int64_t registers);

/* Blocks for all rows, as many as the multiprocessors hold at once: `threads` each, as the kernel's bounds say. With
 * more, those that start last would still be at work when the others are done. */
static inline int64_t cuda_row_blocks(const cuda_plan *k, row_split r, int threads) {
  int64_t each = threads / (r.group * r.groups);
  return cuda_blocks(k, ceil_div(r.rows, r.groups), each > 0 ? each : 1);
}

enum { ROW_RUN = 64 }; /* rows that one thread adds up plainly: more would err more */

/* Rows of partial sums over rows: one for each run of each group of threads, or of some rows that are far apart. */
static inline int64_t cuda_row_parts(row_split r, int64_t blocks) {
  if (r.rows == 0 || !r.keep) return r.rows < 64 ? r.rows : 64;
  return blocks * r.groups * ceil_div(ceil_div(r.rows, blocks * r.groups), ROW_RUN);
}

/* A block of 32 x 32 threads for every 32 columns: what sum_parts wants. */
void cuda_launch_sum(cuda_plan *k, const char *kernel);

#endif
