/* gemm.c -- how C, k and the work are cut; which kernel multiplies. Knows no instruction set. See gemm.h. */
#include "backends/cpu/gemm.h"

#include <string.h>

/* Most rows and columns of C in a block: its panels of A and B then fit the last-level cache. */
enum { BLOCK = 2048 };
/* Most results of a task, whose rows are its kernel's to say */
enum { TASK_COLS = 512, TASKS_PER_THREAD = 4, SKINNY_PAD = 16 };

static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* ---- axes ---- */
gemm_axis gemm_plain_axis(int64_t stride) { return (gemm_axis){.ndim = 1, .shape = {INT64_MAX}, .stride = {stride}}; }

gemm_axis gemm_grid_axis(const grid *g, int slot) {
  gemm_axis x = {.ndim = g->ndim};
  memcpy(x.shape, g->shape, sizeof x.shape);
  memcpy(x.stride, g->stride[slot], sizeof x.stride);
  return x;
}

gemm_matrix gemm_transposed(gemm_matrix x) { return (gemm_matrix){x.dtype, x.col, x.row}; }

static bool is_even(const gemm_axis *x) { return x->ndim <= 1; }
static int64_t step_of(const gemm_axis *x) { return x->ndim == 1 ? x->stride[0] : 0; }

/* Offsets of indices first .. first+n-1. */
static void offsets(const gemm_axis *x, int64_t first, int64_t n, int64_t *out) {
  if (is_even(x)) {
    for (int64_t i = 0; i < n; i++) out[i] = (first + i) * step_of(x);
    return;
  }
  int last = x->ndim - 1;
  for (int64_t i = 0; i < n;) { /* a run along the last axis at a time */
    int64_t index = first + i, at = 0, inner = index % x->shape[last];
    for (int d = last; d >= 0; d--) {
      at += index % x->shape[d] * x->stride[d];
      index /= x->shape[d];
    }
    for (; i < n && inner < x->shape[last]; i++, inner++, at += x->stride[last]) out[i] = at;
  }
}

/* ---- which kernel ---- */
#if defined(__x86_64__)
static bool has_amx(const cpu_features *f) { return f->amx_bf16; }
static bool has_avx512_bf16(const cpu_features *f) { return f->avx512_bf16; }

/* Multipliers of bf16 by bf16, best first. */
static const struct {
  bool (*usable)(const cpu_features *f);
  const gemm_tiles *tiles;
} bf16_tiles[] = {{has_amx, &gemm_amx_bf16}, {has_avx512_bf16, &gemm_avx512_bf16}};
#endif

const gemm_tiles *gemm_choose(const gemm_isa *isa, const cpu_features *f, const gemm_shape *s) {
#if defined(__x86_64__)
  bool pairs = s->a.dtype == AMBI_BF16 && s->b.dtype == AMBI_BF16 && isa->real_bytes == sizeof(float);
  for (size_t i = 0; pairs && i < sizeof bf16_tiles / sizeof *bf16_tiles; i++)
    if (bf16_tiles[i].usable(f)) return bf16_tiles[i].tiles;
#else
  (void)f, (void)s;
#endif
  return &isa->tiles;
}

/* ---- the cut ---- */
typedef struct {
  const gemm_isa *isa;
  const gemm_tiles *tiles;
  gemm_shape s;
  gemm_data d;
  int threads;
  bool skinny;
  bool keeps_sums;                      /* sums over several k blocks cannot be kept in C: it is too narrow    */
  int64_t rows, cols, depth;            /* of a block of C, and of k                             */
  int64_t k_blocks, k_at_once;          /* k blocks in all, and packed together                  */
  int64_t a_panel, b_panel;             /* bytes                                                 */
  uint64_t a_bytes, b_bytes, sum_bytes; /* of the workspace                                     */
  char *a, *b, *sums;
  int64_t i0, j0, p0, m, n, kp; /* the block in hand: first row, column, k block; how many of each */
  int64_t task_rows, task_cols; /* panels of a multiplying task                          */
  int64_t units;                /* panels of a packing task                              */
} job;

