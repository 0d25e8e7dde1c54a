/* math_f64.cu -- the functions of cpu/math.h in double, by the GPU's libm; formulas as in cpu/math_f64.h. */
inline vr m_min(vr v, vr limit) { return v_min(v, limit); }
inline vr m_max(vr v, vr limit) { return v_max(v, limit); }
inline vr m_clamp(vr v, vr low, vr high) { return v_min(v_max(v, low), high); }
inline vr m_abs(vr v) { return fabs(v); }
inline vr m_sqrt(vr v) { return sqrt(v); }
inline vr m_exp(vr x) { return exp(x); }
inline vr m_exp2(vr x) { return exp2(x); }
inline vr m_expm1(vr x) { return expm1(x); }
inline vr m_log(vr x) { return log(x); }
inline vr m_log1p(vr x) { return log1p(x); }
inline vr m_tanh(vr x) { return tanh(x); }
inline vr m_erf(vr x) { return erf(x); }
inline vr m_sin(vr x) { return sin(x); }
inline vr m_cos(vr x) { return cos(x); }

/* k e^(hi + lo); in two halves where e^hi alone would leave the range of doubles. */
inline double mul_exp(double k, double hi, double lo) {
  if (hi < -1500.0) hi = -1500.0; /* keeps k e^-inf finite for the clamped k of the formulas */
  if (fabs(hi) < 700.0) return k * exp(hi) * (1.0 + lo);
  return k * exp(0.5 * hi) * exp(0.5 * hi) * (1.0 + lo);
}
inline vr m_mul_exp(vr k, vr x) { return mul_exp(k, x, 0.0); }

inline vr m_mul_gauss(vr k, vr t, vr h) {
  if (fabs(t) > 100.0) return k * 0.0;
  const double t2 = t * t;
  return mul_exp(k, -h * t2, -h * fma(t, t, -t2));
}

/* erfc(z + lost) / 2, z = t / sqrt 2 rounded, by erfc' = -2/sqrt(pi) exp(-z^2). */
inline vr m_mul_tail(vr k, vr t) {
  const double c = 0.70710678118654752440, c_lo = -4.8336466567264567e-17;
  const double z = t * c, lost = t < 100.0 ? fma(t, c, -z) + t * c_lo : 0.0;
  return k * (0.5 * erfc(z)) - m_mul_gauss(0.56418958354775628695 * k * lost, z, 1.0);
}

inline vr m_softplus(vr t) { return t > 0.0 ? t + log1p(exp(-t)) : log1p(exp(t)); }

/* t = hi + lo: the argument of an exponential, with the digits below hi's last. */
struct logit {
  vr hi, lo;
};
inline logit m_logit(vr t) { return {t, 0.0}; }

inline logit m_logit_cubic(vr x, double p, double q) {
  if (!(fabs(x) < 100.0)) return {x * (p + q * x * x), 0.0};
  const double x2 = x * x, w = fma(q, x2, p), qx2 = w - p, hi = x * w;
  const double w_lo = (p - (w - qx2)) + fma(q, x2, -qx2) + q * fma(x, x, -x2); /* what w lost */
  return {hi, fma(x, w, -hi) + x * w_lo};
}

inline vr m_gate(vr k, logit t) {
  if (t.hi < -30.0) return mul_exp(k, t.hi, t.lo) / (1.0 + exp(t.hi));
  return k / (1.0 + mul_exp(1.0, -t.hi, -t.lo));
}
inline vr m_sigmoid(vr t) { return m_gate(1.0, m_logit(t)); }

/* k s (1 + g (1 - s)), s = sigmoid(t), 1 - s = sigmoid(-t); beyond t = 100 it is k. */
inline vr m_gate_grad(vr k, vr g, logit t) {
  if (t.hi > 100.0) return k;
  const double other = m_gate(1.0, logit{-t.hi, -t.lo});
  return m_gate(k * (1.0 + v_max(g, -1e30) * other), t);
}
inline vr m_gate_grad_cubic(vr k, vr x, double p, double q) {
  return m_gate_grad(k, x * (p + 3.0 * q * x * x), m_logit_cubic(x, p, q));
}
inline vr m_mul_tail_grad(vr k, vr t) { return m_mul_tail(k, t) - m_mul_gauss(0.3989422804014327 * k * t, t, 0.5); }
