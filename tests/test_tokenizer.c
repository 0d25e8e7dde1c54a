/* test_tokenizer.c -- tokenizers against the ids that the package `tokenizers` gave (tests/make_tokenizer_data.py),
 * what they refuse, and training.
 *
 *   test_tokenizer                       all of it
 *   test_tokenizer ids FILE < RECORDS    for tests/compare_tokenizers.py: a record is its bytes' number, a newline, the
 *                                        bytes; a line of ids for each */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../models/maps.h"
#include "../models/pattern.h"
#include "../models/tokenizer.h"
#include "../models/unicode.h"
#include "../util/files.h"
#include "../util/json.h"
#include "test.h"

static void expect(int ok, const char *what, const char *detail) { CHECK(ok, "%s: %s", what, detail); }

static tokenizer *open_data(const char *name) {
  char path[600], err[300] = "";
  snprintf(path, sizeof path, TEST_DATA "/tokenizers/%s.json", name);
  tokenizer *t = tokenizer_open(path, err, sizeof err);
  if (!t) expect(0, name, err);
  return t;
}

/* ---- against the package ---- */

/* NFC changes a text, and these take white space with them or put it before words: the text does not come back. */
static int comes_back(const char *name) { return strcmp(name, "neox") != 0 && strcmp(name, "prefix") != 0; }

static int same_text(const tokenizer *t, const int32_t *ids, int64_t n, const char *text, size_t bytes) {
  size_t at = 0, length;
  for (int64_t i = 0; i < n; i++) {
    const char *piece = tokenizer_token(t, ids[i], &length);
    if (bytes - at < length || memcmp(text + at, piece, length) != 0) return 0;
    at += length;
  }
  return at == bytes;
}

static void test_case(const tokenizer *t, const char *name, const json_value *text, const json_value *want) {
  int32_t *ids = NULL;
  int64_t n = tokenizer_encode(t, text->text, text->length, &ids);
  int same = n == (int64_t)want->length;
  const json_value *w = want->child;
  for (int64_t i = 0; i < n && same; i++, w = w->next) same = w->integer == ids[i];
  expect(same, name, text->text);
  if (comes_back(name)) expect(same_text(t, ids, n, text->text, text->length), name, "the text does not come back");
  free(ids);
}

static void test_around(const tokenizer *t, const char *name, const json_value *want) {
  const int32_t *before, *after;
  int n_before, n_after, i = 0;
  tokenizer_around(t, &before, &n_before, &after, &n_after);
  int same = (size_t)n_before + (size_t)n_after == want->length;
  for (const json_value *w = want->child; w && same; w = w->next, i++) {
    same = w->integer == (i < n_before ? before[i] : after[i - n_before]);
  }
  expect(same, name, "what is put around a text");
}

static json_doc *read_cases(void) {
  char err[300];
  size_t bytes;
  char *json = file_read(TEST_DATA "/tokenizers/cases.json", 1 << 24, &bytes, err, sizeof err);
  json_doc *doc = json ? json_parse(json, bytes, err, sizeof err) : NULL;
  if (!doc) expect(0, "cases.json", err);
  free(json);
  return doc;
}

static void test_package(void) {
  json_doc *doc = read_cases();
  const json_value *all = doc ? json_get(json_root(doc), "tokenizers") : NULL;
  for (const json_value *f = all ? all->child : NULL; f; f = f->next) {
    tokenizer *t = open_data(f->key);
    if (!t) continue;
    const json_value *text = json_get(json_root(doc), "texts")->child, *ids = json_get(f, "ids")->child;
    for (; text && ids; text = text->next, ids = ids->next) test_case(t, f->key, text, ids);
    expect(!text && !ids, f->key, "as many texts as ids");
    test_around(t, f->key, json_get(f, "around_nothing"));
    tokenizer_free(t);
  }
  json_free(doc);
}

