/* blas.c -- products by cuBLASLt.
 *
 * It thinks in columns: D[r,c] = P[r,k] Q[k,c], a column's elements side by side. A C whose rows are dense is the
 * transpose of such a D, so that
 *   rows dense      D = C^T (n x m)     P = B^T    Q = A^T
 *   columns dense   D = C   (m x n)     P = A      Q = B
 * and a P or Q that is dense the other way is given transposed. Everything is chosen when the plan is made.
 *
 * Its epilogues have one vector, which is read or written: BIAS adds bias[r] to D's rows; BGRADA writes the sums over k
 * of P[r,k], BGRADB those of Q[k,c]. So db, the row sums of A, is BGRADB's where A^T is Q, and BGRADA's where A is P.
 * The vector is dense and has D's type.                                                                            */
#include "backends/cuda/blas.h"

#include <stdio.h>
#include <stdlib.h>

enum { /* cuBLASLt's numbers */
       TYPE_F32 = 0,
       TYPE_F64 = 1,
       TYPE_F16 = 2,
       TYPE_BF16 = 14,
       COMPUTE_F32 = 68,
       COMPUTE_F64 = 70,
       COMPUTE_TF32 = 77,
       DESC_TRANSPOSE_P = 3,
       DESC_TRANSPOSE_Q = 4,
       DESC_EPILOGUE = 7,
       DESC_BIAS_POINTER = 8,
       EPILOGUE_BIAS = 4,
       EPILOGUE_BGRADA = 256,
       EPILOGUE_BGRADB = 512,
       PREFER_WORKSPACE = 1,
       PREFER_REDUCTION = 3,
       PREFER_ALIGNMENT = 5, /* of P; Q, C and D follow */
       REDUCE_IN_COMPUTE_TYPE = 2,
};
enum { ALIGNMENT = 16, DESC_WORDS = 64 };
enum { WORK_GIVEN = 64, WORK_WANTED = 256 }; /* how a workspace is aligned: a caller's, cuBLASLt's */

/* What the heuristic answers. */
typedef struct {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} blas_choice;

typedef struct {
  int64_t rows, cols, ld; /* as it lies in memory: columns of `rows` neighbours, ld apart */
  int32_t transposed;     /* 1: the matrix that is meant has its rows there */
} blas_layout;

struct blas_product {
  int64_t m, n, k;
  bool swapped;      /* P is B^T */
  uint32_t epilogue; /* 0: none */
  int type, result, compute, scale;
  blas_layout p, q, d;
  void *layout[3]; /* of p, q, d */
  blas_choice choice;
};

/* ---- errors: the first call that is refused ---- */
/* Said by runs only: a plan that cuBLASLt refuses does without it, and leaves the thread's last sentence alone. */
typedef struct {
  const char *call; /* NULL: none was */
  int status;
} refusal;

