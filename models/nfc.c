/* nfc.c -- Unicode's Normalization Form C (UAX #15): take every character apart, order the marks, put together again.
 *
 * Most characters take no part in any of it ("quiet": not taken apart, no mark, never the second of a pair). Each of
 * them begins a new run; what lies between two of them is normalized by itself. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../util/utf8.h"
#include "maps.h"
#include "unicode.h"

typedef struct {
  uint32_t first, last;
  uint8_t class;
} mark_range;
typedef struct {
  uint32_t c, a, b; /* b is 0 when c becomes a alone */
  int composes;
} parts;

#define C(first, last, class) {first, last, class},
static const mark_range marks[] = {
#include "unicode_nfc.def"
};
#undef C
#define S(c, a)    {c, a, 0, 0},
#define X(c, a, b) {c, a, b, 0},
#define P(c, a, b) {c, a, b, 1},
static const parts table[] = {
#include "unicode_nfc.def"
};
#undef S
#undef X
#undef P
enum { MARKS = sizeof marks / sizeof *marks, TABLE = sizeof table / sizeof *table };

/* Hangul: a syllable is SBASE + (l * VCOUNT + v) * TCOUNT + t. */
enum { SBASE = 0xAC00, LBASE = 0x1100, VBASE = 0x1161, TBASE = 0x11A7 };
enum { LCOUNT = 19, VCOUNT = 21, TCOUNT = 28, SCOUNT = LCOUNT * VCOUNT * TCOUNT };

/* ---- made once ---- */

static uint16_t pairs[TABLE]; /* the entries that compose, in the order of (a, b) */
static size_t pair_count;
static uint8_t busy[0x110000 >> 8]; /* pages that hold a character which is not quiet */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int compare_pairs(const void *x, const void *y) {
  const parts *p = &table[*(const uint16_t *)x], *q = &table[*(const uint16_t *)y];
  if (p->a != q->a) return p->a < q->a ? -1 : 1;
  return (p->b > q->b) - (p->b < q->b);
}

static void prepare(void) {
  for (size_t i = 0; i < TABLE; i++) {
    busy[table[i].c >> 8] = 1;
    if (!table[i].composes) continue;
    busy[table[i].b >> 8] = 1;
    pairs[pair_count++] = (uint16_t)i;
  }
  for (size_t i = 0; i < MARKS; i++) busy[marks[i].first >> 8] = busy[marks[i].last >> 8] = 1;
  busy[VBASE >> 8] = 1;
  for (size_t c = SBASE; c < SBASE + SCOUNT; c += 256) busy[c >> 8] = 1;
  qsort(pairs, pair_count, sizeof *pairs, compare_pairs);
}

static int quiet(uint32_t c) { return c < 0xC0 || !busy[c >> 8]; }

/* ---- what the tables say ---- */

static uint8_t mark_class(uint32_t c) {
  size_t lo = 0, hi = MARKS;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (c > marks[mid].last) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo < MARKS && c >= marks[lo].first ? marks[lo].class : 0;
}

static const parts *parts_of(uint32_t c) {
  size_t lo = 0, hi = TABLE;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (c > table[mid].c) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo < TABLE && table[lo].c == c ? &table[lo] : NULL;
}

/* The character that a and b compose, or 0. */
static uint32_t compose(uint32_t a, uint32_t b) {
  if (a >= LBASE && a < LBASE + LCOUNT && b >= VBASE && b < VBASE + VCOUNT) {
    return SBASE + ((a - LBASE) * VCOUNT + (b - VBASE)) * TCOUNT;
  }
  if (a >= SBASE && a < SBASE + SCOUNT && (a - SBASE) % TCOUNT == 0 && b > TBASE && b < TBASE + TCOUNT) {
    return a + (b - TBASE);
  }
  size_t lo = 0, hi = pair_count;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    const parts *p = &table[pairs[mid]];
    if (a > p->a || (a == p->a && b > p->b)) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  const parts *p = lo < pair_count ? &table[pairs[lo]] : NULL;
  return p && p->a == a && p->b == b ? p->c : 0;
}

