/* sodium.h -- Ed25519 and SHA-256, by libsodium. */
#ifndef AMBI_PACK_SODIUM_H
#define AMBI_PACK_SODIUM_H
#include "core/core.h"

/* X(name, arguments); all return int */
#define SODIUM_FUNCTIONS(X)                                                                                      \
  X(sodium_init, (void))                                                                                         \
  X(crypto_sign_verify_detached,                                                                                 \
    (const unsigned char *signature, const unsigned char *data, unsigned long long n, const unsigned char *key)) \
  X(crypto_sign_detached, (unsigned char *signature, unsigned long long *length, const unsigned char *data,      \
                           unsigned long long n, const unsigned char *secret))                                   \
  X(crypto_sign_seed_keypair, (unsigned char *key, unsigned char *secret, const unsigned char *seed))            \
  X(crypto_hash_sha256, (unsigned char *digest, const unsigned char *data, unsigned long long n))

typedef struct {
  void *library;
  void (*randombytes_buf)(void *out, size_t n);
#define X(name, arguments) int(*name) arguments;
  SODIUM_FUNCTIONS(X)
#undef X
} sodium_api;

ambi_status sodium_load(sodium_api *s);

/* "sha256:<hex>" */
void sodium_hash(const sodium_api *s, const void *data, size_t bytes, char text[72]);

#endif
