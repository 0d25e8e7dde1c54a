/* add on the CPU. */
#include "backends/cpu/pointwise.h"

enum { A = AMBI_ADD_A, B = AMBI_ADD_B, Y = AMBI_ADD_Y };

INLINE void sum(int kind, const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) {
  const void *a = in[0], *b = in[1];
  FOR_STEPS(halves(kind) * VL, i, n, {
    vr y[2];
    prefetch_view(kind, a, i), prefetch_view(kind, b, i);
    EACH_HALF(halves(kind))
    y[half] = get_half(kind, a, i, half, left) * factor[0] + get_half(kind, b, i, half, left) * factor[1];
    put_halves(kind, (out_view){out[0], stream}, i, y, left);
  });
}

INLINE void share(int kind, const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) {
  const void *dy = in[0];
  FOR_STEPS(halves(kind) * VL, i, n, {
    vr da[2], db[2];
    prefetch_view(kind, dy, i);
    EACH_HALF(halves(kind)) {
      vr d = get_half(kind, dy, i, half, left);
      da[half] = d * factor[0], db[half] = d * factor[1];
    }
    put_halves(kind, (out_view){out[0], stream}, i, da, left);
    put_halves(kind, (out_view){out[1], stream}, i, db, left);
  });
}

#define LOOP(name, body, kind)                                                                            \
  static void name(const void *const *in, void *const *out, int64_t n, const real *factor, bool stream) { \
    body(kind, in, out, n, factor, stream);                                                               \
  }
LOOP(sum_reals, sum, REALS)
LOOP(sum_bf16s, sum, BF16S)
LOOP(share_reals, share, REALS)
LOOP(share_bf16s, share, BF16S)

static void forward(const cpu_call *c) {
  pointwise_run(
      c, (pointwise){
             .fn = sum_reals, .bf16 = HAS_BF16S ? sum_bf16s : NULL, .in = {A, B}, .ins = 2, .out = {Y}, .outs = 1});
}

static void backward(const cpu_call *c) {
  pointwise_run(c, (pointwise){.fn = share_reals,
                               .bf16 = HAS_BF16S ? share_bf16s : NULL,
                               .in = {AMBI_GRAD(Y)},
                               .ins = 1,
                               .out = {AMBI_GRAD(A), AMBI_GRAD(B)},
                               .outs = 2});
}

const cpu_kernel CPU_KERNEL(add) = {"pointwise", NULL, forward, backward};
