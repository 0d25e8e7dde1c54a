/* train_options.c -- the options of `ambi train`, see train.h: their table, their ranges, and the model they describe.
 */
#include <stdio.h>
#include <string.h>

#include "../util/sentence.h"
#include "model_options.h"
#include "options.h"
#include "train.h"

/* ---- models by name ---- */

static const struct {
  const char *name;
  int64_t width, mamba_layers, attention_layers;
} sizes[] = {
    {"tiny", 192, 4, 3}, {"small", 256, 8, 6}, {"10m", 384, 10, 6}, {"130m", 768, 24, 12}, {"370m", 1024, 48, 24}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Every `every`-th layer of a hybrid is attention. */
enum { HYBRID_EVERY = 4 };

static void mix(model_config *c, int64_t every) {
  for (int64_t i = 0; every > 0 && i < c->layers; i++) {
    if (i % every == every - 1) c->layer[i] = LAYER_ATTENTION;
  }
}

static int64_t or_else(int64_t given, int64_t usual) { return given == NOT_GIVEN ? usual : given; }

static void apply(const train_arguments *a, model_config *c) {
  c->mamba.state = or_else(a->state, c->mamba.state);
  c->mamba2.state = or_else(a->state, c->mamba2.state);
  c->attention.head_dim = or_else(a->head_dim, c->attention.head_dim);
  c->attention.heads = or_else(a->heads, c->width / c->attention.head_dim);
  c->attention.kv_heads = or_else(a->kv_heads, c->attention.heads);
  c->attention.mlp = or_else(a->mlp, c->attention.mlp);
  if (a->o.length > c->attention.positions) c->attention.positions = a->o.length;
  if (a->untied > 0) c->tied = 0;
  mix(c, or_else(a->every, strcmp(a->model, "hybrid") == 0 ? HYBRID_EVERY : 0));
}

/* What was given for layers that the model has none of would be left aside without a word. */
static int options_apply(const train_arguments *a, const model_config *c, char *err, size_t n) {
  int64_t attention = 0;
  for (int64_t i = 0; i < c->layers; i++) attention += c->layer[i] == LAYER_ATTENTION;
  const struct {
    const char *name;
    int64_t given, layers;
  } rows[] = {{"heads", a->heads, attention},
              {"kv-heads", a->kv_heads, attention},
              {"head-dim", a->head_dim, attention},
              {"mlp", a->mlp, attention},
              {"state", a->state, c->layers - attention}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].given != NOT_GIVEN && !rows[i].layers)
      return snprintf(err, n, "--%s: this model, %s, has no layer with it", rows[i].name, config_model_name(c)), 0;
  if (strcmp(a->model, "hybrid") == 0 && config_is_plain(c))
    return snprintf(err, n, "--model hybrid: %lld layers, every %lldth of them attention, are all alike",
                    (long long)c->layers, (long long)or_else(a->every, HYBRID_EVERY)),
           0;
  if (attention && a->heads == NOT_GIVEN && c->attention.heads < 1)
    return snprintf(err, n, "--width %lld has no room for a head of %lld: --head-dim or --heads", (long long)c->width,
                    (long long)c->attention.head_dim),
           0;
  return 1;
}

int train_config(const train_arguments *a, const tokenizer *t, model_config *c, char *err, size_t n) {
  const char *name = strcmp(a->model, "hybrid") == 0 ? "mamba" : a->model;
  int kind = layer_kind_find(name), s = 0;
  if (kind < 0) return snprintf(err, n, "--model %s: there are mamba, mamba2, llama and hybrid", a->model), 0;
  while (s < SIZES && strcmp(sizes[s].name, a->size) != 0) s++;
  if (s == SIZES) return snprintf(err, n, "--size %s: there are tiny, small, 10m, 130m and 370m", a->size), 0;
  const int64_t layers = kind == LAYER_ATTENTION ? sizes[s].attention_layers : sizes[s].mamba_layers;
  const int64_t ids = tokenizer_size(t), vocab = or_else(a->vocab, (ids + 63) / 64 * 64);
  if (vocab < ids)
    return snprintf(err, n, "--vocab %lld: the tokenizer has %lld ids", (long long)vocab, (long long)ids), 0;
  *c = config_usual((layer_kind)kind, or_else(a->width, sizes[s].width), or_else(a->layers, layers), vocab);
  c->bos = tokenizer_bos(t);
  c->eos = tokenizer_eos(t);
  apply(a, c);
  return options_apply(a, c, err, n) && config_check(c, err, n);
}

/* ---- ranges ---- */

/* A size that was not given is the one of --size. */
static double size_of(int64_t given) { return given == NOT_GIVEN ? 1 : (double)given; }

static int sizes_in_order(const train_arguments *a, char *err, size_t n) {
  const option_range rows[] = {{"width", size_of(a->width), 1, CONFIG_MAX_WIDTH},
                               {"layers", size_of(a->layers), 1, CONFIG_MAX_LAYERS},
                               {"state", size_of(a->state), 1, 1 << 20},
                               {"heads", size_of(a->heads), 1, 1 << 20},
                               {"kv-heads", size_of(a->kv_heads), 1, 1 << 20},
                               {"head-dim", size_of(a->head_dim), 1, 1 << 20},
                               {"mlp", size_of(a->mlp), 1, 1 << 24},
                               {"vocab", size_of(a->vocab), 1, 1 << 30},
                               {"attention-every", size_of(a->every), 1, CONFIG_MAX_LAYERS},
                               {"untied", (double)a->untied, 0, 1},
                               {"threads", (double)a->threads, 0, OPTION_MOST_THREADS}};
  return options_in_range(rows, sizeof rows / sizeof *rows, err, n);
}

