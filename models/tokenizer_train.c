/* tokenizer_train.c -- words counted, merges chosen (tokenizer_merge.c), tokens named, a tokenizer.json made of them.
 */
#include "tokenizer_train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"

struct tokenizer_trainer {
  split_step step;
  arena strings; /* the words */
  text_map known;
  struct {
    const char *text;
    size_t length;
    int64_t count;
  } * words;
  size_t n_words, room, bytes;
};

/* ---- counting ---- */

tokenizer_trainer *tokenizer_trainer_new(void) {
  tokenizer_trainer *r = calloc(1, sizeof *r);
  if (r) r->step.cut = pattern_compile(split_gpt2, strlen(split_gpt2), NULL, 0);
  if (r && r->step.cut) return r;
  free(r);
  return NULL;
}

void tokenizer_trainer_free(tokenizer_trainer *r) {
  if (!r) return;
  pattern_free(r->step.cut);
  arena_free(&r->strings);
  text_map_free(&r->known);
  free(r->words);
  free(r);
}

static int new_word(tokenizer_trainer *r, const char *word, size_t n) {
  if (r->n_words == r->room) {
    void *more = r->room < INT32_MAX / 2 ? array_grow(r->words, &r->room, 1024, sizeof *r->words) : NULL;
    if (!more) return 0;
    r->words = more;
  }
  const char *text = arena_copy(&r->strings, word, n);
  if (!text || !text_map_put(&r->known, text, n, (int64_t)r->n_words)) return 0;
  r->words[r->n_words].text = text;
  r->words[r->n_words].length = n;
  r->words[r->n_words++].count = 1;
  r->bytes += n;
  return 1;
}

/* A merge goes over every word it is in from end to end, so that text without any space is cut, lest it take days. */
enum { WORD_MOST = 1024 };

static int count_word(void *context, const char *word, size_t n) {
  tokenizer_trainer *r = context;
  for (; n > 0;) {
    size_t part = n < WORD_MOST ? n : WORD_MOST;
    int64_t at = text_map_get(&r->known, word, part);
    if (at >= 0) r->words[at].count++;
    if (at < 0 && !new_word(r, word, part)) return 0;
    word += part;
    n -= part;
  }
  return 1;
}

int tokenizer_trainer_add(tokenizer_trainer *r, const char *text, size_t bytes) {
  arena none = {0}; /* nothing is kept: no step changes the text */
  splitter s = {&r->step, 1, &none, split_patience(bytes), count_word, r};
  return split_words(&s, text, bytes);
}

int64_t tokenizer_trainer_words(const tokenizer_trainer *r) { return (int64_t)r->n_words; }

/* ---- tokens ---- */

typedef struct {
  arena strings;
  text_map known;
  const char **names;
  size_t *lengths;
  int32_t (*merges)[2];
  int32_t count, room;
  int32_t merge_count;
  size_t merge_room;
} vocabulary;

/* Its id, a new one unless there is a token of these bytes; -1: no memory. */
static int32_t token_id(vocabulary *v, const char *left, size_t n, const char *right, size_t m) {
  char *text = arena_take(&v->strings, n + m + 1);
  if (!text) return -1;
  memcpy(text, left, n);
  if (m) memcpy(text + n, right, m);
  int64_t known = text_map_get(&v->known, text, n + m);
  if (known >= 0) return (int32_t)known;
  if (!text_map_put(&v->known, text, n + m, v->count)) return -1;
  v->names[v->count] = text;
  v->lengths[v->count] = n + m;
  return v->count++;
}

/* The special token, then the bytes in the order of the characters that stand for them. */
static int begin_vocabulary(vocabulary *v, int32_t room, int special) {
  v->room = room;
  v->names = calloc((size_t)room, sizeof *v->names);
  v->lengths = calloc((size_t)room, sizeof *v->lengths);
  if (!v->names || !v->lengths) return 0;
  v->count = special;
  for (uint32_t c = 0; c < 512; c++) {
    int byte = char_byte(c);
    char text = (char)byte;
    if (byte >= 0 && token_id(v, &text, 1, NULL, 0) < 0) return 0;
  }
  return 1;
}

