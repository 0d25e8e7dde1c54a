/* test_misuse.c -- every documented misuse gets its status and a sentence that names the slot, the expected and the
 * actual. Three tables (devices, planning, running), then the generic mistakes on every slot of every op. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "../cli/case.h"
#include "cases.h"
#include "test.h"
#include "work.h"

const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static ambi_device *cpu, *ref;

enum { WORDS = 5 }; /* at most four words of a sentence, and NULL */

/* ---- devices ---- */
static const struct {
  const char *name;
  ambi_device_options o;
  ambi_status status;
  const char *words[WORDS];
} bad_devices[] = {
    {"", {0}, AMBI_NO_DEVICE, {"no device", "cpu", "ref"}},
    {"gpu", {0}, AMBI_NO_DEVICE, {"gpu", "cpu, cuda, ref"}},
    {"cp", {0}, AMBI_NO_DEVICE, {"cp"}},
    {"cpux", {0}, AMBI_NO_DEVICE, {"cpux"}},
    {"CPU", {0}, AMBI_NO_DEVICE, {"CPU"}},
    {":", {0}, AMBI_NO_DEVICE, {":"}},
    {"cpu:1", {0}, AMBI_NO_DEVICE, {"cpu:1", "one cpu device"}},
    {"ref:0", {0}, AMBI_NO_DEVICE, {"ref:0"}},
    {"cpu:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", {0}, AMBI_INVALID, {"name"}},
    {"cpu", {.threads = -1}, AMBI_INVALID, {"threads", "expected", "-1"}},
    {"cpu", {.threads = INT32_MIN}, AMBI_INVALID, {"threads", "-2147483648"}},
    {"cpu", {.threads = 1000000}, AMBI_INVALID, {"threads", "1000000"}},
    {"cpu", {.max_isa = ""}, AMBI_INVALID, {"max_isa", "expected one of"}},
    {"cpu", {.max_isa = "avx9"}, AMBI_INVALID, {"max_isa", "avx9"}},
    {"cpu", {.max_isa = "AVX2"}, AMBI_INVALID, {"max_isa", "AVX2"}},
    {"ref", {.max_isa = "avx2"}, AMBI_INVALID, {"max_isa", "avx2"}},
    {"cpu", {.native = &cpu}, AMBI_INVALID, {"cpu", "native"}},
    {"ref", {.native = &ref}, AMBI_INVALID, {"ref", "native"}},
};

static void test_devices(void) {
  for (size_t i = 0; i < sizeof bad_devices / sizeof *bad_devices; i++) {
    ambi_device *dev = cpu;
    ambi_status s = ambi_device_open(bad_devices[i].name, &bad_devices[i].o, &dev);
    test_status(s, bad_devices[i].status, bad_devices[i].words, __FILE__, __LINE__, bad_devices[i].name);
    if (!CHECK(dev == NULL, "%s: a device that did not open is NULL", bad_devices[i].name)) ambi_device_close(dev);
  }
  ambi_stream *stream = NULL;
  ambi_buf b;
  int native;
  CHECK_STATUS(ambi_stream_create(cpu, &native, &stream), AMBI_INVALID, "native");
  CHECK_STATUS(ambi_stream_create(ref, &native, &stream), AMBI_INVALID, "native");
  CHECK_STATUS(ambi_alloc(cpu, SIZE_MAX, &b), AMBI_INVALID, "overflow");
  CHECK_STATUS(ambi_alloc(cpu, SIZE_MAX / 4, &b), AMBI_NO_MEMORY, "cpu", "bytes");
  CHECK(b.data == NULL, "what was not allocated is NULL");
}

