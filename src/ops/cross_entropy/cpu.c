/* cross_entropy on the CPU: a task takes some rows; a row is read from memory once, then from the cache.
 *
 *   forward   pass 1: max   pass 2: sum of e^(l - max), the row's loss   pass 3, if wanted: grad
 *   backward  pass 1, 2 unless lse was saved                             pass 3: dlogits
 * The rows' losses go to the workspace and are summed in order at the end. */
#include "ops/cross_entropy/row_cpu.h"

enum { LOGITS = AMBI_CE_LOGITS, TARGET = AMBI_CE_TARGET };
enum { LOSS = AMBI_CE_LOSS, LSE = AMBI_CE_LSE, GRAD = AMBI_CE_GRAD };
enum { DLOGITS = AMBI_GRAD(LOGITS), DLOSS = AMBI_GRAD(LOSS) };

typedef struct {
  const cpu_call *c;
  ce_formula f;
  real divisor, *losses; /* of rows */
} ce_job;

/* ---- rows ---- */
INLINE void forward_row(const ce_job *job, int64_t row, int64_t target, int kind) {
  const cpu_call *c = job->c;
  strip x = row_of(c, LOGITS, row), grad = row_of(c, GRAD, row);
  ce_row r = {.lse = 0, .loss = 0};
  if (ce_counts(c->p, target)) {
    r = ce_row_of(kind, &x, &job->f, target);
    if (grad.at) ce_dlogits(kind, &x, &grad, &job->f, &r, target, 1 / job->divisor);
  } else {
    ce_zero_row(&grad, job->f.cols);
  }
  row_put(c, LSE, row, r.lse);
  if (ce_each(c->p))
    row_put(c, LOSS, row, r.loss);
  else
    job->losses[row] = r.loss;
}

INLINE void backward_row(const ce_job *job, int64_t row, int64_t target, int kind) {
  const cpu_call *c = job->c;
  strip x = row_of(c, LOGITS, row), to = row_of(c, DLOGITS, row);
  if (!ce_counts(c->p, target)) {
    ce_zero_row(&to, job->f.cols);
    return;
  }
  ce_row r = reads_slot(c->p, LSE) ? ce_row_saved(row_get(c, LSE, row)) : ce_row_of(kind, &x, &job->f, target);
  ce_dlogits(kind, &x, &to, &job->f, &r, target, ce_dloss(c, DLOSS, row, job->divisor));
}

typedef void row_fn(const ce_job *job, int64_t row, int64_t target);
static void forward_reals(const ce_job *job, int64_t row, int64_t target) { forward_row(job, row, target, REALS); }
static void forward_bf16s(const ce_job *job, int64_t row, int64_t target) { forward_row(job, row, target, BF16S); }
static void backward_reals(const ce_job *job, int64_t row, int64_t target) { backward_row(job, row, target, REALS); }
static void backward_bf16s(const ce_job *job, int64_t row, int64_t target) { backward_row(job, row, target, BF16S); }

/* ---- tasks ---- */
static void rows_task(void *context, int64_t task) {
  static row_fn *const fns[2][2] = {[REALS] = {forward_reals, backward_reals},
                                    [BF16S] = {HAS_BF16S ? forward_bf16s : NULL, HAS_BF16S ? backward_bf16s : NULL}};
  const ce_job *job = context;
  const cpu_call *c = job->c;
  int64_t rows = rows_of(c->p)->rows.count, each = softmax_rows_each(rows, job->f.cols);
  uint32_t others = AMBI_BIT(TARGET) | AMBI_BIT(LOSS) | AMBI_BIT(LSE) | AMBI_BIT(DLOSS);
  row_fn *fn = fns[norm_kind(c, others)][is_backward(c->p)];
  for (int64_t row = task * each; row < min64((task + 1) * each, rows); row++) fn(job, row, target_at(c, TARGET, row));
  stream_fence();
}

static ce_job run_rows(const cpu_call *c) {
  const rows_recipe *n = rows_of(c->p);
  ce_job job = {c, ce_formula_of(c->p, n->cols), ce_divisor(c, TARGET), (real *)(void *)c->workspace};
  pool_run(c->threads, softmax_tasks(n->rows.count, n->cols), rows_task, &job);
  return job;
}

static void forward(const cpu_call *c) {
  ce_job job = run_rows(c);
  cascade sum = {.count = 0};
  if (ce_each(c->p)) return;
  for (int64_t row = 0; row < rows_of(c->p)->rows.count; row++) cascade_add(&sum, job.losses[row]);
  ce_put_total(c, LOSS, cascade_total(&sum) / job.divisor);
}

static void backward(const cpu_call *c) { run_rows(c); }

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return is_backward(p) || ce_each(p) ? 0 : (uint64_t)rows_of(p)->rows.count * sizeof(real);
}

const cpu_kernel CPU_KERNEL(cross_entropy) = {"rows", workspace, forward, backward};
