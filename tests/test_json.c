/* test_json.c -- the readers of JSON and of safetensors: what they give, and every kind of input they must refuse. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/json.h"
#include "../util/safetensors.h"

static int passed, failed;

static void expect(int ok, const char *what, const char *detail) {
  if (ok) {
    passed++;
  } else {
    failed++;
    printf("FAILED %s: %s\n", what, detail);
  }
}

/* ---- JSON: refused ---- */

static const struct {
  const char *text;
  int byte;
} refused[] = {
    {"", 0},
    {" ", 1},
    {"[", 1},
    {"[1", 2},
    {"[1,", 3},
    {"[1,]", 3},
    {"[,1]", 1},
    {"[1 2]", 3},
    {"[1]]", 3},
    {"{", 1},
    {"{}x", 2},
    {"{1:2}", 1},
    {"{\"a\"}", 4},
    {"{\"a\":}", 5},
    {"{\"a\":1,}", 7},
    {"{\"a\":1 \"b\":2}", 7},
    {"{\"a\":1,\"a\":2}", 0},
    {"{\"a\":1,\"b\":2,\"\\u0061\":3}", 0},
    {"01", 0},
    {"-", 0},
    {"+1", 0},
    {"1.", 0},
    {".5", 0},
    {"1e", 0},
    {"1e+", 0},
    {"0x10", 0},
    {"1e999", 0},
    {"-1e999", 0},
    {"NaN", 0},
    {"Infinity", 0},
    {"tru", 0},
    {"True", 0},
    {"nul", 0},
    {"nullx", 4},
    {"'a'", 0},
    {"\"a", 0},
    {"\"a\\", 2},
    {"\"\\x41\"", 1},
    {"\"\\u12\"", 1},
    {"\"\\u12g4\"", 1},
    {"\"\\u", 1},
    {"\"\\ud800\"", 1},
    {"\"\\udc00\"", 1},
    {"\"\\ud800\\u0041\"", 1},
    {"\"\\ud800\\ud800\"", 1},
    {"\"\\ud800\\", 1},
    {"\"\t\"", 1},
    {"\"\n\"", 1},
    {"\"\x80\"", 1},
    {"\"\xC0\xAF\"", 1},
    {"\"\xC3\"", 1},
    {"\"\xE0\x80\x80\"", 1},
    {"\"\xED\xA0\x80\"", 1},
    {"\"\xF4\x90\x80\x80\"", 1},
    {"\"\xF5\x80\x80\x80\"", 1},
    {"\"\xF0\x9F\x98\"", 1},
    {"\xEF\xBB\xBF{}", 0},
    {"// c\n1", 0},
    {"[1]/**/", 3},
};

static void test_refused(void) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char err[160] = "", want[32];
    json_doc *d = json_parse(refused[i].text, strlen(refused[i].text), err, sizeof err);
    snprintf(want, sizeof want, "byte %d: ", refused[i].byte);
    expect(!d && strncmp(err, want, strlen(want)) == 0, refused[i].text, d ? "was accepted" : err);
    json_free(d);
  }
}

