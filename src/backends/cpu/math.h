/* math.h -- the vector functions that the formulas of ops/elementwise.def are written with (meanings: see there).
 *
 * f32: own polynomials, such that every value and derivative of the table is right to 4 ulp over the whole range,
 *      denormal results, infinities and NaN included.
 *      e^x is kept as e^r 2^n (r near 0, n an integer) until the last step, so that k e^x or x sigmoid(x) neither
 *      underflows half way nor rounds a denormal twice.
 * f64: libm, lane by lane; right rather than fast.
 * Coefficients are minimax fits (Remez); each comment gives the interval and the largest relative error.            */
#ifndef AMBI_MATH_H
#define AMBI_MATH_H
#ifndef AMBI_TEXT /* compiled at run time, one lane at a time: cuda/scalar.cu stands in for simd.h */
#include "simd.h"

#define let                 const vr
#define pick(no, yes, cond) v_select(cond, yes, no)
#endif

static inline vr m_min(vr v, vr limit) { return v_min(v, limit); }
static inline vr m_max(vr v, vr limit) { return v_max(v, limit); }
static inline vr m_clamp(vr v, vr low, vr high) { return v_min(v_max(v, low), high); }
static inline vr m_abs(vr v) { return v_abs(v); }
static inline vr m_sqrt(vr v) { return v_sqrt(v); }
static inline vr m_rsqrt(vr v) { return K(1.0) / v_sqrt(v); }
static inline vr m_rcp(vr v) { return K(1.0) / v; }
static inline vr m_copysign(vr size, vr sign) {
  const vi s = v_bits(K(-0.0));
  return v_from_bits((v_bits(size) & ~s) | (v_bits(sign) & s));
}

#if AMBI_REAL == 64
#include "math_f64.h"
#else

#if defined(AMBI_TEXT) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define AMBI_FUSED 1 /* a b + c is one operation */
#else
#define AMBI_FUSED 0
#endif
#ifndef AMBI_TEXT
typedef double vd __attribute__((vector_size(2 * VBYTES)));
#endif

/* ---- e^x ---- */

/* e^r - 1 = r + r^2 q(r), |r| <= ln2/2: degree 6, 2^-28.3 of e^r, 2^-26 of e^r - 1. In pairs, for a short chain. */
static inline vr expm1_poly(vr r) {
  const vr r2 = r * r, c45 = K(0.041668394190841513) + r * K(0.0083687804019594545);
  const vr q = K(0.49999993412584873) + r * K(0.16666520107995227) + r2 * (c45 + r2 * K(0.0013814468201986356));
  return r + r2 * q;
}

/* e^x = e^r c with c = 2^n, r = x - n ln2; ln2 in two parts, so that n times the first is exact. |x| <= 174. */
static inline vr exp_reduce(vr x, pow2 *c) {
  vr n;
  *c = v_pow2(x * K(1.4426950408889634), &n);
  return (x - n * K(0.693145751953125)) - n * K(1.42860682030941723e-6);
}

static inline vr m_mul_exp(vr k, vr x) {
  pow2 c;
  const vr r = exp_reduce(m_clamp(x, K(-174.0), K(174.0)), &c);
  return v_times((k + k * expm1_poly(r)) * c.p, c);
}
static inline vr m_exp(vr x) { return m_mul_exp(K(1.0), x); }

/* 2^x, cheaply: 2^f = 1 + f q(f), |f| <= 1/2, degree 5, 2^-23.4. For recurrences; exact at 0, where they spend their
 * time. */
static inline vr m_exp2(vr x) {
  const vr t = m_clamp(x, K(-252.0), K(252.0));
  vr n;
  const pow2 c = v_pow2(t, &n);
  const vr f = t - n;
  const vr q = K(0.69314697759483967) +
               f * (K(0.24022242082542256) +
                    f * (K(0.055507337494507238) + f * (K(0.0096715127696046631) + f * K(0.0013264725334752577))));
  return v_times((K(1.0) + f * q) * c.p, c);
}

