/* pack_host.h -- for tests of packs: a host that trusts one key, in a folder of its own, and packs of one kernel, k. */
#ifndef AMBI_TEST_PACK_HOST_H
#define AMBI_TEST_PACK_HOST_H
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../cli/pack.h"
#include "../cli/pack_forge.h"
#include "test.h"

#define MEMORY "(memory (export \"memory\") 1) "

static char root[64];
static uint8_t secret[32], key[1][32];
static ambi_pack_host *host;

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline const char *path_of(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  return path;
}

static inline ambi_pack *open_pack(ambi_pack_host *h, const char *name, const char *version, const char *definitions,
                                   const char *body, const char *more) {
  size_t bytes = 0;
  void *wasm = forge_kernel(definitions, body, &bytes);
  forged_kernel k = {"k", wasm, bytes, more};
  forged_pack p = {name, version, &k, 1, secret, NULL};
  ambi_pack *pack = NULL;
  if (CHECK(wasm && forge_pack(path_of(name), &p), "%s cannot be made", name)) ambi_pack_open(h, path_of(name), &pack);
  free(wasm);
  return pack;
}

/* Without Wasmtime or libsodium the program ends here, having said so. */
static inline bool host_begin(const char *test) {
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1};
  ambi_status s = ambi_pack_make_key(secret);
  if (s == AMBI_OK) s = ambi_pack_public_key(secret, key[0]);
  if (s == AMBI_OK) s = ambi_pack_host_create(&o, &host);
  if (s == AMBI_UNSUPPORTED) {
    printf("SKIPPED %s: %s\n0 passed, 0 failed, 1 skipped\n", test, ambi_error());
    exit(0);
  }
  strcpy(root, "/tmp/ambi-host-XXXXXX");
  return CHECK(s == AMBI_OK && mkdtemp(root), "no host: %s", ambi_error());
}

static inline void host_end(void) {
  char command[128];
  ambi_pack_host_destroy(host);
  snprintf(command, sizeof command, "rm -r %s", root);
  if (system(command) != 0) printf("%s was left\n", root);
}

#endif
