/* rope on the CPU: cos and sin of every (position, i) go into a table first, from angles in double; then tasks take a
 * few positions and some heads each, so that a piece of the table serves many rows.
 *
 *   halves        a row of the table: cos[i], sin[i], i < dims/2    y1 = x1 cos - x2 sin;  y2 = x2 cos + x1 sin
 *   interleaved   cos[i] cos[i] .., -sin[i] sin[i] .., by channel   y = x cos + (x with pairs swapped) sin
 *
 * Backward turns dy the other way: the same with -sin. */
#include "backends/cpu/io.h"
#include "ops/rope/op.h"
#include "ops/rope/turn.h"

enum { X = AMBI_ROPE_X, POSITIONS = AMBI_ROPE_POSITIONS, FREQUENCIES = AMBI_ROPE_FREQUENCIES, Y = AMBI_ROPE_Y };
enum { ROWS = 32 }; /* positions of a task, of the table's and of one that goes along them */

/* ---- the table, in the workspace ---- */
typedef struct {
  double *frequency;   /* (dims/2), padded with zeros                 */
  double *most;        /* largest |frequency|, infinite if one is NaN */
  real *row;           /* (B L, 2, width): cos, then sin              */
  int64_t half, width; /* dims/2; of the cos of a row, with padding */
} table;

static int64_t padded(int64_t n) { return ceil_div(n, AT_ONCE) * AT_ONCE; }
static int64_t width_of(const problem *p) {
  return padded(p->op.u.rope.interleaved ? rope_of(p)->dims : rope_of(p)->dims / 2);
}

static table table_of(const cpu_call *c) {
  int64_t half = rope_of(c->p)->dims / 2;
  double *frequency = (double *)(void *)c->workspace, *most = frequency + padded(half);
  return (table){frequency, most, (real *)(void *)(most + AT_ONCE), half, width_of(c->p)};
}

static double frequency_at(const cpu_call *c, int64_t i) {
  if (!reads_slot(c->p, FREQUENCIES)) return rope_frequency(c->p, i);
  const ambi_tensor *t = &c->p->t[FREQUENCIES];
  const char *at = c->at[FREQUENCIES] + i * t->stride[0] * dtype_bytes(t->dtype);
  return t->dtype == AMBI_F64 ? *(const double *)(const void *)at : (double)*(const float *)(const void *)at;
}

static void fill_frequencies(const cpu_call *c, table t) {
  *t.most = 0;
  memset(t.frequency, 0, (size_t)padded(t.half) * sizeof *t.frequency);
  for (int64_t i = 0; i < t.half; i++) {
    double f = t.frequency[i] = frequency_at(c, i);
    *t.most = f == f ? fmax(*t.most, fabs(f)) : (double)INFINITY;
  }
}

static double position_at(const cpu_call *c, int64_t batch, int64_t l) {
  if (!reads_slot(c->p, POSITIONS)) return (double)c->p->op.u.rope.offset + (double)l;
  const ambi_tensor *t = &c->p->t[POSITIONS];
  int64_t offset = t->ndim == 2 ? batch * t->stride[0] + l * t->stride[1] : l * t->stride[0];
  return (double)integer_at(c, POSITIONS, offset);
}

static void fill_row(const cpu_call *c, table t, int64_t row) {
  double position = position_at(c, row / rope_of(c->p)->length, row % rope_of(c->p)->length);
  real *cosine = t.row + row * 2 * t.width, *sine = cosine + t.width, direction = is_backward(c->p) ? -1 : 1;
  for (int64_t i = 0; i < t.half; i += AT_ONCE) {
    TILE_OF_REALS cs[AT_ONCE], sn[AT_ONCE];
    turn(position, t.frequency + i, *t.most, cs, sn);
    for (int64_t j = 0; j < AT_ONCE && !c->p->op.u.rope.interleaved; j++) {
      cosine[i + j] = cs[j];
      sine[i + j] = direction * sn[j];
    }
    for (int64_t j = 0; j < min64(AT_ONCE, t.half - i) && c->p->op.u.rope.interleaved; j++) {
      cosine[2 * (i + j)] = cosine[2 * (i + j) + 1] = cs[j];
      sine[2 * (i + j)] = -direction * sn[j];
      sine[2 * (i + j) + 1] = direction * sn[j];
    }
  }
}

