/* test_extremes.c -- numbers whose products lose all digits or leave f32's range on the way to a result that is in it;
 * and a gradient that is added to its own source. On every instruction set; `test_extremes DEVICE`: on that. */
#include <math.h>

#include "slots.h"

/* Each array is of so many bytes. */
static void run(ambi_device *dev, const ambi_op *op, void *const data[AMBI_SLOTS], size_t bytes) {
  host_slot host[AMBI_SLOTS];
  for (int s = 0; s < AMBI_SLOTS; s++) host[s] = (host_slot){data[s], bytes};
  slots_run(dev, op, host);
}

/* Equal logits are equally likely, however large; the last of the row is in no whole vector. */
static void equal_logits(ambi_device *dev, const char *name) {
  enum { COLS = 101 };
  static const float values[] = {1e6f, 1e9f, -1e30f, 3e37f};
  for (int i = 0; i < 4; i++)
    for (int log = 0; log < 2; log++) {
      float x[COLS], y[COLS] = {0};
      ambi_op op = {.kind = AMBI_SOFTMAX, .u.softmax = {.scale = 0.1, .log = log}};
      void *host[AMBI_SLOTS] = {[AMBI_SOFTMAX_X] = x, [AMBI_SOFTMAX_Y] = y};
      const double want = log ? -4.61512051684126 : 1.0 / COLS; /* log(1 / 101) */
      int wrong = 0;
      for (int k = 0; k < COLS; k++) x[k] = values[i];
      op.t[AMBI_SOFTMAX_X] = ambi_dense(AMBI_F32, 1, (int64_t[]){COLS});
      run(dev, &op, host, sizeof x);
      for (int k = 0; k < COLS; k++) wrong += !(fabs((double)y[k] / want - 1) < 1e-6);
      CHECK(wrong == 0, "%s, log %d, logits of %g: %d of %d are not %g, as y[0] = %g", name, log, (double)values[i],
            wrong, COLS, want, (double)y[0]);
    }
}

/* dx of rows m times 1 .. 8: that of m = 1 over m, though r^3 is not in f32's range. */
static void far_rows(ambi_device *dev, const char *name) {
  enum { COLS = 8 };
  static const float sizes[] = {1, 1e14f, 1e15f, 1e-14f};
  float first[COLS] = {0};
  for (int i = 0; i < 4; i++) {
    float x[COLS], dy[COLS], dx[COLS] = {0};
    ambi_op op = {.kind = AMBI_RMSNORM, .pass = AMBI_BACKWARD, .u.rmsnorm.eps = 1e-34};
    void *host[AMBI_SLOTS] = {[AMBI_RMSNORM_X] = x, [AMBI_GRAD(AMBI_RMSNORM_Y)] = dy, [AMBI_GRAD(AMBI_RMSNORM_X)] = dx};
    double most = 0;
    for (int k = 0; k < COLS; k++) x[k] = sizes[i] * (float)(k + 1), dy[k] = (float)(1 + k % 3);
    op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_F32, 1, (int64_t[]){COLS});
    run(dev, &op, host, sizeof x);
    if (i == 0) memcpy(first, dx, sizeof dx);
    for (int k = 0; k < COLS; k++) {
      const double off = fabs((double)dx[k] * (double)sizes[i] - (double)first[k]);
      most = off <= most ? most : off; /* NaN too */
    }
    CHECK(most < 1e-6, "%s: dx of rows of %g is off by %g", name, (double)sizes[i], most);
  }
}

/* dx += dy, in one buffer */
static void added_in_place(ambi_device *dev, const char *name) {
  float v[4] = {1, 2, 3, 4};
  ambi_op op = {.kind = AMBI_CAST, .pass = AMBI_BACKWARD, .accumulate = AMBI_BIT(AMBI_CAST_X)};
  void *host[AMBI_SLOTS] = {[AMBI_GRAD(AMBI_CAST_X)] = v, [AMBI_GRAD(AMBI_CAST_Y)] = v};
  op.t[AMBI_CAST_X] = ambi_dense(AMBI_F32, 1, (int64_t[]){4});
  run(dev, &op, host, sizeof v);
  for (int k = 0; k < 4; k++) CHECK(v[k] == 2 * (float)(k + 1), "%s: %d + %d is %g", name, k + 1, k + 1, (double)v[k]);
}