/* ---- planning: the text of a case, the pass, what is to be said ---- */
static const struct {
  const char *text;
  ambi_pass pass;
  const char *words[WORDS];
} bad_plans[] = {
    {"unary x=4x8 y=4x9", 0, {"unary: y:", "(4, 8)", "(4, 9)"}},
    {"unary x=4x8:i32", 0, {"unary: x:", "floating", "i32"}},
    {"unary x=4x8 dx=4x7", 1, {"gradient of x:", "(4, 8)", "(4, 7)"}},
    {"unary x=4x8 y=4x8@1,1", 0, {"unary: y:", "overlap"}},
    {"unary x=4x8 y=4x8@0,1", 0, {"unary: y:", "overlap"}},
    {"gated v=4x8 g=8x4", 0, {"gated: g:", "(4, 8)", "(8, 4)"}},
    {"gated v=4x8", 0, {"gated: g:", "required"}},
    {"gated v=4x8 g=4x8 y=32", 0, {"gated: y:", "(4, 8)", "(32)"}},
    {"add a=4x8", 0, {"add: b:", "required"}},
    {"add a=4x8 b=8", 0, {"add: b:", "(4, 8)", "(8)"}},
    {"cast x=4x8 y=4x8:i32", 0, {"cast: y:", "floating", "i32"}},
    {"cast x=4x8 y=8x4", 0, {"cast: y:", "(4, 8)", "(8, 4)"}},
    {"copy x=4x8:f32 y=4x8:bf16", 0, {"copy: y:", "f32", "bf16"}},
    {"fill value=1", 0, {"fill: y:"}},
    {"fill y=4x8", 1, {"fill", "backward"}},
    {"rmsnorm w=8", 0, {"rmsnorm: x:", "required"}},
    {"rmsnorm x=()", 0, {"rmsnorm: x:", "1 to 8 axes", "got 0"}},
    {"rmsnorm x=4x8 w=7", 0, {"rmsnorm: w:", "(8)", "(7)"}},
    {"rmsnorm x=4x8 w=1x8", 0, {"rmsnorm: w:", "(8)", "(1, 8)"}},
    {"rmsnorm x=4x8 w=8 residual=4x9", 0, {"rmsnorm: residual:", "(4, 8)", "(4, 9)"}},
    {"rmsnorm x=4x8 sum", 0, {"rmsnorm: sum:", "residual"}},
    {"rmsnorm x=4x8 rstd=4x1", 0, {"rmsnorm: rstd:", "(4)", "(4, 1)"}},
    {"rmsnorm x=4x8@8,0", 1, {"gradient of x:", "overlap", "grad[]"}},
    {"rmsnorm x=4x8 w=8 dw=7", 1, {"gradient of w:", "(8)", "(7)"}},
    {"rmsnorm x=4x8 w=8 dw=8:i64", 1, {"gradient of w:", "floating", "i64"}},
    {"rmsnorm x=4x8 dw=8", 1, {"gradient of w:", "not the slot itself"}},
    {"rmsnorm x=4x8 w=8 drstd=4", 1, {"gradient of rstd:", "there is none"}},
    {"rmsnorm x=4x8 eps=-1", 0, {"rmsnorm: eps:", "expected 0 to 1", "-1"}},
    {"rmsnorm x=4x8 eps=2", 0, {"rmsnorm: eps:", "2"}},
    {"rmsnorm x=4x8 eps=nan", 0, {"rmsnorm: eps:", "nan"}},
    {"rmsnorm x=4x8 offset=inf", 0, {"rmsnorm: offset:", "inf"}},
    {"rmsnorm x=4611686018427387904x0", 1, {"rmsnorm: x:", "too many", "2^56"}},
    {"rmsnorm x=2305843009213693952x1:f16@0,0", 0, {"rmsnorm: x:", "too many", "2^56"}},
    {"layernorm x=4x8 w=8 b=9", 0, {"layernorm: b:", "(8)", "(9)"}},
    {"rmsnorm x=4x0 rstd", 0, {"rmsnorm: rstd:", "no elements"}},
    {"layernorm x=4x8 sum", 0, {"layernorm: sum:", "residual"}},
    {"layernorm x=4x0 mean", 0, {"layernorm: mean:", "no elements"}},
    {"layernorm x=4x0 rstd", 0, {"layernorm: rstd:", "no elements"}},
    {"linear x=4x8 w=5x7", 0, {"linear: w:", "8", "7"}},
    {"linear x=4x8 w=8", 0, {"linear: w:", "axes"}},
    {"linear x=4x8", 0, {"linear: w:", "required"}},
    {"linear x=4x8 w=5x8 b=8", 0, {"linear: b:", "(5)", "(8)"}},
    {"linear x=4x8 w=5x8 y=4x8", 0, {"linear: y:", "(4, 5)", "(4, 8)"}},
    {"conv1d x=2x5x9 w=4x3", 0, {"conv1d: w:", "5", "4"}},
    {"conv1d x=2x5 w=5x3", 0, {"conv1d: x:", "axes"}},
    {"conv1d x=2x5x9 w=5x3 b=4", 0, {"conv1d: b:", "(5)", "(4)"}},
    {"conv1d x=2x5x9 w=5x3 x0=2x5x3", 0, {"conv1d: x0:", "(2, 5, 2)", "(2, 5, 3)"}},
    {"selective_scan u=2x4x8 delta=2x4x9 a=4x3 b=2x3x8 c=2x3x8", 0, {"selective_scan: delta:", "(2, 4, 8)"}},
    {"selective_scan u=2x4x8 delta=2x4x8 a=5x3 b=2x3x8 c=2x3x8", 0, {"selective_scan: a:", "4", "5"}},
    {"selective_scan u=2x4x8 delta=2x4x8 a=4x3 b=2x2x8 c=2x3x8", 0, {"selective_scan: b:"}},
    {"selective_scan u=2x4x8 delta=2x4x8 a=4x3 b=2x3x3x8 c=2x3x3x8", 0, {"selective_scan: b:"}},
    {"selective_scan u=2x4x8 delta=2x4x8 a=4x3 b=2x3x8 c=2x3x8 d=3", 0, {"selective_scan: d:", "(4)", "(3)"}},
    {"selective_scan u=2x4x8 delta=2x4x8 a=4x3 b=2x3x8 c=2x3x8 seq_idx=2x8:f32", 0, {"seq_idx:", "integer", "f32"}},
    {"ssd x=2x8x4x3 delta=2x9x4 a=4 b=2x8x1x5 c=2x8x1x5", 0, {"ssd: delta:", "(2, 8, 4)", "(2, 9, 4)"}},
    {"ssd x=2x8x4x3 delta=2x8x4 a=4 b=2x8x3x5 c=2x8x3x5", 0, {"ssd: b:", "3 groups", "divide", "4 heads"}},
    {"ssd x=2x8x4x3 delta=2x8x4 a=4 b=2x8x2x5 c=2x8x1x5", 0, {"ssd: c:", "(2, 8, 2, 5)", "(2, 8, 1, 5)"}},
    {"ssd x=2x8x4 delta=2x8x4 a=4 b=2x8x2x5 c=2x8x2x5", 0, {"ssd: x:", "4 axes", "got 3"}},
    {"ssd x=2x8x4x3 delta=2x8x4 a=4 b=2x8x2x5 c=2x8x2x5 seq_idx=2x8:i64", 0, {"ssd: seq_idx:", "i32", "i64"}},
    {"adamw p=8 g=9 m=8 v=8 lr=1 step=1:i64", 0, {"adamw: g:", "(8)", "(9)"}},
    {"adamw p=8 g=8 m=8 v=8 lr=1 step=1:f32", 0, {"adamw: step:", "integer", "f32"}},
    {"adamw p=8 g=8 m=8 v=8 lr=1 step=1:i64", 1, {"adamw", "backward"}},
    {"attention q=1x4x5x8 k=1x3x5x8 v=1x3x5x8", 0, {"attention: k:", "3 heads", "divide", "4"}},
    {"attention q=1x4x5x8 k=1x2x5x7 v=1x2x5x7", 0, {"attention: k:", "(1, 2, 5, 8)", "(1, 2, 5, 7)"}},
    {"attention q=1x4x5x8 k=1x2x6x8 v=1x2x5x8", 0, {"attention: v:", "(1, 2, 6, 8)", "(1, 2, 5, 8)"}},
    {"attention q=4x5x8 k=4x5x8 v=4x5x8", 0, {"attention: q:", "4 axes", "got 3"}},
    {"attention q=2x4x5x8 k=2x4x5x8 v=2x4x5x8 lengths=3", 0, {"attention: lengths:", "(2)", "(3)"}},
    {"attention q=2x4x5x8 k=2x4x5x8 v=2x4x5x8 lengths=2:f32", 0, {"attention: lengths:", "integer", "f32"}},
    {"attention q=2x4x5x8 k=2x4x5x8 v=2x4x5x8 lse=2x4", 0, {"attention: lse:", "(2, 4, 5)", "(2, 4)"}},
    {"attention q=2x4x5x8 k=2x4x5x8 v=2x4x5x8 window=-1", 0, {"attention: window:", "-1"}},
    {"attention q=2x4x5x8 k=2x4x5x8 v=2x4x5x8 softcap=-1", 0, {"attention: softcap:", "-1"}},
    {"embedding tokens=4:f32 w=5x8", 0, {"embedding: tokens:", "integer", "f32"}},
    {"embedding tokens=4 w=8", 0, {"embedding: w:", "2 axes", "got 1"}},
    {"embedding tokens=4 w=5x8 y=5x8", 0, {"embedding: y:", "(4, 8)", "(5, 8)"}},
    {"embedding tokens=1x1x1x1x1x1x1x4 w=5x8", 0, {"embedding: tokens:", "0 to 7 axes", "got 8"}},
    {"rope x=8", 0, {"rope: x:", "2 to 8 axes", "got 1"}},
    {"rope x=4x7", 0, {"rope: dims:", "even", "7"}},
    {"rope x=4x8 dims=10", 0, {"rope: dims:", "at most 8", "10"}},
    {"rope x=4x8 dims=3", 1, {"rope: dims:", "even", "3"}},
    {"rope x=4x8 positions=8", 0, {"rope: positions:", "(4)", "(8)"}},
    {"rope x=4x8 positions=1x4", 0, {"rope: positions:", "(4)", "(1, 4)"}},
    {"rope x=2x4x8 positions=3x4", 0, {"rope: positions:", "(2, 4)", "(3, 4)"}},
    {"rope x=4x8 frequencies=8", 0, {"rope: frequencies:", "(4)", "(8)"}},
    {"rope x=4x8 frequencies=4:bf16", 0, {"rope: frequencies:", "f32 or f64", "bf16"}},
    {"rope x=4x8 theta=-1", 0, {"rope: theta:", "-1"}},
    {"grad_norm g=8 norm=2", 0, {"grad_norm: norm:", "one element", "(2)"}},
    {"softmax x=()", 0, {"softmax: x:", "1 to 8 axes", "got 0"}},
    {"softmax x=4x8 y=4x9", 0, {"softmax: y:", "(4, 8)", "(4, 9)"}},
    {"softmax x=4x8 scale=inf", 0, {"softmax: scale:", "inf"}},
    {"softmax x=4x8 scale=1e39", 0, {"softmax: scale:", "1e+39", "range of f32"}},
    {"softmax x=4x8 scale=-1e-39", 1, {"softmax: scale:", "-1e-39", "range of f32"}},
    {"attention q=2x4x5x8 k=2x4x5x8 v=2x4x5x8 softcap=1e39", 0, {"attention: softcap:", "range of f32"}},
    {"cross_entropy logits=4x8 target=4 softcap=1e-50", 0, {"cross_entropy: softcap:", "range of f32"}},
    {"linear_cross_entropy x=4x8 w=5x8 target=4 softcap=1e39", 0, {"linear_cross_entropy: softcap:", "range of f32"}},
    {"cross_entropy logits=4x8", 0, {"cross_entropy: target:", "required"}},
    {"cross_entropy logits=4x8 target=8", 0, {"cross_entropy: target:", "(4)", "(8)"}},
    {"cross_entropy logits=4x8 target=4:f32", 0, {"cross_entropy: target:", "integer", "f32"}},
    {"cross_entropy logits=4x8 target=4 loss=4", 0, {"cross_entropy: loss:", "one element", "(4)"}},
    {"cross_entropy logits=4x8 target=4 reduction=each loss=()", 0, {"cross_entropy: loss:", "(4)", "()"}},
    {"cross_entropy logits=4x8 target=4 grad=4x7", 0, {"cross_entropy: grad:", "(4, 8)", "(4, 7)"}},
    {"cross_entropy logits=4x8 target=4 label_smoothing=1.5", 0, {"label_smoothing:", "expected 0 to 1", "1.5"}},
    {"linear_cross_entropy x=4x8 w=5x8", 0, {"linear_cross_entropy: target:", "required"}},
    {"linear_cross_entropy x=4x8 w=5x7 target=4", 0, {"linear_cross_entropy: w:", "8", "7"}},
    {"linear_cross_entropy x=4x8 w=5x8 target=5", 0, {"linear_cross_entropy: target:", "(4)", "(5)"}},
    {"linear_cross_entropy x=4x8 w=5x8 target=4 b=8", 0, {"linear_cross_entropy: b:", "(5)", "(8)"}},
    {"linear_cross_entropy x=4x0 w=288230376151711744x0 target=4", 0, {"linear_cross_entropy: w:", "too many"}},
    {"cross_entropy logits=4611686018427387904x1:f16@0,0 target=4611686018427387904@0 reduction=sum",
     0,
     {"cross_entropy: logits:", "too many", "2^56"}},
    {"cross_entropy logits=4x8 target=4 softcap=-1", 0, {"cross_entropy: softcap:", "-1"}},
};

