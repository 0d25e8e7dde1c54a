/* pack_bench.c -- `ambi pack bench`: what a call costs, large kernels beside native ones, deadlines, verification. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pack.h"
#include "pack_forge.h"
#include "pack_kernels.h"

typedef struct {
  trust_options trust;
  const char *folder, *scalar;
  ambi_pack_host *host;
  ambi_pack *pack, *plain; /* plain: without SIMD, or NULL */
  ambi_device *native;
  double seconds;
  int missed; /* bars */
} bench;

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static double work_time(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); } /* whatever else the machine does */

static void judge(bench *b, int good, const char *bar) {
  printf("  %s: %s\n", good ? "met" : "MISSED", bar);
  b->missed += !good;
}

/* ---- timing: the least of several, each of at least some milliseconds
 * ------------------------------------------------- */
typedef int timed_fn(void *context);

static double least_time(timed_fn *fn, void *context, double seconds) {
  double best = 1e30, end = now() + seconds;
  int64_t repeats = 1;
  while (now() < end || best > 1e29) {
    double begin = work_time();
    for (int64_t i = 0; i < repeats; i++)
      if (!fn(context)) return -1;
    double each = (work_time() - begin) / (double)repeats;
    if (each < best) best = each;
    if (each * (double)repeats < 2e-3) repeats *= 2;
  }
  return best;
}

typedef struct {
  ambi_pack_kernel *k;
  ambi_pack_call *call;
} pack_job;

static int run_pack(void *context) {
  pack_job *j = context;
  return ambi_pack_run(j->k, j->call) == AMBI_OK;
}

/* ---- small calls
 * --------------------------------------------------------------------------------------------------------- */
static int bench_calls(bench *b) {
  pack_case c;
  pack_job j = {.call = &c.call};
  if (ambi_pack_kernel_open(b->pack, "silu_f32", &j.k) != AMBI_OK) return trouble("silu_f32");
  int rc = !pack_case_make(&c, pack_def_named("silu_f32"), AMBI_FORWARD, (int64_t[]){16, 0, 0, 0}, b->native);
  double copied = rc ? -1 : least_time(run_pack, &j, b->seconds), leased = -1;
  rc = rc || copied < 0 || !pack_case_agrees(&c);
  if (!rc) {
    void *at[AMBI_PACK_REGIONS];
    memcpy(at, c.call.at, sizeof at);
    rc = ambi_pack_lease(j.k, &c.call) != AMBI_OK;
    if (!rc) {
      for (int r = 0; r < AMBI_PACK_REGIONS; r++)
        if (c.call.at[r]) memcpy(c.call.at[r], at[r], c.call.bytes[r]);
      leased = least_time(run_pack, &j, b->seconds);
      ambi_pack_return(j.k, &c.call);
    }
    memcpy(c.call.at, at, sizeof at);
  }
  pack_case_free(&c);
  ambi_pack_kernel_close(j.k);
  if (rc) return trouble("silu_f32");
  printf("a call of silu_f32 over 16 numbers: %.2f us copied, %.2f us in place\n", copied * 1e6, leased * 1e6);
  judge(b, copied <= 10e-6 && leased <= 10e-6, "at most 10 us");
  return 0;
}

/* ---- large kernels
 * --------------------------------------------------------------------------------------------------------- */
typedef struct {
  ambi_plan *plan;
  ambi_buf slots[AMBI_SLOTS], workspace;
} native_job;

static int run_native(void *context) {
  native_job *j = context;
  return ambi_run(j->plan, NULL, j->slots, AMBI_SLOTS, j->workspace) == AMBI_OK;
}

/* The op natively, over the buffers of the case. */
static double time_native(bench *b, pack_case *c, const int64_t *dims) {
  ambi_op op = {.kind = c->def->kind, .pass = c->call.pass};
  uint32_t words[PACK_WORDS];
  native_job j = {0};
  ambi_plan_info info;
  c->def->describe(c->def, dims, &op, words);
  if (ambi_plan_create(b->native, &op, &j.plan) != AMBI_OK || ambi_plan_get_info(j.plan, &info) != AMBI_OK) return -1;
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) {
    float *at = c->call.at[r];
    for (int i = 0; i < 2 && c->def->layout[op.pass][r][i]; i++) {
      int slot = c->def->layout[op.pass][r][i] - 1;
      ambi_tensor t = ambi_plan_tensor(j.plan, slot);
      j.slots[slot].data = at;
      at += ambi_numel(&t);
    }
  }
  double time = -1;
  if (!info.workspace || ambi_alloc(b->native, info.workspace, &j.workspace) == AMBI_OK)
    time = least_time(run_native, &j, b->seconds);
  if (j.workspace.data) ambi_free(b->native, j.workspace);
  ambi_plan_destroy(j.plan);
  return time;
}

