/* training.c -- the loop: batches in, numbers out, and every so often an evaluation, a sample, a checkpoint. */
#define _POSIX_C_SOURCE 200809L
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose.h"
#include "generator.h"
#include "run_folder.h"

enum { MOST_SKIPPED = 5 }; /* steps in a row whose gradients are not finite */

typedef struct {
  const training *t;
  training_options o;
  trainer learn, judge; /* judge: forward only */
  generator speak;
  run_folder run;
  int32_t *tokens, *targets; /* of a batch */
  double began;              /* seconds; of this call */
  double before;             /* seconds of the calls that this one goes on from */
  int64_t first, step;       /* steps done when it began, and now */
  int64_t saved;             /* the step of the newest checkpoint; -1: none */
  int judged;                /* some of the text is held out, and looked at now and then */
  int64_t skipped;           /* in a row */
  double updates, begun;     /* of the parameters, when the numbers were last looked at, and when it began */
  double mark_time;
  int64_t mark_step;
  training_result *result;
  char *err;
  size_t n;
} loop;

static int failed(const loop *l, const char *why) { return snprintf(l->err, l->n, "%s", why), 0; }

static double elapsed(const loop *l) { return l->before + run_seconds() - l->began; }
static int64_t step_tokens(const loop *l) { return l->o.batch * l->o.length * l->o.parts; }

/* ---- a step ---- */

static void fill_batch(loop *l, int64_t part) {
  const training_options *o = &l->o;
  for (int64_t b = 0; b < o->batch; b++) {
    uint64_t row = (uint64_t)((l->step * o->parts + part) * o->batch + b);
    dataset_row(l->t->data, (uint64_t)o->seed, row, o->length, l->tokens + b * o->length, l->targets + b * o->length);
  }
}

/* The numbers of the step; the loss is the mean over its parts. With one part it is not waited for. */
static int run_step(loop *l, int look, double v[NUMBERS]) {
  double loss = 0;
  const double lr = training_rate(&l->o, l->step);
  for (int64_t part = 0; part < l->o.parts; part++) {
    fill_batch(l, part);
    if (!trainer_part(&l->learn, part, l->tokens, l->targets, lr, l->err, l->n)) return 0;
    if (!look) continue;
    if (!trainer_numbers(&l->learn, v, l->err, l->n)) return 0;
    loss += v[NUMBER_LOSS] / (double)l->o.parts;
  }
  v[NUMBER_LOSS] = loss;
  return 1;
}

static int is_finite(const double v[NUMBERS]) { return v[NUMBER_NONFINITE] == 0 && isfinite(v[NUMBER_LOSS]); }

static const char advice[] = "A lower --lr, a longer --warmup, a smaller --clip or --dtype f32 may help";

/* `skipped` of the last `steps` steps, perhaps the newest: where it came from, and whether to go on. */
static int explain_skipped(loop *l, const double v[NUMBERS], int64_t skipped, int64_t steps) {
  char text[400], where[200] = "";
  if (is_finite(v)) {
    snprintf(text, sizeof text, "%lld of the last %lld steps were skipped: their gradients were not finite",
             (long long)skipped, (long long)steps);
    l->skipped = 0;
  } else {
    const int found = diagnose_nonfinite(&l->learn, where, sizeof where);
    snprintf(text, sizeof text, "step %lld is skipped: the %s is not finite%s%s", (long long)l->step + 1,
             isfinite(v[NUMBER_LOSS]) ? "gradient" : "loss", found ? ", " : "", where);
    l->skipped = steps > 1 && skipped < steps ? 1 : l->skipped + steps;
  }
  run_log_skipped(&l->run, l->step + 1, text);
  if (l->t->hooks.say) l->t->hooks.say(l->t->hooks.context, text);
  if (l->skipped < MOST_SKIPPED) return 1;
  return snprintf(l->err, l->n, "%lld steps in a row were skipped; %s. %s; the last checkpoint is untouched",
                  (long long)l->skipped, text, advice),
         0;
}

/* A run too short to have MOST_SKIPPED of them. */
static int learned_nothing(const loop *l) {
  return snprintf(l->err, l->n, "no step of %lld could be taken: nothing was learned. %s", (long long)l->o.steps,
                  advice),
         0;
}

