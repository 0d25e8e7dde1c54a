/* test_ssd.c -- ssd is selective_scan with one decay and one step size a head: both give the same numbers, forward and
 * backward. Their references and kernels are written apart. `test_ssd DEVICE`: on that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "slots.h"

enum { B = 2, L = 150, H = 4, P = 3, G = 2, N = 5, D = H * P }; /* more than two chunks */
enum { CHANNELS = B * L * D, STATE = B * D * N, COEFFICIENTS = B * L * G * N };

/* One run's numbers, and where the gradients go; all f64. What scan has a channel, ssd has a head. */
typedef struct {
  double x[CHANNELS], delta[CHANNELS], a[D * N], b[COEFFICIENTS], c[COEFFICIENTS], d[D], bias[D], h0[STATE];
  double y[CHANNELS], h_last[STATE];
} tensors;
typedef struct {
  tensors v, g;
  int32_t seq_idx[B * L];
} numbers;

static double draw(double low, double high) {
  static unsigned seed = 7;
  seed = seed * 1664525u + 1013904223u;
  return low + (high - low) * (double)(seed >> 8) / (1 << 24);
}

static void fill(double *v, int n, double low, double high) {
  for (int i = 0; i < n; i++) v[i] = draw(low, high);
}

static void fill_ssd(numbers *s) {
  fill(s->v.x, CHANNELS, -1, 1);
  fill(s->v.delta, B * L * H, -2, 1);
  fill(s->v.a, H, -3, 0.5);
  fill(s->v.b, COEFFICIENTS, -1, 1);
  fill(s->v.c, COEFFICIENTS, -1, 1);
  fill(s->v.d, H, -1, 1);
  fill(s->v.bias, H, -1, 1);
  fill(s->v.h0, STATE, -1, 1);
  fill(s->g.y, CHANNELS, -1, 1);
  fill(s->g.h_last, STATE, -1, 1);
  for (int i = 0; i < B * L; i++) s->seq_idx[i] = i % L / 70;
}

/* The same for scan: what a head has is repeated over its P channels (and N states). Axes (B, L, D) stay as they lie.
 */
static void repeat_heads(const numbers *s, numbers *scan) {
  *scan = *s;
  for (int i = 0; i < CHANNELS; i++) scan->v.delta[i] = s->v.delta[i / P];
  for (int i = 0; i < D * N; i++) scan->v.a[i] = s->v.a[i / (P * N)];
  for (int i = 0; i < D; i++) scan->v.d[i] = s->v.d[i / P], scan->v.bias[i] = s->v.bias[i / P];
}

/* .. whose gradients are summed over them */
static void sum_heads(const tensors *scan, tensors *s) {
  *s = *scan;
  memset(s->delta, 0, sizeof s->delta);
  memset(s->a, 0, sizeof s->a);
  memset(s->d, 0, sizeof s->d);
  memset(s->bias, 0, sizeof s->bias);
  for (int i = 0; i < CHANNELS; i++) s->delta[i / P] += scan->delta[i];
  for (int i = 0; i < D * N; i++) s->a[i / (P * N)] += scan->a[i];
  for (int i = 0; i < D; i++) s->d[i / P] += scan->d[i], s->bias[i / P] += scan->bias[i];
}

static ambi_tensor strided(int ndim, const int64_t *shape, const int64_t *stride) {
  ambi_tensor t = ambi_dense(AMBI_F64, ndim, shape);
  memcpy(t.stride, stride, (size_t)ndim * sizeof *stride);
  return t;
}

static ambi_op scan_op(void) {
  ambi_op op = {.kind = AMBI_SELECTIVE_SCAN, .u.selective_scan = {.softplus = 1, .a_log = 1}};
  op.t[AMBI_SCAN_U] = strided(3, (int64_t[]){B, D, L}, (int64_t[]){L * D, 1, D});
  op.t[AMBI_SCAN_DELTA] = op.t[AMBI_SCAN_Y] = op.t[AMBI_SCAN_U];
  op.t[AMBI_SCAN_A] = ambi_dense(AMBI_F64, 2, (int64_t[]){D, N});
  op.t[AMBI_SCAN_B] = strided(4, (int64_t[]){B, G, N, L}, (int64_t[]){L * G * N, N, 1, G * N});
  op.t[AMBI_SCAN_C] = op.t[AMBI_SCAN_B];
  op.t[AMBI_SCAN_D] = op.t[AMBI_SCAN_DELTA_BIAS] = ambi_dense(AMBI_F64, 1, (int64_t[]){D});
  op.t[AMBI_SCAN_H0] = op.t[AMBI_SCAN_H_LAST] = ambi_dense(AMBI_F64, 3, (int64_t[]){B, D, N});
  op.t[AMBI_SCAN_SEQ_IDX] = ambi_dense(AMBI_I32, 2, (int64_t[]){B, L});
  return op;
}

