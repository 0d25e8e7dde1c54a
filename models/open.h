/* open.h -- a model folder, ready to run: a checkpoint, a run (its newest checkpoint), or what transformers saved. */
#ifndef MODELS_OPEN_H
#define MODELS_OPEN_H
#include "model.h"
#include "tokenizer.h"

typedef struct {
  model m;
  tokenizer *tokens;
  char folder[4096]; /* where it was found */
} opened;

/* tokenizer_file NULL: FOLDER/tokenizer.json where it is there, otherwise bytes. */
int model_open(opened *o, const char *folder, const char *tokenizer_file, ambi_device *dev, ambi_dtype dtype, char *err,
               size_t n);
void model_close(opened *o);

#endif
