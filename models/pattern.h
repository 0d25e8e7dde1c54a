/* pattern.h -- the regular expressions that cut text into words before BPE.
 *
 *   pattern *p = pattern_compile("\\p{N}{1,3}| ?\\p{L}+|\\s+(?!\\S)|\\s+", bytes, err, sizeof err);
 *   const char *stop = pattern_match(p, at, end, &steps);      NULL: nothing matches at `at`
 *   pattern_free(p);
 *
 * Understood, with the meaning they have in Oniguruma: characters, \r \n \t and escaped punctuation, [..] with ranges
 * and [^..], \s \S \p{L} \P{L} \p{N} \P{N}, the quantifiers ? * + {m} {m,} {m,n} of one character, possessive with
 * a further + (not after braces), (..) (?:..) (?i:..) optionally with ?, (?=..) (?!..), and |. The rest is refused,
 * as is a pattern that matches nothing at all ("") -- it could cut no text. */
#ifndef MODELS_PATTERN_H
#define MODELS_PATTERN_H
#include <stddef.h>
#include <stdint.h>

typedef struct pattern pattern;

pattern *pattern_compile(const char *text, size_t bytes, char *err, size_t n);
void pattern_free(pattern *p); /* NULL is fine */

/* The end of the match that begins at `at`, or NULL. Takes from *steps; when they are spent, what comes back is NULL
 * and *steps is negative: a pattern made to run forever does not. */
const char *pattern_match(const pattern *p, const char *at, const char *end, int64_t *steps);

#endif
