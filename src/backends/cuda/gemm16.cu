/* gemm16.cu -- C[m,n] (=|+=) sum over k of A[m,k] B[k,n] (+ bias[n]) by tensor cores: A and B are both of TYPE, f16 or
 * bf16, and dense along one axis each; C is of any dtype and strides. Where cuBLASLt is not, or will not: see gemm.h.
 *
 * A block of 8 warps makes 128 x 128 results, each warp 64 x 32 of them. Tiles of A and B, 64 deep, pass through a ring
 * in shared memory as they lie in memory: rows of k's, or rows of m's (n's) that are read flipped (tensor.cu). Sums run
 * over all k's in f32. Few results of long sums are split over more blocks, as in gemm.cu.                          */
enum { TYPE = FACTORS, MT = 4, NT = 4, WARP_M = 16 * MT, WARP_N = 8 * NT, WARPS_M = 2, WARPS_N = 4 };
enum { TILE_M = WARPS_M * WARP_M, TILE_N = WARPS_N * WARP_N, TILE_K = 64, THREADS = 32 * WARPS_M * WARPS_N };
enum { STAGES = 3, A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2, STAGE_BYTES = A_BYTES + B_BYTES };
enum { TOGETHER = 8 }; /* rows of tiles that are made side by side, so that B's tiles are read again soon */

