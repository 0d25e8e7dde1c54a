/* ssd, the reference: the recurrence of op.c and its adjoint, one head of one batch at a time, every state kept. */
#include <math.h>
#include <string.h>

#include "backends/ref/state.h"
#include "ops/ssd/op.h"

enum { X = AMBI_SSD_X, DELTA = AMBI_SSD_DELTA, A = AMBI_SSD_A, B = AMBI_SSD_B, C = AMBI_SSD_C, D = AMBI_SSD_D };
enum { DELTA_BIAS = AMBI_SSD_DELTA_BIAS, H0 = AMBI_SSD_H0, SEQ_IDX = AMBI_SSD_SEQ_IDX };
enum { Y = AMBI_SSD_Y, H_LAST = AMBI_SSD_H_LAST };
#define GRAD AMBI_GRAD

static double a_at(const ref_call *c, int64_t h) {
  double a = ref_read(c, A, AT(h));
  return c->p->op.u.ssd.a_log ? -exp(a) : a;
}

static double raw_delta(const ref_call *c, int64_t b, int64_t t, int64_t h) {
  return ref_read(c, DELTA, AT(b, t, h)) + ref_read(c, DELTA_BIAS, AT(h));
}

/* d of the formula: the step size */
static double delta_at(const ref_call *c, int64_t b, int64_t t, int64_t h) {
  double delta = raw_delta(c, b, t, h);
  return c->p->op.u.ssd.softplus ? m_softplus(delta) : delta;
}

/* ---- the states of head h of batch b ---- */
typedef struct {
  double *h;                         /* (L + 1, P, N): h[t] is the state before step t, h[t + 1] after it */
  double *dh;                        /* (P, N)                                                            */
  double *dx;                        /* (L, P)                                                            */
  double *ddelta;                    /* (L)                                                               */
  double *grad_B, *grad_C;           /* as B, as C: whole sums                                            */
  ref_sum grad_A, grad_D, grad_bias; /* of one head                                                       */
} work;

/* Whether step t takes anything over: not what is forgotten, nor from before the first without h0 */
static bool carries(const ref_call *c, int64_t b, int64_t t) {
  return t > 0 ? !ref_resets(c, SEQ_IDX, b, t) : has_slot(c->p, H0);
}

/* abar_t h_{t-1} */
static double carried(const ref_call *c, const work *w, int64_t b, int64_t t, int64_t i, double abar) {
  const ssd_recipe *r = ssd(c->p);
  return carries(c, b, t) ? abar * w->h[t * r->width * r->states + i] : 0;
}

static void states(const ref_call *c, const work *w, int64_t b, int64_t h) {
  const ssd_recipe *r = ssd(c->p);
  const int64_t N = r->states, size = r->width * N, g = r->heads_per_group ? h / r->heads_per_group : 0;
  for (int64_t i = 0; i < size; i++) w->h[i] = ref_read(c, H0, AT(b, h, i / N, i % N));
  for (int64_t t = 0; t < r->length; t++) {
    double d = delta_at(c, b, t, h), abar = exp(d * a_at(c, h));
    for (int64_t i = 0; i < size; i++)
      w->h[(t + 1) * size + i] =
          carried(c, w, b, t, i, abar) + d * ref_read(c, X, AT(b, t, h, i / N)) * ref_read(c, B, AT(b, t, g, i % N));
  }
}

/* How many doubles the arrays take, and where they lie from `m` on (NULL: nowhere yet) */
static uint64_t lay_out(const problem *p, work *w, double *m) {
  const ssd_recipe *r = ssd(p);
  const bool back = is_backward(p);
  const uint64_t state = (uint64_t)(r->width * r->states), length = (uint64_t)r->length;
  const ref_part parts[] = {{&w->h, (length + 1) * state},
                            {&w->dh, state},
                            {&w->dx, back ? length * (uint64_t)r->width : 0},
                            {&w->ddelta, back ? length : 0},
                            {&w->grad_B, back ? (uint64_t)ambi_numel(&p->t[B]) : 0},
                            {&w->grad_C, back ? (uint64_t)ambi_numel(&p->t[C]) : 0}};
  return ref_lay_out(parts, sizeof parts / sizeof *parts, m);
}

static void forward_head(const ref_call *c, const work *w, int64_t b, int64_t h) {
  const ssd_recipe *r = ssd(c->p);
  const int64_t N = r->states, size = r->width * N;
  states(c, w, b, h);
  for (int64_t i = 0; i < size; i++) ref_set(c, H_LAST, AT(b, h, i / N, i % N), w->h[r->length * size + i]);
  for (int64_t t = 0; t < r->length; t++)
    for (int64_t p = 0; p < r->width; p++) {
      double y = ref_read(c, D, AT(h)) * ref_read(c, X, AT(b, t, h, p));
      for (int64_t n = 0; n < N; n++)
        y += ref_read(c, C, AT(b, t, h / r->heads_per_group, n)) * w->h[(t + 1) * size + p * N + n];
      ref_set(c, Y, AT(b, t, h, p), y);
    }
}

