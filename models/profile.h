/* profile.h -- where the time of a training step goes: every op of the tape timed by itself, added up by kernel. */
#ifndef MODELS_PROFILE_H
#define MODELS_PROFILE_H
#include "trainer.h"

typedef struct {
  char name[96]; /* "selective_scan backward" */
  int64_t runs;  /* of a step */
  double seconds;
} profile_row;

/* Rows by falling time, malloc'd, and how many; -1: err says why. Parameters move as in a step. */
int64_t profile_step(trainer *r, profile_row **rows, char *err, size_t n);

#endif
