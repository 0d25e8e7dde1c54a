/* manifest.c -- tables of what each object of kernels.json may hold; docs/kernels.schema.json says the same. */
#include "pack/manifest.h"

#include <stdlib.h>
#include <string.h>

/* ---- versions ---- */
bool version_parse(const char *text, pack_version *v) {
  for (int i = 0; i < 3; i++) {
    uint32_t n = 0;
    int digits = 0;
    for (; *text >= '0' && *text <= '9' && digits < 9; text++, digits++) n = 10 * n + (uint32_t)(*text - '0');
    if (digits == 0 || *text != (i < 2 ? '.' : 0)) return false;
    text++;
    v->part[i] = n;
  }
  return true;
}

int version_compare(pack_version a, pack_version b) {
  for (int i = 0; i < 3; i++)
    if (a.part[i] != b.part[i]) return a.part[i] < b.part[i] ? -1 : 1;
  return 0;
}

/* ---- objects by table ---- */
typedef struct {
  const char *name;
  json_type type;
  bool required;
} field;

/* Every field of the table that is there has its type, and every required one is there. */
static ambi_status check_fields(const json_value *o, const char *where, const field *fields) {
  if (o->type != JSON_OBJECT)
    return fail(AMBI_DENIED, "manifest: %s: expected an object, got %s", where, json_type_name(o->type));
  for (const field *f = fields; f->name; f++) {
    const json_value *v = json_get(o, f->name);
    if (!v && f->required) return fail(AMBI_DENIED, "manifest: %s: %s is missing", where, f->name);
    if (!v) continue;
    if (v->type != f->type)
      return fail(AMBI_DENIED, "manifest: %s: %s: expected %s, got %s", where, f->name, json_type_name(f->type),
                  json_type_name(v->type));
    if (v->type == JSON_STRING && (v->length > MOST_TEXT || !json_text(v)))
      return fail(AMBI_DENIED, "manifest: %s: %s: longer than %d bytes, or with a NUL inside", where, f->name,
                  MOST_TEXT);
  }
  return AMBI_OK;
}

static const char *text_or(const json_value *o, const char *name, const char *absent) {
  const char *text = json_text(json_get(o, name));
  return text ? text : absent;
}

static ambi_status take_version(const json_value *o, const char *name, pack_version *v) {
  const char *text = json_text(json_get(o, name));
  if (text && version_parse(text, v)) return AMBI_OK;
  return fail(AMBI_DENIED, "manifest: %s: expected a version such as 1.2.3, got %.40s", name, text ? text : "nothing");
}

static ambi_status take_integer(const json_value *o, const char *where, const char *name, int64_t low, int64_t high,
                                uint32_t *out) {
  const json_value *v = json_get(o, name);
  if (!v) return AMBI_OK;
  if (v->type != JSON_NUMBER || !v->is_int || v->integer < low || v->integer > high)
    return fail(AMBI_DENIED, "manifest: %s: %s: expected an integer from %lld to %lld", where, name, (long long)low,
                (long long)high);
  *out = (uint32_t)v->integer;
  return AMBI_OK;
}

/* ---- names ---- */
static bool is_word(const char *s, const char *more) {
  for (const char *c = s; *c; c++) {
    bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_';
    if (!plain && !strchr(more, *c)) return false;
  }
  return *s != 0;
}

bool is_pack_name(const char *text) { return is_word(text, "-."); }

/* A file in the pack's own folder or below: plain words between slashes, none of which begins with a dot. */
static bool is_path(const char *s) {
  if (!is_word(s, "-./") || *s == '/' || *s == '.') return false;
  for (const char *c = s; (c = strchr(c, '/')); c++)
    if (c[1] == '.' || c[1] == '/' || c[1] == 0) return false;
  return true;
}

static bool is_hash(const char *s) {
  return strncmp(s, "sha256:", 7) == 0 && strlen(s) == 71 && strspn(s + 7, "0123456789abcdef") == 64;
}

