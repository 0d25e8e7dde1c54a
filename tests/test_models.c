/* test_models.c -- every kind of model, small: that it learns, that what must not matter does not, that generating
 * with a state is the same as looking at all of the text, that checkpoints hold everything, and that numbers which are
 * none are found. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../models/checkpoint.h"
#include "../models/diagnose.h"
#include "../models/generator.h"
#include "../models/training.h"
#include "test.h"

enum { VOCAB = 48, MOST = 16 };
enum { HYBRID = LAYER_KINDS, MODELS };
static const char *const names[MODELS] = {"mamba", "mamba2", "llama", "hybrid"};

static ambi_device *devices[3]; /* [threads] */
static char err[600];

/* ---- small models ---- */

static model_config config_of(int kind, int64_t width) {
  model_config c = config_usual(kind == HYBRID ? LAYER_MAMBA : (layer_kind)kind, width, kind == HYBRID ? 3 : 2, VOCAB);
  c.mamba.state = 8;
  c.mamba2.head_dim = 16;
  c.mamba2.heads = 2 * width / 16;
  c.mamba2.groups = 2;
  c.mamba2.state = 16;
  c.attention.head_dim = 8;
  c.attention.heads = width / 8;
  c.attention.kv_heads = width / 16;
  c.tied = kind != LAYER_ATTENTION;
  if (kind == HYBRID) c.layer[1] = LAYER_ATTENTION, c.layer[2] = LAYER_MAMBA2;
  return c;
}

typedef struct {
  int kind, threads, recompute;
  int64_t width, batch, length, parts, steps;
  ambi_dtype dtype;
  double lr;
} run_spec;

static int make(model *m, const run_spec *s) {
  const model_config c = config_of(s->kind, s->width);
  return CHECK(model_create(m, devices[s->threads], &c, s->dtype, MODEL_TRAINS, err, sizeof err) &&
                   model_init(m, 5, err, sizeof err),
               "%s: %s", names[s->kind], err);
}

static trainer_options options_of(const run_spec *s) {
  return (trainer_options){.batch = s->batch,
                           .length = s->length,
                           .parts = s->parts,
                           .recompute = s->recompute,
                           .optimizer = {0.9, 0.95, 1e-8, 0.01, 1, 0}};
}

/* The same tokens however they are cut into batches; each row's targets are the tokens behind it. */
static void fill(int32_t *tokens, int32_t *targets, int64_t rows, int64_t length, int64_t first) {
  for (int64_t r = 0; r < rows; r++) {
    dice d = {(uint64_t)(first + r), 0};
    for (int64_t i = 0; i <= length; i++) {
      const int32_t t = i == 0 ? (int32_t)((first + r) % VOCAB) : (int32_t)dice_below(&d, VOCAB);
      if (i < length) tokens[r * length + i] = t;
      if (i > 0) targets[r * length + i - 1] = t;
    }
  }
}

/* Losses of the same batch over and over. */
static int learn(const run_spec *s, double *losses) {
  model m;
  trainer r;
  const trainer_options o = options_of(s);
  const int64_t count = s->batch * s->length;
  int32_t *tokens = malloc((size_t)count * sizeof *tokens), *targets = malloc((size_t)count * sizeof *targets);
  double v[NUMBERS] = {0};
  int ok = make(&m, s) && CHECK(trainer_create(&r, &m, &o, err, sizeof err), "%s: %s", names[s->kind], err);
  for (int64_t i = 0; ok && i < s->steps; i++) {
    losses[i] = 0;
    for (int64_t part = 0; ok && part < s->parts; part++) {
      fill(tokens, targets, s->batch, s->length, part * s->batch);
      ok = trainer_part(&r, part, tokens, targets, s->lr, err, sizeof err) && trainer_numbers(&r, v, err, sizeof err);
      losses[i] += v[NUMBER_LOSS] / (double)s->parts;
    }
    CHECK(ok, "%s: %s", names[s->kind], err);
  }
  free(tokens);
  free(targets);
  if (ok) trainer_destroy(&r), model_destroy(&m);
  return ok;
}

