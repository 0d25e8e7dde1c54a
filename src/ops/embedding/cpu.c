/* embedding on the CPU.
 *
 *   forward   a task copies the rows of some tokens
 *   backward  tokens are sorted by word, each word's in their own order (a counting sort); then a task owns some rows
 * of dw and a tile of columns, and adds up the dy of each row's tokens: no two tasks write the same element, and the
 * order of a sum does not depend on the tasks. */
#include "backends/cpu/sums.h"
#include "ops/embedding/op.h"

enum { TOKENS = AMBI_EMBEDDING_TOKENS, W = AMBI_EMBEDDING_W, Y = AMBI_EMBEDDING_Y };
enum { DW = AMBI_GRAD(W), DY = AMBI_GRAD(Y) };

/* The row that token number i names, or -1 */
static int64_t row_of_token(const cpu_call *c, int64_t i) {
  const embedding_recipe *r = embedding_of(c->p);
  int64_t word = integer_at(c, TOKENS, grid_offset(&r->tokens, TOKENS, i));
  return word >= 0 && word < r->words ? word : -1;
}

/* Row i of y or dy; row v of w or dw */
static strip token_row(const cpu_call *c, int slot, int64_t i) {
  const embedding_recipe *r = embedding_of(c->p);
  return strip_of(c, slot, grid_offset(&r->tokens, slot, i), r->stride[slot]);
}
static strip word_row(const cpu_call *c, int slot, int64_t v) {
  const ambi_tensor *t = &c->p->t[slot];
  return strip_of(c, slot, v * t->stride[0], t->stride[1]);
}

/* ---- forward ---- */
static int64_t tokens_per_task(const embedding_recipe *r) { return max64(1, 16384 / max64(r->channels, 1)); }

static void put_all(const strip *s, int64_t n, real value) {
  TILE_OF_REALS tile[TILE];
  for (int64_t k = 0; k < min64(n, TILE); k++) tile[k] = value;
  for (int64_t k = 0; k < n; k += TILE) strip_put(s, k, min64(TILE, n - k), tile);
}

/* Rows of w lie anywhere: the next one, or its beginning, is prefetched before this one is copied. */
static void prefetch_row(const cpu_call *c, int64_t i) {
  enum { MOST = 4096 }; /* bytes; hardware goes on from there */
  strip w = word_row(c, W, max64(row_of_token(c, i), 0));
  int64_t bytes = w.stride == 1 ? min64(MOST, embedding_of(c->p)->channels * dtype_bytes(w.dtype)) : 0;
  for (int64_t k = 0; k < bytes; k += LINE) __builtin_prefetch(w.at + k, 0, 3);
}

static void forward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const embedding_recipe *r = embedding_of(c->p);
  int64_t first = task * tokens_per_task(r), end = min64(first + tokens_per_task(r), r->tokens.count);
  for (int64_t i = first; i < end; i++) {
    int64_t word = row_of_token(c, i);
    if (i + 1 < end) prefetch_row(c, i + 1);
    strip y = token_row(c, Y, i), w = word_row(c, W, max64(word, 0));
    if (word < 0)
      put_all(&y, r->channels, (real)NAN);
    else
      strip_copy(&y, 0, &w, 0, r->channels);
  }
  stream_fence();
}

static void forward(const cpu_call *c) {
  const embedding_recipe *r = embedding_of(c->p);
  if (r->channels > 0) pool_run(c->threads, ceil_div(r->tokens.count, tokens_per_task(r)), forward_task, (void *)c);
}

/* ---- backward ---- */
/* The tokens of word v are order[start[v]] .. order[start[v + 1] - 1], rising. */
typedef struct {
  int64_t *start; /* (V + 1) */
  int64_t *order; /* (N)     */
} sorted;

static sorted sorted_of(const cpu_call *c) {
  int64_t *memory = (int64_t *)(void *)c->workspace;
  return (sorted){memory, memory + embedding_of(c->p)->words + 1};
}

