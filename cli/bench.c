/* bench.c -- `ambi bench`: every kernel against what the machine can do, in one run. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../util/json.h"
#include "case.h"
#include "commands.h"
#include "device.h"
#include "model_options.h"
#include "options.h"
#include "print.h"

static const struct {
  const char *text;
  int flags, gpu;
} cases[] = {
#define BENCH(text, flags)     {text, flags, 0},
#define BENCH_GPU(text, flags) {text, flags, 1},
#include "bench_cases.def"
#undef BENCH
#undef BENCH_GPU
};
enum { CASES = sizeof cases / sizeof *cases };

static const char *const overhead_case = "unary x=16 function=silu";

typedef struct {
  const char *device, *op, *text, *isa, *dtype, *pass;
  int64_t threads;
  double seconds;
  int json, best, list, in_place, plans, warm;
  int gpu; /* the device is none of the host's: other sizes */
} bench_options;

typedef struct {
  const bench_options *o;
  bench_session session;
  bench_limits limits;
  int threads, failed, skipped;
} bench_job;

static const char *pass_name(ambi_pass p) { return p == AMBI_BACKWARD ? "backward" : "forward"; }

/* ---- one result ---- */

typedef struct {
  double ms, gbps, of_copy, gflops, of_peak; /* NaN: does not apply */
  double updates, workspace; /* selective_scan: state updates a second, of a CPU's core; workspace / (B D L N 4) */
} figures;

static double scan_states(const ambi_op *op) { /* B D L N */
  return (double)ambi_numel(&op->t[AMBI_SCAN_U]) * (double)op->t[AMBI_SCAN_A].shape[1];
}

static figures figures_of(const bench_job *j, const bench_case *c) {
  double seconds = j->o->best ? c->best : c->median;
  figures f = {.ms = seconds * 1e3, .of_peak = NAN, .updates = NAN, .workspace = NAN};
  f.gbps = (double)c->bytes / seconds / 1e9;
  f.gflops = (double)c->flops / seconds / 1e9;
  f.of_copy = f.gbps / j->limits.copy_gbps;
  if (c->op.kind == AMBI_LINEAR || c->op.kind == AMBI_ATTENTION) f.of_peak = f.gflops / j->limits.peak_gflops;
  if (c->op.kind == AMBI_SELECTIVE_SCAN) {
    f.updates = scan_states(&c->op) / seconds / j->threads; /* a GPU is one core here */
    f.workspace = (double)c->workspace / (scan_states(&c->op) * 4);
  }
  return f;
}

static const char *shape_text(const char *text) { /* the case without its op */
  const char *space = strchr(text, ' ');
  return space ? space + 1 : "";
}

static void print_head(const bench_job *j) {
  ambi_device_info i;
  if (j->o->json || ambi_device_get_info(j->session.target->dev, &i) != AMBI_OK) return;
  if (j->o->gpu)
    printf("%s; limit measured now: copy %.1f GB/s (read + write)\n", j->session.target->name, j->limits.copy_gbps);
  else
    printf("%s, %d thread%s; limits measured now: copy %.1f GB/s (read + write), f32 multiply-add %.0f GFLOP/s (%s)\n",
           j->session.target->name, j->threads, plural(j->threads), j->limits.copy_gbps, j->limits.peak_gflops,
           j->limits.isa);
  printf("%s of at least 5 runs; %s\n\n", j->o->best ? "best" : "median",
         j->o->warm  ? "the same buffers every time"
         : j->o->gpu ? "buffers rotate over 4 times the cache, or 8192 runs"
                     : "buffers rotate over 1 GiB");
  printf("%-14s %-8s %-5s %10s %8s %8s %9s  %s\n", "op", "pass", "dtype", "ms", "GB/s", "of copy", "GFLOP/s",
         "kernel | case");
}

