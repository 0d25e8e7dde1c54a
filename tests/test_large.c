/* test_large.c -- one op of each family past 2^31 elements of bf16 (`make test-large`; up to 16 GiB of memory). Values
 * are compared with the formula at the start, around 2^31 and at the end: a 32-bit index anywhere would show there.
 *
 *   test_large [DEVICE [N [OP]]]   cpu, or cuda:0 (as much memory there again); past 2^N elements, 31; only that op
 *
 * The numbers are multiples of 1/64 below 2 with a period that no power of two divides, so sums of a few products are
 * exact in f32 and must come out exactly, rounded once. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "../cli/values.h"
#include "test.h"

static int64_t edge = INT64_C(1) << 31;
enum { PERIOD = 65521 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double value_at(int64_t i) { return (double)(i % PERIOD % 251 - 125) / 64; }

static uint16_t bf16(double v) {
  uint16_t h;
  value_encode(AMBI_BF16, v, &h);
  return h;
}
static double of_bf16(uint16_t h) { return value_decode(AMBI_BF16, &h); }

/* n values of the pattern, `shift` further on. */
static uint16_t *pattern(int64_t n, int64_t shift) {
  uint16_t *x = malloc((size_t)n * sizeof *x);
  if (!x) return NULL;
  for (int64_t i = 0; i < PERIOD && i < n; i++) x[i] = bf16(value_at(i + shift));
  for (int64_t i = PERIOD; i < n; i += PERIOD) memcpy(x + i, x, (size_t)(n - i < PERIOD ? n - i : PERIOD) * sizeof *x);
  return x;
}

/* Places worth looking at in n elements. */
enum { PLACES = 24 };
static void places(int64_t n, int64_t *at) {
  const int64_t middle[] = {0, edge / 2, edge, n};
  for (int i = 0; i < PLACES; i++) {
    int64_t p = middle[i / 6] + i % 6 - 3;
    at[i] = p < 0 ? -p : p >= n ? n - 1 - (p - n) : p;
  }
}

/* ---- running: where the device has memory of its own, what lies over each other here does so there ---- */
static ambi_device *dev;
static ambi_stream *stream; /* NULL: the device's memory is the host's */

static int first_with(const ambi_buf *bufs, int slot) {
  int s = 0;
  while (s < slot && bufs[s].data != bufs[slot].data) s++;
  return s;
}

static bool give(const ambi_plan *plan, const ambi_plan_info *info, const ambi_buf *bufs, size_t n, ambi_buf *own) {
  bool good = true;
  for (int s = 0; s < (int)n; s++) {
    const ambi_tensor t = ambi_plan_tensor(plan, s);
    if (!bufs[s].data || !((info->reads | info->writes) & AMBI_BIT(s))) continue;
    if (first_with(bufs, s) == s)
      good = good && CHECK_OK(ambi_alloc(dev, (size_t)ambi_span(&t), &own[s]));
    else
      own[s] = own[first_with(bufs, s)];
    if (good && (info->reads & AMBI_BIT(s)))
      good = CHECK_OK(ambi_upload(stream, own[s], bufs[s].data, (size_t)ambi_span(&t)));
  }
  return good;
}

static void take(const ambi_plan *plan, const ambi_plan_info *info, const ambi_buf *bufs, size_t n, ambi_buf *own) {
  for (int s = 0; s < (int)n; s++) {
    const ambi_tensor t = ambi_plan_tensor(plan, s);
    if (own[s].data && (info->writes & AMBI_BIT(s)))
      CHECK_OK(ambi_download(stream, bufs[s].data, own[s], (size_t)ambi_span(&t)));
  }
  CHECK_OK(ambi_stream_wait(stream));
  for (int s = 0; s < (int)n; s++)
    if (own[s].data && first_with(bufs, s) == s) ambi_free(dev, own[s]);
}

