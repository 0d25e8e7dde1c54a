/* prelude.cu -- what every kernel is written with. It needs no header, so NVRTC needs no include path.
 *
 * Above it stand the plan's #defines: the slots (X, W, DX, ..), COMPUTE_F64, NUMBERS, DTYPES_0, DTYPES_1, USED, ADDS_TO.
 * The last four are constants or fields of args: the same text serves both, and branches on constants vanish.      */
#define INFINITY __int_as_float(0x7f800000)
#define NAN      __int_as_float(0x7fffffff)

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned char u8;
#if COMPUTE_F64
typedef double real; /* what the kernel computes in */
#else
typedef float real;
#endif

struct args {
  char *at[32]; /* element 0 of each slot */
  char *work;
  u64 dtypes[2];
  u32 used, adds;
  u32 aligned, unused; /* 1: every slot begins at a multiple of 16 bytes */
  double f[16];
  i64 n[NUMBERS];
};

#ifndef DYNAMIC_SHARED /* the tests' stand-in for a GPU has its own */
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#endif
/* What a multiprocessor has room for. ptxas warns of bounds beyond it, and leaves them aside. */
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ / 100 == 10
enum { MOST_THREADS = 2048, MOST_BLOCKS = 32 };
#else
enum { MOST_THREADS = 1536, MOST_BLOCKS = __CUDA_ARCH__ < 890 ? 16 : 24 };
#endif
#define AT_MOST(n, most) ((n) < (most) ? (n) : (most))
#define BOUNDS(threads, blocks, ...) \
  __launch_bounds__(threads, AT_MOST(AT_MOST(blocks, MOST_THREADS / (threads)), MOST_BLOCKS))
/* KERNEL(name, threads): of a block, at most; and a third, how many blocks a multiprocessor shall hold, if it can.
 * Of a plan with a kernel apart there are two texts, compiled side by side, of which TEXT_APART is the second. */
#define KERNEL_HERE(name, ...) \
  extern "C" __global__ void BOUNDS(__VA_ARGS__, 0, ) name(const __grid_constant__ args a)
#define KERNEL_ELSEWHERE(name, ...) extern "C" inline void name(const args &a)
#ifndef TEXT_APART
#define KERNEL       KERNEL_HERE
#define KERNEL_APART KERNEL_HERE
#elif TEXT_APART
#define KERNEL       KERNEL_ELSEWHERE
#define KERNEL_APART KERNEL_HERE
#else
#define KERNEL       KERNEL_HERE
#define KERNEL_APART KERNEL_ELSEWHERE
#endif

/* An address that is computed here and nowhere else: the compiler would rather do so again in every round of a loop. */
inline char *once(char *p) {
#ifndef AMBI_EMULATED
  asm("" : "+l"(p));
#endif
  return p;
}

/* ---- slots ---- */
enum { F32 = 1, F16, BF16, F64, I32, I64, U8 };
#define DTYPE(s) ((int)((s) < 16 ? DTYPES_0 >> 4 * ((s) & 15) : DTYPES_1 >> 4 * ((s) & 15)) & 15)
#define HAS(s)   ((USED >> (s) & 1) != 0)    /* the slot takes part in this pass                */
#define ADDS(s)  ((ADDS_TO >> (s) & 1) != 0) /* a gradient that is added to                     */
#define RANK(s)  (__popc(USED & ((1u << (s)) - 1)))

/* n / d of what is not negative, quickly where both are small. */
inline i64 quotient(i64 n, i64 d) { return (n | d) < (1ll << 31) ? (u32)n / (u32)d : n / d; }

/* Element offset of point `index` of a grid of that many axes. */
inline i64 walk(int dims, const i64 *shape, const i64 *stride, i64 index) {
  i64 offset = 0;
  for (int i = dims - 1; i > 0; i--) {
    i64 rest = quotient(index, shape[i]);
    offset += (index - rest * shape[i]) * stride[i];
    index = rest;
  }
  return dims ? offset + index * stride[0] : 0;
}

/* ---- storage: f16 and bf16 round to nearest even and keep NaN ---- */
inline float bf16_to_f32(u32 bits) { return __uint_as_float(bits << 16); }