static void test_plans(ambi_device *dev) {
  for (size_t i = 0; i < sizeof bad_plans / sizeof *bad_plans; i++) {
    ambi_op op;
    ambi_plan *plan = (ambi_plan *)&op;
    if (work_case(bad_plans[i].text, AMBI_F32, &op)) continue; /* an op that is not in this build */
    op.pass = bad_plans[i].pass;
    test_status(ambi_check(dev, &op), AMBI_INVALID, bad_plans[i].words, __FILE__, __LINE__, bad_plans[i].text);
    ambi_status s = ambi_plan_create(dev, &op, &plan);
    test_status(s, AMBI_INVALID, bad_plans[i].words, __FILE__, __LINE__, bad_plans[i].text);
    if (!CHECK(plan == NULL, "%s: a refused plan is NULL", bad_plans[i].text)) ambi_plan_destroy(plan);
  }
}

/* ---- planning: one mistake in one slot, on every slot of every op ---- */
static const int64_t huge = INT64_C(1) << 62;

static void bad_dtype(ambi_tensor *t) { t->dtype = (ambi_dtype)99; }
static void too_many_axes(ambi_tensor *t) { t->ndim = AMBI_MAX_DIMS + 1; }
static void negative_rank(ambi_tensor *t) { t->ndim = -1; }
static void negative_extent(ambi_tensor *t) { t->shape[t->ndim - 1] = -4; }
static void most_negative_extent(ambi_tensor *t) { t->shape[0] = INT64_MIN; }
static void overflowing_extents(ambi_tensor *t) {
  t->ndim = 3;
  for (int i = 0; i < 3; i++) t->shape[i] = huge, t->stride[i] = 0;
}
static void overflowing_bytes(ambi_tensor *t) { *t = ambi_dense(t->dtype, 1, &huge), t->shape[0] = INT64_MAX; }
static void overflowing_stride(ambi_tensor *t) {
  t->ndim = 2;
  for (int i = 0; i < 2; i++) t->shape[i] = 3, t->stride[i] = INT64_MAX;
}
static void overflowing_back(ambi_tensor *t) {
  t->ndim = 2;
  for (int i = 0; i < 2; i++) t->shape[i] = 3, t->stride[i] = INT64_MIN;
}

