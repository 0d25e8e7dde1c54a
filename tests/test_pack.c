/* test_pack.c -- a gallery of packs that mean harm: each is contained or refused, by the check that should do it, and
 * afterwards the same host runs a good kernel and gives the right answer. Needs Wasmtime and AMBI_PACK_TEST, a folder
 * with a pack, and beside it its secret key, FOLDER.key. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../cli/pack.h"
#include "../cli/pack_forge.h"
#include "../cli/pack_kernels.h"
#include "../util/files.h"
#include "pack_host.h"
#include "test.h"

static uint8_t other_secret[32], other_key[1][32];
static const char *good_folder;
static ambi_pack *good_pack;
static pack_case good_case;

static void quiet(void *context, const char *check, int passed, const char *sentence) {
  (void)context, (void)check, (void)passed, (void)sentence;
}

/* ---- afterwards ---- */
static void still_well(const char *after) {
  ambi_pack_kernel *k = NULL;
  for (int r = AMBI_PACK_OUT; r <= AMBI_PACK_SCRATCH; r++)
    if (good_case.call.bytes[r]) memset(good_case.call.at[r], 0, good_case.call.bytes[r]);
  bool ran =
      ambi_pack_kernel_open(good_pack, "swiglu_f32", &k) == AMBI_OK && ambi_pack_run(k, &good_case.call) == AMBI_OK;
  CHECK(ran && pack_case_agrees(&good_case), "after %s a good kernel fails: %s", after,
        ran ? "wrong results" : ambi_error());
  ambi_pack_kernel_close(k);
}

/* ---- packs ---- */
static bool forge(const char *name, const void *wasm, size_t bytes, const char *more) {
  forged_kernel k = {"k", wasm, bytes, more};
  forged_pack p = {name, "1.0.0", &k, 1, secret, NULL};
  return CHECK(wasm && forge_pack(path_of(name), &p), "%s cannot be made", name);
}

/* A file of a pack, changed and written back by `edit`. */
static void change(const char *name, const char *file, void (*edit)(char *data, size_t *bytes)) {
  char path[512], err[200];
  size_t bytes = 0;
  snprintf(path, sizeof path, "%s/%s", path_of(name), file);
  char *data = file_read(path, 64 << 20, &bytes, err, sizeof err);
  CHECK(data != NULL, "%s", err);
  if (!data) return;
  edit(data, &bytes);
  CHECK(file_write(path, data, bytes, err, sizeof err), "%s", err);
  free(data);
}

static ambi_status open_only(const char *name) {
  ambi_pack *p = NULL;
  ambi_status s = ambi_pack_open(host, path_of(name), &p);
  ambi_pack_close(p);
  return s;
}

/* Opens the pack and its kernel, and calls it: the first status that is not ok. */
static ambi_status open_and_run(const char *name, uint32_t ticks) {
  ambi_pack *p = NULL;
  ambi_pack_kernel *k = NULL;
  char in[64] = {1}, out[64] = {0};
  ambi_pack_call call = {.at = {in, NULL, out}, .bytes = {64, 0, 64}, .ticks = ticks};
  ambi_status s = ambi_pack_open(host, path_of(name), &p);
  if (s == AMBI_OK) s = ambi_pack_kernel_open(p, "k", &k);
  if (s == AMBI_OK) s = ambi_pack_run(k, &call);
  ambi_pack_kernel_close(k);
  ambi_pack_close(p);
  return s;
}

