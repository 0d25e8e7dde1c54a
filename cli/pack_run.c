/* pack_run.c -- `ambi pack run`: one call over files. Params are those the manifest lists, in its order; sizes that are
 * not given come from the shape of a. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/json.h"
#include "../util/npy.h"
#include "pack.h"
#include "pack_kernels.h"

typedef struct {
  const char *folder, *id, *pass, *set, *file[AMBI_PACK_REGIONS];
  int64_t scratch;          /* floats */
  const json_value *kernel; /* what the manifest says of it */
  npy_array in[AMBI_PACK_REGIONS], out;
  uint32_t words[PACK_WORDS];
  ambi_pack_call call;
} runner;

__attribute__((format(printf, 2, 3))) static int wrong(const runner *r, const char *format, ...) {
  char sentence[600];
  va_list ap;
  va_start(ap, format);
  vsnprintf(sentence, sizeof sentence, format, ap);
  va_end(ap);
  fprintf(stderr, "ambi pack: %s: ", r->id);
  put_plain(stderr, sentence); /* it may name a param */
  fprintf(stderr, "\n");
  return 0;
}

/* ---- params ---- */
static int64_t axis(const npy_array *a, int from_end) {
  return from_end < a->ndim ? a->shape[a->ndim - 1 - from_end] : 1;
}

/* What a param of this name is, by the shape of a (and for the other size of linear by b). NAN: shapes do not say such
 * things; -1: this one does not. */
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
               {"num_heads", a->ndim > 1 ? axis(a, 1) : -1},
               {"seq_len", a->ndim > 2 ? axis(a, 2) : -1},
               {"batch_size", axis(a, 3)}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return (double)known[i].value;
  return NAN;
}

/* --set name=value,name=value: the value of a name, if it is there */
static int given(const char *set, const char *name, double *value) {
  size_t n = strlen(name);
  for (const char *at = set; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
    if (strncmp(at, name, n) != 0 || at[n] != '=') continue;
    *value = strtod(at + n + 1, NULL);
    return 1;
  }
  return 0;
}

/* Each piece of it names a param, and a number. */
static int check_set(const runner *r, const json_value *params) {
  char piece[300], *end;
  for (const char *at = r->set; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
    snprintf(piece, sizeof piece, "%.*s", (int)strcspn(at, ","), at);
    char *value = strchr(piece, '=');
    if (!value) return wrong(r, "--set: expected PARAM=NUMBER, got '%s'", piece);
    *value++ = 0;
    if (!json_get(params, piece)) return wrong(r, "--set: it has no param '%s'", piece);
    for (const char *other = r->set; other < at; other += strcspn(other, ",") + 1)
      if (strncmp(other, piece, strlen(piece)) == 0 && other[strlen(piece)] == '=')
        return wrong(r, "--set: %s is given twice", piece);
    strtod(value, &end);
    if (end == value || *end) return wrong(r, "--set: %s: expected a number, got '%s'", piece, value);
  }
  return 1;
}

static int within(const runner *r, const json_value *p, double v) {
  const json_value *least = json_get(p, "min"), *most = json_get(p, "max");
  if (least && v < least->number) return wrong(r, "%s: at least %g, got %g", p->key, least->number, v);
  if (most && v > most->number) return wrong(r, "%s: at most %g, got %g", p->key, most->number, v);
  return 1;
}

static int take_param(runner *r, const json_value *p, const json_value *params, int index) {
  const json_value *start = json_get(p, "default");
  double shape = inferred(r, p->key, params);
  double v = shape == shape ? shape : start ? start->number : 0;
  if (!given(r->set, p->key, &v) && shape < 0)
    return wrong(r, "a has too few axes to say %s: --set %s=N does", p->key, p->key);
  float f = (float)v;
  if (index == PACK_WORDS) return wrong(r, "more than %d params", (int)PACK_WORDS);
  if (!within(r, p, v)) return 0;
  if (strcmp(json_text(json_get(p, "type")), "f32") == 0) {
    memcpy(&r->words[index], &f, sizeof f);
    return 1;
  }
  if (!(v >= 0 && v <= (double)UINT32_MAX) || v != floor(v))
    return wrong(r, "%s: expected a whole number from 0 to %u, got %g", p->key, UINT32_MAX, v);
  r->words[index] = (uint32_t)v;
  return 1;
}

static int take_params(runner *r) {
  const json_value *params = json_get(r->kernel, "params");
  int n = 0, good = check_set(r, params);
  for (const json_value *p = params ? params->child : NULL; p && good; p = p->next)
    good = take_param(r, p, params, n++);
  r->call.at[AMBI_PACK_PARAMS] = r->words;
  r->call.bytes[AMBI_PACK_PARAMS] = (size_t)n * sizeof *r->words;
  return good;
}

