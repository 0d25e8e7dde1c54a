/* first.c -- y = x r of one row, through an installed ambi; ends in 0 when it is right. */
#include <ambi/ambi.h>
#include <math.h>
#include <stdio.h>

/* A name that the library uses inside: a static library must not collide with it. */
int fail(void);
int fail(void) { return puts(ambi_error()), 1; }

int main(void) {
  float x[4] = {1, -2, 3, -4}, y[4] = {0};
  const int64_t shape[2] = {1, 4};
  const double r = 1 / sqrt((1 + 4 + 9 + 16) / 4.0 + 1e-6);
  ambi_device *dev = NULL;
  ambi_plan *plan = NULL;
  ambi_op op = {0};
  ambi_buf bufs[AMBI_SLOTS] = {{0}}, none = {0};
  op.kind = AMBI_RMSNORM;
  op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_F32, 2, shape);
  bufs[AMBI_RMSNORM_X].data = x;
  bufs[AMBI_RMSNORM_Y].data = y;
  if (ambi_device_open("cpu", NULL, &dev) != AMBI_OK) return fail();
  if (ambi_plan_create(dev, &op, &plan) != AMBI_OK) return fail();
  if (ambi_run(plan, NULL, bufs, AMBI_SLOTS, none) != AMBI_OK) return fail();
  for (int i = 0; i < 4; i++)
    if (fabs(y[i] - x[i] * r) > 1e-6) return printf("y[%d] = %g, expected %g\n", i, y[i], x[i] * r), 1;
  ambi_plan_destroy(plan);
  ambi_device_close(dev);
  return ambi_version() != AMBI_VERSION;
}
