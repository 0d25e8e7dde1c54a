/* test_cuda_products.c -- matrix products of 16 bits by ambi's own texts (gemm16.cu, gemm90.cu): factors and results
 * that lie along either axis, padded to even and odd places or reversed, at any address, with a bias, added to, split.
 *
 * Values are small whole numbers, so that every sum is exact; what lies between them, and the workspace, is NaN. */
#include <stdlib.h>

#include "../cli/values.h"
#include "standins.h"
#include "test.h"

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y) };
enum { ROOM = 1 << 20 }; /* bytes of every slot, and of the workspace */

typedef enum { DENSE, PADDED, PADDED_8, COLUMNS, COLUMNS_8, REVERSED, LAYOUTS } layout;

static ambi_tensor matrix(ambi_dtype dtype, layout how, int64_t rows, int64_t cols) {
  ambi_tensor t = ambi_dense(dtype, 2, (int64_t[]){rows, cols});
  const int64_t strides[LAYOUTS][2] = {[DENSE] = {cols, 1},
                                       [PADDED] = {cols + 3, 1},
                                       [PADDED_8] = {cols / 8 * 8 + 16, 1},
                                       [COLUMNS] = {1, rows},
                                       [COLUMNS_8] = {1, rows / 8 * 8 + 16},
                                       [REVERSED] = {-cols - 1, 1}};
  memcpy(t.stride, strides[how], sizeof strides[how]);
  return t;
}

typedef struct {
  int64_t M, N, K;
  int c; /* Y, DX or DW: the slot that is written */
  layout a, b, to;
  ambi_dtype dtype, result;
  bool bias, adds;
  int64_t skew; /* elements that every slot begins late */
} trial;

static ambi_device *dev;
static ambi_stream *stream;
static ambi_buf memory[AMBI_SLOTS], workspace;
static char data[ROOM];

static double value(int slot, int64_t i, int64_t j) { return (double)((slot * 5 + i * 7 + j * 3 + i * j) % 5 - 2); }

static double expected(const trial *t, int64_t i, int64_t j) {
  double sum = (t->adds ? value(t->c, i, j) : 0) + (t->bias ? value(B, j, 0) : 0);
  for (int64_t k = 0; k < t->K && t->c == Y; k++) sum += value(X, i, k) * value(W, j, k);
  for (int64_t n = 0; n < t->N && t->c == DX; n++) sum += value(DY, i, n) * value(W, n, j);
  for (int64_t m = 0; m < t->M && t->c == DW; m++) sum += value(DY, m, i) * value(X, m, j);
  return value_round(t->result, sum);
}

static ambi_op op_of(const trial *t) {
  ambi_op op = {.kind = AMBI_LINEAR, .pass = t->c == Y ? AMBI_FORWARD : AMBI_BACKWARD};
  op.t[X] = matrix(t->dtype, t->c == Y ? t->a : t->c == DW ? t->b : DENSE, t->M, t->K);
  op.t[W] = matrix(t->dtype, t->c == DW ? DENSE : t->b, t->N, t->K);
  op.t[Y] = matrix(t->c == Y ? t->result : t->dtype, t->c == Y ? t->to : DENSE, t->M, t->N);
  if (t->bias) op.t[B] = ambi_dense(t->dtype, 1, &t->N);
  if (t->c == Y) return op;
  op.grad[Y] = matrix(t->dtype, t->a, t->M, t->N);
  op.grad[t->c - AMBI_MAX_PRIMALS] = matrix(t->result, t->to, t->c == DX ? t->M : t->N, t->K);
  op.want = AMBI_BIT(t->c - AMBI_MAX_PRIMALS);
  op.accumulate = t->adds ? op.want : 0;
  return op;
}

/* ---- memory: NaN in all dtypes, but for the elements ---- */
static uint64_t begin_of(const trial *t, const ambi_tensor *x) {
  return (uint64_t)(t->skew * (int64_t)ambi_dtype_size(x->dtype) + values_origin(x));
}
static char *element(const trial *t, const ambi_tensor *x, int64_t i, int64_t j) {
  const int64_t at = i * x->stride[0] + (x->ndim > 1 ? j * x->stride[1] : 0);
  return data + begin_of(t, x) + at * (int64_t)ambi_dtype_size(x->dtype);
}

static ambi_buf fill(const trial *t, int slot, const ambi_tensor *x, bool known) {
  memset(data, 0xff, ROOM);
  for (int64_t i = 0; i < x->shape[0] && known; i++)
    for (int64_t j = 0; j < (x->ndim > 1 ? x->shape[1] : 1); j++)
      value_encode(x->dtype, value(slot, i, j), element(t, x, i, j));
  CHECK_OK(ambi_upload(stream, memory[slot], data, ROOM));
  CHECK_OK(ambi_stream_wait(stream));
  return (ambi_buf){memory[slot].data, memory[slot].offset + begin_of(t, x)};
}