static void table_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const rope_recipe *r = rope_of(c->p);
  table t = table_of(c);
  for (int64_t row = task * ROWS; row < min64((task + 1) * ROWS, r->batches * r->length); row++) fill_row(c, t, row);
}

/* ---- rows ---- */
INLINE void rotate_halves(int kind, const strip *x, const strip *y, const real *cosine, const real *sine,
                          int64_t half) {
  TILE_OF_REALS tile[4][TILE];
  for (int64_t i = 0; i < half; i += TILE) {
    int64_t n = min64(TILE, half - i);
    const void *x1 = view_in(kind, x, i, n, tile[0]), *x2 = view_in(kind, x, half + i, n, tile[1]);
    out_view y1 = view_out(kind, y, i, n, tile[2]), y2 = view_out(kind, y, half + i, n, tile[3]);
    FOR_LANES(k, n, {
      vr a = get(kind, x1, k, left), b = get(kind, x2, k, left), c = v_load(cosine + i + k), s = v_load(sine + i + k);
      prefetch_view(kind, x1, k);
      prefetch_view(kind, x2, k);
      put(kind, y1, k, a * c - b * s, left);
      put(kind, y2, k, b * c + a * s, left);
    });
    view_put(kind, y, i, n, y1);
    view_put(kind, y, half + i, n, y2);
  }
}

INLINE void rotate_pairs(int kind, const strip *x, const strip *y, const real *cosine, const real *sine, int64_t dims) {
  TILE_OF_REALS tile[2][TILE];
  for (int64_t i = 0; i < dims; i += TILE) {
    int64_t n = min64(TILE, dims - i);
    const void *in = view_in(kind, x, i, n, tile[0]);
    out_view out = view_out(kind, y, i, n, tile[1]);
    FOR_LANES(k, n, {
      vr v = get(kind, in, k, left);
      prefetch_view(kind, in, k);
      put(kind, out, k, v * v_load(cosine + i + k) + swap_pairs(v) * v_load(sine + i + k), left);
    });
    view_put(kind, y, i, n, out);
  }
}

/* Rows that a task takes one after the other: positions of one head or, where heads lie closer together than
 * positions (x is (B, L, H, D) in memory), heads of one position. */
typedef struct {
  const cpu_call *c;
  int from, to, kind;
  bool across;              /* heads after heads */
  int64_t positions, heads; /* of a task; across: all of the last axis of heads */
} call;

enum { TASK = 16384 }; /* elements */

static call call_of(const cpu_call *c, int from, int to) {
  const rope_recipe *r = rope_of(c->p);
  bool dense = r->channel_stride[from] == 1 && r->channel_stride[to] == 1;
  call k = {.c = c, .from = from, .to = to};
  k.kind = dense && all_bf16(c, AMBI_BIT(from) | AMBI_BIT(to)) ? BF16S : REALS;
  int last = r->heads.ndim - 1;
  k.across = last >= 0 && magnitude(r->heads.stride[from][last]) < magnitude(r->row_stride[from]);
  if (k.across) {
    k.heads = r->heads.shape[last];
    k.positions = max64(1, TASK / (k.heads * r->channels));
  } else {
    k.positions = ROWS;
    k.heads = max64(1, TASK / (min64(ROWS, r->length) * r->channels));
  }
  return k;
}

static strip row_at(const call *k, int slot, int64_t batch, int64_t head, int64_t l) {
  const rope_recipe *r = rope_of(k->c->p);
  int64_t at = batch * r->batch_stride[slot] + grid_offset(&r->heads, slot, head) + l * r->row_stride[slot];
  return strip_of(k->c, slot, at, r->channel_stride[slot]);
}

