/* test_pack_cli.c -- what `ambi pack` says about arguments and files that are wrong, and where another kernel steps in.
 * Needs Wasmtime and libsodium. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "../cli/pack.h"
#include "../cli/pack_forge.h"
#include "../util/files.h"
#include "test.h"

#define MEMORY "(memory (export \"memory\") 1) "
#define PICKY  MEMORY "(func (export \"kernel_backward\") (param i32) (result i32) (i32.const 1)) "

static char root[64], hex[65];
static uint8_t secret[32], key[32];

static char *in_root(const char *name) {
  static char paths[8][128];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", root, name);
  return path;
}

/* ---- commands: their status, and what they print on stderr ---- */
typedef int subcommand(int argc, char **argv);
enum { MOST_ARGUMENTS = 20, MOST_SAID = 4096 };
static char said[MOST_SAID];

static int to_file(int fd, const char *path) {
  int kept = dup(fd), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dup2(file, fd);
  close(file);
  return kept;
}

static void back(int fd, int kept) {
  dup2(kept, fd);
  close(kept);
}

static int run_command(subcommand *c, char *const *arguments) {
  char *argv[MOST_ARGUMENTS] = {"test"}, err[200];
  int argc = 1;
  size_t n;
  while (arguments[argc - 1]) argv[argc] = arguments[argc - 1], argc++;
  fflush(NULL);
  int out = to_file(1, in_root("stdout")), errs = to_file(2, in_root("stderr"));
  int rc = c(argc, argv);
  fflush(NULL);
  back(1, out), back(2, errs);
  char *text = file_read(in_root("stderr"), MOST_SAID - 1, &n, err, sizeof err);
  snprintf(said, sizeof said, "%s", text ? text : err);
  free(text);
  return rc;
}
#define RUN(command, ...) run_command(command, (char *const[]){__VA_ARGS__, NULL})
/* Every test of a refusal: its status, and a word of its sentence. */
#define REFUSED(rc, word, command, ...)                                                                     \
  do {                                                                                                      \
    int got = RUN(command, __VA_ARGS__);                                                                    \
    CHECK(got == (rc) && strstr(said, word), "status %d, expected %d, with '%s': %s", got, rc, word, said); \
  } while (0)

/* ---- a pack of k, which does nothing, and of one that falls back to it ---- */
static void make_pack(void) {
  static const char described[] =
      "\"inputs\": [{\"name\": \"x\", \"dtype\": \"f32\", \"shape\": [\"rows\", \"cols\"]}, {\"name\": \"w\", "
      "\"dtype\": "
      "\"f32\", \"shape\": [\"out\", \"cols\"]}], \"params\": {\"rows\": {\"type\": \"u32\"}, \"beta\": {\"type\": "
      "\"f32\", \"default\": 1, \"max\": 8}}";
  size_t n = 0, m = 0;
  void *wasm = forge_kernel(MEMORY, "(i32.const 0)", &n), *picky = forge_kernel(PICKY, "(i32.const 1)", &m);
  static const char fails[] =
      "\"self_test\": [{\"pass\": \"forward\", \"params\": \"\", \"tolerance\": 1, \"out\": [9]}]";
  static const char rotates[] = "\"params\": {\"seq_len\": {\"type\": \"u32\"}}";
  forged_kernel k[] = {{"k", wasm, n, described},      {"broken", wasm, n, fails},   {"picky", picky, m, described},
                       {"rope", wasm, n, rotates},     {"silu_f32", picky, m, NULL}, {"swiglu_f32", picky, m, NULL},
                       {"rmsnorm_f32", picky, m, NULL}};
  forged_pack p = {"pack", "1.0.0", k, 7, secret, "\"fallbacks\": {\"broken\": \"k\"}"};
  CHECK(wasm && picky && forge_pack(in_root("pack"), &p), "a pack cannot be made");
  free(wasm), free(picky);
}

