/* test_gemm.c -- every GEMM kernel this machine can run against a plain triple loop in f64.
 *
 *   test_gemm                   check: sizes around every edge, dtypes, strides, bias, +=, nested axes, thread counts
 *   test_gemm --time [M [N K]]  then time it (default 2048 each) in f32, bf16 and f64, on one thread and on all
 *
 * A result may differ from the exact one by the rounding of its sum and of its storage:
 *   |error| <= (terms + 4) u (sum |a b| + |bias| + |old|) + u' |result| + smallest',  u of the sums, u' of the storage,
 * and, where the instruction flushes subnormals, by terms times the smallest normal f32.                          */
#define _POSIX_C_SOURCE 200809L
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/convert.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/isa.h"

static int checked, failed;
static bool quick;

/* ---- the kernels ---- */
#define KERNELS_OF(name) {#name, &gemm_##name##_f32, &gemm_##name##_f64},
static const struct {
  const char *name;
  const gemm_isa *f32, *f64;
} kernels[] = {AMBI_ISAS(KERNELS_OF)};

/* ---- elements of any dtype ---- */
static double get(ambi_dtype t, const void *p, int64_t i) {
  if (t == AMBI_F64) return ((const double *)p)[i];
  if (t == AMBI_F32) return (double)((const float *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  return (double)(t == AMBI_BF16 ? bf16_to_f32(h) : f16_to_f32(h));
}

static void set(ambi_dtype t, void *p, int64_t i, double v) {
  if (t == AMBI_F64)
    ((double *)p)[i] = v;
  else if (t == AMBI_F32)
    ((float *)p)[i] = (float)v;
  else
    ((uint16_t *)p)[i] = t == AMBI_BF16 ? f32_to_bf16((float)v) : f32_to_f16((float)v);
}

static double unit(ambi_dtype t) {
  return t == AMBI_F64 ? 0x1p-53 : t == AMBI_F32 ? 0x1p-24 : t == AMBI_BF16 ? 0x1p-8 : 0x1p-11;
}
static double smallest(ambi_dtype t) {
  return t == AMBI_F64 ? 0x1p-1074 : t == AMBI_F32 ? 0x1p-149 : t == AMBI_BF16 ? 0x1p-133 : 0x1p-24;
}

static uint64_t random_state = 1;
static double random_value(void) { /* in [-1, 1) */
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(int64_t)(random_state >> 11) * 0x1p-52 - 1;
}

static void *filled(ambi_dtype t, int64_t n) {
  void *p = aligned_alloc(64, (size_t)(n * 8 + 127) / 64 * 64);
  for (int64_t i = 0; i < n; i++) set(t, p, i, random_value());
  return p;
}

enum { BY_COLUMNS_A = 1, BY_COLUMNS_B = 2, BY_COLUMNS_C = 4, GAPS = 8, NESTED_M = 16, NESTED_K = 32, TIGHT = 64 };

/* ---- one case ---- */
typedef struct {
  const char *isa;
  const gemm_isa *kernel;
  cpu_features features;
  int64_t m, n, k;
  ambi_dtype a, b, c, bias;
  int layout; /* BY_COLUMNS_A | .. */
  bool accumulate;
} test;

static gemm_axis nest(gemm_axis x, int64_t n) { /* three interleaved parts */
  int64_t part = (n + 2) / 3;
  return (gemm_axis){.ndim = 2, .shape = {part, 3}, .stride = {x.stride[0], x.stride[0] * part}};
}

static gemm_matrix matrix(const test *t, ambi_dtype dtype, int64_t rows, int64_t cols, bool by_columns) {
  int64_t gap = t->layout & GAPS ? 2 : 1;
  int64_t width = cols + (t->layout & TIGHT ? 0 : 3), height = rows + (t->layout & TIGHT ? 0 : 5);
  int64_t row = by_columns ? gap : width * gap, col = by_columns ? height * gap : gap;
  return (gemm_matrix){dtype, gemm_plain_axis(row), gemm_plain_axis(col)};
}

static int64_t place(const gemm_axis *x, int64_t i) {
  return x->ndim == 1 ? i * x->stride[0] : i / x->shape[1] * x->stride[0] + i % x->shape[1] * x->stride[1];
}
static int64_t at(const gemm_matrix *x, int64_t i, int64_t j) { return place(&x->row, i) + place(&x->col, j); }

static gemm_shape shape_of(const test *t) {
  gemm_shape s = {.m = t->m, .n = t->n, .k = t->k, .bias = t->bias, .bias_col = 1, .accumulate = t->accumulate};
  s.a = matrix(t, t->a, t->m, t->k, t->layout & BY_COLUMNS_A);
  s.b = matrix(t, t->b, t->k, t->n, t->layout & BY_COLUMNS_B);
  s.c = matrix(t, t->c, t->m, t->n, t->layout & BY_COLUMNS_C);
  if (t->layout & NESTED_M) s.a.row = nest(s.a.row, t->m), s.c.row = nest(s.c.row, t->m);
  if (t->layout & NESTED_K) s.a.col = nest(s.a.col, t->k), s.b.row = nest(s.b.row, t->k);
  return s;
}

static int64_t room(const gemm_matrix *x, int64_t rows, int64_t cols) { /* nested axes are rounded up to three parts */
  return (rows + 2) * x->row.stride[0] + (cols + 2) * x->col.stride[0] + 1;
}

static char *workspace_for(const test *t, const gemm_shape *s) {
  size_t bytes = (size_t)gemm_workspace(t->kernel, &t->features, s);
  return aligned_alloc(64, bytes ? bytes : 64);
}

/* A dense copy in f64, row-major or (for B) by columns. */
static double *dense(const gemm_matrix *x, const void *data, int64_t rows, int64_t cols, bool by_columns) {
  double *out = malloc((size_t)(rows * cols + 1) * sizeof *out);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) out[by_columns ? j * rows + i : i * cols + j] = get(x->dtype, data, at(x, i, j));
  return out;
}

static void report(const test *t, const char *what) {
  printf("FAILED %s %lldx%lldx%lld %s*%s->%s layout %d%s: %s\n", t->isa, (long long)t->m, (long long)t->n,
         (long long)t->k, ambi_dtype_name(t->a), ambi_dtype_name(t->b), ambi_dtype_name(t->c), t->layout,
         t->accumulate ? " +=" : "", what);
}

static bool compare(const test *t, const gemm_shape *s, const gemm_data *d, const void *old) {
  double u = (t->kernel->real_bytes == 8 ? 0x1p-53 : 0x1p-24) * (double)(t->k + 4);
  bool pairs = gemm_choose(t->kernel, &t->features, s) != &t->kernel->tiles, ok = true;
  double *a = dense(&s->a, d->a, t->m, t->k, false), *b = dense(&s->b, d->b, t->k, t->n, true);
  for (int64_t i = 0; i < t->m && ok; i++)
    for (int64_t j = 0; j < t->n && ok; j++) {
      double sum = t->bias ? get(t->bias, d->bias, j) : 0, size = fabs(sum);
      double before = t->accumulate ? get(t->c, old, at(&s->c, i, j)) : 0, is = get(t->c, d->c, at(&s->c, i, j));
      for (int64_t k = 0; k < t->k; k++)
        sum += a[i * t->k + k] * b[j * t->k + k], size += fabs(a[i * t->k + k] * b[j * t->k + k]);
      sum += before, size += fabs(before);
      double bound = u * size + unit(t->c) * (fabs(sum) + u * size) + smallest(t->c) +
                     (pairs ? (double)t->k * (double)FLT_MIN : 0);
      ok = fabs(is - sum) <= bound;
      char text[128];
      snprintf(text, sizeof text, "[%lld,%lld] is %.9g, expected %.9g +- %.2g", (long long)i, (long long)j, is, sum,
               bound);
      if (!ok) report(t, text);
    }
  free(a), free(b);
  return ok;
}

static void check(const test *t, pool *const *pools, int npools) {
  gemm_shape s = shape_of(t);
  int64_t nc = room(&s.c, t->m, t->n);
  gemm_data d = {filled(t->a, room(&s.a, t->m, t->k)), filled(t->b, room(&s.b, t->k, t->n)), filled(t->bias, t->n + 1),
                 NULL};
  size_t bytes = (size_t)nc * ambi_dtype_size(t->c);
  void *old = filled(t->c, nc), *first = filled(t->c, nc);
  d.c = filled(t->c, nc);
  char *workspace = workspace_for(t, &s);
  for (int i = 0; i < npools; i++) {
    memcpy(d.c, old, bytes);
    gemm_run(t->kernel, &t->features, &s, &d, workspace, pools[i]);
    if (i == 0) memcpy(first, d.c, bytes);
  }
  bool same = memcmp(first, d.c, bytes) == 0, ok = compare(t, &s, &d, old);
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      set(t->c, old, at(&s.c, i, j), 0);
      set(t->c, d.c, at(&s.c, i, j), 0);
    }
  bool inside = memcmp(old, d.c, bytes) == 0; /* what lies between the results did not change */
  if (!same) report(t, "the number of threads changes the result");
  if (!inside) report(t, "wrote outside C");
  checked++;
  failed += !same || !ok || !inside;
  free((void *)(uintptr_t)d.a), free((void *)(uintptr_t)d.b), free((void *)(uintptr_t)d.bias), free(d.c);
  free(old), free(first), free(workspace);
}

