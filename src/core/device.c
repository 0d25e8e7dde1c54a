/* device.c -- devices, memory and streams: each call checked here, done by the backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

ambi_status ambi_device_open(const char *name, const ambi_device_options *o, ambi_device **out) {
  if (out) *out = NULL;
  if (!name || !out) return fail(AMBI_INVALID, "ambi_device_open: %s is NULL", name ? "out" : "name");
  size_t length = strcspn(name, ":");
  const backend *be = NULL;
  char known[128] = "";
  for (int i = 0; backends[i]; i++) {
    if (strlen(backends[i]->name) == length && strncmp(backends[i]->name, name, length) == 0) be = backends[i];
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", backends[i]->name);
  }
  if (!be) return fail(AMBI_NO_DEVICE, "no device is called %.40s; this build has %s", name, known);
  if (strlen(name) >= sizeof(((ambi_device *)0)->name))
    return fail(AMBI_INVALID, "ambi_device_open: the name is longer than a device's can be");
  ambi_device *dev = calloc(1, sizeof *dev);
  if (!dev) return fail(AMBI_NO_MEMORY, "ambi_device_open: no memory");
  dev->be = be;
  snprintf(dev->name, sizeof dev->name, "%s", name);
  static const ambi_device_options none;
  ambi_status s = be->open(dev, name[length] ? name + length + 1 : "", o ? o : &none);
  if (s == AMBI_OK)
    *out = dev;
  else
    free(dev);
  return s;
}

void ambi_device_close(ambi_device *dev) {
  if (!dev) return;
  dev->be->close(dev);
  free(dev);
}

ambi_status ambi_device_get_info(const ambi_device *dev, ambi_device_info *info) {
  if (!dev || !info) return fail(AMBI_INVALID, "ambi_device_get_info: %s is NULL", dev ? "info" : "dev");
  *info = (ambi_device_info){.name = dev->name, .isa = "", .features = "", .threads = 1};
  dev->be->info(dev, info);
  return AMBI_OK;
}

ambi_status ambi_device_kernel(const ambi_device *dev, int32_t index, ambi_kernel_info *info) {
  if (!dev || !info) return fail(AMBI_INVALID, "ambi_device_kernel: %s is NULL", dev ? "info" : "dev");
  if (index < 0 || !dev->be->kernel(dev, index, info))
    return fail(AMBI_INVALID, "ambi_device_kernel: there is no kernel %d", index);
  const ambi_dtype sums = find_op(info->kind)->sums;
  if (sums != AMBI_NONE) info->accumulator = sums;
  return AMBI_OK;
}

ambi_status ambi_alloc(ambi_device *dev, size_t bytes, ambi_buf *out) {
  if (out) *out = (ambi_buf){0};
  if (!dev || !out) return fail(AMBI_INVALID, "ambi_alloc: %s is NULL", dev ? "out" : "dev");
  return dev->be->alloc(dev, bytes, out);
}

void ambi_free(ambi_device *dev, ambi_buf b) {
  if (dev && b.data) dev->be->free(dev, b);
}

ambi_status ambi_stream_create(ambi_device *dev, void *native, ambi_stream **out) {
  if (out) *out = NULL;
  if (!dev || !out) return fail(AMBI_INVALID, "ambi_stream_create: %s is NULL", dev ? "out" : "dev");
  ambi_stream *s = calloc(1, sizeof *s);
  if (!s) return fail(AMBI_NO_MEMORY, "ambi_stream_create: no memory");
  s->dev = dev;
  ambi_status status = dev->be->stream_open(s, native);
  if (status == AMBI_OK)
    *out = s;
  else
    free(s);
  return status;
}

void ambi_stream_destroy(ambi_stream *s) {
  if (!s) return;
  if (s->side) s->close_side(s);
  s->dev->be->stream_close(s);
  free(s);
}

ambi_status ambi_stream_wait(ambi_stream *s) {
  return s ? s->dev->be->wait(s) : fail(AMBI_INVALID, "ambi_stream_wait: stream is NULL");
}

ambi_status ambi_upload(ambi_stream *s, ambi_buf dst, const void *src, size_t bytes) {
  if (!s) return fail(AMBI_INVALID, "ambi_upload: stream is NULL");
  if (bytes && (!dst.data || !src)) return fail(AMBI_INVALID, "ambi_upload: %s is NULL", src ? "dst" : "src");
  return s->dev->be->upload(s, dst, src, bytes);
}

ambi_status ambi_download(ambi_stream *s, void *dst, ambi_buf src, size_t bytes) {
  if (!s) return fail(AMBI_INVALID, "ambi_download: stream is NULL");
  if (bytes && (!dst || !src.data)) return fail(AMBI_INVALID, "ambi_download: %s is NULL", dst ? "src" : "dst");
  return s->dev->be->download(s, dst, src, bytes);
}

ambi_status ambi_copy(ambi_stream *s, ambi_buf dst, ambi_buf src, size_t bytes) {
  if (!s) return fail(AMBI_INVALID, "ambi_copy: stream is NULL");
  if (bytes && (!dst.data || !src.data)) return fail(AMBI_INVALID, "ambi_copy: %s is NULL", src.data ? "dst" : "src");
  return s->dev->be->copy(s, dst, src, bytes);
}
