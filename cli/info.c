/* info.c -- `ambi info`: what this build can do here. Everything is asked of the library; no op is known by name. */
#include <ambi/ambi.h>
#include <stdio.h>
#include <string.h>

#include "../util/json.h"
#include "../util/sentence.h"
#include "case.h"
#include "commands.h"
#include "device.h"
#include "options.h"
#include "print.h"
#include "reflect.h"
#include "source.h"

enum { CPU, CUDA, REF, DEVICES };

/* What is told of, and what was found of it. */
typedef struct {
  ambi_kind only;     /* an op, */
  const char *device; /* or one of the names below; else everything */
  const char *name[DEVICES];
  ambi_device *dev[DEVICES];
  char why[DEVICES][SENTENCE_BYTES]; /* it is not here; else empty */
} findings;

static const char *pass_name(ambi_pass p) { return p == AMBI_BACKWARD ? "backward" : "forward"; }

static void bytes_text(uint64_t n, char *out, size_t room) {
  if (n == 0)
    snprintf(out, room, "unknown");
  else if (n < 1 << 20)
    snprintf(out, room, "%llu KiB", (unsigned long long)(n >> 10));
  else
    snprintf(out, room, "%.4g MiB", (double)n / (1 << 20));
}

/* ---- text ---- */

static void print_device(const char *name, const ambi_device_info *i) {
  char cache[32], threads[32] = "";
  bytes_text(i->cache_bytes, cache, sizeof cache);
  if (strncmp(name, "cuda", 4) != 0) /* a GPU's are not the host's */
    snprintf(threads, sizeof threads, "%d thread%s, ", i->threads, plural(i->threads));
  printf("device %s\n  isa %s, %slast-level cache %s\n", name, i->isa, threads, cache);
  if (i->features && *i->features) printf("  %s\n", i->features);
  printf("\n");
}

static void print_kernels(const char *name, const ambi_device *dev, ambi_kind only) {
  table t = {.columns = 6};
  ambi_kernel_info k;
  table_row(&t, "op", "pass", "isa", "sums in", "same bits", "kernel");
  for (int32_t i = 0; ambi_device_kernel(dev, i, &k) == AMBI_OK; i++) {
    const ambi_op_info *op = ambi_op_get_info(k.kind);
    if (!op || (only && k.kind != only)) continue;
    table_row(&t, op->name, pass_name(k.pass), k.isa, ambi_dtype_name(k.accumulator),
              k.deterministic ? "every run" : "no promise", k.name);
  }
  printf("kernels of %s, best first within an op%s\n", name, t.rows > 1 ? "" : ": none");
  if (t.rows > 1) table_print(&t, "  ");
  printf("\n");
  table_free(&t);
}

static void print_ops(void) {
  table t = {.columns = 3};
  table_row(&t, "op", "backward", "formula");
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *op = ambi_op_get_info((ambi_kind)k);
    if (op) table_row(&t, op->name, op->backward ? "yes" : "none", op->formula);
  }
  printf("ops (`ambi info OP` says more)\n");
  table_print(&t, "  ");
  printf("\n");
  table_free(&t);
}

static void print_op(ambi_kind kind) {
  const ambi_op_info *op = ambi_op_get_info(kind);
  table slots = {.columns = 4}, attrs = {.columns = 4};
  printf("%s\n  formula   %s\n", op->name, op->formula);
  printf("  gradient  %s\n", op->backward ? op->gradient : "none: the op has no backward pass");
  if (op->doc && *op->doc) printf("  %s\n", op->doc);
  reflect_slots(op, &slots);
  printf("\nslots\n");
  table_print(&slots, "  ");
  reflect_attrs(op, &attrs);
  if (attrs.rows > 1) {
    printf("\nattributes (in C, 0 means the default)\n");
    table_print(&attrs, "  ");
  }
  if (op->in_place && op->in_place[0][0] >= 0) {
    char pairs[200];
    printf("\nin place  %s\n", reflect_in_place(kind, pairs, sizeof pairs));
  }
  printf("\n");
  table_free(&slots);
  table_free(&attrs);
}

static void print_devices(const findings *f) {
  for (int d = 0; d < DEVICES; d++) {
    ambi_device_info i;
    if (f->dev[d] && ambi_device_get_info(f->dev[d], &i) == AMBI_OK) print_device(f->name[d], &i);
    if (*f->why[d]) printf("device %s: not here: %s\n\n", f->name[d], f->why[d]);
  }
}