static bool is_category(const char *s) {
  static const char *const names[] = {"positional_encoding", "normalization", "activation", "kv_cache", "adapter",
                                      "attention",           "custom"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], s) == 0) return true;
  return false;
}

/* ---- kernels ---- */
/* inputs or outputs: what each tensor is called, stored as and shaped like */
static ambi_status check_tensors(const json_value *list, const char *where) {
  static const field fields[] = {
      {"name", JSON_STRING, true}, {"dtype", JSON_STRING, true}, {"shape", JSON_ARRAY, true}, {0}};
  if (!list) return AMBI_OK;
  for (const json_value *t = list->child; t; t = t->next) {
    TRY(check_fields(t, where, fields));
    for (const json_value *n = json_get(t, "shape")->child; n; n = n->next)
      if (n->type != JSON_STRING && !(n->type == JSON_NUMBER && n->is_int && n->integer >= 0))
        return fail(AMBI_DENIED, "manifest: %s: shape: expected symbols and sizes", where);
  }
  return AMBI_OK;
}

/* Each is a word of 32 bits. */
static ambi_status check_params(const json_value *params, const char *where) {
  static const field fields[] = {{"type", JSON_STRING, true},
                                 {"default", JSON_NUMBER, false},
                                 {"min", JSON_NUMBER, false},
                                 {"max", JSON_NUMBER, false},
                                 {0}};
  for (const json_value *p = params ? params->child : NULL; p; p = p->next) {
    TRY(check_fields(p, where, fields));
    const char *type = json_text(json_get(p, "type"));
    if (strcmp(type, "u32") != 0 && strcmp(type, "f32") != 0)
      return fail(AMBI_DENIED, "manifest: %s: params: expected types u32 and f32", where);
  }
  return AMBI_OK;
}

static ambi_status check_texts(const json_value *list, const char *where, const char *what) {
  for (const json_value *v = list ? list->child : NULL; v; v = v->next)
    if (v->type != JSON_STRING) return fail(AMBI_DENIED, "manifest: %s: %s: expected strings", where, what);
  return AMBI_OK;
}

static ambi_status take_limits(const json_value *o, manifest_kernel *k) {
  const json_value *limits = json_get(o, "resource_limits");
  k->pages = 256, k->ticks = 1000, k->table = 1024;
  TRY(take_integer(limits, k->id, "max_memory_pages", 1, 65536, &k->pages));
  TRY(take_integer(limits, k->id, "max_epoch_ticks", 1, 3600000, &k->ticks));
  return take_integer(limits, k->id, "max_table_elements", 0, 1 << 20, &k->table);
}

static ambi_status check_words(const manifest *m, const manifest_kernel *k) {
  if (!is_word(k->id, "-.")) return fail(AMBI_DENIED, "manifest: a kernel's id is not a plain word");
  for (int i = 0; i < m->count; i++)
    if (strcmp(m->kernels[i].id, k->id) == 0) return fail(AMBI_DENIED, "manifest: two kernels are called %s", k->id);
  if (!is_path(k->path)) return fail(AMBI_DENIED, "manifest: %s: path: not a plain path inside the pack", k->id);
  if (!is_hash(k->hash)) return fail(AMBI_DENIED, "manifest: %s: hash: expected sha256:<64 hex digits>", k->id);
  if (!is_category(k->category)) return fail(AMBI_DENIED, "manifest: %s: category: unknown", k->id);
  if (!is_word(k->entry, "")) return fail(AMBI_DENIED, "manifest: %s: entry_point: not a plain word", k->id);
  return AMBI_OK;
}

