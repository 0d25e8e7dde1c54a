/* vectors.c -- agreement with numbers from another program.
 *
 * In f64 the library must give the file's numbers: || got - want || <= 1e-11 || want || for every tensor.
 * In f32, f16 and bf16 the inputs are first rounded to that dtype; what must come out is then no longer what the file
 * says, so the reference device computes it, in f64, from the rounded inputs. The bar for a tensor is then
 *     (u_storage + 8 u) || want ||  +  16 r  +  sqrt(n) tiny,      u = 2^-24
 *
 *  - u_storage for rounding the result; 8 u for one function within the 4 ulp that the ops promise.
 *  - r is how much the reference's result moves when every input moves by +-u: the size of the error that a
 *    backward-stable kernel makes by each operation. Two functions in a chain, at 8 u each, make 16 of them. Sums that
 *    cancel have a large r. Elementwise ops need none: their inputs are exact, and at a kink r would excuse anything.
 *  - tiny is half the spacing of the dtype's denormals. */
#include "vectors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "values.h"
#include "vectors_case.h"

static const char *const elementwise[] = {"unary", "gated", "add", "cast", "copy", "fill"};

/* Where the file itself is off by more than f64's rounding, because the program that wrote it is. */
static const struct {
  const char *word;
  double slack;
} known[] = {
    {"function=hardsigmoid", 3.0e-8}, /* torch's gradient multiplies by 1/6 rounded to f32, in f64 too */
};

/* ---- running a case ---- */

/* The case's op in that pass, every floating slot of `dtype`. */
static ambi_op op_of(const vectors_case *c, ambi_pass pass, ambi_dtype dtype) {
  ambi_op op = c->op;
  op.pass = pass;
  if (pass == AMBI_BACKWARD) op.want = c->gradient;
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) {
    if (value_is_float(op.t[s].dtype)) op.t[s].dtype = dtype;
    if (pass == AMBI_FORWARD) op.grad[s] = (ambi_tensor){0};
    if (value_is_float(op.grad[s].dtype)) op.grad[s].dtype = dtype;
  }
  return op;
}

/* What the op is given: inputs and arriving gradients, rounded to dtype and then moved by `move` of themselves. */
static void give(const vectors_case *c, ambi_dtype dtype, double move, rng *r, double **in) {
  uint32_t slots = c->in | c->out << AMBI_MAX_PRIMALS;
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!(slots & AMBI_BIT(s))) continue;
    int whole = s < AMBI_MAX_PRIMALS && !value_is_float(c->op.t[s].dtype);
    in[s] = values_new(c->n[s]);
    for (int64_t i = 0; i < c->n[s]; i++) {
      double x = whole ? c->v[s][i] : value_round(dtype, c->v[s][i]);
      in[s][i] = whole || move == 0 ? x : x * (1 + (rng_next(r) & 1 ? move : -move));
    }
  }
}

static void free_slots(double **v) {
  for (int s = 0; s < AMBI_SLOTS; s++) free(v[s]);
}

/* 1 when it ran, undamaged and with the file's number of elements in every slot of `targets`. */
static int run(const vectors_job *j, const vectors_case *c, const target *t, const ambi_op *op, double *const *in,
               uint32_t targets, exec *e) {
  memset(e, 0, sizeof *e);
  e->op = *op;
  for (int s = 0; s < AMBI_SLOTS; s++) e->in[s] = in[s];
  exec_run(t, e);
  const char *trouble = e->status != AMBI_OK ? e->error : e->damage;
  for (int s = 0; s < AMBI_SLOTS && !*trouble; s++) {
    if (targets & AMBI_BIT(s) && (!e->out[s] || ambi_numel(&e->t[s]) != c->n[s]))
      trouble = "an output has another shape";
  }
  if (*trouble) vectors_failure(j, c->name, "%s: %s\n    %s", t->name, trouble, c->text);
  return !*trouble;
}

