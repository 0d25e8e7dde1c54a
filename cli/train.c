/* train.c -- `ambi train`: text in, a folder with a model, its log and its report out. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../models/report.h"
#include "../models/training.h"
#include "../util/files.h"
#include "commands.h"
#include "corpus.h"
#include "model_options.h"
#include "options.h"
#include "progress.h"
#include "run_file.h"

enum { PATH = 4096, MAX_FILES = 1024 };

/* What the command line says; the rest of a run's options are training_options. */
typedef struct {
  const char *model, *size, *device, *dtype, *out, *resume, *tokenizer;
  int64_t width, layers, state, heads, kv_heads, head_dim, mlp, vocab, every, untied, threads;
  int quiet, recompute, profile;
  training_options o;
  const char *file[MAX_FILES];
} arguments;

static int complain(const char *why) { return fprintf(stderr, "ambi train: %s\n", why), 2; }

/* ---- models by name ---- */

static const struct {
  const char *name;
  int64_t width, mamba_layers, attention_layers;
} sizes[] = {
    {"tiny", 192, 4, 3}, {"small", 256, 8, 6}, {"10m", 384, 10, 6}, {"130m", 768, 24, 12}, {"370m", 1024, 48, 24}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Every `every`-th layer of a hybrid is attention. */
static void mix(model_config *c, int64_t every) {
  for (int64_t i = 0; every > 0 && i < c->layers; i++) {
    if (i % every == every - 1) c->layer[i] = LAYER_ATTENTION;
  }
}

static int64_t or_else(int64_t given, int64_t usual) { return given > 0 ? given : usual; }

static void apply(const arguments *a, model_config *c) {
  c->mamba.state = or_else(a->state, c->mamba.state);
  c->mamba2.state = or_else(a->state, c->mamba2.state);
  c->attention.head_dim = or_else(a->head_dim, c->attention.head_dim);
  c->attention.heads = or_else(a->heads, c->width / c->attention.head_dim);
  c->attention.kv_heads = or_else(a->kv_heads, c->attention.heads);
  c->attention.mlp = or_else(a->mlp, c->attention.mlp);
  if (a->o.length > c->attention.positions) c->attention.positions = a->o.length;
  if (a->untied) c->tied = 0;
  mix(c, a->every);
}

static int choose_config(const arguments *a, const tokenizer *t, model_config *c, char *err, size_t n) {
  const char *name = strcmp(a->model, "hybrid") == 0 ? "mamba" : a->model;
  int kind = layer_kind_find(name), s = 0;
  if (kind < 0) return snprintf(err, n, "--model %s: there are mamba, mamba2, llama and hybrid", a->model), 0;
  while (s < SIZES && strcmp(sizes[s].name, a->size) != 0) s++;
  if (s == SIZES) return snprintf(err, n, "--size %s: there are tiny, small, 10m, 130m and 370m", a->size), 0;
  const int64_t layers = kind == LAYER_ATTENTION ? sizes[s].attention_layers : sizes[s].mamba_layers;
  if (a->width > CONFIG_MAX_WIDTH || a->layers > CONFIG_MAX_LAYERS)
    return snprintf(err, n, "--width is %d at most, --layers %d", CONFIG_MAX_WIDTH, CONFIG_MAX_LAYERS), 0;
  const int64_t ids = tokenizer_size(t), vocab = or_else(a->vocab, (ids + 63) / 64 * 64);
  if (vocab < ids)
    return snprintf(err, n, "--vocab %lld: the tokenizer has %lld ids", (long long)vocab, (long long)ids), 0;
  *c = config_usual((layer_kind)kind, or_else(a->width, sizes[s].width), or_else(a->layers, layers), vocab);
  c->bos = tokenizer_bos(t);
  c->eos = tokenizer_eos(t);
  arguments b = *a;
  if (strcmp(a->model, "hybrid") == 0 && b.every <= 0) b.every = 4;
  apply(&b, c);
  return config_check(c, err, n);
}

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

static int read_text(const arguments *a, const tokenizer *t, dataset *d, char *err, size_t n) {
  int ok = a->file[0] ? 1 : add_corpus(d, t, err, n);
  for (int i = 0; ok && a->file[i]; i++) ok = dataset_add_path(d, t, a->file[i], err, n);
  return ok && dataset_split(d, t, a->o.val, a->o.length, err, n);
}

/* ---- the folder ---- */

static int exists(const char *path) {
  struct stat st;
  return stat(path, &st) == 0;
}

/* --out, or the first run-N that is not there yet; a run is never written over. */
static int choose_folder(const arguments *a, char *out, size_t size, char *err, size_t n) {
  char log[PATH], newest[PATH], why[PATH];
  if (a->resume) return snprintf(out, size, "%s", a->resume), 1;
  if (!a->out) {
    for (int i = 1; snprintf(out, size, "run-%d", i) > 0 && exists(out);) i++;
    return 1;
  }
  snprintf(out, size, "%s", a->out);
  if (snprintf(log, sizeof log, "%s/log.jsonl", a->out) >= PATH) return snprintf(err, n, "--out is too long"), 0;
  if (!exists(log) || !training_newest(a->out, newest, sizeof newest, why, sizeof why)) return 1;
  return snprintf(err, n, "%s holds a run already: `--resume %s` goes on with it, another --out begins a new one",
                  a->out, a->out),
         0;
}

/* ---- the run ---- */

static volatile int stop;
static void on_signal(int number) {
  if (stop) { /* a second one ends it at once */
    signal(number, SIG_DFL);
    raise(number);
  }
  stop = 1;
}

static void show_plan(const training *t) {
  ambi_device_info device = {0};
  int64_t parameters = 0;
  ambi_device_get_info(t->m->dev, &device);
  for (int64_t i = 0; i < t->m->params.count; i++) parameters += t->m->params.param[i].count;
  printf("%s, %.2fM parameters, %s on %s/%s; %lld files, %.2fM tokens to learn, %.2fM to validate; into %s\n",
         config_is_plain(&t->m->config) ? layer_kind_name((layer_kind)t->m->config.layer[0]) : "hybrid",
         1e-6 * (double)parameters, ambi_dtype_name(t->m->dtype), device.name, device.isa, (long long)t->data->files,
         1e-6 * (double)dataset_tokens(t->data, 0), 1e-6 * (double)dataset_tokens(t->data, 1), t->folder);
  fflush(stdout);
}

static int finish(const training *t, const training_result *r, char *err, size_t n) {
  printf("%lld steps in %.0f s, %.0f tokens/s, %.2f GiB on the device; loss %.4f", (long long)r->steps, r->seconds,
         r->tokens_per_s, (double)r->device_bytes / 0x1p30, r->loss);
  if (isfinite(r->bits_per_byte)) printf(", validation %.3f bits per byte", r->bits_per_byte);
  printf("\n");
  if (!report_write(t->folder, err, n)) return 0;
  printf("look at %s/report.html; `ambi generate %s` writes%s\n", t->folder, t->folder,
         r->stopped ? "; `ambi train --resume` with this folder goes on" : "");
  return 1;
}

/* Tokens of the text without a row in the embedding would be no numbers. */
static int fits(const model_config *c, const tokenizer *t, char *err, size_t n) {
  if (tokenizer_size(t) <= c->vocab) return 1;
  return snprintf(err, n, "the tokenizer has %d ids, the model %lld", tokenizer_size(t), (long long)c->vocab), 0;
}

/* With the device, the text and the tokenizer there. */
static int run(const arguments *a, ambi_device *dev, const tokenizer *t, const dataset *d, const char *from,
               const char *folder, char *err, size_t n) {
  model m = {0};
  model_config c;
  training_result result;
  progress p;
  char path[PATH];
  int ok = from ? snprintf(path, sizeof path, "%s/config.json", from) < PATH && config_read(path, &c, err, n)
                : choose_config(a, t, &c, err, n);
  ok = ok && fits(&c, t, err, n) && (!from || checkpoint_fits(&c, from, err, n));
  ok = ok && model_create(&m, dev, &c, model_dtype(a->dtype), MODEL_TRAINS, err, n);
  ok = ok && (from ? checkpoint_load(&m, from, err, n) : model_init(&m, (uint64_t)a->o.seed, err, n));
  if (ok) {
    progress_begin(&p, a->o.steps, a->quiet);
    training job = {.m = &m, .tokens = t, .tokenizer_file = a->tokenizer, .data = d, .folder = folder, .options = a->o};
    job.hooks = progress_hooks(&p, &stop);
    if (a->profile) job.hooks.profile = progress_profile;
    job.command = "ambi train";
    ok = folder_make(folder, err, n) && run_file_write(folder, a->dtype, a->tokenizer, a->file, d->count, err, n);
    if (ok) show_plan(&job);
    ok = ok && training_run(&job, from, &result, err, n);
    progress_end(&p);
    ok = ok && finish(&job, &result, err, n);
  }
  if (m.dev) model_destroy(&m);
  return ok;
}

/* Numbers of the command line, or of a checkpoint's training.json. */
static int in_order(const arguments *a, char *err, size_t n) {
  const training_options *o = &a->o;
  const struct {
    const char *name;
    double v, least, most;
  } rows[] = {{"threads", (double)a->threads, 0, 4096},
              {"batch", (double)o->batch, 1, 1 << 20},
              {"seq", (double)o->length, 1, 1 << 24},
              {"parts", (double)o->parts, 1, 1 << 20},
              {"steps", (double)o->steps, 1, 1e12},
              {"warmup", (double)o->warmup, 0, 1e12},
              {"lr", o->lr, 0, 100},
              {"min-lr", o->min_lr, 0, 1},
              {"beta1", o->beta1, 0, 0.999999},
              {"beta2", o->beta2, 0, 0.999999},
              {"weight-decay", o->weight_decay, 0, 100},
              {"clip", o->clip, 0, 1e30},
              {"val", o->val, 0, 0.5},
              {"log-every", (double)o->log_every, 0, 1e12},
              {"eval-every", (double)o->eval_every, 0, 1e12},
              {"eval-rows", (double)o->eval_rows, 1, 1 << 20},
              {"sample-every", (double)o->sample_every, 0, 1e12},
              {"sample-tokens", (double)o->sample_tokens, 1, 1 << 20},
              {"save-every", (double)o->save_every, 0, 1e12}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].v >= rows[i].least && rows[i].v <= rows[i].most) continue;
    return snprintf(err, n, "--%s %g: it must be %g to %g", rows[i].name, rows[i].v, rows[i].least, rows[i].most), 0;
  }
  if (model_dtype(a->dtype) == AMBI_NONE) return snprintf(err, n, "--dtype: there are f32, bf16, f16 and f64"), 0;
  return 1;
}

