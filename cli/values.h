/* values.h -- numbers on the host: random values, dtypes and strided views. Part of the oracle, so it shares no code
 * with the library: conversions are written from the definition of each format. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H
#include <ambi/ambi.h>

/* ---- random numbers: the same on every machine ---- */
typedef struct {
  uint64_t state; /* any seed */
} rng;

uint64_t rng_next(rng *r);
double rng_uniform(rng *r, double low, double high);
double rng_normal(rng *r);

/* ---- dtypes ---- */
int value_is_float(ambi_dtype t);
double value_decode(ambi_dtype t, const void *at);
void value_encode(ambi_dtype t, double v, void *at); /* nearest even; integers saturate, NaN becomes 0 there */
double value_round(ambi_dtype t, double v);          /* what encode then decode gives                       */
double value_unit(ambi_dtype t);                     /* u: rounding x errs by at most u |x| .. (0: integer) */
double value_tiny(ambi_dtype t);                     /* .. plus this: half the spacing of its denormals     */
double value_max(ambi_dtype t);                      /* the largest finite value                            */
double value_ulp(ambi_dtype t, double v);            /* spacing of t at |v|                                 */

/* ---- views: `at` is where element 0 lies; values are row-major, one double each ---- */
void values_load(const ambi_tensor *t, const double *v, void *at);
void values_store(const ambi_tensor *t, const void *at, double *v);
/* Calls f for every run along the last axis, in row-major order: element number `index` lies `offset` bytes from
 * element 0, and `count` elements follow each other `step` bytes apart. */
typedef void values_run(void *context, int64_t index, int64_t offset, int64_t count, int64_t step);
void values_each(const ambi_tensor *t, values_run *f, void *context);
/* How far element 0 lies behind the lowest one, in bytes (strides may be negative). */
int64_t values_origin(const ambi_tensor *t);

/* 1 when the view has more elements than places for them, as with a stride of 0. */
int values_overlap(const ambi_tensor *t);

/* Values for a primal slot (or the gradient of one) that suit the op's mathematics: see fill.c. With the seed CONSTANT
 * they are all the same: then every addition to a sum rounds the same way, and a naive sum drifts off. */
#define CONSTANT UINT64_MAX
void values_fill(const ambi_op *op, int slot, uint64_t seed, double *v);

/* calloc for n doubles (at least one); ends the program when there is no memory. */
double *values_new(int64_t n);

#endif
