/* layer_mamba2.c -- Mamba-2:
 *   z, x B C, delta = W_in norm(h);   x B C = silu(conv(x B C));   y = ssd(x, delta, A, B, C, D)
 *   h += W_out norm(y silu(z))
 * Everything is a row for each token. */
#include "layers.h"

typedef struct {
  int64_t inner, channels, row; /* of x; of x, B and C; of all that W_in gives */
} sizes;

static sizes sizes_of(const model_config *m) {
  const int64_t inner = m->mamba2.heads * m->mamba2.head_dim;
  const int64_t channels = inner + 2 * m->mamba2.groups * m->mamba2.state;
  return (sizes){inner, channels, inner + channels + m->mamba2.heads};
}

/* (batch, length, n0, n1) of rows of `row` numbers, from number `first` on; n1 0: (batch, length, n0). */
static value take(model_call *c, value v, int64_t row, int64_t first, int64_t n0, int64_t n1) {
  const int64_t shape[] = {c->batch, c->length, n0, n1};
  ambi_tensor s = ambi_dense(c->m->dtype, n1 ? 4 : 3, shape);
  s.stride[0] = c->length * row;
  s.stride[1] = row;
  return tape_view(c->t, v, &s, first);
}

/* (batch, channels, length) of the same. */
static ambi_tensor by_channel(const model_call *c, int64_t row, int64_t channels) {
  return (ambi_tensor){c->m->dtype, 3, {c->batch, channels, c->length}, {c->length * row, 1, row}};
}

static value convolve(model_call *c, int64_t layer, value in, sizes s) {
  const ambi_tensor from = by_channel(c, s.row, s.channels), to = by_channel(c, s.channels, s.channels);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_CONV1D_X] = tape_view(c->t, in, &from, s.inner)};
  io[AMBI_CONV1D_W] = layer_weight(c, layer, "mixer.conv1d.weight", 2, 0);
  io[AMBI_CONV1D_B] = layer_weight(c, layer, "mixer.conv1d.bias", 1, 0);
  io[AMBI_CONV1D_Y] = tape_new(c->t, &to);
  if (c->state) {
    const ambi_tensor before =
        ambi_dense(c->m->dtype, 3, (int64_t[]){c->batch, s.channels, c->m->config.mamba2.conv - 1});
    io[AMBI_CONV1D_X0] = io[AMBI_CONV1D_X_LAST] = layer_state(c, layer, 0, &before);
  }
  return tape_op(c->t, &(ambi_op){.kind = AMBI_CONV1D, .u.conv1d.silu = 1}, io, AMBI_CONV1D_Y);
}

static value mix(model_call *c, int64_t layer, value in, value xbc, sizes s) {
  const model_config *m = &c->m->config;
  const int64_t heads = m->mamba2.heads, size = m->mamba2.head_dim, groups = m->mamba2.groups, n = m->mamba2.state;
  ambi_op op = {.kind = AMBI_SSD, .u.ssd = {.softplus = 1, .a_log = 1}};
  value io[AMBI_MAX_PRIMALS] = {[AMBI_SSD_X] = take(c, xbc, s.channels, 0, heads, size)};
  io[AMBI_SSD_DELTA] = take(c, in, s.row, s.inner + s.channels, heads, 0);
  io[AMBI_SSD_A] = layer_weight(c, layer, "mixer.A_log", 1, 0);
  io[AMBI_SSD_B] = take(c, xbc, s.channels, s.inner, groups, n);
  io[AMBI_SSD_C] = take(c, xbc, s.channels, s.inner + groups * n, groups, n);
  io[AMBI_SSD_D] = layer_weight(c, layer, "mixer.D", 1, 0);
  io[AMBI_SSD_DELTA_BIAS] = layer_weight(c, layer, "mixer.dt_bias", 1, 0);
  const ambi_tensor y = ambi_dense(c->m->dtype, 4, (int64_t[]){c->batch, c->length, heads, size});
  io[AMBI_SSD_Y] = tape_new(c->t, &y);
  if (c->state) {
    const ambi_tensor h = ambi_dense(c->m->master, 4, (int64_t[]){c->batch, heads, size, n});
    io[AMBI_SSD_H0] = io[AMBI_SSD_H_LAST] = layer_state(c, layer, 1, &h);
  }
  return tape_op(c->t, &op, io, AMBI_SSD_Y);
}

/* norm(y silu(z)) */
static value gate(model_call *c, int64_t layer, value in, value y, sizes s) {
  const ambi_tensor rows = ambi_dense(c->m->dtype, 2, (int64_t[]){c->batch * c->length, s.inner});
  ambi_tensor z = rows;
  z.stride[0] = s.row;
  value io[AMBI_MAX_PRIMALS] = {
      [AMBI_GATED_V] = tape_view(c->t, y, &rows, 0), [AMBI_GATED_G] = tape_view(c->t, in, &z, 0)};
  value gated = tape_op(c->t, &(ambi_op){.kind = AMBI_GATED, .u.gated.gate = AMBI_SWIGLU}, io, AMBI_GATED_Y);
  value norm[AMBI_MAX_PRIMALS] = {[AMBI_RMSNORM_X] = gated};
  norm[AMBI_RMSNORM_W] = layer_weight(c, layer, "mixer.norm.weight", 1, 0);
  ambi_op op = {.kind = AMBI_RMSNORM, .want = AMBI_BIT(AMBI_RMSNORM_RSTD), .u.rmsnorm.eps = c->m->config.eps};
  return tape_op(c->t, &op, norm, AMBI_RMSNORM_Y);
}

void layer_mamba2(model_call *c, int64_t layer) {
  const sizes s = sizes_of(&c->m->config);
  value y = layer_norm(c, layer, "norm.weight");
  value in = layer_linear(c, y, layer_weight(c, layer, "mixer.in_proj.weight", 2, 0));
  value xbc = convolve(c, layer, in, s);
  value out = gate(c, layer, in, mix(c, layer, in, xbc, s), s);
  c->branch = layer_linear(c, out, layer_weight(c, layer, "mixer.out_proj.weight", 2, 0));
}
