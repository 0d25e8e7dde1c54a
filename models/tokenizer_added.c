/* tokenizer_added.c -- tokens that are found in the text as they stand: of those that begin first, the longest. */
#include <stdlib.h>
#include <string.h>

#include "../util/utf8.h"
#include "tokenizer_parts.h"
#include "unicode.h"

void added_init(added_set *s) {
  *s = (added_set){0};
  for (int i = 0; i < 256; i++) s->first[i] = -1;
}

void added_free(added_set *s) {
  free(s->tokens);
  free(s->nodes);
}

/* ---- the trie ---- */

static int32_t child_of(const added_set *s, int32_t parent, unsigned char byte) {
  int32_t at = parent < 0 ? s->first[byte] : s->nodes[parent].child;
  while (at >= 0 && s->nodes[at].byte != byte) at = s->nodes[at].sibling;
  return at;
}

static int32_t make_child(added_set *s, int32_t parent, unsigned char byte) {
  if (s->used == s->room) {
    trie_node *more = s->room < INT32_MAX / 2 ? array_grow(s->nodes, &s->room, 64, sizeof *more) : NULL;
    if (!more) return -1;
    s->nodes = more;
  }
  int32_t at = (int32_t)s->used++, *link = parent < 0 ? &s->first[byte] : &s->nodes[parent].child;
  s->nodes[at] = (trie_node){.child = -1, .sibling = *link, .token = -1, .byte = byte};
  *link = at;
  return at;
}

int added_put(added_set *s, const added_token *a) {
  int32_t at = -1;
  for (size_t i = 0; i < a->length; i++) {
    unsigned char byte = (unsigned char)a->text[i];
    int32_t parent = at;
    at = child_of(s, parent, byte);
    if (at < 0) at = make_child(s, parent, byte);
    if (at < 0) return 0;
  }
  added_token *more = realloc(s->tokens, (s->count + 1) * sizeof *more);
  if (!more) return 0;
  s->tokens = more;
  s->tokens[s->count] = *a;
  s->nodes[at].token = (int32_t)s->count++;
  return 1;
}

/* The longest token that begins at p, or -1. */
static int32_t longest(const added_set *s, const char *p, const char *end) {
  int32_t found = -1;
  for (int32_t at = -1; p < end; p++) {
    at = child_of(s, at, (unsigned char)*p);
    if (at < 0) break;
    if (s->nodes[at].token >= 0) found = s->nodes[at].token;
  }
  return found;
}

/* ---- the walk ---- */

static const char *space_before(const char *begin, const char *p) {
  while (p > begin) {
    const char *q = utf8_back(begin, p);
    uint32_t c;
    if (utf8_read(q, p, &c) == 0 || unicode_class(c) != CHAR_SPACE) break;
    p = q;
  }
  return p;
}

static const char *space_after(const char *p, const char *end) {
  while (p < end) {
    uint32_t c;
    int n = utf8_read(p, end, &c);
    if (n == 0 || unicode_class(c) != CHAR_SPACE) break;
    p += n;
  }
  return p;
}

int added_next(const added_set *s, added_walk *w, const char **plain, const char **plain_end, int32_t *id) {
  const char *begin = w->at, *p = s->count ? begin : w->end;
  int32_t hit = -1;
  if (begin >= w->end) return 0;
  while (p < w->end && (hit = longest(s, p, w->end)) < 0) p++;
  *plain = begin;
  *plain_end = p;
  *id = hit < 0 ? -1 : s->tokens[hit].id;
  w->at = hit < 0 ? w->end : p + s->tokens[hit].length;
  if (hit >= 0 && s->tokens[hit].lstrip) *plain_end = space_before(begin, p);
  if (hit >= 0 && s->tokens[hit].rstrip) w->at = space_after(w->at, w->end);
  return 1;
}