/* ---- shapes ---- */
/* What this axis must be: itself, or what the axis of a with the same symbol is; -1: anything. */
static int64_t wanted_axis(const json_value *axis, const json_value *of_a, const npy_array *a) {
  if (axis->type == JSON_NUMBER) return axis->integer;
  const json_value *s = json_get(of_a, "shape")->child;
  for (int i = 0; s; s = s->next, i++)
    if (s->type == JSON_STRING && strcmp(s->text, axis->text) == 0) return a->shape[i];
  return -1;
}

/* Bytes say nothing about a transposed b. The manifest describes forward; b with one axis may hold more than it says
 * (a weight, then a bias). */
static int check_shapes(const runner *r) {
  const npy_array *a = &r->in[AMBI_PACK_A], *b = &r->in[AMBI_PACK_B];
  const json_value *inputs = json_get(r->kernel, "inputs"), *of_a = inputs ? inputs->child : NULL;
  const json_value *of_b = of_a ? of_a->next : NULL;
  if (r->call.pass != AMBI_FORWARD || !of_b || b->ndim < 2) return 1;
  if ((size_t)a->ndim != json_get(of_a, "shape")->length || (size_t)b->ndim != json_get(of_b, "shape")->length)
    return 1;
  const json_value *axis = json_get(of_b, "shape")->child;
  for (int i = 0; i < b->ndim; i++, axis = axis->next) {
    int64_t want = wanted_axis(axis, of_a, a);
    if (want >= 0 && b->shape[i] != want)
      return wrong(r, "b: axis %d has %lld elements, expected %lld as in a", i, (long long)b->shape[i],
                   (long long)want);
  }
  return 1;
}

/* x, grad_y: a slot, counted from 1, as the manifest calls it, which describes forward. */
static void say_slot(const pack_def *d, int slot) {
  const int8_t(*of)[2] = d->layout[AMBI_FORWARD];
  const int gradient = slot > AMBI_MAX_PRIMALS, primal = gradient ? slot - AMBI_MAX_PRIMALS : slot;
  const char *name = primal == of[AMBI_PACK_A][0]     ? d->inputs[0].name
                     : primal == of[AMBI_PACK_OUT][0] ? d->outputs[0].name
                                                      : d->inputs[1].name;
  fprintf(stderr, "%s%s", gradient ? "grad_" : "", name);
}

/* Backward's inputs, which no manifest describes: by the table of kernels. */
static void say_backward(const runner *r) {
  static const struct {
    int region;
    const char *name;
  } inputs[] = {{AMBI_PACK_A, "a"}, {AMBI_PACK_B, "b"}, {AMBI_PACK_WEIGHT, "weight"}};
  const pack_def *d = pack_def_named(r->id);
  fprintf(stderr, "ambi pack: %s backward %s", r->id, d ? "takes" : "was given");
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    const int8_t *slot = d ? d->layout[AMBI_BACKWARD][inputs[i].region] : NULL;
    const int here = r->file[inputs[i].region] != NULL;
    if (d ? !slot[0] : !here) continue;
    fprintf(stderr, "%s --%s", i ? "," : "", inputs[i].name);
    for (int k = 0; d && k < 2 && slot[k]; k++) fprintf(stderr, k ? " then " : " "), say_slot(d, slot[k]);
    if (!here) fprintf(stderr, " (not given)");
  }
  fprintf(stderr, "\n");
}

/* After a call that was refused: what the manifest says of its inputs. */
static void say_inputs(const runner *r) {
  const json_value *inputs = json_get(r->kernel, "inputs");
  if (r->call.pass == AMBI_BACKWARD) say_backward(r);
  if (r->call.pass != AMBI_FORWARD || !inputs || !inputs->child) return;
  fprintf(stderr, "ambi pack: %s takes", r->id);
  for (const json_value *t = inputs->child; t; t = t->next) {
    fprintf(stderr, " ");
    put_plain(stderr, json_text(json_get(t, "name")));
    fprintf(stderr, " (");
    for (const json_value *n = json_get(t, "shape")->child; n; n = n->next) {
      if (n->type == JSON_STRING)
        put_plain(stderr, n->text);
      else
        fprintf(stderr, "%lld", (long long)n->integer);
      fprintf(stderr, "%s", n->next ? ", " : "");
    }
    fprintf(stderr, ")%s", t->next ? "," : "\n");
  }
}

