/* check.c -- `ambi check`: walks ops, cases and dtypes, and adds up. What is proved, and how, is in the parts:
 *
 *   fd.c            the reference's gradients are the derivatives of its outputs
 *   check_kernel.c  every kernel gives what the reference gives, in every layout, for every choice of gradients
 *   check_bits.c    .. with the same bits every time
 *   check_ulp.c     elementwise functions are right over their whole range, conversions to the last bit
 *   check_cases.c   which cases: those of cases.def, one that is given, or random ones
 *   vectors.c       numbers from another program agree
 *   check_jobs.c    .. and all of it by several processes at a time: on a GPU, most of it is compiling            */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <io.h>
#define is_terminal() _isatty(1)
#else
#include <unistd.h>
#define is_terminal() isatty(1)
#endif

#include "case.h"
#include "check_model.h"
#include "commands.h"
#include "device.h"
#include "options.h"
#include "vectors.h"

static const mix mixes[] = {{"f32", AMBI_F32, AMBI_F32, AMBI_NONE, 0},    {"f16", AMBI_F16, AMBI_F16, AMBI_NONE, 0},
                            {"bf16", AMBI_BF16, AMBI_BF16, AMBI_NONE, 0}, {"f64", AMBI_F64, AMBI_F64, AMBI_NONE, 0},
                            {"mixed", AMBI_BF16, AMBI_F32, AMBI_F32, 0},  {"any", AMBI_F32, AMBI_F32, AMBI_NONE, 1}};
enum { F32_MIX = 0, BF16_MIX = 2, MIXES = sizeof mixes / sizeof *mixes };

/* ---- devices ---- */
/* One target for each instruction set the CPU can be held to, best first; other devices have one. */
static int open_targets(checker *ck) {
  static const char *const isas[] = {NULL, "avx512", "avx2", "neon", "baseline"};
  int is_cpu = !strcmp(ck->device, "cpu"), n = is_cpu && !ck->isa ? 5 : 1;
  for (int i = 0; i < n; i++) {
    target *t = &ck->targets[ck->target_count];
    const char *isa = ck->isa ? ck->isa : isas[i];
    int known = 0;
    if (target_open(ck->device, isa, 0, t)) {
      if (i > 0) continue; /* no such instruction set here */
      return -1;
    }
    for (int k = 0; k < ck->target_count; k++) known |= !strcmp(ck->targets[k].name, t->name);
    if (known)
      target_close(t);
    else
      ck->target_count++;
  }
  static const int threads[] = {1, 2, 7};
  for (int i = 0; is_cpu && i < 3; i++) {
    target *t = &ck->crews[ck->crew_count];
    if (target_open(ck->device, ck->isa, threads[i], t)) continue;
    size_t used = strlen(t->name);
    snprintf(t->name + used, sizeof t->name - used, ", %d thread%s", threads[i], threads[i] > 1 ? "s" : "");
    ck->crew_count++;
  }
  if (!is_cpu && !target_open(ck->device, ck->isa, 0, &ck->crews[0])) ck->crew_count = 1; /* runs everything twice */
  return 0;
}

static void close_targets(checker *ck) {
  for (int i = 0; i < ck->target_count; i++) target_close(&ck->targets[i]);
  for (int i = 0; i < ck->crew_count; i++) target_close(&ck->crews[i]);
  target_close(&ck->ref);
}

/* ---- one op ---- */
/* Every gradient must have been seen to be non-zero somewhere: one that is dropped and never needed would agree. */
static void check_coverage(group *g, const ambi_op_info *info, uint32_t proven) {
  for (int s = 0; s < info->slots; s++) {
    if ((info->slot[s].flags & (AMBI_SLOT_OUTPUT | AMBI_SLOT_NO_GRAD)) || (proven & AMBI_BIT(s))) continue;
    group_fail(g, info->name, "", "no case gives %s a gradient other than zero", info->slot[s].name);
  }
}

static void check_reference(checker *ck, const ambi_op_info *info, const case_list *l, int mine) {
  uint32_t proven = 0;
  group g = group_begin(ck, info->name, "f64", "derivatives");
  for (int i = 0; i < l->count && mine; i++) check_differences(&g, l->text[i], &proven);
  if (!ck->text && mine) check_coverage(&g, info, proven);
  group_end(&g);
}