static void forward(const ref_call *c) {
  const ssd_recipe *r = ssd(c->p);
  work w;
  lay_out(c->p, &w, c->scratch);
  for (int64_t b = 0; b < r->batches; b++)
    for (int64_t h = 0; h < r->heads; h++) forward_head(c, &w, b, h);
}

/* ---- backward ---- */
/* Step t: dh is that of h_t without its own output's part, and becomes that of h_{t-1} */
static void step_back(const ref_call *c, work *w, int64_t b, int64_t t, int64_t h) {
  const ssd_recipe *r = ssd(c->p);
  const int64_t N = r->states, size = r->width * N, g = h / r->heads_per_group,
                row = ((b * r->length + t) * r->groups + g) * N;
  double d = delta_at(c, b, t, h), a = a_at(c, h), abar = exp(d * a), grad_step = 0;
  const bool carry = carries(c, b, t);
  for (int64_t p = 0; p < r->width; p++) {
    double x = ref_read(c, X, AT(b, t, h, p)), dy = ref_read(c, GRAD(Y), AT(b, t, h, p)),
           dx = ref_read(c, D, AT(h)) * dy;
    for (int64_t n = 0, i = p * N; n < N; n++, i++) {
      double bn = ref_read(c, B, AT(b, t, g, n)), dh = w->dh[i] + ref_read(c, C, AT(b, t, g, n)) * dy;
      double passed = carried(c, w, b, t, i, abar);
      w->grad_C[row + n] += dy * w->h[(t + 1) * size + i];
      w->grad_B[row + n] += dh * d * x;
      dx += dh * d * bn;
      grad_step += dh * bn * x;
      if (carry) grad_step += dh * a * passed;
      if (carry) ref_add(&w->grad_A, dh * d * passed);
      w->dh[i] = ref_resets(c, SEQ_IDX, b, t) ? 0 : abar * dh;
    }
    w->dx[t * r->width + p] = dx;
    ref_add(&w->grad_D, dy * x);
  }
  w->ddelta[t] = c->p->op.u.ssd.softplus ? grad_step * m_sigmoid(raw_delta(c, b, t, h)) : grad_step;
  ref_add(&w->grad_bias, w->ddelta[t]);
}

static void head_back(const ref_call *c, work *w, int64_t b, int64_t h) {
  const ssd_recipe *r = ssd(c->p);
  const int64_t N = r->states, size = r->width * N;
  states(c, w, b, h);
  for (int64_t i = 0; i < size; i++) w->dh[i] = ref_read(c, GRAD(H_LAST), AT(b, h, i / N, i % N));
  for (int64_t t = r->length - 1; t >= 0; t--) step_back(c, w, b, t, h);
  for (int64_t t = 0; t < r->length; t++) {
    for (int64_t p = 0; p < r->width; p++) ref_set(c, GRAD(X), AT(b, t, h, p), w->dx[t * r->width + p]);
    ref_set(c, GRAD(DELTA), AT(b, t, h), w->ddelta[t]);
  }
  for (int64_t i = 0; i < size; i++) ref_set(c, GRAD(H0), AT(b, h, i / N, i % N), w->dh[i]);
}

static void backward(const ref_call *c) {
  const ssd_recipe *r = ssd(c->p);
  work w;
  uint64_t size = lay_out(c->p, &w, c->scratch);
  if (size) memset(c->scratch, 0, (size_t)size * sizeof *c->scratch);
  for (int64_t h = 0; h < r->heads; h++) {
    w.grad_A = w.grad_D = w.grad_bias = (ref_sum){0, 0};
    for (int64_t b = 0; b < r->batches; b++) head_back(c, &w, b, h);
    ref_set(c, GRAD(A), AT(h), c->p->op.u.ssd.a_log ? w.grad_A.total * a_at(c, h) : w.grad_A.total);
    ref_set(c, GRAD(D), AT(h), w.grad_D.total);
    ref_set(c, GRAD(DELTA_BIAS), AT(h), w.grad_bias.total);
  }
  ref_put_gradient(c, B, w.grad_B);
  ref_put_gradient(c, C, w.grad_C);
}

static uint64_t scratch(const problem *p) {
  work w;
  return lay_out(p, &w, NULL);
}

const ref_kernel ssd_ref = {.forward = forward, .backward = backward, .scratch = scratch};
