/* blas.c -- a stand-in for cuBLASLt: plain loops. For libraries-blas/, so that what ambi
 * tells cuBLASLt about layouts, transposes, types and epilogues is tested without a device.
 *
 * It refuses what the real one refuses, and uses what it may use: all the workspace it asked for, addresses as aligned
 * as the preference promised (16 bytes at most, or the result is refused). In a stream that records it is written down.
 * FAKECUDA_FAIL=NAME:N.. makes the Nth call of NAME fail, as in fake.h; CODE is a cublasStatus_t. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum { COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_TF32 = 77 };
enum { EPILOGUE_NONE = 1, EPILOGUE_BIAS = 4, EPILOGUE_BGRADA = 256, EPILOGUE_BGRADB = 512 };
enum { WORKSPACE = 4096, MARK = 0x616d6269 };

typedef struct {
  int mark, compute, scale, transpose[2];
  uint32_t epilogue;
  void *bias; /* read, or where sums go */
} desc;
typedef struct {
  int type;
  int64_t rows, cols, ld;
} layout;
typedef struct {
  uint64_t workspace;
  uint32_t reduction, alignment[4];
} preference;
typedef struct {
  uint64_t mark, rest[7];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} choice;

/* ---- objects ---- */
static int live;     /* handles, layouts, preferences */
static int calls;    /* products that were computed */
static int sums;     /* .. with the gradient of a bias */
static bool sumless; /* the heuristic knows no way to do that */

static int object(void **out, const void *what, size_t bytes) {
  *out = malloc(bytes);
  if (!*out) return ALLOC_FAILED;
  memcpy(*out, what, bytes);
  live++;
  return OK;
}
static int end(void *o) {
  free(o);
  live--;
  return OK;
}
EXPORT int fakeblas_live(void);
int fakeblas_live(void) { return live; }
EXPORT int fakeblas_calls(void);
int fakeblas_calls(void) { return calls; }
EXPORT int fakeblas_sums(void);
int fakeblas_sums(void) { return sums; }
EXPORT void fakeblas_refuse_sums(bool yes);
void fakeblas_refuse_sums(bool yes) { sumless = yes; }

/* From now on, the descriptor and the product of a run fail where they are that function; NULL: none does. */
static const char *failing;
static int failing_status;
EXPORT void fakeblas_fail(const char *function, int status);
void fakeblas_fail(const char *function, int status) { failing = function, failing_status = status; }
static bool fails(const char *function) { return failing && strcmp(failing, function) == 0; }

EXPORT int cublasLtCreate(void **handle) {
  FAIL_IF_TOLD;
  return object(handle, &(int){MARK}, sizeof(int));
}
EXPORT int cublasLtDestroy(void *handle) {
  FAIL_IF_TOLD_KEEPING(handle);
  return end(handle);
}

EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  FAIL_IF_TOLD;
  const layout l = {type, (int64_t)rows, (int64_t)cols, ld};
  if (ld < l.rows || l.rows < 1 || l.cols < 1) return INVALID;
  return object(out, &l, sizeof l);
}
EXPORT int cublasLtMatrixLayoutDestroy(void *l) {
  FAIL_IF_TOLD_KEEPING(l);
  return end(l);
}

EXPORT int cublasLtMatmulDescInit_internal(void *memory, size_t bytes, int compute, int scale) {
  FAIL_IF_TOLD;
  if (bytes < sizeof(desc)) return ALLOC_FAILED;
  memset(memory, 0xA5, bytes);
  if (fails(__func__)) return failing_status;
  *(desc *)memory = (desc){.mark = MARK, .compute = compute, .scale = scale, .epilogue = EPILOGUE_NONE};
  return OK;
}

EXPORT int cublasLtMatmulDescSetAttribute(void *memory, int attribute, const void *value, size_t bytes) {
  FAIL_IF_TOLD;
  desc *d = memory;
  const struct {
    int attribute;
    void *to;
    size_t bytes;
  } known[] = {{3, &d->transpose[0], 4}, {4, &d->transpose[1], 4}, {7, &d->epilogue, 4}, {8, &d->bias, 8}};
  if (fails(__func__)) return failing_status;
  if (d->mark != MARK) return INVALID;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].attribute == attribute && known[i].bytes == bytes) return memcpy(known[i].to, value, bytes), OK;
  return INVALID;
}

