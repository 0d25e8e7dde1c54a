/* rows.h -- how rows are given to threads: the numbers that rows.cu wants. */
#ifndef AMBI_CUDA_ROWS_H
#define AMBI_CUDA_ROWS_H
#include "backends/cuda/cuda.h"
#include "ops/rows.h"

typedef struct {
  int64_t each;      /* values of a row that a thread gets, as long as there are threads */
  int64_t registers; /* how many it may keep in registers: longer rows are read again */
  bool phases;       /* the kernels take rows that begin anywhere: see PHASE in rows.cu */
  uint32_t queued;   /* slots whose rows wait in shared memory until their turn comes: see queue.cu */
  int resident;      /* threads of a multiprocessor, about: AT_ONCE blocks */
} row_wishes;

typedef struct {
  int64_t rows, vec, chunks;
  int64_t period;    /* of phases: rows that many apart begin alike */
  int group, groups; /* threads to a row; rows a block works on at once */
  int at_once;       /* blocks of a multiprocessor */
  int64_t shared;    /* bytes of a block's queue */
  bool keep;
} row_split;

/* Every row begins at a multiple of 16 bytes if the first does. `scalars`: slots with one element a row. */
bool cuda_rows_are_even(const cuda_plan *k, uint32_t scalars);

/* Says all the numbers, adds the part, and returns what launches need. */
row_split cuda_rows(cuda_plan *k, uint32_t scalars, row_wishes wishes);

/* Blocks for all rows, as many as the multiprocessors hold at once. With more, those that start last would still be at
 * work when the others are done; as few as take the same number of rounds. A group's rows all have the same phase. */
int64_t cuda_row_blocks(const cuda_plan *k, row_split r);

enum { ROW_RUN = 64 }; /* rows that one thread adds up plainly: more would err more */

/* Rows of partial sums over rows: one for each run of each group of threads, or of some rows that are far apart. */
static inline int64_t cuda_row_parts(row_split r, int64_t blocks) {
  if (r.rows == 0 || !r.keep) return r.rows < 64 ? r.rows : 64;
  return blocks * r.groups * ceil_div(ceil_div(r.rows, blocks * r.groups), ROW_RUN);
}

/* Columns of one: those beyond the row too where threads keep them (by_thread in norm.cu) */
static inline int64_t cuda_part_width(row_split r, int64_t cols) { return r.keep ? r.chunks * r.group * r.vec : cols; }

/* A block of 32 x 32 threads for every 32 columns: what sum_parts wants. */
void cuda_launch_sum(cuda_plan *k, const char *kernel);

#endif
