/* generate.c -- `ambi generate`: text from a model, as it is made.
 *
 * Prompts go side by side, a row each: at every step a row gets the next token of its prompt, or the one it chose. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../models/generator.h"
#include "../models/open.h"
#include "../models/run_folder.h"
#include "../util/sentence.h"
#include "commands.h"
#include "device.h"
#include "model_options.h"
#include "options.h"
#include "print.h"

enum { MAX_PROMPTS = 256 };

typedef struct {
  int32_t *ids; /* the prompt, then what was chosen */
  int64_t prompted, count;
  char *text; /* what was chosen, as text */
  size_t bytes;
  int done;
  dice dice;
} row;

typedef struct {
  opened o;
  generator g;
  sample_options choose;
  int64_t batch, tokens, most; /* tokens: to write; most: of a row in all */
  const char *stop;
  int quiet_prompt, stream;
  row row[MAX_PROMPTS];
  double *logits;
  int32_t *next;
  char err[SENTENCE_BYTES];
} job;

static int complain(const char *why) { return fprintf(stderr, "ambi generate: %s\n", why), 1; }

/* ---- rows ---- */

static int add_prompt(job *j, const char *prompt, uint64_t seed) {
  row *r = &j->row[j->batch];
  r->prompted = run_prompt(j->o.tokens, prompt, &r->ids);
  r->dice = (dice){seed + (uint64_t)j->batch, 0};
  if (r->prompted <= 0) return snprintf(j->err, sizeof j->err, "out of memory"), 0;
  int32_t *grown = realloc(r->ids, (size_t)(r->prompted + j->tokens) * sizeof *grown);
  if (!grown) return snprintf(j->err, sizeof j->err, "out of memory"), 0;
  r->ids = grown;
  r->count = r->prompted;
  if (r->prompted + j->tokens > j->most) j->most = r->prompted + j->tokens;
  j->batch++;
  return 1;
}

/* Text up to a stop string that ends in the newest `fresh` bytes; 1 when one was found. The text may hold NULs. */
static int meets_stop(const job *j, row *r, size_t fresh) {
  const size_t length = j->stop ? strlen(j->stop) : 0;
  if (length == 0) return 0;
  for (size_t at = r->bytes > fresh + length ? r->bytes - fresh - length : 0; at + length <= r->bytes; at++) {
    if (memcmp(r->text + at, j->stop, length) != 0) continue;
    r->bytes = at;
    return 1;
  }
  return 0;
}

static void take_token(job *j, row *r, int32_t token) {
  size_t bytes;
  const char *piece = tokenizer_token(j->o.tokens, token, &bytes);
  char *grown = token == tokenizer_eos(j->o.tokens) ? NULL : realloc(r->text, r->bytes + bytes + 1);
  r->ids[r->count++] = token;
  if (!grown) { /* the end of the text, or no memory for more of it */
    r->done = 1;
    return;
  }
  r->text = grown;
  memcpy(grown + r->bytes, piece, bytes);
  r->bytes += bytes;
  r->done = meets_stop(j, r, bytes) || r->count - r->prompted == j->tokens;
  if (j->stream) fwrite(piece, 1, bytes, stdout), fflush(stdout);
}

/* ---- steps ---- */

/* Token `at` of every row: its prompt's, or a choice. 1 while some row goes on. */
static int choose(job *j, int64_t at) {
  const int64_t vocab = j->o.m.config.vocab, ids = tokenizer_size(j->o.tokens);
  int going = 0;
  for (int64_t b = 0; b < j->batch; b++) {
    row *r = &j->row[b];
    if (at >= r->prompted && !r->done)
      take_token(j, r, sample(j->logits + b * vocab, ids, &j->choose, r->ids, r->count, &r->dice));
    going |= !r->done;
    j->next[b] = r->ids[at < r->count ? at : r->count - 1];
  }
  return going;
}

/* All rows have this many tokens of prompt: they can be read at once. */
static int64_t common_prompt(const job *j) {
  int64_t least = j->row[0].prompted;
  for (int64_t b = 1; b < j->batch; b++)
    if (j->row[b].prompted < least) least = j->row[b].prompted;
  return least;
}

/* The logits after `count` more tokens of every row. */
static int read_tokens(job *j, const int32_t *ids, int64_t count) {
  if (!generator_read(&j->g, ids, count, j->logits, j->err, sizeof j->err)) return 0;
  for (int64_t i = 0; i < j->batch * j->o.m.config.vocab; i++) {
    if (isnan(j->logits[i]))
      return snprintf(j->err, sizeof j->err,
                      "the model gives NaN: its parameters hold some, or --dtype is too narrow for it"),
             0;
  }
  return 1;
}

static int write_all(job *j) {
  const int64_t first = common_prompt(j);
  int32_t *start = malloc((size_t)(j->batch * first) * sizeof *start);
  if (!start) return snprintf(j->err, sizeof j->err, "out of memory"), 0;
  for (int64_t b = 0; b < j->batch; b++) memcpy(start + b * first, j->row[b].ids, (size_t)first * sizeof *start);
  int ok = read_tokens(j, start, first);
  free(start);
  for (int64_t at = first; ok && choose(j, at); at++) ok = read_tokens(j, j->next, 1);
  return ok;
}

