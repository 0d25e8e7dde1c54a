/* test_pack_compile.c -- what a host does not give to its compiler: modules that would keep it busy, and proposals that
 * are switched off. Needs Wasmtime and libsodium. */
#define _GNU_SOURCE
#include "pack_host.h"

/* ---- compiling ---- */
/* `groups` of loops `deep` inside each other, all of `locals` changed in the innermost */
static ambi_status open_loops(const char *name, int groups, int deep, int locals) {
  char *text = malloc((size_t)groups * (size_t)(deep * 40 + locals * 70) + (size_t)locals * 12 + 100), *p = text;
  for (int i = 0; text && i < locals; i++) p += sprintf(p, "(local i32)");
  for (int g = 0; text && g < groups; g++) {
    for (int i = 0; i < deep; i++) p += sprintf(p, "(loop ");
    for (int i = 1; i <= locals; i++) p += sprintf(p, "(local.set %d (i32.add (local.get %d) (i32.const 1)))", i, i);
    for (int i = 0; i < deep; i++) p += sprintf(p, "(br_if 0 (local.get %d)))", 1 + i % locals);
  }
  if (text) sprintf(p, "(i32.const 0)");
  ambi_pack *pack = text ? open_pack(host, name, "1.0.0", MEMORY, text, NULL) : NULL;
  ambi_pack_kernel *k = NULL;
  ambi_status s = ambi_pack_kernel_open(pack, "k", &k);
  ambi_pack_kernel_close(k);
  ambi_pack_close(pack);
  free(text);
  return s;
}

/* Text made of the same piece again and again; NULL: there is no memory. */
static char *repeated(const char *first, const char *piece, int count, const char *last) {
  size_t n = strlen(piece);
  char *text = malloc(strlen(first) + (size_t)count * n + strlen(last) + 1), *p = text;
  if (!text) return NULL;
  p += sprintf(p, "%s", first);
  for (int i = 0; i < count; i++, p += n) memcpy(p, piece, n);
  sprintf(p, "%s", last);
  return text;
}

static ambi_status open_text(const char *name, const char *definitions, const char *body) {
  ambi_pack *p = definitions && body ? open_pack(host, name, "1.0.0", definitions, body, NULL) : NULL;
  ambi_pack_kernel *k = NULL;
  ambi_status s = ambi_pack_kernel_open(p, "k", &k);
  ambi_pack_kernel_close(k);
  ambi_pack_close(p);
  return s;
}

/* A function that only branches, or only looks into a table: no local is changed. */
static void test_branches(void) {
  char *ifs = repeated("", "(if (local.get 0) (then (local.set 0 (i32.const 1)))) ", 60000, "(i32.const 0)");
  char *calls = repeated("", "(drop (call_indirect (param i32) (result i32) (i32.const 0) (i32.const 0))) ", 20000,
                         "(i32.const 0)");
  char *reads = repeated("", "(drop (table.get 0 (i32.const 0))) ", 20000, "(i32.const 0)");
  const char *table = MEMORY "(table 1 funcref)";
  CHECK_STATUS(open_text("ifs", MEMORY, ifs), AMBI_COMPILE_FAILED, "too long to compile", "branches");
  CHECK_STATUS(open_text("indirect", table, calls), AMBI_COMPILE_FAILED, "too long to compile", "branches");
  CHECK_STATUS(open_text("reads", table, reads), AMBI_COMPILE_FAILED, "too long to compile", "branches");
  free(ifs), free(calls), free(reads);
}