static void print_text(const findings *f) {
  uint32_t v = ambi_version();
  if (f->only)
    print_op(f->only);
  else if (!f->device)
    printf("ambi %u.%u.%u\n\n", v / 10000, v / 100 % 100, v % 100);
  if (!f->only) print_devices(f);
  if (!f->only && !f->device) print_ops();
  for (int d = 0; d < DEVICES; d++) {
    if (f->dev[d]) print_kernels(f->name[d], f->dev[d], f->only);
  }
}

/* ---- JSON: one object ---- */

static void json_pair(const char *comma, const char *key, const char *value) {
  printf("%s\"%s\":", comma, key);
  json_write_text(stdout, value);
}

static void json_slots(const ambi_op_info *op) {
  printf(",\"slots\":[");
  for (int s = 0; s < op->slots; s++) {
    char flags[80];
    json_pair(s ? ",{" : "{", "name", op->slot[s].name);
    json_pair(",", "shape", op->slot[s].shape);
    json_pair(",", "flags", reflect_flags(op->slot[s].flags, flags, sizeof flags));
    json_pair(",", "doc", op->slot[s].doc);
    printf("}");
  }
  printf("]");
}

static void json_attrs(const ambi_op_info *op) {
  printf(",\"attributes\":[");
  for (int i = 0; i < op->attrs; i++) {
    const ambi_attr_info *a = &op->attr[i];
    json_pair(i ? ",{" : "{", "name", a->name);
    json_pair(",", "type", reflect_attr_type(a));
    const struct {
      const char *key;
      double value;
    } numbers[] = {{"default", a->def}, {"min", a->min}, {"max", a->max}};
    for (int n = 0; n < 3; n++) {
      printf(",\"%s\":", numbers[n].key);
      json_write_number(stdout, numbers[n].value);
    }
    printf(",\"names\":[");
    for (int n = 0; a->names && a->names[n]; n++) {
      if (n) printf(",");
      json_write_text(stdout, a->names[n]);
    }
    json_pair("],", "doc", a->doc);
    printf("}");
  }
  printf("]");
}

static void json_ops(ambi_kind only) {
  const char *comma = "";
  printf(",\"ops\":[");
  for (int k = 1; k < AMBI_KINDS; k++) {
    const ambi_op_info *op = ambi_op_get_info((ambi_kind)k);
    if (!op || (only && k != (int)only)) continue;
    printf("%s{", comma);
    json_pair("", "name", op->name);
    json_pair(",", "formula", op->formula);
    json_pair(",", "gradient", op->gradient);
    json_pair(",", "doc", op->doc);
    printf(",\"backward\":%s", op->backward ? "true" : "false");
    json_slots(op);
    json_attrs(op);
    printf("}");
    comma = ",";
  }
  printf("]");
}

static void json_kernels(const ambi_device *dev, ambi_kind only) {
  ambi_kernel_info k;
  const char *comma = "";
  printf(",\"kernels\":[");
  for (int32_t i = 0; ambi_device_kernel(dev, i, &k) == AMBI_OK; i++) {
    const ambi_op_info *op = ambi_op_get_info(k.kind);
    if (!op || (only && k.kind != only)) continue;
    printf("%s{", comma);
    json_pair("", "op", op->name);
    json_pair(",", "pass", pass_name(k.pass));
    json_pair(",", "isa", k.isa);
    json_pair(",", "accumulator", ambi_dtype_name(k.accumulator));
    json_pair(",", "name", k.name);
    printf(",\"deterministic\":%s}", k.deterministic ? "true" : "false");
    comma = ",";
  }
  printf("]");
}

static void json_missing(const findings *f) {
  const char *comma = "";
  printf(",\"missing\":[");
  for (int d = 0; d < DEVICES; d++) {
    if (!*f->why[d]) continue;
    printf("%s{", comma);
    json_pair("", "name", f->name[d]);
    json_pair(",", "why", f->why[d]);
    printf("}");
    comma = ",";
  }
  printf("]");
}

static void print_json(const findings *f) {
  const char *comma = "";
  printf("{\"version\":%u,\"devices\":[", ambi_version());
  for (int d = 0; d < DEVICES; d++) {
    ambi_device_info i;
    if (!f->dev[d] || ambi_device_get_info(f->dev[d], &i) != AMBI_OK) continue;
    printf("%s{", comma);
    json_pair("", "name", f->name[d]);
    json_pair(",", "isa", i.isa);
    json_pair(",", "features", i.features);
    printf(",\"threads\":%d,\"cache_bytes\":%llu", i.threads, (unsigned long long)i.cache_bytes);
    json_kernels(f->dev[d], f->only);
    printf("}");
    comma = ",";
  }
  printf("]");
  json_missing(f);
  if (!f->device) json_ops(f->only);
  printf("}\n");
}

