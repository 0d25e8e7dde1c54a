/* test_pack_kernels.c -- the kernels of a pack give what the reference gives, forward and backward, whole and in part,
 * copied and in place, from many threads and while packs are swapped. Needs Wasmtime and AMBI_PACK_TEST, as test_pack.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../cli/pack.h"
#include "../cli/pack_kernels.h"
#include "test.h"

static ambi_pack_host *host;
static ambi_pack *pack;
static ambi_device *ref;

static void run_case(ambi_pack_kernel *k, pack_case *c, const char *how) {
  if (CHECK_OK(ambi_pack_run(k, &c->call)))
    CHECK(pack_case_agrees(c), "%s %s %s: other results than the reference", c->def->id,
          c->call.pass ? "backward" : "forward", how);
}

/* ---- every kernel, over sizes around those of vectors and tiles ---- */
static void test_sizes(const pack_def *d, ambi_pack_kernel *k) {
  static const int64_t rows[][PACK_DIMS] = {{1, 1},   {2, 3},   {5, 4},    {3, 16},   {7, 33},  {4, 166},
                                            {2, 960}, {3, 961}, {40, 100}, {2, 1213}, {1, 8000}};
  static const int64_t products[][PACK_DIMS] = {{1, 1, 1},    {1, 7, 33},   {17, 5, 4},
                                                {20, 33, 65}, {40, 40, 40}, {3, 1, 600}};
  static const int64_t heads[][PACK_DIMS] = {{1, 1, 1, 2}, {2, 5, 3, 8}, {1, 40, 2, 64}, {3, 2, 1, 34}};
  bool linear = d->kind == AMBI_LINEAR, rope = d->kind == AMBI_ROPE;
  size_t count = linear ? sizeof products / sizeof *products
                 : rope ? sizeof heads / sizeof *heads
                        : sizeof rows / sizeof *rows;
  for (size_t i = 0; i < count; i++)
    for (int pass = 0; pass < 2; pass++) {
      pack_case c;
      if (CHECK(pack_case_make(&c, d, (ambi_pass)pass,
                               linear ? products[i]
                               : rope ? heads[i]
                                      : rows[i],
                               ref),
                "%s", d->id))
        run_case(k, &c, "copied");
      pack_case_free(&c);
    }
}

/* Past 8 MiB rmsnorm's first pass also loads lines of the result (norm.h), of rows that neither a line nor a tile
 * divides. */
static void test_large(const char *id) {
  static const int64_t dims[PACK_DIMS] = {405, 5203};
  ambi_pack_kernel *k;
  pack_case c;
  CHECK_OK(ambi_pack_kernel_open(pack, id, &k));
  for (int pass = 0; pass < 2; pass++) {
    if (CHECK(pack_case_make(&c, pack_def_named(id), (ambi_pass)pass, dims, ref), "%s", id)) run_case(k, &c, "large");
    pack_case_free(&c);
  }
  ambi_pack_kernel_close(k);
}

/* In place: the results are where the call was told to look. */
static void test_lease(const pack_def *d, ambi_pack_kernel *k) {
  pack_case c;
  void *at[AMBI_PACK_REGIONS];
  if (!CHECK(pack_case_make(&c, d, AMBI_BACKWARD, d->test, ref), "%s", d->id)) return;
  memcpy(at, c.call.at, sizeof at);
  if (CHECK_OK(ambi_pack_lease(k, &c.call))) {
    for (int r = 0; r < AMBI_PACK_REGIONS; r++)
      if (c.call.at[r]) memcpy(c.call.at[r], at[r], c.call.bytes[r]);
    for (int i = 0; i < 3; i++) run_case(k, &c, "in place");
    size_t bytes = c.call.bytes[AMBI_PACK_A];
    c.call.bytes[AMBI_PACK_A] *= 2;
    CHECK_STATUS(ambi_pack_run(k, &c.call), AMBI_INVALID, "leased");
    c.call.bytes[AMBI_PACK_A] = bytes;
    CHECK_STATUS(ambi_pack_lease(k, &c.call), AMBI_INVALID, "lease");
    ambi_pack_return(k, &c.call);
    CHECK(!c.call.lease && !c.call.at[AMBI_PACK_A], "a lease that was returned");
  }
  memcpy(c.call.at, at, sizeof at);
  pack_case_free(&c);
}

