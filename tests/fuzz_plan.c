/* fuzz_plan.c -- no description may crash, hang, leak or run past its memory: not the planner, and not the kernels of
 * what the planner accepts. Meant for a build with address and undefined sanitizers.
 *
 *   with libFuzzer:  fuzz_plan_libfuzzer                (a clang build with AMBI_SANITIZE=..,fuzzer-no-link)
 *   standalone:      fuzz_plan [SEED [SECONDS [cuda]]]  random bytes instead, the same ones for the same SEED; on cuda,
 *                                                       by the stand-in for its driver, plans are made and not run
 *
 * Bytes are dice: they pick a good case or nothing, a device, some edits, then whether buffers overlap. Most edits keep
 * the case consistent (an extent renamed everywhere, other strides, other dtypes), so that many plans are made and run.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "work.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 1 << 20, MOST_ELEMENTS = 1 << 14, MOST_FLOPS = 1 << 20, HANG_SECONDS = 60 };

static uint64_t tried, planned, ran;

/* ---- dice ---- */
typedef struct {
  const uint8_t *p;
  size_t left;
} dice;

/* The next byte; 0 when they are used up. */
static uint8_t byte(dice *d) {
  if (d->left == 0) return 0;
  d->left--;
  return *d->p++;
}
static unsigned roll(dice *d, unsigned sides) { return byte(d) % sides; }
static uint64_t word(dice *d) {
  uint64_t v = 0;
  for (int i = 0; i < 8; i++) v = v << 8 | byte(d);
  return v;
}

static int64_t odd_number(dice *d) {
  static const int64_t odd[] = {0,         1,         -1, 2,   3,         7,         16,        17,        255,
                                INT32_MAX, INT32_MIN, 64, 257, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 62, 5};
  enum { N = sizeof odd / sizeof *odd };
  unsigned i = roll(d, N + 2);
  return i < N ? odd[i] : i == N ? (int64_t)word(d) : (int64_t)roll(d, 64);
}

static ambi_dtype any_dtype(dice *d) { return (ambi_dtype)roll(d, AMBI_U8 + 2); }
static ambi_dtype any_float(dice *d) { return (ambi_dtype)(AMBI_F32 + roll(d, 4)); }

static ambi_tensor *any_tensor(dice *d, ambi_op *op) {
  ambi_tensor *t = roll(d, 4) ? op->t : op->grad;
  return &t[roll(d, AMBI_MAX_PRIMALS)];
}

/* One that is described, or NULL. */
static ambi_tensor *some_tensor(dice *d, ambi_op *op) {
  unsigned first = roll(d, 2 * AMBI_MAX_PRIMALS);
  for (unsigned i = 0; i < 2 * AMBI_MAX_PRIMALS; i++) {
    unsigned s = (first + i) % (2 * AMBI_MAX_PRIMALS);
    ambi_tensor *t = s < AMBI_MAX_PRIMALS ? &op->t[s] : &op->grad[s - AMBI_MAX_PRIMALS];
    if (t->dtype != AMBI_NONE) return t;
  }
  return NULL;
}

static bool sane(const ambi_tensor *t) { return t->ndim >= 0 && t->ndim <= AMBI_MAX_DIMS; }

/* ---- edits that keep an op consistent ---- */
static void make_dense(ambi_tensor *t) {
  if (sane(t))
    *t = ambi_dense(t->dtype, t->ndim,
                    (int64_t[AMBI_MAX_DIMS]){t->shape[0], t->shape[1], t->shape[2], t->shape[3], t->shape[4],
                                             t->shape[5], t->shape[6], t->shape[7]});
}