/* ---- learning ---- */

static void test_overfit(void) {
  for (int k = 0; k < MODELS; k++) {
    double losses[120];
    const run_spec s = {k, 2, 0, 32, 2, 16, 1, 120, AMBI_F32, 1e-2};
    if (!learn(&s, losses)) continue;
    CHECK(fabs(losses[0] - log(VOCAB)) < 0.3, "%s: begins at %g, chance is %g", names[k], losses[0], log(VOCAB));
    CHECK(losses[119] < 0.02, "%s: one batch is not learnt: %g", names[k], losses[119]);
  }
}

/* Doing layers again takes more steps and less memory. */
static void test_recompute(void) {
  for (int k = 0; k < MODELS; k++) {
    tape_size size[2] = {{0}, {0}};
    for (int again = 0; again < 2; again++) {
      const run_spec s = {k, 2, again, 32, 8, 64, 1, 0, AMBI_F32, 0};
      const trainer_options o = options_of(&s);
      model m;
      trainer r;
      if (!make(&m, &s)) continue;
      if (CHECK(trainer_create(&r, &m, &o, err, sizeof err), "%s", err))
        size[again] = tape_get_size(r.t), trainer_destroy(&r);
      model_destroy(&m);
    }
    CHECK(size[1].steps > size[0].steps && size[1].arena < size[0].arena,
          "%s: %lld steps and %llu bytes, not %lld and %llu", names[k], (long long)size[1].steps,
          (unsigned long long)size[1].arena, (long long)size[0].steps, (unsigned long long)size[0].arena);
  }
}

/* Nothing of this may change a bit. */
static void test_same_bits(void) {
  for (int k = 0; k < MODELS; k++) {
    double want[6], got[6];
    run_spec s = {k, 1, 0, 64, 4, 80, 1, 6, AMBI_F32, 3e-3};
    if (!learn(&s, want)) continue;
    s.threads = 2;
    if (learn(&s, got)) CHECK(memcmp(want, got, sizeof want) == 0, "%s: threads matter", names[k]);
    s.recompute = 1;
    if (learn(&s, got)) CHECK(memcmp(want, got, sizeof want) == 0, "%s: recomputation matters", names[k]);
    s.dtype = AMBI_BF16;
    s.recompute = 0;
    if (!learn(&s, want)) continue;
    s.threads = 1;
    if (learn(&s, got)) CHECK(memcmp(want, got, sizeof want) == 0, "%s: threads matter in bf16", names[k]);
  }
}

/* bf16 has 8 bits: logits of size 1 are off by some 1 / 256, their loss by less. */
static void test_short(void) {
  static const ambi_dtype dtypes[] = {AMBI_BF16, AMBI_F16};
  for (int k = 0; k < MODELS; k++) {
    double want[MOST], got[MOST];
    run_spec s = {k, 2, 0, 64, 4, 32, 1, MOST, AMBI_F32, 3e-3};
    if (!learn(&s, want)) continue;
    for (int d = 0; d < 2; d++) {
      s.dtype = dtypes[d];
      if (!learn(&s, got)) continue;
      double worst = 0;
      for (int i = 0; i < MOST; i++) worst = fmax(worst, fabs(got[i] - want[i]) / want[i]);
      CHECK(worst < 1.0 / 64, "%s: %s is off by %g", names[k], ambi_dtype_name(dtypes[d]), worst);
      CHECK(worst > 0, "%s: %s is f32", names[k], ambi_dtype_name(dtypes[d]));
    }
  }
}

/* Two parts of two rows are four rows, up to the order of sums. */
static void test_parts(void) {
  for (int k = 0; k < MODELS; k++) {
    double whole[MOST], parts[MOST];
    run_spec s = {k, 2, 0, 32, 4, 24, 1, MOST, AMBI_F64, 3e-3};
    if (!learn(&s, whole)) continue;
    s.batch = 2;
    s.parts = 2;
    if (!learn(&s, parts)) continue;
    double worst = 0;
    for (int i = 0; i < MOST; i++) worst = fmax(worst, fabs(whole[i] - parts[i]) / whole[i]);
    CHECK(worst < 1e-9, "%s: parts are off by %g", names[k], worst);
  }
}

