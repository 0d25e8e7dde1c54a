/* gemm90.cu -- the products of halves.cu on Hopper: one group of four warps brings tiles, two others have 64 rows of the
 * block's results each, in registers, by products of whole groups (wgmma.cu).
 *
 * A block has one tile of C after another: the next one's factors come while the last one's results go.
 * Where the lines of A and B begin at multiples of 16 bytes, one thread has the hardware copy tiles, as boxes of at most
 * 64 neighbours by 256 lines; what is outside of a matrix arrives as 0.                                             */
enum { NT = TILE_N / 8, WORKERS = THREADS - LOADERS };
enum { BARRIERS_AT = STAGES * STAGE_BYTES, STRIPS_AT = BARRIERS_AT + 16 * STAGES };
static_assert(STRIPS_AT + WORKERS / 32 * sizeof(strip) + ATOM_BYTES <= SHARED_BYTES, "as gemm.c counts");
static_assert(LOADERS == GROUP && WORKERS == 2 * GROUP && TILE_M == 128 && TILE_N == 256, "as gemm.c counts");
#define MY_GROUP ((int)threadIdx.x / GROUP - 1) /* of the workers */

/* ---- c (64, 256) += a b, a tile's k's: from rows of k's, or rows of m's (n's), which are flipped ---- */
#ifdef AMBI_EMULATED
inline void group_product(float (&c)[NT][4], shared_at a, shared_at b) {
  const int first = (int)threadIdx.x % GROUP / 32 * 16 + MY_GROUP * 64, g = (int)threadIdx.x % 32 / 4;
  emu_reads(A_K ? a + (u64)first * 128 : a + (u64)MY_GROUP * TILE_K * 128, A_K ? 16 : TILE_K);
  emu_reads(b, B_BYTES / 128);
  for (int i = 0; i < NT * 4; i++) {
    const int m = first + g + i / 2 % 2 * 8, n = i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
    for (int k = 0; k < TILE_K; k++)
      c[i / 4][i % 4] += (A_K ? emu_element<TYPE, TILE_M>(a, m, k) : emu_element<TYPE, TILE_K>(a, k, m)) *
                         (B_K ? emu_element<TYPE, TILE_N>(b, n, k) : emu_element<TYPE, TILE_K>(b, k, n));
  }
}
#else
#define NAMES_128 \
  NAMES_64        \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85" \
  ",%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107" \
  ",%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define PART_128 PART_32(0), PART_32(8), PART_32(16), PART_32(24)

inline void multiply_256(float (&c)[32][4], u64 a, u64 b) {
  if (TYPE == F16)
    asm volatile(ADDING("1") WGMMA("m64n256k16", "f16") "{" NAMES_128 "}, %128, %129, adding, 1, 1, %130, %131; }"
                 : PART_128
                 : "l"(a), "l"(b), "n"(!A_K), "n"(!B_K));
  else
    asm volatile(ADDING("1") WGMMA("m64n256k16", "bf16") "{" NAMES_128 "}, %128, %129, adding, 1, 1, %130, %131; }"
                 : PART_128
                 : "l"(a), "l"(b), "n"(!A_K), "n"(!B_K));
}

inline void group_product(float (&c)[NT][4], shared_at a, shared_at b) {
  const u64 x = matrix_at(a + (u32)(MY_GROUP * 64 * (A_K ? 128 : TILE_K * 2)), 0);
  const u64 y = matrix_at(b, B_K ? 0 : TILE_K * 128);
#pragma unroll
  for (int block = 0; block < TILE_K / 16; block++) /* 16 k's: 32 bytes of a row, or 16 rows; counted in 16 bytes */
    multiply_256(c, x + (u32)(block * (A_K ? 2 : 128)), y + (u32)(block * (B_K ? 2 : 128)));
}
#endif

/* ---- tiles ---- */
inline shared_at came(shared_at memory, int stage) { return memory + (u32)(BARRIERS_AT + 16 * stage); }
inline shared_at was_read(shared_at memory, int stage) { return memory + (u32)(BARRIERS_AT + 16 * stage + 8); }

/* came: `arrivals` of those who bring tiles */
inline void begin_barriers(shared_at memory, int arrivals) {
  for (int i = 0; i < STAGES; i++) {
    barrier_init(came(memory, i), arrivals);
    barrier_init(was_read(memory, i), WORKERS / 32);
  }
#ifndef AMBI_EMULATED
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); /* for what copies boxes */
#endif
}

/* A box of neighbours from x on, lines from y on, on its way to a panel; barrier: where its bytes arrive */
inline void copy_box(shared_at to, const u64 *map, i64 x, i64 y, shared_at barrier) {
#ifdef AMBI_EMULATED
  emu_copy_box(to, map, (int)x, (int)y);
#else
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"((int)x), "r"((int)y), "r"(barrier)
      : "memory");
