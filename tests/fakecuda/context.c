/* context.c -- the driver, its devices and their primary contexts; names of errors. */
#include "context.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STACK = 16, MAX_MADE = 16 };
pid_t initialized_by;
static context primary[MAX_DEVICES], made[MAX_MADE];
static _Thread_local context *stack[STACK];
static _Thread_local int depth;

static int device_count(void) {
  const long n = number_of("FAKECUDA_DEVICES", 1);
  return n < 0 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : (int)n;
}

context *current_context(void) {
  context *c = depth ? stack[depth - 1] : NULL;
  return c && c->holders ? c : NULL;
}

/* ---- the driver and its devices ---- */
EXPORT result cuInit(unsigned flags) {
  ENTER(ANYTIME);
  if (flags) return INVALID_VALUE;
  if (!device_count()) return NO_DEVICE;
  if (initialized_by && initialized_by != getpid()) return NOT_INITIALIZED;
  initialized_by = getpid();
  return OK;
}

EXPORT result cuDriverGetVersion(int *version) {
  ENTER(ANYTIME);
  if (!version) return INVALID_VALUE;
  *version = (int)number_of("FAKECUDA_DRIVER", 13000);
  return OK;
}

EXPORT result cuDeviceGetCount(int *count) {
  ENTER(INITIALIZED);
  if (!count) return INVALID_VALUE;
  *count = device_count();
  return OK;
}

EXPORT result cuDeviceGet(int *device, int ordinal) {
  ENTER(INITIALIZED);
  if (!device) return INVALID_VALUE;
  if (ordinal < 0 || ordinal >= device_count()) return INVALID_DEVICE;
  *device = ordinal;
  return OK;
}

EXPORT result cuDeviceGetName(char *name, int length, int device) {
  ENTER(INITIALIZED);
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  if (!name || length <= 0) return INVALID_VALUE;
  snprintf(name, (size_t)length, "Emulated device %d", device);
  return OK;
}

EXPORT result cuDeviceTotalMem_v2(size_t *bytes, int device) {
  ENTER(INITIALIZED);
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  size_t unused;
  return bytes ? memory_info(&unused, bytes) : INVALID_VALUE;
}

EXPORT result cuDeviceGetUuid_v2(char uuid[16], int device) {
  ENTER(INITIALIZED);
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  if (!uuid) return INVALID_VALUE;
  memcpy(uuid, "emulated device", 16);
  uuid[15] = (char)device;
  return OK;
}

/* Pairs of CUdevice_attribute and value, as an H100 answers; what the environment changes is set apart. */
static const int attributes[][2] = {
    {1, MAX_THREADS},
    {2, 1024},
    {3, 1024},
    {4, 64}, /* threads of a block, x, y, z */
    {5, 0x7fffffff},
    {6, 65535},
    {7, 65535}, /* blocks: x, y, z */
    {8, SHARED_DEFAULT},
    {9, 65536},
    {10, EMU_WARP}, /* shared memory, constant memory, warp */
    {12, 65536},
    {13, 1980000},
    {18, 0}, /* registers, kHz, integrated */
    {20, 0},
    {31, 1},
    {32, 1}, /* compute mode, concurrent kernels, ECC */
    {33, 1},
    {34, 0},
    {50, 0}, /* PCI bus, device, domain */
    {36, 2619000},
    {37, 5120},
    {38, 50 << 20}, /* memory kHz and bus bits, L2 bytes */
    {39, 2048},
    {40, 3},
    {41, 1}, /* threads of a multiprocessor, copy engines, addressing */
    {82, 65536},
    {95, 0}, /* registers of a multiprocessor, cooperative */
    {106, 32},
    {111, 1024},
    {115, 0}, /* blocks, reserved shared, pools */
};

int most_shared(void) {
  static const int kib[][2] = {{75, 64}, {80, 163}, {86, 99}, {87, 163}, {89, 99}, {120, 99}, {121, 99}};
  const long capability = number_of("FAKECUDA_CAPABILITY", 90);
  for (size_t i = 0; i < sizeof kib / sizeof *kib; i++)
    if (kib[i][0] == capability) return kib[i][1] << 10;
  return SHARED_MOST;
}