/* Every axis of one extent gets another one, in every slot. */
static void rename_extent(dice *d, ambi_op *op) {
  static const int64_t to[] = {0, 1, 2, 3, 5, 8, 15, 16, 31, 33, 63, 64, 65, 127, 130, 257, 1025};
  ambi_tensor *t = some_tensor(d, op);
  if (!t || !sane(t) || t->ndim == 0) return;
  int64_t from = t->shape[roll(d, (unsigned)t->ndim)], n = to[roll(d, sizeof to / sizeof *to)];
  for (int s = 0; s < 2 * AMBI_MAX_PRIMALS; s++) {
    ambi_tensor *x = s < AMBI_MAX_PRIMALS ? &op->t[s] : &op->grad[s - AMBI_MAX_PRIMALS];
    bool changed = false;
    for (int i = 0; sane(x) && i < x->ndim; i++)
      if (x->shape[i] == from) x->shape[i] = n, changed = true;
    if (changed) make_dense(x);
  }
}

static void change_dtype(dice *d, ambi_op *op) {
  ambi_tensor *t = some_tensor(d, op);
  if (t && t->dtype <= AMBI_F64) t->dtype = any_float(d);
}

static void all_dtypes(dice *d, ambi_op *op) {
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++)
    if (op->t[s].dtype && op->t[s].dtype <= AMBI_F64) op->t[s].dtype = any_float(d);
}

/* Axes laid out in another order, with gaps, some of them backwards. */
static void change_strides(dice *d, ambi_op *op) {
  ambi_tensor *t = some_tensor(d, op);
  if (!t || !sane(t)) return;
  int order[AMBI_MAX_DIMS];
  int64_t stride = 1 + (int64_t)roll(d, 3);
  for (int i = 0; i < t->ndim; i++) order[i] = i;
  for (int i = t->ndim - 1; i > 0; i--) {
    int j = (int)roll(d, (unsigned)i + 1), kept = order[i];
    order[i] = order[j], order[j] = kept;
  }
  for (int i = t->ndim - 1; i >= 0; i--) {
    int axis = order[i];
    t->stride[axis] = roll(d, 4) ? stride : -stride;
    int64_t n = t->shape[axis] > 1 ? t->shape[axis] : 1;
    if (__builtin_mul_overflow(stride, n, &stride) || stride > INT32_MAX) stride = 1;
    stride += (int64_t)roll(d, 3);
  }
}

static void repeat_axis(dice *d, ambi_op *op) {
  ambi_tensor *t = some_tensor(d, op);
  if (t && sane(t) && t->ndim) t->stride[roll(d, (unsigned)t->ndim)] = 0;
}

static void describe_gradient(dice *d, ambi_op *op) {
  unsigned s = roll(d, AMBI_MAX_PRIMALS);
  op->grad[s] = op->t[s];
  if (op->grad[s].dtype) op->grad[s].dtype = any_float(d);
  make_dense(&op->grad[s]);
}

static void drop_slot(dice *d, ambi_op *op) { *any_tensor(d, op) = (ambi_tensor){0}; }
static void want_some(dice *d, ambi_op *op) { op->want ^= AMBI_BIT(roll(d, 17)); }
static void accumulate_some(dice *d, ambi_op *op) { op->accumulate ^= AMBI_BIT(roll(d, 17)); }
static void turn_around(dice *d, ambi_op *op) { op->pass = roll(d, 2) ? AMBI_BACKWARD : AMBI_FORWARD; }

static void set_attribute(dice *d, ambi_op *op) {
  const double reals[] = {0, 1, -1, 0.5, 1e-300, 1e300, INFINITY, -INFINITY, NAN, 3};
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  if (!info || info->attrs == 0) return;
  const ambi_attr_info *a = &info->attr[roll(d, (unsigned)info->attrs)];
  double real = reals[roll(d, sizeof reals / sizeof *reals)];
  int32_t whole = roll(d, 4) ? (int32_t)roll(d, 32) : (int32_t)odd_number(d);
  memcpy((char *)op + a->offset, a->type == AMBI_ATTR_F64 ? (void *)&real : (void *)&whole,
         a->type == AMBI_ATTR_F64 ? sizeof real : sizeof whole);
}