static void print_row(const bench_job *j, const bench_case *c, const char *op) {
  figures f = figures_of(j, c);
  printf("%-14s %-8s %-5s %10.4f %8.1f %7.0f%% %9.1f  %s | %s\n", op, pass_name(c->pass), ambi_dtype_name(c->dtype),
         f.ms, f.gbps, 100 * f.of_copy, f.gflops, c->kernel, shape_text(c->text));
  if (c->runs < 5) printf("%39s one run only\n", "");
  if (!isnan(f.of_peak)) printf("%39s %.0f%% of the f32 multiply-add peak\n", "", 100 * f.of_peak);
  if (!isnan(f.updates))
    printf("%39s %.3g state updates a second%s, workspace / (B D L N 4 bytes) = %.4f\n", "", f.updates,
           j->o->gpu ? "" : " and core", f.workspace);
}

static void json_numbers(const char *const *keys, const double *values, int n) {
  for (int i = 0; i < n; i++) {
    printf(",\"%s\":", keys[i]);
    json_write_number(stdout, values[i]);
  }
}

static void json_words(const char *op, const char *pass, const char *dtype, const char *shape) {
  const char *const keys[] = {"op", "pass", "dtype", "shape"}, *const values[] = {op, pass, dtype, shape};
  for (int i = 0; i < 4; i++) {
    printf("%s\"%s\":", i ? "," : "{", keys[i]);
    json_write_text(stdout, values[i]);
  }
}

