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

/* ---- the trie --------------------------------------------------------------------------------------------------- */

static int32_t child_of(const added_set *s, int32_t parent, unsigned char byte) {
  int32_t at = parent < 0 ? s->first[byte] : s->nodes[parent].child;
  while (at >= 0 && s->nodes[at].byte != byte) at = s->nodes[at].sibling;
  return at;
}

static int32_t make_child(added_set *s, int32_t parent, unsigned char byte) {
  if (s->used == s->room) {
    size_t room = s->room ? 2 * s->room : 64;
    trie_node *more = room < INT32_MAX ? realloc(s->nodes, room * sizeof *more) : NULL;
    if (!more) return -1;
    s->nodes = more;
    s->room = room;
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

/* ---- the walk --------------------------------------------------------------------------------------------------- */

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
  const char *begin = w->plain;
  if (begin >= w->end && w->search >= w->end) return 0;
  *plain = begin;
  int32_t hit = -1;
  while (w->search < w->end && (hit = s->count ? longest(s, w->search, w->end) : -1) < 0) {
    w->search = s->count ? w->search + 1 : w->end;
  }
  if (hit < 0) {
    *id = -1;
    *plain_end = w->plain = w->end;
    return 1;
  }
  const added_token *a = &s->tokens[hit];
  const char *start = w->search, *stop = start + a->length;
  w->search = stop;
  if (a->lstrip && start > begin) start = space_before(begin, start);
  if (a->rstrip) stop = space_after(stop, w->end);
  *id = a->id;
  *plain_end = start > begin ? start : begin; /* white space that the token before took is not plain again */
  w->plain = stop > begin ? stop : begin;
  return 1;
}