EXPORT int cublasLtMatmulPreferenceCreate(void **out) {
  FAIL_IF_TOLD;
  return object(out, &(preference){0, 7, {256, 256, 256, 256}}, sizeof(preference));
}
EXPORT int cublasLtMatmulPreferenceDestroy(void *p) {
  FAIL_IF_TOLD_KEEPING(p);
  return end(p);
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *memory, int attribute, const void *value, size_t bytes) {
  FAIL_IF_TOLD;
  preference *p = memory;
  if (attribute == 1 && bytes == 8) return memcpy(&p->workspace, value, 8), OK;
  if (attribute == 3 && bytes == 4) return memcpy(&p->reduction, value, 4), OK;
  if (attribute >= 5 && attribute <= 8 && bytes == 4) return memcpy(&p->alignment[attribute - 5], value, 4), OK;
  return INVALID;
}

/* ---- storage ---- */
static double from_f16(uint16_t h) {
  const int exponent = h >> 10 & 31, digits = h & 1023;
  double v = exponent ? ldexp(1024 + digits, exponent - 25) : ldexp(digits, -24);
  if (exponent == 31) v = digits ? NAN : INFINITY;
  return h >> 15 ? -v : v;
}

static uint16_t to_f16(double v) {
  const uint16_t sign = signbit(v) ? 0x8000 : 0;
  int exponent;
  if (isnan(v)) return 0x7fff;
  frexp(v, &exponent);
  if (v == 0 || exponent < -13) exponent = -13; /* denormal */
  const double digits = isinf(v) ? 4096 : rint(ldexp(fabs(v), 11 - exponent));
  const double bits = digits + ldexp(exponent + 13, 10); /* 2048 carries into the exponent */
  return (uint16_t)(sign | (bits < 0x7c00 && !isinf(v) ? (uint16_t)bits : 0x7c00));
}

static double from_bf16(uint16_t h) {
  const uint32_t wide = (uint32_t)h << 16;
  float f;
  memcpy(&f, &wide, 4);
  return f;
}

static uint16_t to_bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (isnan(f)) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double get(int type, const void *p, int64_t i) {
  if (type == F32) return ((const float *)p)[i];
  if (type == F64) return ((const double *)p)[i];
  return type == F16 ? from_f16(((const uint16_t *)p)[i]) : from_bf16(((const uint16_t *)p)[i]);
}

static void set(int type, void *p, int64_t i, double v) { /* sums of 16-bit factors are f32's */
  if (type == F32) ((float *)p)[i] = (float)v;
  if (type == F64) ((double *)p)[i] = v;
  if (type == F16) ((uint16_t *)p)[i] = to_f16((double)(float)v);
  if (type == BF16) ((uint16_t *)p)[i] = to_bf16((float)v);
}

/* ---- the product ---- */
static bool types_fit(const desc *d, int a, int b, int c) {
  const bool half = a == F16 || a == BF16;
  if (a != b) return false;
  if (a == F64) return c == F64 && d->compute == COMPUTE_F64 && d->scale == F64 && d->epilogue == EPILOGUE_NONE;
  if (d->scale != F32 || (d->compute != COMPUTE_F32 && (half || d->compute != COMPUTE_TF32))) return false;
  return c == a || (half && c == F32);
}

static bool sums_up(const desc *d) { return d->epilogue == EPILOGUE_BGRADA || d->epilogue == EPILOGUE_BGRADB; }

static int fits(const desc *d, const layout *a, const layout *b, const layout *c) {
  const int64_t m = d->transpose[0] ? a->cols : a->rows, k = d->transpose[0] ? a->rows : a->cols;
  const int64_t k2 = d->transpose[1] ? b->cols : b->rows, n = d->transpose[1] ? b->rows : b->cols;
  if (d->mark != MARK || m != c->rows || n != c->cols || k != k2) return INVALID;
  if (d->epilogue != EPILOGUE_NONE && ((d->epilogue != EPILOGUE_BIAS && !sums_up(d)) || !d->bias)) return INVALID;
  return types_fit(d, a->type, b->type, c->type) ? OK : NOT_SUPPORTED;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, const desc *d, const layout *a, const layout *b,
                                          const layout *c, const layout *to, const preference *p, int wanted,
                                          choice *out, int *found) {
  FAIL_IF_TOLD;
  *found = 0;
  if (!handle || wanted < 1 || memcmp(c, to, sizeof *c) != 0) return INVALID;
  for (int i = 0; i < 4; i++)
    if (p->alignment[i] != 16) return INVALID; /* what ambi promises */
  const int status = fits(d, a, b, c);
  if (status) return status;
  if (sumless && sums_up(d)) return NOT_SUPPORTED;
  memset(out, 0, sizeof *out);
  out->mark = MARK;
  out->workspace = p->workspace < WORKSPACE ? (size_t)p->workspace : WORKSPACE;
  *found = 1;
  return OK;
}