static void print_json_row(const bench_job *j, const bench_case *c, const char *op) {
  static const char *const keys[] = {
      "ms",      "gbps", "of_copy", "gflops",    "of_peak",    "updates_per_s_core", "workspace_ratio",
      "best_ms", "runs", "threads", "copy_gbps", "peak_gflops"};
  int ran = c->status == AMBI_OK;
  figures f = ran ? figures_of(j, c) : (figures){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  const double values[] = {f.ms,      f.gbps,     f.of_copy,           f.gflops,
                           f.of_peak, f.updates,  f.workspace,         ran ? c->best * 1e3 : NAN,
                           c->runs,   j->threads, j->limits.copy_gbps, j->limits.peak_gflops};
  json_words(op, pass_name(c->pass), ambi_dtype_name(c->dtype), shape_text(c->text));
  json_numbers(keys, values, sizeof values / sizeof *values);
  printf(",\"kernel\":");
  json_write_text(stdout, ran ? c->kernel : NULL);
  printf(",\"skipped\":");
  json_write_text(stdout, ran ? NULL : c->error);
  printf("}\n");
}

/* ---- all of them ---- */

static void progress(const char *op, ambi_pass pass, ambi_dtype dtype) {
  if (!isatty(2) || isatty(1)) return; /* rows on the terminal are progress enough */
  fprintf(stderr, "\r\033[K%s %s %s", op, pass_name(pass), ambi_dtype_name(dtype));
}

static void bench_one(bench_job *j, const char *text, int flags, ambi_pass pass, ambi_dtype dtype) {
  char op[64];
  bench_case c = {.text = text, .pass = pass, .dtype = dtype, .flags = flags};
  snprintf(op, sizeof op, "%.*s", (int)strcspn(text, " "), text);
  progress(op, pass, dtype);
  bench_run(&j->session, &c);
  if (flags & BENCH_FIXED_DTYPE && c.op.t[0].dtype) c.dtype = c.op.t[0].dtype;
  int lacks = c.status == AMBI_UNSUPPORTED;
  if (c.status != AMBI_OK) *(lacks ? &j->skipped : &j->failed) += 1;
  if (j->o->json)
    print_json_row(j, &c, op);
  else if (c.status == AMBI_OK)
    print_row(j, &c, op);
  else
    printf("%-14s %-8s %-5s %s: %s\n", op, pass_name(pass), ambi_dtype_name(dtype), lacks ? "skipped" : "FAILED",
           c.error);
  fflush(stdout);
}

static int wanted_pass(const bench_job *j, const char *op, int flags, ambi_pass pass) {
  const ambi_op_info *info = ambi_op_get_info(case_find_op(op));
  if (j->o->pass && strcmp(j->o->pass, pass_name(pass)) != 0) return 0;
  if (pass == AMBI_FORWARD && (flags & BENCH_BACKWARD_ONLY)) return 0;
  return pass == AMBI_FORWARD || !(flags & BENCH_FORWARD_ONLY || (info && !info->backward));
}

static void skip_missing(bench_job *j, const char *op, const char *text) {
  j->skipped++;
  if (!j->o->json) {
    printf("%-14s skipped: the library has no such op | %s\n", op, shape_text(text));
    return;
  }
  bench_case c = {.text = text, .status = AMBI_UNSUPPORTED, .dtype = AMBI_F32};
  snprintf(c.error, sizeof c.error, "the library has no such op");
  print_json_row(j, &c, op);
}

/* Of the device, and of the op that was asked for */
static int is_asked_for(const bench_options *o, int i) {
  size_t n = strcspn(cases[i].text, " ");
  return cases[i].gpu == o->gpu && (!o->op || (strlen(o->op) == n && !strncmp(o->op, cases[i].text, n)));
}

/* Both passes of one case, in each dtype asked for. */
static void bench_text(bench_job *j, const char *text, int flags) {
  char op[64];
  snprintf(op, sizeof op, "%.*s", (int)strcspn(text, " "), text);
  if (!case_find_op(op)) {
    skip_missing(j, op, text);
    return;
  }
  ambi_dtype given = j->o->dtype ? case_find_dtype(j->o->dtype) : AMBI_NONE;
  const ambi_dtype dtypes[] = {given ? given : AMBI_F32, AMBI_BF16};
  for (int d = 0; d < (given || flags & BENCH_FIXED_DTYPE ? 1 : 2); d++) {
    for (int pass = AMBI_FORWARD; pass <= AMBI_BACKWARD; pass++) {
      if (wanted_pass(j, op, flags, (ambi_pass)pass)) bench_one(j, text, flags, (ambi_pass)pass, dtypes[d]);
    }
  }
}

static void bench_overheads(bench_job *j) {
  double us[2] = {NAN, NAN};
  static const char *const what[] = {"run", "plan"};
  int ok = bench_overhead(j->session.target, overhead_case, &us[0], &us[1]) == 0;
  for (int i = 0; i < 2; i++) {
    double ms = us[i] / 1e3;
    if (j->o->json) {
      static const char *const keys[] = {"ms", "gbps", "of_copy", "gflops"};
      json_words("overhead", what[i], "f32", overhead_case);
      json_numbers(keys, (double[]){ms, NAN, NAN, NAN}, 4);
      printf(",\"kernel\":null}\n");
    } else if (ok) {
      printf("%-14s %-8s %-5s %10.3f us for one %s of %s\n", "overhead", what[i], "f32", us[i],
             i ? "ambi_plan_create" : "ambi_run", overhead_case);
    }
  }
}

static void bench_all(bench_job *j) {
  print_head(j);
  if (j->o->text) {
    bench_text(j, j->o->text, j->o->in_place ? BENCH_IN_PLACE : 0);
  } else {
    for (int i = 0; i < CASES; i++)
      if (is_asked_for(j->o, i)) bench_text(j, cases[i].text, cases[i].flags);
    if (!j->o->op || strcmp(j->o->op, "overhead") == 0) bench_overheads(j);
  }
  if (isatty(2) && !isatty(1)) fprintf(stderr, "\r\033[K");
  bench_limits again;
  if (j->o->json || j->o->gpu || bench_measure_limits(j->threads, &again) != 0) return;
  printf(
      "\nlimits measured again: copy %.1f GB/s, f32 multiply-add %.0f GFLOP/s (other work on the machine moves them)\n",
      again.copy_gbps, again.peak_gflops);
}

/* ---- first plans ---- */

static const double bar_compiled = 1.5, bar_kept = 0.05; /* seconds */

static void print_plan(const bench_job *j, const bench_case *c, const char *op, const bench_plan_times *t) {
  int over = t->compiled > bar_compiled || t->kept > bar_kept;
  if (j->o->json) {
    static const char *const keys[] = {"open_ms", "compiled_ms", "kept_ms", "texts"};
    const double nan[] = {NAN, NAN, NAN, NAN}, ms[] = {t->open * 1e3, t->compiled * 1e3, t->kept * 1e3, t->texts};
    json_words(op, pass_name(c->pass), ambi_dtype_name(c->dtype), shape_text(c->text));
    json_numbers(keys, c->status == AMBI_OK ? ms : nan, 4);
    printf(",\"skipped\":");
    json_write_text(stdout, c->status == AMBI_OK ? NULL : c->error);
    printf("}\n");
  } else if (c->status == AMBI_OK) {
    printf("%-20s %-8s %-5s %9.1f %9.1f %9.1f  %s | %s\n", op, pass_name(c->pass), ambi_dtype_name(c->dtype),
           t->open * 1e3, t->compiled * 1e3, t->kept * 1e3, t->texts ? over ? "OVER" : "within" : "nothing to compile",
           shape_text(c->text));
  } else {
    printf("%-20s %-8s %-5s FAILED: %s\n", op, pass_name(c->pass), ambi_dtype_name(c->dtype), c->error);
  }
  fflush(stdout);
}

/* 0: there is no device, or no compiler for it, which another case would only say again. */
static int plan_text(bench_job *j, const char *text, bench_plan_times *worst) {
  char op[64];
  snprintf(op, sizeof op, "%.*s", (int)strcspn(text, " "), text);
  ambi_dtype dtype = j->o->dtype ? case_find_dtype(j->o->dtype) : AMBI_BF16;
  for (int pass = AMBI_FORWARD; pass <= AMBI_BACKWARD; pass++) {
    bench_case c = {.text = text, .pass = (ambi_pass)pass, .dtype = dtype};
    bench_plan_times t;
    if (!wanted_pass(j, op, 0, (ambi_pass)pass)) continue;
    bench_first_plan(j->o->device, j->o->isa, &c, &t);
    if (c.status != AMBI_OK) j->failed++;
    if (c.status == AMBI_NO_DEVICE) return fprintf(stderr, "ambi bench: %s\n", c.error), 0;
    print_plan(j, &c, op, &t);
    worst->open = fmax(worst->open, t.open);
    worst->compiled = fmax(worst->compiled, t.compiled);
    worst->kept = fmax(worst->kept, t.kept);
  }
  return 1;
}

static int first_of_its_op(int i) {
  size_t n = strcspn(cases[i].text, " ") + 1;
  for (int k = 0; k < i; k++)
    if (cases[k].gpu == cases[i].gpu && strncmp(cases[k].text, cases[i].text, n) == 0) return 0;
  return 1;
}

/* One case of each op, or the one given: a plan each way. */
static int run_plans(const bench_options *o) {
  bench_job j = {.o = o};
  bench_plan_times worst = {0};
  if (!o->json) {
    printf("%s: a process's first plan, compiled (to be within %.0f ms) and from the disk (%.0f ms)\n\n", o->device,
           bar_compiled * 1e3, bar_kept * 1e3);
    printf("%-20s %-8s %-5s %9s %9s %9s\n", "op", "pass", "dtype", "open ms", "compiled", "from disk");
  }
  int there = !o->text || plan_text(&j, o->text, &worst);
  for (int i = 0; i < CASES && !o->text && there; i++)
    if (is_asked_for(o, i) && first_of_its_op(i)) there = plan_text(&j, cases[i].text, &worst);
  if (!o->json && there)
    printf("%-36s %9.1f %9.1f %9.1f\n", "at most", worst.open * 1e3, worst.compiled * 1e3, worst.kept * 1e3);
  return !there ? 2 : j.failed ? 1 : 0;
}

/* ---- the command ---- */

static int refuse(const char *what, const char *value, const char *choices) {
  fprintf(stderr, "ambi bench: there is no %s '%s'; there are %s\n", what, value, choices);
  return 2;
}

static int is_overhead(const bench_options *o) { return o->op && strcmp(o->op, "overhead") == 0; }

/* Whether the table has a case of --op. */
static int check_cases(const bench_options *o) {
  char list[600] = "";
  size_t used = 0;
  int found = !o->op || is_overhead(o);
  for (int i = 0; i < CASES; i++) {
    found |= is_asked_for(o, i);
    if (cases[i].gpu == o->gpu && first_of_its_op(i))
      used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s", used ? ", " : "",
                               (int)strcspn(cases[i].text, " "), cases[i].text);
  }
  if (found) return 0;
  fprintf(stderr, "ambi bench: no case of the table is of %s; --case TEXT gives one, or --op one of %s\n", o->op, list);
  return 2;
}

