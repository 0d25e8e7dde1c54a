/* math_half_names.h -- the end of math_half.h, and as text of cuda/math_half.cu: what both compute by the same steps
 * from functions of their own, and the m_* that these stand for. */
static inline vr half_sigmoid(vr t) { return half_gate(K(1.0), half_logit(t)); }

static inline vr half_gate_grad_cubic(vr k, vr x, double p, double q) {
  return half_gate_grad(k, x * (K(p) + K(3.0 * q) * x * x), half_logit_cubic(x, p, q));
}

/* max(t, 0) + log(1 + e), e = e^-|t|: e q(e - 1/2), 2^-16.9. */
static inline vr half_softplus(vr t) {
  const vr e = half_exp(-v_abs(t)), u = e - K(0.5);
  const vr q = K(0.810936981434147167) +
               u * (K(-0.288539169439334918) +
                    u * (K(0.13213063305020714) + u * (K(-0.0672769993960355402) +
                                                       u * (K(0.0415494050905208327) - u * K(0.0238691524369664608)))));
  return v_max(t, K(0.0)) + e * q;
}

static inline vr half_mul_tail_grad(vr k, vr t) {
  return half_mul_tail(k, t) - half_mul_gauss(K(0.3989422804014327) * k * t, t, K(0.5));
}

#define m_exp             half_exp
#define m_mul_exp         half_mul_exp
#define m_logit           half_logit
#define m_logit_cubic     half_logit_cubic
#define m_gate            half_gate
#define m_gate_grad       half_gate_grad
#define m_gate_grad_cubic half_gate_grad_cubic
#define m_sigmoid         half_sigmoid
#define m_softplus        half_softplus
#define m_tanh            half_tanh
#define m_mul_gauss       half_mul_gauss
#define m_mul_tail        half_mul_tail
#define m_mul_tail_grad   half_mul_tail_grad
