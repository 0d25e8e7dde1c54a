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
#if !COMPUTE_F64
typedef int vi;
typedef bool v_mask;
inline vi v_bits(vr v) { return __float_as_int(v); }
inline vr v_from_bits(vi v) { return __int_as_float(v); }
inline vr v_real(vi v) { return (vr)v; }
inline vr v_rint(vr v) { return rintf(v); }
inline vr v_fma(vr a, vr b, vr c) { return fmaf(a, b, c); }
inline vr v_pow2(vr n) { return __int_as_float(max((int)n + 127, 0) << 23); } /* 0 where it is denormal */
/* v 2^n, |n| <= 252, rounded once: n in two halves, as 2^n itself may not exist. */
inline vr v_scale2(vr v, vr n) {
  int whole = (int)n, half = whole >> 1;
  return v * __int_as_float((half + 127) << 23) * __int_as_float((whole - half + 127) << 23);
}
inline vr v_ratio(vr a, vr b) { return a / b; }
#endif
