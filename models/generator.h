/* generator.h -- a model that reads tokens and says what might come next, going on where it stopped.
 *
 *   generator g;
 *   generator_create(&g, &m, batch, room, err, sizeof err);       room: tokens a row may have (attention)
 *   generator_read(&g, tokens, count, logits, ..);                tokens (batch, count); logits (batch, vocabulary)
 *   int32_t next = sample(logits, vocabulary, &options, seen, seen_count, &random);
 *
 * Memory does not grow with the text for Mamba; attention's caches are allocated once, for `room` tokens. */
#ifndef MODELS_GENERATOR_H
#define MODELS_GENERATOR_H
#include "model.h"

enum { GENERATOR_CALLS = 2 }; /* of many tokens, and of one */

typedef struct {
  model *m;
  model_state state;
  struct {
    model_call call;
    tape *t;
    value logits;
    ambi_buf tokens;
  } calls[GENERATOR_CALLS];
} generator;

int generator_create(generator *g, model *m, int64_t batch, int64_t room, char *err, size_t n);
void generator_destroy(generator *g);
int generator_reset(generator *g, char *err, size_t n);
/* logits: of the last token of each row. */
int generator_read(generator *g, const int32_t *tokens, int64_t count, double *logits, char *err, size_t n);

/* ---- choosing a token ---- */
typedef struct {
  double temperature; /* 0: the most likely one */
  int64_t top_k;      /* 0: all */
  double top_p;       /* 0 or 1: all */
  double repetition;  /* penalty of tokens seen before; 0 or 1: none */
} sample_options;

/* Changes logits. seen: tokens so far. */
int32_t sample(double *logits, int64_t count, const sample_options *o, const int32_t *seen, int64_t seen_count,
               dice *r);

#endif
