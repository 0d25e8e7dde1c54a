/* optimizer.c -- see optimizer.h. */
#include "optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE = 16 }; /* bytes of a number's place */

/* ---- numbers ---- */

ambi_buf optimizer_at(const optimizer *o, optimizer_number which) {
  ambi_buf b = o->numbers;
  b.offset += (uint64_t)which * PLACE;
  return b;
}

ambi_dtype optimizer_dtype(const optimizer *o, optimizer_number which) {
  if (which == NUMBER_NONFINITE) return AMBI_I32;
  return which == NUMBER_STEP ? AMBI_I64 : o->m->master;
}

static void encode(ambi_dtype dtype, double v, void *at) {
  const float f = (float)v;
  const int32_t i = (int32_t)v;
  const int64_t l = (int64_t)v;
  memset(at, 0, PLACE);
  if (dtype == AMBI_F32) memcpy(at, &f, sizeof f);
  if (dtype == AMBI_F64) memcpy(at, &v, sizeof v);
  if (dtype == AMBI_I32) memcpy(at, &i, sizeof i);
  if (dtype == AMBI_I64) memcpy(at, &l, sizeof l);
}

static double decode(ambi_dtype dtype, const void *at) {
  float f;
  double d;
  int32_t i;
  int64_t l;
  memcpy(&f, at, sizeof f);
  memcpy(&d, at, sizeof d);
  memcpy(&i, at, sizeof i);
  memcpy(&l, at, sizeof l);
  return dtype == AMBI_F32 ? (double)f : dtype == AMBI_F64 ? d : dtype == AMBI_I32 ? (double)i : (double)l;
}

int optimizer_set(optimizer *o, optimizer_number which, double v) {
  unsigned char place[PLACE];
  encode(optimizer_dtype(o, which), v, place);
  return ambi_upload(o->m->stream, optimizer_at(o, which), place, PLACE) == AMBI_OK;
}

int optimizer_get(const optimizer *o, double v[NUMBERS]) {
  unsigned char places[NUMBERS * PLACE];
  if (ambi_download(o->m->stream, places, o->numbers, sizeof places) != AMBI_OK ||
      ambi_stream_wait(o->m->stream) != AMBI_OK)
    return 0;
  for (int i = 0; i < NUMBERS; i++) v[i] = decode(optimizer_dtype(o, (optimizer_number)i), places + i * PLACE);
  return 1;
}

/* ---- plans ---- */

static ambi_status plan_norm(optimizer *o, double clip) {
  ambi_op op = {.kind = AMBI_GRAD_NORM, .u.grad_norm.max_norm = clip};
  op.t[AMBI_GRAD_NORM_G] = ambi_dense(o->m->master, 1, &o->m->params.size);
  op.t[AMBI_GRAD_NORM_NORM] = op.t[AMBI_GRAD_NORM_SCALE] = ambi_dense(o->m->master, 0, NULL);
  op.t[AMBI_GRAD_NORM_NONFINITE] = ambi_dense(AMBI_I32, 0, NULL);
  return ambi_plan_create(o->m->dev, &op, &o->plan[0]);
}

/* Part 1: those that decay, part 2: the others, which also moves the count of steps on. */
static int64_t part_size(const optimizer *o, int part) {
  return part == 1 ? o->m->params.decayed : o->m->params.size - o->m->params.decayed;
}

/* adamw takes 0 for "not given"; this is 0 in every sum. */
static double beta_of(double beta) { return beta > 0 ? beta : 1e-300; }

static ambi_status plan_step(optimizer *o, int part, const optimizer_options *a) {
  const model *m = o->m;
  const int64_t count = part_size(o, part);
  const ambi_tensor list = ambi_dense(m->master, 1, &count), one = ambi_dense(m->master, 0, NULL);
  ambi_op op = {.kind = AMBI_ADAMW, .u.adamw = {beta_of(a->beta1), beta_of(a->beta2), a->eps, a->weight_decay}};
  if (part == 2 && !a->decay_all) op.u.adamw.weight_decay = 0;
  for (int s = AMBI_ADAMW_P; s <= AMBI_ADAMW_V; s++) op.t[s] = list;
  for (int s = AMBI_ADAMW_P_OUT; s <= AMBI_ADAMW_V_OUT; s++) op.t[s] = list;
  op.t[AMBI_ADAMW_LR] = op.t[AMBI_ADAMW_SCALE] = one;
  op.t[AMBI_ADAMW_SKIP] = ambi_dense(AMBI_I32, 0, NULL);
  op.t[AMBI_ADAMW_STEP] = ambi_dense(AMBI_I64, 0, NULL);
  if (part == 2) op.t[AMBI_ADAMW_STEP_OUT] = op.t[AMBI_ADAMW_STEP];
  if (part == 1 && m->dtype != m->master) op.t[AMBI_ADAMW_P_COPY] = ambi_dense(m->dtype, 1, &count);
  return ambi_plan_create(m->dev, &op, &o->plan[part]);
}

