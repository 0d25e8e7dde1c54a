/* train_mlp.c -- a small network learns y = sin(3 a) b from 512 points: linear, swiglu, linear, AdamW.
 *
 *   u = x W1^T + b1  (N, 2H);   h = v silu(g), v and g the halves of u  (N, H);   y = h W2^T + b2  (N, 1)
 *   loss = mean (y - target)^2;   dy = 2 (y - target) / N
 *
 * On the "cpu" device a buffer is plain memory, so all tensors here are arrays. All parameters lie in one array, and so
 * do their gradients: one run of AdamW moves them all.                cc train_mlp.c $(pkg-config --cflags --libs ambi)
 * -lm */
#include <ambi/ambi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 512, IN = 2, H = 24, STEPS = 400 };

typedef struct {
  float w1[2 * H][IN], b1[2 * H], w2[1][H], b2[1];
} parameters;
enum { COUNT = sizeof(parameters) / sizeof(float) };

static parameters p, dp, m, v;
static float x[N][IN], target[N], u[N][2 * H], h[N][H], y[N];
static float dy[N], dh[N][H], du[N][2 * H];

static void try(ambi_status s) {
  if (s == AMBI_OK) return;
  fprintf(stderr, "%s\n", ambi_error());
  exit(1);
}

/* An op both ways: its plans, the buffers of all its slots, and the workspace. */
typedef struct {
  ambi_plan *forward, *backward;
  ambi_buf slot[AMBI_SLOTS], workspace;
} layer;

static layer make(ambi_device *dev, ambi_op op) {
  layer l = {0};
  ambi_plan_info f, b = {0};
  ambi_op there = op;
  if (ambi_op_get_info(op.kind)->backward) there.want = 0; /* its bits are gradients */
  try(ambi_plan_create(dev, &there, &l.forward));
  try(ambi_plan_get_info(l.forward, &f));
  if (ambi_op_get_info(op.kind)->backward) {
    op.pass = AMBI_BACKWARD;
    try(ambi_plan_create(dev, &op, &l.backward));
    try(ambi_plan_get_info(l.backward, &b));
  }
  try(ambi_alloc(dev, f.workspace > b.workspace ? f.workspace : b.workspace, &l.workspace));
  return l;
}

static void destroy(ambi_device *dev, layer *l) {
  ambi_plan_destroy(l->forward);
  ambi_plan_destroy(l->backward);
  ambi_free(dev, l->workspace);
}

static void forward(const layer *l) { try(ambi_run(l->forward, NULL, l->slot, AMBI_SLOTS, l->workspace)); }
static void backward(const layer *l) { try(ambi_run(l->backward, NULL, l->slot, AMBI_SLOTS, l->workspace)); }

/* A slot's memory and, for the way back, its gradient's. */
static void bind(layer *l, int slot, void *data, void *gradient, uint64_t offset) {
  l->slot[slot] = (ambi_buf){data, offset};
  l->slot[AMBI_GRAD(slot)] = (ambi_buf){gradient, offset};
}

/* `want`: which gradients to write; the network's input needs none. */
static layer linear(ambi_device *dev, int64_t in, int64_t out, uint32_t want) {
  ambi_op op = {.kind = AMBI_LINEAR, .want = want};
  op.t[AMBI_LINEAR_X] = ambi_dense(AMBI_F32, 2, (int64_t[]){N, in});
  op.t[AMBI_LINEAR_W] = ambi_dense(AMBI_F32, 2, (int64_t[]){out, in});
  op.t[AMBI_LINEAR_B] = ambi_dense(AMBI_F32, 1, &out);
  return make(dev, op);
}

/* v and g are the two halves of each row of u: views, not copies. */
static layer swiglu(ambi_device *dev) {
  ambi_tensor packed = ambi_dense(AMBI_F32, 2, (int64_t[]){N, 2 * H});
  uint64_t second;
  ambi_op op = {.kind = AMBI_GATED, .u.gated.gate = AMBI_SWIGLU};
  op.t[AMBI_GATED_V] = ambi_split(&packed, 1, 0, NULL);
  op.t[AMBI_GATED_G] = ambi_split(&packed, 1, 1, &second);
  op.t[AMBI_GATED_Y] = ambi_dense(AMBI_F32, 2, (int64_t[]){N, H});
  layer l = make(dev, op);
  bind(&l, AMBI_GATED_V, u, du, 0);
  bind(&l, AMBI_GATED_G, u, du, second);
  bind(&l, AMBI_GATED_Y, h, dh, 0);
  return l;
}

