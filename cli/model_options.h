/* model_options.h -- what the commands about models share. */
#ifndef CLI_MODEL_OPTIONS_H
#define CLI_MODEL_OPTIONS_H
#include <ambi/ambi.h>

/* f32, bf16, f16 or f64 by name; AMBI_NONE for others. */
ambi_dtype model_dtype(const char *name);
/* 1, or 0 and err: --device or --dtype is none that can be. */
int model_options_known(const char *device, const char *dtype, char *err, size_t n);

#endif
