/* wasmtime.h -- the part of Wasmtime's C API that is used, found at run time. Nothing of Wasmtime is needed to build.
 */
#ifndef AMBI_PACK_WASMTIME_H
#define AMBI_PACK_WASMTIME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"

/* Opaque on their side too, but for the sizes. */
typedef struct wasm_config wasm_config;
typedef struct wasm_engine wasm_engine;
typedef struct wasmtime_module wasmtime_module;
typedef struct wasmtime_store wasmtime_store;
typedef struct wasmtime_context wasmtime_context;
typedef struct wasmtime_error wasmtime_error;
typedef struct wasm_trap wasm_trap;

typedef struct {
  size_t size;
  void *data; /* bytes, or an array of pointers */
} wasm_vec;

typedef struct {
  uint64_t opaque[2];
} wasmtime_instance;

/* A memory or a function: its handle begins at `of`. */
typedef struct {
  uint8_t kind;
  uint64_t of[4];
} wasmtime_extern;

typedef union {
  int32_t i32;
  _Alignas(16) uint8_t bytes[16];
} wasmtime_value;

enum { WASM_EXTERN_FUNC = 0, WASM_EXTERN_MEMORY = 3 }; /* wasm_externtype_kind */
enum { WASM_I32 = 0 };                                 /* wasm_valtype_kind    */
enum { WASMTIME_FUNC = 0, WASMTIME_MEMORY = 3 };       /* wasmtime_extern.kind */
enum { TRAP_INTERRUPT = 10 };

/* X(result, name, arguments) */
#define WASMTIME_FUNCTIONS(X)                                                                                          \
  X(wasm_config *, wasm_config_new, (void))                                                                            \
  X(wasm_engine *, wasm_engine_new_with_config, (wasm_config *))                                                       \
  X(void, wasm_engine_delete, (wasm_engine *))                                                                         \
  X(void, wasmtime_config_epoch_interruption_set, (wasm_config *, bool))                                               \
  X(void, wasmtime_config_max_wasm_stack_set, (wasm_config *, size_t))                                                 \
  X(void, wasmtime_config_parallel_compilation_set, (wasm_config *, bool))                                             \
  X(void, wasmtime_engine_increment_epoch, (wasm_engine *))                                                            \
  X(wasmtime_error *, wasmtime_module_new, (wasm_engine *, const uint8_t *, size_t, wasmtime_module **))               \
  X(void, wasmtime_module_delete, (wasmtime_module *))                                                                 \
  X(void, wasmtime_module_exports, (const wasmtime_module *, wasm_vec *))                                              \
  X(void, wasm_exporttype_vec_delete, (wasm_vec *))                                                                    \
  X(const wasm_vec *, wasm_exporttype_name, (const void *))                                                            \
  X(const void *, wasm_exporttype_type, (const void *))                                                                \
  X(uint8_t, wasm_externtype_kind, (const void *))                                                                     \
  X(const void *, wasm_externtype_as_functype_const, (const void *))                                                   \
  X(const wasm_vec *, wasm_functype_params, (const void *))                                                            \
  X(const wasm_vec *, wasm_functype_results, (const void *))                                                           \
  X(uint8_t, wasm_valtype_kind, (const void *))                                                                        \
  X(wasmtime_store *, wasmtime_store_new, (wasm_engine *, void *, void (*)(void *)))                                   \
  X(void, wasmtime_store_delete, (wasmtime_store *))                                                                   \
  X(wasmtime_context *, wasmtime_store_context, (wasmtime_store *))                                                    \
  X(void, wasmtime_store_limiter, (wasmtime_store *, int64_t, int64_t, int64_t, int64_t, int64_t))                     \
  X(void, wasmtime_context_set_epoch_deadline, (wasmtime_context *, uint64_t))                                         \
  X(wasmtime_error *, wasmtime_instance_new,                                                                           \
    (wasmtime_context *, const wasmtime_module *, const wasmtime_extern *, size_t, wasmtime_instance *, wasm_trap **)) \
  X(bool, wasmtime_instance_export_get,                                                                                \
    (wasmtime_context *, const wasmtime_instance *, const char *, size_t, wasmtime_extern *))                          \
  X(wasmtime_error *, wasmtime_func_call_unchecked,                                                                    \
    (wasmtime_context *, const void *, wasmtime_value *, size_t, wasm_trap **))                                        \
  X(uint8_t *, wasmtime_memory_data, (const wasmtime_context *, const void *))                                         \
  X(uint64_t, wasmtime_memory_size, (const wasmtime_context *, const void *))                                          \
  X(wasmtime_error *, wasmtime_memory_grow, (wasmtime_context *, const void *, uint64_t, uint64_t *))                  \
  X(void, wasmtime_error_message, (const wasmtime_error *, wasm_vec *))                                                \
  X(void, wasmtime_error_delete, (wasmtime_error *))                                                                   \
  X(void, wasm_trap_message, (const wasm_trap *, wasm_vec *))                                                          \
  X(bool, wasmtime_trap_code, (const wasm_trap *, uint8_t *))                                                          \
  X(void, wasm_trap_delete, (wasm_trap *))                                                                             \
  X(void, wasm_byte_vec_delete, (wasm_vec *))

typedef struct {
  void *library;
#define X(result, name, arguments) result(*name) arguments;
  WASMTIME_FUNCTIONS(X)
#undef X
} wasmtime_api;

/* The library that AMBI_WASMTIME names, or one of the system. It stays loaded: its signal handlers do. */
ambi_status wasmtime_load(wasmtime_api *w);

/* Names that a module gives reach terminals and logs in sentences: control characters become spaces. */
void plain_text(char *text);

/* The sentences of an error or a trap, which are freed: a status that says `what` failed and why. */
ambi_status wasmtime_failed(const wasmtime_api *w, ambi_status s, const char *what, wasmtime_error *e, wasm_trap *t);

#endif
