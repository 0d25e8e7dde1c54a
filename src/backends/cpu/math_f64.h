/* math_f64.h -- the f64 side of math.h: libm lane by lane. Included by math.h only. */

#define LANE for (int i = 0; i < VL; i++)
#define M_LIBM(name, function)  \
  static inline vr name(vr x) { \
    LANE x[i] = function(x[i]); \
    return x;                   \
  }
M_LIBM(m_exp, exp)
M_LIBM(m_expm1, expm1)
M_LIBM(m_log, log)
M_LIBM(m_log1p, log1p)
M_LIBM(m_tanh, tanh)
M_LIBM(m_erf, erf)
M_LIBM(m_sin, sin)
M_LIBM(m_cos, cos)

/* 2^x = 2^f 2^n, 2^f = 1 + f q(f), |f| <= 1/2, degree 11, 2^-55.6. Above 1.5 2^52 doubles are integers: n is in the low
 * bits of the sum. 2^n in two steps, as 2^n itself may not exist. */
static inline vr m_exp2(vr x) {
  const vr t = m_clamp(x, K(-1100.0), K(1100.0)), shift = K(6755399441055744.0), shifted = t + shift;
  const vr f = t - (shifted - shift);
  const vr high =
      K(1.52527273853738204e-05) +
      f * (K(1.32154426769871825e-06) +
           f * (K(1.01806476193814782e-07) + f * (K(7.07257009496545468e-09) + f * K(4.07807352163778331e-10))));
  const vr q = K(0.69314718055994573) +
               f * (K(0.240226506959100972) +
                    f * (K(0.0555041086647903928) +
                         f * (K(0.00961812910760700447) +
                              f * (K(0.00133335581534396752) + f * (K(0.000154035304415693674) + f * high)))));
  const vi n = v_bits(shifted) - v_bits(shift), half = n >> 1;
  return (K(1.0) + f * q) * (vr)((half + 1023) << 52) * (vr)((n - half + 1023) << 52);
}

/* k e^(hi + lo); in two halves where e^hi alone would leave the range of doubles. */
static inline double mul_exp(double k, double hi, double lo) {
  if (hi < -1500.0) hi = -1500.0; /* keeps k e^-inf finite for the clamped k of the formulas */
  if (fabs(hi) < 700.0) return k * exp(hi) * (1.0 + lo);
  return k * exp(0.5 * hi) * exp(0.5 * hi) * (1.0 + lo);
}
static inline vr m_mul_exp(vr k, vr x) {
  LANE k[i] = mul_exp(k[i], x[i], 0.0);
  return k;
}

static inline double mul_gauss(double k, double t, double h) {
  if (fabs(t) > 100.0) return k * 0.0;
  const double t2 = t * t;
  return mul_exp(k, -h * t2, -h * fma(t, t, -t2));
}
static inline vr m_mul_gauss(vr k, vr t, vr h) {
  LANE k[i] = mul_gauss(k[i], t[i], h[i]);
  return k;
}

/* erfc(z + lost) / 2, z = t / sqrt 2 rounded, by erfc' = -2/sqrt(pi) exp(-z^2). */
static inline vr m_mul_tail(vr k, vr t) {
  const double c = 0.70710678118654752440, c_lo = -4.8336466567264567e-17;
  LANE {
    const double z = t[i] * c, lost = t[i] < 100.0 ? fma(t[i], c, -z) + t[i] * c_lo : 0.0;
    k[i] = k[i] * (0.5 * erfc(z)) - mul_gauss(0.56418958354775628695 * k[i] * lost, z, 1.0);
  }
  return k;
}

static inline vr m_softplus(vr t) {
  LANE t[i] = t[i] > 0.0 ? t[i] + log1p(exp(-t[i])) : log1p(exp(t[i]));
  return t;
}

/* t = hi + lo: the argument of an exponential, with the digits below hi's last. */
typedef struct {
  vr hi, lo;
} logit;

static inline logit m_logit(vr t) { return (logit){t, K(0.0)}; }

static inline logit m_logit_cubic(vr x, double p, double q) {
  logit t = {x * (p + q * x * x), K(0.0)};
  LANE if (fabs(x[i]) < 100.0) {
    const double x2 = x[i] * x[i], w = fma(q, x2, p), qx2 = w - p;
    const double w_lo = (p - (w - qx2)) + fma(q, x2, -qx2) + q * fma(x[i], x[i], -x2); /* what w lost */
    t.hi[i] = x[i] * w;
    t.lo[i] = fma(x[i], w, -t.hi[i]) + x[i] * w_lo;
  }
  return t;
}

static inline double gate(double k, double t, double lo) {
  if (t < -30.0) return mul_exp(k, t, lo) / (1.0 + exp(t));
  return k / (1.0 + mul_exp(1.0, -t, -lo));
}
static inline vr m_gate(vr k, logit t) {
  vr y = k;
  LANE y[i] = gate(k[i], t.hi[i], t.lo[i]);
  return y;
}
static inline vr m_sigmoid(vr t) { return m_gate(K(1.0), m_logit(t)); }

/* k s (1 + g (1 - s)), s = sigmoid(t), 1 - s = sigmoid(-t); beyond t = 100 it is k. */
static inline vr m_gate_grad(vr k, vr g, logit t) {
  LANE if (!(t.hi[i] > 100.0)) {
    const double other = gate(1.0, -t.hi[i], -t.lo[i]);
    k[i] = gate(k[i] * (1.0 + fmax(g[i], -1e30) * other), t.hi[i], t.lo[i]);
  }
  return k;
}
static inline vr m_gate_grad_cubic(vr k, vr x, double p, double q) {
  const logit g = m_logit_cubic(x, p, 3.0 * q); /* x t', rounded once */
  return m_gate_grad(k, g.hi + g.lo, m_logit_cubic(x, p, q));
}
static inline vr m_mul_tail_grad(vr k, vr t) {
  return m_mul_tail(k, t) - m_mul_gauss(K(0.3989422804014327) * k * t, t, K(0.5));
}
#undef LANE
#undef M_LIBM
