/* pattern_parse.c -- a regular expression to nodes, by recursive descent; see pattern.h for what is understood. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/utf8.h"
#include "pattern_parts.h"
#include "unicode.h"

typedef struct {
  pattern *pattern;
  const char *text, *p, *end;
  int fold, depth; /* inside (?i:..); groups that are open */
  char *err;
  size_t n;
} parser;

/* Nodes one after another: the first, and the last, whose `next` is to be set. first < 0: none yet. */
typedef struct {
  int first, last;
} chain;

static int parse_branches(parser *s, int *either, int *join);

__attribute__((format(printf, 2, 3))) static void say(const parser *s, const char *format, ...) {
  char what[120];
  va_list ap;
  va_start(ap, format);
  vsnprintf(what, sizeof what, format, ap);
  va_end(ap);
  if (s->n) snprintf(s->err, s->n, "pattern, byte %zu: %s", (size_t)(s->p - s->text), what);
}
#define fail(...) (say(__VA_ARGS__), 0) /* so that callers can return it */

static int new_node(parser *s, node_type type) {
  if (s->pattern->nodes == PATTERN_NODES) return fail(s, "more than %d parts", PATTERN_NODES) - 1;
  s->pattern->node[s->pattern->nodes] = (pattern_node){.type = type, .next = -1, .body = -1, .other = -1};
  return s->pattern->nodes++;
}

static void append(parser *s, chain *c, int first, int last) {
  if (c->first < 0) c->first = first;
  if (c->last >= 0) s->pattern->node[c->last].next = first;
  c->last = last;
}

static int looking_at(const parser *s, const char *text) {
  size_t n = strlen(text);
  return (size_t)(s->end - s->p) >= n && memcmp(s->p, text, n) == 0;
}

static int take(parser *s, const char *text) {
  if (!looking_at(s, text)) return 0;
  s->p += strlen(text);
  return 1;
}

/* ---- sets ---- */

static int add_range(parser *s, char_set *set, uint32_t first, uint32_t last) {
  for (uint32_t c = first; c <= last && c < 128; c++) set->ascii[c >> 6] |= UINT64_C(1) << (c & 63);
  if (last < 128) return 1;
  if (set->ranges == PATTERN_RANGES) return fail(s, "more than %d ranges in a set", PATTERN_RANGES);
  set->range[set->ranges].first = first < 128 ? 128 : first;
  set->range[set->ranges++].last = last;
  return 1;
}

/* Under (?i:..) the other case too; K and s have a third form each, the signs for kelvin and the long s. */
static int add_char(parser *s, char_set *set, uint32_t c) {
  uint32_t lower = c | 32;
  if (!add_range(s, set, c, c)) return 0;
  if (!s->fold) return 1;
  if (c >= 128) return fail(s, "a character beyond ASCII inside (?i:..)");
  if (lower < 'a' || lower > 'z') return 1;
  if (lower == 'k' && !add_range(s, set, 0x212A, 0x212A)) return 0;
  if (lower == 's' && !add_range(s, set, 0x17F, 0x17F)) return 0;
  return add_range(s, set, c ^ 32, c ^ 32);
}

static void add_classes(char_set *set, int classes) {
  set->classes |= classes;
  for (uint32_t c = 0; c < 128; c++) {
    if (unicode_class(c) & classes) set->ascii[c >> 6] |= UINT64_C(1) << (c & 63);
  }
}

static void negate(char_set *set) {
  set->negated = 1;
  set->ascii[0] = ~set->ascii[0];
  set->ascii[1] = ~set->ascii[1];
}

/* \s, \p{L} and the like: 1 when one was read. */
static int take_class(parser *s, int *classes) {
  static const struct {
    const char *text;
    int classes;
  } rows[] = {{"\\s", CHAR_SPACE},     {"\\S", ~CHAR_SPACE},     {"\\p{L}", CHAR_LETTER},   {"\\P{L}", ~CHAR_LETTER},
              {"\\p{N}", CHAR_NUMBER}, {"\\P{N}", ~CHAR_NUMBER}, {"\\p{^L}", ~CHAR_LETTER}, {"\\p{^N}", ~CHAR_NUMBER}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!take(s, rows[i].text)) continue;
    *classes = rows[i].classes & (CHAR_LETTER | CHAR_NUMBER | CHAR_SPACE | CHAR_OTHER);
    return 1;
  }
  return 0;
}

