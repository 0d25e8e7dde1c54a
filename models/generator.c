/* generator.c -- two tapes over one state: a long one for prompts, one of a single token for the rest. */
#include "generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"

static const int64_t lengths[GENERATOR_CALLS] = {32, 1};

typedef struct {
  generator *g;
  int which;
} writing;

static void write_ops(tape *t, void *context) {
  const writing *w = context;
  generator *g = w->g;
  const int64_t length = lengths[w->which], rows = g->state.batch * length;
  const ambi_tensor ids = ambi_dense(AMBI_I32, 1, &rows);
  model_call *c = &g->calls[w->which].call;
  *c = (model_call){.m = g->m, .t = t, .batch = g->state.batch, .length = length, .state = &g->state};
  g->calls[w->which].logits = model_forward(c, tape_fixed(t, &ids, g->calls[w->which].tokens));
  tape_keep(t, g->calls[w->which].logits);
}

static int make_call(generator *g, int which, char *err, size_t n) {
  const size_t bytes = (size_t)(g->state.batch * lengths[which]) * sizeof(int32_t);
  writing w = {g, which};
  if (ambi_alloc(g->m->dev, bytes, &g->calls[which].tokens) != AMBI_OK) return snprintf(err, n, "%s", ambi_error()), 0;
  tape *t = g->calls[which].t = tape_create(g->m->dev);
  if (!t) return snprintf(err, n, "out of memory"), 0;
  compile_ahead(g->m->dev, write_ops, &w);
  write_ops(t, &w);
  if (tape_finish(t) == AMBI_OK) return 1;
  return snprintf(err, n, "%s", tape_error(t)), 0;
}

int generator_create(generator *g, model *m, int64_t batch, int64_t room, char *err, size_t n) {
  memset(g, 0, sizeof *g);
  g->m = m;
  if (room < lengths[0]) room = lengths[0];
  int ok = state_create(&g->state, m, batch, room, err, n);
  for (int i = 0; ok && i < GENERATOR_CALLS; i++) ok = make_call(g, i, err, n);
  if (!ok) generator_destroy(g);
  return ok;
}

void generator_destroy(generator *g) {
  if (!g->m) return;
  for (int i = 0; i < GENERATOR_CALLS; i++) {
    tape_destroy(g->calls[i].t);
    ambi_free(g->m->dev, g->calls[i].tokens);
  }
  state_destroy(&g->state);
  memset(g, 0, sizeof *g);
}

int generator_reset(generator *g, char *err, size_t n) { return state_reset(&g->state, err, n); }

/* The tokens from `at` on of every row of `count`. */
static int run_call(generator *g, int which, const int32_t *tokens, int64_t count, int64_t at, char *err, size_t n) {
  const int64_t length = lengths[which], batch = g->state.batch;
  int32_t *part = malloc((size_t)(batch * length) * sizeof *part);
  if (!part) return snprintf(err, n, "out of memory"), 0;
  for (int64_t b = 0; b < batch; b++) memcpy(part + b * length, tokens + b * count + at, (size_t)length * sizeof *part);
  ambi_stream *s = g->m->stream;
  int ok = ambi_upload(s, g->calls[which].tokens, part, (size_t)(batch * length) * sizeof *part) == AMBI_OK &&
           ambi_stream_wait(s) == AMBI_OK;
  free(part);
  if (!ok) return snprintf(err, n, "%s", ambi_error()), 0;
  if (!model_advance(&g->calls[which].call, err, n)) return 0;
  if (tape_run(g->calls[which].t, s) != AMBI_OK) return snprintf(err, n, "%s", ambi_error()), 0;
  return 1;
}

/* The last token's logits of every row. */
static int take_logits(generator *g, int which, double *logits, char *err, size_t n) {
  const int64_t vocab = g->m->config.vocab, length = lengths[which];
  const size_t element = ambi_dtype_size(g->m->dtype);
  unsigned char *raw = malloc((size_t)vocab * element);
  int ok = raw != NULL;
  for (int64_t b = 0; ok && b < g->state.batch; b++) {
    ambi_buf at = tape_buffer(g->calls[which].t, g->calls[which].logits);
    at.offset += (uint64_t)(((b + 1) * length - 1) * vocab) * element;
    ok = ambi_download(g->m->stream, raw, at, (size_t)vocab * element) == AMBI_OK &&
         ambi_stream_wait(g->m->stream) == AMBI_OK;
    if (ok) model_values(g->m->dtype, raw, logits + b * vocab, vocab);
  }
  if (!ok) snprintf(err, n, "%s", raw ? ambi_error() : "out of memory");
  free(raw);
  return ok;
}

int generator_read(generator *g, const int32_t *tokens, int64_t count, double *logits, char *err, size_t n) {
  int which = 1;
  for (int64_t at = 0; at < count; at += lengths[which]) {
    which = count - at >= lengths[0] ? 0 : 1;
    if (!run_call(g, which, tokens, count, at, err, n)) return 0;
  }
  return take_logits(g, which, logits, err, n);
}
