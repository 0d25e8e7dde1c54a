/* test_threads.c -- one plan run by eight threads at once on buffers of their own; one to seven workers in a device:
 * always the bits of a single thread. (That those bits are right is what `ambi check` proves.) */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "test.h"
#include "work.h"

enum { THREADS = 8, ROUNDS = 4, MOST = 1 << 24 };

/* Larger than those of cases.h, so that there is more than one task to hand out. */
static const char *const large_cases[] = {
    "unary x=130x500 function=gelu",
    "gated v=130x500 g=130x500 gate=swiglu",
    "add a=130x500 b=130x500@0,1",
    "cast x=130x500:f32 y=130x500:f16",
    "rmsnorm x=500x130 w=130 residual=500x130 rstd sum",
    "layernorm x=500x130 w=130 b=130",
    "linear x=150x100 w=70x100 b=70",
    "conv1d x=2x40x200 w=40x4 b=40 silu=true",
    "selective_scan u=2x20x200 delta=2x20x200 a=20x16 b=2x16x200 c=2x16x200 d=20 z=2x20x200 softplus=true",
    "adamw p=50000:f32 g=50000 m=50000:f32 v=50000:f32 lr=1:f32 step=1:i64",
    "grad_norm g=50000 max_norm=1",
    "attention q=1x4x200x32 k=1x2x250x32 v=1x2x250x32 causal=true lse",
    "ssd x=2x150x10x8 delta=2x150x10 a=10 b=2x150x1x16 c=2x150x1x16 d=10 delta_bias=10 softplus=true h_last",
};
enum { LARGE_CASES = sizeof large_cases / sizeof *large_cases };

static ambi_device *open_cpu(int threads) {
  ambi_device *dev = NULL;
  CHECK_OK(ambi_device_open("cpu", &(ambi_device_options){.threads = threads}, &dev));
  return dev;
}

typedef struct {
  const ambi_plan *plan; /* one for all threads */
  work mine;
  uint64_t expected;
  int wrong;
  pthread_barrier_t *start;
} runner;

static void *run_many(void *argument) {
  runner *r = argument;
  pthread_barrier_wait(r->start);
  for (int i = 0; i < ROUNDS; i++) {
    const work *w = &r->mine;
    ambi_status s = ambi_run(r->plan, NULL, w->buf, AMBI_SLOTS, w->workspace);
    if (s != AMBI_OK || work_hash(w) != r->expected) r->wrong++;
  }
  return NULL;
}

/* Memory and values of its own for each runner, and what a device of one thread makes of them. */
static void prepare(ambi_device *one, ambi_device *many, const ambi_op *op, runner *r, int i) {
  work alone;
  if (work_make(many, op, MOST, &r->mine) != AMBI_OK || work_make(one, op, MOST, &alone) != AMBI_OK) abort();
  work_fill(&r->mine, (uint64_t)i + 1);
  ambi_status s = ambi_run(alone.plan, NULL, r->mine.buf, AMBI_SLOTS, alone.workspace);
  CHECK(s == AMBI_OK, "%s", ambi_error());
  r->expected = work_hash(&r->mine);
  work_poison(&r->mine);
  work_free(&alone);
}

/* What one thread computes for each seed, then all at once. */
static void check_shared_plan(ambi_device *one, ambi_device *many, const ambi_op *op, const char *text) {
  runner r[THREADS] = {{0}};
  pthread_t id[THREADS];
  pthread_barrier_t start;
  work shared;
  int wrong = 0, started = 0;
  if (!CHECK(work_make(many, op, MOST, &shared) == AMBI_OK, "%s: %s", text, ambi_error())) return;
  if (pthread_barrier_init(&start, NULL, THREADS) != 0) abort();
  for (int i = 0; i < THREADS; i++) {
    prepare(one, many, op, &r[i], i);
    r[i].plan = shared.plan;
    r[i].start = &start;
  }
  for (int i = 1; i < THREADS; i++)
    CHECK(r[i].expected != r[0].expected || !shared.info.reads, "%s: seeds differ", text);
  for (; started < THREADS; started++)
    if (pthread_create(&id[started], NULL, run_many, &r[started]) != 0) abort();
  for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL), wrong += r[i].wrong, work_free(&r[i].mine);
  CHECK(wrong == 0, "%s: %d of %d runs gave other bits from %d threads at once", text, wrong, THREADS * ROUNDS,
        THREADS);
  pthread_barrier_destroy(&start);
  work_free(&shared);
}