static bool run(const ambi_op *op, const ambi_buf *bufs, size_t n, const char *name) {
  ambi_plan *plan;
  ambi_plan_info info;
  ambi_buf workspace = {0}, own[AMBI_SLOTS] = {{0}};
  double begin = now();
  if (!CHECK(ambi_plan_create(dev, op, &plan) == AMBI_OK, "%s: %s", name, ambi_error())) return false;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  if (info.workspace) CHECK_OK(ambi_alloc(dev, info.workspace, &workspace));
  ambi_status s = AMBI_NO_MEMORY;
  if (!stream || give(plan, &info, bufs, n, own)) s = ambi_run(plan, stream, stream ? own : bufs, n, workspace);
  const bool good = CHECK(s == AMBI_OK, "%s: %s", name, ambi_error());
  if (stream) take(plan, &info, bufs, n, own);
  printf("%-28s %-44s %5.1f s\n", name, info.kernel, now() - begin);
  fflush(stdout);
  ambi_free(dev, workspace);
  ambi_plan_destroy(plan);
  return good;
}

static void check_at(const char *name, int64_t i, double got, double want, double tolerance) {
  CHECK(fabs(got - want) <= tolerance, "%s: element %lld is %.9g, expected %.9g", name, (long long)i, got, want);
}

/* One rounding to bf16 of a value known to `u` relative. */
static double rounding(double want, double u) { return value_ulp(AMBI_BF16, want) + u * fabs(want); }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* ---- pointwise ---- */
static void large_unary(void) {
  int64_t n = edge + 12345, at[PLACES];
  uint16_t *x = pattern(n, 0), *y = malloc((size_t)n * sizeof *y);
  ambi_op op = {.kind = AMBI_UNARY, .u.unary.function = AMBI_SILU};
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_BF16, 1, &n);
  if (run(&op, (ambi_buf[]){{x, 0}, {y, 0}}, 2, "unary silu")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double v = value_at(at[i]), want = v * sigmoid(v);
      check_at("unary silu", at[i], of_bf16(y[at[i]]), want, rounding(want, 0));
    }
  }
  free(x), free(y);
}

/* Through a stride: (2, n/2) read column by column. */
static void large_copy(void) {
  int64_t half = edge / 2 + 77, n = 2 * half, at[PLACES];
  uint16_t *x = pattern(n, 5), *y = malloc((size_t)n * sizeof *y);
  ambi_op op = {.kind = AMBI_COPY};
  op.t[AMBI_COPY_X] = (ambi_tensor){.dtype = AMBI_BF16, .ndim = 2, .shape = {half, 2}, .stride = {1, half}};
  op.t[AMBI_COPY_Y] = ambi_dense(AMBI_BF16, 2, (int64_t[]){half, 2});
  if (run(&op, (ambi_buf[]){{x, 0}, {y, 0}}, 2, "copy, transposed")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++)
      check_at("copy", at[i], of_bf16(y[at[i]]), value_at(at[i] % 2 * half + at[i] / 2 + 5), 0);
  }
  free(x), free(y);
}

static void large_gated(void) {
  int64_t n = edge + 333, at[PLACES];
  uint16_t *v = pattern(n, 0), *g = pattern(n, 99), *y = malloc((size_t)n * sizeof *y);
  ambi_op op = {.kind = AMBI_GATED};
  op.t[AMBI_GATED_V] = op.t[AMBI_GATED_G] = ambi_dense(AMBI_BF16, 1, &n);
  if (run(&op, (ambi_buf[]){{v, 0}, {g, 0}, {y, 0}}, 3, "gated swiglu")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double gate = value_at(at[i] + 99), want = value_at(at[i]) * gate * sigmoid(gate);
      check_at("gated", at[i], of_bf16(y[at[i]]), want, rounding(want, 0));
    }
  }
  free(v), free(g), free(y);
}

static void large_unary_backward(void) {
  int64_t n = edge + 777, at[PLACES];
  uint16_t *x = pattern(n, 0), *dy = pattern(n, 50);
  ambi_op op = {.kind = AMBI_UNARY, .pass = AMBI_BACKWARD, .u.unary.function = AMBI_SILU};
  op.t[AMBI_UNARY_X] = ambi_dense(AMBI_BF16, 1, &n);
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_UNARY_X] = {x, 0},
                               [AMBI_GRAD(AMBI_UNARY_X)] = {dy, 0}, /* in place */
                               [AMBI_GRAD(AMBI_UNARY_Y)] = {dy, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "unary silu backward, in place")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double v = value_at(at[i]), f = sigmoid(v), want = value_at(at[i] + 50) * f * (1 + v * (1 - f));
      check_at("unary backward", at[i], of_bf16(dy[at[i]]), want, rounding(want, 1e-6));
    }
  }
  free(x), free(dy);
}

