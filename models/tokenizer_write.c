/* tokenizer_write.c -- a byte-level BPE as a tokenizer.json. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/utf8.h"
#include "tokenizer_parts.h"

typedef struct {
  char *text;
  size_t used, room;
  int failed;
} writer;

static char *make_room(writer *w, size_t more) {
  if (w->room - w->used < more && !w->failed) {
    size_t room = 2 * w->room + more + 4096;
    char *text = realloc(w->text, room);
    w->failed = !text;
    if (text) w->text = text, w->room = room;
  }
  return w->failed ? NULL : w->text + w->used;
}

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
  enum { MOST = 512 };
  char *to = make_room(w, MOST);
  if (!to) return;
  va_list ap;
  va_start(ap, format);
  int n = vsnprintf(to, MOST, format, ap);
  va_end(ap);
  w->failed = n < 0 || n >= MOST;
  if (!w->failed) w->used += (size_t)n;
}

/* A character inside of a string; of those that a byte can be, two need an escape. */
static void put_char(writer *w, uint32_t c) {
  char *to = make_room(w, 8);
  if (!to) return;
  if (c < 0x20) {
    put(w, "\\u%04x", (unsigned)c);
    return;
  }
  if (c == '"' || c == '\\') *to++ = '\\';
  w->used = (size_t)(utf8_put(to, c) - w->text);
}

static void put_bytes(writer *w, const char *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) put_char(w, byte_char((unsigned char)bytes[i]));
}

/* A name that is text, not bytes. */
static void put_name(writer *w, const char *name) {
  const char *end = name + strlen(name);
  put(w, "\"");
  while (name < end) {
    uint32_t c = 0xFFFD;
    int n = utf8_read(name, end, &c);
    put_char(w, c);
    name += n ? n : 1;
  }
  put(w, "\"");
}

static void put_vocabulary(writer *w, const bpe_text *b) {
  for (int32_t i = 0; i < b->count; i++) {
    int is_special = b->special && i == b->special_id;
    put(w, "%s\n      ", i ? "," : "");
    if (is_special) {
      put_name(w, b->special);
    } else {
      put(w, "\"");
      put_bytes(w, b->tokens[i], b->lengths[i]);
      put(w, "\"");
    }
    put(w, ": %d", i);
  }
}

static void put_merges(writer *w, const bpe_text *b) {
  for (int32_t i = 0; i < b->merge_count; i++) {
    int32_t l = b->merges[i][0], r = b->merges[i][1];
    put(w, "%s\n      \"", i ? "," : "");
    put_bytes(w, b->tokens[l], b->lengths[l]);
    put(w, " ");
    put_bytes(w, b->tokens[r], b->lengths[r]);
    put(w, "\"");
  }
}

static void put_special(writer *w, const bpe_text *b) {
  if (!b->special) return;
  put(w, "\n    {\"id\": %d, \"content\": ", b->special_id);
  put_name(w, b->special);
  put(w,
      ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}\n  ");
}

char *tokenizer_write(const bpe_text *b, size_t *bytes) {
  static const char level[] =
      "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
      "\"use_regex\": %s}";
  writer w = {0};
  put(&w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
  put_special(&w, b);
  put(&w, "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ");
  put(&w, level, b->cut_words ? "true" : "false");
  put(&w, ",\n  \"post_processor\": ");
  put(&w, level, "true");
  put(&w, ",\n  \"decoder\": ");
  put(&w, level, "true");
  put(&w, ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n");
  put(&w, "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n");
  put(&w, "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
  put_vocabulary(&w, b);
  put(&w, "\n    },\n    \"merges\": [");
  put_merges(&w, b);
  put(&w, "%s]\n  }\n}\n", b->merge_count ? "\n    " : "");
  *bytes = w.used;
  if (!w.failed) return w.text;
  free(w.text);
  return NULL;
}