/* ---- all cases of one kernel ---- */
static const int64_t sizes[][3] = {{0, 3, 5},      {3, 0, 5},     {3, 5, 0},    {1, 1, 1},    {1, 37, 65},
                                   {37, 1, 65},    {2, 300, 17},  {8, 70, 530}, {9, 33, 31},  {13, 31, 33},
                                   {12, 32, 64},   {33, 65, 1},   {40, 40, 2},  {7, 48, 900}, {29, 67, 385},
                                   {31, 33, 1057}, {17, 34, 1601}};

static void check_kernel(test t, bool bf16_only, pool *const *pools) {
  static const ambi_dtype wide[] = {AMBI_F32, AMBI_F16, AMBI_BF16, AMBI_F64};
  bool f64 = t.kernel->real_bytes == 8;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int layout = 0; layout < TIGHT; layout++)
      for (int mix = 0; mix < 4; mix++) {
        t.m = sizes[i][0], t.n = sizes[i][1], t.k = sizes[i][2], t.layout = layout;
        if (quick && ((int)i + layout + mix) % 4) continue;
        if ((layout & NESTED_M && layout & (BY_COLUMNS_C | NESTED_K)) || (layout & GAPS && layout & NESTED_K)) continue;
        t.a = bf16_only ? AMBI_BF16 : f64 ? AMBI_F64 : wide[(mix + layout) % 3];
        t.b = bf16_only ? AMBI_BF16 : wide[(mix * 2 + layout / 3) % (f64 ? 4 : 3)];
        t.c = wide[(mix + (int)i) % (f64 ? 4 : 3)];
        t.bias = mix & 1 ? wide[(layout + mix) % (f64 ? 4 : 3)] : AMBI_NONE;
        t.accumulate = mix & 2;
        check(&t, pools, 2);
      }
}

