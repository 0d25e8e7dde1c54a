/* selective_scan, the reference: the formulas of op.c, one channel of one batch at a time, every state kept. */
#include <math.h>
#include <string.h>

#include "backends/ref/state.h"
#include "ops/selective_scan/op.h"

enum { U = AMBI_SCAN_U, DELTA = AMBI_SCAN_DELTA, A = AMBI_SCAN_A, B = AMBI_SCAN_B, C = AMBI_SCAN_C, D = AMBI_SCAN_D };
enum { Z = AMBI_SCAN_Z, DELTA_BIAS = AMBI_SCAN_DELTA_BIAS, H0 = AMBI_SCAN_H0, SEQ_IDX = AMBI_SCAN_SEQ_IDX };
enum { Y = AMBI_SCAN_Y, H_LAST = AMBI_SCAN_H_LAST, CHUNK_STATE = AMBI_SCAN_CHUNK_STATE };
#define GRAD AMBI_GRAD

/* Element of B or C, or of their gradients, that channel d uses */
static at_index group_at(const ref_call *c, int slot, int64_t b, int64_t d, int64_t n, int64_t t) {
  const ambi_tensor *of = &c->p->t[slot];
  if (of->ndim == 2) return AT(d, n);
  return of->ndim == 3 ? AT(b, n, t) : AT(b, d / (scan(c->p)->channels / of->shape[1]), n, t);
}

static double a_at(const ref_call *c, int64_t d, int64_t n) {
  double a = ref_read(c, A, AT(d, n));
  return c->p->op.u.selective_scan.a_log ? -exp(a) : a;
}

static double raw_delta(const ref_call *c, int64_t b, int64_t d, int64_t t) {
  return ref_read(c, DELTA, AT(b, d, t)) + ref_read(c, DELTA_BIAS, AT(d));
}

/* d of the formula, the step size; here d is a channel */
static double delta_at(const ref_call *c, int64_t b, int64_t d, int64_t t) {
  double delta = raw_delta(c, b, d, t);
  return c->p->op.u.selective_scan.softplus ? m_softplus(delta) : delta;
}

/* phi(x) = expm1(x)/x, and phi'(x) = (e^x - phi)/x = sum of (k+1)/(k+2)! x^k, for |x| < 1 by that series */
static double phi(double x) { return x == 0 ? 1 : expm1(x) / x; }

static double phi_slope(double x) {
  if (fabs(x) >= 1) return (exp(x) - phi(x)) / x;
  double sum = 0, power_over_factorial = 0.5; /* x^k / (k+2)! */
  for (int k = 0; k < 20; k++) {
    sum += (k + 1) * power_over_factorial;
    power_over_factorial *= x / (k + 3);
  }
  return sum;
}

/* bbar / B */
static double gain(const ref_call *c, double d, double a) { return c->p->op.u.selective_scan.zoh ? d * phi(d * a) : d; }

/* ---- the states of channel d of batch b: before[t][n] enters step t, after[t][n] leaves it ---- */
typedef struct {
  double *before, *after;                                /* (L, N)                                     */
  double *du, *ddelta, *dz;                              /* (L)                                        */
  double *dh;                                            /* (N)                                        */
  double *grad_A, *grad_D, *grad_bias, *grad_B, *grad_C; /* (D, N), (D), (D), as B, as C: whole sums   */
} work;

static void states(const ref_call *c, const work *w, int64_t b, int64_t d) {
  const scan_recipe *r = scan(c->p);
  for (int64_t t = 0; t < r->length; t++) {
    double delta = delta_at(c, b, d, t), u = ref_read(c, U, AT(b, d, t));
    for (int64_t n = 0; n < r->states; n++) {
      double h = t ? w->after[(t - 1) * r->states + n] : ref_read(c, H0, AT(b, d, n)), a = a_at(c, d, n);
      if (t % SCAN_CHUNK == 0 && reads_slot(c->p, CHUNK_STATE))
        h = ref_get(c, CHUNK_STATE, AT(b, t / SCAN_CHUNK, d, n));
      if (t % SCAN_CHUNK == 0) ref_set(c, CHUNK_STATE, AT(b, t / SCAN_CHUNK, d, n), h);
      if (ref_resets(c, SEQ_IDX, b, t)) h = 0;
      w->before[t * r->states + n] = h;
      w->after[t * r->states + n] =
          exp(delta * a) * h + gain(c, delta, a) * ref_read(c, B, group_at(c, B, b, d, n, t)) * u;
    }
  }
}

/* p_t: the output before the gate */
static double output(const ref_call *c, const work *w, int64_t b, int64_t d, int64_t t) {
  const scan_recipe *r = scan(c->p);
  double p = ref_read(c, D, AT(d)) * ref_read(c, U, AT(b, d, t));
  for (int64_t n = 0; n < r->states; n++) p += ref_read(c, C, group_at(c, C, b, d, n, t)) * w->after[t * r->states + n];
  return p;
}

/* How many doubles the arrays take, and where they lie from `m` on (NULL: nowhere yet) */
static uint64_t lay_out(const problem *p, work *w, double *m) {
  const scan_recipe *r = scan(p);
  uint64_t row = (uint64_t)(r->length * r->states), all = (uint64_t)(r->channels * r->states);
  bool back = is_backward(p);
  const ref_part parts[] = {{&w->before, row},
                            {&w->after, row},
                            {&w->du, back ? (uint64_t)r->length : 0},
                            {&w->ddelta, back ? (uint64_t)r->length : 0},
                            {&w->dz, back ? (uint64_t)r->length : 0},
                            {&w->dh, (uint64_t)r->states},
                            {&w->grad_A, back ? all : 0},
                            {&w->grad_D, back ? (uint64_t)r->channels : 0},
                            {&w->grad_bias, back ? (uint64_t)r->channels : 0},
                            {&w->grad_B, back ? (uint64_t)ambi_numel(&p->t[B]) : 0},
                            {&w->grad_C, back ? (uint64_t)ambi_numel(&p->t[C]) : 0}};
  return ref_lay_out(parts, sizeof parts / sizeof *parts, m);
}

