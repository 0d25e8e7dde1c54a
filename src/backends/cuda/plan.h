/* plan.h -- plan.c's part of the backend. */
#ifndef AMBI_CUDA_PLAN_H
#define AMBI_CUDA_PLAN_H
#include "backends/cuda/cuda.h"

bool cuda_has_kernel(const ambi_device *dev, const problem *p);
ambi_status cuda_make_plan(ambi_device *dev, ambi_plan *plan);
void cuda_unplan(ambi_plan *plan);
const char *cuda_source(const ambi_plan *plan);
ambi_status cuda_run(const ambi_plan *plan, ambi_stream *s, const ambi_buf *slots, ambi_buf workspace);
bool cuda_kernel_info(const ambi_device *dev, int32_t index, ambi_kernel_info *info);

#endif