/* Once: a model has many kernels. */
static void notify(void *context, const char *what) {
  int *told = context;
  if (!*told) fprintf(stderr, "ambi: %s\n", what);
  *told = 1;
}

/* --resume: the newest checkpoint into `from`, and what its run was called with. */
static int recall(arguments *a, run_file *saved, char *from, char *err, size_t n) {
  if (!a->resume) return 1;
  if (!training_newest(a->resume, from, PATH, err, n) || !run_file_resume(a->resume, from, saved, &a->o, err, n))
    return 0;
  a->dtype = saved->dtype;
  if (!a->tokenizer) a->tokenizer = saved->tokenizer;
  if (!a->file[0]) memcpy(a->file, saved->file, (size_t)saved->files * sizeof *a->file);
  return 1;
}

static int train(arguments *a) {
  char err[600] = "", from[PATH] = "", folder[PATH];
  run_file saved = {0};
  dataset d = {0};
  tokenizer *t = NULL;
  ambi_device *dev = NULL;
  int told = 0, ok = recall(a, &saved, from, err, sizeof err) && in_order(a, err, sizeof err) &&
                     choose_folder(a, folder, sizeof folder, err, sizeof err);
  if (ok) t = a->tokenizer ? tokenizer_open(a->tokenizer, err, sizeof err) : tokenizer_bytes(1);
  const ambi_device_options o = {.threads = (int32_t)a->threads, .notify = notify, .notify_context = &told};
  ok = ok && t && read_text(a, t, &d, err, sizeof err);
  if (ok && saved.count && saved.count != d.count)
    fprintf(stderr, "ambi train: the text has %lld tokens, it had %lld: losses will not be those of one run\n",
            (long long)d.count, (long long)saved.count);
  if (ok && ambi_device_open(a->device, &o, &dev) != AMBI_OK) ok = (snprintf(err, sizeof err, "%s", ambi_error()), 0);
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write */
  ok = ok && run(a, dev, t, &d, *from ? from : NULL, folder, err, sizeof err);
  if (dev) ambi_device_close(dev);
  dataset_free(&d);
  tokenizer_free(t);
  run_file_free(&saved);
  return ok ? 0 : complain(err);
}

