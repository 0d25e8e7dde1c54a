/* by_channel.h -- conv1d where channels are dense: vectors run over channels, time goes by row after row. */
#include "ops/conv1d/block.h"

/* w as (W, width), b as (width), of the n channels from d on */
static void load_rows(const job *j, int64_t d, int64_t n) {
  for (int64_t i = 0; i < conv1d(j->c->p)->taps; i++) {
    strip w = line_of(j->c, W, CHANNEL, 0, d, i);
    if (w.at) read_reals(w.dtype, w.at, w.stride, n, j->w + i * j->u.width);
  }
  strip b = line_of(j->c, B, CHANNEL, 0, d, 0);
  memset(j->bias, 0, (size_t)n * sizeof(real));
  if (b.at) read_reals(b.dtype, b.at, b.stride, n, j->bias);
}

/* Row `at` of z: of x0 or x; absent where x0 is, and past the end */
static strip z_strip(const job *j, const block *k, int64_t at) {
  const conv1d_recipe *r = conv1d(j->c->p);
  int64_t before = r->taps - 1;
  if (at < before) return line_of(j->c, X0, CHANNEL, k->b, k->d, at);
  return at - before < r->length ? line_of(j->c, X, CHANNEL, k->b, k->d, at - before) : (strip){0};
}

/* The same, kept in a ring of W rows where it cannot be read as it lies */
static const real *z_row(const job *j, const block *k, int64_t at) {
  real *kept = j->z + at % conv1d(j->c->p)->taps * j->u.width;
  strip s = z_strip(j, k, at);
  if (s.at) return strip_in(&s, 0, k->n, kept);
  memset(kept, 0, (size_t)k->n * sizeof(real));
  return kept;
}

/* A row that is read next, so that memory works while this one is computed. */
static void prefetch_row(strip s, int64_t n) {
  int64_t bytes = n * s.stride * (int64_t)ambi_dtype_size(s.dtype);
  for (int64_t i = 0; s.at && s.stride == 1 && i < bytes; i += 64) __builtin_prefetch(s.at + i, 0, 2);
}

/* row[i] = row t + i of z: the first time all but the last, then one more each step */
static void first_rows(const job *j, const block *k, int64_t t) {
  for (int64_t i = 0; i < conv1d(j->c->p)->taps - 1; i++) j->row[i + 1] = z_row(j, k, t + i);
}
static void next_row(const job *j, const block *k, int64_t t) {
  int64_t before = conv1d(j->c->p)->taps - 1;
  memmove(j->row, j->row + 1, (size_t)before * sizeof *j->row);
  j->row[before] = z_row(j, k, t + before);
  prefetch_row(z_strip(j, k, t + before + 1), k->n);
}

/* ---- forward ---- */
/* p = bias + sum_k w[k] row[k], of channels i.. */
INLINE vr row_sum(const real *const *row, const real *w, int64_t width, vr p, int64_t i, int64_t left, int64_t taps) {
  for (int64_t k = 0; k < taps; k++) p += v_get(row[k] + i, left) * v_get(w + k * width + i, left);
  return p;
}

INLINE void filter_row(const job *j, real *y, bool act, int64_t n, int64_t taps) {
  for (int64_t i = 0; i < n; i += VL) {
    vr p = row_sum(j->row, j->w, j->u.width, v_get(j->bias + i, n - i), i, n - i, taps);
    v_put(y + i, act ? silu(p) : p, n - i);
  }
}

static void channel_forward(job *j, const block *k) {
  int64_t taps = conv1d(j->c->p)->taps;
  bool act = j->c->p->op.u.conv1d.silu;
  TILE_OF_REALS tile[TILE];
  first_rows(j, k, k->from);
  for (int64_t t = k->from; t < k->to; t++) {
    strip y = line_of(j->c, Y, CHANNEL, k->b, k->d, t);
    real *out = strip_out(&y, 0, tile);
    next_row(j, k, t);
    if (taps == 4) /* the usual number as a constant: the loop over taps disappears */
      filter_row(j, out, act, k->n, 4);
    else
      filter_row(j, out, act, k->n, taps);
    strip_put(&y, 0, k->n, out);
  }
}

/* ---- backward ---- */
/* Where a step's results go; NULL: not wanted */
typedef struct {
  real *dp, *dw, *db, *dz;
} results;