/* (e^r - 1) 2^n + (2^n - 1), halved on the way because 2^128 does not exist. */
static inline vr m_expm1(vr x) {
  pow2 c;
  const vr r = exp_reduce(m_clamp(x, K(-30.0), K(88.9)), &c), s = v_times(K(0.5) * c.p, c);
  return K(2.0) * (expm1_poly(r) * s + (s - K(0.5)));
}

/* tanh |x| = -m / (m + 2), m = e^(-2|x|) - 1. */
static inline vr m_tanh(vr x) {
  pow2 c;
  const vr t = v_min(v_abs(x), K(15.0)), r = exp_reduce(-(t + t), &c), s = v_times(c.p, c);
  const vr m = expm1_poly(r) * s + (s - K(1.0));
  return m_copysign(m / (m + K(2.0)), x);
}

/* ---- sigmoid ---- */

/* t, as e^-t = e^r / c, c = 2^n. Where sigmoid(t) is 0 or 1 in every digit, t stays at the edge of that. */
typedef struct {
  pow2 c;
  vr r;
#if !AMBI_FUSED
  pow2 near_c; /* the same with |near_r| <= ln2/2, for what needs e^r itself; costs nothing where it is not used */
  vr near_r;
#endif
} logit;

/* At 22 t (1 - sigmoid(t)) is a tenth of an ulp of 1; further on, k / e^t would lose small k's. */
static inline vr logit_clamp(vr t) { return m_clamp(t, K(-174.0), K(22.0)); }

#if AMBI_FUSED
static inline logit m_logit(vr t) {
  t = logit_clamp(t);
  vr n;
  const pow2 c = v_pow2(t * K(1.4426950408889634), &n);
  const logit l = {c, (n * K(0.693145751953125) - t) + n * K(1.42860682030941723e-6)};
  return l;
}
#else
/* Steps are what counts: n is even, n = 2 m, and |r| <= ln2, which m_gate can do with. */
static inline logit m_logit(vr t) {
  t = logit_clamp(t);
  vr m, n;
  const pow2 c = v_pow4(t * K(0.72134752044448170), &m), near = pow2_of(t * K(1.4426950408889634) + POW2_BIAS, &n);
  const logit l = {c, (m * K(1.38629150390625) - t) + m * K(2.85721364061883446e-6), near,
                   (n * K(0.693145751953125) - t) + n * K(1.42860682030941723e-6)};
  return l;
}
#endif

/* t = x (p + q x^2), in units of ln2. Rounded once it would cost e^-t |t| ulp, so w = p + q x^2 gets a second part:
 * what x^2 lost, what q and p lost, and what the sum lost (p_hi has 12 bits, so that p_hi - w is exact). Without
 * multiply-add double is cheaper. */
static inline vr cubic_clamp(vr x) { return m_clamp(x, K(-12.9), K(6.0)); } /* t in [-174, 25] for gelu's p and q */
static inline logit m_logit_cubic(vr x, double p, double q) {
  const double log2e = 1.4426950408889634, pd = p * log2e, qd = q * log2e;
  const vr v = cubic_clamp(x);
  vr n;
#if AMBI_FUSED
  const float p_hi = (float)((double)(int)(pd * 1024.0) / 1024.0), q_hi = (float)qd;
  const vr x2 = v * v, x2_lo = v_fma(v, v, -x2);
  const vr w = v_fma(K(q_hi), x2, K(p_hi));
  const vr lost = K(q_hi) * x2_lo + (K(qd - (double)q_hi) * x2 + K(pd - (double)p_hi));
  const vr w_lo = v_fma(K(q_hi), x2, K(p_hi) - w) + lost;
  const pow2 c = v_pow2(v * w, &n);
  const logit l = {c, (v_fma(-v, w, n) - v * w_lo) * K(0.69314718055994531)};
#else
  const vd wide = __builtin_convertvector(v, vd), t = wide * (pd + qd * wide * wide);
  const pow2 c = v_pow2(__builtin_convertvector(t, vr), &n);
  const vr r = __builtin_convertvector(__builtin_convertvector(n, vd) - t, vr) * K(0.69314718055994531);
  const logit l = {c, r, c, r};
#endif
  return l;
}

