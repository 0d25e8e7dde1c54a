/* source.h -- the texts of a case's CUDA kernels (case.h), forward and backward. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

/* Exit status. texts: NULL, "special" or "general", as ambi_device_options.max_isa. */
int print_source(const char *text, const char *dtype_name, const char *texts);

#endif
