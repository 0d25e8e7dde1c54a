/* check_extremes.c -- NaN and infinities among the inputs, sums of very many terms, outputs larger than the cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "values.h"

/* A class at -inf leaves its share to the others, whose terms grow: *t with their magnitudes, where those are numbers.
 */
static trial with_new_terms(const target *ref, const trial *t) {
  trial now = *t;
  memset(now.mag, 0, sizeof now.mag);
  trial_magnitudes(ref, &now);
  for (int s = 0; s < AMBI_SLOTS; s++)
    for (int64_t i = 0, n = now.mag[s] ? ambi_numel(&t->op.t[s % AMBI_MAX_PRIMALS]) : 0; i < n; i++)
      if (!isfinite(now.mag[s][i])) now.mag[s][i] = t->mag[s][i];
  return now;
}

static void try_targets(group *g, const trial *t, int slot, const char *label) {
  checker *ck = g->ck;
  for (int i = 0; i < ck->target_count; i++)
    for (int pass = slot >= AMBI_MAX_PRIMALS; pass <= (t->differentiable != 0); pass++) {
      probe p = {&g[pass], &ck->targets[i], t, (ambi_pass)pass, 0};
      exec e = prepare(&p, AS_GIVEN);
      finish(&p, &e, label);
      if (pass && t->op.kind == AMBI_ATTENTION) /* which has other kernels then */
        try_saved(&p, AMBI_BIT(AMBI_ATTENTION_O) | AMBI_BIT(AMBI_ATTENTION_LSE), label);
    }
}

/* ---- one odd value in an input spoils what the formula says it spoils, and nothing else ---- */
static void try_value(group *g, trial *t, int slot, int64_t at, double value) {
  char err[400], label[96], name[48];
  checker *ck = g->ck;
  double kept = t->in[slot][at];
  t->in[slot][at] = value;
  snprintf(label, sizeof label, "%g at element %lld of %s", value, (long long)at,
           slot_name(&t->op, slot, name, sizeof name));
  ambi_status s = trial_solve(&ck->ref, t, err, sizeof err);
  if (s != AMBI_OK) group_fail(g, t->text, "reference", "[%s] %s: %s", label, ambi_status_name(s), err);
  if (s == AMBI_OK && value == -INFINITY) {
    trial now = with_new_terms(&ck->ref, t);
    try_targets(g, &now, slot, label);
    for (int i = 0; i < AMBI_SLOTS; i++) free(now.mag[i]);
  } else if (s == AMBI_OK) {
    try_targets(g, t, slot, label);
  }
  t->in[slot][at] = kept;
}

/* Tokens that name no row */
static void try_strays(group *g, trial *t) {
  int64_t n = ambi_numel(&t->op.t[AMBI_EMBEDDING_TOKENS]);
  const double stray[] = {(double)t->op.t[AMBI_EMBEDDING_W].shape[0], -1, 1e9, -1e9};
  for (int i = 0; i < 4 && n > 0; i++) try_value(g, t, AMBI_EMBEDDING_TOKENS, n / 2, stray[i]);
}

/* Whether the formula alone says what an infinity becomes. Elsewhere it is infinite or NaN as the order of a sum has
 * it, or of the factors of an arriving gradient; or as a gate, or its slope, is 0 in one precision and not in another.
 */
static int knows_infinity(ambi_kind kind, int slot) {
  static const ambi_kind ordered[] = {AMBI_ATTENTION, AMBI_SELECTIVE_SCAN, AMBI_SSD};
  for (int i = 0; i < 3; i++)
    if (kind == ordered[i]) return 0;
  if (kind == AMBI_GATED && slot == AMBI_GATED_V) return 0;
  return slot < AMBI_MAX_PRIMALS;
}

void check_not_finite(group *g, const char *text, const mix *m) {
  const int64_t most = g->ck->text ? 100000 : 500; /* elements; a case by itself may take its time */
  trial t;
  char err[400];
  checker *ck = g->ck;
  if (trial_make(&ck->ref, text, m, (uint64_t)ck->seed, -1, 0, &t, err, sizeof err) == AMBI_OK && t.n <= most) {
    if (t.op.kind == AMBI_EMBEDDING) try_strays(g, &t);
    for (double step = -2; step < 0 && t.op.kind == AMBI_ADAMW; step++) try_value(g, &t, AMBI_ADAMW_STEP, 0, step);
    for (int s = 0; s < t.info->slots; s++) {
      int slot = t.inputs & AMBI_BIT(s) ? s : t.arriving & AMBI_BIT(s) ? AMBI_GRAD(s) : -1;
      int64_t n = ambi_numel(&t.op.t[s]);
      if (slot < 0 || n == 0 || !value_is_float(t.op.t[s].dtype) || values_overlap(&t.op.t[s])) continue;
      try_value(g, &t, slot, n / 2, NAN);
      if (!knows_infinity(t.op.kind, slot)) continue;
      try_value(g, &t, slot, n / 2, -INFINITY);
      try_value(g, &t, slot, n - 1, INFINITY);
    }
  }
  trial_free(&t); /* a case that cannot be made has failed in check_kernels already */
}