static int add_merge(vocabulary *v, int32_t left, int32_t right) {
  if ((size_t)v->merge_count == v->merge_room) {
    void *more = array_grow(v->merges, &v->merge_room, 1024, sizeof *v->merges);
    if (!more) return 0;
    v->merges = more;
  }
  v->merges[v->merge_count][0] = left;
  v->merges[v->merge_count++][1] = right;
  return 1;
}

static void end_vocabulary(vocabulary *v) {
  arena_free(&v->strings);
  text_map_free(&v->known);
  free(v->names);
  free(v->lengths);
  free(v->merges);
}

/* ---- training ---- */

/* The words as the ids of their bytes. */
static int begin_state(const tokenizer_trainer *r, const vocabulary *v, train_state *s) {
  s->words = calloc(r->n_words + 1, sizeof *s->words);
  s->symbols = malloc((r->bytes + 1) * sizeof *s->symbols);
  if (!s->words || !s->symbols) return 0;
  size_t at = 0;
  for (size_t w = 0; w < r->n_words; w++) {
    s->words[w] = (train_word){at, r->words[w].length, r->words[w].count};
    for (size_t i = 0; i < r->words[w].length; i++) {
      s->symbols[at++] = (int32_t)text_map_get(&v->known, &r->words[w].text[i], 1);
    }
  }
  s->n_words = r->n_words;
  return train_begin(s);
}

static int merge_all(train_state *s, vocabulary *v, const tokenizer_training *o) {
  int64_t least = o->least > 1 ? o->least : 1;
  int32_t left, right;
  while (v->count < v->room && train_best(s, least, &left, &right)) {
    int32_t id = token_id(v, v->names[left], v->lengths[left], v->names[right], v->lengths[right]);
    if (id < 0 || !add_merge(v, left, right) || !train_merge(s, left, right, id)) return 0;
    if (o->progress && (v->merge_count % 64 == 0 || v->count == v->room)) o->progress(o->context, v->count, v->room);
  }
  return 1;
}

static char *trained_text(const tokenizer_trainer *r, const tokenizer_training *o, size_t *bytes) {
  vocabulary v = {0};
  train_state s = {0};
  char *json = NULL;
  if (begin_vocabulary(&v, o->vocabulary, o->end_of_text != NULL) && begin_state(r, &v, &s) && merge_all(&s, &v, o)) {
    const bpe_text b = {.tokens = v.names,
                        .lengths = v.lengths,
                        .count = v.count,
                        .merges = (const int32_t(*)[2])v.merges,
                        .merge_count = v.merge_count,
                        .special = o->end_of_text,
                        .cut_words = 1};
    json = tokenizer_write(&b, bytes);
  }
  train_end(&s);
  free(s.words);
  free(s.symbols);
  end_vocabulary(&v);
  return json;
}

static int count_piece(void *context, const char *word, size_t n) {
  (void)word, (void)n;
  return ++*(int *)context;
}

/* A name of two words or more is no token that could be learned: those lie inside of words. */
static int is_no_word(const tokenizer_trainer *r, const char *name) {
  arena none = {0};
  int pieces = 0;
  splitter s = {&r->step, 1, &none, split_patience(strlen(name)), count_piece, &pieces};
  return split_words(&s, name, strlen(name)) && pieces > 1;
}

tokenizer *tokenizer_trainer_finish(tokenizer_trainer *r, const tokenizer_training *o, char *err, size_t n) {
  int32_t least = 256 + (o->end_of_text != NULL);
  if (o->vocabulary < least || o->vocabulary > TOKENIZER_MOST_IDS) {
    if (n) snprintf(err, n, "a vocabulary of %d; it can be from %d to %d", o->vocabulary, least, TOKENIZER_MOST_IDS);
    return NULL;
  }
  if (o->end_of_text && !is_no_word(r, o->end_of_text)) {
    if (n)
      snprintf(err, n, "'%s' could be a word of the text; an end of text like <|endoftext|> cannot", o->end_of_text);
    return NULL;
  }
  size_t bytes = 0;
  char *json = trained_text(r, o, &bytes);
  if (!json && n) snprintf(err, n, "out of memory");
  tokenizer *t = json ? tokenizer_parse(json, bytes, err, n) : NULL;
  free(json);
  return t;
}