/* ---- edits that do not ---- */
static void odd_extent(dice *d, ambi_op *op) { any_tensor(d, op)->shape[roll(d, AMBI_MAX_DIMS)] = odd_number(d); }
static void odd_stride(dice *d, ambi_op *op) { any_tensor(d, op)->stride[roll(d, AMBI_MAX_DIMS)] = odd_number(d); }
static void odd_rank(dice *d, ambi_op *op) { any_tensor(d, op)->ndim = (int32_t)roll(d, 12) - 1; }
static void odd_dtype(dice *d, ambi_op *op) { any_tensor(d, op)->dtype = any_dtype(d); }
static void odd_kind(dice *d, ambi_op *op) { op->kind = (ambi_kind)roll(d, AMBI_KINDS + 1); }
static void odd_bits(dice *d, ambi_op *op) { op->want = (uint32_t)word(d), op->accumulate = (uint32_t)word(d); }
static void odd_tensor(dice *d, ambi_op *op) {
  ambi_tensor *t = any_tensor(d, op);
  t->dtype = any_dtype(d);
  t->ndim = (int32_t)roll(d, 5);
  for (int i = 0; i < 4; i++) t->shape[i] = roll(d, 3) ? 1 + (int64_t)roll(d, 9) : odd_number(d);
  make_dense(t);
}

typedef void edit(dice *d, ambi_op *op);
static edit *const consistent[] = {rename_extent,     rename_extent,  rename_extent,   change_dtype,      all_dtypes,
                                   change_strides,    change_strides, repeat_axis,     describe_gradient, set_attribute,
                                   describe_gradient, want_some,      accumulate_some, turn_around,       drop_slot};
static edit *const inconsistent[] = {odd_extent, odd_stride, odd_rank, odd_dtype, odd_kind, odd_bits, odd_tensor};

/* ---- one op ---- */
enum { DEVICES = 3 };
static ambi_device *devices[DEVICES];
static bool on_cuda;

static void open_cuda(void) {
  static const char *const isas[] = {NULL, "special", "general"};
  setenv("FAKENVRTC_EMPTY", "1", 1);
  for (int i = 0; i < DEVICES && !devices[i]; i++)
    if (ambi_device_open("cuda", &(ambi_device_options){.cache_dir = "", .max_isa = isas[i]}, &devices[i]) != AMBI_OK)
      fprintf(stderr, "%s\n", ambi_error()), abort();
}

static void open_devices(void) {
  if (on_cuda) return open_cuda();
  static const char *const names[] = {"cpu", "cpu", "ref"}, *const isas[] = {NULL, "baseline", NULL};
  for (int i = 0; i < DEVICES && !devices[DEVICES - 1]; i++) {
    ambi_device_options o = {.threads = 2, .max_isa = isas[i]};
    if (ambi_device_open(names[i], &o, &devices[i]) != AMBI_OK &&
        ambi_device_open(names[i], &(ambi_device_options){.threads = 2}, &devices[i]) != AMBI_OK)
      abort(); /* a machine without that instruction set runs its best one twice */
  }
}

static void choose_op(dice *d, ambi_device *dev, ambi_op *op) {
  const char *text = good_cases[roll(d, GOOD_CASES)];
  bool from_scratch = roll(d, 16) == 15, wild = roll(d, 5) == 4;
  memset(op, 0, sizeof *op);
  if (from_scratch || work_case(text, any_float(d), op)) {
    op->kind = (ambi_kind)roll(d, AMBI_KINDS);
    op->pass = (ambi_pass)roll(d, 2);
    for (unsigned n = roll(d, 6); n; n--) odd_tensor(d, op);
  } else if (roll(d, 2)) {
    ambi_op forward = *op;
    if (work_backward(dev, &forward, op)) *op = forward;
  }
  for (unsigned n = roll(d, 4); n; n--) consistent[roll(d, sizeof consistent / sizeof *consistent)](d, op);
  for (unsigned n = wild ? 1 + roll(d, 2) : 0; n; n--)
    inconsistent[roll(d, sizeof inconsistent / sizeof *inconsistent)](d, op);
}

