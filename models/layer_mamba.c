/* layer_mamba.c -- Mamba-1:
 *   x, z = W_in norm(h);   x = silu(conv(x));   d, B, C = W_x x;   delta = W_dt d
 *   y = scan(x, delta, A, B, C, D) silu(z);     h += W_out y
 * Between the projections a channel is a row of (batch length) numbers, time side by side, as the convolution and the
 * scan want it. A product gives that without a transpose when the weight is its first factor: (C, K) (BL, K)^T. */
#include "layers.h"

static value convolve(model_call *c, int64_t layer, value x) {
  const model_config *m = &c->m->config;
  ambi_op op = {.kind = AMBI_CONV1D, .u.conv1d.silu = 1};
  value io[AMBI_MAX_PRIMALS] = {[AMBI_CONV1D_X] = x};
  io[AMBI_CONV1D_W] = layer_weight(c, layer, "mixer.conv1d.weight", 2, 0);
  io[AMBI_CONV1D_B] = layer_weight(c, layer, "mixer.conv1d.bias", 1, 0);
  io[AMBI_CONV1D_Y] = layer_new_rows(c, m->mamba.inner);
  if (c->state) {
    const ambi_tensor before = ambi_dense(c->m->dtype, 3, (int64_t[]){c->batch, m->mamba.inner, m->mamba.conv - 1});
    io[AMBI_CONV1D_X0] = io[AMBI_CONV1D_X_LAST] = layer_state(c, layer, 0, &before);
  }
  return tape_op(c->t, &op, io, AMBI_CONV1D_Y);
}

static value scan(model_call *c, int64_t layer, value x, value delta, value bc, value z) {
  const model_config *m = &c->m->config;
  const int64_t inner = m->mamba.inner, state = m->mamba.state, rank = m->mamba.rank;
  ambi_op op = {.kind = AMBI_SELECTIVE_SCAN, .u.selective_scan = {.softplus = 1, .a_log = 1}};
  if (c->m->grads.data) op.want = AMBI_BIT(AMBI_SCAN_CHUNK_STATE); /* or backward would run all steps ahead once more */
  value io[AMBI_MAX_PRIMALS] = {[AMBI_SCAN_U] = x, [AMBI_SCAN_Z] = z};
  io[AMBI_SCAN_DELTA] = layer_rows(c, delta, 0, inner);
  io[AMBI_SCAN_A] = layer_weight(c, layer, "mixer.A_log", 2, 0);
  io[AMBI_SCAN_B] = layer_rows(c, bc, rank, state);
  io[AMBI_SCAN_C] = layer_rows(c, bc, rank + state, state);
  io[AMBI_SCAN_D] = layer_weight(c, layer, "mixer.D", 1, 0);
  io[AMBI_SCAN_DELTA_BIAS] = layer_weight(c, layer, "mixer.dt_proj.bias", 1, 0);
  io[AMBI_SCAN_Y] = layer_new_rows(c, inner);
  if (c->state) {
    const ambi_tensor h = ambi_dense(c->m->master, 3, (int64_t[]){c->batch, inner, state});
    io[AMBI_SCAN_H0] = io[AMBI_SCAN_H_LAST] = layer_state(c, layer, 1, &h);
  }
  return tape_op(c->t, &op, io, AMBI_SCAN_Y);
}

void layer_mamba(model_call *c, int64_t layer) {
  const int64_t inner = c->m->config.mamba.inner, rank = c->m->config.mamba.rank;
  value y = layer_norm(c, layer, "norm.weight");
  value xz = layer_linear(c, layer_weight(c, layer, "mixer.in_proj.weight", 2, 0), y);
  value x = convolve(c, layer, layer_rows(c, xz, 0, inner));
  value dbc = layer_linear(c, layer_weight(c, layer, "mixer.x_proj.weight", 2, 0), layer_columns(c, x, 0, inner));
  value delta = layer_linear(c, layer_weight(c, layer, "mixer.dt_proj.weight", 2, 0), layer_columns(c, dbc, 0, rank));
  value s = scan(c, layer, x, delta, dbc, layer_rows(c, xz, inner, inner));
  c->branch = layer_linear(c, layer_columns(c, s, 0, inner), layer_weight(c, layer, "mixer.out_proj.weight", 2, 0));
}
