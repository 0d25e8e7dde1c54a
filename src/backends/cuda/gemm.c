/* gemm.c -- matrix products: by cuBLASLt, or by texts: gemm90.cu, gemm16.cu (tensor cores) and gemm.cu (anything). */
#include "backends/cuda/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/blas.h"
#include "backends/cuda/text.h"

/* A block has rows x cols results and x y threads, of which some bring tiles; sums of at least `deep` k's may be split
 * from each other. */
typedef struct {
  const char *name;
  int64_t rows, cols;
  unsigned x, y, loaders, stages, shared;
  int64_t deep;
} text_kind;
enum { ANY, BY_WARPS, BY_GROUPS, TEXTS };
static const text_kind texts[TEXTS] = {
    [ANY] = {"gemm", 64, 64, 16, 16, 256, 0, 0, 256},
    [BY_WARPS] = {"gemm16", 128, 128, 256, 1, 256, 3, 3 * (128 + 128) * 128, 512},
    [BY_GROUPS] = {"gemm90", 128, 256, 384, 1, 128, 4, 4 * (128 + 256) * 128 + 21 * 1024, 512},
};

/* A factor that product_pack copies into the workspace first; as halves.cu declares it. */
typedef struct {
  uint64_t from, to; /* to: an offset, until it runs */
  int64_t rows, width, stride, pitch;
} pack_args;

struct cuda_gemm {
  cuda_product p;        /* with factors that are packed as they are then */
  blas_product *blas;    /* NULL: always the text */
  blas_product *with_db; /* the same and db; NULL: no db */
  const text_kind *text; /* NULL: there are no results */
  int64_t splits;        /* of the sums, by the text */
  pack_args packed[2];   /* A, B; no rows: it is not */
  int pack[2], product;  /* held launches */
  int sum;               /* .. of the kernel that adds up what was split */
  uint64_t bytes;        /* of the workspace */
};

/* As matrices.cu declares it. */
typedef struct {
  _Alignas(64) uint64_t map_a[16], map_b[16];
  uint64_t a, b, bias, c;
  int64_t m, n, k;
  cuda_matrix at_a, at_b, at_c;
  int64_t bias_dtype, bias_stride, adds;
  uint64_t work;
  int64_t splits, boxed;
} gemm_args;

/* ---- matrices ---- */
cuda_axis cuda_plain_axis(int64_t stride) { return (cuda_axis){.dims = 1, .stride = {stride}}; }

cuda_axis cuda_grid_axis(const grid *g, int slot) {
  cuda_axis x = {.dims = g->ndim};
  memcpy(x.shape, g->shape, (size_t)g->ndim * sizeof *x.shape);
  memcpy(x.stride, g->stride[slot], (size_t)g->ndim * sizeof *x.stride);
  return x;
}

cuda_matrix cuda_transposed(cuda_matrix x) { return (cuda_matrix){x.dtype, x.col, x.row}; }

cuda_matrix cuda_dense_matrix(ambi_dtype t, int64_t cols) {
  return (cuda_matrix){t, cuda_plain_axis(cols), cuda_plain_axis(1)};
}

/* ---- the texts: gemm.cu for each arithmetic; the others for f16 and bf16, and what A and B are dense along ---- */
/* The stride of an axis of that many, or 0 when it is nested; of an axis of one, 1. */
static int64_t stride_of(const cuda_axis *x, int64_t count) { return count <= 1 ? 1 : x->dims == 1 ? x->stride[0] : 0; }
static bool lies_along(const cuda_axis *dense, int64_t count, const cuda_axis *other, int64_t others) {
  return stride_of(dense, count) == 1 && (others <= 1 || other->dims == 1);
}

static bool a_along_k(const cuda_product *p) { return lies_along(&p->a.col, p->k, &p->a.row, p->m); }
static bool b_along_k(const cuda_product *p) { return lies_along(&p->b.row, p->k, &p->b.col, p->n); }

