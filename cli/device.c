/* device.c -- see device.h. */
#include "device.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "print.h"

static int is_cuda(const char *name) { return strncmp(name, "cuda", 4) == 0 && (!name[4] || name[4] == ':'); }

static int cuda_can_be(const char *name, const char *isa, char *err, size_t n) {
  const size_t digits = name[4] ? strspn(name + 5, "0123456789") : 0;
  if (name[4] && (!digits || name[5 + digits]))
    return snprintf(err, n, "no device is called %s; on cuda there are cuda:0, cuda:1, ..", name), 0;
  if (isa && strcmp(isa, "special") != 0 && strcmp(isa, "general") != 0)
    return snprintf(err, n, "--isa %s: on cuda there are special and general", isa), 0;
  return 1;
}

int device_can_be(const char *name, const char *isa, char *err, size_t n) {
  ambi_device *dev;
  if (is_cuda(name)) return cuda_can_be(name, isa, err, n);
  const ambi_status s = ambi_device_open(name, &(ambi_device_options){.max_isa = isa, .threads = 1}, &dev);
  if (s == AMBI_OK) ambi_device_close(dev);
  if (s != AMBI_INVALID && s != AMBI_NO_DEVICE) return 1; /* what else is wrong is said where it is opened */
  snprintf(err, n, "%s%s", isa && s == AMBI_INVALID ? "--isa: " : "", ambi_error());
  return 0;
}

ambi_device *device_open(const char *command, const char *name, const char *isa, int64_t threads) {
  const ambi_device_options o = {.max_isa = isa, .threads = (int32_t)threads, .notify = notify_once};
  ambi_device *dev = NULL;
  if (ambi_device_open(name, &o, &dev) != AMBI_OK) fprintf(stderr, "ambi %s: %s\n", command, ambi_error());
  return dev;
}

/* The device says what it found, "NVRTC: 13.0, ..", or what is missing and how to get it. */
int device_compiles(ambi_device *dev, const char *name, char *err, size_t n) {
  ambi_device_info i = {.features = ""};
  ambi_device_get_info(dev, &i);
  const char *at = i.features ? strstr(i.features, "NVRTC: ") : NULL;
  if (!at || isdigit((unsigned char)at[7])) return 1;
  snprintf(err, n, "%s: %.*s", name, (int)strcspn(at, "\n"), at);
  return 0;
}
