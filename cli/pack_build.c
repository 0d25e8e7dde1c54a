/* pack_build.c -- `ambi pack build`: modules become a pack: copied, described, tested by the reference, hashed, signed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../util/files.h"
#include "../util/json.h"
#include "pack.h"
#include "pack_kernels.h"
#include "print.h"

typedef struct {
  const char *modules, *out, *name, *version, *description, *author, *email, *key, *only;
  int64_t pages, ticks;
  ambi_device *ref;
  FILE *to;
  int kernels;
} builder;

/* ---- pieces of JSON ---- */
static void put_member(FILE *to, const char *indent, const char *name, const char *text) {
  fprintf(to, "%s\"%s\": ", indent, name);
  json_write_text(to, text);
  fprintf(to, ",\n");
}

static void put_floats(FILE *to, const char *name, const float *v, size_t bytes) {
  if (bytes == 0) return;
  fprintf(to, ", \"%s\": [", name);
  for (size_t i = 0; i < bytes / sizeof *v; i++) fprintf(to, "%s%.9g", i ? ", " : "", (double)v[i]);
  fprintf(to, "]");
}

static void put_tensors(FILE *to, const char *name, const pack_tensor *t) {
  fprintf(to, "      \"%s\": [", name);
  for (int i = 0; t[i].name; i++)
    fprintf(to, "%s{\"name\": \"%s\", \"dtype\": \"f32\", \"shape\": [%s]}", i ? ", " : "", t[i].name, t[i].shape);
  fprintf(to, "],\n");
}

static void put_params(FILE *to, const pack_param *p) {
  fprintf(to, "      \"params\": {");
  for (int i = 0; p[i].name; i++)
    fprintf(to, "%s\"%s\": {\"type\": \"%s\", %s}", i ? ", " : "", p[i].name, p[i].type, p[i].more);
  fprintf(to, "},\n");
}

/* ---- self-tests ---- */
static int put_test(builder *b, const pack_def *d, ambi_pass pass) {
  static const struct {
    const char *name;
    int region;
  } inputs[] = {{"a", AMBI_PACK_A}, {"b", AMBI_PACK_B}, {"weight", AMBI_PACK_WEIGHT}};
  pack_case c;
  int good = pack_case_make(&c, d, pass, d->test, b->ref);
  if (good) {
    double tolerance = pack_case_tolerance(&c, AMBI_PACK_OUT), other = pack_case_tolerance(&c, AMBI_PACK_SCRATCH);
    fprintf(b->to, "        {\"pass\": \"%s\", \"params\": \"", pass == AMBI_BACKWARD ? "backward" : "forward");
    for (size_t i = 0; i < c.call.bytes[AMBI_PACK_PARAMS]; i++)
      fprintf(b->to, "%02x", ((unsigned char *)c.call.at[AMBI_PACK_PARAMS])[i]);
    fprintf(b->to, "\", \"tolerance\": %.3g", tolerance > other ? tolerance : other);
    for (int i = 0; i < 3; i++)
      put_floats(b->to, inputs[i].name, c.call.at[inputs[i].region], c.call.bytes[inputs[i].region]);
    put_floats(b->to, "out", c.want[AMBI_PACK_OUT], c.call.bytes[AMBI_PACK_OUT]);
    put_floats(b->to, "scratch", c.want[AMBI_PACK_SCRATCH], c.call.bytes[AMBI_PACK_SCRATCH]);
    fprintf(b->to, "}%s\n", pass == AMBI_BACKWARD ? "" : ",");
  }
  pack_case_free(&c);
  return good;
}

/* ---- kernels ---- */
/* The module, copied; 1, or 0 after printing why not. */
static int copy_module(const builder *b, const char *id, char hash[72]) {
  char path[4096], err[300];
  size_t bytes;
  snprintf(path, sizeof path, "%s/%s.wasm", b->modules, id);
  char *data = file_read(path, (size_t)16 << 20, &bytes, err, sizeof err);
  if (!data) return fprintf(stderr, "ambi pack: %s\n", err), 0;
  snprintf(path, sizeof path, "%s/%s.wasm", b->out, id);
  int good = file_write(path, data, bytes, err, sizeof err);
  if (!good) fprintf(stderr, "ambi pack: %s\n", err);
  if (good && ambi_pack_hash(data, bytes, hash) != AMBI_OK) good = !trouble(id);
  free(data);
  return good;
}

