/* safetensors.c -- checks the header once; afterwards every tensor's bytes are known to lie inside the file. */
#define _POSIX_C_SOURCE 200809L
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"

struct safetensors {
  const unsigned char *bytes; /* the whole file          */
  size_t size;
  void *map; /* what to unmap, or NULL  */
  json_doc *header;
  safetensors_tensor *tensor; /* sorted by name          */
  size_t count;
};

typedef struct {
  char *err;
  size_t n;
} report;

/* Always 0, so that callers can return it. */
__attribute__((format(printf, 2, 3))) static int fail(const report *r, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  if (r->n) vsnprintf(r->err, r->n, format, ap);
  va_end(ap);
  return 0;
}

static const struct {
  const char *name;
  unsigned bytes;
} dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
              {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

/* ---- one tensor ---- */

/* *t gets dtype; *element its bytes. */
static int read_dtype(const json_value *entry, safetensors_tensor *t, unsigned *element, const report *r) {
  const char *name = json_text(json_get(entry, "dtype"));
  if (!name) return fail(r, "tensor '%.80s': \"dtype\" is missing or no string", t->name);
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    if (strcmp(dtypes[i].name, name) != 0) continue;
    t->dtype = dtypes[i].name;
    *element = dtypes[i].bytes;
    return 1;
  }
  return fail(r, "tensor '%.80s': dtype '%.20s' is not one this reader knows", t->name, name);
}

static int read_shape(const json_value *entry, safetensors_tensor *t, const report *r) {
  const json_value *shape = json_get(entry, "shape");
  if (!shape || shape->type != JSON_ARRAY) return fail(r, "tensor '%.80s': \"shape\" is missing or no array", t->name);
  if (shape->length > SAFETENSORS_MAX_DIMS)
    return fail(r, "tensor '%.80s': %zu axes; at most %d are read", t->name, shape->length, SAFETENSORS_MAX_DIMS);
  t->count = 1;
  for (const json_value *v = shape->child; v; v = v->next) {
    if (v->type != JSON_NUMBER || !v->is_int || v->integer < 0)
      return fail(r, "tensor '%.80s': axis %d of its shape is no whole number from 0 up", t->name, t->ndim);
    if (__builtin_mul_overflow(t->count, v->integer, &t->count))
      return fail(r, "tensor '%.80s': its number of elements passes 2^63", t->name);
    t->shape[t->ndim++] = v->integer;
  }
  return 1;
}

static int read_offsets(const json_value *entry, const char *name, int64_t offset[2], const report *r) {
  const json_value *pair = json_get(entry, "data_offsets");
  if (!pair || pair->type != JSON_ARRAY || pair->length != 2)
    return fail(r, "tensor '%.80s': \"data_offsets\" is missing or not [begin, end]", name);
  int i = 0;
  for (const json_value *v = pair->child; v && i < 2; v = v->next) {
    if (v->type != JSON_NUMBER || !v->is_int || v->integer < 0)
      return fail(r, "tensor '%.80s': data_offsets[%d] is no whole number from 0 up", name, i);
    offset[i++] = v->integer;
  }
  return offset[0] <= offset[1] ? 1 : fail(r, "tensor '%.80s': data_offsets end before they begin", name);
}

static int read_tensor(const json_value *entry, const unsigned char *data, size_t data_bytes, safetensors_tensor *t,
                       const report *r) {
  unsigned element = 0;
  int64_t offset[2] = {0, 0}, want;
  if (strlen(entry->key) != entry->key_length) return fail(r, "a tensor's name holds a NUL");
  t->name = entry->key;
  if (entry->type != JSON_OBJECT) return fail(r, "tensor '%.80s': %s, no object", t->name, json_type_name(entry->type));
  if (!read_dtype(entry, t, &element, r) || !read_shape(entry, t, r) || !read_offsets(entry, t->name, offset, r))
    return 0;
  if ((uint64_t)offset[1] > data_bytes)
    return fail(r, "tensor '%.80s': ends at byte %lld of %zu bytes of data", t->name, (long long)offset[1], data_bytes);
  if (__builtin_mul_overflow(t->count, (int64_t)element, &want) || want != offset[1] - offset[0])
    return fail(r, "tensor '%.80s': its shape and dtype do not make the %lld bytes of its data_offsets", t->name,
                (long long)(offset[1] - offset[0]));
  t->data = data + offset[0];
  t->bytes = (uint64_t)(offset[1] - offset[0]);
  return 1;
}

/* ---- all of them ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const safetensors_tensor *)a)->name, ((const safetensors_tensor *)b)->name);
}

static int by_place(const void *a, const void *b) {
  const safetensors_tensor *x = a, *y = b;
  const unsigned char *p = x->data, *q = y->data;
  if (p != q) return p < q ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* In order of place each tensor must begin where the one before it ended. */
