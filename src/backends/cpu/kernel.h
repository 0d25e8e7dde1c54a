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

/* AMBI_COMPACT: code is downloaded, and its size is what counts.
 *   HAS_BF16S  lines of bf16 are read and written as they lie; otherwise they go through tiles, as f16 does
 *   SHARED     of functions in headers: one for all kernels of an arithmetic; otherwise each file has its own  */
#if defined(AMBI_COMPACT)
#define HAS_BF16S     0
#define SHARED        __attribute__((weak))
#define read_reals    CPU_KERNEL(read_reals)
#define write_reals   CPU_KERNEL(write_reals)
#define strip_put     CPU_KERNEL(strip_put)
#define pointwise_run CPU_KERNEL(pointwise_run)
#define product       CPU_KERNEL(product)
#define product_into  CPU_KERNEL(product_into)
#define product_add   CPU_KERNEL(product_add)
#else
#if defined(AMBI_PACK) /* f32 alone */
#define HAS_BF16S 0
#else
#define HAS_BF16S (AMBI_REAL == 32)
#endif
#define SHARED static __attribute__((unused))
#endif

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline uint64_t magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

#endif
