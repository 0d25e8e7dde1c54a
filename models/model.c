/* model.c -- parameters on a device. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/amount.h"

/* ---- buffers ---- */

static int fail(char *err, size_t n) {
  if (n) snprintf(err, n, "%s", ambi_error());
  return 0;
}

static int allocate(model *m, int64_t elements, ambi_dtype dtype, ambi_buf *out) {
  return ambi_alloc(m->dev, (size_t)elements * ambi_dtype_size(dtype), out) == AMBI_OK;
}

/* The padding between parameters must be zero: it is part of norms and optimizer steps. */
static int clear(model *m, ambi_buf list) {
  size_t bytes = (size_t)m->params.size * ambi_dtype_size(m->master);
  void *zeros = calloc(bytes, 1);
  int ok = zeros && ambi_upload(m->stream, list, zeros, bytes) == AMBI_OK && ambi_stream_wait(m->stream) == AMBI_OK;
  free(zeros);
  return ok;
}

int model_too_large(const model *m, int flags, char *err, size_t n) {
  const double each = (double)ambi_dtype_size(m->master) * (flags & MODEL_TRAINS ? 4 : 1);
  const double shorts = m->dtype == m->master ? 0 : (double)m->params.decayed * (double)ambi_dtype_size(m->dtype);
  return snprintf(err, n, "%s of this model take %s: fewer or smaller layers need less; %s",
                  flags & MODEL_TRAINS ? "the parameters, gradients and AdamW's moments" : "the parameters",
                  amount_bytes((double)m->params.size * each + shorts).text, ambi_error()),
         0;
}

int model_create(model *m, ambi_device *dev, const model_config *c, ambi_dtype dtype, int flags, char *err, size_t n) {
  *m = (model){.dev = dev, .config = *c, .dtype = dtype, .master = dtype == AMBI_F64 ? AMBI_F64 : AMBI_F32};
  if (!config_check(c, err, n)) return 0;
  if (!params_list(c, &m->params)) return snprintf(err, n, "out of memory"), 0;
  if (m->params.size > PARAMS_MOST) {
    params_free(&m->params);
    return snprintf(err, n, "its dimensions make more than 2^44 parameters"), 0;
  }
  const int streams = ambi_stream_create(dev, NULL, &m->stream) == AMBI_OK;
  const int fits = streams && allocate(m, m->params.size, m->master, &m->weights) &&
                   (dtype == m->master || allocate(m, m->params.decayed, dtype, &m->shorts)) &&
                   (!(flags & MODEL_TRAINS) || allocate(m, m->params.size, m->master, &m->grads));
  if (fits && clear(m, m->weights) && (!m->grads.data || clear(m, m->grads))) return 1;
  if (fits || !streams)
    fail(err, n);
  else
    model_too_large(m, flags, err, n);
  model_destroy(m);
  return 0;
}

void model_destroy(model *m) {
  ambi_free(m->dev, m->weights);
  ambi_free(m->dev, m->shorts);
  ambi_free(m->dev, m->grads);
  ambi_stream_destroy(m->stream);
  params_free(&m->params);
  *m = (model){0};
}

/* ---- to and from the host ---- */

static double half_value(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  double v = exponent == 31  ? (mantissa ? NAN : INFINITY)
             : exponent == 0 ? ldexp(mantissa, -24)
                             : ldexp(mantissa + 1024, exponent - 25);
  return h >> 15 ? -v : v;
}

static double bfloat_value(uint16_t h) {
  const uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

void model_values(ambi_dtype dtype, const void *from, double *to, int64_t count) {
  const size_t size = ambi_dtype_size(dtype);
  for (int64_t i = 0; i < count; i++) {
    const char *at = (const char *)from + (size_t)i * size;
    float f;
    uint16_t h;
    if (dtype == AMBI_F64) memcpy(&to[i], at, size);
    if (dtype == AMBI_F32) memcpy(&f, at, size), to[i] = (double)f;
    if (dtype == AMBI_F16) memcpy(&h, at, size), to[i] = half_value(h);
    if (dtype == AMBI_BF16) memcpy(&h, at, size), to[i] = bfloat_value(h);
  }
}

static ambi_buf at(const model *m, ambi_buf list, const param *p) {
  list.offset += (uint64_t)p->offset * ambi_dtype_size(m->master);
  return list;
}

int model_put(model *m, ambi_buf list, const param *p, const double *from, char *err, size_t n) {
  const size_t bytes = (size_t)p->count * ambi_dtype_size(m->master);
  const void *data = from;
  float *narrow = NULL;
  if (m->master == AMBI_F32) {
    data = narrow = malloc(bytes);
    if (!narrow) return snprintf(err, n, "out of memory"), 0;
    for (int64_t i = 0; i < p->count; i++) narrow[i] = (float)from[i];
  }
  int ok = ambi_upload(m->stream, at(m, list, p), data, bytes) == AMBI_OK && ambi_stream_wait(m->stream) == AMBI_OK;
  free(narrow);
  return ok ? 1 : fail(err, n);
}

int model_get(const model *m, ambi_buf list, const param *p, double *to, char *err, size_t n) {
  const size_t bytes = (size_t)p->count * ambi_dtype_size(m->master);
  if (ambi_download(m->stream, to, at(m, list, p), bytes) != AMBI_OK || ambi_stream_wait(m->stream) != AMBI_OK)
    return fail(err, n);
  if (m->master == AMBI_F64) return 1;
  for (int64_t i = p->count - 1; i >= 0; i--) { /* from the end: the doubles grow over the floats */
    float v;
    memcpy(&v, (const char *)to + (size_t)i * sizeof v, sizeof v);
    to[i] = (double)v;
  }
  return 1;
}

int model_init(model *m, uint64_t seed, char *err, size_t n) {
  for (int64_t i = 0; i < m->params.count; i++) {
    const param *p = &m->params.param[i];
    double *values = malloc((size_t)p->count * sizeof *values);
    if (!values) return snprintf(err, n, "out of memory"), 0;
    params_fill(&m->config, p, seed, values);
    int ok = model_put(m, m->weights, p, values, err, n);
    free(values);
    if (!ok) return 0;
  }
  return model_round(m, err, n);
}

int model_round(model *m, char *err, size_t n) {
  if (m->dtype == m->master) return 1;
  ambi_op op = {.kind = AMBI_CAST};
  op.t[AMBI_CAST_X] = ambi_dense(m->master, 1, &m->params.decayed);
  op.t[AMBI_CAST_Y] = ambi_dense(m->dtype, 1, &m->params.decayed);
  const ambi_buf slots[AMBI_SLOTS] = {[AMBI_CAST_X] = m->weights, [AMBI_CAST_Y] = m->shorts};
  ambi_plan *plan = NULL;
  int ok = ambi_plan_create(m->dev, &op, &plan) == AMBI_OK &&
           ambi_run(plan, m->stream, slots, AMBI_SLOTS, (ambi_buf){0}) == AMBI_OK &&
           ambi_stream_wait(m->stream) == AMBI_OK;
  ambi_plan_destroy(plan);
  return ok ? 1 : fail(err, n);
}
