/* test_config.c -- config.json: what transformers writes is read, what would compute something else is refused, what
 * ambi writes it reads again. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "../models/params.h"
#include "test.h"

#define MAMBA "{\"model_type\":\"mamba\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":2,"
#define MAMBA2                                                                                               \
  "{\"model_type\":\"mamba2\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_heads\":4," \
  "\"head_dim\":16,\"n_groups\":1,\"state_size\":8,\"conv_kernel\":4,"
#define LLAMA                                                                                                     \
  "{\"model_type\":\"llama\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":2,\"rms_norm_eps\":1e-6," \
  "\"num_attention_heads\":4,\"intermediate_size\":48,"
#define MIXED                                                                                                    \
  "{\"model_type\":\"ambi\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":2,\"norm_epsilon\":1e-5," \
  "\"residual_in_fp32\":true,\"mamba_inner\":64,\"mamba_state\":8,\"mamba_conv\":4,\"mamba_rank\":2,"            \
  "\"mamba_conv_bias\":true,\"mamba2_heads\":4,\"mamba2_head_dim\":16,\"mamba2_groups\":1,\"mamba2_state\":8,"   \
  "\"mamba2_conv\":4,\"mamba2_conv_bias\":true,\"attention_heads\":4,\"attention_kv_heads\":2,"                  \
  "\"attention_head_dim\":8,\"attention_mlp\":48,\"attention_positions\":99,\"attention_theta\":10000,"          \
  "\"layer_types\":[\"mamba\",\"attention\"]}"
#define OPEN "\"state_size\":8,\"conv_kernel\":4"

/* words NULL: it is read. */
static const struct {
  const char *text, *words;
} cases[] = {
    {MAMBA OPEN "}", NULL},
    {MAMBA2 "\"time_step_limit\":[0.0,Infinity]}", NULL},
    {MAMBA2 "\"time_step_limit\":[0.0,{\"__float__\":\"Infinity\"}]}", NULL},
    {MAMBA2 "\"note\":\"a \\\"Infinity\\\" in a text\"}", NULL},
    {MAMBA2 "\"time_step_limit\":[0.001,0.1]}", "time_step_limit"},
    {MAMBA2 "\"time_step_limit\":[0.0]}", "time_step_limit"},
    {MAMBA2 "\"time_step_limit\":-Infinity}", "time_step_limit"},
    {MAMBA2 "\"n_groups\":3}", "n_groups"}, /* twice */
    {LLAMA "\"eos_token_id\":[3,4]}", NULL},
    {LLAMA "\"eos_token_id\":\"x\"}", "eos_token_id"},
    {LLAMA "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}}", NULL},
    {LLAMA "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"llama3\"}}", "rotary"},
    {LLAMA "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "rotary"},
    {LLAMA "\"rope_theta\":-1}", "theta"},
    {LLAMA "\"hidden_act\":\"gelu\"}", "hidden_act"},
    {LLAMA "\"hidden_act\":7}", "hidden_act"},
    {LLAMA "\"attention_bias\":true}", "biases"},
    {LLAMA "\"num_key_value_heads\":3}", "multiple"},
    {LLAMA "\"head_dim\":7}", "head size"},
    {LLAMA "\"num_key_value_heads\":-4}", "key heads"},
    {MIXED, NULL},
    {"", "byte 0"},
    {"{", "byte"},
    {"[]", "no JSON object"},
    {"{}", "model_type"},
    {"{\"model_type\":\"gpt2\"}", "gpt2"},
    {"{\"model_type\":3}", "model_type"},
    {"{\"model_type\":\"mamba\",\"hidden_size\":32}", "vocab_size"},
    {MAMBA "\"state_size\":8}", "conv_kernel"},
    {MAMBA "\"state_size\":1.5,\"conv_kernel\":4}", "state_size"},
    {MAMBA "\"state_size\":true,\"conv_kernel\":4}", "state_size"},
    {MAMBA "\"state_size\":0,\"conv_kernel\":4}", "state size"},
    {MAMBA "\"state_size\":8,\"conv_kernel\":1}", "convolution"},
    {MAMBA OPEN ",\"use_conv_bias\":1}", "use_conv_bias"},
    {MAMBA OPEN ",\"layer_norm_epsilon\":0}", "epsilon"},
    {MAMBA OPEN ",\"intermediate_size\":9223372036854775807}", "inner width"},
    {MAMBA OPEN ",\"time_step_rank\":\"auto\"}", "time_step_rank"},
    {"{\"model_type\":\"mamba\",\"vocab_size\":50,\"hidden_size\":9223372036854775807,\"num_hidden_layers\":2," OPEN
     "}",
     "width"},
    {"{\"model_type\":\"mamba\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":513," OPEN "}", "layers"},
    {"{\"model_type\":\"mamba\",\"vocab_size\":-1,\"hidden_size\":32,\"num_hidden_layers\":2," OPEN "}", "vocabulary"}};

static void test_cases(void) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char err[300] = "";
    model_config c;
    const int ok = config_parse(cases[i].text, strlen(cases[i].text), &c, err, sizeof err);
    CHECK(ok == !cases[i].words && (ok || strstr(err, cases[i].words)), "%.200s: '%s'", cases[i].text, err);
  }
}

/* Written, read, and the same parameters. */
static void test_round_trip(void) {
  char path[] = "/tmp/ambi-test-config-XXXXXX", err[300] = "";
  int fd = mkstemp(path);
  if (!CHECK(fd >= 0, "no file")) return;
  close(fd);
  for (int k = 0; k <= LAYER_KINDS; k++) {
    model_config c = config_usual(k < LAYER_KINDS ? (layer_kind)k : LAYER_MAMBA2, 96, 4, 333), back = c;
    c.tied = k % 2;
    c.init = 0.1;
    c.eps = 3e-6;
    c.attention.theta = 123456.789;
    c.attention.kv_heads = 1;
    if (k == LAYER_KINDS) c.layer[1] = LAYER_ATTENTION, c.layer[3] = LAYER_MAMBA;
    const int ok = config_write(path, &c, "float32", err, sizeof err) && config_read(path, &back, err, sizeof err);
    if (!CHECK(ok, "%s", err)) break;
    param_list a = {0}, b = {0};
    params_list(&c, &a);
    params_list(&back, &b);
    CHECK(a.param && b.param, "no memory");
    if (!a.param || !b.param) break;
    CHECK(a.count == b.count && a.size == b.size && memcmp(a.param, b.param, (size_t)a.count * sizeof *a.param) == 0,
          "kind %d: other parameters", k);
    CHECK(back.eps == c.eps && back.tied == c.tied && back.init == c.init && back.vocab == 333, "kind %d", k);
    if (k == LAYER_ATTENTION || k == LAYER_KINDS)
      CHECK(back.attention.theta == c.attention.theta, "theta is %.17g", back.attention.theta);
    params_free(&a);
    params_free(&b);
  }
  unlink(path);
}

int main(void) {
  test_cases();
  test_round_trip();
  return test_done();
}
