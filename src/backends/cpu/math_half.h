/* math_half.h -- the functions of math.h again, for results that are stored as f16 or bf16.
 *
 * Every m_* defined below stands for a cheaper function with a relative error of about 2^-14, below 2^-13.5. A rounded
 * f16 is exact to 2^-12, so the stored result is the correctly rounded one or its neighbour. Range, infinities and NaN
 * as in math.h. Include after math.h; what is not defined here (logarithm, sine, erf, expm1) stays as it is.         */
#ifndef AMBI_MATH_HALF_H
#define AMBI_MATH_HALF_H
#if AMBI_REAL == 32

/* y = n + f, c = 2^n, n = floor(y), 0 <= f <= 1, for |y| <= 252 or, with AVX-512, any y: there y serves for n. */
static inline vr half_split(vr y, pow2 *c) {
#if defined(AMBI_ISA_avx512)
  *c = (pow2){K(1.0), y};
  return _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); /* 0 for infinities */
#else
  const vr v = m_clamp(y, K(-252.0), K(252.0));
  vr n;
  *c = v_pow2(v - K(0.5), &n);
  return v - n;
#endif
}

/* 2^f, 0 <= f <= 1: degree 4, 2^-18.6. */
static inline vr half_pow2(vr f) {
  return K(1.00000259336476962) +
         f * (K(0.693003834306635276) +
              f * (K(0.241442757721726597) + f * (K(0.0520114594244541931) + f * K(0.0135341684528750797))));
}

static inline vr far_mul_pow2(vr k, vr y) {
  pow2 c;
  const vr f = half_split(y, &c);
  return v_times(k * half_pow2(f) * c.p, c);
}

/* ---- near: where 2^y is a normal number, |y| <= 100, fewer steps do. Elsewhere and with AVX-512: far ---- */

/* y = n + f, c = 2^n, |f| <= 1/2 */
static inline vr near_split(vr y, vr *c) {
  vr n;
  *c = v_pow4(y, &n).p;
  return y - n;
}

/* 2^f: degree 3, 2^-13.7, and degree 4, 2^-18.6. */
static inline vr near_pow2(vr f) {
  return K(0.999928073535159659) +
         f * (K(0.693260985454245729) + f * (K(0.242611122223753236) + f * K(0.0551716690926116623)));
}
static inline vr near_pow2_fine(vr f) {
  const vr f2 = f * f, c01 = K(0.999999261446931155) + f * K(0.693121814742986684);
  return c01 + f2 * (K(0.24024744824991691) + f * K(0.0559178603063256519) + f2 * K(0.00957010201462932562));
}

static inline vr near_mul_pow2(vr k, vr y) {
  vr c;
  const vr f = near_split(y, &c);
  return k * (near_pow2_fine(f) * c);
}

/* A lane's result does not depend on the others: each has its own way. */
#if defined(AMBI_ISA_avx2)
#define NEAR_OR_FAR(y, near, far)                        \
  const vi beyond = ~(v_abs(y) <= K(100.0));             \
  const vr usual = near;                                 \
  if (__builtin_expect(!v_any(beyond), 1)) return usual; \
  return v_select(beyond, far, usual)
#else
#define NEAR_OR_FAR(y, near, far) return far
#endif

static inline vr half_mul_pow2(vr k, vr y) { NEAR_OR_FAR(y, near_mul_pow2(k, y), far_mul_pow2(k, y)); }
static inline vr half_mul_exp(vr k, vr x) { return half_mul_pow2(k, x * K(1.4426950408889634)); }
static inline vr half_exp(vr x) { return half_mul_exp(K(1.0), x); }

/* ---- sigmoid: a logit y is t log2(e), kept where 1 - sigmoid(t) is nothing: k 2^-y would lose small k's ---- */

static inline vr half_logit(vr t) { return v_min(t * K(1.4426950408889634), K(24.0)); }
static inline vr half_logit_cubic(vr x, double p, double q) {
  const vr v = m_clamp(x, K(-14.0), K(5.0));
  return v * (K(1.4426950408889634 * p) + K(1.4426950408889634 * q) * v * v);
}

/* 2^-f, 0 <= f <= 1: degree 3, 2^-13.7, and degree 4, 2^-18.6. */
static inline vr half_pow2_minus(vr f) {
  return K(0.999925218690341841) +
         f * (K(-0.691020711027955522) + f * (K(0.230070365429267536) - f * K(0.0390122637464829336)));
}
static inline vr half_pow2_minus_fine(vr f) {
  return K(0.9999974066352304) +
         f * (K(-0.6930302009174757) +
              f * (K(0.23934107335616983) + f * (K(-0.05307406661797726) + f * K(0.00676708422643754))));
}

