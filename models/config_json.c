/* config_json.c -- config.json: a table of members for each kind of model, read and written by the same rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"
#include "../util/json.h"
#include "config.h"

typedef enum { INTEGER, REAL, BOOLEAN } member_type;
enum { OPTIONAL = 1, LIST = 2 }; /* list: or several, of which the first counts */

/* A member of config.json and where it lies in model_config. */
typedef struct {
  const char *name;
  member_type type;
  size_t offset;
  int flags;
} member;

#define AT(field) offsetof(model_config, field)

static const member common[] = {{"vocab_size", INTEGER, AT(vocab), 0},
                                {"hidden_size", INTEGER, AT(width), 0},
                                {"num_hidden_layers", INTEGER, AT(layers), 0},
                                {"tie_word_embeddings", BOOLEAN, AT(tied), OPTIONAL},
                                {"bos_token_id", INTEGER, AT(bos), OPTIONAL | LIST},
                                {"eos_token_id", INTEGER, AT(eos), OPTIONAL | LIST},
                                {"initializer_range", REAL, AT(init), OPTIONAL},
                                {0}};

static const member mamba[] = {{"layer_norm_epsilon", REAL, AT(eps), OPTIONAL},
                               {"residual_in_fp32", BOOLEAN, AT(residual_f32), OPTIONAL},
                               {"intermediate_size", INTEGER, AT(mamba.inner), OPTIONAL},
                               {"state_size", INTEGER, AT(mamba.state), 0},
                               {"conv_kernel", INTEGER, AT(mamba.conv), 0},
                               {"time_step_rank", INTEGER, AT(mamba.rank), OPTIONAL},
                               {"use_conv_bias", BOOLEAN, AT(mamba.conv_bias), OPTIONAL},
                               {"use_bias", BOOLEAN, AT(mamba.bias), OPTIONAL},
                               {0}};

static const member mamba2[] = {{"layer_norm_epsilon", REAL, AT(eps), OPTIONAL},
                                {"residual_in_fp32", BOOLEAN, AT(residual_f32), OPTIONAL},
                                {"num_heads", INTEGER, AT(mamba2.heads), 0},
                                {"head_dim", INTEGER, AT(mamba2.head_dim), 0},
                                {"n_groups", INTEGER, AT(mamba2.groups), 0},
                                {"state_size", INTEGER, AT(mamba2.state), 0},
                                {"conv_kernel", INTEGER, AT(mamba2.conv), 0},
                                {"chunk_size", INTEGER, AT(mamba2.chunk), OPTIONAL},
                                {"use_conv_bias", BOOLEAN, AT(mamba2.conv_bias), OPTIONAL},
                                {"use_bias", BOOLEAN, AT(mamba2.bias), OPTIONAL},
                                {0}};

static const member attention[] = {{"rms_norm_eps", REAL, AT(eps), 0},
                                   {"num_attention_heads", INTEGER, AT(attention.heads), 0},
                                   {"num_key_value_heads", INTEGER, AT(attention.kv_heads), OPTIONAL},
                                   {"head_dim", INTEGER, AT(attention.head_dim), OPTIONAL},
                                   {"intermediate_size", INTEGER, AT(attention.mlp), 0},
                                   {"max_position_embeddings", INTEGER, AT(attention.positions), OPTIONAL},
                                   {"attention_bias", BOOLEAN, AT(attention.bias), OPTIONAL},
                                   {"mlp_bias", BOOLEAN, AT(attention.mlp_bias), OPTIONAL},
                                   {0}};

