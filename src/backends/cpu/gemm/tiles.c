/* tiles.c -- GEMM in one instruction set and arithmetic: multiplying panels and storing results. See gemm.h. */
#include "backends/cpu/gemm/skinny.h"

/* MR x NV vectors of results, NV of B and one of A fill the registers. */
#if defined(AMBI_ISA_avx512)
enum { MR = 12, NV = 2 };
#elif defined(AMBI_ISA_avx2)
enum { MR = 6, NV = 2 };
#elif defined(AMBI_ISA_neon)
enum { MR = 6, NV = 3 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { NR = NV * LANES, KC = 512 }; /* a panel of B and one of A: some 64 + 24 KiB pass through the first-level cache */
enum { TASK_ROWS = 96 };
_Static_assert((int)TASK_ROWS >= (int)MR && (int)TASK_ROWS <= (int)GEMM_TASK_ROWS, "rows of a task");
_Static_assert((int)KC <= (int)GEMM_DEPTH, "k of a block");
_Static_assert(MR *NR * sizeof(real) <= GEMM_TILE_BYTES, "tile");

static void pack_a(const gemm_piece *s, void *panel) { pack(s, panel, MR); }
static void pack_b(const gemm_piece *s, void *panel) { pack(s, panel, NR); }

/* tile = sum over k of (column k of A's panel) x (row k of B's panel) */
static void multiply(int64_t k, const void *a_panel, const void *b_panel, void *tile) {
  const real *a = a_panel, *b = b_panel;
  real *out = tile;
  vr c[MR][NV];
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++) c[i][j] = (vr){0};
  LANES_UNROLL
  for (; k > 0; k--, a += MR, b += NR) {
    vr row[NV];
    UNROLL for (int j = 0; j < NV; j++) row[j] = v_load(b + j * VL);
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++) c[i][j] += v_splat(a[i]) * row[j];
  }
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++) v_store(out + i * NR + j * VL, c[i][j]);
}

/* ---- finishing: target (=|+=) tile (+ more) (+ bias) ---- */
/* Whole, dense rows of reals or bf16: most tiles of most products. */
INLINE void finish_whole(int kind, const real *tile, const real *more, const real *bias, const gemm_target *t) {
  for (int64_t i = 0; i < t->rows; i++) {
    out_view c = {(char *)t->data + t->at[i] * bytes_of(t->dtype), false};
    UNROLL for (int j = 0; j < NV; j++) {
      vr v = v_load(tile + i * NR + j * VL);
      if (more) v += v_load(more + i * NR + j * VL);
      if (bias) v += v_load(bias + j * VL);
      if (t->add) v += get(kind, c.p, j * VL, VL);
      put(kind, c, j * VL, v, VL);
    }
  }
}

static void finish_any(const real *tile, const real *more, int64_t ld, const gemm_target *t) {
  TILE_OF_REALS sum[GEMM_SKINNY_COLS], bias[GEMM_SKINNY_COLS];
  strip out = {.stride = t->step, .dtype = t->dtype, .accumulate = t->add};
  for (int64_t i = 0; i < t->rows; i++, tile += ld) {
    if (t->bias && (i == 0 || t->bias_row)) {
      const char *at = (const char *)t->bias + i * t->bias_row * bytes_of(t->bias_dtype);
      read_reals(t->bias_dtype, at, t->bias_col, t->cols, bias);
    }
    for (int64_t j = 0; j < t->cols; j += VL) {
      vr v = v_get(tile + j, t->cols - j);
      if (more) v += v_get(more + i * ld + j, t->cols - j);
      if (t->bias) v += v_get(bias + j, t->cols - j);
      v_put(sum + j, v, t->cols - j);
    }
    out.at = (char *)t->data + t->at[i] * bytes_of(t->dtype);
    strip_put(&out, 0, t->cols, sum);
  }
}

static void finish(const void *tile, const void *more, int64_t ld, const gemm_target *t) {
  TILE_OF_REALS bias[NR];
  bool whole = t->step == 1 && t->cols == NR && ld == NR && !t->bias_row;
  int kind = whole ? kind_of(t->dtype) : -1;
  if (kind >= 0 && t->bias) read_reals(t->bias_dtype, t->bias, t->bias_col, NR, bias);
  if (kind == REALS)
    finish_whole(REALS, tile, more, t->bias ? bias : NULL, t);
  else if (HAS_BF16S && kind == BF16S)
    finish_whole(BF16S, tile, more, t->bias ? bias : NULL, t);
  else
    finish_any(tile, more, ld, t);
}

const gemm_isa CPU_KERNEL(gemm) = {
    .tiles = {.name = "panels",
              .mr = MR,
              .nr = NR,
              .kc = KC,
              .k_step = LANES,
              .k_bytes = sizeof(real),
              .task_rows = TASK_ROWS,
              .pack_a = pack_a,
              .pack_b = pack_b,
              .multiply = multiply},
    .real_bytes = sizeof(real),
    .finish = finish,
    .widen = widen,
    .skinny = skinny,
};
