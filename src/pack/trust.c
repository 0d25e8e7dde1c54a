/* trust.c -- everything that is checked before a byte of a module is compiled. Each check is reported by name. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../util/files.h"
#include "pack/pack.h"

/* ---- reports ---- */
static void say(const ambi_pack_host *h, const char *check, bool passed, const char *sentence) {
  if (h->o.report) h->o.report(h->o.report_context, check, passed, sentence);
}

ambi_status trust_tell(const ambi_pack_host *h, const char *check, bool passed, const char *sentence) {
  say(h, check, passed, sentence);
  return passed ? AMBI_OK : fail(AMBI_DENIED, "refused by %s: %s", check, sentence);
}

__attribute__((format(printf, 4, 5))) static ambi_status told(const ambi_pack_host *h, const char *check, bool passed,
                                                              const char *format, ...) {
  char sentence[MOST_SENTENCE];
  va_list args;
  va_start(args, format);
  vsnprintf(sentence, sizeof sentence, format, args);
  va_end(args);
  plain_text(sentence); /* it may quote a manifest */
  return trust_tell(h, check, passed, sentence);
}

/* ---- files ---- */
/* A plain file of the pack, whole; NULL: refused. */
static char *take_file(const ambi_pack_host *h, const char *folder, const char *name, size_t most, size_t *bytes) {
  char path[4096], err[300] = "the path is too long";
  char *data = NULL;
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path)
    data = file_read_plain(path, most, bytes, err, sizeof err);
  if (!data) told(h, "files", false, "%s", err);
  return data;
}

/* ---- the signature ---- */
static int signer(const ambi_pack_host *h, const uint8_t (*keys)[32], size_t count, const char *text, size_t bytes,
                  const char *signature) {
  for (size_t i = 0; i < count; i++)
    if (h->sodium.crypto_sign_verify_detached((const unsigned char *)signature, (const unsigned char *)text, bytes,
                                              keys[i]) == 0)
      return (int)i;
  return -1;
}

static void key_text(const uint8_t key[32], char text[65]) {
  for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", key[i]);
}

static ambi_status check_signature(const ambi_pack_host *h, const char *text, size_t bytes, const char *signature,
                                   size_t signature_bytes) {
  char hex[65];
  if (signature_bytes != 64)
    return told(h, "signature", false, "kernels.json.sig has %zu bytes, a signature has 64", signature_bytes);
  int by = signer(h, h->o.revoked, h->o.revoked_count, text, bytes, signature);
  if (by >= 0) {
    key_text(h->o.revoked[by], hex);
    return told(h, "revoked keys", false, "kernels.json is signed by a revoked key, %s", hex);
  }
  by = signer(h, h->o.trusted, h->o.trusted_count, text, bytes, signature);
  if (by < 0)
    return told(h, "signature", false,
                "kernels.json is not signed by any of the %zu trusted keys, or was changed since", h->o.trusted_count);
  key_text(h->o.trusted[by], hex);
  told(h, "signature", true, "kernels.json is signed by the trusted key %s", hex);
  return told(h, "revoked keys", true, "that key is none of the %zu revoked", h->o.revoked_count);
}

/* ---- what was activated, in a file: {"name": "1.2.3"} ---- */
static activated *name_of(const ambi_pack_host *h, const char *name) {
  for (int i = 0; i < h->named; i++)
    if (strcmp(h->names[i].name, name) == 0) return &h->names[i];
  return NULL;
}

/* The newer of what is known and this version; false: there is no room for one more name. */
static bool remember(ambi_pack_host *h, const char *name, pack_version v) {
  activated *a = name_of(h, name);
  if (!a) {
    if (h->named == MOST_NAMES) return false;
    a = &h->names[h->named++];
    snprintf(a->name, sizeof a->name, "%s", name);
    a->version = v;
  }
  if (version_compare(v, a->version) > 0) a->version = v;
  return true;
}

static ambi_status take_names(ambi_pack_host *h, const json_value *root) {
  if (root->type != JSON_OBJECT) return fail(AMBI_DENIED, "%s: expected an object", h->o.state);
  for (const json_value *v = root->child; v; v = v->next) {
    pack_version version;
    const char *text = json_text(v);
    bool good = v->key_length <= MOST_TEXT && strlen(v->key) == v->key_length && is_pack_name(v->key);
    good = good && text && version_parse(text, &version);
    if (!good || !remember(h, v->key, version))
      return fail(AMBI_DENIED, "%s: expected names of packs and their versions", h->o.state);
  }
  return AMBI_OK;
}

