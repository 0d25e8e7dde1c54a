/* fuzz_scan.c -- no bytes may crash or hang what counts the work of a module before it is compiled, nor make it read
 * past them.
 *
 *   fuzz_scan [SEED [COUNT]]     mutates a module, the same way for the same SEED; or with libFuzzer */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t readable;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1); /* so that a byte too far is seen */
  if (!copy) return 0;
  memcpy(copy, data, size);
  module_work w = scan_module(copy, size);
  if (w.code > size) abort();
  readable += w.readable;
  free(copy);
  return 0;
}

#ifndef AMBI_LIBFUZZER
/* (i32, i32) -> i32 with 3 locals: a loop with a table of branches, a block, constants, SIMD, a fill, a load */
static const uint8_t sample[] = {
    0, 'a',  's',  'm',  1,    0,    0,  0,    0x01, 7,    1,    0x60, 2,    0x7f, 0x7f, 1,    0x7f, 0x03,
    2, 1,    0,    0x0a, 64,   1,    62, 1,    3,    0x7f, 0x03, 0x40, 0x20, 0,    0x0e, 2,    0,    1,
    0, 0x0b, 0x02, 0x40, 0x41, 0x80, 1,  0x1a, 0x0b, 0x43, 0,    0,    0x80, 0x3f, 0x1a, 0xfd, 0x0c, 1,
    2, 3,    4,    5,    6,    7,    8,  9,    10,   11,   12,   13,   14,   15,   16,   0x1a, 0xfc, 0x0b,
    0, 0x28, 2,    0,    0xfd, 0x15, 3,  0x1a, 0xd2, 0,    0x1a, 0x01, 0x01, 0x01, 0x0b};

int main(int argc, char **argv) {
  uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 200000;
  for (uint64_t i = 0; i < count; i++) {
    uint8_t bytes[2 * sizeof sample];
    size_t n = sizeof sample;
    memcpy(bytes, sample, sizeof sample);
    for (uint64_t k = 0; k < i % 4; k++) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      size_t at = (size_t)(state >> 33) % n, what = (size_t)(state >> 20) % 4;
      if (what < 2) bytes[at] = (uint8_t)(state >> 40);
      if (what == 2) n = at + 1;
      if (what == 3) bytes[at] = (uint8_t)(state >> 63 ? 0xff : 0x80); /* long numbers */
    }
    LLVMFuzzerTestOneInput(bytes, n);
  }
  module_work w = scan_module(sample, sizeof sample);
  int good = w.readable && w.depth == 2 && readable > 0 && readable < count;
  /* 1 of the function, 2 each of the loop and 3 targets inside it, 1 each of the block and the fill; 3 locals, 2
   * values, itself */
  good = good && w.joins == (1 + 2 + 3 * 2 + 1 + 1) * (1 + 3 + 2) && w.functions == 1 && w.height == 1;
  /* the loop, its targets, the block, the fill; a type that takes 2 and gives 1 */
  good = good && w.branches == 1 + 3 + 1 + 1 && w.values == 1 + 3;
  printf("%llu of %llu readable; %llu joins\n%d passed, %d failed\n", (unsigned long long)readable,
         (unsigned long long)count, (unsigned long long)w.joins, good, !good);
  return !good;
}
#endif