/* What is to be timed; *kind: of which op, 0 for all of them. */
static int check_work(const bench_options *o, ambi_kind *kind) {
  char list[600];
  ambi_op op = {0};
  if (o->text && case_parse(o->text, AMBI_F32, &op, list, sizeof list)) {
    fprintf(stderr, "ambi bench: --case: %s\n", list);
    return 2;
  }
  if (o->in_place && !o->text) {
    fprintf(stderr, "ambi bench: --in-place is for one case: --case TEXT gives it\n");
    return 2;
  }
  *kind = o->op ? case_find_op(o->op) : op.kind;
  if (is_overhead(o) && (o->plans || o->list || o->pass || o->dtype)) {
    fprintf(stderr, "ambi bench: --op overhead is no kernel: not with --plans, --list, --pass or --dtype\n");
    return 2;
  }
  if (o->op && !is_overhead(o) && !*kind)
    return refuse("op", o->op, strcat(case_list_ops(list, sizeof list - 12), ", overhead"));
  if (o->op && o->text && *kind != op.kind) {
    fprintf(stderr, "ambi bench: --op %s: the --case is one of %s\n", o->op, ambi_op_get_info(op.kind)->name);
    return 2;
  }
  return 0;
}

/* Whether --case can be in that pass and dtype; why: of the first that cannot. */
static int can_be(ambi_device *ref, const char *text, ambi_pass pass, ambi_dtype dtype, char *why, size_t n) {
  bench_case c = {.text = text, .pass = pass, .dtype = dtype};
  const int made = bench_make_op(ref, &c) == 0;
  if (made && ambi_check(ref, &c.op) != AMBI_INVALID) return 1;
  if (!*why) snprintf(why, n, "%.*s", (int)n - 1, made ? ambi_error() : c.error);
  return 0;
}

