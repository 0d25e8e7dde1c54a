/* progress.h -- what a training run shows: one line that is written over on a terminal, plain lines elsewhere. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H
#include "../models/training.h"

typedef struct {
  int terminal, quiet;
  int64_t steps;
  double val_bits; /* of the last evaluation; 0: none yet */
  double shown;    /* when the last line was */
  int open;        /* the cursor is behind an unfinished line */
} progress;

void progress_begin(progress *p, int64_t steps, int quiet);
training_hooks progress_hooks(progress *p, volatile int *stop);
/* A training_hooks.profile: prints the table. */
void progress_profile(void *context, const profile_row *rows, int64_t count);
void progress_end(progress *p);

#endif
