/* functions.h -- the elementwise functions once more, from their definitions and libm, in long double: an oracle that
 * shares nothing with the library, against which the library's own reference is checked. */
#ifndef CLI_FUNCTIONS_H
#define CLI_FUNCTIONS_H

/* f(x) of an ambi_function with the parameters the case gives (a = b = 0: the function's own). */
long double function_value(int f, double a, double b, long double x);
/* f'(x) by finite differences of function_value, and an estimate of their error. x away from kinks. */
long double function_slope(int f, double a, double b, long double x, long double *error);
/* 1 when f(x) = x g(x) with g running from 0 to 1: f' = g + x g' is then a sum of two terms and has a root. */
int function_is_product(int f);
/* 1 when x is in the domain of f and not nearer than `margin` to one of its kinks. */
int function_is_smooth(int f, double a, double b, double x, double margin);
/* The function an ambi_gate applies to g. */
int gate_function(int gate);

#endif
