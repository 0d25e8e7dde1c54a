/* attention on CUDA: the numbers of its texts. */
#include "backends/cuda/cuda.h"

#include "backends/cuda/text.h"
#include "ops/attention/op.h"

enum { K = AMBI_ATTENTION_K, V = AMBI_ATTENTION_V, O = AMBI_ATTENTION_O, LSE = AMBI_ATTENTION_LSE };
enum { DQ = AMBI_GRAD(AMBI_ATTENTION_Q), DK = AMBI_GRAD(K), DV = AMBI_GRAD(V), DO = AMBI_GRAD(O) };

extern const char attention_cu[], attention_general_cu[], attention_forward16_cu[], attention_backward16_cu[],
    attention_forward90_cu[], attention_backward90_cu[], attention_forward32_cu[], attention_backward32_cu[];

enum { MOST_ROWS = 1 << 29 }; /* of queries and keys, for the texts that count them in int; windows to twice that */

static void say_sizes(cuda_plan *k, const attention_recipe *r) {
  cuda_number(k, "BATCHES", r->batches);
  cuda_number(k, "HEADS", r->heads);
  cuda_number(k, "GROUPS", r->groups);
  cuda_number(k, "TOGETHER", r->heads_per_group);
  cuda_number(k, "QUERIES", r->queries);
  cuda_number(k, "KEYS", r->keys);
  cuda_number(k, "CAUSAL", r->causal);
  cuda_number(k, "WIDTH", r->width);
  cuda_number(k, "WINDOW", k->special && r->window > 2 * MOST_ROWS ? 2 * MOST_ROWS : r->window);
  cuda_real(k, "SCALE", r->scale);
  cuda_real(k, "SOFTCAP", r->softcap);
  if (is_backward(k->p))
    cuda_workspace(k, "STATISTICS", 2 * (uint64_t)(r->batches * r->heads * r->queries * (int64_t)real_bytes(k->p)));
}

/* One block for every `each` queries of every head */
static int64_t query_blocks(const attention_recipe *r, int64_t each) {
  return r->batches * r->heads * ceil_div(r->queries, each);
}
static int64_t key_blocks(const attention_recipe *r, int64_t each) {
  return r->batches * r->groups * ceil_div(r->keys, each);
}

static bool wants_keys(const problem *p) { return writes_slot(p, DK) || writes_slot(p, DV); }

/* ---- general.cu ---- */
static int64_t general_shared(const problem *p, int64_t tile, int64_t depth) {
  int64_t rows = is_backward(p) ? 4 : 3, squares = is_backward(p) ? 2 : 1;
  return (rows * tile * (depth + 1) + squares * tile * (tile + 1)) * (int64_t)real_bytes(p) + tile * (tile + 1);
}

/* As large as registers (64 sums of 16 x 16 threads) and shared memory allow */
static int64_t general_tile(const cuda_plan *k, int64_t depth) {
  int64_t tile = 64;
  while (tile > 8 &&
         (tile * depth * (int64_t)real_bytes(k->p) > 32768 || general_shared(k->p, tile, depth) > k->dev->shared_bytes))
    tile /= 2;
  return tile;
}

static ambi_status plan_general(cuda_plan *k, const attention_recipe *r) {
  int64_t depth = r->width <= 64 ? 64 : r->width <= 128 ? 128 : 256;
  int64_t tile = general_tile(k, depth), side = tile < 16 ? tile : 16, shared = general_shared(k->p, tile, depth);
  int threads = (int)(side * side);
  k->variant = "general";
  k->last = attention_general_cu;
  cuda_fix(k, "GENERAL_DEPTH", depth);
  cuda_fix(k, "GENERAL_TILE", tile);
  cuda_math(k);
  if (!is_backward(k->p)) {
    cuda_launch(k, "attention_forward", query_blocks(r, tile), 1, threads, 1, shared);
    return AMBI_OK;
  }
  cuda_launch(k, "attention_statistics", query_blocks(r, tile), 1, threads, 1, shared);
  if (writes_slot(k->p, DQ)) cuda_launch(k, "attention_dq", query_blocks(r, tile), 1, threads, 1, shared);
  if (wants_keys(k->p)) cuda_launch(k, "attention_dkv", key_blocks(r, tile), 1, threads, 1, shared);
  return AMBI_OK;
}

/* ---- forward32.cu, backward32.cu ---- */
static const double log2e = 1.4426950408889634;