static bool small_enough(const work *w) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    ambi_tensor t = ambi_plan_tensor(w->plan, s);
    if (ambi_numel(&t) > MOST_ELEMENTS) return false;
  }
  return w->info.flops <= MOST_FLOPS;
}

static void fill(dice *d, work *w) {
  uint64_t x = word(d) | 1;
  bool tame = roll(d, 2); /* exponents near 1, or any bits at all */
  for (int s = 0; s < AMBI_SLOTS; s++)
    for (int64_t i = 0; w->block[s] && i < w->bytes[s]; i++) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      w->block[s][i] = tame ? (char)(0x38 + (x >> 60)) : (char)(x >> 56);
    }
}

/* Some slot over another, in one block that holds both. */
static char *overlap(dice *d, work *w) {
  int a = (int)roll(d, AMBI_SLOTS), b = (int)roll(d, AMBI_SLOTS);
  if (a == b || !w->block[a] || !w->block[b]) return NULL;
  int64_t shift = roll(d, 3) ? 0 : 4 * (int64_t)roll(d, 16);
  char *both = calloc(1, (size_t)(w->bytes[a] + w->bytes[b] + shift));
  if (!both) abort();
  w->buf[a].data = both;
  w->buf[b].data = both + shift;
  return both;
}

/* What no GPU can launch is seen when its plan is made: ambi_check does not look. */
static bool is_too_large(ambi_status checked, ambi_status made) {
  return on_cuda && checked == AMBI_OK && made == AMBI_UNSUPPORTED && strstr(ambi_error(), "too large");
}

static void try_op(dice *d) {
  ambi_device *dev = devices[roll(d, DEVICES)];
  ambi_op op;
  work w = {0};
  choose_op(d, dev, &op);
  const ambi_status checked = ambi_check(dev, &op);
  const ambi_status made = on_cuda ? ambi_plan_create(dev, &op, &w.plan) : work_make(dev, &op, MOST_BYTES, &w);
  tried++;
  if (checked != AMBI_OK && *ambi_error() == 0) abort(); /* refused without a reason */
  if (made != AMBI_NO_MEMORY && made != checked && !is_too_large(checked, made))
    abort(); /* ambi_check and ambi_plan_create disagree */
  planned += (on_cuda ? made : checked) == AMBI_OK;
  if (made != AMBI_OK) return;
  if (!on_cuda && small_enough(&w)) {
    fill(d, &w);
    char *both = roll(d, 4) == 3 ? overlap(d, &w) : NULL;
    ambi_status s = work_run(&w, NULL);
    if (s != AMBI_OK && !both) abort(); /* good buffers were refused */
    ran += s == AMBI_OK;
    free(both);
  }
  work_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  dice d = {data, size};
  open_devices();
  alarm(HANG_SECONDS); /* a hang ends the program */
  try_op(&d);
  alarm(0);
  return 0;
}

#ifndef AMBI_LIBFUZZER
int main(int argc, char **argv) {
  on_cuda = argc > 3 && strcmp(argv[3], "cuda") == 0;
  uint64_t x = (argc > 1 ? strtoull(argv[1], NULL, 0) : 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
  double seconds = argc > 2 ? strtod(argv[2], NULL) : 5;
  time_t begin = time(NULL);
  while (difftime(time(NULL), begin) < seconds) {
    uint8_t bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      bytes[i] = (uint8_t)(x >> 56);
    }
    LLVMFuzzerTestOneInput(bytes, sizeof bytes);
  }
  for (int i = 0; i < DEVICES; i++) ambi_device_close(devices[i]);
  int deep = planned * 4 > tried && (on_cuda || ran * 5 > tried); /* otherwise the kernels were hardly reached */
  printf("%llu descriptions, %llu planned, %llu run\n%d passed, %d failed\n", (unsigned long long)tried,
         (unsigned long long)planned, (unsigned long long)ran, deep, !deep);
  return !deep;
}
#endif
