/* test_fake.c -- the stand-ins for the CUDA driver and NVRTC: kernels compute what they say, and whatever a real device
 * would refuse or fail at is refused or fails. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "../test.h"

typedef uint64_t pointer;
enum { N = 1000, BLOCK = 128, BLOCKS = (N + BLOCK - 1) / BLOCK };

/* ---- the functions used, by their signatures ---- */
/* clang-format off */
#define DRIVER(F)                                                                                                      \
  F(cuInit, (unsigned))                                                                                                \
  F(cuDriverGetVersion, (int *))                                                                                       \
  F(cuDeviceGetCount, (int *))                                                                                         \
  F(cuDeviceGet, (int *, int)) F(cuDeviceGetAttribute, (int *, int, int)) F(cuDevicePrimaryCtxRetain, (void **, int))  \
      F(cuDevicePrimaryCtxRelease_v2, (int)) F(cuCtxPushCurrent_v2, (void *)) F(cuCtxPopCurrent_v2, (void **)) F(      \
          cuCtxSynchronize, (void)) F(cuMemAlloc_v2, (pointer *, size_t)) F(cuMemFree_v2, (pointer))                   \
          F(cuMemGetInfo_v2, (size_t *, size_t *)) F(cuMemcpyHtoDAsync_v2, (pointer, const void *, size_t, void *)) F( \
              cuMemcpyDtoHAsync_v2, (void *, pointer, size_t, void *))                                                 \
              F(cuMemsetD32Async, (pointer, unsigned, size_t, void *)) F(                                              \
                  cuMemsetD8Async, (pointer, unsigned char, size_t, void *)) F(cuStreamCreate, (void **, unsigned))    \
                  F(cuStreamDestroy_v2, (void *)) F(cuStreamSynchronize, (void *)) F(                                  \
                      cuStreamBeginCapture_v2, (void *, int)) F(cuStreamEndCapture, (void *, void **))                 \
                      F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) F(                         \
                          cuGraphLaunch, (void *, void *)) F(cuGraphExecDestroy, (void *)) F(cuGraphDestroy, (void *)) \
                          F(cuModuleLoadData, (void **, const void *)) F(cuModuleUnload, (void *))                     \
                              F(cuModuleGetFunction, (void **, void *, const char *))                                  \
                                  F(cuModuleGetGlobal_v2, (pointer *, size_t *, void *, const char *))                 \
                                      F(cuFuncSetAttribute, (void *, int, int))                                        \
                                          F(cuFuncGetAttribute, (int *, int, void *))                                  \
                                              F(cuEventCreate, (void **, unsigned)) F(cuEventDestroy_v2, (void *))     \
                                                  F(cuEventRecord, (void *, void *))                                   \
                                                      F(cuEventElapsedTime, (float *, void *, void *))                 \
                                                          F(cuStreamWaitEvent, (void *, void *, unsigned)) F(          \
                                                              cuGetErrorName, (int, const char **))                    \
                                                              F(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, \
                                                                                 unsigned, unsigned, unsigned,         \
                                                                                 unsigned, void *, void **, void **))
#define NVRTC(F)                                                                                                \
  F(nvrtcCreateProgram, (void **, const char *, const char *, int, const char *const *, const char *const *))   \
  F(nvrtcCompileProgram, (void *, int, const char *const *))                                                    \
  F(nvrtcGetProgramLogSize, (void *, size_t *))                                                                 \
  F(nvrtcGetProgramLog, (void *, char *))                                                                       \
  F(nvrtcGetCUBINSize, (void *, size_t *)) F(nvrtcGetCUBIN, (void *, char *)) F(nvrtcDestroyProgram, (void **)) \
      F(nvrtcVersion, (int *, int *))
/* clang-format on */
#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)
NVRTC(DECLARE)
static long (*fakecuda_live)(const char *);

