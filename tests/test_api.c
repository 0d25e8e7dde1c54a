/* test_api.c -- the public API used as the header says, and every pointer NULL that could be. */
#include <stdint.h>
#include <stdlib.h>

#include "cases.h"
#include "test.h"
#include "work.h"

static ambi_device *cpu, *ref;

/* ---- names and tensors ---- */
static void test_names(void) {
  CHECK(ambi_version() == AMBI_VERSION, "version %u", ambi_version());
  CHECK(ambi_error() != NULL && strlen(ambi_error()) > 0, "no error is a sentence too");
  for (int s = AMBI_OK; s <= AMBI_TIMEOUT; s++)
    CHECK(!strstr(ambi_status_name((ambi_status)s), "unknown"), "status %d has a name", s);
  CHECK(strstr(ambi_status_name((ambi_status)99), "unknown") != NULL, "status 99");
  static const size_t sizes[] = {0, 4, 2, 2, 8, 4, 8, 1};
  for (int t = AMBI_NONE; t <= AMBI_U8; t++) {
    CHECK(ambi_dtype_size((ambi_dtype)t) == sizes[t], "size of dtype %d", t);
    CHECK(strcmp(ambi_dtype_name((ambi_dtype)t), "unknown") != 0, "name of dtype %d", t);
  }
  CHECK(ambi_dtype_size((ambi_dtype)99) == 0 && ambi_dtype_size((ambi_dtype)-1) == 0, "size of no dtype");
  CHECK(strcmp(ambi_dtype_name((ambi_dtype)-1), "unknown") == 0, "name of no dtype");
}

static ambi_tensor strided(int32_t ndim, const int64_t *shape, const int64_t *stride) {
  ambi_tensor t = {.dtype = AMBI_F32, .ndim = ndim};
  memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
  memcpy(t.stride, stride, (size_t)ndim * sizeof *stride);
  return t;
}

static void test_tensors(void) {
  const int64_t big = INT64_C(1) << 40;
  ambi_tensor t = ambi_dense(AMBI_BF16, 3, (int64_t[]){2, 3, 4});
  CHECK(t.ndim == 3 && t.stride[0] == 12 && t.stride[1] == 4 && t.stride[2] == 1, "dense strides");
  CHECK(ambi_numel(&t) == 24 && ambi_span(&t) == 48, "24 elements, 48 bytes");
  ambi_tensor scalar = ambi_dense(AMBI_F64, 0, NULL);
  CHECK(ambi_numel(&scalar) == 1 && ambi_span(&scalar) == 8, "a scalar without axes");
  ambi_tensor empty = ambi_dense(AMBI_F32, 3, (int64_t[]){big, 0, big});
  CHECK(ambi_numel(&empty) == 0 && ambi_span(&empty) == 0, "an empty tensor");
  ambi_tensor huge = ambi_dense(AMBI_F32, 2, (int64_t[]){big, big});
  CHECK(ambi_numel(&huge) == -1 && ambi_span(&huge) == -1, "2^80 elements overflow");
  ambi_tensor negative = ambi_dense(AMBI_F32, 1, (int64_t[]){-3});
  CHECK(ambi_numel(&negative) == -1 && ambi_span(&negative) == -1, "a negative extent");
  ambi_tensor back = strided(2, (int64_t[]){3, 5}, (int64_t[]){-10, 1});
  CHECK(ambi_span(&back) == (2 * 10 + 4 + 1) * 4, "negative strides: span %lld", (long long)ambi_span(&back));
  ambi_tensor repeated = strided(2, (int64_t[]){1000, 5}, (int64_t[]){0, 1});
  CHECK(ambi_numel(&repeated) == 5000 && ambi_span(&repeated) == 20, "a repeated axis");
  ambi_tensor far = strided(2, (int64_t[]){3, 3}, (int64_t[]){INT64_MAX / 2, INT64_MAX / 2});
  CHECK(ambi_span(&far) == -1, "strides past 64 bits");
  ambi_tensor bad = ambi_dense(AMBI_F32, 99, NULL);
  CHECK(bad.ndim == 99, "a rank that cannot be is kept, for the planner to name");
  CHECK(ambi_numel(&bad) == -1 && ambi_span(&bad) == -1, "nor has it a size");
  CHECK(ambi_numel(NULL) == -1 && ambi_span(NULL) == -1, "no tensor, no size");
  CHECK(ambi_dense(AMBI_F32, 2, NULL).dtype == AMBI_NONE, "no shape, no tensor");
}

