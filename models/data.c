/* data.c -- see data.h. */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"
#include "dice.h"
#include "maps.h"

/* ---- reading ---- */

static int append(dataset *d, const int32_t *ids, int64_t count) {
  if (d->count + count > d->room) {
    int64_t room = d->room ? d->room : 1 << 16;
    while (room < d->count + count) room *= 2;
    int32_t *grown = realloc(d->token, (size_t)room * sizeof *grown);
    if (!grown) return 0;
    d->token = grown;
    d->room = room;
  }
  if (count) memcpy(d->token + d->count, ids, (size_t)count * sizeof *ids);
  d->count += count;
  return 1;
}

int dataset_add_text(dataset *d, const tokenizer *t, const char *text, size_t bytes, char *err, size_t n) {
  int32_t *ids = NULL, end = tokenizer_eos(t);
  int64_t count = tokenizer_encode(t, text, bytes, &ids);
  int ok = count >= 0 && append(d, ids, count) && (end < 0 || append(d, &end, 1));
  free(ids);
  d->bytes += (int64_t)bytes;
  d->files++;
  return ok ? 1 : (snprintf(err, n, "out of memory for the tokens of the text"), 0);
}

typedef struct {
  dataset *d;
  const tokenizer *t;
} destination;

static int add_file(void *context, const char *path, int named, char *err, size_t n) {
  const destination *to = context;
  size_t bytes;
  char *text = file_read_or_input(path, (size_t)1 << 34, &bytes, err, n);
  if (!text) return 0;
  int binary = !named && memchr(text, 0, bytes) != NULL;
  int ok = binary || dataset_add_text(to->d, to->t, text, bytes, err, n);
  to->d->binary += binary;
  free(text);
  return ok;
}

int dataset_add_path(dataset *d, const tokenizer *t, const char *path, char *err, size_t n) {
  destination to = {d, t};
  return files_below(path, add_file, &to, err, n);
}

/* ---- blocks ---- */

const char *dataset_describe(const dataset *d, char *out, size_t n) {
  const int said = snprintf(out, n, "%lld token%s", (long long)d->count, d->count == 1 ? "" : "s");
  if (d->binary && said > 0 && (size_t)said < n)
    snprintf(out + said, n - (size_t)said, " (%lld binary file%s left out)", (long long)d->binary,
             d->binary == 1 ? "" : "s");
  return out;
}

int dataset_split(dataset *d, const tokenizer *t, double val, int64_t length, char *err, size_t n) {
  const int64_t needed = 4 * (length + 1);
  char has[100];
  if (d->count < needed)
    return snprintf(err, n, "the text has %s; rows of %lld need at least %lld: give more text, or a smaller --seq",
                    dataset_describe(d, has, sizeof has), (long long)length, (long long)needed),
           0;
  d->ids = tokenizer_size(t);
  d->length = calloc((size_t)d->ids, sizeof *d->length);
  if (!d->length) return snprintf(err, n, "out of memory"), 0;
  for (int64_t i = 0; i < d->ids; i++) {
    size_t bytes;
    tokenizer_token(t, (int32_t)i, &bytes);
    d->length[i] = tokenizer_is_special(t, (int32_t)i) ? 0 : (int64_t)bytes;
  }
  const double every = val > 0 ? 1 / val + 0.5 : 0;
  d->every = every < (double)d->count ? (int64_t)every : d->count; /* so rare that there is none */
  if (d->every == 1) d->every = 2;
  d->block = 4096;
  /* A few validation blocks at least, each long enough for a row. */
  while (d->every && d->block > 2 * (length + 1) && d->count / d->block < 8 * d->every) d->block /= 2;
  if (d->block < length + 1) d->block = length + 1;
  if (d->every && d->count / d->block < d->every) d->every = 0;
  return 1;
}

void dataset_free(dataset *d) {
  free(d->token);
  free(d->length);
  *d = (dataset){0};
}

/* Whole blocks for validation. */
static int64_t validation_blocks(const dataset *d) { return d->every ? d->count / d->block / d->every : 0; }

int64_t dataset_tokens(const dataset *d, int validation) {
  int64_t held = validation_blocks(d) * d->block;
  return validation ? held : d->count - held;
}

uint64_t dataset_hash(const dataset *d) {
  return hash_bytes((const char *)d->token, (size_t)d->count * sizeof *d->token);
}

/* Whether tokens first .. first + length all are for training. */
static int is_training(const dataset *d, int64_t first, int64_t length) {
  if (!d->every) return 1;
  for (int64_t b = first / d->block; b <= (first + length - 1) / d->block; b++) {
    if (b % d->every == d->every - 1 && b / d->every < validation_blocks(d)) return 0;
  }
  return 1;
}

static void take(const dataset *d, int64_t first, int64_t length, int32_t *tokens, int32_t *targets) {
  memcpy(tokens, d->token + first, (size_t)length * sizeof *tokens);
  memcpy(targets, d->token + first + 1, (size_t)length * sizeof *targets);
}

void dataset_row(const dataset *d, uint64_t seed, uint64_t row, int64_t length, int32_t *tokens, int32_t *targets) {
  dice hash = {seed, row}, r = {dice_bits(&hash), 0};
  int64_t first = 0;
  for (int tries = 0; tries < 1000; tries++) { /* most are right the first time */
    first = (int64_t)dice_below(&r, (uint64_t)(d->count - length));
    if (is_training(d, first, length + 1)) break;
  }
  for (int64_t i = 0; i < d->count - length && !is_training(d, first, length + 1); i++) /* nearly none is */
    first = (first + 1) % (d->count - length);
  take(d, first, length, tokens, targets);
}

int64_t dataset_validation_row(const dataset *d, int64_t row, int64_t rows, int64_t length, int32_t *tokens,
                               int32_t *targets) {
  const int64_t blocks = validation_blocks(d), fits = d->block / (length + 1), all = blocks * fits;
  if (all == 0) return 0;
  const int64_t at = rows < all ? row * all / rows : row % all;
  take(d, (at / fits * d->every + d->every - 1) * d->block + at % fits * (length + 1), length, tokens, targets);
  int64_t bytes = 0;
  for (int64_t i = 0; i < length; i++) bytes += targets[i] < d->ids ? d->length[targets[i]] : 0;
  return bytes;
}
