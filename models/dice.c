/* dice.c -- see dice.h. */
#include "dice.h"

#include <math.h>

uint64_t dice_bits(dice *r) {
  uint64_t z = r->seed + ++r->count * UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

double dice_uniform(dice *r) { return (double)(dice_bits(r) >> 11) * 0x1p-53; }

/* Box and Muller's pair, of which one is used: no state beyond the counter. */
double dice_normal(dice *r) {
  double u = 1 - dice_uniform(r), v = dice_uniform(r);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t dice_below(dice *r, uint64_t bound) {
  uint64_t limit = UINT64_MAX - UINT64_MAX % bound, bits; /* beyond it some remainders would come up more often */
  do bits = dice_bits(r);
  while (bits >= limit);
  return bits % bound;
}
