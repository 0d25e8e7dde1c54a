/* amx.c -- bf16 by bf16 with AMX: a tile register holds 16 rows of 64 bytes, and one instruction multiplies
 *
 *   C (16 x 16 f32) += A (16 x 32 bf16) B (32 x 16 bf16, as 16 rows of 16 pairs)
 *
 * Four C tiles make a 32 x 32 block: each k step loads two tiles of A and two of B and multiplies four times.
 * Subnormal inputs and results count as zero.                                                                        */
#include "backends/cpu/gemm/pairs.h"

/* KC: sums of somewhat more than 1024 are one block, too */
enum { SIDE = 32, KC = 1280, TASK_ROWS = 256, TILE_ROW = 64, TILE_ROWS = 16, OUT_ROW = SIDE * sizeof(float) };
enum { STEP_BYTES = SIDE * TILE_ROW }; /* of a panel, for PAIRS_K k's */
_Static_assert((int)TASK_ROWS >= (int)SIDE && (int)TASK_ROWS <= (int)GEMM_TASK_ROWS, "rows of a task");
_Static_assert((int)KC <= (int)GEMM_DEPTH, "k of a block");
_Static_assert(SIDE *OUT_ROW <= GEMM_TILE_BYTES, "tile");

/* Lines in memory run along k: 64 bytes of them are a row of a tile. */
static void pack_rows(const gemm_piece *s, real *panel) {
  enum { TOGETHER = 4 * PAIRS_K }; /* k's of a row at a time: lines that follow each other come together */
  _Alignas(64) real stage[TOGETHER / 2];
  for (int64_t k = 0; k < s->nk; k += TOGETHER, panel += TOGETHER / 2 * SIDE)
    for (int64_t w = 0; w < SIDE; w++) {
      const int64_t n = min64(TOGETHER, s->nk - k);
      const real *row = row_of_pairs(s, w, k, n, stage);
      prefetch_row(s, w, k + TOGETHER, TOGETHER);
      for (int64_t i = 0; i < ceil_div(n, 2); i += PAIRS) v_store(panel + i * SIDE + w * PAIRS, v_load_pairs(row + i));
    }
}

/* panel[k / 32][row][16 pairs]: two tiles of A one after the other */
static void pack_a(const gemm_piece *s, void *panel) {
  _Alignas(64) real stage[PAIRS][SIDE];
  if (!lines_along_w(s)) {
    pack_rows(s, panel);
    return;
  }
  for (int64_t k = 0; k < s->nk; k += PAIRS_K, panel = (char *)panel + STEP_BYTES) {
    const real *row[PAIRS];
    for (int64_t i = 0; i < PAIRS; i++) {
      prefetch_lines(s, k + 2 * i);
      pairs_along_w(s, k + 2 * i, SIDE, stage[i]);
      row[i] = stage[i];
    }
    transpose_rows(row, SIDE, panel, PAIRS, PAIRS);
  }
}

static void pack_b(const gemm_piece *s, void *panel) { pack_pairs(s, panel, SIDE); }

/* Eight tiles of 16 rows of 64 bytes. Static: a compiler may believe that loading it reads eight bytes only. */
static const struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} configuration = {
    .palette = 1,
    .row_bytes = {TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW},
    .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS},
};
_Static_assert(sizeof configuration == 64, "tile configuration");

static void begin(void) { _tile_loadconfig(&configuration); }
static void end(void) { _tile_release(); }

/* Tiles 0 to 3 are C, 4 and 5 are A's, 6 and 7 are B's. */
static void multiply(int64_t k, const void *a_panel, const void *b_panel, void *tile) {
  const char *a = a_panel, *b = b_panel;
  char *out = tile;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (k = ceil_div(k, PAIRS_K); k > 0; k--, a += STEP_BYTES, b += STEP_BYTES) {
    _tile_loadd(6, b, SIDE * sizeof(uint32_t));
    _tile_loadd(4, a, TILE_ROW);
    _tile_loadd(7, b + TILE_ROW, SIDE * sizeof(uint32_t));
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + TILE_ROWS * TILE_ROW, TILE_ROW);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, OUT_ROW);
  _tile_stored(1, out + TILE_ROW, OUT_ROW);
  _tile_stored(2, out + TILE_ROWS * OUT_ROW, OUT_ROW);
  _tile_stored(3, out + TILE_ROWS * OUT_ROW + TILE_ROW, OUT_ROW);
}

const gemm_tiles gemm_amx_bf16 = {.name = "amx-bf16",
                                  .mr = SIDE,
                                  .nr = SIDE,
                                  .kc = KC,
                                  .k_step = PAIRS_K,
                                  .k_bytes = sizeof(uint16_t),
                                  .task_rows = TASK_ROWS,
                                  .pack_a = pack_a,
                                  .pack_b = pack_b,
                                  .multiply = multiply,
                                  .begin = begin,
                                  .end = end};
