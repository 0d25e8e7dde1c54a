/* plan.c -- plans of the CUDA device: an op's numbers become a text and launches, the text code; run launches. */
#include "backends/cuda/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/text.h"

#define OP(kind, name) extern const cuda_kernel name##_cuda;
#include "ops/registry.def"
#undef OP

static const cuda_kernel *kernel_of(ambi_kind kind) {
  static const cuda_kernel *const kernels[AMBI_KINDS] = {
#define OP(kind, name) [kind] = &name##_cuda,
#include "ops/registry.def"
#undef OP
  };
  return kernels[kind] && kernels[kind]->plan ? kernels[kind] : NULL; /* an empty one: not written yet */
}

/* ---- defines ---- */
static void append(cuda_plan *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(cuda_plan *k, const char *format, ...) {
  va_list args;
  for (int pass = 0; pass < 2 && !k->failed; pass++) {
    char *at = k->defines ? k->defines + k->defined : NULL;
    va_start(args, format);
    int n = vsnprintf(at, k->room - k->defined, format, args); /* NOLINT(clang-analyzer-valist.Uninitialized): it is */
    va_end(args);
    if (n >= 0 && k->defined + (size_t)n < k->room) {
      k->defined += (size_t)n;
      return;
    }
    size_t room = 2 * k->room + (size_t)n + 1024;
    char *more = realloc(k->defines, room);
    if (!more) k->failed = true;
    if (more) k->defines = more, k->room = room;
  }
}

void cuda_fix(cuda_plan *k, const char *name, int64_t value) {
  append(k, "#define %s %lldll\n", name, (long long)value);
}

void cuda_define(cuda_plan *k, const char *name, const char *text, const char *more) {
  append(k, "#define %s %s%s\n", name, text, more);
}

static int take_numbers(cuda_plan *k, int count) {
  if (k->numbers + count > ARGS_NUMBERS) {
    k->failed = true;
    return 0;
  }
  k->numbers += count;
  return k->numbers - count;
}

void cuda_number(cuda_plan *k, const char *name, int64_t value) {
  int at = take_numbers(k, 1);
  k->args.n[at] = value;
  append(k, "#define %s (a.n[%d])\n", name, at);
}

int cuda_numbers(cuda_plan *k, const char *name, int count) {
  int at = take_numbers(k, count);
  append(k, "#define %s(i) (a.n[%d + (i)])\n", name, at);
  return at;
}

static void say_real(cuda_plan *k, const char *name, const char *type, double value) {
  if (k->reals == ARGS_REALS) k->failed = true;
  if (k->failed) return;
  append(k, "#define %s ((%s)a.f[%d])\n", name, type, k->reals);
  k->args.f[k->reals++] = value;
}

void cuda_real(cuda_plan *k, const char *name, double value) { say_real(k, name, "real", value); }
void cuda_wide(cuda_plan *k, const char *name, double value) { say_real(k, name, "double", value); }

static uint32_t used_slots(const cuda_plan *k) { return k->p->reads | k->p->writes; }

void cuda_grid(cuda_plan *k, const char *name, const grid *g) {
  int dims = g->ndim, at = take_numbers(k, 1 + dims * (1 + __builtin_popcount(used_slots(k))));
  if (k->failed) return;
  int64_t *n = k->args.n + at;
  *n++ = dims;
  memcpy(n, g->shape, (size_t)dims * sizeof *n);
  for (uint32_t m = used_slots(k); m; m &= m - 1) {
    n += dims;
    memcpy(n, g->stride[__builtin_ctz(m)], (size_t)dims * sizeof *n);
  }
  if (k->special)
    append(k, "#define %s_DIMS %d\n", name, dims);
  else
    append(k, "#define %s_DIMS ((int)a.n[%d])\n", name, at);
  append(k, "#define %s_OFFSET(s, i) (walk(%s_DIMS, a.n + %d, a.n + %d + %s_DIMS * (1 + RANK(s)), i))\n", name, name,
         at + 1, at + 1, name);
}

void cuda_strides(cuda_plan *k, const char *name, const int64_t *stride) {
  bool ones = k->special;
  for (uint32_t m = used_slots(k); m; m &= m - 1) ones = ones && stride[__builtin_ctz(m)] == 1;
  if (ones) {
    append(k, "#define %s_STRIDE(s) 1ll\n", name);
    return;
  }
  int at = take_numbers(k, __builtin_popcount(used_slots(k)));
  for (uint32_t m = used_slots(k), i = 0; m && !k->failed; m &= m - 1, i++)
    k->args.n[at + (int)i] = stride[__builtin_ctz(m)];
  append(k, "#define %s_STRIDE(s) (a.n[%d + RANK(s)])\n", name, at);
}

void cuda_table(cuda_plan *k, const char *name, int columns, const int64_t *rows) {
  int at = take_numbers(k, columns * __builtin_popcount(used_slots(k)));
  int64_t *n = k->args.n + at;
  for (uint32_t m = used_slots(k); m && !k->failed; m &= m - 1, n += columns)
    memcpy(n, rows + columns * __builtin_ctz(m), (size_t)columns * sizeof *n);
  append(k, "#define %s(s, i) (a.n[%d + %d * RANK(s) + (i)])\n", name, at, columns);
}

/* One dtype, or two: 16-bit activations with f32 weights. Any other mixture is rare and shares one slower text. Numbers
 * in f64 beside arithmetic in f32, such as grad_norm's sumsq, do not count. */
static bool few_dtypes(const cuda_plan *k) {
  uint32_t seen = 0;
  for (uint32_t m = used_slots(k); m; m &= m - 1) {
    ambi_dtype t = k->p->t[__builtin_ctz(m)].dtype;
    if (is_float(t)) seen |= UINT32_C(1) << t;
  }
  seen &= ~(UINT32_C(1) << k->p->compute | UINT32_C(1) << AMBI_F64);
  return (seen & (seen - 1)) == 0;
}

/* A text of its own is compiled for what is large enough to gain by it, and whose dtypes are a usual mixture;
 * everything else shares one text, which asks args for what it needs to know. */
bool cuda_specialise(cuda_plan *k, bool possible) {
  enum { LARGE = 8192 }; /* elements */
  const cuda_args *a = &k->args;
  int64_t most = 0;
  for (uint32_t m = used_slots(k); m; m &= m - 1) {
    int64_t n = ambi_numel(&k->p->t[__builtin_ctz(m)]);
    if (n > most) most = n;
  }
  bool wanted = k->dev->special == SPECIAL_LARGE ? most >= LARGE : k->dev->special == SPECIAL_ALWAYS;
  k->special = possible && wanted && !k->general && few_dtypes(k);
  if (k->special)
    append(k, "#define DTYPES_0 0x%llxull\n#define DTYPES_1 0x%llxull\n#define USED 0x%xu\n#define ADDS_TO 0x%xu\n",
           (unsigned long long)a->dtypes[0], (unsigned long long)a->dtypes[1], a->used, a->adds);
  else
    append(k,
           "#define DTYPES_0 (a.dtypes[0])\n#define DTYPES_1 (a.dtypes[1])\n#define USED (a.used)\n"
           "#define ADDS_TO (a.adds)\n");
  return k->special;
}

void cuda_part(cuda_plan *k, const char *text) {
  if (k->parts == MAX_PARTS) k->failed = true;
  if (!k->failed) k->part[k->parts++] = text;
}

void cuda_workspace(cuda_plan *k, const char *name, uint64_t bytes) {
  int at = take_numbers(k, 1); /* not a constant: it depends on every shape */
  k->args.n[at] = (int64_t)k->workspace;
  append(k, "#define %s (a.work + a.n[%d])\n", name, at);
  k->workspace += (bytes + 255) / 256 * 256;
}

/* ---- steps ---- */
static cuda_step *new_step(cuda_plan *k) { /* NULL: the plan has failed */
  if (k->steps == MAX_STEPS) k->failed = true;
  return k->failed ? NULL : &k->step[k->steps++];
}

/* The first launch that would take more than there can be fails the plan, and says so. */
static void check_launch(cuda_plan *k, const char *kernel, int64_t grid_x, int64_t grid_y, int64_t shared) {
  const struct {
    int64_t wanted, most;
    const char *of;
  } limits[] = {{grid_x, INT32_MAX, "blocks in x"},
                {grid_y, 65535, "blocks in y"},
                {shared, k->dev->shared_bytes, "bytes of shared memory in a block"}};
  for (int i = 0; i < 3 && !k->failed; i++) {
    if (limits[i].wanted <= limits[i].most) continue;
    k->failed = true;
    snprintf(k->huge, sizeof k->huge, "%.40s wants %lld %s, and may have %lld", kernel, (long long)limits[i].wanted,
             limits[i].of, (long long)limits[i].most);
  }
}

/* Adds a launch; false: it is of nothing, or the plan has failed. */
static bool add_launch(cuda_plan *k, const cuda_step *step, int64_t grid_x, int64_t grid_y, int64_t shared) {
  if (grid_x <= 0 || grid_y <= 0 || k->failed) return false;
  check_launch(k, step->kernel, grid_x, grid_y, shared);
  cuda_step *s = new_step(k);
  if (!s) return false;
  *s = *step;
  s->grid[0] = (uint32_t)grid_x, s->grid[1] = (uint32_t)grid_y, s->grid[2] = 1;
  s->shared = (uint32_t)shared;
  return true;
}

void cuda_launch(cuda_plan *k, const char *kernel, int64_t grid_x, int64_t grid_y, int block_x, int block_y,
                 int64_t shared) {
  const bool apart = k->apart && !strcmp(k->apart, kernel);
  const cuda_step step = {
      .kernel = kernel, .text = apart ? APART_TEXT : OWN_TEXT, .block = {(uint32_t)block_x, (uint32_t)block_y}};
  add_launch(k, &step, grid_x, grid_y, shared);
}

int cuda_held_in(cuda_plan *k, int text, const char *kernel, int64_t grid_x, int64_t grid_y, int block_x, int block_y,
                 int64_t shared) {
  const cuda_step step = {
      .kernel = kernel, .text = text, .block = {(uint32_t)block_x, (uint32_t)block_y}, .held = true};
  return add_launch(k, &step, grid_x, grid_y, shared) ? k->steps - 1 : -1;
}

int cuda_held(cuda_plan *k, const char *kernel, int64_t grid_x, int64_t grid_y, int block_x, int block_y) {
  return cuda_held_in(k, OWN_TEXT, kernel, grid_x, grid_y, block_x, block_y, 0);
}

void cuda_then(cuda_plan *k, cuda_call *call, void *context, void (*release)(const cuda_device *d, void *context)) {
  cuda_step *s = new_step(k);
  if (!s)
    release(k->dev, context);
  else
    *s = (cuda_step){.call = call, .context = context, .release = release};
}

/* ---- questions ---- */
int64_t cuda_vector(const cuda_plan *k, uint32_t slots) {
  int64_t smallest = 8;
  for (uint32_t m = slots & used_slots(k); m; m &= m - 1) {
    const ambi_tensor *t = &k->p->t[__builtin_ctz(m)];
    if (t->ndim == 0 || (t->stride[t->ndim - 1] != 1 && t->shape[t->ndim - 1] != 1)) return 1;
    int64_t bytes = dtype_bytes(t->dtype);
    if (bytes < smallest) smallest = bytes;
  }
  return 16 / (smallest < 2 ? 2 : smallest);
}

/* ---- making a plan ---- */
/* toupper is the host's: in a Turkish locale it makes another letter of i, or none. */
static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

static void describe_problem(cuda_plan *k) {
  const problem *p = k->p;
  const ambi_op_info *info = &p->def->info;
  k->args.used = used_slots(k);
  k->args.adds = p->accumulates;
  for (int s = 0; s < AMBI_SLOTS; s++)
    if (k->args.used & AMBI_BIT(s)) k->args.dtypes[s / 16] |= (uint64_t)p->t[s].dtype << 4 * (s % 16);
  append(k, "#define COMPUTE_F64 %d\n#define BACKWARD %d\n", p->compute == AMBI_F64, is_backward(p));
  for (int grads = 0; grads < 2; grads++) {
    append(k, "enum {");
    for (int s = 0; s < info->slots; s++) {
      append(k, " %s", grads ? "D" : "");
      for (const char *c = info->slot[s].name; *c; c++) append(k, "%c", upper(*c));
      append(k, " = %d,", s + 16 * grads);
    }
    append(k, " };\n");
  }
}

/* 16-bit results need fewer digits than f32 arithmetic has: see math_half.cu. */
static bool all_half(const problem *p) {
  for (uint32_t m = p->writes; m; m &= m - 1) {
    ambi_dtype t = p->t[__builtin_ctz(m)].dtype;
    if (t != AMBI_F16 && t != AMBI_BF16) return false;
  }
  return p->compute == AMBI_F32;
}

static char *assemble(const cuda_plan *k, const char *which, const char *text) {
  const char *pieces[MAX_PARTS + 6] = {k->defines, which, prelude_cu};
  int n = 3;
  for (int i = 0; i < k->parts; i++) pieces[n++] = k->part[i];
  pieces[n++] = text;
  if (k->last) pieces[n++] = k->last;
  if (k->more) pieces[n++] = k->more;
  return cuda_join(pieces, n);
}

void cuda_math(cuda_plan *k) {
  append(k, "#define AMBI_TEXT\n");
  append(k, "#define AMBI_REAL %d\n", k->p->compute == AMBI_F64 ? 64 : 32);
  cuda_part(k, scalar_cu);
  cuda_part(k, k->p->compute == AMBI_F64 ? math_f64_cu : math_cu);
  if (k->special && all_half(k->p)) cuda_part(k, math_half_cu), cuda_part(k, math_half_names_cu);
}

static ambi_status find_functions(cuda_plan *k) {
  enum { OWN_SHARED = 1, MAX_DYNAMIC_SHARED = 8 };
  const cuda_api *api = &k->dev->api;
  int own = 0;
  for (cuda_step *s = k->step; s < k->step + k->steps; s++) {
    if (!s->kernel) continue;
    void *module = k->text[s->text].module->handle;
    TRY(api_check(api, api->cuModuleGetFunction(&s->function, module, s->kernel), s->kernel));
    if (!s->shared) continue;
    /* More than the usual 48 KiB. A function's limit is one for all plans that share it: always the most. */
    TRY(api_check(api, api->cuFuncGetAttribute(&own, OWN_SHARED, s->function), s->kernel));
    const int64_t all = (int64_t)s->shared + own;
    if (all > k->dev->shared_bytes)
      return fail(AMBI_UNSUPPORTED, "cuda: %s takes %lld bytes of shared memory, and a block may have %lld here",
                  s->kernel, (long long)all, (long long)k->dev->shared_bytes);
    TRY(api_check(api, api->cuFuncSetAttribute(s->function, MAX_DYNAMIC_SHARED, (int)k->dev->shared_bytes - own),
                  s->kernel));
  }
  return AMBI_OK;
}

/* Its own texts: none, one, or two, of which the second has the kernel apart. */
static ambi_status write_texts(cuda_plan *k, const char *text) {
  static const char *const which[] = {[OWN_TEXT] = "#define TEXT_APART 0", [APART_TEXT] = "#define TEXT_APART 1"};
  for (int i = 0; i < k->steps; i++) {
    cuda_text *t = &k->text[k->step[i].text];
    if (!k->step[i].kernel || t->source) continue;
    *t = (cuda_text){.source = assemble(k, k->apart ? which[k->step[i].text] : "", text), .hopper = k->hopper};
    if (!t->source) return fail(AMBI_NO_MEMORY, "%s: no memory for its text", k->p->def->info.name);
  }
  return AMBI_OK;
}

static ambi_status build(cuda_plan *k) {
  const cuda_kernel *kernel = kernel_of(k->p->op.kind);
  describe_problem(k);
  TRY(kernel->plan(k));
  append(k, "#define NUMBERS %d\n",
         k->numbers < 64 ? 64 : (k->numbers + 63) / 64 * 64); /* few sizes: more plans share a text */
  if (*k->huge) return fail(AMBI_UNSUPPORTED, "%s: too large for this device: %s", k->p->def->info.name, k->huge);
  if (k->failed) return fail(AMBI_NO_MEMORY, "%s: no room for its CUDA plan", k->p->def->info.name);
  TRY(write_texts(k, kernel->text));
  TRY(cuda_get_texts(k));
  TRY(cuda_show_texts(k));
  return find_functions(k);
}

static void free_plan(cuda_plan *k) {
  for (cuda_step *s = k->step; s < k->step + k->steps; s++)
    if (s->release) s->release(k->dev, s->context);
  cuda_free_texts(k);
  free(k->defines);
  free(k);
}

static ambi_status try_plan(cuda_device *dev, const problem *p, bool general, cuda_plan **out) {
  cuda_plan *k = *out = calloc(1, sizeof *k);
  if (!k) return fail(AMBI_NO_MEMORY, "%s: no memory for a plan", p->def->info.name);
  k->dev = dev;
  k->p = p;
  k->variant = "";
  k->texts = PRODUCT_TEXTS;
  k->general = general;
  TRY(cuda_enter(dev));
  const ambi_status s = build(k);
  cuda_leave(dev);
  return s;
}

/* A text made for one plan may ask for more than this GPU has: shared memory, as is known when it is compiled, or
 * blocks. Then the text that serves all plans, whose tiles are small, may do. */
ambi_status cuda_make_plan(ambi_device *dev, ambi_plan *plan) {
  cuda_plan *k;
  ambi_status s = try_plan(cuda_of(dev), &plan->p, false, &k);
  if (s == AMBI_UNSUPPORTED && k->special) {
    free_plan(k);
    s = try_plan(cuda_of(dev), &plan->p, true, &k);
  }
  if (s != AMBI_OK && k) free_plan(k);
  if (s != AMBI_OK) return s;
  plan->code = k;
  plan->workspace = k->workspace;
  plan->accumulator = sums_of(&plan->p);
  name_kernel(plan, "cuda", k->dev->isa, k->variant);
  return AMBI_OK;
}

void cuda_unplan(ambi_plan *plan) { free_plan((cuda_plan *)(uintptr_t)plan->code); }

const char *cuda_source(const ambi_plan *plan) { return cuda_texts_shown(plan->code); }

bool cuda_has_kernel(const ambi_device *dev, const problem *p) {
  (void)dev;
  return kernel_of(p->op.kind) != NULL;
}

bool cuda_kernel_info(const ambi_device *dev, int32_t index, ambi_kernel_info *info) {
  for (int kind = 1; kind < AMBI_KINDS; kind++)
    for (int pass = 0; pass <= (find_op((ambi_kind)kind) ? find_op((ambi_kind)kind)->info.backward : -1); pass++)
      for (int wide = 0; wide < 2; wide++) {
        if (!kernel_of((ambi_kind)kind) || index-- > 0) continue;
        *info = (ambi_kernel_info){(ambi_kind)kind,
                                   (ambi_pass)pass,
                                   wide ? AMBI_F64 : AMBI_F32,
                                   cuda_of(dev)->isa,
                                   "text, compiled at first use",
                                   1};
        return true;
      }
  return false;
}

/* ---- run ---- */
static uint64_t address(ambi_buf b) { return (uint64_t)(uintptr_t)b.data + b.offset; }

static ambi_status launch(const cuda_api *api, const cuda_step *s, void *args, void *stream) {
  void *parameters[] = {args};
  int error = api->cuLaunchKernel(s->function, s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], 1,
                                  s->shared, stream, parameters, NULL);
  return error ? api_check(api, error, s->kernel) : AMBI_OK;
}

