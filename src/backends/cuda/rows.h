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
 * `registers`: how many values of a row one thread may keep. */
row_split cuda_rows(cuda_plan *k, uint32_t scalars, int64_t registers);

/* A block of 32 x 32 threads for every 32 columns: what sum_parts wants. */
void cuda_launch_sum(cuda_plan *k, const char *kernel);

#endif
