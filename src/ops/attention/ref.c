/* attention, the reference: the formulas of op.c, one query at a time. */
#include "backends/ref/ref.h"

#include <math.h>
#include <string.h>

#include "ops/attention/op.h"

enum { Q = AMBI_ATTENTION_Q, K = AMBI_ATTENTION_K, V = AMBI_ATTENTION_V, LENGTHS = AMBI_ATTENTION_LENGTHS };
enum { O = AMBI_ATTENTION_O, LSE = AMBI_ATTENTION_LSE };
enum { DQ = AMBI_GRAD(Q), DK = AMBI_GRAD(K), DV = AMBI_GRAD(V), DO = AMBI_GRAD(O) };

/* One query: where it is, which keys it sees, and for each of them t, p (and backward dt) */
typedef struct {
  const ref_call *c;
  const attention_recipe *r;
  int64_t b, h, i;
  attention_keys seen;
  double lse, *t, *p, *dt; /* (S) each */
} query;

static int64_t group_of(const query *w) { return w->h / w->r->heads_per_group; }

static query query_at(const ref_call *c, int64_t b, int64_t h, int64_t i) {
  const attention_recipe *r = attention(c->p);
  int64_t n = has_slot(c->p, LENGTHS) ? attention_clamp(ref_integer(c, LENGTHS, AT(b)), r->keys) : r->keys;
  return (query){.c = c,
                 .r = r,
                 .b = b,
                 .h = h,
                 .i = i,
                 .seen = attention_seen(r, i, n),
                 .t = c->scratch,
                 .p = c->scratch + r->keys,
                 .dt = c->scratch + 2 * r->keys};
}

/* sum over d of a row of q or do and a row of k or v */
static double dot(const query *w, int mine, int key, int64_t j) {
  double sum = 0;
  for (int64_t d = 0; d < w->r->width; d++)
    sum += ref_get(w->c, mine, AT(w->b, w->h, w->i, d)) * ref_get(w->c, key, AT(w->b, group_of(w), j, d));
  return sum;
}

/* t, lse and p */
static void solve(query *w) {
  double cap = w->r->softcap, most = -INFINITY;
  ref_sum sum = {0, 0};
  for (int64_t j = w->seen.lo; j < w->seen.hi; j++) {
    double t = w->r->scale * dot(w, Q, K, j);
    w->t[j] = cap > 0 ? cap * tanh(t / cap) : t;
    most = w->t[j] > most || isnan(w->t[j]) ? w->t[j] : most;
  }
  for (int64_t j = w->seen.lo; j < w->seen.hi && most > -INFINITY; j++) ref_add(&sum, exp(w->t[j] - most));
  w->lse = isnan(most) ? most : most + log(sum.total);
  if (is_backward(w->c->p) && reads_slot(w->c->p, LSE)) w->lse = ref_get(w->c, LSE, AT(w->b, w->h, w->i));
  for (int64_t j = w->seen.lo; j < w->seen.hi; j++) w->p[j] = w->lse == -INFINITY ? 0 : exp(w->t[j] - w->lse);
}

static double output(const query *w, int64_t d) {
  ref_sum o = {0, 0};
  if (is_backward(w->c->p) && reads_slot(w->c->p, O)) return ref_get(w->c, O, AT(w->b, w->h, w->i, d));
  for (int64_t j = w->seen.lo; j < w->seen.hi; j++)
    ref_add(&o, w->p[j] * ref_get(w->c, V, AT(w->b, group_of(w), j, d)));
  return o.total;
}

static void forward(const ref_call *c) {
  const attention_recipe *r = attention(c->p);
  for (int64_t b = 0; b < r->batches; b++)
    for (int64_t h = 0; h < r->heads; h++)
      for (int64_t i = 0; i < r->queries; i++) {
        query w = query_at(c, b, h, i);
        solve(&w);
        ref_set(c, LSE, AT(b, h, i), w.lse);
        for (int64_t d = 0; d < r->width; d++) ref_set(c, O, AT(b, h, i, d), output(&w, d));
      }
}

/* ---- backward ---- */
static void solve_dt(query *w) {
  double delta = 0, cap = w->r->softcap;
  for (int64_t d = 0; d < w->r->width && w->seen.lo < w->seen.hi; d++)
    delta += ref_get(w->c, DO, AT(w->b, w->h, w->i, d)) * output(w, d);
  for (int64_t j = w->seen.lo; j < w->seen.hi; j++) {
    double dp = dot(w, DO, V, j), bend = cap > 0 ? 1 - w->t[j] / cap * (w->t[j] / cap) : 1;
    w->dt[j] = w->p[j] * (dp - delta) * bend;
  }
}

/* dq of one query, and what it adds to dk and dv (S, D) */
static void backward_query(query *w, double *dk, double *dv) {
  const int64_t D = w->r->width, g = group_of(w);
  const double scale = w->r->scale;
  bool wants_dt = writes_slot(w->c->p, DQ) || writes_slot(w->c->p, DK);
  solve(w);
  if (wants_dt) solve_dt(w);
  for (int64_t d = 0; d < D; d++) {
    double dq = 0, q = ref_get(w->c, Q, AT(w->b, w->h, w->i, d)), dout = ref_get(w->c, DO, AT(w->b, w->h, w->i, d));
    for (int64_t j = w->seen.lo; j < w->seen.hi; j++) {
      dv[j * D + d] += w->p[j] * dout;
      if (!wants_dt) continue;
      dq += scale * w->dt[j] * ref_get(w->c, K, AT(w->b, g, j, d));
      dk[j * D + d] += scale * w->dt[j] * q;
    }
    ref_set(w->c, DQ, AT(w->b, w->h, w->i, d), dq);
  }
}

static void backward(const ref_call *c) {
  const attention_recipe *r = attention(c->p);
  const int64_t size = r->keys * r->width;
  double *dk = c->scratch + 3 * r->keys, *dv = dk + size; /* (S, D) each, of one group of heads */
  for (int64_t b = 0; b < r->batches; b++)
    for (int64_t g = 0; g < r->groups; g++) {
      memset(dk, 0, 2 * (size_t)size * sizeof *dk);
      for (int64_t h = g * r->heads_per_group; h < (g + 1) * r->heads_per_group; h++)
        for (int64_t i = 0; i < r->queries; i++) {
          query w = query_at(c, b, h, i);
          backward_query(&w, dk, dv);
        }
      for (int64_t n = 0; n < size; n++) {
        ref_set(c, DK, AT(b, g, n / r->width, n % r->width), dk[n]);
        ref_set(c, DV, AT(b, g, n / r->width, n % r->width), dv[n]);
      }
    }
}

static uint64_t scratch(const problem *p) {
  const attention_recipe *r = attention(p);
  return 3 * (uint64_t)r->keys + 2 * (uint64_t)(r->keys * r->width) + 1;
}

const ref_kernel attention_ref = {.forward = forward, .backward = backward, .scratch = scratch};
