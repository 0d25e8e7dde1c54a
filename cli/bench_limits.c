/* bench_limits.c -- copy bandwidth and f32 peak of the CPU, with a plain thread for each of them. */
#define _POSIX_C_SOURCE 200809L
#include "bench_limits.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { MAX_THREADS = 1024, CHAINS = 12, COPY_BYTES = 256 << 20 };

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a piece of work on every thread ---- */

typedef struct {
  char *dst;
  const char *src;
  size_t bytes;
  int64_t rounds;
  void (*work)(void *self);
} piece;

static void *thread_main(void *p) {
  ((piece *)p)->work(p);
  return NULL;
}

/* Seconds until all pieces are done; the caller's thread does the first. -1 when a thread could not start. */
static double run_pieces(piece *pieces, int n) {
  pthread_t id[MAX_THREADS];
  int started = 1;
  double begin = bench_now();
  while (started < n && pthread_create(&id[started], NULL, thread_main, &pieces[started]) == 0) started++;
  if (started == n) pieces[0].work(&pieces[0]);
  for (int i = 1; i < started; i++) pthread_join(id[i], NULL);
  return started == n ? bench_now() - begin : -1;
}

/* ---- copy ---- */

#if defined(__x86_64__)
/* Streaming stores: a plain store first reads the line it overwrites. SSE2, so every x86-64 has it. */
static void copy_sse2(void *self) {
  const piece *p = self;
  const __m128i *s = (const __m128i *)(const void *)p->src;
  __m128i *d = (__m128i *)(void *)p->dst;
  for (size_t i = 0; i < p->bytes / 16; i += 4) {
    __m128i a = _mm_load_si128(s + i), b = _mm_load_si128(s + i + 1);
    __m128i c = _mm_load_si128(s + i + 2), e = _mm_load_si128(s + i + 3);
    _mm_stream_si128(d + i, a);
    _mm_stream_si128(d + i + 1, b);
    _mm_stream_si128(d + i + 2, c);
    _mm_stream_si128(d + i + 3, e);
  }
  _mm_sfence();
}

__attribute__((target("avx"))) static void copy_avx(void *self) {
  const piece *p = self;
  for (size_t i = 0; i < p->bytes; i += 64) {
    __m256i a = _mm256_load_si256((const __m256i *)(const void *)(p->src + i));
    __m256i b = _mm256_load_si256((const __m256i *)(const void *)(p->src + i + 32));
    _mm256_stream_si256((__m256i *)(void *)(p->dst + i), a);
    _mm256_stream_si256((__m256i *)(void *)(p->dst + i + 32), b);
  }
  _mm_sfence();
}

__attribute__((target("avx512f"))) static void copy_avx512(void *self) {
  const piece *p = self;
  for (size_t i = 0; i < p->bytes; i += 64)
    _mm512_stream_si512((void *)(p->dst + i), _mm512_load_si512((const void *)(p->src + i)));
  _mm_sfence();
}
#endif

static void copy_plain(void *self) {
  const piece *p = self;
  memcpy(p->dst, p->src, p->bytes);
}

/* Best of several rounds of one way to copy; the first round also touches every page. */
static double copy_rate(void (*work)(void *), char *dst, const char *src, int threads) {
  piece pieces[MAX_THREADS];
  size_t share = (COPY_BYTES / (size_t)threads) & ~(size_t)4095;
  for (int i = 0; i < threads; i++) {
    size_t at = share * (size_t)i;
    pieces[i] = (piece){.dst = dst + at, .src = src + at, .bytes = share, .work = work};
  }
  double best = 0;
  for (int round = 0; round < 6; round++) {
    double t = run_pieces(pieces, threads), rate = 2.0 * (double)share * threads / t / 1e9;
    if (t <= 0) return -1;
    if (round > 0 && rate > best) best = rate;
  }
  return best;
}

static double measure_copy(int threads) {
  char *dst = aligned_alloc(4096, COPY_BYTES), *src = aligned_alloc(4096, COPY_BYTES);
  double best = -1;
  if (dst && src) {
    memset(src, 1, COPY_BYTES);
    best = copy_rate(copy_plain, dst, src, threads);
#if defined(__x86_64__)
    void (*const ways[])(void *) = {copy_sse2, __builtin_cpu_supports("avx") ? copy_avx : copy_sse2,
                                    __builtin_cpu_supports("avx512f") ? copy_avx512 : copy_sse2};
    for (int i = 0; i < 3; i++) {
      double rate = copy_rate(ways[i], dst, src, threads);
      if (rate > best) best = rate;
    }
#endif
  }
  free(dst);
  free(src);
  return best;
}