static const struct {
  void (*edit)(ambi_tensor *t);
  const char *word; /* what the sentence holds besides op and slot */
  int axes;         /* the least the slot must have                */
} bad_tensors[] = {
    {bad_dtype, "99", 0},
    {too_many_axes, "axes, got 9", 0},
    {negative_rank, "axes, got -1", 0},
    {negative_extent, "-4", 1},
    {most_negative_extent, "-9223372036854775808", 1},
    {overflowing_extents, "overflow", 0},
    {overflowing_bytes, "64 bits", 0},
    {overflowing_stride, "64 bits", 0},
    {overflowing_back, "64 bits", 0},
};

/* "rmsnorm: w:" or "rmsnorm: gradient of w:" */
static const char *place(const ambi_op_info *info, int slot, char *out, size_t n) {
  snprintf(out, n, "%s: %s%s:", info->name, slot >= AMBI_MAX_PRIMALS ? "gradient of " : "",
           info->slot[slot % AMBI_MAX_PRIMALS].name);
  return out;
}

static void check_refused(ambi_device *dev, const ambi_op *op, const char *first, const char *second,
                          const char *text) {
  test_status(ambi_check(dev, op), AMBI_INVALID, (const char *const[]){first, second, NULL}, __FILE__, __LINE__, text);
}

