/* pack_keys.c -- keys, signatures, and the checks of a pack: keygen, sign, verify, info. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../util/files.h"
#include "pack.h"
#include "print.h"

void put_plain(FILE *to, const char *text) {
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    int c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0; /* U+009B does what ESC [ does */
    c += c1;
    putc(c1 || *c < 0x20 || *c == 0x7f ? ' ' : *c, to);
  }
}

int trouble(const char *what) {
  fprintf(stderr, "ambi pack: %s: ", what);
  put_plain(stderr, ambi_error());
  fprintf(stderr, "\n");
  return 1;
}

/* ---- keys ---- */
static int from_hex(const char *text, uint8_t key[32]) {
  if (strspn(text, "0123456789abcdefABCDEF") < 64) return 0;
  for (int i = 0; i < 32; i++) {
    unsigned byte;
    if (sscanf(text + (ptrdiff_t)2 * i, "%2x", &byte) != 1) return 0;
    key[i] = (uint8_t)byte;
  }
  return text[64] == 0 || strspn(text + 64, " \r\n") == strlen(text + 64);
}

void key_text(const uint8_t key[32], char hex[65]) {
  for (int i = 0; i < 32; i++) snprintf(hex + (ptrdiff_t)2 * i, 3, "%02x", key[i]);
}

int key_read(const char *file_or_hex, uint8_t key[32]) {
  char err[300];
  size_t n;
  if (from_hex(file_or_hex, key)) return 1;
  char *text = file_read(file_or_hex, 4096, &n, err, sizeof err);
  int good = text && from_hex(text, key);
  if (!good && text) snprintf(err, sizeof err, "%.200s: a key is 64 hex digits", file_or_hex);
  if (!good) fprintf(stderr, "ambi pack: %s\n", err);
  if (text) memset(text, 0, n);
  free(text);
  return good;
}

static int is_public(const char *file) {
  const size_t n = strlen(file);
  return n >= 4 && strcmp(file + n - 4, ".pub") == 0;
}

/* Both kinds look alike, so one who signs with the public key by mistake would sign with a secret that all know. */
int secret_read(const char *file, uint8_t secret[32]) {
  if (!is_public(file)) return key_read(file, secret);
  fprintf(stderr, "ambi pack: %s: a public key; the secret one signs\n", file);
  return 0;
}

/* A secret is for its owner's eyes, and never written over another. */
static int write_secret(const char *path, const char *hex) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return fprintf(stderr, "ambi pack: %s: %s\n", path, strerror(errno)), 0;
  int good = write(fd, hex, 64) == 64 && write(fd, "\n", 1) == 1;
  if (close(fd) != 0) good = 0;
  if (good) return 1;
  unlink(path);
  fprintf(stderr, "ambi pack: %s: it could not be written whole; is the disk full?\n", path);
  return 0;
}

/* Not even a public key alone, which others may trust, is written over. */
static int is_free(const char *path) {
  if (access(path, F_OK) != 0) return 1;
  return fprintf(stderr, "ambi pack: %s is there already, and is not written over: give another name\n", path), 0;
}

int pack_keygen(int argc, char **argv) {
  const option none[] = {{0}};
  const command_line spec = {"ambi pack keygen",
                             "FILE",
                             "Writes a new secret key into FILE, readable by its owner alone, and the public one into "
                             "FILE.pub, for those who shall trust it.",
                             none,
                             NULL,
                             1};
  const char *file = NULL;
  int rc = options_parse(&spec, argc, argv, &file);
  if (rc >= 0) return rc;
  if (!file) return options_usage(&spec);
  if (is_public(file)) return options_wrong(&spec, "%s: a name that ends in .pub is for the public key", file);
  uint8_t secret[32], key[32];
  char hex[66], path[4096], err[300];
  if ((size_t)snprintf(path, sizeof path, "%s.pub", file) >= sizeof path)
    return fprintf(stderr, "ambi pack: the path is too long\n"), 1;
  if (!is_free(file) || !is_free(path)) return 1;
  if (ambi_pack_make_key(secret) != AMBI_OK || ambi_pack_public_key(secret, key) != AMBI_OK) return trouble("keygen");
  key_text(secret, hex);
  int good = write_secret(file, hex);
  memset(secret, 0, sizeof secret);
  if (!good) return 1;
  key_text(key, hex);
  printf("%s\n", hex);
  memcpy(hex + 64, "\n", 2);
  if (file_write(path, hex, 65, err, sizeof err)) return 0;
  fprintf(stderr, "ambi pack: %s\n", err);
  return 1;
}

