/* state.c -- what a model remembers between calls: for Mamba the last inputs of the convolution and the state of the
 * scan, the same few numbers however long the text; for attention the keys and values of every token so far. */
#include <stdio.h>
#include <stdlib.h>

#include "layers.h"

/* Bytes of part 0 and 1 of a layer. */
static void sizes(const model_state *s, int64_t layer, uint64_t bytes[2]) {
  const model_config *c = &s->m->config;
  const uint64_t element = ambi_dtype_size(s->m->dtype), wide = ambi_dtype_size(s->m->master);
  const int64_t inner2 = c->mamba2.heads * c->mamba2.head_dim;
  const int64_t channels2 = inner2 + 2 * c->mamba2.groups * c->mamba2.state;
  const int64_t cache = c->attention.kv_heads * c->attention.head_dim * s->room;
  const struct {
    int64_t first, second;
    uint64_t element;
  } rows[LAYER_KINDS] = {{c->mamba.inner * (c->mamba.conv - 1), c->mamba.inner * c->mamba.state, wide},
                         {channels2 * (c->mamba2.conv - 1), inner2 * c->mamba2.state, wide},
                         {cache, cache, element}};
  const int kind = c->layer[layer];
  bytes[0] = (uint64_t)(s->batch * rows[kind].first) * element;
  bytes[1] = (uint64_t)(s->batch * rows[kind].second) * rows[kind].element;
}

int state_create(model_state *s, const model *m, int64_t batch, int64_t room, char *err, size_t n) {
  *s = (model_state){.m = m, .batch = batch, .room = room};
  for (int64_t i = 0; i < m->config.layers; i++) {
    uint64_t bytes[2];
    sizes(s, i, bytes);
    for (int k = 0; k < 2; k++) {
      s->offset[i][k] = s->bytes;
      s->bytes += (bytes[k] + 255) / 256 * 256;
    }
  }
  if (ambi_alloc(m->dev, s->bytes, &s->memory) != AMBI_OK ||
      ambi_alloc(m->dev, (size_t)room * sizeof(int32_t), &s->positions) != AMBI_OK ||
      ambi_alloc(m->dev, (size_t)batch * sizeof(int32_t), &s->lengths) != AMBI_OK) {
    snprintf(err, n, "%s", ambi_error());
    state_destroy(s);
    return 0;
  }
  return state_reset(s, err, n);
}

int state_reset(model_state *s, char *err, size_t n) {
  void *zeros = calloc(s->bytes ? s->bytes : 1, 1);
  s->at = 0;
  int ok = zeros && ambi_upload(s->m->stream, s->memory, zeros, s->bytes) == AMBI_OK &&
           ambi_stream_wait(s->m->stream) == AMBI_OK;
  if (!ok) snprintf(err, n, "%s", zeros ? ambi_error() : "out of memory");
  free(zeros);
  return ok;
}

void state_destroy(model_state *s) {
  if (!s->m) return;
  ambi_free(s->m->dev, s->memory);
  ambi_free(s->m->dev, s->positions);
  ambi_free(s->m->dev, s->lengths);
  *s = (model_state){0};
}

static ambi_buf part_of(const model_state *s, int64_t layer, int part) {
  ambi_buf at = s->memory;
  at.offset += s->offset[layer][part];
  return at;
}

value layer_state(model_call *c, int64_t layer, int part, const ambi_tensor *shape) {
  return tape_fixed(c->t, shape, part_of(c->state, layer, part));
}

/* ---- a call ---- */

static int upload(const model_state *s, ambi_buf to, const int32_t *from, int64_t count) {
  return ambi_upload(s->m->stream, to, from, (size_t)count * sizeof *from) == AMBI_OK &&
         ambi_stream_wait(s->m->stream) == AMBI_OK;
}

/* The keys and values of this call begin `at` tokens into the caches. */
static void move_keys(model_call *c) {
  const model_config *m = &c->m->config;
  const uint64_t skip = (uint64_t)(c->state->at * m->attention.head_dim) * ambi_dtype_size(c->m->dtype);
  for (int64_t i = 0; i < m->layers; i++) {
    if (!c->keys[i]) continue;
    ambi_buf k = part_of(c->state, i, 0), v = part_of(c->state, i, 1);
    k.offset += skip;
    v.offset += skip;
    tape_move(c->t, c->keys[i], k);
    tape_move(c->t, c->values[i], v);
  }
}

int model_advance(model_call *c, char *err, size_t n) {
  model_state *s = c->state;
  const int64_t count = c->length > s->batch ? c->length : s->batch;
  if (s->at + c->length > s->room)
    return snprintf(err, n, "the text is longer than the %lld tokens there is room for", (long long)s->room), 0;
  int32_t *list = malloc((size_t)count * sizeof *list);
  if (!list) return snprintf(err, n, "out of memory"), 0;
  for (int64_t i = 0; i < c->length; i++) list[i] = (int32_t)(s->at + i);
  int ok = upload(s, s->positions, list, c->length);
  for (int64_t i = 0; i < s->batch; i++) list[i] = (int32_t)(s->at + c->length);
  ok = ok && upload(s, s->lengths, list, s->batch);
  free(list);
  if (!ok) return snprintf(err, n, "%s", ambi_error()), 0;
  move_keys(c);
  s->at += c->length;
  return 1;
}
