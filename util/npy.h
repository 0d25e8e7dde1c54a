/* npy.h -- arrays of f32 in NumPy's .npy files (format 1.0 and 2.0, C order, little endian).
 *
 *   npy_array a;
 *   if (!npy_read("x.npy", &a, err, sizeof err)) ..          0: err says why
 *   a.data[..], a.ndim, a.shape[..], a.count;   free(a.data);
 *
 * Nothing here depends on the rest of ambi. */
#ifndef UTIL_NPY_H
#define UTIL_NPY_H
#include <stddef.h>
#include <stdint.h>

enum { NPY_MAX_DIMS = 8 };

typedef struct {
  float *data;
  size_t count;
  int ndim;
  int64_t shape[NPY_MAX_DIMS];
} npy_array;

/* A file whose name does not end in .npy is read and written as bare f32, with one axis. */
int npy_read(const char *path, npy_array *a, char *err, size_t n);
int npy_write(const char *path, const npy_array *a, char *err, size_t n);

#endif