#endif
}
/* Arrives, for boxes that have been asked for and will bring so many bytes */
inline void barrier_arrive_expecting(shared_at b, int bytes) {
#ifdef AMBI_EMULATED
  emu_phase_arrive(b);
#else
  asm volatile("{ .reg .b64 state;\n mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(b), "r"(bytes)
               : "memory");
#endif
}

/* A tile of A or B: one box of COUNT lines of k's, or a box of k lines for each 64 of COUNT m's or n's */
template <bool ALONG_K, int COUNT>
inline void copy_boxes(shared_at tile, const u64 *map, i64 across, i64 k, shared_at barrier) {
#pragma unroll
  for (int p = 0; p < (ALONG_K ? 1 : COUNT / 64); p++)
    copy_box(tile + (u32)(p * TILE_K * 128), map, ALONG_K ? k : across + 64 * p, ALONG_K ? across : k, barrier);
}

/* By one thread */
inline void copy_tiles(const gemm_args &g, const block_of_c &c, shared_at memory, ring<STAGES> &at) {
  for (i64 k = c.first_k; k < c.end_k; k += TILE_K, at.next()) {
    const shared_at tile = memory + (u32)(at.stage * STAGE_BYTES), b = came(memory, at.stage);
    barrier_wait(was_read(memory, at.stage), at.phase ^ 1);
    copy_boxes<A_K, TILE_M>(tile, g.map_a, c.m, k, b);
    copy_boxes<B_K, TILE_N>(tile + A_BYTES, g.map_b, c.n, k, b);
    barrier_arrive_expecting(b, STAGE_BYTES);
  }
}

/* By all loaders */
inline void bring_tiles(const gemm_args &g, const block_of_c &c, shared_at memory, ring<STAGES> &at) {
  const lines a = lines_of_a(g, c), b = lines_of_b(g, c);
  for (i64 k = c.first_k; k < c.end_k; k += TILE_K, at.next()) {
    barrier_wait(was_read(memory, at.stage), at.phase ^ 1);
    bring_both(memory + (u32)(at.stage * STAGE_BYTES), a, b, c, k);
    tile_came(came(memory, at.stage), a.quick && b.quick);
  }
}

/* ---- the kernel ---- */
/* A tile's products are on their way while the next tile is waited for; then it may go. */
inline void sum_tiles(const block_of_c &c, shared_at memory, ring<STAGES> &at, ring<STAGES> &before,
                      float (&sum)[NT][4]) {
  for (i64 k = c.first_k; k < c.end_k; k += TILE_K, at.next()) {
    const shared_at tile = memory + (u32)(at.stage * STAGE_BYTES);
    barrier_wait(came(memory, at.stage), at.phase);
    shared_to_products();
    hold(sum);
    products_begin();
    group_product(sum, tile, tile + A_BYTES);
    products_issued();
    if (k == c.first_k) continue;
    products_done<1>();
    warp_arrives(was_read(memory, before.stage));
    before.next();
  }
  products_done<0>();
  hold(sum);
  if (c.first_k >= c.end_k) return;
  warp_arrives(was_read(memory, before.stage));
  before.next();
}

inline void load_blocks(const gemm_args &g, u32 blocks, shared_at memory) {
  ring<STAGES> at;
  for (u32 i = blockIdx.x; i < blocks; i += gridDim.x) {
    const block_of_c c = find_block(g, i);
    if (!g.boxed) bring_tiles(g, c, memory, at);
    if (g.boxed && threadIdx.x == 0) copy_tiles(g, c, memory, at);
  }
}

inline void work_blocks(const gemm_args &g, u32 blocks, shared_at memory, strip *strips) {
  const int warp = ((int)threadIdx.x - LOADERS) / 32;
  ring<STAGES> at, before;
  for (u32 i = blockIdx.x; i < blocks; i += gridDim.x) {
    const block_of_c c = find_block(g, i);
    float sum[NT / 4][4][4];
    clear_parts(sum);
    sum_tiles(c, memory, at, before, *(float(*)[NT][4])sum);
    put_strips(g, strips[warp], c.m + 16 * warp, c.n, false, sum);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ gemm_args g) {
  DYNAMIC_SHARED(memory);
  const shared_at tiles = first_atom(memory);
  const u32 blocks = tiles_in(g.m, TILE_M) * tiles_in(g.n, TILE_N);
  if (threadIdx.x == 0) begin_barriers(tiles, g.boxed ? 1 : LOADERS);
  __syncthreads();
  if (threadIdx.x < LOADERS) {
    fewer_registers<120>();
    load_blocks(g, blocks, tiles);
  } else {
    more_registers<192>();
    work_blocks(g, blocks, tiles, (strip *)(memory + (tiles - shared_address(memory)) + STRIPS_AT));
  }
}