/* Bytes from a row to the next */
static int64_t row_step(const call *k, int slot) {
  const rope_recipe *r = rope_of(k->c->p);
  int64_t step = k->across ? r->heads.stride[slot][r->heads.ndim - 1] : r->row_stride[slot];
  return step * dtype_bytes(k->c->p->t[slot].dtype);
}

/* n rows, the first of them that of (batch, head, l) */
INLINE void rotate_rows(const call *k, table t, int64_t batch, int64_t head, int64_t l, int64_t n, int kind) {
  const rope_recipe *r = rope_of(k->c->p);
  bool interleaved = k->c->p->op.u.rope.interleaved != 0;
  strip x = row_at(k, k->from, batch, head, l), y = row_at(k, k->to, batch, head, l);
  const real *cosine = t.row + (batch * r->length + l) * 2 * t.width;
  int64_t x_step = row_step(k, k->from), y_step = row_step(k, k->to), t_step = k->across ? 0 : 2 * t.width;
  for (; n > 0; n--, x.at += x_step, y.at += y_step, cosine += t_step) {
    if (interleaved)
      rotate_pairs(kind, &x, &y, cosine, cosine + t.width, r->dims);
    else
      rotate_halves(kind, &x, &y, cosine, cosine + t.width, t.half);
    if (r->dims < r->channels) strip_copy(&y, r->dims, &x, r->dims, r->channels - r->dims);
  }
}

INLINE void rotate_block(const call *k, int64_t batch, int64_t head, int64_t l, int kind) {
  const rope_recipe *r = rope_of(k->c->p);
  table t = table_of(k->c);
  int64_t heads = min64(k->heads, r->heads.count - head), positions = min64(k->positions, r->length - l);
  int64_t lines = k->across ? positions : heads, rows = k->across ? heads : positions;
  for (int64_t i = 0; i < lines; i++)
    rotate_rows(k, t, batch, k->across ? head : head + i, k->across ? l + i : l, rows, kind);
}

static void rotate_task(void *context, int64_t task) {
  const call *k = context;
  const rope_recipe *r = rope_of(k->c->p);
  int64_t blocks = ceil_div(r->length, k->positions), groups = ceil_div(r->heads.count, k->heads);
  int64_t l = task % blocks * k->positions, head = task / blocks % groups * k->heads, batch = task / blocks / groups;
  if (HAS_BF16S && k->kind == BF16S)
    rotate_block(k, batch, head, l, BF16S);
  else
    rotate_block(k, batch, head, l, REALS);
  stream_fence();
}

static void rotate(const cpu_call *c, int from, int to) {
  const rope_recipe *r = rope_of(c->p);
  if (ambi_numel(&c->p->t[to]) == 0) return;
  fill_frequencies(c, table_of(c));
  pool_run(c->threads, ceil_div(r->batches * r->length, ROWS), table_task, (void *)c);
  call k = call_of(c, from, to);
  int64_t blocks = ceil_div(r->length, k.positions), groups = ceil_div(r->heads.count, k.heads);
  pool_run(c->threads, r->batches * groups * blocks, rotate_task, &k);
}

static void forward(const cpu_call *c) { rotate(c, X, Y); }
static void backward(const cpu_call *c) { rotate(c, AMBI_GRAD(Y), AMBI_GRAD(X)); }

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  const rope_recipe *r = rope_of(p);
  uint64_t rows = (uint64_t)r->batches * (uint64_t)r->length, frequencies = (uint64_t)padded(r->dims / 2) + AT_ONCE;
  return frequencies * sizeof(double) + rows * 2 * (uint64_t)width_of(p) * sizeof(real);
}

const cpu_kernel CPU_KERNEL(rope) = {"table", workspace, forward, backward};
