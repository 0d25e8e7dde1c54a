/* turn.h -- cos and sin of position times frequency, and vectors with the lanes of each pair swapped. */
#ifndef AMBI_ROPE_TURN_H
#define AMBI_ROPE_TURN_H
#include "backends/cpu/lanes.h"
#include "backends/cpu/math.h"

enum { AT_ONCE = 16 }; /* as many at a time: a whole number of vectors everywhere */

/* By the C library, in double. */
static inline void turn_exactly(double position, const double *frequency, real *cosine, real *sine) {
  for (int j = 0; j < AT_ONCE; j++) {
    double angle = position * frequency[j];
    cosine[j] = (real)(angle == angle ? cos(angle) : (double)NAN); /* one NaN for all: bf16 stores expect it plain */
    sine[j] = (real)(angle == angle ? sin(angle) : (double)NAN);
  }
}

#if AMBI_REAL == 32
typedef double wide __attribute__((vector_size(2 * VBYTES))); /* VL doubles */

/* VL angles of at most 2^20: r = angle - n pi/2 in double, the rest in f32. pi/2 is a head of 33 bits, whose multiples
 * are exact, and a tail. */
static inline void turn_lanes(double position, const double *frequency, real *cosine, real *sine) {
  const wide shift = (wide){0} + 6755399441055744.0; /* 1.5 2^52: above it doubles are integers */
  wide angle;
  memcpy(&angle, frequency, sizeof angle);
  angle *= position;
  const wide n = (angle * 0.63661977236758134 + shift) - shift;
  const vr r = __builtin_convertvector((angle - n * 1.5707963267341256) - n * 6.0771005065061922e-11, vr);
  const vi k = v_integer(__builtin_convertvector(n, vr)); /* quarter turns */
  const vr s = m_sin(r), c = m_cos(r);
  const vr along = v_select((k & 1) == 1, s, c), across = v_select((k & 1) == 1, c, s);
  v_store(cosine, v_from_bits(v_bits(along) ^ (((k + 1) & 2) << 30))); /* c, -s, -c, s */
  v_store(sine, v_from_bits(v_bits(across) ^ ((k & 2) << 30)));        /* s, c, -s, -c */
}
#endif

/* `most`: the largest |frequency| there is, infinite if one is NaN */
static inline void turn(double position, const double *frequency, double most, real *cosine, real *sine) {
#if AMBI_REAL == 32
  if (fabs(position) * most <= 1048576.0) {
    for (int64_t j = 0; j < AT_ONCE; j += VL) turn_lanes(position, frequency + j, cosine + j, sine + j);
    return;
  }
#endif
  (void)most;
  turn_exactly(position, frequency, cosine, sine);
}

/* Lanes 1 0 3 2 5 4 .. */
static inline vr swap_pairs(vr v) {
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  return _mm512_permute_ps(v, 0xb1);
#elif defined(AMBI_ISA_avx512)
  return _mm512_permute_pd(v, 0x55);
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  return _mm256_permute_ps(v, 0xb1);
#elif defined(AMBI_ISA_avx2)
  return _mm256_permute_pd(v, 0x5);
#elif defined(__SSE2__) && AMBI_REAL == 32
  return _mm_shuffle_ps(v, v, 0xb1);
#elif defined(AMBI_ISA_neon) && AMBI_REAL == 32
  return vrev64q_f32(v);
#else
  vr swapped = v;
  for (int i = 0; i < VL; i++) swapped[i] = v[i ^ 1];
  return swapped;
#endif
}

#endif
