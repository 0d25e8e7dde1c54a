/* tokenizer_encode.c -- words to ids. A word begins as its bytes; of all neighbours that may merge, those of the lowest
 * rank do, the leftmost first, until none may. A heap of (rank, place) gives n log n for a word of n bytes; words that
 * were met before are copied from where their ids lie in the result. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"
#include "unicode.h"

typedef struct {
  int64_t previous, next; /* -1: none */
  int32_t id;             /* -1: merged into the one before */
  int32_t rank;           /* of this symbol and the next, -1: they do not merge */
} symbol;

typedef struct {
  const char *word; /* in the text or in `kept`; NULL: empty */
  size_t length;
  int64_t at; /* of its ids in the result */
  int64_t count;
} known_word;

enum { KNOWN_LENGTH = 64, KNOWN_LEAST = 1 << 6, KNOWN_MOST = 1 << 15, PLACE_BITS = 40 };

typedef struct {
  const tokenizer *t;
  int32_t *ids;
  int64_t count, room;
  arena kept;
  known_word *known; /* by the low bits of the hash; a later word replaces an earlier one */
  size_t known_mask;
  symbol *symbols;
  uint64_t *heap; /* rank << PLACE_BITS | place */
  size_t symbol_room, heap_used, heap_room;
} encoder;

static int reserve(encoder *e, size_t more) {
  if ((uint64_t)(e->room - e->count) >= more) return 1;
  int64_t room = 2 * e->room + (int64_t)more + 64;
  int32_t *ids = realloc(e->ids, (size_t)room * sizeof *ids);
  if (!ids) return 0;
  e->ids = ids;
  e->room = room;
  return 1;
}

/* ---- merging ---- */

static int heap_push(encoder *e, uint64_t key) {
  if (e->heap_used == e->heap_room) {
    uint64_t *more = array_grow(e->heap, &e->heap_room, 256, sizeof *more);
    if (!more) return 0;
    e->heap = more;
  }
  size_t i = e->heap_used++;
  for (; i > 0 && e->heap[(i - 1) / 2] > key; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
  e->heap[i] = key;
  return 1;
}

static uint64_t heap_pop(encoder *e) {
  uint64_t top = e->heap[0], key = e->heap[--e->heap_used];
  size_t i = 0, n = e->heap_used;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child + 1 < n && e->heap[child + 1] < e->heap[child]) child++;
    if (child >= n || e->heap[child] >= key) break;
    e->heap[i] = e->heap[child];
    i = child;
  }
  if (n) e->heap[i] = key;
  return top;
}

/* The rank of the symbol at i and its neighbour, noted and queued. */
static int consider(encoder *e, int64_t i) {
  symbol *s = &e->symbols[i];
  int64_t merge = s->next < 0 ? -1 : pair_map_get(&e->t->merges, pair_key(s->id, e->symbols[s->next].id));
  s->rank = merge < 0 ? -1 : (int32_t)(merge >> 32);
  return merge < 0 || heap_push(e, (uint64_t)s->rank << PLACE_BITS | (uint64_t)i);
}

static int merge_at(encoder *e, int64_t i) {
  symbol *s = &e->symbols[i], *right = &e->symbols[s->next];
  s->id = (int32_t)pair_map_get(&e->t->merges, pair_key(s->id, right->id)); /* the low half */
  s->next = right->next;
  right->id = right->rank = -1;
  if (s->next >= 0) e->symbols[s->next].previous = i;
  return consider(e, i) && (s->previous < 0 || consider(e, s->previous));
}

static int begin_word(encoder *e, const char *word, size_t n) {
  if (n > e->symbol_room) {
    size_t room = 2 * n;
    symbol *more = realloc(e->symbols, room * sizeof *more);
    if (!more) return 0;
    e->symbols = more;
    e->symbol_room = room;
  }
  for (size_t i = 0; i < n; i++) {
    int32_t id = e->t->byte_id[(unsigned char)word[i]];
    e->symbols[i] = (symbol){(int64_t)i - 1, i + 1 < n ? (int64_t)i + 1 : -1, id, -1};
  }
  e->heap_used = 0;
  for (size_t i = 0; i + 1 < n; i++) {
    if (!consider(e, (int64_t)i)) return 0;
  }
  return 1;
}

