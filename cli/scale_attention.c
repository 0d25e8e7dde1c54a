/* scale_attention.c -- the terms of attention, query by query. M(v) bounds the error of v in units of u.
 *
 *   t = scale q.k           M(t) = |scale| sum |q k| + |t|    (with a softcap c too: tanh' <= 1)
 *   lse = log(sum e^t)      M(lse) = 1 + |lse| + sum p M(t)
 *   p = e^(t - lse)         M(p) = p E, E = 1 + M(t) + M(lse): an exponential errs by what its argument does
 *   o = sum p v             M(o) = sum M(p) |v|
 *   dp = do.v               M(dp) = sum |do v|
 *   delta = do.o            M(delta) = sum |do| M(o)
 *   dt = p (dp - delta) f, f = 1 - (t/c)^2 or 1
 *                           M(dt) = M(p) |dp - delta| + p (M(dp) + M(delta)) + p |dp - delta| 2 |t| M(t) / c^2
 *   dq = scale sum dt k, dk = scale sum dt q, dv = sum p do: M of the first factor times |the second| */
#include <math.h>
#include <stdlib.h>

#include "trial.h"
#include "values.h"

enum { Q = AMBI_ATTENTION_Q, K = AMBI_ATTENTION_K, V = AMBI_ATTENTION_V, LENGTHS = AMBI_ATTENTION_LENGTHS };
enum { O = AMBI_ATTENTION_O, LSE = AMBI_ATTENTION_LSE };

typedef struct {
  trial *t;
  int64_t L, S, D;
  double scale, cap;
  double *s, *ms, *p, *e; /* of one query, for each key: t, M(t), p, E */
  const double *q, *dout; /* its rows                                  */
  const double *k, *v;    /* of its group                              */
  double *mo, *mdq;       /* rows of magnitudes; mdq, mdk, mdv: NULL when there is no backward pass */
  double *mdk, *mdv;
  int64_t lo, hi; /* the keys it sees */
} scene;

static void raise_by(double *m, int64_t i, double by) {
  if (m) m[i] += by;
}

static double dot(const double *a, const double *b, int64_t n, int absolute) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += absolute ? fabs(a[i] * b[i]) : a[i] * b[i];
  return sum;
}

/* The keys that query i sees, written apart from the library's own rule. */
static void find_keys(scene *c, int64_t b, int64_t i) {
  const ambi_op *op = &c->t->op;
  const double *lengths = c->t->in[LENGTHS];
  double n = lengths ? fmin(fmax(lengths[b], 0), (double)c->S) : (double)c->S;
  double position = (double)(i - c->L) + n;
  c->lo = c->hi = 0;
  for (int64_t j = 0; j < c->S; j++) {
    int sees = (double)j < n && (!op->u.attention.causal || (double)j <= position);
    if (op->u.attention.window) sees = sees && fabs((double)j - position) < op->u.attention.window;
    if (sees && c->hi == 0) c->lo = j;
    if (sees) c->hi = j + 1;
  }
}

/* t, M(t), p and E of every key, M(lse); returns the latter. */
static double weigh(scene *c) {
  double most = -INFINITY, sum = 0, spread = 0;
  for (int64_t j = c->lo; j < c->hi; j++) {
    double t = c->scale * dot(c->q, c->k + j * c->D, c->D, 0);
    c->s[j] = c->cap > 0 ? c->cap * tanh(t / c->cap) : t;
    c->ms[j] = fabs(c->scale) * dot(c->q, c->k + j * c->D, c->D, 1) + fabs(c->s[j]);
    most = fmax(most, c->s[j]);
  }
  for (int64_t j = c->lo; j < c->hi; j++) sum += exp(c->s[j] - most);
  double lse = most + log(sum);
  for (int64_t j = c->lo; j < c->hi; j++) {
    c->p[j] = exp(c->s[j] - lse);
    spread += c->p[j] * c->ms[j];
  }
  double mlse = 1 + fabs(lse) + spread;
  for (int64_t j = c->lo; j < c->hi; j++) c->e[j] = 1 + c->ms[j] + mlse;
  return mlse;
}

static void forward_query(scene *c) {
  for (int64_t j = c->lo; j < c->hi; j++)
    for (int64_t d = 0; d < c->D; d++) c->mo[d] += c->p[j] * c->e[j] * fabs(c->v[j * c->D + d]);
}

static void backward_query(scene *c) {
  const int64_t D = c->D;
  double delta = 0, mdelta = dot(c->dout, c->mo, D, 1), bend = c->cap > 0 ? 2 / (c->cap * c->cap) : 0;
  for (int64_t j = c->lo; j < c->hi; j++) delta += c->p[j] * dot(c->dout, c->v + j * D, D, 0);
  for (int64_t j = c->lo; j < c->hi; j++) {
    double p = c->p[j], mp = p * c->e[j], pull = fabs(dot(c->dout, c->v + j * D, D, 0) - delta);
    double mdt =
        mp * pull + p * (dot(c->dout, c->v + j * D, D, 1) + mdelta) + p * pull * bend * fabs(c->s[j]) * c->ms[j];
    for (int64_t d = 0; d < D; d++) {
      raise_by(c->mdq, d, fabs(c->scale * c->k[j * D + d]) * mdt);
      raise_by(c->mdk, j * D + d, fabs(c->scale * c->q[d]) * mdt);
      raise_by(c->mdv, j * D + d, mp * fabs(c->dout[d]));
    }
  }
}

/* Query number n of B H L, of head h */
static void add_query(scene *c, int64_t n, int64_t b, int64_t group, double *mlse) {
  trial *t = c->t;
  const int64_t D = c->D, keys = group * c->S * D;
  int backward = t->differentiable != 0;
  c->q = t->in[Q] + n * D, c->k = t->in[K] + keys, c->v = t->in[V] + keys, c->mo = t->mag[O] + n * D;
  if (backward) {
    c->dout = t->in[AMBI_GRAD(O)] + n * D;
    c->mdq = t->mag[AMBI_GRAD(Q)] + n * D;
    c->mdk = t->mag[AMBI_GRAD(K)] + keys, c->mdv = t->mag[AMBI_GRAD(V)] + keys;
  }
  find_keys(c, b, n % c->L);
  if (c->lo >= c->hi) return;
  double m = weigh(c);
  if (mlse) mlse[n] = m;
  forward_query(c);
  if (backward) backward_query(c);
}

void attention_magnitudes(const target *ref, trial *t) {
  const int64_t *q = t->op.t[Q].shape, *k = t->op.t[K].shape, queries = q[0] * q[1] * q[2];
  double scale = t->op.u.attention.scale != 0 ? t->op.u.attention.scale : 1 / sqrt((double)(q[3] ? q[3] : 1));
  scene c = {.t = t, .L = q[2], .S = k[2], .D = q[3], .scale = scale, .cap = t->op.u.attention.softcap};
  (void)ref;
  if (queries == 0) return;
  double *room = values_new(4 * c.S);
  c.s = room, c.ms = room + c.S, c.p = room + 2 * c.S, c.e = room + 3 * c.S;
  for (int64_t n = 0; n < queries; n++) {
    int64_t head = n / q[2], b = head / q[1], h = head % q[1];
    add_query(&c, n, b, b * k[1] + h / (q[1] / k[1]), t->mag[LSE]);
  }
  free(room);
}