/* Elements are as expected, and nothing between them was touched. */
static void compare(const trial *t, const ambi_tensor *x, const char *kernel) {
  int wrong = 0, strays = 0;
  CHECK_OK(ambi_download(stream, data, memory[t->c], ROOM));
  CHECK_OK(ambi_stream_wait(stream));
  for (int64_t i = 0; i < x->shape[0]; i++)
    for (int64_t j = 0; j < x->shape[1]; j++) {
      wrong += value_decode(x->dtype, element(t, x, i, j)) != expected(t, i, j);
      memset(element(t, x, i, j), 0xff, ambi_dtype_size(x->dtype));
    }
  for (int i = 0; i < ROOM; i++) strays += data[i] != (char)0xff;
  CHECK(wrong == 0 && strays == 0,
        "%s: %d x %d x %d, slot %d, layouts %d %d %d, %s to %s, bias %d, adds %d, skew %d: %d are wrong, %d strays",
        kernel, (int)t->M, (int)t->N, (int)t->K, t->c, t->a, t->b, t->to, ambi_dtype_name(t->dtype),
        ambi_dtype_name(t->result), t->bias, t->adds, (int)t->skew, wrong, strays);
}

static void run(const trial *t, const char *named) {
  const ambi_op op = op_of(t);
  ambi_plan *plan = NULL;
  ambi_plan_info info;
  ambi_buf slots[AMBI_SLOTS] = {{0}};
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  CHECK(strstr(info.kernel, named) && info.workspace <= ROOM, "%s, not %s; a workspace of %d bytes", info.kernel, named,
        (int)info.workspace);
  memset(data, 0xff, ROOM);
  CHECK_OK(ambi_upload(stream, workspace, data, ROOM));
  for (int s = 0; s < AMBI_SLOTS; s++)
    if ((info.reads | info.writes) & AMBI_BIT(s)) {
      const ambi_tensor *x = s < AMBI_MAX_PRIMALS ? &op.t[s] : &op.grad[s - AMBI_MAX_PRIMALS];
      slots[s] = fill(t, s, x, s != t->c || t->adds);
    }
  CHECK_OK(ambi_run(plan, stream, slots, AMBI_SLOTS, workspace));
  compare(t, t->c == Y ? &op.t[Y] : &op.grad[t->c - AMBI_MAX_PRIMALS], info.kernel);
  ambi_plan_destroy(plan);
}

/* Every pair of layouts of the factors; the rest takes turns. */
static void test_layouts(const char *named) {
  static const int64_t sizes[][3] = {{130, 41, 70}, {33, 140, 201}, {7, 9, 1100}, {1, 65, 64}, {70, 1, 129}};
  static const ambi_dtype results[] = {AMBI_BF16, AMBI_F32, AMBI_F16};
  static const int slots[] = {Y, DX, DW};
  for (int i = 0; i < 3 * LAYOUTS * LAYOUTS; i++) {
    const int64_t *s = sizes[i % 5];
    const ambi_dtype dtype = i % 2 ? AMBI_F16 : AMBI_BF16;
    const trial t = {.M = s[0],
                     .N = s[1],
                     .K = s[2],
                     .c = slots[i / LAYOUTS / LAYOUTS],
                     .a = (layout)(i / LAYOUTS % LAYOUTS),
                     .b = (layout)(i % LAYOUTS),
                     .to = (layout)(i % 7 % LAYOUTS),
                     .dtype = dtype,
                     .result = i % 4 < 2 ? dtype : results[i % 3],
                     .bias = i < LAYOUTS * LAYOUTS && i % 3 == 0,
                     .adds = i >= LAYOUTS * LAYOUTS && i % 3 == 0,
                     .skew = i % 4 == 3};
    run(&t, named);
  }
}

/* As a GPU of that compute capability, by the text that it has */
static void test_on_gpu(const char *capability, const char *named) {
  setenv("FAKECUDA_CAPABILITY", capability, 1);
  const ambi_device_options o = {.cache_dir = "", .max_isa = "special"};
  if (!CHECK_OK(ambi_device_open("cuda", &o, &dev))) return;
  bool ok = CHECK_OK(ambi_stream_create(dev, NULL, &stream)) && CHECK_OK(ambi_alloc(dev, ROOM, &workspace));
  for (int s = 0; s < AMBI_SLOTS && ok; s++) ok = CHECK_OK(ambi_alloc(dev, ROOM, &memory[s]));
  if (ok) test_layouts(named);
  for (int s = 0; s < AMBI_SLOTS; s++) ambi_free(dev, memory[s]);
  ambi_free(dev, workspace), ambi_stream_destroy(stream), ambi_device_close(dev);
}

int main(void) {
  if (stand_ins_missing()) return 0;
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries", 1);
  test_on_gpu("90", "gemm90");
  test_on_gpu("86", "gemm16");
  return test_done();
}
