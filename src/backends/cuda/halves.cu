/* halves.cu -- what gemm16.cu and gemm90.cu share: C[m,n] (=|+=) sum over k of A[m,k] B[k,n] (+ bias[n]) by tensor cores.
 *
 * A and B are both of TYPE, f16 or bf16, and dense along one axis each; C is of any dtype and two strides. A block makes
 * TILE_M x TILE_N results. Tiles of A and B, TILE_K deep, pass through a ring of STAGES in shared memory as they lie in
 * memory: rows of k's, or rows of m's (n's) that are read flipped. Sums run over all k's in f32. Few results of long
 * sums are split over more blocks, as in gemm.cu.
 *
 * gemm.c says FACTORS, whether A and B are dense along k (A_K, B_K), TILE_M, TILE_N, STAGES, THREADS of a block, and how
 * many of them are LOADERS of tiles.                                                                                */
enum { TYPE = FACTORS, TILE_K = 64, A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2 };
enum { STAGE_BYTES = A_BYTES + B_BYTES };
enum { TOGETHER = 16 }; /* rows of tiles that are made side by side, so that B's tiles are read again soon */

struct block_of_c {
  i64 m, n;           /* where it begins */
  i64 first_k, end_k; /* what it sums over */
};
/* Of m or n: a launch has fewer than 2^31 */
inline u32 tiles_in(i64 count, int tile) { return (u32)((count + tile - 1) / tile); }
/* Block `number` of C */
inline block_of_c find_block(const gemm_args &g, u32 number) {
  const u32 down = tiles_in(g.m, TILE_M), right = tiles_in(g.n, TILE_N);
  const u32 high = min((u32)TOGETHER, down), band = number / (high * right), in_band = number % (high * right);
  const u32 rows = min(high, down - band * high);
  const i64 each = ((g.k + TILE_K - 1) / TILE_K + g.splits - 1) / g.splits * TILE_K, first = min(g.k, blockIdx.y * each);
  return {(i64)(band * high + in_band % rows) * TILE_M, (i64)(in_band / rows) * TILE_N, first,
          min(g.k, first + each)};
}