/* A mixture: the same members under names that do not meet. */
static const member mixture[] = {{"norm_epsilon", REAL, AT(eps), 0},
                                 {"residual_in_fp32", BOOLEAN, AT(residual_f32), 0},
                                 {"mamba_inner", INTEGER, AT(mamba.inner), 0},
                                 {"mamba_state", INTEGER, AT(mamba.state), 0},
                                 {"mamba_conv", INTEGER, AT(mamba.conv), 0},
                                 {"mamba_rank", INTEGER, AT(mamba.rank), 0},
                                 {"mamba_conv_bias", BOOLEAN, AT(mamba.conv_bias), 0},
                                 {"mamba2_heads", INTEGER, AT(mamba2.heads), 0},
                                 {"mamba2_head_dim", INTEGER, AT(mamba2.head_dim), 0},
                                 {"mamba2_groups", INTEGER, AT(mamba2.groups), 0},
                                 {"mamba2_state", INTEGER, AT(mamba2.state), 0},
                                 {"mamba2_conv", INTEGER, AT(mamba2.conv), 0},
                                 {"mamba2_conv_bias", BOOLEAN, AT(mamba2.conv_bias), 0},
                                 {"attention_heads", INTEGER, AT(attention.heads), 0},
                                 {"attention_kv_heads", INTEGER, AT(attention.kv_heads), 0},
                                 {"attention_head_dim", INTEGER, AT(attention.head_dim), 0},
                                 {"attention_mlp", INTEGER, AT(attention.mlp), 0},
                                 {"attention_positions", INTEGER, AT(attention.positions), 0},
                                 {"attention_theta", REAL, AT(attention.theta), 0},
                                 {0}};

/* Members that would change what the model computes: they must have this value. */
typedef struct {
  const char *name, *value; /* as JSON text */
} demand;

static const demand mamba_demands[] = {{"hidden_act", "silu"}, {0}};
static const demand attention_demands[] = {{"hidden_act", "silu"}, {0}};

static const struct {
  const char *type, *architecture;
  int kind; /* -1: a mixture */
  const member *members;
  const demand *demands;
} families[] = {{"mamba", "MambaForCausalLM", LAYER_MAMBA, mamba, mamba_demands},
                {"mamba2", "Mamba2ForCausalLM", LAYER_MAMBA2, mamba2, mamba_demands},
                {"llama", "LlamaForCausalLM", LAYER_ATTENTION, attention, attention_demands},
                {"ambi", "AmbiForCausalLM", -1, mixture, NULL}};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- reading ---- */

static int read_member(const json_value *root, const member *m, model_config *c, char *err, size_t n) {
  const json_value *v = json_get(root, m->name);
  void *at = (char *)c + m->offset;
  if (v && v->type == JSON_ARRAY && (m->flags & LIST)) v = v->child;
  if (!v || v->type == JSON_NULL) {
    if (m->flags & OPTIONAL) return 1;
    return snprintf(err, n, "\"%s\" is missing", m->name), 0;
  }
  int fits = m->type == BOOLEAN ? v->type == JSON_BOOL : v->type == JSON_NUMBER && (m->type == REAL || v->is_int);
  if (!fits) {
    static const char *const wanted[] = {"a whole number", "a number", "true or false"};
    return snprintf(err, n, "\"%s\" is %s; it must be %s", m->name, json_type_name(v->type), wanted[m->type]), 0;
  }
  if (m->type == INTEGER) *(int64_t *)at = v->integer;
  if (m->type == REAL) *(double *)at = v->number;
  if (m->type == BOOLEAN) *(int32_t *)at = (int32_t)v->integer;
  return 1;
}

static int read_members(const json_value *root, const member *m, model_config *c, char *err, size_t n) {
  for (; m->name; m++) {
    if (!read_member(root, m, c, err, n)) return 0;
  }
  return 1;
}

static int meets(const json_value *root, const demand *d, char *err, size_t n) {
  for (; d && d->name; d++) {
    const json_value *v = json_get(root, d->name);
    const char *text = json_text(v);
    if (v && (!text || strcmp(text, d->value) != 0))
      return snprintf(err, n, "\"%s\" is not \"%s\", the only one that is known here", d->name, d->value), 0;
  }
  return 1;
}