/* ---- generating ---- */

/* Logits of every token, (batch length, vocabulary). */
static int all_logits(model *m, int64_t batch, int64_t length, const int32_t *tokens, double *logits) {
  const trainer_options o = {.batch = batch, .length = length, .forward_only = 1};
  const int64_t count = batch * length * VOCAB;
  const size_t bytes = (size_t)count * ambi_dtype_size(m->dtype);
  trainer r;
  double loss;
  void *raw = malloc(bytes);
  int ok = trainer_create(&r, m, &o, err, sizeof err) && trainer_loss(&r, tokens, tokens, &loss, err, sizeof err) &&
           ambi_download(m->stream, raw, tape_buffer(r.t, r.logits), bytes) == AMBI_OK &&
           ambi_stream_wait(m->stream) == AMBI_OK;
  if (CHECK(ok, "%s", err)) model_values(m->dtype, raw, logits, count);
  trainer_destroy(&r);
  free(raw);
  return ok;
}

static double difference(const double *a, const double *b, int64_t n) {
  double worst = 0, most = 1e-30;
  for (int64_t i = 0; i < n; i++) {
    if (!(fabs(a[i] - b[i]) <= worst)) worst = fabs(a[i] - b[i]);
    most = fmax(most, fabs(b[i]));
  }
  return worst / most;
}

/* A prompt of that many tokens read at once, then the rest of the row token by token. */
static void check_prompt(const char *name, generator *g, const int32_t *row, int64_t rows, int64_t length,
                         int64_t prompt, const double *want, double allowed) {
  int32_t *start = malloc((size_t)(rows * prompt) * sizeof *start), next[4];
  double got[4 * VOCAB];
  for (int64_t b = 0; b < rows; b++) memcpy(start + b * prompt, row + b * length, (size_t)prompt * sizeof *start);
  int ok = generator_reset(g, err, sizeof err) && generator_read(g, start, prompt, got, err, sizeof err);
  double worst = 0;
  for (int64_t at = prompt; ok; at++) {
    for (int64_t b = 0; b < rows; b++)
      worst = fmax(worst, difference(got + b * VOCAB, want + (b * length + at - 1) * VOCAB, VOCAB));
    if (at == length) break;
    for (int64_t b = 0; b < rows; b++) next[b] = row[b * length + at];
    ok = generator_read(g, next, 1, got, err, sizeof err);
  }
  CHECK(ok, "%s, a prompt of %lld: %s", name, (long long)prompt, err);
  CHECK(worst <= allowed, "%s: after a prompt of %lld tokens logits are off by %g", name, (long long)prompt, worst);
  free(start);
}

static void test_generate(void) {
  enum { LENGTH = 76, BATCH = 3 };
  static const int64_t prompts[] = {1, 5, 31, 32, 33, 64, 70, 76};
  static const struct {
    ambi_dtype dtype;
    double allowed; /* rounding, through a few layers */
  } rows[] = {{AMBI_F64, 1e-12}, {AMBI_F32, 1e-4}};
  for (int k = 0; k < MODELS; k++) {
    for (int d = 0; d < 2; d++) {
      int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
      static double logits[BATCH * LENGTH * VOCAB];
      model m;
      generator g;
      const run_spec s = {.kind = k, .threads = 2, .width = 32, .dtype = rows[d].dtype};
      fill(tokens, targets, BATCH, LENGTH, 3);
      if (!make(&m, &s)) continue;
      if (all_logits(&m, BATCH, LENGTH, tokens, logits)) {
        for (int64_t batch = 1; batch <= BATCH; batch += BATCH - 1) {
          if (!CHECK(generator_create(&g, &m, batch, LENGTH, err, sizeof err), "%s", err)) continue;
          for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++)
            check_prompt(names[k], &g, tokens, batch, LENGTH, prompts[p], logits, rows[d].allowed);
          if (config_of(k, 32).layer[1] == LAYER_ATTENTION) {
            double more[BATCH * VOCAB];
            CHECK(!generator_read(&g, tokens, 1, more, err, sizeof err) && strstr(err, "room"),
                  "%s: more tokens than there is room for", names[k]);
          }
          generator_destroy(&g);
        }
      }
      model_destroy(&m);
    }
  }
}