static ambi_op ssd_op(void) {
  ambi_op op = {.kind = AMBI_SSD, .u.ssd = {.softplus = 1, .a_log = 1}};
  op.t[AMBI_SSD_X] = op.t[AMBI_SSD_Y] = ambi_dense(AMBI_F64, 4, (int64_t[]){B, L, H, P});
  op.t[AMBI_SSD_DELTA] = ambi_dense(AMBI_F64, 3, (int64_t[]){B, L, H});
  op.t[AMBI_SSD_A] = op.t[AMBI_SSD_D] = op.t[AMBI_SSD_DELTA_BIAS] = ambi_dense(AMBI_F64, 1, (int64_t[]){H});
  op.t[AMBI_SSD_B] = op.t[AMBI_SSD_C] = ambi_dense(AMBI_F64, 4, (int64_t[]){B, L, G, N});
  op.t[AMBI_SSD_H0] = op.t[AMBI_SSD_H_LAST] = ambi_dense(AMBI_F64, 4, (int64_t[]){B, H, P, N});
  op.t[AMBI_SSD_SEQ_IDX] = ambi_dense(AMBI_I32, 2, (int64_t[]){B, L});
  return op;
}

/* The slot of each array of `tensors`, in its order */
static const int scan_slots[] = {AMBI_SCAN_U, AMBI_SCAN_DELTA,      AMBI_SCAN_A,  AMBI_SCAN_B, AMBI_SCAN_C,
                                 AMBI_SCAN_D, AMBI_SCAN_DELTA_BIAS, AMBI_SCAN_H0, AMBI_SCAN_Y, AMBI_SCAN_H_LAST};
static const int ssd_slots[] = {AMBI_SSD_X, AMBI_SSD_DELTA,      AMBI_SSD_A,  AMBI_SSD_B, AMBI_SSD_C,
                                AMBI_SSD_D, AMBI_SSD_DELTA_BIAS, AMBI_SSD_H0, AMBI_SSD_Y, AMBI_SSD_H_LAST};
static const char *const names[] = {"x", "delta", "a", "b", "c", "d", "delta_bias", "h0", "y", "h_last"};
enum { ARRAYS = sizeof names / sizeof *names };

static double *array(tensors *t, int i) {
  double *const all[ARRAYS] = {t->x, t->delta, t->a, t->b, t->c, t->d, t->bias, t->h0, t->y, t->h_last};
  return all[i];
}

static const size_t bytes[ARRAYS] = {
    sizeof(double[CHANNELS]),     sizeof(double[CHANNELS]), sizeof(double[D * N]), sizeof(double[COEFFICIENTS]),
    sizeof(double[COEFFICIENTS]), sizeof(double[D]),        sizeof(double[D]),     sizeof(double[STATE]),
    sizeof(double[CHANNELS]),     sizeof(double[STATE])};

static void run(ambi_device *dev, ambi_op op, const int *slot, numbers *s) {
  host_slot host[AMBI_SLOTS] = {0};
  host[op.kind == AMBI_SSD ? AMBI_SSD_SEQ_IDX : AMBI_SCAN_SEQ_IDX] = (host_slot){s->seq_idx, sizeof s->seq_idx};
  for (int i = 0; i < ARRAYS; i++) {
    host[slot[i]] = (host_slot){array(&s->v, i), bytes[i]};
    host[AMBI_GRAD(slot[i])] = (host_slot){array(&s->g, i), bytes[i]};
  }
  const int h_last = slot[ARRAYS - 1];
  for (int pass = AMBI_FORWARD; pass <= AMBI_BACKWARD; pass++) {
    op.pass = (ambi_pass)pass;
    if (pass == AMBI_BACKWARD) op.grad[h_last] = op.t[h_last];
    slots_run(dev, &op, host);
  }
}

/* Sums of at most L P N terms of size 1, and h decays: 1e-11 is far above rounding and far below any error of formula
 */
static void compare(const char *device, const char *what, int i, double *got, double *want, int n) {
  for (int k = 0; k < n; k++)
    if (!CHECK(fabs(got[k] - want[k]) <= 1e-11 * (1 + fabs(want[k])), "%s: %s%s[%d] = %.15g, selective_scan %.15g",
               device, what, names[i], k, got[k], want[k]))
      return;
}

static void test_device(ambi_device *dev, const char *name) {
  static const int sizes[ARRAYS] = {CHANNELS, B * L * H, H, COEFFICIENTS, COEFFICIENTS, H, H, STATE, CHANNELS, STATE};
  static numbers s, scan;
  static tensors summed;
  fill_ssd(&s);
  repeat_heads(&s, &scan);
  run(dev, ssd_op(), ssd_slots, &s);
  run(dev, scan_op(), scan_slots, &scan);
  sum_heads(&scan.g, &summed);
  for (int i = 0; i < ARRAYS; i++) {
    if (i >= ARRAYS - 2)
      compare(name, "", i, array(&s.v, i), array(&scan.v, i), sizes[i]);
    else
      compare(name, "d", i, array(&s.g, i), array(&summed, i), sizes[i]);
  }
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
