/* model_options.c -- see model_options.h. */
#include "model_options.h"

#include <string.h>

ambi_dtype model_dtype(const char *name) {
  static const ambi_dtype all[] = {AMBI_F32, AMBI_BF16, AMBI_F16, AMBI_F64};
  for (int i = 0; i < 4; i++) {
    if (strcmp(ambi_dtype_name(all[i]), name) == 0) return all[i];
  }
  return AMBI_NONE;
}