static void test_limits(void) {
  char deep[2 * JSON_MAX_DEPTH + 3], err[160];
  memset(deep, '[', JSON_MAX_DEPTH + 1);
  memset(deep + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
  json_doc *d = json_parse(deep, 2 * JSON_MAX_DEPTH + 2, err, sizeof err);
  expect(!d && strstr(err, "nested") != NULL, "one level too deep", err);
  json_free(d);
  d = json_parse(deep + 1, 2 * JSON_MAX_DEPTH, err, sizeof err);
  expect(d != NULL, "as deep as allowed", err);
  json_free(d);
  expect(!json_parse("1", JSON_MAX_BYTES + 1, err, sizeof err) && strstr(err, "limit"), "too many bytes", err);
  size_t n = 2 * JSON_MAX_VALUES + 1; /* "[0,0,..,0]": one value more than allowed with the array itself */
  char *many = malloc(n);
  if (!many) return expect(0, "too many values", "no memory for the test");
  for (size_t i = 0; i < n; i++) many[i] = i % 2 ? '0' : ',';
  many[0] = '[';
  many[n - 1] = ']';
  d = json_parse(many, n, err, sizeof err);
  expect(!d && strstr(err, "more than"), "too many values", err);
  json_free(d);
  free(many);
  expect(!json_parse("[1,", 3, NULL, 0), "no room for an error", "was accepted");
  expect(!json_parse("\"a\0b\"", 5, err, sizeof err), "a NUL in a string", "was accepted");
  expect(!json_parse("1\0", 2, err, sizeof err), "a NUL after the value", "was accepted");
}

/* ---- JSON: read ---- */

static void test_numbers(void) {
  static const struct {
    const char *text;
    double number;
    int is_int;
    int64_t integer;
  } rows[] = {{"0", 0, 1, 0},
              {"-0", -0.0, 1, 0},
              {"12", 12, 1, 12},
              {"-7 ", -7, 1, -7},
              {"9223372036854775807", 9223372036854775807.0, 1, INT64_MAX},
              {"-9223372036854775808", -9223372036854775808.0, 1, INT64_MIN},
              {"9223372036854775808", 9223372036854775808.0, 0, 0},
              {"1.0", 1, 0, 0},
              {"1e3", 1000, 0, 0},
              {"-2.5E-3", -0.0025, 0, 0},
              {"1e-400", 0, 0, 0},
              {"0.1", 0.1, 0, 0},
              {"1.7976931348623157e308", 1.7976931348623157e308, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char err[160] = "wrong value";
    json_doc *d = json_parse(rows[i].text, strlen(rows[i].text), err, sizeof err);
    const json_value *v = d ? json_root(d) : NULL;
    int same = v && v->type == JSON_NUMBER && v->number == rows[i].number && v->is_int == rows[i].is_int &&
               signbit(v->number) == signbit(rows[i].number);
    expect(same && (!v->is_int || v->integer == rows[i].integer), rows[i].text, err);
    json_free(d);
  }
}

static void test_strings(void) {
  static const struct {
    const char *text, *want;
    size_t length;
  } rows[] = {{"\"\"", "", 0},
              {"\"a\\n\\t\\\\\\/\\\"\\b\\f\\r\"", "a\n\t\\/\"\b\f\r", 9},
              {"\"\\u0041\\u00e9\\u20AC\"", "A\xC3\xA9\xE2\x82\xAC", 6},
              {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80", 4},
              {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF", 4},
              {"\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9},
              {"\"a\\u0000b\"", "a\0b", 3}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char err[160] = "wrong text";
    json_doc *d = json_parse(rows[i].text, strlen(rows[i].text), err, sizeof err);
    const json_value *v = d ? json_root(d) : NULL;
    int same = v && v->type == JSON_STRING && v->length == rows[i].length;
    expect(same && memcmp(v->text, rows[i].want, rows[i].length + 1) == 0, rows[i].text, err);
    json_free(d);
  }
}

/* What is written can be read, the largest numbers too. */
static void test_written(void) {
  static const double numbers[] = {
      0, -1.5, 1e-300, 3.4028234663852886e38, 1.7976931348623157e308, -1.7976931348623157e308};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    char text[64] = "", err[160] = "wrong value";
    FILE *f = fmemopen(text, sizeof text, "w");
    if (f) json_write_number(f, numbers[i]), fclose(f);
    json_doc *d = json_parse(text, strlen(text), err, sizeof err);
    const double read = d ? json_root(d)->number : NAN;
    expect(fabs(read - numbers[i]) <= 1e-9 * fabs(numbers[i]), text, err);
    json_free(d);
  }
}

static void test_tree(void) {
  static const char text[] =
      " { \"a\" : [ 1 , true , null , \"x\" ] ,\r\n\t\"b\" : { } , \"\" : false, \"n\\u0000\": 4 } ";
  char err[160];
  json_doc *d = json_parse(text, sizeof text - 1, err, sizeof err);
  if (!d) return expect(0, "tree", err);
  const json_value *root = json_root(d), *a = json_get(root, "a");
  expect(root->type == JSON_OBJECT && root->length == 4, "tree", "root");
  expect(a && a->type == JSON_ARRAY && a->length == 4, "tree", "a");
  expect(a && a->child->integer == 1 && a->child->next->integer == 1 && a->child->next->type == JSON_BOOL, "tree",
         "a[0..1]");
  expect(a && a->child->next->next->type == JSON_NULL, "tree", "a[2]");
  expect(a && strcmp(json_text(a->child->next->next->next), "x") == 0, "tree", "a[3]");
  expect(json_get(root, "b") && json_get(root, "b")->length == 0, "tree", "b");
  expect(json_get(root, "") && json_get(root, "")->integer == 0, "tree", "empty name");
  expect(!json_get(root, "n") && !json_get(a, "a") && !json_get(NULL, "a"), "tree", "absent names");
  expect(!json_text(a) && !json_text(NULL), "tree", "no text");
  json_free(d);
}

/* ---- safetensors ---- */

/* A file image of that header and `data` zero bytes; the caller frees it. */
static unsigned char *image(const char *header, size_t data, size_t *size) {
  size_t n = strlen(header);
  unsigned char *p = calloc(1, 8 + n + data);
  if (!p) exit(1);
  for (int i = 0; i < 8; i++) p[i] = (unsigned char)((uint64_t)n >> (8 * i));
  memcpy(p + 8, header, n);
  *size = 8 + n + data;
  return p;
}

#define T(dtype, shape, begin, end) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct {
  const char *header;
  size_t data;
  const char *why;
} bad_files[] = {
    {"", 0, "expected"},
    {"[]", 0, "no object"},
    {"{\"a\":1}", 0, "no object"},
    {"{\"a\":{}}", 0, "dtype"},
    {"{\"a\":{\"dtype\":5,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype"},
    {"{\"a\":" T("F31", "[1]", "0", "4") "}", 4, "F31"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape"},
    {"{\"a\":" T("F32", "7", "0", "4") "}", 4, "shape"},
    {"{\"a\":" T("F32", "[-1]", "0", "4") "}", 4, "axis 0"},
    {"{\"a\":" T("F32", "[1,1.0]", "0", "4") "}", 4, "axis 1"},
    {"{\"a\":" T("F32", "[\"1\"]", "0", "4") "}", 4, "axis 0"},
    {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "9 axes"},
    {"{\"a\":" T("F32", "[4294967296,4294967296]", "0", "0") "}", 0, "2^63"},
    {"{\"a\":" T("F32", "[4611686018427387904]", "0", "0") "}", 0, "do not make"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, "data_offsets"},
    {"{\"a\":" T("F32", "[1]", "-4", "0") "}", 4, "data_offsets[0]"},
    {"{\"a\":" T("F32", "[1]", "0", "4e0") "}", 4, "data_offsets[1]"},
    {"{\"a\":" T("F32", "[1]", "8", "4") "}", 8, "end before"},
    {"{\"a\":" T("F32", "[1]", "0", "18446744073709551620") "}", 4, "data_offsets[1]"},
    {"{\"a\":" T("F32", "[2]", "0", "8") "}", 4, "ends at byte 8"},
    {"{\"a\":" T("F32", "[2]", "0", "4") "}", 4, "do not make"},
    {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", 12, "overlap"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0", "4") "}", 4, "overlap"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8", "12") "}", 12, "no tensor owns"},
    {"{\"a\":" T("F32", "[1]", "4", "8") "}", 8, "no tensor owns"},
    {"{\"a\":" T("F32", "[1]", "0", "4") "}", 5, "after the last"},
    {"{}", 1, "after the last"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "4", "8") "}", 8, "two members"},
    {"{\"a\\u0000\":" T("F32", "[1]", "0", "4") "}", 4, "NUL"},
    {"{\"__metadata__\":3}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":3}}", 0, "no string"},
};

static void test_bad_files(void) {
  char err[200];
  for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
    size_t size;
    unsigned char *p = image(bad_files[i].header, bad_files[i].data, &size);
    safetensors *f = safetensors_from_memory(p, size, err, sizeof err);
    expect(!f && strstr(err, bad_files[i].why), bad_files[i].header, f ? "was accepted" : err);
    safetensors_close(f);
    free(p);
  }
  static const unsigned char lies[16] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, '{', '}'};
  expect(!safetensors_from_memory(lies, sizeof lies, err, sizeof err) && strstr(err, "claims"), "a header of 2^64",
         err);
  for (size_t n = 0; n < 8; n++) {
    expect(!safetensors_from_memory(lies, n, err, sizeof err), "fewer than 8 bytes", "was accepted");
  }
  expect(!safetensors_open("/nonexistent/file", err, sizeof err) && strstr(err, "/nonexistent/file"), "no file", err);
  expect(!safetensors_open("/", err, sizeof err) && *err, "a folder", err);
}

