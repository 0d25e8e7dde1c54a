/* selective_scan on the CPU. A lane is a channel, so that no sum of the recurrence crosses lanes.
 *
 *   tiles.h     two axes of a tensor, of any dtype and strides, to and from a tile of reals
 *   steps.h     the recurrence and its gradient, on tiles
 *   block.h     a block: some channels of one batch, and what it loads
 *   forward.h   a block through one chunk of STEPS steps
 *   backward.h  the same from the last step to the first, and the sums that blocks share
 *
 * A task takes blocks through time, chunk by chunk: the chunk's part of every tensor becomes a tile, what all states
 * share (d, d u) is computed once, then the recurrence runs over the tile for SOME states at a time, in registers.
 * Backward first runs forward to find the state before each chunk (unless forward saved them), then takes the chunks
 * from the last to the first: the states of the chunk again, then the gradients in reverse. Sums over channels and over
 * batches are left in the workspace, block by block, and added up in order at the end.                            */
#include "ops/selective_scan/backward.h"

static uint64_t block_bytes(const problem *p) {
  back_memory m;
  int64_t reals = is_backward(p) ? lay_out(p, &m, NULL) : padded_states(scan(p)) * WIDTH;
  return (uint64_t)reals * sizeof(real);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return (uint64_t)plan_blocks(scan(p)).count * block_bytes(p);
}

/* A task takes enough blocks to be worth waking a thread for. */
static int64_t blocks_per_task(const scan_recipe *r) {
  enum { UPDATES = 1 << 15 };
  return ceil_div(UPDATES, plan_blocks(r).width * max64(r->length, 1) * max64(r->states, 1)); /* fits: see shapes */
}

static void block_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const int64_t each = blocks_per_task(scan(c->p)), end = min64((task + 1) * each, plan_blocks(scan(c->p)).count);
  for (int64_t i = task * each; i < end; i++) {
    const block k = block_at(c, i);
    if (is_backward(c->p))
      backward_block(&k);
    else
      forward_block(&k);
  }
  stream_fence();
}

static void run_blocks(const cpu_call *c) {
  const scan_recipe *r = scan(c->p);
  pool_run(c->threads, ceil_div(plan_blocks(r).count, blocks_per_task(r)), block_task, (void *)c);
}

static void backward(const cpu_call *c) {
  const scan_recipe *r = scan(c->p);
  run_blocks(c);
  pool_run(c->threads, group_tasks(c->p, 0) + group_tasks(c->p, 1), group_task, (void *)c);
  pool_run(c->threads, plan_blocks(r).per_batch, channel_task, (void *)c);
}

const cpu_kernel CPU_KERNEL(selective_scan) = {"chunks", workspace, run_blocks, backward};
