/* tokenizer.h -- text to ids and back: bytes, or the byte-level BPE of a tokenizer.json.
 *
 *   char err[200];
 *   tokenizer *t = tokenizer_open("tokenizer.json", err, sizeof err);        NULL: err says why
 *   int32_t *ids;
 *   int64_t n = tokenizer_encode(t, text, bytes, &ids);                      -1: it failed
 *   for (int64_t i = 0; i < n; i++) {                                        the bytes of all ids are the text again
 *     size_t length;
 *     const char *piece = tokenizer_token(t, ids[i], &length);
 *     fwrite(piece, 1, length, stdout);
 *   }
 *   free(ids);
 *   tokenizer_free(t);
 *
 * A tokenizer never changes after it was made: any number of threads may use it. */
#ifndef MODELS_TOKENIZER_H
#define MODELS_TOKENIZER_H
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;

/* Ids 0..255 are the bytes; with `end_of_text`, id 256 is <|endoftext|>. NULL: no memory. */
tokenizer *tokenizer_bytes(int end_of_text);
/* A Hugging Face tokenizer.json of GPT-2's, GPT-NeoX's or LLaMA-3's kind; whatever is unknown in it is refused. */
tokenizer *tokenizer_open(const char *path, char *err, size_t n);
tokenizer *tokenizer_parse(const char *json, size_t bytes, char *err, size_t n); /* the same, from memory */
void tokenizer_free(tokenizer *t);                                               /* NULL is fine */
/* Writes a tokenizer.json that tokenizer_open and the package `tokenizers` read. 1, or 0 and err. */
int tokenizer_save(const tokenizer *t, const char *path, char *err, size_t n);

int32_t tokenizer_size(const tokenizer *t); /* the largest id and 1: the rows that an embedding needs */
int32_t tokenizer_bos(const tokenizer *t);  /* begins a text, or -1 */
int32_t tokenizer_eos(const tokenizer *t);  /* ends a text, or -1 */

/* The ids of a text, malloc'd, and how many; -1 and no ids when memory is short, or when the file's pattern for words
 * takes forever on this text (no honest one does). Names of special tokens that occur in
 * the text become those tokens. Nothing is put before or after it: see tokenizer_around. Bytes that are no UTF-8 are
 * kept as they are. */
int64_t tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, int32_t **ids);
/* What the file wants around every text (LLaMA-3: <|begin_of_text|> before it): that many ids, at *before, *after. */
void tokenizer_around(const tokenizer *t, const int32_t **before, int *n_before, const int32_t **after, int *n_after);

/* The bytes of one token, which may be part of a character; "" and 0 for an id that names none. */
const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *bytes);
int tokenizer_is_special(const tokenizer *t, int32_t id); /* an end of text, say: not part of the text itself */

/* A byte-level BPE from text: GPT-2's words are counted, then the pair of neighbours that occurs most often becomes a
 * token, again and again; of pairs that occur equally often the one with the lower ids. The same text in the same order
 * or another gives the same tokenizer.
 *
 *   tokenizer_trainer *r = tokenizer_trainer_new();
 *   ok = tokenizer_trainer_add(r, text, bytes);                              any number of times; 0: no memory
 *   tokenizer *t = tokenizer_trainer_finish(r, &options, err, sizeof err);   NULL: err says why
 *   tokenizer_trainer_free(r); */
typedef struct tokenizer_trainer tokenizer_trainer;
typedef struct {
  int32_t vocabulary;      /* tokens in all, from 256 (257 with end_of_text); fewer when the text has no more pairs */
  int64_t least;           /* a pair must occur so often; 0 counts as 1 */
  const char *end_of_text; /* name of a special token, id 0, which is no word; or NULL */
  void (*progress)(void *context, int32_t tokens, int32_t of); /* called now and then; or NULL */
  void *context;
} tokenizer_training;
tokenizer_trainer *tokenizer_trainer_new(void); /* NULL: no memory */
int tokenizer_trainer_add(tokenizer_trainer *r, const char *text, size_t bytes);
int64_t tokenizer_trainer_words(const tokenizer_trainer *r); /* different ones so far */
tokenizer *tokenizer_trainer_finish(tokenizer_trainer *r, const tokenizer_training *options, char *err, size_t n);
void tokenizer_trainer_free(tokenizer_trainer *r); /* NULL is fine */

#endif