/* The time step of Mamba-2 is not clamped here: 0 to infinity, which transformers has spelt in two ways. */
static int read_limits(const json_value *root, char *err, size_t n) {
  const json_value *list = json_get(root, "time_step_limit");
  const json_value *low = list && list->type == JSON_ARRAY ? list->child : NULL, *high = low ? low->next : NULL;
  if (!list || list->type == JSON_NULL) return 1;
  const char *text = json_text(json_get(high, "__float__"));
  const int open =
      high && ((high->type == JSON_NUMBER && high->number >= 1e300) || (text && strcmp(text, "Infinity") == 0));
  if (low && low->type == JSON_NUMBER && low->number == 0 && open) return 1;
  return snprintf(err, n, "\"time_step_limit\" is not 0 to infinity, which is not supported"), 0;
}

/* theta, from either of the places where transformers has kept it. */
static int read_rope(const json_value *root, model_config *c, char *err, size_t n) {
  const json_value *group = json_get(root, "rope_parameters"), *old = json_get(root, "rope_scaling");
  const char *type = json_text(json_get(group, "rope_type"));
  if ((type && strcmp(type, "default") != 0) || (old && old->type != JSON_NULL))
    return snprintf(err, n, "its rotary embedding is scaled (\"%.40s\"), which is not supported", type ? type : ""), 0;
  const json_value *theta = json_get(group, "rope_theta");
  if (!theta) theta = json_get(root, "rope_theta");
  if (theta && theta->type == JSON_NUMBER) c->attention.theta = theta->number;
  return 1;
}

static int read_layers(const json_value *root, model_config *c, char *err, size_t n) {
  const json_value *list = json_get(root, "layer_types");
  if (!list || list->type != JSON_ARRAY || (int64_t)list->length != c->layers || c->layers > CONFIG_MAX_LAYERS)
    return snprintf(err, n, "\"layer_types\" must name one kind for each of \"num_hidden_layers\" layers"), 0;
  int64_t i = 0;
  for (const json_value *v = list->child; v; v = v->next) {
    const char *name = json_text(v);
    int kind = name ? layer_kind_find(name) : -1;
    if (kind < 0) return snprintf(err, n, "\"layer_types\" names '%.40s'", name ? name : ""), 0;
    c->layer[i++] = (unsigned char)kind;
  }
  return 1;
}

static int read_root(const json_value *root, model_config *c, char *err, size_t n) {
  const char *type = json_text(json_get(root, "model_type"));
  int f = 0;
  while (f < FAMILIES && (!type || strcmp(families[f].type, type) != 0)) f++;
  if (f == FAMILIES)
    return snprintf(err, n, "model_type '%.40s' is not one of mamba, mamba2, llama, ambi", type ? type : ""), 0;
  int kind = families[f].kind < 0 ? LAYER_MAMBA : families[f].kind;
  *c = config_usual((layer_kind)kind, 64, 1, 2);
  c->tied = kind != LAYER_ATTENTION;
  c->mamba.inner = c->mamba.rank = c->attention.head_dim = c->attention.kv_heads = 0; /* follow from others */
  if (!read_members(root, common, c, err, n) || !read_members(root, families[f].members, c, err, n) ||
      !meets(root, families[f].demands, err, n) || !read_rope(root, c, err, n) || !read_limits(root, err, n))
    return 0;
  if (families[f].kind < 0 && !read_layers(root, c, err, n)) return 0;
  if (c->width < 1 || c->width > CONFIG_MAX_WIDTH) return config_check(c, err, n); /* says so */
  if (!c->mamba.inner) c->mamba.inner = 2 * c->width;
  if (!c->mamba.rank) c->mamba.rank = (c->width + 15) / 16;
  if (!c->attention.kv_heads) c->attention.kv_heads = c->attention.heads;
  if (!c->attention.head_dim && c->attention.heads > 0) c->attention.head_dim = c->width / c->attention.heads;
  return config_check(c, err, n);
}