/* The most likely token, again and again: with the state, and from the whole text each time. */
static void test_greedy(void) {
  enum { PROMPT = 35, LENGTH = PROMPT + 8 };
  for (int k = 0; k < MODELS; k++) {
    static double logits[LENGTH * VOCAB];
    int32_t with[LENGTH], without[LENGTH], targets[LENGTH];
    double next[VOCAB];
    model m;
    generator g;
    const run_spec s = {.kind = k, .threads = 2, .width = 32, .dtype = AMBI_F64};
    fill(with, targets, 1, PROMPT, 9);
    memcpy(without, with, sizeof with);
    if (!make(&m, &s)) continue;
    int ok =
        generator_create(&g, &m, 1, LENGTH, err, sizeof err) && generator_read(&g, with, PROMPT, next, err, sizeof err);
    for (int64_t i = PROMPT; ok && i < LENGTH; i++) {
      with[i] = sample(next, VOCAB, &(sample_options){0}, with, i, NULL);
      ok = generator_read(&g, &with[i], 1, next, err, sizeof err) && all_logits(&m, 1, i, without, logits);
      without[i] = sample(logits + (i - 1) * VOCAB, VOCAB, &(sample_options){0}, without, i, NULL);
    }
    CHECK(ok, "%s: %s", names[k], err);
    CHECK(memcmp(with, without, sizeof with) == 0, "%s: another continuation", names[k]);
    generator_destroy(&g);
    model_destroy(&m);
  }
}

/* In the short dtypes too: the state rounds where the whole text does not, so only roughly the same. */
static void test_short_generate(void) {
  enum { LENGTH = 40 };
  static const ambi_dtype dtypes[] = {AMBI_BF16, AMBI_F16};
  for (int k = 0; k < MODELS * 2; k++) {
    static double want[LENGTH * VOCAB];
    int32_t tokens[LENGTH], targets[LENGTH];
    double got[VOCAB];
    model m;
    generator g;
    const run_spec s = {.kind = k / 2, .threads = 2, .width = 32, .dtype = dtypes[k % 2]};
    fill(tokens, targets, 1, LENGTH, 4);
    if (!make(&m, &s)) continue;
    int ok = all_logits(&m, 1, LENGTH, tokens, want) && generator_create(&g, &m, 1, LENGTH, err, sizeof err);
    if (CHECK(ok && generator_read(&g, tokens, LENGTH, got, err, sizeof err), "%s: %s", names[k / 2], err)) {
      const double error = difference(got, want + (LENGTH - 1) * VOCAB, VOCAB);
      CHECK(error < 0.05, "%s, %s: off by %g", names[k / 2], ambi_dtype_name(s.dtype), error);
      generator_destroy(&g);
    }
    model_destroy(&m);
  }
}

/* ---- checkpoints ---- */

static char folder[] = "/tmp/ambi-test-models-XXXXXX";

static int step(trainer *r, int64_t i, double *loss) {
  int32_t tokens[2 * 16], targets[2 * 16];
  double v[NUMBERS] = {0};
  fill(tokens, targets, 2, 16, 2 * i);
  int ok = trainer_part(r, 0, tokens, targets, 1e-2, err, sizeof err) && trainer_numbers(r, v, err, sizeof err);
  *loss = v[NUMBER_LOSS];
  return CHECK(ok, "%s", err);
}