static int64_t row_panels(const job *g) { return ceil_div(g->m, g->tiles->mr); }
static int64_t col_panels(const job *g) { return ceil_div(g->n, g->tiles->nr); }

/* C^T = B^T A^T */
static void transpose_job(job *g) {
  gemm_shape s = g->s;
  g->s.m = s.n, g->s.n = s.m;
  g->s.a = gemm_transposed(s.b), g->s.b = gemm_transposed(s.a), g->s.c = gemm_transposed(s.c);
  g->s.bias_row = s.bias_col, g->s.bias_col = s.bias_row;
  const void *a = g->d.a;
  g->d.a = g->d.b, g->d.b = a;
}

/* Few rows, and B even both ways and dense one way: it need not be packed. */
static bool is_skinny(const gemm_shape *s) {
  int64_t row = step_of(&s->b.row), col = step_of(&s->b.col);
  return s->m <= GEMM_SKINNY && s->k <= INT64_C(1) << 40 && /* its rows of A fit memory */
         is_even(&s->a.col) && is_even(&s->b.row) && is_even(&s->b.col) && (row == 1 || col == 1);
}

/* Stores along C's rows should be dense; B, not A, should be the matrix that is read once. */
static void orient(job *g) {
  if (!is_even(&g->s.c.row)) return;
  bool lies_down = step_of(&g->s.c.row) == 1 && step_of(&g->s.c.col) != 1;
  if (lies_down || (g->s.n <= GEMM_SKINNY && g->s.m > GEMM_SKINNY)) transpose_job(g);
}

/* n in equal parts of at most `most`, each a multiple of `unit` */
static int64_t part_of(int64_t n, int64_t most, int64_t unit) {
  int64_t parts = max64(ceil_div(n, most), 1);
  return min64(round_up(ceil_div(n, parts), unit), round_up(most, unit));
}

static void cut(job *g) {
  const gemm_tiles *t = g->tiles;
  const gemm_shape *s = &g->s;
  g->rows = part_of(s->m, BLOCK, t->mr);
  g->cols = part_of(s->n, BLOCK, t->nr);
  g->depth = max64(part_of(s->k, t->kc, t->k_step), t->k_step);
  g->k_blocks = max64(ceil_div(s->k, g->depth), 1);
  g->k_at_once = min64(g->k_blocks, max64(BLOCK / max64(g->rows, g->cols), 1));
  g->a_panel = t->mr * g->depth * t->k_bytes;
  g->b_panel = t->nr * g->depth * t->k_bytes;
  g->keeps_sums = g->k_blocks > 1 && ambi_dtype_size(s->c.dtype) != (size_t)g->isa->real_bytes;
  g->a_bytes = (uint64_t)(g->rows / t->mr * g->k_at_once * g->a_panel);
  g->b_bytes = (uint64_t)(g->cols / t->nr * g->k_at_once * g->b_panel);
  g->sum_bytes = g->keeps_sums ? (uint64_t)(g->rows * g->cols * g->isa->real_bytes) : 0;
}

static bool make_job(job *g, const gemm_isa *isa, const cpu_features *f, const gemm_shape *s, const gemm_data *d) {
  *g = (job){.isa = isa, .tiles = gemm_choose(isa, f, s), .s = *s};
  if (d) g->d = *d;
  if (s->m == 0 || s->n == 0) return false;
  orient(g);
  g->skinny = is_skinny(&g->s);
  if (g->skinny)
    g->a_bytes = (uint64_t)(g->s.m * round_up(g->s.k, SKINNY_PAD) * isa->real_bytes);
  else
    cut(g);
  return true;
}

static uint64_t pad64(uint64_t n) { return (n + 63) / 64 * 64; }

uint64_t gemm_workspace(const gemm_isa *isa, const cpu_features *f, const gemm_shape *s) {
  job g;
  return make_job(&g, isa, f, s, NULL) ? pad64(g.a_bytes) + pad64(g.b_bytes) + pad64(g.sum_bytes) : 0;
}

