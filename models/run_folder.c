/* run_folder.c -- see run_folder.h. A line of the log is written and flushed at once: a crash loses at most that line.
 */
#define _POSIX_C_SOURCE 200809L
#include "run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../util/files.h"
#include "../util/json.h"

enum { PATH = 4096, KEPT = 2 };

double run_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double wall_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the log ---- */

/* {"event":"NAME","step":STEP */
static FILE *begin_line(run_folder *r, const char *event, int64_t step) {
  if (r->log) fprintf(r->log, "{\"event\":\"%s\",\"step\":%lld", event, (long long)step);
  return r->log;
}

static void number(FILE *f, const char *name, double v) {
  fprintf(f, ",\"%s\":", name);
  json_write_number(f, v);
}

static void text_member(FILE *f, const char *name, const char *text, size_t bytes) {
  fprintf(f, ",\"%s\":", name);
  json_write_string(f, text, bytes);
}

static void end_line(FILE *f) {
  fputs("}\n", f);
  fflush(f);
}

void run_log_step(run_folder *r, int64_t step, int64_t tokens, double seconds, const double v[NUMBERS], double lr,
                  double rate) {
  FILE *f = begin_line(r, "step", step);
  if (!f) return;
  number(f, "tokens", (double)tokens);
  number(f, "seconds", seconds);
  if (isfinite(v[NUMBER_LOSS]))
    fprintf(f, ",\"loss\":%.17g", v[NUMBER_LOSS]); /* all of it: runs are compared by it */
  else
    number(f, "loss", v[NUMBER_LOSS]);
  number(f, "lr", lr);
  number(f, "grad_norm", v[NUMBER_NORM]);
  number(f, "tokens_per_s", rate);
  end_line(f);
}

void run_log_eval(run_folder *r, int64_t step, int64_t tokens, double seconds, double loss, double bits) {
  FILE *f = begin_line(r, "eval", step);
  if (!f) return;
  number(f, "tokens", (double)tokens);
  number(f, "seconds", seconds);
  number(f, "val_loss", loss);
  number(f, "bits_per_byte", bits);
  end_line(f);
}

void run_log_sample(run_folder *r, int64_t step, const char *text, size_t bytes) {
  FILE *f = begin_line(r, "sample", step);
  if (!f) return;
  text_member(f, "text", text, bytes);
  end_line(f);
}

void run_log_skipped(run_folder *r, int64_t step, const char *why) {
  FILE *f = begin_line(r, "skipped", step);
  if (!f) return;
  text_member(f, "why", why, strlen(why));
  end_line(f);
}

static void log_start(run_folder *r, const training *t, int64_t step) {
  FILE *f = begin_line(r, step ? "resume" : "start", step);
  ambi_device_info device = {0};
  if (!f) return;
  ambi_device_get_info(t->m->dev, &device);
  const char *const texts[] = {"model",     config_model_name(&t->m->config),
                               "device",    device.name,
                               "isa",       device.isa,
                               "dtype",     ambi_dtype_name(t->m->dtype),
                               "tokenizer", t->tokenizer_file ? t->tokenizer_file : "bytes",
                               "command",   t->command};
  int64_t parameters = 0;
  for (int64_t i = 0; i < t->m->params.count; i++) parameters += t->m->params.param[i].count;
  number(f, "time", wall_seconds());
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i += 2) {
    if (texts[i + 1]) text_member(f, texts[i], texts[i + 1], strlen(texts[i + 1]));
  }
  const training_options *o = &t->options;
  const struct {
    const char *name;
    double v;
  } numbers[] = {{"parameters", (double)parameters},
                 {"batch", (double)(o->batch * o->parts)},
                 {"seq", (double)o->length},
                 {"steps", (double)o->steps},
                 {"lr", o->lr},
                 {"seed", (double)o->seed},
                 {"files", (double)t->data->files},
                 {"train_tokens", (double)dataset_tokens(t->data, 0)},
                 {"val_tokens", (double)dataset_tokens(t->data, 1)}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) number(f, numbers[i].name, numbers[i].v);
  end_line(f);
}