static void check_blocks(test t, ambi_dtype dtype, pool *const *pools) { /* more than one block of C, both ways */
  t.a = t.b = t.c = dtype, t.layout = BY_COLUMNS_B, t.k = 21;
  t.m = 2100, t.n = 37;
  check(&t, pools, 2);
  t.m = 19, t.n = 2077;
  check(&t, pools, 2);
}

/* Padding must not turn an infinity in one row into NaN in another. */
static void check_infinity(test t, ambi_dtype dtype, pool *p) {
  for (int wide = 0; wide < 2; wide++)
    for (int layout = 0; layout < 4; layout++) {
      t.m = wide ? 19 : 3, t.n = 21, t.k = 37, t.a = t.b = t.c = dtype, t.layout = layout;
      gemm_shape s = shape_of(&t);
      void *a = filled(dtype, room(&s.a, t.m, t.k)), *b = filled(dtype, room(&s.b, t.k, t.n)),
           *c = filled(dtype, room(&s.c, t.m, t.n));
      char *workspace = workspace_for(&t, &s);
      set(dtype, a, at(&s.a, 1, t.k - 1), INFINITY);
      gemm_run(t.kernel, &t.features, &s, &(gemm_data){a, b, NULL, c}, workspace, p);
      bool ok = true;
      for (int64_t i = 0; i < t.m; i++)
        for (int64_t j = 0; j < t.n; j++) ok = ok && isfinite(get(dtype, c, at(&s.c, i, j))) == (i != 1);
      if (!ok) report(&t, "an infinity left its row");
      checked++;
      failed += !ok;
      free(a), free(b), free(c), free(workspace);
    }
}

