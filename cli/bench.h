/* bench.h -- timing one op on one device. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H
#include "bench_limits.h"
#include "exec.h"

enum {
  BENCH_IN_PLACE = 1,
  BENCH_FIXED_DTYPE = 2,
  BENCH_FORWARD_ONLY = 4,
  BENCH_BACKWARD_ONLY = 8,
  BENCH_TOGETHER = 16,
  BENCH_CALLS = 32 /* time the calls alone: not as a graph, nor until the work is done */
};

typedef struct {
  /* what to time */
  const char *text; /* a case of case.h; slots without a dtype get `dtype` */
  ambi_pass pass;
  ambi_dtype dtype;
  int flags;
  /* what came of it */
  ambi_status status;
  char error[SENTENCE_BYTES];
  ambi_op op;
  char kernel[128];
  double median, best; /* seconds */
  int runs;
  uint64_t bytes, flops, workspace;
} bench_case;

typedef struct {
  const target *target;
  double seconds;  /* least time spent on the timed runs of a case */
  uint64_t rotate; /* bytes of buffers that runs take turns with; 0: one set */
  ambi_buf memory; /* one allocation for the buffers of every case, grown when needed */
  size_t capacity;
} bench_session;

void bench_run(bench_session *s, bench_case *c);
void bench_close(bench_session *s);
/* c->op, from the text, pass and dtype; 0, or -1 and c->status, c->error. */
int bench_make_op(ambi_device *dev, bench_case *c);

/* bench_plans.c: seconds of opening a device, and of a process's first plan when it must be compiled and when it is
 * kept on disk. c->status and c->error as after bench_run. */
typedef struct {
  double open, compiled, kept;
  int texts; /* compiled for it: 0 where the library or the device brings the kernel */
} bench_plan_times;
void bench_first_plan(const char *device, const char *isa, bench_case *c, bench_plan_times *t);

/* Microseconds that one call of ambi_run takes on a tensor that costs nothing, and of one ambi_plan_create. 0, or -1:
 * ambi_error(). */
int bench_overhead(const target *t, const char *text, double *run_us, double *plan_us);

#endif