/* Waking threads costs more than a small product. */
static void spread(job *g, pool *threads, int64_t tasks, task_fn *fn) {
  enum { WORTH_WAKING = 1 << 18 }; /* multiplications */
  if ((double)g->s.m * (double)g->s.n * (double)g->s.k >= (double)WORTH_WAKING) {
    pool_run(threads, tasks, fn, g);
    return;
  }
  for (int64_t i = 0; i < tasks; i++) fn(g, i);
}

/* ---- packing ---- */
enum { MOST_WIDTH = 64 };

/* Packs indices w0 .. of `wide` and the k's of one block of `deep`. */
static void pack_piece(const job *g, const gemm_axis *wide, const gemm_axis *deep, gemm_piece *s, int64_t w0,
                       int64_t block, void (*pack)(const gemm_piece *s, void *panel), char *panel) {
  int64_t at_w[MOST_WIDTH], at_k[GEMM_DEPTH], k0 = block * g->depth;
  s->nk = min64(g->depth, g->s.k - k0);
  s->even_w = is_even(wide), s->step_w = step_of(wide), s->at_w = at_w;
  s->even_k = is_even(deep), s->step_k = step_of(deep), s->at_k = at_k;
  offsets(wide, w0, s->nw, at_w);
  offsets(deep, k0, s->nk, at_k);
  pack(s, panel);
}

static char *a_panel(const job *g, int64_t p, int64_t panel) { return g->a + (p * row_panels(g) + panel) * g->a_panel; }
static char *b_panel(const job *g, int64_t p, int64_t panel) { return g->b + (p * col_panels(g) + panel) * g->b_panel; }

static void pack_a(const job *g, int64_t p, int64_t panel) {
  int64_t i = panel * g->tiles->mr;
  gemm_piece s = {.data = g->d.a, .dtype = g->s.a.dtype, .nw = min64(g->tiles->mr, g->m - i)};
  pack_piece(g, &g->s.a.row, &g->s.a.col, &s, g->i0 + i, g->p0 + p, g->tiles->pack_a, a_panel(g, p, panel));
}

static void pack_b(const job *g, int64_t p, int64_t panel) {
  int64_t j = panel * g->tiles->nr;
  gemm_piece s = {.data = g->d.b, .dtype = g->s.b.dtype, .nw = min64(g->tiles->nr, g->n - j)};
  pack_piece(g, &g->s.b.col, &g->s.b.row, &s, g->j0 + j, g->p0 + p, g->tiles->pack_b, b_panel(g, p, panel));
}

/* For each k block in turn the panels of A, then those of B. */
static int64_t panels_to_pack(const job *g) { return row_panels(g) + col_panels(g); }

static void pack_task(void *context, int64_t task) {
  const job *g = context;
  int64_t rows = row_panels(g), panels = panels_to_pack(g);
  for (int64_t u = task * g->units; u < min64((task + 1) * g->units, panels * g->kp); u++) {
    if (u % panels < rows)
      pack_a(g, u / panels, u % panels);
    else
      pack_b(g, u / panels, u % panels - rows);
  }
}

static void pack_block(job *g, pool *threads) {
  int64_t panels = panels_to_pack(g) * g->kp;
  g->units = max64(1, min64(8, panels / (TASKS_PER_THREAD * g->threads)));
  spread(g, threads, ceil_div(panels, g->units), pack_task);
}

/* ---- multiplying ---- */
static char *element(const void *data, ambi_dtype t, int64_t offset) {
  return (char *)data + offset * (int64_t)ambi_dtype_size(t);
}

/* Where the sums of panels (ip, jp) are kept until the last k block. */
static char *kept_tile(const job *g, int64_t ip, int64_t jp) {
  int64_t bytes = g->tiles->mr * g->tiles->nr * g->isa->real_bytes;
  return g->keeps_sums ? g->sums + (ip * col_panels(g) + jp) * bytes : NULL;
}

