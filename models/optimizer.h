/* optimizer.h -- clipping and AdamW over all parameters of a model: three runs a step, every number that changes from
 * step to step in device memory, so that a recorded graph can be replayed. */
#ifndef MODELS_OPTIMIZER_H
#define MODELS_OPTIMIZER_H
#include "model.h"

typedef struct {
  double beta1, beta2, eps, weight_decay;
  double clip;       /* largest norm of the gradient; 0: any */
  int32_t decay_all; /* norms and biases too */
} optimizer_options;

typedef struct {
  model *m;
  ambi_buf moments[2]; /* laid out like the parameters */
  ambi_buf numbers;    /* see optimizer_number */
  ambi_plan *plan[3];  /* norm; parameters that decay; the others */
  ambi_buf workspace;
} optimizer;

/* Single numbers on the device, a place each. */
typedef enum {
  NUMBER_LOSS,
  NUMBER_NORM,
  NUMBER_SCALE,
  NUMBER_NONFINITE,
  NUMBER_LR,
  NUMBER_STEP,
  NUMBER_DLOSS,
  NUMBERS
} optimizer_number;
ambi_buf optimizer_at(const optimizer *o, optimizer_number which);
ambi_dtype optimizer_dtype(const optimizer *o, optimizer_number which);
int optimizer_set(optimizer *o, optimizer_number which, double v);
/* All of them at once; waits for the device. */
int optimizer_get(const optimizer *o, double v[NUMBERS]);

/* options NULL: only the numbers, for a model that does not learn. */
int optimizer_create(optimizer *o, model *m, const optimizer_options *options, char *err, size_t n);
void optimizer_destroy(optimizer *o);
/* From m->grads: the norm, then the step; nothing changes when the norm is not finite. */
ambi_status optimizer_run(const optimizer *o, ambi_stream *s);

#endif