/* What other hosts activated meanwhile. A file that is there and cannot be read is no reason to forget what it said. */
static ambi_status refresh_names(ambi_pack_host *h) {
  struct stat st;
  char err[300];
  size_t bytes = 0;
  if (!h->o.state || (stat(h->o.state, &st) != 0 && errno == ENOENT)) return AMBI_OK;
  char *text = file_read_plain(h->o.state, 1 << 20, &bytes, err, sizeof err);
  json_doc *doc = text ? json_parse(text, bytes, err, sizeof err) : NULL;
  ambi_status s = doc ? take_names(h, json_root(doc)) : fail(AMBI_DENIED, "the state of kernel packs: %s", err);
  json_free(doc);
  free(text);
  return s;
}

ambi_status trust_load_names(ambi_pack_host *h) {
  h->names = calloc(MOST_NAMES, sizeof *h->names);
  return h->names ? refresh_names(h) : fail(AMBI_NO_MEMORY, "no memory for a host of kernel packs");
}

static ambi_status save_names(const ambi_pack_host *h) {
  char err[300];
  file_draft f;
  if (!file_begin(&f, h->o.state, err, sizeof err)) return fail(AMBI_DENIED, "the state of kernel packs: %s", err);
  for (int i = 0; i < h->named; i++) {
    const uint32_t *v = h->names[i].version.part;
    fprintf(f.to, "%s\n  \"%s\": \"%u.%u.%u\"", i ? "," : "{", h->names[i].name, v[0], v[1], v[2]);
  }
  fprintf(f.to, "\n}\n");
  if (file_commit(&f, err, sizeof err)) return AMBI_OK;
  file_cancel(&f);
  return fail(AMBI_DENIED, "the state of kernel packs: %s", err);
}

/* Held while the file is read, compared and replaced: of two hosts at once neither forgets what the other did. */
static ambi_status lock_state(const ambi_pack_host *h, int *fd) {
  char path[4096];
  int n = snprintf(path, sizeof path, "%s.lock", h->o.state);
  *fd = n > 0 && (size_t)n < sizeof path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
  int locked = -1;
  while (*fd >= 0 && (locked = flock(*fd, LOCK_EX)) != 0 && errno == EINTR) continue;
  if (locked == 0) return AMBI_OK;
  const char *why = strerror(errno);
  if (*fd >= 0) close(*fd);
  return fail(AMBI_DENIED, "the state of kernel packs: %.200s.lock: %s", h->o.state, why);
}

static ambi_status advance(ambi_pack_host *h, const manifest *m, char why[MOST_SENTENCE]) {
  TRY(refresh_names(h));
  const activated *a = name_of(h, m->name);
  int order = a ? version_compare(m->version, a->version) : 1;
  if (order < 0) {
    snprintf(why, MOST_SENTENCE, "a newer %.150s than %s was activated before", m->name, m->version_text);
    return AMBI_DENIED;
  }
  if (order == 0) return AMBI_OK;
  activated before = a ? *a : (activated){.name = ""};
  if (!remember(h, m->name, m->version)) return fail(AMBI_DENIED, "more than %d names of packs", MOST_NAMES);
  ambi_status s = h->o.state ? save_names(h) : AMBI_OK;
  if (s == AMBI_OK) return s;
  if (before.name[0])
    *name_of(h, m->name) = before;
  else
    h->named--; /* it was the last */
  return s;
}

ambi_status trust_activate(ambi_pack_host *h, const manifest *m, char why[MOST_SENTENCE]) {
  int fd = -1;
  if (h->o.state) TRY(lock_state(h, &fd));
  ambi_status s = advance(h, m, why);
  if (fd >= 0) close(fd);
  return s;
}

