/* layers.c -- the model around its layers, and what the layers share. */
#include "layers.h"

#include <stdio.h>

/* ---- parameters ---- */

value layer_weight(model_call *c, int64_t layer, const char *name, int ndim, int64_t joined) {
  const model *m = c->m;
  const param *p = params_of(&m->params, layer, name);
  if (!p) return 0;
  const int64_t rows = p->shape[0] + joined, rest = p->count / p->shape[0];
  const ambi_dtype dtype = p->matrix ? m->dtype : m->master;
  const ambi_tensor shape = ambi_dense(dtype, ndim, (int64_t[]){rows, rest});
  const ambi_tensor grad = ambi_dense(m->master, ndim, (int64_t[]){rows, rest});
  ambi_buf at = dtype == m->master ? m->weights : m->shorts, grad_at = m->grads;
  at.offset += (uint64_t)p->offset * ambi_dtype_size(dtype);
  grad_at.offset += (uint64_t)p->offset * ambi_dtype_size(m->master);
  return m->grads.data ? tape_weight(c->t, &shape, at, &grad, grad_at) : tape_fixed(c->t, &shape, at);
}

/* ---- small ops ---- */

value layer_norm(model_call *c, int64_t layer, const char *name) {
  const int64_t rows = c->batch * c->length, width = c->m->config.width;
  const ambi_tensor y = ambi_dense(c->m->dtype, 2, (int64_t[]){rows, width});
  ambi_op op = {.kind = AMBI_RMSNORM, .u.rmsnorm.eps = c->m->config.eps};
  value io[AMBI_MAX_PRIMALS] = {0};
  io[AMBI_RMSNORM_W] = layer_weight(c, layer, name, 1, 0);
  io[AMBI_RMSNORM_Y] = tape_new(c->t, &y);
  io[AMBI_RMSNORM_X] = c->branch ? c->branch : c->residual;
  op.want = AMBI_BIT(AMBI_RMSNORM_RSTD);
  if (c->branch) {
    const ambi_tensor sum = tape_tensor(c->t, c->residual);
    io[AMBI_RMSNORM_RESIDUAL] = c->residual;
    io[AMBI_RMSNORM_SUM] = tape_new(c->t, &sum);
  }
  value out = tape_op(c->t, &op, io, AMBI_RMSNORM_Y);
  if (c->branch) c->residual = io[AMBI_RMSNORM_SUM];
  c->branch = 0;
  return out;
}

value layer_linear(model_call *c, value x, value w) {
  value io[AMBI_MAX_PRIMALS] = {[AMBI_LINEAR_X] = x, [AMBI_LINEAR_W] = w};
  return tape_op(c->t, &(ambi_op){.kind = AMBI_LINEAR}, io, AMBI_LINEAR_Y);
}

/* ---- (channels, batch length) ---- */

static ambi_tensor as_rows(const model_call *c, int64_t channels) {
  ambi_tensor s = ambi_dense(c->m->dtype, 3, (int64_t[]){c->batch, channels, c->length});
  s.stride[0] = c->length;
  s.stride[1] = c->batch * c->length;
  s.stride[2] = 1;
  return s;
}

value layer_new_rows(model_call *c, int64_t channels) {
  const ambi_tensor s = as_rows(c, channels);
  return tape_new(c->t, &s);
}

value layer_rows(model_call *c, value v, int64_t first, int64_t channels) {
  const ambi_tensor s = as_rows(c, channels);
  return tape_view(c->t, v, &s, first * c->batch * c->length);
}

value layer_columns(model_call *c, value v, int64_t first, int64_t channels) {
  const int64_t rows = c->batch * c->length;
  ambi_tensor s = ambi_dense(c->m->dtype, 2, (int64_t[]){rows, channels});
  s.stride[0] = 1;
  s.stride[1] = rows;
  return tape_view(c->t, v, &s, first * rows);
}

/* ---- the model ---- */

static value embed(model_call *c, value tokens, value table) {
  const model *m = c->m;
  const int64_t rows = c->batch * c->length;
  const ambi_dtype dtype = m->config.residual_f32 ? m->master : m->dtype;
  const ambi_tensor y = ambi_dense(dtype, 2, (int64_t[]){rows, m->config.width});
  value io[AMBI_MAX_PRIMALS] = {[AMBI_EMBEDDING_TOKENS] = tokens, [AMBI_EMBEDDING_W] = table};
  io[AMBI_EMBEDDING_Y] = tape_new(c->t, &y);
  return tape_op(c->t, &(ambi_op){.kind = AMBI_EMBEDDING}, io, AMBI_EMBEDDING_Y);
}

value model_forward(model_call *c, value tokens) {
  static void (*const layers[LAYER_KINDS])(model_call *, int64_t) = {layer_mamba, layer_mamba2, layer_attention};
  static const char *const around[2][2] = {{"backbone.embeddings.weight", "backbone.norm_f.weight"},
                                           {"model.embed_tokens.weight", "model.norm.weight"}};
  const model_config *config = &c->m->config;
  const char *const *names = around[params_of(&c->m->params, -1, "model.embed_tokens.weight") != NULL];
  value table = layer_weight(c, -1, names[0], 2, 0);
  c->residual = embed(c, tokens, table);
  c->branch = 0;
  for (int64_t i = 0; i < config->layers; i++) {
    if (c->flags & MODEL_RECOMPUTES) tape_segment_begin(c->t);
    layers[config->layer[i]](c, i);
    tape_segment_end(c->t);
  }
  value last = layer_norm(c, -1, names[1]);
  return layer_linear(c, last, config->tied ? table : layer_weight(c, -1, "lm_head.weight", 2, 0));
}