/* A case that can be in no pass and dtype asked for is refused: each would say so, after the limits are measured. */
static int check_text(const bench_options *o) {
  const ambi_dtype given = o->dtype ? case_find_dtype(o->dtype) : AMBI_NONE,
                   dtypes[] = {given ? given : AMBI_F32, AMBI_BF16};
  const bench_job j = {.o = o};
  ambi_device *ref = NULL;
  char op[64], why[300] = "";
  int possible = ambi_device_open("ref", NULL, &ref) != AMBI_OK;
  snprintf(op, sizeof op, "%.*s", (int)strcspn(o->text, " "), o->text);
  for (int d = 0; d < (given ? 1 : 2); d++) {
    for (int pass = AMBI_FORWARD; pass <= AMBI_BACKWARD && !possible; pass++)
      possible =
          wanted_pass(&j, op, 0, (ambi_pass)pass) && can_be(ref, o->text, (ambi_pass)pass, dtypes[d], why, sizeof why);
  }
  ambi_device_close(ref);
  return possible ? 0 : (fprintf(stderr, "ambi bench: --case: %s\n", why), 2);
}

static int check_options(const bench_options *o) {
  char err[SENTENCE_BYTES];
  ambi_kind kind;
  const int wrong = check_work(o, &kind);
  if (wrong) return wrong;
  if (o->dtype && !model_dtype(o->dtype)) return refuse("dtype", o->dtype, "f32, bf16, f16, f64");
  if (o->pass && strcmp(o->pass, "forward") && strcmp(o->pass, "backward"))
    return refuse("pass", o->pass, "forward, backward");
  const ambi_op_info *info = ambi_op_get_info(kind);
  if (o->pass && !strcmp(o->pass, "backward") && info && !info->backward)
    return fprintf(stderr, "ambi bench: --pass backward: %s has none\n", info->name), 2;
  const option_range rows[] = {{"threads", (double)o->threads, 0, OPTION_MOST_THREADS},
                               {"seconds", o->seconds, 0, 3600}};
  if (options_in_range(rows, 2, err, sizeof err) && device_can_be(o->device, o->isa, err, sizeof err))
    return o->text ? check_text(o) : check_cases(o);
  return fprintf(stderr, "ambi bench: %s\n", err), 2;
}