static void break_tensors(ambi_device *dev, const ambi_op *good, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->kind);
  for (int slot = 0; slot < AMBI_SLOTS; slot++)
    for (size_t i = 0; i < sizeof bad_tensors / sizeof *bad_tensors; i++) {
      ambi_op op = *good;
      char at[80];
      ambi_tensor *t = slot < AMBI_MAX_PRIMALS ? &op.t[slot] : &op.grad[slot - AMBI_MAX_PRIMALS];
      if (t->dtype == AMBI_NONE || t->ndim < bad_tensors[i].axes) continue;
      bad_tensors[i].edit(t);
      check_refused(dev, &op, place(info, slot, at, sizeof at), bad_tensors[i].word, text);
    }
}

static void break_bits(ambi_device *dev, const ambi_op *good, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->kind);
  ambi_op op = *good;
  op.pass = (ambi_pass)7;
  check_refused(dev, &op, "pass", "7", text);
  op = *good;
  op.want = AMBI_BIT(31);
  check_refused(dev, &op, info->name, "want: bit 31", text);
  op = *good;
  if (op.pass == AMBI_FORWARD) {
    op.accumulate = 1;
    check_refused(dev, &op, info->name, "accumulate", text);
    op = *good;
    op.want = 1;
    if (!(info->slot[0].flags & AMBI_SLOT_OUTPUT)) check_refused(dev, &op, info->name, "want: bit 0", text);
  } else {
    op.accumulate = AMBI_BIT(15);
    check_refused(dev, &op, info->name, "accumulate", text);
    op = *good;
    op.want = AMBI_BIT(info->slots - 1); /* the last slot is an output */
    check_refused(dev, &op, info->name, "not a described, differentiable input", text);
  }
  if (info->slots == AMBI_MAX_PRIMALS) return;
  op = *good;
  op.t[info->slots] = ambi_dense(AMBI_F32, 1, (int64_t[]){3});
  check_refused(dev, &op, info->name, "slots, but slot", text);
}