/* Everything again from the folder: what follows must be the same. */
static void check_load(const run_spec *s, const char *at, const double want[4], const model *original) {
  model m;
  trainer r;
  model_config c;
  char path[240];
  int64_t steps = 0;
  double loss;
  const trainer_options o = options_of(s);
  snprintf(path, sizeof path, "%s/config.json", at);
  if (!CHECK(config_read(path, &c, err, sizeof err), "%s", err)) return;
  CHECK(memcmp(&c.mamba, &original->config.mamba, sizeof c.mamba) == 0 || s->kind != LAYER_MAMBA, "config.mamba");
  if (!CHECK(model_create(&m, devices[2], &c, s->dtype, MODEL_TRAINS, err, sizeof err), "%s", err)) return;
  CHECK(m.params.size == original->params.size, "another size");
  if (CHECK(checkpoint_load(&m, at, err, sizeof err), "%s", err) &&
      CHECK(trainer_create(&r, &m, &o, err, sizeof err), "%s", err)) {
    CHECK(checkpoint_load_optimizer(&r.o, at, &steps, err, sizeof err) && steps == 3, "%s", err);
    for (int i = 0; i < 4 && step(&r, 3 + i, &loss); i++)
      CHECK(loss == want[i], "%s: step %d after loading: %.17g, not %.17g", names[s->kind], i, loss, want[i]);
    trainer_destroy(&r);
  }
  model_destroy(&m);
}

static void test_checkpoints(void) {
  static const ambi_dtype dtypes[] = {AMBI_F32, AMBI_BF16, AMBI_F64};
  for (int k = 0; k < MODELS * 3; k++) {
    const run_spec s = {k / 3, 2, 0, 32, 2, 16, 1, 0, dtypes[k % 3], 0};
    const trainer_options o = options_of(&s);
    model m;
    trainer r;
    double losses[7] = {0};
    char at[200];
    snprintf(at, sizeof at, "%s/checkpoint-%d", folder, k);
    if (!make(&m, &s)) continue;
    if (CHECK(trainer_create(&r, &m, &o, err, sizeof err), "%s", err)) {
      for (int i = 0; i < 7 && step(&r, i, &losses[i]); i++) {
        if (i == 2) CHECK(checkpoint_save(&m, &r.o, 3, at, "{}", NULL, err, sizeof err), "%s", err);
      }
      check_load(&s, at, losses + 3, &m);
      trainer_destroy(&r);
    }
    model_destroy(&m);
    checkpoint_remove(at);
  }
}

/* ---- numbers that are none ---- */

/* One number of a parameter. */
static int spoil(model *m, const param *p, double v, double *was) {
  double *all = malloc((size_t)p->count * sizeof *all);
  int ok = model_get(m, m->weights, p, all, err, sizeof err);
  *was = all[p->count / 2];
  all[p->count / 2] = v;
  ok = ok && model_put(m, m->weights, p, all, err, sizeof err) && model_round(m, err, sizeof err);
  free(all);
  return CHECK(ok, "%s", err);
}

/* The bytes of all parameters, moments and gradients but those of the numbers. */
static char *everything(const trainer *r, size_t *bytes) {
  *bytes = (size_t)r->m->params.size * ambi_dtype_size(r->m->master);
  char *all = malloc(3 * *bytes);
  ambi_download(r->m->stream, all, r->m->weights, *bytes);
  for (int i = 0; i < 2; i++) ambi_download(r->m->stream, all + (size_t)(i + 1) * *bytes, r->o.moments[i], *bytes);
  ambi_stream_wait(r->m->stream);
  *bytes *= 3;
  return all;
}