static ambi_status take_kernel(manifest *m, const json_value *o) {
  static const field fields[] = {{"id", JSON_STRING, true},        {"name", JSON_STRING, false},
                                 {"category", JSON_STRING, true},  {"path", JSON_STRING, true},
                                 {"hash", JSON_STRING, true},      {"entry_point", JSON_STRING, false},
                                 {"inputs", JSON_ARRAY, false},    {"outputs", JSON_ARRAY, false},
                                 {"params", JSON_OBJECT, false},   {"resource_limits", JSON_OBJECT, false},
                                 {"platforms", JSON_ARRAY, false}, {"benchmarks", JSON_OBJECT, false},
                                 {"self_test", JSON_ARRAY, false}, {0}};
  if (m->count == MOST_KERNELS) return fail(AMBI_DENIED, "manifest: more than %d kernels", MOST_KERNELS);
  TRY(check_fields(o, "a kernel", fields));
  manifest_kernel k = {.id = json_text(json_get(o, "id")),
                       .category = json_text(json_get(o, "category")),
                       .path = json_text(json_get(o, "path")),
                       .hash = json_text(json_get(o, "hash")),
                       .entry = text_or(o, "entry_point", "kernel_forward"),
                       .self_test = json_get(o, "self_test")};
  k.name = text_or(o, "name", k.id);
  TRY(check_words(m, &k));
  TRY(check_tensors(json_get(o, "inputs"), k.id));
  TRY(check_tensors(json_get(o, "outputs"), k.id));
  TRY(check_params(json_get(o, "params"), k.id));
  TRY(check_texts(json_get(o, "platforms"), k.id, "platforms"));
  TRY(take_limits(o, &k));
  m->kernels[m->count++] = k;
  return AMBI_OK;
}

/* ---- the pack ---- */
static ambi_status check_fallbacks(const manifest *m) {
  for (const json_value *f = m->fallbacks ? m->fallbacks->child : NULL; f; f = f->next) {
    const char *to = json_text(f);
    if (!to || !manifest_find(m, to)) return fail(AMBI_DENIED, "manifest: fallbacks: expected ids of kernels");
  }
  return AMBI_OK;
}

static ambi_status take_pack(manifest *m, const json_value *o) {
  static const field fields[] = {{"version", JSON_STRING, true},
                                 {"name", JSON_STRING, true},
                                 {"description", JSON_STRING, false},
                                 {"min_runtime_version", JSON_STRING, true},
                                 {"max_runtime_version", JSON_STRING, true},
                                 {"created_at", JSON_STRING, false},
                                 {"author", JSON_OBJECT, false},
                                 {"kernels", JSON_ARRAY, true},
                                 {"fallbacks", JSON_OBJECT, false},
                                 {0}};
  static const field author[] = {
      {"name", JSON_STRING, false}, {"email", JSON_STRING, false}, {"signing_key", JSON_STRING, false}, {0}};
  TRY(check_fields(o, "the pack", fields));
  if (json_get(o, "author")) TRY(check_fields(json_get(o, "author"), "author", author));
  m->name = json_text(json_get(o, "name"));
  m->version_text = json_text(json_get(o, "version"));
  m->description = text_or(o, "description", "");
  m->fallbacks = json_get(o, "fallbacks");
  if (!is_pack_name(m->name)) return fail(AMBI_DENIED, "manifest: name: not a plain word");
  TRY(take_version(o, "version", &m->version));
  TRY(take_version(o, "min_runtime_version", &m->min_runtime));
  TRY(take_version(o, "max_runtime_version", &m->max_runtime));
  for (const json_value *k = json_get(o, "kernels")->child; k; k = k->next) TRY(take_kernel(m, k));
  return check_fallbacks(m);
}

ambi_status manifest_read(manifest *m, const char *text, size_t bytes) {
  char err[200];
  memset(m, 0, sizeof *m);
  if (bytes > MOST_MANIFEST) return fail(AMBI_DENIED, "manifest: larger than %d bytes", MOST_MANIFEST);
  m->doc = json_parse(text, bytes, err, sizeof err);
  if (!m->doc) return fail(AMBI_DENIED, "manifest: %s", err);
  ambi_status s = take_pack(m, json_root(m->doc));
  if (s != AMBI_OK) manifest_free(m);
  return s;
}

void manifest_free(manifest *m) {
  json_free(m->doc);
  memset(m, 0, sizeof *m);
}

const manifest_kernel *manifest_find(const manifest *m, const char *id) {
  for (int i = 0; i < m->count; i++)
    if (strcmp(m->kernels[i].id, id) == 0) return &m->kernels[i];
  return NULL;
}