static void test_split(void) {
  ambi_tensor packed = ambi_dense(AMBI_BF16, 2, (int64_t[]){7, 12}), none;
  uint64_t offset = 1;
  for (int half = 0; half < 2; half++) {
    ambi_tensor h = ambi_split(&packed, 1, half, &offset);
    CHECK(h.shape[0] == 7 && h.shape[1] == 6 && h.stride[0] == 12, "half %d: its shape", half);
    CHECK(offset == (uint64_t)half * 12, "half %d starts at byte %llu", half, (unsigned long long)offset);
    ambi_tensor same = ambi_split(&packed, -1, half, NULL);
    CHECK(memcmp(&same, &h, sizeof h) == 0, "axis -1 is the last; offset may be NULL");
  }
  none = ambi_split(&packed, 0, 0, &offset);
  CHECK(none.dtype == AMBI_NONE && offset == 0, "7 has no halves");
  none = ambi_split(&packed, 2, 0, &offset);
  CHECK(none.dtype == AMBI_NONE, "there is no axis 2");
  none = ambi_split(&packed, -3, 0, &offset);
  CHECK(none.dtype == AMBI_NONE, "there is no axis -3");
  none = ambi_split(&packed, 1, 2, &offset);
  CHECK(none.dtype == AMBI_NONE, "there is no third half");
  CHECK(ambi_split(NULL, 0, 0, NULL).dtype == AMBI_NONE, "nothing has no halves");
  packed = ambi_dense(AMBI_F32, 99, NULL);
  CHECK(ambi_split(&packed, 50, 0, NULL).dtype == AMBI_NONE, "nor has what has 99 axes");
  packed = strided(1, (int64_t[]){12}, (int64_t[]){-1});
  CHECK(ambi_split(&packed, 0, 0, NULL).dtype == AMBI_F32, "the first half of a line that runs backwards");
  CHECK(ambi_split(&packed, 0, 1, NULL).dtype == AMBI_NONE, "its second lies before element 0");
  packed = strided(1, (int64_t[]){4}, (int64_t[]){INT64_MAX / 4});
  CHECK(ambi_split(&packed, 0, 1, NULL).dtype == AMBI_NONE, "an offset past 64 bits");
}

/* ---- devices, memory, streams ---- */
static void test_devices(void) {
  ambi_device_info info;
  CHECK_OK(ambi_device_get_info(cpu, &info));
  CHECK(strcmp(info.name, "cpu") == 0 && info.isa[0] && info.features && info.threads >= 1, "info of cpu");
  CHECK(info.cache_bytes > 0, "cpu has a cache");
  CHECK_OK(ambi_device_get_info(ref, &info));
  CHECK(strcmp(info.name, "ref") == 0 && info.isa && info.features && info.threads == 1, "info of ref");
  ambi_device_options zero = {0}, three = {.threads = 3};
  ambi_device *dev = NULL;
  CHECK_OK(ambi_device_open("cpu", &zero, &dev));
  ambi_device_close(dev);
  if (CHECK_OK(ambi_device_open("cpu", &three, &dev))) CHECK_OK(ambi_device_get_info(dev, &info));
  CHECK(info.threads == 3, "3 threads asked for, %d got", info.threads);
  ambi_device_close(dev);
  ambi_device_close(NULL);
}

static void test_caps(void) {
  static const char *const isas[] = {"avx512", "avx2", "baseline", "neon"};
  int usable = 0;
  for (int i = 0; i < 4; i++) {
    ambi_device_options o = {.max_isa = isas[i]};
    ambi_device *dev = NULL;
    ambi_device_info info = {0};
    ambi_status s = ambi_device_open("cpu", &o, &dev);
    if (s == AMBI_OK && ambi_device_get_info(dev, &info) == AMBI_OK) usable++;
    if (s == AMBI_OK && i > 0) CHECK(strcmp(info.isa, "avx512") != 0, "capped to %s, got %s", isas[i], info.isa);
    if (s == AMBI_OK && i == 2) CHECK(strcmp(info.isa, "baseline") == 0, "baseline, got %s", info.isa);
    ambi_device_close(dev);
  }
  CHECK(usable > 0, "some instruction set can be asked for by name");
}

