/* utf8.h -- characters of UTF-8 text, one at a time. Nothing here depends on the rest of ambi. */
#ifndef UTIL_UTF8_H
#define UTIL_UTF8_H
#include <stdint.h>

/* The character at p < end and its bytes (1..4), or 0 bytes when what is there is not valid UTF-8 (RFC 3629). */
static inline int utf8_read(const char *p, const char *end, uint32_t *c) {
  const unsigned char *u = (const unsigned char *)p;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (u[0] < 0x80) return *c = u[0], 1;
  int n = u[0] < 0xC2 ? 0 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : u[0] < 0xF5 ? 4 : 0;
  if (n == 0 || end - p < n) return 0;
  uint32_t v = u[0] & (0x7Fu >> n);
  for (int i = 1; i < n; i++) {
    if ((u[i] & 0xC0) != 0x80) return 0;
    v = v << 6 | (u[i] & 0x3F);
  }
  if (v < least[n] || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) return 0;
  return *c = v, n;
}

/* The beginning of the character that ends at p > begin, where a byte that is part of none counts as one. A byte that
 * begins a character is never inside another, so what begins there and reaches p is it. */
static inline const char *utf8_back(const char *begin, const char *p) {
  uint32_t c;
  int n = 1;
  while (n < 4 && p - n > begin && (p[-n] & 0xC0) == 0x80) n++;
  return utf8_read(p - n, p, &c) == n ? p - n : p - 1;
}

/* Writes the character c (1..4 bytes) and gives the place after it. */
static inline char *utf8_put(char *out, uint32_t c) {
  static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
  int follow = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  *out++ = (char)(lead[follow] | (c >> (6 * follow)));
  while (follow--) *out++ = (char)(0x80 | ((c >> (6 * follow)) & 0x3F));
  return out;
}

#endif