#define CALL(api, name, ...)                       \
  do {                                             \
    int status_ = (api)->name(__VA_ARGS__);        \
    if (status_) return (refusal){#name, status_}; \
  } while (0)

/* What the driver has to say of that stream: 0, nothing. A recording cannot be asked. */
static int driver_error(const cuda_api *api, void *stream) {
  enum { NOT_READY = 600 };
  int recording = 0, error = api->cuStreamIsCapturing(stream, &recording);
  if (error == 0 && !recording) error = api->cuStreamQuery(stream);
  return error == NOT_READY ? 0 : error;
}

/* cuBLASLt has one status for a launch that was refused and for a context that is lost: the driver knows which. */
static ambi_status check(const cuda_api *api, const blas_product *b, refusal r, void *stream) {
  enum { ALLOC_FAILED = 3 };
  char what[160];
  if (!r.call) return AMBI_OK;
  snprintf(what, sizeof what, "a product of %lld x %lld x %lld: %s failed with status %d", (long long)b->m,
           (long long)b->n, (long long)b->k, r.call, r.status);
  const int error = driver_error(api, stream);
  if (error) return api_check(api, error, what);
  return fail(r.status == ALLOC_FAILED ? AMBI_NO_MEMORY : AMBI_INVALID, "cuda: %s", what);
}

/* ---- the handle: made by the first plan that wants it ---- */
static void *handle_of(cuda_device *d) {
  if (!d->api.handle[LIB_BLAS]) return NULL;
  modules_lock(d->modules);
  if (!d->blas && d->api.cublasLtCreate(&d->blas)) d->blas = NULL;
  void *handle = d->blas;
  modules_unlock(d->modules);
  return handle;
}

/* ---- layouts ---- */
/* The stride of an axis of that many, or -1 when it is nested; of an axis of one, `any` will do. */
static int64_t stride_of(const cuda_axis *x, int64_t count, int64_t any) {
  if (count <= 1) return any;
  return x->dims == 1 ? x->stride[0] : -1;
}

/* A (rows x cols) matrix: false when neither axis is dense, or columns overlap. */
static bool lay_out(const cuda_matrix *x, int64_t rows, int64_t cols, bool may_transpose, blas_layout *out) {
  int64_t down = stride_of(&x->row, rows, 1), right = stride_of(&x->col, cols, rows);
  *out = (blas_layout){rows, cols, right, 0};
  if (down == 1 && right >= rows) return true;
  down = stride_of(&x->row, rows, cols), right = stride_of(&x->col, cols, 1);
  *out = (blas_layout){cols, rows, down, 1};
  return may_transpose && right == 1 && down >= cols;
}

static bool lay_out_all(const cuda_product *s, blas_product *b) {
  cuda_matrix at = cuda_transposed(s->a), bt = cuda_transposed(s->b), ct = cuda_transposed(s->c);
  b->swapped = lay_out(&ct, s->n, s->m, false, &b->d);
  if (b->swapped) return lay_out(&bt, s->n, s->k, true, &b->p) && lay_out(&at, s->k, s->m, true, &b->q);
  return s->bias == AMBI_NONE && lay_out(&s->c, s->m, s->n, false, &b->d) && lay_out(&s->a, s->m, s->k, true, &b->p) &&
         lay_out(&s->b, s->k, s->n, true, &b->q);
}

/* ---- types: sums in f32, or f64 ---- */
static bool choose_types(const cuda_product *s, blas_product *b) {
  static const int types[] = {
      [AMBI_F32] = TYPE_F32, [AMBI_F16] = TYPE_F16, [AMBI_BF16] = TYPE_BF16, [AMBI_F64] = TYPE_F64};
  bool wide = s->a.dtype == AMBI_F64, half = s->a.dtype == AMBI_F16 || s->a.dtype == AMBI_BF16;
  b->type = types[s->a.dtype];
  b->result = types[s->c.dtype];
  b->compute = wide ? COMPUTE_F64 : s->tf32 && !half ? COMPUTE_TF32 : COMPUTE_F32;
  b->scale = wide ? TYPE_F64 : TYPE_F32;
  if (s->compute == AMBI_F64 && !wide) return false;
  return s->a.dtype == s->b.dtype && (s->c.dtype == s->a.dtype || (half && s->c.dtype == AMBI_F32));
}

/* No db of factors that are rounded, as db has none. Nor of one row of dy: before 12.3.4, cuBLASLt could not. */
static bool gives_db(const cuda_product *s, const blas_product *b) {
  return (int64_t)s->db == s->c.dtype && s->bias == AMBI_NONE && s->k > 1 && b->compute == COMPUTE_F32;
}

static bool choose_epilogue(const cuda_product *s, bool with_db, blas_product *b) {
  if (with_db) {
    b->epilogue = b->swapped ? EPILOGUE_BGRADB : EPILOGUE_BGRADA;
    return gives_db(s, b);
  }
  if (s->bias == AMBI_NONE) return true;
  b->epilogue = EPILOGUE_BIAS;
  return (int64_t)s->bias == s->c.dtype && (s->n <= 1 || s->bias_stride == 1);
}

/* ---- descriptors: in the caller's own memory, as every run has its own vector ---- */
static refusal describe(const cuda_api *api, const blas_product *b, uint64_t vector, uint64_t (*desc)[DESC_WORDS]) {
  CALL(api, cublasLtMatmulDescInit_internal, desc, sizeof *desc, b->compute, b->scale);
  CALL(api, cublasLtMatmulDescSetAttribute, desc, DESC_TRANSPOSE_P, &b->p.transposed, sizeof b->p.transposed);
  CALL(api, cublasLtMatmulDescSetAttribute, desc, DESC_TRANSPOSE_Q, &b->q.transposed, sizeof b->q.transposed);
  if (!b->epilogue) return (refusal){0};
  CALL(api, cublasLtMatmulDescSetAttribute, desc, DESC_EPILOGUE, &b->epilogue, sizeof b->epilogue);
  CALL(api, cublasLtMatmulDescSetAttribute, desc, DESC_BIAS_POINTER, &vector, sizeof vector);
  return (refusal){0};
}

static refusal make_layouts(const cuda_api *api, blas_product *b) {
  const blas_layout *lies[3] = {&b->p, &b->q, &b->d};
  for (int i = 0; i < 3; i++)
    CALL(api, cublasLtMatrixLayoutCreate, &b->layout[i], i < 2 ? b->type : b->result, (uint64_t)lies[i]->rows,
         (uint64_t)lies[i]->cols, lies[i]->ld);
  return (refusal){0};
}

/* Sums that are split are put together in a fixed order, in the precision of the sums. */
static refusal choose(const cuda_device *d, blas_product *b, void *preference) {
  const cuda_api *api = &d->api;
  uint64_t desc[DESC_WORDS], workspace = d->arch >= 90 ? 32 << 20 : 4 << 20;
  uint32_t reduction = REDUCE_IN_COMPUTE_TYPE, alignment = ALIGNMENT;
  int found = 0;
  refusal r = describe(api, b, ALIGNMENT, &desc);
  if (r.call) return r;
  CALL(api, cublasLtMatmulPreferenceSetAttribute, preference, PREFER_WORKSPACE, &workspace, sizeof workspace);
  CALL(api, cublasLtMatmulPreferenceSetAttribute, preference, PREFER_REDUCTION, &reduction, sizeof reduction);
  for (int i = 0; i < 4; i++)
    CALL(api, cublasLtMatmulPreferenceSetAttribute, preference, PREFER_ALIGNMENT + i, &alignment, sizeof alignment);
  CALL(api, cublasLtMatmulAlgoGetHeuristic, d->blas, desc, b->layout[0], b->layout[1], b->layout[2], b->layout[2],
       preference, 1, &b->choice, &found);
  const bool usable = found > 0 && b->choice.state == 0;
  return (refusal){usable ? NULL : "cublasLtMatmulAlgoGetHeuristic", b->choice.state};
}

static bool prepare(const cuda_device *d, blas_product *b) {
  void *preference = NULL;
  if (make_layouts(&d->api, b).call || d->api.cublasLtMatmulPreferenceCreate(&preference)) return false;
  refusal r = choose(d, b, preference);
  d->api.cublasLtMatmulPreferenceDestroy(preference);
  return !r.call;
}

/* Seen on an H200: a small or odd product into 16 bits is rounded before the bias, or what it is added to, joins it. */
static bool rounds_once(const cuda_product *p) {
  bool joins = p->bias != AMBI_NONE || p->accumulate, half = p->c.dtype == AMBI_F16 || p->c.dtype == AMBI_BF16;
  bool even = p->m % 8 == 0 && p->n % 8 == 0 && p->k % 8 == 0;
  return !half || !joins || (even && (double)p->m * (double)p->n * (double)p->k >= 1 << 21);
}

blas_product *blas_make(cuda_device *d, const cuda_product *p, bool with_db) {
  blas_product b = {.m = p->m, .n = p->n, .k = p->k};
  if (p->k == 0 || p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX) return NULL;
  if (!rounds_once(p) || !choose_types(p, &b) || !lay_out_all(p, &b)) return NULL;
  if (!choose_epilogue(p, with_db, &b) || !handle_of(d)) return NULL;
  blas_product *made = malloc(sizeof *made);
  if (made) *made = b;
  if (made && prepare(d, made)) return made;
  if (made) blas_free(d, made);
  return NULL;
}

void blas_free(const cuda_device *d, blas_product *b) {
  for (int i = 0; i < 3; i++)
    if (b->layout[i]) d->api.cublasLtMatrixLayoutDestroy(b->layout[i]);
  free(b);
}

uint64_t blas_workspace(const blas_product *b) {
  return b->choice.workspace ? b->choice.workspace + WORK_WANTED - WORK_GIVEN : 0;
}

/* ---- run ---- */
static uint64_t vector_of(const blas_product *b, const cuda_operands *at) {
  return b->epilogue == EPILOGUE_BIAS ? at->bias : b->epilogue ? at->db : 0;
}

bool blas_takes(const blas_product *b, const cuda_operands *at) {
  return ((at->a | at->b | at->c | vector_of(b, at)) & (ALIGNMENT - 1)) == 0;
}

static uint64_t aligned_work(uint64_t at) { return (at + WORK_WANTED - 1) / WORK_WANTED * WORK_WANTED; }

static refusal multiply(const cuda_device *d, const blas_product *b, const cuda_operands *at, bool accumulate,
                        void *stream) {
  static const float one_f = 1, none_f = 0;
  static const double one_d = 1, none_d = 0;
  const bool wide = b->scale == TYPE_F64;
  const void *one = wide ? (const void *)&one_d : &one_f, *none = wide ? (const void *)&none_d : &none_f;
  uint64_t desc[DESC_WORDS];
  refusal r = describe(&d->api, b, vector_of(b, at), &desc);
  if (r.call) return r;
  CALL(&d->api, cublasLtMatmul, d->blas, desc, one, cuda_pointer(b->swapped ? at->b : at->a), b->layout[0],
       cuda_pointer(b->swapped ? at->a : at->b), b->layout[1], accumulate ? one : none, cuda_pointer(at->c),
       b->layout[2], cuda_pointer(at->c), b->layout[2], b->choice.algorithm, cuda_pointer(aligned_work(at->work)),
       b->choice.workspace, stream);
  return r;
}

ambi_status blas_run(const cuda_device *d, const blas_product *b, const cuda_operands *at, bool accumulate,
                     void *stream) {
  return check(&d->api, b, multiply(d, b, at, accumulate, stream), stream);
}
