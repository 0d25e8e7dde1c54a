/* test_pack_host.c -- what a host promises around calls: stacks, deadlines, leases, what it remembers, what it
 * tells and whom it trusts. Needs Wasmtime and libsodium. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../util/files.h"
#include "pack_host.h"

/* The ticker's pause of a millisecond, so long as a busy machine may make it. */
static int late_ms;
int nanosleep(const struct timespec *pause, struct timespec *left) {
  struct timespec late = {0, late_ms * 1000000L};
  return (int)syscall(SYS_nanosleep, late_ms && pause->tv_nsec == 1000000 ? &late : pause, left);
}

static ambi_pack_kernel *open_kernel(const char *name, const char *definitions, const char *body, const char *more) {
  ambi_pack *p = open_pack(host, name, "1.0.0", definitions, body, more);
  ambi_pack_kernel *k = NULL;
  CHECK(p && ambi_pack_kernel_open(p, "k", &k) == AMBI_OK, "%s: %s", name, ambi_error());
  ambi_pack_close(p);
  return k;
}

/* ---- stacks ---- */
typedef struct {
  ambi_pack_kernel *k;
  ambi_status ran, leased;
  char why[300];
} on_thread;

static void *recurse(void *context) {
  on_thread *t = context;
  ambi_pack_call call = {.pass = AMBI_FORWARD}, lease = call;
  t->leased = ambi_pack_lease(t->k, &lease);
  ambi_pack_return(t->k, &lease);
  t->ran = ambi_pack_run(t->k, &call);
  snprintf(t->why, sizeof t->why, "%s", ambi_error());
  return NULL;
}

/* Recursion without end, on threads of little stack: the module is stopped or refused, the process lives. */
static void test_stacks(void) {
  static const struct {
    int kib;
    ambi_status ran, leased;
    const char *word;
  } cases[] = {{128, AMBI_UNSUPPORTED, AMBI_UNSUPPORTED, "KiB of stack left"},
               {256, AMBI_UNSUPPORTED, AMBI_UNSUPPORTED, "KiB of stack left"},
               {512, AMBI_UNSUPPORTED, AMBI_UNSUPPORTED, "KiB of stack left"},
               {1024, AMBI_DEVICE_LOST, AMBI_OK, "the stack overflowed"}};
  ambi_pack_kernel *k =
      open_kernel("stacks", MEMORY "(func $f (param i32) (result i32) (i32.add (call $f (local.get 0)) (i32.const 1)))",
                  "(call $f (i32.const 0))", NULL);
  for (size_t i = 0; k && i < sizeof cases / sizeof *cases; i++) {
    on_thread t = {.k = k};
    pthread_attr_t a;
    pthread_t thread;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, (size_t)cases[i].kib << 10);
    if (CHECK(pthread_create(&thread, &a, recurse, &t) == 0, "a thread")) pthread_join(thread, NULL);
    pthread_attr_destroy(&a);
    CHECK(t.ran == cases[i].ran && t.leased == cases[i].leased && strstr(t.why, cases[i].word), "%d KiB: %s, %s: %s",
          cases[i].kib, ambi_status_name(t.ran), ambi_status_name(t.leased), t.why);
  }
  ambi_pack_kernel_close(k);
}

/* ---- deadlines ---- */
/* Its start takes about a second, and every call needs a fresh instance: the caller's deadline holds for both. */
static void test_start_in_time(void) {
  ambi_pack_kernel *k = open_kernel("slow-start",
                                    MEMORY
                                    "(func $s (local $i i64) (loop $l (local.set $i (i64.add (local.get $i) "
                                    "(i64.const 1))) (br_if $l (i64.lt_u (local.get $i) (i64.const "
                                    "1500000000))))) (start $s)",
                                    "(i32.const 4)", "\"resource_limits\": {\"max_epoch_ticks\": 20000}");
  ambi_pack_call call = {.ticks = 50};
  if (!k) return;
  CHECK_STATUS(ambi_pack_run(k, &call), AMBI_NO_MEMORY, "returned 4"); /* by the instance that opening made */
  double begin = now();
  CHECK_STATUS(ambi_pack_run(k, &call), AMBI_TIMEOUT, "deadline");
  CHECK(now() - begin < 0.25, "a deadline of 50 ms was met after %.0f ms", 1e3 * (now() - begin));
  ambi_pack_kernel_close(k);
}

