/* device.c -- the "cpu" device: a pool of threads and the table of kernels of the best instruction set. */
#include <stdio.h>
#include <stdlib.h>

#include "backends/cpu/isa.h"
#include "backends/host.h"

/* rmsnorm_avx2_f32, ...: every op in every instruction set and both arithmetics. Where code is to be small, the build
 * may leave out kernels in f64 (an absent weak symbol is NULL): the references compute in f64 too. */
#if defined(AMBI_COMPACT)
#define MAY_BE_LEFT_OUT __attribute__((weak))
#else
#define MAY_BE_LEFT_OUT
#endif
#define OP_IN(isa, name)                      \
  extern const cpu_kernel name##_##isa##_f32; \
  extern const cpu_kernel name##_##isa##_f64 MAY_BE_LEFT_OUT;
#if defined(__x86_64__)
#define OP(kind, name) OP_IN(avx512, name) OP_IN(avx2, name) OP_IN(baseline, name)
#elif defined(__aarch64__)
#define OP(kind, name) OP_IN(neon, name)
#elif defined(__wasm__)
#define OP(kind, name) OP_IN(wasm, name)
#else
#define OP(kind, name) OP_IN(baseline, name)
#endif
#include "ops/registry.def"
#undef OP

typedef const cpu_kernel *row[2]; /* f32, f64 */
#define ENTRY(isa, kind, name) [ISA_##isa][kind] = {&name##_##isa##_f32, &name##_##isa##_f64},
#if defined(__x86_64__)
#define OP(kind, name) ENTRY(avx512, kind, name) ENTRY(avx2, kind, name) ENTRY(baseline, kind, name)
#elif defined(__aarch64__)
#define OP(kind, name) ENTRY(neon, kind, name)
#elif defined(__wasm__)
#define OP(kind, name) ENTRY(wasm, kind, name)
#else
#define OP(kind, name) ENTRY(baseline, kind, name)
#endif
static const row kernels[ISA_COUNT][AMBI_KINDS] = {
#include "ops/registry.def"
};
#undef OP

extern const backend ref_backend;

enum { PAST_CACHE = 1, BY_REFERENCE = 2 }; /* ambi_plan.choice */

typedef struct {
  isa isa;
  cpu_features features;
  uint64_t cache_bytes;
  pool *threads;
  char summary[64];
} cpu_device;

static ambi_status cpu_open(ambi_device *dev, const char *which, const ambi_device_options *o) {
  enum { MOST_THREADS = 1024 };
  TRY(host_check_options(dev, which, o));
  if (o->threads < 0 || o->threads > MOST_THREADS)
    return fail(AMBI_INVALID, "threads: expected 0 to %d, got %d", MOST_THREADS, o->threads);
  isa chosen;
  TRY(isa_choose(o->max_isa, &chosen));
  cpu_device *cpu = calloc(1, sizeof *cpu);
  if (!cpu) return fail(AMBI_NO_MEMORY, "cpu: no memory for a device");
  cpu->isa = chosen;
  cpu_detect_features(&cpu->features, chosen);
  cpu->cache_bytes = cpu_cache_bytes();
  cpu->threads = pool_create(o->threads ? o->threads : cpu_cores());
  bool bf16 = cpu->features.avx512_bf16, amx = cpu->features.amx_bf16;
  snprintf(cpu->summary, sizeof cpu->summary, "%s%s%s", bf16 ? "avx512-bf16" : "", bf16 && amx ? " " : "",
           amx ? "amx-bf16" : "");
  dev->impl = cpu;
  if (cpu->threads) return AMBI_OK;
  free(cpu);
  return fail(AMBI_NO_MEMORY, "cpu: the threads could not be started");
}

static void cpu_close(ambi_device *dev) {
  cpu_device *cpu = dev->impl;
  pool_destroy(cpu->threads);
  free(cpu);
}

static void cpu_info(const ambi_device *dev, ambi_device_info *info) {
  const cpu_device *cpu = dev->impl;
  info->isa = isa_name(cpu->isa);
  info->features = cpu->summary;
  info->threads = pool_threads(cpu->threads);
  info->cache_bytes = cpu->cache_bytes;
}

