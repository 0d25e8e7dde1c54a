/* test_attention.c -- which keys a query sees. The reference and the kernels share that rule, so here it is written
 * once more, pair by pair as the contract says it, and both must agree with it; `test_attention DEVICE`: that one. */
#include <math.h>
#include <stdlib.h>

#include "slots.h"

enum { B = 2, H = 4, G = 2, D = 3, MOST = 9 };

typedef struct {
  int64_t L, S, lengths[B];
  int32_t causal, window;
} rule;

/* One run's tensors, dense. */
typedef struct {
  double q[B * H * MOST * D], k[B * G * MOST * D], v[B * G * MOST * D];
  double o[B * H * MOST * D], lse[B * H * MOST];
} tensors;

static int sees(const rule *r, int64_t b, int64_t i, int64_t j) {
  int64_t n = r->lengths[b] < 0 ? 0 : r->lengths[b] > r->S ? r->S : r->lengths[b], position = i + n - r->L;
  if (j >= n || (r->causal && j > position)) return 0;
  if (r->window && j <= position - r->window) return 0;
  return !(r->window && !r->causal && j >= position + r->window);
}

static double score(const rule *r, const tensors *x, int64_t head, int64_t i, int64_t keys, int64_t j) {
  double sum = 0;
  for (int d = 0; d < D; d++) sum += x->q[(head * r->L + i) * D + d] * x->k[(keys * r->S + j) * D + d];
  return sum / sqrt(D);
}

/* Query i of head h: sums of e^t and of e^t v over the keys it sees. */
static void expect_query(const rule *r, const tensors *x, int64_t b, int64_t h, int64_t i, const char *device) {
  int64_t head = b * H + h, keys = b * G + h / (H / G), at = head * r->L + i;
  double sum = 0, o[D] = {0};
  for (int64_t j = 0; j < r->S; j++) {
    if (!sees(r, b, i, j)) continue;
    double e = exp(score(r, x, head, i, keys, j));
    sum += e;
    for (int d = 0; d < D; d++) o[d] += e * x->v[(keys * r->S + j) * D + d];
  }
  double lse = sum > 0 ? log(sum) : -INFINITY;
  CHECK(sum > 0 ? fabs(x->lse[at] - lse) < 1e-12 : x->lse[at] == lse,
        "%s: L %d S %d length %d causal %d window %d: lse[%d,%d,%d] = %g, expected %g", device, (int)r->L, (int)r->S,
        (int)r->lengths[b], r->causal, r->window, (int)b, (int)h, (int)i, x->lse[at], lse);
  for (int d = 0; d < D; d++) {
    double want = sum > 0 ? o[d] / sum : 0;
    CHECK(fabs(x->o[at * D + d] - want) < 1e-12,
          "%s: L %d S %d length %d causal %d window %d: o[%d,%d,%d,%d] = %g, expected %g", device, (int)r->L, (int)r->S,
          (int)r->lengths[b], r->causal, r->window, (int)b, (int)h, (int)i, d, x->o[at * D + d], want);
  }
}

static void try_rule(const rule *r, const char *device, ambi_device *dev) {
  static tensors x;
  unsigned seed = 7;
  for (double *v = x.q; v < x.o; v++) *v = (double)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
  ambi_op op = {.kind = AMBI_ATTENTION};
  op.t[AMBI_ATTENTION_Q] = ambi_dense(AMBI_F64, 4, (int64_t[]){B, H, r->L, D});
  op.t[AMBI_ATTENTION_K] = ambi_dense(AMBI_F64, 4, (int64_t[]){B, G, r->S, D});
  op.t[AMBI_ATTENTION_V] = op.t[AMBI_ATTENTION_K];
  op.t[AMBI_ATTENTION_LENGTHS] = ambi_dense(AMBI_I64, 1, (int64_t[]){B});
  op.want = AMBI_BIT(AMBI_ATTENTION_LSE);
  op.u.attention.causal = r->causal;
  op.u.attention.window = r->window;
  const host_slot host[AMBI_SLOTS] = {
      [AMBI_ATTENTION_Q] = {x.q, sizeof x.q},       [AMBI_ATTENTION_K] = {x.k, sizeof x.k},
      [AMBI_ATTENTION_V] = {x.v, sizeof x.v},       [AMBI_ATTENTION_O] = {x.o, sizeof x.o},
      [AMBI_ATTENTION_LSE] = {x.lse, sizeof x.lse}, [AMBI_ATTENTION_LENGTHS] = {(void *)r->lengths, sizeof r->lengths}};
  if (!slots_run(dev, &op, host)) return;
  for (int64_t n = 0; n < B * H * r->L; n++) expect_query(r, &x, n / r->L / H, n / r->L % H, n % r->L, device);
}

static void test_device(ambi_device *dev, const char *name) {
  static const int64_t sizes[][2] = {{1, 1}, {5, 5}, {4, 9}, {9, 4}, {1, 7}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int64_t length = -1; length <= sizes[s][1] + 1; length++)
      for (int32_t window = 0; window <= 4; window++)
        for (int32_t causal = 0; causal <= 1; causal++)
          try_rule(&(rule){sizes[s][0], sizes[s][1], {length, sizes[s][1] - length}, causal, window}, name, dev);
  for (int32_t causal = 0; causal <= 1; causal++) try_rule(&(rule){4, 9, {INT64_MAX, INT64_MIN}, causal, 0}, name, dev);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    test_on_texts(argv[1], test_device);
  } else {
    test_on("ref", test_device);
    test_on("cpu", test_device);
  }
  return test_done();
}
