/* tokenizer_train.h -- the merges of a BPE from counted words; tokenizer_train.c counts them and names the tokens. */
#ifndef MODELS_TOKENIZER_TRAIN_H
#define MODELS_TOKENIZER_TRAIN_H
#include "maps.h"

typedef struct {
  size_t begin, length; /* in symbols */
  int64_t count;
} train_word;

typedef struct {
  int32_t left, right;
  int64_t count;  /* how often they are neighbours, words times their counts */
  int32_t *words; /* where they are, or were */
  size_t n_words, room;
  int64_t step; /* in which it grew last */
} train_pair;

typedef struct {
  int64_t count;
  int64_t pair;
} queue_entry;

typedef struct {
  train_word *words;
  int32_t *symbols; /* of all words; shrinks in place */
  size_t n_words;
  train_pair *pairs;
  size_t n_pairs, pair_room;
  pair_map index; /* two ids to a pair */
  queue_entry *queue;
  size_t queued, queue_room;
  int64_t *grown; /* pairs whose counts grew in this step */
  size_t n_grown, grown_room;
  int64_t step;
} train_state;

/* Counts and queues every pair of neighbours. 0: no memory. */
int train_begin(train_state *s);
/* The pair that occurs most often, of equal ones that with the lower ids: 1; 0 when none occurs `least` times. */
int train_best(train_state *s, int64_t least, int32_t *left, int32_t *right);
/* Makes `id` of every left right. 0: no memory. */
int train_merge(train_state *s, int32_t left, int32_t right, int32_t id);
void train_end(train_state *s); /* frees pairs and queue, not the words */

#endif