/* What lies after the result is left alone, wherever the last vector of a row ends. */
static void test_ends(const char *id) {
  enum { AFTER = 16 };
  static const float mark = 4321;
  ambi_pack_kernel *k;
  CHECK_OK(ambi_pack_kernel_open(pack, id, &k));
  for (int64_t n = 1; n < 24; n++)
    for (int pass = 0; pass < 2; pass++) {
      pack_case c;
      if (!CHECK(pack_case_make(&c, pack_def_named(id), (ambi_pass)pass, (int64_t[PACK_DIMS]){2, n + 280}, ref), "%s",
                 id))
        continue;
      ambi_pack_call copied = c.call;
      if (CHECK_OK(ambi_pack_lease(k, &c.call))) {
        float *end = (float *)c.call.at[AMBI_PACK_OUT] + 2 * (n + 280);
        int changed = 0;
        for (int r = 0; r < AMBI_PACK_REGIONS; r++)
          if (copied.at[r]) memcpy(c.call.at[r], copied.at[r], copied.bytes[r]);
        for (int i = 0; i < AFTER; i++) end[i] = mark;
        run_case(k, &c, "in place");
        for (int i = 0; i < AFTER; i++) changed += end[i] != mark;
        CHECK(!changed, "%s of rows of %d: %d numbers after the result are changed", id, (int)n + 280, changed);
        ambi_pack_return(k, &c.call);
      }
      c.call = copied;
      pack_case_free(&c);
    }
  ambi_pack_kernel_close(k);
}

/* ---- in part ---- */
/* The gradient of the weight is computed beside dx: without room for it dx is the same. */
static void test_unsummed(const char *id) {
  static const int64_t dims[PACK_DIMS] = {3, 1213};
  ambi_pack_kernel *k;
  pack_case c;
  CHECK_OK(ambi_pack_kernel_open(pack, id, &k));
  if (CHECK(pack_case_make(&c, pack_def_named(id), AMBI_BACKWARD, dims, ref), "%s", id)) {
    c.call.bytes[AMBI_PACK_SCRATCH] = 0;
    run_case(k, &c, "without scratch");
  }
  pack_case_free(&c);
  ambi_pack_kernel_close(k);
}

/* Without scratch there is grad_x alone; swiglu needs but the gate for it, the norms do without a weight. */
static void test_parts(void) {
  ambi_pack_kernel *k;
  pack_case c;
  const pack_def *d = pack_def_named("swiglu_f32");
  CHECK_OK(ambi_pack_kernel_open(pack, d->id, &k));
  CHECK(pack_case_make(&c, d, AMBI_BACKWARD, d->test, ref), "%s", d->id);
  c.call.bytes[AMBI_PACK_SCRATCH] -= 4;
  CHECK_OK(ambi_pack_run(k, &c.call));
  CHECK(((float *)c.call.at[AMBI_PACK_SCRATCH])[0] == 0, "scratch that is too small is left alone");
  c.call.bytes[AMBI_PACK_SCRATCH] = 0;
  size_t half = c.call.bytes[AMBI_PACK_B] / 2;
  float *b = c.call.at[AMBI_PACK_B];
  memmove(b, (char *)b + half, half);
  c.call.bytes[AMBI_PACK_B] = half;
  memset(c.call.at[AMBI_PACK_OUT], 0, c.call.bytes[AMBI_PACK_OUT]);
  run_case(k, &c, "with the gate alone");
  c.call.bytes[AMBI_PACK_B] = half - 4;
  CHECK_STATUS(ambi_pack_run(k, &c.call), AMBI_INVALID, "invalid input");
  CHECK(c.call.code == 1, "its code is %d", c.call.code);
  c.call.bytes[AMBI_PACK_B] = half;
  void *out = c.call.at[AMBI_PACK_OUT];
  c.call.at[AMBI_PACK_OUT] = NULL;
  CHECK_STATUS(ambi_pack_run(k, &c.call), AMBI_INVALID, "no buffer");
  c.call.at[AMBI_PACK_OUT] = out;
  pack_case_free(&c);
  ambi_pack_kernel_close(k);
}

