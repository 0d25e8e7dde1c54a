/* by_time.h -- conv1d where time is dense: vectors run over time, a tap is the same line shifted. */
#include "ops/conv1d/block.h"

/* ---- z: lines of it in one piece ---- */
/* Elements [first, first + n) of a line, as many as exist of `count`; out[0] is element `first`. */
static void copy_part(const strip *s, int64_t count, int64_t first, int64_t n, real *out) {
  int64_t skip = max64(0, -first), end = min64(n, count - first);
  if (s->at && end > skip) read_reals(s->dtype, strip_at(s, first + skip), s->stride, end - skip, out + skip);
}

/* z[first .. first + n) of one channel: in x itself where that is possible. */
static const real *z_window(const job *j, const block *k, int64_t d, int64_t first, int64_t n) {
  const conv1d_recipe *r = conv1d(j->c->p);
  int64_t before = r->taps - 1;
  strip x = line_of(j->c, X, TIME, k->b, d, 0), x0 = line_of(j->c, X0, TIME, k->b, d, 0);
  if (first >= before && is_direct(&x)) return strip_in(&x, first - before, n, NULL);
  if (!x0.at) memset(j->z, 0, (size_t)max64(min64(before - first, n), 0) * sizeof(real));
  copy_part(&x0, before, first, n, j->z);
  copy_part(&x, r->length, first - before, n, j->z);
  return j->z;
}

/* One channel's weights, and the same backwards behind them */
static void load_weights(const job *j, int64_t d) {
  int64_t taps = conv1d(j->c->p)->taps;
  strip w = line_of(j->c, W, TIME, 0, d, 0);
  if (!w.at) return;
  read_reals(w.dtype, w.at, w.stride, taps, j->w);
  for (int64_t i = 0; i < taps; i++) j->w[taps + i] = j->w[taps - 1 - i];
}

static real bias_of(const job *j, int64_t d) {
  strip b = line_of(j->c, B, CHANNEL, 0, d, 0);
  return b.at ? strip_get(&b, 0) : 0;
}

/* ---- forward ---- */
/* p[i] = bias + sum_k w[k] z[i + k] */
INLINE vr tap_sum(const real *z, const real *w, real bias, int64_t left, int64_t taps) {
  vr p = v_splat(bias);
  for (int64_t k = 0; k < taps; k++) p += v_get(z + k, left) * w[k];
  return p;
}

INLINE void tap_line(real *y, const real *z, const real *w, real bias, bool act, int64_t n, int64_t taps) {
  for (int64_t i = 0; i < n; i += VL) {
    vr p = tap_sum(z + i, w, bias, n - i, taps);
    v_put(y + i, act ? silu(p) : p, n - i);
  }
}

/* The usual number of taps as a constant: the loop over them disappears. */
static void filter(real *y, const real *z, const real *w, real bias, bool act, int64_t n, int64_t taps) {
  if (taps == 4)
    tap_line(y, z, w, bias, act, n, 4);
  else
    tap_line(y, z, w, bias, act, n, taps);
}

/* Positions in the tile at `at`: the first ones, which reach back before x, by themselves, so that the others find z in
 * x itself. */
static int64_t tile_at(int64_t at, int64_t end, int64_t reach) {
  return min64(at < reach ? min64(reach - at, TILE) : TILE, end - at);
}

static void forward_line(const job *j, const block *k, int64_t d) {
  int64_t taps = conv1d(j->c->p)->taps;
  TILE_OF_REALS tile[TILE];
  strip y = line_of(j->c, Y, TIME, k->b, d, 0);
  real bias = bias_of(j, d);
  load_weights(j, d);
  for (int64_t t = k->from, n; t < k->to; t += n) {
    n = tile_at(t, k->to, taps - 1);
    real *out = strip_out(&y, t, tile);
    filter(out, z_window(j, k, d, t, n + taps - 1), j->w, bias, j->c->p->op.u.conv1d.silu, n, taps);
    strip_put(&y, t, n, out);
  }
}

static void time_forward(job *j, const block *k) {
  for (int64_t d = k->d; d < k->d + k->n; d++) forward_line(j, k, d);
}

/* ---- backward ---- */
/* dp = dy silu'(p) of n positions */
INLINE void dp_line(real *dp, const real *dy, const real *z, const real *w, real bias, int64_t n, int64_t taps) {
  for (int64_t i = 0; i < n; i += VL)
    v_put(dp + i, silu_grad(v_get(dy + i, n - i), tap_sum(z + i, w, bias, n - i, taps)), n - i);
}

static void find_dp(real *dp, const real *dy, const real *z, const real *w, real bias, int64_t n, int64_t taps) {
  if (taps == 4)
    dp_line(dp, dy, z, w, bias, n, 4);
  else
    dp_line(dp, dy, z, w, bias, n, taps);
}

