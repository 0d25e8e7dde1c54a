/* data.h -- text as one list of tokens, cut into blocks; every so many-th block is for validation.
 *
 * A batch is a function of (seed, step, part): nothing has to be remembered to go on where training stopped. */
#ifndef MODELS_DATA_H
#define MODELS_DATA_H
#include "tokenizer.h"

typedef struct {
  int32_t *token;
  int64_t count, room;
  int64_t files, bytes, binary; /* binary: files that were left out as they hold a NUL */
  int64_t *length;              /* bytes of each token id */
  int64_t ids;
  int64_t block, every; /* tokens of a block; block every - 1, 2 every - 1, .. is for validation. every 0: none is */
} dataset;

/* Appends a text, or every file that is named ("-": standard input) or lies below a folder that is; of folders names
 * that begin with a dot, files that hold a NUL and runs of `ambi train` are left out. */
int dataset_add_text(dataset *d, const tokenizer *t, const char *text, size_t bytes, char *err, size_t n);
int dataset_add_path(dataset *d, const tokenizer *t, const char *path, char *err, size_t n);
/* After the last one. val: the part for validation, 0 to 0.5; length: tokens of a row. */
int dataset_split(dataset *d, const tokenizer *t, double val, int64_t length, char *err, size_t n);
void dataset_free(dataset *d);
/* "N tokens", and how many files were left out of it: for who says that it is too short. Returns out. */
const char *dataset_describe(const dataset *d, char *out, size_t n);

int64_t dataset_tokens(const dataset *d, int validation);
/* Of all tokens in their order: other text has another one. Runs keep it. */
uint64_t dataset_hash(const dataset *d);
/* Row `row` of a training batch: tokens, and what follows each. */
void dataset_row(const dataset *d, uint64_t seed, uint64_t row, int64_t length, int32_t *tokens, int32_t *targets);
/* Row `row` of `rows` that are spread evenly over the validation blocks. Returns the bytes of the targets; without a
 * block 0, and no row. */
int64_t dataset_validation_row(const dataset *d, int64_t row, int64_t rows, int64_t length, int32_t *tokens,
                               int32_t *targets);

#endif