INLINE void add_to(real *sum, vr term, int64_t left) { v_put(sum, v_get(sum, left) + term, left); }

/* dp = dy silu'(p);   dw[k] += dp z[t + k];   db += dp;   dz = sum_k w[k] dp[t - k] */
INLINE void step_row(const job *j, const real *dy, bool act, results to, int64_t n, int64_t taps) {
  int64_t width = j->u.width;
  const real *const *dp = j->row + taps;
  for (int64_t i = 0; i < n; i += VL) {
    int64_t left = n - i;
    vr d = v_get(dy + i, left);
    if (act) d = silu_grad(d, row_sum(j->row, j->w, width, v_get(j->bias + i, left), i, left, taps));
    v_put(to.dp + i, d, left);
    for (int64_t k = 0; to.dw && k < taps; k++) add_to(to.dw + k * width + i, d * v_get(j->row[k] + i, left), left);
    if (to.db) add_to(to.db + i, d, left);
    if (!to.dz) continue;
    vr newest = d * v_get(j->w + i, left);
    v_put(to.dz + i, row_sum(dp + 1, j->w + width, width, newest, i, left, taps - 1), left);
  }
}

/* dz[at] to dx0 or dx, with dx_last[at - L] added */
static void put_dz_row(const job *j, const block *k, int64_t at, real *dz) {
  const conv1d_recipe *r = conv1d(j->c->p);
  int64_t before = r->taps - 1;
  strip to =
      at < before ? line_of(j->c, DX0, CHANNEL, k->b, k->d, at) : line_of(j->c, DX, CHANNEL, k->b, k->d, at - before);
  if (at >= r->length && reads_slot(j->c->p, DX_LAST)) {
    TILE_OF_REALS tile[TILE];
    strip last = line_of(j->c, DX_LAST, CHANNEL, k->b, k->d, at - r->length);
    const real *d = strip_in(&last, 0, k->n, tile);
    for (int64_t i = 0; i < k->n; i++) dz[i] += d[i];
  }
  if (to.at) strip_put(&to, 0, k->n, dz);
}

/* Time t, from L on without dy. dz and the sums belong to the piece itself, not to the W-1 steps before it. */
static void backward_step(job *j, const block *k, int64_t t) {
  const conv1d_recipe *r = conv1d(j->c->p);
  TILE_OF_REALS dy_tile[TILE], dz[TILE];
  int64_t taps = r->taps;
  bool inside = t < r->length, own = t >= k->from, sums = j->u.sums && inside && own;
  strip dy = inside ? line_of(j->c, DY, CHANNEL, k->b, k->d, t) : (strip){0};
  if (!inside) memset(dy_tile, 0, sizeof dy_tile);
  const real *dy_row = inside ? strip_in(&dy, 0, k->n, dy_tile) : dy_tile;
  results to = {.dp = j->dp + t % taps * j->u.width,
                .dw = sums && writes_slot(j->c->p, DW) ? j->sums.block : NULL,
                .db = sums && writes_slot(j->c->p, DB) ? j->sums.block + taps * j->u.width : NULL,
                .dz = own && wants_dz(j->c->p) ? dz : NULL};
  for (int64_t i = 0; i < taps; i++) j->row[taps + i] = j->dp + (t - i + taps) % taps * j->u.width;
  if (t + 1 < r->length) prefetch_row(line_of(j->c, DY, CHANNEL, k->b, k->d, t + 1), k->n);
  if (taps == 4)
    step_row(j, dy_row, inside && j->c->p->op.u.conv1d.silu, to, k->n, 4);
  else
    step_row(j, dy_row, inside && j->c->p->op.u.conv1d.silu, to, k->n, taps);
  if (sums) column_sums_rows_done(&j->sums, 1);
  if (to.dz) put_dz_row(j, k, t, dz);
}

static void channel_backward(job *j, const block *k) {
  const conv1d_recipe *r = conv1d(j->c->p);
  bool reads_z = reads_slot(j->c->p, X);
  int64_t start = max64(k->from - (r->taps - 1), 0);
  memset(j->dp, 0, (size_t)(r->taps * j->u.width) * sizeof(real)); /* dp before time is zero */
  if (reads_z && start < r->length) first_rows(j, k, start);
  for (int64_t t = start; t < k->to; t++) {
    if (reads_z && t < r->length) next_row(j, k, t);
    backward_step(j, k, t);
  }
}
