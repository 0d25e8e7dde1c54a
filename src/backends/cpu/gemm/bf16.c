/* bf16.c -- bf16 by bf16 with AVX-512 BF16: each lane adds two products to an f32 sum, so k goes by pairs.
 *
 * The instruction treats subnormal inputs and results as zero and rounds each of its two additions to nearest even.  */
#include "backends/cpu/gemm/pairs.h"

enum { MR = 12, NV = 2, NR = NV * LANES, KC = 1024, TASK_ROWS = 96 };
_Static_assert((int)TASK_ROWS >= (int)MR && (int)TASK_ROWS <= (int)GEMM_TASK_ROWS, "rows of a task");
_Static_assert((int)KC <= (int)GEMM_DEPTH, "k of a block");

static void pack_a(const gemm_piece *s, void *panel) { pack_pairs(s, panel, MR); }
static void pack_b(const gemm_piece *s, void *panel) { pack_pairs(s, panel, NR); }

static void multiply(int64_t k, const void *a_panel, const void *b_panel, void *tile) {
  const float *a = a_panel, *b = b_panel;
  float *out = tile;
  __m512 c[MR][NV];
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++) c[i][j] = _mm512_setzero_ps();
  for (k = ceil_div(k, 2); k > 0; k--, a += MR, b += NR) {
    __m512bh row[NV];
    UNROLL for (int j = 0; j < NV; j++) row[j] = (__m512bh)_mm512_loadu_ps(b + j * LANES);
    UNROLL for (int i = 0; i < MR; i++) {
      __m512bh column = (__m512bh)_mm512_set1_ps(a[i]);
      UNROLL for (int j = 0; j < NV; j++) c[i][j] = _mm512_dpbf16_ps(c[i][j], column, row[j]);
    }
  }
  UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++)
      _mm512_storeu_ps(out + i * NR + j * LANES, c[i][j]);
}

const gemm_tiles gemm_avx512_bf16 = {.name = "avx512-bf16",
                                     .mr = MR,
                                     .nr = NR,
                                     .kc = KC,
                                     .k_step = PAIRS_K,
                                     .k_bytes = sizeof(uint16_t),
                                     .task_rows = TASK_ROWS,
                                     .pack_a = pack_a,
                                     .pack_b = pack_b,
                                     .multiply = multiply};
