/* native.h -- a module's linear memory outside WebAssembly, for tests: the test owns it. */
#ifndef AMBI_PACK_NATIVE_H
#define AMBI_PACK_NATIVE_H
#include "pack/module/module.h"

extern char *native_memory;
extern uint64_t native_bytes, native_own;
bool native_grow(uint64_t pages);
extern pool *native_threads;

static inline uint64_t memory_bytes(void) { return native_bytes; }
static inline bool memory_grow(uint64_t pages) { return native_grow(pages); }
static inline uint64_t own_bytes(void) { return native_own; }
static inline pool *threads(void) { return native_threads; }

int32_t kernel_forward(uint32_t descriptor_at);
int32_t kernel_backward(uint32_t descriptor_at);
int32_t kernel_init(uint32_t params_at, uint32_t params_size);
int32_t kernel_info(uint32_t info_at);
int32_t kernel_cleanup(void);

#endif
