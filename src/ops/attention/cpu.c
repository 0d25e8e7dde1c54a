/* attention on the CPU, in blocks: the scores of a block of queries and a block of keys are all that ever exists.
 *
 *   block.h     blocks of queries and of keys, in and out of tensors of any dtype and strides; what sees what
 *   forward.h   a block of queries past the keys
 *   backward.h  the same for dq; then a block of keys past the queries, for dk and dv
 *
 * A task takes one block: tasks are cut by shape alone, and no two write to one place.                              */
#include "ops/attention/backward.h"

static uint64_t workspace(const problem *p, const cpu_features *features) {
  const attention_recipe *r = attention(p);
  (void)features;
  return is_backward(p) ? 2 * (uint64_t)(r->batches * r->groups * rows_in_all(r)) * sizeof(real) : 0;
}

/* One task for each block of so many rows in every batch and group of heads */
static void run_blocks(const cpu_call *c, int64_t rows, task_fn *task) {
  const attention_recipe *r = attention(c->p);
  pool_run(c->threads, r->batches * r->groups * blocks_of(r, rows), task, (void *)c);
}

static void forward(const cpu_call *c) { run_blocks(c, rows_in_all(attention(c->p)), forward_task); }

static void backward(const cpu_call *c) {
  const attention_recipe *r = attention(c->p);
  run_blocks(c, rows_in_all(r), statistics_task);
  if (writes_slot(c->p, DQ)) run_blocks(c, rows_in_all(r), dq_task);
  if (writes_slot(c->p, DK) || writes_slot(c->p, DV)) run_blocks(c, r->keys, dk_task);
}

const cpu_kernel CPU_KERNEL(attention) = {"blocks", workspace, forward, backward};
