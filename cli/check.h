/* check.h -- `ambi check`: what its parts share. check.c walks ops and cases; each part below proves one thing. */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H
#include "exec.h"
#include "layout.h"
#include "trial.h"

enum { MAX_TARGETS = 6 };

typedef struct {
  const char *device, *op, *text, *isa, *vectors;
  const char *dtype; /* of the mixes of check.c, the only one; NULL: all              */
  int64_t seed;
  int64_t random;               /* cases of each op at random sizes, instead of the table; 0: none     */
  int64_t elements;             /* the most that a case may have; 0: any                         */
  int64_t jobs, job;            /* how many processes share the work, and which of them this is */
  char trouble[SENTENCE_BYTES]; /* why it could not begin                                       */
  int answers;                  /* where a job sends its groups; 0: they are printed            */
  int kernels, quick, exhaustive, verbose;
  target ref;
  target targets[MAX_TARGETS]; /* the device under test, once per instruction set it can be held to    */
  int target_count;
  target crews[3]; /* the same with 1, 2 and 7 threads, where threads can be chosen                    */
  int crew_count;
  int64_t passed, failed, skipped;
  int terminal; /* stdout is one: progress may be shown                                                */
} checker;

/* One line of the report: an op, a dtype, a pass. A check is one run of one kernel, compared in full. */
typedef struct {
  checker *ck;
  char name[64];
  int64_t passed, failed, skipped;
  double worst;      /* largest error, as a part of what is allowed                 */
  const char *limit; /* what that is, where one phrase says it; else NULL           */
  char reason[SENTENCE_BYTES];
  int told; /* all its failures have been printed by who found them */
} group;

group group_begin(checker *ck, const char *op, const char *dtype, const char *what);
void group_end(group *g);
void group_print(const group *g);
void group_pass(group *g, double worst);
void group_skip(group *g, const char *reason);
/* A failure: what went wrong, then the case and the kernel. */
void group_fail(group *g, const char *text, const char *kernel, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- jobs ---- */
enum { MOST_JOBS = 64 };
/* Every job walks over everything, in the same order, and does what falls to it. */
static inline int is_mine(const checker *ck, int64_t number) { return number % ck->jobs == ck->job; }
/* check_jobs.c: how many there are when no one says; check(ck) in ck->jobs processes, their groups added up; the exit
 * status. */
int64_t check_default_jobs(const checker *ck);
int check_by_jobs(checker *ck, int (*check)(checker *ck));

/* ---- cases (check_cases.c) ---- */
typedef struct {
  char **text;
  int count;
} case_list;

/* Those of that op; is_long: those for check_long_sums instead. To be freed. */
case_list check_cases(const checker *ck, const ambi_op_info *info, int is_long);
void case_list_free(case_list *l);
/* Whether a tensor of the case has more elements than that */
int case_has_over(const char *text, int64_t most);

/* ---- the parts ---- */
/* fd.c: the reference's gradients against finite differences of its own forward pass. `proven` collects the inputs
 * whose gradient was seen to be non-zero. */
void check_differences(group *g, const char *text, uint32_t *proven);
/* check_kernel.c: kernels against the reference in every layout, pass and choice of gradients; g[0] forward, g[1]
 * backward. `thorough`: with repeated inputs and overlapping buffers too, which no dtype changes much. */
void check_kernels(group *g, const char *text, const mix *m, int thorough);
/* check_extremes.c: a NaN among the inputs goes where the reference lets it go; sums of many equal terms, whose error
 * must not grow with their number; outputs too large for the cache, which a CPU stores past it. */
void check_not_finite(group *g, const char *text, const mix *m);
void check_long_sums(group *g, const char *text, const mix *m);
void check_past_cache(group *g, ambi_kind kind, const mix *m);
/* check_bits.c: the same bits again, and for every number of threads. */
void check_determinism(group *g, const char *text, const mix *m);
/* check_ulp.c: elementwise functions over the whole range of their arguments, conversions bit by bit. */
void check_elementwise(checker *ck, ambi_kind kind);

/* ---- running (check_kernel.c) ---- */
typedef struct {
  group *g;
  const target *dev;
  const trial *t;
  ambi_pass pass;
  int each; /* each gradient by itself, too: large cases have kernels of their own, which may know what is wanted */
} probe;

/* The trial's op and values, laid out like that; then, after any change to it, run and judged. */
exec prepare(const probe *p, layout how);
void finish(const probe *p, exec *e, const char *label);
/* Backward that reads the outputs `saved` of forward */
void try_saved(const probe *p, uint32_t saved, const char *label);

/* ---- comparing (check_compare.c) ---- */
/* Judges a finished run against the reference values `ref` (t->ref, or others of the same shapes): counts one pass, one
 * failure or one skip. label says which variant it was. */
void judge(group *g, const trial *t, const target *dev, const exec *e, double *const *ref, const char *label);

#endif