/* The time that opening a kernel took is none of its first call's. */
static void test_opened_slowly(void) {
  ambi_pack_kernel *k =
      open_kernel("slow-open",
                  MEMORY
                  "(func $f (param $n i64) (local $i i64) (loop $l (local.set $i (i64.add (local.get "
                  "$i) (i64.const 1))) (br_if $l (i64.lt_u (local.get $i) (local.get $n))))) "
                  "(func $s (call $f (i64.const 1500000000))) (start $s)",
                  "(call $f (i64.const 20000000)) (i32.const 0)", "\"resource_limits\": {\"max_epoch_ticks\": 20000}");
  ambi_pack_call call = {.ticks = 250};
  if (k) CHECK_OK(ambi_pack_run(k, &call));
  ambi_pack_kernel_close(k);
}

/* A ticker that comes 60 ms late stops no call of few milliseconds whose deadline is 40. */
static void test_late_ticker(void) {
  ambi_pack_kernel *k = open_kernel("late", MEMORY,
                                    "(local $i i32) (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) "
                                    "(br_if $l (i32.lt_u (local.get $i) (i32.const 1000000)))) (i32.const 0)",
                                    NULL);
  int early = 0;
  late_ms = 60;
  for (int i = 0; i < 100 && k; i++) {
    ambi_pack_call call = {.ticks = 40};
    double begin = now();
    if (ambi_pack_run(k, &call) != AMBI_OK) early += now() - begin < 0.040;
  }
  late_ms = 0;
  CHECK(early == 0, "%d of 100 calls were stopped before their deadline", early);
  ambi_pack_kernel_close(k);
}

/* ---- leases ---- */
#define PUTS(x) "(i32.store (i32.load (i32.add (local.get $d) (i32.const 16))) (i32.const " #x ")) (i32.const 0)"

static void test_leases(void) {
  int32_t out = 0;
  ambi_pack_kernel *old = NULL, *new = NULL;
  ambi_pack *a = open_pack(host, "leases", "1.0.0", MEMORY, PUTS(111), NULL);
  ambi_pack_call call = {.bytes = {0, 0, 4}}, plain = {.at = {NULL, NULL, &out}, .bytes = {0, 0, 4}};
  CHECK_OK(ambi_pack_swap(host, a));
  ambi_pack_close(a);
  CHECK_OK(ambi_pack_active(host, "k", &old));
  CHECK_OK(ambi_pack_lease(old, &call));
  a = open_pack(host, "leases", "2.0.0",
                MEMORY "(func (export \"kernel_backward\") (param i32) (result i32) (i32.const 0))", PUTS(222), NULL);
  CHECK_OK(ambi_pack_swap(host, a));
  ambi_pack_close(a);
  CHECK_STATUS(ambi_pack_run_active(host, "k", &call), AMBI_INVALID, "lease");
  CHECK_OK(ambi_pack_active(host, "k", &new));
  call.pass = AMBI_BACKWARD;
  CHECK_STATUS(ambi_pack_run(new, &call), AMBI_INVALID, "lease");
  CHECK_STATUS(ambi_pack_run(old, &call), AMBI_UNSUPPORTED, "not implemented");
  call.pass = AMBI_FORWARD;
  CHECK(ambi_pack_run(old, &call) == AMBI_OK && *(int32_t *)call.at[AMBI_PACK_OUT] == 111, "its own kernel");
  ambi_pack_return(new, &call);
  CHECK(!call.lease && !call.at[AMBI_PACK_OUT], "a lease that was returned");
  CHECK(ambi_pack_run_active(host, "k", &plain) == AMBI_OK && out == 222, "the new pack gives %d", out);
  CHECK_OK(ambi_pack_lease(old, &call)); /* the last that holds the old pack, once it is nobody's */
  a = open_pack(host, "leases", "3.0.0", MEMORY, PUTS(333), NULL);
  CHECK_OK(ambi_pack_swap(host, a));
  ambi_pack_close(a);
  ambi_pack_kernel_close(old);
  *(int32_t *)call.at[AMBI_PACK_OUT] = 7;
  ambi_pack_return(NULL, &call);
  ambi_pack_kernel_close(new);
}

/* ---- what is remembered ---- */
static ambi_status activate(ambi_pack_host *h, const char *name, const char *version) {
  ambi_pack *p = open_pack(h, name, version, MEMORY, "(i32.const 0)", NULL);
  ambi_status s = p ? ambi_pack_swap(h, p) : AMBI_DENIED;
  ambi_pack_close(p);
  return s;
}

