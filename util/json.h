/* json.h -- a strict, bounded reader of JSON (RFC 8259), and a writer of strings and numbers.
 *
 *   char err[160];
 *   json_doc *doc = json_parse(text, bytes, err, sizeof err);      NULL: err says what and at which byte
 *   const json_value *steps = json_get(json_root(doc), "steps");
 *   for (const json_value *v = steps->child; v; v = v->next) ..
 *   json_free(doc);
 *
 * Refused: anything after the value, comments, trailing commas, NaN, control characters in strings, invalid UTF-8,
 * lone surrogates, two members of one name, numbers beyond f64, and whatever passes the limits below.
 * Nothing here depends on the rest of ambi. */
#ifndef UTIL_JSON_H
#define UTIL_JSON_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_BYTES  ((size_t)100 << 20)
#define JSON_MAX_DEPTH  64
#define JSON_MAX_VALUES ((size_t)4 << 20)

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_type;

typedef struct json_value json_value;
struct json_value {
  json_type type;
  int is_int;       /* NUMBER: written without fraction or exponent, and fits int64 */
  int64_t integer;  /* NUMBER when is_int; BOOL: 0 or 1                             */
  double number;    /* NUMBER                                                       */
  const char *text; /* STRING: UTF-8, a NUL after it                                */
  size_t length;    /* STRING: bytes of text (it may hold a NUL); ARRAY, OBJECT: children */
  const char *key;  /* name of this member, when its parent is an OBJECT            */
  size_t key_length;
  json_value *child; /* ARRAY, OBJECT: the first one                                 */
  json_value *next;  /* the next one of the same parent                              */
};

typedef struct json_doc json_doc;

json_doc *json_parse(const char *text, size_t bytes, char *err, size_t n);
void json_free(json_doc *doc); /* NULL is fine */
const json_value *json_root(const json_doc *doc);

/* The member of that name, NULL when there is none or v is NULL or no object. */
const json_value *json_get(const json_value *v, const char *key);
/* The text when v is a string without NUL inside, else NULL. v may be NULL. */
const char *json_text(const json_value *v);
const char *json_type_name(json_type t);

/* ---- writing: any bytes as a string in quotes; what is no UTF-8 becomes U+FFFD. Not finite: null. ---- */
void json_write_string(FILE *out, const char *text, size_t bytes);
void json_write_text(FILE *out, const char *text); /* up to its NUL; NULL: null */
void json_write_number(FILE *out, double v);

#endif
