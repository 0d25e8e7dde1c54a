/* device.h -- whether there can be such a device, asked before any work is begun. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H
#include <ambi/ambi.h>
#include <stddef.h>
#include <stdint.h>

/* 1, or 0 and err: no device has that name, or it knows no such --isa (NULL: none is asked for). A CUDA device is not
 * opened for this, so that a process can fork after it. */
int device_can_be(const char *name, const char *isa, char *err, size_t n);

/* Open, and it tells of its first compilation; NULL: "ambi COMMAND: why" was said, and 2 is its exit status. */
ambi_device *device_open(const char *command, const char *name, const char *isa, int64_t threads);

/* 1, or 0 and err: it is open, but without a compiler each of its kernels would fail, and each would say the same. */
int device_compiles(ambi_device *dev, const char *name, char *err, size_t n);

#endif
