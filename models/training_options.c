/* training_options.c -- the options of a run as JSON: one table, read and written by the same rows. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../util/files.h"
#include "../util/json.h"
#include "training.h"

#define AT(field) offsetof(training_options, field)

static const struct {
  const char *name;
  int real;
  size_t offset;
} members[] = {{"batch", 0, AT(batch)},
               {"seq", 0, AT(length)},
               {"parts", 0, AT(parts)},
               {"steps", 0, AT(steps)},
               {"warmup", 0, AT(warmup)},
               {"lr", 1, AT(lr)},
               {"min_lr", 1, AT(min_lr)},
               {"beta1", 1, AT(beta1)},
               {"beta2", 1, AT(beta2)},
               {"weight_decay", 1, AT(weight_decay)},
               {"clip", 1, AT(clip)},
               {"val", 1, AT(val)},
               {"seed", 0, AT(seed)},
               {"log_every", 0, AT(log_every)},
               {"eval_every", 0, AT(eval_every)},
               {"eval_rows", 0, AT(eval_rows)},
               {"sample_every", 0, AT(sample_every)},
               {"sample_tokens", 0, AT(sample_tokens)},
               {"save_every", 0, AT(save_every)},
               {"recompute", 0, AT(recompute)}};
enum { MEMBERS = sizeof members / sizeof *members };

char *training_options_text(const training_options *o) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return NULL;
  for (int i = 0; i < MEMBERS; i++) {
    const void *at = (const char *)o + members[i].offset;
    fprintf(out, "%s  \"%s\": ", i ? ",\n" : "{\n", members[i].name);
    if (members[i].real)
      fprintf(out, "%.17g", *(const double *)at);
    else
      fprintf(out, "%lld", (long long)*(const int64_t *)at);
  }
  fprintf(out, "\n}\n");
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

int training_options_read(const char *path, training_options *o, char *err, size_t n) {
  char why[200] = "no JSON object";
  size_t bytes;
  char *text = file_read(path, 1 << 20, &bytes, err, n);
  json_doc *doc = text ? json_parse(text, bytes, why, sizeof why) : NULL;
  int ok = doc && json_root(doc)->type == JSON_OBJECT;
  for (int i = 0; ok && i < MEMBERS; i++) {
    const json_value *v = json_get(json_root(doc), members[i].name);
    void *at = (char *)o + members[i].offset;
    ok = !v || (v->type == JSON_NUMBER && (members[i].real || v->is_int));
    if (!ok) snprintf(why, sizeof why, "\"%s\" is no number of the right kind", members[i].name);
    if (ok && v && members[i].real) *(double *)at = v->number;
    if (ok && v && !members[i].real) *(int64_t *)at = v->integer;
  }
  if (text && !ok) snprintf(err, n, "%s: %s", path, why);
  json_free(doc);
  free(text);
  return ok;
}

/* Up in a straight line, then down half a cosine. */
double training_rate(const training_options *o, int64_t step) {
  if (step < o->warmup) return o->lr * (double)(step + 1) / (double)o->warmup;
  const double span = (double)(o->steps - o->warmup), done = (double)(step - o->warmup);
  const double part = span > 0 && done < span ? done / span : 1;
  return o->lr * (o->min_lr + (1 - o->min_lr) * 0.5 * (1 + cos(3.141592653589793 * part)));
}
