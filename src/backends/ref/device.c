/* device.c -- the "ref" device: every op by its reference, on one thread, in f64. */
#include <stdio.h>
#include <string.h>

#include "backends/convert.h"
#include "backends/host.h"
#include "backends/ref/ref.h"

#define OP(kind, name) extern const ref_kernel name##_ref;
#include "ops/registry.def"
#undef OP

static const ref_kernel *const kernels[AMBI_KINDS] = {
#define OP(kind, name) [kind] = &name##_ref,
#include "ops/registry.def"
#undef OP
};

_Static_assert(AMBI_MAX_DIMS == 8, "as ref_element counts");

typedef union {
  float f;
  double d;
  uint16_t h;
  int32_t i;
  int64_t l;
  uint8_t b;
} stored;

/* As an integer of a type that ends at low and high. */
static int64_t within(double x, int64_t low, int64_t high) {
  return x >= (double)high ? high : x > (double)low ? (int64_t)x : low;
}

#define CONVERT(name, from, to)                                  \
  static double load_##name(stored v) { return (double)(from); } \
  static void save_##name(stored *v, double x) { to; }
CONVERT(f32, v.f, v->f = (float)x)
CONVERT(f16, f16_to_f32(v.h), v->h = f32_to_f16(f64_to_odd_f32(x)))
CONVERT(bf16, bf16_to_f32(v.h), v->h = f32_to_bf16(f64_to_odd_f32(x)))
CONVERT(f64, v.d, v->d = x)
CONVERT(i32, v.i, v->i = (int32_t)within(x, INT32_MIN, INT32_MAX))
CONVERT(i64, v.l, v->l = within(x, INT64_MIN, INT64_MAX))
CONVERT(u8, v.b, v->b = (uint8_t)within(x, 0, UINT8_MAX))

static const struct {
  double (*load)(stored v);
  void (*save)(stored *v, double x);
} conversions[] = {
    [AMBI_F32] = {load_f32, save_f32}, [AMBI_F16] = {load_f16, save_f16}, [AMBI_BF16] = {load_bf16, save_bf16},
    [AMBI_F64] = {load_f64, save_f64}, [AMBI_I32] = {load_i32, save_i32}, [AMBI_I64] = {load_i64, save_i64},
    [AMBI_U8] = {load_u8, save_u8}};

static stored bits(ambi_dtype dtype, const char *at) {
  stored v;
  memcpy(&v, at, ambi_dtype_size(dtype));
  return v;
}

double ref_load(ambi_dtype dtype, const char *at) { return conversions[dtype].load(bits(dtype, at)); }

static void save(ambi_dtype dtype, char *at, double value) {
  stored v;
  conversions[dtype].save(&v, value);
  memcpy(at, &v, ambi_dtype_size(dtype));
}

int64_t ref_integer(const ref_call *c, int slot, at_index i) {
  return c->p->t[slot].dtype == AMBI_I64 ? bits(AMBI_I64, ref_element(c, slot, i)).l : (int64_t)ref_get(c, slot, i);
}

void ref_set(const ref_call *c, int slot, at_index i, double value) {
  if (!writes_slot(c->p, slot)) return;
  char *at = ref_element(c, slot, i);
  if (c->p->accumulates & AMBI_BIT(slot)) value += ref_load(c->p->t[slot].dtype, at);
  save(c->p->t[slot].dtype, at, value);
}

at_index ref_index(const ref_call *c, int slot, int ndim, int64_t n) {
  at_index i = {{0}};
  for (int k = ndim - 1; k >= 0; k--) {
    i.i[k] = n % c->p->t[slot].shape[k];
    n /= c->p->t[slot].shape[k];
  }
  return i;
}

/* ---- the backend ---- */
static ambi_status ref_open(ambi_device *dev, const char *which, const ambi_device_options *o) {
  TRY(host_check_options(dev, which, o));
  if (!o->max_isa || !strcmp(o->max_isa, "c")) return AMBI_OK;
  return fail(AMBI_INVALID, "ref: max_isa is \"c\" here, not %.40s", o->max_isa);
}

static void ref_close(ambi_device *dev) { (void)dev; }
static void ref_info(const ambi_device *dev, ambi_device_info *info) { (void)dev, info->isa = "c"; }

static bool ref_has_kernel(const ambi_device *dev, const problem *p) {
  (void)dev;
  return kernels[p->op.kind] != NULL;
}

static ambi_status ref_plan(ambi_device *dev, ambi_plan *plan) {
  (void)dev;
  const ref_kernel *k = kernels[plan->p.op.kind];
  plan->code = k;
  plan->workspace = k->scratch ? (k->scratch(&plan->p) * sizeof(double) + 255) / 256 * 256 : 0;
  plan->accumulator = AMBI_F64;
  snprintf(plan->kernel, sizeof plan->kernel, "%s.%s f64 ref", plan->p.def->info.name,
           is_backward(&plan->p) ? "backward" : "forward");
  return AMBI_OK;
}

static ambi_status ref_run(const ambi_plan *plan, ambi_stream *s, const ambi_buf *slots, ambi_buf workspace) {
  (void)s;
  const ref_kernel *k = plan->code;
  ref_call c = {.p = &plan->p, .scratch = (double *)(void *)host_address(workspace)};
  host_addresses(&plan->p, slots, c.at);
  for (int slot = 0; slot < AMBI_SLOTS; slot++)
    for (int axis = 0; axis < c.p->t[slot].ndim; axis++)
      c.step[slot][axis] = c.p->t[slot].stride[axis] * (int64_t)ambi_dtype_size(c.p->t[slot].dtype);
  (is_backward(&plan->p) ? k->backward : k->forward)(&c);
  return AMBI_OK;
}

static bool ref_kernel_info(const ambi_device *dev, int32_t index, ambi_kernel_info *info) {
  (void)dev;
  for (int kind = 1; kind < AMBI_KINDS; kind++)
    for (int pass = 0; pass < 2; pass++) {
      if (!kernels[kind] || !(pass ? kernels[kind]->backward : kernels[kind]->forward) || index-- > 0) continue;
      *info = (ambi_kernel_info){(ambi_kind)kind, (ambi_pass)pass, AMBI_F64, "c", "reference", 1};
      return true;
    }
  return false;
}

const backend ref_backend = {.name = "ref",
                             .flat = true,
                             .open = ref_open,
                             .close = ref_close,
                             .info = ref_info,
                             .alloc = host_alloc,
                             .free = host_free,
                             .stream_open = host_stream_open,
                             .stream_close = host_stream_close,
                             .upload = host_upload,
                             .download = host_download,
                             .copy = host_copy,
                             .wait = host_wait,
                             .events = HOST_EVENTS,
                             .has_kernel = ref_has_kernel,
                             .plan = ref_plan,
                             .run = ref_run,
                             .kernel = ref_kernel_info};