static bool in_range(double v) { return v > 1e-20 && v < 1e20; } /* and so are its products with 2 log2 e in f32 */

/* One dtype, rows of whole chunks of 16 bytes */
static bool is_plain(const problem *p, const attention_recipe *r, int64_t chunk) {
  const ambi_dtype type = p->t[AMBI_ATTENTION_Q].dtype;
  const uint32_t others = AMBI_BIT(AMBI_ATTENTION_LENGTHS) | AMBI_BIT(LSE);
  for (uint32_t m = (p->reads | p->writes) & ~others; m; m &= m - 1) {
    const int s = __builtin_ctz(m);
    if (p->t[s].dtype != type || (r->stride[s].d != 1 && r->width > 1)) return false;
  }
  return p->compute == AMBI_F32 && r->width > 0 && r->width % chunk == 0 && r->queries <= MOST_ROWS &&
         r->keys <= MOST_ROWS && in_range(r->scale) && (r->softcap == 0 || in_range(r->softcap));
}

/* lse and, unless dv alone is wanted, o */
static bool all_saved(const problem *p) {
  const bool needs_o = writes_slot(p, DQ) || writes_slot(p, DK);
  return reads_slot(p, LSE) && (!needs_o || reads_slot(p, O));
}

static void launch_statistics(cuda_plan *k, const attention_recipe *r) {
  cuda_launch(k, "attention_statistics", ceil_div(r->batches * r->heads * r->queries, 16), 1, 128, 1, 0);
}

enum { ROWS_32 = 64, THREADS_32 = 128, BLOCKS_32 = 2 }; /* the last: of a multiprocessor */

/* Of `mine` tiles of the block's rows, two of what it goes past and one of weights */
static int64_t shared_32(const attention_recipe *r, int64_t mine, int64_t columns) {
  const int64_t pitch = ceil_div(r->width, 32) * 32 + 4;
  return ((mine * ROWS_32 + 2 * columns) * pitch + ROWS_32 * (columns + 8)) * (int64_t)sizeof(float);
}

/* Past how many columns at a time: the most of which two blocks fit a multiprocessor, where a block may have nearly all
 * of its shared memory; else the most that fit. 0: none do. */
static int64_t columns_32(const cuda_plan *k, const attention_recipe *r, int64_t mine, int64_t most) {
  enum { KEPT = 1024 }; /* bytes that a block takes besides */
  const int64_t all = k->dev->shared_bytes;
  for (int64_t n = most; n >= 16; n -= 16)
    if (BLOCKS_32 * (shared_32(r, mine, n) + KEPT) <= all + KEPT) return n;
  for (int64_t n = most; n >= 16; n -= 16)
    if (shared_32(r, mine, n) <= all) return n;
  return 0;
}

static int64_t forward_32(const cuda_plan *k, const attention_recipe *r) { return columns_32(k, r, 1, 64); }
static int64_t backward_32(const cuda_plan *k, const attention_recipe *r) { return columns_32(k, r, 2, 32); }

static bool fits_32(const cuda_plan *k, const attention_recipe *r) {
  return k->dev->arch >= 80 && k->p->t[AMBI_ATTENTION_Q].dtype == AMBI_F32 && is_plain(k->p, r, 4) && r->width <= 128 &&
         forward_32(k, r) && backward_32(k, r);
}

static void say_32(cuda_plan *k, const attention_recipe *r) {
  k->variant = "tiles";
  cuda_fix(k, "ROWS_FIT_INT", 1);
  cuda_fix(k, "HEAD_DEPTH", ceil_div(r->width, 32) * 32);
  cuda_fix(k, "BLOCK_ROWS", ROWS_32);
  cuda_fix(k, "BLOCKS", BLOCKS_32);
  cuda_fix(k, "FORWARD_KEYS", forward_32(k, r));
  cuda_fix(k, "HAS_SOFTCAP", r->softcap > 0);
  cuda_real(k, "EXPONENT", r->softcap > 0 ? log2e : r->scale * log2e);
  cuda_real(k, "CAP_IN", r->softcap > 0 ? r->scale / r->softcap : 0);
  if (r->softcap > 0) cuda_math(k);
  cuda_part(k, ffma_cu);
}

static ambi_status plan_forward32(cuda_plan *k, const attention_recipe *r) {
  say_32(k, r);
  k->last = attention_forward32_cu;
  cuda_launch(k, "attention_forward", query_blocks(r, ROWS_32), 1, THREADS_32, 1, shared_32(r, 1, forward_32(k, r)));
  return AMBI_OK;
}