#define FIND(name, args) *(void **)&name = dlsym(library, #name), CHECK(name != NULL, "there is " #name);
static void find_functions(void) {
  void *library = dlopen(LIBRARIES "/libraries/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, "%s", library ? "" : dlerror());
  DRIVER(FIND)
  FIND(fakecuda_live, )
  library = dlopen(LIBRARIES "/libraries/libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, "%s", library ? "" : dlerror());
  NVRTC(FIND)
  library = dlopen(LIBRARIES "/old/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library && dlsym(library, "cuInit") && !dlsym(library, "cuGraphLaunch"), "the old driver has no graphs");
}

/* ---- kernels ---- */
#define KERNEL(name) \
  "extern \"C\" __global__ void __launch_bounds__(BLOCK) " name "(const __grid_constant__ args a) {\n"
static const char prelude[] =
    "struct args { const float *x; float *y; int *n; long long count; float a; };\n"
    "#ifndef DYNAMIC_SHARED\n#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]\n#endif\n"
    "__device__ __forceinline__ long long here() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }\n";
static const char kernels[] =
    "extern \"C\" __device__ int counter = 7;\n"
    "__device__ float warp_sum(float v) { for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i); return v; }\n"
    KERNEL("saxpy") "const long long i = here(); if (i < a.count) a.y[i] = fmaf(a.a, a.x[i], a.y[i]); }\n"
    KERNEL("block_sum")
    "  __shared__ float part[BLOCK / 32];\n"
    "  const long long i = here();\n"
    "  const float s = warp_sum(i < a.count ? a.x[i] : 0);\n"
    "  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x >= 32) return;\n"
    "  __syncthreads();\n" /* does not wait for those gone */
    "  const float t = warp_sum(threadIdx.x < BLOCK / 32 ? part[threadIdx.x] : 0);\n"
    "  if (threadIdx.x == 0) a.y[blockIdx.x] = t; }\n"
    KERNEL("reverse") /* through dynamic shared memory */
    "  DYNAMIC_SHARED(room); float *s = (float *)room;\n"
    "  s[threadIdx.x] = a.x[threadIdx.x]; __syncthreads(); a.y[threadIdx.x] = s[BLOCK - 1 - threadIdx.x]; }\n"
    KERNEL("warps")
    "  const int t = threadIdx.x, lane = t % 32; int all[32], mine = 3 * t;\n"
    "  emu_warp_exchange(&mine, sizeof mine, all);\n"
    "  int ok = all[31 - lane] == 3 * (t - lane + 31 - lane);\n"
    "  ok &= __shfl_sync(~0u, t, 5) == t - lane + 5;\n"
    "  ok &= __shfl_up_sync(~0u, (double)t, 1) == (lane ? t - 1 : t);\n"
    "  ok &= __shfl_down_sync(~0u, (long long)t, 3, 8) == (lane % 8 < 5 ? t + 3 : t);\n"
    "  ok &= __shfl_xor_sync(~0u, (unsigned)t, 9) == (unsigned)(t ^ 9);\n"
    "  ok &= __ballot_sync(~0u, lane & 1) == 0xaaaaaaaau && __any_sync(~0u, t == 40) == (t / 32 == 1);\n"
    "  ok &= __all_sync(~0u, t < 64) == (t < 64) && __activemask() == ~0u;\n"
    "  if (lane < 16) ok &= __shfl_xor_sync(0xffffu, t, 1) == (t ^ 1);\n" /* half a warp */
    "  else ok &= __shfl_xor_sync(0xffff0000u, t, 2) == (t ^ 2);\n"
    "  __syncwarp();\n"
    "  ok &= __syncthreads_count(t < 50) == 50 && __syncthreads_or(t == 3) && !__syncthreads_and(t != 3);\n"
    "  ok &= __clz(1) == 31 && __ffs(8) == 4 && __brev(1) == 0x80000000u && __umulhi(1u << 31, 6) == 3;\n"
    "  ok &= __funnelshift_l(0x80000000u, 1, 1) == 3 && __byte_perm(0x03020100, 0x07060504, 0x7531) == 0x07050301;\n"
    "  ok &= __float_as_uint(1.0f) == 0x3f800000 && __float2int_rn(2.5f) == 2 && rsqrtf(4.0f) == 0.5f;\n"
    "  ok &= fabsf(normcdff(1.0f) - 0.8413447461f) < 1e-7f && fabsf(erfcxf(30.0f) - 0.0187958886f) < 1e-9f;\n"
    "  ok &= max(1, 2) == 2 && min(1.5f, __int_as_float(0x7fc00000)) == 1.5f && isnan(sqrt(-1.0f));\n"
    "  const float4 v = make_float4(1, 2, 3, 4); ok &= v.w == 4 && sizeof v == 16 && alignof(float4) == 16;\n"
    "  if (ok) atomicAdd(a.n, 1); }\n"
    KERNEL("halves") /* every f16 and back; ties and ends */
    "  int ok = 1;\n"
    "  for (unsigned h = threadIdx.x; h < 65536; h += BLOCK)\n"
    "    if ((h & 0x7fff) <= 0x7c00) ok &= emu_f32_to_f16(emu_f16_to_f32(h)) == h;\n"
    "  ok &= emu_f32_to_f16(65519.996f) == 0x7bff && emu_f32_to_f16(65520.0f) == 0x7c00;\n"
    "  ok &= emu_f32_to_f16(0x1.002p0f) == 0x3c00 && emu_f32_to_f16(0x1.006p0f) == 0x3c02;\n"
    "  ok &= emu_f32_to_f16(0x1p-25f) == 0 && emu_f32_to_f16(0x1.8p-24f) == 2 && emu_f32_to_f16(-0x1.8p-25f) == 0x8001;\n"
    "  ok &= emu_f32_to_bf16(0x1.01p0f) == 0x3f80 && emu_f32_to_bf16(0x1.03p0f) == 0x3f82;\n"
    "  ok &= __double2float_rz(1 - 0x1p-30) == 1 - 0x1p-24f && __double2float_rz(-1.0) == -1.0f;\n"
    "  if (ok) atomicAdd(a.n, 1); }\n"
    KERNEL("named") "counter += 1; if (threadIdx.x == 0) *a.n = counter; }\n"
    KERNEL("big") "if (threadIdx.x == 0) a.y[here() / BLOCK % a.count] += 1; }\n";
static const char faults[] =
    KERNEL("wild") "a.y[(long long)1 << 40] = threadIdx.x; }\n"
    KERNEL("past") "if (threadIdx.x == 0) a.y[a.count] = 1; }\n"
    KERNEL("waits") "if (threadIdx.x < 16) __syncthreads(); else if (threadIdx.x == 16) __syncwarp(); }\n"
    KERNEL("splits") "if (threadIdx.x % 2) __syncthreads(); else __shfl_sync(~0u, 1, 0); }\n"
    KERNEL("asserts") "assert(threadIdx.x < 3); }\n"
    KERNEL("recurses") "volatile char room[1 << 17]; room[threadIdx.x] = 1; }\n"
    KERNEL("overruns") "DYNAMIC_SHARED(room); room[a.count] = 1; }\n";

/* Kernels that race, and some that do not; s[i] is thread i's. */
#define RACER(name) KERNEL(name) "__shared__ float s[BLOCK]; const int t = threadIdx.x; s[t] = a.x[t];\n"
#define WITH(i)     "a.y[t] = s[t ^ " #i "]; }\n"
#define PHASE                                                                       \
  "__shared__ long long b; const unsigned long long at = (unsigned long long)&b;\n" \
  "if (t == 0) emu_phase_init(at, 64); __syncthreads(); s[t] = 1; if (t < 64) emu_phase_arrive(at);"
#define COPY    "__syncthreads(); emu_begun(EMU_COPIES, &s[t], 4); emu_batch(EMU_COPIES);"
#define PRODUCT "__syncthreads(); emu_begun(EMU_PRODUCTS, &s[t ^ 1], 4); emu_batch(EMU_PRODUCTS);"
/* clang-format off */
static const char shares[] =
    "__device__ inline int *mine() { __shared__ int s[BLOCK]; return s; }\n"
    KERNEL("fresh") "if (threadIdx.x == 0) *a.n = mine()[0], mine()[0] = 1; }\n";
static const char races[] =
    RACER("race_none") WITH(1)
    RACER("meet_all") "__syncthreads();" WITH(64)
    RACER("meet_lanes") "__syncwarp();" WITH(1)
    RACER("race_shuffled") "__shfl_sync(~0u, t, 0);" WITH(1)
    RACER("race_warps") "__syncwarp();" WITH(32)
    RACER("meet_some") "emu_barrier(1 + t / 64, 64);" WITH(32)
    RACER("race_some") "emu_barrier(1 + t / 64, 64);" WITH(64)
    RACER("race_again") "__syncthreads(); a.y[t] = s[t ^ 1]; s[t] = 0; }\n"
    RACER("meet_again") "__syncthreads(); a.y[t] = s[t ^ 1]; __syncthreads(); s[t] = 0; }\n"
    RACER("meet_bytes") "__syncthreads(); ((char *)s)[t] = 1; }\n"
    RACER("meet_phase") PHASE "if (t >= 64) emu_phase_wait(at, 0), a.y[t] = s[t - 64]; }\n"
    RACER("race_phase") PHASE "if (t >= 64) a.y[t] = s[t - 64]; }\n"
    RACER("race_behind") PHASE "if (t < 64) s[t] = 2; else emu_phase_wait(at, 0), a.y[t] = s[t - 64]; }\n"
    RACER("meet_copies") COPY "emu_ended(EMU_COPIES, 0); __syncthreads();" WITH(1)
    RACER("race_copies") COPY "__syncthreads(); const float v = s[t ^ 1]; emu_ended(EMU_COPIES, 0); a.y[t] = v; }\n"
    RACER("race_own") COPY "s[t] = 1; emu_ended(EMU_COPIES, 0); }\n"
    RACER("race_left") COPY "emu_ended(EMU_COPIES, 1); __syncthreads();" WITH(1)
    RACER("race_late") COPY "__syncthreads(); a.y[t] = s[t ^ 1]; __syncthreads(); emu_ended(EMU_COPIES, 0); }\n"
    RACER("race_begun") PHASE "emu_phase_init(at, 64); }\n"
    RACER("meet_products") PRODUCT "emu_ended(EMU_PRODUCTS, 0); __syncthreads(); s[t] = 1; }\n"
    RACER("race_products") PRODUCT "__syncthreads(); s[t] = 1; emu_ended(EMU_PRODUCTS, 0); }\n";
/* clang-format on */

static void *compile(const char *text, int want, const char *word) {
  static const char *const options[] = {"-DBLOCK=128", "--gpu-architecture=sm_90", "-lineinfo", "--std=c++17"};
  char whole[16384], log[8192] = "";
  void *p = NULL, *code = NULL;
  size_t size = 0;
  snprintf(whole, sizeof whole, "%s%s", prelude, text);
  CHECK(nvrtcCreateProgram(&p, whole, "kernels.cu", 0, NULL, NULL) == 0, "a program");
  const int got = nvrtcCompileProgram(p, 4, options);
  nvrtcGetProgramLogSize(p, &size);
  if (size <= sizeof log) nvrtcGetProgramLog(p, log);
  CHECK(got == want, "compiled: %d, not %d: %s", got, want, log);
  CHECK(strstr(log, word) != NULL, "the log lacks '%s': %s", word, log);
  if (!got && nvrtcGetCUBINSize(p, &size) == 0) nvrtcGetCUBIN(p, code = malloc(size));
  nvrtcDestroyProgram(&p);
  return code;
}

/* ---- working ---- */
typedef struct {
  pointer x, y, n;
  int64_t count;
  float a;
} args;
static void *context, *module, *stream;
static args a;
static float x[N], y[N];

static void *kernel(const char *name) {
  void *f = NULL;
  CHECK(cuModuleGetFunction(&f, module, name) == 0, "there is a kernel %s", name);
  return f;
}
static int launch(const char *name, unsigned blocks, unsigned dynamic) {
  return cuLaunchKernel(kernel(name), blocks, 1, 1, BLOCK, 1, 1, dynamic, stream, (void *[]){&a}, NULL);
}
static void upload(void) {
  for (int i = 0; i < N; i++) x[i] = (float)(i % 17), y[i] = (float)i;
  CHECK(cuMemcpyHtoDAsync_v2(a.x, x, sizeof x, stream) == 0, "x to the device");
  CHECK(cuMemcpyHtoDAsync_v2(a.y, y, sizeof y, stream) == 0, "y to the device");
}
static void download(void) { CHECK(cuMemcpyDtoHAsync_v2(y, a.y, sizeof y, stream) == 0, "y to the host"); }

static void open_all(const char *text) {
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxPushCurrent_v2(context) == 0, "a context");
  void *code = compile(text, 0, "");
  CHECK(code && cuModuleLoadData(&module, code) == 0, "the module loads");
  free(code);
  CHECK(cuStreamCreate(&stream, 1) == 0, "a stream");
  a = (args){.count = N, .a = 3};
  CHECK(cuMemAlloc_v2(&a.x, sizeof x) == 0 && cuMemAlloc_v2(&a.y, sizeof y) == 0, "memory");
  CHECK(cuMemAlloc_v2(&a.n, 4) == 0 && a.n % 256 == 0, "memory is aligned");
  upload();
}
static void close_all(void) {
  cuMemFree_v2(a.x), cuMemFree_v2(a.y), cuMemFree_v2(a.n);
  cuStreamDestroy_v2(stream), cuModuleUnload(module);
  CHECK(fakecuda_live(NULL) == 0, "%ld objects are left", fakecuda_live(NULL));
  CHECK(cuCtxPopCurrent_v2(NULL) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0, "the context goes");
}

static void test_results(void) {
  int wrong = 0, n = 0;
  CHECK(launch("saxpy", BLOCKS, 0) == 0, "saxpy");
  download();
  for (int i = 0; i < N; i++) wrong += y[i] != (float)(3 * (i % 17) + i);
  CHECK(wrong == 0, "saxpy: %d wrong", wrong);
  CHECK(launch("block_sum", BLOCKS, 0) == 0, "block_sum");
  download();
  for (int b = 0; b < BLOCKS; b++) {
    float sum = 0;
    for (int i = b * BLOCK; i < (b + 1) * BLOCK && i < N; i++) sum += x[i];
    CHECK(y[b] == sum, "block_sum %d: %g, not %g", b, (double)y[b], (double)sum);
  }
  CHECK(launch("reverse", 1, BLOCK * 4) == 0, "reverse");
  download();
  for (int i = wrong = 0; i < BLOCK; i++) wrong += y[i] != x[BLOCK - 1 - i];
  CHECK(wrong == 0, "reverse: %d wrong", wrong);
  CHECK(cuMemsetD32Async(a.n, 0, 1, stream) == 0 && launch("warps", 1, 0) == 0, "warps");
  CHECK(cuMemcpyDtoHAsync_v2(&n, a.n, 4, stream) == 0 && n == BLOCK, "warps: right in %d threads of %d", n, BLOCK);
  CHECK(cuMemsetD32Async(a.n, 0, 1, stream) == 0 && launch("halves", 1, 0) == 0, "halves");
  CHECK(cuMemcpyDtoHAsync_v2(&n, a.n, 4, stream) == 0 && n == BLOCK, "halves: right in %d threads of %d", n, BLOCK);
  CHECK(cuStreamSynchronize(stream) == 0 && cuCtxSynchronize() == 0, "all is done");
}

static void test_graph(void) {
  void *graph = NULL, *exec = NULL;
  upload();
  CHECK(cuStreamBeginCapture_v2(stream, 1) == 0, "a capture begins");
  CHECK(cuMemsetD8Async(a.y, 0, sizeof y, stream) == 0 && launch("saxpy", BLOCKS, 0) == 0, "work is captured");
  a.a = 5; /* too late for the graph's first launch */
  CHECK(launch("saxpy", BLOCKS, 0) == 0 && cuStreamEndCapture(stream, &graph) == 0, "the capture ends");
  download();
  CHECK(y[N - 1] == N - 1, "capturing does nothing");
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0 && cuGraphDestroy(graph) == 0, "a graph");
  for (int again = 0; again < 2; again++) {
    int wrong = 0;
    CHECK(cuGraphLaunch(exec, stream) == 0, "the graph is replayed");
    download();
    for (int i = 0; i < N; i++) wrong += y[i] != 8 * x[i];
    CHECK(wrong == 0, "replay %d: %d wrong", again, wrong);
  }
  CHECK(cuGraphExecDestroy(exec) == 0 && cuGraphExecDestroy(exec) == 400, "a graph goes once");
  CHECK(cuStreamBeginCapture_v2(stream, 0) == 0 && cuStreamSynchronize(stream) == 900,
        "a capture cannot be waited for");
  CHECK(cuStreamEndCapture(stream, &graph) == 901 && graph == NULL, "a spoilt capture");
  a.a = 3;
}

static void test_events(void) {
  void *from = NULL, *to = NULL;
  float ms = -1;
  CHECK(cuEventCreate(&from, 0) == 0 && cuEventCreate(&to, 0) == 0, "events");
  CHECK(cuEventElapsedTime(&ms, from, to) == 400, "nothing was recorded");
  CHECK(cuEventRecord(from, stream) == 0 && launch("big", 20000, 0) == 0 && cuEventRecord(to, stream) == 0, "timed");
  CHECK(cuEventElapsedTime(&ms, from, to) == 0 && ms > 0, "%g ms", (double)ms);
  printf("20000 blocks of %d threads: %.0f ms\n", BLOCK, (double)ms);
  CHECK(cuStreamWaitEvent(stream, to, 0) == 0, "wait for an event");
  CHECK(cuEventDestroy_v2(from) == 0 && cuEventDestroy_v2(to) == 0, "events go");
}

static void test_globals(void) {
  pointer p = 0;
  size_t bytes = 0;
  int n = 0;
  CHECK(cuModuleGetGlobal_v2(&p, &bytes, module, "counter") == 0 && bytes == 4, "counter has %zu bytes", bytes);
  CHECK(launch("named", 1, 0) == 0 && cuMemcpyDtoHAsync_v2(&n, p, 4, stream) == 0 && n == 7 + BLOCK, "counter %d", n);
  CHECK(cuModuleGetGlobal_v2(&p, &bytes, module, "nothing") == 500, "no such variable");
}

/* Shared memory of the same name, in an inline function, is each module's own. */
static void test_modules(void) {
  void *const before = module, *code = compile(shares, 0, ""), *both[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    int n = 0;
    CHECK(code && cuModuleLoadData(&both[i], code) == 0, "module %d loads", i);
    module = both[i];
    CHECK(launch("fresh", 1, 0) == 0, "module %d runs", i);
    CHECK(cuMemcpyDtoHAsync_v2(&n, a.n, 4, stream) == 0 && n == -1, "module %d begins with another's %d", i, n);
  }
  CHECK(cuModuleUnload(both[0]) == 0 && cuModuleUnload(both[1]) == 0, "both go");
  free(code);
  module = before;
}

/* ---- refusing ---- */
static void test_refusals(void) {
  void *f = kernel("saxpy"), *p[] = {&a}, *none = NULL;
  int v = 0;
  CHECK(cuModuleGetFunction(&none, module, "nothing") == 500, "no such kernel");
  CHECK(cuLaunchKernel(f, 1, 1, 1, 129, 1, 1, 0, stream, p, NULL) == 1, "more threads than launch bounds");
  CHECK(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, stream, p, NULL) == 1, "no blocks");
  CHECK(cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, stream, p, NULL) == 1, "too many rows of blocks");
  CHECK(cuLaunchKernel(module, 1, 1, 1, 1, 1, 1, 0, stream, p, NULL) == 400, "a module is no function");
  CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 64 << 10, stream, p, NULL) == 1, "more than 48 KiB of shared memory");
  CHECK(cuFuncSetAttribute(f, 8, 64 << 10) == 0 && cuFuncSetAttribute(f, 8, 228 << 10) == 1, "up to 227 KiB");
  CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 64 << 10, stream, p, NULL) == 0, "64 KiB when asked for");
  CHECK(cuFuncGetAttribute(&v, 1, f) == 0 && v == BLOCK / 32 * 4, "%d bytes of shared arrays", v);
  CHECK(cuMemcpyHtoDAsync_v2(a.x, x, sizeof x + 1, stream) == 1, "a byte too many");
  CHECK(cuMemcpyHtoDAsync_v2(a.x - 1, x, 1, stream) == 1 && cuMemsetD8Async(a.y, 0, sizeof y + 1, stream) == 1,
        "outside");
  CHECK(cuMemcpyDtoHAsync_v2(y, (pointer)(uintptr_t)x, 4, stream) == 1, "host memory is not the device's");
  CHECK(cuMemFree_v2(a.x + 4) == 1 && cuStreamSynchronize(module) == 400, "no such things");
  CHECK(cuModuleLoadData(&none, "\177ELF\1 no image") == 200, "no image");
  CHECK(cuCtxPopCurrent_v2(NULL) == 0 && cuCtxSynchronize() == 201, "no context");
  CHECK(cuCtxPushCurrent_v2(context) == 0, "a context again");
}

