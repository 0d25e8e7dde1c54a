/* conv1d on the CPU: blocks of channels by pieces of time, with vectors along whichever of the two is dense.
 *
 *   p[t] = b + sum_k w[k] z[t + k],  y = p or silu(p)
 *   dp = dy or dy silu'(p),  dw[k] += dp[t] z[t + k],  db += dp[t],  dz[j] = sum_k w[k] dp[j - k]
 *
 * Every position of z = x0 ++ x belongs to one piece; backward recomputes the dp of the W-1 positions before it.    */
#include "ops/conv1d/by_channel.h"
#include "ops/conv1d/by_time.h"

/* ---- tasks: pairs (batch, piece of time) of one block of channels ---- */
static int64_t tasks_of(const cut *u) { return u->blocks * u->groups; }

/* The sums of a block's tasks lie one after another. */
static char *sums_at(const cpu_call *c, const cut *u, int64_t in_block, int64_t group) {
  return c->workspace + (in_block * u->groups + group) * (int64_t)column_sums_bytes(u->sums);
}

static int64_t all_sums_bytes(const cut *u) {
  return (tasks_of(u) * (int64_t)column_sums_bytes(u->sums) + 63) / 64 * 64;
}

static job job_of(const cpu_call *c, int64_t task) {
  job j = {.c = c, .u = cut_of(c->p)};
  int64_t bytes = job_layout(&j, c->p, &j.u, NULL);
  job_layout(&j, c->p, &j.u, c->workspace + all_sums_bytes(&j.u) + task * bytes);
  if (j.u.sums) {
    j.sums = column_sums_at(sums_at(c, &j.u, task % j.u.blocks, task / j.u.blocks), j.u.sums);
    column_sums_clear(&j.sums);
  }
  return j;
}

static void run_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const conv1d_recipe *r = conv1d(c->p);
  job j = job_of(c, task);
  const cut *u = &j.u;
  void (*run)(job *, const block *) = is_backward(c->p) ? u->by_channel ? channel_backward : time_backward
                                      : u->by_channel   ? channel_forward
                                                        : time_forward;
  int64_t d = task % u->blocks * u->width, first = task / u->blocks * u->each;
  int64_t n = min64(u->width, r->channels - d), end = min64(first + u->each, r->batch * u->pieces);
  if (u->by_channel) load_rows(&j, d, n);
  for (int64_t pair = first; u->pieces > 0 && pair < end; pair++) {
    int64_t from = pair % u->pieces * u->span;
    block k = {pair / u->pieces, d, n, from, min64(from + u->span, u->positions)};
    run(&j, &k);
  }
  if (u->sums) column_sums_flush(&j.sums);
  stream_fence();
}

/* ---- x_last: when every y is done, because it may lie over x0 ---- */
static void x_last_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const conv1d_recipe *r = conv1d(c->p);
  int64_t blocks = ceil_div(r->channels, TILE), before = r->taps - 1;
  int64_t b = task / blocks, d = task % blocks * TILE, n = min64(TILE, r->channels - d);
  for (int64_t i = 0; i < before; i++) { /* upwards: row i of x0 is read before or never after it is written */
    int64_t at = r->length + i;
    TILE_OF_REALS tile[TILE];
    strip from = at < before ? line_of(c, X0, CHANNEL, b, d, at) : line_of(c, X, CHANNEL, b, d, at - before);
    strip to = line_of(c, X_LAST, CHANNEL, b, d, i);
    memset(tile, 0, sizeof tile);
    if (from.at) read_reals(from.dtype, from.at, from.stride, n, tile);
    strip_put(&to, 0, n, tile);
  }
  stream_fence();
}

static void forward(const cpu_call *c) {
  const conv1d_recipe *r = conv1d(c->p);
  cut u = cut_of(c->p);
  pool_run(c->threads, tasks_of(&u), run_task, (void *)c);
  if (writes_slot(c->p, X_LAST)) pool_run(c->threads, r->batch * ceil_div(r->channels, TILE), x_last_task, (void *)c);
}

/* ---- backward ---- */
/* Row k of dw, or db where k is W, of one block of channels */
static void put_sums(const cpu_call *c, const cut *u, int64_t in_block, int64_t k) {
  const conv1d_recipe *r = conv1d(c->p);
  int64_t d = in_block * u->width, n = min64(u->width, r->channels - d);
  strip to = k < r->taps ? line_of(c, DW, CHANNEL, 0, d, k) : line_of(c, DB, CHANNEL, 0, d, 0);
  TILE_OF_REALS total[TILE];
  for (int64_t i = 0; to.at && i < n; i += TILE) {
    int64_t count = min64(TILE, n - i);
    column_sums_total(sums_at(c, u, in_block, 0), u->groups, u->sums, k * u->width + i, count, total);
    strip_put(&to, i, count, total);
  }
}

static void sums_task(void *context, int64_t task) {
  const cpu_call *c = context;
  cut u = cut_of(c->p);
  for (int64_t k = 0; k <= conv1d(c->p)->taps; k++) put_sums(c, &u, task, k);
  stream_fence();
}

static void backward(const cpu_call *c) {
  cut u = cut_of(c->p);
  pool_run(c->threads, tasks_of(&u), run_task, (void *)c);
  if (u.sums) pool_run(c->threads, u.blocks, sums_task, (void *)c);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  cut u = cut_of(p);
  job j = {0};
  return (uint64_t)(all_sums_bytes(&u) + tasks_of(&u) * job_layout(&j, p, &u, NULL));
}

const cpu_kernel CPU_KERNEL(conv1d) = {"blocks", workspace, forward, backward};
