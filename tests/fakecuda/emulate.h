/* emulate.h -- CUDA C++ for a C++ compiler: what kernel text finds predeclared when NVRTC compiles it, and no more.
 *
 * Included before the text by nvrtc.c. No headers, as NVRTC has none, and so that compiling is quick. Kernels run with
 * AMBI_EMULATED defined: inline PTX needs a plain alternative then, for which emu_warp_exchange and emu_barrier serve.
 * Approximate functions (__expf ..) are as exact as the host's. Atomics are for integers only, on purpose: a sum of
 * floats in the order of arrival is not deterministic. */
#ifndef FAKECUDA_EMULATE_H
#define FAKECUDA_EMULATE_H
#include "machine.h"

#define AMBI_EMULATED  1
#define __CUDACC__     1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__  900
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __grid_constant__
#define __restrict__ __restrict
#define __builtin_assume(x)
#define __global__             __attribute__((emu_global)) /* nvrtc.c looks for these two */
#define __launch_bounds__(...) __attribute__((emu_bounds(__VA_ARGS__)))
#define __maxnreg__(n)
#define __shared__           static thread_local /* a block runs on one thread; it is filled with 0xFF before each block */
#define DYNAMIC_SHARED(name) char *const name = emu->dynamic

extern "C" {
__attribute__((visibility("default"))) const emu_machine *emu;
int printf(const char *, ...);
void *memcpy(void *, const void *, unsigned long);
void *memset(void *, int, unsigned long);
}
typedef unsigned long size_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
template <class T>
constexpr int emu_first(T n, ...) {
  return (int)n;
}

#define threadIdx (emu->thread)
#define blockIdx  (emu->block)
#define blockDim  (emu->block_dim)
#define gridDim   (emu->grid_dim)
#define warpSize  32
#undef assert
#define assert(ok) ((ok) ? (void)0 : emu->fail(EMU_ASSERT, "assertion failed: " #ok))
#define __trap()   emu->fail(EMU_TRAP, "__trap")

/* ---- vectors ---- */
#define EMU_VECTORS(T, name, a1, a2, a4)                                    \
  struct __align__(a1) name##1 {                                            \
    T x;                                                                    \
  };                                                                        \
  struct __align__(a2) name##2 {                                            \
    T x, y;                                                                 \
  };                                                                        \
  struct name##3 {                                                          \
    T x, y, z;                                                              \
  };                                                                        \
  struct __align__(a4) name##4 {                                            \
    T x, y, z, w;                                                           \
  };                                                                        \
  static inline name##1 make_##name##1(T x) { return {x}; }                 \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char, 1, 2, 4)
EMU_VECTORS(unsigned char, uchar, 1, 2, 4)
EMU_VECTORS(short, short, 2, 4, 8)
EMU_VECTORS(unsigned short, ushort, 2, 4, 8)
EMU_VECTORS(int, int, 4, 8, 16)
EMU_VECTORS(unsigned, uint, 4, 8, 16)
EMU_VECTORS(long long, longlong, 8, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
EMU_VECTORS(float, float, 4, 8, 16)
EMU_VECTORS(double, double, 8, 16, 16)
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

/* ---- threads of a block and lanes of a warp ---- */
static inline int emu_barrier(int id, int threads) { return emu->barrier(id, threads, EMU_COUNT, 0); }
static inline void __syncthreads() { emu->barrier(0, 0, EMU_COUNT, 0); }
static inline int __syncthreads_count(int p) { return emu->barrier(0, 0, EMU_COUNT, p); }
static inline int __syncthreads_and(int p) { return emu->barrier(0, 0, EMU_AND, p); }
static inline int __syncthreads_or(int p) { return emu->barrier(0, 0, EMU_OR, p); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) { emu->pause(); }
static inline unsigned __activemask() { return emu->active(); }

/* Every lane gives `size` bytes and gets those of all 32. */
static inline void emu_warp_exchange(const void *mine, size_t size, void *all) {
  emu->exchange(0xffffffffu, mine, size, EMU_EVERYONE, all);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  char none;
  emu->exchange(mask, &none, 0, 0, &none);
}

/* The lane a shuffle reads from, in groups of `width`; a lane without a partner reads its own. */
template <class T>
static inline T emu_shuffle(unsigned mask, T value, int from, bool there) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  T got;
  emu->exchange(mask, &value, sizeof value, there ? from : (int)emu->lane, &got);
  return got;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
  return emu_shuffle(mask, v, ((int)emu->lane & ~(width - 1)) | (from & (width - 1)), true);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
  const int lane = (int)emu->lane, from = lane ^ bits;
  return emu_shuffle(mask, v, from, from <= (lane | (width - 1)));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
  const int lane = (int)emu->lane, from = lane - (int)by;
  return emu_shuffle(mask, v, from, from >= (lane & ~(width - 1)));
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
  const int lane = (int)emu->lane, from = lane + (int)by;
  return emu_shuffle(mask, v, from, from <= (lane | (width - 1)));
}

