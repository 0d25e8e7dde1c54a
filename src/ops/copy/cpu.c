/* copy on the CPU: bits forwards, so that integers and NaNs survive; values backwards, where sums may be asked for. */
#include "backends/cpu/pointwise.h"

enum { X = AMBI_COPY_X, Y = AMBI_COPY_Y };

#define STRIDED(type)                                                                     \
  static void strided_##type(type *y, const type *x, int64_t ys, int64_t xs, int64_t n) { \
    for (int64_t i = 0; i < n; i++) y[i * ys] = x[i * xs];                                \
  }
STRIDED(uint8_t)
STRIDED(uint16_t)
STRIDED(uint32_t)
STRIDED(uint64_t)

static void copy_line(const strip *y, const strip *x, int64_t i, int64_t n) {
  char *to = strip_at(y, i), *from = strip_at(x, i);
  int64_t size = (int64_t)ambi_dtype_size(x->dtype);
  if (x->stride == 1 && y->stride == 1) {
    if (y->stream)
      stream_bytes(to, from, n * size);
    else
      memcpy(to, from, (size_t)(n * size));
  } else if (size == 1) {
    strided_uint8_t((uint8_t *)to, (uint8_t *)from, y->stride, x->stride, n);
  } else if (size == 2) {
    strided_uint16_t((uint16_t *)(void *)to, (uint16_t *)(void *)from, y->stride, x->stride, n);
  } else if (size == 4) {
    strided_uint32_t((uint32_t *)(void *)to, (uint32_t *)(void *)from, y->stride, x->stride, n);
  } else {
    strided_uint64_t((uint64_t *)(void *)to, (uint64_t *)(void *)from, y->stride, x->stride, n);
  }
}

static void copy_task(void *context, int64_t task) {
  const pointwise *w = context;
  const grid *g = &elementwise(w->c->p)->all;
  int64_t each = pieces_per_task(g), pieces = pieces_of(g), inner = inner_of(g);
  int64_t end = min64((task + 1) * each, all_pieces(g));
  for (int64_t piece = task * each; piece < end; piece++) {
    lines l = lines_at(w, piece / pieces);
    int64_t i = piece % pieces * PIECE;
    copy_line(&l.out[0], &l.in[0], i, min64(PIECE, inner - i));
  }
  stream_fence();
}

static void forward(const cpu_call *c) {
  const grid *g = &elementwise(c->p)->all;
  pointwise w = {.c = c, .in = {X}, .ins = 1, .out = {Y}, .outs = 1};
  if (g->count) pool_run(c->threads, pointwise_tasks(g), copy_task, &w);
}

static void backward(const cpu_call *c) {
  pointwise_run(
      c,
      (pointwise){.fn = move_values, .moves = true, .in = {AMBI_GRAD(Y)}, .ins = 1, .out = {AMBI_GRAD(X)}, .outs = 1});
}

const cpu_kernel CPU_KERNEL(copy) = {"pointwise", NULL, forward, backward};
