/* fuzz_readers.c -- no bytes may crash, hang or leak the readers of JSON, of safetensors and of tokenizers.
 *
 *   with libFuzzer:  fuzz_readers_libfuzzer, of a build with AMBI_SANITIZE=address,undefined,fuzzer-no-link
 *   standalone:      fuzz_readers [SEED [COUNT]]     mutates a few seed files, the same ones for the same SEED */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../models/params.h"
#include "../models/tokenizer.h"
#include "../util/files.h"
#include "../util/json.h"
#include "../util/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;
static uint64_t
    accepted[4]; /* as JSON, as safetensors, as a tokenizer, as a config: a loop that never gets in tests little */

/* Every value must be reachable and every string readable to its end. */
static size_t walk(const json_value *v) {
  size_t n = 1;
  if (v->type == JSON_STRING && v->text[v->length] != 0) abort();
  if (v->key && v->key[v->key_length] != 0) abort();
  for (const json_value *c = v->child; c; c = c->next) n += walk(c);
  return n;
}

static void try_json(const uint8_t *data, size_t size) {
  char err[64];
  json_doc *d = json_parse((const char *)data, size, err, sizeof err);
  if (d ? walk(json_root(d)) > size : *err == 0) abort();
  accepted[0] += d != NULL;
  json_free(d);
}

/* What was accepted must be readable: the first and the last byte of every tensor. */
static void try_safetensors(const uint8_t *data, size_t size) {
  char err[64];
  safetensors *f = safetensors_from_memory(data, size, err, sizeof err);
  if (!f && *err == 0) abort();
  for (size_t i = 0; f && i < safetensors_count(f); i++) {
    const safetensors_tensor *t = safetensors_at(f, i);
    const uint8_t *p = t->data;
    if (p < data || t->bytes > size || p + t->bytes > data + size) abort();
    if (t->bytes) sink += (unsigned)p[0] + p[t->bytes - 1];
    if (safetensors_find(f, t->name) == NULL) abort();
  }
  accepted[1] += f != NULL;
  safetensors_close(f);
}

/* What was accepted must take any text, and name all the ids it gives. */
static void try_tokenizer(const uint8_t *data, size_t size) {
  static const char text[] = " It's 12345\r\n\n\te\xCC\x81 <|endoftext|> \xE4\xB8\xAD\xFF\x80 cafe\xCC\x81      x";
  char err[64];
  tokenizer *t = tokenizer_parse((const char *)data, size, err, sizeof err);
  if (!t && *err == 0) abort();
  for (int i = 0; t && i < 2; i++) {
    int32_t *ids = NULL;
    int64_t n = tokenizer_encode(t, i ? (const char *)data : text, i ? size / 8 : sizeof text, &ids);
    for (int64_t k = 0; k < n; k++) {
      size_t bytes;
      const char *piece = tokenizer_token(t, ids[k], &bytes);
      if (bytes == 0 || ids[k] >= tokenizer_size(t)) abort();
      sink += (unsigned char)piece[bytes - 1];
    }
    free(ids);
  }
  accepted[2] += t != NULL;
  tokenizer_free(t);
}

/* A config that is accepted has parameters that can be counted. */
static void try_config(const uint8_t *data, size_t size) {
  char err[64] = "";
  model_config c;
  param_list list;
  const int ok = config_parse((const char *)data, size, &c, err, sizeof err);
  if (!ok && *err == 0) abort();
  accepted[3] += ok ? 1 : 0;
  if (!ok || !params_list(&c, &list)) return;
  if (list.count < 4 || list.size < 1 || list.decayed > list.size) abort();
  params_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_json(data, size);
  try_config(data, size);
  try_safetensors(data, size);
  try_tokenizer(data, size);
  return 0;
}

#ifndef AMBI_LIBFUZZER

static uint64_t state;

static uint64_t next(void) { /* splitmix64 */
  uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

#define ENTRY(dtype, shape, offsets) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const char *const seeds[] = {
    "[{\"name\":\"a\",\"attrs\":{\"eps\":1e-06,\"on\":true,\"x\":null},\"l\":[1,-2.5e3,\"\\ud83d\\ude00\\n\"]}]",
    ("{\"a\":" ENTRY("\"F32\"", "[2,1]", "[0,8]") ",\"b\":" ENTRY("\"I64\"", "[]", "[8,16]") "}"),
    ("{\"__metadata__\":{\"format\":\"pt\"},\"w\":" ENTRY("\"BF16\"", "[8]", "[0,16]") "}"),
    "{\"model_type\":\"mamba\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":2,\"state_size\":8,"
    "\"conv_kernel\":4,\"eos_token_id\":[1,2],\"time_step_limit\":[0.0,Infinity]}",
    "{\"model_type\":\"llama\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":2,\"rms_norm_eps\":1e-6,"
    "\"num_attention_heads\":4,\"intermediate_size\":48,\"rope_parameters\":{\"rope_theta\":5e5}}",
    "{\"model_type\":\"ambi\",\"vocab_size\":50,\"hidden_size\":32,\"num_hidden_layers\":1,\"norm_epsilon\":1e-5,"
    "\"residual_in_fp32\":true,\"mamba_inner\":64,\"mamba_state\":8,\"mamba_conv\":4,\"mamba_rank\":2,"
    "\"mamba_conv_bias\":true,\"mamba2_heads\":4,\"mamba2_head_dim\":16,\"mamba2_groups\":1,\"mamba2_state\":8,"
    "\"mamba2_conv\":4,\"mamba2_conv_bias\":true,\"attention_heads\":4,\"attention_kv_heads\":2,"
    "\"attention_head_dim\":8,\"attention_mlp\":48,\"attention_positions\":99,\"attention_theta\":10000,"
    "\"layer_types\":[\"mamba2\"]}"};

