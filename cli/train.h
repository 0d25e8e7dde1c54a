/* train.h -- what `ambi train` was told (train_options.c), and the folder that it alone may write (train_folder.c). */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H
#include "../models/training.h"

enum { TRAIN_PATH = 4096 };
#define NOT_GIVEN INT64_MIN

/* What the command line says; the rest of a run's options are training_options. */
typedef struct {
  const char *model, *size, *device, *dtype, *out, *resume, *tokenizer;
  int64_t width, layers, state, heads, kv_heads, head_dim, mlp, vocab, every, untied, threads;
  int quiet, recompute, profile, other_text;
  training_options o;
  const char **file;  /* the text, NULL-ended; none: ambi's own */
  char command[1000]; /* as it was called, as much of it as there is room for */
} train_arguments;

/* -1 to go on, otherwise the exit status. a->file comes with room for argc + 1, all NULL. */
int train_parse(train_arguments *a, int argc, char **argv);
/* Whether all numbers make sense: those of the command line, or of a checkpoint's training.json. */
int train_in_order(const train_arguments *a, char *err, size_t n);
/* The model that was asked for. */
int train_config(const train_arguments *a, const tokenizer *t, model_config *c, char *err, size_t n);

typedef struct {
  char path[TRAIN_PATH];
  int lock; /* held as long as it is open: of two processes that train in one folder the second is refused */
  int made; /* by this process, beyond the first `there` bytes of the path */
  size_t there;
} train_folder;

/* The run's folder, there and locked: --resume's, --out, which must hold no run, or the first run-N there is not yet.
 */
int train_folder_claim(train_folder *f, const train_arguments *a, char *err, size_t n);
/* Unlocked; gone again when nothing was written into it. */
void train_folder_leave(train_folder *f);

#endif