static ambi_status plan_backward32(cuda_plan *k, const attention_recipe *r) {
  const int64_t columns = backward_32(k, r), shared = shared_32(r, 2, columns);
  say_32(k, r);
  k->last = attention_backward32_cu;
  cuda_fix(k, "BACKWARD_COLUMNS", columns);
  if (all_saved(k->p)) {
    launch_statistics(k, r);
  } else {
    k->more = attention_forward32_cu;
    cuda_launch(k, "attention_solve", query_blocks(r, ROWS_32), 1, THREADS_32, 1, shared_32(r, 1, forward_32(k, r)));
  }
  if (writes_slot(k->p, DQ)) cuda_launch(k, "attention_dq", query_blocks(r, ROWS_32), 1, THREADS_32, 1, shared);
  if (wants_keys(k->p)) cuda_launch(k, "attention_dkv", key_blocks(r, ROWS_32), 1, THREADS_32, 1, shared);
  return AMBI_OK;
}

/* ---- forward16.cu, backward16.cu ---- */
/* How a kernel is cut: so many warps of 16 mt rows each, past so many other rows at a time */
typedef struct {
  int64_t mt, warps, others;
} cut;
typedef int64_t shared_of(const attention_recipe *r, cut c);

/* Of several ways the first that shared memory has room for; the last, if it has for none: fits_16 asks again */
static cut choose(const cuda_plan *k, const attention_recipe *r, const cut *ways, int count, shared_of *shared) {
  int i = 0;
  while (i < count - 1 && shared(r, ways[i]) > k->dev->shared_bytes) i++;
  return ways[i];
}

static bool is_16(const problem *p, const attention_recipe *r) {
  const ambi_dtype type = p->t[AMBI_ATTENTION_Q].dtype;
  return (type == AMBI_F16 || type == AMBI_BF16) && is_plain(p, r, 8);
}

static int64_t pitch_of(const attention_recipe *r) {
  return r->width <= 32 ? 32 : r->width <= 64 ? 64 : r->width <= 128 ? 128 : 256;
}

static int64_t forward_shared(const attention_recipe *r, cut c) {
  return (16 * c.mt * c.warps + 4 * c.others) * pitch_of(r) * 2;
}

static cut forward_cut(const cuda_plan *k, const attention_recipe *r) {
  static const cut wide[] = {{1, 8, 64}, {1, 4, 64}, {1, 4, 32}};
  return r->width <= 128 ? (cut){2, 4, r->width <= 64 ? 128 : 64} : choose(k, r, wide, 3, forward_shared);
}

static void say_cut(cuda_plan *k, const char *mt, const char *warps, const char *others, cut c) {
  cuda_fix(k, mt, c.mt);
  cuda_fix(k, warps, c.warps);
  cuda_fix(k, others, c.others);
}

static void say_16(cuda_plan *k, const attention_recipe *r, int64_t depth) {
  cuda_fix(k, "ROWS_FIT_INT", 1);
  cuda_fix(k, "HEAD_DEPTH", depth);
  cuda_fix(k, "HAS_SOFTCAP", r->softcap > 0);
  cuda_real(k, "SCALE_LOG2", r->scale * log2e);
  cuda_real(k, "CAP_IN", r->softcap > 0 ? 2 * r->scale * log2e / r->softcap : 0);
  cuda_real(k, "CAP_OUT", r->softcap / r->scale);
  cuda_real(k, "CAP_INVERSE", r->softcap > 0 ? r->scale / r->softcap : 0);
  cuda_part(k, tensor_cu);
}

/* How many blocks share the keys of one: where queries are few, enough to have two blocks for each multiprocessor, of
 * at least four tiles each. */
static int64_t splits_of(const cuda_plan *k, const attention_recipe *r, cut c) {
  const int64_t blocks = query_blocks(r, 16 * c.mt * c.warps), wanted = 2 * (int64_t)k->dev->multiprocessors;
  const int64_t span = r->window && r->window < r->keys ? 2 * r->window : r->keys, most = span / (4 * c.others);
  const int64_t splits = blocks > 0 && blocks < wanted ? wanted / blocks : 1;
  return splits < most ? splits : most > 1 ? most : 1;
}