static void drop_slots(ambi_device *dev, const ambi_op *good, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->kind);
  for (int s = 0; s < info->slots; s++) {
    ambi_op op = *good;
    char at[80];
    if (info->slot[s].flags & (AMBI_SLOT_OPTIONAL | AMBI_SLOT_OUTPUT)) continue;
    op.t[s] = (ambi_tensor){0};
    check_refused(dev, &op, place(info, s, at, sizeof at), "required", text);
  }
}

static void break_attributes(ambi_device *dev, const ambi_op *good, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->kind);
  const double reals[] = {NAN, INFINITY, -INFINITY};
  const int32_t wholes[] = {INT32_MAX, INT32_MIN, -1};
  for (int a = 0; a < info->attrs; a++)
    for (int i = 0; i < 3; i++) {
      ambi_op op = *good;
      char at[80];
      const ambi_attr_info *attr = &info->attr[a];
      snprintf(at, sizeof at, "%s: %s:", info->name, attr->name);
      if (attr->type == AMBI_ATTR_F64)
        memcpy((char *)&op + attr->offset, &reals[i], sizeof reals[i]);
      else
        memcpy((char *)&op + attr->offset, &wholes[i], sizeof wholes[i]);
      double v = attr->type == AMBI_ATTR_F64 ? reals[i] : wholes[i];
      if (v >= attr->min && v <= attr->max)
        CHECK_OK(ambi_check(dev, &op));
      else
        check_refused(dev, &op, at, "expected", text);
    }
}

/* ---- running: one mistake among the buffers, on every slot of every op ---- */
static bool named_in_place(const ambi_op_info *info, int out, int in) {
  for (const int8_t(*p)[2] = info->in_place; p && (*p)[0] >= 0; p++)
    if ((*p)[0] == out && (*p)[1] == in) return true;
  return false;
}

static void run_refused(const work *w, const char *first, const char *second, const char *text) {
  test_status(work_run(w, NULL), AMBI_INVALID, (const char *const[]){first, second, NULL}, __FILE__, __LINE__, text);
}

static void break_buffers(const work *good, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->op.kind);
  for (int s = 0; s < AMBI_SLOTS; s++) {
    char at[80];
    work w = *good;
    if (!w.block[s]) continue;
    size_t size = ambi_dtype_size(ambi_plan_tensor(w.plan, s).dtype);
    w.buf[s].data = NULL;
    run_refused(&w, place(info, s, at, sizeof at), "no buffer", text);
    w = *good;
    w.buf[s].offset += 1;
    if (size > 1) run_refused(&w, at, "not aligned", text);
    w = *good;
    w.buf[s].data = (char *)w.buf[s].data + size / 2;
    if (size > 1) run_refused(&w, at, "not aligned", text);
    ambi_status few = ambi_run(good->plan, NULL, good->buf, (size_t)s, good->workspace);
    test_status(few, AMBI_INVALID, (const char *const[]){"no buffer", NULL}, __FILE__, __LINE__, text);
  }
}