static uint64_t bits_with(ambi_device *dev, const ambi_op *op, const char *text) {
  work w;
  if (!CHECK(work_make(dev, op, MOST, &w) == AMBI_OK, "%s: %s", text, ambi_error())) return 0;
  work_fill(&w, 7);
  CHECK(work_run(&w, NULL) == AMBI_OK, "%s: %s", text, ambi_error());
  uint64_t h = work_hash(&w);
  work_free(&w);
  return h;
}

static void check_op(ambi_device *const *crew, const ambi_op *op, const char *text) {
  uint64_t one = bits_with(crew[0], op, text);
  CHECK(bits_with(crew[1], op, text) == one, "%s: 2 threads give other bits than 1", text);
  CHECK(bits_with(crew[2], op, text) == one, "%s: 7 threads give other bits than 1", text);
  check_shared_plan(crew[0], crew[2], op, text);
}

static void check_case(ambi_device *const *crew, const char *text) {
  static const ambi_dtype dtypes[] = {AMBI_F32, AMBI_BF16};
  for (int i = 0; i < 2; i++) {
    ambi_op forward, backward;
    if (work_case(text, dtypes[i], &forward)) return;
    check_op(crew, &forward, text);
    if (work_backward(crew[0], &forward, &backward) == 0) check_op(crew, &backward, text);
  }
}

/* Two threads may open, plan, run and close devices of their own at the same time. */
static void *live_alone(void *argument) {
  int *wrong = argument;
  for (int i = 0; i < 5; i++) {
    ambi_device *dev;
    ambi_op op = {.kind = AMBI_RMSNORM};
    work w;
    op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_F32, 2, (int64_t[]){100, 64});
    if (ambi_device_open("cpu", &(ambi_device_options){.threads = 2}, &dev) != AMBI_OK) return ++*wrong, NULL;
    if (work_make(dev, &op, MOST, &w) == AMBI_OK) {
      work_fill(&w, 3);
      *wrong += work_run(&w, NULL) != AMBI_OK;
      work_free(&w);
    } else {
      ++*wrong;
    }
    ambi_device_close(dev);
  }
  return NULL;
}

/* Each thread has its own error sentence. */
static void *fail_alone(void *argument) {
  char name[16], *wrong = argument;
  snprintf(name, sizeof name, "none%d", *wrong);
  *wrong = 0;
  for (int i = 0; i < 1000; i++) {
    ambi_device *dev;
    if (ambi_device_open(name, NULL, &dev) != AMBI_NO_DEVICE || !strstr(ambi_error(), name)) *wrong = 1;
  }
  return NULL;
}

static void test_independence(void) {
  pthread_t id[THREADS];
  int wrong[THREADS] = {0};
  char mixed[THREADS];
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&id[i], NULL, live_alone, &wrong[i]) != 0) abort();
  for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL), CHECK(wrong[i] == 0, "thread %d alone", i);
  for (int i = 0; i < THREADS; i++) {
    mixed[i] = (char)(i + 1);
    if (pthread_create(&id[i], NULL, fail_alone, &mixed[i]) != 0) abort();
  }
  for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL), CHECK(mixed[i] == 0, "thread %d: its own error", i);
}