/* The lines that a tile will be added to: asked for before it is multiplied, at hand when it is. */
static void prefetch_tile(const job *g, int64_t ip, int64_t jp, const int64_t *at) {
  int64_t size = (int64_t)ambi_dtype_size(g->s.c.dtype), mr = g->tiles->mr, nr = g->tiles->nr;
  int64_t rows = min64(mr, g->m - ip * mr), row_bytes = nr * size;
  const char *kept = kept_tile(g, ip, jp), *c = element(g->d.c, g->s.c.dtype, (g->j0 + jp * nr) * step_of(&g->s.c.col));
  for (int64_t b = 0; kept && b < rows * nr * g->isa->real_bytes; b += 64) __builtin_prefetch(kept + b, 1);
  for (int64_t i = 0; !kept && i < rows; i++)
    for (int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(c + at[i] * size + b, 1);
}

static void keep_tile(const job *g, const void *tile, void *kept, bool add) {
  int64_t at[MOST_WIDTH], nr = g->tiles->nr;
  ambi_dtype real = g->isa->real_bytes == sizeof(double) ? AMBI_F64 : AMBI_F32;
  for (int64_t r = 0; r < g->tiles->mr; r++) at[r] = r * nr;
  gemm_target t = {.data = kept, .dtype = real, .rows = g->tiles->mr, .cols = nr, .at = at, .step = 1, .add = add};
  g->isa->finish(tile, NULL, nr, &t);
}

/* Results of panels (ip, jp) after k block p: into C, or into the sums kept beside it until the last block. */
static void finish_tile(const job *g, const void *tile, int64_t ip, int64_t jp, int64_t p, const int64_t *at) {
  const gemm_shape *s = &g->s;
  int64_t mr = g->tiles->mr, nr = g->tiles->nr, i = g->i0 + ip * mr, j = g->j0 + jp * nr;
  bool first = p == 0, last = p == g->k_blocks - 1;
  char *kept = kept_tile(g, ip, jp);
  if (kept && !last) {
    keep_tile(g, tile, kept, !first);
    return;
  }
  gemm_target t = {.dtype = s->c.dtype, .at = at, .step = step_of(&s->c.col)};
  t.rows = min64(mr, g->m - ip * mr), t.cols = min64(nr, g->n - jp * nr);
  t.data = element(g->d.c, t.dtype, j * t.step);
  t.add = s->accumulate || (!first && !kept);
  if (s->bias && last) {
    t.bias_dtype = s->bias, t.bias_row = s->bias_row, t.bias_col = s->bias_col;
    t.bias = element(g->d.bias, s->bias, i * s->bias_row + j * s->bias_col);
  }
  g->isa->finish(tile, kept, nr, &t);
}

/* A task multiplies task_rows panels of A by task_cols of B: those of A stay in the second-level cache, one of B in the
 * first while they pass. */
static void multiply_task(void *context, int64_t task) {
  const job *g = context;
  const gemm_tiles *t = g->tiles;
  _Alignas(64) char tile[GEMM_TILE_BYTES];
  int64_t across = ceil_div(col_panels(g), g->task_cols), at[GEMM_TASK_ROWS];
  int64_t i0 = task / across * g->task_rows, i1 = min64(i0 + g->task_rows, row_panels(g));
  int64_t j0 = task % across * g->task_cols, j1 = min64(j0 + g->task_cols, col_panels(g));
  offsets(&g->s.c.row, g->i0 + i0 * t->mr, min64(i1 * t->mr, g->m) - i0 * t->mr, at);
  if (t->begin) t->begin();
  for (int64_t p = 0; p < g->kp; p++) {
    int64_t k = min64(g->depth, g->s.k - (g->p0 + p) * g->depth);
    for (int64_t j = j0; j < j1; j++)
      for (int64_t i = i0; i < i1; i++) {
        prefetch_tile(g, i, j, at + (i - i0) * t->mr);
        t->multiply(k, a_panel(g, p, i), b_panel(g, p, j), tile);
        finish_tile(g, tile, i, j, g->p0 + p, at + (i - i0) * t->mr);
      }
  }
  if (t->end) t->end();
}

/* Enough tasks for every thread to have a few: halve the longer side until there are. */
static void multiply_block(job *g, pool *threads) {
  int64_t mr = g->tiles->mr, nr = g->tiles->nr, tasks;
  g->task_rows = g->tiles->task_rows / mr;
  g->task_cols = max64(TASK_COLS / nr, 1);
  while ((tasks = ceil_div(row_panels(g), g->task_rows) * ceil_div(col_panels(g), g->task_cols)) <
         TASKS_PER_THREAD * g->threads) {
    int64_t *longer = g->task_cols * nr >= g->task_rows * mr ? &g->task_cols : &g->task_rows;
    if (*longer == 1) break;
    *longer = ceil_div(*longer, 2);
  }
  spread(g, threads, tasks, multiply_task);
}

static void run_blocks(job *g, pool *threads) {
  for (g->j0 = 0; g->j0 < g->s.n; g->j0 += g->cols)
    for (g->i0 = 0; g->i0 < g->s.m; g->i0 += g->rows)
      for (g->p0 = 0; g->p0 < g->k_blocks; g->p0 += g->k_at_once) {
        g->m = min64(g->rows, g->s.m - g->i0);
        g->n = min64(g->cols, g->s.n - g->j0);
        g->kp = min64(g->k_at_once, g->k_blocks - g->p0);
        pack_block(g, threads);
        multiply_block(g, threads);
      }
}

/* ---- a few rows ---- */
static void skinny_task(void *context, int64_t task) {
  const job *g = context;
  const gemm_shape *s = &g->s;
  _Alignas(64) char tile[GEMM_SKINNY * GEMM_SKINNY_COLS * sizeof(double)];
  int64_t j = task * g->cols, cols = min64(g->cols, s->n - j), at[GEMM_SKINNY];
  gemm_piece b = {.dtype = s->b.dtype, .nw = cols, .nk = s->k, .even_w = true, .even_k = true};
  b.step_w = step_of(&s->b.col), b.step_k = step_of(&s->b.row);
  b.data = element(g->d.b, b.dtype, j * b.step_w);
  g->isa->skinny(s->m, g->a, round_up(s->k, SKINNY_PAD), &b, tile, GEMM_SKINNY_COLS);
  gemm_target t = {
      .dtype = s->c.dtype, .rows = s->m, .cols = cols, .at = at, .step = step_of(&s->c.col), .add = s->accumulate};
  t.data = element(g->d.c, t.dtype, j * t.step);
  offsets(&s->c.row, 0, s->m, at);
  if (s->bias) {
    t.bias_dtype = s->bias, t.bias_row = s->bias_row, t.bias_col = s->bias_col;
    t.bias = element(g->d.bias, s->bias, j * s->bias_col);
  }
  g->isa->finish(tile, NULL, GEMM_SKINNY_COLS, &t);
}

static void run_skinny(job *g, pool *threads) {
  int64_t at_w[GEMM_SKINNY], at_k[1] = {0};
  gemm_piece a = {.data = g->d.a, .dtype = g->s.a.dtype, .nw = g->s.m, .nk = g->s.k, .at_w = at_w, .at_k = at_k};
  a.step_k = step_of(&g->s.a.col);
  offsets(&g->s.a.row, 0, g->s.m, at_w);
  g->isa->widen(&a, g->a, round_up(g->s.k, SKINNY_PAD));
  int64_t share = ceil_div(g->s.n, TASKS_PER_THREAD * g->threads);
  g->cols = max64(min64(round_up(share, SKINNY_PAD), GEMM_SKINNY_COLS), SKINNY_PAD);
  spread(g, threads, ceil_div(g->s.n, g->cols), skinny_task);
}

void gemm_run(const gemm_isa *isa, const cpu_features *f, const gemm_shape *s, const gemm_data *d, char *workspace,
              pool *threads) {
  job g;
  if (!make_job(&g, isa, f, s, d)) return;
  g.threads = pool_threads(threads);
  g.a = workspace;
  g.b = g.a + pad64(g.a_bytes);
  g.sums = g.b + pad64(g.b_bytes);
  if (g.skinny)
    run_skinny(&g, threads);
  else
    run_blocks(&g, threads);
}
