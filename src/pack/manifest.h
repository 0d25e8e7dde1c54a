/* manifest.h -- kernels.json, read and checked. Unknown fields are kept, wrong types are refused. */
#ifndef AMBI_PACK_MANIFEST_H
#define AMBI_PACK_MANIFEST_H
#include "../util/json.h"
#include "core/core.h"

enum { MOST_MANIFEST = 4 << 20, MOST_MODULE = 16 << 20, MOST_KERNELS = 256, MOST_TEXT = 256 };

typedef struct {
  uint32_t part[3];
} pack_version;

typedef struct {
  const char *id, *name, *category, *path, *entry, *hash; /* never NULL */
  uint32_t pages, ticks, table;                           /* resource_limits */
  const json_value *self_test;                            /* array, or NULL */
} manifest_kernel;

typedef struct {
  json_doc *doc;
  const char *name, *version_text, *description;
  pack_version version, min_runtime, max_runtime;
  const json_value *fallbacks; /* object, or NULL */
  manifest_kernel kernels[MOST_KERNELS];
  int count;
} manifest;

/* On failure nothing is left to free. */
ambi_status manifest_read(manifest *m, const char *text, size_t bytes);
void manifest_free(manifest *m);
const manifest_kernel *manifest_find(const manifest *m, const char *id);

bool is_pack_name(const char *text);
bool version_parse(const char *text, pack_version *v); /* "1.2.3" */
int version_compare(pack_version a, pack_version b);

#endif