/* ---- timing ---- */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Independent multiply-adds in registers: what no kernel can exceed. */
typedef float v64 __attribute__((vector_size(64)));
typedef float v32 __attribute__((vector_size(32)));
#if defined(__x86_64__)
#define TARGET(isa)    __attribute__((target(isa), noinline))
#define IN_REGISTER(x) __asm__ volatile("" : "+x"(x))
#else
#define TARGET(isa)    __attribute__((noinline))
#define IN_REGISTER(x) __asm__ volatile("" : "+w"(x))
#endif
enum { CHAINS = 12 };

#define FMA_LOOP(name, vec, isa)                                                                                  \
  TARGET(isa) static void name(void *context, int64_t task) {                                                     \
    vec c[CHAINS], a = {0.5f}, b = {0.25f};                                                                       \
    (void)task;                                                                                                   \
    _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) c[i] = b;                                           \
    for (int64_t n = *(int64_t *)context; n > 0; n--) _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) { \
        c[i] = c[i] * a + b;                                                                                      \
        IN_REGISTER(c[i]);                                                                                        \
      }                                                                                                           \
  }

#if defined(__x86_64__)
FMA_LOOP(fma_avx512, v64, "avx512f,fma")
FMA_LOOP(fma_avx2, v32, "avx2,fma")
#else
typedef float v16 __attribute__((vector_size(16)));
FMA_LOOP(fma_baseline, v16, "")
#endif

static double fma_peak(pool *p) {
#if defined(__x86_64__)
  bool wide = isa_usable(ISA_avx512);
  task_fn *fn = wide ? fma_avx512 : fma_avx2;
  int lanes = wide ? 16 : 8;
  if (!isa_usable(ISA_avx2)) return NAN;
#else
  task_fn *fn = fma_baseline;
  int lanes = 4;
#endif
  double best = 0;
  int64_t loops = 4000000;
  for (int i = 0; i < 5; i++) {
    double t = now();
    pool_run(p, pool_threads(p), fn, &loops);
    best = fmax(best, 2.0 * CHAINS * lanes * (double)loops * pool_threads(p) / (now() - t));
  }
  return best * 1e-9;
}

static double time_gemm(test t, pool *p) {
  gemm_shape s = shape_of(&t);
  gemm_data d = {filled(t.a, room(&s.a, t.m, t.k)), filled(t.b, room(&s.b, t.k, t.n)), NULL,
                 filled(t.c, room(&s.c, t.m, t.n))};
  char *workspace = workspace_for(&t, &s);
  double best = INFINITY, flops = 2.0 * (double)t.m * (double)t.n * (double)t.k;
  for (double began = now(), tries = 0; tries < 2 || (tries < 100 && now() - began < 1); tries++) {
    double start = now();
    gemm_run(t.kernel, &t.features, &s, &d, workspace, p);
    best = fmin(best, now() - start);
  }
  free((void *)(uintptr_t)d.a), free((void *)(uintptr_t)d.b), free(d.c), free(workspace);
  return flops / best * 1e-9;
}

