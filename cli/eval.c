/* eval.c -- `ambi eval`: how well a model predicts a text: loss, perplexity, bits per byte.
 *
 * Every token but the first of a text is predicted once, from the tokens before it in its row: rows of --seq tokens,
 * each beginning where the last one ended. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../models/data.h"
#include "../models/open.h"
#include "../models/trainer.h"
#include "../util/sentence.h"
#include "commands.h"
#include "device.h"
#include "model_options.h"
#include "options.h"
#include "print.h"

static int complain(const char *why) { return fprintf(stderr, "ambi eval: %s\n", why), 1; }

typedef struct {
  double loss; /* sum over tokens */
  int64_t tokens, bytes;
} tally;

/* Rows first .. of a batch; those past the end count nothing. Returns how many tokens count. */
static int64_t fill(const dataset *d, int64_t first, int64_t batch, int64_t length, int32_t *tokens, int32_t *targets) {
  int64_t count = 0;
  for (int64_t i = 0; i < batch * length; i++) {
    const int64_t at = first * length + i;
    const int there = at + 1 < d->count;
    tokens[i] = there ? d->token[at] : 0;
    targets[i] = there ? d->token[at + 1] : -100;
    count += there;
  }
  return count;
}

static int64_t rows_of(const dataset *d, int64_t length) { return (d->count - 2) / length + 1; }

static int measure(trainer *r, const dataset *d, tally *t, char *err, size_t n) {
  const int64_t batch = r->options.batch, length = r->options.length, rows = rows_of(d, length);
  int32_t *tokens = malloc((size_t)(batch * length) * sizeof *tokens);
  int32_t *targets = malloc((size_t)(batch * length) * sizeof *targets);
  int ok = tokens && targets, terminal = isatty(2);
  if (!ok) snprintf(err, n, "out of memory");
  for (int64_t first = 0; ok && first < rows; first += batch) {
    double loss;
    const int64_t count = fill(d, first, batch, length, tokens, targets);
    ok = trainer_loss(r, tokens, targets, &loss, err, n);
    if (ok && count) t->loss += loss * (double)count, t->tokens += count;
    if (terminal)
      fprintf(stderr, "\r%lld of %lld rows  ", (long long)(first + batch < rows ? first + batch : rows),
              (long long)rows);
  }
  if (terminal) fprintf(stderr, "\r\033[K");
  free(tokens);
  free(targets);
  return ok;
}

static int evaluate(opened *o, const dataset *d, int64_t batch, int64_t length, char *err, size_t n) {
  if (length > d->count - 1) length = d->count - 1; /* what a short text leaves empty would be computed all the same */
  if (batch > rows_of(d, length)) batch = rows_of(d, length);
  const trainer_options options = {.batch = batch, .length = length, .forward_only = 1};
  trainer r;
  tally t = {.bytes = d->bytes};
  if (!trainer_create(&r, &o->m, &options, err, n)) return 0;
  int ok = measure(&r, d, &t, err, n);
  trainer_destroy(&r);
  if (!ok) return 0;
  if (!t.bytes) return snprintf(err, n, "the text is empty: nothing was measured"), 0;
  const double loss = t.loss / (double)t.tokens;
  if (!isfinite(loss))
    return snprintf(err, n, "the loss is not finite: parameters hold NaN or inf, or --dtype is too narrow for them"), 0;
  printf("%lld token%s, %lld byte%s, %lld file%s", (long long)t.tokens, plural(t.tokens), (long long)t.bytes,
         plural(t.bytes), (long long)d->files, plural(d->files));
  print_left_out(d->binary);
  printf("\nloss %.5f nats a token\nperplexity %.4f\nbits per byte %.4f\n", loss, exp(loss),
         t.loss / (double)t.bytes / log(2));
  return 1;
}

/* ---- options ---- */

typedef struct {
  const char **operand; /* the model's folder, then texts */
  const char *device, *dtype, *tokenizer;
  int64_t batch, length, threads;
} arguments;

static int in_order(const arguments *a, char *err, size_t n) {
  const option_range rows[] = {{"batch", (double)a->batch, 1, 1 << 20},
                               {"seq", (double)a->length, 1, 1 << 24},
                               {"threads", (double)a->threads, 0, OPTION_MOST_THREADS}};
  if (!a->operand[0] || !a->operand[1]) return snprintf(err, n, "a model's folder and a text are needed"), 0;
  return options_in_range(rows, sizeof rows / sizeof *rows, err, n) && model_options_known(a->device, a->dtype, err, n);
}

static int all_there(const arguments *a, int argc, char *err, size_t n) {
  return options_there(a->operand, (size_t)argc, err, n) && options_there(&a->tokenizer, 1, err, n);
}

/* -1 to go on, otherwise the exit status. */
static int parse(arguments *a, int argc, char **argv) {
  char err[SENTENCE_BYTES];
  const option options[] = {
      {"seq", OPT_INT, &a->length, "N", "tokens a row, which is all it sees of the text (256)"},
      {"batch", OPT_INT, &a->batch, "N", "rows at once (8)"},
      {"tokenizer", OPT_STRING, &a->tokenizer, "FILE", "a tokenizer.json; otherwise the model's, or bytes"},
      {"device", OPT_STRING, &a->device, "NAME", "cpu or cuda:0 (cpu)"},
      {"threads", OPT_INT, &a->threads, "N", "threads; 0: all cores"},
      {"dtype", OPT_STRING, &a->dtype, "T", "f32, bf16, f16 or f64 (f32)"},
      {0}};
  const command_line spec = {
      "ambi eval",
      "MODEL_DIR FILES, FOLDERS or -",
      "How well a model predicts a text: loss, perplexity and bits per byte. - is standard input.",
      options,
      NULL,
      argc};
  int rc = options_parse(&spec, argc, argv, a->operand);
  if (rc < 0 && !(in_order(a, err, sizeof err) && all_there(a, argc, err, sizeof err)))
    rc = options_wrong(&spec, "%s", err);
  return rc;
}

static int run(const arguments *a, ambi_device *dev) {
  char err[SENTENCE_BYTES], has[100];
  opened o;
  dataset d = {0};
  if (!model_open(&o, a->operand[0], a->tokenizer, dev, model_dtype(a->dtype), err, sizeof err)) return complain(err);
  int ok = 1;
  for (int i = 1; ok && a->operand[i]; i++) ok = dataset_add_path(&d, o.tokens, a->operand[i], err, sizeof err);
  if (ok && d.count < 2)
    ok = (snprintf(err, sizeof err, "the text has %s; two are the least", dataset_describe(&d, has, sizeof has)), 0);
  ok = ok && evaluate(&o, &d, a->batch, a->length, err, sizeof err);
  dataset_free(&d);
  model_close(&o);
  return ok ? 0 : complain(err);
}

int eval_main(int argc, char **argv) {
  arguments a = {.device = "cpu", .dtype = "f32", .batch = 8, .length = 256};
  a.operand = calloc((size_t)argc + 1, sizeof *a.operand);
  if (!a.operand) return complain("out of memory");
  int rc = parse(&a, argc, argv);
  ambi_device *dev = rc < 0 ? device_open("eval", a.device, NULL, a.threads) : NULL;
  if (rc < 0) rc = dev ? run(&a, dev) : 2;
  ambi_device_close(dev);
  free(a.operand);
  return rc;
}