/* Seconds of the last line that has some and is not beyond `step`: the run goes on counting from there. */
static double seconds_before(const char *path, int64_t step) {
  char *line = NULL, why[100];
  size_t room = 0;
  double seconds = 0;
  FILE *f = fopen(path, "r");
  for (ssize_t n; f && (n = getline(&line, &room, f)) > 0;) {
    json_doc *doc = json_parse(line, (size_t)n, why, sizeof why);
    const json_value *s = doc ? json_get(json_root(doc), "seconds") : NULL;
    const json_value *at = doc ? json_get(json_root(doc), "step") : NULL;
    if (s && s->type == JSON_NUMBER && at && at->is_int && at->integer <= step) seconds = s->number;
    json_free(doc);
  }
  if (f) fclose(f);
  free(line);
  return seconds;
}

/* A line that a crash cut off gets its end, so that the next one is whole. */
static void mend_log(FILE *log) {
  if (fseek(log, -1, SEEK_END) == 0 && fgetc(log) != '\n') {
    fseek(log, 0, SEEK_END);
    fputc('\n', log);
  }
  fseek(log, 0, SEEK_END);
}

/* ---- checkpoints ---- */

/* N of checkpoint-N, or -1. */
static int64_t number_of(const char *name) {
  static const char prefix[] = "checkpoint-";
  char *end;
  if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
  const char *digits = name + sizeof prefix - 1;
  if (*digits < '0' || *digits > '9') return -1;
  long long v = strtoll(digits, &end, 10);
  return *end ? -1 : (int64_t)v;
}

int64_t training_before(const char *folder, int64_t step) {
  int64_t best = -1;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    int64_t v = number_of(e->d_name);
    if (v > best && v < step) best = v;
  }
  if (d) closedir(d);
  return best;
}

int64_t training_steps_done(const char *checkpoint) {
  const char *slash = strrchr(checkpoint, '/');
  return number_of(slash ? slash + 1 : checkpoint);
}

int training_is_checkpoint(const char *folder) {
  char path[PATH];
  return snprintf(path, sizeof path, "%s/optimizer.safetensors", folder) < PATH && access(path, F_OK) == 0;
}

int training_newest(const char *folder, char *path, size_t size, char *err, size_t n) {
  int64_t v = training_before(folder, INT64_MAX);
  if (v < 0) {
    DIR *d = opendir(folder);
    snprintf(err, n, "%s: %s", folder, d ? "there is no checkpoint in it" : strerror(errno));
    if (d) closedir(d);
    return 0;
  }
  snprintf(path, size, "%s/checkpoint-%lld", folder, (long long)v);
  return 1;
}

int run_save(run_folder *r, const training *t, const optimizer *o, int64_t step, const char *options, char *err,
             size_t n) {
  char path[PATH];
  if (!r->folder) return 1;
  snprintf(path, sizeof path, "%s/checkpoint-%lld", r->folder, (long long)step);
  if (!checkpoint_save(t->m, o, step, path, options, t->tokenizer_file ? t->tokens : NULL, err, n)) return 0;
  FILE *f = begin_line(r, "save", step);
  text_member(f, "path", path + strlen(r->folder) + 1, strlen(path) - strlen(r->folder) - 1);
  end_line(f);
  int64_t old = step;
  for (int i = 1; i < KEPT && old >= 0; i++) old = training_before(r->folder, old);
  while (old >= 0 && (old = training_before(r->folder, old)) >= 0) {
    snprintf(path, sizeof path, "%s/checkpoint-%lld", r->folder, (long long)old);
    checkpoint_remove(path);
  }
  return 1;
}

/* What saves that were killed have left behind. */
static void remove_drafts(const char *folder) {
  char path[PATH];
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    const size_t length = strlen(e->d_name);
    if (strncmp(e->d_name, "checkpoint-", 11) != 0 || length < 5 || strcmp(e->d_name + length - 5, ".part") != 0)
      continue;
    if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < PATH) checkpoint_remove(path);
  }
  if (d) closedir(d);
}

/* ---- begin and end ---- */

