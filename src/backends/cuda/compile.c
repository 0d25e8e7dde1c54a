/* compile.c -- kernel text to machine code for this GPU, by NVRTC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

int compile_target(const cuda_device *d) {
  int count = 0, archs[64], best = 0;
  if (!d->api.handle[LIB_COMPILER]) return d->arch;
  if (d->api.nvrtcGetNumSupportedArchs(&count) || count <= 0 || count > 64) return d->arch;
  if (d->api.nvrtcGetSupportedArchs(archs)) return d->arch;
  for (int i = 0; i < count; i++)
    if (archs[i] <= d->arch && archs[i] > best) best = archs[i];
  return best ? best : d->arch;
}

/* The last: a text's kernels are optimised side by side; with any number above 1 the machine code is the same. Before
 * 12.5 that cannot be had: 12.0 then refuses some texts (names of its own making), 12.4 warns of an unknown option. */
static const char *const options[] = {"--std=c++17", "-default-device", "--diag-suppress=177", "--split-compile=8"};
enum { OPTIONS = sizeof options / sizeof *options, SIDE_BY_SIDE_FROM = 12005, OUT_OF_MEMORY = 1 /* NVRTC's number */ };
static int options_for(int version) { return version < SIDE_BY_SIDE_FROM ? OPTIONS - 1 : OPTIONS; }

static void arch_option(const cuda_device *d, int arch, bool hopper, char *out, size_t n) {
  snprintf(out, n, "--gpu-architecture=%s_%d%s", arch == d->arch ? "sm" : "compute", arch, hopper ? "a" : "");
}

int compiler_version(const cuda_device *d) {
  int major = 0, minor = 0;
  if (!d->api.handle[LIB_COMPILER] || d->api.nvrtcVersion(&major, &minor)) return 0;
  return 1000 * major + minor;
}

bool compile_hopper(const cuda_device *d) { /* without a compiler: as it was when the kernels were kept */
  const int version = compiler_version(d);
  return d->arch == 90 && compile_target(d) == 90 && (version == 0 || version >= 12000);
}

void compile_key(const cuda_device *d, int arch, bool hopper, int version, char *out, size_t n) {
  char target[64];
  arch_option(d, arch, hopper, target, sizeof target);
  int used = snprintf(out, n, "ambi %d, nvrtc %d.%d, %s", AMBI_VERSION, version / 1000, version % 1000, target);
  for (int i = 0; i < options_for(version); i++) used += snprintf(out + used, n - (size_t)used, " %s", options[i]);
}

static ambi_status no_memory(void) {
  return fail(AMBI_NO_MEMORY, "cuda: NVRTC has no memory left to compile a kernel");
}

/* The log's first error, or its first line. */
static ambi_status complain(const cuda_device *d, void *program, int number) {
  size_t bytes = 0;
  char *log = NULL;
  if (number == OUT_OF_MEMORY) return no_memory();
  if (d->api.nvrtcGetProgramLogSize(program, &bytes) == 0 && bytes > 1) log = calloc(1, bytes + 1);
  if (log && d->api.nvrtcGetProgramLog(program, log)) *log = 0;
  const char *error = log ? strstr(log, "error") : NULL, *line = error ? error : log ? log : "it gave no reason";
  while (error && line > log && line[-1] != '\n') line--;
  ambi_status s = fail(AMBI_COMPILE_FAILED, "cuda: NVRTC refused the kernel: %.*s (error %d)", (int)strcspn(line, "\n"),
                       line, number);
  free(log);
  return s;
}

static ambi_status take_image(const cuda_device *d, void *program, bool ptx, image *out) {
  int (*size)(void *, size_t *) = ptx ? d->api.nvrtcGetPTXSize : d->api.nvrtcGetCUBINSize;
  int (*get)(void *, char *) = ptx ? d->api.nvrtcGetPTX : d->api.nvrtcGetCUBIN;
  out->size = 0;
  if (size(program, &out->size) || out->size == 0) return fail(AMBI_COMPILE_FAILED, "cuda: NVRTC gave no machine code");
  out->bytes = malloc(out->size);
  if (!out->bytes) return fail(AMBI_NO_MEMORY, "cuda: no memory for %zu bytes of machine code", out->size);
  if (get(program, (char *)out->bytes) == 0) return AMBI_OK;
  free(out->bytes);
  return fail(AMBI_COMPILE_FAILED, "cuda: NVRTC gave no machine code");
}

ambi_status compile_text(const cuda_device *d, const char *source, bool hopper, image *out) {
  if (!d->api.handle[LIB_COMPILER]) return fail(AMBI_COMPILE_FAILED, "cuda: %s", d->api.found[LIB_COMPILER]);
  char arch[64];
  const char *all[OPTIONS + 1] = {arch};
  arch_option(d, compile_target(d), hopper, arch, sizeof arch);
  memcpy(all + 1, options, sizeof options);
  void *program = NULL;
  int error = d->api.nvrtcCreateProgram(&program, source, "ambi.cu", 0, NULL, NULL);
  if (error == OUT_OF_MEMORY) return no_memory();
  if (error) return fail(AMBI_COMPILE_FAILED, "cuda: NVRTC could not be started (error %d)", error);
  error = d->api.nvrtcCompileProgram(program, options_for(compiler_version(d)) + 1, all);
  ambi_status s = error ? complain(d, program, error) : take_image(d, program, strstr(arch, "compute") != NULL, out);
  d->api.nvrtcDestroyProgram(&program);
  return s;
}