static void test_skips(void) {
  for (int k = 0; k < MODELS; k++) {
    const run_spec s = {k, 2, 0, 32, 2, 16, 1, 0, AMBI_F32, 0};
    const trainer_options o = options_of(&s);
    model m;
    trainer r;
    double loss, v[NUMBERS], was;
    char where[300] = "";
    if (!make(&m, &s)) continue;
    if (!CHECK(trainer_create(&r, &m, &o, err, sizeof err), "%s", err)) continue;
    step(&r, 0, &loss);
    const param *p = NULL;
    for (int64_t i = 0; i < m.params.count; i++) {
      if (m.params.param[i].layer == 1 && m.params.param[i].matrix) p = &m.params.param[i];
    }
    size_t bytes;
    if (!p || !spoil(&m, p, INFINITY, &was)) continue;
    char *before = everything(&r, &bytes);
    step(&r, 1, &loss);
    CHECK(trainer_numbers(&r, v, err, sizeof err) && v[NUMBER_NONFINITE] != 0 && v[NUMBER_STEP] == 1,
          "%s: an infinite parameter goes unnoticed", names[k]);
    char *after = everything(&r, &bytes);
    CHECK(memcmp(before, after, bytes) == 0, "%s: a skipped step changed something", names[k]);
    CHECK(diagnose_nonfinite(&r, where, sizeof where) && strstr(where, "layer 1") && strstr(where, p->name), "%s: '%s'",
          names[k], where);
    spoil(&m, p, was, &was);
    step(&r, 1, &loss);
    CHECK(isfinite(loss) && trainer_numbers(&r, v, err, sizeof err) && v[NUMBER_STEP] == 2, "%s: it does not go on",
          names[k]);
    /* Finite, but too large for what comes out of the layer. */
    spoil(&m, p, 1e38, &was);
    spoil(&m, params_of(&m.params, -1, k == LAYER_ATTENTION ? "model.norm.weight" : "backbone.norm_f.weight"), 3e38,
          &was);
    step(&r, 2, &loss);
    *where = 0;
    CHECK(diagnose_nonfinite(&r, where, sizeof where) && !strstr(where, "parameter"), "%s: '%s'", names[k], where);
    free(before);
    free(after);
    trainer_destroy(&r);
    model_destroy(&m);
  }
}

static int told;
static void count_told(void *context, const char *text) {
  (void)context;
  told += strstr(text, "layer 1") || strstr(text, "embeddings") || strstr(text, "of the last");
}

/* Letters, and the byte 128 at every so many of them; 0: none. */
static void make_text(dataset *d, const tokenizer *t, size_t rare) {
  char text[4000];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(rare && i % rare == 0 ? 128 : 'a' + i * i % 23);
  CHECK(dataset_add_text(d, t, text, sizeof text, err, sizeof err) && dataset_split(d, t, 0.1, 16, err, sizeof err),
        "%s", err);
}

static training_options fifty_steps(int64_t log_every) {
  training_options o = {.batch = 2, .length = 16, .parts = 1, .steps = 50, .lr = 1e-3, .min_lr = 0.1, .clip = 1};
  o.beta1 = 0.9, o.beta2 = 0.95, o.log_every = log_every;
  return o;
}

/* Steps here and there that are skipped end no run, however seldom it is looked at: rows with a byte whose embedding is
 * infinite. */
static void test_lone_steps(void) {
  tokenizer *t = tokenizer_bytes(1);
  dataset d = {0};
  make_text(&d, t, 100);
  for (int64_t every = 1; every <= 5; every += 4) {
    model_config c = config_of(LAYER_MAMBA, 32);
    c.vocab = 257, c.tied = 0;
    model m;
    double was;
    training_result result;
    training job = {.m = &m, .tokens = t, .data = &d, .options = fifty_steps(every), .hooks.say = count_told};
    told = 0;
    if (!CHECK(model_create(&m, devices[2], &c, AMBI_F32, MODEL_TRAINS, err, sizeof err), "%s", err)) break;
    model_init(&m, 1, err, sizeof err);
    spoil(&m, params_of(&m.params, -1, "backbone.embeddings.weight"), INFINITY, &was);
    CHECK(training_run(&job, NULL, &result, err, sizeof err) && result.steps == 50, "every %lld: %s", (long long)every,
          err);
    CHECK(told > 0 && result.skipped > 0 && result.skipped < 50, "every %lld: %lld steps were skipped",
          (long long)every, (long long)result.skipped);
    model_destroy(&m);
  }
  dataset_free(&d);
  tokenizer_free(t);
}