int run_begin(run_folder *r, const training *t, int64_t step, double *before, char *err, size_t n) {
  char path[PATH];
  *r = (run_folder){.folder = t->folder};
  *before = 0;
  if (!t->folder) return 1;
  if (!folder_make(t->folder, err, n)) return 0;
  remove_drafts(t->folder);
  char *options = training_options_text(&t->options);
  snprintf(path, sizeof path, "%s/config.json", t->folder);
  int ok = options && file_write(path, options, strlen(options), err, n);
  free(options);
  if (!ok) return 0;
  snprintf(path, sizeof path, "%s/log.jsonl", t->folder);
  if (step) *before = seconds_before(path, step);
  r->log = fopen(path, step ? "a+" : "w");
  if (!r->log) return snprintf(err, n, "%s: %s", path, strerror(errno)), 0;
  if (step) mend_log(r->log);
  log_start(r, t, step);
  return 1;
}

int run_end(run_folder *r, int64_t step, double seconds, const char *why, char *err, size_t n, int ok) {
  if (!r->log) return 1;
  FILE *f = begin_line(r, "end", step);
  number(f, "seconds", seconds);
  text_member(f, "why", why, strlen(why));
  end_line(f);
  int written = !ferror(r->log);
  if (fclose(r->log) != 0) written = 0;
  r->log = NULL;
  if (!written && ok) snprintf(err, n, "%s/log.jsonl: %s", r->folder, strerror(errno ? errno : EIO));
  return written;
}

/* ---- samples ---- */

static int put(run_text *out, const char *piece, size_t bytes) {
  char *grown = realloc(out->data, out->bytes + bytes + 1);
  if (!grown) return 0;
  out->data = grown;
  memcpy(grown + out->bytes, piece, bytes);
  out->bytes += bytes;
  grown[out->bytes] = 0;
  return 1;
}

/* What the tokenizer wants before every text, then the text. */
static int64_t encode(const tokenizer *t, const char *text, int32_t **ids) {
  const int32_t *before, *after;
  int n_before, n_after;
  int64_t count = tokenizer_encode(t, text, strlen(text), ids);
  tokenizer_around(t, &before, &n_before, &after, &n_after);
  if (count < 0 || n_before == 0) return count;
  int32_t *grown = realloc(*ids, (size_t)(count + n_before) * sizeof *grown);
  if (!grown) return free(*ids), *ids = NULL, -1;
  memmove(grown + n_before, grown, (size_t)count * sizeof *grown);
  memcpy(grown, before, (size_t)n_before * sizeof *grown);
  *ids = grown;
  return count + n_before;
}

int64_t run_prompt(const tokenizer *t, const char *prompt, int32_t **ids) {
  const int32_t begin = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eos(t);
  if (prompt && *prompt) return encode(t, prompt, ids);
  if (begin < 0) return tokenizer_encode(t, "\n", 1, ids);
  *ids = malloc(sizeof **ids);
  if (!*ids) return -1;
  **ids = begin;
  return 1;
}

int run_sample(generator *g, const tokenizer *t, const char *prompt, int64_t count, uint64_t seed, run_text *out,
               char *err, size_t n) {
  const sample_options o = {.temperature = 0.8, .top_p = 0.95};
  const int64_t vocab = g->m->config.vocab;
  dice r = {seed, 0};
  int32_t *ids = NULL;
  int64_t prompted = run_prompt(t, prompt, &ids);
  double *logits = malloc((size_t)vocab * sizeof *logits);
  int ok = prompted > 0 && logits && (!prompt || put(out, prompt, strlen(prompt)));
  if (!ok) snprintf(err, n, "out of memory");
  ok = ok && generator_reset(g, err, n) && generator_read(g, ids, prompted, logits, err, n);
  for (int64_t i = 0; ok && i < count; i++) {
    size_t bytes;
    const int32_t next = sample(logits, tokenizer_size(t) < vocab ? tokenizer_size(t) : vocab, &o, NULL, 0, &r);
    const char *piece = tokenizer_token(t, next, &bytes);
    if (next == tokenizer_eos(t) && i > 0) break;
    ok = put(out, piece, bytes) || (snprintf(err, n, "out of memory"), 0);
    ok = ok && (i + 1 == count || generator_read(g, &next, 1, logits, err, n));
  }
  free(ids);
  free(logits);
  return ok;
}