#ifdef AMBI_EMULATED /* the tests' stand-in for a GPU has no PTX */
inline float f16_to_f32(u32 bits) { return emu_f16_to_f32((u16)bits); }
inline u32 f32_to_f16(float v) { return emu_f32_to_f16(v); }
inline u32 f32_to_bf16(float v) { return emu_f32_to_bf16(v); }
inline u32 two_f16(float low, float high) { return f32_to_f16(low) | f32_to_f16(high) << 16; }
inline u32 two_bf16(float low, float high) { return f32_to_bf16(low) | f32_to_bf16(high) << 16; }
#else
inline float f16_to_f32(u32 bits) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((u16)bits));
  return v;
}
inline u32 two_f16(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
inline u32 two_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
inline u32 f32_to_f16(float v) { return two_f16(v, 0.0f) & 0xffff; }
inline u32 f32_to_bf16(float v) { return two_bf16(v, 0.0f) & 0xffff; }
#endif

/* To f32 with the last bit set when anything was lost: rounding that to 16 bits rounds v once. */
inline float odd(float v) { return v; }
inline float odd(double v) {
  float f = __double2float_rz(v);
  return (double)f == v || !(v == v) ? f : __uint_as_float(__float_as_uint(f) | 1);
}

/* Element i of memory of that dtype. */
inline real load(int dtype, const void *p, i64 i) {
  switch (dtype) {
    case F32: return (real)((const float *)p)[i];
    case F16: return (real)f16_to_f32(((const u16 *)p)[i]);
    case BF16: return (real)bf16_to_f32(((const u16 *)p)[i]);
    default: return (real)((const double *)p)[i];
  }
}

inline void store(int dtype, void *p, i64 i, real v) {
  switch (dtype) {
    case F32: ((float *)p)[i] = (float)v; break;
    case F16: ((u16 *)p)[i] = (u16)f32_to_f16(odd(v)); break;
    case BF16: ((u16 *)p)[i] = (u16)f32_to_bf16(odd(v)); break;
    default: ((double *)p)[i] = (double)v; break;
  }
}

inline i64 load_integer(int dtype, const void *p, i64 i) {
  return dtype == I32 ? ((const int *)p)[i] : dtype == I64 ? ((const i64 *)p)[i] : ((const u8 *)p)[i];
}

inline void store_integer(int dtype, void *p, i64 i, i64 v) {
  if (dtype == I32) ((int *)p)[i] = (int)v;
  if (dtype == I64) ((i64 *)p)[i] = v;
  if (dtype == U8) ((u8 *)p)[i] = (u8)v;
}

/* One number of any dtype. */
inline double load_scalar(int dtype, const void *p) {
  if (dtype == F64) return *(const double *)p;
  return dtype >= I32 ? (double)load_integer(dtype, p, 0) : (double)load(dtype, p, 0);
}

/* Rounded to that dtype and back. */
inline real rounded(int dtype, real v) {
  switch (dtype) {
    case F32: return (real)(float)v;
    case F16: return (real)f16_to_f32(f32_to_f16(odd(v)));
    case BF16: return (real)bf16_to_f32(f32_to_bf16(odd(v)));
    default: return v;
  }
}

constexpr inline i64 bytes_of(int dtype) { return dtype == F16 || dtype == BF16 ? 2 : dtype == F64 || dtype == I64 ? 8 : dtype == U8 ? 1 : 4; }

#define AT(s)        (a.at[s])
#define ON_WORDS(s)  (!HAS(s) || (u64)AT(s) % 16 == 0) /* begins at a multiple of 16 bytes */
#define GET(s, i)    load(DTYPE(s), AT(s), i)
#define PUT(s, i, v) put(DTYPE(s), ADDS(s), AT(s), i, v)

inline void put(int dtype, bool adds, void *p, i64 i, real v) {
  if (adds) v += load(dtype, p, i);
  store(dtype, p, i, v);
}

/* ---- V neighbours at once, in words of 16 bytes where the address allows it (ALIGNED: it is known to) ---- */
/* Elements of 2 BYTES may lie between words of 4: those are read and written with a half at both ends. Larger ones do
 * not, but without code for that NVRTC 13 orders the scan's f32 loads so that it takes 3 to 8% longer. */
template <bool ALIGNED, int BYTES, int N> inline void load_words(u32 (&w)[N], const void *p) {
  if (N % 4 == 0 && (ALIGNED || (u64)p % 16 == 0)) {
    for (int k = 0; k < N / 4; k++) {
      uint4 q = ((const uint4 *)p)[k];
      w[4 * k] = q.x, w[4 * k + 1] = q.y, w[4 * k + 2] = q.z, w[4 * k + 3] = q.w;
    }
  } else if (N == 2 && ALIGNED) {
    uint2 q = *(const uint2 *)p;
    w[0] = q.x, w[N - 1] = q.y;
  } else if ((u64)p % 4 == 0) {
    for (int k = 0; k < N; k++) w[k] = ((const u32 *)p)[k];
  } else if (BYTES == 2) {
    const u16 *halves = (const u16 *)p;
    u32 low = halves[0];
    for (int k = 0; k < N - 1; k++) {
      const u32 next = ((const u32 *)(halves + 1))[k];
      w[k] = low | next << 16, low = next >> 16;
    }
    w[N - 1] = low | (u32)halves[2 * N - 1] << 16;
  } else {
    for (int k = 0; k < N; k++) w[k] = ((const u16 *)p)[2 * k] | (u32)((const u16 *)p)[2 * k + 1] << 16;
  }
}

inline void store_word(uint4 *p, uint4 v) { /* STREAMS: nothing here reads it again */
#if defined(STREAMS) && STREAMS && !defined(AMBI_EMULATED)
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#else
  *p = v;
#endif
}

template <bool ALIGNED, int BYTES, int N> inline void store_words(void *p, const u32 (&w)[N]) {
  if (N % 4 == 0 && (ALIGNED || (u64)p % 16 == 0)) {
    for (int k = 0; k < N / 4; k++)
      store_word((uint4 *)p + k, make_uint4(w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]));
  } else if (N == 2 && ALIGNED) {
    *(u64 *)p = w[0] | (u64)w[N - 1] << 32; /* as a uint2 it may become two stores */
  } else if ((u64)p % 4 == 0) {
    for (int k = 0; k < N; k++) ((u32 *)p)[k] = w[k];
  } else if (BYTES == 2) {
    u16 *halves = (u16 *)p;
    halves[0] = (u16)w[0];
    for (int k = 0; k < N - 1; k++) ((u32 *)(halves + 1))[k] = w[k] >> 16 | w[k + 1] << 16;
    halves[2 * N - 1] = (u16)(w[N - 1] >> 16);
  } else {
    for (int k = 0; k < N; k++) ((u16 *)p)[2 * k] = (u16)w[k], ((u16 *)p)[2 * k + 1] = (u16)(w[k] >> 16);
  }
}

