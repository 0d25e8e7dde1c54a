/* test_norm.c -- rows that hold one value: the rounding of their mean must not become a result. On every instruction
 * set; rows of a part of a tile, and of several. And rows of zeros with an eps that f32 has not; `test_norm DEVICE`
 * does that alone. */
#include <stdlib.h>

#include "test.h"

enum { ROWS = 3, MOST = 9000 };

/* y, or dx in backward */
static void run(ambi_device *dev, ambi_pass pass, int64_t cols, const float *x, const float *dy, float *out) {
  ambi_op op = {.kind = AMBI_LAYERNORM, .pass = pass};
  ambi_plan *plan;
  ambi_plan_info info;
  ambi_buf work = {0}, bufs[AMBI_SLOTS] = {0};
  op.t[AMBI_LAYERNORM_X] = ambi_dense(AMBI_F32, 2, (int64_t[]){ROWS, cols});
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  bufs[AMBI_LAYERNORM_X].data = (void *)x, bufs[AMBI_GRAD(AMBI_LAYERNORM_Y)].data = (void *)dy;
  bufs[pass ? AMBI_GRAD(AMBI_LAYERNORM_X) : AMBI_LAYERNORM_Y].data = out;
  ambi_plan_get_info(plan, &info);
  if (info.workspace) CHECK_OK(ambi_alloc(dev, info.workspace, &work));
  CHECK_OK(ambi_run(plan, NULL, bufs, AMBI_SLOTS, work));
  ambi_free(dev, work);
  ambi_plan_destroy(plan);
}

static void flat_rows(ambi_device *dev, const char *name) {
  static const float values[] = {12345.678f, 1000.1f, 100.3f, -0.1f, 3e30f, -7e-20f};
  static const int64_t lengths[] = {1, 2, 7, 33, 1000, 1024, 4096, 4099, MOST};
  float *x = malloc(sizeof(float) * ROWS * MOST), *dy = malloc(sizeof(float) * ROWS * MOST);
  float *y = malloc(sizeof(float) * ROWS * MOST);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
      const int64_t cols = lengths[k];
      int64_t wrong = 0, far = 0;
      for (int64_t j = 0; j < ROWS * cols; j++) {
        x[j] = values[i], y[j] = 1; /* not what is expected */
        dy[j] = (float)(j % cols) - (float)(cols - 1) / 2;
      }
      run(dev, AMBI_FORWARD, cols, x, dy, y);
      for (int64_t j = 0; j < ROWS * cols; j++) wrong += y[j] != 0;
      run(dev, AMBI_BACKWARD, cols, x, dy, y);
      for (int64_t j = 0; j < ROWS * cols; j++) { /* c = 0, mean(dy) = 0: dx = dy / sqrt(eps) */
        const float want = dy[j] * 316.22776f, off = y[j] - want, most = 316.22776f * (float)cols * 1e-5f;
        far += !(off <= most && off >= -most);
      }
      CHECK(wrong == 0 && far == 0, "%s, rows of %lld times %g: %lld values of y are not 0, %lld of dx not dy r", name,
            (long long)cols, (double)values[i], (long long)wrong, (long long)far);
    }
  free(x);
  free(dy);
  free(y);
}

/* y = 0 and r = 1 / sqrt(eps) */
static void zero_rows(ambi_device *dev, const char *name, ambi_kind kind) {
  enum { COLS = 33 };
  const int rms = kind == AMBI_RMSNORM, at_y = rms ? AMBI_RMSNORM_Y : AMBI_LAYERNORM_Y;
  const int at_r = rms ? AMBI_RMSNORM_RSTD : AMBI_LAYERNORM_RSTD;
  float x[ROWS * COLS] = {0}, y[ROWS * COLS], r[ROWS] = {0};
  ambi_op op = {.kind = kind, .want = AMBI_BIT(at_r)};
  ambi_plan *plan;
  ambi_plan_info info;
  ambi_stream *stream;
  ambi_buf work = {0}, bufs[AMBI_SLOTS] = {0};
  *(rms ? &op.u.rmsnorm.eps : &op.u.layernorm.eps) = 1e-46;
  op.t[0] = ambi_dense(AMBI_F32, 2, (int64_t[]){ROWS, COLS});
  if (!CHECK_OK(ambi_stream_create(dev, NULL, &stream)) || !CHECK_OK(ambi_plan_create(dev, &op, &plan)) ||
      !CHECK_OK(ambi_alloc(dev, sizeof x, &bufs[0])) || !CHECK_OK(ambi_alloc(dev, sizeof y, &bufs[at_y])) ||
      !CHECK_OK(ambi_alloc(dev, sizeof r, &bufs[at_r])))
    return;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  if (info.workspace) CHECK_OK(ambi_alloc(dev, info.workspace, &work));
  CHECK_OK(ambi_upload(stream, bufs[0], x, sizeof x));
  CHECK_OK(ambi_run(plan, stream, bufs, AMBI_SLOTS, work));
  CHECK_OK(ambi_download(stream, y, bufs[at_y], sizeof y));
  CHECK_OK(ambi_download(stream, r, bufs[at_r], sizeof r));
  CHECK_OK(ambi_stream_wait(stream));
  for (int i = 0; i < ROWS * COLS; i++) CHECK(y[i] == 0, "%s: y[%d] is %g", name, i, (double)y[i]);
  for (int i = 0; i < ROWS; i++) CHECK(r[i] > 0.999e23f && r[i] < 1.001e23f, "%s: r[%d] is %g", name, i, (double)r[i]);
  for (int s = 0; s < AMBI_SLOTS; s++) ambi_free(dev, bufs[s]);
  ambi_free(dev, work);
  ambi_plan_destroy(plan);
  ambi_stream_destroy(stream);
}

static void test_zeros(ambi_device *dev, const char *name) {
  zero_rows(dev, name, AMBI_RMSNORM);
  zero_rows(dev, name, AMBI_LAYERNORM);
}

static void test_cpu(ambi_device *dev, const char *isa) {
  flat_rows(dev, isa);
  test_zeros(dev, isa);
}

int main(int argc, char **argv) {
  if (argc > 1)
    test_on(argv[1], test_zeros);
  else
    test_on_isas(1, test_cpu);
  return test_done();
}
