/* check_model.c -- `ambi check --model DIR`: a whole model against numbers that transformers gave.
 *
 *   DIR/config.json, model.safetensors     the model
 *   DIR/expected.safetensors               ids, and what follows from them: logits, loss, grad/PARAMETER, the losses of
 *                                          some AdamW steps, and the most likely continuation of the first 8 ids
 * Errors are relative to the largest magnitude of the tensor. The other side computes parts of it in f32, whose sums
 * differ by some 1e-6: 1e-5 is allowed. */
#include "check_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../models/checkpoint.h"
#include "../models/generator.h"
#include "../util/safetensors.h"
#include "../util/sentence.h"
#include "device.h"

enum { PROMPT = 8 };
static const double allowed = 1e-5;

typedef struct {
  const char *folder;
  safetensors *expected;
  model m;
  trainer r;
  int32_t *ids, *targets;
  int64_t batch, length;
  int64_t passed, failed;
  char err[SENTENCE_BYTES];
} model_check;

/* ---- comparing ---- */

static void report(model_check *k, const char *what, int ok, double error) {
  if (ok)
    k->passed++;
  else
    k->failed++;
  if (!ok)
    printf("FAIL  %s: %s is off by %.2g of its largest magnitude; %.0e is allowed\n", k->folder, what, error, allowed);
}

static void broken(model_check *k, const char *what) {
  k->failed++;
  printf("FAIL  %s: %s: %s\n", k->folder, what, k->err);
}

/* got (count) against the tensor of that name. */
static void compare(model_check *k, const char *name, const double *got, int64_t count) {
  const safetensors_tensor *t = safetensors_find(k->expected, name);
  const int wide = t && strcmp(t->dtype, "F64") == 0, known = wide || (t && strcmp(t->dtype, "F32") == 0);
  double *want = known && t->count == count ? malloc((size_t)count * sizeof *want) : NULL;
  double error = 0, most = 0;
  if (!want) {
    snprintf(k->err, sizeof k->err,
             t ? "expected.safetensors has %lld numbers of dtype %s; %lld of F32 or F64 are compared"
               : "not in expected.safetensors",
             t ? (long long)t->count : 0LL, t ? t->dtype : "", (long long)count);
    broken(k, name);
    return;
  }
  model_values(wide ? AMBI_F64 : AMBI_F32, t->data, want, count);
  for (int64_t i = 0; i < count; i++) {
    error = fmax(error, fabs(got[i] - want[i]));
    if (isnan(got[i])) error = INFINITY;
    most = fmax(most, fabs(want[i]));
  }
  error = most > 0 ? error / most : error;
  report(k, name, error <= allowed, error);
  free(want);
}

/* ---- the parts ---- */

static int read_ids(model_check *k) {
  const safetensors_tensor *t = safetensors_find(k->expected, "ids");
  if (!t || strcmp(t->dtype, "I32") != 0 || t->ndim != 2 || t->shape[0] < 1 || t->shape[1] <= PROMPT)
    return snprintf(k->err, sizeof k->err, "expected.safetensors has no \"ids\", i32 (rows, more than 8)"), 0;
  k->batch = t->shape[0];
  k->length = t->shape[1];
  k->ids = malloc(t->bytes);
  k->targets = malloc(t->bytes);
  if (!k->ids || !k->targets) return snprintf(k->err, sizeof k->err, "out of memory"), 0;
  memcpy(k->ids, t->data, t->bytes);
  for (int64_t i = 0; i < t->count; i++) k->targets[i] = (i + 1) % k->length ? k->ids[i + 1] : -100;
  return 1;
}

static int make_trainer(model_check *k, int forward_only) {
  const trainer_options o = {.batch = k->batch,
                             .length = k->length,
                             .forward_only = forward_only,
                             .optimizer = {0.9, 0.95, 1e-8, 0.1, 1.0, 1}};
  return trainer_create(&k->r, &k->m, &o, k->err, sizeof k->err);
}

static int check_logits(model_check *k) {
  const int64_t count = k->batch * k->length * k->m.config.vocab;
  double loss, *logits = malloc((size_t)count * sizeof *logits);
  void *raw = malloc((size_t)count * ambi_dtype_size(k->m.dtype));
  int ok = logits && raw && make_trainer(k, 1) && trainer_loss(&k->r, k->ids, k->targets, &loss, k->err, sizeof k->err);
  if (ok && ambi_download(k->m.stream, raw, tape_buffer(k->r.t, k->r.logits),
                          (size_t)count * ambi_dtype_size(k->m.dtype)) != AMBI_OK)
    ok = (snprintf(k->err, sizeof k->err, "%s", ambi_error()), 0);
  if (ok && ambi_stream_wait(k->m.stream) == AMBI_OK) {
    model_values(k->m.dtype, raw, logits, count);
    compare(k, "logits", logits, count);
    compare(k, "loss", &loss, 1);
  }
  trainer_destroy(&k->r);
  free(logits);
  free(raw);
  return ok;
}