/* ---- modules that mean harm ---- */
static const struct {
  const char *name, *definitions, *body, *more;
  ambi_status status;
  const char *word;
} modules[] = {
    {"endless-loop", MEMORY, "(loop $l (br $l)) (i32.const 0)", NULL, AMBI_TIMEOUT, "deadline"},
    {"out-of-bounds-load", MEMORY, "(i32.load (i32.const 0xfffffff0))", NULL, AMBI_DEVICE_LOST, "out of bounds"},
    {"out-of-bounds-store", MEMORY, "(i32.store (i32.const 0x7ffffff0) (i32.const 1)) (i32.const 0)", NULL,
     AMBI_DEVICE_LOST, "out of bounds"},
    {"out-of-bounds-copy", MEMORY, "(memory.copy (i32.const 0) (i32.const 0) (i32.const 0x7fffffff)) (i32.const 0)",
     NULL, AMBI_DEVICE_LOST, "out of bounds"},
    {"memory-bomb", MEMORY, "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) (i32.const 4)",
     NULL, AMBI_NO_MEMORY, "out of memory"},
    {"memory-of-4-GiB", "(memory (export \"memory\") 65536)", "(i32.const 0)", NULL, AMBI_DENIED, "memory"},
    {"memory-past-its-limit", "(memory (export \"memory\") 3)", "(i32.const 0)",
     "\"resource_limits\": {\"max_memory_pages\": 2}", AMBI_DENIED, "memory"},
    {"table-bomb", MEMORY "(table $t 1 funcref)",
     "(loop $l (br_if $l (i32.ne (table.grow $t (ref.null func) (i32.const 100)) (i32.const -1)))) (i32.const 4)", NULL,
     AMBI_NO_MEMORY, "out of memory"},
    {"table-of-10-million", MEMORY "(table 10000000 funcref)", "(i32.const 0)", NULL, AMBI_DENIED, "table"},
    {"deep-recursion", MEMORY "(func $f (param i32) (result i32) (i32.add (call $f (local.get 0)) (i32.const 1)))",
     "(call $f (i32.const 0))", NULL, AMBI_DEVICE_LOST, "stack"},
    {"import-of-a-function", "(import \"env\" \"system\" (func $s (param i32) (result i32))) " MEMORY,
     "(call $s (i32.const 0))", NULL, AMBI_DENIED, "env.system"},
    {"import-of-memory", "(import \"env\" \"memory\" (memory 1)) (export \"memory\" (memory 0))", "(i32.const 0)", NULL,
     AMBI_DENIED, "env.memory"},
    {"start-that-loops", MEMORY "(func $s (loop $l (br $l))) (start $s)", "(i32.const 0)",
     "\"resource_limits\": {\"max_epoch_ticks\": 100}", AMBI_TIMEOUT, "deadline"},
    {"start-that-traps", MEMORY "(func $s unreachable) (start $s)", "(i32.const 0)", NULL, AMBI_DEVICE_LOST,
     "unreachable"},
    {"unreachable", MEMORY, "unreachable", NULL, AMBI_DEVICE_LOST, "unreachable"},
    {"division-by-zero", MEMORY, "(i32.div_u (i32.const 1) (i32.const 0))", NULL, AMBI_DEVICE_LOST, "divi"},
    {"code-99", MEMORY, "(i32.const 99)", NULL, AMBI_DEVICE_LOST, "99"},
    {"no-memory", "", "(i32.const 0)", NULL, AMBI_DENIED, "memory"},
    {"memory-is-a-function", "(func (export \"memory\"))", "(i32.const 0)", NULL, AMBI_DENIED, "memory"},
    {"another-entry", MEMORY, "(i32.const 0)", "\"entry_point\": \"kernel_other\"", AMBI_DENIED, "kernel_other"},
    {"local-of-two-bytes", MEMORY, "(local (ref func)) (i32.const 0)", NULL, AMBI_COMPILE_FAILED, "cannot be read"},
    {"block-of-two-bytes", MEMORY, "(drop (block (result (ref func)) (ref.func 0))) (i32.const 0)", NULL,
     AMBI_COMPILE_FAILED, "cannot be read"},
    {"select-of-two-bytes", MEMORY,
     "(drop (select (result (ref func)) (ref.func 0) (ref.func 0) (i32.const 0))) "
     "(i32.const 0)",
     NULL, AMBI_COMPILE_FAILED, "cannot be read"},
    {"null-of-another-type", MEMORY, "(drop (ref.null any)) (i32.const 0)", NULL, AMBI_COMPILE_FAILED,
     "cannot be read"},
    {"alignment-of-32-bytes", MEMORY, "(i32.load align=32 (i32.const 0))", NULL, AMBI_COMPILE_FAILED, "cannot be read"},
    {"another-memory", MEMORY "(memory 1)", "(i32.load 1 (i32.const 0))", NULL, AMBI_COMPILE_FAILED, "cannot be read"},
    {"section-of-tags", MEMORY "(tag)", "(i32.const 0)", NULL, AMBI_COMPILE_FAILED, "cannot be read"},
    {"wrong-self-test", MEMORY, "(i32.const 0)",
     "\"self_test\": [{\"pass\": \"forward\", \"params\": \"\", \"a\": [1], \"out\": [2], \"tolerance\": 1e-6}]",
     AMBI_DENIED, "self-test"},
};