/* Elements i .. i + V - 1, of which the first `left` exist; the others read as 0. */
template <int V, bool ALIGNED = false> inline void load_all(real (&r)[V], int dtype, const void *p, i64 i) {
  if (V > 1 && (dtype == F16 || dtype == BF16)) {
    u32 w[V / 2 ? V / 2 : 1];
    load_words<ALIGNED, 2>(w, (const u16 *)p + i);
    for (int k = 0; k < V; k++) {
      u32 bits = k % 2 ? w[k / 2] >> 16 : w[k / 2] & 0xffff;
      r[k] = (real)(dtype == F16 ? f16_to_f32(bits) : bf16_to_f32(bits));
    }
  } else if (V > 1 && dtype == F32) {
    u32 w[V];
    load_words<ALIGNED, 4>(w, (const float *)p + i);
    for (int k = 0; k < V; k++) r[k] = (real)__uint_as_float(w[k]);
  } else {
    for (int k = 0; k < V; k++) r[k] = load(dtype, p, i + k);
  }
}

template <int V, bool ALIGNED = false> inline void load_some(real (&r)[V], int dtype, const void *p, i64 i, i64 left) {
  if (left >= V) return load_all<V, ALIGNED>(r, dtype, p, i);
  for (int k = 0; k < V; k++) r[k] = k < left ? load(dtype, p, i + k) : (real)0;
}

template <int V, bool ALIGNED = false> inline void store_all(int dtype, void *p, i64 i, const real (&r)[V]) {
  if (V > 1 && (dtype == F16 || dtype == BF16)) {
    u32 w[V / 2 ? V / 2 : 1];
    for (int k = 0; k + 1 < V; k += 2) {
      float low = odd(r[k]), high = odd(r[k + 1]);
      w[k / 2] = dtype == F16 ? two_f16(low, high) : two_bf16(low, high);
    }
    store_words<ALIGNED, 2>((u16 *)p + i, w);
  } else if (V > 1 && dtype == F32) {
    u32 w[V];
    for (int k = 0; k < V; k++) w[k] = __float_as_uint((float)r[k]);
    store_words<ALIGNED, 4>((float *)p + i, w);
  } else {
    for (int k = 0; k < V; k++) store(dtype, p, i + k, r[k]);
  }
}

template <int V, bool ALIGNED = false> inline void put_some(int dtype, bool adds, void *p, i64 i, real (&r)[V], i64 left) {
  if (adds) {
    real old[V];
    load_some<V, ALIGNED>(old, dtype, p, i, left);
    for (int k = 0; k < V; k++) r[k] += old[k];
  }
  if (left >= V) return store_all<V, ALIGNED>(dtype, p, i, r);
  for (int k = 0; k < V; k++)
    if (k < left) store(dtype, p, i + k, r[k]);
}

/* V neighbours as they lie in memory: loads that are under way while something else is computed. */
template <int V, int BYTES> struct packed {
  u32 w[V * BYTES > 4 ? V * BYTES / 4 : 1];
};

