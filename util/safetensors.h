/* safetensors.h -- .safetensors files: a reader that believes nothing it has not checked, and a writer.
 *
 *   8 bytes, little-endian: N     N bytes of JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..} data
 *
 *   char err[200];
 *   safetensors *f = safetensors_open("model.safetensors", err, sizeof err);        NULL: err says why
 *   const safetensors_tensor *t = safetensors_find(f, "lm_head.weight");
 *   .. t->data, t->bytes ..
 *   safetensors_close(f);
 *
 * Refused: a header longer than the file or than 100 MB, JSON that json.h refuses, an unknown dtype, a shape whose
 * bytes are not end - begin, offsets outside the file, and tensors that overlap or leave holes (as the format demands).
 * The file is mapped: it must not be shortened while it is open (writing a new one over it by rename, as files.h does,
 * is fine); the system ends a process that reads what is gone. `data` is as aligned as the file made it, which may be
 * not at all: copy elements out with memcpy. Nothing here depends on the rest of ambi but json.h. */
#ifndef UTIL_SAFETENSORS_H
#define UTIL_SAFETENSORS_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SAFETENSORS_MAX_DIMS 8

typedef struct {
  const char *name;
  const char
      *dtype; /* "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", .. "U8", "BOOL", "F8_E4M3", "F8_E5M2" */
  int ndim;
  int64_t shape[SAFETENSORS_MAX_DIMS];
  int64_t count;    /* elements                      */
  const void *data; /* little-endian, row-major      */
  uint64_t bytes;
} safetensors_tensor;

typedef struct safetensors safetensors;

safetensors *safetensors_open(const char *path, char *err, size_t n);
/* The same over bytes that the caller keeps alive and unchanged until safetensors_close. */
safetensors *safetensors_from_memory(const void *bytes, size_t size, char *err, size_t n);
void safetensors_close(safetensors *f); /* NULL is fine */

size_t safetensors_count(const safetensors *f);
const safetensors_tensor *safetensors_at(const safetensors *f, size_t i);           /* in order of name */
const safetensors_tensor *safetensors_find(const safetensors *f, const char *name); /* NULL: none       */
const char *safetensors_metadata(const safetensors *f, const char *key);            /* NULL: none       */

/* ---- writing ----
 * Names, dtypes, shapes and bytes come from the list, the data from `fill`, which writes tensor i (its bytes, no more,
 * no fewer) and returns 1, or puts a reason into err and returns 0. The file appears only when it is whole. */
typedef int (*safetensors_fill)(void *context, size_t i, FILE *to, char *err, size_t n);
/* metadata: name, value, name, value, .. NULL; may be NULL. */
int safetensors_save(const char *path, const safetensors_tensor *list, size_t count, const char *const *metadata,
                     safetensors_fill fill, void *context, char *err, size_t n);

#endif