/* r[s]: the largest change of slot s in two reference runs whose inputs move by +-u. */
static int measure_response(const vectors_job *j, const vectors_case *c, const ambi_op *op, ambi_dtype dtype,
                            uint32_t targets, double *const *want, double *r) {
  rng random = {12345};
  int ok = 1;
  for (int draw = 0; draw < 2 && ok; draw++) {
    double *in[AMBI_SLOTS] = {NULL};
    exec e;
    give(c, dtype, value_unit(AMBI_F32), &random, in);
    ok = run(j, c, j->ref, op, in, targets, &e);
    for (int s = 0; s < AMBI_SLOTS && ok; s++) {
      if (targets & AMBI_BIT(s)) r[s] = fmax(r[s], vectors_distance(AMBI_F64, e.out[s], want[s], c->n[s]));
    }
    exec_free(&e);
    free_slots(in);
  }
  return ok;
}

static int is_elementwise(const char *op) {
  for (size_t i = 0; i < sizeof elementwise / sizeof *elementwise; i++) {
    if (strcmp(elementwise[i], op) == 0) return 1;
  }
  return 0;
}

/* The bars at the top of this file. */
static double bar_f64(const vectors_case *c, const double *want, int64_t n) {
  double slack = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strstr(c->text, known[i].word)) slack = known[i].slack;
  }
  return (1e-11 + slack) * vectors_norm(want, n);
}

static double bar_narrow(ambi_dtype storage, const double *want, int64_t n, double response) {
  double u = value_unit(AMBI_F32), tiny = value_tiny(storage) * sqrt((double)n), finite = 0;
  for (int64_t i = 0; i < n; i++) {
    if (fabs(want[i]) <= value_max(storage)) finite += want[i] * want[i];
  }
  return (value_unit(storage) + 8 * u) * sqrt(finite) + 16 * response + tiny;
}

/* One pass in one dtype: run, find out what was to be expected, compare. 0 when there was nothing to compare. */
static int check_pass(const vectors_job *j, const vectors_case *c, ambi_pass pass, ambi_dtype dtype) {
  const ambi_op_info *info = ambi_op_get_info(c->op.kind);
  uint32_t targets = pass == AMBI_FORWARD ? c->out : c->gradient << AMBI_MAX_PRIMALS;
  ambi_op op = op_of(c, pass, dtype), exact = op_of(c, pass, AMBI_F64);
  double *in[AMBI_SLOTS] = {NULL}, response[AMBI_SLOTS] = {0};
  exec got, ref = {0};
  give(c, dtype, 0, NULL, in);
  int ok = run(j, c, j->dev, &op, in, targets, &got), narrow = dtype != AMBI_F64;
  if (ok && narrow) ok = run(j, c, j->ref, &exact, in, targets, &ref);
  if (ok && narrow && !is_elementwise(info->name))
    ok = measure_response(j, c, &exact, dtype, targets, ref.out, response);
  for (int s = 0; s < AMBI_SLOTS && ok; s++) {
    if (!(targets & AMBI_BIT(s))) continue;
    char name[64], what[120];
    const double *want = narrow ? ref.out[s] : c->v[s];
    double bar = narrow ? bar_narrow(got.t[s].dtype, want, c->n[s], response[s]) : bar_f64(c, want, c->n[s]);
    snprintf(what, sizeof what, "%s %s", ambi_dtype_name(dtype), slot_name(&op, s, name, sizeof name));
    vectors_compare(j, c->name, what, got.t[s].dtype, got.out[s], want, c->n[s], bar);
  }
  exec_free(&got);
  exec_free(&ref);
  free_slots(in);
  return ok;
}

static void check_case(const vectors_job *j, const json_value *json, const ambi_op_info *info, const char *name) {
  static const ambi_dtype dtypes[] = {AMBI_F64, AMBI_F32, AMBI_F16, AMBI_BF16};
  vectors_case c = {.name = name};
  int ok = vectors_read(j, json, info, &c) == 0;
  if (ok && ambi_check(j->dev->dev, &c.op) == AMBI_UNSUPPORTED) {
    printf("vectors: skipped %s: %s\n", name, ambi_error());
    j->result->skipped++;
    ok = 0;
  }
  for (size_t d = 0; ok && d < sizeof dtypes / sizeof *dtypes; d++) {
    /* Once forward's outputs have the file's sizes, the gradients that arrive on them have the right ones too. */
    if (check_pass(j, &c, AMBI_FORWARD, dtypes[d])) check_pass(j, &c, AMBI_BACKWARD, dtypes[d]);
  }
  free_slots(c.v);
}

