/* test_cuda_blas.c -- what ambi tells cuBLASLt: matrices dense along either axis, padded or not, with and without a
 * bias, added to or not, with db in the epilogue of dW, wherever the workspace lies; and what it keeps from it.
 * cuBLASLt is a stand-in (fakecuda/blas.c).
 *
 * Values are small whole numbers, so that every sum is exact. */
#include <dlfcn.h>
#include <stdlib.h>

#include "test.h"

enum { X = AMBI_LINEAR_X, W = AMBI_LINEAR_W, B = AMBI_LINEAR_B, Y = AMBI_LINEAR_Y };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DY = AMBI_GRAD(Y) };
enum { ROOM = 1024, NOTHING = 99 }; /* floats of every slot; what they hold where nothing was written */
enum { WORK_ROOM = 1 << 16 };       /* bytes */

typedef enum { DENSE, PADDED, COLUMNS, PADDED_COLUMNS, SPREAD, LAYOUTS } layout; /* SPREAD: dense along no axis */

static ambi_tensor matrix(layout how, int64_t rows, int64_t cols) {
  ambi_tensor t = ambi_dense(AMBI_F32, 2, (int64_t[]){rows, cols});
  const int64_t strides[LAYOUTS][2] = {[DENSE] = {cols, 1},
                                       [PADDED] = {cols + 3, 1},
                                       [COLUMNS] = {1, rows},
                                       [PADDED_COLUMNS] = {1, rows + 3},
                                       [SPREAD] = {2 * cols + 1, 2}};
  memcpy(t.stride, strides[how], sizeof strides[how]);
  return t;
}

/* ---- a device, its memory and the stand-in ---- */
static ambi_device *dev;
static ambi_stream *stream;
static ambi_buf memory[AMBI_SLOTS], workspace;
static int (*blas_calls)(void), (*blas_sums)(void), (*blas_live)(void);
static void (*blas_refuse_sums)(bool yes);
static void (*blas_fail)(const char *function, int status);

/* isa: "special" for the epilogue at every size, "" where it pays only */
static bool open_all(const char *isa) {
  setenv("AMBI_CUDA_LIBRARIES", LIBRARIES "/libraries-blas", 1);
  void *blas = dlopen(LIBRARIES "/libraries-blas/libcublasLt.so", RTLD_NOW | RTLD_LOCAL);
  if (!CHECK(blas != NULL, "there is a stand-in for cuBLASLt")) return false;
  *(void **)&blas_calls = dlsym(blas, "fakeblas_calls");
  *(void **)&blas_sums = dlsym(blas, "fakeblas_sums");
  *(void **)&blas_refuse_sums = dlsym(blas, "fakeblas_refuse_sums");
  *(void **)&blas_fail = dlsym(blas, "fakeblas_fail");
  *(void **)&blas_live = dlsym(blas, "fakeblas_live");
  bool ok = CHECK_OK(ambi_device_open("cuda", &(ambi_device_options){.cache_dir = "", .max_isa = isa}, &dev)) &&
            CHECK_OK(ambi_stream_create(dev, NULL, &stream)) && CHECK_OK(ambi_alloc(dev, WORK_ROOM, &workspace));
  for (int s = 0; s < AMBI_SLOTS && ok; s++) ok = CHECK_OK(ambi_alloc(dev, ROOM * sizeof(float), &memory[s]));
  return ok;
}

static void close_all(void) {
  for (int s = 0; s < AMBI_SLOTS; s++) ambi_free(dev, memory[s]);
  ambi_free(dev, workspace);
  ambi_stream_destroy(stream);
  ambi_device_close(dev);
  CHECK(blas_live() == 0, "%d objects of cuBLASLt are left", blas_live());
}

/* ---- one product ---- */
typedef struct {
  int64_t M, N, K;
  int c; /* Y, DX or DW: the slot that is written */
  layout a, b, to;
  bool bias, adds;
  int64_t skew; /* floats that every slot begins late */
  bool db;      /* DW: with db */
  bool adds_db;
  int64_t skew_db, stride_db; /* of DB alone; stride 0: dense */
  bool epilogue;              /* db is to come from there */
  uint64_t late;              /* bytes that the workspace begins after a multiple of 256 */
} trial;

