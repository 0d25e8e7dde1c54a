/* test_tape.c -- tapes: their gradients against finite differences in f64, and everything that must not change a bit
 * of them: where storages lie, doing segments again, dropping what nothing needs. */
#include <math.h>
#include <stdlib.h>

#include "../models/tape_parts.h"
#include "test.h"

enum { MAX_WEIGHTS = 12, ROWS = 6, CLASSES = 5, WIDTH = 8 };
enum { SEGMENTS = 1, APART = 2, ADDS = 4 }; /* apart: no two storages share memory */

/* A graph under test: its weights keep their values from tape to tape; the ones past `weights` are made on demand. */
typedef struct {
  tape *t;
  int flags;
  int64_t rows; /* of the batch, from row `first` of the data on */
  int64_t first;
  int weights, used;
  ambi_tensor shape[MAX_WEIGHTS];
  double *w[MAX_WEIGHTS], *g[MAX_WEIGHTS];
  double loss, dloss;
} graph;
typedef value (*graph_fn)(graph *g); /* returns the loss */

static ambi_device *dev;

/* ---- making values ---- */

static double noise(uint64_t i) { /* -0.5 .. 0.5 */
  uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)(z >> 11) * 0x1p-53 - 0.5;
}

static value weight(graph *g, int ndim, const int64_t *shape) {
  const int k = g->used++;
  if (k == g->weights) {
    g->weights++;
    g->shape[k] = ambi_dense(AMBI_F64, ndim, shape);
    const int64_t count = ambi_numel(&g->shape[k]);
    g->w[k] = malloc((size_t)count * sizeof(double));
    g->g[k] = malloc((size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i++) g->w[k][i] = noise((uint64_t)(1000 * k + i));
  }
  return tape_weight(g->t, &g->shape[k], (ambi_buf){g->w[k], 0}, &g->shape[k], (ambi_buf){g->g[k], 0});
}
#define WEIGHT(g, ...) \
  weight(g, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

static ambi_tensor shaped(int ndim, const int64_t *shape) { return ambi_dense(AMBI_F64, ndim, shape); }
#define SHAPE(...) shaped((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

/* Rows of the data, (rows, columns), no gradient. */
static value data(graph *g, int64_t columns) {
  static double all[4 * ROWS * 64];
  for (int i = 0; i < 4 * ROWS * 64; i++) all[i] = 2 * noise(777777 + (uint64_t)i);
  const ambi_tensor s = SHAPE(g->rows, columns);
  return tape_fixed(g->t, &s, (ambi_buf){all + g->first * columns, 0});
}

static value op1(graph *g, const ambi_op *op, int in, value x, int out) {
  value io[AMBI_MAX_PRIMALS] = {0};
  io[in] = x;
  return tape_op(g->t, op, io, out);
}
static value op2(graph *g, const ambi_op *op, int a, value x, int b, value y, int out) {
  value io[AMBI_MAX_PRIMALS] = {0};
  io[a] = x;
  io[b] = y;
  return tape_op(g->t, op, io, out);
}
static value linear(graph *g, value x, value w) {
  return op2(g, &(ambi_op){.kind = AMBI_LINEAR}, AMBI_LINEAR_X, x, AMBI_LINEAR_W, w, AMBI_LINEAR_Y);
}
static value add(graph *g, value a, value b) {
  return op2(g, &(ambi_op){.kind = AMBI_ADD}, AMBI_ADD_A, a, AMBI_ADD_B, b, AMBI_ADD_Y);
}
static value silu(graph *g, value x) {
  return op1(g, &(ambi_op){.kind = AMBI_UNARY, .u.unary.function = AMBI_SILU}, AMBI_UNARY_X, x, AMBI_UNARY_Y);
}
static value gate(graph *g, value v, value by) {
  return op2(g, &(ambi_op){.kind = AMBI_GATED}, AMBI_GATED_V, v, AMBI_GATED_G, by, AMBI_GATED_Y);
}

/* norm(x + *residual), and the sum becomes *residual. */
static value norm(graph *g, value x, value *residual) {
  value io[AMBI_MAX_PRIMALS] = {[AMBI_RMSNORM_X] = x, [AMBI_RMSNORM_RESIDUAL] = *residual};
  io[AMBI_RMSNORM_W] = WEIGHT(g, WIDTH);
  const ambi_tensor s = tape_tensor(g->t, x);
  io[AMBI_RMSNORM_SUM] = tape_new(g->t, &s);
  value y = tape_op(g->t, &(ambi_op){.kind = AMBI_RMSNORM, .u.rmsnorm.eps = 1e-5}, io, AMBI_RMSNORM_Y);
  *residual = io[AMBI_RMSNORM_SUM];
  return y;
}

/* Columns first .. of a (rows, width) value. */
static value columns(graph *g, value v, int64_t first, int64_t count) {
  ambi_tensor s = tape_tensor(g->t, v);
  s.shape[1] = count;
  return tape_view(g->t, v, &s, first);
}

static value entropy(graph *g, value logits, int64_t shift, int last) {
  static int32_t targets[2][4 * ROWS];
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 4 * ROWS; i++) targets[k][i] = (int32_t)((7 * i + 3 * k + i / 5) % CLASSES);
  const ambi_tensor ids = ambi_dense(AMBI_I32, 1, &g->rows), one = ambi_dense(AMBI_F64, 0, NULL);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_CE_LOGITS] = logits};
  io[AMBI_CE_TARGET] = tape_fixed(g->t, &ids, (ambi_buf){targets[shift] + g->first, 0});
  if (last) io[AMBI_CE_LOSS] = tape_fixed(g->t, &one, (ambi_buf){&g->loss, 0});
  return tape_op(g->t, &(ambi_op){.kind = AMBI_CROSS_ENTROPY, .want = AMBI_BIT(AMBI_CE_LSE)}, io, AMBI_CE_LOSS);
}