static int look_at(loop *l, double v[NUMBERS]) {
  const double now = run_seconds(), lr = training_rate(&l->o, l->step);
  const int64_t steps = l->step + 1 - l->mark_step;
  const double rate = now > l->mark_time ? (double)(steps * step_tokens(l)) / (now - l->mark_time) : 0;
  const int64_t done = l->step + 1 - l->first;
  const double left = (now - l->began) / (double)done * (double)(l->o.steps - l->step - 1);
  l->mark_time = now;
  l->mark_step = l->step + 1;
  l->result->loss = v[NUMBER_LOSS];
  l->result->tokens_per_s = (double)(done * step_tokens(l)) / (now - l->began);
  run_log_step(&l->run, l->step + 1, (l->step + 1) * step_tokens(l), elapsed(l), v, lr, rate);
  if (l->t->hooks.step)
    l->t->hooks.step(l->t->hooks.context, l->step + 1, v[NUMBER_LOSS], v[NUMBER_NORM], lr, rate, left);
  const int64_t skipped = steps - (int64_t)(v[NUMBER_STEP] - l->updates);
  l->updates = v[NUMBER_STEP];
  l->result->skipped = done - (int64_t)(l->updates - l->begun);
  const int all_taken = skipped <= 0 && is_finite(v);
  if (all_taken) l->skipped = 0;
  if (!all_taken && !explain_skipped(l, v, skipped, steps)) return 0;
  return l->updates > 0 || l->step + 1 < l->o.steps ? 1 : learned_nothing(l);
}

/* ---- every so often ---- */

static int evaluate(loop *l) {
  const training_options *o = &l->o;
  const int64_t batches = (o->eval_rows + o->batch - 1) / o->batch, rows = batches * o->batch;
  double sum = 0, loss;
  int64_t bytes = 0;
  for (int64_t i = 0; i < batches; i++) {
    for (int64_t b = 0; b < o->batch; b++)
      bytes += dataset_validation_row(l->t->data, i * o->batch + b, rows, o->length, l->tokens + b * o->length,
                                      l->targets + b * o->length);
    if (!trainer_loss(&l->judge, l->tokens, l->targets, &loss, l->err, l->n)) return 0;
    sum += loss / (double)batches;
  }
  const double bits = bytes ? sum * (double)(rows * o->length) / (double)bytes / log(2) : NAN;
  l->result->val_loss = sum;
  l->result->bits_per_byte = bits;
  run_log_eval(&l->run, l->step, l->step * step_tokens(l), elapsed(l), sum, bits);
  if (l->t->hooks.eval) l->t->hooks.eval(l->t->hooks.context, l->step, sum, bits);
  return 1;
}

/* What the model would write now; the same random numbers every time, so that samples can be compared. */
static int speak(loop *l) {
  const training *t = l->t;
  run_text text = {0};
  int ok = run_sample(&l->speak, t->tokens, l->o.prompt, l->o.sample_tokens, (uint64_t)l->o.seed, &text, l->err, l->n);
  if (ok) run_log_sample(&l->run, l->step, text.data, text.bytes);
  if (ok && t->hooks.sample) t->hooks.sample(t->hooks.context, l->step, text.data, text.bytes);
  free(text.data);
  return ok;
}

static int save(loop *l) {
  char text[200];
  char *options = training_options_text(&l->o);
  int ok = options && run_save(&l->run, l->t, &l->learn.o, l->step, options, l->err, l->n);
  if (!options) snprintf(l->err, l->n, "out of memory");
  free(options);
  if (ok) l->saved = l->step;
  if (ok && l->t->hooks.say) {
    snprintf(text, sizeof text, "saved checkpoint-%lld", (long long)l->step);
    l->t->hooks.say(l->t->hooks.context, text);
  }
  return ok;
}

static int is_due(const loop *l, int64_t every) { return every > 0 && (l->step % every == 0 || l->step == l->o.steps); }

static int occasions(loop *l) {
  if (l->judged && is_due(l, l->o.eval_every) && !evaluate(l)) return 0;
  if (is_due(l, l->o.sample_every) && !speak(l)) return 0;
  if (is_due(l, l->o.save_every) && !save(l)) return 0;
  return 1;
}

