/* trainer.h -- a training step: tokens in; forward, backward, clipping and AdamW on the device; a few numbers out.
 *
 * Where the device has graphs the whole step is recorded once and replayed. Nothing is allocated after trainer_create.
 */
#ifndef MODELS_TRAINER_H
#define MODELS_TRAINER_H
#include "optimizer.h"

typedef struct {
  int64_t batch, length; /* rows and tokens of a row on the device at once */
  int64_t parts;         /* of a step: gradients of that many batches are added up; 0 = 1 */
  int recompute;         /* activations of each layer twice instead of keeping them */
  int forward_only;
  optimizer_options optimizer;
} trainer_options;

typedef struct {
  model *m;
  trainer_options options;
  optimizer o;
  tape *t;
  ambi_plan *zero; /* parts > 1: of the gradients before the first part */
  value logits, loss;
  ambi_buf tokens, targets; /* i32 (batch length) */
  ambi_graph *graph;        /* of forward and backward, and of the optimizer when parts is 1 */
  int tried_graph;
} trainer;

int trainer_create(trainer *r, model *m, const trainer_options *o, char *err, size_t n);
void trainer_destroy(trainer *r);

/* Loss of a batch: no gradients, parameters stay. target < 0: that token does not count. */
int trainer_loss(trainer *r, const int32_t *tokens, const int32_t *targets, double *loss, char *err, size_t n);
/* Part `part` of a step; after the last one the parameters have moved. Does not wait for the device. */
int trainer_part(trainer *r, int64_t part, const int32_t *tokens, const int32_t *targets, double lr, char *err,
                 size_t n);
/* Of the last part or step: waits. */
int trainer_numbers(const trainer *r, double v[NUMBERS], char *err, size_t n);

#endif
