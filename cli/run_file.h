/* run_file.h -- FOLDER/run.json: what `ambi train --resume` needs beside a checkpoint. */
#ifndef CLI_RUN_FILE_H
#define CLI_RUN_FILE_H
#include "../models/training.h"
#include "../util/json.h"

typedef struct {
  json_doc *doc; /* owns the texts */
  char *text;
  const char *dtype, *tokenizer, *prompt; /* tokenizer NULL: bytes; prompt NULL: none */
  const char **file;                      /* NULL-ended */
  int64_t count;                          /* tokens of the text; 0: not known */
  uint64_t hash;                          /* of them, dataset_hash; 0: not known */
} run_file;

/* dtype, tokenizer, prompt, count and hash of r, and the files, NULL-ended, whose full paths are kept. */
int run_file_write(const char *folder, const run_file *r, const char *const *file, char *err, size_t n);
int run_file_read(const char *folder, run_file *r, char *err, size_t n);
/* The same, and the options of a checkpoint; o->steps, when it is not 0, replaces theirs. */
int run_file_resume(const char *folder, const char *checkpoint, run_file *r, training_options *o, char *err, size_t n);
void run_file_free(run_file *r);

#endif
