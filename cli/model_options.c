/* model_options.c -- see model_options.h. */
#include "model_options.h"

#include <stdio.h>
#include <string.h>

#include "device.h"

ambi_dtype model_dtype(const char *name) {
  static const ambi_dtype all[] = {AMBI_F32, AMBI_BF16, AMBI_F16, AMBI_F64};
  for (int i = 0; i < 4; i++) {
    if (strcmp(ambi_dtype_name(all[i]), name) == 0) return all[i];
  }
  return AMBI_NONE;
}

int model_options_known(const char *device, const char *dtype, char *err, size_t n) {
  if (model_dtype(dtype) == AMBI_NONE)
    return snprintf(err, n, "--dtype %s: there are f32, bf16, f16 and f64", dtype), 0;
  return device_can_be(device, NULL, err, n);
}
