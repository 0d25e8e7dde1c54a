/* gemm90.cu -- the products of halves.cu on Hopper: one group of four warps brings tiles, two others have 64 rows of the
 * block's results each, in registers, by products of whole groups (wgmma.cu).                                       */
enum { NT = TILE_N / 8, WORKERS = THREADS - LOADERS, BARRIERS_AT = STAGES * STAGE_BYTES };
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

/* ---- the kernel ---- */
inline shared_at came(shared_at memory, int stage) { return memory + (u32)(BARRIERS_AT + 16 * stage); }
inline shared_at was_read(shared_at memory, int stage) { return memory + (u32)(BARRIERS_AT + 16 * stage + 8); }

inline void begin_barriers(shared_at memory) {
  for (int i = 0; i < STAGES; i++) barrier_init(came(memory, i), LOADERS), barrier_init(was_read(memory, i), WORKERS / 32);
}

inline void bring_all(const gemm_args &g, const block_of_c &c, shared_at memory) {
  const lines a = lines_of_a(g, c), b = lines_of_b(g, c);
  ring<STAGES> at;
  for (i64 k = c.first_k; k < c.end_k; k += TILE_K, at.next()) {
    barrier_wait(was_read(memory, at.stage), at.phase ^ 1);
    bring_both(memory + (u32)(at.stage * STAGE_BYTES), a, b, c, k);
    tile_came(came(memory, at.stage), a.quick && b.quick);
  }
}

/* A tile's products are on their way while the next tile is waited for; then it may go. */
inline void sum_all(const block_of_c &c, shared_at memory, float (&sum)[NT][4]) {
  ring<STAGES> at, before;
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
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ gemm_args g) {
  DYNAMIC_SHARED(memory);
  const shared_at tiles = first_atom(memory);
  const block_of_c c = find_block(g);
  if (threadIdx.x == 0) begin_barriers(tiles);
  __syncthreads();
  if (threadIdx.x < LOADERS) {
    fewer_registers<88>();
    bring_all(g, c, tiles);
    return;
  }
  more_registers<208>();
  const int thread = (int)threadIdx.x - LOADERS;
  float sum[1][NT][4];
  clear_parts(sum);
  sum_all(c, tiles, sum[0]);
  group_barrier(1, WORKERS); /* all tiles were read */
  results &r = *(results *)(memory + (tiles - shared_address(memory)));
  stage_rows(r, thread / 32 * 16, 0, sum[0]);
  stage_bias(r, g, c, thread);
  group_barrier(1, WORKERS);
  put_block(g, c, r, thread, WORKERS);
}
