/* test_alloc.c -- every allocation and every thread fails in its turn: a clean status, NULL out, nothing leaked.
 *   test_alloc         plans of the CPU, and what else it makes
 *   test_alloc cuda    plans of CUDA, their texts kept on disk
 * The linker sends the library's calls through the __wrap_ functions below (see CMakeLists.txt). */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../util/files.h"
#include "cases.h"
#include "test.h"
#include "work.h"

/* ---- the allocator that fails on demand ---- */
static atomic_long countdown = -1; /* the call that fails; negative: none */
static atomic_long live, calls;

static bool refuse(void) {
  calls++;
  return countdown >= 0 && countdown-- == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
void __real_free(void *p);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *c);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
void __wrap_free(void *p);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *c);

static void *counted(void *p) {
  live += p != NULL;
  return p;
}
void *__wrap_malloc(size_t n) { return refuse() ? NULL : counted(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return refuse() ? NULL : counted(__real_calloc(n, size)); }
void *__wrap_aligned_alloc(size_t a, size_t n) { return refuse() ? NULL : counted(__real_aligned_alloc(a, n)); }
void *__wrap_realloc(void *p, size_t n) {
  if (refuse()) return NULL;
  void *q = __real_realloc(p, n);
  live += !p && q;
  return q;
}
void __wrap_free(void *p) {
  live -= p != NULL;
  __real_free(p);
}
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *c) {
  return refuse() ? EAGAIN : __real_pthread_create(t, a, f, c);
}

/* ---- what may fail ---- */
static ambi_device *cpu, *ref;
static const ambi_op *the_op;

/* Each makes one thing, sets *made to whether out is not NULL, and frees it again. */
static ambi_status try_open(const char *name, bool *made) {
  ambi_device *dev = (ambi_device *)&made;
  ambi_status s = ambi_device_open(name, &(ambi_device_options){.threads = 4}, &dev);
  *made = dev != NULL;
  if (s == AMBI_OK) ambi_device_close(dev);
  return s;
}
static ambi_status try_plan(ambi_device *dev, bool *made) {
  ambi_plan *plan = (ambi_plan *)&made;
  ambi_status s = ambi_plan_create(dev, the_op, &plan);
  *made = plan != NULL;
  if (s == AMBI_OK) ambi_plan_destroy(plan);
  return s;
}
static ambi_status try_stream(ambi_device *dev, bool *made) {
  ambi_stream *stream = (ambi_stream *)&made;
  ambi_status s = ambi_stream_create(dev, NULL, &stream);
  *made = stream != NULL;
  if (s == AMBI_OK) ambi_stream_destroy(stream);
  return s;
}
static ambi_status try_event(ambi_device *dev, bool *made) {
  ambi_event *event = (ambi_event *)&made;
  ambi_status s = ambi_event_create(dev, &event);
  *made = event != NULL;
  if (s == AMBI_OK) ambi_event_destroy(event);
  return s;
}
static ambi_status try_alloc(ambi_device *dev, bool *made) {
  ambi_buf b = {&made, 7};
  ambi_status s = ambi_alloc(dev, 1000, &b);
  *made = b.data != NULL;
  if (s == AMBI_OK) ambi_free(dev, b);
  return s;
}

static ambi_status open_cpu(bool *made) { return try_open("cpu", made); }
static ambi_status open_ref(bool *made) { return try_open("ref", made); }
static ambi_status plan_cpu(bool *made) { return try_plan(cpu, made); }
static ambi_status plan_ref(bool *made) { return try_plan(ref, made); }
static ambi_status stream_cpu(bool *made) { return try_stream(cpu, made); }
static ambi_status stream_ref(bool *made) { return try_stream(ref, made); }
static ambi_status event_cpu(bool *made) { return try_event(cpu, made); }
static ambi_status event_ref(bool *made) { return try_event(ref, made); }
static ambi_status alloc_cpu(bool *made) { return try_alloc(cpu, made); }
static ambi_status alloc_ref(bool *made) { return try_alloc(ref, made); }

/* Only the plan may fail. Its device is new, so that the texts are not in memory, and gives back what it keeps of them.
 */
static const char *cuda_cache;
static ambi_status plan_cuda(bool *made) {
  const ambi_device_options o = {.max_isa = "special", .cache_dir = cuda_cache};
  const long k = countdown;
  ambi_device *dev;
  countdown = -1;
  ambi_status s = ambi_device_open("cuda", &o, &dev);
  if (s != AMBI_OK) return *made = false, s;
  countdown = k;
  s = try_plan(dev, made);
  const long left = countdown;
  countdown = -1;
  ambi_device_close(dev);
  countdown = left;
  return s;
}

