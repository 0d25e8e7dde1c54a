/* unicode.c -- the class of a character, by a search of the table of ranges. */
#include "unicode.h"

typedef struct {
  uint32_t first, last;
  int class;
} range;

#define L(first, last) {first, last, CHAR_LETTER},
#define N(first, last) {first, last, CHAR_NUMBER},
static const range ranges[] = {
#include "unicode_classes.def"
};
#undef L
#undef N

static int ascii_class(uint32_t c) {
  if ((c | 32) >= 'a' && (c | 32) <= 'z') return CHAR_LETTER;
  if (c >= '0' && c <= '9') return CHAR_NUMBER;
  return c == ' ' || (c >= '\t' && c <= '\r') ? CHAR_SPACE : CHAR_OTHER;
}

static int is_space(uint32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

int unicode_class(uint32_t c) {
  if (c < 0x80) return ascii_class(c);
  size_t lo = 0, hi = sizeof ranges / sizeof *ranges; /* the range of c, if any, is in [lo, hi) */
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (c > ranges[mid].last) {
      lo = mid + 1;
    } else if (c < ranges[mid].first) {
      hi = mid;
    } else {
      return ranges[mid].class;
    }
  }
  return is_space(c) ? CHAR_SPACE : CHAR_OTHER;
}
