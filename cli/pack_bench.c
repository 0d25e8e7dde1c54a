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
  const char *folder, *scalar, *kernel;
  ambi_pack_host *host;
  ambi_pack *pack, *plain; /* plain: without SIMD, or NULL */
  ambi_device *native;
  double seconds;
  int64_t rows; /* 0: each of ROWS */
  int missed;   /* bars */
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

/* ---- timing: the least of several, each of at least some milliseconds; those to be compared take turns ---- */
typedef int timed_fn(void *context);

typedef struct {
  timed_fn *fn; /* NULL: takes no part */
  void *context;
  int64_t repeats;
  double best; /* seconds; -1: it failed */
} contender;

static void take_turn(contender *c) {
  if (!c->fn(c->context)) c->best = -1; /* the caches are as another left them: not timed */
  double begin = work_time();
  for (int64_t i = 0; i < c->repeats && c->best >= 0; i++)
    if (!c->fn(c->context)) c->best = -1;
  double each = (work_time() - begin) / (double)c->repeats;
  if (each < c->best) c->best = each;
  if (each * (double)c->repeats < 2e-3) c->repeats *= 2;
}

static void race(contender *c, int n, double seconds) {
  double end = now() + seconds * n;
  int rounds = 0;
  for (int i = 0; i < n; i++) c[i].repeats = 1, c[i].best = c[i].fn ? 1e30 : 0;
  for (; rounds < 3 || now() < end; rounds++)
    for (int i = 0; i < n; i++)
      if (c[i].fn && c[i].best >= 0) take_turn(&c[i]);
}

static double least_time(timed_fn *fn, void *context, double seconds) {
  contender c = {.fn = fn, .context = context};
  race(&c, 1, seconds);
  return c.best;
}

typedef struct {
  ambi_pack_kernel *k;
  ambi_pack_call *call;
} pack_job;

static int run_pack(void *context) {
  pack_job *j = context;
  return ambi_pack_run(j->k, j->call) == AMBI_OK;
}

/* ---- small calls ---- */
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

/* ---- large kernels: natively, as a pack and as a pack without SIMD ---- */
typedef struct {
  ambi_device *device;
  ambi_plan *plan;
  ambi_buf slots[AMBI_SLOTS], workspace;
} native_job;

static int run_native(void *context) {
  native_job *j = context;
  return ambi_run(j->plan, NULL, j->slots, AMBI_SLOTS, j->workspace) == AMBI_OK;
}

/* The op natively, over the buffers of the case. */
static int native_open(native_job *j, ambi_device *device, const pack_case *c, const int64_t *dims) {
  ambi_op op = {.kind = c->def->kind, .pass = c->call.pass};
  uint32_t words[PACK_WORDS];
  ambi_plan_info info;
  *j = (native_job){.device = device};
  c->def->describe(c->def, dims, &op, words);
  if (ambi_plan_create(device, &op, &j->plan) != AMBI_OK || ambi_plan_get_info(j->plan, &info) != AMBI_OK) return 0;
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) {
    float *at = c->call.at[r];
    for (int i = 0; i < 2 && c->def->layout[op.pass][r][i]; i++) {
      int slot = c->def->layout[op.pass][r][i] - 1;
      ambi_tensor t = ambi_plan_tensor(j->plan, slot);
      j->slots[slot].data = at;
      at += ambi_numel(&t);
    }
  }
  return !info.workspace || ambi_alloc(device, info.workspace, &j->workspace) == AMBI_OK;
}

static void native_close(native_job *j) {
  if (j->workspace.data) ambi_free(j->device, j->workspace);
  if (j->plan) ambi_plan_destroy(j->plan);
}

/* In place, as a host would that keeps its tensors there. */
typedef struct {
  pack_job job;
  pack_case leased; /* the case, but for where its regions lie */
  int open;
} packed_job;

static int packed_open(packed_job *j, ambi_pack *pack, const pack_case *c) {
  *j = (packed_job){.leased = *c};
  j->job.call = &j->leased.call;
  if (!pack) return 1;
  if (ambi_pack_kernel_open(pack, c->def->id, &j->job.k) != AMBI_OK) return 0;
  if (ambi_pack_lease(j->job.k, j->job.call) != AMBI_OK) return 0;
  for (int r = 0; r < AMBI_PACK_REGIONS; r++)
    if (j->job.call->at[r]) memcpy(j->job.call->at[r], c->call.at[r], c->call.bytes[r]);
  return j->open = 1;
}

/* Whether the results were right. */
static int packed_close(packed_job *j) {
  int right = !j->open || pack_case_agrees(&j->leased);
  if (!right) fprintf(stderr, "ambi pack: %s: wrong results\n", j->leased.def->id);
  if (j->open) ambi_pack_return(j->job.k, j->job.call);
  ambi_pack_kernel_close(j->job.k);
  return right;
}

/* What memory allows: as many bytes as the regions have, half of them read and half written, with ordinary stores (of
 * a piece this small memcpy makes no others), as a module's are. */
typedef struct {
  char *from, *to;
  size_t bytes;
} copy_job;

static int run_copy(void *context) {
  enum { PIECE = 16384 };
  const copy_job *j = context;
  for (size_t at = 0; at < j->bytes; at += PIECE)
    memcpy(j->to + at, j->from + at, j->bytes - at < PIECE ? j->bytes - at : PIECE);
  return 1;
}

static int copy_open(copy_job *j, const pack_case *c) {
  size_t all = 0;
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) all += c->call.bytes[r];
  *j = (copy_job){malloc(all / 2 + 1), malloc(all / 2 + 1), all / 2};
  if (j->from) memset(j->from, 1, all / 2 + 1); /* pages never written are all one page of zeros, in a cache */
  return j->from && j->to;
}

