/* checkpoint.c -- see checkpoint.h. */
#define _POSIX_C_SOURCE 200809L
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../util/files.h"
#include "../util/safetensors.h"

enum { PATH = 4096 };

/* FOLDER/NAME; 0 when it is too long. */
static int join(char *out, const char *folder, const char *name, char *err, size_t n) {
  if (snprintf(out, PATH, "%s/%s", folder, name) < PATH) return 1;
  return snprintf(err, n, "%.100s..: the name is too long", folder), 0;
}

/* ---- reading ---- */

/* AMBI_NONE: no floating dtype. */
static ambi_dtype dtype_of(const safetensors_tensor *t) {
  static const struct {
    const char *name;
    ambi_dtype dtype;
  } known[] = {{"F64", AMBI_F64}, {"F32", AMBI_F32}, {"F16", AMBI_F16}, {"BF16", AMBI_BF16}};
  for (int i = 0; i < 4; i++) {
    if (strcmp(known[i].name, t->dtype) == 0) return known[i].dtype;
  }
  return AMBI_NONE;
}

static int same_shape(const safetensors_tensor *t, const param *p) {
  if (t->ndim != p->ndim) return 0;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] != p->shape[i]) return 0;
  }
  return 1;
}

static void shape_text(char *out, size_t n, int ndim, const int64_t *shape) {
  size_t at = (size_t)snprintf(out, n, "(");
  for (int i = 0; i < ndim && at < n; i++)
    at += (size_t)snprintf(out + at, n - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
  if (at < n) snprintf(out + at, n - at, ")");
}

/* The tensor of a parameter, of its shape and a dtype that can be read; NULL and the reason. */
static const safetensors_tensor *find_tensor(const safetensors *f, const char *prefix, const param *p, char *err,
                                             size_t n) {
  char name[PARAM_NAME + 8], is[64], wanted[64];
  snprintf(name, sizeof name, "%s%s", prefix, p->name);
  const safetensors_tensor *t = safetensors_find(f, name);
  if (!t) return snprintf(err, n, "there is no tensor '%s'", name), NULL;
  if (dtype_of(t) == AMBI_NONE) return snprintf(err, n, "tensor '%s' is %s, no floating dtype", name, t->dtype), NULL;
  if (same_shape(t, p)) return t;
  shape_text(is, sizeof is, t->ndim, t->shape);
  shape_text(wanted, sizeof wanted, p->ndim, p->shape);
  return snprintf(err, n, "tensor '%s' is %s; the config makes it %s", name, is, wanted), NULL;
}

/* Of a model that learns: every step would be skipped, or spread what is no number. */
static int all_finite(const char *name, const double *values, int64_t count, char *err, size_t n) {
  int64_t i = 0;
  while (i < count && isfinite(values[i])) i++;
  if (i == count) return 1;
  return snprintf(err, n, "tensor '%s' is not finite, first at element %lld: nothing can be learned from there", name,
                  (long long)i),
         0;
}

static int read_param(model *m, ambi_buf list, const param *p, const safetensors *f, const char *prefix, char *err,
                      size_t n) {
  const safetensors_tensor *t = find_tensor(f, prefix, p, err, n);
  if (!t) return 0;
  double *values = malloc((size_t)p->count * sizeof *values);
  if (!values) return snprintf(err, n, "out of memory"), 0;
  model_values(dtype_of(t), t->data, values, p->count);
  int ok = !m->grads.data || all_finite(t->name, values, p->count, err, n);
  ok = ok && model_put(m, list, p, values, err, n);
  free(values);
  return ok;
}

/* Tensors that nothing here reads would be a model that is not the one described. */
static int all_known(const model_config *c, const param_list *list, const safetensors *f, char *err, size_t n) {
  for (size_t i = 0; i < safetensors_count(f); i++) {
    const char *name = safetensors_at(f, i)->name;
    if (params_find(list, name) || (c->tied && strcmp(name, "lm_head.weight") == 0)) continue;
    if (strstr(name, "rotary_emb.inv_freq")) continue; /* follows from the config */
    return snprintf(err, n, "tensor '%.80s' belongs to no parameter of this model", name), 0;
  }
  return 1;
}

/* Opens FOLDER/NAME; what goes wrong is told with its path. */
static safetensors *open_in(const char *folder, const char *name, char *path, char *err, size_t n) {
  return join(path, folder, name, err, n) ? safetensors_open(path, err, n) : NULL;
}

static int explain(const char *path, const char *why, char *err, size_t n) {
  return snprintf(err, n, "%s: %s", path, why), 0;
}

int checkpoint_fits(const model_config *c, const char *folder, char *err, size_t n) {
  char path[PATH], why[400] = "out of memory";
  param_list list = {0};
  safetensors *f = open_in(folder, "model.safetensors", path, err, n);
  if (!f) return 0;
  int ok = params_list(c, &list) && all_known(c, &list, f, why, sizeof why);
  for (int64_t i = 0; ok && i < list.count; i++) ok = find_tensor(f, "", &list.param[i], why, sizeof why) != NULL;
  params_free(&list);
  safetensors_close(f);
  return ok ? 1 : explain(path, why, err, n);
}

int checkpoint_load(model *m, const char *folder, char *err, size_t n) {
  char path[PATH], why[400];
  safetensors *f = open_in(folder, "model.safetensors", path, err, n);
  if (!f) return 0;
  int ok = all_known(&m->config, &m->params, f, why, sizeof why);
  for (int64_t i = 0; ok && i < m->params.count; i++)
    ok = read_param(m, m->weights, &m->params.param[i], f, "", why, sizeof why);
  safetensors_close(f);
  return ok ? model_round(m, err, n) : explain(path, why, err, n);
}

static const char *const moment_prefix[2] = {"m.", "v."};

/* A count of steps in the metadata. */
static int read_count(const safetensors *f, const char *key, int64_t *count) {
  const char *text = safetensors_metadata(f, key);
  char *end;
  if (!text || *text < '0' || *text > '9') return 0;
  errno = 0;
  *count = strtoll(text, &end, 10);
  return *end == 0 && errno == 0 && *count < INT64_C(1) << 53;
}

int checkpoint_load_optimizer(optimizer *o, const char *folder, int64_t *step, char *err, size_t n) {
  char path[PATH], why[400] = "its metadata has no step";
  safetensors *f = open_in(folder, "optimizer.safetensors", path, err, n);
  if (!f) return 0;
  int64_t updates = 0;
  int ok = read_count(f, "step", step) && (read_count(f, "updates", &updates) || (updates = *step, 1));
  for (int64_t i = 0; ok && i < 2 * o->m->params.count; i++)
    ok = read_param(o->m, o->moments[i % 2], &o->m->params.param[i / 2], f, moment_prefix[i % 2], why, sizeof why);
  safetensors_close(f);
  if (ok && !optimizer_set(o, NUMBER_STEP, (double)updates)) ok = (snprintf(why, sizeof why, "%s", ambi_error()), 0);
  return ok ? 1 : explain(path, why, err, n);
}

/* ---- writing ---- */

typedef struct {
  const model *m;
  const optimizer *o; /* NULL: the parameters themselves */
} source;

static int fill(void *context, size_t i, FILE *to, char *err, size_t n) {
  const source *s = context;
  const param *p = &s->m->params.param[s->o ? i / 2 : i];
  double *values = malloc((size_t)p->count * sizeof *values);
  if (!values) return snprintf(err, n, "out of memory"), 0;
  int ok = model_get(s->m, s->o ? s->o->moments[i % 2] : s->m->weights, p, values, err, n);
  for (int64_t k = 0; ok && k < p->count; k++) {
    const float f = (float)values[k];
    if (s->m->master == AMBI_F64)
      fwrite(&values[k], sizeof values[k], 1, to);
    else
      fwrite(&f, sizeof f, 1, to);
  }
  free(values);
  return ok;
}

static int save_list(const source *s, int64_t step, const char *path, char *err, size_t n) {
  const size_t each = s->o ? 2 : 1, count = (size_t)s->m->params.count * each;
  safetensors_tensor *list = calloc(count, sizeof *list);
  char(*names)[PARAM_NAME + 8] = calloc(count, sizeof *names), steps[24], updates[24];
  double v[NUMBERS] = {0};
  if (!list || !names) {
    free(list);
    free(names);
    return snprintf(err, n, "out of memory"), 0;
  }
  for (size_t i = 0; i < count; i++) {
    const param *p = &s->m->params.param[i / each];
    snprintf(names[i], sizeof names[i], "%s%s", s->o ? moment_prefix[i % 2] : "", p->name);
    list[i] = (safetensors_tensor){.name = names[i], .dtype = s->m->master == AMBI_F64 ? "F64" : "F32"};
    list[i].ndim = p->ndim;
    memcpy(list[i].shape, p->shape, sizeof p->shape);
    list[i].bytes = (uint64_t)p->count * ambi_dtype_size(s->m->master);
  }
  snprintf(steps, sizeof steps, "%lld", (long long)step);
  int ok = !s->o || optimizer_get(s->o, v) || (snprintf(err, n, "%s", ambi_error()), 0);
  snprintf(updates, sizeof updates, "%.0f", v[NUMBER_STEP]); /* fewer than steps when some were skipped */
  const char *const metadata[] = {"step", steps, s->o ? "updates" : NULL, updates, NULL};
  ok = ok && safetensors_save(path, list, count, metadata, fill, (void *)s, err, n);
  free(list);
  free(names);
  return ok;
}

/* Files of a folder, and the folder; what is not there is no failure. */
void checkpoint_remove(const char *folder) {
  char path[PATH], why[160];
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && join(path, folder, e->d_name, why, sizeof why))
      unlink(path);
  }
  if (d) closedir(d);
  rmdir(folder);
}