/* ---- a run ---- */

typedef struct {
  uint32_t c;
  uint8_t class;
  size_t order; /* among its run, so that equal classes stay in order */
} element;

typedef struct {
  element *run; /* the characters since the last quiet one, taken apart */
  size_t used, room;
  char *out, *to;
} state;

static int push(state *s, uint32_t c) {
  if (s->used == s->room) {
    element *more = array_grow(s->run, &s->room, 64, sizeof *more);
    if (!more) return 0;
    s->run = more;
  }
  s->run[s->used] = (element){c, mark_class(c), s->used};
  s->used++;
  return 1;
}

/* Takes c apart to the end; no character has a longer chain of parts than four. */
static int push_parts(state *s, uint32_t c) {
  if (c >= SBASE && c < SBASE + SCOUNT) {
    uint32_t i = c - SBASE, t = i % TCOUNT;
    return push(s, LBASE + i / (VCOUNT * TCOUNT)) && push(s, VBASE + i % (VCOUNT * TCOUNT) / TCOUNT) &&
           (t == 0 || push(s, TBASE + t));
  }
  const parts *p = parts_of(c);
  if (!p) return push(s, c);
  return push_parts(s, p->a) && (p->b == 0 || push(s, p->b)); /* a second part is never taken apart again */
}

static int compare_marks(const void *x, const void *y) {
  const element *p = x, *q = y;
  if (p->class != q->class) return p->class < q->class ? -1 : 1;
  return (p->order > q->order) - (p->order < q->order);
}

/* Marks between two starters, in the order of their classes. */
static void order_marks(state *s) {
  for (size_t i = 0; i < s->used; i++) {
    size_t begin = i;
    while (i < s->used && s->run[i].class) i++;
    if (i - begin > 1) qsort(s->run + begin, i - begin, sizeof *s->run, compare_marks);
  }
}

/* A mark joins the last starter unless one of its own class or a higher one lies between them. */
static void compose_run(state *s) {
  size_t starter = SIZE_MAX, n = 0;
  for (size_t i = 0; i < s->used; i++) {
    element e = s->run[i];
    int open = starter != SIZE_MAX && (n == starter + 1 || (s->run[n - 1].class < e.class && e.class));
    uint32_t c = open ? compose(s->run[starter].c, e.c) : 0;
    if (c) {
      s->run[starter].c = c;
      continue;
    }
    if (e.class == 0) starter = n;
    s->run[n++] = e;
  }
  s->used = n;
}

static void flush(state *s) {
  if (s->used > 1) {
    order_marks(s);
    compose_run(s);
  }
  for (size_t i = 0; i < s->used; i++) s->to = utf8_put(s->to, s->run[i].c);
  s->used = 0;
}

/* ---- the interface ---- */

int nfc_surely(const char *text, size_t bytes) { /* U+0300, the first mark, begins with the byte CC */
  for (size_t i = 0; i < bytes; i++) {
    if ((unsigned char)text[i] >= 0xCC) return 0;
  }
  return 1;
}

/* 3: some three-byte characters become three of three bytes, and nothing grows more in UTF-8 (UAX #15, 13.1). */
enum { GROWTH = 3 };

static int normalize(state *s, const char *p, const char *end) {
  while (p < end) {
    uint32_t c;
    int n = utf8_read(p, end, &c);
    if (n == 0 || quiet(c)) flush(s);
    if (n == 0) {
      *s->to++ = *p++;
      continue;
    }
    if (!(quiet(c) ? push(s, c) : push_parts(s, c))) return 0;
    p += n;
  }
  flush(s);
  return 1;
}

char *nfc(const char *text, size_t bytes, size_t *result_bytes) {
  pthread_once(&once, prepare);
  state s = {0};
  s.out = s.to = bytes < SIZE_MAX / GROWTH ? malloc(GROWTH * bytes + 1) : NULL;
  int ok = s.out && normalize(&s, text, text + bytes);
  free(s.run);
  if (!ok) {
    free(s.out);
    return NULL;
  }
  *result_bytes = (size_t)(s.to - s.out);
  return s.out;
}