static ambi_status plan_forward16(cuda_plan *k, const attention_recipe *r) {
  const cut c = forward_cut(k, r);
  const int64_t splits = splits_of(k, r, c), rows = r->batches * r->heads * r->queries;
  k->variant = splits > 1 ? "tensor cores, split" : "tensor cores";
  k->last = attention_forward16_cu;
  say_16(k, r, ceil_div(r->width, 16) * 16);
  say_cut(k, "FORWARD_MT", "FORWARD_WARPS", "FORWARD_KEYS", c);
  cuda_fix(k, "SPLITTING", splits > 1);
  cuda_number(k, "SPLITS", splits);
  cuda_workspace(k, "PARTS", splits > 1 ? (uint64_t)(splits * rows * (r->width + 2)) * sizeof(float) : 0);
  cuda_launch(k, "attention_forward", query_blocks(r, 16 * c.mt * c.warps), splits, (int)(32 * c.warps), 1,
              forward_shared(r, c));
  if (splits > 1) cuda_launch(k, "attention_combine", ceil_div(rows, 4), 1, 128, 1, 0);
  return AMBI_OK;
}

static int64_t dq_shared(const attention_recipe *r, cut c) {
  return (2 * 16 * c.mt * c.warps + 4 * c.others) * pitch_of(r) * 2;
}
static int64_t dkv_shared(const attention_recipe *r, cut c) { /* statistics of two stages, and what warps exchange */
  return dq_shared(r, c) + 4 * c.others * 4 + 2 * 16 * c.warps * c.others * 2;
}

static cut dq_cut(const attention_recipe *r) { return r->width <= 128 ? (cut){2, 4, 32} : (cut){1, 4, 32}; }
static cut dkv_cut(const cuda_plan *k, const attention_recipe *r) {
  static const cut narrow[] = {{1, 8, 64}, {1, 4, 32}}, wide[] = {{1, 8, 32}, {1, 4, 32}};
  return choose(k, r, r->width <= 128 ? narrow : wide, 2, dkv_shared);
}

static ambi_status plan_backward16(cuda_plan *k, const attention_recipe *r) {
  const cut f = forward_cut(k, r), q = dq_cut(r), kv = dkv_cut(k, r);
  k->variant = "tensor cores";
  k->last = attention_backward16_cu;
  say_16(k, r, ceil_div(r->width, 16) * 16);
  say_cut(k, "DQ_MT", "DQ_WARPS", "DQ_KEYS", q);
  say_cut(k, "DKV_MT", "DKV_WARPS", "DKV_QUERIES", kv);
  if (all_saved(k->p)) {
    launch_statistics(k, r);
  } else {
    k->more = attention_forward16_cu;
    say_cut(k, "FORWARD_MT", "FORWARD_WARPS", "FORWARD_KEYS", f);
    cuda_launch(k, "attention_solve", query_blocks(r, 16 * f.mt * f.warps), 1, (int)(32 * f.warps), 1,
                forward_shared(r, f));
  }
  if (writes_slot(k->p, DQ))
    cuda_launch(k, "attention_dq", query_blocks(r, 16 * q.mt * q.warps), 1, (int)(32 * q.warps), 1, dq_shared(r, q));
  if (wants_keys(k->p))
    cuda_launch(k, "attention_dkv", key_blocks(r, 16 * kv.warps), r->width > 128 ? 2 : 1, (int)(32 * kv.warps), 1,
                dkv_shared(r, kv));
  return AMBI_OK;
}

static bool fits_16(const cuda_plan *k, const attention_recipe *r) {
  const int64_t most = k->dev->shared_bytes;
  if (k->dev->arch < 80 || !is_16(k->p, r) || forward_shared(r, forward_cut(k, r)) > most) return false;
  return !is_backward(k->p) || (dq_shared(r, dq_cut(r)) <= most && dkv_shared(r, dkv_cut(k, r)) <= most);
}

/* ---- forward90.cu, backward90.cu ---- */
enum {
  LOADERS = 4,
  BESIDES = 1024 + 256
}; /* warps that bring tiles; bytes to begin at a whole atom, and for barriers */

static cut forward90_cut(void) { return (cut){1, 8, 128}; }

/* Rows that asynchronous copies take, and enough blocks for the GPU without sharing keys between them */
static bool fits_90(const cuda_plan *k, const attention_recipe *r) {
  if (!compile_hopper(k->dev) || r->width <= 32 || r->width > 128) return false;
  for (uint32_t m = (k->p->reads | k->p->writes) & ~(AMBI_BIT(AMBI_ATTENTION_LENGTHS) | AMBI_BIT(LSE)); m; m &= m - 1) {
    const attention_strides *s = &r->stride[__builtin_ctz(m)];
    if ((s->b | s->h | s->l) % 8 != 0) return false;
  }
  return splits_of(k, r, forward_cut(k, r)) == 1;
}