/* ---- regions ---- */
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
  *s = (npy_array){.count = (size_t)r->scratch, .ndim = 1, .shape = {r->scratch}};
  r->out.data = calloc(r->out.count + 1, sizeof(float));
  s->data = calloc(s->count + 1, sizeof(float));
  r->call.at[AMBI_PACK_OUT] = r->out.data;
  r->call.bytes[AMBI_PACK_OUT] = r->out.count * sizeof(float);
  r->call.at[AMBI_PACK_SCRATCH] = s->data;
  r->call.bytes[AMBI_PACK_SCRATCH] = s->count * sizeof(float);
  return (r->out.data && s->data) || wrong(r, "no memory for %zu results", r->out.count + s->count);
}

static int write_array(const char *path, const npy_array *a, const char *title) {
  char err[300];
  if (path) return npy_write(path, a, err, sizeof err) ? 1 : (fprintf(stderr, "ambi pack: %s\n", err), 0);
  printf("%s", title);
  for (size_t i = 0; i < a->count; i++) printf(" %.9g", (double)a->data[i]); /* 9 digits name an f32 */
  printf("\n");
  return 1;
}

/* Opens the kernel, or what steps in for it, which is then what is run. */
static int open_kernel(runner *r, ambi_pack *pack, ambi_pack_kernel **k) {
  if (ambi_pack_kernel_open(pack, r->id, k) != AMBI_OK) return trouble(r->folder), 0;
  const char *id = ambi_pack_kernel_id(*k);
  if (strcmp(id, r->id) != 0) fprintf(stderr, "ambi pack: %s cannot be used: its fallback %s steps in\n", r->id, id);
  r->id = id;
  return 1;
}

static int run_opened(runner *r, ambi_pack *pack, const char *text, size_t bytes) {
  ambi_pack_kernel *k = NULL;
  char err[200];
  int good = open_kernel(r, pack, &k);
  json_doc *doc = json_parse(text, bytes, err, sizeof err);
  r->kernel = doc ? json_get(json_root(doc), "kernels")->child : NULL;
  while (good && r->kernel && strcmp(json_text(json_get(r->kernel, "id")), r->id) != 0) r->kernel = r->kernel->next;
  good = good && read_inputs(r) && check_shapes(r) && take_params(r) && make_outputs(r);
  if (good && ambi_pack_run(k, &r->call) != AMBI_OK) {
    good = !trouble("run");
    if (r->call.code == 1) say_inputs(r);
  }
  good = good && write_array(r->file[AMBI_PACK_OUT], &r->out, "out:");
  if (good && r->scratch) good = write_array(r->file[AMBI_PACK_SCRATCH], &r->in[AMBI_PACK_SCRATCH], "scratch:");
  json_free(doc);
  ambi_pack_kernel_close(k);
  return good;
}

static int run(runner *r, trust_options *t) {
  ambi_pack_host *host = trust_host(t);
  ambi_pack *pack = NULL;
  ambi_pack_info info;
  if (!host) return 1;
  int good = ambi_pack_open(host, r->folder, &pack) == AMBI_OK && ambi_pack_get_info(pack, &info) == AMBI_OK;
  if (good && t->state) good = ambi_pack_swap(host, pack) == AMBI_OK; /* it counts as activated */
  if (!good) trouble(r->folder);
  good = good && run_opened(r, pack, info.manifest, info.manifest_bytes);
  ambi_pack_close(pack);
  ambi_pack_host_destroy(host);
  return !good;
}

static int check_options(const command_line *spec, const runner *r) {
  if (strcmp(r->pass, "forward") != 0 && strcmp(r->pass, "backward") != 0)
    return options_wrong(spec, "--pass: expected forward or backward, got '%s'", r->pass);
  if (!r->file[AMBI_PACK_A]) return options_wrong(spec, "--a names the input");
  char err[200];
  if (!options_in_range(&(option_range){"scratch", (double)r->scratch, 0, UINT32_MAX / 4}, 1, err, sizeof err))
    return options_wrong(spec, "%s", err);
  if (r->file[AMBI_PACK_SCRATCH] && !r->scratch)
    return options_wrong(spec, "--scratch-out: there is none without --scratch N");
  return 0;
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
                         {"pass", OPT_STRING, &r.pass, "PASS", "forward (the default) or backward"},
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
  int rc = trust_parse(&spec, argc, argv, operands, &t);
  if (rc >= 0) return rc;
  if ((rc = check_options(&spec, &r))) return rc;
  r.folder = operands[0], r.id = operands[1];
  r.call.pass = strcmp(r.pass, "backward") == 0 ? AMBI_BACKWARD : AMBI_FORWARD;
  rc = run(&r, &t);
  for (int k = 0; k < AMBI_PACK_REGIONS; k++) free(r.in[k].data);
  free(r.out.data);
  return rc;
}