/* dp[from .. from + n), zero outside of time: `count` of them from `low` on are inside, and z starts at low. */
static const real *dp_window(const job *j, const block *k, int64_t d, int64_t from, int64_t n, int64_t low,
                             int64_t count, const real *z) {
  int64_t taps = conv1d(j->c->p)->taps;
  bool act = j->c->p->op.u.conv1d.silu;
  strip dy = line_of(j->c, DY, TIME, k->b, d, 0);
  if (!act && count == n && is_direct(&dy)) return strip_in(&dy, from, n, NULL);
  if (count < n) memset(j->dp, 0, (size_t)n * sizeof(real));
  if (count == 0) return j->dp;
  real *dp = j->dp + (low - from);
  const real *dy_line = strip_in(&dy, low, count, dp);
  if (act)
    find_dp(dp, dy_line, z, j->w, bias_of(j, d), count, taps);
  else if (dy_line != dp)
    memcpy(dp, dy_line, (size_t)count * sizeof(real));
  return j->dp;
}

/* dz[at .. at + n) to dx0 and dx */
static void put_dz(const job *j, const block *k, int64_t d, int64_t at, int64_t n, real *dz) {
  const conv1d_recipe *r = conv1d(j->c->p);
  strip dx = line_of(j->c, DX, TIME, k->b, d, 0), dx0 = line_of(j->c, DX0, TIME, k->b, d, 0);
  strip dx_last = line_of(j->c, DX_LAST, TIME, k->b, d, 0);
  int64_t first = min64(max64(r->taps - 1 - at, 0), n); /* this many are dx0's */
  for (int64_t i = max64(r->length - at, 0); dx_last.at && i < n; i++) dz[i] += strip_get(&dx_last, at + i - r->length);
  if (dx0.at && first > 0) strip_put(&dx0, at, first, dz);
  if (dx.at && first < n) strip_put(&dx, at + first - (r->taps - 1), n - first, dz + first);
}

/* Four taps of dw in one pass: sum of dp[t] z[t + k], k = 0 .. 3 */
static void dot_taps(const real *dp, const real *z, int64_t n, real out[4]) {
  vr sum[4] = {{0}, {0}, {0}, {0}};
  for (int64_t i = 0; i < n; i += VL) {
    vr d = v_get(dp + i, n - i);
    for (int k = 0; k < 4; k++) sum[k] += d * v_get(z + i + k, n - i);
  }
  for (int k = 0; k < 4; k++) out[k] = v_sum(sum[k]);
}

/* Adds n positions to dw and db: dp[t] with z[t + k] */
static void add_sums(job *j, int64_t channel, const real *dp, const real *z, int64_t n) {
  int64_t taps = conv1d(j->c->p)->taps, width = j->u.width, k = 0;
  real *dw = j->sums.block + channel;
  for (; writes_slot(j->c->p, DW) && k + 4 <= taps; k += 4) {
    real four[4];
    dot_taps(dp, z + k, n, four);
    for (int i = 0; i < 4; i++) dw[(k + i) * width] += four[i];
  }
  for (; writes_slot(j->c->p, DW) && k < taps; k++) dw[k * width] += dot_tile(dp, z + k, n);
  if (writes_slot(j->c->p, DB)) dw[taps * width] += sum_tile(dp, n);
}

static void backward_tile(job *j, const block *k, int64_t d, int64_t at, int64_t n) {
  const conv1d_recipe *r = conv1d(j->c->p);
  TILE_OF_REALS dz[TILE];
  int64_t before = r->taps - 1, low = max64(at - before, 0), count = max64(min64(at + n, r->length) - low, 0);
  int64_t fresh = min64(at + n, r->length) - at; /* the other dp belong to the tile before, too */
  const real *z = count && reads_slot(j->c->p, X) ? z_window(j, k, d, low, count + before) : NULL;
  const real *dp = dp_window(j, k, d, at - before, n + before, low, count, z);
  if (j->u.sums && fresh > 0) add_sums(j, d - k->d, dp + before, z ? z + (at - low) : NULL, fresh);
  if (!wants_dz(j->c->p)) return;
  filter(dz, dp, j->w + r->taps, 0, false, n, r->taps); /* dz is dp through the weights backwards */
  put_dz(j, k, d, at, n, dz);
}

static void backward_line(job *j, const block *k, int64_t d) {
  load_weights(j, d);
  for (int64_t at = k->from, n; at < k->to; at += n) {
    n = tile_at(at, k->to, 2 * (conv1d(j->c->p)->taps - 1));
    backward_tile(j, k, d, at, n);
  }
}

static void time_backward(job *j, const block *k) {
  for (int64_t d = k->d; d < k->d + k->n; d++) backward_line(j, k, d);
  if (j->u.sums) column_sums_rows_done(&j->sums, BLOCK_ROWS);
}
