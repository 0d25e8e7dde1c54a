/* json.c -- recursive descent over a private copy of the text; strings are decoded in place, where they only shrink. */
#include "json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

enum { BLOCK_VALUES = 512 };

typedef struct block {
  struct block *before;
  json_value value[BLOCK_VALUES];
} block;

struct json_doc {
  char *text;
  block *blocks;
  size_t used; /* values taken of the newest block */
  size_t values;
  json_value *root;
};

typedef struct {
  json_doc *doc;
  char *p, *end; /* *end is a NUL */
  int depth;
  char *err;
  size_t err_size;
} parser;

static json_value *parse_value(parser *s);

/* ---- errors and memory ---- */

/* Writes the sentence and where: always NULL, so that callers can return it. */
__attribute__((format(printf, 3, 4))) static void *fail_at(const parser *s, const char *at, const char *format, ...) {
  char what[120];
  va_list ap;
  va_start(ap, format);
  vsnprintf(what, sizeof what, format, ap);
  va_end(ap);
  if (s->err_size) snprintf(s->err, s->err_size, "byte %zu: %s", (size_t)(at - s->doc->text), what);
  return NULL;
}

static json_value *new_value(parser *s, json_type type) {
  json_doc *d = s->doc;
  if (d->values == JSON_MAX_VALUES) return fail_at(s, s->p, "more than %zu values", JSON_MAX_VALUES);
  if (!d->blocks || d->used == BLOCK_VALUES) {
    block *b = malloc(sizeof *b);
    if (!b) return fail_at(s, s->p, "out of memory");
    b->before = d->blocks;
    d->blocks = b;
    d->used = 0;
  }
  json_value *v = &d->blocks->value[d->used++];
  d->values++;
  *v = (json_value){.type = type};
  return v;
}

static void skip_space(parser *s) {
  while (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r') s->p++;
}

/* ---- strings ---- */

/* Four hexadecimal digits at p, or -1. */
static int32_t hex4(const char *p) {
  int32_t v = 0;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : -1;
    if (d < 0) return -1; /* the closing NUL too: nothing beyond it is read */
    v = v * 16 + d;
  }
  return v;
}

/* \uXXXX, or a pair of them for a character beyond U+FFFF; s->p is at the first 'u'. */
static char *parse_unicode(parser *s, char *out) {
  char *at = s->p - 1;
  int32_t hi = hex4(s->p + 1);
  if (hi < 0) return fail_at(s, at, "\\u needs four hexadecimal digits");
  s->p += 5;
  if (hi < 0xD800 || hi > 0xDFFF) return utf8_put(out, (uint32_t)hi);
  int32_t lo = hi < 0xDC00 && s->p[0] == '\\' && s->p[1] == 'u' ? hex4(s->p + 2) : -1;
  if (lo < 0xDC00 || lo > 0xDFFF) return fail_at(s, at, "half of a surrogate pair without the other");
  s->p += 6;
  return utf8_put(out, 0x10000u + (((uint32_t)hi - 0xD800u) << 10) + ((uint32_t)lo - 0xDC00u));
}

static char *parse_escape(parser *s, char *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  s->p++;
  if (*s->p == 'u') return parse_unicode(s, out);
  const char *hit = *s->p ? strchr(from, *s->p) : NULL;
  if (!hit) return fail_at(s, s->p - 1, "an escape that JSON does not have");
  s->p++;
  *out++ = to[hit - from];
  return out;
}

/* s->p at the opening quote. Decodes in place; 1, or 0 after a failure. */
static int parse_string(parser *s, const char **text, size_t *length) {
  char *open = s->p++, *out = s->p;
  *text = out;
  while (*s->p != '"') {
    if (*s->p == '\\') {
      if (!(out = parse_escape(s, out))) return 0;
      continue;
    }
    if (s->p == s->end) return fail_at(s, open, "a string without its closing quote") != NULL;
    if ((unsigned char)*s->p < 0x20) return fail_at(s, s->p, "a control character inside a string") != NULL;
    uint32_t c;
    int n = utf8_read(s->p, s->end, &c);
    if (n == 0) return fail_at(s, s->p, "invalid UTF-8") != NULL;
    while (n--) *out++ = *s->p++;
  }
  s->p++;
  *out = 0;
  *length = (size_t)(out - *text);
  return 1;
}