static void fail(const char *what) { setenv("FAKECUDA_FAIL", what, 1); }

static void test_provoked(void) {
  pointer p[3] = {0, 0, 0};
  int major = 0, minor = 0;
  fail("cuMemAlloc_v2:2,cuStreamCreate:1:304:1");
  CHECK(cuMemAlloc_v2(&p[0], 8) == 0 && cuMemAlloc_v2(&p[1], 8) == 2 && cuMemAlloc_v2(&p[1], 8) == 2, "the 2nd on");
  void *s = NULL;
  CHECK(cuStreamCreate(&s, 0) == 304 && cuStreamCreate(&s, 0) == 0 && cuStreamDestroy_v2(s) == 0, "once");
  fail("");
  CHECK(cuMemAlloc_v2(&p[1], 8) == 0 && cuMemFree_v2(p[0]) == 0 && cuMemFree_v2(p[1]) == 0, "memory again");
  setenv("FAKECUDA_MEMORY", "10000", 1);
  CHECK(cuMemAlloc_v2(&p[2], 10000) == 2, "memory is full");
  unsetenv("FAKECUDA_MEMORY");
  setenv("FAKECUDA_DRIVER", "12000", 1), setenv("FAKENVRTC_VERSION", "12.4", 1), setenv("FAKENVRTC_FAIL", "1", 1);
  CHECK(cuDriverGetVersion(&major) == 0 && major == 12000, "driver %d", major);
  CHECK(nvrtcVersion(&major, &minor) == 0 && major == 12 && minor == 4, "nvrtc %d.%d", major, minor);
  compile(kernels, 6, "told to fail");
  unsetenv("FAKECUDA_DRIVER"), unsetenv("FAKENVRTC_VERSION"), unsetenv("FAKENVRTC_FAIL");
  compile("\n" KERNEL("broken") "a.y[0] = nonsense; }\n", 6, "kernels.cu:8");
}

