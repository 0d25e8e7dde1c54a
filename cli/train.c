/* train.c -- `ambi train`: text in, a folder with a model, its log and its report out. */
#define _DEFAULT_SOURCE
#include "train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../models/report.h"
#include "../models/training.h"
#include "../util/sentence.h"
#include "commands.h"
#include "corpus.h"
#include "model_options.h"
#include "print.h"
#include "progress.h"
#include "run_file.h"

enum { PATH = TRAIN_PATH };

static int complain(const char *why) { return fprintf(stderr, "ambi train: %s\n", why), 2; }

/* ---- text ---- */

static int add_corpus(dataset *d, const tokenizer *t, char *err, size_t n) {
  size_t bytes;
  const char *p = corpus_text(&bytes), *end = p + bytes;
  while (p < end) {
    size_t length = strlen(p);
    if (!dataset_add_text(d, t, p, length, err, n)) return 0;
    p += length + 1;
  }
  return 1;
}

static int read_text(const train_arguments *a, const tokenizer *t, dataset *d, char *err, size_t n) {
  int ok = a->file[0] ? 1 : add_corpus(d, t, err, n);
  for (int i = 0; ok && a->file[i]; i++) ok = dataset_add_path(d, t, a->file[i], err, n);
  return ok && dataset_split(d, t, a->o.val, a->o.length, err, n);
}

/* ---- the run ---- */

static volatile int stop;
static const char *farewell = ""; /* said at the first signal: a step may take minutes */

static void on_signal(int number) {
  if (!stop) (void)!write(2, farewell, strlen(farewell));
  if (stop && number != SIGHUP) { /* a second one ends it at once, but a terminal that closes sends several */
    signal(number, SIG_DFL);
    raise(number);
  }
  stop = 1;
}