int sign_folder(const char *folder, const uint8_t secret[32], char hex[65]) {
  char path[4096], err[300];
  uint8_t signature[64], key[32];
  size_t bytes;
  snprintf(path, sizeof path, "%s/kernels.json", folder);
  char *text = file_read(path, (size_t)4 << 20, &bytes, err, sizeof err);
  if (!text) return fprintf(stderr, "ambi pack: %s\n", err), 0;
  int good = ambi_pack_sign(secret, text, bytes, signature) == AMBI_OK && ambi_pack_public_key(secret, key) == AMBI_OK;
  free(text);
  if (!good) return trouble("sign"), 0;
  key_text(key, hex);
  snprintf(path, sizeof path, "%s/kernels.json.sig", folder);
  good = file_write(path, signature, sizeof signature, err, sizeof err);
  if (!good) fprintf(stderr, "ambi pack: %s\n", err);
  return good;
}

int pack_sign(int argc, char **argv) {
  const char *key = NULL, *folder = NULL;
  const option opts[] = {{"key", OPT_STRING, &key, "FILE", "the secret key"}, {0}};
  const command_line spec = {"ambi pack sign",
                             "FOLDER --key FILE",
                             "Writes kernels.json.sig: the Ed25519 signature of the bytes of kernels.json.",
                             opts,
                             NULL,
                             1};
  uint8_t secret[32];
  char hex[65];
  int rc = options_parse(&spec, argc, argv, &folder);
  if (rc >= 0) return rc;
  if (!folder || !key) return options_usage(&spec);
  int good = secret_read(key, secret) && sign_folder(folder, secret, hex);
  memset(secret, 0, sizeof secret);
  if (good) printf("%s: signed by %s\n", folder, hex);
  return !good;
}

/* ---- trust ---- */
/* A secret key among those to trust would read as a pack that was tampered with, and among those revoked revoke nobody:
 * it is known by its public key, in the file beside it. */
static int is_secret(const char *file, const uint8_t key[32]) {
  char path[4200];
  uint8_t of_it[32], beside[32];
  snprintf(path, sizeof path, "%s.pub", file);
  return access(path, R_OK) == 0 && key_read(path, beside) && ambi_pack_public_key(key, of_it) == AMBI_OK &&
         memcmp(of_it, beside, sizeof beside) == 0;
}

/* Keys between commas, to trust or to revoke; how many, or -1 */
static int read_keys(const char *list, const char *to, uint8_t keys[MOST_KEYS][32]) {
  char one[4096];
  int n = 0;
  for (const char *from = list; from && *from; n++) {
    size_t length = strcspn(from, ",");
    if (n == MOST_KEYS || length >= sizeof one) return fprintf(stderr, "ambi pack: too many keys\n"), -1;
    memcpy(one, from, length);
    one[length] = 0;
    if (!key_read(one, keys[n])) return -1;
    if (is_secret(one, keys[n])) {
      fprintf(stderr, "ambi pack: %s is a secret key; %s.pub is the one to %s\n", one, one, to);
      return -1;
    }
    from += length + (from[length] == ',');
  }
  return n;
}

static void report(void *context, const char *check, int passed, const char *sentence) {
  trust_options *t = context;
  t->refused += !passed;
  if (t->verbose || strcmp(check, "kernel") == 0) {
    FILE *to = t->verbose ? stdout : stderr;
    t->verbose ? fprintf(to, "%-4s  %-15s ", passed ? "ok" : "FAIL", check) : fprintf(to, "ambi pack: ");
    put_plain(to, sentence);
    fprintf(to, "\n");
  }
  if (t->insecure && strcmp(check, "signature") == 0)
    fprintf(stderr, "WARNING: --insecure-accept-unsigned-packs-for-development: the signature is not checked\n");
}

/* Where an engine is wanted and there is none, a host that verifies only. */
static ambi_pack_host *create_host(ambi_pack_options *o, trust_options *t) {
  ambi_pack_host *host = NULL;
  o->verify_only = t->engine == ENGINE_UNUSED;
  ambi_status s = ambi_pack_host_create(o, &host);
  if (s == AMBI_UNSUPPORTED && t->engine == ENGINE_WANTED) {
    snprintf(t->lacks, sizeof t->lacks, "%s", ambi_error());
    o->verify_only = 1;
    s = ambi_pack_host_create(o, &host);
  }
  if (s != AMBI_OK) trouble("no host");
  return host;
}

int trust_parse(const command_line *c, int argc, char **argv, const char **operand, const trust_options *t) {
  char err[200];
  int rc = options_parse(c, argc, argv, operand);
  if (rc >= 0) return rc;
  if (!operand[c->max_operands - 1]) return options_usage(c);
  if (!t->insecure && !(t->trust && *t->trust))
    return options_wrong(c, "whom to trust? --trust KEY names the signer's public key");
  const option_range rows[] = {{"most-ticks", (double)t->most_ticks, 0, UINT32_MAX},
                               {"most-pages", (double)t->most_pages, 0, UINT32_MAX}};
  return options_in_range(rows, 2, err, sizeof err) ? -1 : options_wrong(c, "%s", err);
}

