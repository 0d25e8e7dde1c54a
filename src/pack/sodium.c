/* sodium.c -- libsodium's shared library, from AMBI_SODIUM or from the system; and what makers of packs need of it. */
#include "pack/sodium.h"

#include <ambi/pack.h>
#include <stdio.h>
#include <string.h>

#include "pack/library.h"

ambi_status sodium_load(sodium_api *s) {
  static const char *const names[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so", NULL};
  static const char *const symbols[] = {
#define X(name, arguments) #name,
      SODIUM_FUNCTIONS(X)
#undef X
          "randombytes_buf"};
  void **const targets[] = {
#define X(name, arguments) (void **)(void *)&s->name,
      SODIUM_FUNCTIONS(X)
#undef X
          (void **)(void *)&s->randombytes_buf};
  library_request r = {"libsodium", "AMBI_SODIUM", "Debian has it as libsodium23",  names,
                       symbols,     targets,       sizeof symbols / sizeof *symbols};
  TRY(library_load(&r, &s->library));
  if (s->sodium_init() >= 0) return AMBI_OK;
  return fail(AMBI_UNSUPPORTED, "libsodium cannot be initialised");
}

void sodium_hash(const sodium_api *s, const void *data, size_t bytes, char text[72]) {
  unsigned char digest[32];
  s->crypto_hash_sha256(digest, data, bytes);
  size_t used = (size_t)snprintf(text, 72, "sha256:");
  for (int i = 0; i < 32; i++) used += (size_t)snprintf(text + used, 72 - used, "%02x", digest[i]);
}

/* ---- for makers of packs ---- */
ambi_status ambi_pack_hash(const void *data, size_t bytes, char text[72]) {
  sodium_api s;
  if (!text || (!data && bytes)) return fail(AMBI_INVALID, "ambi_pack_hash: %s is NULL", text ? "data" : "text");
  TRY(sodium_load(&s));
  sodium_hash(&s, data, bytes, text);
  return AMBI_OK;
}

ambi_status ambi_pack_make_key(uint8_t secret[32]) {
  sodium_api s;
  if (!secret) return fail(AMBI_INVALID, "ambi_pack_make_key: secret is NULL");
  TRY(sodium_load(&s));
  s.randombytes_buf(secret, 32);
  return AMBI_OK;
}

ambi_status ambi_pack_public_key(const uint8_t secret[32], uint8_t key[32]) {
  sodium_api s;
  unsigned char whole[64];
  if (!secret || !key) return fail(AMBI_INVALID, "ambi_pack_public_key: %s is NULL", secret ? "key" : "secret");
  TRY(sodium_load(&s));
  s.crypto_sign_seed_keypair(key, whole, secret);
  memset(whole, 0, sizeof whole);
  return AMBI_OK;
}

ambi_status ambi_pack_sign(const uint8_t secret[32], const void *data, size_t bytes, uint8_t signature[64]) {
  sodium_api s;
  unsigned char key[32], whole[64];
  if (!secret || !data || !signature) return fail(AMBI_INVALID, "ambi_pack_sign: an argument is NULL");
  TRY(sodium_load(&s));
  s.crypto_sign_seed_keypair(key, whole, secret);
  int failed = s.crypto_sign_detached(signature, NULL, data, bytes, whole);
  memset(whole, 0, sizeof whole);
  return failed ? fail(AMBI_INVALID, "ambi_pack_sign: libsodium could not sign") : AMBI_OK;
}
