/* pack_run.c -- `ambi pack run`: one call over files. Params are those the manifest lists, in its order; sizes that are
 * not given come from the shape of a. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/json.h"
#include "../util/npy.h"
#include "pack.h"
#include "pack_kernels.h"

typedef struct {
  const char *folder, *id, *pass, *set, *file[AMBI_PACK_REGIONS];
  int64_t scratch; /* floats */
  npy_array in[AMBI_PACK_REGIONS], out;
  uint32_t words[PACK_WORDS];
  ambi_pack_call call;
} runner;

/* ---- params
 * ---------------------------------------------------------------------------------------------------------- */
static int64_t axis(const npy_array *a, int from_end) {
  return from_end < a->ndim ? a->shape[a->ndim - 1 - from_end] : 1;
}

/* What a param of this name is, by the shape of a (and for the other size of linear by b). */
static double inferred(const runner *r, const char *name, const json_value *params) {
  const npy_array *a = &r->in[AMBI_PACK_A], *b = &r->in[AMBI_PACK_B];
  int64_t last = axis(a, 0), rows = last ? (int64_t)a->count / last : 0;
  int back = strcmp(r->pass, "backward") == 0, by_rows = json_get(params, "hidden_dim") != NULL;
  const struct {
    const char *name;
    int64_t value;
  } known[] = {{"num_elements", by_rows ? rows : (int64_t)a->count},
               {"hidden_dim", last},
               {"rows", rows},
               {"out_features", back   ? last
                                : last ? (int64_t)b->count / last
                                       : 0},
               {"in_features", back ? (rows + last ? (int64_t)b->count / (rows + last) : 0) : last},
               {"head_dim", last},
               {"num_heads", axis(a, 1)},
               {"seq_len", axis(a, 2)},
               {"batch_size", axis(a, 3)}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return (double)known[i].value;
  return NAN;
}

/* --set name=value,name=value */
static int given(const char *set, const char *name, double *value) {
  size_t n = strlen(name);
  for (const char *at = set; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
    if (strncmp(at, name, n) != 0 || at[n] != '=') continue;
    *value = strtod(at + n + 1, NULL);
    return 1;
  }
  return 0;
}

static int take_param(runner *r, const json_value *p, const json_value *params, int index) {
  const json_value *start = json_get(p, "default");
  double v = inferred(r, p->key, params);
  if (v != v) v = start && start->type == JSON_NUMBER ? start->number : 0;
  given(r->set, p->key, &v);
  const char *type = json_text(json_get(p, "type"));
  float f = (float)v;
  if (index == PACK_WORDS || !type) return 0;
  if (strcmp(type, "f32") == 0)
    memcpy(&r->words[index], &f, sizeof f);
  else if (v >= 0 && v <= (double)UINT32_MAX)
    r->words[index] = (uint32_t)v;
  else
    return 0;
  return 1;
}

static int take_params(runner *r, const char *text, size_t bytes) {
  char err[200];
  int n = 0, good = 1;
  json_doc *doc = json_parse(text, bytes, err, sizeof err);
  const json_value *k = doc ? json_get(json_root(doc), "kernels")->child : NULL;
  while (k && strcmp(json_text(json_get(k, "id")), r->id) != 0) k = k->next;
  const json_value *params = json_get(k, "params");
  for (const json_value *p = params ? params->child : NULL; p && good; p = p->next)
    good = take_param(r, p, params, n++);
  if (!good) fprintf(stderr, "ambi pack: %s: its params cannot be made\n", r->id);
  r->call.at[AMBI_PACK_PARAMS] = r->words;
  r->call.bytes[AMBI_PACK_PARAMS] = (size_t)n * sizeof *r->words;
  json_free(doc);
  return good;
}

/* ---- regions
 * ------------------------------------------------------------------------------------------------------------- */
static int read_inputs(runner *r) {
  static const int inputs[] = {AMBI_PACK_A, AMBI_PACK_B, AMBI_PACK_WEIGHT};
  char err[300];
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    int k = inputs[i];
    if (!r->file[k]) continue;
    if (!npy_read(r->file[k], &r->in[k], err, sizeof err)) return fprintf(stderr, "ambi pack: %s\n", err), 0;
    r->call.at[k] = r->in[k].data;
    r->call.bytes[k] = r->in[k].count * sizeof(float);
  }
  return 1;
}