static char *text_of(const cuda_product *p, const text_kind *t) {
  const bool any = t == &texts[ANY], groups = t == &texts[BY_GROUPS];
  char all[160], tiles[280] = "";
  snprintf(all, sizeof all,
           "#define COMPUTE_F64 %d\n#define NUMBERS 1\n#define DTYPES_0 0ull\n#define DTYPES_1 0ull\n#define USED 0u\n"
           "#define ADDS_TO 0u",
           p->compute == AMBI_F64);
  if (!any)
    snprintf(tiles, sizeof tiles,
             "#define FACTORS %d\n#define HOPPER %d\n#define TILE_M %d\n#define TILE_N %d\n#define THREADS %u\n"
             "#define LOADERS %u\n#define STAGES %u\n#define SHARED_BYTES %u\n#define A_K %d\n#define B_K %d",
             (int)p->a.dtype, groups, (int)t->rows, (int)t->cols, t->x, t->loaders, t->stages, t->shared, a_along_k(p),
             b_along_k(p));
  const char *const by_any[] = {all, prelude_cu, matrices_cu, gemm_cu};
  const char *const by_warps[] = {all, prelude_cu, matrices_cu, tensor_cu, tiles, halves_cu, gemm16_cu};
  const char *const by_groups[] = {all,      prelude_cu, matrices_cu, tensor_cu, barriers_cu,
                                   wgmma_cu, tiles,      halves_cu,   gemm90_cu};
  return any ? cuda_join(by_any, 4) : groups ? cuda_join(by_groups, 9) : cuda_join(by_warps, 7);
}

/* Whether tensor cores take it as it is. */
static bool suits_tensor(const cuda_product *p) {
  const bool a_m = lies_along(&p->a.row, p->m, &p->a.col, p->k), b_n = lies_along(&p->b.col, p->n, &p->b.row, p->k);
  const bool halves = p->a.dtype == AMBI_F16 || p->a.dtype == AMBI_BF16;
  const bool plain = (p->m <= 1 || p->c.row.dims == 1) && (p->n <= 1 || p->c.col.dims == 1);
  return halves && p->a.dtype == p->b.dtype && p->compute == AMBI_F32 && plain && (a_m || a_along_k(p)) &&
         (b_n || b_along_k(p));
}

/* ---- which of them ---- */
/* cuBLASLt adds up as it likes. Where few results are long sums, no time is lost by adding up with care. */
static bool prefers_text(const cuda_plan *k, const cuda_product *p) {
  enum { LONG_SUM = 1024, FEW_RESULTS = 1024 };
  if (k->dev->special == SPECIAL_LARGE) return p->k > LONG_SUM && p->m < FEW_RESULTS && p->m * p->n < FEW_RESULTS;
  return k->dev->special == SPECIAL_NEVER;
}

/* Elements of A from which its row sums cost less in cuBLASLt's epilogue than read once more (0: they never do), if no
 * size is odd: seen on an H200, 3% less then, but 16383 x 1025 x 1023 takes five times as long. */
static const int64_t db_pays[] = {[AMBI_F32] = 1 << 22, [AMBI_F16] = 1 << 22, [AMBI_BF16] = 1 << 22, [AMBI_F64] = 0};

static bool prefers_epilogue(const cuda_plan *k, const cuda_product *p) {
  const int64_t least = db_pays[p->a.dtype];
  const bool even = p->m % 8 == 0 && p->n % 8 == 0 && p->k % 8 == 0;
  if (p->db == AMBI_NONE || prefers_text(k, p)) return false;
  return k->dev->special == SPECIAL_ALWAYS || (even && least > 0 && p->m >= ceil_div(least, p->k));
}

/* Small products are not worth another text. */
static bool prefers_tensor(const cuda_plan *k, const cuda_product *p) {
  enum { SMALL = 1 << 21 };
  const bool large = (double)p->m * (double)p->n * (double)p->k >= SMALL;
  if (texts[BY_WARPS].shared > k->dev->shared_bytes || prefers_text(k, p)) return false;
  return suits_tensor(p) && (large || k->dev->special == SPECIAL_ALWAYS);
}

/* Seen on an H200: large products take cuBLASLt twice as long where lines of 16 bits begin at odd places. */
static bool prefers_own(const cuda_plan *k, const cuda_product *p) {
  const double large = 8e9;
  const cuda_axis *lines[3] = {a_along_k(p) ? &p->a.row : &p->a.col, b_along_k(p) ? &p->b.col : &p->b.row,
                               p->c.col.stride[0] == 1 ? &p->c.row : &p->c.col};
  bool odd = false;
  if (k->dev->arch != 90 || k->dev->special != SPECIAL_LARGE || !prefers_tensor(k, p)) return false;
  for (int i = 0; i < 3; i++) odd = odd || lines[i]->stride[0] % 2;
  return odd && (double)p->m * (double)p->n * (double)p->k >= large;
}

static int64_t tiles_of(const cuda_product *p, const text_kind *t) {
  return ceil_div(p->m, t->rows) * ceil_div(p->n, t->cols);
}
static int64_t tiles(const cuda_gemm *g) { return tiles_of(&g->p, g->text); }

