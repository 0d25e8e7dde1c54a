/* sweep.h -- arguments over the whole range of a dtype, and how far an answer may lie from the exact value there. */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H
#include <ambi/ambi.h>

enum { SWEEP_CHUNK = 1 << 20, SWEEP_CHUNKS = 1 << 12 };

/* Arguments of that dtype, as doubles: every f16 or bf16; about 2^17 f32 spread evenly over the bit patterns (so every
 * exponent, denormals included), with zeros, infinities, NaN, limits and the neighbours of points where formulas
 * change. Their number; *x is the caller's to free. */
int64_t sweep_arguments(ambi_dtype t, double **x);
/* Every f32 whose upper 12 bits are `chunk`. */
int64_t sweep_chunk(int chunk, double **x);
/* For conversions from `from` to `to`: arguments at, just below and just above every midpoint between neighbours. */
int64_t sweep_midpoints(ambi_dtype from, ambi_dtype to, double **x);

/* |got - exact| in units of what is allowed: `ulps` in f32; in f16 and bf16 one ulp of storage from the rounded exact
 * value. `scale` >= |exact| is the largest term the value is a sum of: where terms cancel, arithmetic keeps digits of
 * the terms, not of the sum, so as many ulp of f32 of the largest term are allowed there.
 * Infinite when one is NaN or infinite and the other is not. */
double sweep_error(ambi_dtype t, double got, double exact, double scale, int ulps);

#endif
