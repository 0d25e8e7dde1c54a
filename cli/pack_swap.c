/* pack_swap.c -- `ambi pack swap`: threads call the active pack while it is replaced and rolled back, again and again.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pack.h"
#include "pack_kernels.h"

enum { MOST_THREADS = 64 };

typedef struct {
  trust_options trust;
  const char *old, *new, *id;
  int64_t times, threads, done;
  ambi_pack_host *host;
  pack_case c; /* what every thread asks, and the right answer */
  atomic_llong calls, failed, wrong;
  atomic_bool stop;
} swapper;

/* Resident memory, in KiB */
static long resident(void) {
  long pages = 0, size = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%ld %ld", &size, &pages) != 2) pages = 0;
  if (f) fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* ---- load ---- */
static void *work(void *context) {
  swapper *s = context;
  pack_case mine = s->c;
  for (int r = AMBI_PACK_OUT; r <= AMBI_PACK_SCRATCH; r++)
    mine.call.at[r] = mine.call.bytes[r] ? calloc(1, mine.call.bytes[r]) : NULL;
  while (!atomic_load(&s->stop)) {
    for (int r = AMBI_PACK_OUT; r <= AMBI_PACK_SCRATCH; r++)
      if (mine.call.bytes[r]) memset(mine.call.at[r], 0xff, mine.call.bytes[r]);
    int ok = ambi_pack_run_active(s->host, s->id, &mine.call) == AMBI_OK;
    if (!ok && atomic_fetch_add(&s->failed, 1) == 0) trouble("a call failed");
    if (ok && !pack_case_agrees(&mine)) atomic_fetch_add(&s->wrong, 1);
    atomic_fetch_add(&s->calls, 1);
  }
  for (int r = AMBI_PACK_OUT; r <= AMBI_PACK_SCRATCH; r++) free(mine.call.at[r]);
  return NULL;
}

/* ---- swaps ---- */
/* Opens (and so verifies) the folder and makes it active. */
static int swap_to(swapper *s, const char *folder) {
  ambi_pack *p = NULL;
  int rc = ambi_pack_open(s->host, folder, &p) != AMBI_OK || ambi_pack_swap(s->host, p) != AMBI_OK;
  ambi_pack_close(p);
  return rc ? trouble(folder) : 0;
}

static int swap_often(swapper *s) {
  long early = 0;
  for (int64_t i = 0; i < s->times; i += 2) {
    if (swap_to(s, s->new)) return 1;
    s->done++;
    if (i + 1 < s->times && ambi_pack_rollback(s->host) != AMBI_OK) return trouble("rollback");
    s->done += i + 1 < s->times;
    if (i <= s->times / 5) early = resident();
  }
  long late = resident();
  printf("resident memory: %ld KiB after a fifth of the swaps, %ld KiB after all\n", early, late);
  return 0;
}

static int swap_all(swapper *s) {
  pthread_t threads[MOST_THREADS];
  int started = 0, rc = swap_to(s, s->old);
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (!rc && started < s->threads && pthread_create(&threads[started], NULL, work, s) == 0) started++;
  if (!rc) rc = swap_often(s);
  atomic_store(&s->stop, true);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  clock_gettime(CLOCK_MONOTONIC, &end);
  double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  printf("%lld swaps and rollbacks, %lld calls of %s from %d threads in %.1f s: %lld failed, %lld wrong\n",
         (long long)s->done, (long long)atomic_load(&s->calls), s->id, started, seconds,
         (long long)atomic_load(&s->failed), (long long)atomic_load(&s->wrong));
  return rc || started < s->threads || atomic_load(&s->failed) || atomic_load(&s->wrong);
}

int pack_swap(int argc, char **argv) {
  swapper s = {.id = "swiglu_f32", .times = 2, .threads = 4};
  const option opts[] = {{"times", OPT_INT, &s.times, "N", "swaps and rollbacks, in turn; 2"},
                         {"threads", OPT_INT, &s.threads, "N", "that call the active pack meanwhile; 4"},
                         {"kernel", OPT_STRING, &s.id, "ID", "that they call; swiglu_f32"},
                         TRUST_OPTIONS(s.trust),
                         {0}};
  const command_line spec = {
      "ambi pack swap",
      "OLD NEW --trust KEY",
      "Makes the pack OLD active, then NEW while threads call its kernels, rolls back, and so on. "
      "Each swap verifies NEW and runs its self-tests. Status 0: no call failed or was wrong.",
      opts,
      NULL,
      2};
  const char *operands[2] = {NULL, NULL};
  ambi_device *ref = NULL;
  int rc = trust_parse(&spec, argc, argv, operands, &s.trust);
  if (rc >= 0) return rc;
  char err[200];
  const option_range rows[] = {{"times", (double)s.times, 1, 1e12}, {"threads", (double)s.threads, 0, MOST_THREADS}};
  const pack_def *d = pack_def_named(s.id);
  if (!d) return options_wrong(&spec, "there is no kernel %s", s.id);
  if (!options_in_range(rows, 2, err, sizeof err)) return options_wrong(&spec, "%s", err);
  s.old = operands[0], s.new = operands[1];
  if (!(s.host = trust_host(&s.trust))) return 1;
  rc = ambi_device_open("ref", NULL, &ref) != AMBI_OK ? trouble("ref") : 0;
  rc = rc || !pack_case_make(&s.c, d, AMBI_BACKWARD, d->test, ref) || swap_all(&s);
  pack_case_free(&s.c);
  if (ref) ambi_device_close(ref);
  ambi_pack_host_destroy(s.host);
  return rc;
}