/* Nor do bits depend on where a result lies, even if it is larger than the cache and stored past it. */
static void test_addresses(ambi_device *dev) {
  const int64_t n = 9000001;
  ambi_op op = {.kind = AMBI_UNARY, .u.unary = {.function = AMBI_SILU, .a = 1}};
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_BF16, 1, &n);
  ambi_plan *plan = NULL;
  uint16_t *x = malloc((size_t)n * 2), *y = aligned_alloc(64, 64 * 281251), *z = aligned_alloc(64, 64 * 281251);
  if (!x || !y || !z || ambi_plan_create(dev, &op, &plan) != AMBI_OK) abort();
  for (int64_t i = 0; i < n; i++) x[i] = (uint16_t)(0x3800 + i % 0xa00 + (i / 7 & 1) * 0x8000); /* 2^-15 to 2^5, +- */
  for (int astray = 0; astray < 2; astray++) {
    ambi_buf slots[AMBI_SLOTS] = {{0}};
    slots[AMBI_UNARY_X].data = x, slots[AMBI_UNARY_Y].data = astray ? z + 1 : y;
    CHECK_OK(ambi_run(plan, NULL, slots, AMBI_SLOTS, (ambi_buf){0}));
  }
  CHECK(memcmp(y, z + 1, (size_t)n * 2) == 0, "results depend on their address");
  ambi_plan_destroy(plan);
  free(x), free(y), free(z);
}

/* ---- fork: a child has the device, and none of its threads ---- */
typedef struct {
  ambi_device *dev;
  work mine, others; /* of the process; of the thread that keeps the workers busy */
  atomic_bool stop;
} family;

static void *keep_busy(void *argument) {
  family *f = argument;
  while (!atomic_load(&f->stop)) work_run(&f->others, NULL);
  return NULL;
}

/* Runs and closes what it was left, and says whether the bits were right; a child that hangs is ended by the alarm. */
static void live_as_child(family *f, uint64_t expected) {
  alarm(20);
  int wrong = 0;
  for (int i = 0; i < 3; i++) {
    work_poison(&f->mine);
    wrong |= work_run(&f->mine, NULL) != AMBI_OK || work_hash(&f->mine) != expected;
  }
  work_free(&f->mine);
  ambi_device_close(f->dev);
  _exit(wrong);
}

static void check_children(family *f, int children, const char *when) {
  work_fill(&f->mine, 5);
  CHECK_OK(work_run(&f->mine, NULL));
  const uint64_t expected = work_hash(&f->mine);
  int status = 0, wrong = 0;
  for (int i = 0; i < children && !wrong; i++) {
    const pid_t child = fork();
    if (child == 0) live_as_child(f, expected);
    wrong = child < 0 || waitpid(child, &status, 0) != child || status != 0;
  }
  CHECK(!wrong, "a child that was forked %s ended with status %#x", when, (unsigned)status);
  CHECK(work_run(&f->mine, NULL) == AMBI_OK && work_hash(&f->mine) == expected, "the parent goes on");
}

static void test_fork(void) {
  family f = {.dev = open_cpu(4)};
  ambi_op op;
  pthread_t id;
  if (!f.dev || work_case("rmsnorm x=500x130 w=130", AMBI_F32, &op)) return;
  if (work_make(f.dev, &op, MOST, &f.mine) != AMBI_OK || work_make(f.dev, &op, MOST, &f.others) != AMBI_OK) abort();
  work_fill(&f.others, 6);
  check_children(&f, 3, "from a device at rest");
  if (pthread_create(&id, NULL, keep_busy, &f) != 0) abort();
  check_children(&f, 100, "from a busy device");
  atomic_store(&f.stop, true);
  pthread_join(id, NULL);
  work_free(&f.mine), work_free(&f.others);
  ambi_device_close(f.dev);
}

int main(void) {
  ambi_device *crew[3] = {open_cpu(1), open_cpu(2), open_cpu(7)};
  if (!crew[0] || !crew[1] || !crew[2]) return test_done();
  for (int i = 0; i < GOOD_CASES; i++) check_case(crew, good_cases[i]);
  for (int i = 0; i < LARGE_CASES; i++) check_case(crew, large_cases[i]);
  test_addresses(crew[1]);
  for (int i = 0; i < 3; i++) ambi_device_close(crew[i]);
  test_independence();
  test_fork();
  return test_done();
}
