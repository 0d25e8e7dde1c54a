/* ssd on the CPU, in the dual form: a chunk of 64 steps is a few small matrix products.
 *
 *   block.h     a block: some heads of a group; runs of steps, and how they come from tensors of any dtype and strides
 *   forward.h   a block through time
 *   backward.h  the same from the last step to the first
 *
 * A task takes one block. Decays between two steps are products of abar, never differences of sums of d A: nothing
 * cancels, and an infinity stays where it is. Backward first runs forward to find the state before each chunk. Sums
 * over the blocks of a group and over batches are left in the workspace and added up in order at the end. */
#include "ops/ssd/backward.h"

static int64_t block_reals(const problem *p) {
  memory m = {NULL, 0};
  back_tiles back;
  if (is_backward(p))
    back_lay_out(p, &m, &back);
  else
    forward_lay_out(ssd(p), &m, &back.f);
  return m.used;
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return (uint64_t)(plan_blocks(ssd(p)).count * block_reals(p)) * sizeof(real);
}

static void block_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const block k = block_at(c, task);
  if (is_backward(c->p))
    backward_block(&k);
  else
    forward_block(&k);
  stream_fence();
}

static void run_blocks(const cpu_call *c) { pool_run(c->threads, plan_blocks(ssd(c->p)).count, block_task, (void *)c); }

/* ---- sums over blocks ---- */
static back_tiles tiles_of(const cpu_call *c, int64_t index) {
  memory m = {block_at(c, index).memory, 0};
  back_tiles w;
  back_lay_out(c->p, &m, &w);
  return w;
}

/* dB, then dC, of one chunk of one group of one batch: over the blocks of the group */
static int64_t group_tasks(const problem *p, int i) {
  const ssd_recipe *r = ssd(p);
  return is_shared(p, i) ? r->batches * r->groups * chunks_of(r) : 0;
}

static void group_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const ssd_recipe *r = ssd(c->p);
  const int i = task >= group_tasks(c->p, 0);
  if (i) task -= group_tasks(c->p, 0);
  const int64_t chunks = chunks_of(r), group = task / chunks, blocks = plan_blocks(r).per_group, N = r->states;
  const block k = {.c = c, .r = r, .batch = group / r->groups};
  const int64_t first = task % chunks * STEPS, end = min64(first + STEPS, r->length);
  for (int64_t t = first; t < end; t++)
    for (int64_t n = 0; n < N; n += TILE) {
      TILE_OF_REALS sum[TILE] = {0}, lost[TILE] = {0};
      const int64_t width = min64(TILE, N - n);
      for (int64_t j = group * blocks; j < (group + 1) * blocks; j++)
        kahan_add(sum, lost, tiles_of(c, j).group[i] + t * N + n, width);
      const strip s = row_of(&k, GRAD(grouped[i]), group % r->groups, t);
      strip_put(&s, n, width, sum);
    }
  stream_fence();
}

/* dA, dD and ddelta_bias of one head: over the batches */
static void head_task(void *context, int64_t head) {
  const cpu_call *c = context;
  const ssd_recipe *r = ssd(c->p);
  const block_plan plan = plan_blocks(r);
  const block k = {.c = c, .r = r};
  const int64_t in_group = head % r->heads_per_group,
                first = head / r->heads_per_group * plan.per_group + in_group / plan.width;
  real sum[SUMS] = {0}, lost[SUMS] = {0};
  for (int64_t b = 0; b < r->batches; b++)
    kahan_add(sum, lost, tiles_of(c, b * plan.per_batch + first).sum + in_group % plan.width * SUMS, SUMS);
  if (c->p->op.u.ssd.a_log) sum[SUM_A] *= a_of(&k, head);
  for (int i = 0; i < SUMS; i++) {
    const strip s = strip_of(c, GRAD(summed[i]), head * r->stride[GRAD(summed[i])].h, 1);
    if (s.at) strip_put(&s, 0, 1, sum + i);
  }
  stream_fence();
}

static void backward(const cpu_call *c) {
  run_blocks(c);
  pool_run(c->threads, group_tasks(c->p, 0) + group_tasks(c->p, 1), group_task, (void *)c);
  pool_run(c->threads, ssd(c->p)->heads, head_task, (void *)c);
}

const cpu_kernel CPU_KERNEL(ssd) = {"chunks", workspace, run_blocks, backward};