/* ---- rows ---- */
static double rstd_of(int64_t row, int64_t cols) {
  double squares = 0;
  for (int64_t i = 0; i < cols; i++) squares += value_at(row * cols + i) * value_at(row * cols + i);
  return 1 / sqrt(squares / (double)cols + 1e-6);
}

static void large_rmsnorm(void) {
  int64_t cols = 4099, rows = edge / cols + 5, n = rows * cols, at[PLACES];
  uint16_t *x = pattern(n, 0), *y = malloc((size_t)n * sizeof *y);
  ambi_op op = {.kind = AMBI_RMSNORM};
  op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_BF16, 2, (int64_t[]){rows, cols});
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_RMSNORM_X] = {x, 0}, [AMBI_RMSNORM_Y] = {y, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "rmsnorm")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double want = value_at(at[i]) * rstd_of(at[i] / cols, cols);
      check_at("rmsnorm", at[i], of_bf16(y[at[i]]), want, rounding(want, 0));
    }
  }
  free(x), free(y);
}

/* dw sums over every row: x and dy of one period per row make each row's term the same. */
static void large_rmsnorm_backward(void) {
  int64_t cols = PERIOD, rows = edge / cols + 5, n = rows * cols, at[PLACES];
  uint16_t *x = pattern(n, 0), *dy = pattern(n, 0), *w = pattern(cols, 3);
  float *dw = malloc((size_t)cols * sizeof *dw);
  ambi_op op = {.kind = AMBI_RMSNORM, .pass = AMBI_BACKWARD};
  op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_BF16, 2, (int64_t[]){rows, cols});
  op.t[AMBI_RMSNORM_W] = ambi_dense(AMBI_BF16, 1, &cols);
  op.grad[AMBI_RMSNORM_W] = ambi_dense(AMBI_F32, 1, &cols);
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_RMSNORM_X] = {x, 0},
                               [AMBI_RMSNORM_W] = {w, 0},
                               [AMBI_GRAD(AMBI_RMSNORM_X)] = {dy, 0}, /* in place */
                               [AMBI_GRAD(AMBI_RMSNORM_W)] = {dw, 0},
                               [AMBI_GRAD(AMBI_RMSNORM_Y)] = {dy, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "rmsnorm backward, in place")) {
    double r = rstd_of(0, cols), gs = 0;
    for (int64_t i = 0; i < cols; i++) gs += value_at(i) * value_at(i) * value_at(i + 3);
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double v = value_at(at[i]), g = v * value_at(at[i] % cols + 3), pull = v * r * r * r * gs / (double)cols;
      double want = g * r - pull; /* each term is good to a few f32 roundings */
      check_at("rmsnorm dx", at[i], of_bf16(dy[at[i]]), want, rounding(want, 0) + 1e-5 * (fabs(g * r) + fabs(pull)));
    }
    for (int64_t i = 0; i < cols; i += 997) {
      double want = (double)rows * value_at(i) * value_at(i) * r;
      check_at("rmsnorm dw", i, dw[i], want, 1e-5 * want);
    }
  }
  free(x), free(dy), free(w), free(dw);
}

/* Rows of one period are all alike. */
static void large_softmax(void) {
  int64_t cols = PERIOD, rows = edge / cols + 5, n = rows * cols, at[PLACES];
  uint16_t *x = pattern(n, 0);
  double sum = 0;
  for (int64_t i = 0; i < cols; i++) sum += exp(value_at(i));
  ambi_op op = {.kind = AMBI_SOFTMAX};
  op.t[AMBI_SOFTMAX_X] = ambi_dense(AMBI_BF16, 2, (int64_t[]){rows, cols});
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_SOFTMAX_X] = {x, 0}, [AMBI_SOFTMAX_Y] = {x, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "softmax, in place")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double want = exp(value_at(at[i])) / sum;
      check_at("softmax", at[i], of_bf16(x[at[i]]), want, rounding(want, 1e-5));
    }
  }
  free(x);
}