static void test_state(void) {
  char state[256], below[300];
  snprintf(state, sizeof state, "%s/state", root);
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .state = state};
  ambi_pack_host *a = NULL, *b = NULL, *c = NULL;
  CHECK_OK(ambi_pack_host_create(&o, &a));
  CHECK_OK(ambi_pack_host_create(&o, &b));
  ambi_pack *early = open_pack(a, "x", "2.0.0", MEMORY, "(i32.const 0)", NULL);
  CHECK_OK(activate(b, "x", "5.0.0"));
  CHECK_OK(activate(a, "y", "1.0.0"));
  CHECK_STATUS(ambi_pack_swap(a, early), AMBI_DENIED, "downgrade", "newer x");
  CHECK_STATUS(activate(a, "x", "2.0.0"), AMBI_DENIED, "downgrade");
  CHECK_OK(ambi_pack_host_create(&o, &c));
  CHECK_STATUS(activate(c, "x", "2.0.0"), AMBI_DENIED, "downgrade", "5.0.0");
  CHECK_OK(activate(c, "x", "5.0.0"));
  ambi_pack_close(early);
  ambi_pack_host_destroy(a);
  ambi_pack_host_destroy(b);
  ambi_pack_host_destroy(c);
  snprintf(below, sizeof below, "%s/below", state); /* a file is no folder: that is not absent */
  o.state = below;
  CHECK_STATUS(ambi_pack_host_create(&o, &a), AMBI_DENIED, "state");
  const char *const others[] = {"{\"a\\\"b\": \"1.0.0\"}", "{\"a\\u0000b\": \"1.0.0\"}", "{\"\": \"1.0.0\"}"};
  o.state = state; /* names that no pack has would be written back as something else */
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char err[200];
    CHECK(file_write(state, others[i], strlen(others[i]), err, sizeof err), "%s", err);
    CHECK_STATUS(ambi_pack_host_create(&o, &a), AMBI_DENIED, "expected names of packs");
  }
}

static void *write_often(void *context) {
  char err[200];
  int failed = 0;
  for (int i = 0; i < 200; i++) failed += !file_write(context, "0123456789", 10, err, sizeof err);
  return failed ? context : NULL;
}

/* Two threads that write one file do not write one draft. */
static void test_drafts(void) {
  char path[256], err[200];
  pthread_t threads[2];
  void *failed[2] = {NULL, NULL};
  size_t bytes = 0;
  snprintf(path, sizeof path, "%s/drafted", root);
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, write_often, path) == 0, "a thread");
  for (int i = 0; i < 2; i++) pthread_join(threads[i], &failed[i]);
  char *text = file_read(path, 100, &bytes, err, sizeof err);
  CHECK(!failed[0] && !failed[1] && text && bytes == 10, "two writers of one file");
  free(text);
}

/* What is no file is written to, and is not replaced by one. */
static void test_special_files(void) {
  char path[256], err[200], got[8] = "";
  struct stat st;
  snprintf(path, sizeof path, "%s/pipe", root);
  CHECK(mkfifo(path, 0600) == 0, "a pipe");
  int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  CHECK(file_write(path, "abc", 3, err, sizeof err), "%s", err);
  CHECK(read(reader, got, sizeof got) == 3 && strcmp(got, "abc") == 0, "the pipe gave %s", got);
  CHECK(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode), "the pipe is still one");
  close(reader);
  snprintf(path, sizeof path, "%s/full", root);
  CHECK(symlink("/dev/full", path) == 0, "a link to a device");
  CHECK(!file_write(path, "abc", 3, err, sizeof err) && strstr(err, "No space"), "a full device: %s", err);
  CHECK(stat(path, &st) == 0 && S_ISCHR(st.st_mode), "the link still leads to a device");
  CHECK(!file_write(root, "abc", 3, err, sizeof err) && strstr(err, "directory"), "a folder: %s", err);
}

/* ---- swaps ---- */
static double answer(ambi_pack_host *h) {
  float x = 0;
  ambi_pack_call call = {.pass = AMBI_FORWARD, .at[AMBI_PACK_OUT] = &x, .bytes[AMBI_PACK_OUT] = sizeof x};
  return ambi_pack_run_active(h, "k", &call) == AMBI_OK ? (double)x : -1;
}

#define GIVES(x) "(f32.store (i32.load offset=16 (local.get 0)) (f32.const " x ")) (i32.const 0)"

typedef struct {
  ambi_pack_host *host;
  ambi_pack *pack;
} swapper;

