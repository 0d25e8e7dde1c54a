/* pattern.c -- matching, by backtracking over the nodes. A pattern has no loops but those over one set, so that the
 * depth of the recursion is that of the pattern, whatever the text. */
#include "pattern.h"

#include "../util/utf8.h"
#include "pattern_parts.h"
#include "unicode.h"

typedef struct {
  const pattern *pattern;
  const char *end;
  int64_t steps;
  const char *stop; /* of the match that was found last */
} matcher;

int set_has(const char_set *s, uint32_t c) {
  if (c < 128) return (int)(s->ascii[c >> 6] >> (c & 63) & 1);
  int in = (unicode_class(c) & s->classes) != 0;
  for (int i = 0; i < s->ranges && !in; i++) in = c >= s->range[i].first && c <= s->range[i].last;
  return in != s->negated;
}

/* Bytes of the character at p < end when the set has it, else 0. A byte that is no UTF-8 is a character of its own, of
 * no class: U+FFFD, which stands for it elsewhere. */
static inline int step(const char_set *s, const char *p, const char *end) {
  unsigned char u = (unsigned char)*p;
  if (u < 128) return (int)(s->ascii[u >> 6] >> (u & 63) & 1);
  uint32_t c = 0xFFFD;
  int n = utf8_read(p, end, &c);
  return set_has(s, c) ? (n ? n : 1) : 0;
}

static int match(matcher *m, int at, const char *p);

static int match_set(matcher *m, const pattern_node *node, const char *p) {
  const char_set *set = &m->pattern->set[node->set];
  const char *begin = p;
  int64_t count = 0;
  for (int n; count < node->max && p < m->end && (n = step(set, p, m->end)) > 0; count++) p += n;
  m->steps -= count;
  if (count < node->min) return 0;
  if (node->possessive) return match(m, node->next, p);
  for (;; count--, p = utf8_back(begin, p)) {
    if (match(m, node->next, p)) return 1;
    if (count == node->min || m->steps < 0) return 0;
  }
}

static int match_either(matcher *m, const pattern_node *node, const char *p) {
  for (int b = node->body; b >= 0; b = m->pattern->node[b].other) {
    const pattern_node *branch = &m->pattern->node[b];
    unsigned char u = p < m->end ? (unsigned char)*p : 0;
    if (p < m->end && !(branch->first[u >> 6] >> (u & 63) & 1)) continue;
    if (match(m, branch->body, p)) return 1;
  }
  return 0;
}

static int match(matcher *m, int at, const char *p) {
  for (;;) {
    const pattern_node *node = &m->pattern->node[at];
    if (--m->steps < 0) return 0;
    if (node->type == NODE_ACCEPT) return m->stop = p, 1;
    if (node->type == NODE_EITHER) return match_either(m, node, p);
    if (node->type == NODE_SET) {
      if (node->min != 1 || node->max != 1) return match_set(m, node, p);
      int n = p < m->end ? step(&m->pattern->set[node->set], p, m->end) : 0;
      if (n == 0) return 0;
      p += n;
    } else if (node->type == NODE_LOOK) {
      if (match(m, node->body, p) == node->negated) return 0;
    }
    at = node->next; /* JOIN: nothing else */
  }
}

const char *pattern_match(const pattern *p, const char *at, const char *end, int64_t *steps) {
  matcher m = {p, end, *steps, NULL};
  int found = match(&m, p->start, at);
  *steps = m.steps;
  return found && m.steps >= 0 ? m.stop : NULL;
}