static void check_grads(model_check *k) {
  for (int64_t i = 0; i < k->m.params.count; i++) {
    const param *p = &k->m.params.param[i];
    char name[PARAM_NAME + 8];
    double *g = malloc((size_t)p->count * sizeof *g);
    snprintf(name, sizeof name, "grad/%s", p->name);
    if (g && model_get(&k->m, k->m.grads, p, g, k->err, sizeof k->err))
      compare(k, name, g, p->count);
    else
      broken(k, name);
    free(g);
  }
}

static int check_steps(model_check *k) {
  double losses[3], v[NUMBERS] = {0};
  if (!make_trainer(k, 0)) return 0;
  int ok = 1;
  for (int i = 0; ok && i < 3; i++) {
    ok = trainer_part(&k->r, 0, k->ids, k->targets, 1e-3, k->err, sizeof k->err) &&
         trainer_numbers(&k->r, v, k->err, sizeof k->err);
    losses[i] = v[NUMBER_LOSS];
    if (ok && i == 0) check_grads(k);
  }
  if (ok) compare(k, "losses", losses, 3);
  trainer_destroy(&k->r);
  return ok;
}

static int check_greedy(model_check *k) {
  const safetensors_tensor *t = safetensors_find(k->expected, "greedy");
  if (!t || strcmp(t->dtype, "I32") != 0 || t->count <= PROMPT)
    return snprintf(k->err, sizeof k->err, "expected.safetensors has no \"greedy\", i32"), 0;
  int32_t *want = malloc(t->bytes), *got = malloc(t->bytes);
  double *logits = malloc((size_t)k->m.config.vocab * sizeof *logits);
  generator g = {0};
  int ok = want && got && logits && generator_create(&g, &k->m, 1, t->count, k->err, sizeof k->err);
  if (ok) {
    memcpy(want, t->data, t->bytes);
    memcpy(got, k->ids, PROMPT * sizeof *got);
    ok = generator_read(&g, got, PROMPT, logits, k->err, sizeof k->err);
  }
  for (int64_t i = PROMPT; ok && i < t->count; i++) {
    got[i] = sample(logits, k->m.config.vocab, &(sample_options){0}, got, i, NULL);
    ok = generator_read(&g, &got[i], 1, logits, k->err, sizeof k->err);
  }
  if (ok) report(k, "the greedy continuation", memcmp(want, got, t->bytes) == 0, 1);
  generator_destroy(&g);
  free(want);
  free(got);
  free(logits);
  return ok;
}

/* ---- all of it ---- */

static int run(model_check *k, ambi_device *dev, ambi_dtype dtype) {
  char path[4096];
  model_config c;
  snprintf(path, sizeof path, "%s/expected.safetensors", k->folder);
  k->expected = safetensors_open(path, k->err, sizeof k->err);
  snprintf(path, sizeof path, "%s/config.json", k->folder);
  if (!k->expected || !config_read(path, &c, k->err, sizeof k->err) ||
      !checkpoint_fits(&c, k->folder, k->err, sizeof k->err) ||
      !model_create(&k->m, dev, &c, dtype, MODEL_TRAINS, k->err, sizeof k->err))
    return 0;
  return checkpoint_load(&k->m, k->folder, k->err, sizeof k->err) && read_ids(k) && check_logits(k) &&
         check_greedy(k) && check_steps(k);
}

/* Whether there was anything to compare */
static int check_one(ambi_device *dev, const char *folder, ambi_dtype dtype, int64_t *passed, int64_t *failed) {
  model_check k = {.folder = folder};
  int ran = run(&k, dev, dtype), compared = k.passed + k.failed > 0;
  if (!ran) broken(&k, ambi_dtype_name(dtype));
  printf("%-24s %-5s %6lld passed\n", strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder, ambi_dtype_name(dtype),
         (long long)k.passed);
  *passed += k.passed;
  *failed += k.failed;
  if (k.m.dev) model_destroy(&k.m);
  safetensors_close(k.expected);
  free(k.ids);
  free(k.targets);
  return compared;
}

int check_model(const char *device, const char *folder) {
  static const ambi_dtype dtypes[] = {AMBI_F64, AMBI_F32};
  int64_t passed = 0, failed = 0;
  int compared = 0;
  ambi_device *dev = device_open("check", device, NULL, 0);
  if (!dev) return 2;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    compared |= check_one(dev, folder, dtypes[i], &passed, &failed);
  ambi_device_close(dev);
  printf("%lld passed, %lld failed\n", (long long)passed, (long long)failed);
  return !compared ? 2 : failed > 0;
}
