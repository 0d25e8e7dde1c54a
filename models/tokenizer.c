/* tokenizer.c -- what a finished tokenizer answers, and the one that knows bytes alone. */
#include "tokenizer.h"

#include <stdlib.h>

#include "../util/files.h"
#include "tokenizer_parts.h"

/* A BPE that merges nothing, written and read like any other. */
tokenizer *tokenizer_bytes(int end_of_text) {
  char bytes[256];
  const char *tokens[256];
  size_t lengths[256], n = 0;
  for (int i = 0; i < 256; i++) {
    bytes[i] = (char)i;
    tokens[i] = &bytes[i];
    lengths[i] = 1;
  }
  const bpe_text b = {.tokens = tokens,
                      .lengths = lengths,
                      .count = 256,
                      .special = end_of_text ? "<|endoftext|>" : NULL,
                      .special_id = 256};
  char *json = tokenizer_write(&b, &n);
  tokenizer *t = json ? tokenizer_parse(json, n, NULL, 0) : NULL;
  free(json);
  return t;
}

void tokenizer_free(tokenizer *t) {
  if (!t) return;
  for (int i = 0; i < t->n_steps; i++) pattern_free(t->steps[i].cut);
  added_free(&t->raw);
  added_free(&t->normalized);
  text_map_free(&t->vocabulary);
  pair_map_free(&t->merges);
  arena_free(&t->strings);
  free(t->tokens);
  free(t->json);
  free(t);
}

int tokenizer_save(const tokenizer *t, const char *path, char *err, size_t n) {
  return file_write(path, t->json, t->json_bytes, err, n);
}

int32_t tokenizer_size(const tokenizer *t) { return t->size; }
int32_t tokenizer_bos(const tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const tokenizer *t) { return t->eos; }

void tokenizer_around(const tokenizer *t, const int32_t **before, int *n_before, const int32_t **after, int *n_after) {
  *before = t->before;
  *n_before = t->n_before;
  *after = t->after;
  *n_after = t->n_after;
}

static const token *token_of(const tokenizer *t, int32_t id) {
  static const token none = {"", 0, 0};
  return id >= 0 && id < t->size && t->tokens[id].bytes ? &t->tokens[id] : &none;
}

const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *bytes) {
  const token *k = token_of(t, id);
  *bytes = k->length;
  return k->bytes;
}

int tokenizer_is_special(const tokenizer *t, int32_t id) { return token_of(t, id)->special; }