static void copy_close(copy_job *j) {
  free(j->from);
  free(j->to);
}

enum { NATIVE, PACKED, PLAIN, COPY, CONTENDERS };

/* Seconds of each; 0: it takes no part. 1, or 0 when something failed. */
static int time_large(bench *b, const pack_def *d, ambi_pass pass, const int64_t *dims, double *seconds) {
  pack_case c;
  native_job native = {0};
  packed_job packed = {0}, plain = {0};
  copy_job copy = {0};
  int good = pack_case_make(&c, d, pass, dims, b->native) && native_open(&native, b->native, &c, dims) &&
             packed_open(&packed, b->pack, &c) && packed_open(&plain, b->plain, &c) && copy_open(&copy, &c);
  contender all[CONTENDERS] = {{.fn = run_native, .context = &native},
                               {.fn = run_pack, .context = &packed.job},
                               {.fn = b->plain ? run_pack : NULL, .context = &plain.job},
                               {.fn = run_copy, .context = &copy}};
  if (good) race(all, CONTENDERS, b->seconds);
  for (int i = 0; i < CONTENDERS && good; i++) good = (seconds[i] = all[i].best) >= 0;
  good = packed_close(&packed) && packed_close(&plain) && good;
  native_close(&native);
  copy_close(&copy);
  pack_case_free(&c);
  return good;
}

/* Rows of 4096 numbers: tensors of 256 KiB, which stay in a cache, and of 16 MiB, which come from memory. */
static const int64_t ROWS[] = {16, 1024};

static void print_large(const bench *b, const pack_def *d, ambi_pass pass, int64_t rows, const double *t) {
  printf("%-14s %-8s ", d->id, pass ? "backward" : "forward");
  if (d->kind == AMBI_LINEAR)
    printf("512x512x512  ");
  else
    printf("%4lld x 4096  ", (long long)rows);
  printf("%9.4f ms, native avx2 %9.4f ms: %.2f of it", t[PACKED] * 1e3, t[NATIVE] * 1e3, t[NATIVE] / t[PACKED]);
  if (b->plain)
    printf(";  without SIMD %10.4f ms: %.2fx (native: %.2fx)", t[PLAIN] * 1e3, t[PLAIN] / t[PACKED],
           t[PLAIN] / t[NATIVE]);
  printf(";  a copy of as many bytes %9.4f ms\n", t[COPY] * 1e3);
}

static int bench_large(bench *b, const pack_def *d, ambi_pass pass, int64_t n) {
  const int64_t rows[PACK_DIMS] = {n, 4096}, product[PACK_DIMS] = {512, 512, 512}, heads[PACK_DIMS] = {1, n, 32, 128},
                flat[PACK_DIMS] = {n * 4096};
  const int64_t *dims = d->kind == AMBI_LINEAR  ? product
                        : d->kind == AMBI_ROPE  ? heads
                        : d->kind == AMBI_UNARY ? flat
                                                : rows;
  double t[CONTENDERS];
  if (!time_large(b, d, pass, dims, t)) return trouble(d->id);
  print_large(b, d, pass, n, t);
  if (strcmp(d->id, "swiglu_f32") != 0 && strcmp(d->id, "rmsnorm_f32") != 0) return 0;
  judge(b, t[NATIVE] / t[PACKED] >= 0.5, "at least half of native");
  if (b->plain) judge(b, t[PLAIN] / t[PACKED] >= 4, "at least 4x the same without SIMD");
  return 0;
}

static int bench_kernel(bench *b, const pack_def *d) {
  int rc = 0, sizes = b->rows || d->kind == AMBI_LINEAR ? 1 : (int)(sizeof ROWS / sizeof *ROWS);
  for (int i = 0; i < sizes; i++)
    for (int pass = 0; pass < 2; pass++) rc |= bench_large(b, d, (ambi_pass)pass, b->rows ? b->rows : ROWS[i]);
  return rc;
}

/* ---- deadlines and verification: packs of one's own, by a key of the moment ---- */
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

/* ---- all of it ---- */
static int bench_all(bench *b) {
  int rc = b->kernel ? 0 : bench_calls(b);
  for (int i = 0; i < pack_def_count; i++)
    if (!b->kernel || strcmp(b->kernel, pack_defs[i].id) == 0) rc |= bench_kernel(b, &pack_defs[i]);
  return b->kernel ? rc : rc | bench_deadline(b) | bench_verify(b);
}

int pack_bench(int argc, char **argv) {
  bench b = {.seconds = 0.3};
  const option opts[] = {
      {"scalar", OPT_STRING, &b.scalar, "FOLDER",
       "the same pack compiled without SIMD (SCALAR=1 tools/modules), to compare"},
      {"kernel", OPT_STRING, &b.kernel, "ID", "time this one alone"},
      {"rows", OPT_INT, &b.rows, "N", "of 4096 numbers each; without it 16, which stay in a cache, and 1024"},
      {"seconds", OPT_DOUBLE, &b.seconds, "S", "least time spent on one figure; 0.3"},
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
  int rc = trust_parse(&spec, argc, argv, &b.folder, &b.trust);
  if (rc >= 0) return rc;
  char err[200];
  const option_range rows[] = {{"seconds", b.seconds, 0, 3600}, {"rows", (double)b.rows, 0, 8192}};
  if (!options_in_range(rows, 2, err, sizeof err)) return options_wrong(&spec, "%s", err);
  if (b.kernel && !pack_def_named(b.kernel)) return options_wrong(&spec, "there is no kernel %s", b.kernel);
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
