/* vectors.h -- agreement with numbers that another program computed: DIR/ops.json and DIR/ops.safetensors. */
#ifndef CLI_VECTORS_H
#define CLI_VECTORS_H
#include "exec.h"

typedef struct {
  int64_t passed, failed; /* comparisons: one tensor of one case in one dtype */
  int64_t skipped;        /* cases of ops that the library or the device does not have */
} vectors_result;

typedef struct {
  const char *op;    /* only cases of that op, or NULL               */
  int64_t jobs, job; /* only each jobs-th case, from number job on   */
  int verbose;
} vectors_choice;

/* Runs the cases of `dir` on `dev` in f64, f32, f16 and bf16, forward and backward, and adds to *r. Failures and
 * skipped cases are printed, with `verbose` every comparison. 0, or -1 when the files could not be read, which is
 * printed and counted as one failure. */
int vectors_check(const target *dev, const target *ref, const char *dir, const vectors_choice *choice,
                  vectors_result *r);

#endif