static void *swap_often(void *context) {
  const swapper *s = context;
  for (int i = 0; i < 200; i++) {
    if (ambi_pack_swap(s->host, s->pack) != AMBI_OK) return context;
    if (i % 3 == 0) ambi_pack_rollback(s->host); /* there may be nothing to roll back to: another did */
    if (!(answer(s->host) > 0)) return context;
  }
  return NULL;
}

/* A pack swapped with itself, rollbacks to nothing, a folder that is gone, threads that swap at once. */
static void test_swaps(void) {
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1};
  ambi_pack_host *h = NULL;
  CHECK_OK(ambi_pack_host_create(&o, &h));
  ambi_pack *one = open_pack(h, "one", "1.0.0", MEMORY, GIVES("1"), NULL);
  ambi_pack *two = open_pack(h, "two", "1.0.0", MEMORY, GIVES("2"), NULL);
  CHECK_STATUS(ambi_pack_rollback(h), AMBI_INVALID, "no pack to roll back to");
  char command[300];
  snprintf(command, sizeof command, "rm -r %s/one %s/two", root, root);
  CHECK(system(command) == 0, "the folders are gone, the packs are not");
  CHECK_OK(ambi_pack_swap(h, one));
  CHECK_STATUS(ambi_pack_rollback(h), AMBI_INVALID, "no pack to roll back to");
  CHECK_OK(ambi_pack_swap(h, one));
  CHECK_OK(ambi_pack_rollback(h));
  CHECK_STATUS(ambi_pack_rollback(h), AMBI_INVALID, "no pack to roll back to");
  CHECK(answer(h) == 1, "got %g", answer(h));
  CHECK_OK(ambi_pack_swap(h, two));
  CHECK(answer(h) == 2, "got %g", answer(h));
  pthread_t threads[4];
  void *failed[4];
  swapper s[2] = {{h, one}, {h, two}};
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, swap_often, &s[i % 2]) == 0, "a thread");
  for (int i = 0; i < 4; i++) pthread_join(threads[i], &failed[i]);
  CHECK(!failed[0] && !failed[1] && !failed[2] && !failed[3], "swaps at once: %s", ambi_error());
  ambi_pack_close(one);
  ambi_pack_close(two);
  CHECK(answer(h) > 0, "the active pack stays");
  ambi_pack_host_destroy(h);
}

static void count_refusals(void *context, const char *check, int passed, const char *sentence) {
  (void)check, (void)sentence;
  *(int *)context += !passed;
}

/* What steps in for a kernel is decided by the swap: calls do not wait for the self-test that fails each time. */
static void test_active_fallback(void) {
  static const char slow[] =
      "\"resource_limits\": {\"max_epoch_ticks\": 300}, \"self_test\": [{\"pass\": \"forward\", "
      "\"params\": \"\", \"out\": [1], \"tolerance\": 1e-6}]";
  size_t n = 0, m = 0;
  int refused = 0;
  void *good = forge_kernel(MEMORY, GIVES("5"), &n), *bad = forge_kernel(MEMORY, "(loop $l (br $l)) (i32.const 0)", &m);
  forged_kernel k[] = {{"k", bad, m, slow}, {"good", good, n, NULL}};
  forged_pack p = {"spare", "1.0.0", k, 2, secret, "\"fallbacks\": {\"k\": \"good\", \"alias\": \"k\"}"};
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .report = count_refusals};
  ambi_pack_host *h = NULL;
  ambi_pack *pack = NULL;
  ambi_pack_kernel *kernel = NULL;
  o.report_context = &refused;
  CHECK_OK(ambi_pack_host_create(&o, &h));
  CHECK(good && bad && forge_pack(path_of("spare"), &p), "spare");
  CHECK_OK(ambi_pack_open(h, path_of("spare"), &pack));
  CHECK_OK(ambi_pack_swap(h, pack));
  ambi_pack_close(pack);
  double begin = now();
  for (int i = 0; i < 10; i++) CHECK(answer(h) == 5, "the fallback gives %g", answer(h));
  CHECK(now() - begin < 0.3, "20 calls of a fallback took %.2f s", now() - begin);
  CHECK(refused == 1, "told of %d refusals", refused);
  CHECK_OK(ambi_pack_active(h, "alias", &kernel));
  CHECK(strcmp(ambi_pack_kernel_id(kernel), "good") == 0, "an alias is %s", ambi_pack_kernel_id(kernel));
  ambi_pack_kernel_close(kernel);
  CHECK_STATUS(ambi_pack_active(h, "none", &kernel), AMBI_INVALID, "has no kernel none");
  ambi_pack_host_destroy(h);
  free(good), free(bad);
}