/* In place, as a host would that keeps its tensors there; the result is compared with the native one. */
static double time_pack(bench *b, ambi_pack *pack, pack_case *c) {
  pack_job j = {.call = &c->call};
  void *at[AMBI_PACK_REGIONS];
  double time = -1;
  if (ambi_pack_kernel_open(pack, c->def->id, &j.k) != AMBI_OK) return -1;
  memcpy(at, c->call.at, sizeof at);
  if (ambi_pack_lease(j.k, &c->call) == AMBI_OK) {
    for (int r = 0; r < AMBI_PACK_REGIONS; r++)
      if (c->call.at[r]) memcpy(c->call.at[r], at[r], c->call.bytes[r]);
    time = least_time(run_pack, &j, b->seconds);
    if (time > 0 && !pack_case_agrees(c)) time = -1, fprintf(stderr, "ambi pack: %s: wrong results\n", c->def->id);
    ambi_pack_return(j.k, &c->call);
  }
  memcpy(c->call.at, at, sizeof at);
  ambi_pack_kernel_close(j.k);
  return time;
}

static int bench_large(bench *b, const char *id, ambi_pass pass) {
  const int64_t rows[PACK_DIMS] = {1024, 4096}, product[PACK_DIMS] = {512, 512, 512},
                heads[PACK_DIMS] = {1, 1024, 32, 128};
  const int64_t flat[PACK_DIMS] = {4 << 20};
  const pack_def *d = pack_def_named(id);
  const int64_t *dims = d->kind == AMBI_LINEAR  ? product
                        : d->kind == AMBI_ROPE  ? heads
                        : d->kind == AMBI_UNARY ? flat
                                                : rows;
  pack_case c;
  int rc = !pack_case_make(&c, d, pass, dims, b->native);
  double native = rc ? -1 : time_native(b, &c, dims), packed = rc ? -1 : time_pack(b, b->pack, &c);
  double plain = !rc && b->plain ? time_pack(b, b->plain, &c) : 0;
  pack_case_free(&c);
  if (native < 0 || packed < 0 || plain < 0) return trouble(id);
  printf("%-14s %-8s  %8.3f ms, native avx2 %8.3f ms: %.2f of it", id, pass ? "backward" : "forward", packed * 1e3,
         native * 1e3, native / packed);
  if (b->plain) printf(";  without SIMD %9.3f ms: %.1fx", plain * 1e3, plain / packed);
  printf("\n");
  if (strcmp(id, "swiglu_f32") != 0 && strcmp(id, "rmsnorm_f32") != 0) return 0;
  judge(b, native / packed >= 0.5, "at least half of native");
  if (b->plain) judge(b, plain / packed >= 4, "at least 4x the same without SIMD");
  return 0;
}

/* ---- deadlines and verification: packs of one's own, by a key of the moment
 * ----------------------------------------------- */
typedef struct {
  char folder[64];
  uint8_t secret[32], key[32];
  ambi_pack_host *host;
} forge;

static int forge_open(forge *f) {
  strcpy(f->folder, "/tmp/ambi-pack-XXXXXX");
  if (!mkdtemp(f->folder)) return perror("mkdtemp"), 0;
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])f->key, .trusted_count = 1};
  return ambi_pack_make_key(f->secret) == AMBI_OK && ambi_pack_public_key(f->secret, f->key) == AMBI_OK &&
         ambi_pack_host_create(&o, &f->host) == AMBI_OK;
}

static void forge_close(forge *f, const char *id) {
  static const char *const files[] = {"kernels.json", "kernels.json.sig"};
  char path[256];
  ambi_pack_host_destroy(f->host);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", f->folder, files[i]);
    unlink(path);
  }
  snprintf(path, sizeof path, "%s/%s.wasm", f->folder, id);
  unlink(path);
  rmdir(f->folder);
}