static layer adamw(ambi_device *dev, float *lr, int64_t *step) {
  ambi_op op = {.kind = AMBI_ADAMW, .want = AMBI_BIT(AMBI_ADAMW_STEP_OUT), .u.adamw.weight_decay = 1e-4};
  for (int s = AMBI_ADAMW_P; s <= AMBI_ADAMW_V; s++) op.t[s] = ambi_dense(AMBI_F32, 1, (int64_t[]){COUNT});
  op.t[AMBI_ADAMW_LR] = ambi_dense(AMBI_F32, 0, NULL);
  op.t[AMBI_ADAMW_STEP] = ambi_dense(AMBI_I64, 0, NULL);
  layer l = make(dev, op);
  void *const data[] = {
      [AMBI_ADAMW_P] = &p,     [AMBI_ADAMW_G] = &dp,     [AMBI_ADAMW_M] = &m,         [AMBI_ADAMW_V] = &v,
      [AMBI_ADAMW_LR] = lr,    [AMBI_ADAMW_STEP] = step, [AMBI_ADAMW_P_OUT] = &p, /* in place */
      [AMBI_ADAMW_M_OUT] = &m, [AMBI_ADAMW_V_OUT] = &v,  [AMBI_ADAMW_STEP_OUT] = step};
  for (int s = 0; s <= AMBI_ADAMW_STEP_OUT; s++) bind(&l, s, data[s], NULL, 0);
  return l;
}

static float uniform(float scale) { return scale * (2 * (float)rand() / (float)RAND_MAX - 1); }

static void initialise(void) {
  srand(1);
  for (int i = 0; i < N; i++) {
    x[i][0] = uniform(1), x[i][1] = uniform(1);
    target[i] = sinf(3 * x[i][0]) * x[i][1];
  }
  float *all = (float *)&p;
  for (int i = 0; i < COUNT; i++) all[i] = uniform(0.4f);
}

static float loss(void) {
  float sum = 0;
  for (int i = 0; i < N; i++) {
    float error = y[i] - target[i];
    sum += error * error / N;
    dy[i] = 2 * error / N;
  }
  return sum;
}

int main(void) {
  ambi_device *dev;
  float lr = 0.02f, first = 0, last = 0;
  int64_t step = 0;
  try(ambi_device_open("cpu", NULL, &dev));
  layer l1 = linear(dev, IN, 2 * H, AMBI_BIT(AMBI_LINEAR_W) | AMBI_BIT(AMBI_LINEAR_B)), act = swiglu(dev);
  layer l2 = linear(dev, H, 1, 0), optimizer = adamw(dev, &lr, &step);
  bind(&l1, AMBI_LINEAR_X, x, NULL, 0);
  bind(&l1, AMBI_LINEAR_W, p.w1, dp.w1, 0);
  bind(&l1, AMBI_LINEAR_B, p.b1, dp.b1, 0);
  bind(&l1, AMBI_LINEAR_Y, u, du, 0);
  bind(&l2, AMBI_LINEAR_X, h, dh, 0);
  bind(&l2, AMBI_LINEAR_W, p.w2, dp.w2, 0);
  bind(&l2, AMBI_LINEAR_B, p.b2, dp.b2, 0);
  bind(&l2, AMBI_LINEAR_Y, y, dy, 0);
  initialise();

  for (int i = 0; i <= STEPS; i++) {
    forward(&l1), forward(&act), forward(&l2);
    last = loss();
    if (i == 0) first = last;
    if (i % 50 == 0) printf("step %3d  loss %.6f\n", i, last);
    backward(&l2), backward(&act), backward(&l1);
    forward(&optimizer);
  }

  destroy(dev, &l1), destroy(dev, &act), destroy(dev, &l2), destroy(dev, &optimizer);
  ambi_device_close(dev);
  return last < first / 50 ? 0 : 1; /* it learned */
}