static const cpu_kernel *find_kernel(const ambi_device *dev, const problem *p) {
  const cpu_device *cpu = dev->impl;
  const cpu_kernel *k = kernels[cpu->isa][p->op.kind][p->compute == AMBI_F64];
  return k && (is_backward(p) ? k->backward : k->forward) ? k : NULL;
}

static bool left_to_reference(const ambi_device *dev, const problem *p) {
  const cpu_device *cpu = dev->impl;
  return p->compute == AMBI_F64 && !kernels[cpu->isa][p->op.kind][1] && ref_backend.has_kernel(dev, p);
}

static bool cpu_has_kernel(const ambi_device *dev, const problem *p) {
  return find_kernel(dev, p) != NULL || left_to_reference(dev, p);
}

/* Outputs that will not be found in the cache again are stored past it. */
static bool outgrows(const problem *p, uint64_t cache) {
  uint64_t written = 0;
  for (uint32_t m = p->writes; m; m &= m - 1) {
    const ambi_tensor *t = &p->t[__builtin_ctz(m)];
    written += (uint64_t)ambi_numel(t) * ambi_dtype_size(t->dtype);
  }
  return written > cache / 2;
}

static ambi_status cpu_plan(ambi_device *dev, ambi_plan *plan) {
  const cpu_device *cpu = dev->impl;
  const problem *p = &plan->p;
  const cpu_kernel *k = find_kernel(dev, p);
  if (!k) {
    plan->choice = BY_REFERENCE;
    return ref_backend.plan(dev, plan);
  }
  plan->code = k;
  plan->choice = outgrows(p, cpu->cache_bytes) ? PAST_CACHE : 0;
  plan->workspace = k->workspace ? (k->workspace(p, &cpu->features) + 255) / 256 * 256 : 0;
  plan->accumulator = sums_of(p);
  name_kernel(plan, "cpu", isa_name(cpu->isa), k->name);
  return AMBI_OK;
}

static ambi_status cpu_run(const ambi_plan *plan, ambi_stream *s, const ambi_buf *slots, ambi_buf workspace) {
  if (plan->choice == BY_REFERENCE) return ref_backend.run(plan, s, slots, workspace);
  const cpu_device *cpu = plan->dev->impl;
  const cpu_kernel *k = plan->code;
  cpu_call c = {.p = &plan->p,
                .workspace = host_address(workspace),
                .stream = plan->choice == PAST_CACHE,
                .features = &cpu->features,
                .threads = cpu->threads};
  host_addresses(&plan->p, slots, c.at);
  (is_backward(&plan->p) ? k->backward : k->forward)(&c);
  return AMBI_OK;
}

static bool cpu_kernel_at(const ambi_device *dev, int32_t index, ambi_kernel_info *info) {
  const cpu_device *cpu = dev->impl;
  for (int kind = 1; kind < AMBI_KINDS; kind++)
    for (int pass = 0; pass < 2; pass++)
      for (int i = (int)cpu->isa; i < ISA_COUNT; i++)
        for (int wide = 0; wide < 2; wide++) {
          const cpu_kernel *k = kernels[i][kind][wide];
          if (!k || !(pass ? k->backward : k->forward) || index-- > 0) continue;
          *info = (ambi_kernel_info){(ambi_kind)kind,  (ambi_pass)pass, wide ? AMBI_F64 : AMBI_F32,
                                     isa_name((isa)i), k->name,         1};
          return true;
        }
  return false;
}

const backend cpu_backend = {.name = "cpu",
                             .flat = true,
                             .open = cpu_open,
                             .close = cpu_close,
                             .info = cpu_info,
                             .alloc = host_alloc,
                             .free = host_free,
                             .stream_open = host_stream_open,
                             .stream_close = host_stream_close,
                             .upload = host_upload,
                             .download = host_download,
                             .copy = host_copy,
                             .wait = host_wait,
                             .events = HOST_EVENTS,
                             .has_kernel = cpu_has_kernel,
                             .plan = cpu_plan,
                             .run = cpu_run,
                             .kernel = cpu_kernel_at};