/* Every output over every other slot: allowed only for a named pair of equal views at the same place. */
static void overlap_buffers(const work *good, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->op.kind);
  char *arena = calloc(1, 1 << 20);
  for (int out = 0; out < AMBI_SLOTS; out++)
    for (int s = 0; s < AMBI_SLOTS; s++) {
      char at[80];
      work w = *good;
      if (s == out || !(w.info.writes & AMBI_BIT(out)) || !w.block[s]) continue;
      ambi_tensor a = ambi_plan_tensor(w.plan, out), b = ambi_plan_tensor(w.plan, s);
      if ((w.info.writes & AMBI_BIT(s)) && s < out) continue; /* each pair of outputs once */
      uint64_t far = w.buf[out].offset > w.buf[s].offset ? w.buf[out].offset : w.buf[s].offset;
      w.buf[out] = w.buf[s] = (ambi_buf){arena, far};
      bool same = memcmp(&a, &b, sizeof a) == 0;
      if (same && named_in_place(info, out, s))
        CHECK(work_run(&w, NULL) == AMBI_OK, "%s: %d in place of %d: %s", text, out, s, ambi_error());
      else
        run_refused(&w, place(info, out, at, sizeof at), "overlaps", text);
      if (!same || ambi_numel(&a) < 2) continue;
      w.buf[s].offset += ambi_dtype_size(b.dtype); /* one element further is another view */
      run_refused(&w, place(info, out, at, sizeof at), "overlaps", text);
    }
  free(arena);
}

static void break_workspace(const work *good, ambi_stream *foreign, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(good->op.kind);
  test_status(work_run(good, foreign), AMBI_INVALID, (const char *const[]){info->name, "stream", NULL}, __FILE__,
              __LINE__, text);
  test_status(ambi_run(good->plan, NULL, NULL, 3, good->workspace), AMBI_INVALID,
              (const char *const[]){"slots is NULL", NULL}, __FILE__, __LINE__, text);
  if (good->info.workspace == 0) return;
  char bytes[32];
  work w = *good;
  snprintf(bytes, sizeof bytes, "%llu bytes", (unsigned long long)w.info.workspace);
  w.workspace.data = NULL;
  run_refused(&w, "workspace", bytes, text);
  w = *good;
  w.workspace.offset = 8;
  run_refused(&w, "workspace", "not aligned", text);
  char at[80], *arena = aligned_alloc(64, 1 << 20); /* never written to: each run is refused */
  for (int s = 0; s < AMBI_SLOTS; s++) {
    w = *good;
    if (!w.block[s]) continue;
    w.workspace = (ambi_buf){arena, 0};
    w.buf[s] = (ambi_buf){arena, w.buf[s].offset};
    if (w.buf[s].offset < w.info.workspace) run_refused(&w, place(info, s, at, sizeof at), "workspace", text);
  }
  free(arena);
}

static void break_op(ambi_device *dev, ambi_stream *foreign, const ambi_op *op, const char *text) {
  work w;
  break_tensors(dev, op, text);
  break_bits(dev, op, text);
  drop_slots(dev, op, text);
  break_attributes(dev, op, text);
  if (!CHECK(work_make(dev, op, 1 << 22, &w) == AMBI_OK, "%s: %s", text, ambi_error())) return;
  break_buffers(&w, text);
  overlap_buffers(&w, text);
  break_workspace(&w, foreign, text);
  work_free(&w);
}

static void test_every_op(ambi_device *dev, ambi_stream *foreign) {
  for (int i = 0; i < GOOD_CASES; i++) {
    ambi_op forward, backward;
    if (work_case(good_cases[i], AMBI_F32, &forward)) continue;
    break_op(dev, foreign, &forward, good_cases[i]);
    if (!ambi_op_get_info(forward.kind)->backward) {
      forward.pass = AMBI_BACKWARD;
      check_refused(dev, &forward, ambi_op_get_info(forward.kind)->name, "no backward", good_cases[i]);
    } else if (CHECK(work_backward(dev, &forward, &backward) == 0, "%s: %s", good_cases[i], ambi_error())) {
      break_op(dev, foreign, &backward, good_cases[i]);
    }
  }
}