static void make_npy(const char *name, const char *descr, const char *order, const char *shape, size_t bytes) {
  char text[512] = {0}, err[200];
  int n = snprintf(text + 10, 200, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape);
  memcpy(text, "\x93NUMPY\x01", 8);
  text[8] = (char)n;
  CHECK(file_write(in_root(name), text, 10 + (size_t)n + bytes, err, sizeof err), "%s", err);
}

/* ---- run ---- */
#define K in_root("pack"), "k", "--trust", hex
static void test_arguments(void) {
  char *a = in_root("a.npy");
  make_npy("a.npy", "<f4", "False", "(2, 3)", 24);
  REFUSED(0, "", pack_run, K, "--a", a, "--set", "beta=2.5,rows=2");
  REFUSED(1, "expected PARAM=NUMBER", pack_run, K, "--a", a, "--set", "beta");
  REFUSED(1, "expected a number, got 'abc'", pack_run, K, "--a", a, "--set", "beta=abc");
  REFUSED(1, "beta is given twice", pack_run, K, "--a", a, "--set", "beta=1,rows=2,beta=2");
  REFUSED(1, "no param 'bta'", pack_run, K, "--a", a, "--set", "bta=2");
  REFUSED(1, "rows: expected a whole number", pack_run, K, "--a", a, "--set", "rows=1.5");
  REFUSED(1, "rows: expected a whole number", pack_run, K, "--a", a, "--set", "rows=-1");
  REFUSED(1, "beta: at most 8", pack_run, K, "--a", a, "--set", "beta=9");
  REFUSED(2, "--pass: expected forward or backward", pack_run, K, "--a", a, "--pass", "sideways");
  REFUSED(2, "--a names the input", pack_run, K);
  REFUSED(2, "--scratch -1: it must be 0 or more", pack_run, K, "--a", a, "--scratch", "-1");
  REFUSED(2, "--scratch 99999999999: it must be at most", pack_run, K, "--a", a, "--scratch", "99999999999");
  REFUSED(2, "without --scratch", pack_run, K, "--a", a, "--scratch-out", in_root("s.npy"));
  REFUSED(1, "too few axes to say seq_len: --set seq_len=N", pack_run, in_root("pack"), "rope", "--trust", hex, "--a",
          a);
  REFUSED(0, "", pack_run, in_root("pack"), "rope", "--trust", hex, "--a", a, "--set", "seq_len=1");
  REFUSED(1, "has no kernel q", pack_run, in_root("pack"), "q", "--trust", hex, "--a", a);
}

static void test_files(void) {
  static const struct {
    const char *name, *descr, *order, *shape, *word;
    size_t bytes;
  } wrong[] = {{"f8.npy", "<f8", "False", "(2, 3)", "little-endian f32", 48},
               {"be.npy", ">f4", "False", "(2, 3)", "little-endian f32", 24},
               {"i4.npy", "<i4", "False", "(2, 3)", "little-endian f32", 24},
               {"order.npy", "<f4", "True", "(2, 3)", "C order", 24},
               {"short.npy", "<f4", "False", "(2, 3)", "shorter than its shape", 20},
               {"shape.npy", "<f4", "False", "(-2, 3)", "shape", 24}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    make_npy(wrong[i].name, wrong[i].descr, wrong[i].order, wrong[i].shape, wrong[i].bytes);
    REFUSED(1, wrong[i].word, pack_run, K, "--a", in_root(wrong[i].name));
  }
  REFUSED(1, "a folder", pack_run, K, "--a", root);
  REFUSED(1, "No such file", pack_run, K, "--a", in_root("absent.npy"));
  make_npy("w.npy", "<f4", "False", "(5, 3)", 60);
  make_npy("turned.npy", "<f4", "False", "(3, 5)", 60);
  REFUSED(0, "", pack_run, K, "--a", in_root("a.npy"), "--b", in_root("w.npy"));
  REFUSED(1, "b: axis 1 has 5 elements, expected 3", pack_run, K, "--a", in_root("a.npy"), "--b",
          in_root("turned.npy"));
  REFUSED(1, "picky takes x (rows, cols), w (out, cols)", pack_run, in_root("pack"), "picky", "--trust", hex, "--a",
          in_root("a.npy"));
}