static json_value *parse_text(parser *s) {
  json_value *v = new_value(s, JSON_STRING);
  return v && parse_string(s, &v->text, &v->length) ? v : NULL;
}

/* ---- numbers and words ---- */

static const char *skip_digits(const char *p) {
  while (*p >= '0' && *p <= '9') p++;
  return p;
}

/* The end of the number at p by JSON's grammar, or NULL; *whole: no fraction, no exponent. */
static const char *number_end(const char *p, int *whole) {
  *whole = 1;
  if (*p == '-') p++;
  const char *digits = p;
  p = skip_digits(p);
  if (p == digits || (*digits == '0' && p > digits + 1)) return NULL;
  if (*p == '.') {
    const char *fraction = ++p;
    *whole = 0;
    if ((p = skip_digits(p)) == fraction) return NULL;
  }
  if (*p == 'e' || *p == 'E') {
    p++;
    *whole = 0;
    if (*p == '+' || *p == '-') p++;
    const char *exponent = p;
    if ((p = skip_digits(p)) == exponent) return NULL;
  }
  return p;
}

/* The number from p to end, whatever the host's locale has for a decimal point: it may stop at ours, or read "1,2" as
 * one. 0: too long to be worth it, or what C would read on (0x10). */
static int number_value(const char *p, const char *end, double *v) {
  char *stop, copy[512];
  const char *dot = memchr(p, '.', (size_t)(end - p)), *cut = dot ? dot : end, *rest = dot ? dot + 1 : end;
  *v = strtod(p, &stop);
  if (stop == end) return 1;
  const int n = snprintf(copy, sizeof copy, "%.*s%s%.*s", (int)(cut - p), p, dot ? localeconv()->decimal_point : "",
                         (int)(end - rest), rest);
  if (n < 0 || (size_t)n >= sizeof copy || *end == 'x' || *end == 'X') return 0;
  *v = strtod(copy, NULL);
  return 1;
}

static json_value *parse_number(parser *s) {
  int whole;
  const char *end = number_end(s->p, &whole);
  if (!end) return fail_at(s, s->p, "a number that JSON does not allow");
  json_value *v = new_value(s, JSON_NUMBER);
  if (!v) return NULL;
  if (!number_value(s->p, end, &v->number)) return fail_at(s, s->p, "a number that JSON does not allow");
  if (!isfinite(v->number)) return fail_at(s, s->p, "a number beyond the range of f64");
  errno = 0;
  v->integer = whole ? strtoll(s->p, NULL, 10) : 0;
  v->is_int = whole && errno == 0;
  s->p += end - s->p;
  return v;
}

static json_value *parse_word(parser *s) {
  static const struct {
    const char *word;
    json_type type;
    int value;
  } words[] = {{"true", JSON_BOOL, 1}, {"false", JSON_BOOL, 0}, {"null", JSON_NULL, 0}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i].word);
    if (strncmp(s->p, words[i].word, n) != 0) continue;
    json_value *v = new_value(s, words[i].type);
    if (v) v->integer = words[i].value;
    s->p += n;
    return v;
  }
  if (s->p == s->end) return fail_at(s, s->p, "the text ends where a value was expected");
  return fail_at(s, s->p, "a value was expected");
}

/* ---- arrays and objects ---- */

static int compare_keys(const void *a, const void *b) {
  const json_value *x = *(const json_value *const *)a, *y = *(const json_value *const *)b;
  size_t n = x->key_length < y->key_length ? x->key_length : y->key_length;
  int c = memcmp(x->key, y->key, n);
  return c ? c : (x->key_length > y->key_length) - (x->key_length < y->key_length);
}

/* 1 when no two members share a name; sorts, so that a long object costs n log n. */
static int keys_are_unique(parser *s, const json_value *v, const char *at) {
  if (v->length < 2) return 1;
  const json_value **list = malloc(v->length * sizeof *list);
  if (!list) return fail_at(s, at, "out of memory") != NULL;
  size_t n = 0;
  for (const json_value *c = v->child; c; c = c->next) list[n++] = c;
  qsort(list, n, sizeof *list, compare_keys);
  size_t i = 1;
  while (i < n && compare_keys(&list[i - 1], &list[i]) != 0) i++;
  if (i < n) fail_at(s, at, "two members named '%.60s'", list[i]->key);
  free(list);
  return i == n;
}