/* Infinity, outside of strings, becomes a number of as many bytes. */
static char *without_infinity(const char *text, size_t bytes) {
  static const char infinity[] = "Infinity", large[] = "1.0e+308";
  char *copy = malloc(bytes + 1);
  int quoted = 0;
  if (!copy) return NULL;
  memcpy(copy, text, bytes);
  copy[bytes] = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (quoted && copy[i] == '\\')
      i++;
    else if (copy[i] == '"')
      quoted = !quoted;
    else if (!quoted && bytes - i >= sizeof large - 1 && memcmp(copy + i, infinity, sizeof large - 1) == 0)
      memcpy(copy + i, large, sizeof large - 1);
  }
  return copy;
}

int config_parse(const char *text, size_t bytes, model_config *c, char *err, size_t n) {
  char *copy = without_infinity(text, bytes);
  if (!copy) return snprintf(err, n, "out of memory"), 0;
  json_doc *doc = json_parse(copy, bytes, err, n);
  int ok = doc && (json_root(doc)->type == JSON_OBJECT ? read_root(json_root(doc), c, err, n)
                                                       : (snprintf(err, n, "no JSON object"), 0));
  json_free(doc);
  free(copy);
  return ok;
}

int config_read(const char *path, model_config *c, char *err, size_t n) {
  char why[240] = "";
  size_t bytes;
  char *text = file_read(path, 1 << 24, &bytes, err, n);
  if (!text) return 0;
  int ok = config_parse(text, bytes, c, why, sizeof why);
  if (!ok) snprintf(err, n, "%s: %s", path, why);
  free(text);
  return ok;
}

/* ---- writing ---- */

static void write_members(FILE *out, const member *m, const model_config *c) {
  for (; m->name; m++) {
    const void *at = (const char *)c + m->offset;
    fprintf(out, "  \"%s\": ", m->name);
    if (m->type == REAL) fprintf(out, "%.17g", *(const double *)at);
    if (m->type == BOOLEAN) fprintf(out, "%s", *(const int32_t *)at ? "true" : "false");
    if (m->type == INTEGER) {
      int64_t v = *(const int64_t *)at;
      if (v < 0)
        fprintf(out, "null");
      else
        fprintf(out, "%lld", (long long)v);
    }
    fprintf(out, ",\n");
  }
}

static void write_layers(FILE *out, const model_config *c) {
  fprintf(out, "  \"layer_types\": [");
  for (int64_t i = 0; i < c->layers; i++)
    fprintf(out, "%s\"%s\"", i ? ", " : "", layer_kind_name((layer_kind)c->layer[i]));
  fprintf(out, "],\n");
}

/* Of the width into the channels of a mixer; transformers wants it beside them. */
static double expansion(const model_config *c) {
  int64_t inner = c->layer[0] == LAYER_MAMBA ? c->mamba.inner : c->mamba2.heads * c->mamba2.head_dim;
  return (double)inner / (double)c->width;
}

int config_write(const char *path, const model_config *c, const char *dtype, char *err, size_t n) {
  int f = 0;
  while (f < FAMILIES && families[f].kind != (config_is_plain(c) ? c->layer[0] : -1)) f++;
  file_draft draft;
  if (!file_begin(&draft, path, err, n)) return 0;
  FILE *out = draft.to;
  fprintf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", families[f].architecture,
          families[f].type);
  write_members(out, common, c);
  write_members(out, families[f].members, c);
  if (families[f].kind < 0) write_layers(out, c);
  if (families[f].kind == LAYER_ATTENTION)
    fprintf(out, "  \"rope_parameters\": {\"rope_theta\": %.17g, \"rope_type\": \"default\"},\n", c->attention.theta);
  if (families[f].kind == LAYER_MAMBA || families[f].kind == LAYER_MAMBA2)
    fprintf(out, "  \"expand\": %.17g,\n", expansion(c));
  if (families[f].kind >= 0) fprintf(out, "  \"hidden_act\": \"silu\",\n");
  fprintf(out, "  \"dtype\": \"%s\"\n}\n", dtype);
  return file_commit(&draft, err, n);
}
