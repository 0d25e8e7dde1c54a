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

/* Whether both files of `dir` can be read; where not, err says which, and why. */
int vectors_readable(const char *dir, char *err, size_t n);

/* Runs the cases of `dir` on `dev` in f64, f32, f16 and bf16, forward and backward, and adds to *r. Failures and
 * skipped cases are printed, with `verbose` every comparison. Files that cannot be read are one failure. */
void vectors_check(const target *dev, const target *ref, const char *dir, const vectors_choice *choice,
                   vectors_result *r);

#endif
