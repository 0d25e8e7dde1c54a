/* math_half.h -- the functions of math.h again, for results that are stored as f16 or bf16. */
#ifndef AMBI_MATH_HALF_H
#define AMBI_MATH_HALF_H
#endif