/* A character that stands for itself, or an escaped one. `special`: those that must be escaped here. */
static int parse_char(parser *s, const char *special, uint32_t *c) {
  static const char letters[] = "rntfv", means[] = "\r\n\t\f\v";
  if (s->p == s->end) return fail(s, "it ends too early");
  if (*s->p == '\\') {
    char e = s->p + 1 < s->end ? s->p[1] : 0;
    const char *hit = e ? strchr(letters, e) : NULL;
    if (!hit && (e <= ' ' || e >= 127 || strchr("_<>", e) || unicode_class((uint32_t)e) != CHAR_OTHER)) {
      return fail(s, "'%.*s' is not understood", (int)(s->end - s->p < 6 ? s->end - s->p : 6), s->p);
    }
    *c = (uint32_t)(hit ? means[hit - letters] : e);
    s->p += 2;
    return 1;
  }
  if (*s->p && strchr(special, *s->p)) return fail(s, "'%c' is not understood here", *s->p);
  int n = utf8_read(s->p, s->end, c);
  if (n == 0) return fail(s, "invalid UTF-8");
  s->p += n;
  return 1;
}

/* c, or c-d, inside [..] */
static int parse_range(parser *s, char_set *set) {
  uint32_t first, last;
  if (looking_at(s, "&&")) return fail(s, "'&&' is not understood");
  if (!parse_char(s, "[", &first)) return 0;
  if (!looking_at(s, "-") || looking_at(s, "-]")) return add_char(s, set, first);
  s->p++;
  if (!parse_char(s, "[", &last)) return 0;
  if (last < first) return fail(s, "a range that ends before it begins");
  if (s->fold) return fail(s, "a range inside (?i:..)");
  return add_range(s, set, first, last);
}

static int parse_brackets(parser *s, char_set *set) {
  int negated = take(s, "^"), classes;
  if (looking_at(s, "]")) return fail(s, "an empty set");
  while (!take(s, "]")) {
    if (s->p == s->end) return fail(s, "']' is missing");
    if (take_class(s, &classes)) {
      add_classes(set, classes);
    } else if (!parse_range(s, set)) {
      return 0;
    }
  }
  if (negated) negate(set);
  return 1;
}

/* ---- quantifiers ---- */

/* Digits, at most 6 of them; -1: none. */
static int64_t parse_count(parser *s) {
  int64_t v = -1;
  for (int i = 0; i < 6 && s->p < s->end && *s->p >= '0' && *s->p <= '9'; i++) {
    v = (v < 0 ? 0 : v) * 10 + (*s->p++ - '0');
  }
  return v;
}

static int parse_braces(parser *s, pattern_node *node) {
  node->min = node->max = parse_count(s);
  if (take(s, ",")) {
    node->max = looking_at(s, "}") ? INT64_MAX : parse_count(s);
  }
  if (node->min < 0 || node->max < node->min || node->max == 0 || !take(s, "}")) {
    return fail(s, "a quantifier {..} that is not understood");
  }
  return looking_at(s, "+") || looking_at(s, "?") ? fail(s, "'%c' after '}' is not understood", *s->p) : 1;
}

static int parse_quantifier(parser *s, pattern_node *node) {
  node->min = node->max = 1;
  if (take(s, "{")) return parse_braces(s, node);
  if (take(s, "*")) {
    node->min = 0, node->max = INT64_MAX;
  } else if (take(s, "+")) {
    node->max = INT64_MAX;
  } else if (take(s, "?")) {
    node->min = 0;
  } else {
    return 1;
  }
  node->possessive = take(s, "+");
  return looking_at(s, "?") || looking_at(s, "*") || looking_at(s, "{") ? fail(s, "two quantifiers in a row") : 1;
}

/* ---- groups ---- */

static int parse_set(parser *s, chain *c) {
  char_set set = {0};
  int classes, at;
  uint32_t single;
  if (take(s, "[")) {
    if (!parse_brackets(s, &set)) return 0;
  } else if (take_class(s, &classes)) {
    add_classes(&set, classes);
  } else if (!parse_char(s, "[]{}()*+?^$.|", &single) || !add_char(s, &set, single)) {
    return 0;
  }
  if ((at = new_node(s, NODE_SET)) < 0) return 0;
  pattern_node *node = &s->pattern->node[at];
  node->set = s->pattern->sets;
  s->pattern->set[s->pattern->sets++] = set;
  append(s, c, at, at);
  return parse_quantifier(s, node);
}

/* After "(?=" or "(?!". */
static int parse_look(parser *s, chain *c, int negated) {
  int look = new_node(s, NODE_LOOK), accept = new_node(s, NODE_ACCEPT), either, join;
  if (look < 0 || accept < 0 || !parse_branches(s, &either, &join)) return 0;
  if (!take(s, ")")) return fail(s, "')' is missing");
  s->pattern->node[look].body = either;
  s->pattern->node[look].negated = negated;
  s->pattern->node[join].next = accept;
  append(s, c, look, look);
  return 1;
}