/* silu(p) and its derivative where they leave f32's normal numbers: 0 from p = -87 to -89 on, as the device has it, and
 * until then as exact as p 2^-24 allows. Few channels go by a text that serves all, many by texts for time or channels.
 */
static const float far_below[] = {-80, -86, -87.1f, -88, -88.5f, -89, -100, -1000, -INFINITY, 0, 20, 1000};
enum { PS = sizeof far_below / sizeof *far_below, LENGTH = 256, MOST = 64 * LENGTH };

static void check_far(const char *what, const char *name, float p, float got, double want, bool lost) {
  const double left_out = lost ? 1.5e-36 : 0; /* more than 87.33 2^-126 and, of the derivative, 87 e^-87 */
  CHECK(fabs((double)got - want) <= 1e-5 * fabs(want) + left_out, "%s: %s of %g is %g, not %g", name, what, (double)p,
        (double)got, want);
}

static void far_gates(ambi_device *dev, const char *name, int channels, bool channel_inner) {
  static float x[MOST], w[MOST], y[MOST], dy[MOST], dx[MOST];
  ambi_op op = {.kind = AMBI_CONV1D, .u.conv1d.silu = 1};
  void *host[AMBI_SLOTS] = {[AMBI_CONV1D_X] = x,
                            [AMBI_CONV1D_W] = w,
                            [AMBI_CONV1D_Y] = y,
                            [AMBI_GRAD(AMBI_CONV1D_Y)] = dy,
                            [AMBI_GRAD(AMBI_CONV1D_X)] = dx};
  op.t[AMBI_CONV1D_X] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, channels, LENGTH});
  op.t[AMBI_CONV1D_W] = ambi_dense(AMBI_F32, 2, (int64_t[]){channels, 1});
  if (channel_inner) op.t[AMBI_CONV1D_X].stride[1] = 1, op.t[AMBI_CONV1D_X].stride[2] = channels;
  op.t[AMBI_CONV1D_Y] = op.t[AMBI_CONV1D_X];
  const int step = channel_inner ? channels : 1; /* from one time to the next, in channel 0 */
  for (int i = 0; i < MOST; i++) x[i] = far_below[i / step % PS], w[i] = dy[i] = 1;
  run(dev, &op, host, sizeof x);
  op.pass = AMBI_BACKWARD, op.want = AMBI_BIT(AMBI_CONV1D_X);
  run(dev, &op, host, sizeof x);
  for (int t = 0; t < 2 * PS; t++) {
    const float p = far_below[t % PS];
    const double e = exp(-(double)p), s = 1 / (1 + e), other = p < -700 ? 1 : e * s;
    check_far("silu", name, p, y[t * step], isinf(p) ? 0 : (double)p * s, p < -87);
    check_far("silu'", name, p, dx[t * step], isinf(p) ? 0 : s + (double)p * s * other, p < -87);
  }
}

/* A state that decays at once (A = -inf) is 0 under zero-order hold, for steps that fill a tile and for a few more. */
static void at_once(ambi_device *dev, const char *name) {
  enum { CHANNELS = 32, STATES = 2, STEPS = 301, ALL = CHANNELS * STEPS };
  static float one[ALL], a[CHANNELS * STATES], y[ALL], h[CHANNELS * STATES];
  ambi_op op = {.kind = AMBI_SELECTIVE_SCAN, .u.selective_scan.zoh = 1};
  host_slot host[AMBI_SLOTS] = {
      [AMBI_SCAN_A] = {a, sizeof a}, [AMBI_SCAN_Y] = {y, sizeof y}, [AMBI_SCAN_H_LAST] = {h, sizeof h}};
  for (int i = 0; i < 4; i++)
    host[(const int[]){AMBI_SCAN_U, AMBI_SCAN_DELTA, AMBI_SCAN_B, AMBI_SCAN_C}[i]] = (host_slot){one, sizeof one};
  for (int i = 0; i < ALL; i++) one[i] = 1;
  for (int i = 0; i < CHANNELS * STATES; i++) a[i] = i % STATES ? -1 : -INFINITY;
  op.t[AMBI_SCAN_U] = op.t[AMBI_SCAN_DELTA] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, CHANNELS, STEPS});
  op.t[AMBI_SCAN_A] = ambi_dense(AMBI_F32, 2, (int64_t[]){CHANNELS, STATES});
  op.t[AMBI_SCAN_B] = op.t[AMBI_SCAN_C] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, STATES, STEPS});
  op.t[AMBI_SCAN_H_LAST] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, CHANNELS, STATES});
  slots_run(dev, &op, host);
  double want = 0;
  for (int t = 0; t < STEPS; t++) {
    want = exp(-1) * want - expm1(-1);
    CHECK(fabs((double)y[t] - want) < 1e-5, "%s: y of step %d is %g, not %g", name, t, (double)y[t], want);
  }
  CHECK(fabs((double)h[0]) < 1e-5 && fabs((double)h[1] - want) < 1e-5,
        "%s: the last states are %g and %g, not 0 and %g", name, (double)h[0], (double)h[1], want);
}

