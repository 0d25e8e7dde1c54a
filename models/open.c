/* open.c -- see open.h. */
#include "open.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "training.h"

enum { PATH = 4096 };

/* Also what may not be read: opening it says so, and nothing steps in for it. */
static int is_there(const char *folder, const char *name) {
  char path[PATH + 32];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

/* A run's own config.json holds options, not a model: its checkpoints do. */
static int find_folder(opened *o, const char *folder, char *err, size_t n) {
  if (snprintf(o->folder, sizeof o->folder, "%s", folder) >= PATH) return snprintf(err, n, "the name is too long"), 0;
  if (is_there(folder, "model.safetensors")) return 1;
  if (is_there(folder, "log.jsonl")) return training_newest(folder, o->folder, sizeof o->folder, err, n);
  if (!is_there(folder, ".") && errno == ENOTDIR)
    return snprintf(err, n, "%s: a file, not the folder of a model or of a run of `ambi train`", folder), 0;
  if (!is_there(folder, ".")) return snprintf(err, n, "%s: %s", folder, strerror(errno)), 0;
  return snprintf(err, n, "%s: neither a model (config.json, model.safetensors) nor a run of `ambi train`", folder), 0;
}

/* What a fresh byte model was trained with: 256 bytes and the end of a text. */
static tokenizer *find_tokenizer(const opened *o, const char *file, char *err, size_t n) {
  char path[PATH + 32];
  snprintf(path, sizeof path, "%s/tokenizer.json", o->folder);
  if (!file && is_there(o->folder, "tokenizer.json")) file = path;
  if (file) return tokenizer_open(file, err, n);
  tokenizer *t = tokenizer_bytes(1);
  if (!t) snprintf(err, n, "out of memory");
  return t;
}

int model_open(opened *o, const char *folder, const char *tokenizer_file, ambi_device *dev, ambi_dtype dtype, char *err,
               size_t n) {
  char path[PATH + 32];
  model_config c;
  *o = (opened){0};
  if (!find_folder(o, folder, err, n)) return 0;
  snprintf(path, sizeof path, "%s/config.json", o->folder);
  if (!config_read(path, &c, err, n) || !(o->tokens = find_tokenizer(o, tokenizer_file, err, n))) return 0;
  int ok = tokenizer_size(o->tokens) <= c.vocab;
  if (!ok)
    snprintf(err, n, "%s: the model has %lld tokens, its tokenizer %d%s", o->folder, (long long)c.vocab,
             tokenizer_size(o->tokens), tokenizer_file ? "" : "; --tokenizer names another");
  ok = ok && checkpoint_fits(&c, o->folder, err, n);
  ok = ok && model_create(&o->m, dev, &c, dtype, 0, err, n) && checkpoint_load(&o->m, o->folder, err, n);
  if (!ok) model_close(o);
  return ok;
}

void model_close(opened *o) {
  if (o->m.dev) model_destroy(&o->m);
  tokenizer_free(o->tokens);
  o->tokens = NULL;
}