static ambi_status allocate(optimizer *o) {
  uint64_t most = 0;
  for (int i = 0; i < 3; i++) {
    ambi_plan_info info;
    ambi_plan_get_info(o->plan[i], &info);
    if (info.workspace > most) most = info.workspace;
  }
  const size_t bytes = (size_t)o->m->params.size * ambi_dtype_size(o->m->master);
  ambi_status s = most ? ambi_alloc(o->m->dev, most, &o->workspace) : AMBI_OK;
  for (int i = 0; i < 2 && s == AMBI_OK; i++) s = ambi_alloc(o->m->dev, bytes, &o->moments[i]);
  void *zeros = calloc(bytes, 1);
  for (int i = 0; zeros && i < 2 && s == AMBI_OK; i++) s = ambi_upload(o->m->stream, o->moments[i], zeros, bytes);
  if (s == AMBI_OK) s = ambi_stream_wait(o->m->stream);
  free(zeros);
  return zeros ? s : AMBI_NO_MEMORY;
}

static ambi_status make_numbers(optimizer *o) {
  ambi_status s = ambi_alloc(o->m->dev, (size_t)NUMBERS * PLACE, &o->numbers);
  for (int i = 0; i < NUMBERS && s == AMBI_OK; i++)
    optimizer_set(o, (optimizer_number)i, i == NUMBER_DLOSS || i == NUMBER_SCALE);
  return s == AMBI_OK ? ambi_stream_wait(o->m->stream) : s;
}

int optimizer_create(optimizer *o, model *m, const optimizer_options *options, char *err, size_t n) {
  *o = (optimizer){.m = m};
  ambi_status s = make_numbers(o);
  if (s == AMBI_OK && options) s = plan_norm(o, options->clip);
  for (int part = 1; part <= 2 && options && s == AMBI_OK; part++) s = plan_step(o, part, options);
  if (s == AMBI_OK && options) s = allocate(o);
  if (s == AMBI_OK) return 1;
  if (s == AMBI_NO_MEMORY && options)
    model_too_large(m, MODEL_TRAINS, err, n);
  else
    snprintf(err, n, "%s", ambi_error());
  optimizer_destroy(o);
  return 0;
}

void optimizer_destroy(optimizer *o) {
  if (!o->m) return;
  for (int i = 0; i < 3; i++) ambi_plan_destroy(o->plan[i]);
  for (int i = 0; i < 2; i++) ambi_free(o->m->dev, o->moments[i]);
  ambi_free(o->m->dev, o->numbers);
  ambi_free(o->m->dev, o->workspace);
  *o = (optimizer){0};
}

/* ---- a step ---- */

static ambi_status run_norm(const optimizer *o, ambi_stream *s) {
  ambi_buf slot[AMBI_SLOTS] = {[AMBI_GRAD_NORM_G] = o->m->grads};
  slot[AMBI_GRAD_NORM_NORM] = optimizer_at(o, NUMBER_NORM);
  slot[AMBI_GRAD_NORM_SCALE] = optimizer_at(o, NUMBER_SCALE);
  slot[AMBI_GRAD_NORM_NONFINITE] = optimizer_at(o, NUMBER_NONFINITE);
  return ambi_run(o->plan[0], s, slot, AMBI_SLOTS, o->workspace);
}

static ambi_status run_step(const optimizer *o, int part, ambi_stream *s) {
  const ambi_buf lists[] = {o->m->weights, o->m->grads, o->moments[0], o->moments[1]};
  ambi_buf slot[AMBI_SLOTS] = {0};
  for (int i = 0; i < 4; i++) {
    slot[AMBI_ADAMW_P + i] = lists[i];
    if (part == 2) slot[AMBI_ADAMW_P + i].offset += (uint64_t)o->m->params.decayed * ambi_dtype_size(o->m->master);
  }
  slot[AMBI_ADAMW_P_OUT] = slot[AMBI_ADAMW_P];
  slot[AMBI_ADAMW_M_OUT] = slot[AMBI_ADAMW_M];
  slot[AMBI_ADAMW_V_OUT] = slot[AMBI_ADAMW_V];
  if (part == 1) slot[AMBI_ADAMW_P_COPY] = o->m->shorts;
  slot[AMBI_ADAMW_LR] = optimizer_at(o, NUMBER_LR);
  slot[AMBI_ADAMW_STEP] = slot[AMBI_ADAMW_STEP_OUT] = optimizer_at(o, NUMBER_STEP);
  slot[AMBI_ADAMW_SCALE] = optimizer_at(o, NUMBER_SCALE);
  slot[AMBI_ADAMW_SKIP] = optimizer_at(o, NUMBER_NONFINITE);
  return ambi_run(o->plan[part], s, slot, AMBI_SLOTS, o->workspace);
}

ambi_status optimizer_run(const optimizer *o, ambi_stream *s) {
  ambi_status status = run_norm(o, s);
  for (int part = 1; part <= 2 && status == AMBI_OK; part++) status = run_step(o, part, s);
  return status;
}
