/* gemm.h -- C[m,n] (=|+=) A[m,k] B[k,n] (+ bias[n]) on CUDA, for any sizes, dtypes and strides.
 *
 * By cuBLASLt where it can (blas.c): A and B of one dtype, every matrix dense along one axis, addresses multiples of
 * 16 when it runs; but on Hopper not large products of 16 bits whose lines begin at odd places. Otherwise by texts that
 * all plans share: gemm90.cu (Hopper, tiles for all multiprocessors) or gemm16.cu where A and B are both f16 or both
 * bf16, each is dense along one axis and the product is not small; gemm.cu for all else.                            */
#ifndef AMBI_CUDA_GEMM_H
#define AMBI_CUDA_GEMM_H
#include "backends/cuda/cuda.h"

/* Where the rows (or columns) of a matrix are, in elements: nested axes when they do not fold into one. */
typedef struct {
  int64_t dims, shape[AMBI_MAX_DIMS], stride[AMBI_MAX_DIMS];
} cuda_axis;

typedef struct {
  int64_t dtype; /* ambi_dtype */
  cuda_axis row, col;
} cuda_matrix;

typedef struct {
  int64_t m, n, k;
  cuda_matrix a, b, c;
  ambi_dtype bias; /* AMBI_NONE: absent */
  int64_t bias_stride;
  ambi_dtype db;      /* also db[m] = sums of A's rows, dense, where that comes cheaply: see cuda_gemm_gives_db */
  ambi_dtype compute; /* AMBI_F64: nothing may pass through f32 */
  bool accumulate;
  bool tf32; /* factors of f32 may round to 10 bits */
} cuda_product;

typedef struct {
  uint64_t a, b, bias, c; /* addresses on the device */
  uint64_t db;
  uint64_t work; /* of cuda_gemm_workspace bytes, 64-aligned */
} cuda_operands;

cuda_axis cuda_plain_axis(int64_t stride);
cuda_axis cuda_grid_axis(const grid *g, int slot);
cuda_matrix cuda_transposed(cuda_matrix x);
cuda_matrix cuda_dense_matrix(ambi_dtype t, int64_t cols); /* rows of that many neighbours */

typedef struct cuda_gemm cuda_gemm;

ambi_status cuda_gemm_make(cuda_plan *k, const cuda_product *p, cuda_gemm **out);
void cuda_gemm_free(const cuda_device *d, cuda_gemm *g); /* NULL: nothing */
uint64_t cuda_gemm_workspace(const cuda_gemm *g);
const char *cuda_gemm_name(const cuda_gemm *g); /* for reports */
/* Whether a run at these addresses writes db. */
bool cuda_gemm_gives_db(const cuda_gemm *g, const cuda_operands *at);
/* accumulate: in place of what the product says */
ambi_status cuda_gemm_run(const cuda_plan *k, const cuda_gemm *g, const cuda_operands *at, bool accumulate,
                          void *stream);

#endif
