/* pointwise.h -- elementwise ops on CUDA: the op's text defines point(a, in, out), this says the rest. */
#ifndef AMBI_CUDA_POINTWISE_H
#define AMBI_CUDA_POINTWISE_H
#include "backends/cuda/cuda.h"
#include "ops/elementwise.h"

typedef struct {
  int64_t outer, inner, vec; /* vec: 16 bytes of the smallest dtype where all lines allow it, else 1 */
} line_split;

/* Specialises, and says the numbers that lines.cu wants: lines along the last axis of a grid of these slots. */
line_split cuda_lines(cuda_plan *k, const grid *g, uint32_t slots);
static inline int64_t line_vectors(line_split s) { return s.outer * ceil_div(s.inner, s.vec); }

typedef struct {
  int in[6], ins;   /* slots; those that take no part read as 0 */
  int out[2], outs; /* those that are not written are left alone */
} cuda_points;

/* VALUE, GRAD: a function of elementwise.def, for texts that call it; PARAMETER_A and PARAMETER_B. */
void cuda_function(cuda_plan *k, ambi_function f, double a, double b);

/* The last part comes after the op's own text. */
void cuda_pointwise(cuda_plan *k, cuda_points points);

#endif