/* Groups of warps want tiles for all multiprocessors. */
static const text_kind *text_for(const cuda_plan *k, const cuda_product *p) {
  const text_kind *groups = &texts[BY_GROUPS];
  const bool many = tiles_of(p, groups) >= k->dev->multiprocessors || k->dev->special == SPECIAL_ALWAYS;
  if (!prefers_tensor(k, p)) return &texts[ANY];
  return many && compile_hopper(k->dev) && groups->shared <= k->dev->shared_bytes ? groups : &texts[BY_WARPS];
}

/* Enough blocks for all multiprocessors, if the sums are long enough. */
static int64_t splits_of(const cuda_plan *k, const cuda_gemm *g) {
  int64_t wanted = 2 * (int64_t)k->dev->multiprocessors / tiles(g), most = g->p.k / g->text->deep;
  int64_t splits = wanted < most ? wanted : most;
  return splits < 1 ? 1 : splits;
}

/* Factor 0 is A, factor 1 B: rows of `width` neighbours, and how many results each number has a part in */
typedef struct {
  cuda_axis *rows;
  int64_t count, width, uses;
} factor;
static factor factor_of(cuda_product *p, int f) {
  const bool along_k = f ? b_along_k(p) : a_along_k(p);
  const int64_t across = f ? p->n : p->m;
  cuda_matrix *x = f ? &p->b : &p->a;
  return (factor){f == along_k ? &x->col : &x->row, along_k ? across : p->k, along_k ? p->k : across, f ? p->m : p->n};
}

/* A factor is packed where its rows begin anywhere and enough blocks read it. Not where they overlap, or are so short,
 * that it would take more memory than it has. */
static void plan_packing(const cuda_plan *k, cuda_gemm *g, int f) {
  enum { OFTEN = 512, WORD = 8, APART = 256 }; /* WORD: elements in 16 bytes */
  const factor x = factor_of(&g->p, f);
  const int64_t stride = x.rows->stride[0], pitch = ceil_div(x.width, WORD) * WORD;
  const bool often = x.uses >= OFTEN || k->dev->special == SPECIAL_ALWAYS;
  if (x.count <= 1 || stride % WORD == 0 || (stride < 0 ? -stride : stride) < x.width || x.width < WORD || !often)
    return;
  g->bytes = (g->bytes + APART - 1) / APART * APART;
  g->packed[f] = (pack_args){.to = g->bytes, .rows = x.count, .width = x.width, .stride = stride, .pitch = pitch};
  g->bytes += (uint64_t)x.count * (uint64_t)pitch * 2;
  x.rows->stride[0] = pitch;
}

static ambi_status plan_launches(cuda_plan *k, cuda_gemm *g) {
  const text_kind *t = g->text;
  const bool groups = t == &texts[BY_GROUPS];
  int text;
  TRY(cuda_add_text(k, text_of(&g->p, t), groups, &text));
  for (int f = 0; f < 2; f++)
    g->pack[f] =
        cuda_held_in(k, text, "product_pack", cuda_blocks(k, ceil_div(g->packed[f].rows, 8), 16), 1, 256, 1, 0);
  g->product = cuda_held_in(k, text, t == &texts[ANY] ? "gemm" : "product",
                            groups ? cuda_blocks(k, tiles(g), 1) : tiles(g), /* blocks take several there */
                            g->splits, (int)t->x, (int)t->y, t->shared);
  g->sum = cuda_held_in(k, text, "gemm_sum", g->splits > 1 ? ceil_div(g->p.m * g->p.n, 256) : 0, 1, 256, 1, 0);
  return AMBI_OK;
}

ambi_status cuda_gemm_make(cuda_plan *k, const cuda_product *p, cuda_gemm **out) {
  cuda_gemm *g = calloc(1, sizeof *g);
  *out = g;
  if (!g) return fail(AMBI_NO_MEMORY, "%s: no memory for a plan", k->p->def->info.name);
  g->p = *p;
  if (p->m == 0 || p->n == 0) return AMBI_OK;
  if (!prefers_text(k, p) && !prefers_own(k, p)) g->blas = blas_make(k->dev, p, false);
  if (g->blas && prefers_epilogue(k, p)) g->with_db = blas_make(k->dev, p, true);
  g->text = g->blas ? &texts[ANY] : text_for(k, p);
  if (tiles(g) > INT32_MAX)
    return fail(AMBI_UNSUPPORTED, "%s: a product of %lld x %lld is too large for a launch", k->p->def->info.name,
                (long long)p->m, (long long)p->n);
  g->splits = splits_of(k, g);
  if (g->splits > 1) g->bytes = (uint64_t)(g->splits * p->m * p->n * dtype_bytes(k->p->compute));
  for (int f = 0; f < 2 && g->text != &texts[ANY]; f++) plan_packing(k, g, f);
  if (g->blas && blas_workspace(g->blas) > g->bytes) g->bytes = blas_workspace(g->blas);
  if (g->with_db && blas_workspace(g->with_db) > g->bytes) g->bytes = blas_workspace(g->with_db);
  return plan_launches(k, g);
}