/* An optional group has one more branch: nothing. */
static int add_empty_branch(parser *s, int either, int join) {
  int branch = new_node(s, NODE_BRANCH), last = s->pattern->node[either].body;
  if (branch < 0) return 0;
  while (s->pattern->node[last].other >= 0) last = s->pattern->node[last].other;
  s->pattern->node[last].other = branch;
  s->pattern->node[branch].body = join;
  return 1;
}

static int parse_group(parser *s, chain *c) {
  int either, join, fold = s->fold;
  if (take(s, "?=")) return parse_look(s, c, 0);
  if (take(s, "?!")) return parse_look(s, c, 1);
  if (take(s, "?i:")) {
    s->fold = 1;
  } else if (!take(s, "?:") && looking_at(s, "?")) {
    return fail(s, "'(%.3s' is not understood", s->p);
  }
  if (!parse_branches(s, &either, &join)) return 0;
  s->fold = fold;
  if (!take(s, ")")) return fail(s, "')' is missing");
  if (take(s, "?") && !add_empty_branch(s, either, join)) return 0;
  if (s->p < s->end && strchr("?*+{", *s->p)) return fail(s, "a group can be followed by '?' alone");
  append(s, c, either, join);
  return 1;
}

/* One branch, up to '|', ')' or the end. */
static int parse_branch(parser *s, int join, int *branch) {
  chain c = {-1, -1};
  if ((*branch = new_node(s, NODE_BRANCH)) < 0) return 0;
  while (s->p < s->end && *s->p != '|' && *s->p != ')') {
    if (!(take(s, "(") ? parse_group(s, &c) : parse_set(s, &c))) return 0;
  }
  append(s, &c, join, join);
  s->pattern->node[*branch].body = c.first;
  return 1;
}

static int parse_branches(parser *s, int *either, int *join) {
  int previous = -1, branch;
  if (s->depth == PATTERN_DEPTH) return fail(s, "nested deeper than %d", PATTERN_DEPTH);
  s->depth++;
  if ((*either = new_node(s, NODE_EITHER)) < 0 || (*join = new_node(s, NODE_JOIN)) < 0) return 0;
  do {
    if (!parse_branch(s, *join, &branch)) return 0;
    if (previous < 0) s->pattern->node[*either].body = branch;
    if (previous >= 0) s->pattern->node[previous].other = branch;
    previous = branch;
  } while (take(s, "|"));
  s->depth--;
  return 1;
}

/* ---- what a branch may begin with ---- */

typedef struct {
  const pattern *pattern;
  char seen[PATTERN_NODES];
  uint64_t first[4];
  int empty; /* the end can be reached without a character */
} survey;

static void look_over(survey *v, int at) {
  for (; at >= 0 && !v->seen[at]; at = v->pattern->node[at].next) {
    const pattern_node *node = &v->pattern->node[at];
    v->seen[at] = 1;
    if (node->type == NODE_ACCEPT) v->empty = 1;
    if (node->type == NODE_SET) {
      const char_set *set = &v->pattern->set[node->set];
      int beyond = set->classes || set->negated || set->ranges;
      for (int i = 0; i < 4; i++) v->first[i] |= i < 2 ? set->ascii[i] : beyond ? UINT64_MAX : 0;
      if (node->min > 0) return;
    }
    if (node->type != NODE_EITHER) continue;
    for (int b = node->body; b >= 0; b = v->pattern->node[b].other) look_over(v, v->pattern->node[b].body);
    return; /* what follows was reached through the branches */
  }
}

static int finish(parser *s) {
  pattern *p = s->pattern;
  for (int i = 0; i < p->nodes; i++) {
    if (p->node[i].type != NODE_BRANCH) continue;
    survey v = {.pattern = p};
    look_over(&v, p->node[i].body);
    for (int k = 0; k < 4; k++) p->node[i].first[k] = v.empty ? UINT64_MAX : v.first[k];
  }
  survey v = {.pattern = p};
  look_over(&v, p->start);
  return v.empty ? fail(s, "it can match no character at all") : 1;
}

/* ---- the interface ---- */

static int parse(parser *s) {
  int join, accept = new_node(s, NODE_ACCEPT);
  if (!parse_branches(s, &s->pattern->start, &join)) return 0;
  if (s->p < s->end) return fail(s, "a ')' too many");
  s->pattern->node[join].next = accept;
  return finish(s);
}

pattern *pattern_compile(const char *text, size_t bytes, char *err, size_t n) {
  pattern *p = calloc(1, sizeof *p);
  parser s = {.pattern = p, .text = text, .p = text, .end = text + bytes, .err = err, .n = n};
  if (!p && n) snprintf(err, n, "out of memory");
  if (p && parse(&s)) return p;
  free(p);
  return NULL;
}

void pattern_free(pattern *p) { free(p); }