/* ---- tiles ---- */
/* 16 aligned bytes on their way, of which the first `bytes` are there; the others become 0 */
inline void copy_first(shared_at to, const char *from, int bytes) {
#ifdef AMBI_EMULATED
  for (int i = 0; i < 8; i++) ((u16 *)to)[i] = 2 * i < bytes ? ((const u16 *)from)[i] : (u16)0;
  emu_begun(EMU_COPIES, (void *)to, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#endif
}

/* 8 neighbours, of which `left` are there; the others are 0 */
inline void take_some(u32 (&w)[4], const char *from, i64 left) {
  if (left >= 8) return load_words<false, 2>(w, from);
#pragma unroll
  for (int k = 0; k < 4; k++) w[k] = 0;
#pragma unroll
  for (int e = 0; e < 8; e++) w[e / 2] |= e < left ? (u32)((const u16 *)from)[e] << 16 * (e % 2) : 0;
}

/* A matrix that is dense along one axis: lines of `width` neighbours, `step` bytes apart. quick: they begin at multiples
 * of 16 bytes */
struct lines {
  const char *at;
  i64 step, rows, width;
  bool quick;
};
inline lines lines_of(const char *at, i64 stride, i64 rows, i64 width) {
  return {at, 2 * stride, rows, width, ((u64)at | (u64)(2 * stride)) % 16 == 0};
}

#if HOPPER
#define TILE_CHUNK(rows, columns, tile, row, chunk) panel_chunk<rows>(tile, row, chunk)
#else
#define TILE_CHUNK(rows, columns, tile, row, chunk) chunk_at<columns>(tile, row, chunk)
#endif

/* ROWS x COLUMNS elements of it from (row, column) on, by threads 0 .. LOADERS - 1 */
template <int ROWS, int COLUMNS>
inline void bring(shared_at tile, const lines &x, i64 row, i64 column) {
  enum { EACH = COLUMNS / 8, APART = LOADERS / EACH };
  const int chunk = threadIdx.x % EACH, first = threadIdx.x / EACH;
  const i64 left = x.width - column - 8 * chunk, rows = left > 0 ? x.rows - row - first : 0;
  const char *from = x.at + (row + first) * x.step + (column + 8 * chunk) * 2;
  if (x.quick) {
    const int bytes = left >= 8 ? 16 : 2 * (int)left;
#pragma unroll
    for (int i = 0; i < ROWS; i += APART)
      copy_first(TILE_CHUNK(ROWS, COLUMNS, tile, first + i, chunk), i < rows ? from + i * x.step : x.at,
                 i < rows ? bytes : 0);
  } else {
#pragma unroll 1
    for (int i = 0; i < ROWS; i += APART) {
      const shared_at to = TILE_CHUNK(ROWS, COLUMNS, tile, first + i, chunk);
      u32 w[4];
      take_some(w, from + i * x.step, i < rows ? left : 0);
#pragma unroll
      for (int k = 0; k < 4; k++) store_shared(to + 4 * k, w[k]);
    }
  }
}

/* ALONG_K: COUNT rows of k's; else rows of COUNT m's or n's */
template <bool ALONG_K, int COUNT>
inline void bring_tile(shared_at tile, const lines &x, i64 across, i64 k) {
  if (ALONG_K)
    bring<COUNT, TILE_K>(tile, x, across, k);
  else
    bring<TILE_K, COUNT>(tile, x, k, across);
}

inline lines lines_of_a(const gemm_args &g, const block_of_c &c) {
  return A_K ? lines_of(g.a, g.at_a.row.stride[0], g.m, c.end_k) : lines_of(g.a, g.at_a.col.stride[0], c.end_k, g.m);
}
inline lines lines_of_b(const gemm_args &g, const block_of_c &c) {
  return B_K ? lines_of(g.b, g.at_b.col.stride[0], g.n, c.end_k) : lines_of(g.b, g.at_b.row.stride[0], c.end_k, g.n);
}
/* Tiles of A and B at k */
inline void bring_both(shared_at to, const lines &a, const lines &b, const block_of_c &c, i64 k) {
  bring_tile<A_K, TILE_M>(to, a, c.m, k);
  bring_tile<B_K, TILE_N>(to + A_BYTES, b, c.n, k);
}

/* ---- results: 16 x 32 at a time through a warp's own shared memory, so that they are stored by rows, in a loop ---- */
struct strip {
  float at[17][32 + 4]; /* the last row: the bias */
};

/* Where results go: C, or a part of the workspace, without the bias */
struct target {
  char *at;
  i64 row, column; /* strides */
  int dtype;
  bool adds, lines; /* lines: rows of neighbours, of TYPE or f32 */
};
inline target find_target(const gemm_args &g) {
  target t = {g.c, g.at_c.row.stride[0], g.at_c.col.stride[0], (int)g.at_c.dtype, g.adds != 0, false};
  if (g.splits > 1) t = {g.work + blockIdx.y * g.m * g.n * 4, g.n, 1, F32, false, false};
  t.lines = t.column == 1 && (t.dtype == TYPE || t.dtype == F32);
  return t;
}

/* 8 results of a row of the strip that begins at (m, n) of C, or as many as are there */
inline void put_eight(const gemm_args &g, const target &to, const strip &s, i64 m, i64 n, int row, int column) {
  const int left = (int)min((i64)8, g.n - n - column);
  const i64 at = (m + row) * to.row + (n + column) * to.column;
  if (to.lines && left == 8) {
    float v[8];
    for (int e = 0; e < 8; e++) v[e] = s.at[row][column + e] + s.at[16][column + e];
    if (to.dtype == TYPE)
      put_some<8>(TYPE, to.adds, to.at, at, v, 8);
    else
      put_some<8>(F32, to.adds, to.at, at, v, 8);
    return;
  }
#pragma unroll 1
  for (int e = 0; e < left; e++)
    put(to.dtype, to.adds, to.at, at + e * to.column, s.at[row][column + e] + s.at[16][column + e]);
}

/* A warp's strips, c as in tensor.cu, the first at (m, n) of C, the others below it (down) or to its right. Strip j is
 * chosen among registers by conditions, as they have no index. */
template <int STRIPS>
inline void put_strips(const gemm_args &g, strip &s, i64 m, i64 n, bool down, const float (&c)[STRIPS][4][4]) {
  const int lane = threadIdx.x % 32;
  const target to = find_target(g);
#pragma unroll 1
  for (int j = 0; j < STRIPS; j++, m += down ? 16 : 0, n += down ? 0 : 32) {
    __syncwarp(); /* the strip before it was read */
#pragma unroll
    for (int i = 0; i < STRIPS * 8; i++) {
      const int q = i / 2 % 4, h = i % 2;
      if (i / 8 == j)
        *(float2 *)&s.at[8 * h + lane / 4][8 * q + lane % 4 * 2] =
            make_float2(c[i / 8][q][2 * h], c[i / 8][q][2 * h + 1]);
    }
    const bool biased = g.bias_dtype && g.splits == 1 && n + lane < g.n; /* else gemm_sum adds it */
    s.at[16][lane] = biased ? load((int)g.bias_dtype, g.bias, (n + lane) * g.bias_stride) : 0.0f;
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 64; i += 32)
      if (m + i / 4 < g.m) put_eight(g, to, s, m, n, i / 4, i % 4 * 8);
  }
}

/* ---- before: a matrix whose lines do not begin at multiples of 16 bytes, to where they do; a warp has a line ---- */
struct pack_args {
  const char *from;
  char *to;
  i64 rows, width, stride, pitch; /* elements */
};
extern "C" __global__ void __launch_bounds__(256) product_pack(const __grid_constant__ pack_args p) {
  for (i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32; row < p.rows; row += (i64)gridDim.x * 8)
    for (i64 column = threadIdx.x % 32 * 8; column < p.width; column += 32 * 8) {
      u32 w[4];
      take_some(w, p.from + (row * p.stride + column) * 2, p.width - column);
      *(uint4 *)(p.to + (row * p.pitch + column) * 2) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}
