/* sha256.h -- SHA-256 (FIPS 180-4), for naming and verifying what is kept on disk. */
#ifndef AMBI_SHA256_H
#define AMBI_SHA256_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t h[8];
  uint64_t bytes;
  unsigned char block[64];
} sha256;

void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t n);
void sha256_end(sha256 *s, unsigned char digest[32]);

#endif
