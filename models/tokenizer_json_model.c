/* tokenizer_json_model.c -- vocabulary, merges and added tokens of a tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "../util/json.h"
#include "../util/utf8.h"
#include "tokenizer_parts.h"
#include "unicode.h"

/* ---- bytes as characters ---- */

/* 0..32, 127..160 and 173 do not print: they are U+0100, U+0101 .. in this order. */
uint32_t byte_char(unsigned char byte) {
  if (byte < 33) return 256u + byte;
  if (byte >= 127 && byte <= 160) return 256u + 33 + (byte - 127u);
  return byte == 173 ? 256u + 67 : byte;
}

int char_byte(uint32_t c) {
  static const unsigned char last = 173;
  if (c < 256) return byte_char((unsigned char)c) == c ? (int)c : -1;
  if (c < 256 + 33) return (int)c - 256;
  if (c < 256 + 67) return (int)c - 256 - 33 + 127;
  return c == 256 + 67 ? last : -1;
}

/* The bytes that a name in the file stands for, into out (room for `length`); -1: it has a character that is none. */
static int64_t name_bytes(const char *name, size_t length, char *out) {
  const char *end = name + length;
  int64_t n = 0;
  for (uint32_t c; name < end; n++) {
    int step = utf8_read(name, end, &c), byte = step ? char_byte(c) : -1;
    if (byte < 0) return -1;
    out[n] = (char)byte;
    name += step;
  }
  return n;
}

/* ---- vocabulary ---- */

enum { SHOWN = 40 }; /* bytes of a name in a message */

/* The largest id of both lists and 1; refuses ids that are no numbers or far beyond what is there. */
static int count_ids(token_reader *r, const json_value *vocabulary, const json_value *added) {
  int64_t limit = 2 * (int64_t)(vocabulary->length + added->length) + 1024, most = -1;
  if (limit > TOKENIZER_MOST_IDS) limit = TOKENIZER_MOST_IDS;
  for (const json_value *v = vocabulary->child; v; v = v->next) {
    if (!v->is_int || v->integer < 0 || v->integer >= limit) {
      return reader_fail(r, "model.vocab: the id of '%.*s' is no integer from 0 to %lld", SHOWN, v->key,
                         (long long)limit - 1);
    }
    if (v->integer > most) most = v->integer;
  }
  for (const json_value *a = added->child; a; a = a->next) {
    const json_value *id = json_get(a, "id");
    if (!id || !id->is_int || id->integer < 0 || id->integer >= limit) {
      return reader_fail(r, "added_tokens: an id is no integer from 0 to %lld", (long long)limit - 1);
    }
    if (id->integer > most) most = id->integer;
  }
  r->t->size = (int32_t)(most + 1);
  return 1;
}

static int read_token(token_reader *r, const json_value *v) {
  tokenizer *t = r->t;
  token *k = &t->tokens[v->integer];
  if (k->bytes) {
    return reader_fail(r, "model.vocab: '%.*s' has the id %lld, as another token has", SHOWN, v->key,
                       (long long)v->integer);
  }
  char *bytes = arena_take(&t->strings, v->key_length + 1);
  if (!bytes) return reader_fail(r, "out of memory");
  int64_t n = name_bytes(v->key, v->key_length, bytes);
  if (v->key_length == 0) return reader_fail(r, "model.vocab: a token without a name");
  if (n >= 0) {
    *k = (token){bytes, (size_t)n, 0};
    return text_map_put(&t->vocabulary, bytes, (size_t)n, v->integer) || reader_fail(r, "out of memory");
  }
  memcpy(bytes, v->key, v->key_length); /* an added token, or read_added_tokens refuses it */
  *k = (token){bytes, v->key_length, -1};
  return 1;
}

static int read_vocabulary(token_reader *r, const json_value *vocabulary) {
  tokenizer *t = r->t;
  t->tokens = calloc((size_t)t->size + 1, sizeof *t->tokens);
  if (!t->tokens) return reader_fail(r, "out of memory");
  for (const json_value *v = vocabulary->child; v; v = v->next) {
    if (!read_token(r, v)) return 0;
  }
  for (int i = 0; i < 256; i++) {
    char byte = (char)i;
    int64_t id = text_map_get(&t->vocabulary, &byte, 1);
    if (id < 0) return reader_fail(r, "model.vocab: no token for the byte %02X; this is no byte-level BPE", i);
    t->byte_id[i] = (int32_t)id;
  }
  return 1;
}

/* ---- merges ---- */

