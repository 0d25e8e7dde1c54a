/* model.h -- a language model on a device: its parameters in a few large buffers, and its layers as ops on a tape.
 *
 *   model m;
 *   if (!model_create(&m, dev, &config, AMBI_BF16, MODEL_TRAINS, err, sizeof err)) ..
 *   model_init(&m, seed, ..);                              or checkpoint_load
 *   tape *t = tape_create(dev);
 *   value logits = model_forward(&m, t, batch, length, tokens, NULL, 0);       (batch length, vocabulary)
 *
 * With f16 or bf16 the parameters stay in f32 and the matrices are kept a second time in the short dtype. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H
#include "params.h"
#include "tape.h"

enum { MODEL_TRAINS = 1 }; /* gradients too */

typedef struct {
  ambi_device *dev;
  ambi_stream *stream;
  model_config config;
  param_list params;
  ambi_dtype dtype;                /* of matrices and activations */
  ambi_dtype master;               /* of parameters, gradients and norms: f32, or f64 */
  ambi_buf weights, shorts, grads; /* params.size, params.decayed, params.size elements */
} model;

int model_create(model *m, ambi_device *dev, const model_config *c, ambi_dtype dtype, int flags, char *err, size_t n);
void model_destroy(model *m);
/* After ambi_alloc has failed: how much the parameters take, and what training puts beside each; 0. */
int model_too_large(const model *m, int flags, char *err, size_t n);
/* Fresh parameters. */
int model_init(model *m, uint64_t seed, char *err, size_t n);
/* One parameter, or its gradient, or whatever is laid out like it, to and from the host. */
int model_put(model *m, ambi_buf list, const param *p, const double *from, char *err, size_t n);
int model_get(const model *m, ambi_buf list, const param *p, double *to, char *err, size_t n);
/* After parameters were put: the short copies follow. */
int model_round(model *m, char *err, size_t n);

/* Numbers of a floating dtype, however aligned, as doubles. */
void model_values(ambi_dtype dtype, const void *from, double *to, int64_t count);

/* ---- what a model remembers between calls, to go on where it stopped ---- */
typedef struct {
  const model *m;
  int64_t batch, room; /* room: tokens of the key and value caches */
  int64_t at;          /* tokens seen */
  ambi_buf memory;     /* of all layers */
  uint64_t bytes;
  uint64_t offset[CONFIG_MAX_LAYERS][2]; /* conv and state; or keys and values */
  ambi_buf positions, lengths;           /* i32: of the tokens of a call, and of the caches */
} model_state;

int state_create(model_state *s, const model *m, int64_t batch, int64_t room, char *err, size_t n);
int state_reset(model_state *s, char *err, size_t n);
void state_destroy(model_state *s);

/* ---- layers ---- */
enum { MODEL_RECOMPUTES = 1 }; /* activations of a layer are computed again in backward, not kept */

/* A call of the model on `batch` rows of `length` tokens each. */
typedef struct {
  const model *m;
  tape *t;
  int64_t batch, length;
  model_state *state; /* NULL: every row begins here */
  int flags;
  value residual, branch; /* the sum of the layers so far, and the last one, which is not in it yet */
  value keys[CONFIG_MAX_LAYERS], values[CONFIG_MAX_LAYERS]; /* where this call's go in the caches */
} model_call;

/* tokens (batch length), i32. Returns the logits. */
value model_forward(model_call *c, value tokens);
/* Before each run of a call with a state: tells it where it is. */
int model_advance(model_call *c, char *err, size_t n);

#endif