void cuda_gemm_free(const cuda_device *d, cuda_gemm *g) {
  if (g && g->blas) blas_free(d, g->blas);
  if (g && g->with_db) blas_free(d, g->with_db);
  free(g);
}

uint64_t cuda_gemm_workspace(const cuda_gemm *g) { return g->bytes; }

const char *cuda_gemm_name(const cuda_gemm *g) {
  return g->with_db ? "cuBLASLt, db in its epilogue" : g->blas ? "cuBLASLt" : g->text ? g->text->name : "";
}

/* ---- run ---- */
/* *at: where the factor is, and then where it is packed */
static ambi_status run_pack(const cuda_plan *k, const cuda_gemm *g, int f, uint64_t *at, uint64_t work, void *stream) {
  pack_args args = g->packed[f];
  if (args.rows == 0) return AMBI_OK;
  args.from = *at;
  args.to += work;
  *at = args.to;
  return cuda_launch_held(k, g->pack[f], &args, stream);
}

/* How a factor lies in memory, for the hardware that copies boxes of it; false: it cannot, as of one without elements.
 */
static bool describe(const cuda_api *api, uint64_t *map, uint64_t at, const factor *x, unsigned box_rows) {
  enum { TYPE_U16 = 1, SWIZZLE_128_BYTES = 3, PROMOTE_256_BYTES = 3 };
  const int64_t stride = x->count > 1 ? x->rows->stride[0] : ceil_div(x->width, 8) * 8;
  const uint64_t shape[2] = {(uint64_t)x->width, (uint64_t)x->count}, step = 2 * (uint64_t)stride;
  const unsigned box[2] = {64, box_rows}, steps[2] = {1, 1};
  if (x->width == 0 || x->count == 0 || x->width > INT32_MAX || x->count > INT32_MAX) return false;
  if (at % 16 || step % 16 || step >> 40) return false;
  return !api->cuTensorMapEncodeTiled(map, TYPE_U16, 2, cuda_pointer(at), shape, &step, box, steps, 0,
                                      SWIZZLE_128_BYTES, PROMOTE_256_BYTES, 0);
}

static bool describe_both(const cuda_plan *k, const cuda_gemm *g, gemm_args *args) {
  enum { DEPTH = 64 };
  cuda_product p = g->p;
  const factor a = factor_of(&p, 0), b = factor_of(&p, 1);
  const unsigned box_a = a_along_k(&p) ? (unsigned)g->text->rows : DEPTH,
                 box_b = b_along_k(&p) ? (unsigned)g->text->cols : DEPTH;
  return g->text == &texts[BY_GROUPS] && describe(&k->dev->api, args->map_a, args->a, &a, box_a) &&
         describe(&k->dev->api, args->map_b, args->b, &b, box_b);
}

static ambi_status run_text(const cuda_plan *k, const cuda_gemm *g, const cuda_operands *at, bool accumulate,
                            void *stream) {
  const cuda_product *p = &g->p;
  gemm_args args = {.a = at->a,
                    .b = at->b,
                    .bias = at->bias,
                    .c = at->c,
                    .m = p->m,
                    .n = p->n,
                    .k = p->k,
                    .at_a = p->a,
                    .at_b = p->b,
                    .at_c = p->c,
                    .bias_dtype = p->bias,
                    .bias_stride = p->bias_stride,
                    .adds = accumulate,
                    .work = at->work,
                    .splits = g->splits};
  TRY(run_pack(k, g, 0, &args.a, at->work, stream));
  TRY(run_pack(k, g, 1, &args.b, at->work, stream));
  args.boxed = describe_both(k, g, &args);
  TRY(cuda_launch_held(k, g->product, &args, stream));
  return cuda_launch_held(k, g->sum, &args, stream);
}

bool cuda_gemm_gives_db(const cuda_gemm *g, const cuda_operands *at) {
  return g->with_db && blas_takes(g->with_db, at);
}

ambi_status cuda_gemm_run(const cuda_plan *k, const cuda_gemm *g, const cuda_operands *at, bool accumulate,
                          void *stream) {
  if (!g->text) return AMBI_OK;
  if (cuda_gemm_gives_db(g, at)) return blas_run(k->dev, g->with_db, at, accumulate, stream);
  if (g->blas && blas_takes(g->blas, at)) return blas_run(k->dev, g->blas, at, accumulate, stream);
  return run_text(k, g, at, accumulate, stream);
}
