/* host.c -- memory and streams where the device is the host: work is done when the call returns. */
#include "backends/host.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

/* There is one device of its kind, and nothing to adopt. */
ambi_status host_check_options(const ambi_device *dev, const char *which, const ambi_device_options *o) {
  const char *kind = dev->be->name;
  if (*which) return fail(AMBI_NO_DEVICE, "%s: there is one %s device, called %s", dev->name, kind, kind);
  if (o->native) return fail(AMBI_INVALID, "ambi_device_open: %s has no native device to adopt", kind);
  return AMBI_OK;
}

ambi_status host_alloc(ambi_device *dev, size_t bytes, ambi_buf *out) {
  if (bytes > SIZE_MAX - ALIGNMENT) return fail(AMBI_INVALID, "ambi_alloc: %zu bytes overflow", bytes);
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  out->data = aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
  if (out->data) return AMBI_OK;
  return fail(AMBI_NO_MEMORY, "ambi_alloc: %s has no %zu bytes left", dev->name, bytes);
}

void host_free(ambi_device *dev, ambi_buf b) {
  (void)dev;
  free(b.data);
}

ambi_status host_stream_open(ambi_stream *s, void *native) {
  if (native) return fail(AMBI_INVALID, "ambi_stream_create: %s has no native streams to adopt", s->dev->name);
  return AMBI_OK;
}

void host_stream_close(ambi_stream *s) { (void)s; }

ambi_status host_upload(ambi_stream *s, ambi_buf dst, const void *src, size_t bytes) {
  (void)s;
  if (bytes) memcpy((char *)dst.data + dst.offset, src, bytes);
  return AMBI_OK;
}

ambi_status host_download(ambi_stream *s, void *dst, ambi_buf src, size_t bytes) {
  (void)s;
  if (bytes) memcpy(dst, (const char *)src.data + src.offset, bytes);
  return AMBI_OK;
}

ambi_status host_copy(ambi_stream *s, ambi_buf dst, ambi_buf src, size_t bytes) {
  (void)s;
  if (bytes) memmove((char *)dst.data + dst.offset, (const char *)src.data + src.offset, bytes);
  return AMBI_OK;
}

ambi_status host_wait(ambi_stream *s) {
  (void)s;
  return AMBI_OK;
}

/* Empty tensors and workspaces may have no memory, but arithmetic on their address must be allowed. */
char *host_address(ambi_buf b) {
  static _Alignas(64) const char nowhere[64];
  return b.data ? (char *)b.data + b.offset : (char *)(uintptr_t)nowhere;
}

void host_addresses(const problem *p, const ambi_buf *slots, char *at[AMBI_SLOTS]) {
  for (int s = 0; s < AMBI_SLOTS; s++) at[s] = (p->reads | p->writes) & AMBI_BIT(s) ? host_address(slots[s]) : NULL;
}
