/* math_half.cu -- functions of cpu/math.h again, for results that are stored as f16 or bf16: by the GPU's own 2^x and
 * 1/x, which are right to about 2^-22. Range, infinities and NaN as in math.h. cpu/math_half_names.h follows.
 *
 * u = 2^(y/2) neither overflows nor underflows where 2^y would, so k e^t = (k u) u and sigmoid(t) = u^2 / (1 + u^2).  */

inline vr half_mul_exp(vr k, vr t) {
  const vr u = half_pow2(m_clamp(t * K(0.72134752044448170), K(-126.0), K(127.0)));
  return (k * u) * u;
}
inline vr half_exp(vr t) { return half_mul_exp(K(1.0), t); }

/* ---- sigmoid: a logit is t log2(e) / 2, kept where u^2 is finite ---- */
inline vr half_logit(vr t) { return m_clamp(t * K(0.72134752044448170), K(-126.0), K(30.0)); }
inline vr half_logit_cubic(vr x, double p, double q) {
  const vr v = m_clamp(x, K(-14.0), K(7.0));
  return v * (K(0.72134752044448170 * p) + K(0.72134752044448170 * q) * v * v);
}
inline vr half_gate(vr k, vr y) {
  const vr u = half_pow2(y);
  return (k * (u * half_rcp(K(1.0) + u * u))) * u; /* u / (1 + u^2) first: k u may overflow */
}

/* k s (1 + g (1 - s)), 1 - s = 1 / (1 + u^2) */
inline vr half_gate_grad(vr k, vr g, vr y) {
  const vr u = half_pow2(y), d = half_rcp(K(1.0) + u * u);
  return (k * (u * d)) * u * (K(1.0) + m_clamp(g, K(-1e30), K(150.0)) * d);
}

/* x a(x^2) / b(x^2), |x| <= 5, where 1 - tanh is below 2^-13: degrees 2 and 2, 2^-14.2. */
inline vr half_tanh(vr x) {
  const vr v = m_clamp(x, K(-5.0), K(5.0)), z = v * v;
  const vr a = K(0.99994838392) + z * (K(0.102419485615) + z * K(0.000670605989024));
  const vr b = K(1.0) + z * (K(0.435434870621) + z * K(0.0128203555847));
  return v * a * half_rcp(b);
}

inline vr half_mul_gauss(vr k, vr t, vr h) {
  const vr v = v_min(v_abs(t), K(18.0));
  return half_mul_exp(k, v * v * -h);
}

/* Q(t) exp(t^2/2) = b / (2 + t (sqrt(2 pi) b + a)): a of degree 1, b of 3, 2^-18.4. */
inline vr half_mul_tail(vr k, vr t) {
  const vr v = v_min(t, K(18.0));
  const vr b = K(1.0) + v * (K(0.808723812335) + v * (K(0.290668009286) + v * K(0.0471254930453)));
  const vr a = K(0.706435421377) + v * K(0.119048798306);
  return half_mul_gauss(k * (b * half_rcp(K(2.0) + v * (K(2.5066282746310005) * b + a))), v, K(0.5));
}
