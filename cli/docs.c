/* docs.c -- `ambi docs DIR`: a page for each op, written from what the library says about itself, and an index. */
#define _POSIX_C_SOURCE 200809L
#include <ambi/ambi.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "options.h"
#include "print.h"
#include "reflect.h"

/* ---- the C that plans an op ---- */

static void print_upper(FILE *f, const char *s) {
  for (; *s; s++) fputc(toupper((unsigned char)*s), f);
}

/* What slots are named after: their op, except where the header shortens its name. */
static const char *slot_prefix(const char *op) {
  static const char *const shorter[][2] = {
      {"selective_scan", "scan"}, {"cross_entropy", "ce"}, {"linear_cross_entropy", "linear_ce"}};
  for (size_t i = 0; i < sizeof shorter / sizeof *shorter; i++)
    if (strcmp(op, shorter[i][0]) == 0) return shorter[i][1];
  return op;
}

/* AMBI_RMSNORM_X */
static void print_slot_constant(FILE *f, const ambi_op_info *op, int slot) {
  fprintf(f, "AMBI_");
  print_upper(f, slot_prefix(op->name));
  fprintf(f, "_");
  print_upper(f, op->slot[slot].name);
}

/* The axes of "(.., C) or .." one by one: the next into `axis`, and where to go on; NULL after the last. */
static const char *next_axis(const char *s, char *axis, size_t n) {
  s += strspn(s, "(, ");
  size_t length = strcspn(s, ",)");
  if (*s == ')' || *s == 0 || length == 0) return NULL;
  snprintf(axis, n, "%.*s", (int)length, s);
  if (strcmp(axis, "..") == 0) snprintf(axis, n, "M"); /* leading axes: one, for the example */
  return s[length] == ')' ? s + length : s + length + 1;
}

static void print_tensor(FILE *f, const ambi_slot_info *slot) {
  char axes[200] = "", axis[40];
  int count = 0;
  for (const char *s = slot->shape; (s = next_axis(s, axis, sizeof axis)) != NULL; count++) {
    size_t used = strlen(axes);
    snprintf(axes + used, sizeof axes - used, "%s%s", count ? ", " : "", axis);
  }
  const char *dtype = slot->flags & AMBI_SLOT_INTEGER ? "AMBI_I64" : "AMBI_F32";
  if (count)
    fprintf(f, "ambi_dense(%s, %d, (int64_t[]){%s});\n", dtype, count, axes);
  else
    fprintf(f, "ambi_dense(%s, 0, NULL);\n", dtype);
}

static void print_snippet(FILE *f, const ambi_op_info *op) {
  fprintf(f, "```c\nambi_op op = {.kind = AMBI_");
  print_upper(f, op->name);
  fprintf(f, ", .pass = %s};\n", op->backward ? "AMBI_BACKWARD" : "AMBI_FORWARD");
  uint32_t left_out =
      AMBI_SLOT_OPTIONAL | AMBI_SLOT_OUTPUT; /* outputs are inferred, unless there is nothing but them */
  if (op->slot[0].flags & AMBI_SLOT_OUTPUT) left_out = AMBI_SLOT_OPTIONAL;
  for (int s = 0; s < op->slots; s++) {
    if (op->slot[s].flags & left_out) continue;
    fprintf(f, "op.t[");
    print_slot_constant(f, op, s);
    fprintf(f, "] = ");
    print_tensor(f, &op->slot[s]);
  }
  for (int i = 0; i < op->attrs; i++) {
    const ambi_attr_info *a = &op->attr[i];
    fprintf(f, "op.u.%s.%s = %g;", op->name, a->name, a->def);
    fprintf(f, a->names ? " /* %s */\n" : "\n", a->names ? a->names[(int)a->def] : "");
  }
  fprintf(f,
          "ambi_plan *plan;\n"
          "if (ambi_plan_create(dev, &op, &plan) != AMBI_OK) fprintf(stderr, \"%%s\\n\", ambi_error());\n```\n\n");
}

/* A formula of several parts, one a line. */
static void print_formula(FILE *f, const char *heading, const char *s) {
  fprintf(f, "## %s\n\n```\n", heading);
  for (const char *cut; (cut = strstr(s, ";  ")) != NULL; s = cut + 3) fprintf(f, "%.*s\n", (int)(cut - s), s);
  fprintf(f, "%s\n```\n\n", s);
}