/* A kernel's failure loses the context until it is released. */
static void test_fault(const char *name, unsigned dynamic, int code, bool late) {
  open_all(faults);
  if (late) setenv("FAKECUDA_LATE", "1", 1);
  a.count = strcmp(name, "overruns") == 0 ? dynamic : N;
  CHECK(launch(name, 2, dynamic) == (late ? 0 : code), "%s fails with %d", name, code);
  CHECK(cuStreamSynchronize(stream) == code, "%s: the context is lost", name);
  unsetenv("FAKECUDA_LATE");
  close_all();
}

/* Kernels whose names begin with race fail; in both orders. */
static void test_race(const char *name) {
  const int want = strncmp(name, "race", 4) == 0 ? 719 : 0;
  setenv("FAKECUDA_RACES", "1", 1);
  open_all(races);
  CHECK(launch(name, 2, 0) == want, "%s: %d", name, want);
  unsetenv("FAKECUDA_RACES");
  if (!want) CHECK(launch(name, 1, 0) == 0, "%s: not only for races", name);
  close_all();
}

static void test_races(void) {
  static const char *const names[] = {
      "race_none",   "meet_all",   "meet_lanes", "race_shuffled", "race_warps", "meet_some",     "race_some",
      "race_again",  "meet_again", "meet_bytes", "meet_phase",    "race_phase", "race_behind",   "meet_copies",
      "race_copies", "race_own",   "race_left",  "race_late",     "race_begun", "meet_products", "race_products"};
  for (int reverse = 0; reverse < 2; reverse++) {
    setenv("FAKECUDA_ORDER", reverse ? "reverse" : "", 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) test_race(names[i]);
  }
  open_all(races);
  setenv("FAKECUDA_RACES", "1", 1);
  CHECK(launch("meet_all", 1, 0) == 719, "what was compiled without does not pass for watched");
  unsetenv("FAKECUDA_RACES");
  close_all();
}