/* Calls, two bytes each, that move hundreds of values; types, each of which is given code. */
static void test_values(void) {
  char *list = repeated("", "i32 ", 200, ""), *zeros = repeated("", "(i32.const 0) ", 200, "");
  char *calls = repeated("(call $f) ", "(call $g) ", 2000, ""), *drops = repeated("", "(drop) ", 199, "");
  char *types = repeated(MEMORY, "", 0, ""), *text = NULL, *body = NULL;
  if (asprintf(&text, MEMORY "(func $f (result %s) %s) (func $g (param %s) (result %s) %s)", list, zeros, list, list,
               zeros) < 0 ||
      asprintf(&body, "%s %s", calls, drops) < 0)
    return;
  CHECK_STATUS(open_text("calls", text, body), AMBI_COMPILE_FAILED, "too long to compile", "values");
  for (int i = 0; i < 700 && types; i++) {
    char *more = repeated(types, "(type (func (param", 1, ""), *next = more ? repeated(more, " i32", i, ")))") : NULL;
    free(types), free(more);
    types = next;
  }
  CHECK_STATUS(open_text("types", types, "(i32.const 0)"), AMBI_COMPILE_FAILED, "too long to compile", "values");
  free(list), free(zeros), free(calls), free(drops), free(types), free(text), free(body);
}

/* Values that wait on the stack under branches, and locals that change between them. */
static void test_values_at_once(void) {
  char *loads = repeated("", "(i32.load (local.get 0)) ", 900, ""), *adds = repeated("", "i32.add ", 899, "");
  char *branches = repeated(loads, "(block (br_if 0 (local.get 0))) ", 1000, adds);
  char *high = repeated("", "(i32.load (local.get 0)) ", 20000, adds); /* too many are left: nobody asks */
  char *changes = repeated("(local i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) ",
                           "(if (local.get 0) (then (local.set 7 (i64.const 1)))) ", 10000, "(i32.const 0)");
  CHECK_STATUS(open_text("waiting", MEMORY, branches), AMBI_COMPILE_FAILED, "too long to compile", "and values");
  CHECK_STATUS(open_text("high", MEMORY, high), AMBI_COMPILE_FAILED, "too long to compile", "values at once");
  CHECK_STATUS(open_text("changes", MEMORY, changes), AMBI_COMPILE_FAILED, "too long to compile", "x branches");
  free(loads), free(adds), free(branches), free(high), free(changes);
}

/* A few kilobytes that would keep the compiler busy for minutes are not given to it. */
static void test_compiling(void) {
  double begin = now();
  CHECK_STATUS(open_loops("loops", 1, 250, 300), AMBI_COMPILE_FAILED, "too long to compile", "locals");
  CHECK_STATUS(open_loops("groups", 10, 90, 100), AMBI_COMPILE_FAILED, "too long to compile", "locals");
  CHECK_STATUS(open_loops("deep", 1, 1000, 1), AMBI_COMPILE_FAILED, "too long to compile", "deep");
  CHECK(now() - begin < 3, "three refusals took %.1f s", now() - begin);
  CHECK_OK(open_loops("usual", 10, 8, 40));
  test_branches();
  test_values();
  test_values_at_once();
}

/* ---- what is switched off ---- */
static void test_proposals(void) {
  static const struct {
    const char *name, *definitions, *body;
  } cases[] = {
      {"gc", MEMORY "(type $a (array (mut i64)))", "(drop (array.new_default $a (i32.const 9))) (i32.const 0)"},
      {"two-memories", MEMORY "(memory 1)", "(i32.const 0)"},
      {"memory64", "(memory (export \"memory\") i64 1)", "(i32.const 0)"},
      {"shared", "(memory (export \"memory\") 1 1 shared)", "(i32.const 0)"},
      {"tail-call", MEMORY "(func $f (result i32) (i32.const 0))", "(return_call $f)"},
      {"exceptions", MEMORY "(tag $t)", "(throw $t)"},
      {"relaxed", MEMORY,
       "(drop (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0))) (i32.const 0)"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ambi_pack *p = open_pack(host, cases[i].name, "1.0.0", cases[i].definitions, cases[i].body, NULL);
    ambi_pack_kernel *k = NULL;
    ambi_status s = ambi_pack_kernel_open(p, "k", &k);
    CHECK(s == AMBI_COMPILE_FAILED, "%s: expected a refusal, got %s", cases[i].name, ambi_status_name(s));
    ambi_pack_kernel_close(k);
    ambi_pack_close(p);
  }
}

int main(void) {
  if (!host_begin("test_pack_compile")) return test_done();
  test_proposals();
  test_compiling();
  host_end();
  return test_done();
}