/* What is missing is named, of backward too. */
static void test_missing(void) {
  static const struct {
    const char *id, *said;
  } backward[] = {{"silu_f32", "silu_f32 backward takes --a grad_y, --b x (not given)\n"},
                  {"swiglu_f32", "backward takes --a grad_y, --b x then gate (not given)\n"},
                  {"rmsnorm_f32", "backward takes --a grad_y, --b x (not given), --weight weight (not given)\n"},
                  {"picky", "picky backward was given --a\n"}};
  for (size_t i = 0; i < sizeof backward / sizeof *backward; i++)
    REFUSED(1, backward[i].said, pack_run, in_root("pack"), (char *)(uintptr_t)backward[i].id, "--trust", hex, "--a",
            in_root("a.npy"), "--pass", "backward");
}

/* All of it is printed. */
static void test_printed(void) {
  char err[200];
  size_t n;
  make_npy("many.npy", "<f4", "False", "(20,)", 80);
  CHECK(RUN(pack_run, K, "--a", in_root("many.npy"), "--set", "rows=1") == 0, "%s", said);
  char *text = file_read(in_root("stdout"), MOST_SAID, &n, err, sizeof err);
  CHECK(text && n == strlen("out:") + 20 * strlen(" 0") + 1 && !strstr(text, ".."), "%s", text ? text : err);
  free(text);
}

static void test_fallback(void) {
  REFUSED(0, "broken cannot be used: its fallback k steps in", pack_run, in_root("pack"), "broken", "--trust", hex,
          "--a", in_root("a.npy"), "--set", "rows=2");
  CHECK(strstr(said, "self-test"), "why it cannot: %s", said);
}

/* ---- names that would move a terminal's cursor, or look like a line of ambi's own ---- */
#define ESCAPES "\\u001b[2J\\u009b2J\\u0007\\nok    signature"
static void make_loud_packs(void) {
  static const char described[] = "\"name\": \"" ESCAPES "\", \"inputs\": [{\"name\": \"x" ESCAPES
                                  "\", \"dtype\": \"f32\", \"shape\": [\"n" ESCAPES "\", 2]}]";
  static const char param[] = "\"params\": {\"p" ESCAPES "\": {\"type\": \"u32\", \"default\": 2, \"max\": 1}}";
  size_t n = 0;
  void *picky = forge_kernel(PICKY, "(i32.const 1)", &n);
  forged_kernel k[] = {{"inputs", picky, n, described}, {"param", picky, n, param}};
  forged_pack p = {"loud", "1.0.0", k, 2, secret, "\"description\": \"" ESCAPES "\""};
  CHECK(picky && forge_pack(in_root("loud"), &p), "a pack cannot be made");
  p.version = "1" ESCAPES;
  CHECK(forge_pack(in_root("version"), &p), "a pack cannot be made");
  p.version = "1.0.0", p.more = "\"a" ESCAPES "\": 1, \"a" ESCAPES "\": 2";
  CHECK(forge_pack(in_root("twice"), &p), "a pack cannot be made");
  free(picky);
}

/* What the last command printed, on both ways: lines of text, and no other line than its own. */
static void check_quiet(const char *what) {
  char err[200];
  size_t n = 0;
  char *out = file_read(in_root("stdout"), MOST_SAID, &n, err, sizeof err);
  const char *both[] = {said, out ? out : err};
  CHECK(out != NULL, "%s", err);
  for (int i = 0; i < 2; i++) {
    CHECK(!strpbrk(both[i], "\033\a") && !strstr(both[i], "\xc2\x9b"), "%s: %s moves the cursor", what, both[i]);
    CHECK(!strstr(both[i], "\nok    signature\n") && !strstr(both[i], "\nok    signature ("), "%s: %s", what, both[i]);
  }
  CHECK(strstr(said, "[2J") || (out && strstr(out, "[2J")), "%s: nothing was quoted", what);
  free(out);
}