/* ---- the folder ---- */

/* Cases of one missing op that follow each other share a line. */
static void skip_missing(vectors_job *j, const char *name, const char *op) {
  int more = j->missing && strcmp(j->missing, op) == 0;
  if (more)
    printf(", %s", name);
  else
    printf("%svectors: skipped, as there is no op %s: %s", j->missing ? "\n" : "", op, name);
  j->missing = op;
  j->result->skipped++;
}

static void end_missing(vectors_job *j) {
  if (j->missing) printf("\n");
  j->missing = NULL;
}

static void check_entry(vectors_job *j, const json_value *json, const char *only) {
  const char *name = json_text(json_get(json, "name")), *op = json_text(json_get(json, "op"));
  if (!name || !op) {
    vectors_failure(j, "ops.json", "an entry without name or op");
    return;
  }
  if (only && strcmp(only, op) != 0) return;
  const ambi_op_info *info = ambi_op_get_info(case_find_op(op));
  if (!info) {
    skip_missing(j, name, op);
    return;
  }
  end_missing(j);
  if (strcmp(name, "adamw_clip") == 0) {
    vectors_adamw(j, name, json_get(json, "attrs"));
  } else {
    check_case(j, json, info, name);
  }
}

/* The whole file as text; NULL and errno when it cannot be read. */
static char *read_text(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  char *text = f ? malloc(JSON_MAX_BYTES / 8) : NULL;
  if (text) *size = fread(text, 1, JSON_MAX_BYTES / 8, f);
  if (text && (ferror(f) || !feof(f))) {
    if (!ferror(f)) errno = EFBIG;
    free(text);
    text = NULL;
  }
  if (f) fclose(f);
  return text;
}

typedef struct {
  json_doc *cases;
  safetensors *file;
} vectors_files;

static void close_files(vectors_files *f) {
  safetensors_close(f->file);
  json_free(f->cases);
}

/* Both files of the folder; 1, or 0 and err when one cannot be read. */
static int open_files(vectors_files *f, const char *dir, char *err, size_t n) {
  char path[1000], why[300];
  size_t size = 0;
  *f = (vectors_files){0};
  snprintf(path, sizeof path, "%s/ops.json", dir);
  char *text = read_text(path, &size);
  if (!text) snprintf(why, sizeof why, "%s", strerror(errno));
  f->cases = text ? json_parse(text, size, why, sizeof why) : NULL;
  free(text);
  if (!f->cases || json_root(f->cases)->type != JSON_ARRAY) {
    snprintf(err, n, "%s: %s", path, f->cases ? "is no array of cases" : why);
  } else {
    snprintf(path, sizeof path, "%s/ops.safetensors", dir);
    f->file = safetensors_open(path, err, n);
  }
  if (!f->file) close_files(f);
  return f->file != NULL;
}

int vectors_readable(const char *dir, char *err, size_t n) {
  vectors_files f;
  int good = open_files(&f, dir, err, n);
  if (good) close_files(&f);
  return good;
}

void vectors_check(const target *dev, const target *ref, const char *dir, const vectors_choice *choice,
                   vectors_result *r) {
  char err[1400];
  vectors_files f;
  int64_t number = 0;
  vectors_job j = {.dev = dev, .ref = ref, .verbose = choice->verbose, .result = r};
  if (!open_files(&f, dir, err, sizeof err)) {
    vectors_failure(&j, "files", "%s", err);
    return;
  }
  j.file = f.file;
  for (const json_value *c = json_root(f.cases)->child; c; c = c->next)
    if (number++ % choice->jobs == choice->job) check_entry(&j, c, choice->op);
  end_missing(&j);
  close_files(&f);
}
