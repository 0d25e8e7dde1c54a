/* api.h -- the driver, the run-time compiler and cuBLASLt, found and loaded when a device is opened. */
#ifndef AMBI_CUDA_API_H
#define AMBI_CUDA_API_H
#include "core/core.h"

typedef enum { LIB_DRIVER, LIB_COMPILER, LIB_BLAS, CUDA_LIBS } cuda_lib;

typedef struct {
  void *handle[CUDA_LIBS];    /* NULL: not there                                      */
  char found[CUDA_LIBS][400]; /* where it is, or what is missing and how to get it    */
#define DRIVER(name, parameters)   int(*name) parameters;
#define COMPILER(name, parameters) int(*name) parameters;
#define BLAS(name, parameters)     int(*name) parameters;
#include "backends/cuda/api.def"
#undef DRIVER
#undef COMPILER
#undef BLAS
} cuda_api;

/* Loads what there is; api_unload in any case. Without a driver, or with one that lacks a function: AMBI_NO_DEVICE. */
ambi_status api_load(cuda_api *api);
void api_unload(cuda_api *api);

/* AMBI_OK for 0; else the status that a driver's error number stands for, and "what: the driver's own words". */
ambi_status api_check(const cuda_api *api, int error, const char *what);
/* The same of calls that only look for devices: whatever is wrong but memory, AMBI_NO_DEVICE. */
ambi_status api_there(const cuda_api *api, int error, const char *what);

#endif