static int write_files(const model *m, const optimizer *o, int64_t step, const char *folder, const char *extra,
                       const tokenizer *t, char *err, size_t n) {
  char path[PATH];
  const source weights = {m, NULL}, moments = {m, o};
  if (!folder_make(folder, err, n)) return 0;
  if (!join(path, folder, "model.safetensors", err, n) || !save_list(&weights, step, path, err, n)) return 0;
  if (!join(path, folder, "config.json", err, n) ||
      !config_write(path, &m->config, m->master == AMBI_F64 ? "float64" : "float32", err, n))
    return 0;
  if (o && (!join(path, folder, "optimizer.safetensors", err, n) || !save_list(&moments, step, path, err, n))) return 0;
  if (extra && (!join(path, folder, "training.json", err, n) || !file_write(path, extra, strlen(extra), err, n)))
    return 0;
  return !t || (join(path, folder, "tokenizer.json", err, n) && tokenizer_save(t, path, err, n));
}

int checkpoint_save(const model *m, const optimizer *o, int64_t step, const char *folder, const char *extra,
                    const tokenizer *t, char *err, size_t n) {
  char draft[PATH];
  if (snprintf(draft, sizeof draft, "%s.part", folder) >= PATH)
    return snprintf(err, n, "%.100s..: the name is too long", folder), 0;
  checkpoint_remove(draft);
  if (!write_files(m, o, step, draft, extra, t, err, n)) return checkpoint_remove(draft), 0;
  checkpoint_remove(folder); /* the same step, saved before */
  if (rename(draft, folder) == 0 && file_settle(folder)) return 1;
  snprintf(err, n, "%s: %s", folder, strerror(errno));
  checkpoint_remove(draft);
  return 0;
}