/* ---- pages ---- */

static void print_tables(FILE *f, const ambi_op_info *op) {
  table slots = {.columns = 4}, attrs = {.columns = 4};
  reflect_slots(op, &slots);
  reflect_attrs(op, &attrs);
  fprintf(f, "## Slots\n\n");
  table_print_markdown(&slots, f);
  if (op->attrs) {
    fprintf(f, "\n## Attributes\n\nA number left 0 means its default.\n\n");
    table_print_markdown(&attrs, f);
  }
  table_free(&slots);
  table_free(&attrs);
}

static void print_page(FILE *f, ambi_kind kind) {
  const ambi_op_info *op = ambi_op_get_info(kind);
  char pairs[400];
  fprintf(f, "# %s\n\n%s\n\n", op->name, op->doc ? op->doc : "");
  print_formula(f, "Formula", op->formula);
  if (op->backward) print_formula(f, "Gradient", op->gradient);
  if (!op->backward) fprintf(f, "There is no backward pass.\n\n");
  print_tables(f, op);
  fprintf(f, "\n## In place\n\n");
  if (*reflect_in_place(kind, pairs, sizeof pairs))
    fprintf(f, "These may be one view: %s.\n\n", pairs);
  else
    fprintf(f, "No output may share memory with an input.\n\n");
  fprintf(
      f,
      "## Numerics\n\n"
      "Storage is f32, f16, bf16 or f64, mixed freely between slots. Arithmetic is in f64 when any floating slot is\n"
      "f64, in f32 otherwise; stores round to nearest even and keep NaN. The same inputs give the same bits for any\n"
      "number of threads. `ambi check --op %s` measures the error on this machine, `ambi info %s` names the kernels\n"
      "and what they sum in.\n\n## In C\n\n",
      op->name, op->name);
  print_snippet(f, op);
  fprintf(f, "[All ops](ops.md)\n");
}

static void print_index(FILE *f) {
  table t = {.columns = 3};
  table_row(&t, "op", "", "formula");
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *op = ambi_op_get_info((ambi_kind)k);
    char link[120], formula[600];
    if (!op) continue;
    snprintf(link, sizeof link, "[%s](%s.md)", op->name, op->name);
    snprintf(formula, sizeof formula, "`%s`", op->formula);
    table_row(&t, link, op->doc, formula);
  }
  fprintf(f, "# Operations\n\nWritten by `ambi docs` from the library's own tables.\n\n");
  table_print_markdown(&t, f);
  table_free(&t);
}

/* ---- the command ---- */

/* DIR/name.md by `kind`, or the index; 0, or 1 when it could not be written. */
static int write_page(const char *dir, const char *name, ambi_kind kind) {
  char path[1100];
  snprintf(path, sizeof path, "%.1000s/%s.md", dir, name);
  FILE *f = fopen(path, "w");
  if (f && kind) print_page(f, kind);
  if (f && !kind) print_index(f);
  int bad = !f || ferror(f) != 0;
  if (f && fclose(f) != 0) bad = 1;
  if (bad) fprintf(stderr, "ambi docs: cannot write %s: %s\n", path, strerror(errno));
  return bad;
}

int docs_main(int argc, char **argv) {
  const char *dir = NULL;
  const command_line spec = {
      "ambi docs",
      "DIR",
      "Writes DIR/ops.md and DIR/OP.md for each op: formula, gradient, slots, attributes, numerics, C.",
      NULL,
      NULL,
      1};
  int rc = options_parse(&spec, argc, argv, &dir), pages = 0;
  if (rc >= 0) return rc;
  if (!dir) {
    fprintf(stderr, "ambi docs: a folder is needed; see `ambi docs --help`\n");
    return 2;
  }
  if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
    fprintf(stderr, "ambi docs: cannot make %s: %s\n", dir, strerror(errno));
    return 1;
  }
  rc = write_page(dir, "ops", AMBI_OP_NONE);
  for (int k = 1; k < AMBI_KINDS && rc == 0; k++) { /* where one page cannot be written the next cannot either */
    const ambi_op_info *op = ambi_op_get_info((ambi_kind)k);
    if (!op) continue;
    rc = write_page(dir, op->name, (ambi_kind)k);
    pages++;
  }
  if (rc == 0) printf("%d pages and an index in %s\n", pages, dir);
  return rc;
}