static int check_cover(safetensors *f, const unsigned char *data, size_t data_bytes, const report *r) {
  if (f->count) qsort(f->tensor, f->count, sizeof *f->tensor, by_place);
  uint64_t end = 0;
  for (size_t i = 0; i < f->count; i++) {
    const safetensors_tensor *t = &f->tensor[i];
    uint64_t begin = (uint64_t)((const unsigned char *)t->data - data);
    if (begin < end) return fail(r, "tensors '%.80s' and '%.80s' overlap", f->tensor[i - 1].name, t->name);
    if (begin > end) return fail(r, "no tensor owns the bytes before '%.80s'", t->name);
    end = begin + t->bytes;
  }
  if (end != data_bytes) return fail(r, "%llu bytes after the last tensor", (unsigned long long)(data_bytes - end));
  if (f->count) qsort(f->tensor, f->count, sizeof *f->tensor, by_name);
  return 1;
}

static int check_metadata(const json_value *m, const report *r) {
  if (m->type != JSON_OBJECT) return fail(r, "__metadata__ is %s, no object", json_type_name(m->type));
  for (const json_value *v = m->child; v; v = v->next) {
    if (v->type != JSON_STRING) return fail(r, "__metadata__ '%.80s' is no string", v->key);
  }
  return 1;
}

static int read_entries(safetensors *f, const unsigned char *data, size_t data_bytes, const report *r) {
  static const char metadata[] = "__metadata__";
  const json_value *root = json_root(f->header);
  if (root->type != JSON_OBJECT) return fail(r, "the header is %s, no object", json_type_name(root->type));
  f->tensor = calloc(root->length ? root->length : 1, sizeof *f->tensor);
  if (!f->tensor) return fail(r, "out of memory");
  for (const json_value *v = root->child; v; v = v->next) {
    if (v->key_length == sizeof metadata - 1 && memcmp(v->key, metadata, v->key_length) == 0) {
      if (!check_metadata(v, r)) return 0;
    } else if (!read_tensor(v, data, data_bytes, &f->tensor[f->count++], r)) {
      return 0;
    }
  }
  return check_cover(f, data, data_bytes, r);
}

static int read_header(safetensors *f, const report *r) {
  if (f->size < 8) return fail(r, "%zu bytes; a safetensors file has at least 8", f->size);
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | f->bytes[i];
  if (length > f->size - 8)
    return fail(r, "its header claims %llu bytes, the file has %zu after the length", (unsigned long long)length,
                f->size - 8);
  if (length > JSON_MAX_BYTES)
    return fail(r, "a header of %llu bytes; the limit is %zu", (unsigned long long)length, JSON_MAX_BYTES);
  char why[160];
  f->header = json_parse((const char *)f->bytes + 8, (size_t)length, why, sizeof why);
  if (!f->header) return fail(r, "header, %s", why);
  return read_entries(f, f->bytes + 8 + length, f->size - 8 - (size_t)length, r);
}

/* ---- the interface ---- */

static safetensors *open_bytes(const void *bytes, size_t size, void *map, const report *r) {
  safetensors *f = calloc(1, sizeof *f);
  if (!f) {
    fail(r, "out of memory");
    if (map) munmap(map, size);
    return NULL;
  }
  *f = (safetensors){.bytes = bytes, .size = size, .map = map};
  if (read_header(f, r)) return f;
  safetensors_close(f);
  return NULL;
}

safetensors *safetensors_from_memory(const void *bytes, size_t size, char *err, size_t n) {
  report r = {err, n};
  if (n) *err = 0;
  return open_bytes(bytes, size, NULL, &r);
}

/* The file's bytes, mapped; NULL after a failure. */
static void *map_file(const char *path, size_t *size, const report *r) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  void *map = NULL;
  if (fd < 0 || fstat(fd, &st) != 0) {
    fail(r, "%s", strerror(errno));
  } else if (!S_ISREG(st.st_mode)) {
    fail(r, "not a regular file");
  } else if (st.st_size < 8) {
    fail(r, "%lld bytes; a safetensors file has at least 8", (long long)st.st_size);
  } else {
    *size = (size_t)st.st_size;
    map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
      fail(r, "cannot map it: %s", strerror(errno));
      map = NULL;
    }
  }
  if (fd >= 0) close(fd);
  return map;
}

safetensors *safetensors_open(const char *path, char *err, size_t n) {
  char why[300] = "";
  report r = {why, sizeof why};
  size_t size = 0;
  if (n) *err = 0;
  void *map = map_file(path, &size, &r);
  safetensors *f = map ? open_bytes(map, size, map, &r) : NULL;
  if (!f && n) snprintf(err, n, "%s: %s", path, why);
  return f;
}

void safetensors_close(safetensors *f) {
  if (!f) return;
  if (f->map) munmap(f->map, f->size);
  json_free(f->header);
  free(f->tensor);
  free(f);
}

size_t safetensors_count(const safetensors *f) { return f->count; }

const safetensors_tensor *safetensors_at(const safetensors *f, size_t i) { return i < f->count ? &f->tensor[i] : NULL; }

const safetensors_tensor *safetensors_find(const safetensors *f, const char *name) {
  safetensors_tensor key = {.name = name};
  return f->count ? bsearch(&key, f->tensor, f->count, sizeof *f->tensor, by_name) : NULL;
}

const char *safetensors_metadata(const safetensors *f, const char *key) {
  return json_text(json_get(json_get(json_root(f->header), "__metadata__"), key));
}