/* Besides: lse and o were saved, and of dk and dv both or none are wanted. */
static bool fits_backward90(const cuda_plan *k, const attention_recipe *r) {
  return fits_90(k, r) && all_saved(k->p) && writes_slot(k->p, DK) == writes_slot(k->p, DV);
}

/* Causal rows have more to do the later they are: PAIRED, a block takes a late and an early one together. */
static bool is_paired(const cuda_plan *k, const attention_recipe *r) {
  const int64_t rows = r->queries < r->keys ? r->queries : r->keys;
  return r->causal && (r->window == 0 || r->window >= r->keys) &&
         r->batches * r->groups * ceil_div(rows, 256) >= k->dev->multiprocessors;
}

static void say_90(cuda_plan *k, const attention_recipe *r, const char *shared, const char *own) {
  k->variant = "tensor cores, wgmma";
  k->hopper = true;
  k->last = shared;
  k->more = own;
  say_16(k, r, pitch_of(r));
  cuda_part(k, barriers_cu);
  cuda_part(k, wgmma_cu);
  cuda_fix(k, "LOADERS", LOADERS);
  cuda_fix(k, "PAIRED", is_paired(k, r));
}

/* How many blocks take all rows: as many as there are multiprocessors, each one place after the other, where the last
 * round leaves few of them idle; else a block for every place or pair. */
static int64_t blocks_90(const cuda_plan *k, int64_t heads, int64_t rows, const attention_recipe *r) {
  const int64_t each = ceil_div(rows, 128), all = heads * (is_paired(k, r) ? ceil_div(each, 2) : each);
  const int64_t most = k->dev->multiprocessors, rounds = ceil_div(all, most);
  return all > most && all * 10 > rounds * most * 9 ? most : all;
}

static ambi_status plan_forward90(cuda_plan *k, const attention_recipe *r) {
  const cut c = forward90_cut();
  say_90(k, r, attention_forward16_cu, attention_forward90_cu);
  say_cut(k, "FORWARD_MT", "FORWARD_WARPS", "FORWARD_KEYS", c);
  cuda_fix(k, "SPLITTING", 0);
  cuda_launch(k, "attention_forward", blocks_90(k, r->batches * r->heads, r->queries, r), 1,
              (int)(32 * (c.warps + LOADERS)), 1, forward_shared(r, c) + BESIDES);
  return AMBI_OK;
}

static ambi_status plan_backward90(cuda_plan *k, const attention_recipe *r) {
  enum { ROWS = 128, THREADS = 2 * ROWS + 32 * LOADERS, KEYS = 128, QUERIES = 64 };
  say_90(k, r, attention_backward16_cu, attention_backward90_cu);
  cuda_fix(k, "DQ_KEYS", KEYS);
  cuda_fix(k, "DKV_QUERIES", QUERIES);
  launch_statistics(k, r);
  if (writes_slot(k->p, DQ))
    cuda_launch(k, "attention_dq", blocks_90(k, r->batches * r->heads, r->queries, r), 1, THREADS, 1,
                (2 * ROWS + 4 * KEYS) * pitch_of(r) * 2 + BESIDES);
  if (wants_keys(k->p))
    cuda_launch(k, "attention_dkv", blocks_90(k, r->batches * r->groups, r->keys, r), 1, THREADS, 1,
                (2 * ROWS + 6 * QUERIES) * pitch_of(r) * 2 + 6 * QUERIES * 4 + BESIDES);
  return AMBI_OK;
}

static ambi_status plan(cuda_plan *k) {
  const attention_recipe *r = attention(k->p);
  const bool is_32 = fits_32(k, r), fast = cuda_specialise(k, is_32 || fits_16(k, r));
  say_sizes(k, r);
  cuda_table(k, "STRIDES", 4, &r->stride[0].b);
  if (!fast) return plan_general(k, r);
  if (is_backward(k->p)) k->apart = "attention_dkv"; /* takes as long to compile as all others */
  if (is_32) return is_backward(k->p) ? plan_backward32(k, r) : plan_forward32(k, r);
  if (is_backward(k->p)) return fits_backward90(k, r) ? plan_backward90(k, r) : plan_backward16(k, r);
  return fits_90(k, r) ? plan_forward90(k, r) : plan_forward16(k, r);
}

const cuda_kernel attention_cuda = {attention_cu, plan};
