/* config.c -- dimensions: the usual ones, and what may not be. config.json is read and written in config_json.c. */
#include "config.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[LAYER_KINDS] = {"mamba", "mamba2", "attention"};

const char *layer_kind_name(layer_kind k) { return kinds[k]; }

int layer_kind_find(const char *name) {
  for (int i = 0; i < LAYER_KINDS; i++) {
    if (strcmp(kinds[i], name) == 0) return i;
  }
  return strcmp(name, "llama") == 0 ? LAYER_ATTENTION : -1;
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

model_config config_usual(layer_kind kind, int64_t width, int64_t layers, int64_t vocab) {
  model_config c = {.vocab = vocab, .width = width, .layers = layers, .eps = 1e-5, .init = 0.02, .tied = 1};
  c.bos = c.eos = -1;
  c.residual_f32 = kind != LAYER_ATTENTION;
  memset(c.layer, (int)kind, sizeof c.layer);
  c.mamba.inner = 2 * width;
  c.mamba.state = 16;
  c.mamba.conv = 4;
  c.mamba.rank = (width + 15) / 16;
  c.mamba.conv_bias = 1;
  c.mamba2.head_dim = width % 32 == 0 ? 64 : 16;
  c.mamba2.heads = 2 * width / c.mamba2.head_dim;
  c.mamba2.groups = 1;
  c.mamba2.state = 64;
  c.mamba2.conv = 4;
  c.mamba2.chunk = 256;
  c.mamba2.conv_bias = 1;
  c.attention.head_dim = width % 64 == 0 ? 64 : 32;
  c.attention.heads = c.attention.kv_heads = width / c.attention.head_dim;
  c.attention.mlp = round_up(8 * width / 3, 64);
  c.attention.positions = 2048;
  c.attention.theta = 10000;
  return c;
}

int config_is_plain(const model_config *c) {
  for (int64_t i = 1; i < c->layers; i++) {
    if (c->layer[i] != c->layer[0]) return 0;
  }
  return 1;
}

const char *config_model_name(const model_config *c) {
  if (!config_is_plain(c)) return "hybrid";
  return c->layer[0] == LAYER_ATTENTION ? "llama" : kinds[c->layer[0]];
}

/* ---- what may be ---- */

enum { MOST = 1 << 24 }; /* of any dimension: products of three stay far below 2^63 */

typedef struct {
  const char *name;
  int64_t value, least, most;
} range;

static int in_range(const range *r, size_t count, char *err, size_t n) {
  for (size_t i = 0; i < count; i++) {
    if (r[i].value >= r[i].least && r[i].value <= r[i].most) continue;
    snprintf(err, n, "%s is %lld; it must be %lld to %lld", r[i].name, (long long)r[i].value, (long long)r[i].least,
             (long long)r[i].most);
    return 0;
  }
  return 1;
}

static int check_mamba(const model_config *c, char *err, size_t n) {
  const range r[] = {{"mamba inner width", c->mamba.inner, 1, MOST},
                     {"mamba state size", c->mamba.state, 1, 4096},
                     {"mamba convolution width", c->mamba.conv, 2, 64},
                     {"mamba time-step rank", c->mamba.rank, 1, MOST}};
  return in_range(r, sizeof r / sizeof *r, err, n);
}

static int check_mamba2(const model_config *c, char *err, size_t n) {
  const range r[] = {{"mamba2 heads", c->mamba2.heads, 1, MOST},
                     {"mamba2 head size", c->mamba2.head_dim, 1, 4096},
                     {"mamba2 groups", c->mamba2.groups, 1, MOST},
                     {"mamba2 state size", c->mamba2.state, 1, 4096},
                     {"mamba2 convolution width", c->mamba2.conv, 2, 64}};
  if (!in_range(r, sizeof r / sizeof *r, err, n)) return 0;
  if (c->mamba2.heads % c->mamba2.groups == 0) return 1;
  snprintf(err, n, "mamba2 heads, %lld, are no multiple of its groups, %lld", (long long)c->mamba2.heads,
           (long long)c->mamba2.groups);
  return 0;
}

static int check_attention(const model_config *c, char *err, size_t n) {
  const range r[] = {{"attention heads", c->attention.heads, 1, MOST},
                     {"attention key heads", c->attention.kv_heads, 1, MOST},
                     {"attention head size", c->attention.head_dim, 2, 4096},
                     {"attention mlp width", c->attention.mlp, 1, MOST}};
  if (!in_range(r, sizeof r / sizeof *r, err, n)) return 0;
  if (c->attention.heads % c->attention.kv_heads == 0 && c->attention.head_dim % 2 == 0 && c->attention.theta > 0)
    return 1;
  snprintf(err, n,
           "attention needs heads (%lld) that are a multiple of key heads (%lld), an even head size (%lld) and a theta "
           "above 0 (%g)",
           (long long)c->attention.heads, (long long)c->attention.kv_heads, (long long)c->attention.head_dim,
           c->attention.theta);
  return 0;
}

int config_check(const model_config *c, char *err, size_t n) {
  static int (*const check[LAYER_KINDS])(const model_config *, char *, size_t) = {check_mamba, check_mamba2,
                                                                                  check_attention};
  const range r[] = {{"vocabulary", c->vocab, 2, MOST},
                     {"width", c->width, 1, CONFIG_MAX_WIDTH},
                     {"number of layers", c->layers, 1, CONFIG_MAX_LAYERS}};
  if (!in_range(r, sizeof r / sizeof *r, err, n)) return 0;
  if (!(c->eps > 0 && c->eps < 1)) {
    snprintf(err, n, "the norms' epsilon is %g; it must be above 0 and below 1", c->eps);
    return 0;
  }
  if (c->mamba.bias || c->mamba2.bias || c->attention.bias || c->attention.mlp_bias) {
    snprintf(err, n, "its projections have biases (use_bias, attention_bias, mlp_bias), which is not supported");
    return 0;
  }
  for (int64_t i = 0; i < c->layers; i++) {
    if (c->layer[i] >= LAYER_KINDS || !check[c->layer[i]](c, err, n)) return 0;
  }
  return 1;
}