static int bench_deadline(bench *b) {
  forge f = {.host = NULL};
  forged_kernel loop = {.id = "endless"};
  forged_pack p = {"endless", "1.0.0", &loop, 1, f.secret, NULL};
  ambi_pack *pack = NULL;
  ambi_pack_kernel *k = NULL;
  ambi_pack_call call = {.ticks = 100};
  double most = 0;
  void *wasm = forge_kernel("(memory (export \"memory\") 1)", "(loop $l (br $l)) (i32.const 0)", &loop.bytes);
  loop.wasm = wasm;
  int good = wasm && forge_open(&f) && forge_pack(f.folder, &p) && ambi_pack_open(f.host, f.folder, &pack) == AMBI_OK &&
             ambi_pack_kernel_open(pack, "endless", &k) == AMBI_OK;
  for (int i = 0; i < 10 && good; i++) {
    double begin = now();
    good = ambi_pack_run(k, &call) == AMBI_TIMEOUT;
    if (now() - begin > most) most = now() - begin;
  }
  ambi_pack_kernel_close(k);
  ambi_pack_close(pack);
  forge_close(&f, loop.id);
  free(wasm);
  if (!good) return trouble("deadline");
  printf("an endless loop with a deadline of 100 ms: stopped after at most %.1f ms, 10 times\n", most * 1e3);
  judge(b, most <= 0.120, "within 120 ms");
  return 0;
}

static int bench_verify(bench *b) {
  forge f = {.host = NULL};
  forged_kernel big = {.id = "big", .bytes = 1 << 20};
  forged_pack p = {"big", "1.0.0", &big, 1, f.secret, NULL};
  unsigned char *wasm = malloc(big.bytes);
  double best = 1e30;
  for (size_t i = 0; i < big.bytes && wasm; i++) wasm[i] = (unsigned char)(i * 2654435761U >> 13);
  big.wasm = wasm;
  int good = wasm && forge_open(&f) && forge_pack(f.folder, &p);
  for (int i = 0; i < 20 && good; i++) {
    ambi_pack *pack = NULL;
    double begin = now();
    good = ambi_pack_open(f.host, f.folder, &pack) == AMBI_OK;
    if (now() - begin < best) best = now() - begin;
    ambi_pack_close(pack);
  }
  forge_close(&f, big.id);
  free(wasm);
  if (!good) return trouble("verification");
  printf("verification of a pack of 1 MiB: %.2f ms\n", best * 1e3);
  judge(b, best < 5e-3, "under 5 ms");
  return 0;
}

/* ---- all of it
 * ----------------------------------------------------------------------------------------------------------------- */
static int bench_all(bench *b) {
  int rc = bench_calls(b);
  for (int i = 0; i < pack_def_count; i++)
    for (int pass = 0; pass < 2; pass++) rc |= bench_large(b, pack_defs[i].id, (ambi_pass)pass);
  return rc | bench_deadline(b) | bench_verify(b);
}

int pack_bench(int argc, char **argv) {
  bench b = {.seconds = 0.3};
  const option opts[] = {{"scalar", OPT_STRING, &b.scalar, "FOLDER", "the same pack compiled without SIMD, to compare"},
                         {"seconds", OPT_DOUBLE, &b.seconds, "S", "least time spent on one figure"},
                         TRUST_OPTIONS(b.trust),
                         {0}};
  const command_line spec = {
      "ambi pack bench",
      "FOLDER --trust KEY",
      "Times a pack made by `ambi pack build` on one thread, beside the native kernels for AVX2, in processor time. "
      "Status 1: a bar was missed.",
      opts,
      NULL,
      1};
  int rc = options_parse(&spec, argc, argv, &b.folder);
  if (rc >= 0) return rc;
  if (!b.folder) return options_help(&spec), 2;
  ambi_device_options o = {.threads = 1, .max_isa = "avx2"};
  if (!(b.host = trust_host(&b.trust))) return 1;
  rc = ambi_pack_open(b.host, b.folder, &b.pack) != AMBI_OK || ambi_device_open("cpu", &o, &b.native) != AMBI_OK ||
       (b.scalar && ambi_pack_open(b.host, b.scalar, &b.plain) != AMBI_OK);
  rc = rc ? trouble(b.folder) : bench_all(&b);
  ambi_pack_close(b.plain);
  ambi_pack_close(b.pack);
  if (b.native) ambi_device_close(b.native);
  ambi_pack_host_destroy(b.host);
  return rc || b.missed;
}
