/* work.h -- an op with memory behind it: a plan, a heap block of the exact size for every slot, and the workspace. */
#ifndef AMBI_TEST_WORK_H
#define AMBI_TEST_WORK_H
#include <ambi/ambi.h>

typedef struct {
  ambi_plan *plan;
  ambi_plan_info info;
  ambi_op op;                /* every slot that takes part described                               */
  ambi_buf buf[AMBI_SLOTS];  /* for ambi_run                                                       */
  char *block[AMBI_SLOTS];   /* the memory, from the lowest element ..                             */
  int64_t bytes[AMBI_SLOTS]; /* .. to the highest                                                  */
  ambi_buf workspace;
} work;

/* One of tests/cases.h as an op. 0, or -1 when this build has no such op; a case that is wrong ends the program. */
int work_case(const char *text, ambi_dtype dtype, ambi_op *op);
/* The backward pass of a forward op: saved outputs are described, gradients arrive on every output that takes one.
 * 0, or -1 when the op has none. */
int work_backward(ambi_device *dev, const ambi_op *forward, ambi_op *op);

/* Plans `op` and allocates what it looks at. AMBI_OK, or the plan's status. AMBI_NO_MEMORY when a slot or the workspace
 * is above `most` bytes. */
ambi_status work_make(ambi_device *dev, const ambi_op *op, int64_t most, work *w);
void work_free(work *w);
/* Inputs: values that suit the op, chosen by seed. Outputs: a pattern. */
void work_fill(work *w, uint64_t seed);
/* The pattern again. */
void work_poison(work *w);
ambi_status work_run(const work *w, ambi_stream *s);

/* A hash of every byte of every slot that is written. */
uint64_t work_hash(const work *w);

#endif
