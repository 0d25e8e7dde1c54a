/* isa.h -- the instruction sets this build has kernels for, best first, and what this machine can run. */
#ifndef AMBI_CPU_ISA_H
#define AMBI_CPU_ISA_H
#include "backends/cpu/kernel.h"

#if defined(__x86_64__)
#define AMBI_ISAS(X) X(avx512) X(avx2) X(baseline)
#elif defined(__aarch64__)
#define AMBI_ISAS(X) X(neon)
#elif defined(__wasm__)
#define AMBI_ISAS(X) X(wasm)
#else
#define AMBI_ISAS(X) X(baseline)
#endif

#define AMBI_ISA_ENUM_(name) ISA_##name,
typedef enum { AMBI_ISAS(AMBI_ISA_ENUM_) ISA_COUNT } isa;

const char *isa_name(isa i);
bool isa_usable(isa i);
ambi_status isa_choose(const char *max, isa *out); /* the best usable one, not above `max` (NULL: no cap) */
void cpu_detect_features(cpu_features *f, isa chosen);
uint64_t cpu_cache_bytes(void);
int cpu_cores(void);

#endif
