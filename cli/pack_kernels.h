/* pack_kernels.h -- the kernels that `ambi pack build` knows: how each is described in kernels.json, and the ambi op
 * that it computes, by which self-tests are made and results are compared. */
#ifndef CLI_PACK_KERNELS_H
#define CLI_PACK_KERNELS_H
#include <ambi/pack.h>

typedef struct {
  const char *name, *type, *more; /* "eps", "f32", what else JSON says of it: "\"default\": 1e-6, \"min\": 0" */
} pack_param;

typedef struct {
  const char *name, *shape; /* "x", "\"rows\", \"cols\"" */
} pack_tensor;

enum { PACK_DIMS = 4, PACK_WORDS = 8 };

/* Slots in each region, one after another, as 1 + slot; 0: none. */
typedef int8_t pack_layout[AMBI_PACK_REGIONS][2];

typedef struct pack_def {
  const char *id, *name, *category;
  ambi_kind kind;
  int function;
  int scratch_inverted; /* forward's scratch holds 1 / slot */
  pack_layout layout[2];
  const pack_param *params; /* those that self-tests give; ends in {0} */
  const pack_tensor *inputs, *outputs;
  int64_t test[PACK_DIMS]; /* sizes of its self-test */
  /* The op for these sizes, its pass set, and the words of its params; returns how many. */
  int (*describe)(const struct pack_def *d, const int64_t *dims, ambi_op *op, uint32_t *words);
} pack_def;

extern const pack_def pack_defs[];
extern const int pack_def_count;
const pack_def *pack_def_named(const char *id); /* NULL: none */

/* A call with random inputs, and what the op gives for it on a device. */
typedef struct {
  const pack_def *def;
  ambi_pack_call call; /* at[out] and at[scratch]: room for results, zeroed */
  float *want[AMBI_PACK_REGIONS];
  uint32_t words[PACK_WORDS];
  int64_t terms; /* of the longest sum, or 0 */
} pack_case;

/* 1, or 0 after printing why not; free it either way. */
int pack_case_make(pack_case *c, const pack_def *d, ambi_pass pass, const int64_t *dims, ambi_device *dev);
void pack_case_free(pack_case *c);
/* How far results of a region may be from `want`: as many roundings of the largest one as sums have terms, and some. */
double pack_case_tolerance(const pack_case *c, int region);
/* Whether out and scratch are within it. */
int pack_case_agrees(const pack_case *c);

#endif