static void test_modules(void) {
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
    size_t bytes = 0;
    void *wasm = forge_kernel(modules[i].definitions, modules[i].body, &bytes);
    if (forge(modules[i].name, wasm, bytes, modules[i].more)) {
      double begin = now();
      ambi_status s = open_and_run(modules[i].name, 100);
      CHECK(s == modules[i].status && strstr(ambi_error(), modules[i].word), "%s: expected %s with '%s', got %s: %s",
            modules[i].name, ambi_status_name(modules[i].status), modules[i].word, ambi_status_name(s),
            s ? ambi_error() : "");
      CHECK(now() - begin < 3, "%s took %.1f s", modules[i].name, now() - begin);
    }
    free(wasm);
    still_well(modules[i].name);
  }
}

/* What a manifest asks for, of a host that allows less. */
static void test_greed(void) {
  static const char ask[] = "\"resource_limits\": {\"max_epoch_ticks\": 3600000, \"max_memory_pages\": 65536}";
  static const char test[] = ", \"self_test\": [{\"pass\": \"forward\", \"params\": \"\", \"tolerance\": 1}]";
  static const char loop[] = "(loop $l (br $l)) (i32.const 0)";
  static const char grow[] =
      "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) "
      "(if (i32.ne (memory.size) (i32.const 4)) (then unreachable)) (i32.const 4)";
  const struct {
    const char *definitions, *body, *test, *word;
    ambi_status status;
  } cases[] = {{MEMORY "(func $s (loop $l (br $l))) (start $s)", "(i32.const 0)", "", "deadline", AMBI_TIMEOUT},
               {MEMORY, loop, test, "deadline", AMBI_TIMEOUT},
               {"(memory (export \"memory\") 5)", "(i32.const 0)", "", "memory", AMBI_DENIED},
               {MEMORY, grow, "", "out of memory", AMBI_NO_MEMORY}};
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .most_ticks = 200, .most_pages = 4};
  ambi_pack_host *kept = host, *strict = NULL;
  CHECK_OK(ambi_pack_host_create(&o, &strict));
  for (size_t i = 0; i < sizeof cases / sizeof *cases && strict; i++) {
    char more[400];
    size_t bytes = 0;
    void *wasm = forge_kernel(cases[i].definitions, cases[i].body, &bytes);
    snprintf(more, sizeof more, "%s%s", ask, cases[i].test);
    double begin = now();
    host = strict;
    if (forge("greedy", wasm, bytes, more)) CHECK_STATUS(open_and_run("greedy", 0), cases[i].status, cases[i].word);
    host = kept;
    CHECK(now() - begin < 3, "greed %zu took %.1f s", i, now() - begin);
    free(wasm);
    still_well("greed");
  }
  ambi_pack_host_destroy(strict);
}

/* Exports of other types than the ABI's must not be called. */
static void test_types(void) {
  static const char *const wats[] = {
      "(module (memory (export \"memory\") 1) (func (export \"kernel_forward\") (param i64 i64 f64) (result i32) "
      "(i32.const 0)) "
      "(func (export \"kernel_init\") (param i32 i32) (result i32) (i32.const 0)) (func (export \"kernel_info\") "
      "(param i32) "
      "(result i32) (i32.const 0)) (func (export \"kernel_cleanup\") (result i32) (i32.const 0)))",
      "(module (memory (export \"memory\") 1) (func (export \"kernel_forward\") (param i32) (result externref) "
      "(ref.null "
      "extern)) (func (export \"kernel_init\") (param i32 i32) (result i32) (i32.const 0)) (func (export "
      "\"kernel_info\") "
      "(param i32) (result i32) (i32.const 0)) (func (export \"kernel_cleanup\") (result i32) (i32.const 0)))",
      "(module (memory (export \"memory\") 1))"};
  for (size_t i = 0; i < sizeof wats / sizeof *wats; i++) {
    size_t bytes = 0;
    void *wasm = forge_module(wats[i], &bytes);
    if (forge("types", wasm, bytes, NULL)) CHECK_STATUS(open_and_run("types", 0), AMBI_DENIED, "exports");
    free(wasm);
    still_well("exports of other types");
  }
}

