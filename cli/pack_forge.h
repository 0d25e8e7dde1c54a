/* pack_forge.h -- packs made on the spot, for measuring and for tests: modules from text, a manifest around them. */
#ifndef CLI_PACK_FORGE_H
#define CLI_PACK_FORGE_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char *id;
  const void *wasm;
  size_t bytes;
  const char *more; /* further members of the kernel: "\"resource_limits\": {..}"; may be NULL */
} forged_kernel;

typedef struct {
  const char *name, *version;
  const forged_kernel *kernels;
  int count;
  const uint8_t *secret; /* NULL: not signed */
  const char *more;      /* further members of the pack, as above */
} forged_pack;

/* Writes the pack into a folder; 1, or 0 after printing why not. */
int forge_pack(const char *folder, const forged_pack *p);

/* A module from WebAssembly text, by Wasmtime; NULL after printing why not. Free it. */
void *forge_module(const char *wat, size_t *bytes);

/* A module of the ABI whose kernel_forward has this body, and in front of it these definitions. */
void *forge_kernel(const char *definitions, const char *body, size_t *bytes);

#endif
