/* run_folder.h -- the folder of a training run: its log, its checkpoints, its report. */
#ifndef MODELS_RUN_FOLDER_H
#define MODELS_RUN_FOLDER_H
#include <stdio.h>

#include "generator.h"
#include "training.h"

typedef struct {
  const char *folder; /* NULL: nothing is kept */
  FILE *log;
} run_folder;

typedef struct {
  char *data; /* free it */
  size_t bytes;
} run_text;

double run_seconds(void); /* of a clock that only goes forward */

/* Makes or opens the folder; *before: seconds that the log has already, when step is not 0. */
int run_begin(run_folder *r, const training *t, int64_t step, double *before, char *err, size_t n);
void run_log_step(run_folder *r, int64_t step, int64_t tokens, double seconds, const double v[NUMBERS], double lr,
                  double rate);
void run_log_eval(run_folder *r, int64_t step, int64_t tokens, double seconds, double loss, double bits);
void run_log_sample(run_folder *r, int64_t step, const char *text, size_t bytes);
void run_log_skipped(run_folder *r, int64_t step, const char *why);
/* checkpoint-STEP; of older ones only the newest stays. */
int run_save(run_folder *r, const training *t, const optimizer *o, int64_t step, const char *options, char *err,
             size_t n);
/* The last line and the report. ok: whether err is still free for what goes wrong here. */
int run_end(run_folder *r, int64_t step, double seconds, const char *why, char *err, size_t n, int ok);

/* The prompt's tokens, malloc'd; NULL or empty: a text begins with its first token, or behind the end of another, or
 * with a new line. -1: no memory. */
int64_t run_prompt(const tokenizer *t, const char *prompt, int32_t **ids);
/* `count` tokens after the prompt (NULL: what begins a text), as text. */
int run_sample(generator *g, const tokenizer *t, const char *prompt, int64_t count, uint64_t seed, run_text *out,
               char *err, size_t n);

#endif