static void segment(graph *g, int begin) {
  if (g->flags & SEGMENTS) (begin ? tape_segment_begin : tape_segment_end)(g->t);
}

/* ---- graphs ---- */

/* Halves of a packed tensor; one of them, and all of it, used again. */
static value packed(graph *g) {
  value x = linear(g, data(g, WIDTH), WEIGHT(g, 2 * WIDTH, WIDTH));
  segment(g, 1);
  value a = columns(g, x, 0, WIDTH), b = columns(g, x, WIDTH, WIDTH);
  value y = add(g, gate(g, a, b), columns(g, x, 0, WIDTH));
  segment(g, 0);
  return entropy(g, linear(g, y, WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* One value through views of other forms: as channels by the convolution, as columns by a product. */
static value forms(graph *g) {
  const int64_t length = g->rows / 2, rows = g->rows;
  value x = linear(g, WEIGHT(g, WIDTH, WIDTH), data(g, WIDTH)); /* (channels, rows) */
  const ambi_tensor channels = {AMBI_F64, 3, {2, WIDTH, length}, {length, rows, 1}};
  const ambi_tensor turned = {AMBI_F64, 2, {rows, WIDTH}, {1, rows}};
  segment(g, 1);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_CONV1D_X] = tape_view(g->t, x, &channels, 0)};
  io[AMBI_CONV1D_W] = WEIGHT(g, WIDTH, 4);
  io[AMBI_CONV1D_B] = WEIGHT(g, WIDTH);
  io[AMBI_CONV1D_Y] = tape_new(g->t, &channels);
  value y = tape_op(g->t, &(ambi_op){.kind = AMBI_CONV1D, .u.conv1d.silu = 1}, io, AMBI_CONV1D_Y);
  value z = linear(g, tape_view(g->t, y, &turned, 0), WEIGHT(g, WIDTH, WIDTH));
  value u = linear(g, tape_view(g->t, x, &turned, 0), WEIGHT(g, WIDTH, WIDTH));
  segment(g, 0);
  return entropy(g, linear(g, gate(g, z, u), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* The middle of Mamba: packed delta, B, C; the convolution's output in the scan and in a product. */
static value scan(graph *g) {
  enum { STATE = 3, RANK = 2 };
  const int64_t length = g->rows / 2, rows = g->rows;
  const ambi_tensor turned = {AMBI_F64, 2, {rows, WIDTH}, {1, rows}}, low = {AMBI_F64, 2, {rows, RANK}, {1, rows}};
  const ambi_tensor channels = {AMBI_F64, 3, {2, WIDTH, length}, {length, rows, 1}};
  ambi_tensor states = channels;
  states.shape[1] = STATE;
  value xz = linear(g, WEIGHT(g, 2 * WIDTH, WIDTH), data(g, WIDTH));
  segment(g, 1);
  value dbc = linear(g, WEIGHT(g, RANK + 2 * STATE, WIDTH), tape_view(g->t, xz, &turned, 0));
  value delta = linear(g, WEIGHT(g, WIDTH, RANK), tape_view(g->t, dbc, &low, 0));
  value io[AMBI_MAX_PRIMALS] = {[AMBI_SCAN_U] = tape_view(g->t, xz, &channels, 0)};
  io[AMBI_SCAN_DELTA] = tape_view(g->t, delta, &channels, 0);
  io[AMBI_SCAN_A] = WEIGHT(g, WIDTH, STATE);
  io[AMBI_SCAN_B] = tape_view(g->t, dbc, &states, RANK * rows);
  io[AMBI_SCAN_C] = tape_view(g->t, dbc, &states, (RANK + STATE) * rows);
  io[AMBI_SCAN_D] = WEIGHT(g, WIDTH);
  io[AMBI_SCAN_Z] = tape_view(g->t, xz, &channels, WIDTH * rows);
  io[AMBI_SCAN_DELTA_BIAS] = WEIGHT(g, WIDTH);
  io[AMBI_SCAN_Y] = tape_new(g->t, &channels);
  const ambi_op op = {.kind = AMBI_SELECTIVE_SCAN, .u.selective_scan = {.softplus = 1, .a_log = 1}};
  value y = tape_op(g->t, &op, io, AMBI_SCAN_Y);
  segment(g, 0);
  return entropy(g, linear(g, tape_view(g->t, y, &turned, 0), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* The middle of Mamba-2: x, B, C and delta side by side in a row. */
static value ssd(graph *g) {
  enum { HEADS = 2, SIZE = 4, STATE = 3, ROW = HEADS * SIZE + 2 * STATE + HEADS };
  const int64_t length = g->rows / 2;
  const ambi_tensor x = {AMBI_F64, 4, {2, length, HEADS, SIZE}, {length * ROW, ROW, SIZE, 1}};
  const ambi_tensor b = {AMBI_F64, 4, {2, length, 1, STATE}, {length * ROW, ROW, STATE, 1}};
  const ambi_tensor delta = {AMBI_F64, 3, {2, length, HEADS}, {length * ROW, ROW, 1}};
  const ambi_tensor rows = SHAPE(g->rows, HEADS * SIZE);
  value in = linear(g, data(g, WIDTH), WEIGHT(g, ROW, WIDTH));
  segment(g, 1);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_SSD_X] = tape_view(g->t, in, &x, 0)};
  io[AMBI_SSD_B] = tape_view(g->t, in, &b, HEADS * SIZE);
  io[AMBI_SSD_C] = tape_view(g->t, in, &b, HEADS * SIZE + STATE);
  io[AMBI_SSD_DELTA] = tape_view(g->t, in, &delta, HEADS * SIZE + 2 * STATE);
  io[AMBI_SSD_A] = WEIGHT(g, HEADS);
  io[AMBI_SSD_D] = WEIGHT(g, HEADS);
  io[AMBI_SSD_DELTA_BIAS] = WEIGHT(g, HEADS);
  value y = tape_op(g->t, &(ambi_op){.kind = AMBI_SSD, .u.ssd = {.softplus = 1, .a_log = 1}}, io, AMBI_SSD_Y);
  segment(g, 0);
  return entropy(g, linear(g, tape_view(g->t, y, &rows, 0), WEIGHT(g, CLASSES, HEADS * SIZE)), 0, 1);
}

/* A LLaMA layer's attention: q, k and v packed, two heads of queries on one of keys, rotation in place. */
static value attention(graph *g) {
  enum { HEADS = 2, SIZE = 4, ROW = (HEADS + 2) * SIZE };
  const int64_t length = g->rows / 2;
  ambi_tensor heads = {AMBI_F64, 4, {2, HEADS + 1, length, SIZE}, {length * ROW, SIZE, ROW, 1}};
  value residual = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH));
  segment(g, 1);
  value qkv = linear(g, residual, WEIGHT(g, ROW, WIDTH));
  value qk = tape_view(g->t, qkv, &heads, 0);
  op2(g, &(ambi_op){.kind = AMBI_ROPE, .u.rope.theta = 100}, AMBI_ROPE_X, qk, AMBI_ROPE_Y, qk, AMBI_ROPE_Y);
  value io[AMBI_MAX_PRIMALS] = {0};
  heads.shape[1] = HEADS;
  io[AMBI_ATTENTION_Q] = tape_view(g->t, qkv, &heads, 0);
  heads.shape[1] = 1;
  io[AMBI_ATTENTION_K] = tape_view(g->t, qkv, &heads, HEADS * SIZE);
  io[AMBI_ATTENTION_V] = tape_view(g->t, qkv, &heads, (HEADS + 1) * SIZE);
  const ambi_tensor o = {AMBI_F64, 4, {2, HEADS, length, SIZE}, {length * HEADS * SIZE, SIZE, HEADS * SIZE, 1}};
  io[AMBI_ATTENTION_O] = tape_new(g->t, &o);
  ambi_op op = {.kind = AMBI_ATTENTION, .u.attention.causal = 1, .want = AMBI_BIT(AMBI_ATTENTION_LSE)};
  value out = tape_op(g->t, &op, io, AMBI_ATTENTION_O);
  const ambi_tensor rows = SHAPE(g->rows, HEADS * SIZE);
  value branch = linear(g, tape_view(g->t, out, &rows, 0), WEIGHT(g, WIDTH, HEADS * SIZE));
  segment(g, 0);
  return entropy(g, linear(g, norm(g, branch, &residual), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* Layers as models have them: the norm adds the branch to the residual, and one gradient may serve both. */
static value residuals(graph *g) {
  value residual = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH));
  value branch = silu(g, linear(g, residual, WEIGHT(g, WIDTH, WIDTH)));
  for (int i = 0; i < 2; i++) {
    segment(g, 1);
    value y = norm(g, branch, &residual);
    branch = linear(g, silu(g, linear(g, y, WEIGHT(g, WIDTH, WIDTH))), WEIGHT(g, WIDTH, WIDTH));
    segment(g, 0);
  }
  return entropy(g, linear(g, norm(g, branch, &residual), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* The residual is used again between the branch and the norm: the gradients of the two are no longer the same. */
static value residual_used(graph *g) {
  value residual = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH));
  value branch = silu(g, linear(g, residual, WEIGHT(g, WIDTH, WIDTH)));
  value beside = silu(g, residual);
  value y = norm(g, branch, &residual);
  return entropy(g, linear(g, add(g, y, beside), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* The branch is used twice. */
static value branch_used(graph *g) {
  value residual = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH));
  value branch = silu(g, linear(g, residual, WEIGHT(g, WIDTH, WIDTH)));
  value beside = silu(g, branch);
  value y = norm(g, branch, &residual);
  return entropy(g, linear(g, add(g, y, beside), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* The branch is the norm's own residual. */
static value same_twice(graph *g) {
  value x = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH)), residual = x;
  value y = norm(g, x, &residual);
  return entropy(g, linear(g, add(g, y, residual), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

/* Logits that another op needs too, in forward and in backward. */
static value logits_twice(graph *g) {
  value logits = linear(g, data(g, WIDTH), WEIGHT(g, CLASSES, WIDTH));
  value other = linear(g, silu(g, logits), WEIGHT(g, CLASSES, CLASSES));
  value first = entropy(g, logits, 0, 0), second = entropy(g, other, 1, 0);
  const ambi_tensor one = ambi_dense(AMBI_F64, 0, NULL);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_ADD_A] = first, [AMBI_ADD_B] = second};
  io[AMBI_ADD_Y] = tape_fixed(g->t, &one, (ambi_buf){&g->loss, 0});
  return tape_op(g->t, &(ambi_op){.kind = AMBI_ADD}, io, AMBI_ADD_Y);
}

/* Two losses of the same logits. */
static value losses_twice(graph *g) {
  value logits = linear(g, data(g, WIDTH), WEIGHT(g, CLASSES, WIDTH));
  value first = entropy(g, logits, 0, 0), second = entropy(g, logits, 1, 0);
  const ambi_tensor one = ambi_dense(AMBI_F64, 0, NULL);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_ADD_A] = first, [AMBI_ADD_B] = second};
  io[AMBI_ADD_Y] = tape_fixed(g->t, &one, (ambi_buf){&g->loss, 0});
  return tape_op(g->t, &(ambi_op){.kind = AMBI_ADD}, io, AMBI_ADD_Y);
}

/* A table that is read by tokens and multiplied by. */
static value tied(graph *g) {
  static const int32_t ids[4 * ROWS] = {0, 1, 2, 3, 4, 0, 0, 1, 3, 3, 2, 4, 1, 1, 2, 0, 4, 4, 3, 2, 1, 0, 2, 3};
  const ambi_tensor tokens = ambi_dense(AMBI_I32, 1, &g->rows);
  value table = WEIGHT(g, CLASSES, WIDTH);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_EMBEDDING_W] = table};
  io[AMBI_EMBEDDING_TOKENS] = tape_fixed(g->t, &tokens, (ambi_buf){(void *)(ids + g->first), 0});
  value x = tape_op(g->t, &(ambi_op){.kind = AMBI_EMBEDDING}, io, AMBI_EMBEDDING_Y);
  segment(g, 1);
  value y = silu(g, linear(g, x, WEIGHT(g, WIDTH, WIDTH)));
  segment(g, 0);
  return entropy(g, linear(g, add(g, x, y), table), 0, 1);
}

static const struct {
  const char *name;
  graph_fn write;
} graphs[] = {{"packed", packed},
              {"forms", forms},
              {"scan", scan},
              {"ssd", ssd},
              {"attention", attention},
              {"residuals", residuals},
              {"residual used between", residual_used},
              {"branch used twice", branch_used},
              {"logits used twice", logits_twice},
              {"logits of two losses", losses_twice},
              {"tied", tied}};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

/* ---- running them ---- */

/* A tape for the graph; NULL and a failed check when it cannot be made. */
static tape *make(graph *g, graph_fn write, int flags, int backward) {
  g->t = tape_create(dev);
  g->flags = flags;
  g->used = 0;
  value loss = write(g);
  const ambi_tensor one = ambi_dense(AMBI_F64, 0, NULL);
  if (flags & ADDS) tape_accumulate(g->t);
  if (backward) tape_backward(g->t, loss, tape_fixed(g->t, &one, (ambi_buf){&g->dloss, 0}));
  for (int64_t i = 1; (flags & APART) && i < g->t->stores; i++) g->t->store[i].kept = 1;
  if (CHECK(tape_finish(g->t) == AMBI_OK, "%s", tape_error(g->t))) return g->t;
  tape_destroy(g->t);
  return NULL;
}

static int run(tape *t) {
  return CHECK(tape_run(t, NULL) == AMBI_OK, "%s", ambi_error()); /* the CPU is done when it returns */
}

/* Gradients of all weights into g->g. */
static int gradients(graph *g, graph_fn write, int flags) {
  tape *t = make(g, write, flags, 1);
  if (!t) return 0;
  for (int k = 0; k < g->weights && !(flags & ADDS); k++)
    memset(g->g[k], 0xff, (size_t)ambi_numel(&g->shape[k]) * sizeof(double)); /* NaN */
  int ok = run(t);
  tape_destroy(t);
  return ok;
}

static graph start(void) { return (graph){.rows = ROWS, .dloss = 1}; }
static void finish(graph *g) {
  for (int k = 0; k < g->weights; k++) free(g->w[k]), free(g->g[k]);
}

static int64_t all(const graph *g) {
  int64_t n = 0;
  for (int k = 0; k < g->weights; k++) n += ambi_numel(&g->shape[k]);
  return n;
}
static double *take(const graph *g) {
  double *out = calloc((size_t)all(g) + 1, sizeof *out), *at = out;
  for (int k = 0; k < g->weights; k++) {
    memcpy(at, g->g[k], (size_t)ambi_numel(&g->shape[k]) * sizeof *at);
    at += ambi_numel(&g->shape[k]);
  }
  return out;
}

/* Central differences with h 1e-4: their error is about h^2 from the third derivative and 1e-16 / h from rounding, so
 * 1e-7 of gradients near 1 is some ten times what is expected. */
static void check_differences(const char *name, graph *g, graph_fn write) {
  const double h = 1e-4;
  tape *t = make(g, write, 0, 0);
  double worst = 0;
  for (int k = 0; t && k < g->weights; k++) {
    for (int64_t i = 0; i < ambi_numel(&g->shape[k]); i++) {
      const double was = g->w[k][i];
      double side[2];
      for (int s = 0; s < 2; s++) {
        g->w[k][i] = was + (s ? h : -h);
        if (!run(t)) return;
        side[s] = g->loss;
      }
      g->w[k][i] = was;
      const double error = fabs((side[1] - side[0]) / (2 * h) - g->g[k][i]);
      if (!(error <= worst)) worst = error;
    }
  }
  CHECK(worst < 1e-7, "%s: a gradient is off by %g", name, worst);
  if (t) tape_destroy(t);
}

static void test_gradients(void) {
  for (int i = 0; i < GRAPHS; i++) {
    graph g = start();
    if (gradients(&g, graphs[i].write, 0)) check_differences(graphs[i].name, &g, graphs[i].write);
    finish(&g);
  }
}

/* Doing segments again, or laying storages out apart, changes no bit. */
static void test_same_bits(void) {
  static const int ways[] = {SEGMENTS, APART, SEGMENTS | APART};
  for (int i = 0; i < GRAPHS; i++) {
    graph g = start();
    if (!gradients(&g, graphs[i].write, 0)) continue;
    double *want = take(&g), loss = g.loss;
    for (int k = 0; k < 3; k++) {
      if (!gradients(&g, graphs[i].write, ways[k])) continue;
      double *got = take(&g);
      CHECK(memcmp(got, want, (size_t)all(&g) * sizeof *got) == 0 && g.loss == loss, "%s: other bits with flags %d",
            graphs[i].name, ways[k]);
      free(got);
    }
    free(want);
    finish(&g);
  }
}

/* Two halves, each worth half, are the whole. */
static void test_accumulate(void) {
  for (int i = 0; i < GRAPHS; i++) {
    graph g = start();
    g.rows = 2 * ROWS;
    if (!gradients(&g, graphs[i].write, 0)) continue;
    double *want = take(&g), *got, worst = 0;
    for (int k = 0; k < g.weights; k++) memset(g.g[k], 0, (size_t)ambi_numel(&g.shape[k]) * sizeof(double));
    g.rows = ROWS;
    g.dloss = 0.5;
    for (g.first = 0; g.first < 2 * ROWS; g.first += ROWS) gradients(&g, graphs[i].write, ADDS);
    got = take(&g);
    /* A graph with time cuts its rows into two sequences: those of half the rows are others. */
    const int timeless =
        graphs[i].write != forms && graphs[i].write != scan && graphs[i].write != ssd && graphs[i].write != attention;
    for (int64_t k = 0; k < all(&g); k++) worst = fmax(worst, fabs(got[k] - want[k]));
    if (timeless) CHECK(worst < 1e-14, "%s: halves differ from the whole by %g", graphs[i].name, worst);
    free(want);
    free(got);
    finish(&g);
  }
}

/* With time: the same batch twice, each worth half, is the batch. */
static void test_accumulate_twice(void) {
  for (int i = 0; i < GRAPHS; i++) {
    graph g = start();
    if (!gradients(&g, graphs[i].write, 0)) continue;
    double *want = take(&g), *got, worst = 0;
    for (int k = 0; k < g.weights; k++) memset(g.g[k], 0, (size_t)ambi_numel(&g.shape[k]) * sizeof(double));
    g.dloss = 0.5;
    for (int k = 0; k < 2; k++) gradients(&g, graphs[i].write, ADDS | SEGMENTS);
    got = take(&g);
    for (int64_t k = 0; k < all(&g); k++) worst = fmax(worst, fabs(got[k] - want[k]));
    CHECK(worst < 1e-14, "%s: twice a half differs from the whole by %g", graphs[i].name, worst);
    free(want);
    free(got);
    finish(&g);
  }
}

/* ---- the plan ---- */

/* Storages that live at the same time must not touch. */
static void test_places(void) {
  for (int i = 0; i < GRAPHS; i++) {
    graph g = start();
    tape *t = make(&g, graphs[i].write, i % 2 ? SEGMENTS : 0, 1);
    int64_t bad = 0, living = 0;
    for (int64_t a = 1; t && a < t->stores; a++) {
      const storage *x = &t->store[a];
      if (x->fixed || x->first > x->last) continue;
      living++;
      bad += x->offset + x->bytes > t->arena_bytes;
      for (int64_t b = a + 1; b < t->stores; b++) {
        const storage *y = &t->store[b];
        if (y->fixed || y->first > y->last || x->last < y->first || y->last < x->first) continue;
        bad += x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
      }
    }
    CHECK(bad == 0 && living > 2, "%s: %lld storages overlap", graphs[i].name, (long long)bad);
    if (t) tape_destroy(t);
    finish(&g);
  }
}

static int add_dead;
static value with_dead(graph *g) {
  value x = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH));
  if (add_dead) silu(g, silu(g, x));
  return entropy(g, linear(g, x, WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

static void test_dead(void) {
  int64_t steps[2] = {0, -1};
  for (add_dead = 0; add_dead < 2; add_dead++) {
    graph g = start();
    tape *t = make(&g, with_dead, 0, 1);
    if (t) steps[add_dead] = tape_get_size(t).steps, tape_destroy(t);
    finish(&g);
  }
  CHECK(steps[0] == steps[1], "steps that nothing needs stay: %lld, %lld", (long long)steps[0], (long long)steps[1]);
}

/* A value that is kept is still there after the run; a tensor that moves is read where it lies now. */
static void test_keep_and_move(void) {
  graph g = start();
  double other[ROWS * WIDTH], before[ROWS * CLASSES];
  for (int i = 0; i < ROWS * WIDTH; i++) other[i] = noise((uint64_t)i);
  g.t = tape_create(dev);
  value in = data(&g, WIDTH), logits = linear(&g, in, WEIGHT(&g, CLASSES, WIDTH));
  tape_keep(g.t, logits);
  entropy(&g, silu(&g, silu(&g, logits)), 0, 1);
  CHECK(tape_finish(g.t) == AMBI_OK && run(g.t), "%s", tape_error(g.t));
  const double *at = (const double *)((char *)tape_buffer(g.t, logits).data + tape_buffer(g.t, logits).offset);
  memcpy(before, at, sizeof before);
  tape_move(g.t, in, (ambi_buf){other, 0});
  run(g.t);
  double want = 0;
  for (int k = 0; k < WIDTH; k++) want += other[k] * g.w[0][k];
  CHECK(fabs(at[0] - want) < 1e-14, "moved: %g, not %g", at[0], want);
  CHECK(memcmp(before, at, sizeof before) != 0, "nothing moved");
  tape_destroy(g.t);
  finish(&g);
}

/* ---- what cannot be ---- */

static value bad_shapes(graph *g) { return linear(g, data(g, WIDTH), WEIGHT(g, CLASSES, WIDTH + 1)); }
static value overflow(graph *g) {
  const ambi_tensor s = SHAPE(INT64_C(1) << 40, INT64_C(1) << 40);
  return tape_new(g->t, &s);
}
static value too_large(graph *g) {
  const ambi_tensor s = SHAPE(INT64_C(1) << 30, INT64_C(1) << 20);
  value x = tape_new(g->t, &s);
  value io[AMBI_MAX_PRIMALS] = {[AMBI_FILL_Y] = x};
  tape_op(g->t, &(ambi_op){.kind = AMBI_FILL}, io, AMBI_FILL_Y);
  tape_keep(g->t, x);
  return x;
}
/* A view past the end of what it is a view of. */
static value outside(graph *g) {
  value x = linear(g, data(g, WIDTH), WEIGHT(g, WIDTH, WIDTH));
  return silu(g, columns(g, x, 1, WIDTH));
}
/* Only half of a packed tensor has a gradient: what would the rest be? */
static value half_used(graph *g) {
  value x = linear(g, data(g, WIDTH), WEIGHT(g, 2 * WIDTH, WIDTH));
  return entropy(g, linear(g, columns(g, x, 0, WIDTH), WEIGHT(g, CLASSES, WIDTH)), 0, 1);
}

static void test_failures(void) {
  static const struct {
    graph_fn write;
    const char *word;
    ambi_status status;
  } rows[] = {{bad_shapes, "linear", AMBI_INVALID},         {overflow, "too large", AMBI_INVALID},
              {too_large, "take 8.00 PiB", AMBI_NO_MEMORY}, {outside, "view", AMBI_INVALID},
              {half_used, "gradient", AMBI_INVALID},        {same_twice, "overlaps", AMBI_INVALID}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    graph g = start();
    g.t = tape_create(dev);
    value loss = rows[i].write(&g);
    const ambi_tensor one = ambi_dense(AMBI_F64, 0, NULL);
    if (i >= 4) tape_backward(g.t, loss, tape_fixed(g.t, &one, (ambi_buf){&g.dloss, 0}));
    value after = silu(&g, tape_new(g.t, &one)); /* what follows a failure does nothing */
    CHECK(g.t->status == AMBI_OK || after == 0, "an op after a failure");
    ambi_status s = tape_finish(g.t);
    CHECK(s == rows[i].status && strstr(tape_error(g.t), rows[i].word), "case %zu: status %d, '%s'", i, (int)s,
          tape_error(g.t));
    CHECK(tape_run(g.t, NULL) != AMBI_OK, "case %zu: runs all the same", i);
    tape_destroy(g.t);
    finish(&g);
  }
}

/* Memory that cannot be had is a failure to be met, also under a sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

int main(void) {
  if (!CHECK_OK(ambi_device_open("cpu", NULL, &dev))) return test_done();
  test_gradients();
  test_same_bits();
  test_accumulate();
  test_accumulate_twice();
  test_places();
  test_dead();
  test_keep_and_move();
  test_failures();
  ambi_device_close(dev);
  return test_done();
}
