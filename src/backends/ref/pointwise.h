/* pointwise.h -- references of pointwise ops: a value for every index, summed over the axes an output repeats. */
#ifndef AMBI_REF_POINTWISE_H
#define AMBI_REF_POINTWISE_H
#include "backends/ref/ref.h"

/* Writes fn(c, i) to every element of `slot`. */
void ref_pointwise(const ref_call *c, int slot, double (*fn)(const ref_call *c, at_index i));

/* The functions of elementwise.def by number. */
double ref_function(int function, double x, double a, double b);
double ref_function_grad(int function, double x, double dy, double a, double b);

#endif