/* ---- files that were damaged ---- */
static void cut_half(char *data, size_t *bytes) { (void)data, *bytes /= 2; }
static void flip_middle(char *data, size_t *bytes) { data[*bytes / 2] ^= 4; }
static void empty(char *data, size_t *bytes) { (void)data, *bytes = 0; }
static void add_space(char *data, size_t *bytes) { data[*bytes - 1] = ' '; }

static void test_damage(void) {
  static const struct {
    const char *file;
    void (*edit)(char *data, size_t *bytes);
    const char *word;
  } cases[] = {{"k.wasm", cut_half, "hash"},
               {"k.wasm", flip_middle, "hash"},
               {"k.wasm", empty, "hash"},
               {"kernels.json", flip_middle, "signature"},
               {"kernels.json", cut_half, "signature"},
               {"kernels.json", add_space, "signature"},
               {"kernels.json.sig", flip_middle, "signature"},
               {"kernels.json.sig", cut_half, "signature"},
               {"kernels.json.sig", empty, "signature"}};
  size_t bytes = 0;
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &bytes);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!forge("damaged", wasm, bytes, NULL)) break;
    CHECK_OK(open_and_run("damaged", 0));
    change("damaged", cases[i].file, cases[i].edit);
    CHECK_STATUS(open_only("damaged"), AMBI_DENIED, cases[i].word);
    still_well("damage");
  }
  free(wasm);
}

/* Modules that are damaged, and hashed and signed as they are: whatever becomes of them stays inside. */
static void test_signed_damage(void) {
  char path[512], err[200];
  size_t bytes = 0;
  int refused = 0, ran = 0;
  snprintf(path, sizeof path, "%s/silu_f32.wasm", good_folder);
  char *wasm = file_read(path, 1 << 20, &bytes, err, sizeof err);
  CHECK(wasm != NULL, "%s", err);
  if (!wasm) return;
  for (size_t i = 0; i < 60; i++) {
    size_t at = i * 7919 % bytes, length = i % 10 == 9 ? at : bytes;
    wasm[at] ^= (char)(1 << i % 8);
    if (forge("signed-damage", wasm, length, "\"resource_limits\": {\"max_epoch_ticks\": 50}"))
      *(open_and_run("signed-damage", 50) == AMBI_OK ? &ran : &refused) += 1;
    wasm[at] ^= (char)(1 << i % 8);
  }
  CHECK(refused > 6 && refused + ran == 60, "%d refused, %d ran", refused, ran);
  free(wasm);
  still_well("signed damage");
}

