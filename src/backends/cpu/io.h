/* io.h -- strips: how kernels read and write tensors of any storage type and stride.
 *
 * A strip is a line of elements along one axis. Kernels work on tiles of at most TILE dense reals:
 *   const real *x = strip_in(&xs, i, n, tile);    the reals themselves, or their conversion into `tile`
 *   real *y = strip_out(&ys, i, tile);            where to compute: in memory, or in `tile`
 *   ... y[k] = f(x[k]) ...
 *   strip_put(&ys, i, n, y);                      convert, add, or store past the cache as the slot asks
 * so no kernel knows about dtypes, strides, accumulation or streaming.                                      */
#ifndef AMBI_IO_H
#define AMBI_IO_H
#include "backends/cpu/kernel.h"
#include "backends/cpu/lanes.h"

#if defined(AMBI_TILE)
enum { TILE = AMBI_TILE }; /* a module of a pack whose stack has room for such tiles */
#elif defined(AMBI_PACK_DENSE)
enum { TILE = 1024 }; /* how much is taken at a time; nothing is converted */
#else
enum { TILE = 960 }; /* a handful fit the first-level cache, and 3840 bytes apart they do not fall on the same lines */
#endif
#define TILE_OF_REALS _Alignas(64) real
enum { LINE = 64 }; /* bytes that memory moves at a time */

/* Whether there are stores past the cache. */
#if defined(__SSE2__)
enum { STREAMS = 1 };
#else
enum { STREAMS = 0 };
#endif

#define REAL_DTYPE (AMBI_REAL == 64 ? AMBI_F64 : AMBI_F32)

/* Kernel packs store f32 alone, and most of them dense: what else strips can do is then not compiled. */
#ifdef AMBI_PACK
enum { F32_ALONE = 1 };
#else
enum { F32_ALONE = 0 };
#endif
#ifdef AMBI_PACK_DENSE
enum { DENSE_ALONE = 1 };
#else
enum { DENSE_ALONE = 0 };
#endif

typedef struct {
  char *at;
  int64_t stride; /* elements */
  ambi_dtype dtype;
  bool accumulate, stream;
} strip;

/* The line of `slot` that starts `offset` elements in; .at is NULL when the slot takes no part. */
static inline strip strip_of(const cpu_call *c, int slot, int64_t offset, int64_t stride) {
  uint32_t bit = AMBI_BIT(slot);
  strip s = {.stride = DENSE_ALONE ? 1 : stride, .dtype = F32_ALONE ? AMBI_F32 : c->p->t[slot].dtype};
  if (!((c->p->reads | c->p->writes) & bit)) return s;
  s.at = c->at[slot] + offset * dtype_bytes(s.dtype);
  s.accumulate = (c->p->accumulates & bit) != 0;
  s.stream = STREAMS && c->stream && !s.accumulate && stride == 1;
  return s;
}

/* ---- dense conversions, as loops that vectorise; `past` the cache where vectors are aligned, see goes_past ---- */
static inline void read_f32(const float *s, int64_t stride, int64_t n, real *out) {
  if (stride == 1)
    for (int64_t i = 0; i < n; i++) out[i] = (real)s[i];
  else
    for (int64_t i = 0; i < n; i++) out[i] = (real)s[i * stride];
}

static inline void read_f64(const double *s, int64_t stride, int64_t n, real *out) {
  for (int64_t i = 0; i < n; i++) out[i] = (real)s[i * stride];
}

static inline void read_bf16(const uint16_t *s, int64_t stride, int64_t n, real *out, bool past) {
  int64_t i = 0;
  (void)past;
#if AMBI_REAL == 32
  if (stride == 1)
    for (; i + VL <= n; i += VL) {
      prefetch_ahead(s + i);
      v_put_past(out + i, bf16_get(s + i, VL), VL, past);
    }
#endif
  for (; i < n; i++) out[i] = (real)bf16_to_f32(s[i * stride]);
}

static inline void read_f16(const uint16_t *s, int64_t stride, int64_t n, real *out) {
  int64_t i = 0;
#if defined(__F16C__) && AMBI_REAL == 32
  if (stride == 1)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
#endif
  for (; i < n; i++) out[i] = (real)f16_to_f32(s[i * stride]);
}

static inline void write_f32(float *d, int64_t stride, int64_t n, const real *v) {
  for (int64_t i = 0; i < n; i++) d[i * stride] = (float)v[i];
}

static inline void write_f64(double *d, int64_t stride, int64_t n, const real *v) {
  for (int64_t i = 0; i < n; i++) d[i * stride] = (double)v[i];
}