template <int V, int BYTES> inline void unpack(real (&v)[V], const packed<V, BYTES> &r, int dtype) {
  for (int k = 0; k < V; k++) {
    if (BYTES == 2) {
      const u32 bits = k % 2 ? r.w[k / 2] >> 16 : r.w[k / 2] & 0xffff;
      v[k] = (real)(dtype == F16 ? f16_to_f32(bits) : bf16_to_f32(bits));
    }
    if (BYTES == 4) v[k] = (real)__uint_as_float(r.w[k * BYTES / 4]);
    if (BYTES == 8) v[k] = (real)__hiloint2double((int)r.w[(2 * k + 1) * BYTES / 8], (int)r.w[2 * k * BYTES / 8]);
  }
}

/* ---- an address in shared memory, as instructions want it ---- */
#ifdef AMBI_EMULATED
typedef u64 shared_at;
inline shared_at shared_address(const void *p) { return (u64)p; }
#else
typedef u32 shared_at;
inline shared_at shared_address(const void *p) {
  u32 at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
  return at;
}
#endif

/* ---- copies to shared memory that go on while the thread does ---- */
#ifdef AMBI_EMULATED
/* 16 aligned bytes, of which the first n are read and the others become 0 */
inline void copy_ahead(char *to, const char *from, int n = 16) {
  for (int i = 0; i < 16; i++) to[i] = i < n ? from[i] : 0;
  emu_begun(EMU_COPIES, to, 16);
}
template <int N> inline void copy_words_ahead(u32 (&to)[N], const char *from) {
  for (int k = 0; k < N; k++) to[k] = ((const u32 *)from)[k];
  emu_begun(EMU_COPIES, to, sizeof to);
}
inline void copies_asked() { emu_batch(EMU_COPIES); }
template <int N> inline void copies_here() { emu_ended(EMU_COPIES, N); }
#else
inline void copy_ahead(char *to, const char *from, int n = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(n)
               : "memory");
}
/* 2 words, or 4, 8, .., as aligned as they are many, up to 16 bytes */
template <int N> inline void copy_words_ahead(u32 (&to)[N], const char *from) {
  enum { BYTES = N == 2 ? 8 : 16 };
  for (int k = 0; k < N; k += BYTES / 4)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((u32)__cvta_generic_to_shared(to + k)),
                 "l"(from + 4 * k), "n"((int)BYTES)
                 : "memory");
}
inline void copies_asked() { asm volatile("cp.async.commit_group;" ::: "memory"); } /* those so far are a batch */
/* All but the last N batches of this thread have arrived. */
template <int N> inline void copies_here() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#endif

/* ---- sums in a fixed order ---- */
#define ALL_LANES 0xffffffffu

inline real warp_sum(real v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  return v;
}

inline real warp_max(real v) { /* NaN is lost */
  for (int step = 16; step > 0; step /= 2) {
    real other = __shfl_xor_sync(ALL_LANES, v, step);
    v = other > v ? other : v;
  }
  return v;
}

/* Over the THREADS threads of a row's group: blockDim.x of them, a multiple of 32. `scratch` holds a real a warp. */
template <int THREADS> inline real group_sum(real v, real *scratch) {
  v = warp_sum(v);
  if (THREADS == 32) return v;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < THREADS / 32 ? scratch[threadIdx.x % 32] : (real)0;
  v = warp_sum(v);
  __syncthreads();
  return v;
}

/* The sum over the first LANES lanes of a warp, where lane i and lane i % LANES have the same */
template <int LANES> inline real lanes_sum(real v) {
  if (LANES & (LANES - 1)) {
    v = warp_sum(threadIdx.x % 32 < LANES ? v : (real)0);
  } else {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  }
  return v;
}

/* Two sums by one tree: lanes below 16 get that of x, the others that of y. */
inline real warp_sums(real x, real y) {
  const bool upper = threadIdx.x & 16;
  real v = (upper ? y : x) + __shfl_xor_sync(ALL_LANES, upper ? x : y, 16);
  for (int step = 8; step > 0; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  return v;
}

/* N sums at once, by one barrier: calls take the two halves of `room` in turns. */
template <int THREADS, int N, int MOST> inline void group_sums(real (&v)[N], real (&room)[2][MOST][32], int &turn) {
  constexpr int WARPS = THREADS / 32;
  if (WARPS == 1) {
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = warp_sum(v[i]);
    return;
  }
  turn ^= 1;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const real sum = i + 1 < N ? warp_sums(v[i], v[i + 1 < N ? i + 1 : i]) : warp_sum(v[i]);
    const int which = i + (int)(threadIdx.x % 32 / 16);
    if (threadIdx.x % 16 == 0 && which < N) room[turn][which][threadIdx.x / 32] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = lanes_sum<WARPS>(room[turn][i][threadIdx.x % WARPS]);
}

/* A long sum whose error does not grow: what an addition rounded away is put back by the next (Kahan). */
struct long_sum {
  real total, lost;
  void clear() { total = lost = 0; }
  void add(real term) {
    real y = term - lost, t = total + y;
    lost = t - t == 0 ? (t - total) - y : 0; /* nothing is lost from an infinity */
    total = t;
  }
};