/* ---- signatures and keys ---- */
static void test_keys(void) {
  size_t bytes = 0;
  char from[512], to[512], err[200];
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &bytes);
  forged_kernel k = {"k", wasm, bytes, NULL};
  forged_pack p = {"keys", "1.0.0", &k, 1, other_secret, NULL};
  CHECK(forge_pack(path_of("wrong-key"), &p), "wrong-key");
  CHECK_STATUS(open_only("wrong-key"), AMBI_DENIED, "signature", "trusted keys");
  still_well("a wrong key");

  p.secret = secret, p.version = "2.0.0";
  CHECK(forge_pack(path_of("first"), &p), "first");
  p.version = "3.0.0";
  CHECK(forge_pack(path_of("second"), &p), "second");
  snprintf(from, sizeof from, "%s/first/kernels.json.sig", root);
  snprintf(to, sizeof to, "%s/second/kernels.json.sig", root);
  size_t n = 0;
  char *signature = file_read(from, 4096, &n, err, sizeof err);
  CHECK(signature && n == 64 && file_write(to, signature, n, err, sizeof err), "swapping signatures");
  free(signature);
  CHECK_STATUS(open_only("second"), AMBI_DENIED, "signature");
  still_well("a swapped signature");

  unlink(to);
  CHECK_STATUS(open_only("second"), AMBI_DENIED, "kernels.json.sig");
  CHECK_STATUS(open_only("nowhere"), AMBI_DENIED, "kernels.json");

  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key,
                         .trusted_count = 1,
                         .revoked = (const uint8_t(*)[32])key,
                         .revoked_count = 1};
  ambi_pack_host *h = NULL;
  ambi_pack *pack = NULL;
  CHECK_OK(ambi_pack_host_create(&o, &h));
  CHECK_STATUS(ambi_pack_open(h, path_of("first"), &pack), AMBI_DENIED, "revoked");
  ambi_pack_host_destroy(h);
  o = (ambi_pack_options){.trusted = (const uint8_t(*)[32])other_key, .trusted_count = 1};
  CHECK_OK(ambi_pack_host_create(&o, &h));
  CHECK_OK(ambi_pack_open(h, path_of("wrong-key"), &pack));
  ambi_pack_close(pack);
  ambi_pack_host_destroy(h);
  o = (ambi_pack_options){.insecure_accept_unsigned_packs_for_development = 1};
  CHECK_STATUS(ambi_pack_host_create(&o, &h), AMBI_INVALID, "insecure", "report");
  o.report = quiet;
  CHECK_OK(ambi_pack_host_create(&o, &h));
  CHECK_OK(ambi_pack_open(h, path_of("second"), &pack));
  ambi_pack_close(pack);
  ambi_pack_host_destroy(h);
  free(wasm);
}

/* Where a kernel cannot be used, another steps in; a ring of those that cannot ends. */
static void test_fallbacks(void) {
  static const char wrong[] =
      "\"self_test\": [{\"pass\": \"forward\", \"params\": \"\", \"out\": [7], \"tolerance\": 1}]";
  size_t bytes = 0, other = 0;
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &bytes);
  void *bad = forge_kernel("(import \"env\" \"f\" (func)) " MEMORY, "(i32.const 0)", &other);
  forged_kernel k[] = {{"imports", bad, other, NULL}, {"wrong", wasm, bytes, wrong}, {"right", wasm, bytes, NULL}};
  forged_pack p = {"fallbacks", "1.0.0", k, 3, secret, "\"fallbacks\": {\"imports\": \"wrong\", \"wrong\": \"right\"}"};
  ambi_pack *pack = NULL;
  ambi_pack_kernel *kernel = NULL;
  ambi_pack_call call = {.pass = AMBI_FORWARD};
  CHECK(forge_pack(path_of("fallbacks"), &p), "fallbacks");
  CHECK_OK(ambi_pack_open(host, path_of("fallbacks"), &pack));
  CHECK_OK(ambi_pack_kernel_open(pack, "imports", &kernel));
  CHECK_OK(ambi_pack_run(kernel, &call));
  ambi_pack_kernel_close(kernel);
  CHECK_STATUS(ambi_pack_kernel_open(pack, "none", &kernel), AMBI_INVALID, "no kernel none");
  CHECK_OK(ambi_pack_swap(host, pack));
  ambi_pack_close(pack);
  p.more = "\"fallbacks\": {\"imports\": \"wrong\", \"wrong\": \"imports\"}";
  CHECK(forge_pack(path_of("fallbacks"), &p), "a ring");
  CHECK_OK(ambi_pack_open(host, path_of("fallbacks"), &pack));
  CHECK(ambi_pack_kernel_open(pack, "imports", &kernel) == AMBI_DENIED, "a ring of fallbacks ends: %s", ambi_error());
  CHECK(ambi_pack_swap(host, pack) == AMBI_DENIED, "every kernel of an active pack is well");
  ambi_pack_close(pack);
  free(wasm);
  free(bad);
  still_well("fallbacks");
}

/* ---- versions ---- */
static ambi_status activate(ambi_pack_host *h, const char *name) {
  ambi_pack *p = NULL;
  ambi_status s = ambi_pack_open(h, path_of(name), &p);
  if (s == AMBI_OK) s = ambi_pack_swap(h, p);
  ambi_pack_close(p);
  return s;
}