/* k s, s = sigmoid(t) = c / (c + e^r). Without multiply-add a polynomial costs twice as much: e^r = (h + r) / (h - r),
 * h = r coth(r/2) = 2 + r^2 q(r^2), 2^-24.5 of e^r, |r| <= ln2, is then cheaper. */
static inline vr m_gate(vr k, logit t) {
#if AMBI_FUSED
  return v_times(v_ratio(k, K(1.0) + (v_times(t.c.p, t.c) + expm1_poly(t.r))) * t.c.p, t.c);
#else
  const vr p = v_now(t.c.p), r = v_now(t.r), z = r * r;
  const vr h = K(2.0000007152557373) + z * (K(0.16665399074554443) - z * K(0.002723594196140766));
  const vr down = (h - r) * p, d = v_now(v_times(down, t.c) + (h + r));
  return v_times(v_ratio(k, d) * down, t.c);
#endif
}
static inline vr m_sigmoid(vr t) { return m_gate(K(1.0), m_logit(t)); }

/* 1 + u (p + 3 q x^2) */
static inline vr cubic_grad_sum(vr u, vr x, double p, double q) {
#if AMBI_FUSED
  const vr x2 = x * x, lost = v_fma(x, x, -x2);
  return K(1.0) + u * (K(3.0 * q) * x2 + (K(3.0 * q) * lost + K(p)));
#else
  const vd wide = __builtin_convertvector(x, vd);
  return __builtin_convertvector(1.0 + __builtin_convertvector(u, vd) * (p + (3.0 * q) * wide * wide), vr);
#endif
}

/* k s (1 + g (1 - s)), where e^-t = p / c, s = c / d, 1 - s = p / d, d = c + p. Beside it k s costs no division where
 * divisions are what counts. */
static inline vr m_gate_grad(vr k, vr g, logit t) {
#if AMBI_FUSED
  const vr h = logit_clamp(g), p = K(1.0) + expm1_poly(t.r), d = v_times(t.c.p, t.c) + p;
  return v_times(v_ratio(k * (K(1.0) + h * v_ratio(p, d)), d) * t.c.p, t.c);
#else
  const pow2 c = t.near_c;
  const vr r = v_now(t.near_r), p = K(1.0) + v_now(expm1_poly(r)), inverse = K(1.0) / (v_times(c.p, c) + p);
  return v_times(k * (K(1.0) + logit_clamp(g) * (p * inverse)) * (inverse * c.p), c);
#endif
}

static inline vr gate_beside_grad(vr k, logit t) {
#if AMBI_FUSED
  return m_gate(k, t);
#else
  const pow2 c = t.near_c; /* what is the same as above is computed once */
  const vr inverse = K(1.0) / (v_times(c.p, c) + (K(1.0) + expm1_poly(t.near_r)));
  return v_times(k * (inverse * c.p), c);
#endif
}

/* The same for t = p x + q x^3, g = x (p + 3 q x^2), which rounds more often. So 1 - s is taken from w, the smaller of
 * s and 1 - s: where s is, the error of d does not reach it. And x^2 gets a second part, as in m_logit_cubic. */
static inline vr m_gate_grad_cubic(vr k, vr x, double p, double q) {
  const logit t = m_logit_cubic(x, p, q);
  const vr c = v_times(t.c.p, t.c), m = expm1_poly(t.r), e = K(1.0) + m;
  const vr d = v_now(AMBI_FUSED ? K(1.0) + (c + m) : c + e);
  const vr v = cubic_clamp(x), w = v_ratio(v_min(e, c), d), u = v_select(v < K(0.0), v - v * w, v * w); /* x (1 - s) */
  return v_times(k * v_quotient(cubic_grad_sum(u, v, p, q), d) * t.c.p, t.c);
}

/* ---- logarithms ---- */