static int merge_word(encoder *e, const char *word, size_t n) {
  if (!begin_word(e, word, n)) return 0;
  while (e->heap_used) {
    uint64_t top = heap_pop(e);
    int64_t at = (int64_t)(top & ((UINT64_C(1) << PLACE_BITS) - 1));
    if (e->symbols[at].rank != (int32_t)(top >> PLACE_BITS)) continue; /* queued before a neighbour changed */
    if (!merge_at(e, at)) return 0;
  }
  if (!reserve(e, n)) return 0;
  for (int64_t i = 0; i >= 0; i = e->symbols[i].next) e->ids[e->count++] = e->symbols[i].id;
  return 1;
}

/* ---- words ---- */

static int put_bytes(encoder *e, const char *word, size_t n) {
  if (!reserve(e, n)) return 0;
  for (size_t i = 0; i < n; i++) e->ids[e->count++] = e->t->byte_id[(unsigned char)word[i]];
  return 1;
}

static int encode_word(encoder *e, const char *word, size_t n) {
  int64_t whole = e->t->ignore_merges ? text_map_get(&e->t->vocabulary, word, n) : -1;
  if (whole < 0) return merge_word(e, word, n);
  if (!reserve(e, 1)) return 0;
  e->ids[e->count++] = (int32_t)whole;
  return 1;
}

/* Where the word is kept: any word of the same slot may be there. */
static int put_word(void *context, const char *word, size_t n) {
  encoder *e = context;
  if (e->t->merges.used == 0 && !e->t->ignore_merges) return put_bytes(e, word, n);
  if (n > KNOWN_LENGTH) return encode_word(e, word, n);
  known_word *k = &e->known[(size_t)hash_bytes(word, n) & e->known_mask];
  if (k->word && k->length == n && memcmp(k->word, word, n) == 0) {
    if (!reserve(e, (size_t)k->count)) return 0;
    memcpy(e->ids + e->count, e->ids + k->at, (size_t)k->count * sizeof *e->ids);
    e->count += k->count;
    return 1;
  }
  int64_t at = e->count;
  if (!encode_word(e, word, n)) return 0;
  *k = (known_word){word, n, at, e->count - at};
  return 1;
}

/* ---- text ---- */

static int put_id(encoder *e, int32_t id) {
  if (id < 0) return 1;
  if (!reserve(e, 1)) return 0;
  e->ids[e->count++] = id;
  return 1;
}

/* Text in its final form. */
static int encode_normalized(encoder *e, const char *text, size_t bytes) {
  added_walk walk = {text, text + bytes};
  const char *p, *end;
  int32_t id;
  splitter s = {e->t->steps, e->t->n_steps, &e->kept, split_patience(bytes), put_word, e};
  while (added_next(&e->t->normalized, &walk, &p, &end, &id)) {
    if (!split_words(&s, p, (size_t)(end - p)) || !put_id(e, id)) return 0;
  }
  return 1;
}

static int encode_plain(encoder *e, const char *text, size_t bytes) {
  if (!e->t->nfc || nfc_surely(text, bytes)) return encode_normalized(e, text, bytes);
  size_t n = 0;
  char *changed = nfc(text, bytes, &n), *copy = changed ? arena_copy(&e->kept, changed, n) : NULL;
  free(changed);
  return copy && encode_normalized(e, copy, n);
}

static int encode_text(encoder *e, const char *text, size_t bytes) {
  added_walk walk = {text, text + bytes};
  const char *p, *end;
  int32_t id;
  while (added_next(&e->t->raw, &walk, &p, &end, &id)) {
    if (!encode_plain(e, p, (size_t)(end - p)) || !put_id(e, id)) return 0;
  }
  return 1;
}

int64_t tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, int32_t **ids) {
  size_t known = KNOWN_LEAST;
  if (bytes == 0) text = "";
  while (known < KNOWN_MOST && known < bytes / 8) known *= 2;
  encoder e = {.t = t, .known = calloc(known, sizeof *e.known), .known_mask = known - 1};
  int ok = e.known && reserve(&e, bytes / 3 + 1) && encode_text(&e, text, bytes);
  free(e.known);
  free(e.symbols);
  free(e.heap);
  arena_free(&e.kept);
  if (!ok) free(e.ids);
  *ids = ok ? e.ids : NULL;
  return ok ? e.count : -1;
}