static void test_loud(void) {
  char *a = in_root("a.npy");
  make_loud_packs();
  REFUSED(1, "inputs takes x", pack_run, in_root("loud"), "inputs", "--trust", hex, "--a", a);
  check_quiet("inputs");
  REFUSED(1, "at most 1, got 2", pack_run, in_root("loud"), "param", "--trust", hex, "--a", a);
  check_quiet("a param");
  REFUSED(0, "", pack_info, in_root("loud"), "--trust", hex);
  check_quiet("info");
  static const char *const bad[] = {"version", "twice"};
  for (int i = 0; i < 2; i++) {
    REFUSED(1, "", pack_verify, in_root(bad[i]), "--trust", hex);
    check_quiet(bad[i]);
    REFUSED(1, "manifest", pack_run, in_root(bad[i]), "inputs", "--trust", hex, "--a", a);
    check_quiet(bad[i]);
  }
}

/* A host's limits are options of every command that opens a pack. */
static void test_limits(void) {
  size_t n = 0;
  void *wasm = forge_kernel(MEMORY "(func $s (loop $l (br $l))) (start $s)", "(i32.const 0)", &n);
  forged_kernel k = {"k", wasm, n, "\"resource_limits\": {\"max_epoch_ticks\": 3600000}"};
  forged_pack p = {"greedy", "1.0.0", &k, 1, secret, NULL};
  CHECK(wasm && forge_pack(in_root("greedy"), &p), "a pack cannot be made");
  free(wasm);
  REFUSED(1, "deadline", pack_run, in_root("greedy"), "k", "--trust", hex, "--a", in_root("a.npy"), "--most-ticks",
          "100");
  REFUSED(1, "memory", pack_run, K, "--a", in_root("a.npy"), "--set", "rows=2", "--most-pages", "1");
  REFUSED(2, "--most-ticks", pack_info, in_root("pack"), "--trust", hex, "--most-ticks", "-1");
}

/* ---- the other commands ---- */
static void test_keys(void) {
  char upper[65], long_name[4096], err[200];
  for (int i = 0; i < 65; i++) upper[i] = (char)(hex[i] >= 'a' && hex[i] <= 'f' ? hex[i] - 32 : hex[i]);
  REFUSED(0, "", pack_info, in_root("pack"), "--trust", upper);
  CHECK(file_write(in_root("short.key"), hex, 63, err, sizeof err), "%s", err);
  REFUSED(1, "short.key: a key is 64 hex digits", pack_info, in_root("pack"), "--trust", in_root("short.key"));
  REFUSED(1, "No such file", pack_info, in_root("pack"), "--trust", in_root("absent.key"));
  REFUSED(1, "a folder", pack_info, in_root("pack"), "--trust", root);
  CHECK(file_write(in_root("me.key.pub"), hex, 64, err, sizeof err), "%s", err);
  REFUSED(1, "me.key.pub: a public key", pack_sign, in_root("pack"), "--key", in_root("me.key.pub"));
  REFUSED(1, "me.key.pub: a public key", pack_build, in_root("pack"), in_root("built"), "--key", in_root("me.key.pub"));
  REFUSED(0, "", pack_info, in_root("pack"), "--trust", hex); /* signed as it was */
  REFUSED(0, "", pack_keygen, in_root("mine"));
  REFUSED(1, "mine is a secret key; ", pack_info, in_root("pack"), "--trust", in_root("mine"));
  CHECK(strstr(said, "mine.pub is the one to trust\n"), "%s", said);
  REFUSED(1, "mine.pub is the one to revoke\n", pack_info, in_root("pack"), "--trust", hex, "--revoked",
          in_root("mine"));
  REFUSED(1, "not signed by any", pack_info, in_root("pack"), "--trust", in_root("mine.pub"));
  REFUSED(1, "ambi pack: ", pack_keygen, in_root("absent/me.key"));
  memset(long_name, '/', sizeof long_name); /* ROOT///..///long.key: with .pub after it, it would be cut off */
  memcpy(long_name, root, strlen(root));
  memcpy(long_name + sizeof long_name - sizeof "long.key", "long.key", sizeof "long.key");
  REFUSED(1, "too long", pack_keygen, long_name);
  CHECK(access(in_root("long.key"), F_OK) != 0, "no key was left");
}