static void test_replay(void) {
  size_t bytes = 0;
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &bytes);
  forged_kernel k = {"k", wasm, bytes, NULL};
  forged_pack p = {"replay", "1.9.0", &k, 1, secret, NULL};
  char state[256];
  snprintf(state, sizeof state, "%s/state", root);
  CHECK(forge_pack(path_of("old"), &p), "old");
  p.version = "1.10.0";
  CHECK(forge_pack(path_of("new"), &p), "new");
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .state = state};
  ambi_pack_host *h = NULL;
  CHECK_OK(ambi_pack_host_create(&o, &h));
  CHECK_STATUS(ambi_pack_rollback(h), AMBI_INVALID, "roll back");
  CHECK_OK(activate(h, "old"));
  CHECK_OK(activate(h, "new"));
  CHECK_STATUS(activate(h, "old"), AMBI_DENIED, "downgrade", "1.10.0");
  CHECK_OK(ambi_pack_rollback(h)); /* deliberately back, to what is still open */
  CHECK_STATUS(activate(h, "old"), AMBI_DENIED, "downgrade");
  ambi_pack_host_destroy(h);
  CHECK_OK(ambi_pack_host_create(&o, &h)); /* another process would remember too */
  CHECK_STATUS(activate(h, "old"), AMBI_DENIED, "downgrade");
  CHECK_OK(activate(h, "new"));
  ambi_pack_host_destroy(h);
  char err[200];
  CHECK(file_write(state, "{\"replay\": 7}", 13, err, sizeof err), "%s", err);
  CHECK_STATUS(ambi_pack_host_create(&o, &h), AMBI_DENIED, "state");
  free(wasm);
  still_well("a replayed version");
}

/* ---- manifests ---- */
static ambi_status open_manifest(const char *text, size_t bytes) {
  char path[512], err[200], hex[65];
  folder_make(path_of("manifest"), err, sizeof err);
  snprintf(path, sizeof path, "%s/kernels.json", path_of("manifest"));
  CHECK(file_write(path, text, bytes, err, sizeof err), "%s", err);
  CHECK(bytes > 4 << 20 || sign_folder(path_of("manifest"), secret, hex), "a signature");
  return open_only("manifest");
}

#define HEAD \
  "{\"name\": \"n\", \"version\": \"1.0.0\", \"min_runtime_version\": \"0.0.0\", \"max_runtime_version\": \"9.0.0\", "
#define HASH         "\"hash\": \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""
#define KERNEL(more) HEAD "\"kernels\": [{\"id\": \"k\", \"category\": \"custom\", " HASH ", " more "}]}"

