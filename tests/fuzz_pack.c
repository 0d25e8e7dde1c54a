/* fuzz_pack.c -- the descriptor path of a family of kernels, compiled for this machine so that sanitizers see it:
 * whatever a descriptor says, the kernel returns a code and touches nothing but what it was given.
 *
 *   fuzz_pack_FAMILY [SEED [COUNT]]      linked once with each file of src/pack/module */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/module/native.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define POISON(at, n)   ASAN_POISON_MEMORY_REGION((at), (size_t)(n))
#define UNPOISON(at, n) ASAN_UNPOISON_MEMORY_REGION((at), (size_t)(n))
#endif
#endif
#ifndef POISON
#define POISON(at, n)   ((void)(at))
#define UNPOISON(at, n) ((void)(at))
#endif

enum { OWN = 4096, FIRST = 4 << 16, MOST = 16 << 16 };

char *native_memory;
uint64_t native_bytes = FIRST, native_own = OWN;
pool *native_threads;

bool native_grow(uint64_t pages) {
  if (pages > (MOST - native_bytes) >> 16) return false;
  UNPOISON(native_memory + native_bytes, pages << 16);
  native_bytes += pages << 16;
  return true;
}

static uint64_t state;
static uint32_t chance(void) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return (uint32_t)(state >> 33);
}
static uint32_t below(uint32_t n) { return chance() % n; }

/* Offsets and sizes that matter: small, at the edges, enormous */
static uint32_t hostile(void) {
  static const uint32_t edges[] = {0,     1,         3,    4,          OWN - 4,    OWN,        FIRST - 4,
                                   FIRST, FIRST + 4, MOST, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff};
  return below(2) ? edges[below(sizeof edges / sizeof *edges)] : chance() << below(3);
}

/* ---- a call that is nearly right: sizes of the params, regions one after another ---- */
static void put_params(word *w) {
  uint32_t rows = below(5), cols = 1 + below(20);
  for (int i = 0; i < MOST_PARAMS_WORDS; i++) w[i].u = 1 + below(6);
  switch (module.kind) {
    case AMBI_RMSNORM:
    case AMBI_LAYERNORM:
      w[0].f = 1e-5F, w[1].u = cols, w[2].u = rows;
      break;
    case AMBI_ROPE:
      w[0].f = 10000, w[2].u = 2 * (1 + below(5)), w[5].u = below(2);
      if (below(8) == 0) w[1].u = w[3].u = 0xffffffff, w[4].u = 0; /* empty, whatever the others are */
      break;
    case AMBI_LINEAR:
      break;
    default:
      w[0].u = rows, w[1].u = cols, w[2].f = 1.5F, w[3].u = below(2);
      if (module.kind == AMBI_UNARY) w[1].f = 1;
      break;
  }
}

/* Elements of a, b and out, forward */
static void sizes_of(const word *w, bool back, uint32_t n[3]) {
  uint32_t all = w[0].u * w[1].u;
  n[0] = n[2] = all;
  n[1] = back ? all * (1 + below(2)) : all;
  if (module.kind == AMBI_UNARY) n[0] = n[2] = w[0].u, n[1] = back ? w[0].u : 0;
  if (module.kind == AMBI_SOFTMAX) n[1] = back ? all : 0;
  if (module.kind == AMBI_ROPE) n[0] = n[2] = w[1].u * w[2].u * w[3].u * w[4].u, n[1] = 0;
  if (module.kind == AMBI_RMSNORM || module.kind == AMBI_LAYERNORM) {
    n[0] = n[2] = w[1].u * w[2].u;
    n[1] = back ? n[0] : w[1].u * below(3);
  }
  if (module.kind != AMBI_LINEAR) return;
  uint32_t x = w[0].u * w[2].u, weight = w[1].u * w[2].u, y = w[0].u * w[1].u;
  n[0] = back ? y : x, n[1] = back ? x + weight : weight + (below(2) ? w[1].u : 0), n[2] = back ? x : y;
}

static void make(descriptor *d, bool back, uint32_t at) {
  word w[MOST_PARAMS_WORDS];
  uint32_t n[3], words = module.sizes[below(2)];
  put_params(w);
  sizes_of(w, back, n);
  region *r[] = {&d->a, &d->b, &d->out, &d->scratch, &d->params};
  uint32_t bytes[] = {4 * n[0], 4 * n[1], 4 * n[2], 4 * below(60), 4 * words};
  for (int i = 0; i < 5; i++) {
    *r[i] = (region){at, bytes[i]};
    at += bytes[i];
  }
  if (below(3) == 0) d->out = d->a; /* in place, where the op allows it */
  if (words == 5 && module.kind != AMBI_ROPE) w[3].u = at, w[4].u = below(2) ? 4 * w[1].u : hostile();
  memcpy(native_memory + d->params.offset, w, 4 * words);
  uint32_t *all = (uint32_t *)(void *)d;
  if (below(2)) all[below(10)] = hostile();
  if (below(8) == 0) all[below(10)] = hostile();
}

int main(int argc, char **argv) {
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 20000, done[2][2] = {{0}};
  state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  native_memory = aligned_alloc(64, MOST);
  native_threads = pool_create(1);
  if (!native_memory || !native_threads) return 1;
  memset(native_memory, 0, MOST);
  POISON(native_memory, OWN);
  POISON(native_memory + FIRST, MOST - FIRST);
  for (uint64_t i = 0; i < count; i++) {
    bool back = below(2);
    uint32_t at = OWN + 4 * below(1000);
    descriptor d;
    make(&d, back, at + 64);
    memcpy(native_memory + at, &d, sizeof d);
    int32_t code = (back ? kernel_backward : kernel_forward)(below(50) ? at : hostile());
    if (code < DONE || code > INTERNAL) return printf("code %d\n0 passed, 1 failed\n", code), 1;
    done[back][code == DONE]++;
    if (below(100) == 0) kernel_init(below(2) ? d.params.offset : hostile(), below(2) ? d.params.size : hostile());
    if (below(100) == 0) kernel_info(hostile());
  }
  UNPOISON(native_memory, MOST);
  pool_destroy(native_threads);
  free(native_memory);
  bool both = done[0][0] && done[0][1] && done[1][0] && done[1][1]; /* a loop that never gets in tests little */
  printf("%s: forward %llu done, %llu refused; backward %llu done, %llu refused\n", module.name,
         (unsigned long long)done[0][1], (unsigned long long)done[0][0], (unsigned long long)done[1][1],
         (unsigned long long)done[1][0]);
  printf("%d passed, %d failed\n", both, !both);
  return !both;
}
