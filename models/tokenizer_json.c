/* tokenizer_json.c -- a Hugging Face tokenizer.json: its parts by name, and whatever is unknown refused by name. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"
#include "../util/json.h"
#include "tokenizer_parts.h"

void reader_say(const token_reader *r, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  if (r->n) vsnprintf(r->err, r->n, format, ap);
  va_end(ap);
}

int reader_keys(const token_reader *r, const json_value *v, const char *where, const char *const *known) {
  if (v->type != JSON_OBJECT) return reader_fail(r, "%s is no object", where);
  for (const json_value *c = v->child; c; c = c->next) {
    const char *const *k = known;
    while (*k && (strlen(*k) != c->key_length || memcmp(*k, c->key, c->key_length) != 0)) k++;
    if (!*k) return reader_fail(r, "%s: '%.40s' is not understood", where, c->key);
  }
  return 1;
}

int reader_flag(const token_reader *r, const json_value *v, const char *key, int absent, int *flag) {
  const json_value *b = json_get(v, key);
  *flag = absent;
  if (!b || b->type == JSON_NULL) return 1;
  if (b->type != JSON_BOOL) return reader_fail(r, "'%s' is neither true nor false", key);
  *flag = b->integer != 0;
  return 1;
}

/* ---- parts by their type ---- */

typedef struct {
  const char *type;
  int (*read)(token_reader *r, const json_value *v);
} part;

/* Reads v by the row of its "type"; null and absent are fine. */
static int read_part(token_reader *r, const json_value *v, const char *where, const part *rows) {
  if (!v || v->type == JSON_NULL) return 1;
  const char *type = json_text(json_get(v, "type"));
  if (!type) return reader_fail(r, "%s has no type", where);
  for (; rows->type; rows++) {
    if (strcmp(rows->type, type) == 0) return rows->read(r, v);
  }
  return reader_fail(r, "%s: the type '%.40s' is not supported", where, type);
}

/* {"type":"Sequence", LIST:[..]} */
static int read_sequence(token_reader *r, const json_value *v, const char *list, const char *where, const part *rows) {
  const char *const known[] = {"type", list, NULL};
  const json_value *items = json_get(v, list);
  if (!reader_keys(r, v, where, known)) return 0;
  if (!items || items->type != JSON_ARRAY) return reader_fail(r, "%s: a Sequence without '%s'", where, list);
  for (const json_value *i = items->child; i; i = i->next) {
    if (i->type != JSON_OBJECT) return reader_fail(r, "%s: a Sequence of something else than objects", where);
    if (!read_part(r, i, where, rows)) return 0;
  }
  return 1;
}

/* ---- normalizer ---- */

static int read_nfc(token_reader *r, const json_value *v) {
  static const char *const known[] = {"type", NULL};
  r->t->nfc = 1;
  return reader_keys(r, v, "normalizer", known);
}

static int read_normalizers(token_reader *r, const json_value *v) {
  static const part rows[] = {{"NFC", read_nfc}, {NULL, NULL}};
  return read_sequence(r, v, "normalizers", "normalizer", rows);
}

static const part normalizers[] = {{"NFC", read_nfc}, {"Sequence", read_normalizers}, {NULL, NULL}};

/* ---- pre_tokenizer ---- */

/* One more step; the pattern may be NULL. */
static int add_step(token_reader *r, int prefix_space, const char *text, size_t bytes, int drop) {
  tokenizer *t = r->t;
  if (t->n_steps == TOKENIZER_STEPS) return reader_fail(r, "pre_tokenizer: more than %d steps", TOKENIZER_STEPS);
  pattern *cut = text ? pattern_compile(text, bytes, r->err, r->n) : NULL;
  if (text && !cut) return 0;
  t->steps[t->n_steps++] = (split_step){prefix_space, cut, drop};
  return 1;
}

/* Once the bytes have become characters, nothing else may come. */
static int before_bytes(token_reader *r) {
  return r->t->bytes_done ? reader_fail(r, "pre_tokenizer: a step after ByteLevel is not supported") : 1;
}

static int read_byte_level(token_reader *r, const json_value *v) {
  static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  int prefix, cut, trim;
  if (!before_bytes(r) || !reader_keys(r, v, "pre_tokenizer", known)) return 0;
  if (!reader_flag(r, v, "add_prefix_space", 1, &prefix) || !reader_flag(r, v, "use_regex", 1, &cut) ||
      !reader_flag(r, v, "trim_offsets", 1, &trim)) {
    return 0;
  }
  r->t->bytes_done = 1;
  return add_step(r, prefix, cut ? split_gpt2 : NULL, strlen(split_gpt2), 0);
}

