/* layers.h -- the layers of a model, each a function that writes its ops onto the call's tape. */
#ifndef MODELS_LAYERS_H
#define MODELS_LAYERS_H
#include "model.h"

/* c->branch, c->residual -> the same after the layer. */
void layer_mamba(model_call *c, int64_t layer);
void layer_mamba2(model_call *c, int64_t layer);
void layer_attention(model_call *c, int64_t layer);

/* ---- what they share ---- */
/* The parameter as a tensor of that many axes; `joined`: rows of its neighbours that come with it. 0: absent. */
value layer_weight(model_call *c, int64_t layer, const char *name, int ndim, int64_t joined);
/* norm(residual + branch), and the sum becomes the residual. */
value layer_norm(model_call *c, int64_t layer, const char *name);
/* y = x w^T with the other factor first: see layer_mamba. */
value layer_linear(model_call *c, value x, value w);
/* A new tensor of (batch, channels, length) whose rows are channels: strides (length, batch length, 1). */
value layer_new_rows(model_call *c, int64_t channels);
/* Channels first .. first + channels of such a tensor, as (batch, channels, length) or as (batch length, channels). */
value layer_rows(model_call *c, value v, int64_t first, int64_t channels);
value layer_columns(model_call *c, value v, int64_t first, int64_t channels);
/* A part of the state of a layer. */
value layer_state(model_call *c, int64_t layer, int part, const ambi_tensor *shape);

#endif