/* ---- versions ---- */
static ambi_status check_runtime(const ambi_pack_host *h, const manifest *m) {
  uint32_t v = ambi_version();
  pack_version runtime = {{v / 10000, v / 100 % 100, v % 100}};
  const uint32_t *min = m->min_runtime.part, *max = m->max_runtime.part, *is = runtime.part;
  bool fits = version_compare(runtime, m->min_runtime) >= 0 && version_compare(runtime, m->max_runtime) <= 0;
  return told(h, "runtime version", fits, "the pack is for %u.%u.%u to %u.%u.%u, this is %u.%u.%u", min[0], min[1],
              min[2], max[0], max[1], max[2], is[0], is[1], is[2]);
}

static ambi_status check_downgrade(ambi_pack_host *h, const manifest *m) {
  pthread_mutex_lock(&h->lock);
  ambi_status s = refresh_names(h);
  const activated *known = name_of(h, m->name);
  pack_version newest = known ? known->version : (pack_version){{0}};
  pthread_mutex_unlock(&h->lock);
  if (s != AMBI_OK) {
    char why[MOST_SENTENCE];
    snprintf(why, sizeof why, "%s", ambi_error());
    return told(h, "downgrade", false, "%s", why);
  }
  const uint32_t *n = newest.part;
  if (!known) return told(h, "downgrade", true, "no version of %s was activated before", m->name);
  bool fine = version_compare(m->version, newest) >= 0;
  return told(h, "downgrade", fine, "%s is %s, and %u.%u.%u was activated before", m->name, m->version_text, n[0], n[1],
              n[2]);
}

/* ---- modules ---- */
static ambi_status check_allowed(const ambi_pack_host *h, const manifest_kernel *k) {
  if (h->o.allowed_count == 0) return AMBI_OK;
  for (size_t i = 0; i < h->o.allowed_count; i++)
    if (strcmp(h->o.allowed[i].id, k->id) == 0 && strcmp(h->o.allowed[i].hash, k->hash) == 0)
      return told(h, "allowlist", true, "%s with this hash is allowed", k->id);
  return told(h, "allowlist", false, "%s with hash %s is not allowed", k->id, k->hash);
}

static ambi_status check_module(ambi_pack_host *h, const char *folder, ambi_pack *p, int i) {
  const manifest_kernel *k = &p->m.kernels[i];
  char hash[72];
  p->bytes[i] = take_file(h, folder, k->path, MOST_MODULE, &p->sizes[i]);
  if (!p->bytes[i]) return AMBI_DENIED;
  sodium_hash(&h->sodium, p->bytes[i], p->sizes[i], hash);
  if (strcmp(hash, k->hash) != 0)
    return told(h, "hash", false, "%s: the manifest says %s, %s has %s", k->id, k->hash, k->path, hash);
  told(h, "hash", true, "%s: %s has the hash of the manifest", k->id, k->path);
  return check_allowed(h, k);
}

/* ---- all of it ---- */
static ambi_status check_origin(const ambi_pack_host *h, const char *folder, const char *text, size_t bytes) {
  size_t signature_bytes = 0;
  if (h->o.insecure_accept_unsigned_packs_for_development) {
    say(h, "signature", true, "NOT CHECKED: insecure_accept_unsigned_packs_for_development is set");
    return AMBI_OK;
  }
  char *signature = take_file(h, folder, "kernels.json.sig", 4096, &signature_bytes);
  if (!signature) return AMBI_DENIED;
  ambi_status s = check_signature(h, text, bytes, signature, signature_bytes);
  free(signature);
  return s;
}

static ambi_status check_manifest(const ambi_pack_host *h, const char *text, size_t bytes, manifest *m) {
  if (manifest_read(m, text, bytes) != AMBI_OK) {
    char why[400];
    snprintf(why, sizeof why, "%.390s", ambi_error());
    return told(h, "manifest", false, "%s", why);
  }
  return told(h, "manifest", true, "%s %s, %d kernels", m->name, m->version_text, m->count);
}

ambi_status trust_verify(ambi_pack_host *h, const char *folder, ambi_pack *p) {
  p->text = take_file(h, folder, "kernels.json", MOST_MANIFEST, &p->text_bytes);
  if (!p->text) return AMBI_DENIED;
  TRY(check_origin(h, folder, p->text, p->text_bytes));
  TRY(check_manifest(h, p->text, p->text_bytes, &p->m));
  TRY(check_runtime(h, &p->m));
  TRY(check_downgrade(h, &p->m));
  for (int i = 0; i < p->m.count; i++) TRY(check_module(h, folder, p, i));
  return AMBI_OK;
}