/* Isolated keeps what lies between the matches; Removed, inverted, does not. */
static int read_split(token_reader *r, const json_value *v) {
  static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
  static const char *const kinds[] = {"Regex", NULL};
  const json_value *kind = json_get(v, "pattern"), *regex = json_get(kind, "Regex");
  const char *behavior = json_text(json_get(v, "behavior"));
  int invert;
  if (!before_bytes(r) || !reader_keys(r, v, "pre_tokenizer: Split", known)) return 0;
  if (kind && !reader_keys(r, kind, "pre_tokenizer: Split by pattern", kinds)) return 0;
  if (!regex || regex->type != JSON_STRING) return reader_fail(r, "pre_tokenizer: Split without a Regex");
  if (!reader_flag(r, v, "invert", 0, &invert)) return 0;
  int isolated = behavior && strcmp(behavior, "Isolated") == 0;
  if (!isolated && !(behavior && strcmp(behavior, "Removed") == 0 && invert)) {
    return reader_fail(r, "pre_tokenizer: Split with the behavior '%.40s'%s is not supported",
                       behavior ? behavior : "?", invert ? ", inverted," : "");
  }
  return add_step(r, 0, regex->text, regex->length, !isolated);
}

static int read_digits(token_reader *r, const json_value *v) {
  static const char *const known[] = {"type", "individual_digits", NULL};
  static const char *const patterns[] = {"\\p{N}+", "\\p{N}"};
  int individual;
  if (!before_bytes(r) || !reader_keys(r, v, "pre_tokenizer: Digits", known)) return 0;
  if (!reader_flag(r, v, "individual_digits", 0, &individual)) return 0;
  return add_step(r, 0, patterns[individual], strlen(patterns[individual]), 0);
}

static const part splits[] = {
    {"ByteLevel", read_byte_level}, {"Split", read_split}, {"Digits", read_digits}, {NULL, NULL}};

static int read_splits(token_reader *r, const json_value *v) {
  return read_sequence(r, v, "pretokenizers", "pre_tokenizer", splits);
}

static int read_pre_tokenizer(token_reader *r, const json_value *v) {
  static const part sequence[] = {{"Sequence", read_splits}, {NULL, NULL}};
  const char *type = json_text(json_get(v, "type"));
  if (!read_part(r, v, "pre_tokenizer", type && strcmp(type, "Sequence") == 0 ? sequence : splits)) return 0;
  return r->t->bytes_done ? 1 : reader_fail(r, "pre_tokenizer: no ByteLevel; only byte-level BPE is supported");
}

/* ---- post_processor and decoder ---- */

static int read_offsets(token_reader *r, const json_value *v) { /* ByteLevel: about offsets, not ids */
  static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  return reader_keys(r, v, "ByteLevel", known);
}

/* The ids of one special token of the template, to the end of the list. */
static int read_template_ids(token_reader *r, const json_value *ids, int32_t *list, int *count) {
  if (!ids || ids->type != JSON_ARRAY) return reader_fail(r, "post_processor: a special token without ids");
  for (const json_value *i = ids->child; i; i = i->next) {
    if (!i->is_int || i->integer < 0 || i->integer >= r->t->size || !r->t->tokens[i->integer].bytes) {
      return reader_fail(r, "post_processor: a special token with an id that names no token");
    }
    if (*count == TOKENIZER_AROUND) return reader_fail(r, "post_processor: more than %d tokens", TOKENIZER_AROUND);
    list[(*count)++] = (int32_t)i->integer;
  }
  return 1;
}

static const json_value *member(const json_value *v, const json_value *name) {
  const char *text = json_text(name);
  return text ? json_get(v, text) : NULL;
}

