/* maps.h -- what tokenizers look things up in: bytes to a number, two ids to a number, and memory for short strings. */
#ifndef MODELS_MAPS_H
#define MODELS_MAPS_H
#include <stddef.h>
#include <stdint.h>

/* An array with room for one more than it is full with: twice the room (at first `least`). NULL: no memory, and the old
 * one is still there. */
void *array_grow(void *old, size_t *room, size_t least, size_t element);

/* Strings that live until the arena goes. */
typedef struct arena_block arena_block;
typedef struct {
  arena_block *blocks;
  size_t used, room; /* of the newest block */
} arena;
char *arena_take(arena *a, size_t bytes); /* NULL: no memory */
char *arena_copy(arena *a, const char *text, size_t bytes);
void arena_free(arena *a);

uint64_t hash_bytes(const char *p, size_t n); /* runs keep it (dataset_hash): it stays as it is */
uint64_t hash_word(uint64_t x);

/* Bytes to a number >= 0; the bytes stay where they are and must outlive the map. */
typedef struct {
  const char *key;
  size_t length;
  int64_t value;
} text_entry;
typedef struct {
  text_entry *slots;
  size_t used, room; /* room is a power of two, or 0 */
} text_map;
int64_t text_map_get(const text_map *m, const char *key, size_t length);      /* -1: absent    */
int text_map_put(text_map *m, const char *key, size_t length, int64_t value); /* 0: no memory  */
void text_map_free(text_map *m);

/* Two ids to a number >= 0. */
typedef struct {
  uint64_t key;
  int64_t value; /* -1: empty */
} pair_entry;
typedef struct {
  pair_entry *slots;
  size_t used, room;
} pair_map;
static inline uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)left << 32 | (uint32_t)right; }
int64_t pair_map_get(const pair_map *m, uint64_t key);      /* -1: absent   */
int pair_map_put(pair_map *m, uint64_t key, int64_t value); /* 0: no memory */
void pair_map_free(pair_map *m);

#endif
