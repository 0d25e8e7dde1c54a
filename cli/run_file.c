/* run_file.c -- see run_file.h. */
#define _DEFAULT_SOURCE
#include "run_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"

enum { PATH = 4096 };

/* A path that holds wherever the run is gone on with. */
static void write_path(FILE *out, const char *path) {
  char *full = realpath(path, NULL);
  json_write_text(out, full ? full : path);
  free(full);
}

int run_file_write(const char *folder, const run_file *r, const char *const *file, char *err, size_t n) {
  char path[PATH];
  file_draft f;
  snprintf(path, sizeof path, "%s/run.json", folder);
  if (!file_begin(&f, path, err, n)) return 0;
  fprintf(f.to, "{\n  \"dtype\": \"%s\",\n  \"tokenizer\": ", r->dtype);
  if (r->tokenizer)
    write_path(f.to, r->tokenizer);
  else
    fputs("null", f.to);
  if (r->prompt) fputs(",\n  \"prompt\": ", f.to), json_write_text(f.to, r->prompt);
  fprintf(f.to, ",\n  \"tokens\": %lld,\n  \"hash\": \"%016llx\",\n  \"files\": [", (long long)r->count,
          (unsigned long long)r->hash);
  for (int i = 0; file[i]; i++) {
    fputs(i ? ", " : "", f.to);
    write_path(f.to, file[i]);
  }
  fprintf(f.to, "]\n}\n");
  return file_commit(&f, err, n);
}

/* Those of a list, NULL-ended; NULL: no memory. */
static const char **texts_of(const json_value *list) {
  size_t count = 0;
  for (const json_value *v = list->child; v; v = v->next) count++;
  const char **texts = calloc(count + 1, sizeof *texts), **at = texts;
  for (const json_value *v = list->child; at && v; v = v->next)
    if (json_text(v)) *at++ = json_text(v);
  return texts;
}

int run_file_read(const char *folder, run_file *r, char *err, size_t n) {
  char path[PATH], why[200] = "no JSON object with \"dtype\" and \"files\"";
  size_t bytes;
  *r = (run_file){0};
  snprintf(path, sizeof path, "%s/run.json", folder);
  r->text = file_read(path, 1 << 24, &bytes, err, n);
  if (!r->text) return 0;
  r->doc = json_parse(r->text, bytes, why, sizeof why);
  const json_value *root = r->doc ? json_root(r->doc) : NULL, *files = json_get(root, "files");
  r->dtype = json_text(json_get(root, "dtype"));
  r->tokenizer = json_text(json_get(root, "tokenizer"));
  r->prompt = json_text(json_get(root, "prompt"));
  const json_value *count = json_get(root, "tokens");
  if (count && count->type == JSON_NUMBER && count->is_int) r->count = count->integer;
  const char *hash = json_text(json_get(root, "hash"));
  if (hash) r->hash = strtoull(hash, NULL, 16);
  if (r->dtype && files && files->type == JSON_ARRAY) {
    r->file = texts_of(files);
    if (r->file) return 1;
    snprintf(why, sizeof why, "out of memory");
  }
  snprintf(err, n, "%s: %s", path, why);
  run_file_free(r);
  return 0;
}

int run_file_resume(const char *folder, const char *checkpoint, run_file *r, training_options *o, char *err, size_t n) {
  char path[PATH];
  const int64_t steps = o->steps;
  if (!run_file_read(folder, r, err, n)) return 0;
  if (snprintf(path, sizeof path, "%s/training.json", checkpoint) >= PATH || !training_options_read(path, o, err, n))
    return 0;
  if (steps) o->steps = steps;
  return 1;
}

void run_file_free(run_file *r) {
  free(r->file);
  json_free(r->doc);
  free(r->text);
  *r = (run_file){0};
}