static void large_cross_entropy(void) {
  int64_t cols = PERIOD, rows = edge / cols + 5, n = rows * cols, at[PLACES];
  uint16_t *x = pattern(n, 0);
  int64_t *target = malloc((size_t)rows * sizeof *target);
  float loss[1] = {0};
  double sum = 0, mean = 0;
  for (int64_t i = 0; i < cols; i++) sum += exp(value_at(i));
  for (int64_t r = 0; r < rows; r++) mean += (log(sum) - value_at(target[r] = 7 * r % cols)) / (double)rows;
  ambi_op op = {.kind = AMBI_CROSS_ENTROPY};
  op.t[AMBI_CE_LOGITS] = op.t[AMBI_CE_GRAD] = ambi_dense(AMBI_BF16, 2, (int64_t[]){rows, cols});
  op.t[AMBI_CE_TARGET] = ambi_dense(AMBI_I64, 1, &rows);
  op.t[AMBI_CE_LOSS] = ambi_dense(AMBI_F32, 0, NULL);
  ambi_buf bufs[AMBI_SLOTS] = {
      [AMBI_CE_LOGITS] = {x, 0}, [AMBI_CE_TARGET] = {target, 0}, [AMBI_CE_LOSS] = {loss, 0}, [AMBI_CE_GRAD] = {x, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "cross_entropy, in place")) {
    check_at("cross_entropy's loss", 0, loss[0], mean, 1e-5 * mean);
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      double p = exp(value_at(at[i])) / sum, want = (p - (at[i] % cols == target[at[i] / cols])) / (double)rows;
      check_at("cross_entropy", at[i], of_bf16(x[at[i]]), want, rounding(want, 1e-5));
    }
  }
  free(x), free(target);
}

static void large_embedding(void) {
  enum { V = 1000, C = 136 };
  int64_t m = edge / C + 3, n = m * C, at[PLACES];
  uint16_t *w = pattern(V * C, 9), *y = malloc((size_t)n * sizeof *y);
  int32_t *tokens = malloc((size_t)m * sizeof *tokens);
  for (int64_t i = 0; i < m; i++) tokens[i] = (int32_t)(i * 7 % V);
  ambi_op op = {.kind = AMBI_EMBEDDING};
  op.t[AMBI_EMBEDDING_TOKENS] = ambi_dense(AMBI_I32, 1, &m);
  op.t[AMBI_EMBEDDING_W] = ambi_dense(AMBI_BF16, 2, (int64_t[]){V, C});
  ambi_buf bufs[AMBI_SLOTS] = {
      [AMBI_EMBEDDING_TOKENS] = {tokens, 0}, [AMBI_EMBEDDING_W] = {w, 0}, [AMBI_EMBEDDING_Y] = {y, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "embedding")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++)
      check_at("embedding", at[i], of_bf16(y[at[i]]), value_at(at[i] / C * 7 % V * C + at[i] % C + 9), 0);
  }
  free(w), free(y), free(tokens);
}

/* ---- matrices and sequences ---- */
static void large_linear(void) {
  enum { K = 8, N = 8 };
  int64_t m = edge / K + 3, n = m * K, at[PLACES];
  uint16_t *x = pattern(n, 0), *w = pattern(K * N, 11), *y = malloc((size_t)(m * N) * sizeof *y);
  ambi_op op = {.kind = AMBI_LINEAR};
  op.t[AMBI_LINEAR_X] = ambi_dense(AMBI_BF16, 2, (int64_t[]){m, K});
  op.t[AMBI_LINEAR_W] = ambi_dense(AMBI_BF16, 2, (int64_t[]){N, K});
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_LINEAR_X] = {x, 0}, [AMBI_LINEAR_W] = {w, 0}, [AMBI_LINEAR_Y] = {y, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "linear")) {
    places(m * N, at);
    for (int i = 0; i < PLACES; i++) {
      double want = 0;
      for (int64_t k = 0; k < K; k++) want += value_at(at[i] / N * K + k) * value_at(at[i] % N * K + k + 11);
      check_at("linear", at[i], of_bf16(y[at[i]]), value_round(AMBI_BF16, want), 0);
    }
  }
  free(x), free(w), free(y);
}