static void test_good_file(void) {
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"b/y\":" T("F32", "[2,3]", "8", "32") ",\"a\":" T(
          "F64", "[]", "0", "8") ",\"e\":" T("I64", "[0,5]", "8", "8") ",\"z\":" T("BF16", "[1]", "32", "34") "}  ";
  char err[200] = "";
  size_t size;
  unsigned char *p = image(header, 34, &size);
  safetensors *f = safetensors_from_memory(p, size, err, sizeof err);
  expect(f != NULL, "good file", err);
  if (f) {
    const safetensors_tensor *y = safetensors_find(f, "b/y"), *a = safetensors_find(f, "a"),
                             *e = safetensors_find(f, "e");
    expect(safetensors_count(f) == 4 && !safetensors_at(f, 4), "good file", "count");
    expect(y && y->ndim == 2 && y->shape[0] == 2 && y->shape[1] == 3 && y->bytes == 24, "good file", "b/y");
    expect(y && (const unsigned char *)y->data == p + size - 34 + 8 && strcmp(y->dtype, "F32") == 0, "good file",
           "b/y data");
    expect(a && a->ndim == 0 && a->count == 1 && a->bytes == 8, "good file", "a scalar");
    expect(e && e->count == 0 && e->bytes == 0, "good file", "an empty tensor");
    expect(!safetensors_find(f, "b") && !safetensors_find(f, "__metadata__"), "good file", "absent names");
    expect(strcmp(safetensors_metadata(f, "format"), "pt") == 0 && !safetensors_metadata(f, "x"), "good file",
           "metadata");
    safetensors_close(f);
  }
  for (size_t n = 0; n < size; n++) { /* every truncation is refused */
    f = safetensors_from_memory(p, n, err, sizeof err);
    expect(f == NULL, "a truncated file", "was accepted");
    safetensors_close(f);
  }
  free(p);
}

int main(void) {
  test_refused();
  test_limits();
  test_numbers();
  test_strings();
  test_written();
  test_tree();
  test_bad_files();
  test_good_file();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
