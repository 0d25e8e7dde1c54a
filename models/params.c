/* params.c -- a table of parameters for each kind of layer; dimensions are named, and looked up in the config. */
#include "params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
  NONE,
  ONE,
  VOCAB,
  WIDTH,
  M_INNER,
  M_INNER2,
  M_STATE,
  M_CONV,
  M_RANK,
  M_X,
  S_INNER,
  S_CHANNELS,
  S_IN,
  S_HEADS,
  S_CONV,
  A_QUERY,
  A_KEY,
  A_MLP
} dimension;

static int64_t size_of(const model_config *c, dimension d) {
  const int64_t inner2 = c->mamba2.heads * c->mamba2.head_dim, bc = 2 * c->mamba2.groups * c->mamba2.state;
  const int64_t sizes[] = {[ONE] = 1,
                           [VOCAB] = c->vocab,
                           [WIDTH] = c->width,
                           [M_INNER] = c->mamba.inner,
                           [M_INNER2] = 2 * c->mamba.inner,
                           [M_STATE] = c->mamba.state,
                           [M_CONV] = c->mamba.conv,
                           [M_RANK] = c->mamba.rank,
                           [M_X] = c->mamba.rank + 2 * c->mamba.state,
                           [S_INNER] = inner2,
                           [S_CHANNELS] = inner2 + bc,
                           [S_IN] = 2 * inner2 + bc + c->mamba2.heads,
                           [S_HEADS] = c->mamba2.heads,
                           [S_CONV] = c->mamba2.conv,
                           [A_QUERY] = c->attention.heads * c->attention.head_dim,
                           [A_KEY] = c->attention.kv_heads * c->attention.head_dim,
                           [A_MLP] = c->attention.mlp};
  return sizes[d];
}

/* ---- the tables ---- */

enum { DECAYS = 1, MATRIX = 2, JOINS = 4, UNLESS_TIED = 8, CONV_BIAS = 16 };
enum { PRODUCT = DECAYS | MATRIX };

typedef struct {
  const char *name;
  dimension dim[3];
  param_init init;
  int flags; /* JOINS: right behind the one before; UNLESS_TIED, CONV_BIAS: only where the config says so */
} spec;

static const spec mamba_layer[] = {{"norm.weight", {WIDTH}, INIT_ONE, 0},
                                   {"mixer.A_log", {M_INNER, M_STATE}, INIT_A_LOG, 0},
                                   {"mixer.D", {M_INNER}, INIT_ONE, 0},
                                   {"mixer.conv1d.weight", {M_INNER, ONE, M_CONV}, INIT_CONV, DECAYS},
                                   {"mixer.conv1d.bias", {M_INNER}, INIT_ZERO, CONV_BIAS},
                                   {"mixer.in_proj.weight", {M_INNER2, WIDTH}, INIT_NORMAL, PRODUCT},
                                   {"mixer.x_proj.weight", {M_X, M_INNER}, INIT_NORMAL, PRODUCT},
                                   {"mixer.dt_proj.weight", {M_INNER, M_RANK}, INIT_RANK, PRODUCT},
                                   {"mixer.dt_proj.bias", {M_INNER}, INIT_DT_BIAS, 0},
                                   {"mixer.out_proj.weight", {WIDTH, M_INNER}, INIT_OUT, PRODUCT},
                                   {0}};

static const spec mamba2_layer[] = {{"norm.weight", {WIDTH}, INIT_ONE, 0},
                                    {"mixer.dt_bias", {S_HEADS}, INIT_DT_BIAS, 0},
                                    {"mixer.A_log", {S_HEADS}, INIT_A_LOG, 0},
                                    {"mixer.D", {S_HEADS}, INIT_ONE, 0},
                                    {"mixer.conv1d.weight", {S_CHANNELS, ONE, S_CONV}, INIT_CONV, DECAYS},
                                    {"mixer.conv1d.bias", {S_CHANNELS}, INIT_ZERO, CONV_BIAS},
                                    {"mixer.in_proj.weight", {S_IN, WIDTH}, INIT_NORMAL, PRODUCT},
                                    {"mixer.norm.weight", {S_INNER}, INIT_ONE, 0},
                                    {"mixer.out_proj.weight", {WIDTH, S_INNER}, INIT_OUT, PRODUCT},
                                    {0}};

static const spec attention_layer[] = {{"input_layernorm.weight", {WIDTH}, INIT_ONE, 0},
                                       {"self_attn.q_proj.weight", {A_QUERY, WIDTH}, INIT_NORMAL, PRODUCT},
                                       {"self_attn.k_proj.weight", {A_KEY, WIDTH}, INIT_NORMAL, PRODUCT | JOINS},
                                       {"self_attn.v_proj.weight", {A_KEY, WIDTH}, INIT_NORMAL, PRODUCT | JOINS},
                                       {"self_attn.o_proj.weight", {WIDTH, A_QUERY}, INIT_OUT, PRODUCT},
                                       {"post_attention_layernorm.weight", {WIDTH}, INIT_ONE, 0},
                                       {"mlp.gate_proj.weight", {A_MLP, WIDTH}, INIT_NORMAL, PRODUCT},
                                       {"mlp.up_proj.weight", {A_MLP, WIDTH}, INIT_NORMAL, PRODUCT | JOINS},
                                       {"mlp.down_proj.weight", {WIDTH, A_MLP}, INIT_OUT, PRODUCT},
                                       {0}};

static const spec *const layer_specs[LAYER_KINDS] = {mamba_layer, mamba2_layer, attention_layer};

