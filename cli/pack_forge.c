/* pack_forge.c -- text to module by the assembler inside Wasmtime's shared library. */
#include "pack_forge.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"
#include "pack.h"

/* ---- modules ---- */
typedef struct {
  size_t size;
  char *data;
} byte_vec;

typedef struct {
  void *(*assemble)(const char *wat, size_t n, byte_vec *out); /* an error, or NULL */
  void (*message)(const void *error, byte_vec *out);
  void (*error_free)(void *error);
  void (*free)(byte_vec *v);
} assembler;

static int find_assembler(assembler *a) {
  const char *named = getenv("AMBI_WASMTIME");
  void *lib = dlopen(named && *named ? named : "libwasmtime.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return 0;
  *(void **)(void *)&a->assemble = dlsym(lib, "wasmtime_wat2wasm");
  *(void **)(void *)&a->message = dlsym(lib, "wasmtime_error_message");
  *(void **)(void *)&a->error_free = dlsym(lib, "wasmtime_error_delete");
  *(void **)(void *)&a->free = dlsym(lib, "wasm_byte_vec_delete");
  return a->assemble && a->message && a->error_free && a->free;
}

void *forge_module(const char *wat, size_t *bytes) {
  assembler a;
  byte_vec v = {0}, why = {0};
  if (!find_assembler(&a)) return fprintf(stderr, "ambi pack: Wasmtime was not found, or cannot assemble\n"), NULL;
  void *error = a.assemble(wat, strlen(wat), &v);
  if (error) {
    a.message(error, &why);
    fprintf(stderr, "ambi pack: %.*s\n", (int)why.size, why.data);
    a.free(&why);
    a.error_free(error);
    return NULL;
  }
  void *copy = malloc(v.size + 1);
  if (copy) memcpy(copy, v.data, v.size);
  *bytes = v.size;
  a.free(&v);
  return copy;
}

void *forge_kernel(const char *definitions, const char *body, size_t *bytes) {
  static const char shape[] =
      "(module %s\n"
      "  (func (export \"kernel_init\") (param i32 i32) (result i32) (i32.const 0))\n"
      "  (func (export \"kernel_info\") (param i32) (result i32) (i32.const 0))\n"
      "  (func (export \"kernel_cleanup\") (result i32) (i32.const 0))\n"
      "  (func (export \"kernel_forward\") (param $d i32) (result i32) %s))\n";
  size_t n = sizeof shape + strlen(definitions) + strlen(body);
  char *wat = malloc(n);
  if (!wat) return NULL;
  snprintf(wat, n, shape, definitions, body);
  void *module = forge_module(wat, bytes);
  free(wat);
  return module;
}

/* ---- packs ---- */
static int put_kernel(FILE *to, const char *folder, const forged_kernel *k, int first) {
  char path[4096], hash[72], err[300];
  snprintf(path, sizeof path, "%s/%s.wasm", folder, k->id);
  if (!file_write(path, k->wasm, k->bytes, err, sizeof err)) return fprintf(stderr, "ambi pack: %s\n", err), 0;
  if (ambi_pack_hash(k->wasm, k->bytes, hash) != AMBI_OK) return trouble(k->id), 0;
  fprintf(to, "%s{\"id\": \"%s\", \"category\": \"custom\", \"path\": \"%s.wasm\", \"hash\": \"%s\"%s%s}",
          first ? "" : ", ", k->id, k->id, hash, k->more ? ", " : "", k->more ? k->more : "");
  return 1;
}

int forge_pack(const char *folder, const forged_pack *p) {
  char path[4096], err[300];
  file_draft f;
  int good = 1;
  snprintf(path, sizeof path, "%s/kernels.json", folder);
  if (!folder_make(folder, err, sizeof err) || !file_begin(&f, path, err, sizeof err))
    return fprintf(stderr, "ambi pack: %s\n", err), 0;
  fprintf(f.to,
          "{\"name\": \"%s\", \"version\": \"%s\", \"min_runtime_version\": \"0.0.0\", \"max_runtime_version\": "
          "\"999.0.0\", \"kernels\": [",
          p->name, p->version);
  for (int i = 0; i < p->count && good; i++) good = put_kernel(f.to, folder, &p->kernels[i], i == 0);
  fprintf(f.to, "]%s%s}\n", p->more ? ", " : "", p->more ? p->more : "");
  if (!good) return file_cancel(&f), 0;
  if (!file_commit(&f, err, sizeof err)) return fprintf(stderr, "ambi pack: %s\n", err), 0;
  char hex[65];
  return p->secret ? sign_folder(folder, p->secret, hex) : 1;
}