/* The two names of "a b" or ["a","b"]. */
static int merge_names(const json_value *m, const char *name[2], size_t length[2]) {
  if (m->type == JSON_STRING) {
    const char *space = memchr(m->text, ' ', m->length);
    if (!space) return 0;
    name[0] = m->text, length[0] = (size_t)(space - m->text);
    name[1] = space + 1, length[1] = m->length - length[0] - 1;
    return memchr(name[1], ' ', length[1]) == NULL;
  }
  if (m->type != JSON_ARRAY || m->length != 2) return 0;
  const json_value *a = m->child, *b = a ? a->next : NULL;
  if (!a || !b) return 0;
  name[0] = a->text, length[0] = a->length;
  name[1] = b->text, length[1] = b->length;
  return a->type == JSON_STRING && b->type == JSON_STRING;
}

static int read_merge(token_reader *r, const json_value *m, int64_t rank, char *both) {
  tokenizer *t = r->t;
  const char *name[2];
  size_t length[2];
  int64_t n = 0, id[3];
  if (!merge_names(m, name, length)) return reader_fail(r, "model.merges[%lld] is not \"a b\"", (long long)rank);
  for (int i = 0; i < 2; i++) {
    int64_t more = name_bytes(name[i], length[i], both + n);
    id[i] = more < 0 ? -1 : text_map_get(&t->vocabulary, both + n, (size_t)more);
    if (id[i] < 0) {
      return reader_fail(r, "model.merges[%lld]: '%.*s' is not in the vocabulary", (long long)rank,
                         (int)(length[i] < SHOWN ? length[i] : SHOWN), name[i]);
    }
    n += more;
  }
  id[2] = text_map_get(&t->vocabulary, both, (size_t)n);
  if (id[2] < 0) return reader_fail(r, "model.merges[%lld]: its result is not in the vocabulary", (long long)rank);
  uint64_t key = pair_key((int32_t)id[0], (int32_t)id[1]); /* of two that are the same, the package takes the later */
  return pair_map_put(&t->merges, key, rank << 32 | id[2]) || reader_fail(r, "out of memory");
}

static int read_merges(token_reader *r, const json_value *merges) {
  size_t most = 0;
  for (const json_value *m = merges->child; m; m = m->next) { /* the longest, for one buffer */
    size_t n = m->type == JSON_STRING ? m->length : 0;
    for (const json_value *c = m->child; c; c = c->next) n += c->type == JSON_STRING ? c->length : 0;
    if (n > most) most = n;
  }
  char *both = malloc(most + 1);
  if (!both) return reader_fail(r, "out of memory");
  int64_t rank = 0;
  int ok = merges->length < (size_t)1 << 22 || reader_fail(r, "model.merges: more than 2^22");
  for (const json_value *m = merges->child; m && ok; m = m->next) ok = read_merge(r, m, rank++, both);
  free(both);
  return ok;
}

/* ---- added tokens ---- */

/* Its text where the model's vocabulary has it already, under the same id; otherwise a new one. */
static int place_added(token_reader *r, const char *text, size_t length, int32_t id, int special) {
  tokenizer *t = r->t;
  token *k = &t->tokens[id];
  char *copy = arena_take(&t->strings, length);
  if (!copy) return reader_fail(r, "out of memory");
  int64_t n = name_bytes(text, length, copy), known = n < 0 ? -1 : text_map_get(&t->vocabulary, copy, (size_t)n);
  int same = n < 0 ? k->bytes && k->length == length && memcmp(k->bytes, text, length) == 0 : known == id;
  if (k->bytes && !same) return reader_fail(r, "added_tokens: id %d of '%.*s' is taken", id, SHOWN, text);
  if (known >= 0 && known != id) {
    return reader_fail(r, "added_tokens: '%.*s' has the id %d here and %lld in the vocabulary", SHOWN, text, id,
                       (long long)known);
  }
  memcpy(copy, text, length);
  *k = (token){copy, length, special};
  return 1;
}

/* Where it is looked for: in the text as it is, or after NFC, and then in NFC itself. */
static int seek_added(token_reader *r, added_token a, int normalized) {
  tokenizer *t = r->t;
  if (normalized && t->nfc) {
    size_t n = 0;
    char *changed = nfc(a.text, a.length, &n);
    a.text = changed ? arena_copy(&t->strings, changed, n) : NULL;
    a.length = n;
    free(changed);
  }
  if (!a.text || !added_put(normalized ? &t->normalized : &t->raw, &a)) return reader_fail(r, "out of memory");
  return 1;
}

