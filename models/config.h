/* config.h -- the dimensions of a language model, and its config.json.
 *
 * A model is an embedding, layers, a norm and a projection onto the vocabulary. Each layer is one of
 *   mamba       x + out(scan(conv(in(norm x))))                                     Mamba-1
 *   mamba2      x + out(norm(ssd(conv(in(norm x))) silu(z)))                        Mamba-2
 *   attention   x + out(attention(rope(qkv(norm x)))), then x + down(swiglu(up(norm x)))    LLaMA
 * Models of one kind have the config.json and the parameter names of transformers' MambaForCausalLM, Mamba2ForCausalLM
 * and LlamaForCausalLM; a mixture is written as model_type "ambi" with "layer_types". */
#ifndef MODELS_CONFIG_H
#define MODELS_CONFIG_H
#include <stddef.h>
#include <stdint.h>

enum { CONFIG_MAX_LAYERS = 512, CONFIG_MAX_WIDTH = 1 << 20 };
typedef enum { LAYER_MAMBA = 0, LAYER_MAMBA2, LAYER_ATTENTION, LAYER_KINDS } layer_kind;

typedef struct {
  int64_t vocab, width, layers;
  unsigned char layer[CONFIG_MAX_LAYERS]; /* a layer_kind each */
  double eps;                             /* of the norms */
  double init;                            /* deviation of fresh weights */
  int32_t tied;                           /* the embedding is the projection too */
  int32_t residual_f32;                   /* the sum of the layers is kept in f32 whatever the rest is */
  int64_t bos, eos;                       /* tokens; -1: none */
  struct {
    int64_t inner, state, conv, rank;
    int32_t conv_bias, bias; /* bias: of the projections */
  } mamba;
  struct {
    int64_t heads, head_dim, groups, state, conv, chunk;
    int32_t conv_bias, bias;
  } mamba2;
  struct {
    int64_t heads, kv_heads, head_dim, mlp, positions;
    double theta; /* of the rotary embedding */
    int32_t bias, mlp_bias;
  } attention;
} model_config;

const char *layer_kind_name(layer_kind k);
/* Of a name; -1: there is none. */
int layer_kind_find(const char *name);

/* The usual proportions for a width and a number of layers of one kind; change what you like afterwards. */
model_config config_usual(layer_kind kind, int64_t width, int64_t layers, int64_t vocab);

/* Whether every dimension makes sense together; otherwise 0, and err names the first that does not. */
int config_check(const model_config *c, char *err, size_t n);
/* 1: all layers are of one kind, and transformers knows the model. */
int config_is_plain(const model_config *c);
/* "mamba", "mamba2", "llama", or "hybrid" when layers differ. */
const char *config_model_name(const model_config *c);

/* From the text of a config.json: ambi's, or what transformers wrote (which may hold Infinity, as JSON may not). */
int config_parse(const char *text, size_t bytes, model_config *c, char *err, size_t n);
int config_read(const char *path, model_config *c, char *err, size_t n);
int config_write(const char *path, const model_config *c, const char *dtype, char *err, size_t n);

#endif