static inline unsigned __ballot_sync(unsigned mask, int p) {
  unsigned char mine = p != 0, all[32];
  const unsigned came = emu->exchange(mask, &mine, 1, EMU_EVERYONE, all);
  unsigned votes = 0;
  for (int i = 0; i < 32; i++) votes |= (unsigned)(all[i] & 1) << i;
  return votes & came;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }
#define EMU_REDUCE(name, better)                                                \
  template <class T>                                                            \
  static inline T __reduce_##name##_sync(unsigned mask, T v) {                  \
    T all[32], a = v;                                                           \
    const unsigned came = emu->exchange(mask, &v, sizeof v, EMU_EVERYONE, all); \
    bool first = true;                                                          \
    for (int i = 0; i < 32; i++)                                                \
      if (came >> i & 1) {                                                      \
        const T b = all[i];                                                     \
        a = first ? b : (better);                                               \
        first = false;                                                          \
      }                                                                         \
    return a;                                                                   \
  }
EMU_REDUCE(add, a + b)
EMU_REDUCE(min, a < b ? a : b)
EMU_REDUCE(max, a > b ? a : b)
EMU_REDUCE(or, a | b)
EMU_REDUCE(and, a &b)

/* ---- memory ---- */
#define EMU_LOAD(name)               \
  template <class T>                 \
  static inline T name(const T *p) { \
    return *p;                       \
  }
#define EMU_STORE(name)                \
  template <class T>                   \
  static inline void name(T *p, T v) { \
    *p = v;                            \
  }
/* clang-format off */
EMU_LOAD(__ldg) EMU_LOAD(__ldcs) EMU_LOAD(__ldcg) EMU_LOAD(__ldca) EMU_LOAD(__ldlu) EMU_LOAD(__ldcv)
EMU_STORE(__stcs) EMU_STORE(__stcg) EMU_STORE(__stwb) EMU_STORE(__stwt)

#define EMU_ATOMIC(T, name, after) \
  static inline T name(T *p, T v) { const T old = *p; *p = (after); return old; }
#define EMU_ATOMICS(T)                                                                                       \
  EMU_ATOMIC(T, atomicAdd, old + v) EMU_ATOMIC(T, atomicMin, old < v ? old : v)                              \
  EMU_ATOMIC(T, atomicMax, old > v ? old : v) EMU_ATOMIC(T, atomicExch, v) EMU_ATOMIC(T, atomicAnd, old & v) \
  EMU_ATOMIC(T, atomicOr, old | v) EMU_ATOMIC(T, atomicXor, old ^ v) EMU_ATOMIC(T, atomicSub, old - v)       \
  static inline T atomicCAS(T *p, T expected, T v) { const T old = *p; if (old == expected) *p = v; return old; }
EMU_ATOMICS(int) EMU_ATOMICS(unsigned) EMU_ATOMICS(unsigned long long)
    /* clang-format on */
    static inline unsigned atomicInc(unsigned *p, unsigned most) {
  const unsigned old = *p;
  *p = old >= most ? 0 : old + 1;
  return old;
}