static int put_kernel(builder *b, const pack_def *d) {
  char hash[72], path[128];
  if (!copy_module(b, d->id, hash)) return 0;
  snprintf(path, sizeof path, "%s.wasm", d->id);
  fprintf(b->to, "%s    {\n", b->kernels++ ? ",\n" : "");
  put_member(b->to, "      ", "id", d->id);
  put_member(b->to, "      ", "name", d->name);
  put_member(b->to, "      ", "category", d->category);
  put_member(b->to, "      ", "path", path);
  put_member(b->to, "      ", "hash", hash);
  put_member(b->to, "      ", "entry_point", "kernel_forward");
  put_tensors(b->to, "inputs", d->inputs);
  put_tensors(b->to, "outputs", d->outputs);
  put_params(b->to, d->params);
  fprintf(b->to,
          "      \"resource_limits\": {\"max_memory_pages\": %lld, \"max_epoch_ticks\": %lld, \"max_table_elements\": "
          "1024},\n      \"platforms\": [\"wasm32-simd128\"],\n      \"self_test\": [\n",
          (long long)b->pages, (long long)b->ticks);
  int good = put_test(b, d, AMBI_FORWARD) && put_test(b, d, AMBI_BACKWARD);
  fprintf(b->to, "      ]\n    }");
  return good;
}

/* ---- the pack ---- */
/* Now, or the time that builds which must be the same again are given. */
static void put_time(FILE *to) {
  const char *fixed = getenv("SOURCE_DATE_EPOCH");
  time_t now = fixed ? (time_t)strtoll(fixed, NULL, 10) : time(NULL);
  struct tm utc;
  char text[40];
  gmtime_r(&now, &utc);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  put_member(to, "  ", "created_at", text);
}

static void put_author(const builder *b, const uint8_t *key) {
  char hex[65];
  fprintf(b->to, "  \"author\": {\"name\": ");
  json_write_text(b->to, b->author);
  fprintf(b->to, ", \"email\": ");
  json_write_text(b->to, b->email);
  if (key) key_text(key, hex), fprintf(b->to, ", \"signing_key\": \"ed25519:%s\"", hex);
  fprintf(b->to, "},\n");
}

/* Whether an id is in a list with commas; no list: all are */
static int chosen(const char *list, const char *id) {
  size_t n = strlen(id);
  if (!list) return 1;
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, id, n) == 0 && (at[n] == 0 || at[n] == ',')) return 1;
  return 0;
}

static int put_pack(builder *b, const uint8_t *key) {
  uint32_t v = ambi_version();
  char range[40];
  fprintf(b->to, "{\n");
  put_member(b->to, "  ", "version", b->version);
  put_member(b->to, "  ", "name", b->name);
  put_member(b->to, "  ", "description", b->description);
  snprintf(range, sizeof range, "%u.%u.0", v / 10000, v / 100 % 100);
  put_member(b->to, "  ", "min_runtime_version", range);
  snprintf(range, sizeof range, "%u.999.999", v / 10000);
  put_member(b->to, "  ", "max_runtime_version", range);
  put_time(b->to);
  put_author(b, key);
  fprintf(b->to, "  \"fallbacks\": {},\n  \"kernels\": [\n");
  int good = 1;
  for (int i = 0; i < pack_def_count && good; i++)
    good = !chosen(b->only, pack_defs[i].id) || put_kernel(b, &pack_defs[i]);
  fprintf(b->to, "\n  ]\n}\n");
  return good;
}

static int build(builder *b, const uint8_t *secret, char hex[65]) {
  char path[4096], err[300];
  uint8_t key[32];
  file_draft f;
  if (secret && ambi_pack_public_key(secret, key) != AMBI_OK) return trouble("key");
  snprintf(path, sizeof path, "%s/kernels.json", b->out);
  if (!folder_make(b->out, err, sizeof err) || !file_begin(&f, path, err, sizeof err))
    return fprintf(stderr, "ambi pack: %s\n", err), 1;
  b->to = f.to;
  if (!put_pack(b, secret ? key : NULL)) return file_cancel(&f), 1;
  if (!file_commit(&f, err, sizeof err)) return fprintf(stderr, "ambi pack: %s\n", err), 1;
  snprintf(path, sizeof path, "%s/kernels.json.sig", b->out);
  remove(path); /* whatever was signed, it was not this */
  return secret ? !sign_folder(b->out, secret, hex) : 0;
}

