/* diagnose.c -- see diagnose.h. */
#include "diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- numbers that are none ---- */

static int all_finite(const double *v, int64_t count) {
  int64_t i = 0;
  while (i < count && isfinite(v[i])) i++;
  return i == count;
}

/* The first parameter, in order of the layers, that is not finite in `list` (or whose gradient is not); NULL: none. */
static const param *find_param(const model *m, ambi_buf list) {
  char why[200];
  for (int64_t i = 0; i < m->params.count; i++) {
    const param *p = &m->params.param[i];
    double *v = malloc((size_t)p->count * sizeof *v);
    int known = v && model_get(m, list, p, v, why, sizeof why), finite = !known || all_finite(v, p->count);
    free(v);
    if (!finite) return p;
  }
  return NULL;
}

/* Every element of a tensor, whatever its strides; what cannot be looked at counts as finite. */
static int tensor_finite(const model *m, const ambi_tensor *t, ambi_buf at) {
  const int64_t bytes = ambi_span(t), count = ambi_numel(t);
  const size_t size = ambi_dtype_size(t->dtype);
  char *raw = bytes > 0 && count > 0 ? malloc((size_t)bytes) : NULL;
  int finite = 1;
  if (raw && ambi_download(m->stream, raw, at, (size_t)bytes) == AMBI_OK && ambi_stream_wait(m->stream) == AMBI_OK) {
    for (int64_t i = 0; finite && i < count; i++) {
      int64_t rest = i, element = 0;
      double v;
      for (int k = t->ndim - 1; k >= 0; k--) element += rest % t->shape[k] * t->stride[k], rest /= t->shape[k];
      model_values(t->dtype, raw + (size_t)element * size, &v, 1);
      finite = isfinite(v);
    }
  }
  free(raw);
  return finite;
}

/* ---- op by op ---- */

/* The layer of the parameter at `at`, or `otherwise`. */
static int64_t layer_at(const model *m, ambi_buf at, int64_t otherwise) {
  const struct {
    ambi_buf list;
    ambi_dtype dtype;
  } lists[] = {{m->weights, m->master}, {m->shorts, m->dtype}};
  for (int k = 0; k < 2; k++) {
    const uint64_t size = ambi_dtype_size(lists[k].dtype);
    if (!at.data || at.data != lists[k].list.data || at.offset < lists[k].list.offset) continue;
    const int64_t element = (int64_t)((at.offset - lists[k].list.offset) / size);
    for (int64_t i = 0; i < m->params.count; i++) {
      if (m->params.param[i].offset == element) return m->params.param[i].layer;
    }
  }
  return otherwise;
}

static int is_floating(ambi_dtype t) { return t == AMBI_F32 || t == AMBI_F64 || t == AMBI_F16 || t == AMBI_BF16; }

/* Whether step i, which has run, left numbers only; *layer becomes its layer when it reads a parameter. */
static int step_finite(const trainer *r, int64_t i, int64_t *layer) {
  tape_slot s;
  int finite = 1;
  for (int k = 0; k < AMBI_SLOTS; k++) {
    if (!tape_step_slot(r->t, i, k, &s)) continue;
    if (k < AMBI_MAX_PRIMALS) *layer = layer_at(r->m, s.at, *layer);
    if (s.written && is_floating(s.tensor.dtype)) finite = finite && tensor_finite(r->m, &s.tensor, s.at);
  }
  return finite;
}

static void say(char *out, size_t n, int64_t layer, const char *what, const char *name) {
  if (layer >= 0)
    snprintf(out, n, "first in layer %lld, %s %s", (long long)layer, what, name);
  else
    snprintf(out, n, "first outside the layers, %s %s", what, name);
}

int diagnose_nonfinite(trainer *r, char *out, size_t n) {
  const param *p = find_param(r->m, r->m->weights);
  if (p) return say(out, n, p->layer, "in the parameter", p->name), 1;
  tape_step_info info;
  int64_t layer = -1;
  for (int64_t i = 0; tape_step(r->t, i, &info); i++) {
    if (tape_run_step(r->t, i, r->m->stream) != AMBI_OK) break;
    if (step_finite(r, i, &layer)) continue;
    say(out, n, layer, info.pass == AMBI_FORWARD ? "in what comes out of" : "in the gradients of",
        ambi_op_get_info(info.kind)->name);
    return 1;
  }
  p = find_param(r->m, r->m->grads); /* an earlier part of the step */
  if (p) say(out, n, p->layer, "in the gradient of", p->name);
  return p != NULL;
}
