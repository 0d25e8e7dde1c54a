/* maps.c -- open addressing, at most half full; the slot of a key is the first free one after its hash. */
#include "maps.h"

#include <stdlib.h>
#include <string.h>

void *array_grow(void *old, size_t *room, size_t least, size_t element) {
  size_t more = *room ? 2 * *room : least;
  void *array = more < SIZE_MAX / 2 / element ? realloc(old, more * element) : NULL;
  if (array) *room = more;
  return array;
}

/* ---- arena ---- */

struct arena_block {
  arena_block *before;
  char bytes[];
};
enum { BLOCK = 1 << 16 };

char *arena_take(arena *a, size_t bytes) {
  if (!a->blocks || a->room - a->used < bytes) {
    size_t room = bytes > BLOCK ? bytes : BLOCK;
    arena_block *b = room < SIZE_MAX - sizeof *b ? malloc(sizeof *b + room) : NULL;
    if (!b) return NULL;
    b->before = a->blocks;
    *a = (arena){b, 0, room};
  }
  a->used += bytes;
  return a->blocks->bytes + a->used - bytes;
}

char *arena_copy(arena *a, const char *text, size_t bytes) {
  char *p = arena_take(a, bytes);
  if (p && bytes) memcpy(p, text, bytes);
  return p;
}

void arena_free(arena *a) {
  for (arena_block *b = a->blocks; b;) {
    arena_block *before = b->before;
    free(b);
    b = before;
  }
  *a = (arena){0};
}

/* ---- hashes ---- */

uint64_t hash_word(uint64_t x) { /* the finalizer of splitmix64 */
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}

uint64_t hash_bytes(const char *p, size_t n) {
  uint64_t h = n * UINT64_C(0x9E3779B97F4A7C15), x;
  for (; n >= 8; n -= 8, p += 8) {
    memcpy(&x, p, 8);
    h = (h ^ x) * UINT64_C(0xFF51AFD7ED558CCD);
    h ^= h >> 32;
  }
  x = 0;
  for (size_t i = 0; i < n; i++) x |= (uint64_t)(unsigned char)p[i] << (8 * i);
  return hash_word(h ^ x);
}

/* ---- bytes to a number ---- */

static text_entry *text_slot(const text_map *m, const char *key, size_t length) {
  size_t i = (size_t)hash_bytes(key, length) & (m->room - 1);
  while (m->slots[i].key && (m->slots[i].length != length || memcmp(m->slots[i].key, key, length) != 0)) {
    i = (i + 1) & (m->room - 1);
  }
  return &m->slots[i];
}

int64_t text_map_get(const text_map *m, const char *key, size_t length) {
  if (m->room == 0) return -1;
  const text_entry *e = text_slot(m, key, length);
  return e->key ? e->value : -1;
}

static int text_map_grow(text_map *m) {
  text_map more = {.room = m->room ? 2 * m->room : 64};
  more.slots = calloc(more.room, sizeof *more.slots);
  if (!more.slots) return 0;
  for (size_t i = 0; i < m->room; i++) {
    if (m->slots[i].key) *text_slot(&more, m->slots[i].key, m->slots[i].length) = m->slots[i];
  }
  more.used = m->used;
  free(m->slots);
  *m = more;
  return 1;
}

int text_map_put(text_map *m, const char *key, size_t length, int64_t value) {
  if (2 * m->used >= m->room && !text_map_grow(m)) return 0;
  text_entry *e = text_slot(m, key, length);
  m->used += e->key == NULL;
  *e = (text_entry){key, length, value};
  return 1;
}

void text_map_free(text_map *m) {
  free(m->slots);
  *m = (text_map){0};
}

/* ---- two ids to a number ---- */

static pair_entry *pair_slot(const pair_map *m, uint64_t key) {
  size_t i = (size_t)hash_word(key) & (m->room - 1);
  while (m->slots[i].value >= 0 && m->slots[i].key != key) i = (i + 1) & (m->room - 1);
  return &m->slots[i];
}

int64_t pair_map_get(const pair_map *m, uint64_t key) { return m->room ? pair_slot(m, key)->value : -1; }

static int pair_map_grow(pair_map *m) {
  pair_map more = {.room = m->room ? 2 * m->room : 64};
  more.slots = malloc(more.room * sizeof *more.slots);
  if (!more.slots) return 0;
  for (size_t i = 0; i < more.room; i++) more.slots[i].value = -1;
  for (size_t i = 0; i < m->room; i++) {
    if (m->slots[i].value >= 0) *pair_slot(&more, m->slots[i].key) = m->slots[i];
  }
  more.used = m->used;
  free(m->slots);
  *m = more;
  return 1;
}

int pair_map_put(pair_map *m, uint64_t key, int64_t value) {
  if (2 * m->used >= m->room && !pair_map_grow(m)) return 0;
  pair_entry *e = pair_slot(m, key);
  m->used += e->value < 0;
  *e = (pair_entry){key, value};
  return 1;
}

void pair_map_free(pair_map *m) {
  free(m->slots);
  *m = (pair_map){0};
}
