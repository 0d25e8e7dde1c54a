/* params.h -- the parameters of a model: names and shapes as transformers has them, and where each lies.
 *
 * All parameters lie in one list of numbers, first those that weight decay acts on (matrices), then those it leaves
 * alone (norms, biases, A_log, D), so that each optimizer step is two runs. Matrices that are multiplied by the same
 * input (q, k and v; gate and up) lie side by side and are one matrix to the model. */
#ifndef MODELS_PARAMS_H
#define MODELS_PARAMS_H
#include "config.h"
#include "dice.h"

enum { PARAM_NAME = 96 };
#define PARAMS_MOST (INT64_C(1) << 44) /* elements of a list that is still a model */

typedef enum { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_OUT, INIT_A_LOG, INIT_DT_BIAS, INIT_RANK, INIT_CONV } param_init;

typedef struct {
  char name[PARAM_NAME];
  int32_t ndim;
  int64_t shape[3], count;
  int64_t offset; /* elements */
  int32_t decays; /* weight decay acts on it                          */
  int32_t matrix; /* a factor of matrix products, or the embedding: kept in the model's dtype */
  int32_t prefix; /* bytes of the name before what the layer calls it */
  int32_t layer;  /* -1: none                                          */
  param_init init;
} param;

typedef struct {
  param *param;
  int64_t count;
  int64_t size, decayed; /* elements of all, and of the first part */
} param_list;

/* 0: no memory. A list whose size is beyond PARAMS_MOST is no model's. */
int params_list(const model_config *c, param_list *list);
void params_free(param_list *list);
/* By its name, with the layer's prefix; NULL: none. */
const param *params_find(const param_list *list, const char *name);
/* What a layer calls `name` ("mixer.D"), or the model when layer is -1; NULL: none. */
const param *params_of(const param_list *list, int64_t layer, const char *name);

/* Fresh values for p, the same for the same seed whatever the other parameters are. */
void params_fill(const model_config *c, const param *p, uint64_t seed, double *out);

#endif