ambi_pack_host *trust_host(trust_options *t) {
  int trusted = read_keys(t->trust, "trust", t->keys), revoked = read_keys(t->revoked, "revoke", t->bad);
  if (trusted < 0 || revoked < 0) return NULL;
  ambi_pack_options o = {.trusted = (const uint8_t(*)[32])t->keys,
                         .trusted_count = (size_t)trusted,
                         .revoked = (const uint8_t(*)[32])t->bad,
                         .revoked_count = (size_t)revoked,
                         .state = t->state,
                         .report = report,
                         .report_context = t,
                         .insecure_accept_unsigned_packs_for_development = t->insecure,
                         .most_ticks = (uint32_t)t->most_ticks,
                         .most_pages = (uint32_t)t->most_pages};
  return create_host(&o, t);
}

enum { VERIFIED, REFUSED, NOT_TESTED = 3 }; /* statuses of verify; 2 is a wrong command line */
static const char *const verdicts[] = {
    [VERIFIED] = "verified", [REFUSED] = "REFUSED", [NOT_TESTED] = "NOT TESTED: what needs no Wasmtime passed"};

static int test_kernels(ambi_pack *pack, const trust_options *t) {
  ambi_pack_kernel_info k;
  int rc = VERIFIED;
  if (*t->lacks) return printf("SKIP  self-test       %s\n", t->lacks), NOT_TESTED;
  for (int32_t i = 0; ambi_pack_get_kernel_info(pack, i, &k) == AMBI_OK; i++) {
    ambi_pack_kernel *kernel = NULL;
    int before = t->refused; /* that its fallback can be used makes a kernel no better */
    int good = ambi_pack_kernel_open(pack, k.id, &kernel) == AMBI_OK && t->refused == before;
    if (good)
      printf("ok    self-test       %s: no imports, and what the manifest says in %d test%s\n", k.id, k.self_tests,
             plural(k.self_tests));
    else
      rc = REFUSED;
    ambi_pack_kernel_close(kernel);
  }
  return rc;
}

int pack_verify(int argc, char **argv) {
  trust_options t = {.verbose = 1, .engine = ENGINE_WANTED};
  const char *folder = NULL;
  const option opts[] = {TRUST_OPTIONS(t), {0}};
  const command_line spec = {"ambi pack verify",
                             "FOLDER --trust KEY",
                             "Checks a pack in the order a host does, then compiles its kernels and runs their "
                             "self-tests. Status 0: everything passed; 1: refused; 3: passed, but for the "
                             "self-tests, which need Wasmtime.",
                             opts,
                             NULL,
                             1};
  int rc = trust_parse(&spec, argc, argv, &folder, &t);
  if (rc >= 0) return rc;
  ambi_pack_host *host = trust_host(&t);
  ambi_pack *pack = NULL;
  if (!host) return 1;
  rc = ambi_pack_open(host, folder, &pack) == AMBI_OK ? test_kernels(pack, &t) : REFUSED;
  printf("%s\n", verdicts[rc]);
  ambi_pack_close(pack);
  ambi_pack_host_destroy(host);
  return rc;
}

int pack_info(int argc, char **argv) {
  trust_options t = {.engine = ENGINE_UNUSED};
  const char *folder = NULL;
  const option opts[] = {TRUST_OPTIONS(t), {0}};
  const command_line spec = {
      "ambi pack info", "FOLDER --trust KEY", "Lists the kernels of a verified pack.", opts, NULL, 1};
  int rc = trust_parse(&spec, argc, argv, &folder, &t);
  if (rc >= 0) return rc;
  ambi_pack_host *host = trust_host(&t);
  ambi_pack *pack = NULL;
  ambi_pack_info p;
  ambi_pack_kernel_info k;
  if (!host) return 1;
  rc = ambi_pack_open(host, folder, &pack) == AMBI_OK ? 0 : trouble(folder);
  if (!rc && ambi_pack_get_info(pack, &p) == AMBI_OK) {
    printf("%s %s: ", p.name, p.version);
    put_plain(stdout, p.description);
    printf("\n");
  }
  for (int32_t i = 0; !rc && ambi_pack_get_kernel_info(pack, i, &k) == AMBI_OK; i++) {
    printf("  %-15s %6llu bytes  %5u pages  %6u ms  %d test%s  ", k.id, (unsigned long long)k.bytes, k.max_memory_pages,
           k.max_epoch_ticks, k.self_tests, plural(k.self_tests));
    put_plain(stdout, k.name);
    printf("\n");
  }
  ambi_pack_close(pack);
  ambi_pack_host_destroy(host);
  return rc;
}