static float value(int slot, int64_t i, int64_t j) { return (float)((slot * 5 + i * 7 + j * 3) % 5 - 2); }

static ambi_op op_of(const trial *t) {
  ambi_op op = {.kind = AMBI_LINEAR, .pass = t->c == Y ? AMBI_FORWARD : AMBI_BACKWARD};
  op.t[X] = matrix(t->c == Y ? t->a : t->c == DW ? t->b : DENSE, t->M, t->K);
  op.t[W] = matrix(t->c == Y || t->c == DX ? t->b : DENSE, t->N, t->K);
  op.t[Y] = matrix(t->c == Y ? t->to : t->a, t->M, t->N);
  if (t->bias) op.t[B] = ambi_dense(AMBI_F32, 1, &t->N);
  if (t->c == Y) return op;
  op.want = AMBI_BIT(t->c - AMBI_MAX_PRIMALS);
  op.accumulate = t->adds ? op.want : 0;
  op.grad[Y] = op.t[Y];
  if (t->c == DX) op.grad[X] = matrix(t->to, t->M, t->K);
  if (t->c == DW) op.grad[W] = matrix(t->to, t->N, t->K);
  if (!t->db) return op;
  op.t[B] = op.grad[B] = ambi_dense(AMBI_F32, 1, &t->N);
  if (t->stride_db) op.grad[B].stride[0] = t->stride_db;
  op.want |= AMBI_BIT(B);
  op.accumulate |= t->adds_db ? AMBI_BIT(B) : 0;
  return op;
}

static float expected(const trial *t, int slot, int64_t i, int64_t j) {
  if (slot == DB) {
    float db = t->adds_db ? value(DB, i, 0) : 0;
    for (int64_t m = 0; m < t->M; m++) db += value(DY, m, i);
    return db;
  }
  float sum = t->adds ? value(t->c, i, j) : t->bias && t->c == Y ? value(B, j, 0) : 0;
  if (t->c == Y)
    for (int64_t k = 0; k < t->K; k++) sum += value(X, i, k) * value(W, j, k);
  if (t->c == DX)
    for (int64_t n = 0; n < t->N; n++) sum += value(DY, i, n) * value(W, n, j);
  if (t->c == DW)
    for (int64_t m = 0; m < t->M; m++) sum += value(DY, m, i) * value(X, m, j);
  return sum;
}

static ambi_buf place(const trial *t, int slot) {
  ambi_buf b = memory[slot];
  b.offset += (uint64_t)(t->skew + (slot == DB ? t->skew_db : 0)) * sizeof(float);
  return b;
}

static void fill(const trial *t, int slot, const ambi_tensor *x, bool known) {
  float data[ROOM];
  for (int i = 0; i < ROOM; i++) data[i] = NOTHING;
  for (int64_t i = 0; i < x->shape[0] && known; i++)
    for (int64_t j = 0; j < (x->ndim > 1 ? x->shape[1] : 1); j++)
      data[i * x->stride[0] + (x->ndim > 1 ? j * x->stride[1] : 0)] = value(slot, i, j);
  CHECK_OK(ambi_upload(stream, place(t, slot), data, (ROOM - 8) * sizeof(float)));
  CHECK_OK(ambi_stream_wait(stream));
}