/* ---- what is told ---- */
typedef struct {
  ambi_pack_host *host;
  int refused;
  char last[400];
} listener;

/* A callback may use the host it is told about. */
static void listen(void *context, const char *check, int passed, const char *sentence) {
  listener *l = context;
  ambi_pack_kernel *k = NULL;
  if (passed) return;
  l->refused++;
  snprintf(l->last, sizeof l->last, "%s: %s", check, sentence);
  if (ambi_pack_active(l->host, "k", &k) == AMBI_OK) ambi_pack_kernel_close(k);
}

static void test_reports(void) {
  size_t n = 0, m = 0;
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &n);
  void *bad = forge_kernel("(import \"env\" \"f\" (func)) " MEMORY, "(i32.const 0)", &m);
  forged_kernel k[] = {{"imports", bad, m, NULL}, {"right", wasm, n, NULL}};
  forged_pack p = {"told", "1.0.0", k, 2, secret, "\"fallbacks\": {\"imports\": \"right\"}"};
  listener l = {.refused = 0};
  ambi_pack_options o = {
      .trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .report = listen, .report_context = &l};
  ambi_pack *pack = NULL, *old = NULL;
  ambi_pack_kernel *kernel = NULL;
  CHECK_OK(ambi_pack_host_create(&o, &l.host));
  CHECK(forge_pack(path_of("told"), &p), "told");
  CHECK_OK(ambi_pack_open(l.host, path_of("told"), &pack));
  CHECK_OK(ambi_pack_kernel_open(pack, "imports", &kernel));
  CHECK(l.refused == 1 && strstr(l.last, "env.f"), "told of %d refusals: %s", l.refused, l.last);
  CHECK(strcmp(ambi_pack_kernel_id(kernel), "right") == 0, "the fallback is %s", ambi_pack_kernel_id(kernel));
  ambi_pack_kernel_close(kernel);
  ambi_pack_close(pack);
  forged_kernel around[] = {{"x", bad, m, NULL}, {"y", bad, m, NULL}, {"z", wasm, n, NULL}, {"imports", bad, m, NULL}};
  forged_pack ring = {"ring", "1.0.0", around, 4, secret, "\"fallbacks\": {\"x\": \"y\", \"y\": \"x\"}"};
  CHECK(forge_pack(path_of("ring"), &ring), "ring");
  CHECK_OK(ambi_pack_open(l.host, path_of("ring"), &pack));
  CHECK_STATUS(ambi_pack_kernel_open(pack, "x", &kernel), AMBI_DENIED, "env.f");
  CHECK(l.refused == 3, "each of the ring is tried once: told of %d refusals", l.refused);
  l.refused = 1;
  ambi_pack_close(pack);
  char hex[65], folder[256], *verify[] = {"verify", folder, "--trust", hex, NULL};
  key_text(key[0], hex);
  snprintf(folder, sizeof folder, "%s", path_of("told"));
  CHECK(pack_verify(4, verify) == 1, "verify fails although a fallback would do");

  old = open_pack(l.host, "order", "1.0.0", MEMORY, "(i32.const 0)", NULL);
  CHECK_OK(activate(l.host, "order", "2.0.0"));
  alarm(20); /* it used to wait for itself */
  CHECK_STATUS(ambi_pack_swap(l.host, old), AMBI_DENIED, "refused by downgrade", "newer order");
  alarm(0);
  CHECK(l.refused == 2 && strstr(l.last, "downgrade"), "told of %d refusals: %s", l.refused, l.last);
  ambi_pack_close(old);
  ambi_pack_host_destroy(l.host);
  free(wasm);
  free(bad);
}

static void test_options(void) {
  ambi_pack_allowed no_hash = {"k", NULL}, no_id = {NULL, "sha256:"};
  const ambi_pack_options wrong[] = {{.trusted_count = 1},
                                     {.revoked_count = 1},
                                     {.allowed_count = 1},
                                     {.allowed = &no_hash, .allowed_count = 1},
                                     {.allowed = &no_id, .allowed_count = 1}};
  ambi_pack_host *h = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    CHECK_STATUS(ambi_pack_host_create(&wrong[i], &h), AMBI_INVALID, "ambi_pack_host_create");
}

