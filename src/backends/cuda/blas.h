/* blas.h -- products by cuBLASLt. */
#ifndef AMBI_CUDA_BLAS_H
#define AMBI_CUDA_BLAS_H
#include "backends/cuda/gemm.h"

typedef struct blas_product blas_product;

/* NULL: there is no cuBLASLt, or it does not do this product. with_db: p's db as well, in its epilogue. */
blas_product *blas_make(cuda_device *d, const cuda_product *p, bool with_db);
void blas_free(const cuda_device *d, blas_product *b);
uint64_t blas_workspace(const blas_product *b); /* bytes, at any multiple of 64 */
/* Whether these addresses are what it was planned for. */
bool blas_takes(const blas_product *b, const cuda_operands *at);
ambi_status blas_run(const cuda_device *d, const blas_product *b, const cuda_operands *at, bool accumulate,
                     void *stream);

#endif