/* Elements are as expected, and nothing between them was touched. */
static void compare(const trial *t, int slot, const ambi_tensor *c) {
  float data[ROOM];
  int wrong = 0, elements = 0, untouched = 0;
  CHECK_OK(ambi_download(stream, data, place(t, slot), (ROOM - 8) * sizeof(float)));
  CHECK_OK(ambi_stream_wait(stream));
  for (int64_t i = 0; i < c->shape[0]; i++)
    for (int64_t j = 0; j < (c->ndim > 1 ? c->shape[1] : 1); j++, elements++) {
      float *at = &data[i * c->stride[0] + (c->ndim > 1 ? j * c->stride[1] : 0)];
      wrong += *at != expected(t, slot, i, j);
      *at = NOTHING;
    }
  for (int i = 0; i < ROOM - 8; i++) untouched += data[i] == NOTHING;
  CHECK(wrong == 0 && untouched == ROOM - 8,
        "slot %d, %d x %d x %d, layouts %d %d %d, bias %d, adds %d, skew %d: %d of %d are wrong, %d strays", slot,
        (int)t->M, (int)t->N, (int)t->K, t->a, t->b, t->to, t->bias, t->adds, (int)t->skew, wrong, elements,
        ROOM - 8 - untouched);
}

/* ---- the workspace ---- */
static ambi_buf place_workspace(const trial *t) {
  static unsigned char data[WORK_ROOM];
  memset(data, NOTHING, sizeof data);
  CHECK_OK(ambi_upload(stream, workspace, data, sizeof data));
  CHECK_OK(ambi_stream_wait(stream));
  return (ambi_buf){workspace.data, workspace.offset + t->late};
}

static void compare_workspace(const trial *t, uint64_t bytes) {
  static unsigned char data[WORK_ROOM];
  int strays = 0;
  CHECK_OK(ambi_download(stream, data, workspace, sizeof data));
  CHECK_OK(ambi_stream_wait(stream));
  for (uint64_t i = 0; i < sizeof data; i++) strays += (i < t->late || i >= t->late + bytes) && data[i] != NOTHING;
  CHECK(strays == 0, "slot %d: %d bytes beside a workspace of %d at %d were written", t->c, strays, (int)bytes,
        (int)t->late);
}

static void run(const trial *t, bool by_blas) {
  ambi_op op = op_of(t);
  ambi_plan *plan = NULL;
  ambi_buf slots[AMBI_SLOTS] = {{0}};
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  ambi_plan_info info;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  for (int s = 0; s < AMBI_SLOTS; s++) {
    ambi_tensor x = ambi_plan_tensor(plan, s);
    slots[s] = place(t, s);
    if (x.dtype != AMBI_NONE) fill(t, s, &x, (info.reads & AMBI_BIT(s)) || (s == DB ? t->adds_db : t->adds));
  }
  int before = blas_calls(), sums = blas_sums();
  CHECK_OK(ambi_run(plan, stream, slots, AMBI_SLOTS, place_workspace(t)));
  CHECK(blas_calls() - before == by_blas, "slot %d, layouts %d %d %d: %d calls of cuBLASLt instead of %d", t->c, t->a,
        t->b, t->to, blas_calls() - before, by_blas);
  CHECK(blas_sums() - sums == t->epilogue, "layouts %d %d %d: db %s", t->a, t->b, t->to,
        t->epilogue ? "is not from the epilogue" : "was not to come from the epilogue");
  ambi_tensor c = ambi_plan_tensor(plan, t->c), db = ambi_plan_tensor(plan, DB);
  compare(t, t->c, &c);
  if (t->db) compare(t, DB, &db);
  compare_workspace(t, info.workspace);
  ambi_plan_destroy(plan);
}

/* ---- many ---- */
/* Every layout, in turn spread out, which is not for cuBLASLt; nor is a bias across columns. */
static void test_layouts(int c) {
  for (int i = 0; i < LAYOUTS * LAYOUTS * LAYOUTS; i++)
    for (int more = 0; more < 2; more++) {
      trial t = {.M = 5, .N = 6, .K = 7, .c = c};
      t.a = (layout)(i % LAYOUTS), t.b = (layout)(i / LAYOUTS % LAYOUTS), t.to = (layout)(i / LAYOUTS / LAYOUTS);
      t.bias = c == Y && more, t.adds = c != Y && more;
      bool dense = t.a != SPREAD && t.b != SPREAD && t.to != SPREAD;
      run(&t, dense && !(t.bias && t.to >= COLUMNS));
    }
}

