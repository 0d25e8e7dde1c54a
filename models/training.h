/* training.h -- a training run: from options and text to a folder with a model in it.
 *
 *   FOLDER/config.json      the options of the run (training.json of every checkpoint holds them too)
 *   FOLDER/log.jsonl        a line for each step, evaluation, sample and save
 *   FOLDER/checkpoint-N/    the last two, as checkpoint.h has them
 *   FOLDER/report.html      the run, to look at
 * The run can be killed at any moment: what it had saved is whole, and going on from there gives the same losses, bit
 * for bit, as a run that was never stopped. */
#ifndef MODELS_TRAINING_H
#define MODELS_TRAINING_H
#include "checkpoint.h"
#include "data.h"
#include "profile.h"

typedef struct {
  int64_t batch, length, parts, steps, warmup;
  double lr, min_lr; /* min_lr: what the cosine ends at, as a part of lr */
  double beta1, beta2, weight_decay, clip, val;
  int64_t seed;
  int64_t log_every, eval_every, eval_rows, sample_every, sample_tokens, save_every,
      recompute;      /* 0: never; log_every 0: 1 */
  const char *prompt; /* of samples; NULL: what begins a text */
} training_options;

/* What the run tells while it goes on; any may be NULL. */
typedef struct {
  void *context;
  void (*step)(void *context, int64_t step, double loss, double norm, double lr, double tokens_per_s, double left);
  void (*eval)(void *context, int64_t step, double loss, double bits_per_byte);
  void (*sample)(void *context, int64_t step, const char *text, size_t bytes);
  void (*profile)(void *context, const profile_row *rows, int64_t count); /* before the end, when it is there */
  void (*say)(void *context, const char *text);                           /* saves, skipped steps */
  volatile int *stop;                                                     /* not 0: save and end */
} training_hooks;

typedef struct {
  model *m;
  const tokenizer *tokens;
  const char *tokenizer_file; /* its name: it is kept with the checkpoints; NULL: bytes, which need no file */
  const dataset *data;
  const char *folder;
  const char *command; /* as it was called, for the log */
  training_options options;
  training_hooks hooks;
} training;

typedef struct {
  int64_t steps;                  /* done in all */
  int64_t ran;                    /* of them by this call; 0: the numbers of steps are NAN */
  int64_t skipped;                /* of those */
  double loss;                    /* of the last one */
  double val_loss, bits_per_byte; /* of the last evaluation; NAN: none */
  double seconds, tokens_per_s;
  uint64_t device_bytes; /* parameters, gradients, optimizer, activations */
  int stopped;           /* by `stop` */
} training_result;

/* from: a checkpoint's folder to go on from, whose parameters m has already; NULL: begin. */
int training_run(const training *t, const char *from, training_result *result, char *err, size_t n);

/* ---- options in a file ---- */
char *training_options_text(const training_options *o); /* JSON, malloc'd; NULL: no memory */
/* What the file of a checkpoint or a run says; o keeps the rest. */
int training_options_read(const char *path, training_options *o, char *err, size_t n);

/* The newest whole checkpoint of a run; 0 and err when there is none. */
int training_newest(const char *folder, char *path, size_t size, char *err, size_t n);
int64_t training_before(const char *folder, int64_t step); /* that of the newest checkpoint before `step`; -1: none */
/* N of a checkpoint's path, ../checkpoint-N; -1: it is none. */
int64_t training_steps_done(const char *checkpoint);
int training_is_checkpoint(const char *folder);                /* rather than the folder of a run */
double training_rate(const training_options *o, int64_t step); /* learning rate */

#endif
