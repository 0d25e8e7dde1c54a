/* first.c -- RMSNorm, forwards and backwards.    cc first.c $(pkg-config --cflags --libs ambi) */
#include <ambi/ambi.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call) ((call) == AMBI_OK ? (void)0 : (fprintf(stderr, "%s\n", ambi_error()), exit(1)))

int main(void) {
  float x[2][4] = {{1, 2, 3, 4}, {-1, 0, 1, 0}}, w[4] = {1, 1, 2, 2}, y[2][4];
  float dy[2][4] = {{1, 0, 0, 0}, {0, 0, 1, 0}}, dx[2][4], dw[4];
  ambi_device *dev;
  ambi_plan *forward, *backward;
  ambi_plan_info info;
  ambi_buf workspace = {0}, slots[AMBI_SLOTS] = {{0}};

  ambi_op op = {.kind = AMBI_RMSNORM};
  op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_F32, 2, (int64_t[]){2, 4});
  op.t[AMBI_RMSNORM_W] = ambi_dense(AMBI_F32, 1, (int64_t[]){4});
  TRY(ambi_device_open("cpu", NULL, &dev));
  TRY(ambi_plan_create(dev, &op, &forward));
  op.pass = AMBI_BACKWARD;
  TRY(ambi_plan_create(dev, &op, &backward));
  TRY(ambi_plan_get_info(backward, &info));
  TRY(ambi_alloc(dev, info.workspace, &workspace));

  slots[AMBI_RMSNORM_X].data = x, slots[AMBI_RMSNORM_W].data = w, slots[AMBI_RMSNORM_Y].data = y;
  slots[AMBI_GRAD(AMBI_RMSNORM_Y)].data = dy;
  slots[AMBI_GRAD(AMBI_RMSNORM_X)].data = dx, slots[AMBI_GRAD(AMBI_RMSNORM_W)].data = dw;
  TRY(ambi_run(forward, NULL, slots, AMBI_SLOTS, (ambi_buf){0}));
  TRY(ambi_run(backward, NULL, slots, AMBI_SLOTS, workspace));

  for (int i = 0; i < 2; i++) printf("y  %9.6f %9.6f %9.6f %9.6f\n", y[i][0], y[i][1], y[i][2], y[i][3]);
  for (int i = 0; i < 2; i++) printf("dx %9.6f %9.6f %9.6f %9.6f\n", dx[i][0], dx[i][1], dx[i][2], dx[i][3]);
  printf("dw %9.6f %9.6f %9.6f %9.6f\n", dw[0], dw[1], dw[2], dw[3]);

  ambi_free(dev, workspace);
  ambi_plan_destroy(backward), ambi_plan_destroy(forward);
  ambi_device_close(dev);
  return 0;
}