static int has_mix(const checker *ck, int m) {
  if (ck->dtype) return !strcmp(ck->dtype, mixes[m].name);
  return !ck->quick || m == F32_MIX || m == BF16_MIX;
}

/* Whether the device has any kernel for any of these cases; a line says so when not. */
static int has_kernels(checker *ck, const ambi_op_info *info, const case_list *l) {
  char err[400], why[SENTENCE_BYTES] = "";
  for (int i = 0; i < l->count; i++) {
    ambi_op op;
    if (case_parse(l->text[i], AMBI_F32, &op, err, sizeof err)) return 1; /* reported where it is run */
    if (ambi_check(ck->targets[0].dev, &op) != AMBI_UNSUPPORTED) return 1;
    snprintf(why, sizeof why, "%s", ambi_error());
  }
  if (!is_mine(ck, 0)) return 0;
  printf("%-14s skipped: %s\n", info->name, why);
  ck->skipped++;
  return 0;
}

static void check_mix(checker *ck, const ambi_op_info *info, const case_list *l, int m) {
  const int many = m == F32_MIX || m == BF16_MIX || ck->exhaustive;
  group g[2] = {group_begin(ck, info->name, mixes[m].name, "forward"),
                group_begin(ck, info->name, mixes[m].name, "backward")};
  for (int i = 0; i < l->count; i++)
    if (is_mine(ck, i + m)) check_kernels(g, l->text[i], &mixes[m], many);
  /* attention by tensor cores: other kernels */
  const int odd = m == F32_MIX || (m == BF16_MIX && (ck->text || !strcmp(info->name, "attention")));
  for (int i = 0; i < l->count && odd; i++)
    if (is_mine(ck, i + m)) check_not_finite(g, l->text[i], &mixes[m]);
  group_end(&g[0]);
  group_end(&g[1]);
  if (!many) return;
  group bits = group_begin(ck, info->name, mixes[m].name, "same bits");
  for (int i = 0; i < l->count; i++)
    if (is_mine(ck, i + m)) check_determinism(&bits, l->text[i], &mixes[m]);
  group_end(&bits);
}

static void check_cache(checker *ck, ambi_kind kind) {
  for (int m = F32_MIX; m <= BF16_MIX; m += BF16_MIX - F32_MIX) {
    group g = group_begin(ck, ambi_op_get_info(kind)->name, mixes[m].name, "past cache");
    if (is_mine(ck, kind) && (m == F32_MIX || kind == AMBI_UNARY || ck->exhaustive))
      check_past_cache(&g, kind, &mixes[m]);
    group_end(&g);
  }
}

static void check_op(checker *ck, ambi_kind kind) {
  const ambi_op_info *info = ambi_op_get_info(kind);
  case_list l = check_cases(ck, info, 0), longer = check_cases(ck, info, 1);
  if (l.count == 0 && !ck->random && is_mine(ck, kind)) {
    printf("FAIL  %s: cases.def has no case for it\n", info->name);
    ck->failed++;
  }
  if (info->backward && !ck->kernels) check_reference(ck, info, &l, is_mine(ck, kind));
  if (l.count && has_kernels(ck, info, &l)) {
    for (int m = 0; m < MIXES; m++)
      if (has_mix(ck, m)) check_mix(ck, info, &l, m);
    group sums = group_begin(ck, info->name, "f32", "long sums");
    for (int i = 0; i < longer.count && has_mix(ck, F32_MIX); i++)
      if (is_mine(ck, i)) check_long_sums(&sums, longer.text[i], &mixes[F32_MIX]);
    group_end(&sums);
    if (!ck->text && !ck->random && !ck->elements && !ck->dtype) check_elementwise(ck, kind);
    if (!ck->text && !ck->random && !ck->quick && !ck->dtype) check_cache(ck, kind);
  }
  case_list_free(&l);
  case_list_free(&longer);
}

static void check_vectors(checker *ck) {
  vectors_result r = {0};
  group g = group_begin(ck, "vectors", "", "agree");
  vectors_check(&ck->targets[0], &ck->ref, ck->vectors, &(vectors_choice){ck->op, ck->jobs, ck->job, ck->verbose}, &r);
  g.passed = r.passed, g.failed = r.failed, g.skipped = r.skipped;
  g.told = 1;
  snprintf(g.reason, sizeof g.reason, "as said above");
  group_end(&g);
}