static double product(const desc *d, const void *a, const layout *la, const void *b, const layout *lb, int64_t i,
                      int64_t j) {
  const int64_t k = d->transpose[0] ? la->rows : la->cols;
  double sum = 0;
  for (int64_t l = 0; l < k; l++)
    sum += get(la->type, a, d->transpose[0] ? l + i * la->ld : i + l * la->ld) *
           get(lb->type, b, d->transpose[1] ? j + l * lb->ld : l + j * lb->ld);
  return sum;
}

/* The gradient of a bias, in D's type: sums over k of A's rows, or of B's columns. */
static void put_sums(const desc *d, const void *from, const layout *l, bool k_beside, int64_t k, int64_t count,
                     int type) {
  for (int64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += get(l->type, from, k_beside ? j + i * l->ld : i + j * l->ld);
    set(type, d->bias, i, sum);
  }
  sums++;
}

/* A product with everything that it needs, as the descriptors may be gone when a graph is replayed */
typedef struct {
  desc d;
  layout la, lb, lc;
  const void *a, *b;
  void *c, *workspace;
  double one, keep;
} task;

static void put_product(const task *t, int64_t i, int64_t j) {
  const int type = t->lc.type;
  const int64_t at = i + j * t->lc.ld;
  double v = t->one * product(&t->d, t->a, &t->la, t->b, &t->lb, i, j);
  if (t->keep != 0) v += t->keep * get(type, t->c, at);
  if (t->d.epilogue == EPILOGUE_BIAS) v += get(type, t->d.bias, i);
  set(type, t->c, at, v);
}

static void multiply(const void *args) {
  const task *t = args;
  const desc *d = &t->d;
  const int64_t k = d->transpose[0] ? t->la.rows : t->la.cols;
  memset(t->workspace, 0xFF, WORKSPACE);
  if (d->epilogue == EPILOGUE_BGRADA) put_sums(d, t->a, &t->la, d->transpose[0], k, t->lc.rows, t->lc.type);
  if (d->epilogue == EPILOGUE_BGRADB) put_sums(d, t->b, &t->lb, !d->transpose[1], k, t->lc.cols, t->lc.type);
  for (int64_t j = 0; j < t->lc.cols; j++)
    for (int64_t i = 0; i < t->lc.rows; i++) put_product(t, i, j);
}

static bool misaligned(const void *p) { return ((uintptr_t)p & 15) != 0; }

EXPORT int cublasLtMatmul(void *handle, const desc *d, const void *alpha, const void *a, const layout *la,
                          const void *b, const layout *lb, const void *beta, const void *c, const layout *lc, void *to,
                          const layout *lto, const choice *algorithm, void *workspace, size_t bytes, void *stream) {
  FAIL_IF_TOLD;
  if (fails(__func__)) return failing_status;
  const int status = fits(d, la, lb, lc);
  if (!handle || status || c != to || memcmp(lc, lto, sizeof *lc) != 0 || algorithm->mark != MARK) return INVALID;
  if (misaligned(a) || misaligned(b) || misaligned(c) || (d->epilogue != EPILOGUE_NONE && misaligned(d->bias)))
    return NOT_SUPPORTED;
  if (bytes < WORKSPACE || ((uintptr_t)workspace & 255)) return INVALID;
  calls++;
  const double one = get(d->scale, alpha, 0), keep = get(d->scale, beta, 0);
  const task t = {*d, *la, *lb, *lc, a, b, to, workspace, one, keep};
  return fakecuda_call(stream, multiply, &t, sizeof t) == 0 ? OK : EXECUTION_FAILED;
}