static void test_memory(ambi_device *dev) {
  static const size_t sizes[] = {0, 1, 255, 256, 257, 100000};
  ambi_stream *stream;
  if (!CHECK_OK(ambi_stream_create(dev, NULL, &stream))) return;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i];
    ambi_buf b;
    char *out = malloc(n + 1), *in = calloc(n + 1, 1);
    for (size_t k = 0; k < n; k++) out[k] = (char)(k * 7);
    if (CHECK_OK(ambi_alloc(dev, n, &b))) {
      CHECK(b.data && ((uintptr_t)b.data + b.offset) % 256 == 0, "%zu bytes are 256-aligned", n);
      CHECK_OK(ambi_upload(stream, b, out, n));
      CHECK_OK(ambi_download(stream, in, b, n));
      CHECK_OK(ambi_stream_wait(stream));
      CHECK(memcmp(in, out, n) == 0, "%zu bytes come back", n);
      if (n > 8) CHECK_OK(ambi_download(stream, in, (ambi_buf){b.data, b.offset + 3}, 5));
      CHECK(n <= 8 || memcmp(in, out + 3, 5) == 0, "from an offset");
      ambi_free(dev, b);
    }
    free(in);
    free(out);
  }
  CHECK_OK(ambi_upload(stream, (ambi_buf){0}, NULL, 0));
  CHECK_OK(ambi_download(stream, NULL, (ambi_buf){0}, 0));
  ambi_free(dev, (ambi_buf){0});
  ambi_stream_destroy(stream);
}

/* ---- NULL wherever a pointer is expected ---- */
static void test_null(void) {
  ambi_device *dev = cpu;
  ambi_stream *stream;
  ambi_plan *plan = (ambi_plan *)&stream;
  ambi_buf b = {&b, 1};
  ambi_op op = {0};
  CHECK_STATUS(ambi_device_open(NULL, NULL, &dev), AMBI_INVALID, "name", "NULL");
  CHECK(dev == NULL, "a device that did not open is NULL");
  CHECK_STATUS(ambi_device_open("cpu", NULL, NULL), AMBI_INVALID, "out", "NULL");
  CHECK_STATUS(ambi_device_get_info(NULL, &(ambi_device_info){0}), AMBI_INVALID, "dev", "NULL");
  CHECK_STATUS(ambi_device_get_info(cpu, NULL), AMBI_INVALID, "info", "NULL");
  CHECK_STATUS(ambi_device_kernel(NULL, 0, &(ambi_kernel_info){0}), AMBI_INVALID, "dev", "NULL");
  CHECK_STATUS(ambi_device_kernel(cpu, 0, NULL), AMBI_INVALID, "info", "NULL");
  CHECK_STATUS(ambi_alloc(NULL, 1, &b), AMBI_INVALID, "dev", "NULL");
  CHECK(b.data == NULL && b.offset == 0, "a buffer that was not made is zero");
  CHECK_STATUS(ambi_alloc(cpu, 1, NULL), AMBI_INVALID, "out", "NULL");
  ambi_free(NULL, b);
  CHECK_STATUS(ambi_stream_create(NULL, NULL, &stream), AMBI_INVALID, "dev", "NULL");
  CHECK(stream == NULL, "a stream that was not made is NULL");
  CHECK_STATUS(ambi_stream_create(cpu, NULL, NULL), AMBI_INVALID, "out", "NULL");
  CHECK_STATUS(ambi_stream_wait(NULL), AMBI_INVALID, "stream", "NULL");
  ambi_stream_destroy(NULL);
  CHECK_STATUS(ambi_upload(NULL, b, &b, 1), AMBI_INVALID, "stream", "NULL");
  CHECK_STATUS(ambi_download(NULL, &b, b, 1), AMBI_INVALID, "stream", "NULL");
  CHECK_STATUS(ambi_copy(NULL, b, b, 1), AMBI_INVALID, "stream", "NULL");
  if (CHECK_OK(ambi_stream_create(cpu, NULL, &stream))) {
    CHECK_STATUS(ambi_upload(stream, (ambi_buf){0}, "x", 1), AMBI_INVALID, "dst", "NULL");
    CHECK_STATUS(ambi_upload(stream, (ambi_buf){&b, 0}, NULL, 1), AMBI_INVALID, "src", "NULL");
    CHECK_STATUS(ambi_download(stream, NULL, (ambi_buf){&b, 0}, 1), AMBI_INVALID, "dst", "NULL");
    CHECK_STATUS(ambi_download(stream, &b, (ambi_buf){0}, 1), AMBI_INVALID, "src", "NULL");
    ambi_stream_destroy(stream);
  }
  CHECK_STATUS(ambi_check(NULL, &op), AMBI_INVALID, "dev", "NULL");
  CHECK_STATUS(ambi_check(cpu, NULL), AMBI_INVALID, "op", "NULL");
  CHECK_STATUS(ambi_plan_create(NULL, &op, &plan), AMBI_INVALID, "dev", "NULL");
  CHECK(plan == NULL, "a plan that was not made is NULL");
  CHECK_STATUS(ambi_plan_create(cpu, NULL, &plan), AMBI_INVALID, "op", "NULL");
  CHECK_STATUS(ambi_plan_create(cpu, &op, NULL), AMBI_INVALID, "out", "NULL");
  CHECK_STATUS(ambi_plan_create(cpu, &op, &plan), AMBI_INVALID, "kind 0");
  CHECK_STATUS(ambi_plan_get_info(NULL, &(ambi_plan_info){0}), AMBI_INVALID, "plan", "NULL");
  CHECK_STATUS(ambi_run(NULL, NULL, NULL, 0, b), AMBI_INVALID, "plan", "NULL");
  CHECK(ambi_plan_tensor(NULL, 0).dtype == AMBI_NONE, "no plan, no tensor");
  CHECK(ambi_plan_source(NULL) == NULL, "no plan, no source");
  ambi_plan_destroy(NULL);
}