static void catch_signals(const train_arguments *a) {
  static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
  if (!a->quiet)
    farewell = a->o.save_every ? "\nambi train: stopping after this step, then saving; again: at once, unsaved\n"
                               : "\nambi train: stopping after this step; again: at once\n";
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    struct sigaction was;
    if (sigaction(caught[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) /* which nohup and scripts ask for */
      signal(caught[i], on_signal);
  }
  signal(SIGPIPE, SIG_IGN); /* the run outlives who reads along; main tells that the output was not written */
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write */
}

/* 1.07M, or all the digits of what would be next to nothing of that. */
static const char *count_text(char out[32], int64_t count) {
  snprintf(out, 32, count < 100000 ? "%.0f" : "%.2fM", count < 100000 ? (double)count : 1e-6 * (double)count);
  return out;
}

static void show_plan(const training *t) {
  ambi_device_info device = {0};
  int64_t parameters = 0;
  char p[32], learn[32], held[32];
  const int64_t validation = dataset_tokens(t->data, 1);
  ambi_device_get_info(t->m->dev, &device);
  for (int64_t i = 0; i < t->m->params.count; i++) parameters += t->m->params.param[i].count;
  printf("%s, %s parameters, %s on %s/%s; %lld file%s", config_model_name(&t->m->config), count_text(p, parameters),
         ambi_dtype_name(t->m->dtype), device.name, device.isa, (long long)t->data->files, plural(t->data->files));
  print_left_out(t->data->binary);
  printf(", %s tokens to learn, ", count_text(learn, dataset_tokens(t->data, 0)));
  if (validation || t->options.val <= 0)
    printf("%s to validate; into %s\n", validation ? count_text(held, validation) : "none", t->folder);
  else
    printf("too little text to validate; into %s\n", t->folder);
  fflush(stdout);
}

static void show_result(const training_result *r) {
  const double gib = (double)r->device_bytes / 0x1p30;
  if (r->ran)
    printf("%lld step%s in %.0f s, %.0f tokens/s, %.2f GiB on the device; loss %.4f", (long long)r->steps,
           plural(r->steps), r->seconds, r->tokens_per_s, gib, shown(r->loss));
  else
    printf("stopped before a step was taken, after %lld of them; %.2f GiB on the device", (long long)r->steps, gib);
  if (r->skipped) printf(", %lld step%s skipped", (long long)r->skipped, plural(r->skipped));
  if (isfinite(r->bits_per_byte)) printf(", validation %.3f bits per byte", r->bits_per_byte);
  printf("\n");
}

static int finish(const training *t, const training_result *r, char *err, size_t n) {
  show_result(r);
  if (!report_write(t->folder, err, n)) return 0;
  char newest[PATH], why[PATH];
  if (!training_newest(t->folder, newest, sizeof newest, why, sizeof why))
    return printf("look at %s/report.html; --save-every 0: no model was saved\n", t->folder), 1;
  printf("look at %s/report.html; `ambi generate %s` generates text%s\n", t->folder, t->folder,
         r->stopped ? "; `ambi train --resume` with this folder goes on" : "");
  return 1;
}

/* Tokens of the text without a row in the embedding would be no numbers. */
static int fits(const model_config *c, const tokenizer *t, char *err, size_t n) {
  if (tokenizer_size(t) <= c->vocab) return 1;
  return snprintf(err, n, "the tokenizer has %d ids, the model %lld", tokenizer_size(t), (long long)c->vocab), 0;
}

/* With the device, the text and the tokenizer there. */
static int run(const train_arguments *a, ambi_device *dev, const tokenizer *t, const dataset *d, const char *from,
               const char *folder, char *err, size_t n) {
  model m = {0};
  model_config c;
  training_result result;
  progress p;
  char path[PATH];
  int ok = from ? snprintf(path, sizeof path, "%s/config.json", from) < PATH && config_read(path, &c, err, n)
                : train_config(a, t, &c, err, n);
  ok = ok && fits(&c, t, err, n) && (!from || checkpoint_fits(&c, from, err, n));
  ok = ok && model_create(&m, dev, &c, model_dtype(a->dtype), MODEL_TRAINS, err, n);
  ok = ok && (from ? checkpoint_load(&m, from, err, n) : model_init(&m, (uint64_t)a->o.seed, err, n));
  if (ok) {
    progress_begin(&p, a->o.steps, a->quiet);
    training job = {.m = &m, .tokens = t, .tokenizer_file = a->tokenizer, .data = d, .folder = folder, .options = a->o};
    job.command = a->command;
    job.hooks = progress_hooks(&p, &stop);
    if (a->profile) job.hooks.profile = progress_profile;
    const run_file told = {.dtype = a->dtype,
                           .tokenizer = a->tokenizer,
                           .prompt = a->o.prompt,
                           .count = d->count,
                           .hash = dataset_hash(d)};
    ok = run_file_write(folder, &told, a->file, err, n);
    if (ok) show_plan(&job);
    ok = ok && training_run(&job, from, &result, err, n);
    progress_end(&p);
    ok = ok && finish(&job, &result, err, n);
  }
  if (m.dev) model_destroy(&m);
  return ok;
}

/* --resume: the newest checkpoint into `from`, and what its run was called with. */
static int recall(train_arguments *a, run_file *saved, char *from, char *err, size_t n) {
  if (!a->resume) return 1;
  if (training_is_checkpoint(a->resume))
    return snprintf(err, n, "%s is a checkpoint; --resume takes the folder of its run", a->resume), 0;
  if (!training_newest(a->resume, from, PATH, err, n) || !run_file_resume(a->resume, from, saved, &a->o, err, n))
    return 0;
  a->dtype = saved->dtype;
  if (!a->o.prompt) a->o.prompt = saved->prompt;
  if (!a->file[0]) a->file = saved->file;
  return 1;
}

/* --tokenizer, the one that the checkpoint holds, or bytes. */
static tokenizer *find_tokenizer(train_arguments *a, const run_file *saved, const char *from, char *err, size_t n) {
  char kept[PATH + 32];
  struct stat st;
  if (a->tokenizer) return tokenizer_open(a->tokenizer, err, n);
  a->tokenizer = saved->tokenizer; /* its name, for the record */
  if (!a->tokenizer) return tokenizer_bytes(1);
  snprintf(kept, sizeof kept, "%s/tokenizer.json", from);
  return tokenizer_open(stat(kept, &st) == 0 ? kept : a->tokenizer, err, n);
}

/* Batches are places in the text: with another one the run would be another run. */
static int same_text(const train_arguments *a, const run_file *saved, const dataset *d, char *err, size_t n) {
  const int same = saved->hash ? saved->hash == dataset_hash(d) : !saved->count || saved->count == d->count;
  if (same || a->other_text) return 1;
  return snprintf(err, n,
                  "%s was begun with other text or another tokenizer: %lld tokens then, %lld now; name that text where "
                  "it lies now, or add --other-text to go on with this one",
                  a->resume, (long long)saved->count, (long long)d->count),
         0;
}

/* With the folder claimed, and `saved` and `from` of the run that is gone on with. */
static int train(train_arguments *a, const run_file *saved, const char *from, const char *folder, char *err, size_t n) {
  dataset d = {0};
  ambi_device *dev = NULL;
  tokenizer *t = find_tokenizer(a, saved, from, err, n);
  const ambi_device_options o = {.threads = (int32_t)a->threads, .notify = notify_once};
  int ok = t && read_text(a, t, &d, err, n) && same_text(a, saved, &d, err, n);
  if (ok && ambi_device_open(a->device, &o, &dev) != AMBI_OK) ok = (snprintf(err, n, "%s", ambi_error()), 0);
  catch_signals(a);
  ok = ok && run(a, dev, t, &d, *from ? from : NULL, folder, err, n);
  if (dev) ambi_device_close(dev);
  dataset_free(&d);
  tokenizer_free(t);
  return ok;
}

/* A checkpoint that cannot be read need not be the end of its run. */
static void name_older(const char *run, const char *from, char *err, size_t n) {
  const size_t said = strlen(err);
  const int64_t older = training_before(run, training_steps_done(from));
  if (strstr(err, from) && older >= 0)
    snprintf(err + said, n - said, "; to go on from checkpoint-%lld, remove %s", (long long)older, from);
}

static int carry_out(train_arguments *a) {
  char err[SENTENCE_BYTES] = "", from[PATH] = "";
  run_file saved = {0};
  train_folder folder = {.lock = -1};
  int ok = recall(a, &saved, from, err, sizeof err) && train_in_order(a, err, sizeof err);
  const int64_t done = ok && *from ? training_steps_done(from) : 0;
  if (ok && done >= a->o.steps) {
    printf("%s has its %lld step%s already; `--steps N` with more goes on\n", a->resume, (long long)done, plural(done));
  } else if (ok) {
    ok = train_folder_claim(&folder, a, err, sizeof err) && train(a, &saved, from, folder.path, err, sizeof err);
    train_folder_leave(&folder);
  }
  if (!ok && *from) name_older(a->resume, from, err, sizeof err);
  run_file_free(&saved);
  return ok ? 0 : complain(err);
}

int train_main(int argc, char **argv) {
  static train_arguments a;
  const char **file = calloc((size_t)argc + 1, sizeof *file);
  a.file = file;
  int rc = file ? train_parse(&a, argc, argv) : complain("out of memory");
  if (rc < 0) rc = carry_out(&a);
  free(file);
  return rc;
}
