/* bytes.h -- the bytes of a module, read one thing after another. */
#ifndef AMBI_PACK_BYTES_H
#define AMBI_PACK_BYTES_H
#include "core/core.h"

typedef struct {
  const uint8_t *at, *end;
  bool bad; /* it ended, or made no sense, before it should have */
} reader;

static inline uint8_t take_byte(reader *r) {
  if (r->at < r->end) return *r->at++;
  r->bad = true;
  return 0;
}

/* LEB128 of at most `bits` bits; signed ones come out as their bits. */
static inline uint64_t take_number(reader *r, int bits) {
  uint64_t v = 0;
  for (int shift = 0; shift < bits; shift += 7) {
    uint8_t b = take_byte(r);
    v |= (uint64_t)(b & 127) << shift;
    if (b < 128) return v;
  }
  r->bad = true;
  return 0;
}

static inline uint32_t take_u32(reader *r) {
  uint64_t v = take_number(r, 32);
  if (v > UINT32_MAX) r->bad = true;
  return (uint32_t)v;
}

static inline void skip(reader *r, uint64_t n) {
  if (n > (uint64_t)(r->end - r->at)) {
    r->bad = true;
    r->at = r->end;
  } else {
    r->at += n;
  }
}

/* As many bytes as the number in front of them says. */
static inline reader take_part(reader *r) {
  uint32_t n = take_u32(r);
  reader part = {r->at, r->at, r->bad};
  skip(r, n);
  part.end = r->at;
  part.bad = r->bad;
  return part;
}

#endif
