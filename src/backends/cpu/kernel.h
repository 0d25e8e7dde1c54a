/* kernel.h -- what an op's cpu.c is written with. That file is compiled once per instruction set and arithmetic (f32,
 * f64); all it exports is its cpu_kernel, named by CPU_KERNEL(rmsnorm). */
#ifndef AMBI_CPU_KERNEL_H
#define AMBI_CPU_KERNEL_H
#include "backends/cpu/pool.h"
#include "core/core.h"

typedef struct {
  bool avx512_bf16, amx_bf16; /* beyond the instruction set chosen */
} cpu_features;

typedef struct {
  const problem *p;
  char *at[AMBI_SLOTS]; /* element 0 of each slot                                  */
  char *workspace;      /* as many bytes as cpu_kernel.workspace asked for         */
  bool stream;          /* outputs are larger than the cache: store past it        */
  const cpu_features *features;
  pool *threads;
} cpu_call;

typedef struct {
  const char *name;                                                      /* how it works, in a word: "rows" */
  uint64_t (*workspace)(const problem *p, const cpu_features *features); /* bytes; NULL: none               */
  void (*forward)(const cpu_call *c);
  void (*backward)(const cpu_call *c); /* NULL: the op has none */
} cpu_kernel;

#define JOIN3_(a, b, c) a##_##b##_##c
#define JOIN3(a, b, c)  JOIN3_(a, b, c)
#define CPU_KERNEL(op)  JOIN3(op, AMBI_ISA, AMBI_ARITHMETIC) /* rmsnorm_avx2_f32 */

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

#endif
