/* emulate_math.h -- the device's mathematical functions, in f32 and f64, from the host's. Included by emulate.h. */

/* ---- those the host has under the same name: f(double), f with an f (float) and the overload f(float) ---- */
#define EMU_MATH1(name)                     \
  extern "C" double name(double) noexcept;  \
  extern "C" float name##f(float) noexcept; \
  static inline float name(float x) { return __builtin_##name##f(x); }
#define EMU_MATH2(name)                            \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept; \
  static inline float name(float x, float y) { return __builtin_##name##f(x, y); }
/* clang-format off */
EMU_MATH1(exp) EMU_MATH1(exp2) EMU_MATH1(expm1) EMU_MATH1(log) EMU_MATH1(log2) EMU_MATH1(log10)
EMU_MATH1(log1p) EMU_MATH1(sin) EMU_MATH1(cos) EMU_MATH1(tan) EMU_MATH1(asin) EMU_MATH1(acos)
EMU_MATH1(atan) EMU_MATH1(sinh) EMU_MATH1(cosh) EMU_MATH1(tanh) EMU_MATH1(asinh) EMU_MATH1(acosh)
EMU_MATH1(atanh) EMU_MATH1(sqrt) EMU_MATH1(cbrt) EMU_MATH1(fabs) EMU_MATH1(floor) EMU_MATH1(ceil)
EMU_MATH1(trunc) EMU_MATH1(rint) EMU_MATH1(round) EMU_MATH1(nearbyint) EMU_MATH1(erf) EMU_MATH1(erfc)
EMU_MATH1(lgamma) EMU_MATH1(tgamma)
EMU_MATH2(pow) EMU_MATH2(fmod) EMU_MATH2(atan2) EMU_MATH2(hypot) EMU_MATH2(fmin)
EMU_MATH2(fmax) EMU_MATH2(copysign) EMU_MATH2(fdim) EMU_MATH2(nextafter) EMU_MATH2(remainder)
    /* clang-format on */
    extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" double scalbn(double, int) noexcept;
extern "C" float scalbnf(float, int) noexcept;
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }

template <class T>
static inline bool isnan(T x) {
  return __builtin_isnan(x);
}
template <class T>
static inline bool isinf(T x) {
  return __builtin_isinf(x);
}
template <class T>
static inline bool isfinite(T x) {
  return __builtin_isfinite(x);
}
template <class T>
static inline bool signbit(T x) {
  return __builtin_signbit(x);
}

/* ---- smaller, larger, absolute ---- */
/* As on the device: mixed signs become unsigned, and of a number and a NaN the number is taken. */
#define EMU_ORDER(T)                                      \
  static inline T min(T a, T b) { return a < b ? a : b; } \
  static inline T max(T a, T b) { return a > b ? a : b; }
/* clang-format off */
EMU_ORDER(int) EMU_ORDER(unsigned) EMU_ORDER(long)
EMU_ORDER(unsigned long) EMU_ORDER(long long) EMU_ORDER(unsigned long long)
    /* clang-format on */
    static inline unsigned min(int a, unsigned b) {
  return min((unsigned)a, b);
}
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline float min(float a, float b) { return __builtin_fminf(a, b); }
static inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
static inline double min(double a, double b) { return __builtin_fmin(a, b); }
static inline double max(double a, double b) { return __builtin_fmax(a, b); }
static inline double min(float a, double b) { return __builtin_fmin(a, b); }
static inline double min(double a, float b) { return __builtin_fmin(a, b); }
static inline double max(float a, double b) { return __builtin_fmax(a, b); }
static inline double max(double a, float b) { return __builtin_fmax(a, b); }
extern "C" int abs(int) noexcept;
static inline long abs(long x) { return x < 0 ? -x : x; }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
static inline long long llabs(long long x) { return x < 0 ? -x : x; }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

/* ---- those only the device has; in f32 computed in f64, so that they round once ---- */
static inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
static inline float rsqrtf(float x) { return (float)(1 / __builtin_sqrt((double)x)); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double exp10(double x) { return __builtin_pow(10.0, x); }
static inline float exp10f(float x) { return (float)__builtin_pow(10.0, (double)x); }
static inline double sinpi(double x) { return __builtin_sin(3.14159265358979323846 * __builtin_fmod(x, 2.0)); }
static inline double cospi(double x) { return __builtin_cos(3.14159265358979323846 * __builtin_fmod(x, 2.0)); }
static inline float sinpif(float x) { return (float)sinpi((double)x); }
static inline float cospif(float x) { return (float)cospi((double)x); }
static inline void sincos(double x, double *s, double *c) { *s = __builtin_sin(x), *c = __builtin_cos(x); }
static inline void sincosf(float x, float *s, float *c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
static inline void sincos(float x, float *s, float *c) { sincosf(x, s, c); }
static inline void sincospi(double x, double *s, double *c) { *s = sinpi(x), *c = cospi(x); }
static inline void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }
static inline double normcdf(double x) {
  return (double)(0.5L * __builtin_erfcl(-(long double)x * 0.70710678118654752440L));
}
static inline float normcdff(float x) { return (float)normcdf((double)x); }
/* e^(x^2) erfc(x): beyond 20 from its expansion 1 / (x sqrt(pi)) (1 - 1/2x^2 + 3/4x^4 - 15/8x^6 + 105/16x^8). */
static inline double erfcx(double x) {
  if (!(x > 20)) return (double)(__builtin_expl((long double)x * x) * __builtin_erfcl(x));
  const double u = 1 / (2 * x * x);
  return 0.56418958354775628695 / x * (1 - u * (1 - 3 * u * (1 - 5 * u * (1 - 7 * u))));
}
static inline float erfcxf(float x) { return (float)erfcx((double)x); }

/* ---- intrinsics ---- */
static inline float __expf(float x) { return __builtin_expf(x); }
static inline float __exp10f(float x) { return exp10f(x); }
static inline float __logf(float x) { return __builtin_logf(x); }
static inline float __log2f(float x) { return __builtin_log2f(x); }
static inline float __log10f(float x) { return __builtin_log10f(x); }
static inline float __powf(float x, float y) { return __builtin_powf(x, y); }
static inline float __sinf(float x) { return __builtin_sinf(x); }
static inline float __cosf(float x) { return __builtin_cosf(x); }
static inline float __tanf(float x) { return __builtin_tanf(x); }
static inline float __tanhf(float x) { return __builtin_tanhf(x); }
static inline void __sincosf(float x, float *s, float *c) { sincosf(x, s, c); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline double __drcp_rn(double x) { return 1 / x; }
static inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

/* Never contracted into a fused operation: the result passes where the compiler cannot look. */
template <class T>
static inline T emu_apart(T x) {
  __asm__("" : "+m"(x));
  return x;
}
static inline float __fadd_rn(float a, float b) { return emu_apart(a + b); }
static inline float __fsub_rn(float a, float b) { return emu_apart(a - b); }
static inline float __fmul_rn(float a, float b) { return emu_apart(a * b); }
static inline double __dadd_rn(double a, double b) { return emu_apart(a + b); }
static inline double __dsub_rn(double a, double b) { return emu_apart(a - b); }
static inline double __dmul_rn(double a, double b) { return emu_apart(a * b); }

/* Conversions: to integers they saturate, and a NaN becomes 0, where C leaves it open. */
template <class I, class F>
static inline I emu_to(F x, F low, F beyond, I most) {
  return __builtin_isnan(x) ? 0 : x < low ? (I)low : x >= beyond ? most : (I)x;
}
static inline int emu_int(double x) { return emu_to<int, double>(x, -2147483648.0, 2147483648.0, 0x7fffffff); }
static inline long long emu_ll(double x) {
  return emu_to<long long, double>(x, -9223372036854775808.0, 9223372036854775808.0, 0x7fffffffffffffffLL);
}
static inline unsigned emu_uint(double x) { return emu_to<unsigned, double>(x, 0.0, 4294967296.0, 0xffffffffu); }
static inline int __float2int_rn(float x) { return emu_int(__builtin_rint((double)x)); }
static inline int __float2int_rz(float x) { return emu_int(__builtin_trunc((double)x)); }
static inline int __float2int_rd(float x) { return emu_int(__builtin_floor((double)x)); }
static inline int __float2int_ru(float x) { return emu_int(__builtin_ceil((double)x)); }
static inline unsigned __float2uint_rn(float x) { return emu_uint(__builtin_rint((double)x)); }
static inline unsigned __float2uint_rz(float x) { return emu_uint(__builtin_trunc((double)x)); }
static inline long long __float2ll_rn(float x) { return emu_ll(__builtin_rint((double)x)); }
static inline long long __float2ll_rz(float x) { return emu_ll(__builtin_trunc((double)x)); }
static inline int __double2int_rn(double x) { return emu_int(__builtin_rint(x)); }
static inline int __double2int_rz(double x) { return emu_int(__builtin_trunc(x)); }
static inline long long __double2ll_rn(double x) { return emu_ll(__builtin_rint(x)); }
static inline long long __double2ll_rz(double x) { return emu_ll(__builtin_trunc(x)); }
static inline float __double2float_rn(double x) { return (float)x; }
static inline float __double2float_rz(double x) {
  const float y = (float)x;
  return __builtin_fabs((double)y) > __builtin_fabs(x) ? __uint_as_float(__float_as_uint(y) - 1) : y; /* one nearer 0 */
}
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return (double)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }

/* ---- f16 and bf16, for kernels that use PTX to convert: to nearest even, NaN is kept ---- */
static inline float emu_f16_to_f32(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = (float)fraction * 0x1p-24f;
  return sign ? -tiny : tiny;
}

/* Below f16's least normal, adding 1/2 leaves the sum's last bit where f16's is: the processor rounds. */
static inline unsigned short emu_f32_to_f16(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u); /* 65520 and more */
  if (size < 0x38800000u) return (unsigned short)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u));
  return (unsigned short)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13));
}
static inline unsigned short emu_f32_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