ambi_status cuda_launch_held(const cuda_plan *k, int step, void *args, void *stream) {
  return step < 0 ? AMBI_OK : launch(&k->dev->api, &k->step[step], args, stream);
}

static ambi_status take_step(const cuda_plan *k, const cuda_step *s, cuda_args *args, void *stream) {
  if (s->held) return AMBI_OK;
  return s->kernel ? launch(&k->dev->api, s, args, stream) : s->call(k, s->context, args, stream);
}

ambi_status cuda_run(const ambi_plan *plan, ambi_stream *s, const ambi_buf *slots, ambi_buf workspace) {
  const cuda_plan *k = plan->code;
  if (k->steps == 0) return AMBI_OK;
  void *stream = s ? s->impl : k->dev->stream;
  cuda_args args;
  memcpy(&args, &k->args, offsetof(cuda_args, n) + (size_t)k->numbers * sizeof *args.n);
  uint64_t any = 0;
  for (uint32_t m = args.used; m; m &= m - 1) any |= args.at[__builtin_ctz(m)] = address(slots[__builtin_ctz(m)]);
  args.aligned = any % 16 == 0;
  args.work = address(workspace);
  TRY(cuda_enter(k->dev));
  ambi_status status = AMBI_OK;
  for (const cuda_step *step = k->step; step < k->step + k->steps && status == AMBI_OK; step++)
    status = take_step(k, step, &args, stream);
  cuda_leave(k->dev);
  return status;
}