/* `"name" :` before a member's value; 1, or 0 after a failure. */
static int parse_key(parser *s, const char **key, size_t *length) {
  if (*s->p != '"') return fail_at(s, s->p, "a member's name in quotes was expected") != NULL;
  if (!parse_string(s, key, length)) return 0;
  skip_space(s);
  if (*s->p != ':') return fail_at(s, s->p, "':' was expected after a member's name") != NULL;
  s->p++;
  return 1;
}

/* The members of `v` up to and with its closing bracket; 1, or 0 after a failure. */
static int parse_members(parser *s, json_value *v, char close) {
  json_value **link = &v->child;
  skip_space(s);
  if (*s->p == close) return s->p++, 1;
  for (;;) {
    const char *key = NULL;
    size_t key_length = 0;
    skip_space(s);
    if (close == '}' && !parse_key(s, &key, &key_length)) return 0;
    json_value *c = parse_value(s);
    if (!c) return 0;
    c->key = key;
    c->key_length = key_length;
    *link = c;
    link = &c->next;
    v->length++;
    skip_space(s);
    char sep = *s->p;
    if (sep != ',' && sep != close) return fail_at(s, s->p, "',' or '%c' was expected", close) != NULL;
    s->p++;
    if (sep == close) return 1;
  }
}

static json_value *parse_container(parser *s) {
  const char *at = s->p;
  int object = *s->p++ == '{';
  if (s->depth == JSON_MAX_DEPTH) return fail_at(s, at, "nested deeper than %d", JSON_MAX_DEPTH);
  json_value *v = new_value(s, object ? JSON_OBJECT : JSON_ARRAY);
  if (!v) return NULL;
  s->depth++;
  if (!parse_members(s, v, object ? '}' : ']')) return NULL;
  s->depth--;
  return object && !keys_are_unique(s, v, at) ? NULL : v;
}

static json_value *parse_value(parser *s) {
  skip_space(s);
  if (*s->p == '{' || *s->p == '[') return parse_container(s);
  if (*s->p == '"') return parse_text(s);
  if (*s->p == '-' || (*s->p >= '0' && *s->p <= '9')) return parse_number(s);
  return parse_word(s);
}

/* ---- the interface ---- */

static json_value *parse_document(parser *s) {
  json_value *root = parse_value(s);
  if (!root) return NULL;
  skip_space(s);
  return s->p == s->end ? root : fail_at(s, s->p, "something follows the value");
}

json_doc *json_parse(const char *text, size_t bytes, char *err, size_t n) {
  if (n) *err = 0;
  if (bytes > JSON_MAX_BYTES) {
    if (n) snprintf(err, n, "%zu bytes of JSON; the limit is %zu", bytes, JSON_MAX_BYTES);
    return NULL;
  }
  json_doc *doc = calloc(1, sizeof *doc);
  if (doc) doc->text = calloc(bytes + 1, 1); /* ends in a NUL */
  if (!doc || !doc->text) {
    if (n) snprintf(err, n, "out of memory");
    free(doc);
    return NULL;
  }
  if (bytes) memcpy(doc->text, text, bytes);
  parser s = {.doc = doc, .p = doc->text, .end = doc->text + bytes, .err = err, .err_size = n};
  doc->root = parse_document(&s);
  if (doc->root) return doc;
  json_free(doc);
  return NULL;
}

void json_free(json_doc *doc) {
  if (!doc) return;
  for (block *b = doc->blocks; b;) {
    block *before = b->before;
    free(b);
    b = before;
  }
  free(doc->text);
  free(doc);
}

const json_value *json_root(const json_doc *doc) { return doc->root; }

const json_value *json_get(const json_value *v, const char *key) {
  size_t n = strlen(key);
  if (!v || v->type != JSON_OBJECT) return NULL;
  for (const json_value *c = v->child; c; c = c->next) {
    if (c->key_length == n && memcmp(c->key, key, n) == 0) return c;
  }
  return NULL;
}

const char *json_text(const json_value *v) {
  return v && v->type == JSON_STRING && strlen(v->text) == v->length ? v->text : NULL;
}

const char *json_type_name(json_type t) {
  static const char *const names[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return t >= JSON_NULL && t <= JSON_OBJECT ? names[t] : "unknown";
}