static void print_rows(const job *j, const char *const *prompt) {
  for (int64_t b = 0; b < j->batch; b++) {
    const row *r = &j->row[b];
    if (j->batch > 1) printf("---- %lld\n", (long long)b + 1);
    if (!j->quiet_prompt) fputs(prompt[b], stdout);
    if (r->bytes) fwrite(r->text, 1, r->bytes, stdout);
    printf("\n");
  }
}

static int run(job *j, const char *const *prompt, uint64_t seed) {
  int ok = 1;
  for (int i = 0; ok && prompt[i]; i++) ok = add_prompt(j, prompt[i], seed);
  const size_t vocab = (size_t)j->o.m.config.vocab;
  j->logits = malloc((size_t)j->batch * vocab * sizeof *j->logits);
  j->next = malloc((size_t)j->batch * sizeof *j->next);
  if (ok && (!j->logits || !j->next)) ok = (snprintf(j->err, sizeof j->err, "out of memory"), 0);
  ok = ok && generator_create(&j->g, &j->o.m, j->batch, j->most, j->err, sizeof j->err);
  j->stream = j->batch == 1 && !j->stop; /* a stop string may begin in what was already shown */
  if (ok && j->stream && !j->quiet_prompt) fputs(prompt[0], stdout);
  ok = ok && write_all(j);
  if (ok && j->stream) printf("\n");
  if (ok && !j->stream) print_rows(j, prompt);
  generator_destroy(&j->g);
  for (int64_t b = 0; b < j->batch; b++) free(j->row[b].ids), free(j->row[b].text);
  free(j->logits);
  free(j->next);
  return ok;
}

/* ---- options ---- */

static int in_order(const job *j, int64_t seed, int64_t threads, char *err, size_t n) {
  const option_range rows[] = {{"tokens", (double)j->tokens, 1, 1 << 24},
                               {"temperature", j->choose.temperature, 0, 1000},
                               {"top-k", (double)j->choose.top_k, 0, 1e9},
                               {"top-p", j->choose.top_p, 1e-6, 1},
                               {"repetition-penalty", j->choose.repetition, 1e-3, 1e3},
                               {"threads", (double)threads, 0, OPTION_MOST_THREADS},
                               {"seed", (double)seed, 0, 0x1p63}};
  return options_in_range(rows, sizeof rows / sizeof *rows, err, n);
}

int generate_main(int argc, char **argv) {
  static job j;
  static const char *operand[MAX_PROMPTS + 1];
  const char *device = "cpu", *dtype = "f32", *tokens = NULL;
  int64_t seed = (int64_t)time(NULL), threads = 0;
  j = (job){.tokens = 256, .choose = {0.8, 0, 0.95, 1}};
  memset(operand, 0, sizeof operand);
  const option options[] = {
      {"tokens", OPT_INT, &j.tokens, "N", "tokens to write at most (256)"},
      {"temperature", OPT_DOUBLE, &j.choose.temperature, "X", "0: always the most likely token (0.8)"},
      {"top-k", OPT_INT, &j.choose.top_k, "N", "choose among the N most likely; 0: all (0)"},
      {"top-p", OPT_DOUBLE, &j.choose.top_p, "X", "choose among the fewest that make up X; 1: all (0.95)"},
      {"repetition-penalty", OPT_DOUBLE, &j.choose.repetition, "X",
       "makes tokens that occurred less likely; 1: not (1)"},
      {"stop", OPT_STRING, &j.stop, "TEXT", "end before this text"},
      {"seed", OPT_INT, &seed, "N", "of the choices; otherwise the time"},
      {"no-prompt", OPT_FLAG, &j.quiet_prompt, NULL, "print only what was written"},
      {"tokenizer", OPT_STRING, &tokens, "FILE", "a tokenizer.json; otherwise the model's, or bytes"},
      {"device", OPT_STRING, &device, "NAME", "cpu or cuda:0 (cpu)"},
      {"threads", OPT_INT, &threads, "N", "threads; 0: all cores"},
      {"dtype", OPT_STRING, &dtype, "T", "f32, bf16, f16 or f64 (f32)"},
      {0}};
  const command_line spec = {
      "ambi generate",
      "MODEL_DIR [PROMPT ..]",
      "Writes text: MODEL_DIR is a run of `ambi train`, one of its checkpoints, or a model that\n"
      "transformers saved. Several prompts are continued side by side.",
      options,
      NULL,
      MAX_PROMPTS};
  int rc = options_parse(&spec, argc, argv, operand);
  if (rc >= 0) return rc;
  if (!operand[0]) return options_wrong(&spec, "a model's folder is needed");
  if (!operand[1]) operand[1] = "";
  const char *const named[] = {operand[0], tokens};
  if (!in_order(&j, seed, threads, j.err, sizeof j.err) || !model_options_known(device, dtype, j.err, sizeof j.err) ||
      !options_there(named, 2, j.err, sizeof j.err))
    return options_wrong(&spec, "%s", j.err);
  ambi_device *dev = device_open("generate", device, NULL, threads);
  if (!dev) return 2;
  int ok = model_open(&j.o, operand[0], tokens, dev, model_dtype(dtype), j.err, sizeof j.err);
  if (ok) {
    ok = run(&j, operand + 1, (uint64_t)seed);
    model_close(&j.o);
  }
  ambi_device_close(dev);
  return ok ? 0 : complain(j.err);
}