static void test_lost(void) {
  open_all(kernels);
  fail("cuStreamSynchronize:1:719");
  CHECK(cuStreamSynchronize(stream) == 719, "told to fail");
  fail("");
  pointer p = 0;
  CHECK(cuCtxSynchronize() == 719 && cuMemAlloc_v2(&p, 8) == 719, "what follows fails too");
  close_all();
}

int main(void) {
  if (access("/usr/bin/g++", X_OK) != 0 && system("g++ --version > /dev/null 2>&1") != 0) {
    test_skip("test_fake", "there is no g++ to compile kernels with");
    return test_done();
  }
  find_functions();
  if (test_failed) return test_done();
  setenv("FAKECUDA_DEVICES", "0", 1);
  int n = -1;
  CHECK(cuDeviceGetCount(&n) == 3 && cuInit(0) == 100, "no devices");
  unsetenv("FAKECUDA_DEVICES");
  CHECK(cuInit(0) == 0 && cuDeviceGetCount(&n) == 0 && n == 1, "%d devices", n);
  CHECK(cuDeviceGetAttribute(&n, 75, 0) == 0 && n == 9 && cuDeviceGet(&n, 1) == 101, "one device, 9.0");
  for (int reverse = 0; reverse < 2; reverse++) {
    setenv("FAKECUDA_ORDER", reverse ? "reverse" : "", 1);
    open_all(kernels);
    test_results(), test_graph(), test_events(), test_globals(), test_modules(), test_refusals(), test_provoked();
    close_all();
  }
  test_fault("wild", 0, 700, false), test_fault("past", 0, 700, false), test_fault("past", 0, 700, true);
  test_fault("waits", 0, 719, false), test_fault("splits", 0, 719, false), test_fault("asserts", 0, 710, false);
  test_fault("recurses", 0, 700, false), test_fault("overruns", 64, 700, false);
  test_races(), test_lost();
  return test_done();
}