/* The result is shaped like a, but for linear, whose last axis is the other size. */
static int make_outputs(runner *r) {
  r->out = r->in[AMBI_PACK_A];
  int linear = strcmp(r->id, "linear_f32") == 0;
  if (linear && r->out.ndim > 0) {
    int64_t rows = r->words[0], cols = r->words[r->call.pass == AMBI_BACKWARD ? 2 : 1];
    r->out.shape[r->out.ndim - 1] = cols;
    r->out.count = (size_t)(rows * cols);
  }
  npy_array *s = &r->in[AMBI_PACK_SCRATCH];
  *s = (npy_array){.count = (size_t)(r->scratch > 0 ? r->scratch : 0), .ndim = 1, .shape = {r->scratch}};
  r->out.data = calloc(r->out.count + 1, sizeof(float));
  s->data = calloc(s->count + 1, sizeof(float));
  r->call.at[AMBI_PACK_OUT] = r->out.data;
  r->call.bytes[AMBI_PACK_OUT] = r->out.count * sizeof(float);
  r->call.at[AMBI_PACK_SCRATCH] = s->data;
  r->call.bytes[AMBI_PACK_SCRATCH] = s->count * sizeof(float);
  return r->out.data && s->data;
}

static int write_array(const char *path, const npy_array *a, const char *title) {
  char err[300];
  if (path) return npy_write(path, a, err, sizeof err) ? 1 : (fprintf(stderr, "ambi pack: %s\n", err), 0);
  printf("%s", title);
  for (size_t i = 0; i < a->count && i < 16; i++) printf(" %.7g", (double)a->data[i]);
  printf("%s\n", a->count > 16 ? " .." : "");
  return 1;
}

static int run(runner *r, trust_options *t) {
  ambi_pack_host *host = trust_host(t);
  ambi_pack *pack = NULL;
  ambi_pack_kernel *k = NULL;
  ambi_pack_info info;
  if (!host) return 1;
  int rc = ambi_pack_open(host, r->folder, &pack) != AMBI_OK || ambi_pack_get_info(pack, &info) != AMBI_OK;
  if (!rc && t->state) rc = ambi_pack_swap(host, pack) != AMBI_OK; /* it counts as activated */
  if (!rc) rc = ambi_pack_kernel_open(pack, r->id, &k) != AMBI_OK;
  if (rc) trouble(r->folder);
  if (!rc) rc = !read_inputs(r) || !take_params(r, info.manifest, info.manifest_bytes) || !make_outputs(r);
  if (!rc && ambi_pack_run(k, &r->call) != AMBI_OK) rc = trouble("run");
  if (!rc) rc = !write_array(r->file[AMBI_PACK_OUT], &r->out, "out:");
  if (!rc && r->scratch > 0) rc = !write_array(r->file[AMBI_PACK_SCRATCH], &r->in[AMBI_PACK_SCRATCH], "scratch:");
  ambi_pack_kernel_close(k);
  ambi_pack_close(pack);
  ambi_pack_host_destroy(host);
  return rc;
}

int pack_run(int argc, char **argv) {
  trust_options t = {0};
  runner r = {.pass = "forward"};
  const option opts[] = {{"a", OPT_STRING, &r.file[AMBI_PACK_A], "FILE", "input a: .npy of f32, or bare f32"},
                         {"b", OPT_STRING, &r.file[AMBI_PACK_B], "FILE", "input b"},
                         {"weight", OPT_STRING, &r.file[AMBI_PACK_WEIGHT], "FILE", "for the backward of norms"},
                         {"out", OPT_STRING, &r.file[AMBI_PACK_OUT], "FILE", "where to write out; none: it is printed"},
                         {"scratch", OPT_INT, &r.scratch, "N", "numbers of scratch"},
                         {"scratch-out", OPT_STRING, &r.file[AMBI_PACK_SCRATCH], "FILE", "where to write scratch"},
                         {"pass", OPT_STRING, &r.pass, "PASS", "forward or backward"},
                         {"set", OPT_STRING, &r.set, "P=V[,P=V]", "params; sizes otherwise come from the shape of a"},
                         TRUST_OPTIONS(t),
                         {0}};
  const command_line spec = {"ambi pack run",
                             "FOLDER KERNEL --trust KEY --a FILE ..",
                             "Runs a kernel of a verified pack in its sandbox.",
                             opts,
                             NULL,
                             2};
  const char *operands[2] = {NULL, NULL};
  int rc = options_parse(&spec, argc, argv, operands);
  if (rc >= 0) return rc;
  int back = strcmp(r.pass, "backward") == 0;
  if (!operands[1] || (!back && strcmp(r.pass, "forward") != 0)) return options_help(&spec), 2;
  r.folder = operands[0], r.id = operands[1];
  r.call.pass = back ? AMBI_BACKWARD : AMBI_FORWARD;
  rc = run(&r, &t);
  for (int k = 0; k < AMBI_PACK_REGIONS; k++) free(r.in[k].data);
  free(r.out.data);
  return rc;
}
