/* isa.c -- asks the machine what it can run. */
#define _GNU_SOURCE
#include "backends/cpu/isa.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define NAME(name) #name,
static const char *const names[] = {AMBI_ISAS(NAME)};

const char *isa_name(isa i) { return names[i]; }

#if defined(__x86_64__)
/* clang 14's __builtin_cpu_supports does not know this one. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool isa_usable(isa i) {
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const bool usable[] = {[ISA_avx512] = avx512, [ISA_avx2] = avx2, [ISA_baseline] = true};
  return usable[i];
}

/* Linux hands out the tile registers on request. CPUID's tile leaves may read zero under a hypervisor. */
static bool amx_granted(void) {
#if defined(__linux__)
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE)) return false;
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
  return false;
#endif
}

void cpu_detect_features(cpu_features *f, isa chosen) {
  bool wide = chosen == ISA_avx512;
  f->avx512_bf16 = wide && __builtin_cpu_supports("avx512bf16");
  f->amx_bf16 = wide && amx_granted();
}
#else
bool isa_usable(isa i) { return i < ISA_COUNT; }
void cpu_detect_features(cpu_features *f, isa chosen) {
  (void)chosen;
  *f = (cpu_features){0};
}
#endif

ambi_status isa_choose(const char *max, isa *out) {
  int first = 0;
  while (max && first < ISA_COUNT && strcmp(names[first], max) != 0) first++;
  if (first == ISA_COUNT) {
    char known[64] = "";
    for (int i = 0; i < ISA_COUNT; i++) {
      size_t used = strlen(known);
      snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    return fail(AMBI_INVALID, "max_isa: expected one of %s, got %.32s", known, max);
  }
  while (!isa_usable((isa)first)) first++; /* the last one always is */
  *out = (isa)first;
  return AMBI_OK;
}

/* The part of the last-level cache a process can count on: servers report hundreds of megabytes that others share. */
uint64_t cpu_cache_bytes(void) {
  const uint64_t most = UINT64_C(32) << 20;
#if defined(__wasm__)
  return most; /* there is no way to ask */
#else
  unsigned long long kib = 0;
  FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
  if (f) {
    if (fscanf(f, "%lluK", &kib) != 1) kib = 0;
    fclose(f);
  }
  return kib && kib * 1024 < most ? kib * 1024 : most;
#endif
}

int cpu_cores(void) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
#if defined(_SC_NPROCESSORS_ONLN)
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
#else
  return 1;
#endif
}