/* ---- multiply-adds: CHAINS independent ones hide the latency of each ---- */

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#if defined(__x86_64__)
#define BEGIN(i)  __m512 a##i = _mm512_set1_ps((float)i);
#define STEP(i)   a##i = _mm512_fmadd_ps(a##i, x, y);
#define FINISH(i) __asm__ volatile("" : : "v"(a##i));
__attribute__((target("avx512f"))) static void fma_avx512(void *self) {
  __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1.0f);
  EACH(BEGIN)
  for (int64_t n = ((piece *)self)->rounds; n > 0; n--) {
    EACH(STEP)
  }
  EACH(FINISH)
}
#undef BEGIN
#undef STEP
#define BEGIN(i) __m256 a##i = _mm256_set1_ps((float)i);
#define STEP(i)  a##i = _mm256_fmadd_ps(a##i, x, y);
__attribute__((target("avx2,fma"))) static void fma_avx2(void *self) {
  __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1.0f);
  EACH(BEGIN)
  for (int64_t n = ((piece *)self)->rounds; n > 0; n--) {
    EACH(STEP)
  }
  EACH(FINISH)
}
#undef BEGIN
#undef STEP
#undef FINISH
#elif defined(__aarch64__)
#define BEGIN(i)  float32x4_t a##i = vdupq_n_f32((float)i);
#define STEP(i)   a##i = vfmaq_f32(y, a##i, x);
#define FINISH(i) __asm__ volatile("" : : "w"(a##i));
static void fma_neon(void *self) {
  float32x4_t x = vdupq_n_f32(0.5f), y = vdupq_n_f32(1.0f);
  EACH(BEGIN)
  for (int64_t n = ((piece *)self)->rounds; n > 0; n--) {
    EACH(STEP)
  }
  EACH(FINISH)
}
#undef BEGIN
#undef STEP
#undef FINISH
#endif

/* Four lanes as the compiler likes to do them: an x86 without FMA, or another CPU. */
typedef float four __attribute__((vector_size(16)));
#define BEGIN(i)  four a##i = {(float)i, 1, 2, 3};
#define STEP(i)   a##i = a##i * x + y;
#define FINISH(i) sum += a##i;
static void fma_plain(void *self) {
  piece *p = self;
  volatile float from_memory = 0.5f;
  float h = from_memory;
  four x = {h, h, h, h}, y = {1, 1, 1, 1}, sum = {0};
  EACH(BEGIN)
  for (int64_t n = p->rounds; n > 0; n--) {
    EACH(STEP)
  }
  EACH(FINISH)
  p->bytes = sum[0] > 0;
}

typedef struct {
  const char *isa;
  void (*work)(void *);
  int lanes, there;
} fma_loop;

static double fma_rate(const fma_loop *f, int threads) {
  piece pieces[MAX_THREADS];
  int64_t rounds = 1000000;
  double best = 0;
  for (int trial = 0; trial < 6; trial++) {
    for (int i = 0; i < threads; i++) pieces[i] = (piece){.rounds = rounds, .work = f->work};
    double t = run_pieces(pieces, threads), rate = 2.0 * CHAINS * f->lanes * (double)rounds * threads / t / 1e9;
    if (t <= 0) return -1;
    if (t < 0.02 && trial == 0) rounds = (int64_t)((double)rounds * 0.03 / t);
    if (rate > best) best = rate;
  }
  return best;
}

static double measure_peak(int threads, const char **isa) {
  const fma_loop loops[] = {
#if defined(__x86_64__)
    {"avx512", fma_avx512, 16, __builtin_cpu_supports("avx512f") != 0},
    {"avx2", fma_avx2, 8, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
#elif defined(__aarch64__)
    {"neon", fma_neon, 4, 1},
#endif
    {"plain", fma_plain, 4, 1}
  };
  double best = -1;
  for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
    double rate = loops[i].there ? fma_rate(&loops[i], threads) : 0;
    if (rate <= best) continue;
    best = rate;
    *isa = loops[i].isa;
  }
  return best;
}

int bench_measure_limits(int threads, bench_limits *out) {
  if (threads < 1) threads = 1;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  *out = (bench_limits){.isa = "plain"};
  out->copy_gbps = measure_copy(threads);
  out->peak_gflops = measure_peak(threads, &out->isa);
  return out->copy_gbps > 0 && out->peak_gflops > 0 ? 0 : -1;
}

int bench_device_limits(const target *t, bench_limits *out) {
  const size_t bytes = (size_t)1 << 30;
  ambi_buf from, to;
  *out = (bench_limits){.isa = "", .peak_gflops = NAN};
  if (ambi_alloc(t->dev, bytes, &from) != AMBI_OK) return -1;
  if (ambi_alloc(t->dev, bytes, &to) != AMBI_OK) return ambi_free(t->dev, from), -1;
  ambi_status s = ambi_copy(t->stream, to, from, bytes);
  for (int round = 0; round < 5 && s == AMBI_OK; round++) {
    enum { COPIES = 8 };
    double begin = (ambi_stream_wait(t->stream), bench_now());
    for (int i = 0; i < COPIES && s == AMBI_OK; i++) s = ambi_copy(t->stream, to, from, bytes);
    if (s == AMBI_OK) s = ambi_stream_wait(t->stream);
    double rate = 2.0 * COPIES * (double)bytes / (bench_now() - begin) / 1e9;
    if (rate > out->copy_gbps) out->copy_gbps = rate;
  }
  ambi_free(t->dev, from);
  ambi_free(t->dev, to);
  return s == AMBI_OK ? 0 : -1;
}
