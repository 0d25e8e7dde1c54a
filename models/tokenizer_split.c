/* tokenizer_split.c -- text to words, step by step: each step cuts the pieces of the one before. */
#include <string.h>

#include "tokenizer_parts.h"

const char split_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

int64_t split_patience(size_t bytes) {
  enum { EACH = 256, LEAST = 1 << 16 };
  return bytes > (size_t)INT64_MAX / (2 * EACH) ? INT64_MAX / 2 : (int64_t)bytes * EACH + LEAST;
}

static int split_from(splitter *s, int at, const char *p, const char *end);

/* The piece with a space before it. */
static int add_space(splitter *s, const char **p, const char **end) {
  size_t n = (size_t)(*end - *p);
  char *copy = arena_take(s->kept, n + 1);
  if (!copy) return 0;
  *copy = ' ';
  memcpy(copy + 1, *p, n);
  *p = copy;
  *end = copy + n + 1;
  return 1;
}

/* One character further, for a search: inside of a character nothing matches that does not match at its beginning. */
static const char *next_char(const char *p, const char *end) {
  p++;
  while (p < end && (*p & 0xC0) == 0x80) p++;
  return p;
}

static int cut(splitter *s, int at, const char *p, const char *end) {
  const split_step *step = &s->steps[at];
  const char *between = p; /* not yet given on: no match so far */
  while (p < end) {
    const char *stop = pattern_match(step->cut, p, end, &s->patience);
    if (s->patience < 0) return 0;
    if (!stop) {
      p = next_char(p, end);
      continue;
    }
    if (between < p && !step->drop && !split_from(s, at + 1, between, p)) return 0;
    if (!split_from(s, at + 1, p, stop)) return 0;
    between = p = stop;
  }
  return between == end || step->drop || split_from(s, at + 1, between, end);
}

static int split_from(splitter *s, int at, const char *p, const char *end) {
  if (at == s->count) return s->put(s->context, p, (size_t)(end - p));
  const split_step *step = &s->steps[at];
  if (step->prefix_space && *p != ' ' && !add_space(s, &p, &end)) return 0;
  return step->cut ? cut(s, at, p, end) : split_from(s, at + 1, p, end);
}

int split_words(splitter *s, const char *text, size_t bytes) {
  return bytes == 0 || split_from(s, 0, text, text + bytes);
}