/* Constant B and C, both infinite in state 0 of channel 0 alone: that makes no NaN, whatever pads the last steps.
 * (Steps are so short that a state is never quite forgotten: 0 times infinity would be NaN where time is in parts.) */
static void endless(ambi_device *dev, const char *name) {
  enum { CHANNELS = 16, STATES = 4, STEPS = 301, ALL = CHANNELS * STEPS, ROWS = CHANNELS * STATES };
  static float one[ALL], step[ALL], a[ROWS], k[ROWS], y[ALL], h[ROWS], du[ALL], dc[ROWS];
  ambi_op op = {.kind = AMBI_SELECTIVE_SCAN};
  host_slot host[AMBI_SLOTS] = {[AMBI_SCAN_DELTA] = {step, sizeof step},
                                [AMBI_SCAN_A] = {a, sizeof a},
                                [AMBI_SCAN_B] = {k, sizeof k},
                                [AMBI_SCAN_C] = {k, sizeof k},
                                [AMBI_SCAN_Y] = {y, sizeof y},
                                [AMBI_SCAN_H_LAST] = {h, sizeof h},
                                [AMBI_GRAD(AMBI_SCAN_U)] = {du, sizeof du},
                                [AMBI_GRAD(AMBI_SCAN_C)] = {dc, sizeof dc}};
  host[AMBI_SCAN_U] = host[AMBI_GRAD(AMBI_SCAN_Y)] = (host_slot){one, sizeof one};
  for (int i = 0; i < ALL; i++) one[i] = 1, step[i] = 1.0f / 64;
  for (int i = 0; i < ROWS; i++) a[i] = -1, k[i] = i ? 1 : INFINITY;
  op.t[AMBI_SCAN_U] = op.t[AMBI_SCAN_DELTA] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, CHANNELS, STEPS});
  op.t[AMBI_SCAN_A] = op.t[AMBI_SCAN_B] = op.t[AMBI_SCAN_C] = ambi_dense(AMBI_F32, 2, (int64_t[]){CHANNELS, STATES});
  op.t[AMBI_SCAN_H_LAST] = ambi_dense(AMBI_F32, 3, (int64_t[]){1, CHANNELS, STATES});
  slots_run(dev, &op, host);
  CHECK(isinf(h[0]), "%s: the last state is %g where B is infinite", name, (double)h[0]);
  for (int i = 1; i < ROWS; i++) CHECK(isfinite(h[i]) && h[i] > 0, "%s: last state %d is %g", name, i, (double)h[i]);
  op.t[AMBI_SCAN_H_LAST] = (ambi_tensor){0}, host[AMBI_SCAN_H_LAST] = (host_slot){0};
  op.pass = AMBI_BACKWARD, op.want = AMBI_BIT(AMBI_SCAN_U) | AMBI_BIT(AMBI_SCAN_C);
  slots_run(dev, &op, host);
  CHECK(isinf(dc[0]), "%s: dC is %g where B is infinite", name, (double)dc[0]);
  for (int i = 0; i < ALL; i++)
    CHECK(i < STEPS ? isinf(du[i]) : isfinite(du[i]) && du[i] > 0, "%s: du %d of channel %d is %g", name, i % STEPS,
          i / STEPS, (double)du[i]);
}

static void test_device(ambi_device *dev, const char *name) {
  equal_logits(dev, name);
  far_rows(dev, name);
  added_in_place(dev, name);
  far_gates(dev, name, 2, false);
  far_gates(dev, name, 64, false);
  far_gates(dev, name, 64, true);
  at_once(dev, name);
  endless(dev, name);
}

int main(int argc, char **argv) {
  if (argc > 1)
    test_on_texts(argv[1], test_device);
  else
    test_on_isas(1, test_device);
  return test_done();
}