#if AMBI_REAL == 64
static inline float narrow(real v) { return f64_to_odd_f32(v); }
#else
static inline float narrow(real v) { return v; }
#endif

static inline void write_bf16(uint16_t *d, int64_t stride, int64_t n, const real *v, bool past) {
  int64_t i = 0;
  (void)past;
#if AMBI_REAL == 32
  if (stride == 1) {
    for (; i + 2 * VL <= n; i += 2 * VL) {
      prefetch_ahead(v + i);
      bf16_store_both(d + i, v_load(v + i), v_load(v + i + VL), past);
    }
    for (; i + VL <= n; i += VL) bf16_store_past(d + i, bf16_of(v_load(v + i)), VL, false);
  }
#endif
  for (; i < n; i++) d[i * stride] = f32_to_bf16(narrow(v[i]));
}

static inline void write_f16(uint16_t *d, int64_t stride, int64_t n, const real *v) {
  int64_t i = 0;
#if defined(__F16C__) && AMBI_REAL == 32
  if (stride == 1)
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(v + i), 0));
#endif
  for (; i < n; i++) d[i * stride] = f32_to_f16(narrow(v[i]));
}

SHARED void read_reals(ambi_dtype t, const void *s, int64_t stride, int64_t n, real *out) {
  switch (F32_ALONE ? AMBI_F32 : t) {
    case AMBI_F32:
      read_f32(s, stride, n, out);
      break;
    case AMBI_F64:
      read_f64(s, stride, n, out);
      break;
    case AMBI_BF16:
      read_bf16(s, stride, n, out, false);
      break;
    default:
      read_f16(s, stride, n, out);
      break;
  }
}

SHARED void write_reals(ambi_dtype t, void *d, int64_t stride, int64_t n, const real *v) {
  switch (F32_ALONE ? AMBI_F32 : t) {
    case AMBI_F32:
      write_f32(d, stride, n, v);
      break;
    case AMBI_F64:
      write_f64(d, stride, n, v);
      break;
    case AMBI_BF16:
      write_bf16(d, stride, n, v, false);
      break;
    default:
      write_f16(d, stride, n, v);
      break;
  }
}

/* Copy past the cache: a line that is overwritten whole need not be read first. The parts of lines at both ends go
 * through it: memory that is given part of a line has to read the rest, and a neighbour's part is soon to follow. */
static void stream_bytes(char *d, const char *s, int64_t bytes) {
#if defined(__SSE2__)
  int64_t head = min64((int64_t)(-(uintptr_t)d & (LINE - 1)), bytes), whole = head + (bytes - head) / LINE * LINE;
  memcpy(d, s, (size_t)head);
  for (int64_t i = head; i < whole; i += VBYTES) {
#if VBYTES == 64
    _mm512_stream_si512((__m512i *)(void *)(d + i), _mm512_loadu_si512(s + i));
#elif VBYTES == 32
    _mm256_stream_si256((__m256i *)(void *)(d + i), _mm256_loadu_si256((const __m256i *)(const void *)(s + i)));
#else
    _mm_stream_si128((__m128i *)(void *)(d + i), _mm_loadu_si128((const __m128i *)(const void *)(s + i)));
#endif
  }
  memcpy(d + whole, s + whole, (size_t)(bytes - whole));
#else
  memcpy(d, s, (size_t)bytes);
#endif
}

