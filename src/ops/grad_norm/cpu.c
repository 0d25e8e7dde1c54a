/* grad_norm on the CPU: each task sums the squares of some elements in f64; then the tasks' sums are summed. Both
 * pairwise and in an order that depends on the shape alone. */
#include "backends/cpu/pointwise.h"
#include "backends/cpu/scalar.h"

enum { G = AMBI_GRAD_NORM_G, PARTIAL = AMBI_GRAD_NORM_PARTIAL, NORM = AMBI_GRAD_NORM_NORM };
enum { SUMSQ = AMBI_GRAD_NORM_SUMSQ, SCALE = AMBI_GRAD_NORM_SCALE, NONFINITE = AMBI_GRAD_NORM_NONFINITE };

/* ---- sums in f64 ---- */
/* A register of doubles: vectors of more than one, and their conversion, some compilers take apart in memory. */
typedef double vwide __attribute__((vector_size(VBYTES)));
enum { WIDE = VBYTES / sizeof(double), WAYS = 8 };

static inline vwide square(const real *g) {
  vwide w;
#if defined(AMBI_ISA_avx512) && AMBI_REAL == 32
  w = _mm512_cvtps_pd(_mm256_loadu_ps(g));
#elif defined(AMBI_ISA_avx2) && AMBI_REAL == 32
  w = _mm256_cvtps_pd(_mm_loadu_ps(g));
#else
  for (int k = 0; k < WIDE; k++) w[k] = (double)g[k];
#endif
  return w * w;
}

static double squares_tile(const real *g, int64_t n) {
  vwide sum[WAYS] = {{0}};
  int64_t i = 0;
  for (; i + WAYS * WIDE <= n; i += WAYS * WIDE) {
    for (int64_t at = 0; at < WAYS * WIDE * (int64_t)sizeof(real); at += 64) prefetch_ahead((const char *)(g + i) + at);
    UNROLL for (int k = 0; k < WAYS; k++) sum[k] += square(g + i + k * WIDE);
  }
  for (; i + WIDE <= n; i += WIDE) sum[0] += square(g + i);
  for (; i < n; i++) sum[1][0] += (double)g[i] * (double)g[i];
  UNROLL for (int half = WAYS / 2; half > 0; half /= 2) UNROLL for (int k = 0; k < half; k++) sum[k] += sum[k + half];
  double total = 0;
  for (int k = 0; k < WIDE; k++) total += sum[0][k];
  return total;
}

/* As cascade in sums.h, in f64 */
typedef struct {
  double partial[56];
  uint64_t count;
} wide_cascade;

static void wide_add(wide_cascade *c, double term) {
  int k = 0;
  for (uint64_t n = c->count; n & 1; n >>= 1) term += c->partial[k++];
  c->partial[k] = term;
  c->count++;
}

static double wide_total(const wide_cascade *c) {
  double total = 0;
  for (int k = 0; k < 56; k++)
    if (c->count >> k & 1) total += c->partial[k];
  return total;
}

/* ---- sum of squares ---- */
static int64_t tasks_of(const problem *p) {
  const grid *g = &elementwise(p)->all;
  return g->count ? pointwise_tasks(g) : 0;
}

/* The pieces of a task */
static int64_t task_begin(const problem *p, int64_t task) { return task * pieces_per_task(&elementwise(p)->all); }
static int64_t task_end(const problem *p, int64_t task) {
  return min64(task_begin(p, task + 1), all_pieces(&elementwise(p)->all));
}

static void add_piece(const cpu_call *c, int64_t piece, wide_cascade *sum) {
  const grid *g = &elementwise(c->p)->all;
  int64_t pieces = pieces_of(g), first = piece % pieces * PIECE, end = min64(first + PIECE, inner_of(g));
  strip line = line_at(c, G, piece / pieces);
  TILE_OF_REALS tile[TILE];
  for (int64_t i = first; i < end; i += TILE) {
    int64_t n = min64(TILE, end - i);
    wide_add(sum, squares_tile(strip_in(&line, i, n, tile), n));
  }
}

static void sum_task(void *context, int64_t task) {
  const cpu_call *c = context;
  int64_t end = task_end(c->p, task);
  wide_cascade sum = {.count = 0};
  for (int64_t piece = task_begin(c->p, task); piece < end; piece++) add_piece(c, piece, &sum);
  ((double *)(void *)c->workspace)[task] = wide_total(&sum);
}

static void add_partials(const cpu_call *c, wide_cascade *sum) {
  const ambi_tensor *t = &c->p->t[PARTIAL];
  const int64_t n = reads_slot(c->p, PARTIAL) ? ambi_numel(t) : 0;
  for (int64_t i = 0; i < n; i++) wide_add(sum, scalar_at(c, PARTIAL, t->ndim ? i * t->stride[0] : 0));
}

static double sum_of_squares(const cpu_call *c) {
  const double *sums = (const double *)(void *)c->workspace;
  wide_cascade sum = {.count = 0};
  pool_run(c->threads, tasks_of(c->p), sum_task, (void *)c);
  for (int64_t task = 0; task < tasks_of(c->p); task++) wide_add(&sum, sums[task]);
  add_partials(c, &sum);
  return wide_total(&sum);
}

/* ---- forward and backward ---- */
static void forward(const cpu_call *c) {
  double sumsq = sum_of_squares(c), norm = sqrt(sumsq), max_norm = c->p->op.u.grad_norm.max_norm;
  bool finite = norm - norm == 0;
  double scale = max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
  scalar_put(c, NORM, norm);
  scalar_put(c, SUMSQ, sumsq);
  scalar_put(c, SCALE, finite ? scale : 0);
  scalar_put(c, NONFINITE, finite ? 0 : 1);
}

typedef struct {
  const cpu_call *c;
  double factor; /* dnorm / norm */
} scaling;

static void scale_piece(const scaling *s, int64_t piece) {
  const grid *g = &elementwise(s->c->p)->all;
  int64_t pieces = pieces_of(g), first = piece % pieces * PIECE, end = min64(first + PIECE, inner_of(g));
  strip from = line_at(s->c, G, piece / pieces), to = line_at(s->c, AMBI_GRAD(G), piece / pieces);
  TILE_OF_REALS g_tile[TILE], dg_tile[TILE];
  for (int64_t i = first; i < end; i += TILE) {
    int64_t n = min64(TILE, end - i);
    const real *in = strip_in(&from, i, n, g_tile);
    real *out = strip_out(&to, i, dg_tile);
    for (int64_t k = 0; k < n; k++) out[k] = (real)((double)in[k] * s->factor); /* the factor may be beyond f32 */
    strip_put(&to, i, n, out);
  }
}

static void scale_task(void *context, int64_t task) {
  const scaling *s = context;
  int64_t end = task_end(s->c->p, task);
  for (int64_t piece = task_begin(s->c->p, task); piece < end; piece++) scale_piece(s, piece);
  stream_fence();
}

static void backward(const cpu_call *c) {
  double norm = sqrt(sum_of_squares(c)), dnorm = scalar_get(c, AMBI_GRAD(NORM));
  scaling s = {c, norm == 0 ? 0 : dnorm / norm};
  pool_run(c->threads, tasks_of(c->p), scale_task, &s);
}

static uint64_t workspace(const problem *p, const cpu_features *features) {
  (void)features;
  return (uint64_t)tasks_of(p) * sizeof(double);
}

const cpu_kernel CPU_KERNEL(grad_norm) = {"pairwise f64", workspace, forward, backward};
