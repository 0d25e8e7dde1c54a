/* check_jobs.c -- the check by several processes at a time. Each walks over everything, does its share (is_mine) and
 * sends every group through a pipe when that ends; here the groups of all are added up and printed. Processes rather
 * than threads: compilers of GPU kernels hold locks, and a kernel that crashes takes one job with it, not the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "print.h"

#if defined(__wasm__)
int64_t check_default_jobs(const checker *ck) { return (void)ck, 1; }
int check_by_jobs(checker *ck, int (*check)(checker *ck)) {
  ck->jobs = 1;
  return check(ck);
}
#else
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_BY_DEFAULT = 8 }; /* each holds a context on the device: some hundred MB there */

int64_t check_default_jobs(const checker *ck) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (ck->text || strncmp(ck->device, "cuda", 4) || cores < 1) return 1;
  return cores < MOST_BY_DEFAULT ? cores : MOST_BY_DEFAULT;
}

typedef struct {
  pid_t process;
  int groups; /* the pipe's end they come out of; -1 after the last */
  int idle;   /* it could not begin */
} job;

/* In the child: the last group has no name, and the sums of all; or the reason why there are none. */
static void work(checker *ck, int64_t number, int answers, int (*check)(checker *ck)) {
  ck->job = number;
  ck->answers = answers;
  ck->terminal = 0;
  const int rc = check(ck);
  fflush(stdout);
  group sums = {.passed = ck->passed, .failed = ck->failed, .skipped = ck->skipped};
  if (rc) memcpy(sums.reason, ck->trouble, sizeof sums.reason);
  _exit(write(answers, &sums, sizeof sums) != sizeof sums);
}

static int begin(checker *ck, job *jobs, int64_t number, int (*check)(checker *ck)) {
  int ends[2];
  if (pipe(ends)) return -1;
  fflush(NULL);
  const pid_t process = fork();
  if (process == 0) {
    for (int64_t i = 0; i < number; i++) close(jobs[i].groups);
    close(ends[0]);
    work(ck, number, ends[1], check);
  }
  close(ends[1]);
  if (process < 0) close(ends[0]);
  jobs[number] = (job){process, process < 0 ? -1 : ends[0], 0};
  return process < 0 ? -1 : 0;
}

static int read_group(int from, group *g) {
  size_t got = 0;
  while (got < sizeof *g) {
    const ssize_t n = read(from, (char *)g + got, sizeof *g - got);
    if (n <= 0) return -1;
    got += (size_t)n;
  }
  return 0;
}

static void add_group(group *sum, const group *g) {
  memcpy(sum->name, g->name, sizeof sum->name);
  sum->passed += g->passed, sum->failed += g->failed, sum->skipped += g->skipped;
  if (g->worst > sum->worst) sum->worst = g->worst;
  if (g->limit) sum->limit = g->limit; /* a literal: where it is here, too */
  if (g->reason[0]) memcpy(sum->reason, g->reason, sizeof sum->reason);
}

/* `last`: what it sent last; NULL: it ended before its work did, which is a failure. */
static void end(checker *ck, job *j, int64_t number, const group *last) {
  int status = 0;
  close(j->groups);
  j->groups = -1;
  waitpid(j->process, &status, 0);
  if (last && last->reason[0]) {
    j->idle = 1;
    memcpy(ck->trouble, last->reason, sizeof ck->trouble);
  } else if (last) {
    ck->passed += last->passed, ck->failed += last->failed, ck->skipped += last->skipped;
  } else {
    const int killed = WIFSIGNALED(status);
    printf("FAIL  job %lld of %lld ended early, by %s %d: --jobs 1 shows where\n", (long long)number + 1,
           (long long)ck->jobs, killed ? "signal" : "status", killed ? WTERMSIG(status) : WEXITSTATUS(status));
    ck->failed++;
  }
}

/* One group of every job that still works; how many do. */
static int64_t gather(checker *ck, job *jobs) {
  int64_t working = 0;
  group sum = {.ck = ck};
  for (int64_t i = 0; i < ck->jobs; i++) {
    group g;
    if (jobs[i].groups < 0) continue;
    const int whole = !read_group(jobs[i].groups, &g);
    if (whole && g.name[0]) {
      add_group(&sum, &g);
      working++;
      if (ck->terminal)
        printf("%s %lld of %lld jobs\r", g.name, (long long)working, (long long)ck->jobs), fflush(stdout);
      continue;
    }
    end(ck, &jobs[i], i, whole ? &g : NULL);
  }
  group_print(&sum);
  return working;
}

/* That kernels are compiled is said by one of the jobs. */
static void speak_once(void) {
  atomic_flag *said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (said != MAP_FAILED) notify_together(said); /* as it is all 0, it is clear */
}

int check_by_jobs(checker *ck, int (*check)(checker *ck)) {
  job jobs[MOST_JOBS] = {{0}};
  int64_t idle = 0;
  speak_once();
  for (int64_t i = 0; i < ck->jobs; i++) {
    if (begin(ck, jobs, i, check) == 0) continue;
    snprintf(ck->trouble, sizeof ck->trouble, "a job cannot be started: --jobs 1 does without");
    for (int64_t k = 0; k < i; k++) close(jobs[k].groups);
    return 2;
  }
  while (gather(ck, jobs) > 0) {
  }
  for (int64_t i = 0; i < ck->jobs; i++) idle += jobs[i].idle;
  if (idle == ck->jobs) return 2;
  if (idle)
    printf("FAIL  %lld of %lld jobs could not begin (%s): fewer may do (--jobs)\n", (long long)idle,
           (long long)ck->jobs, ck->trouble);
  ck->failed += idle;
  return 0;
}
#endif