/* ---- options ---- */

/* Of a run that is told nothing; steps INT64_MIN: not given. */
static const training_options usual = {.batch = 8,
                                       .length = 256,
                                       .parts = 1,
                                       .steps = INT64_MIN,
                                       .warmup = -1,
                                       .lr = 4e-3,
                                       .min_lr = 0.1,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .weight_decay = 0.1,
                                       .clip = 1,
                                       .val = 0.05,
                                       .seed = 1,
                                       .log_every = 1,
                                       .eval_every = 200,
                                       .eval_rows = 32,
                                       .sample_every = 250,
                                       .sample_tokens = 300,
                                       .save_every = 250};

static arguments given;

static const option options[] = {
    {"model", OPT_STRING, &given.model, "KIND", "mamba, mamba2, llama or hybrid (mamba)"},
    {"size", OPT_STRING, &given.size, "SIZE",
     "tiny, small, 10m, 130m or 370m (tiny); the next ones change parts of it"},
    {"width", OPT_INT, &given.width, "N", "channels of the residual stream"},
    {"layers", OPT_INT, &given.layers, "N", "number of layers"},
    {"state", OPT_INT, &given.state, "N", "states a channel (mamba 16, mamba2 64)"},
    {"heads", OPT_INT, &given.heads, "N", "heads of attention"},
    {"kv-heads", OPT_INT, &given.kv_heads, "N", "heads of its keys and values"},
    {"head-dim", OPT_INT, &given.head_dim, "N", "channels of a head"},
    {"mlp", OPT_INT, &given.mlp, "N", "channels inside its mlp"},
    {"attention-every", OPT_INT, &given.every, "N", "every N-th layer is attention (hybrid 4)"},
    {"untied", OPT_INT, &given.untied, "1", "a projection of its own instead of the embedding"},
    {"vocab", OPT_INT, &given.vocab, "N", "rows of the embedding; at least the tokenizer's"},
    {"tokenizer", OPT_STRING, &given.tokenizer, "FILE", "a tokenizer.json; otherwise bytes"},
    {"device", OPT_STRING, &given.device, "NAME", "cpu or cuda:0 (cpu)"},
    {"threads", OPT_INT, &given.threads, "N", "threads; 0: all cores"},
    {"dtype", OPT_STRING, &given.dtype, "T", "f32, bf16 or f16 (parameters stay f32), or f64 (f32)"},
    {"batch", OPT_INT, &given.o.batch, "N", "rows at once (8)"},
    {"seq", OPT_INT, &given.o.length, "N", "tokens a row (256)"},
    {"parts", OPT_INT, &given.o.parts, "N", "batches whose gradients make one step (1)"},
    {"recompute", OPT_FLAG, &given.recompute, NULL, "compute activations again in backward: less memory, more time"},
    {"steps", OPT_INT, &given.o.steps, "N", "steps (1400)"},
    {"lr", OPT_DOUBLE, &given.o.lr, "X", "learning rate after the warm-up (4e-3)"},
    {"min-lr", OPT_DOUBLE, &given.o.min_lr, "X", "what its cosine ends at, as a part of it (0.1)"},
    {"warmup", OPT_INT, &given.o.warmup, "N", "steps of warm-up (a twentieth of all)"},
    {"weight-decay", OPT_DOUBLE, &given.o.weight_decay, "X", "of matrices; not norms, biases, A_log, D (0.1)"},
    {"beta1", OPT_DOUBLE, &given.o.beta1, "X", "of AdamW (0.9)"},
    {"beta2", OPT_DOUBLE, &given.o.beta2, "X", "of AdamW (0.95)"},
    {"clip", OPT_DOUBLE, &given.o.clip, "X", "largest norm of the gradient; 0: any (1)"},
    {"seed", OPT_INT, &given.o.seed, "N", "of parameters, batches and samples (1)"},
    {"val", OPT_DOUBLE, &given.o.val, "X", "part of the text for validation (0.05)"},
    {"log-every", OPT_INT, &given.o.log_every, "N", "steps between lines of the log (1)"},
    {"eval-every", OPT_INT, &given.o.eval_every, "N", "steps between evaluations; 0: none (200)"},
    {"eval-rows", OPT_INT, &given.o.eval_rows, "N", "rows of an evaluation (32)"},
    {"sample-every", OPT_INT, &given.o.sample_every, "N", "steps between samples; 0: none (250)"},
    {"sample-tokens", OPT_INT, &given.o.sample_tokens, "N", "tokens of a sample (300)"},
    {"prompt", OPT_STRING, &given.o.prompt, "TEXT", "what samples begin with"},
    {"save-every", OPT_INT, &given.o.save_every, "N", "steps between checkpoints; 0: none (250)"},
    {"out", OPT_STRING, &given.out, "DIR", "the run's folder (run-1, run-2, ..)"},
    {"resume", OPT_STRING, &given.resume, "DIR",
     "go on with the run in DIR; only --steps and --device count beside it"},
    {"profile", OPT_FLAG, &given.profile, NULL, "afterwards, where the time of a step goes"},
    {"quiet", OPT_FLAG, &given.quiet, NULL, "no progress"},
    {0}};

int train_main(int argc, char **argv) {
  arguments *a = &given;
  given = (arguments){.model = "mamba", .size = "tiny", .device = "cpu", .dtype = "f32", .o = usual};
  const command_line spec = {
      "ambi train",
      "[FILES or FOLDERS]",
      "Trains a language model on text: files, or whole folders of them. Without any it learns the\n"
      "sources and documents of ambi itself, which takes some three minutes on two cores.\n"
      "Ctrl-C saves, then stops. Exit status 0: done or stopped; 2: it could not go on.",
      options,
      NULL,
      MAX_FILES - 1};
  int rc = options_parse(&spec, argc, argv, a->file);
  if (rc >= 0) return rc;
  a->o.recompute = a->recompute;
  if (a->o.steps == INT64_MIN) a->o.steps = a->resume ? 0 : 1400; /* 0: as the run has it */
  if (a->o.warmup < 0) a->o.warmup = a->o.steps / 20;
  return train(a);
}