/* After a trap no number of the host's is taken for one of the kernel's. */
static void test_code(void) {
  ambi_pack_kernel *k = open_kernel("trap", MEMORY, "unreachable", NULL);
  ambi_pack_call call = {.code = 7};
  if (k) CHECK_STATUS(ambi_pack_run(k, &call), AMBI_DEVICE_LOST, "unreachable");
  CHECK(call.code == -1, "after a trap the code is %d", call.code);
  ambi_pack_kernel_close(k);
}

/* Names in a module that would move a terminal's cursor */
static void test_names(void) {
  static const struct {
    const char *name, *definitions, *word;
  } cases[] = {{"import", "(import \"e\\1b[31mv\" \"\\07f\" (func)) " MEMORY, "[31mv"},
               {"export", MEMORY "(func (export \"\\1b[2Jx\")) (func (export \"\\1b[2Jx\"))", "[2Jx"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ambi_pack *p = open_pack(host, cases[i].name, "1.0.0", cases[i].definitions, "(i32.const 0)", NULL);
    ambi_pack_kernel *k = NULL;
    CHECK(ambi_pack_kernel_open(p, "k", &k) != AMBI_OK, "%s: taken", cases[i].name);
    CHECK(strstr(ambi_error(), cases[i].word) && !strpbrk(ambi_error(), "\033\a"), "%s", cases[i].name);
    ambi_pack_close(p);
  }
}

/* ---- trust ---- */
/* Points of small order, one spelt beyond p: R = 1 and S = 0 would be right for some of a few texts, without a secret.
 */
static void test_weak_keys(void) {
  static const uint8_t weak[][3] = {{0, 0, 0},        {1, 0, 0},        {1, 0, 128},
                                    {0xec, 255, 127}, {0xed, 255, 127}, {0xee, 255, 127}};
  static const char signature[64] = {1};
  char path[512], err[200], version[16];
  forged_pack p = {"weak", version, NULL, 0, secret, NULL};
  snprintf(path, sizeof path, "%s/weak/kernels.json.sig", root);
  for (int i = 0; i < 96; i++) {
    const uint8_t *w = weak[i % 6];
    uint8_t trusted[1][32] = {{w[0]}};
    memset(trusted[0] + 1, w[1], 30);
    trusted[0][31] = w[2];
    ambi_pack_options o = {.trusted = (const uint8_t(*)[32])trusted, .trusted_count = 1};
    ambi_pack_host *h = NULL;
    ambi_pack *pack = NULL;
    snprintf(version, sizeof version, "1.0.%d", i / 6);
    CHECK(forge_pack(path_of("weak"), &p) && file_write(path, signature, 64, err, sizeof err), "%s", err);
    CHECK_OK(ambi_pack_host_create(&o, &h));
    CHECK_STATUS(ambi_pack_open(h, path_of("weak"), &pack), AMBI_DENIED, "signature", "trusted keys");
    ambi_pack_host_destroy(h);
  }
}

static void test_allowed(void) {
  size_t bytes = 0;
  char hash[72];
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &bytes);
  ambi_pack_host *h = NULL;
  ambi_pack *pack = NULL;
  CHECK_OK(ambi_pack_hash(wasm, bytes, hash));
  ambi_pack_allowed list = {"k", hash};
  ambi_pack_options o = {
      .trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .allowed = &list, .allowed_count = 1};
  forged_kernel k = {"k", wasm, bytes, NULL};
  forged_pack p = {"allowed", "1.0.0", &k, 1, secret, NULL};
  if (CHECK(wasm && forge_pack(path_of("allowed"), &p), "allowed cannot be made")) {
    CHECK_OK(ambi_pack_host_create(&o, &h));
    CHECK_OK(ambi_pack_open(h, path_of("allowed"), &pack));
    ambi_pack_close(pack);
    ambi_pack_host_destroy(h);
    hash[10] = hash[10] == '0' ? '1' : '0';
    CHECK_OK(ambi_pack_host_create(&o, &h));
    CHECK_STATUS(ambi_pack_open(h, path_of("allowed"), &pack), AMBI_DENIED, "allowlist", "k");
    ambi_pack_host_destroy(h);
  }
  free(wasm);
}

int main(void) {
  if (!host_begin("test_pack_host")) return test_done();
  test_stacks();
  test_start_in_time();
  test_opened_slowly();
  test_late_ticker();
  test_leases();
  test_state();
  test_drafts();
  test_special_files();
  test_swaps();
  test_active_fallback();
  test_reports();
  test_options();
  test_code();
  test_names();
  test_weak_keys();
  test_allowed();
  host_end();
  return test_done();
}