static void test_manifests(void) {
  static const struct {
    const char *text, *word;
  } cases[] = {
      {"", "manifest"},
      {"[]", "object"},
      {"{}", "version is missing"},
      {HEAD "\"kernels\": {}}", "kernels: expected"},
      {HEAD "\"kernels\": [3]}", "a kernel"},
      {KERNEL("\"path\": \"../../etc/passwd\""), "path"},
      {KERNEL("\"path\": \"/etc/passwd\""), "path"},
      {KERNEL("\"path\": \"a/../b\""), "path"},
      {KERNEL("\"path\": \"a//b\""), "path"},
      {KERNEL("\"path\": 7"), "path"},
      {KERNEL("\"path\": \"a\\u0000b\""), "path"},
      {KERNEL("\"path\": \"a\", \"resource_limits\": {\"max_memory_pages\": 70000}"), "max_memory_pages"},
      {KERNEL("\"path\": \"a\", \"resource_limits\": {\"max_memory_pages\": 1.5}"), "max_memory_pages"},
      {KERNEL("\"path\": \"a\", \"resource_limits\": {\"max_epoch_ticks\": -1}"), "max_epoch_ticks"},
      {KERNEL("\"path\": \"a\", \"inputs\": [{\"name\": 1}]"), "name"},
      {KERNEL("\"path\": \"a\", \"params\": {\"n\": 3}"), "object"},
      {KERNEL("\"path\": \"a\", \"params\": {\"n\": {\"type\": \"i64\"}}"), "types u32 and f32"},
      {KERNEL("\"path\": \"a\", \"params\": {\"n\": {\"type\": \"f32\", \"default\": \"1.5\"}}"), "default: expected"},
      {KERNEL("\"path\": \"a\", \"id\": \"k\""), "manifest"},
      {HEAD "\"kernels\": [], \"fallbacks\": {\"a\": \"b\"}}", "fallbacks"},
      {"{\"name\": \"n\", \"version\": \"1.0\", \"min_runtime_version\": \"0.0.0\", \"max_runtime_version\": "
       "\"9.0.0\", \"kernels\": []}",
       "version"},
      {"{\"name\": \"n\", \"version\": \"1.0.0\", \"min_runtime_version\": \"7.0.0\", \"max_runtime_version\": "
       "\"9.0.0\", \"kernels\": []}",
       "runtime version"},
      {"{\"name\": \"n\", \"version\": \"1.0.0\", \"min_runtime_version\": \"0.0.0\", \"max_runtime_version\": "
       "\"0.0.9\", \"kernels\": []}",
       "runtime version"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_STATUS(open_manifest(cases[i].text, strlen(cases[i].text)), AMBI_DENIED, cases[i].word);
  CHECK_STATUS(open_manifest(KERNEL("\"path\": \"a\", \"more\": {\"unknown\": [1]}"),
                             strlen(KERNEL("\"path\": \"a\", \"more\": {\"unknown\": [1]}"))),
               AMBI_DENIED, "files"); /* unknown fields are no reason to refuse; that file is missing */
  still_well("manifests");
}

static void test_many_kernels(void) {
  size_t n = 1000000, used;
  char *text = malloc(3 * n + 400);
  if (!text) return;
  used = (size_t)sprintf(text, HEAD "\"kernels\": [");
  for (size_t i = 0; i < n; i++) used += (size_t)sprintf(text + used, "%s{}", i ? "," : "");
  used += (size_t)sprintf(text + used, "]}");
  double begin = now();
  CHECK_STATUS(open_manifest(text, used), AMBI_DENIED, "a kernel"); /* the first has no id */
  used = (size_t)sprintf(text, HEAD "\"kernels\": [");
  for (int i = 0; i < 5000; i++)
    used += (size_t)sprintf(text + used, "%s{\"id\": \"k%d\", \"category\": \"custom\", \"path\": \"a\", " HASH "}",
                            i ? "," : "", i);
  used += (size_t)sprintf(text + used, "]}");
  CHECK_STATUS(open_manifest(text, used), AMBI_DENIED, "more than 256 kernels");
  memset(text, ' ', 3 * n + 400);
  char *large = calloc(1, 5 << 20);
  if (large) memset(large, ' ', 5 << 20), CHECK_STATUS(open_manifest(large, 5 << 20), AMBI_DENIED, "larger");
  CHECK(now() - begin < 5, "a manifest of a million kernels took %.1f s", now() - begin);
  free(large);
  free(text);
  still_well("a million kernels");
}

/* ---- files that are none, and libraries that are missing ---- */
static void test_odd_files(void) {
  size_t bytes = 0;
  char path[512];
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &bytes);
  if (forge("odd", wasm, bytes, NULL)) {
    snprintf(path, sizeof path, "%s/odd/k.wasm", root);
    unlink(path);
    CHECK_STATUS(open_only("odd"), AMBI_DENIED, "files");
    if (mkfifo(path, 0600) == 0)
      CHECK_STATUS(open_only("odd"), AMBI_DENIED, "not a file"); /* and does not wait for it */
    unlink(path);
    mkdir(path, 0700);
    CHECK_STATUS(open_only("odd"), AMBI_DENIED, "not a file");
  }
  free(wasm);
}

static void test_missing_runtime(void) {
  char kept[1024];
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1};
  ambi_pack_host *h = NULL;
  const char *was = getenv("AMBI_WASMTIME");
  snprintf(kept, sizeof kept, "%s", was ? was : "");
  setenv("AMBI_WASMTIME", "/nowhere/libwasmtime.so", 1);
  CHECK_STATUS(ambi_pack_host_create(&o, &h), AMBI_UNSUPPORTED, "Wasmtime", "AMBI_WASMTIME");
  setenv("AMBI_WASMTIME", "libm.so.6", 1);
  CHECK_STATUS(ambi_pack_host_create(&o, &h), AMBI_UNSUPPORTED, "has no function");
  setenv("AMBI_WASMTIME", kept, 1);
  setenv("AMBI_SODIUM", "/nowhere/libsodium.so", 1);
  CHECK_STATUS(ambi_pack_host_create(&o, &h), AMBI_UNSUPPORTED, "libsodium");
  unsetenv("AMBI_SODIUM");
}

