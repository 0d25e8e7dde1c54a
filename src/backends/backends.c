/* backends.c -- the devices this build has, in the order `ambi info` lists them. */
#include "core/core.h"

extern const backend cpu_backend, cuda_backend, ref_backend;

const backend *const backends[] = {&cpu_backend,
#if !defined(AMBI_NO_CUDA)
                                   &cuda_backend,
#endif
                                   &ref_backend, NULL};
