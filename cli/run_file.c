/* run_file.c -- see run_file.h. */
#define _DEFAULT_SOURCE
#include "run_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"
#include "../util/utf8.h"

enum { PATH = 4096 };

/* JSON holds UTF-8 alone: what is none would not be found again. */
static int is_utf8(const char *text) {
  uint32_t c;
  for (const char *end = text + strlen(text); text < end;) {
    const int bytes = utf8_read(text, end, &c);
    if (bytes == 0) return 0;
    text += bytes;
  }
  return 1;
}

/* A path that holds wherever the run is gone on with; 0: it cannot be kept. */
static int write_path(FILE *out, const char *path) {
  char *full = realpath(path, NULL);
  json_write_text(out, full ? full : path);
  const int kept = is_utf8(full ? full : path);
  free(full);
  return kept;
}

/* Gives what cannot be kept, or NULL. */
static const char *write_run(FILE *to, const run_file *r, const char *const *file) {
  const char *odd = r->prompt && !is_utf8(r->prompt) ? "--prompt" : NULL;
  fprintf(to, "{\n  \"dtype\": \"%s\",\n  \"tokenizer\": ", r->dtype);
  if (!r->tokenizer)
    fputs("null", to);
  else if (!write_path(to, r->tokenizer))
    odd = r->tokenizer;
  if (r->prompt) fputs(",\n  \"prompt\": ", to), json_write_text(to, r->prompt);
  fprintf(to, ",\n  \"tokens\": %lld,\n  \"hash\": \"%016llx\",\n  \"files\": [", (long long)r->count,
          (unsigned long long)r->hash);
  for (int i = 0; file[i]; i++) {
    fputs(i ? ", " : "", to);
    if (!write_path(to, file[i])) odd = file[i];
  }
  fprintf(to, "]\n}\n");
  return odd;
}

int run_file_write(const char *folder, const run_file *r, const char *const *file, char *err, size_t n) {
  char path[PATH];
  file_draft f;
  snprintf(path, sizeof path, "%s/run.json", folder);
  if (!file_begin(&f, path, err, n)) return 0;
  const char *odd = write_run(f.to, r, file);
  if (!odd) return file_commit(&f, err, n);
  file_cancel(&f);
  return snprintf(err, n, "%s: this is not UTF-8, or lies in a folder whose name is not: run.json could not keep it",
                  odd),
         0;
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
