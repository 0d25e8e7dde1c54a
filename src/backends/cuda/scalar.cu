/* scalar.cu -- cpu/simd.h for one lane: what cpu/math.h is written with, so that its text also serves a GPU. */
typedef real vr;
#define K(c)                ((real)(c)) /* a constant of the formula, in the precision of the kernel */
#define let                 const auto
#define pick(no, yes, cond) ((cond) ? (yes) : (no))

inline vr v_select(bool cond, vr yes, vr no) { return cond ? yes : no; }
inline vr v_min(vr a, vr limit) { return limit < a ? limit : a; } /* NaN comes through */
inline vr v_max(vr a, vr limit) { return limit > a ? limit : a; }
inline vr v_abs(vr v) { return fabs(v); }
inline vr v_sqrt(vr v) { return sqrt(v); }
inline vr v_now(vr v) { return v; } /* WebAssembly's */
#if !COMPUTE_F64
typedef int vi;
typedef bool v_mask;
inline vi v_bits(vr v) { return __float_as_int(v); }
inline vr v_from_bits(vi v) { return __int_as_float(v); }
inline vr v_real(vi v) { return (vr)v; }
inline vr v_fma(vr a, vr b, vr c) { return fmaf(a, b, c); }
/* Beside 1.5 2^23 a float has no room for fractions, and a whole number stands in its last bits: cheaper than converting. */
inline vr v_rint(vr v) { return (v + 12582912.0f) - 12582912.0f; } /* |v| < 2^22 */
struct pow2 {
  vr p, q;
}; /* c = 2^n = p q, |n| <= 252: 2^n itself may not exist */
inline pow2 v_pow2(vr v, vr *n) { /* n: the nearest whole number to v */
  const vr sum = v + 12583166.0f; /* 1.5 2^23 + 254 */
  const int both = __float_as_int(sum), half = both >> 1;
  *n = sum - 12583166.0f;
  return {__int_as_float(half << 23), __int_as_float((both - half) << 23)};
}
inline vr v_times(vr v, pow2 c) { return v * c.q; }
inline vr v_ratio(vr a, vr b) { return __fdividef(a, b); } /* 2 ulp, 2^-126 <= |b| <= 2^126 */
inline vr v_quotient(vr a, vr b) { /* 0.5 ulp and a little */
  const vr y = __fdividef(K(1.0), b), q = a * y;
  return fmaf(y, fmaf(-b, q, a), q);
}

/* The GPU's own 2^y and 1/x, right to about 2^-22. */
#ifdef AMBI_EMULATED
inline float half_pow2(float y) { return exp2f(y); }
inline float half_rcp(float x) { return 1.0f / x; }
#else
inline float half_pow2(float y) { /* 0 where the result is denormal, infinite from y = 128 on */
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  return r;
}
inline float half_rcp(float x) { /* of a normal x; 0 where 1/x is denormal */
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif
#endif