/* A host that verifies only asks for no engine, refuses what any host refuses, and runs nothing. */
static void test_verify_only(void) {
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1, .verify_only = 1};
  ambi_pack_host *h = NULL;
  ambi_pack *p = NULL;
  ambi_pack_kernel *k = NULL;
  ambi_pack_kernel_info info;
  char kept[1024];
  const char *was = getenv("AMBI_WASMTIME");
  snprintf(kept, sizeof kept, "%s", was ? was : "");
  setenv("AMBI_WASMTIME", "/nowhere/libwasmtime.so", 1);
  if (CHECK_OK(ambi_pack_host_create(&o, &h)) && CHECK_OK(ambi_pack_open(h, good_folder, &p))) {
    CHECK(ambi_pack_get_kernel_info(p, 0, &info) == AMBI_OK && info.bytes, "no kernel is described");
    CHECK_STATUS(ambi_pack_kernel_open(p, info.id, &k), AMBI_UNSUPPORTED, "verifies only");
    CHECK_STATUS(ambi_pack_swap(h, p), AMBI_UNSUPPORTED, "verifies only");
    ambi_pack_close(p);
    CHECK_STATUS(ambi_pack_open(h, path_of("wrong-key"), &p), AMBI_DENIED, "signature");
  }
  ambi_pack_host_destroy(h);
  setenv("AMBI_WASMTIME", kept, 1);
}

/* ---- all of it ---- */
static bool begin(void) {
  char path[512];
  good_folder = getenv("AMBI_PACK_TEST");
  if (!good_folder) return false;
  strcpy(root, "/tmp/ambi-gallery-XXXXXX");
  snprintf(path, sizeof path, "%s.key", good_folder);
  return mkdtemp(root) && key_read(path, secret) && ambi_pack_public_key(secret, key[0]) == AMBI_OK &&
         ambi_pack_make_key(other_secret) == AMBI_OK && ambi_pack_public_key(other_secret, other_key[0]) == AMBI_OK;
}

int main(void) {
  ambi_device *ref = NULL;
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1};
  bool begun = begin();
  ambi_status s = begun ? ambi_pack_host_create(&o, &host) : AMBI_INVALID;
  if (!good_folder || s == AMBI_UNSUPPORTED) {
    printf("SKIPPED test_pack: %s\n0 passed, 0 failed, 1 skipped\n",
           good_folder ? ambi_error() : "AMBI_PACK_TEST is not set");
    return 0;
  }
  if (!CHECK(s == AMBI_OK, "no host, or no key of the pack: %s", ambi_error())) return test_done();
  const pack_def *d = pack_def_named("swiglu_f32");
  CHECK_OK(ambi_device_open("ref", NULL, &ref));
  CHECK(pack_case_make(&good_case, d, AMBI_BACKWARD, d->test, ref), "a good case");
  if (CHECK_OK(ambi_pack_open(host, good_folder, &good_pack))) {
    still_well("nothing");
    test_modules();
    test_greed();
    test_types();
    test_damage();
    test_signed_damage();
    test_keys();
    test_fallbacks();
    test_replay();
    test_manifests();
    test_many_kernels();
    test_odd_files();
    test_missing_runtime();
    test_verify_only();
    still_well("everything");
  }
  ambi_pack_close(good_pack);
  ambi_pack_host_destroy(host);
  pack_case_free(&good_case);
  ambi_device_close(ref);
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", root);
  if (system(command) != 0) printf("%s was left\n", root);
  return test_done();
}