static const char *const mode[] = {"y = x W^T", "y = x W", "y = x^T W"};

static void time_all(test t, isa best, pool *p) {
  static const ambi_dtype dtypes[] = {AMBI_F32, AMBI_BF16, AMBI_F64};
  static const int layouts[] = {TIGHT | BY_COLUMNS_B, TIGHT, TIGHT | BY_COLUMNS_A};
  double peak = fma_peak(p), f32 = 0;
  for (int i = 0; i < 9; i++) {
    t.a = t.b = t.c = dtypes[i / 3], t.layout = layouts[i % 3];
    t.kernel = t.a == AMBI_F64 ? kernels[best].f64 : kernels[best].f32;
    gemm_shape s = shape_of(&t);
    double rate = time_gemm(t, p);
    if (i == 0) f32 = rate;
    printf("%lldx%lldx%lld %-4s %-9s %d threads %8.1f GFLOP/s  %.2f of the f32 peak, %.1f  %.2f times f32  (%s)\n",
           (long long)t.m, (long long)t.n, (long long)t.k, ambi_dtype_name(t.a), mode[i % 3], pool_threads(p), rate,
           rate / peak, peak, rate / f32, gemm_choose(t.kernel, &t.features, &s)->name);
    fflush(stdout);
  }
}

/* ---- everything ---- */
static void check_isa(isa i, pool *const *pools) {
  test t = {.isa = kernels[i].name, .kernel = kernels[i].f32};
  int before = checked;
  if (isa_usable(i)) {
    check_kernel(t, false, pools);
    check_blocks(t, AMBI_F32, pools);
    check_infinity(t, AMBI_F32, pools[0]);
    t.kernel = kernels[i].f64;
    check_kernel(t, false, pools);
  }
  printf("%s: %s, %d cases\n", t.isa, isa_usable(i) ? "f32 and f64" : "not on this machine", checked - before);
}

#if defined(__x86_64__)
static void check_bf16(const char *name, cpu_features only, pool *const *pools) {
  test t = {.isa = name, .kernel = &gemm_avx512_f32, .features = only};
  bool usable = only.avx512_bf16 || only.amx_bf16;
  int before = checked;
  if (usable) {
    check_kernel(t, true, pools);
    check_blocks(t, AMBI_BF16, pools);
    check_infinity(t, AMBI_BF16, pools[0]);
  }
  printf("%s: %s, %d cases\n", name, usable ? "bf16 by bf16" : "not on this machine", checked - before);
}
#endif

int main(int argc, char **argv) {
  quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
  pool *pools[] = {pool_create(1), pool_create(cpu_cores() > 2 ? cpu_cores() : 2)};
  cpu_features all = {0};
  isa best;
  if (!pools[0] || !pools[1] || isa_choose(NULL, &best) != AMBI_OK) return 2;
  cpu_detect_features(&all, best);
  for (int i = 0; i < ISA_COUNT; i++) check_isa((isa)i, pools);
#if defined(__x86_64__)
  check_bf16("avx512-bf16", (cpu_features){.avx512_bf16 = all.avx512_bf16}, pools);
  check_bf16("amx-bf16", (cpu_features){.amx_bf16 = all.amx_bf16}, pools);
#endif
  if (argc > 1 && strcmp(argv[1], "--time") == 0) {
    test t = {.features = all, .m = argc > 2 ? atoll(argv[2]) : 2048};
    t.n = argc > 4 ? atoll(argv[3]) : t.m, t.k = argc > 4 ? atoll(argv[4]) : t.m;
    for (int i = 0; i < 2; i++) time_all(t, best, pools[i]);
  }
  pool_destroy(pools[0]);
  pool_destroy(pools[1]);
  printf("%d passed, %d failed\n", checked - failed, failed);
  return failed != 0;
}