/* The model around the layers, in the words of either family. */
static const spec state_space_model[] = {{"backbone.embeddings.weight", {VOCAB, WIDTH}, INIT_NORMAL, PRODUCT},
                                         {"backbone.norm_f.weight", {WIDTH}, INIT_ONE, 0},
                                         {"lm_head.weight", {VOCAB, WIDTH}, INIT_NORMAL, PRODUCT | UNLESS_TIED},
                                         {0}};
static const spec attention_model[] = {{"model.embed_tokens.weight", {VOCAB, WIDTH}, INIT_NORMAL, PRODUCT},
                                       {"model.norm.weight", {WIDTH}, INIT_ONE, 0},
                                       {"lm_head.weight", {VOCAB, WIDTH}, INIT_NORMAL, PRODUCT | UNLESS_TIED},
                                       {0}};

static int speaks_llama(const model_config *c) { return config_is_plain(c) && c->layer[0] == LAYER_ATTENTION; }

/* ---- the list ---- */

static int is_there(const model_config *c, int64_t layer, const spec *s) {
  if ((s->flags & UNLESS_TIED) && c->tied) return 0;
  if (!(s->flags & CONV_BIAS) || layer < 0) return 1;
  return c->layer[layer] == LAYER_MAMBA ? c->mamba.conv_bias : c->mamba2.conv_bias;
}

static param make(const model_config *c, int64_t layer, const spec *s) {
  param p = {.layer = (int32_t)layer, .init = s->init, .count = 1};
  p.decays = (s->flags & DECAYS) != 0;
  p.matrix = (s->flags & MATRIX) != 0;
  for (; p.ndim < 3 && s->dim[p.ndim]; p.ndim++) p.count *= p.shape[p.ndim] = size_of(c, s->dim[p.ndim]);
  if (layer >= 0)
    p.prefix =
        snprintf(p.name, sizeof p.name, "%s.layers.%lld.", speaks_llama(c) ? "model" : "backbone", (long long)layer);
  snprintf(p.name + p.prefix, sizeof p.name - (size_t)p.prefix, "%s", s->name);
  return p;
}

/* Appends those of a table that are there; the offset of one that joins its neighbour is marked -1. */
static void append(const model_config *c, int64_t layer, const spec *s, param_list *list) {
  for (; s->name; s++) {
    if (!is_there(c, layer, s)) continue;
    param p = make(c, layer, s);
    p.offset = s->flags & JOINS ? -1 : 0;
    list->param[list->count++] = p;
  }
}

static void place(param_list *list, int decays) {
  enum { ALIGN = 64 }; /* elements: 128 bytes at least */
  for (int64_t i = 0; i < list->count; i++) {
    param *p = &list->param[i];
    if (p->decays != decays) continue;
    if (p->offset == 0) list->size = (list->size + ALIGN - 1) / ALIGN * ALIGN;
    p->offset = list->size;
    if (list->size <= PARAMS_MOST) list->size += p->count; /* so the sum cannot overflow */
  }
  list->size = (list->size + ALIGN - 1) / ALIGN * ALIGN;
}

int params_list(const model_config *c, param_list *list) {
  const spec *around = speaks_llama(c) ? attention_model : state_space_model;
  *list = (param_list){.param = calloc((size_t)c->layers * 12 + 3, sizeof *list->param)};
  if (!list->param) return 0;
  append(c, -1, around, list);
  for (int64_t i = 0; i < c->layers; i++) append(c, i, layer_specs[c->layer[i]], list);
  place(list, 1);
  list->decayed = list->size;
  place(list, 0);
  return 1;
}

void params_free(param_list *list) {
  free(list->param);
  *list = (param_list){0};
}

const param *params_find(const param_list *list, const char *name) {
  for (int64_t i = 0; i < list->count; i++) {
    if (strcmp(list->param[i].name, name) == 0) return &list->param[i];
  }
  return NULL;
}

const param *params_of(const param_list *list, int64_t layer, const char *name) {
  for (int64_t i = 0; i < list->count; i++) {
    const param *p = &list->param[i];
    if (p->layer == layer && strcmp(p->name + p->prefix, name) == 0) return p;
  }
  return NULL;
}

/* ---- fresh values ---- */

/* A seed of its own for each name, so that adding a parameter changes no other. */
static dice seed_of(const param *p, uint64_t seed) {
  uint64_t h = UINT64_C(14695981039346656037) ^ seed;
  for (const char *s = p->name; *s; s++) h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
  return (dice){h, 0};
}

/* The bias whose softplus is a time step spread evenly, on a logarithmic scale, over 0.001 .. 0.1. */
static double dt_bias(dice *r) {
  double dt = exp(dice_uniform(r) * (log(0.1) - log(0.001)) + log(0.001));
  if (dt < 1e-4) dt = 1e-4;
  return dt + log(-expm1(-dt));
}

void params_fill(const model_config *c, const param *p, uint64_t seed, double *out) {
  dice r = seed_of(p, seed);
  const int64_t inner = p->shape[p->ndim - 1];
  const double residuals = sqrt((double)c->layers); /* so that the sum of all layers keeps its size */
  const double bound = 1 / sqrt((double)inner);
  for (int64_t i = 0; i < p->count; i++) {
    switch (p->init) {
      case INIT_ZERO:
        out[i] = 0;
        break;
      case INIT_ONE:
        out[i] = 1;
        break;
      case INIT_NORMAL:
        out[i] = c->init * dice_normal(&r);
        break;
      case INIT_OUT:
        out[i] = c->init / residuals * dice_normal(&r);
        break;
      case INIT_A_LOG:
        out[i] = log((double)(p->ndim == 2 ? i % inner + 1 : 1 + i % 16));
        break;
      case INIT_DT_BIAS:
        out[i] = dt_bias(&r);
        break;
      case INIT_RANK:
      case INIT_CONV:
        out[i] = bound * (2 * dice_uniform(&r) - 1);
        break;
    }
  }
}