/* ---- what must not be refused ---- */
/* Both halves of a packed (M, 2D) buffer, in and out: interleaved, but not overlapping. */
static void test_packed_halves(ambi_device *dev) {
  ambi_op op = {.kind = AMBI_GATED};
  work w;
  if (!ambi_op_get_info(AMBI_GATED)) return test_skip("packed halves", "no gated in this build");
  ambi_tensor packed = ambi_dense(AMBI_F32, 2, (int64_t[]){5, 16});
  uint64_t second;
  op.t[AMBI_GATED_V] = ambi_split(&packed, -1, 0, NULL);
  op.t[AMBI_GATED_G] = ambi_split(&packed, -1, 1, &second);
  op.pass = AMBI_BACKWARD;
  if (!CHECK(work_make(dev, &op, 1 << 16, &w) == AMBI_OK, "%s", ambi_error())) return;
  char *in = calloc(1, 5 * 16 * 4), *out = calloc(1, 5 * 16 * 4);
  w.buf[AMBI_GATED_V] = (ambi_buf){in, 0};
  w.buf[AMBI_GATED_G] = (ambi_buf){in, second};
  w.buf[AMBI_GRAD(AMBI_GATED_V)] = (ambi_buf){out, 0};
  w.buf[AMBI_GRAD(AMBI_GATED_G)] = (ambi_buf){out, second};
  CHECK(work_run(&w, NULL) == AMBI_OK, "halves of one buffer: %s", ambi_error());
  w.buf[AMBI_GRAD(AMBI_GATED_G)].offset -= 4;
  run_refused(&w, "gated: gradient of v:", "overlaps", "halves that touch");
  free(in);
  free(out);
  work_free(&w);
}

/* Empty tensors need no buffers, not even an array of them. */
static void test_empty(ambi_device *dev) {
  for (int pass = 0; pass < 2; pass++) {
    ambi_op op = {.kind = AMBI_RMSNORM, .pass = (ambi_pass)pass};
    ambi_plan *plan;
    op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_F32, 3, (int64_t[]){4, 0, 8});
    if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) continue;
    CHECK_OK(ambi_run(plan, NULL, NULL, 0, (ambi_buf){0}));
    ambi_plan_destroy(plan);
  }
}

/* A great many rows of nothing are done at once. */
static void test_many_empty_rows(ambi_device *dev) {
  ambi_op op = {.kind = AMBI_LINEAR, .pass = AMBI_BACKWARD};
  ambi_plan *plan;
  op.t[AMBI_LINEAR_X] = ambi_dense(AMBI_F32, 2, (int64_t[]){INT64_C(1) << 55, 0});
  op.t[AMBI_LINEAR_W] = ambi_dense(AMBI_F32, 2, (int64_t[]){0, 0});
  op.t[AMBI_LINEAR_B] = ambi_dense(AMBI_F32, 1, (int64_t[]){0});
  if (!CHECK_OK(ambi_plan_create(dev, &op, &plan))) return;
  CHECK_OK(ambi_run(plan, NULL, NULL, 0, (ambi_buf){0}));
  ambi_plan_destroy(plan);
}

int main(void) {
  ambi_stream *of_cpu, *of_ref;
  if (!CHECK_OK(ambi_device_open("cpu", NULL, &cpu)) || !CHECK_OK(ambi_device_open("ref", NULL, &ref)))
    return test_done();
  if (!CHECK_OK(ambi_stream_create(cpu, NULL, &of_cpu)) || !CHECK_OK(ambi_stream_create(ref, NULL, &of_ref)))
    return test_done();
  test_devices();
  test_plans(cpu);
  test_plans(ref);
  test_every_op(cpu, of_ref);
  test_every_op(ref, of_cpu);
  test_packed_halves(cpu);
  test_packed_halves(ref);
  test_empty(cpu);
  test_empty(ref);
  test_many_empty_rows(cpu);
  test_many_empty_rows(ref);
  ambi_stream_destroy(of_cpu);
  ambi_stream_destroy(of_ref);
  ambi_device_close(ref);
  ambi_device_close(cpu);
  return test_done();
}