/* A whole run with an infinite parameter ends after five steps, with advice; also one that is shorter. */
static void test_advice(void) {
  static const struct {
    int64_t every, steps, least, most;
    const char *said;
  } runs[] = {{1, 50, 4, 6, "in a row"}, {2, 50, 4, 6, "in a row"}, {1, 3, 2, 3, "no step of 3"}};
  tokenizer *t = tokenizer_bytes(1);
  dataset d = {0};
  make_text(&d, t, 0);
  for (int k = 0; k < 3; k++) {
    model_config c = config_of(LAYER_MAMBA, 32);
    c.vocab = 257;
    model m;
    double was;
    training_result result;
    training job = {.m = &m, .tokens = t, .data = &d, .options = fifty_steps(runs[k].every), .hooks.say = count_told};
    job.options.steps = runs[k].steps;
    told = 0;
    if (!CHECK(model_create(&m, devices[2], &c, AMBI_F32, MODEL_TRAINS, err, sizeof err), "%s", err)) break;
    model_init(&m, 1, err, sizeof err);
    spoil(&m, params_of(&m.params, 1, "mixer.out_proj.weight"), INFINITY, &was);
    CHECK(!training_run(&job, NULL, &result, err, sizeof err), "it goes on");
    CHECK(strstr(err, runs[k].said) && strstr(err, "--lr"), "'%s'", err);
    CHECK(told >= 3 && result.steps >= runs[k].least && result.steps <= runs[k].most, "told %d times, %lld steps", told,
          (long long)result.steps);
    model_destroy(&m);
  }
  dataset_free(&d);
  tokenizer_free(t);
}

/* ---- what cannot be ---- */

static void test_refused(void) {
  model m;
  model_config c = config_of(LAYER_MAMBA, 32);
  c.layers = CONFIG_MAX_LAYERS;
  c.width = CONFIG_MAX_WIDTH;
  c.mamba.inner = 1 << 24;
  CHECK(!model_create(&m, devices[2], &c, AMBI_F32, MODEL_TRAINS, err, sizeof err) && strstr(err, "parameters"), "%s",
        err);
  c = config_of(LAYER_MAMBA, 32);
  c.mamba.inner = 1 << 20;
  c.width = 1 << 20;
  c.layers = 1;
  CHECK(!model_create(&m, devices[2], &c, AMBI_F32, MODEL_TRAINS, err, sizeof err) &&
            strstr(err, "AdamW's moments of this model take ") && strstr(err, " TiB: "),
        "'%s'", err);
  c = config_of(LAYER_ATTENTION, 32);
  c.attention.kv_heads = 3;
  CHECK(!model_create(&m, devices[2], &c, AMBI_F32, 0, err, sizeof err) && strstr(err, "multiple"), "%s", err);
}

/* Memory that cannot be had is a failure to be met, also under a sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

/* One batch learnt by heart on another device: test_models --device cuda:0 */
static int test_device(const char *name) {
  if (CHECK_OK(ambi_device_open(name, NULL, &devices[2]))) test_overfit();
  if (devices[2]) ambi_device_close(devices[2]);
  return test_done();
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "--device") == 0) return test_device(argv[2]);
  const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0; /* under emulators and sanitizers */
  for (int i = 1; i <= 2; i++) {
    const ambi_device_options o = {.threads = i};
    if (!CHECK_OK(ambi_device_open("cpu", &o, &devices[i]))) return test_done();
  }
  if (!CHECK(mkdtemp(folder) != NULL, "no folder for checkpoints")) return test_done();
  if (!quick) {
    test_overfit();
    test_same_bits();
    test_short();
  }
  test_recompute();
  test_parts();
  test_generate();
  test_greedy();
  test_short_generate();
  test_checkpoints();
  test_skips();
  test_advice();
  test_lone_steps();
  test_refused();
  rmdir(folder);
  for (int i = 1; i <= 2; i++) ambi_device_close(devices[i]);
  return test_done();
}