static const char *const tokens[] = {"\"",      "{",           "}",         "[",
                                     "]",       ",",           ":",         "\\u",
                                     "\\ud800", "-",           "0",         "9223372036854775807",
                                     "1e999",   "\"shape\"",   "\"dtype\"", "data_offsets",
                                     "F64",     "\xF0\x9F",    "[[[[[[[[",  "null",
                                     "true",    "\"type\":\"", "\\\\p{N}",  "(?:",
                                     "|",       "*",           "{1,9}",     "\"\xC4\xA0 t\","};

/* One to six edits: a byte, a bit, a cut, a repeat, a token. */
static size_t mutate(uint8_t *p, size_t n, size_t room) {
  for (uint64_t edits = 1 + next() % 6; edits; edits--) {
    size_t at = n ? (size_t)(next() % n) : 0;
    const char *token = tokens[next() % (sizeof tokens / sizeof *tokens)];
    size_t len = strlen(token);
    switch (next() % 5) {
      case 0:
        if (n) p[at] = (uint8_t)next();
        break;
      case 1:
        if (n) p[at] ^= (uint8_t)(1u << next() % 8);
        break;
      case 2:
        if (n) n = at;
        break;
      case 3:
        if (n + (n - at) <= room) memmove(p + n, p + at, n - at), n += n - at;
        break;
      default:
        if (n + len <= room) memmove(p + at + len, p + at, n - at), memcpy(p + at, token, len), n += len;
    }
  }
  return n;
}

/* Letters for letters and digits for digits, mostly: it stays JSON, but says something else. */
static size_t mutate_gently(uint8_t *p, size_t n, size_t room) {
  if (next() % 4 == 0) return mutate(p, n, room);
  for (uint64_t edits = 1 + next() % 3; edits; edits--) {
    size_t at = (size_t)(next() % n);
    while (at < n && !isalnum(p[at])) at++;
    if (at < n) p[at] = (uint8_t)(isdigit(p[at]) ? '0' + next() % 10 : (isupper(p[at]) ? 'A' : 'a') + next() % 26);
  }
  return n;
}

/* A tokenizer.json: an edit in its list of merges does little harm, so half of them are in its first part. */
static void tokenizer_round(void) {
  static const char *const names[] = {"gpt2", "neox", "llama3", "prefix"};
  char path[600], err[200];
  snprintf(path, sizeof path, TEST_DATA "/tokenizers/%s.json", names[next() % (sizeof names / sizeof *names)]);
  size_t n, part, rest, room = (size_t)1 << 16;
  char *text = file_read(path, room, &n, err, sizeof err);
  uint8_t *edited = malloc(2 * room);
  if (!text || !edited) exit(printf("FAILED fuzz_readers: %s\n", text ? "out of memory" : err));
  part = next() % 2 ? n : n / 6;
  rest = n - part;
  memcpy(edited, text, part);
  size_t size = mutate_gently(edited, part, room);
  memcpy(edited + size, text + part, rest);
  uint8_t *exact = realloc(edited, size + rest + 1);
  if (!exact) exit(1);
  try_tokenizer(exact, size + rest);
  free(exact);
  free(text);
}

static void one_round(void) {
  enum { ROOM = 4096 };
  uint8_t buffer[ROOM];
  const char *text = seeds[next() % (sizeof seeds / sizeof *seeds)];
  size_t n = strlen(text), size = mutate((memcpy(buffer + 8, text, n), buffer + 8), n, 1500);
  size_t data = next() % 4 ? 16 : (size_t)(next() % 40);
  uint64_t length = next() % 16 ? size : next() >> (next() % 64);
  for (int i = 0; i < 8; i++) buffer[i] = (uint8_t)(length >> (8 * i));
  memset(buffer + 8 + size, 0, data);
  uint8_t *exact = malloc(size + 8 + data); /* of the exact size, so that a sanitizer sees one byte too far */
  if (!exact) exit(1);
  memcpy(exact, buffer, size + 8 + data);
  try_json(exact + 8, size);
  try_config(exact + 8, size);
  LLVMFuzzerTestOneInput(exact, size + 8 + data);
  free(exact);
}

int main(int argc, char **argv) {
  state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 200000;
  for (uint64_t i = 0; i < count; i++) {
    one_round();
    if (i % 4 == 0) tokenizer_round();
  }
  /* Inputs that were accepted at all show that the loop gets past the first check; a fault ends the program. */
  int ok = count < 1000 || (accepted[0] > 0 && accepted[1] > 0 && accepted[2] > 0 && accepted[3] > 0);
  printf("fuzz_readers: %llu were JSON, %llu safetensors, %llu tokenizers, %llu configs\n%llu passed, %d failed\n",
         (unsigned long long)accepted[0], (unsigned long long)accepted[1], (unsigned long long)accepted[2],
         (unsigned long long)accepted[3], (unsigned long long)count, !ok);
  return !ok;
}
#endif
