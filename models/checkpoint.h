/* checkpoint.h -- a model in a folder, as transformers keeps it: config.json and model.safetensors; beside them
 * optimizer.safetensors, which goes on where training stopped.
 *
 * A checkpoint is written under another name and renamed when it is whole and on the disk. */
#ifndef MODELS_CHECKPOINT_H
#define MODELS_CHECKPOINT_H
#include "tokenizer.h"
#include "trainer.h"

/* Whether FOLDER/model.safetensors has the tensors of such a model, and no others: before memory is taken for it. */
int checkpoint_fits(const model_config *c, const char *folder, char *err, size_t n);
/* Parameters from FOLDER/model.safetensors, of any floating dtype; names and shapes must be those of the model. */
int checkpoint_load(model *m, const char *folder, char *err, size_t n);
/* Moments and steps from FOLDER/optimizer.safetensors. *step: steps done. */
int checkpoint_load_optimizer(optimizer *o, const char *folder, int64_t *step, char *err, size_t n);
/* o may be NULL. extra: text of FOLDER/training.json, or NULL; t: becomes FOLDER/tokenizer.json, or NULL. */
int checkpoint_save(const model *m, const optimizer *o, int64_t step, const char *folder, const char *extra,
                    const tokenizer *t, char *err, size_t n);

void checkpoint_remove(const char *folder);

#endif