/* After the last strip_put of a task: makes streamed stores visible to whoever is told the task is done. */
static inline void stream_fence(void) {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

static inline bool is_direct(const strip *s) { return DENSE_ALONE || (s->dtype == REAL_DTYPE && s->stride == 1); }
static inline char *strip_at(const strip *s, int64_t i) {
  if (DENSE_ALONE) return s->at + (size_t)i * sizeof(float);
  return s->at + i * s->stride * dtype_bytes(s->dtype);
}

/* Whether whole vectors may be stored past the cache at `at`, and fill lines. */
static inline bool goes_past(const strip *s, const char *at) { return s->stream && (uintptr_t)at % LINE == 0; }

static inline const real *strip_in(const strip *s, int64_t i, int64_t n, real *tile) {
  if (is_direct(s)) return (const real *)(void *)s->at + i;
  read_reals(s->dtype, strip_at(s, i), s->stride, n, tile);
  return tile;
}

static inline real *strip_out(const strip *s, int64_t i, real *tile) {
  return DENSE_ALONE || (is_direct(s) && !s->accumulate && !s->stream) ? (real *)(void *)s->at + i : tile;
}

SHARED void strip_put(const strip *s, int64_t i, int64_t n, const real *v) {
  char *at = strip_at(s, i);
  if (at == (const char *)v && !s->accumulate) return; /* computed in place */
  TILE_OF_REALS sum[TILE];
  if (s->accumulate && !DENSE_ALONE) {
    const real *old = strip_in(s, i, n, sum);
    for (int64_t k = 0; k < n; k++) sum[k] = old[k] + v[k];
    v = sum;
  }
  if (!s->stream || DENSE_ALONE) {
    write_reals(s->dtype, at, s->stride, n, v);
  } else if (is_direct(s)) {
    stream_bytes(at, (const char *)v, n * (int64_t)sizeof(real));
  } else if (HAS_BF16S && s->dtype == AMBI_BF16 && goes_past(s, at)) {
    write_bf16((uint16_t *)(void *)at, 1, n, v, true);
  } else {
    _Alignas(64) char narrowed[TILE * sizeof(double)];
    write_reals(s->dtype, narrowed, 1, n, v);
    stream_bytes(at, narrowed, n * dtype_bytes(s->dtype));
  }
}

/* to[i ..] = from[j ..], n elements; the bytes themselves where both are stored alike */
static inline void strip_copy(const strip *to, int64_t i, const strip *from, int64_t j, int64_t n) {
  char *d = strip_at(to, i), *s = strip_at(from, j);
  bool dense = to->stride == 1 && from->stride == 1 && !to->accumulate, alike = dense && to->dtype == from->dtype;
  TILE_OF_REALS tile[TILE];
  if (alike && d == s) return;
  if (alike && to->stream) {
    stream_bytes(d, s, n * dtype_bytes(to->dtype));
  } else if (alike) {
    memcpy(d, s, (size_t)(n * dtype_bytes(to->dtype)));
  } else if (HAS_BF16S && dense && from->dtype == AMBI_BF16 && is_direct(to) && goes_past(to, d)) {
    read_bf16((const uint16_t *)(void *)s, 1, n, (real *)(void *)d, true);
  } else {
    for (int64_t k = 0, count; k < n; k += count) {
      count = min64(TILE, n - k);
      strip_put(to, i + k, count, strip_in(from, j + k, count, strip_out(to, i + k, tile)));
    }
  }
}

/* Element `offset` of an integer slot. */
static inline int64_t integer_at(const cpu_call *c, int slot, int64_t offset) {
  const void *at = c->at[slot];
  if (c->p->t[slot].dtype == AMBI_I64) return ((const int64_t *)at)[offset];
  if (c->p->t[slot].dtype == AMBI_I32) return ((const int32_t *)at)[offset];
  return ((const uint8_t *)at)[offset];
}

/* One element of a slot, as a real. */
static inline real strip_get(const strip *s, int64_t i) {
  real v;
  read_reals(s->dtype, strip_at(s, i), 1, 1, &v);
  return v;
}

/* ---- views: bf16 without conversion tiles ----
 * A kernel whose lines are all dense bf16 may read and write them as they lie and convert in registers. Its loops take
 * the kind of element as a compile-time constant: get(kind, p, k, left), put(kind, o, k, v, left).                 */
enum { REALS, BF16S };
#define INLINE static inline __attribute__((always_inline))
#if defined(AMBI_PACK) /* a loop finds more registers in a function of its own */
#define PER_TILE static __attribute__((noinline))
#else
#define PER_TILE INLINE
#endif

INLINE vr get(int kind, const void *p, int64_t k, int64_t left) {
  if (!p) __builtin_unreachable(); /* only what is there is read */
#if AMBI_REAL == 32
  if (kind == BF16S) return bf16_get((const uint16_t *)p + k, left);
#endif
  (void)kind;
  return v_get((const real *)p + k, left);
}

/* The same for a step, which is a vector of reals or two of bf16s (see lanes.h): one half of it, and all of it. */
INLINE int halves(int kind) { return kind == BF16S ? 2 : 1; }

INLINE vr get_half(int kind, const void *p, int64_t k, int half, int64_t left) {
#if AMBI_REAL == 32
  if (!p) __builtin_unreachable();
  if (kind == BF16S) return bf16_half((const uint16_t *)p + k, half, left);
#endif
  (void)half;
  return get(kind, p, k, left);
}

/* Element k of a view; NULL stays NULL. */
INLINE const void *view_from(int kind, const void *p, int64_t k) {
  if (!p) return NULL;
  return kind == BF16S ? (const void *)((const uint16_t *)p + k) : (const void *)((const real *)p + k);
}

/* strip_in for either kind; NULL for a strip that is not there. */
INLINE const void *view_in(int kind, const strip *s, int64_t i, int64_t n, real *tile) {
  if (!s->at) return NULL;
  return kind == BF16S ? strip_at(s, i) : (const void *)strip_in(s, i, n, tile);
}

/* Where results go: memory, past the cache or not, or a tile that view_put takes there. */
typedef struct {
  void *p; /* NULL: not wanted */
  bool past;
} out_view;

INLINE out_view view_out(int kind, const strip *s, int64_t i, int64_t n, real *tile) {
  if (!s->at) return (out_view){NULL, false};
  char *at = strip_at(s, i);
  if (DENSE_ALONE) return (out_view){at, false};
  bool as_it_lies = kind == BF16S || (is_direct(s) && !s->accumulate);
  bool past = s->stream && n * dtype_bytes(s->dtype) >= LINE; /* part of a line is not */
  if (as_it_lies && (!past || goes_past(s, at))) return (out_view){at, past};
  return (out_view){tile, false};
}

INLINE out_view out_from(int kind, out_view o, ptrdiff_t k) {
  return (out_view){(void *)(uintptr_t)view_from(kind, o.p, k), o.past};
}

INLINE void put(int kind, out_view o, int64_t k, vr v, int64_t left) {
  if (!o.p) __builtin_unreachable(); /* only what is wanted is put */
#if AMBI_REAL == 32
  if (kind == BF16S) {
    bf16_put_past((uint16_t *)o.p + k, v, left, o.past);
    return;
  }
#endif
  (void)kind;
  v_put_past((real *)o.p + k, v, left, o.past);
}

INLINE void put_halves(int kind, out_view o, int64_t k, const vr *v, int64_t left) {
#if AMBI_REAL == 32
  if (!o.p) __builtin_unreachable();
  if (kind == BF16S) {
    bf16_put_halves((uint16_t *)o.p + k, v, left, o.past);
    return;
  }
#endif
  put(kind, o, k, v[0], left);
}

/* The elements of a half of a step that are there. */
INLINE int64_t half_left(int kind, int half, int64_t left) {
  return min64(kind == BF16S ? (left + 1 - half) / 2 : left, VL);
}

/* sum[k ..] += a step; sums are reals in their own order. */
INLINE void add_halves(int kind, real *sum, int64_t k, vr *v, int64_t left) {
#if AMBI_REAL == 32
  if (kind == BF16S) {
    v_zip(v);
    if (left > VL) v_put(sum + k + VL, v_get(sum + k + VL, left - VL) + v[1], left - VL);
  }
#endif
  (void)kind;
  v_put(sum + k, v_get(sum + k, left) + v[0], left);
}

/* sum[k ..] += a b of a step */
INLINE void add_products(int kind, real *sum, int64_t k, const vr *a, const vr *b, int64_t left) {
  if (kind == BF16S) {
    vr ab[2] = {a[0] * b[0], a[1] * b[1]};
    add_halves(kind, sum, k, ab, left);
  } else {
    v_put(sum + k, v_mul_add(a[0], b[0], v_get(sum + k, left)), left);
  }
}

INLINE void view_put(int kind, const strip *s, int64_t i, int64_t n, out_view o) {
  if (DENSE_ALONE || !o.p || (char *)o.p == strip_at(s, i)) return;
  if (kind == BF16S)
    stream_bytes(strip_at(s, i), o.p, n * (int64_t)sizeof(uint16_t));
  else
    strip_put(s, i, n, o.p);
}

/* Whether every slot of the set that takes part is bf16; they must be dense along the strips. */
static inline bool all_bf16(const cpu_call *c, uint32_t slots) {
  slots &= c->p->reads | c->p->writes;
  bool all = HAS_BF16S && !(c->p->accumulates & slots);
  for (uint32_t m = slots; m; m &= m - 1) all = all && c->p->t[__builtin_ctz(m)].dtype == AMBI_BF16;
  return all;
}

/* Prefetches what lies a little after element k of a view. */
INLINE void prefetch_view(int kind, const void *p, int64_t k) {
  prefetch_ahead((const char *)p + k * (int64_t)(kind == BF16S ? sizeof(uint16_t) : sizeof(real)));
}

/* v rounded to a storage type and back. */
static inline void round_to(ambi_dtype t, real *v, int64_t n) {
  _Alignas(64) char stored[TILE * sizeof(double)];
  if (t == REAL_DTYPE) return;
  write_reals(t, stored, 1, n, v);
  read_reals(t, stored, 1, n, v);
}

#endif
