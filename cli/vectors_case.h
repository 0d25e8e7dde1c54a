/* vectors_case.h -- one case of a vectors folder, read into an op and doubles. Shared by vectors.c and vectors_adamw.c.
 */
#ifndef CLI_VECTORS_CASE_H
#define CLI_VECTORS_CASE_H
#include "../util/json.h"
#include "../util/safetensors.h"
#include "exec.h"
#include "vectors.h"

typedef struct {
  const target *dev, *ref;
  const safetensors *file;
  int verbose;
  vectors_result *result;
  const char *missing; /* the op of the cases that a line of skipped ones is about, while it is open */
} vectors_job;

typedef struct {
  const char *name;
  char text[600];             /* the case in the language of case.h               */
  ambi_op op;                 /* forward, in f64                                  */
  uint32_t in, out, gradient; /* primal slots: given, expected, whose gradient is expected */
  double *v[AMBI_SLOTS];      /* given or expected values; by AMBI_GRAD(s) too    */
  int64_t n[AMBI_SLOTS];      /* how many of them                                 */
} vectors_case;

/* "CASE/name" of the file as doubles; NULL, and a failure is counted and printed, when it is not there. */
double *vectors_tensor(const vectors_job *j, const char *c, const char *name, ambi_tensor *shape);

/* Counts and prints one comparison of n values of dtype t: || got - want || against `bar` (norms, not relative). */
void vectors_compare(const vectors_job *j, const char *c, const char *what, ambi_dtype t, const double *got,
                     const double *want, int64_t n, double bar);
/* Counts and prints a failure that is no comparison. */
void vectors_failure(const vectors_job *j, const char *c, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
double vectors_norm(const double *v, int64_t n);
/* || got - want ||; where the value overflows the dtype, an infinity of the right sign is exact. */
double vectors_distance(ambi_dtype t, const double *got, const double *want, int64_t n);

/* Fills *c (zeroed but for its name) from its entry in ops.json and the file. 0, or -1 after counting a failure; the
 * caller frees c->v either way. */
int vectors_read(const vectors_job *j, const json_value *json, const ambi_op_info *op, vectors_case *c);

/* The case adamw_clip: clipped AdamW steps by grad_norm and adamw, chained. */
void vectors_adamw(const vectors_job *j, const char *c, const json_value *attrs);

#endif