static void large_conv1d(void) {
  enum { D = 4, W = 4 };
  int64_t l = edge / D + 5, n = D * l, at[PLACES];
  uint16_t *x = pattern(n, 0), *w = pattern(D * W, 11), *y = malloc((size_t)n * sizeof *y);
  ambi_op op = {.kind = AMBI_CONV1D};
  op.t[AMBI_CONV1D_X] = ambi_dense(AMBI_BF16, 3, (int64_t[]){1, D, l});
  op.t[AMBI_CONV1D_W] = ambi_dense(AMBI_BF16, 2, (int64_t[]){D, W});
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_CONV1D_X] = {x, 0}, [AMBI_CONV1D_W] = {w, 0}, [AMBI_CONV1D_Y] = {y, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "conv1d")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      int64_t d = at[i] / l, t = at[i] % l;
      double want = 0;
      for (int64_t k = 0; k < W; k++)
        if (t - W + 1 + k >= 0) want += value_at(d * W + k + 11) * value_at(d * l + t - W + 1 + k);
      check_at("conv1d", at[i], of_bf16(y[at[i]]), value_round(AMBI_BF16, want), 0);
    }
  }
  free(x), free(w), free(y);
}

/* Very many sequences of two queries and two keys */
static void large_attention(void) {
  enum { L = 2, D = 128 };
  int64_t batch = edge / (L * D) + 3, n = batch * L * D, at[PLACES];
  uint16_t *q = pattern(n, 0), *k = pattern(n, 31), *v = pattern(n, 62), *o = malloc((size_t)n * sizeof *o);
  ambi_op op = {.kind = AMBI_ATTENTION};
  op.t[AMBI_ATTENTION_Q] = op.t[AMBI_ATTENTION_K] = op.t[AMBI_ATTENTION_V] =
      ambi_dense(AMBI_BF16, 4, (int64_t[]){batch, 1, L, D});
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_ATTENTION_Q] = {q, 0},
                               [AMBI_ATTENTION_K] = {k, 0},
                               [AMBI_ATTENTION_V] = {v, 0},
                               [AMBI_ATTENTION_O] = {o, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "attention")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      int64_t query = at[i] / D * D, first = at[i] / (L * D) * (L * D);
      double t[L] = {0, 0}, value[L], p;
      for (int j = 0; j < L; j++) {
        for (int d = 0; d < D; d++) t[j] += value_at(query + d) * value_at(first + j * D + d + 31) / sqrt(D);
        value[j] = value_at(first + j * D + at[i] % D + 62);
      }
      p = sigmoid(t[0] - t[1]);
      double want = p * value[0] + (1 - p) * value[1], size = fabs(value[0]) + fabs(value[1]);
      check_at("attention", at[i], of_bf16(o[at[i]]), want, rounding(want, 0) + size / 256); /* p is of 8 bits there */
    }
  }
  free(q), free(k), free(v), free(o);
}

/* One state that forgets within a few steps: A = -8 and steps of 1, so 8 steps back is 2^-92. In place over u. */
static void large_scan(void) {
  enum { D = 256, BACK = 8 };
  int64_t l = edge / D + 5, n = D * l, at[PLACES];
  uint16_t *u = pattern(n, 0), *delta = malloc((size_t)n * sizeof *delta), *b = pattern(l, 7), *c = pattern(l, 70);
  uint16_t a[D];
  for (int i = 0; i < D; i++) a[i] = bf16(-8);
  for (int64_t i = 0; i < n; i++) delta[i] = 0x3f80; /* 1 */
  ambi_op op = {.kind = AMBI_SELECTIVE_SCAN};
  op.t[AMBI_SCAN_U] = op.t[AMBI_SCAN_DELTA] = ambi_dense(AMBI_BF16, 3, (int64_t[]){1, D, l});
  op.t[AMBI_SCAN_A] = ambi_dense(AMBI_BF16, 2, (int64_t[]){D, 1});
  op.t[AMBI_SCAN_B] = op.t[AMBI_SCAN_C] = ambi_dense(AMBI_BF16, 3, (int64_t[]){1, 1, l});
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_SCAN_U] = {u, 0}, [AMBI_SCAN_DELTA] = {delta, 0}, [AMBI_SCAN_A] = {a, 0},
                               [AMBI_SCAN_B] = {b, 0}, [AMBI_SCAN_C] = {c, 0},         [AMBI_SCAN_Y] = {u, 0}};
  if (run(&op, bufs, AMBI_SLOTS, "selective_scan, in place")) {
    places(n, at);
    for (int i = 0; i < PLACES; i++) {
      int64_t d = at[i] / l, t = at[i] % l;
      double h = 0, size = 0;
      for (int64_t s = t > BACK ? t - BACK : 0; s <= t; s++) {
        double in = value_at(s + 7) * value_at(d * l + s);
        h = exp(-8) * h + in, size = exp(-8) * size + fabs(in);
      }
      double want = value_at(t + 70) * h; /* terms are good to a few f32 roundings */
      check_at("scan", at[i], of_bf16(u[at[i]]), want, rounding(want, 0) + 1e-5 * fabs(value_at(t + 70)) * size);
    }
  }
  free(u), free(delta), free(b), free(c);
}