/* Tokens of a sample and of the prompt before it. */
static int64_t room_to_speak(const loop *l) {
  int32_t *ids = NULL;
  const int64_t prompted = run_prompt(l->t->tokens, l->o.prompt, &ids);
  free(ids);
  return (prompted > 0 ? prompted : 1) + l->o.sample_tokens;
}

/* ---- the run ---- */

static int prepare(loop *l, const char *from) {
  const training_options *o = &l->o;
  trainer_options a = {.batch = o->batch, .length = o->length, .parts = o->parts, .recompute = o->recompute != 0};
  a.optimizer = (optimizer_options){o->beta1, o->beta2, 1e-8, o->weight_decay, o->clip, 0};
  l->tokens = malloc((size_t)(o->batch * o->length) * sizeof *l->tokens);
  l->targets = malloc((size_t)(o->batch * o->length) * sizeof *l->targets);
  if (!l->tokens || !l->targets) return failed(l, "out of memory: a smaller --batch or --seq needs less");
  if (!trainer_create(&l->learn, l->t->m, &a, l->err, l->n)) return 0;
  if (from && !checkpoint_load_optimizer(&l->learn.o, from, &l->step, l->err, l->n)) return 0;
  double v[NUMBERS];
  if (!trainer_numbers(&l->learn, v, l->err, l->n)) return 0;
  l->updates = l->begun = v[NUMBER_STEP];
  a.parts = 1;
  a.forward_only = 1;
  l->judged = o->eval_every && dataset_tokens(l->t->data, 1) > 0;
  if (l->judged && !trainer_create(&l->judge, l->t->m, &a, l->err, l->n)) return 0;
  if (o->sample_every && !generator_create(&l->speak, l->t->m, 1, room_to_speak(l), l->err, l->n)) return 0;
  l->first = l->mark_step = l->step;
  l->saved = from ? l->step : -1;
  return run_begin(&l->run, l->t, l->step, &l->before, l->err, l->n);
}

static void measure(loop *l) {
  const model *m = l->t->m;
  const uint64_t each = ambi_dtype_size(m->master);
  const tape_size s = tape_get_size(l->learn.t);
  l->result->device_bytes = (uint64_t)m->params.size * 4 * each + s.arena + s.workspace;
  if (m->dtype != m->master) l->result->device_bytes += (uint64_t)m->params.decayed * ambi_dtype_size(m->dtype);
}

static int go(loop *l) {
  double v[NUMBERS] = {0};
  const int64_t every = l->o.log_every > 0 ? l->o.log_every : 1;
  while (l->step < l->o.steps && !(l->t->hooks.stop && *l->t->hooks.stop)) {
    const int look = (l->step + 1) % every == 0 || l->step + 1 == l->o.steps || l->step == l->first;
    if (!run_step(l, look, v) || (look && !look_at(l, v))) return 0;
    l->step++;
    if (!occasions(l)) return 0;
  }
  l->result->stopped = l->step < l->o.steps;
  return l->result->stopped && l->o.save_every && l->step != l->saved ? save(l) : 1;
}

static int profile(loop *l) {
  profile_row *rows = NULL;
  int64_t count = profile_step(&l->learn, &rows, l->err, l->n);
  if (count >= 0) l->t->hooks.profile(l->t->hooks.context, rows, count);
  free(rows);
  return count >= 0;
}

int training_run(const training *t, const char *from, training_result *result, char *err, size_t n) {
  loop l = {.t = t, .o = t->options, .result = result, .err = err, .n = n};
  *result = (training_result){.loss = NAN, .val_loss = NAN, .bits_per_byte = NAN, .tokens_per_s = NAN};
  l.began = l.mark_time = run_seconds();
  int ok = prepare(&l, from);
  if (ok) {
    l.began = l.mark_time = run_seconds();
    measure(&l);
    ok = go(&l) && (!t->hooks.profile || profile(&l));
  }
  result->steps = l.step;
  result->ran = l.step - l.first;
  result->seconds = elapsed(&l);
  if (!run_end(&l.run, l.step, result->seconds, !ok ? err : result->stopped ? "stopped" : "done", err, n, ok)) ok = 0;
  generator_destroy(&l.speak);
  trainer_destroy(&l.judge);
  trainer_destroy(&l.learn);
  free(l.tokens);
  free(l.targets);
  return ok;
}