/* ---- the command ---- */
/* Which part of the work is done here ("2/8"), or by how many processes; 0, or 2 with a sentence on stderr. */
static int share_work(checker *ck, const char *part) {
  long long k = 0, n = 0;
  int end = 0;
  if (!part) {
    if (ck->jobs <= 0) ck->jobs = check_default_jobs(ck);
    return 0;
  }
  if (sscanf(part, "%6lld/%6lld%n", &k, &n, &end) != 2 || part[end] || k < 1 || k > n) {
    fprintf(stderr, "ambi check: --part %s: it must be K/N with K from 1 to N; 2/8 is the second of eight\n", part);
    return 2;
  }
  if (ck->jobs > 0) {
    fprintf(stderr, "ambi check: --part is one process: not with --jobs\n");
    return 2;
  }
  ck->job = k - 1;
  ck->jobs = n;
  return 0;
}

/* Which cases: 0, or 2 with a sentence on stderr. */
static int check_choice(const checker *ck) {
  char names[512], err[800];
  ambi_op op;
  if (ck->op && case_find_op(ck->op) == AMBI_OP_NONE) {
    fprintf(stderr, "ambi check: there is no op '%s': one of %s\n", ck->op, case_list_ops(names, sizeof names));
    return 2;
  }
  if (!ck->text) return 0;
  if (case_parse(ck->text, AMBI_F32, &op, err, sizeof err)) {
    fprintf(stderr, "ambi check: --case: %s\n", err);
    return 2;
  }
  if (ck->random || ck->elements) {
    fprintf(stderr, "ambi check: --case is one case, %s: not both\n",
            ck->random ? "--random are others" : "--elements leaves some out");
    return 2;
  }
  if (!ck->op || case_find_op(ck->op) == op.kind) return 0;
  fprintf(stderr, "ambi check: --op %s: the --case is one of %s\n", ck->op, ambi_op_get_info(op.kind)->name);
  return 2;
}

/* The other arguments, likewise */
static int check_arguments(const checker *ck) {
  char err[1400];
  int known = !ck->dtype;
  for (int m = 0; m < MIXES; m++) known |= has_mix(ck, m);
  if (!known) {
    fprintf(stderr, "ambi check: --dtype %s: one of f32, f16, bf16, f64, mixed, any\n", ck->dtype);
    return 2;
  }
  if (ck->dtype && ck->quick)
    return fprintf(stderr, "ambi check: --dtype is one dtype, --quick are two: not both\n"), 2;
  if (ck->exhaustive && (ck->dtype || ck->text || ck->random || ck->elements)) {
    fprintf(stderr, "ambi check: --exhaustive is of whole ranges: not with --dtype, --case, --random or --elements\n");
    return 2;
  }
  const option_range rows[] = {{"elements", (double)ck->elements, 0, 0x1p56},
                               {"jobs", (double)ck->jobs, 0, MOST_JOBS},
                               {"random", (double)ck->random, 0, 1e6}};
  const char *where = "";
  int good = options_in_range(rows, sizeof rows / sizeof *rows, err, sizeof err);
  if (good && ck->vectors) { /* now, not after all else has been checked */
    where = "--vectors: ";
    good = vectors_readable(ck->vectors, err, sizeof err);
  }
  if (!good) fprintf(stderr, "ambi check: %s%s\n", where, err);
  return good ? 0 : 2;
}

static int run_checks(checker *ck) {
  ambi_op op = {0};
  if (ck->text) case_parse(ck->text, AMBI_F32, &op, (char[8]){0}, 8); /* it could be: check_choice */
  if (target_open("ref", NULL, 0, &ck->ref) || open_targets(ck) ||
      (ck->text && ambi_check(ck->ref.dev, &op) != AMBI_OK)) {
    snprintf(ck->trouble, sizeof ck->trouble, "%s", ambi_error());
    close_targets(ck);
    return 2;
  }
  if (!device_compiles(ck->targets[0].dev, ck->device, ck->trouble, sizeof ck->trouble)) return close_targets(ck), 2;
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *info = ambi_op_get_info((ambi_kind)k);
    if (!info || (ck->op && strcmp(ck->op, info->name)) || (ck->text && (int)op.kind != k)) continue;
    check_op(ck, (ambi_kind)k);
  }
  if (ck->vectors) check_vectors(ck);
  close_targets(ck);
  return 0;
}