static int measure_limits(bench_job *j) {
  const int rc =
      j->o->gpu ? bench_device_limits(j->session.target, &j->limits) : bench_measure_limits(j->threads, &j->limits);
  if (rc)
    fprintf(stderr, "ambi bench: could not measure the limits: %s\n",
            j->o->gpu ? ambi_error() : "no memory or no thread");
  return rc;
}

static int run_bench(const bench_options *o) {
  target t;
  ambi_device_info info;
  char why[SENTENCE_BYTES];
  if (target_open(o->device, o->isa, (int)o->threads, &t) || ambi_device_get_info(t.dev, &info) != AMBI_OK) {
    fprintf(stderr, "ambi bench: %s\n", ambi_error());
    return 2;
  }
  if (!device_compiles(t.dev, o->device, why, sizeof why)) {
    target_close(&t);
    return fprintf(stderr, "ambi bench: %s\n", why), 2;
  }
  bench_job j = {.o = o, .threads = info.threads};
  j.session = (bench_session){.target = &t, .seconds = o->seconds, .rotate = o->warm ? 0 : UINT64_C(1) << 30};
  const int rc = measure_limits(&j);
  if (!rc) bench_all(&j);
  bench_close(&j.session);
  target_close(&t);
  if (!o->json && j.skipped + j.failed) printf("%d skipped, %d failed\n", j.skipped, j.failed);
  return rc || j.failed ? 1 : 0;
}

int bench_main(int argc, char **argv) {
  bench_options o = {.device = "cpu", .seconds = 0.3};
  const option options[] = {
      {"op", OPT_STRING, &o.op, "OP", "only this op, or `overhead`"},
      {"case", OPT_STRING, &o.text, "TEXT", "this case instead of the table, as in `rmsnorm x=64x512 w=512`"},
      {"pass", OPT_STRING, &o.pass, "PASS", "only forward, or only backward"},
      {"dtype", OPT_STRING, &o.dtype, "T", "f32, bf16, f16 or f64, instead of f32 and bf16"},
      {"threads", OPT_INT, &o.threads, "N", "threads; 0: all cores"},
      {"isa", OPT_STRING, &o.isa, "ISA", "as if the CPU had no more than this: baseline, avx2, .."},
      {"seconds", OPT_DOUBLE, &o.seconds, "S", "least time for the runs of one case; 0.3"},
      {"best", OPT_FLAG, &o.best, NULL, "report the best run, not the median"},
      {"warm", OPT_FLAG, &o.warm, NULL, "the same buffers every time: small ones stay in a cache"},
      {"in-place", OPT_FLAG, &o.in_place, NULL, "with --case: outputs over inputs where the op allows it"},
      {"plans", OPT_FLAG, &o.plans, NULL,
       "instead: how long a new process waits for its first plan, and for one kept on disk"},
      {"json", OPT_FLAG, &o.json, NULL, "one JSON object a line"},
      {"list", OPT_FLAG, &o.list, NULL, "the cases of the table, and nothing else"},
      {0}};
  const command_line spec = {
      "ambi bench",
      "[DEVICE]",
      "Times every kernel, forward and backward, against the copy bandwidth and the multiply-add peak\n"
      "of this machine, measured in the same run.",
      options,
      NULL,
      1};
  int rc = options_parse(&spec, argc, argv, &o.device);
  if (rc >= 0) return rc;
  o.gpu = strcmp(o.device, "cpu") != 0 && strcmp(o.device, "ref") != 0;
  if ((rc = options_alone(&spec, argc, argv, "list", "list op")) >= 0 ||
      (rc = options_alone(&spec, argc, argv, "plans", "plans op case pass dtype isa json")) >= 0)
    return rc;
  if ((rc = check_options(&o)) != 0) return rc;
  if (!o.list) return o.plans ? run_plans(&o) : run_bench(&o);
  for (int i = 0; i < CASES; i++)
    if (is_asked_for(&o, i)) printf("%s\n", cases[i].text);
  return 0;
}