/* ---- one sum over everything ---- */
static void large_grad_norm(void) {
  int64_t periods = edge / PERIOD + 1, n = periods * PERIOD;
  uint16_t *g = pattern(n, 0);
  float norm[1] = {0};
  ambi_op op = {.kind = AMBI_GRAD_NORM};
  op.t[AMBI_GRAD_NORM_G] = ambi_dense(AMBI_BF16, 1, &n);
  ambi_plan *plan;
  ambi_buf bufs[AMBI_SLOTS] = {[AMBI_GRAD_NORM_G] = {g, 0}, [AMBI_GRAD_NORM_NORM] = {norm, 0}};
  static float others[AMBI_SLOTS][64]; /* what else it writes is a number each */
  if (CHECK_OK(ambi_plan_create(dev, &op, &plan))) {
    for (int s = 0; s < AMBI_MAX_PRIMALS; s++)
      if (ambi_plan_tensor(plan, s).dtype && !bufs[s].data) bufs[s].data = others[s];
    ambi_plan_destroy(plan);
  }
  if (run(&op, bufs, AMBI_SLOTS, "grad_norm")) {
    double squares = 0;
    for (int64_t i = 0; i < PERIOD; i++) squares += value_at(i) * value_at(i);
    double want = sqrt(squares * (double)periods);
    check_at("grad_norm", 0, norm[0], want, 1e-5 * want); /* log2(n) roundings of 2^-24, and room */
  }
  free(g);
}

static const struct {
  ambi_kind kind;
  const char *name;
  void (*run)(void);
  int gib; /* of memory */
} tests[] = {
    {AMBI_UNARY, "unary", large_unary, 9},
    {AMBI_UNARY, "unary backward", large_unary_backward, 9},
    {AMBI_COPY, "copy", large_copy, 9},
    {AMBI_GATED, "gated", large_gated, 13},
    {AMBI_RMSNORM, "rmsnorm", large_rmsnorm, 9},
    {AMBI_RMSNORM, "rmsnorm backward", large_rmsnorm_backward, 9},
    {AMBI_SOFTMAX, "softmax", large_softmax, 5},
    {AMBI_CROSS_ENTROPY, "cross_entropy", large_cross_entropy, 5},
    {AMBI_EMBEDDING, "embedding", large_embedding, 5},
    {AMBI_LINEAR, "linear", large_linear, 9},
    {AMBI_CONV1D, "conv1d", large_conv1d, 9},
    {AMBI_ATTENTION, "attention", large_attention, 17},
    {AMBI_SELECTIVE_SCAN, "selective_scan", large_scan, 11},
    {AMBI_GRAD_NORM, "grad_norm", large_grad_norm, 5},
};

static double available_gib(void) {
  unsigned long long kib = 0;
  char line[128];
  FILE *f = fopen("/proc/meminfo", "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
  if (f) fclose(f);
  return f ? (double)kib / (1 << 20) : 1e9;
}

int main(int argc, char **argv) {
  const char *device = argc > 1 ? argv[1] : "cpu";
  if (argc > 2) edge = INT64_C(1) << (atoi(argv[2]) & 63);
  if (!CHECK_OK(ambi_device_open(device, NULL, &dev))) return test_done();
  if (strcmp(device, "cpu") != 0 && !CHECK_OK(ambi_stream_create(dev, NULL, &stream))) return test_done();
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    if (argc > 3 && strcmp(ambi_op_get_info(tests[i].kind)->name, argv[3]) != 0) continue;
    if (edge >> 31 && available_gib() < tests[i].gib)
      test_skip(tests[i].name, "not enough free memory");
    else
      tests[i].run();
  }
  ambi_stream_destroy(stream);
  ambi_device_close(dev);
  return test_done();
}