static void test_sizes(int c) {
  static const int64_t sizes[][3] = {{1, 1, 1}, {1, 6, 7}, {5, 1, 7}, {5, 6, 1}, {1, 1, 9}, {9, 1, 1}, {1, 9, 1}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (layout how = DENSE; how < SPREAD; how++) {
      trial t = {.M = sizes[i][0], .N = sizes[i][1], .K = sizes[i][2], .c = c, .a = how, .b = how};
      run(&t, true);
    }
}

static void test_misaligned(void) {
  for (int64_t skew = 0; skew <= 4; skew++)
    for (int i = 0; i < 3; i++) {
      trial t = {.M = 5, .N = 6, .K = 7, .c = (const int[]){Y, DX, DW}[i], .skew = skew};
      run(&t, skew % 4 == 0);
    }
}

/* Workspaces are multiples of 64, cuBLASLt's of 256. */
static void test_workspaces(bool epilogue) {
  for (uint64_t late = 0; late < 256; late += 64)
    for (int i = 0; i < 3; i++) {
      trial t = {.M = 5, .N = 6, .K = 7, .c = (const int[]){Y, DX, DW}[i], .late = late};
      t.db = t.c == DW, t.epilogue = t.db && epilogue;
      run(&t, true);
    }
}

/* ---- db in the epilogue of dW ---- */
/* In every layout of dy, x and dW that cuBLASLt takes: as A's sums or as B's. */
static void test_db_layouts(void) {
  for (int i = 0; i < LAYOUTS * LAYOUTS * LAYOUTS; i++) {
    trial t = {.M = 5, .N = 6, .K = 7, .c = DW, .db = true, .adds = i % 2};
    t.a = (layout)(i % LAYOUTS), t.b = (layout)(i / LAYOUTS % LAYOUTS), t.to = (layout)(i / LAYOUTS / LAYOUTS);
    t.epilogue = t.a != SPREAD && t.b != SPREAD && t.to != SPREAD;
    run(&t, t.epilogue);
  }
}

/* What else there is to it: dW stays cuBLASLt's where only db is not for it. */
static void test_db_alone(void) {
  const trial usual = {.M = 5, .N = 6, .K = 7, .c = DW, .db = true};
  trial t = usual;
  t.adds_db = true;
  run(&t, true);
  t = usual, t.stride_db = 2;
  run(&t, true);
  t = usual, t.M = 1;
  run(&t, true);
  for (int64_t skew = 0; skew <= 4; skew++) {
    t = usual, t.skew_db = skew, t.epilogue = skew % 4 == 0;
    run(&t, true);
    t = usual, t.skew = skew, t.epilogue = skew % 4 == 0;
    run(&t, skew % 4 == 0);
  }
  blas_refuse_sums(true);
  CHECK_STATUS(ambi_run(NULL, stream, NULL, 0, workspace), AMBI_INVALID, "plan is NULL");
  run(&usual, true);
  CHECK(strstr(ambi_error(), "plan is NULL"), "a plan that works has left a sentence: %s", ambi_error());
  blas_refuse_sums(false);
}

static void test_db_name(bool epilogue) {
  ambi_op op = op_of(&(trial){.M = 5, .N = 6, .K = 7, .c = DW, .db = true});
  ambi_plan *plan = NULL;
  ambi_plan_info info;
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  CHECK((strstr(info.kernel, "cuBLASLt, db in its epilogue") != NULL) == epilogue, "the kernel is %s", info.kernel);
  ambi_plan_destroy(plan);
}

/* Small: the epilogue does not pay. */
static void test_db_small(void) {
  const trial small = {.M = 5, .N = 6, .K = 7, .c = DW, .db = true};
  run(&small, true);
  test_db_name(false);
}

/* ---- which of the two: ambi's own text where lines of 16 bits begin at odd places, and products are large ---- */
static void test_choice(int64_t M, int64_t N, int64_t K, ambi_dtype dtype, const char *named) {
  ambi_op op = {.kind = AMBI_LINEAR};
  ambi_plan *plan = NULL;
  ambi_plan_info info;
  op.t[X] = ambi_dense(dtype, 2, (int64_t[]){M, K});
  op.t[W] = ambi_dense(dtype, 2, (int64_t[]){N, K});
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  CHECK_OK(ambi_plan_get_info(plan, &info));
  CHECK(strstr(info.kernel, named) != NULL, "%s of %d x %d x %d, not by %s", info.kernel, (int)M, (int)N, (int)K,
        named);
  const uint64_t packed = 2 * (uint64_t)(M + N) * (uint64_t)((K + 7) / 8 * 8);
  CHECK(strcmp(named, "gemm90") || K % 8 == 0 || info.workspace >= packed, "%d bytes for factors of %d",
        (int)info.workspace, (int)packed);
  ambi_plan_destroy(plan);
}

static void test_choices(void) {
  test_choice(4096, 2048, 2048, AMBI_BF16, "cuBLASLt");
  test_choice(4096, 2048, 2050, AMBI_BF16, "cuBLASLt"); /* even */
  test_choice(4096, 2048, 2049, AMBI_BF16, "gemm90");
  test_choice(4096, 2049, 2048, AMBI_F16, "gemm90");   /* y's lines */
  test_choice(4096, 2048, 2049, AMBI_F32, "cuBLASLt"); /* no 16 bits */
  test_choice(409, 205, 2049, AMBI_BF16, "cuBLASLt");  /* small */
}

/* ---- errors ---- */
/* The first call that fails is the one that is named; whether the context is lost, the driver is asked. */
static void test_errors(void) {
  enum { ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };
  static const char product[] = "a product of 5 x 6 x 7";
  ambi_op op = op_of(&(trial){.M = 5, .N = 6, .K = 7, .c = Y, .bias = true});
  ambi_plan *plan = NULL;
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  blas_fail("cublasLtMatmul", EXECUTION_FAILED);
  setenv("FAKECUDA_FAIL", "cuStreamQuery:1:214", 1);
  CHECK_STATUS(ambi_run(plan, stream, memory, AMBI_SLOTS, workspace), AMBI_DEVICE_LOST, product,
               "cublasLtMatmul failed with status 13", "214", "lost", "open it again");
  unsetenv("FAKECUDA_FAIL");
  blas_fail("cublasLtMatmul", EXECUTION_FAILED);
  CHECK_STATUS(ambi_run(plan, stream, memory, AMBI_SLOTS, workspace), AMBI_INVALID, product, "status 13");
  CHECK(!strstr(ambi_error(), "lost"), "a context that is not lost: %s", ambi_error());
  blas_fail("cublasLtMatmul", INVALID_VALUE);
  CHECK_STATUS(ambi_run(plan, stream, memory, AMBI_SLOTS, workspace), AMBI_INVALID, product, "status 7");
  blas_fail("cublasLtMatmulDescInit_internal", ALLOC_FAILED);
  CHECK_STATUS(ambi_run(plan, stream, memory, AMBI_SLOTS, workspace), AMBI_NO_MEMORY, product,
               "cublasLtMatmulDescInit_internal failed with status 3");
  blas_fail("cublasLtMatmulDescSetAttribute", EXECUTION_FAILED);
  CHECK_STATUS(ambi_run(plan, stream, memory, AMBI_SLOTS, workspace), AMBI_INVALID,
               "cublasLtMatmulDescSetAttribute failed with status 13");
  blas_fail(NULL, 0);
  CHECK_OK(ambi_run(plan, stream, memory, AMBI_SLOTS, workspace));
  ambi_plan_destroy(plan);
}

int main(void) {
  if (open_all("")) {
    for (int i = 0; i < 3; i++) {
      test_layouts((const int[]){Y, DX, DW}[i]);
      test_sizes((const int[]){Y, DX, DW}[i]);
    }
    test_misaligned();
    test_workspaces(false);
    test_db_small();
    test_choices();
    test_errors();
    close_all();
  }
  if (open_all("special")) {
    test_workspaces(true);
    test_db_layouts();
    test_db_alone();
    test_db_name(true);
    close_all();
  }
  return test_done();
}