struct block_of_c {
  i64 m, n;           /* where it begins */
  i64 first_k, end_k; /* what it sums over */
};
inline u32 tiles_in(i64 count, int tile) { return (u32)((count + tile - 1) / tile); }
inline block_of_c find_block(const gemm_args &g) {
  const u32 down = tiles_in(g.m, TILE_M), right = tiles_in(g.n, TILE_N), splits = (u32)g.splits;
  const u32 high = min((u32)TOGETHER, down), band = blockIdx.x / (high * right), in_band = blockIdx.x % (high * right);
  const u32 rows = min(high, down - band * high);
  const i64 each = (i64)((tiles_in(g.k, TILE_K) + splits - 1) / splits) * TILE_K, first = min(g.k, blockIdx.y * each);
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

/* ROWS x COLUMNS elements of it from (row, column) on */
template <int ROWS, int COLUMNS>
inline void bring(shared_at tile, const lines &x, i64 row, i64 column) {
  enum { EACH = COLUMNS / 8, APART = THREADS / EACH };
  const int chunk = threadIdx.x % EACH, first = threadIdx.x / EACH;
  const i64 left = x.width - column - 8 * chunk, rows = left > 0 ? x.rows - row - first : 0;
  const char *from = x.at + (row + first) * x.step + (column + 8 * chunk) * 2;
  if (x.quick) {
    const int bytes = left >= 8 ? 16 : 2 * (int)left;
#pragma unroll
    for (int i = 0; i < ROWS; i += APART)
      copy_first(chunk_at<COLUMNS>(tile, first + i, chunk), i < rows ? from + i * x.step : x.at, i < rows ? bytes : 0);
  } else {
#pragma unroll 1
    for (int i = 0; i < ROWS; i += APART) {
      u32 w[4];
      take_some(w, from + i * x.step, i < rows ? left : 0);
#pragma unroll
      for (int k = 0; k < 4; k++) store_shared(chunk_at<COLUMNS>(tile, first + i, chunk) + 4 * k, w[k]);
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

/* 16 k's from 16 block on, of 16 m's or n's from `at` on: as an a, or as two neighbouring b */
template <bool ALONG_K>
inline void take_a(u32 (&a)[4], shared_at tile, int at, int block) {
  if (ALONG_K)
    load_matrices(a, square_at<TILE_K>(tile, at, block));
  else
    load_flipped(a, columns_at<TILE_M>(tile, 16 * block, at / 16));
}
template <bool ALONG_K>
inline void take_b(u32 (&b)[4], shared_at tile, int at, int block) {
  if (ALONG_K)
    load_matrices(b, columns_at<TILE_K>(tile, at, block));
  else
    load_flipped(b, square_at<TILE_N>(tile, 16 * block, at / 16));
}

/* ---- sums ---- */
/* Where the warp's results begin in the block's */
#define WARP_ROW    ((int)threadIdx.x / 32 % WARPS_M * WARP_M)
#define WARP_COLUMN ((int)threadIdx.x / 32 / WARPS_M * WARP_N)

template <bool A_K, bool B_K>
inline void multiply_tile(float (&sum)[MT][NT][4], shared_at a_tile, shared_at b_tile) {
#pragma unroll
  for (int block = 0; block < TILE_K / 16; block++) {
    u32 a[MT][4], b[NT / 2][4];
#pragma unroll
    for (int m = 0; m < MT; m++) take_a<A_K>(a[m], a_tile, WARP_ROW + 16 * m, block);
#pragma unroll
    for (int n = 0; n < NT / 2; n++) take_b<B_K>(b[n], b_tile, WARP_COLUMN + 16 * n, block);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < NT; n++) multiply_add<TYPE>(sum[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
  }
}

/* The tiles of a block's k's, the next STAGES - 1 of them on their way */
template <bool A_K, bool B_K>
inline void sum_block(const gemm_args &g, const block_of_c &c, shared_at memory, float (&sum)[MT][NT][4]) {
  const i64 end = c.end_k;
  const lines a = A_K ? lines_of(g.a, g.at_a.row.stride[0], g.m, end) : lines_of(g.a, g.at_a.col.stride[0], end, g.m);
  const lines b = B_K ? lines_of(g.b, g.at_b.col.stride[0], g.n, end) : lines_of(g.b, g.at_b.row.stride[0], end, g.n);
  const i64 tiles = (end - c.first_k + TILE_K - 1) / TILE_K;
  clear_parts(sum);
  for (i64 i = 1 - STAGES; i < tiles; i++) { /* tile i, if it is one, is multiplied; `next` is asked for */
    const i64 next = i + STAGES - 1;
    copies_here<STAGES - 2>();
    __syncthreads();
    if (next < tiles) {
      const shared_at to = memory + (u32)(next % STAGES) * STAGE_BYTES;
      bring_tile<A_K, TILE_M>(to, a, c.m, c.first_k + next * TILE_K);
      bring_tile<B_K, TILE_N>(to + A_BYTES, b, c.n, c.first_k + next * TILE_K);
    }
    copies_asked();
    if (i < 0) continue;
    const shared_at here = memory + (u32)(i % STAGES) * STAGE_BYTES;
    multiply_tile<A_K, B_K>(sum, here, here + A_BYTES);
  }
  copies_here<0>();
}

/* ---- results: through shared memory, so that they are stored by rows, in a loop ---- */
struct results {
  float at[TILE_M][TILE_N + 4], bias[TILE_N];
};
static_assert(sizeof(results) <= STAGES * STAGE_BYTES, "they take the tiles' place");

inline void stage_results(const gemm_args &g, const block_of_c &c, const float (&v)[MT][NT][4], results &to) {
  const int row = WARP_ROW + threadIdx.x % 32 / 4, column = WARP_COLUMN + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < MT * NT * 2; i++) {
    const int m = i / (NT * 2), n = i / 2 % NT, h = i % 2;
    *(float2 *)&to.at[row + 16 * m + 8 * h][column + 8 * n] = make_float2(v[m][n][2 * h], v[m][n][2 * h + 1]);
  }
  const i64 n = c.n + threadIdx.x;
  const bool biased = g.bias_dtype && g.splits == 1 && n < g.n; /* else gemm_sum adds it */
  if (threadIdx.x < TILE_N) to.bias[threadIdx.x] = biased ? load((int)g.bias_dtype, g.bias, n * g.bias_stride) : 0.0f;
}

/* 8 neighbours at a multiple of 16 bytes */
template <int DTYPE_C>
inline void put_eight(bool adds, char *to, i64 at, const float *v, const float *bias) {
  float sum[8];
  for (int e = 0; e < 8; e++) sum[e] = v[e] + bias[e];
  put_some<8, true>(DTYPE_C, adds, to, at, sum, 8);
}

/* Where the block's results go: C, or a part of the workspace, without the bias */
struct target {
  char *at;
  i64 row, column; /* strides */
  int dtype;
  bool adds, wide; /* wide: rows of 8 neighbours at multiples of 16 bytes */
};
inline target find_target(const gemm_args &g) {
  target t = {g.c, g.at_c.row.stride[0], g.at_c.col.stride[0], (int)g.at_c.dtype, g.adds != 0, false};
  if (g.splits > 1) t = {g.work + blockIdx.y * g.m * g.n * 4, g.n, 1, F32, false, false};
  t.wide = t.column == 1 && (t.dtype == TYPE || t.dtype == F32);
  t.wide = t.wide && ((u64)t.at | (u64)(t.row * bytes_of(t.dtype))) % 16 == 0;
  return t;
}

inline void put_block(const gemm_args &g, const block_of_c &c, const results &from) {
  enum { EACH = TILE_N / 8 };
  const target to = find_target(g);
#pragma unroll 1
  for (int i = threadIdx.x; i < TILE_M * EACH; i += THREADS) {
    const int row = i / EACH, column = i % EACH * 8, left = (int)min((i64)8, g.n - c.n - column);
    const i64 at = (c.m + row) * to.row + (c.n + column) * to.column;
    if (c.m + row >= g.m) break;
    if (to.wide && left == 8) {
      if (to.dtype == TYPE)
        put_eight<TYPE>(to.adds, to.at, at, &from.at[row][column], &from.bias[column]);
      else
        put_eight<F32>(to.adds, to.at, at, &from.at[row][column], &from.bias[column]);
      continue;
    }
#pragma unroll 1
    for (int e = 0; e < left; e++)
      put(to.dtype, to.adds, to.at, at + e * to.column, from.at[row][column + e] + from.bias[column + e]);
  }
}

/* ---- the kernels, by what A and B are dense along ---- */
template <bool A_K, bool B_K>
inline void make_block(const gemm_args &g) {
  DYNAMIC_SHARED(memory);
  const block_of_c c = find_block(g);
  float sum[MT][NT][4];
  sum_block<A_K, B_K>(g, c, shared_address(memory), sum);
  __syncthreads();
  results &r = *(results *)memory;
  stage_results(g, c, sum, r);
  __syncthreads();
  put_block(g, c, r);
}

#define PRODUCT(name) \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) name(const __grid_constant__ gemm_args g)
PRODUCT(gemm16_kk) { make_block<true, true>(g); }
PRODUCT(gemm16_kn) { make_block<true, false>(g); }
PRODUCT(gemm16_mk) { make_block<false, true>(g); }
PRODUCT(gemm16_mn) { make_block<false, false>(g); }

/* ---- before: a matrix whose lines do not begin at multiples of 16 bytes, to where they do; a warp has a line ---- */
struct pack_args {
  const char *from;
  char *to;
  i64 rows, width, stride, pitch; /* elements */
};
extern "C" __global__ void __launch_bounds__(256) gemm16_pack(const __grid_constant__ pack_args p) {
  for (i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32; row < p.rows; row += (i64)gridDim.x * 8)
    for (i64 column = threadIdx.x % 32 * 8; column < p.width; column += 32 * 8) {
      u32 w[4];
      take_some(w, p.from + (row * p.stride + column) * 2, p.width - column);
      *(uint4 *)(p.to + (row * p.pitch + column) * 2) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}
