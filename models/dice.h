/* dice.h -- numbers that are the same on every machine: a counter, hashed (splitmix64). State: two integers, so a
 * checkpoint can keep it. */
#ifndef MODELS_DICE_H
#define MODELS_DICE_H
#include <stdint.h>

typedef struct {
  uint64_t seed, count;
} dice;

uint64_t dice_bits(dice *r);
double dice_uniform(dice *r);                 /* [0, 1)                    */
double dice_normal(dice *r);                  /* mean 0, deviation 1       */
uint64_t dice_below(dice *r, uint64_t bound); /* [0, bound), every one as likely; bound > 0 */

#endif
