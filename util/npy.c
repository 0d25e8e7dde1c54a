/* npy.c -- the header of an .npy file is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4),
 * } */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

#define MOST_BYTES ((size_t)8 << 30)

static int is_npy(const char *path) {
  size_t n = strlen(path);
  return n > 4 && strcmp(path + n - 4, ".npy") == 0;
}

static int fail(const char *path, const char *why, char *err, size_t n) {
  if (n) snprintf(err, n, "%s: %s", path, why);
  return 0;
}

/* "(3, 4)", "(5,)" or "()" */
static int read_shape(const char *text, npy_array *a) {
  size_t count = 1;
  while (*text != ')') {
    char *end;
    long long d = strtoll(text, &end, 10);
    if (end == text || d < 0 || a->ndim == NPY_MAX_DIMS || __builtin_mul_overflow(count, (size_t)d, &count)) return 0;
    a->shape[a->ndim++] = d;
    text = end + strspn(end, ", ");
  }
  a->count = count;
  return 1;
}

/* Where the data begins, or 0 and why. */
static size_t read_header(const char *bytes, size_t n, npy_array *a, const char **why) {
  *why = "not an .npy file, or a damaged one";
  if (n < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0 || (bytes[6] != 1 && bytes[6] != 2)) return 0;
  const unsigned char *u = (const unsigned char *)bytes;
  size_t at = bytes[6] == 1 ? 10 : 12, length = (size_t)u[8] | (size_t)u[9] << 8;
  if (bytes[6] == 2) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
  if (length > n - at || length > 4096) return 0;
  char text[4097];
  memcpy(text, bytes + at, length);
  text[length] = 0;
  const char *shape = strstr(text, "'shape': (");
  if (!shape || !strchr(shape, ')')) return 0;
  *why = "not of little-endian f32 (numpy: x.astype('<f4'))";
  if (!strstr(text, "'descr': '<f4'")) return 0;
  *why = "not in C order (numpy: np.ascontiguousarray(x))";
  if (!strstr(text, "'fortran_order': False")) return 0;
  *why = "its shape cannot be read";
  return read_shape(shape + 10, a) ? at + length : 0;
}

int npy_read(const char *path, npy_array *a, char *err, size_t n) {
  size_t bytes, from = 0;
  const char *why = "its size is not that of whole f32";
  *a = (npy_array){0};
  char *data = file_read(path, MOST_BYTES, &bytes, err, n);
  if (!data) return 0;
  int good = !is_npy(path) ? bytes % 4 == 0 : (from = read_header(data, bytes, a, &why)) > 0;
  if (good && is_npy(path) && (a->count > bytes / 4 || bytes - from < 4 * a->count))
    good = 0, why = "shorter than its shape";
  if (!is_npy(path)) a->count = bytes / 4, a->ndim = 1, a->shape[0] = (int64_t)a->count;
  if (good) memmove(data, data + from, 4 * a->count);
  a->data = (float *)(void *)data;
  if (good) return 1;
  free(data);
  *a = (npy_array){0};
  return fail(path, why, err, n);
}

int npy_write(const char *path, const npy_array *a, char *err, size_t n) {
  char head[512];
  file_draft f;
  if (!file_begin(&f, path, err, n)) return 0;
  if (is_npy(path)) {
    size_t used = (size_t)snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < a->ndim; i++)
      used += (size_t)snprintf(head + used, sizeof head - used, "%lld,%s", (long long)a->shape[i],
                               i + 1 < a->ndim ? " " : "");
    used += (size_t)snprintf(head + used, sizeof head - used, "), }");
    while ((10 + used + 1) % 64) head[used++] = ' ';
    head[used++] = '\n';
    fwrite("\x93NUMPY\x01", 1, 7, f.to);
    fputc(0, f.to);
    fputc((int)(used & 255), f.to);
    fputc((int)(used >> 8), f.to);
    fwrite(head, 1, used, f.to);
  }
  if (a->count) fwrite(a->data, sizeof *a->data, a->count, f.to);
  return file_commit(&f, err, n);
}