/* Fails the first allocation, then the second, .. until the call succeeds without meeting a failure. */
static void fail_each(ambi_status (*attempt)(bool *made), const char *what) {
  int failures = 0;
  for (long k = 0; k < 200; k++) {
    bool made;
    long before = live;
    countdown = k;
    ambi_status s = attempt(&made);
    bool reached = countdown < 0;
    countdown = -1;
    CHECK(live == before, "%s, failure %ld: %ld allocations leaked", what, k, live - before);
    CHECK(made == (s == AMBI_OK), "%s, failure %ld: what was not made is NULL", what, k);
    if (!reached) {
      CHECK(s == AMBI_OK, "%s without a failure: %s", what, ambi_error());
      CHECK(failures > 0, "%s allocates nothing: the test is blind", what);
      return;
    }
    failures++;
    if (s == AMBI_OK && attempt == plan_cuda) continue; /* without a thread or what is on disk, it takes longer */
    CHECK_STATUS(s, AMBI_NO_MEMORY, "");
    CHECK(strlen(ambi_error()) > 8, "%s, failure %ld: '%s' is no sentence", what, k, ambi_error());
  }
  CHECK(false, "%s never succeeds", what);
}

/* ambi_run allocates nothing. */
static void check_run(ambi_device *dev, const char *text) {
  work w;
  if (!CHECK(work_make(dev, the_op, 1 << 24, &w) == AMBI_OK, "%s: %s", text, ambi_error())) return;
  work_fill(&w, 1);
  long before = calls;
  CHECK(work_run(&w, NULL) == AMBI_OK, "%s: %s", text, ambi_error());
  CHECK(calls == before, "%s: ambi_run allocated %ld times", text, calls - before);
  work_free(&w);
}

static void check_op(const ambi_op *op, const char *text) {
  the_op = op;
  fail_each(plan_cpu, text);
  fail_each(plan_ref, text);
  check_run(cpu, text);
  check_run(ref, text);
}

/* A file is read whole or not at all, whichever allocation fails. */
static void test_files(void) {
  enum { BYTES = 300000 };
  static char data[BYTES];
  char path[] = "/tmp/ambi-alloc-XXXXXX", err[200];
  int fd = mkstemp(path), whole = 0;
  CHECK(fd >= 0 && write(fd, data, BYTES) == BYTES && close(fd) == 0, "a file");
  for (long i = 0; i < 20 && !whole; i++) {
    size_t n = 0;
    countdown = i;
    char *got = file_read(path, BYTES, &n, err, sizeof err);
    countdown = -1;
    whole = got && n == BYTES;
    CHECK(!got || whole, "allocation %ld fails: %zu bytes of %d were taken for all", i, n, (int)BYTES);
    CHECK(got || strstr(err, "out of memory"), "allocation %ld fails: %s", i, err);
    free(got);
  }
  CHECK(whole, "in the end it is read");
  unlink(path);
}

/* Of two texts, and of three. */
static void test_cuda(void) {
  static const char *const cases[] = {"attention q=1x1x16x64 k=1x1x16x64 v=1x1x16x64", "linear x=8x16 w=24x16 b=24"};
  char folder[] = "/tmp/ambi-alloc-XXXXXX", command[64];
  if (!CHECK(cuda_cache = mkdtemp(folder), "a folder")) return;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ambi_op op;
    bool made;
    if (!CHECK(!work_case(cases[i], AMBI_BF16, &op), "%s", cases[i])) continue;
    op.pass = AMBI_BACKWARD;
    the_op = &op;
    CHECK_OK(plan_cuda(&made)); /* its texts are on disk from here on */
    fail_each(plan_cuda, cases[i]);
  }
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0, "%s", command);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "cuda")) return test_cuda(), test_done();
  test_files();
  if (!CHECK_OK(ambi_device_open("cpu", NULL, &cpu)) || !CHECK_OK(ambi_device_open("ref", NULL, &ref)))
    return test_done();
  fail_each(open_cpu, "opening cpu");
  fail_each(open_ref, "opening ref");
  fail_each(stream_cpu, "a stream of cpu");
  fail_each(stream_ref, "a stream of ref");
  fail_each(event_cpu, "an event of cpu");
  fail_each(event_ref, "an event of ref");
  fail_each(alloc_cpu, "memory of cpu");
  fail_each(alloc_ref, "memory of ref");
  for (int i = 0; i < GOOD_CASES; i++) {
    ambi_op forward, backward;
    if (work_case(good_cases[i], AMBI_F32, &forward)) continue;
    check_op(&forward, good_cases[i]);
    if (work_backward(cpu, &forward, &backward) == 0) check_op(&backward, good_cases[i]);
  }
  ambi_device_close(cpu);
  ambi_device_close(ref);
  CHECK(live == 0, "%ld allocations left at the end", live);
  return test_done();
}