/* ---- reflection ---- */
static void check_slots(const ambi_op_info *op) {
  int seen_output = 0;
  for (int s = 0; s < op->slots; s++) {
    const ambi_slot_info *i = &op->slot[s];
    uint32_t f = i->flags;
    CHECK(i->name && *i->name && i->shape && *i->shape && i->doc && *i->doc, "%s slot %d is described", op->name, s);
    CHECK(f < 64, "%s.%s: flags %u", op->name, i->name, f);
    CHECK(!(f & AMBI_SLOT_SAVED) || (f & AMBI_SLOT_OUTPUT), "%s.%s: only outputs are saved", op->name, i->name);
    CHECK(!(f & AMBI_SLOT_INTEGER) || (f & AMBI_SLOT_NO_GRAD), "%s.%s: integers have no gradient", op->name, i->name);
    CHECK(!seen_output || (f & AMBI_SLOT_OUTPUT), "%s.%s: inputs come before outputs", op->name, i->name);
    seen_output |= (f & AMBI_SLOT_OUTPUT) != 0;
    for (int k = 0; k < s; k++)
      CHECK(strcmp(i->name, op->slot[k].name) != 0, "%s: two slots are called %s", op->name, i->name);
  }
  CHECK(seen_output, "%s has an output", op->name);
}

static void check_attributes(const ambi_op_info *op) {
  const size_t begin = offsetof(ambi_op, u), end = sizeof(ambi_op);
  for (int a = 0; a < op->attrs; a++) {
    const ambi_attr_info *i = &op->attr[a];
    size_t size = i->type == AMBI_ATTR_F64 ? sizeof(double) : sizeof(int32_t);
    CHECK(i->name && *i->name && i->doc && *i->doc, "%s attribute %d is described", op->name, a);
    CHECK(i->type >= AMBI_ATTR_F64 && i->type <= AMBI_ATTR_ENUM, "%s.%s: type %d", op->name, i->name, i->type);
    CHECK(i->offset >= begin && i->offset + size <= end && i->offset % size == 0, "%s.%s: offset %zu", op->name,
          i->name, i->offset);
    CHECK(i->min <= i->def && i->def <= i->max, "%s.%s: default %g outside %g to %g", op->name, i->name, i->def, i->min,
          i->max);
    int names = 0;
    while (i->type == AMBI_ATTR_ENUM && i->names && i->names[names]) names++;
    CHECK(i->type != AMBI_ATTR_ENUM || i->max == names - 1, "%s.%s: %d names for 0 to %g", op->name, i->name, names,
          i->max);
    for (int k = 0; k < a; k++) {
      size_t other = op->attr[k].type == AMBI_ATTR_F64 ? sizeof(double) : sizeof(int32_t);
      CHECK(i->offset + size <= op->attr[k].offset || op->attr[k].offset + other <= i->offset,
            "%s: %s and %s share memory", op->name, i->name, op->attr[k].name);
      CHECK(strcmp(i->name, op->attr[k].name) != 0, "%s: two attributes are called %s", op->name, i->name);
    }
    for (int s = 0; s < op->slots; s++)
      CHECK(strcmp(i->name, op->slot[s].name) != 0, "%s: %s is a slot and an attribute", op->name, i->name);
  }
}