static void forward(const ref_call *c) {
  const scan_recipe *r = scan(c->p);
  work w;
  lay_out(c->p, &w, c->scratch);
  for (int64_t b = 0; b < r->batches; b++)
    for (int64_t d = 0; d < r->channels; d++) {
      states(c, &w, b, d);
      for (int64_t n = 0; n < r->states; n++)
        ref_set(c, H_LAST, AT(b, d, n),
                r->length ? w.after[(r->length - 1) * r->states + n] : ref_read(c, H0, AT(b, d, n)));
      for (int64_t t = 0; t < r->length; t++) {
        double z = ref_read(c, Z, AT(b, d, t)), p = output(c, &w, b, d, t);
        ref_set(c, Y, AT(b, d, t), has_slot(c->p, Z) ? p * m_gate(m_max(z, -1e30), z) : p);
      }
    }
}

/* ---- backward ---- */
/* Where element i of a tensor like `slot` is in a dense array */
static int64_t dense(const ref_call *c, int slot, at_index i) {
  int64_t at = 0;
  for (int k = 0; k < c->p->t[slot].ndim; k++) at = at * c->p->t[slot].shape[k] + i.i[k];
  return at;
}

/* Step t: dh is that of h_t without its own output's part, and becomes that of h_{t-1} */
static void step_back(const ref_call *c, const work *w, int64_t b, int64_t d, int64_t t, double dp) {
  const scan_recipe *r = scan(c->p);
  double delta = delta_at(c, b, d, t), u = ref_read(c, U, AT(b, d, t)), du = ref_read(c, D, AT(d)) * dp, grad_step = 0;
  bool zoh = c->p->op.u.selective_scan.zoh;
  for (int64_t n = 0; n < r->states; n++) {
    at_index ib = group_at(c, B, b, d, n, t), ic = group_at(c, C, b, d, n, t);
    double a = a_at(c, d, n), abar = exp(delta * a), before = w->before[t * r->states + n], bn = ref_read(c, B, ib);
    double dh = w->dh[n] + ref_read(c, C, ic) * dp;
    w->grad_C[dense(c, C, ic)] += dp * w->after[t * r->states + n];
    w->grad_B[dense(c, B, ib)] += dh * gain(c, delta, a) * u;
    du += dh * gain(c, delta, a) * bn;
    grad_step += dh * (a * abar * before + (zoh ? abar : 1) * bn * u);
    w->grad_A[d * r->states + n] +=
        dh * (delta * abar * before + (zoh ? delta * delta * phi_slope(delta * a) * bn * u : 0));
    w->dh[n] = ref_resets(c, SEQ_IDX, b, t) ? 0 : abar * dh;
  }
  w->du[t] = du;
  w->ddelta[t] = c->p->op.u.selective_scan.softplus ? grad_step * m_sigmoid(raw_delta(c, b, d, t)) : grad_step;
  w->grad_bias[d] += w->ddelta[t];
  w->grad_D[d] += dp * u;
}

static void channel_back(const ref_call *c, const work *w, int64_t b, int64_t d) {
  const scan_recipe *r = scan(c->p);
  states(c, w, b, d);
  for (int64_t n = 0; n < r->states; n++) w->dh[n] = ref_read(c, GRAD(H_LAST), AT(b, d, n));
  for (int64_t t = r->length - 1; t >= 0; t--) {
    double z = ref_read(c, Z, AT(b, d, t)), dy = ref_read(c, GRAD(Y), AT(b, d, t));
    w->dz[t] = m_gate_grad(dy * output(c, w, b, d, t), z, z);
    step_back(c, w, b, d, t, has_slot(c->p, Z) ? dy * m_gate(m_max(z, -1e30), z) : dy);
  }
  for (int64_t t = 0; t < r->length; t++) {
    ref_set(c, GRAD(U), AT(b, d, t), w->du[t]);
    ref_set(c, GRAD(DELTA), AT(b, d, t), w->ddelta[t]);
    ref_set(c, GRAD(Z), AT(b, d, t), w->dz[t]);
  }
  for (int64_t n = 0; n < r->states; n++) ref_set(c, GRAD(H0), AT(b, d, n), w->dh[n]);
}

static void backward(const ref_call *c) {
  const scan_recipe *r = scan(c->p);
  work w;
  uint64_t size = lay_out(c->p, &w, c->scratch);
  if (size) memset(c->scratch, 0, (size_t)size * sizeof *c->scratch);
  for (int64_t b = 0; b < r->batches; b++)
    for (int64_t d = 0; d < r->channels; d++) channel_back(c, &w, b, d);
  for (int64_t d = 0; d < r->channels && c->p->op.u.selective_scan.a_log; d++)
    for (int64_t n = 0; n < r->states; n++) w.grad_A[d * r->states + n] *= a_at(c, d, n);
  ref_put_gradient(c, A, w.grad_A);
  ref_put_gradient(c, B, w.grad_B);
  ref_put_gradient(c, C, w.grad_C);
  ref_put_gradient(c, D, w.grad_D);
  ref_put_gradient(c, DELTA_BIAS, w.grad_bias);
}

static uint64_t scratch(const problem *p) {
  work w;
  return lay_out(p, &w, NULL);
}

const ref_kernel selective_scan_ref = {.forward = forward, .backward = backward, .scratch = scratch};