/* A weight of ones is no weight. */
static void test_unweighted(const char *id) {
  ambi_pack_kernel *k;
  pack_case c;
  const pack_def *d = pack_def_named(id);
  CHECK_OK(ambi_pack_kernel_open(pack, id, &k));
  if (CHECK(pack_case_make(&c, d, AMBI_BACKWARD, d->test, ref), "%s", id)) {
    float *w = c.call.at[AMBI_PACK_WEIGHT];
    for (size_t i = 0; i < c.call.bytes[AMBI_PACK_WEIGHT] / 4; i++) w[i] = 1;
    CHECK_OK(ambi_pack_run(k, &c.call));
    size_t bytes[2] = {c.call.bytes[AMBI_PACK_OUT], c.call.bytes[AMBI_PACK_SCRATCH]};
    memcpy(c.want[AMBI_PACK_OUT], c.call.at[AMBI_PACK_OUT], bytes[0]);
    memcpy(c.want[AMBI_PACK_SCRATCH], c.call.at[AMBI_PACK_SCRATCH], bytes[1]);
    c.call.bytes[AMBI_PACK_WEIGHT] = 0;
    memset(c.call.at[AMBI_PACK_OUT], 0, bytes[0]);
    memset(c.call.at[AMBI_PACK_SCRATCH], 0, bytes[1]);
    run_case(k, &c, "without a weight");
  }
  pack_case_free(&c);
  ambi_pack_kernel_close(k);
}

/* ---- many at once ---- */
static atomic_int wrong;
static atomic_bool stop;

static void *work(void *id) {
  const pack_def *d = pack_def_named(id);
  pack_case c;
  if (!pack_case_make(&c, d, AMBI_BACKWARD, d->test, ref)) atomic_fetch_add(&wrong, 1);
  while (!atomic_load(&stop)) {
    memset(c.call.at[AMBI_PACK_OUT], 0, c.call.bytes[AMBI_PACK_OUT]);
    if (ambi_pack_run_active(host, id, &c.call) != AMBI_OK || !pack_case_agrees(&c)) atomic_fetch_add(&wrong, 1);
  }
  pack_case_free(&c);
  return NULL;
}

static void test_swaps(const char *folder) {
  static char ids[4][16] = {"swiglu_f32", "rmsnorm_f32", "softmax_f32", "linear_f32"};
  pthread_t threads[4];
  CHECK_OK(ambi_pack_swap(host, pack));
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, ids[i]);
  for (int i = 0; i < 50; i++) {
    ambi_pack *p = NULL;
    CHECK_OK(ambi_pack_open(host, folder, &p));
    CHECK_OK(ambi_pack_swap(host, p));
    ambi_pack_close(p);
    if (i % 5 == 4) CHECK_OK(ambi_pack_rollback(host));
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK(atomic_load(&wrong) == 0, "%d calls failed or were wrong", atomic_load(&wrong));
}

int main(void) {
  const char *folder = getenv("AMBI_PACK_TEST");
  char path[512];
  uint8_t secret[32], key[1][32];
  snprintf(path, sizeof path, "%s.key", folder ? folder : "");
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1};
  if (!folder || !key_read(path, secret) || ambi_pack_public_key(secret, key[0]) != AMBI_OK ||
      ambi_pack_host_create(&o, &host) != AMBI_OK) {
    printf("SKIPPED test_pack_kernels: %s\n0 passed, 0 failed, 1 skipped\n",
           folder ? ambi_error() : "AMBI_PACK_TEST is not set");
    return 0;
  }
  CHECK_OK(ambi_device_open("ref", NULL, &ref));
  if (CHECK_OK(ambi_pack_open(host, folder, &pack))) {
    for (int i = 0; i < pack_def_count; i++) {
      ambi_pack_kernel *k;
      if (!CHECK_OK(ambi_pack_kernel_open(pack, pack_defs[i].id, &k))) continue;
      test_sizes(&pack_defs[i], k);
      test_lease(&pack_defs[i], k);
      ambi_pack_kernel_close(k);
    }
    test_parts();
    test_large("rmsnorm_f32");
    test_ends("rmsnorm_f32");
    test_ends("swiglu_f32");
    test_unsummed("rmsnorm_f32");
    test_unsummed("layernorm_f32");
    test_unweighted("rmsnorm_f32");
    test_unweighted("layernorm_f32");
    test_swaps(folder);
  }
  ambi_pack_close(pack);
  ambi_pack_host_destroy(host);
  ambi_device_close(ref);
  return test_done();
}