/* a c, given also `whole` = c: with AVX-512 as good as c itself, however small */
static inline vr half_scale(vr a, vr whole, pow2 c) {
#if defined(AMBI_ISA_avx512)
  (void)c;
  return a * whole;
#else
  (void)whole;
  return v_times(a * c.p, c);
#endif
}

/* k / (1 + 2^-y) = k c / d, d = c + p, c = 2^n, p = 2^-f */
static inline vr far_gate(vr k, vr y) {
  pow2 c;
  const vr f = half_split(y, &c), whole = v_times(c.p, c), d = whole + half_pow2_minus(f);
  return half_scale(k * v_rough_inverse(d), whole, c);
}
static inline vr near_gate(vr k, vr y) {
  vr c;
  const vr f = near_split(y, &c);
  return k * (c / (c + near_pow2(-f)));
}
static inline vr half_gate(vr k, vr y) { NEAR_OR_FAR(y, near_gate(k, y), far_gate(k, y)); }

/* k s (1 + g (1 - s)), s = c / d, 1 - s = p / d. The sum has a root, so its terms need more digits than the result. */
static inline vr far_gate_grad(vr k, vr g, vr y) {
  pow2 c;
  const vr f = half_split(y, &c), whole = v_times(c.p, c), p = half_pow2_minus_fine(f), d = whole + p;
  const vr sum = K(1.0) + m_clamp(g, K(-1e30), K(150.0)) * (p * v_ratio(K(1.0), d));
  return half_scale(k * v_rough_inverse(d) * sum, whole, c);
}
static inline vr near_gate_grad(vr k, vr g, vr y) {
  vr c;
  const vr f = near_split(y, &c), p = near_pow2_fine(-f), inverse = K(1.0) / (c + p);
  const vr sum = K(1.0) + m_clamp(g, K(-1e30), K(150.0)) * (p * inverse);
  return k * (c * inverse) * sum;
}
static inline vr half_gate_grad(vr k, vr g, vr y) { NEAR_OR_FAR(y, near_gate_grad(k, g, y), far_gate_grad(k, g, y)); }

/* half_gate in the steps of half_gate_grad: a kernel that needs both takes them once. */
static inline vr far_gate_beside_grad(vr k, vr y) {
  pow2 c;
  const vr f = half_split(y, &c), whole = v_times(c.p, c), d = whole + half_pow2_minus_fine(f);
  return half_scale(k * v_rough_inverse(d), whole, c);
}
static inline vr near_gate_beside_grad(vr k, vr y) {
  vr c;
  const vr f = near_split(y, &c), inverse = K(1.0) / (c + near_pow2_fine(-f));
  return k * (c * inverse);
}
static inline vr half_gate_beside_grad(vr k, vr y) {
  NEAR_OR_FAR(y, near_gate_beside_grad(k, y), far_gate_beside_grad(k, y));
}

/* x a(x^2) / b(x^2), |x| <= 5, where 1 - tanh is below 2^-13: degrees 2 and 2, 2^-14.2. */
static inline vr half_tanh(vr x) {
  const vr v = m_clamp(x, K(-5.0), K(5.0)), z = v * v;
  const vr a = K(0.99994838392) + z * (K(0.102419485615) + z * K(0.000670605989024));
  const vr b = K(1.0) + z * (K(0.435434870621) + z * K(0.0128203555847));
  return v * a / b;
}

/* ---- normal distribution ---- */

static inline vr half_mul_gauss(vr k, vr t, vr h) {
  const vr v = v_min(v_abs(t), K(18.0));
  return half_mul_pow2(k, v * v * (h * K(-1.4426950408889634)));
}

/* Q(t) exp(t^2/2) = b / (2 + t (sqrt(2 pi) b + a)): a of degree 1, b of 3, 2^-18.4. */
static inline vr half_mul_tail(vr k, vr t) {
  const vr v = v_min(t, K(18.0));
  const vr b = K(1.0) + v * (K(0.808723812335) + v * (K(0.290668009286) + v * K(0.0471254930453)));
  const vr a = K(0.706435421377) + v * K(0.119048798306);
  return half_mul_gauss(k * b / (K(2.0) + v * (K(2.5066282746310005) * b + a)), v, K(0.5));
}

#include "math_half_names.h"

#endif
#endif
