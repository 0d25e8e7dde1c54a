/* trial.h -- a case made concrete: dtypes, values as storage holds them, and the reference's answer to exactly those
 * values in f64, with the size of the terms it is made of (what rounding errors are proportional to). */
#ifndef CLI_TRIAL_H
#define CLI_TRIAL_H
#include "exec.h"

/* Which dtype each slot gets, where the case does not say. */
typedef struct {
  const char *name;      /* "bf16", "mixed"                                                            */
  ambi_dtype activation; /* the first input and the required outputs                                   */
  ambi_dtype parameter;  /* the other inputs                                                           */
  ambi_dtype gradient;   /* of inputs; AMBI_NONE: as the input                                         */
  int any;               /* 1: every slot and every gradient draws its own                             */
} mix;

typedef struct {
  const char *text;
  ambi_op op; /* forward and dense: inputs, required outputs and wanted optional outputs are described */
  const ambi_op_info *info;
  uint32_t inputs, outputs;
  uint32_t differentiable; /* inputs that have a gradient; none: there is no backward pass             */
  uint32_t arriving;       /* outputs on which a gradient arrives                                      */
  int64_t n;               /* elements of the largest slot: no sum has more terms                      */
  double *in[AMBI_SLOTS];  /* inputs, arriving gradients; for other gradients what accumulate adds to  */
  double *ref[AMBI_SLOTS]; /* outputs and gradients                                                    */
  double *mag[AMBI_SLOTS]; /* sum of |terms| of each, see scale.c                                      */
  double *
      narrow[AMBI_SLOTS]; /* error of kernels that round factors of their sums to 16 bits, or NULL: scale_attention.c */
  double norm[AMBI_SLOTS]; /* the same of the norm over all elements, over that norm; by_norm: judged by that too   */
  uint32_t by_norm;
  double steps;       /* extra roundings per term, where a term passes through a recurrence       */
  double growth, own; /* roundings per term; what the reference itself errs by: see scale.c       */
  int approximate;    /* a function whose result may be off by one ulp of f16 or bf16 (unary, gated)*/
  int flips;          /* an output slot whose formula rounds inside (rmsnorm's cast), or -1       */
} trial;

enum { ALL_AXES = AMBI_MAX_DIMS };

/* repeat >= 0: slot `repeat`, a primal or a gradient, gets stride 0 along `axis`, and so one value there.
 * AMBI_OK, or a status and a sentence in err. */
ambi_status trial_make(const target *ref, const char *text, const mix *m, uint64_t seed, int repeat, int axis, trial *t,
                       char *err, size_t n);
void trial_free(trial *t);
/* Asks the reference again, after t->in was changed; t->mag stays. */
ambi_status trial_solve(const target *ref, trial *t, char *err, size_t n);

/* The op of either pass, dense. Backward describes no output that is optional or saved, but the gradients that
 * arrive on them. */
ambi_op trial_op(const trial *t, ambi_pass pass);
/* The same with every floating slot dense f64: what the reference computes. */
ambi_op trial_reference_op(const trial *t, ambi_pass pass);
/* Runs the reference on other values than the trial's own; out: as e->out, for exec_free. */
int trial_reference(const target *ref, const trial *t, ambi_pass pass, double *const *in, exec *e);

/* scale.c: fills t->mag and t->steps. */
void trial_magnitudes(const target *ref, trial *t);
/* How often u a term may err; t->steps is known. */
double trial_growth(const trial *t);
/* share * m, and 0 of an infinite m too: e^-inf is 0 in every precision. */
static inline double trial_part(double share, double m) { return share > 0 ? share * m : 0; }
/* scale_norm.c: its part for rmsnorm and layernorm. */
void norm_magnitudes(const target *ref, trial *t);
/* scale_softmax.c: for softmax. */
void softmax_magnitudes(const target *ref, trial *t);
/* scale_loss.c: for the cross entropies. */
void cross_entropy_magnitudes(const target *ref, trial *t);
void linear_cross_entropy_magnitudes(const target *ref, trial *t);
/* scale_attention.c: for attention. */
void attention_magnitudes(const target *ref, trial *t);

/* The error an element of that value, storage dtype and magnitude may have, when arithmetic has unit roundoff u.
 * terms: the sum of the absolute values it is a sum of, |ref| when it is none. */
double trial_tolerance(const trial *t, double ref, double terms, double mag, ambi_dtype dtype, double u);
/* Element i of the shape t: its number with the coordinate along `axis` set to 0. */
int64_t first_along(const ambi_tensor *t, int axis, int64_t i);

#endif
