#include "backends/cuda/cuda.h"

static ambi_status plan(cuda_plan *k) {
  (void)k;
  return fail(AMBI_UNSUPPORTED, "ssd: there is no CUDA kernel for it yet");
}

const cuda_kernel ssd_cuda = {"", plan};