EXPORT result cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER(INITIALIZED);
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  if (!value) return INVALID_VALUE;
  const int capability = (int)number_of("FAKECUDA_CAPABILITY", 90);
  if (attribute == 16) return *value = (int)number_of("FAKECUDA_MULTIPROCESSORS", 132), OK;
  if (attribute == 75) return *value = capability / 10, OK;
  if (attribute == 76) return *value = capability % 10, OK;
  if (attribute == 81) return *value = most_shared() + 1024, OK;
  if (attribute == 97) return *value = most_shared(), OK;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i][0] == attribute) return *value = attributes[i][1], OK;
  return INVALID_VALUE;
}

/* ---- contexts ---- */
EXPORT result cuDevicePrimaryCtxRetain(context **c, int device) {
  ENTER(INITIALIZED);
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  if (!c) return INVALID_VALUE;
  primary[device].device = device;
  primary[device].holders++;
  *c = &primary[device];
  return OK;
}

EXPORT result cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(CLEANUP);
  if (device < 0 || device >= MAX_DEVICES) return INVALID_DEVICE;
  if (!primary[device].holders) return INVALID_CONTEXT;
  if (--primary[device].holders == 0) lost = OK;
  return OK;
}

static bool is_made(const context *c) { return c >= made && c < made + MAX_MADE; }
static bool is_context(const context *c) { return (c >= primary && c < primary + MAX_DEVICES) || is_made(c); }

static bool pop(context **c) {
  if (!depth) return false;
  depth--;
  if (c) *c = stack[depth];
  return true;
}

EXPORT result cuCtxCreate_v2(context **c, unsigned flags, int device) {
  ENTER(INITIALIZED);
  (void)flags;
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  if (!c || depth == STACK) return INVALID_VALUE;
  for (context *m = made; m < made + MAX_MADE; m++)
    if (!m->used) {
      *m = (context){device, 1, true};
      stack[depth++] = *c = m;
      return OK;
    }
  return OUT_OF_MEMORY;
}

EXPORT result cuCtxDestroy_v2(context *c) {
  ENTER(CLEANUP);
  if (!is_made(c) || !c->holders) return INVALID_CONTEXT;
  if (depth && stack[depth - 1] == c) pop(NULL);
  c->holders = 0;
  return OK;
}

EXPORT result cuCtxPushCurrent_v2(context *c) {
  ENTER(CLEANUP);
  if (!is_context(c) || !c->holders) return INVALID_CONTEXT;
  if (depth == STACK) return INVALID_VALUE;
  stack[depth++] = c;
  return OK;
}

EXPORT result cuCtxPopCurrent_v2(context **c) {
  ENTER(CLEANUP);
  return pop(c) ? OK : INVALID_CONTEXT;
}

EXPORT result cuCtxSetCurrent(context *c) {
  ENTER(CLEANUP);
  if (c && (!is_context(c) || !c->holders)) return INVALID_CONTEXT;
  if (!depth && c) depth = 1;
  if (depth) stack[depth - 1] = c;
  return OK;
}

EXPORT result cuCtxGetCurrent(context **c) {
  ENTER(CLEANUP);
  if (!c) return INVALID_VALUE;
  *c = depth ? stack[depth - 1] : NULL;
  return OK;
}

EXPORT result cuCtxGetDevice(int *device) {
  ENTER(CONTEXT);
  if (!device) return INVALID_VALUE;
  *device = current_context()->device;
  return OK;
}

EXPORT result cuCtxSynchronize(void) {
  ENTER(CONTEXT);
  return capturing() ? CAPTURE_UNSUPPORTED : OK;
}

/* ---- errors ---- */
static const struct {
  result code;
  const char *name, *sentence;
} errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {EMU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {EMU_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {EMU_TRAP, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {EMU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not ended in the stream it began in"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static result error_text(result code, const char **text, bool name) {
  if (!text) return INVALID_VALUE;
  *text = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) *text = name ? errors[i].name : errors[i].sentence;
  return *text ? OK : INVALID_VALUE;
}

EXPORT result cuGetErrorName(result code, const char **text) { return error_text(code, text, true); }
EXPORT result cuGetErrorString(result code, const char **text) { return error_text(code, text, false); }
