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
 *   dq = scale sum dt k, dk = scale sum dt q, dv = sum p do: M of the first factor times |the second|
 *
 * Tensor cores multiply numbers of 16 bits. Where q is of f16 or bf16 a kernel may round p and dt to that, which is
 * N(p) = u16 p + tiny on top: of a p that is relative to a sum of at least 1, so tiny, half a denormal, stays that
 * after the division. N(o) = sum N(p) |v|, N(delta) = sum |do| N(o), N(dt) = u16 |dt| + tiny + p N(delta), and for the
 * gradients N of the factor times |the other|. */
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
  double *no, *ndq, *ndk, *ndv; /* what rounding p and dt to 16 bits adds: NULL where q has more */
  double u16, tiny;
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
    for (int64_t d = 0; d < c->D; d++) {
      c->mo[d] += c->p[j] * c->e[j] * fabs(c->v[j * c->D + d]);
      raise_by(c->no, d, (c->u16 * c->p[j] + c->tiny) * fabs(c->v[j * c->D + d]));
    }
}

static void backward_query(scene *c) {
  const int64_t D = c->D;
  double ndelta = c->no ? dot(c->dout, c->no, D, 1) : 0;
  double delta = 0, mdelta = dot(c->dout, c->mo, D, 1), bend = c->cap > 0 ? 2 / (c->cap * c->cap) : 0;
  for (int64_t j = c->lo; j < c->hi; j++) delta += c->p[j] * dot(c->dout, c->v + j * D, D, 0);
  for (int64_t j = c->lo; j < c->hi; j++) {
    double p = c->p[j], mp = p * c->e[j], pull = fabs(dot(c->dout, c->v + j * D, D, 0) - delta);
    double mdt =
        mp * pull + p * (dot(c->dout, c->v + j * D, D, 1) + mdelta) + p * pull * bend * fabs(c->s[j]) * c->ms[j];
    double ndt = c->u16 * p * pull + p * ndelta + c->tiny, np = c->u16 * p + c->tiny; /* |dt| <= p pull */
    for (int64_t d = 0; d < D; d++) {
      raise_by(c->ndq, d, fabs(c->scale * c->k[j * D + d]) * ndt);
      raise_by(c->ndk, j * D + d, fabs(c->scale * c->q[d]) * ndt);
      raise_by(c->ndv, j * D + d, np * fabs(c->dout[d]));
      raise_by(c->mdq, d, fabs(c->scale * c->k[j * D + d]) * mdt);
      raise_by(c->mdk, j * D + d, fabs(c->scale * c->q[d]) * mdt);
      raise_by(c->mdv, j * D + d, mp * fabs(c->dout[d]));
    }
  }
}

static double *row_of(double *const *of, int slot, int64_t at) { return of[slot] ? of[slot] + at : NULL; }

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
    c->ndq = row_of(t->narrow, AMBI_GRAD(Q), n * D);
    c->ndk = row_of(t->narrow, AMBI_GRAD(K), keys), c->ndv = row_of(t->narrow, AMBI_GRAD(V), keys);
  }
  c->no = row_of(t->narrow, O, n * D);
  find_keys(c, b, n % c->L);
  if (c->lo >= c->hi) return;
  double m = weigh(c);
  if (mlse) mlse[n] = m;
  forward_query(c);
  if (backward) backward_query(c);
}

static void prepare_narrow(scene *c) {
  static const int slots[] = {O, AMBI_GRAD(Q), AMBI_GRAD(K), AMBI_GRAD(V)};
  const ambi_dtype type = c->t->op.t[Q].dtype;
  if (type != AMBI_F16 && type != AMBI_BF16) return;
  c->u16 = value_unit(type), c->tiny = value_tiny(type);
  for (int i = 0; i < 4; i++)
    if (c->t->mag[slots[i]]) c->t->narrow[slots[i]] = values_new(ambi_numel(&c->t->op.t[slots[i] % AMBI_MAX_PRIMALS]));
}

void attention_magnitudes(const target *ref, trial *t) {
  const int64_t *q = t->op.t[Q].shape, *k = t->op.t[K].shape, queries = q[0] * q[1] * q[2];
  double scale = t->op.u.attention.scale != 0 ? t->op.u.attention.scale : 1 / sqrt((double)(q[3] ? q[3] : 1));
  scene c = {.t = t, .L = q[2], .S = k[2], .D = q[3], .scale = scale, .cap = t->op.u.attention.softcap};
  (void)ref;
  if (queries == 0) return;
  prepare_narrow(&c);
  double *room = values_new(4 * c.S);
  c.s = room, c.ms = room + c.S, c.p = room + 2 * c.S, c.e = room + 3 * c.S;
  for (int64_t n = 0; n < queries; n++) {
    int64_t head = n / q[2], b = head / q[1], h = head % q[1];
    add_query(&c, n, b, b * k[1] + h / (q[1] / k[1]), t->mag[LSE]);
  }
  free(room);
}