static void test_ends(void) {
  static const struct {
    const char *name;
    int32_t size, bos, eos;
  } rows[] = {{"gpt2", 400, -1, 0}, {"neox", 424, -1, 0}, {"llama3", 403, 0, 1}, {"prefix", 402, -1, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tokenizer *t = open_data(rows[i].name);
    if (!t) continue;
    expect(tokenizer_size(t) == rows[i].size, rows[i].name, "size");
    expect(tokenizer_bos(t) == rows[i].bos && tokenizer_eos(t) == rows[i].eos, rows[i].name, "bos, eos");
    expect(tokenizer_is_special(t, 0) == 1 && tokenizer_is_special(t, 300) == 0, rows[i].name, "special tokens");
    size_t n = 1;
    expect(*tokenizer_token(t, rows[i].size, &n) == 0 && n == 0, rows[i].name, "an id beyond the last");
    expect(*tokenizer_token(t, -1, &n) == 0 && n == 0, rows[i].name, "a negative id");
    tokenizer_free(t);
  }
}

/* ---- bytes ---- */

static void test_bytes(void) {
  char text[512], err[200] = "";
  for (int i = 0; i < 512; i++) text[i] = (char)i;
  for (int eos = 0; eos < 2; eos++) {
    tokenizer *t = tokenizer_bytes(eos);
    if (!t) return expect(0, "bytes", "none was made");
    int32_t *ids = NULL;
    int64_t n = tokenizer_encode(t, text, sizeof text, &ids);
    int same = n == 512;
    for (int i = 0; i < 512 && same; i++) same = ids[i] == i % 256;
    expect(same && same_text(t, ids, n, text, sizeof text), "bytes", "every byte is its id");
    free(ids);
    expect(tokenizer_size(t) == 256 + eos && tokenizer_eos(t) == (eos ? 256 : -1), "bytes", "size, end of text");
    n = tokenizer_encode(t, "a<|endoftext|>", 14, &ids);
    expect(n == (eos ? 2 : 14) && ids[1] == (eos ? 256 : '<'), "bytes", "the end of text in a text");
    free(ids);
    expect(tokenizer_encode(t, NULL, 0, &ids) == 0, "bytes", "no text");
    free(ids);
    tokenizer_free(t);
  }
  tokenizer *t = tokenizer_bytes(1);
  expect(t && tokenizer_save(t, "test_tokenizer.tmp.json", err, sizeof err), "saved", err);
  tokenizer *again = tokenizer_open("test_tokenizer.tmp.json", err, sizeof err);
  expect(again && tokenizer_size(again) == 257, "opened again", err);
  remove("test_tokenizer.tmp.json");
  expect(!tokenizer_save(t, "/nonexistent/a.json", err, sizeof err) && *err, "saved nowhere", "was accepted");
  tokenizer_free(again);
  tokenizer_free(t);
}

/* Bytes that are no UTF-8 come back, whatever the tokenizer; NFC leaves them alone. */
static void test_invalid(void) {
  static const char *const texts[] = {"\xFF\xFE",           "a\x80\x80 b",   "\xC3",     "\xE2\x82",
                                      " \xF0\x9F\x98 x",    "\xED\xA0\x80y", "\xC0\xAF", "\x80\x80 1\xC3\xA9\xC3",
                                      "'s\xFFs\xFF\n\xFF\n"};
  static const char *const names[] = {"gpt2", "neox", "llama3", "gpt4"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
    tokenizer *t = open_data(names[k]);
    for (size_t i = 0; t && i < sizeof texts / sizeof *texts; i++) {
      int32_t *ids = NULL;
      int64_t n = tokenizer_encode(t, texts[i], strlen(texts[i]), &ids);
      expect(n > 0 && same_text(t, ids, n, texts[i], strlen(texts[i])), names[k], "bytes that are no UTF-8");
      free(ids);
    }
    tokenizer_free(t);
  }
}

/* ---- refused ---- */

/* The file with `from` replaced by `to`, at its first place; the caller frees it. */
static char *edited(const char *text, const char *from, const char *to, size_t *bytes) {
  const char *at = strstr(text, from);
  char *out = malloc(strlen(text) + strlen(to) + 1);
  if (!at || !out) exit(printf("FAILED the test itself: no '%s'\n", from));
  size_t before = (size_t)(at - text);
  memcpy(out, text, before);
  strcpy(out + before, to);
  strcat(out + before, at + strlen(from));
  *bytes = strlen(out);
  return out;
}

static const struct {
  const char *file, *from, *to, *why;
} edits[] = {
    {"neox", "{\"version\"", "[{\"version\"", "byte"},
    {"neox", "\"version\"", "\"new\"", "'new'"},
    {"neox", "\"truncation\":null", "\"truncation\":{}", "truncation"},
    {"neox", "\"padding\":null", "\"padding\":{}", "padding"},
    {"neox", "{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}", "'NFKC'"},
    {"neox", "{\"type\":\"NFC\"}", "{\"type\":\"NFC\",\"form\":1}", "'form'"},
    {"neox", "{\"type\":\"NFC\"}", "7", "normalizer has no type"},
    {"neox", "{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}", "'Lowercase'"},
    {"neox", "{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[null]}", "objects"},
    {"neox", "\"type\":\"ByteLevel\"", "\"type\":\"Metaspace\"", "'Metaspace'"},
    {"neox", "\"add_prefix_space\":false", "\"add_prefix_space\":0", "add_prefix_space"},
    {"neox", "\"use_regex\"", "\"use_regexp\"", "'use_regexp'"},
    {"neox", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Digits\"", "add_prefix_space"},
    {"prefix", ",{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}", "",
     "no ByteLevel"},
    {"neox", "\"id\":0", "\"id\":-1", "added_tokens"},
    {"neox", "\"id\":0", "\"id\":\"0\"", "added_tokens"},
    {"neox", "\"id\":0", "\"id\":1e0", "added_tokens"},
    {"neox", "\"id\":0", "\"id\":1000000", "added_tokens"},
    {"neox", "\"id\":0", "\"id\":1", "<|endoftext|>"},
    {"neox", "\"id\":0", "\"id\":500", "in the vocabulary"},
    {"neox", "\"content\":\"<|endoftext|>\"", "\"content\":\"\"", "no content"},
    {"neox", "\"content\":\"<|endoftext|>\"", "\"content\":null", "no content"},
    {"neox", "\"content\":\"<|endoftext|>\"", "\"content\":\"other\"", "is taken"},
    {"neox", "\"single_word\":false", "\"single_word\":true", "single_word"},
    {"neox", "\"special\":true", "\"special\":1", "special"},
    {"neox", "\"special\":true", "\"precious\":true", "'precious'"},
    {"neox", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "'Unigram'"},
    {"neox", "\"dropout\":null", "\"dropout\":0.1", "dropout"},
    {"neox", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix"},
    {"neox", "\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback"},
    {"neox", "\"ignore_merges\":false", "\"ignore\":false", "'ignore'"},
    {"neox", "\"!\":2", "\"!\":3", "as another token has"},
    {"neox", "\"!\":2", "\"!\":-2", "the id of '!'"},
    {"neox", "\"!\":2", "\"!\":\"2\"", "the id of '!'"},
    {"neox", "\"!\":2", "\"!\":99999999999", "the id of '!'"},
    {"neox", "\"!\":2", "\"!!!\":2", "byte 21"},
    {"neox", "\"!\":2", "\"\":2", "without a name"},
    {"neox", "\"!\":2", "\"!\":2,\"\xE2\x96\x81x\":900", "stand for no byte"},
    {"neox", "\"vocab\":{", "\"vocab\":[],\"v\":{", "model.vocab"},
    {"neox", "\"merges\":[", "\"merges\":[[\"\xC4\xA0\",\"zz\"],", "'zz'"},
    {"neox", "\"merges\":[", "\"merges\":[[\"!\",\"!\"],", "its result"},
    {"neox", "\"merges\":[", "\"merges\":[[\"!\"],", "merges[0]"},
    {"neox", "\"merges\":[", "\"merges\":[[\"!\",1],", "merges[0]"},
    {"neox", "\"merges\":[", "\"merges\":[\"!\",", "merges[0]"},
    {"neox", "\"merges\":[", "\"merges\":[\"! ! !\",", "merges[0]"},
    {"neox", "\"merges\":[", "\"merges\":[\" !\",", "merges[0]"},
    {"neox", "\"merges\":[", "\"merges\":[7,", "merges[0]"},
    {"llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"MergedWithNext\"", "'MergedWithNext'"},
    {"llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Removed\"", "'Removed'"},
    {"llama3", "\"Regex\":", "\"String\":", "'String'"},
    {"llama3", "(?i:'s", "(?<x>'s", "(?<x"},
    {"llama3", "\\\\p{N}{1,3}", "\\\\p{Nd}{1,3}", "\\p{Nd}"},
    {"llama3", "\\\\p{N}{1,3}", "\\\\p{N}{3,1}", "quantifier"},
    {"llama3", "\\\\p{N}{1,3}", "\\\\w{1,3}", "\\w"},
    {"llama3", "\\\\p{N}{1,3}", "(a|b)*", "a group"},
    {"llama3", "\\\\p{N}{1,3}", "a*", "no character at all"},
    {"llama3", "\\\\p{N}{1,3}", "^", "'^'"},
    {"llama3", "\\\\p{N}{1,3}", "(", "')'"},
    {"llama3", "\\\\p{N}{1,3}", ")", "')'"},
    {"llama3", "\\\\p{N}{1,3}", "[", "'['"},
    {"llama3", "|\\\\s+(?!\\\\S)|\\\\s+", "|[a", "']'"},
    {"llama3", "\\\\p{N}{1,3}", "[b-a]", "range"},
    {"llama3", "\\\\p{N}{1,3}", "a+?", "two quantifiers"},
    {"llama3", "{\"type\":\"Split\"", "{\"type\":\"ByteLevel\"},{\"type\":\"Split\"", "after ByteLevel"},
    {"llama3", "\"TemplateProcessing\"", "\"RobertaProcessing\"", "'RobertaProcessing'"},
    {"llama3", "\"single\":[{\"Special", "\"single\":[{\"Spacial", "unknown"},
    {"llama3", "\"single\":[{", "\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{", "the text once"},
    {"llama3", "\"ids\":[0]", "\"ids\":[9999]", "names no token"},
    {"llama3", "\"ids\":[0]", "\"ids\":0", "without ids"},
    {"llama3", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"", "'Fuse'"},
};

static char *read_data(const char *name, size_t *bytes) {
  char path[600], err[300];
  snprintf(path, sizeof path, TEST_DATA "/tokenizers/%s.json", name);
  char *text = file_read(path, 1 << 20, bytes, err, sizeof err);
  if (!text) expect(0, name, err);
  return text;
}

static void test_refused(void) {
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    size_t bytes;
    char err[200] = "", *text = read_data(edits[i].file, &bytes);
    if (!text) return;
    char *bad = edited(text, edits[i].from, edits[i].to, &bytes);
    tokenizer *t = tokenizer_parse(bad, bytes, err, sizeof err);
    expect(!t && strstr(err, edits[i].why), edits[i].to, t ? "was accepted" : err);
    tokenizer_free(t);
    free(bad);
    free(text);
  }
  char err[200] = "";
  expect(!tokenizer_open("/nonexistent/tokenizer.json", err, sizeof err) && strstr(err, "/nonexistent"), "no file",
         err);
  expect(!tokenizer_parse("{}", 2, err, sizeof err) && strstr(err, "model"), "an empty object", err);
  expect(!tokenizer_parse("[]", 2, NULL, 0), "no room for an error", "was accepted");
}

static void test_truncated(void) {
  size_t bytes;
  char *text = read_data("gpt2", &bytes);
  for (size_t n = 0; text && n + 2 < bytes; n += n < 600 ? 1 : 37) {
    char err[200] = "";
    tokenizer *t = tokenizer_parse(text, n, err, sizeof err);
    expect(!t && *err, "a truncated file", "was accepted");
    tokenizer_free(t);
  }
  free(text);
}

/* ---- time ---- */

/* Texts on which a careless merge, search or normalization takes the square of their length. */
static void test_long(void) {
  enum { N = 1 << 18 };
  static const char *const units[] = {"a",  " ", "\n",           " \n", "!",   "\xCC\x96\xCC\x81",
                                      "<|", "'", "\xEA\xB0\x80", "12",  "\x80"};
  static const char *const names[] = {"gpt2", "neox", "llama3", "gpt4", "prefix"};
  char *text = malloc(N + 8);
  for (size_t k = 0; text && k < sizeof names / sizeof *names; k++) {
    tokenizer *t = open_data(names[k]);
    for (size_t u = 0; t && u < sizeof units / sizeof *units; u++) {
      size_t length = strlen(units[u]), bytes = N / length * length;
      for (size_t i = 0; i < bytes; i++) text[i] = units[u][i % length];
      int32_t *ids = NULL;
      clock_t begin = clock();
      int64_t n = tokenizer_encode(t, text, bytes, &ids);
      double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC; /* linear: milliseconds; quadratic: minutes */
      expect(n > 0 && seconds < 20, names[k], units[u]);
      free(ids);
    }
    tokenizer_free(t);
  }
  free(text);
}

/* A pattern made to try everything gives up: no ids, and soon. */
static void test_patience(void) {
  size_t bytes;
  char err[200], *text = read_data("llama3", &bytes),
                 *bad = text ? edited(text, "\\\\p{N}{1,3}", "a*a*a*a*a*a*a*b", &bytes) : NULL;
  tokenizer *t = bad ? tokenizer_parse(bad, bytes, err, sizeof err) : NULL;
  char many[4001];
  memset(many, 'a', 4000);
  int32_t *ids = NULL;
  if (t) expect(tokenizer_encode(t, many, 4000, &ids) > 0, "patience", "letters match an earlier branch");
  free(ids);
  pattern *p = pattern_compile("a*a*a*a*a*a*a*b", 15, err, sizeof err);
  int64_t steps = 1000000;
  expect(p && !pattern_match(p, many, many + 4000, &steps) && steps < 0, "patience", "it should be spent");
  pattern_free(p);
  tokenizer_free(t);
  free(bad);
  free(text);
}

/* ---- training ---- */

static tokenizer *train_on(const char *text, int32_t size, int64_t least, char *err, size_t n) {
  tokenizer_trainer *r = tokenizer_trainer_new();
  const tokenizer_training o = {.vocabulary = size, .least = least, .end_of_text = "<|endoftext|>"};
  tokenizer *t = NULL;
  if (r && tokenizer_trainer_add(r, text, strlen(text))) t = tokenizer_trainer_finish(r, &o, err, n);
  tokenizer_trainer_free(r);
  return t;
}

static void expect_token(const tokenizer *t, int32_t id, const char *want) {
  size_t n;
  const char *got = tokenizer_token(t, id, &n);
  expect(n == strlen(want) && memcmp(got, want, n) == 0, "training", want);
}

static void test_training(void) {
  char err[200] = "";
  /* Words: aab x3, " aab" x2, aaaa x1. (a,a): 3+2+3 = 8, (a,b): 5, (" ",a): 2; then aa b: 5, aa aa: 1. */
  tokenizer *t = train_on("aab\naab\naab aab aab\naaaa", 400, 0, err, sizeof err);
  if (!t) return expect(0, "training", err);
  expect(tokenizer_eos(t) == 0, "training", "the end of text is 0");
  expect_token(t, 0, "<|endoftext|>");
  expect_token(t, 1, "!");
  expect_token(t, 257, "aa");
  expect_token(t, 258, "aab");
  expect_token(t, 259, " aab");
  expect_token(t, 260, "aaaa");
  expect(tokenizer_size(t) == 261, "training", "no more pairs than there are");
  tokenizer_free(t);
  t = train_on("aab\naab\naab aab aab\naaaa", 400, 3, err, sizeof err);
  expect(t && tokenizer_size(t) == 259, "training", "pairs that occur too seldom");
  tokenizer_free(t);
  t = train_on("ba ab", 258, 0, err, sizeof err); /* all pairs once: the lowest ids, (a,b) */
  if (t) expect_token(t, 257, "ab");
  tokenizer_free(t);
  t = train_on("", 300, 0, err, sizeof err);
  expect(t && tokenizer_size(t) == 257, "training", "on nothing");
  tokenizer_free(t);
  tokenizer_trainer *r = tokenizer_trainer_new();
  const tokenizer_training word = {.vocabulary = 300, .end_of_text = "the"};
  expect(r && !tokenizer_trainer_finish(r, &word, err, sizeof err) && strstr(err, "'the'"), "training",
         "a word ends texts");
  tokenizer_trainer_free(r);
  expect(!train_on("x", 256, 0, err, sizeof err) && strstr(err, "257"), "training", "too few tokens");
  expect(!train_on("x", INT32_MAX, 0, err, sizeof err) && strstr(err, "vocabulary"), "training", "too many tokens");
}

/* The package learned gpt2.json from this text: the same tokens, in the same order. */
static void test_same_training(void) {
  json_doc *doc = read_cases();
  const char *corpus = doc ? json_text(json_get(json_root(doc), "corpus")) : NULL;
  char err[200] = "";
  tokenizer *want = open_data("gpt2"), *t = corpus ? train_on(corpus, 400, 0, err, sizeof err) : NULL;
  expect(t && want && tokenizer_size(t) == tokenizer_size(want), "training as the package does", err);
  for (int32_t i = 0; t && want && i < tokenizer_size(want); i++) {
    size_t n, m;
    const char *a = tokenizer_token(t, i, &n), *b = tokenizer_token(want, i, &m);
    CHECK(n == m && memcmp(a, b, n) == 0, "token %d is '%.*s', not '%.*s'", i, (int)n, a, (int)m, b);
  }
  tokenizer_free(t);
  tokenizer_free(want);
  json_free(doc);
}

/* The order of the texts does not matter. */
static void test_order(void) {
  static const char *const texts[] = {"the cat sat on the mat\n", "that hat, that cat\n", "a mat for a rat\n"};
  tokenizer *t[2] = {NULL, NULL};
  for (size_t k = 0; k < 2; k++) {
    tokenizer_trainer *r = tokenizer_trainer_new();
    const tokenizer_training o = {.vocabulary = 290};
    for (size_t i = 0; r && i < 3; i++) {
      const char *text = texts[k ? 2 - i : i];
      expect(tokenizer_trainer_add(r, text, strlen(text)), "training", text);
    }
    t[k] = r ? tokenizer_trainer_finish(r, &o, NULL, 0) : NULL;
    tokenizer_trainer_free(r);
  }
  int32_t size = t[0] ? tokenizer_size(t[0]) : 0;
  expect(size > 270 && t[1] && tokenizer_size(t[1]) == size, "training", "in another order");
  for (int32_t i = 0; t[0] && t[1] && i < size; i++) {
    size_t n, m;
    const char *a = tokenizer_token(t[0], i, &n), *b = tokenizer_token(t[1], i, &m);
    CHECK(n == m && memcmp(a, b, n) == 0, "token %d depends on the order of the texts", i);
  }
  tokenizer_free(t[0]);
  tokenizer_free(t[1]);
}

/* ---- records, for the comparison ---- */

static int print_ids(const char *path) {
  char err[300];
  tokenizer *t = tokenizer_open(path, err, sizeof err);
  if (!t) return fprintf(stderr, "%s\n", err), 1;
  for (size_t bytes; scanf("%zu", &bytes) == 1 && getchar() == '\n';) {
    char *text = bytes < (size_t)1 << 30 ? malloc(bytes + 1) : NULL;
    int32_t *ids = NULL;
    if (!text || fread(text, 1, bytes, stdin) != bytes) return free(text), 1;
    int64_t n = tokenizer_encode(t, text, bytes, &ids);
    for (int64_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", ids[i]);
    printf("\n");
    free(ids);
    free(text);
  }
  tokenizer_free(t);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "ids") == 0) return print_ids(argv[2]);
  test_package();
  test_ends();
  test_bytes();
  test_invalid();
  test_refused();
  test_truncated();
  test_long();
  test_patience();
  test_training();
  test_same_training();
  test_order();
  return test_done();
}