int train_in_order(const train_arguments *a, char *err, size_t n) {
  const training_options *o = &a->o;
  const option_range rows[] = {{"batch", (double)o->batch, 1, 1 << 20},
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
  if (!sizes_in_order(a, err, n) || !options_in_range(rows, sizeof rows / sizeof *rows, err, n)) return 0;
  return model_options_known(a->device, a->dtype, err, n);
}

/* ---- options ---- */

/* Of a run that is told nothing. */
static const train_arguments usual = {.model = "mamba",
                                      .size = "tiny",
                                      .device = "cpu",
                                      .dtype = "f32",
                                      .width = NOT_GIVEN,
                                      .layers = NOT_GIVEN,
                                      .state = NOT_GIVEN,
                                      .heads = NOT_GIVEN,
                                      .kv_heads = NOT_GIVEN,
                                      .head_dim = NOT_GIVEN,
                                      .mlp = NOT_GIVEN,
                                      .vocab = NOT_GIVEN,
                                      .every = NOT_GIVEN,
                                      .o = {.batch = 8,
                                            .length = 256,
                                            .parts = 1,
                                            .steps = NOT_GIVEN,
                                            .warmup = NOT_GIVEN,
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
                                            .save_every = 250}};

static train_arguments given;

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
    {"untied", OPT_INT, &given.untied, "[1]", "a projection of its own instead of the embedding"},
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
    {"save-every", OPT_INT, &given.o.save_every, "N", "steps between checkpoints; 0: none, not even the last (250)"},
    {"out", OPT_STRING, &given.out, "DIR", "the run's folder (run-1, run-2, ..)"},
    {"resume", OPT_STRING, &given.resume, "DIR",
     "go on with the run in DIR; beside it --steps, --device, --threads, --tokenizer, --prompt, its text"},
    {"other-text", OPT_FLAG, &given.other_text, NULL, "with --resume: go on though the text is another"},
    {"profile", OPT_FLAG, &given.profile, NULL, "afterwards, where the time of a step goes"},
    {"quiet", OPT_FLAG, &given.quiet, NULL, "no progress"},
    {0}};

/* What a run was begun with stays; an option that would change it is refused rather than left aside. */
static int may_resume(const command_line *spec, int argc, char **argv) {
  static const char free_to_change[] = "steps device threads tokenizer prompt profile quiet resume other-text";
  const char *fixed = options_beyond(spec, argc, argv, free_to_change);
  return fixed ? options_wrong(spec, "--%s: a run goes on with what it was begun with", fixed) : -1;
}

/* The words of the command line, those with blanks in quotes. */
static void keep_command(train_arguments *a, int argc, char **argv) {
  size_t at = (size_t)snprintf(a->command, sizeof a->command, "ambi train");
  for (int i = 1; i < argc && at < sizeof a->command; i++) {
    const char *quote = strpbrk(argv[i], " \t\n\"") || !*argv[i] ? "'" : "";
    at += (size_t)snprintf(a->command + at, sizeof a->command - at, " %s%s%s", quote, argv[i], quote);
  }
}

int train_parse(train_arguments *a, int argc, char **argv) {
  char err[SENTENCE_BYTES];
  given = usual;
  given.file = a->file;
  const command_line spec = {
      "ambi train",
      "[FILES or FOLDERS]",
      "Trains a language model on text: files, or whole folders of them. Without any it learns the\n"
      "sources and documents of ambi itself, which takes two or three minutes on two cores.\n"
      "Of folders, binary files (that hold a NUL), names that begin with a dot, links and folders of runs are left "
      "out.\n"
      "Ctrl-C, SIGTERM and a closed terminal end the step, save, and stop; Ctrl-C again stops at once.\n"
      "Exit status 0: done or stopped; 1: the same, but what it printed could not be written;\n"
      "2: it could not go on.",
      options,
      NULL,
      argc};
  int rc = options_parse(&spec, argc, argv, given.file);
  for (int i = 0; rc < 0 && given.file[i]; i++)
    if (strcmp(given.file[i], "-") == 0)
      rc = options_wrong(&spec,
                         "-: standard input is not read, as --resume could not read it again: write it into a "
                         "file first");
  if (rc < 0 && !options_there(given.file, (size_t)argc, err, sizeof err)) rc = options_wrong(&spec, "%s", err);
  if (rc < 0 && given.other_text && !given.resume) rc = options_wrong(&spec, "--other-text is for --resume");
  if (rc < 0 && given.resume) rc = may_resume(&spec, argc, argv);
  if (rc >= 0) return rc;
  *a = given;
  keep_command(a, argc, argv);
  a->o.recompute = a->recompute;
  if (a->o.steps == NOT_GIVEN) a->o.steps = a->resume ? 0 : 1400; /* 0: as the run has it */
  if (a->o.warmup == NOT_GIVEN) a->o.warmup = a->o.steps / 20;
  return -1;
}