void check_long_sums(group *g, const char *text, const mix *m) {
  trial t;
  char err[400];
  checker *ck = g->ck;
  ambi_status s = trial_make(&ck->ref, text, m, CONSTANT, -1, 0, &t, err, sizeof err);
  if (s != AMBI_OK) group_fail(g, text, "", "%s: %s", ambi_status_name(s), err);
  for (int i = 0; s == AMBI_OK && i < ck->target_count; i++)
    for (int pass = 0; pass <= (t.differentiable != 0); pass++) {
      probe p = {g, &ck->targets[i], &t, (ambi_pass)pass, 0};
      exec e = prepare(&p, AS_GIVEN);
      finish(&p, &e, "constant values");
    }
  trial_free(&t);
}

/* Which cases outgrow the cache: rows of 1021, and how many outputs of that size they write. */
static const struct {
  ambi_kind kind;
  const char *text; /* R: the number of rows */
  int outputs;
} outgrowing[] = {{AMBI_UNARY, "unary x=Rx1021 function=neg", 1},
                  {AMBI_GATED, "gated v=Rx1021 g=Rx1021 gate=bilinear", 1},
                  {AMBI_ADD, "add a=Rx1021 b=Rx1021", 1},
                  {AMBI_RMSNORM, "rmsnorm x=Rx1021", 1},
                  {AMBI_LAYERNORM, "layernorm x=Rx1021", 1},
                  {AMBI_SOFTMAX, "softmax x=Rx1021", 1},
                  {AMBI_CROSS_ENTROPY, "cross_entropy logits=Rx1021 target=R grad", 1},
                  {AMBI_ADAMW, "adamw p=Rx1021 g=Rx1021 m=Rx1021 v=Rx1021 lr=() step=()", 3}};

static void put_rows(const char *text, uint64_t rows, char *out, size_t n) {
  size_t used = 0;
  for (; *text && used + 24 < n; text++)
    used += (size_t)(*text == 'R' ? snprintf(out + used, n - used, "%llu", (unsigned long long)rows)
                                  : snprintf(out + used, n - used, "%c", *text));
}

static void past_cache(group *g, const char *text, const mix *m) {
  checker *ck = g->ck;
  trial t;
  char err[400];
  ambi_status s = trial_make(&ck->ref, text, m, (uint64_t)ck->seed, -1, 0, &t, err, sizeof err);
  int all = ck->exhaustive || t.op.kind == AMBI_UNARY; /* the others share most of its stores: one instruction set */
  if (s != AMBI_OK) group_fail(g, text, "", "%s: %s", ambi_status_name(s), err);
  for (int i = 0; s == AMBI_OK && i < (all ? ck->target_count : 1); i++)
    for (int pass = 0; pass <= (t.differentiable != 0); pass++) {
      probe p = {g, &ck->targets[i], &t, (ambi_pass)pass, 0};
      exec e = prepare(&p, PADDED); /* rows begin at every alignment */
      finish(&p, &e, "padded, larger than the cache");
    }
  trial_free(&t);
}

void check_past_cache(group *g, ambi_kind kind, const mix *m) {
  ambi_device_info info;
  char text[256];
  if (ambi_device_get_info(g->ck->targets[0].dev, &info) != AMBI_OK || info.cache_bytes == 0) return;
  for (size_t i = 0; i < sizeof outgrowing / sizeof *outgrowing; i++) {
    size_t row = 1021 * ambi_dtype_size(m->activation) * (size_t)outgrowing[i].outputs;
    uint64_t rows = info.cache_bytes / 8 * 5 / row + 1; /* outputs of half its size may do */
    if (outgrowing[i].kind != kind) continue;
    put_rows(outgrowing[i].text, rows, text, sizeof text);
    if (rows > 16384)
      group_skip(g, "the cache is too large to outgrow");
    else
      past_cache(g, text, m);
  }
}
