/* block.h -- how conv1d's work is cut, and what a task works with. Positions are those of z = x0 ++ x (see op.c). */
#ifndef AMBI_CONV1D_BLOCK_H
#define AMBI_CONV1D_BLOCK_H
#include "backends/cpu/math.h"
#include "backends/cpu/sums.h"
#include "ops/conv1d/op.h"

enum { X = AMBI_CONV1D_X, W = AMBI_CONV1D_W, B = AMBI_CONV1D_B, X0 = AMBI_CONV1D_X0 };
enum { Y = AMBI_CONV1D_Y, X_LAST = AMBI_CONV1D_X_LAST };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DX0 = AMBI_GRAD(X0) };
enum { DY = AMBI_GRAD(Y), DX_LAST = AMBI_GRAD(X_LAST) };
enum { CHANNEL = 1, TIME = 2 }; /* axes a strip runs along */

static inline strip line_of(const cpu_call *c, int slot, int axis, int64_t b, int64_t d, int64_t t) {
  const int64_t *s = conv1d(c->p)->stride[slot];
  if (!c->at[slot]) return (strip){0}; /* absent, or empty */
  return strip_of(c, slot, b * s[0] + d * s[1] + t * s[2], s[axis]);
}

static inline bool wants_dz(const problem *p) { return writes_slot(p, DX) || writes_slot(p, DX0); }
static inline bool wants_sums(const problem *p) { return writes_slot(p, DW) || writes_slot(p, DB); }

static inline vr silu(vr p) { return m_gate(v_max(p, K(-1e30)), m_logit(p)); }
static inline vr silu_grad(vr dy, vr p) { return m_gate_grad(dy, p, m_logit(p)); }

/* ---- the cut: by shape alone ---- */
/* A task takes `each` (batch, piece of time) pairs of one block of channels. */
typedef struct {
  bool by_channel;         /* vectors run over channels, not over time */
  int64_t width, blocks;   /* channels in a block                      */
  int64_t span, pieces;    /* positions in a piece of time             */
  int64_t each, groups;    /* pairs in a task; tasks of a block        */
  int64_t positions, sums; /* to go through; sums a task keeps: dw, db */
} cut;

static inline cut cut_of(const problem *p) {
  enum { CHANNELS = TILE, STEPS = 256, WORTH_WAKING = 16384, MOST_TASKS = 256 };
  const conv1d_recipe *r = conv1d(p);
  const int64_t *s = r->stride[is_backward(p) ? DY : X];
  bool any = r->channels > 0 && (r->length > 0 || writes_slot(p, DX0)); /* of a huge empty tensor nothing is walked */
  cut u = {.by_channel = magnitude(s[1]) < magnitude(s[2]) || r->length < VL}; /* lines too short for a vector, too */
  u.positions = any ? r->length + (is_backward(p) ? r->taps - 1 : 0) : 0;
  u.width = u.by_channel ? min64(r->channels, CHANNELS) : ceil_div(r->channels, 64);
  u.width = max64(u.width, 1);
  u.span = max64(u.by_channel ? STEPS : 16 * TILE, 4 * r->taps);
  u.blocks = ceil_div(r->channels, u.width);
  u.pieces = ceil_div(u.positions, u.span);
  int64_t pairs = r->batch * u.pieces, work = u.width * min64(u.span, max64(u.positions, 1));
  u.each = max64(ceil_div(pairs, ceil_div(MOST_TASKS, max64(u.blocks, 1))), WORTH_WAKING / work);
  u.each = max64(u.each, 1);
  u.groups = ceil_div(pairs, u.each);
  u.sums = is_backward(p) && wants_sums(p) ? u.width * (r->taps + 1) : 0;
  return u;
}

/* ---- what a task works with ---- */
/* Channels [d, d + n), positions [from, to) of batch b */
typedef struct {
  int64_t b, d, n, from, to;
} block;

typedef struct {
  const cpu_call *c;
  cut u;
  real *w;          /* (W, width), or, by time, one channel's (W), then backwards              */
  real *bias;       /* by channel: (width)                                                       */
  real *z, *dp;     /* rings of W rows (width), or, by time, windows of TILE + 2 (W - 1)        */
  const real **row; /* by channel: where z[t] .. z[t + W - 1] are, then dp[t] .. dp[t - W + 1]   */
  column_sums sums; /* dw as (W, width), then db as (width)                                     */
} job;

static inline void *take(char *memory, int64_t *used, int64_t bytes) {
  void *taken = memory ? memory + *used : NULL;
  *used += (bytes + 63) / 64 * 64;
  return taken;
}

/* Lays a job's buffers out in memory, or, where that is NULL, only counts; returns the bytes they take. */
static inline int64_t job_layout(job *j, const problem *p, const cut *u, char *memory) {
  int64_t taps = conv1d(p)->taps, size = (int64_t)sizeof(real), used = 0;
  int64_t window = u->by_channel ? taps * u->width : TILE + 2 * (taps - 1);
  j->w = take(memory, &used, (u->by_channel ? taps * u->width : 2 * taps) * size);
  j->bias = take(memory, &used, u->by_channel ? u->width * size : 0);
  j->z = take(memory, &used, window * size);
  j->dp = take(memory, &used, is_backward(p) ? window * size : 0);
  j->row = take(memory, &used, u->by_channel ? 2 * taps * (int64_t)sizeof *j->row : 0);
  return used;
}

#endif