/* log x = log m + e ln2, m in [sqrt 1/2, sqrt 2]; log(1 + f) = f - f^2/2 + f^3 q(f), 2^-27.3. */
static inline vr m_log(vr x) {
  const v_mask tiny = x < K(1.17549435e-38); /* denormal: scaled up by 2^23 */
  const vi root_half = v_bits(K(0.70710678118654752));
  const vi b = v_bits(v_select(tiny, x * K(8388608.0), x)) - root_half;
  const vr e = v_real(b >> 23) - v_select(tiny, K(23.0), K(0.0));
  const vr f = v_from_bits((b & 0x7fffff) + root_half) - K(1.0);
  const vr q = K(0.333333316089392706) +
               f * (K(-0.250008196255308867) +
                    f * (K(0.200012311935911466) +
                         f * (K(-0.166234021735609179) +
                              f * (K(0.142017144852420239) +
                                   f * (K(-0.131597603673095197) +
                                        f * (K(0.127616376151863014) - f * K(0.0763555611802517708)))))));
  const vr y = e * K(0.693145751953125) + (f + (e * K(1.42860682030941723e-6) + f * f * (f * q - K(0.5))));
  const vr edge = v_select(x < K(0.0), K(NAN), v_select(x == K(0.0), K(-INFINITY), x));
  return v_select((x > K(0.0)) & (x < K(INFINITY)), y, edge);
}

/* log(1 + e), 0 <= e <= 1: 2 atanh(s/2), s = e / (1 + e/2), as s + s^3 q(s^2), 2^-27.7. */
static inline vr log1p_unit(vr e) {
  const vr s = e / (K(1.0) + K(0.5) * e), z = s * s;
  const vr q = K(0.083333020356693089) +
               z * (K(0.012506727263866939) + z * (K(0.0021876410389265104) + z * K(0.00054710910979057649)));
  return s + s * z * q;
}
static inline vr m_softplus(vr t) { return v_max(t, K(0.0)) + log1p_unit(m_exp(-v_abs(t))); }

/* log u + (what 1 + x lost) / u, u = 1 + x. */
static inline vr m_log1p(vr x) {
  const vr u = K(1.0) + x, lost = x - (u - K(1.0));
  const vr y = m_log(u) + lost / u;
  return v_select((x > K(-1.0)) & (x < K(INFINITY)), y, m_log(u));
}

/* ---- normal distribution, erf ---- */

/* exp(-h t^2) = (1 + m) c, c = 2^n, the result being m. The leading 12 bits of t have an exact square; what is left
 * goes to the remainder r. */
static inline vr gauss(vr t, vr h, pow2 *c) {
  const vr v = v_min(v_abs(t), K(18.0)), v_hi = v_from_bits(v_bits(v) & ~0xfff);
  const vr hi = v_min(h * v_hi * v_hi, K(174.0)), lo = h * (v - v_hi) * (v + v_hi);
  vr n;
  *c = v_pow2((hi + lo) * K(-1.4426950408889634), &n);
  const vr r = (-hi - n * K(0.693145751953125)) - (lo + n * K(1.42860682030941723e-6));
  return expm1_poly(r);
}

static inline vr m_mul_gauss(vr k, vr t, vr h) {
  pow2 c;
  const vr m = gauss(t, h, &c);
  return v_times((k + k * m) * c.p, c);
}

/* 1 / (Q(t) exp(t^2/2)) = 2 + t (sqrt(2 pi) - a / b), 0 <= t <= 14.6 (beyond, Q is 0): a of degree 3, b of 4, 2^-25.7.
 * So written, the errors of a and b hardly matter, neither where t is small nor where it is large. */
static inline vr tail_inverse(vr t) {
  const vr v = v_min(t, K(18.0));
  const vr a23 = K(0.15725798427131712) + v * K(0.019291823336318917);
  const vr b34 = K(0.09066448279985316) + v * K(0.0096471277388386901);
  const vr a = K(0.91085768418302893) + v * (K(0.55880068733130139) + v * a23);
  const vr b = K(1.0) + v * (K(0.91344804166136043) + v * (K(0.39410016959061542) + v * b34));
  return K(2.0) + v * (K(2.5066282746310005) - a / b);
}

