/* random.h -- numbers that are the same on every machine: a counter, hashed (splitmix64). State: two integers, so a
 * checkpoint can keep it. */
#ifndef MODELS_RANDOM_H
#define MODELS_RANDOM_H
#include <stdint.h>

typedef struct {
  uint64_t seed, count;
} rng;

uint64_t rng_bits(rng *r);
double rng_uniform(rng *r);                 /* [0, 1)                    */
double rng_normal(rng *r);                  /* mean 0, deviation 1       */
uint64_t rng_below(rng *r, uint64_t bound); /* [0, bound), every one as likely; bound > 0 */

#endif
