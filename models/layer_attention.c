/* layer_attention.c -- a LLaMA layer:
 *   q, k, v = W_qkv norm(h);   h += W_o attention(rope(q), rope(k), v)
 *   g, u = W_gu norm(h);       h += W_down (silu(g) u)
 * Everything is a row for each token. q, k and v lie side by side in it; the rotation happens in place. */
#include "layers.h"

/* `heads` heads of a row from that head on, as (batch, heads, length, head size). */
static value take_heads(model_call *c, value qkv, int64_t first, int64_t heads) {
  const model_config *m = &c->m->config;
  const int64_t size = m->attention.head_dim, row = (m->attention.heads + 2 * m->attention.kv_heads) * size;
  ambi_tensor s = ambi_dense(c->m->dtype, 4, (int64_t[]){c->batch, heads, c->length, size});
  s.stride[0] = c->length * row;
  s.stride[1] = size;
  s.stride[2] = row;
  return tape_view(c->t, qkv, &s, first * size);
}

static void rotate(model_call *c, value from, value to) {
  ambi_op op = {.kind = AMBI_ROPE, .u.rope.theta = c->m->config.attention.theta};
  value io[AMBI_MAX_PRIMALS] = {[AMBI_ROPE_X] = from, [AMBI_ROPE_Y] = to};
  if (c->state) {
    const ambi_tensor positions = ambi_dense(AMBI_I32, 1, &c->length);
    io[AMBI_ROPE_POSITIONS] = tape_fixed(c->t, &positions, c->state->positions);
  }
  tape_op(c->t, &op, io, AMBI_ROPE_Y);
}

/* ---- with a cache: this call's keys and values go where the cache has room for them ---- */

static ambi_tensor cache_shape(const model_call *c, int64_t tokens) {
  const model_config *m = &c->m->config;
  ambi_tensor s =
      ambi_dense(c->m->dtype, 4, (int64_t[]){c->batch, m->attention.kv_heads, c->state->room, m->attention.head_dim});
  s.shape[2] = tokens;
  return s;
}

static void store_keys(model_call *c, int64_t layer, value k, value v) {
  const ambi_tensor now = cache_shape(c, c->length);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_COPY_X] = v};
  c->keys[layer] = layer_state(c, layer, 0, &now);
  c->values[layer] = io[AMBI_COPY_Y] = layer_state(c, layer, 1, &now);
  rotate(c, k, c->keys[layer]);
  tape_op(c->t, &(ambi_op){.kind = AMBI_COPY}, io, AMBI_COPY_Y);
}

static value attend(model_call *c, int64_t layer, value q, value k, value v) {
  const model_config *m = &c->m->config;
  const int64_t size = m->attention.head_dim, heads = m->attention.heads;
  ambi_op op = {.kind = AMBI_ATTENTION, .u.attention.causal = 1, .want = AMBI_BIT(AMBI_ATTENTION_LSE)};
  ambi_tensor o = ambi_dense(c->m->dtype, 4, (int64_t[]){c->batch, c->length, heads, size});
  o = (ambi_tensor){o.dtype, 4, {c->batch, heads, c->length, size}, {o.stride[0], size, o.stride[1], 1}};
  value io[AMBI_MAX_PRIMALS] = {[AMBI_ATTENTION_Q] = q, [AMBI_ATTENTION_K] = k, [AMBI_ATTENTION_V] = v};
  if (c->state) {
    const ambi_tensor all = cache_shape(c, c->state->room), lengths = ambi_dense(AMBI_I32, 1, &c->batch);
    io[AMBI_ATTENTION_K] = layer_state(c, layer, 0, &all);
    io[AMBI_ATTENTION_V] = layer_state(c, layer, 1, &all);
    io[AMBI_ATTENTION_LENGTHS] = tape_fixed(c->t, &lengths, c->state->lengths);
  }
  io[AMBI_ATTENTION_O] = tape_new(c->t, &o);
  value out = tape_op(c->t, &op, io, AMBI_ATTENTION_O);
  const ambi_tensor rows = ambi_dense(c->m->dtype, 2, (int64_t[]){c->batch * c->length, heads * size});
  return tape_view(c->t, out, &rows, 0);
}

/* ---- the two halves ---- */

static value mix_tokens(model_call *c, int64_t layer) {
  const model_config *m = &c->m->config;
  const int64_t heads = m->attention.heads, kv = m->attention.kv_heads;
  value y = layer_norm(c, layer, "input_layernorm.weight");
  value w = layer_weight(c, layer, "self_attn.q_proj.weight", 2, 2 * kv * m->attention.head_dim);
  value qkv = layer_linear(c, y, w);
  value v = take_heads(c, qkv, heads + kv, kv);
  if (c->state) {
    value q = take_heads(c, qkv, 0, heads);
    rotate(c, q, q);
    store_keys(c, layer, take_heads(c, qkv, heads, kv), v);
    return attend(c, layer, q, 0, 0);
  }
  value qk = take_heads(c, qkv, 0, heads + kv);
  rotate(c, qk, qk);
  return attend(c, layer, take_heads(c, qkv, 0, heads), take_heads(c, qkv, heads, kv), v);
}

static value mix_channels(model_call *c, int64_t layer) {
  const int64_t mlp = c->m->config.attention.mlp;
  value y = layer_norm(c, layer, "post_attention_layernorm.weight");
  value gu = layer_linear(c, y, layer_weight(c, layer, "mlp.gate_proj.weight", 2, mlp));
  ambi_tensor half = ambi_dense(c->m->dtype, 2, (int64_t[]){c->batch * c->length, mlp});
  half.stride[0] = 2 * mlp;
  value io[AMBI_MAX_PRIMALS] = {
      [AMBI_GATED_G] = tape_view(c->t, gu, &half, 0), [AMBI_GATED_V] = tape_view(c->t, gu, &half, mlp)};
  return tape_op(c->t, &(ambi_op){.kind = AMBI_GATED, .u.gated.gate = AMBI_SWIGLU}, io, AMBI_GATED_Y);
}

void layer_attention(model_call *c, int64_t layer) {
  c->branch = layer_linear(c, mix_tokens(c, layer), layer_weight(c, layer, "self_attn.o_proj.weight", 2, 0));
  c->branch = layer_linear(c, mix_channels(c, layer), layer_weight(c, layer, "mlp.down_proj.weight", 2, 0));
}