static int read_template(token_reader *r, const json_value *v) {
  static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
  const json_value *single = json_get(v, "single"), *specials = json_get(v, "special_tokens");
  tokenizer *t = r->t;
  int texts = 0;
  if (!reader_keys(r, v, "post_processor", known)) return 0;
  if (t->n_before || t->n_after) return reader_fail(r, "post_processor: a second template is not supported");
  if (!single || single->type != JSON_ARRAY) return reader_fail(r, "post_processor: a template without 'single'");
  for (const json_value *i = single->child; i; i = i->next) {
    const json_value *special = json_get(i, "SpecialToken"), *text = json_get(i, "Sequence");
    if (!special == !text) return reader_fail(r, "post_processor: a template of something unknown");
    texts += text != NULL;
    if (text) continue;
    const json_value *ids = json_get(member(specials, json_get(special, "id")), "ids");
    if (!read_template_ids(r, ids, texts ? t->after : t->before, texts ? &t->n_after : &t->n_before)) return 0;
  }
  return texts == 1 ? 1 : reader_fail(r, "post_processor: a template must have the text once");
}

static const part processors[] = {{"ByteLevel", read_offsets}, {"TemplateProcessing", read_template}, {NULL, NULL}};

static int read_processors(token_reader *r, const json_value *v) {
  return read_sequence(r, v, "processors", "post_processor", processors);
}

static int read_post_processor(token_reader *r, const json_value *v) {
  static const part sequence[] = {{"Sequence", read_processors}, {NULL, NULL}};
  const char *type = json_text(json_get(v, "type"));
  return read_part(r, v, "post_processor", type && strcmp(type, "Sequence") == 0 ? sequence : processors);
}

/* ---- the file ---- */

/* The file does not say which token ends a text: the template may, or its name does. */
static int32_t known_name(const tokenizer *t, const char *const *names) {
  for (; *names; names++) {
    for (int32_t i = 0; i < t->size; i++) {
      const token *k = &t->tokens[i];
      if (k->special && k->length == strlen(*names) && memcmp(k->bytes, *names, k->length) == 0) return i;
    }
  }
  return -1;
}

static void find_ends(tokenizer *t) {
  static const char *const begins[] = {"<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", NULL};
  static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", NULL};
  t->bos = t->n_before ? t->before[0] : known_name(t, begins);
  t->eos = t->n_after ? t->after[t->n_after - 1] : known_name(t, ends);
}

static int read_file(token_reader *r, const json_value *root) {
  static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                      "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
  static const char *const absent[] = {"truncation", "padding"};
  static const part decoders[] = {{"ByteLevel", read_offsets}, {NULL, NULL}};
  if (!reader_keys(r, root, "the file", known)) return 0;
  for (size_t i = 0; i < 2; i++) {
    const json_value *v = json_get(root, absent[i]);
    if (v && v->type != JSON_NULL) return reader_fail(r, "%s is not supported: set it to null", absent[i]);
  }
  if (!read_part(r, json_get(root, "normalizer"), "normalizer", normalizers) ||
      !read_model(r, json_get(root, "model"), json_get(root, "added_tokens")) ||
      !read_pre_tokenizer(r, json_get(root, "pre_tokenizer")) ||
      !read_post_processor(r, json_get(root, "post_processor")) ||
      !read_part(r, json_get(root, "decoder"), "decoder", decoders)) {
    return 0;
  }
  find_ends(r->t);
  return 1;
}

static tokenizer *new_tokenizer(const char *json, size_t bytes) {
  tokenizer *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  added_init(&t->raw);
  added_init(&t->normalized);
  t->json = malloc(bytes + 1);
  if (!t->json) {
    tokenizer_free(t);
    return NULL;
  }
  if (bytes) memcpy(t->json, json, bytes);
  t->json_bytes = bytes;
  return t;
}

tokenizer *tokenizer_parse(const char *json, size_t bytes, char *err, size_t n) {
  json_doc *doc = json_parse(json, bytes, err, n);
  if (!doc) return NULL;
  token_reader r = {new_tokenizer(json, bytes), err, n};
  int ok = r.t ? read_file(&r, json_root(doc)) : reader_fail(&r, "out of memory");
  json_free(doc);
  if (ok) return r.t;
  tokenizer_free(r.t);
  return NULL;
}

tokenizer *tokenizer_open(const char *path, char *err, size_t n) {
  size_t bytes;
  char why[200], *text = file_read(path, JSON_MAX_BYTES, &bytes, err, n);
  tokenizer *t = text ? tokenizer_parse(text, bytes, why, sizeof why) : NULL;
  if (text && !t && n) snprintf(err, n, "%s: no tokenizer.json that can be read: %s", path, why);
  free(text);
  return t;
}