/* {output, input}: both primals, or both of one backward pass, which reads primals and gradients of outputs. */
static void check_in_place(const ambi_op_info *op) {
  for (const int8_t(*p)[2] = op->in_place; p && (*p)[0] >= 0; p++) {
    int out = (*p)[0], in = (*p)[1];
    bool known = out < AMBI_SLOTS && in >= 0 && in < AMBI_SLOTS && out % AMBI_MAX_PRIMALS < op->slots &&
                 in % AMBI_MAX_PRIMALS < op->slots;
    if (!CHECK(known, "%s: in-place pair {%d, %d}", op->name, out, in)) continue;
    bool out_is_output = op->slot[out % AMBI_MAX_PRIMALS].flags & AMBI_SLOT_OUTPUT;
    bool in_is_output = op->slot[in % AMBI_MAX_PRIMALS].flags & AMBI_SLOT_OUTPUT;
    if (out < AMBI_MAX_PRIMALS)
      CHECK(out_is_output && in < AMBI_MAX_PRIMALS && !in_is_output, "%s: pair {%d, %d}", op->name, out, in);
    else
      CHECK(op->backward && !out_is_output && (in < AMBI_MAX_PRIMALS || in_is_output), "%s: pair {%d, %d}", op->name,
            out, in);
  }
}

static void test_reflection(void) {
  int ops = 0;
  CHECK(!ambi_op_get_info(AMBI_OP_NONE) && !ambi_op_get_info(AMBI_KINDS) && !ambi_op_get_info((ambi_kind)-1),
        "no op, no info");
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *op = ambi_op_get_info((ambi_kind)k);
    if (!op) {
      char name[32];
      snprintf(name, sizeof name, "kind %d", k);
      test_skip(name, "declared in ambi.h, not in this build");
      continue;
    }
    ops++;
    CHECK(op->name && *op->name && op->formula && *op->formula && op->doc && *op->doc, "op %d is described", k);
    CHECK(!op->backward || (op->gradient && *op->gradient), "%s has a gradient in words", op->name);
    CHECK(op->slots > 0 && op->slots <= AMBI_MAX_PRIMALS, "%s: %d slots", op->name, op->slots);
    check_slots(op);
    check_attributes(op);
    check_in_place(op);
    size_t length = strlen(op->name);
    bool tested = false;
    for (int i = 0; i < GOOD_CASES; i++)
      tested |= strncmp(good_cases[i], op->name, length) == 0 && good_cases[i][length] == ' ';
    CHECK(tested, "%s has a case in tests/cases.h", op->name);
  }
  CHECK(ops > 0, "there are ops");
}

/* Every op has a kernel, on both devices, for both passes it has; the list ends. */
static void test_kernels(ambi_device *dev) {
  bool seen[AMBI_KINDS][2] = {{false}};
  ambi_kernel_info k;
  int32_t n = 0;
  CHECK_STATUS(ambi_device_kernel(dev, -1, &k), AMBI_INVALID, "no kernel");
  for (; n < 100000 && ambi_device_kernel(dev, n, &k) == AMBI_OK; n++) {
    if (!CHECK(k.kind > 0 && k.kind < AMBI_KINDS && (k.pass == 0 || k.pass == 1), "kernel %d: kind, pass", n)) continue;
    CHECK(k.isa && *k.isa && k.name && *k.name, "kernel %d: names", n);
    CHECK(k.accumulator == AMBI_F32 || k.accumulator == AMBI_F64, "kernel %d: accumulator", n);
    CHECK(k.kind != AMBI_GRAD_NORM || k.accumulator == AMBI_F64, "kernel %d: a norm is summed in f64", n);
    seen[k.kind][k.pass] = true;
  }
  CHECK_STATUS(ambi_device_kernel(dev, n, &k), AMBI_INVALID, "no kernel");
  for (int i = 1; i < AMBI_KINDS; i++) {
    const ambi_op_info *op = ambi_op_get_info((ambi_kind)i);
    if (!op) continue;
    CHECK(seen[i][0], "%s has a forward kernel", op->name);
    CHECK(seen[i][1] == (op->backward != 0), "%s has a backward kernel when it has a backward pass", op->name);
  }
}