static int read_added_token(token_reader *r, const json_value *v) {
  static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                      "rstrip", "normalized", "special",     NULL};
  added_token a = {.id = (int32_t)json_get(v, "id")->integer};
  const json_value *content = json_get(v, "content");
  int special, normalized, single;
  if (!reader_keys(r, v, "added_tokens", known)) return 0;
  if (!content || content->type != JSON_STRING || content->length == 0) {
    return reader_fail(r, "added_tokens: id %d has no content", a.id);
  }
  if (!reader_flag(r, v, "special", 0, &special) || !reader_flag(r, v, "single_word", 0, &single) ||
      !reader_flag(r, v, "normalized", !special, &normalized) || !reader_flag(r, v, "lstrip", 0, &a.lstrip) ||
      !reader_flag(r, v, "rstrip", 0, &a.rstrip)) {
    return 0;
  }
  if (single) return reader_fail(r, "added_tokens: single_word of '%.*s' is not supported", SHOWN, content->text);
  if (!place_added(r, content->text, content->length, a.id, special)) return 0;
  a.text = r->t->tokens[a.id].bytes;
  a.length = content->length;
  return seek_added(r, a, normalized);
}

static int read_added_tokens(token_reader *r, const json_value *added) {
  tokenizer *t = r->t;
  char *seen = calloc((size_t)t->size + 1, 1);
  int ok = 1;
  if (!seen) return reader_fail(r, "out of memory");
  for (const json_value *a = added->child; a && ok; a = a->next) {
    int64_t id = json_get(a, "id")->integer;
    if (seen[id]) ok = reader_fail(r, "added_tokens: two tokens of id %lld", (long long)id);
    if (ok) ok = read_added_token(r, a);
    seen[id] = 1;
  }
  free(seen);
  for (int32_t i = 0; i < t->size && ok; i++) {
    if (t->tokens[i].special < 0) {
      ok =
          reader_fail(r, "model.vocab: '%.*s' (id %d) has characters that stand for no byte; this is no byte-level BPE",
                      SHOWN, t->tokens[i].bytes, i);
    }
  }
  return ok;
}

/* ---- all of it ---- */

/* Members that change what BPE does and that byte-level files leave off. */
static int check_options(token_reader *r, const json_value *model) {
  static const char *const known[] = {"type",          "dropout",       "unk_token", "continuing_subword_prefix",
                                      "vocab",         "merges",        "fuse_unk",  "end_of_word_suffix",
                                      "byte_fallback", "ignore_merges", NULL};
  static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  int ignored;
  if (!reader_keys(r, model, "model", known)) return 0;
  const json_value *dropout = json_get(model, "dropout");
  if (dropout && dropout->type != JSON_NULL && (dropout->type != JSON_NUMBER || dropout->number != 0)) {
    return reader_fail(r, "model.dropout is not supported");
  }
  for (size_t i = 0; i < 2; i++) {
    const json_value *v = json_get(model, empty[i]);
    if (v && v->type != JSON_NULL && (v->type != JSON_STRING || v->length)) {
      return reader_fail(r, "model.%s is not supported", empty[i]);
    }
  }
  if (!reader_flag(r, model, "byte_fallback", 0, &ignored)) return 0;
  if (ignored) return reader_fail(r, "model.byte_fallback is not supported: only byte-level BPE is");
  return reader_flag(r, model, "fuse_unk", 0, &ignored) &&
         reader_flag(r, model, "ignore_merges", 0, &r->t->ignore_merges);
}

int read_model(token_reader *r, const json_value *model, const json_value *added) {
  static const json_value none = {.type = JSON_ARRAY};
  const json_value *type = json_get(model, "type"), *vocabulary = json_get(model, "vocab"),
                   *merges = json_get(model, "merges");
  if (!added) added = &none;
  if (!model || model->type != JSON_OBJECT) return reader_fail(r, "there is no model");
  if (type && (!json_text(type) || strcmp(type->text, "BPE") != 0)) {
    return reader_fail(r, "model.type is '%.*s'; only BPE is supported", SHOWN, json_text(type) ? type->text : "?");
  }
  if (!vocabulary || vocabulary->type != JSON_OBJECT) return reader_fail(r, "model.vocab is no object");
  if (!merges || merges->type != JSON_ARRAY) return reader_fail(r, "model.merges is no array");
  if (added->type != JSON_ARRAY) return reader_fail(r, "added_tokens is no array");
  return check_options(r, model) && count_ids(r, vocabulary, added) && read_vocabulary(r, vocabulary) &&
         read_merges(r, merges) && read_added_tokens(r, added);
}