int check_main(int argc, char **argv) {
  static checker ck;
  ck = (checker){.seed = 1, .terminal = is_terminal()};
  setvbuf(stdout, NULL, _IOLBF, 1 << 16); /* should a kernel crash, what came before is still seen */
  const char *model = NULL, *part = NULL;
  const option options[] = {
      {"op", OPT_STRING, &ck.op, "OP", "only that op"},
      {"case", OPT_STRING, &ck.text, "TEXT", "only this case, as \"rmsnorm x=7x33 w=33\""},
      {"random", OPT_INT, &ck.random, "N", "instead: N cases of each op at random sizes, kernels alone"},
      {"seed", OPT_INT, &ck.seed, "N", "of the random values and sizes (1)"},
      {"isa", OPT_STRING, &ck.isa, "ISA", "cpu: only this instruction set; cuda: special or general"},
      {"jobs", OPT_INT, &ck.jobs, "N", "processes that share the work; 0: on cuda one a core, at most 8, else 1 (0)"},
      {"part", OPT_STRING, &part, "K/N", "only the Kth of N parts of the work, for other runs to do the rest"},
      {"kernels", OPT_FLAG, &ck.kernels, NULL, "not the derivatives of the reference"},
      {"elements", OPT_INT, &ck.elements, "N",
       "no case with a tensor of more: 8000 for emulators, fewer for race detectors"},
      {"quick", OPT_FLAG, &ck.quick, NULL, "f32 and bf16 only"},
      {"dtype", OPT_STRING, &ck.dtype, "T",
       "kernels alone, in f32, f16, bf16, f64, mixed (parameters f32) or any (each slot draws its own)"},
      {"exhaustive", OPT_FLAG, &ck.exhaustive, NULL, "all 2^32 arguments of each function"},
      {"vectors", OPT_STRING, &ck.vectors, "DIR",
       "also agree with the numbers of another program: DIR/ops.json, DIR/ops.safetensors"},
      {"model", OPT_STRING, &model, "DIR", "a whole model instead: DIR holds one, and expected.safetensors"},
      {"verbose", OPT_FLAG, &ck.verbose, NULL, "every check, every failure"},
      {0}};
  const command_line spec = {"ambi check",
                             "[DEVICE]",
                             "Proves the kernels of this machine: the reference against finite differences, and every\n"
                             "kernel of DEVICE (cpu) against the reference, forward and backward, in every dtype and\n"
                             "layout. Exit status 0: all passed; 1: something failed; 2: nothing could be run.",
                             options,
                             NULL,
                             1};
  ck.device = "cpu";
  int rc = options_parse(&spec, argc, argv, &ck.device);
  if (rc >= 0) return rc;
  if ((rc = options_alone(&spec, argc, argv, "model", "model")) >= 0) return rc;
  char err[SENTENCE_BYTES];
  if (!device_can_be(ck.device, ck.isa, err, sizeof err)) return options_wrong(&spec, "%s", err);
  if (model) return check_model(ck.device, model);
  rc = check_choice(&ck);
  if (!rc) rc = check_arguments(&ck);
  ck.kernels |= ck.dtype || ck.random;
  if (!rc) rc = share_work(&ck, part);
  if (rc) return rc;
  rc = ck.jobs > 1 && !part ? check_by_jobs(&ck, run_checks) : run_checks(&ck);
  if (rc) return fprintf(stderr, "ambi check: %s\n", ck.trouble), rc;
  printf("%lld passed, %lld failed", (long long)ck.passed, (long long)ck.failed);
  if (ck.skipped) printf(", %lld skipped", (long long)ck.skipped);
  printf("\n");
  if (part || ck.passed + ck.failed + ck.skipped) return ck.failed > 0;
  fprintf(stderr, "ambi check: nothing was checked: there is no such case, or none so small\n");
  return 2;
}