static inline vr m_mul_tail(vr k, vr t) {
  pow2 c;
  const vr m = gauss(t, K(0.5), &c);
  return v_times((k + k * m) / tail_inverse(t) * c.p, c);
}

/* The difference first: near its root only the errors of its two terms are left. */
static inline vr m_mul_tail_grad(vr k, vr t) {
  pow2 c;
  const vr m = gauss(t, K(0.5), &c);
  const vr w = k * (K(1.0) / tail_inverse(t) - K(0.3989422804014327) * v_min(t, K(18.0)));
  return v_times((w + w * m) * c.p, c);
}

/* |x| < 1: x q(x^2), 2^-29.6; beyond: 1 - 2 Q(x sqrt 2). */
static inline vr m_erf(vr x) {
  const vr t = v_abs(x), z = v_min(x * x, K(1.0));
  const vr q = K(1.12837916572671196) +
               z * (K(-0.376126258242276527) +
                    z * (K(0.112835851485700096) +
                         z * (K(-0.0268538119343735121) +
                              z * (K(0.00518832768547551674) +
                                   z * (K(-0.000801019363379865409) + z * K(0.0000785386141105408078))))));
  const vr far = K(1.0) - m_mul_tail(K(2.0), t * K(1.4142135623730950488));
  return v_select(t < K(1.0), x * q, m_copysign(far, x));
}

/* ---- sine, cosine ---- */

#ifdef AMBI_TEXT
static inline vr m_sin(vr x) { return sinf(x); } /* right to 2 ulp */
static inline vr m_cos(vr x) { return cosf(x); }
#else
/* r = x - n pi/2, |r| <= pi/4, in double: pi/2 is a 33-bit head, whose multiples are exact, and a tail. |n| < 2^20. */
static inline vr quadrant(vr x, vr *n) {
  *n = v_rint(x * K(0.63661977236758134));
  const vd m = __builtin_convertvector(*n, vd);
  const vd r = (__builtin_convertvector(x, vd) - m * 1.5707963267341256) - m * 6.0771005065061922e-11;
  return __builtin_convertvector(r, vr);
}

/* sin(x + shift pi/2): sin r, cos r, -sin r, -cos r as n + shift = 0, 1, 2, 3 mod 4.
 * sin r = r + r^3 s(r^2), 2^-27.9; cos r = 1 - r^2/2 + r^4 c(r^2), 2^-32.9. */
static inline vr sine(vr x, int shift) {
  vr n;
  const vr r = quadrant(x, &n), z = r * r;
  const vr s =
      r + r * z * (K(-0.166666538636234796) + z * (K(0.00833211304082797623) - z * K(0.000195087413376215578)));
  const vr c = K(1.0) + z * (K(-0.5) + z * (K(0.041666644367799678) +
                                            z * (K(-0.00138872514858694644) + z * K(0.0000244256816540518217))));
  const vi k = v_integer(n) + shift;
  const vr y = v_select((k & 1) == 1, c, s);
  return v_from_bits(v_bits(y) ^ ((k & 2) << 30));
}

/* Huge arguments (and infinities, NaN) go to libm in double, lane by lane. */
static inline vr sine_huge(vr x, vr y, vi huge, int shift) {
  for (int i = 0; i < VL; i++)
    if (huge[i]) y[i] = (float)(shift ? cos((double)x[i]) : sin((double)x[i]));
  return y;
}
static inline vr sine_any(vr x, int shift) {
  const vi huge = ~(v_abs(x) < K(1048576.0));
  const vr y = sine(v_select(huge, K(0.0), x), shift);
  return __builtin_expect(v_any(huge), 0) ? sine_huge(x, y, huge, shift) : y;
}
static inline vr m_sin(vr x) { return v_select(v_abs(x) < K(1e-4), x, sine_any(x, 0)); }
static inline vr m_cos(vr x) { return sine_any(x, 1); }
#endif

#endif /* AMBI_REAL == 32 */
#endif