/* ---- plans ---- */
static void check_plan(ambi_device *dev, const ambi_op *op, const char *text) {
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  work w;
  CHECK_OK(ambi_check(dev, op));
  if (!CHECK(work_make(dev, op, 1 << 24, &w) == AMBI_OK, "%s: %s", text, ambi_error())) return;
  uint32_t known = (AMBI_BIT(info->slots) - 1) * (1 | AMBI_BIT(AMBI_MAX_PRIMALS));
  CHECK(w.info.kernel && strstr(w.info.kernel, info->name), "%s: its kernel is named", text);
  CHECK(w.info.workspace % 256 == 0, "%s: workspace %llu", text, (unsigned long long)w.info.workspace);
  CHECK(w.info.writes && !((w.info.reads | w.info.writes) & ~known), "%s: slots", text);
  CHECK(!(w.info.reads & w.info.writes), "%s: no slot is read and written", text);
  CHECK(w.info.bytes > 0, "%s: bytes", text);
  CHECK(w.info.accumulator == AMBI_F32 || w.info.accumulator == AMBI_F64, "%s: accumulator", text);
  for (int s = -1; s <= AMBI_SLOTS; s++) {
    bool used = s >= 0 && s < AMBI_SLOTS && ((w.info.reads | w.info.writes) & AMBI_BIT(s));
    CHECK((ambi_plan_tensor(w.plan, s).dtype != AMBI_NONE) == used, "%s: tensor of slot %d", text, s);
  }
  work_fill(&w, 1);
  CHECK(work_run(&w, NULL) == AMBI_OK, "%s: runs on the device's own stream: %s", text, ambi_error());
  uint64_t once = work_hash(&w);
  CHECK(work_run(&w, NULL) == AMBI_OK && (op->accumulate || !w.info.deterministic || work_hash(&w) == once),
        "%s: the same bits again", text);
  CHECK(!ambi_plan_source(w.plan) || *ambi_plan_source(w.plan), "%s: source", text);
  work_free(&w);
}

static void test_plans(ambi_device *dev) {
  for (int i = 0; i < GOOD_CASES; i++) {
    ambi_op forward, backward;
    if (work_case(good_cases[i], AMBI_F32, &forward)) continue;
    check_plan(dev, &forward, good_cases[i]);
    if (work_backward(dev, &forward, &backward) == 0) check_plan(dev, &backward, good_cases[i]);
  }
}

/* Memory moves once, however often an axis of stride 0 repeats it. */
static void test_bytes(void) {
  static const struct {
    const char *text;
    uint64_t bytes;
  } rows[] = {{"add a=5x33 b=5x33", (165 + 165 + 165) * 4},
              {"add a=5x33 b=5x33@0,1", (165 + 33 + 165) * 4},
              {"add a=5x33 b=5x33@0,0", (165 + 1 + 165) * 4},
              {"add a=5x0 b=5x0@0,1", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ambi_op op;
    ambi_plan *plan = NULL;
    ambi_plan_info info = {.bytes = 1};
    if (work_case(rows[i].text, AMBI_F32, &op)) continue;
    if (CHECK_OK(ambi_plan_create(cpu, &op, &plan)) && CHECK_OK(ambi_plan_get_info(plan, &info)))
      CHECK(info.bytes == rows[i].bytes, "%s: %llu bytes", rows[i].text, (unsigned long long)info.bytes);
    ambi_plan_destroy(plan);
  }
}

int main(void) {
  if (!CHECK_OK(ambi_device_open("cpu", NULL, &cpu)) || !CHECK_OK(ambi_device_open("ref", NULL, &ref)))
    return test_done();
  test_names();
  test_tensors();
  test_split();
  test_devices();
  test_caps();
  test_memory(cpu);
  test_memory(ref);
  test_null();
  test_reflection();
  test_kernels(cpu);
  test_kernels(ref);
  test_plans(cpu);
  test_plans(ref);
  test_bytes();
  ambi_device_close(ref);
  ambi_device_close(cpu);
  return test_done();
}
