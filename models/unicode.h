/* unicode.h -- classes of characters, and NFC (Unicode 16.0). */
#ifndef MODELS_UNICODE_H
#define MODELS_UNICODE_H
#include <stddef.h>
#include <stdint.h>

enum { CHAR_LETTER = 1, CHAR_NUMBER = 2, CHAR_SPACE = 4, CHAR_OTHER = 8 }; /* \p{L}, \p{N}, \s, the rest */

/* One of them. \s is the property White_Space. */
int unicode_class(uint32_t c);

/* Whether the text surely is in NFC already; 0: it may be. */
int nfc_surely(const char *text, size_t bytes);
/* The text in NFC, malloc'd; NULL: no memory. Bytes that are no UTF-8 stay as they are. */
char *nfc(const char *text, size_t bytes, size_t *result_bytes);

#endif