/* ---- mbarriers, and what goes on while its thread does ---- */
static inline void emu_phase_init(unsigned long long at, int count) { emu->phase_init((void *)at, count); }
static inline void emu_phase_arrive(unsigned long long at) { emu->phase_arrive((void *)at); }
static inline void emu_phase_wait(unsigned long long at, unsigned phase) { emu->phase_wait((void *)at, phase); }

/* It is done at once; these say from when to when it might have been. */
static __noinline__ void emu_begun(emu_way w, const void *at, unsigned long bytes) {
  emu->begun(w, (void *)at, bytes, __builtin_return_address(0));
}
static inline void emu_batch(emu_way w) { emu->batch(w); }
static inline void emu_ended(emu_way w, int left) { emu->ended(w, left); }

/* A box from element x and line y on; outside of the tensor there are zeros. It is there when this ends. */
static inline void emu_copy_box(unsigned long long to, const void *map, int x, int y) {
  const emu_map *m = (const emu_map *)map;
  for (unsigned r = 0; r < m->box[1]; r++)
    for (unsigned c = 0; c < m->box[0]; c++) {
      const long long line = (long long)y + r, element = (long long)x + c;
      const bool there = line >= 0 && element >= 0 && (unsigned long long)line < m->shape[1] &&
                         (unsigned long long)element < m->shape[0];
      const ushort *from = (const ushort *)(m->at + (unsigned long long)line * m->step) + element;
      *(ushort *)(to + r * 128 + (c / 8 ^ r % 8) * 16 + c % 8 * 2) = there ? *from : (ushort)0;
    }
}

/* What the compiler calls before each access when it is to tell of them (nvrtc.c) */
#ifdef EMU_WATCHED
#define EMU_TELLS extern "C" __attribute__((no_sanitize_thread)) void
#define EMU_TELL(name, bytes, write)                                                              \
  EMU_TELLS __tsan_##name(void *p) { emu->access(p, bytes, write, __builtin_return_address(0)); } \
  EMU_TELLS __tsan_unaligned_##name(void *p) { emu->access(p, bytes, write, __builtin_return_address(0)); }
#define EMU_TELL_RANGE(name, write) \
  EMU_TELLS __tsan_##name(void *p, unsigned long n) { emu->access(p, n, write, __builtin_return_address(0)); }
/* clang-format off */
EMU_TELL(read1, 1, 0) EMU_TELL(read2, 2, 0) EMU_TELL(read4, 4, 0) EMU_TELL(read8, 8, 0) EMU_TELL(read16, 16, 0)
EMU_TELL(write1, 1, 1) EMU_TELL(write2, 2, 1) EMU_TELL(write4, 4, 1) EMU_TELL(write8, 8, 1) EMU_TELL(write16, 16, 1)
EMU_TELL_RANGE(read_range, 0) EMU_TELL_RANGE(write_range, 1)
EMU_TELLS __tsan_init() {}
/* clang-format on */
extern "C" {
__attribute__((visibility("default"))) int emu_watched = 1;
}
#endif

/* ---- bits ---- */
template <class To, class From>
static inline To emu_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "same bytes");
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emu_bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(emu_bits<unsigned long long>(x) >> 32); }
static inline int __double2loint(double x) { return (int)emu_bits<unsigned long long>(x); }
static inline double __hiloint2double(int h, int l) {
  return emu_bits<double>((unsigned long long)(unsigned)h << 32 | (unsigned)l);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
  return y;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned y = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned pick = s >> 4 * i, byte = (unsigned)(both >> 8 * (pick & 7)) & 0xff;
    y |= (pick & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
  }
  return y;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)(((unsigned long long)hi << 32 | lo) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}
/* Counts its own calls: time passes, and no result depends on the machine. */
static inline long long clock64() {
  static long long ticks;
  return ticks += 100;
}
static inline long clock() { return (long)clock64(); }

#include "emulate_math.h"
#endif
