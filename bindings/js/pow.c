/* pow.c -- x^y for x >= 0. The C library's has 4 KB of tables of its own, which no compression makes smaller; this one
 * is off by |y log x| times the last bit. The rates of adamw, the frequencies of rope and six digits in format.c ask
 * for no more. */
#include <math.h>

double pow(double x, double y) { return y == 0 ? 1 : exp(y * log(x)); }
