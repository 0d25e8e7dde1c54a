/* tokenizer_merge.c -- which pair of neighbours occurs most often, kept up to date while pairs are merged.
 *
 * Every pair knows its count and the words it was seen in. A queue gives the pair of the highest count: a pair is
 * queued again when its count grows, and an entry that is higher than the count of now is put back with that. */
#include <stdlib.h>

#include "tokenizer_train.h"

/* ---- the queue: a heap ---- */

static int comes_first(const train_state *s, queue_entry a, queue_entry b) {
  const train_pair *p = &s->pairs[a.pair], *q = &s->pairs[b.pair];
  if (a.count != b.count) return a.count > b.count;
  return pair_key(p->left, p->right) < pair_key(q->left, q->right);
}

static int queue_push(train_state *s, queue_entry e) {
  if (s->queued == s->queue_room) {
    queue_entry *more = array_grow(s->queue, &s->queue_room, 1024, sizeof *more);
    if (!more) return 0;
    s->queue = more;
  }
  size_t i = s->queued++;
  for (; i > 0 && comes_first(s, e, s->queue[(i - 1) / 2]); i = (i - 1) / 2) s->queue[i] = s->queue[(i - 1) / 2];
  s->queue[i] = e;
  return 1;
}

/* Lets e sink from the top to its place. */
static void queue_sink(train_state *s, queue_entry e) {
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child + 1 < s->queued && comes_first(s, s->queue[child + 1], s->queue[child])) child++;
    if (child >= s->queued || !comes_first(s, s->queue[child], e)) break;
    s->queue[i] = s->queue[child];
    i = child;
  }
  if (s->queued) s->queue[i] = e;
}

/* ---- pairs ---- */

static train_pair *pair_of(train_state *s, int32_t left, int32_t right) {
  int64_t at = pair_map_get(&s->index, pair_key(left, right));
  if (at >= 0) return &s->pairs[at];
  if (s->n_pairs == s->pair_room) {
    train_pair *more = array_grow(s->pairs, &s->pair_room, 1024, sizeof *more);
    if (!more) return NULL;
    s->pairs = more;
  }
  if (!pair_map_put(&s->index, pair_key(left, right), (int64_t)s->n_pairs)) return NULL;
  s->pairs[s->n_pairs] = (train_pair){.left = left, .right = right, .step = -1};
  return &s->pairs[s->n_pairs++];
}

/* It grows in this step: for the queue. */
static int note(train_state *s, train_pair *p) {
  if (s->n_grown == s->grown_room) {
    int64_t *more = array_grow(s->grown, &s->grown_room, 1024, sizeof *more);
    if (!more) return 0;
    s->grown = more;
  }
  p->step = s->step;
  s->grown[s->n_grown++] = p - s->pairs;
  return 1;
}

static int queue_grown(train_state *s) {
  int ok = 1;
  for (size_t i = 0; i < s->n_grown && ok; i++) {
    int64_t count = s->pairs[s->grown[i]].count;
    ok = count <= 0 || queue_push(s, (queue_entry){count, s->grown[i]});
  }
  s->n_grown = 0;
  s->step++;
  return ok;
}

/* Neighbours that have come to be in a word. */
static int more_of(train_state *s, int32_t left, int32_t right, int32_t word) {
  train_pair *p = pair_of(s, left, right);
  if (!p) return 0;
  p->count += s->words[word].count;
  if (p->step != s->step && !note(s, p)) return 0;
  if (p->n_words && p->words[p->n_words - 1] == word) return 1;
  if (p->n_words == p->room) {
    int32_t *more = array_grow(p->words, &p->room, 4, sizeof *more);
    if (!more) return 0;
    p->words = more;
  }
  p->words[p->n_words++] = word;
  return 1;
}

static void fewer_of(train_state *s, int32_t left, int32_t right, int32_t word) {
  int64_t at = pair_map_get(&s->index, pair_key(left, right));
  if (at >= 0) s->pairs[at].count -= s->words[word].count;
}

/* ---- the interface ---- */

int train_begin(train_state *s) {
  for (size_t w = 0; w < s->n_words; w++) {
    const int32_t *x = s->symbols + s->words[w].begin;
    for (size_t i = 0; i + 1 < s->words[w].length; i++) {
      if (!more_of(s, x[i], x[i + 1], (int32_t)w)) return 0;
    }
  }
  return queue_grown(s);
}

int train_best(train_state *s, int64_t least, int32_t *left, int32_t *right) {
  while (s->queued) {
    queue_entry top = s->queue[0];
    const train_pair *p = &s->pairs[top.pair];
    if (top.count != p->count && p->count > 0) {
      queue_sink(s, (queue_entry){p->count, top.pair});
      continue;
    }
    queue_entry last = s->queue[--s->queued];
    queue_sink(s, last);
    if (p->count <= 0) continue;
    *left = p->left;
    *right = p->right;
    return p->count >= least;
  }
  return 0;
}

/* In one word, from the left: x [left right] y becomes x id y. */
static int merge_word(train_state *s, int32_t word, int32_t left, int32_t right, int32_t id) {
  train_word *w = &s->words[word];
  int32_t *x = s->symbols + w->begin;
  size_t to = 0;
  for (size_t i = 0; i < w->length; i++) {
    if (i + 1 == w->length || x[i] != left || x[i + 1] != right) {
      x[to++] = x[i];
      continue;
    }
    if (to > 0) {
      fewer_of(s, x[to - 1], left, word);
      if (!more_of(s, x[to - 1], id, word)) return 0;
    }
    if (i + 2 < w->length) {
      fewer_of(s, right, x[i + 2], word);
      if (!more_of(s, id, x[i + 2], word)) return 0;
    }
    x[to++] = id;
    i++;
  }
  w->length = to;
  return 1;
}

int train_merge(train_state *s, int32_t left, int32_t right, int32_t id) {
  train_pair *p = pair_of(s, left, right);
  if (!p) return 0;
  int32_t *words = p->words;
  size_t n = p->n_words;
  *p = (train_pair){.left = left, .right = right, .step = -1};
  int ok = 1;
  for (size_t i = 0; i < n && ok; i++) ok = merge_word(s, words[i], left, right, id);
  free(words);
  s->pairs[pair_map_get(&s->index, pair_key(left, right))].count = 0; /* overlaps (aaa) left some of it */
  return ok && queue_grown(s);
}

void train_end(train_state *s) {
  for (size_t i = 0; i < s->n_pairs; i++) free(s->pairs[i].words);
  free(s->pairs);
  free(s->grown);
  free(s->queue);
  pair_map_free(&s->index);
}