/* ---- the command ---- */

/* 0, or 2: the CPU, or the device that was asked for, is not here. */
static int find_devices(findings *f, const ambi_device_options *o) {
  int rc = 0;
  for (int d = 0; d < DEVICES; d++) {
    const int needed = !strcmp(f->name[d], f->device ? f->device : f->name[CPU]);
    if (f->device && !needed) continue;
    if (ambi_device_open(f->name[d], needed ? o : NULL, &f->dev[d]) == AMBI_OK) continue;
    snprintf(f->why[d], sizeof f->why[d], "%s", ambi_error());
    if (needed) rc = 2;
    if (needed && f->only) fprintf(stderr, "ambi info: %s\n", f->why[d]); /* of an op, devices are not listed */
  }
  return rc;
}

/* NAME is an op or a device; 1, or 0: it is neither. */
static int find_name(const char *name, findings *f) {
  for (int d = 0; d < DEVICES; d++)
    if (!strcmp(name, f->name[d])) f->device = name;
  if (!strncmp(name, "cuda:", 5)) f->device = f->name[CUDA] = name;
  f->only = f->device ? AMBI_OP_NONE : case_find_op(name);
  char list[600];
  if (!f->device && !f->only)
    fprintf(stderr, "ambi info: there is no op '%s'; there are %s; and the devices cpu, cuda:0, .., ref\n", name,
            case_list_ops(list, sizeof list));
  return f->device || f->only;
}

int info_main(int argc, char **argv) {
  int json = 0, names = 0;
  const char *name = NULL, *isa = NULL, *source = NULL, *dtype = NULL;
  int64_t threads = 0;
  const option options[] = {
      {"json", OPT_FLAG, &json, NULL, "one JSON object instead of tables"},
      {"names", OPT_FLAG, &names, NULL, "the names of the ops, one a line, and nothing else"},
      {"isa", OPT_STRING, &isa, "ISA", "as if the CPU had no more than this: baseline, avx2, .."},
      {"source", OPT_STRING, &source, "CASE",
       "instead: the CUDA texts of a case, as of \"rmsnorm x=64x512 w=512\"; --isa special or general"},
      {"dtype", OPT_STRING, &dtype, "T", "with --source: of slots that name none; f32"},
      {"threads", OPT_INT, &threads, "N", "threads of the CPU device; 0: all cores"},
      {0}};
  const command_line spec = {
      "ambi info",
      "[OP | DEVICE]",
      "Devices, what was found on them, their kernels, and the ops. With OP: its formula, slots and attributes.\n"
      "With DEVICE (cpu, cuda:0 or ref): only that.",
      options,
      NULL,
      1};
  int rc = options_parse(&spec, argc, argv, &name);
  if (rc >= 0) return rc;
  findings f = {.name = {[CPU] = "cpu", [CUDA] = "cuda", [REF] = "ref"}};
  char err[SENTENCE_BYTES];
  if ((rc = options_alone(&spec, argc, argv, "source", "source dtype isa")) >= 0 ||
      (rc = options_alone(&spec, argc, argv, "names", "names")) >= 0)
    return rc;
  if (name && (source || names)) return options_wrong(&spec, "%s: --%s takes no op", name, source ? "source" : "names");
  if (name && !find_name(name, &f)) return 2;
  const char *of = source ? "cuda" : f.device;
  if (!options_in_range(&(option_range){"threads", (double)threads, 0, OPTION_MOST_THREADS}, 1, err, sizeof err) ||
      !device_can_be(of ? of : "cpu", isa, err, sizeof err))
    return options_wrong(&spec, "%s", err);
  if (dtype && !source) return options_wrong(&spec, "--dtype is only for --source");
  if (source) return print_source(source, dtype, isa);
  for (int k = 1; names && k < AMBI_KINDS; k++)
    if (ambi_op_get_info((ambi_kind)k)) puts(ambi_op_get_info((ambi_kind)k)->name);
  if (names) return 0;
  rc = find_devices(&f, &(ambi_device_options){.threads = (int32_t)threads, .max_isa = isa});
  if (json)
    print_json(&f);
  else
    print_text(&f);
  for (int d = 0; d < DEVICES; d++) {
    if (f.dev[d]) ambi_device_close(f.dev[d]);
  }
  return rc;
}
