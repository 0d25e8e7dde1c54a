/* safetensors_save.c -- the header is padded with spaces so that the data begins on a multiple of 64 bytes. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "json.h"
#include "safetensors.h"

static void write_metadata(FILE *out, const char *const *metadata) {
  fprintf(out, "\"__metadata__\":{\"format\":\"pt\"");
  for (; metadata && metadata[0]; metadata += 2) {
    fprintf(out, ",");
    json_write_text(out, metadata[0]);
    fprintf(out, ":");
    json_write_text(out, metadata[1]);
  }
  fprintf(out, "}");
}

static void write_entry(FILE *out, const safetensors_tensor *t, uint64_t begin) {
  const unsigned long long from = begin, to = begin + t->bytes;
  fprintf(out, ",");
  json_write_text(out, t->name);
  fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype);
  for (int i = 0; i < t->ndim; i++) fprintf(out, "%s%lld", i ? "," : "", (long long)t->shape[i]);
  fprintf(out, "],\"data_offsets\":[%llu,%llu]}", from, to);
}

/* The header as text, padded; NULL: no memory. */
static char *make_header(const safetensors_tensor *list, size_t count, const char *const *metadata, size_t *bytes) {
  enum { ALIGN = 64 };
  char *text = NULL;
  uint64_t begin = 0;
  FILE *out = open_memstream(&text, bytes);
  if (!out) return NULL;
  fprintf(out, "{");
  write_metadata(out, metadata);
  for (size_t i = 0; i < count; i++) {
    write_entry(out, &list[i], begin);
    begin += list[i].bytes;
  }
  fprintf(out, "}");
  for (long at = ftell(out); (at + 8) % ALIGN != 0; at++) fputc(' ', out);
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

int safetensors_save(const char *path, const safetensors_tensor *list, size_t count, const char *const *metadata,
                     safetensors_fill fill, void *context, char *err, size_t n) {
  file_draft f;
  size_t bytes = 0;
  char *header = make_header(list, count, metadata, &bytes);
  if (!header) return snprintf(err, n, "%s: out of memory", path), 0;
  if (!file_begin(&f, path, err, n)) return free(header), 0;
  for (int i = 0; i < 8; i++) fputc((int)(bytes >> (8 * i) & 255), f.to);
  fwrite(header, 1, bytes, f.to);
  free(header);
  for (size_t i = 0; i < count; i++) {
    if (fill(context, i, f.to, err, n)) continue;
    file_cancel(&f);
    return 0;
  }
  return file_commit(&f, err, n);
}