/* Counting sort. While tokens are placed, start[v + 1] is where the next token of word v goes; when all are, that is
 * where those of v + 1 begin. */
static void sort_tokens(const cpu_call *c) {
  const embedding_recipe *r = embedding_of(c->p);
  sorted s = sorted_of(c);
  int64_t *next = s.start + 1, placed = 0;
  memset(s.start, 0, (size_t)(r->words + 1) * sizeof *s.start);
  for (int64_t i = 0; i < r->tokens.count; i++) {
    int64_t word = row_of_token(c, i);
    if (word >= 0) next[word]++;
  }
  for (int64_t v = 0; v < r->words; v++) {
    int64_t count = next[v];
    next[v] = placed;
    placed += count;
  }
  for (int64_t i = 0; i < r->tokens.count; i++) {
    int64_t word = row_of_token(c, i);
    if (word >= 0) s.order[next[word]++] = i;
  }
}

/* out = sum of columns [k, k + n) of dy over `count` tokens: 32 at a time, those sums with Kahan's correction */
static void sum_tokens(const cpu_call *c, const int64_t *order, int64_t count, int64_t k, int64_t n, real *out) {
  TILE_OF_REALS tile[TILE], block[TILE], lost[TILE];
  memset(out, 0, (size_t)n * sizeof(real));
  memset(lost, 0, (size_t)n * sizeof(real));
  for (int64_t first = 0; first < count; first += BLOCK_ROWS) {
    memset(block, 0, (size_t)n * sizeof(real));
    for (int64_t i = first; i < min64(first + BLOCK_ROWS, count); i++) {
      strip row = token_row(c, DY, order[i]);
      const real *dy = strip_in(&row, k, n, tile);
      FOR_LANES(j, n, { v_put(block + j, v_get(block + j, left) + v_get(dy + j, left), left); });
    }
    kahan_add(out, lost, block, n);
  }
}

static void put_sum(const cpu_call *c, const strip *dw, const int64_t *order, int64_t count, int64_t k, int64_t n) {
  static const double zeros[TILE]; /* in every dtype */
  TILE_OF_REALS sum[TILE];
  strip from = {.at = (char *)zeros, .stride = 1, .dtype = dw->dtype};
  if (count == 0 && dw->accumulate) return;
  if (count == 1) from = token_row(c, DY, order[0]); /* the most common of those that occur */
  if (count <= 1) {
    strip_copy(dw, k, &from, count == 0 ? 0 : k, n);
    return;
  }
  sum_tokens(c, order, count, k, n, sum);
  strip_put(dw, k, n, sum);
}

/* Few enough rows that frequent words, which tend to be neighbours, are shared between tasks. */
static int64_t words_per_task(const embedding_recipe *r) { return max64(16, 8192 / max64(r->channels, 1)); }

static void backward_task(void *context, int64_t task) {
  const cpu_call *c = context;
  const embedding_recipe *r = embedding_of(c->p);
  sorted s = sorted_of(c);
  int64_t tiles = ceil_div(r->channels, TILE), k = task % tiles * TILE, n = min64(TILE, r->channels - k);
  int64_t first = task / tiles * words_per_task(r), end = min64(first + words_per_task(r), r->words);
  for (int64_t v = first; v < end; v++) {
    strip dw = word_row(c, DW, v);
    put_sum(c, &dw, s.order + s.start[v], s.start[v + 1] - s.start[v], k, n);
  }
  stream_fence();
}

static void backward(const cpu_call *c) {
  const embedding_recipe *r = embedding_of(c->p);
  if (r->channels == 0 || r->words == 0) return;
  sort_tokens(c);
  pool_run(c->threads, ceil_div(r->words, words_per_task(r)) * ceil_div(r->channels, TILE), backward_task, (void *)c);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  const embedding_recipe *r = embedding_of(p);
  return is_backward(p) ? ((uint64_t)r->words + 1 + (uint64_t)r->tokens.count) * sizeof(int64_t) : 0;
}

const cpu_kernel CPU_KERNEL(embedding) = {"sorted", workspace, forward, backward};