/* ---- options that would make a pack no host takes ---- */
static int is_version(const char *text) {
  for (int i = 0; i < 3; i++) {
    size_t digits = strspn(text, "0123456789");
    if (digits < 1 || digits > 9 || text[digits] != (i < 2 ? '.' : 0)) return 0;
    text += digits + 1;
  }
  return 1;
}

static int is_word(const char *text) {
  return *text && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == strlen(text);
}

/* Every id of a list is a kernel's; 0 after saying which is not. */
static int all_known(const command_line *spec, const char *list) {
  char id[64];
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at, ","), at);
    if (!pack_def_named(id)) return options_wrong(spec, "--kernels: there is no kernel '%s'", id), 0;
  }
  return 1;
}

static int check_options(const command_line *spec, const builder *b) {
  const char *const texts[] = {b->name, b->description, b->author, b->email};
  for (int i = 0; i < 4; i++)
    if (strlen(texts[i]) > 256) return options_wrong(spec, "a text of more than 256 bytes: '%.40s..'", texts[i]);
  if (!is_version(b->version))
    return options_wrong(spec, "--version: expected one such as 1.2.3, got '%s'", b->version);
  if (!is_word(b->name)) return options_wrong(spec, "--name: letters, digits, '_', '-' and '.', got '%s'", b->name);
  char err[200];
  const option_range rows[] = {{"pages", (double)b->pages, 1, 65536}, {"ticks", (double)b->ticks, 1, 3600000}};
  if (!options_in_range(rows, 2, err, sizeof err)) return options_wrong(spec, "%s", err);
  return all_known(spec, b->only) ? 0 : 2;
}

int pack_build(int argc, char **argv) {
  builder b = {.name = "ambi-kernels", .version = "1.0.0", .description = "Kernels of ambi", .author = "", .email = ""};
  b.pages = 16384, b.ticks = 10000;
  const option opts[] = {{"key", OPT_STRING, &b.key, "FILE", "the secret key to sign with; none: not signed"},
                         {"kernels", OPT_STRING, &b.only, "ID[,ID]", "only these; none given: all"},
                         {"name", OPT_STRING, &b.name, "NAME", "of the pack; ambi-kernels"},
                         {"version", OPT_STRING, &b.version, "X.Y.Z", "of the pack; 1.0.0"},
                         {"description", OPT_STRING, &b.description, "TEXT", "of the pack"},
                         {"author", OPT_STRING, &b.author, "NAME", "who made it"},
                         {"email", OPT_STRING, &b.email, "ADDRESS", "where to reach them"},
                         {"pages", OPT_INT, &b.pages, "N", "most memory of a kernel, in pages of 64 KiB; 16384"},
                         {"ticks", OPT_INT, &b.ticks, "N", "longest call, in milliseconds; 10000"},
                         {0}};
  const command_line spec = {
      "ambi pack build",
      "MODULES OUT",
      "Makes the pack OUT of the folder MODULES (ID.wasm each, as `tools/modules` compiles them): "
      "kernels.json with hashes, limits and self-tests by the reference, and its signature.",
      opts,
      NULL,
      2};
  const char *operands[2] = {NULL, NULL};
  uint8_t secret[32];
  char hex[65] = "nobody";
  int rc = options_parse(&spec, argc, argv, operands);
  if (rc >= 0) return rc;
  if (!operands[1]) return options_usage(&spec);
  if ((rc = check_options(&spec, &b))) return rc;
  b.modules = operands[0], b.out = operands[1];
  if (b.key && !secret_read(b.key, secret)) return 1;
  if (ambi_device_open("ref", NULL, &b.ref) != AMBI_OK) return trouble("ref");
  rc = build(&b, b.key ? secret : NULL, hex);
  memset(secret, 0, sizeof secret);
  ambi_device_close(b.ref);
  if (!rc)
    printf("%s %s: %d kernel%s in %s, signed by %s\n", b.name, b.version, b.kernels, plural(b.kernels), b.out, hex);
  return rc;
}
