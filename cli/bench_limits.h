/* bench_limits.h -- what this machine can do at most, measured when the kernels are. */
#ifndef CLI_BENCH_LIMITS_H
#define CLI_BENCH_LIMITS_H
#include "exec.h"

typedef struct {
  double copy_gbps;   /* memory to memory past the cache; a byte read and written counts as two */
  double peak_gflops; /* f32 multiply-adds in registers, two a multiply-add                     */
  const char *isa;    /* of that peak: "avx512", "avx2", "neon", "plain"                        */
} bench_limits;

/* With that many threads; about a second. 0, or -1 when there is no memory or no thread. */
int bench_measure_limits(int threads, bench_limits *out);

/* The same of any other device, by ambi_copy; its peak is not known (NaN). 0, or -1: ambi_error(). */
int bench_device_limits(const target *t, bench_limits *out);

double bench_now(void); /* seconds, monotonic */

#endif
