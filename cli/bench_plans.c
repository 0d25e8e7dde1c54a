/* bench_plans.c -- how long a process waits for its first plan: with nothing kept on disk, and with the kernel there.
 *
 * Every figure is of a process of its own, forked before any device is opened, so that no library, context or kernel of
 * an earlier one is left in memory. What the operating system keeps of files it has read is not emptied. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "device.h"

typedef struct {
  double open, plan; /* seconds */
  atomic_int texts;  /* that were compiled, some of them side by side */
  ambi_status status;
  char error[SENTENCE_BYTES];
} answer;

static void count(void *texts, const char *what) {
  (void)what;
  ++*(atomic_int *)texts;
}

/* In the child: its answer goes through the pipe. */
static void first_plan(const char *device, const char *isa, const char *cache, const ambi_op *op, answer *a) {
  ambi_device_options o = {.max_isa = isa, .cache_dir = cache, .notify = count, .notify_context = &a->texts};
  ambi_device *dev = NULL;
  ambi_plan *plan = NULL;
  setenv("CUDA_CACHE_DISABLE", "1", 1); /* the driver's own, of what it makes of PTX */
  double begin = bench_now();
  a->status = ambi_device_open(device, &o, &dev);
  a->open = bench_now() - begin;
  if (a->status == AMBI_OK && !device_compiles(dev, device, a->error, sizeof a->error)) a->status = AMBI_NO_DEVICE;
  begin = bench_now();
  if (a->status == AMBI_OK) a->status = ambi_plan_create(dev, op, &plan);
  a->plan = bench_now() - begin;
  if (a->status != AMBI_OK && !*a->error) snprintf(a->error, sizeof a->error, "%s", ambi_error());
  ambi_plan_destroy(plan);
  ambi_device_close(dev);
}

static answer in_a_process(const char *device, const char *isa, const char *cache, const ambi_op *op) {
  answer a = {.status = AMBI_DEVICE_LOST, .error = "the process that was to make the plan did not end well"};
  int ends[2], status;
  if (pipe(ends)) return a;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    answer mine = {0};
    first_plan(device, isa, cache, op, &mine);
    _exit(write(ends[1], &mine, sizeof mine) != sizeof mine);
  }
  close(ends[1]);
  answer got;
  const int whole = child > 0 && read(ends[0], &got, sizeof got) == sizeof got;
  close(ends[0]);
  if (child > 0) waitpid(child, &status, 0);
  return whole ? got : a;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* One process to fill the folder, three to find it filled. */
static void time_plans(const char *device, const char *isa, const char *cache, bench_case *c, bench_plan_times *t) {
  enum { AGAIN = 3 };
  double kept[AGAIN], open[AGAIN];
  answer a = in_a_process(device, isa, cache, &c->op);
  t->compiled = a.plan, t->texts = a.texts;
  for (int i = 0; i < AGAIN && a.status == AMBI_OK; i++) {
    a = in_a_process(device, isa, cache, &c->op);
    kept[i] = a.plan, open[i] = a.open;
    if (a.status == AMBI_OK && a.texts) {
      a.status = AMBI_DENIED;
      snprintf(a.error, sizeof a.error, "its kernel was not found on disk, where it should have been kept");
    }
  }
  c->status = a.status;
  snprintf(c->error, sizeof c->error, "%s", a.error);
  if (a.status != AMBI_OK) return;
  qsort(kept, AGAIN, sizeof *kept, by_value);
  qsort(open, AGAIN, sizeof *open, by_value);
  t->kept = kept[AGAIN / 2], t->open = open[AGAIN / 2];
}

void bench_first_plan(const char *device, const char *isa, bench_case *c, bench_plan_times *t) {
  char folder[] = "/tmp/ambi-plans-XXXXXX", command[64];
  ambi_device *ref = NULL;
  *t = (bench_plan_times){0};
  c->status = ambi_device_open("ref", NULL, &ref);
  if (c->status == AMBI_OK) bench_make_op(ref, c);
  ambi_device_close(ref);
  if (c->status != AMBI_OK) return;
  if (!mkdtemp(folder)) {
    c->status = AMBI_DENIED;
    snprintf(c->error, sizeof c->error, "no folder for kernels can be made in /tmp");
    return;
  }
  time_plans(device, isa, folder, c, t);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command)) fprintf(stderr, "ambi bench: %s was not removed\n", folder);
}