/* Wasmtime is for running: without it a pack is read, and verified but for its self-tests. */
static void test_no_engine(void) {
  const char *was = getenv("AMBI_WASMTIME");
  char kept[4096], err[200];
  size_t n;
  snprintf(kept, sizeof kept, "%s", was ? was : "");
  REFUSED(0, "", pack_verify, in_root("loud"), "--trust", hex);
  setenv("AMBI_WASMTIME", "/nowhere/libwasmtime.so", 1);
  REFUSED(0, "", pack_info, in_root("loud"), "--trust", hex);
  REFUSED(3, "", pack_verify, in_root("loud"), "--trust", hex);
  char *text = file_read(in_root("stdout"), MOST_SAID, &n, err, sizeof err);
  CHECK(text && strstr(text, "ok    hash") && strstr(text, "SKIP  self-test       kernel packs need Wasmtime") &&
            strstr(text, "\nNOT TESTED: ") && !strstr(text, "verified"),
        "%s", text ? text : err);
  free(text);
  REFUSED(1, "", pack_verify, in_root("loud"), "--trust", in_root("mine.pub"));
  REFUSED(1, "`pip install wasmtime` brings it", pack_run, K, "--a", in_root("a.npy"));
  setenv("AMBI_WASMTIME", kept, 1);
}

static void test_build(void) {
  char *from = in_root("modules"), *to = in_root("built");
  REFUSED(2, "--version: expected one such as 1.2.3", pack_build, from, to, "--version", "1");
  REFUSED(2, "--name: letters", pack_build, from, to, "--name", "a b");
  REFUSED(2, "no kernel 'foo'", pack_build, from, to, "--kernels", "swiglu_f32,foo");
  REFUSED(2, "no kernel ''", pack_build, from, to, "--kernels", "");
  REFUSED(2, "--pages", pack_build, from, to, "--pages", "0");
  REFUSED(2, "--ticks", pack_build, from, to, "--ticks", "3600001");
  CHECK(access(in_root("built"), F_OK) != 0, "nothing was made");
}

static void test_swaps(void) {
  char *p = in_root("pack");
  REFUSED(2, "--times", pack_swap, p, p, "--trust", hex, "--times", "0");
  REFUSED(2, "--threads", pack_swap, p, p, "--trust", hex, "--threads", "65");
  REFUSED(2, "no kernel q", pack_swap, p, p, "--trust", hex, "--kernel", "q");
}

int main(void) {
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])key, .trusted_count = 1};
  ambi_pack_host *host = NULL;
  ambi_status s = ambi_pack_make_key(secret);
  if (s == AMBI_OK) s = ambi_pack_public_key(secret, key);
  if (s == AMBI_OK) s = ambi_pack_host_create(&o, &host);
  ambi_pack_host_destroy(host);
  if (s == AMBI_UNSUPPORTED) {
    printf("SKIPPED test_pack_cli: %s\n0 passed, 0 failed, 1 skipped\n", ambi_error());
    return 0;
  }
  key_text(key, hex);
  strcpy(root, "/tmp/ambi-cli-XXXXXX");
  if (!CHECK(s == AMBI_OK && mkdtemp(root), "no host: %s", ambi_error())) return test_done();
  make_pack();
  test_arguments();
  test_files();
  test_missing();
  test_printed();
  test_fallback();
  test_loud();
  test_limits();
  test_keys();
  test_no_engine();
  test_build();
  test_swaps();
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", root);
  if (system(command) != 0) printf("%s was left\n", root);
  return test_done();
}
