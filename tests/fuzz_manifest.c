/* fuzz_manifest.c -- no bytes may crash, hang or leak the reader of kernels.json.
 *
 *   fuzz_manifest [SEED [COUNT]]     mutates a manifest, the same way for the same SEED; or with libFuzzer */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t accepted;
static manifest m;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1); /* so that a byte too far is seen */
  if (!text) return 0;
  memcpy(text, data, size);
  ambi_status s = manifest_read(&m, text, size);
  if (s == AMBI_OK) {
    accepted++;
    for (int i = 0; i < m.count; i++) {
      const manifest_kernel *k = &m.kernels[i];
      if (manifest_find(&m, k->id) != k || strstr(k->path, "/.") || strchr("./", k->path[0]) || strlen(k->hash) != 71)
        abort();
      if (k->pages < 1 || k->pages > 65536 || k->ticks < 1) abort();
    }
    manifest_free(&m);
  } else if (s != AMBI_DENIED) {
    abort();
  }
  free(text);
  return 0;
}

#ifndef AMBI_LIBFUZZER
static const char sample[] =
    "{\"name\": \"n\", \"version\": \"1.2.3\", \"min_runtime_version\": \"0.0.0\", \"max_runtime_version\": \"9.0.0\", "
    "\"author\": {\"name\": \"x\"}, \"fallbacks\": {\"a\": \"b\"}, \"kernels\": ["
    "{\"id\": \"a\", \"category\": \"custom\", \"path\": \"a/b.wasm\", \"entry_point\": \"kernel_forward\", \"hash\": "
    "\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\", \"inputs\": [{\"name\": \"x\", "
    "\"dtype\": \"f32\", \"shape\": [\"n\", 4]}], \"params\": {\"n\": {\"type\": \"u32\", \"default\": 0, \"min\": "
    "0}}, "
    "\"resource_limits\": {\"max_memory_pages\": 256, \"max_epoch_ticks\": 1000, \"max_table_elements\": 1024}, "
    "\"platforms\": [\"wasm32\"], \"self_test\": [{}]},"
    "{\"id\": \"b\", \"category\": \"attention\", \"path\": \"b.wasm\", \"hash\": "
    "\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}]}";

static const char *const pieces[] = {"\"",          "{",     "}",         "[",       "]",    ",",      ":",
                                     "null",        "1e999", "-1",        "\\u0000", "../",  "..",     "/etc",
                                     "99999999999", "true",  "\"id\": 3", "{}",      "\xff", "sha256:"};

int main(int argc, char **argv) {
  uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 20000;
  char text[2 * sizeof sample];
  for (uint64_t i = 0; i < count; i++) {
    size_t n = sizeof sample - 1;
    memcpy(text, sample, sizeof sample);
    for (uint64_t k = 0; k < i % 4; k++) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      size_t at = (size_t)(state >> 33) % n, what = (size_t)(state >> 20) % 4;
      const char *piece = pieces[(state >> 50) % (sizeof pieces / sizeof *pieces)];
      size_t length = strlen(piece);
      if (what == 0) text[at] = (char)(state >> 40);
      if (what == 1) n = at + 1;
      if (what == 2 && at + length < n) memcpy(text + at, piece, length);
      if (what == 3 && n + length < sizeof text)
        memmove(text + at + length, text + at, n - at), memcpy(text + at, piece, length), n += length;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)text, n);
  }
  int good = accepted > 0 && accepted < count;
  printf("%llu of %llu accepted\n%d passed, %d failed\n", (unsigned long long)accepted, (unsigned long long)count, good,
         !good);
  return !good;
}
#endif
