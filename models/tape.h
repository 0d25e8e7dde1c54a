/* tape.h -- ops written down once and run many times; the backward pass is derived from what was written.
 *
 *   tape *t = tape_create(dev);
 *   value x = tape_fixed(t, &shape, buf), w = tape_weight(t, &wshape, wbuf, &dwshape, dwbuf);
 *   value io[AMBI_MAX_PRIMALS] = {[AMBI_LINEAR_X] = x, [AMBI_LINEAR_W] = w};
 *   value y = tape_op(t, &(ambi_op){.kind = AMBI_LINEAR}, io, AMBI_LINEAR_Y);       outputs appear in io as well
 *   ..                                                                              down to one number, the loss
 *   tape_backward(t, loss, one);                                                    one: where dloss lies
 *   if (tape_finish(t) != AMBI_OK) puts(tape_error(t));                             now everything has its place
 *   tape_run(t, stream);                                                            again and again
 *
 * A value is a view of a storage. Storages that the caller did not bring are laid out in one buffer, each only for the
 * steps between its first and its last use, so nothing is allocated after tape_finish.
 * The gradient of a storage lies in its twin, view by view: views of one storage whose gradients are both written must
 * be the same view (it is then a sum) or not overlap.
 * The first failure is kept: what follows does nothing, and tape_finish reports it. */
#ifndef MODELS_TAPE_H
#define MODELS_TAPE_H
#include <ambi/ambi.h>

typedef struct tape tape;
typedef int32_t value; /* 0: none */

tape *tape_create(ambi_device *dev); /* NULL: no memory */
void tape_destroy(tape *t);

/* ---- values ---- */
value tape_fixed(tape *t, const ambi_tensor *shape, ambi_buf at); /* the caller's memory, no gradient        */
value tape_weight(tape *t, const ambi_tensor *shape, ambi_buf at, const ambi_tensor *grad, ambi_buf grad_at);
value tape_new(tape *t, const ambi_tensor *shape); /* to be an op's output                     */
value tape_view(tape *t, value v, const ambi_tensor *shape, int64_t element); /* begins at that element of v      */
void tape_keep(tape *t, value v); /* what it holds is read after the run      */
/* After tape_finish: a value of tape_fixed lies elsewhere from now on. */
void tape_move(tape *t, value v, ambi_buf at);
ambi_tensor tape_tensor(const tape *t, value v);
ambi_buf tape_buffer(const tape *t, value v); /* after tape_finish                        */

/* ---- ops ---- */
/* io[slot] are the inputs; an output is io[slot] if given, else made, and put there: those the op must write, and those
 * of op->want. Returns io[result]. Descriptions of tensors come from the values. */
value tape_op(tape *t, const ambi_op *op, value io[AMBI_MAX_PRIMALS], int result);
/* Forward of what is written between the two is done again in backward instead of being kept. */
void tape_segment_begin(tape *t);
void tape_segment_end(tape *t);
/* Gradients of weights are added to what their buffers hold. Before tape_backward. */
void tape_accumulate(tape *t);
void tape_backward(tape *t, value loss, value dloss);

ambi_status tape_finish(tape *t);
const char *tape_error(const tape *t);
ambi_status tape_run(const tape *t, ambi_stream *s);

/* ---- what it came to ---- */
typedef struct {
  int64_t steps;      /* ambi_run calls of a run   */
  uint64_t arena;     /* bytes of activations      */
  uint64_t workspace; /* bytes                     */
  uint64_t flops;     /* of a run                  */
} tape_size;
tape_size tape_get_size(const tape *t);

/* Step i in order of running: what it does, for profiles and reports. 0 past the last. */
typedef struct {
  ambi_kind kind;
  ambi_pass pass;
  const char *kernel;
} tape_step_info;
int tape_step(const tape *t, int64_t i, tape_step_info *info);
ambi_status tape_run_step(const tape *t, int64_t i, ambi_stream *s);
/* A slot that step i looks at; 0 when it does not. */
typedef struct {
  ambi_tensor tensor;
  ambi_buf at;
  int written;
} tape_slot;
int tape_step_slot(const tape *t, int64_t i, int slot, tape_slot *s);

#endif
