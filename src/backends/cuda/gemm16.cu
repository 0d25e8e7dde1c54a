/* gemm16.cu -- the products of halves.cu by mma.sync: a block of 8 warps, 64 x 32 results each (tensor.cu). */
enum { MT = 4, NT = 4, WARP_M = 16 * MT, WARP_N = 8 * NT, WARPS_M = TILE_M / WARP_M };
static_assert(THREADS == 32 * WARPS_M * (TILE_N / WARP_N) && LOADERS == THREADS, "as gemm.c counts");

/* 16 k's from 16 block on, of 16 m's or n's from `at` on: as an a, or as two neighbouring b */
inline void take_a(u32 (&a)[4], shared_at tile, int at, int block) {
  if (A_K)
    load_matrices(a, square_at<TILE_K>(tile, at, block));
  else
    load_flipped(a, columns_at<TILE_M>(tile, 16 * block, at / 16));
}
inline void take_b(u32 (&b)[4], shared_at tile, int at, int block) {
  if (B_K)
    load_matrices(b, columns_at<TILE_K>(tile, at, block));
  else
    load_flipped(b, square_at<TILE_N>(tile, 16 * block, at / 16));
}

/* ---- sums ---- */
/* Where the warp's results begin in the block's */
#define WARP_ROW    ((int)threadIdx.x / 32 % WARPS_M * WARP_M)
#define WARP_COLUMN ((int)threadIdx.x / 32 / WARPS_M * WARP_N)

inline void multiply_tile(float (&sum)[MT][NT][4], shared_at a_tile, shared_at b_tile) {
#pragma unroll
  for (int block = 0; block < TILE_K / 16; block++) {
    u32 a[MT][4], b[NT / 2][4];
#pragma unroll
    for (int m = 0; m < MT; m++) take_a(a[m], a_tile, WARP_ROW + 16 * m, block);
#pragma unroll
    for (int n = 0; n < NT / 2; n++) take_b(b[n], b_tile, WARP_COLUMN + 16 * n, block);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < NT; n++) multiply_add<TYPE>(sum[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
  }
}

/* The next STAGES - 1 tiles are on their way. */
inline void sum_block(const gemm_args &g, const block_of_c &c, shared_at memory, float (&sum)[MT][NT][4]) {
  const lines a = lines_of_a(g, c), b = lines_of_b(g, c);
  const i64 tiles = (c.end_k - c.first_k + TILE_K - 1) / TILE_K;
  clear_parts(sum);
  for (i64 i = 1 - STAGES; i < tiles; i++) { /* tile i, if it is one, is multiplied; `next` is asked for */
    const i64 next = i + STAGES - 1;
    copies_here<STAGES - 2>();
    __syncthreads();
    if (next < tiles)
      bring_both(memory + (u32)(next % STAGES) * STAGE_BYTES, a, b, c, c.first_k + next * TILE_K);
    copies_asked();
    if (i < 0) continue;
    const shared_at here = memory + (u32)(i % STAGES) * STAGE_BYTES;
    multiply_tile(sum, here, here + A_BYTES);
  }
  copies_here<0>();
}

/* ---- the kernel ---- */
extern "C" __global__ void __launch_bounds__(THREADS, 2) product(const __grid_constant__ gemm_args g) {
  DYNAMIC_SHARED(memory);
  const block_of_c c = find_block(g, blockIdx.x);
  float sum[MT][NT][4];
  sum_block(g, c, shared_address(memory), sum);
  __syncthreads(); /* strips take the tiles' place */
  put_strips(g, ((strip *)memory)[threadIdx.x / 32], c.m + WARP_ROW, c.n + WARP_COLUMN, true, sum);
}
