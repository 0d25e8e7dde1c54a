/* trainer.c -- see trainer.h. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>

#include "ahead.h"

static int fail(char *err, size_t n) { return snprintf(err, n, "%s", ambi_error()), 0; }

/* ---- making ---- */

typedef struct {
  trainer *r;
  model_call *call;
} writing;

/* Forward, the loss, and backward from it. */
static void write_ops(tape *t, void *context) {
  const writing *w = context;
  trainer *r = w->r;
  const trainer_options *o = &r->options;
  const int64_t rows = o->batch * o->length;
  const ambi_tensor ids = ambi_dense(AMBI_I32, 1, &rows), one = ambi_dense(r->m->master, 0, NULL);
  *w->call = (model_call){.m = r->m, .t = t, .batch = o->batch, .length = o->length};
  w->call->flags = o->recompute ? MODEL_RECOMPUTES : 0;
  r->logits = model_forward(w->call, tape_fixed(t, &ids, r->tokens));
  value io[AMBI_MAX_PRIMALS] = {[AMBI_CE_LOGITS] = r->logits};
  io[AMBI_CE_TARGET] = tape_fixed(t, &ids, r->targets);
  io[AMBI_CE_LOSS] = tape_fixed(t, &one, optimizer_at(&r->o, NUMBER_LOSS));
  r->loss = tape_op(t, &(ambi_op){.kind = AMBI_CROSS_ENTROPY, .want = AMBI_BIT(AMBI_CE_LSE)}, io, AMBI_CE_LOSS);
  if (o->forward_only) tape_keep(t, r->logits);
  if (o->parts > 1) tape_accumulate(t);
  if (!o->forward_only) tape_backward(t, r->loss, tape_fixed(t, &one, optimizer_at(&r->o, NUMBER_DLOSS)));
}

static int write_tape(trainer *r, char *err, size_t n) {
  writing w = {r, calloc(1, sizeof *w.call)};
  if (!w.call) return snprintf(err, n, "out of memory"), 0;
  compile_ahead(r->m->dev, write_ops, &w);
  write_ops(r->t, &w);
  free(w.call);
  if (tape_finish(r->t) != AMBI_OK) return snprintf(err, n, "%s", tape_error(r->t)), 0;
  return 1;
}

static int plan_zero(trainer *r, char *err, size_t n) {
  if (r->options.parts <= 1 || r->options.forward_only) return 1;
  ambi_op op = {.kind = AMBI_FILL};
  op.t[AMBI_FILL_Y] = ambi_dense(r->m->master, 1, &r->m->params.size);
  return ambi_plan_create(r->m->dev, &op, &r->zero) == AMBI_OK ? 1 : fail(err, n);
}

int trainer_create(trainer *r, model *m, const trainer_options *o, char *err, size_t n) {
  *r = (trainer){.m = m, .options = *o};
  if (r->options.parts < 1) r->options.parts = 1;
  const size_t bytes = (size_t)(o->batch * o->length) * sizeof(int32_t);
  int ok = optimizer_create(&r->o, m, o->forward_only ? NULL : &o->optimizer, err, n);
  if (ok && (ambi_alloc(m->dev, bytes, &r->tokens) != AMBI_OK || ambi_alloc(m->dev, bytes, &r->targets) != AMBI_OK))
    ok = fail(err, n);
  if (ok && !(r->t = tape_create(m->dev))) ok = (snprintf(err, n, "out of memory"), 0);
  ok = ok && write_tape(r, err, n) && plan_zero(r, err, n);
  ok = ok && optimizer_set(&r->o, NUMBER_DLOSS, 1.0 / (double)r->options.parts);
  if (ok) return 1;
  trainer_destroy(r);
  return 0;
}

void trainer_destroy(trainer *r) {
  if (!r->m) return;
  ambi_graph_destroy(r->graph);
  ambi_plan_destroy(r->zero);
  tape_destroy(r->t);
  ambi_free(r->m->dev, r->tokens);
  ambi_free(r->m->dev, r->targets);
  optimizer_destroy(&r->o);
  *r = (trainer){0};
}

/* ---- running ---- */

static ambi_status run_all(const trainer *r) {
  ambi_status s = tape_run(r->t, r->m->stream);
  if (s == AMBI_OK && r->options.parts == 1 && !r->options.forward_only) s = optimizer_run(&r->o, r->m->stream);
  return s;
}

/* Runs once as it is (so that everything is compiled), then records, where the device can; afterwards replays. */
static ambi_status run_or_replay(trainer *r) {
  if (r->graph) return ambi_replay(r->graph, r->m->stream);
  ambi_status s = run_all(r);
  if (s != AMBI_OK || r->tried_graph) return s;
  r->tried_graph = 1;
  if (ambi_record(r->m->stream) != AMBI_OK) return AMBI_OK; /* a device without graphs */
  s = run_all(r);
  const ambi_status recorded = ambi_recorded(r->m->stream, s == AMBI_OK ? &r->graph : NULL);
  return s == AMBI_OK ? recorded : s;
}

static int give(trainer *r, const int32_t *tokens, const int32_t *targets) {
  const size_t bytes = (size_t)(r->options.batch * r->options.length) * sizeof *tokens;
  return ambi_upload(r->m->stream, r->tokens, tokens, bytes) == AMBI_OK &&
         ambi_upload(r->m->stream, r->targets, targets, bytes) == AMBI_OK;
}

int trainer_loss(trainer *r, const int32_t *tokens, const int32_t *targets, double *loss, char *err, size_t n) {
  double v[NUMBERS];
  if (!give(r, tokens, targets) || run_or_replay(r) != AMBI_OK || !optimizer_get(&r->o, v)) return fail(err, n);
  *loss = v[NUMBER_LOSS];
  return 1;
}

int trainer_part(trainer *r, int64_t part, const int32_t *tokens, const int32_t *targets, double lr, char *err,
                 size_t n) {
  ambi_status s = AMBI_OK;
  if (part == 0 && !optimizer_set(&r->o, NUMBER_LR, lr)) return fail(err, n);
  if (part == 0 && r->zero) {
    const ambi_buf slot[AMBI_SLOTS] = {[AMBI_FILL_Y] = r->m->grads};
    s = ambi_run(r->zero, r->m->stream, slot, AMBI_SLOTS, (ambi_buf){0});
  }
  if (s != AMBI_OK || !give(r, tokens, targets) || run_or_replay(r) != AMBI_OK) return fail(err, n);
  if (r->options.parts > 1 && part == r->options.parts - 1) s = optimizer_run(&r->o, r->m->stream);
  return s == AMBI_OK ? 1 : fail(err, n);
}

int trainer_numbers(const trainer *r, double v[NUMBERS], char *err, size_t n) {
  return optimizer_get(&r->o, v) ? 1 : fail(err, n);
}
