/* math.h -- the prelude of elementwise.def for the references: plain f64, by the C library. */
#ifndef AMBI_REF_MATH_H
#define AMBI_REF_MATH_H
#include <math.h>

#define let                 const double
#define K(c)                ((double)(c))
#define pick(no, yes, cond) ((cond) ? (yes) : (no))
#define F(...)              __VA_ARGS__
#define B(...)              __VA_ARGS__

static inline double m_min(double v, double limit) { return limit < v ? limit : v; }
static inline double m_max(double v, double limit) { return limit > v ? limit : v; }
static inline double m_abs(double v) { return fabs(v); }
static inline double m_sqrt(double v) { return sqrt(v); }
static inline double m_exp(double v) { return exp(v); }
static inline double m_expm1(double v) { return expm1(v); }
static inline double m_log(double v) { return log(v); }
static inline double m_sin(double v) { return sin(v); }
static inline double m_cos(double v) { return cos(v); }
static inline double m_tanh(double v) { return tanh(v); }
static inline double m_erf(double v) { return erf(v); }
static inline double m_sigmoid(double t) { return t < 0 ? exp(t) / (1 + exp(t)) : 1 / (1 + exp(-t)); }
static inline double m_softplus(double t) { return t > 0 ? t + log1p(exp(-t)) : log1p(exp(t)); }
static inline double m_mul_exp(double k, double t) { return k * exp(t); }
static inline double m_mul_gauss(double k, double t, double h) { return k * exp(-h * t * t); }
static inline double m_mul_tail(double k, double t) { return k * erfc(t * 0.70710678118654752440) / 2; }
static inline double m_logit(double t) { return t; }
static inline double m_logit_cubic(double x, double p, double q) { return p * x + q * x * x * x; }
static inline double m_gate(double k, double t) { return k * m_sigmoid(t); }

/* k s (1 + g (1 - s)); where s or 1 - s vanishes it does so faster than g grows */
static inline double m_gate_grad(double k, double g, double t) {
  double s = m_sigmoid(t), rest = m_sigmoid(-t);
  if (s == 0 || rest == 0) return k * s;
  return k * s * (1 + g * rest);
}
static inline double m_gate_grad_cubic(double k, double x, double p, double q) {
  return m_gate_grad(k, x * (p + 3 * q * x * x), m_logit_cubic(x, p, q));
}
static inline double m_mul_tail_grad(double k, double t) {
  return m_mul_tail(k, t) - m_mul_gauss(0.3989422804014327 * k * t, t, 0.5);
}

#endif
