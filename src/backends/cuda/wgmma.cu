/* wgmma.cu -- Hopper's tensor cores (sm_90a): products of a group of four warps, whose matrices lie in shared memory.
 * Barriers (barriers.cu) are between the group that brings tiles and the groups that work on them.
 *
 * A product has 64 rows, 16 of them for each warp; a lane holds its parts as in tensor.cu: c[n][..] of (16, 8) parts.
 *
 * A tile lies in panels of 64 columns (128 bytes): row r of a panel is 128 bytes from row r - 1, and its chunk c of 16
 * bytes is at place c ^ (r mod 8). Eight rows are an atom of 1024 bytes, where every tile begins. The tensor cores read
 * such a tile as it is (its columns are summed over) or flipped (its rows are). */
enum { GROUP = 128, ATOM_BYTES = 1024 };

/* ---- memory and registers ---- */
#ifdef AMBI_EMULATED
inline void shared_to_products() {}
template <int N>
inline void fewer_registers() {}
template <int N>
inline void more_registers() {}
inline uint4 load_chunk(shared_at from) { return *(const uint4 *)from; }
#else
/* What was stored in shared memory, or copied there, is seen by the products that follow. */
inline void shared_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* The registers of a thread, for the whole group: some groups give what others take. */
template <int N>
inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
inline uint4 load_chunk(shared_at from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
#endif

/* Of a warp, when its lanes are done with a tile */
inline void warp_arrives(shared_at b) {
  __syncwarp(); /* what they read themselves, too */
  if (threadIdx.x % 32 == 0) barrier_arrive(b);
}
/* This thread's part of a tile: on its way, by copies alone, or here already. */
inline void tile_came(shared_at b, bool on_its_way) {
  if (on_its_way) return barrier_arrive_copied(b);
  copies_done();
  barrier_arrive(b);
}

inline shared_at first_atom(const char *memory) {
  return (shared_address(memory) + ATOM_BYTES - 1) & ~(shared_at)(ATOM_BYTES - 1);
}

/* Whose turn it is in a ring of STAGES tiles */
template <int STAGES>
struct ring {
  int stage = 0;
  u32 phase = 0;
  void next() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

/* ---- tiles ---- */
template <int ROWS>
inline shared_at panel_chunk(shared_at tile, int row, int chunk) {
  return tile + (u32)(chunk / 8 * (ROWS * 128) + row * 128 + ((chunk ^ row) & 7) * 16);
}

/* A group brings ROWS rows of DEPTH elements (64 or 128), `step` bytes apart in global memory, addresses multiples of
 * 16 bytes if `quick`; zeros beyond `rows` and `width`. A thread has every GROUP-th chunk: of one column, 8 or 16 rows
 * apart. */
template <int ROWS, int DEPTH>
inline void bring_tile(shared_at tile, const char *global, i64 step, int rows, int width, bool quick) {
  enum { EACH = DEPTH / 8, APART = GROUP / EACH };
  const int lane = (int)threadIdx.x % GROUP, row = lane / EACH, chunk = lane % EACH;
  const shared_at to = panel_chunk<ROWS>(tile, row, chunk);
  const char *from = global + row * step + chunk * 16;
  const int left = chunk * 8 < width ? rows - row : 0;
  if (quick) {
#pragma unroll 4
    for (int i = 0; i < ROWS; i += APART) {
      copy_16(to + (u32)i * 128, i < left ? from : global, i < left);
      from += APART * step;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < ROWS; i += APART)
#pragma unroll 1
      for (int k = 0; k < 4; k++) {
        const u16 *two = (const u16 *)(from + i * step) + 2 * k;
        store_shared(to + (u32)i * 128 + 4 * k, i < left ? two[0] | (u32)two[1] << 16 : 0);
      }
  }
}

/* Whether any chunk of the tile that this thread brought is odd (tensor.cu). They must have arrived. */
template <int TYPE, int ROWS, int DEPTH>
inline bool brought_odd(shared_at tile) {
  enum { EACH = DEPTH / 8, APART = GROUP / EACH };
  const int lane = (int)threadIdx.x % GROUP;
  const shared_at at = panel_chunk<ROWS>(tile, lane / EACH, lane % EACH);
  bool odd = false;
#pragma unroll 1
  for (int i = 0; i < ROWS; i += APART) {
    const uint4 v = load_chunk(at + (u32)i * 128);
    odd = odd || is_odd<TYPE>(v.x) || is_odd<TYPE>(v.x >> 16) || is_odd<TYPE>(v.y) || is_odd<TYPE>(v.y >> 16) ||
          is_odd<TYPE>(v.z) || is_odd<TYPE>(v.z >> 16) || is_odd<TYPE>(v.w) || is_odd<TYPE>(v.w >> 16);
  }
  return odd;
}

/* Takes out what is odd: thread `lane` of `threads`. */
template <int TYPE, int ROWS, int DEPTH>
inline void clear_panels(shared_at tile, int lane, int threads) {
#pragma unroll 1
  for (int n = lane; n < ROWS * DEPTH / 2; n += threads) clear_odd_pair<TYPE>(tile + 4u * (u32)n);
}

/* The same for the chunks that this thread brought */
template <int TYPE, int ROWS, int DEPTH>
inline void clear_brought(shared_at tile) {
  enum { EACH = DEPTH / 8, APART = GROUP / EACH };
  const int lane = (int)threadIdx.x % GROUP;
  const shared_at at = panel_chunk<ROWS>(tile, lane / EACH, lane % EACH);
#pragma unroll 1
  for (int n = 0; n < ROWS / APART * 4; n++) clear_odd_pair<TYPE>(at + (u32)(n / 4 * APART * 128 + n % 4 * 4));
}

/* ---- products: on their way from products_begin to products_done ---- */
#ifdef AMBI_EMULATED
inline void products_begin() {}
inline void products_issued() { emu_batch(EMU_PRODUCTS); }
template <int LEFT>
inline void products_done() {
  emu_ended(EMU_PRODUCTS, LEFT);
}
template <int NT>
inline void hold(float (&c)[NT][4]) {}

template <int TYPE, int ROWS>
inline float emu_element(shared_at tile, int row, int column) {
  return emu_value(TYPE, emu_half(panel_chunk<ROWS>(tile, row, column / 8) + 2 * (column % 8)));
}

/* A warp reads 64 columns at a time of `rows` rows. */
inline void emu_reads(shared_at panel, int rows) {
  if (threadIdx.x % 32 == 0) emu_begun(EMU_PRODUCTS, (const void *)panel, (u64)rows * 128);
}

template <int TYPE, int NT, int DEPTH, int ROWS_X, int ROWS_Y>
inline void group_dots(float (&c)[NT][4], shared_at x, int row_x, shared_at y) {
  for (int panel = 0; panel < (DEPTH + 63) / 64; panel++) {
    emu_reads(x + ((u64)panel * ROWS_X + row_x + threadIdx.x % GROUP / 32 * 16) * 128, 16);
    emu_reads(y + (u64)panel * ROWS_Y * 128, ROWS_Y);
  }
  const int row = row_x + (int)threadIdx.x % GROUP / 32 * 16 + (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  for (int i = 0; i < NT * 4; i++) {
    float sum = 0;
    for (int k = 0; k < DEPTH; k++)
      sum += emu_element<TYPE, ROWS_X>(x, row + i / 2 % 2 * 8, k) *
             emu_element<TYPE, ROWS_Y>(y, i / 4 * 8 + 2 * t + i % 2, k);
    c[i / 4][i % 4] = sum;
  }
}

template <int TYPE, int NT, int KT, int ROWS_Y>
inline void group_weighted(float (&c)[NT][4], const u32 (&w)[KT][4], shared_at y) {
  const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  for (int panel = 0; panel < NT / 8; panel++) emu_reads(y + (u64)panel * ROWS_Y * 128, ROWS_Y);
  u32 all[32][4];
  for (int k = 0; k < 16 * KT; k++) {
    if (k % 16 == 0) emu_warp_exchange(w[k / 16], sizeof w[0], all);
    for (int i = 0; i < NT * 4; i++) {
      const u32 a = all[4 * g + k % 8 / 2][i / 2 % 2 + k % 16 / 8 * 2] >> 16 * (k % 2) & 0xffff;
      c[i / 4][i % 4] += emu_value(TYPE, a) * emu_element<TYPE, ROWS_Y>(y, k, i / 4 * 8 + 2 * t + i % 2);
    }
  }
}
#else
inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline void products_issued() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All but the last LEFT batches are done. */
template <int LEFT>
inline void products_done() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* Where the compiler must take c as it is now: before and after products that write it */
template <int NT>
inline void hold(float (&c)[NT][4]) {
#pragma unroll
  for (int i = 0; i < NT * 4; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}

/* What a product reads: rows of 128 bytes, atoms 1024 bytes apart along the rows; the next panel's atom where it needs
 * two (flipped). */
inline u64 matrix_at(shared_at at, u32 next_panel) {
  return (u64)(at >> 4 & 0x3fff) | (u64)(next_panel >> 4) << 16 | (u64)(ATOM_BYTES >> 4) << 32 | 1ull << 62;
}

#define PART_4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define PART_32(i) \
  PART_4(i), PART_4(i + 1), PART_4(i + 2), PART_4(i + 3), PART_4(i + 4), PART_4(i + 5), PART_4(i + 6), PART_4(i + 7)
#define NAMES_32                                                                                               \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31"
#define NAMES_64                                                                                                  \
  NAMES_32                                                                                                        \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
  "%59,%60,%61,%62,%63"
#define WGMMA(shape, type) "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " "
#define ADDING(n)          "{ .reg .pred adding; setp.ne.b32 adding, " n ", 0; "

/* c = a b^T or, adding, c += a b^T */
template <int TYPE>
inline void multiply(float (&c)[8][4], u64 a, u64 b, int adding) {
  if (TYPE == F16)
    asm volatile(ADDING("%34") WGMMA("m64n64k16", "f16") "{" NAMES_32 "}, %32, %33, adding, 1, 1, 0, 0; }"
                 : PART_32(0)
                 : "l"(a), "l"(b), "r"(adding));
  else
    asm volatile(ADDING("%34") WGMMA("m64n64k16", "bf16") "{" NAMES_32 "}, %32, %33, adding, 1, 1, 0, 0; }"
                 : PART_32(0)
                 : "l"(a), "l"(b), "r"(adding));
}
template <int TYPE>
inline void multiply(float (&c)[16][4], u64 a, u64 b, int adding) {
  if (TYPE == F16)
    asm volatile(ADDING("%66") WGMMA("m64n128k16", "f16") "{" NAMES_64 "}, %64, %65, adding, 1, 1, 0, 0; }"
                 : PART_32(0), PART_32(8)
                 : "l"(a), "l"(b), "r"(adding));
  else
    asm volatile(ADDING("%66") WGMMA("m64n128k16", "bf16") "{" NAMES_64 "}, %64, %65, adding, 1, 1, 0, 0; }"
                 : PART_32(0), PART_32(8)
                 : "l"(a), "l"(b), "r"(adding));
}
/* c += a b: a lies in registers, as tensor.cu says */
template <int TYPE>
inline void multiply_flipped(float (&c)[8][4], const u32 (&a)[4], u64 b) {
  if (TYPE == F16)
    asm volatile(ADDING("1") WGMMA("m64n64k16", "f16") "{" NAMES_32 "}, {%32,%33,%34,%35}, %36, adding, 1, 1, 1; }"
                 : PART_32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else
    asm volatile(ADDING("1") WGMMA("m64n64k16", "bf16") "{" NAMES_32 "}, {%32,%33,%34,%35}, %36, adding, 1, 1, 1; }"
                 : PART_32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <int TYPE>
inline void multiply_flipped(float (&c)[16][4], const u32 (&a)[4], u64 b) {
  if (TYPE == F16)
    asm volatile(ADDING("1") WGMMA("m64n128k16", "f16") "{" NAMES_64 "}, {%64,%65,%66,%67}, %68, adding, 1, 1, 1; }"
                 : PART_32(0), PART_32(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else
    asm volatile(ADDING("1") WGMMA("m64n128k16", "bf16") "{" NAMES_64 "}, {%64,%65,%66,%67}, %68, adding, 1, 1, 1; }"
                 : PART_32(0), PART_32(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* c (64, 8 NT) = x y^T: tiles of DEPTH columns, of x the 64 rows from row_x on, of y 8 NT = ROWS_Y */
template <int TYPE, int NT, int DEPTH, int ROWS_X, int ROWS_Y>
inline void group_dots(float (&c)[NT][4], shared_at x, int row_x, shared_at y) {
  const u64 a = matrix_at(x + (u32)row_x * 128, 0), b = matrix_at(y, 0);
#pragma unroll
  for (int block = 0; block < DEPTH / 16; block++)
    multiply<TYPE>(c, a + (u32)(block / 4 * ROWS_X * 8 + block % 4 * 2),
                   b + (u32)(block / 4 * ROWS_Y * 8 + block % 4 * 2), block > 0);
}

/* c (64, 8 NT) += w y: w (64, 16 KT) lies in registers, y is a tile of 16 KT = ROWS_Y rows and 8 NT columns */
template <int TYPE, int NT, int KT, int ROWS_Y>
inline void group_weighted(float (&c)[NT][4], const u32 (&w)[KT][4], shared_at y) {
  const u64 b = matrix_at(y, ROWS_Y * 128);
#pragma unroll
  for (int k = 0; k < KT; k++) multiply_flipped<TYPE>(c, w[k], b + (u32)(k * 16 * 8));
}
#endif

/* c, rounded, as the left side of a product */
template <int TYPE, int NT>
inline void pack_parts(u32 (&w)[NT / 2][4], const float (&c)[NT][4]) {
#pragma unroll
  for (int i = 0; i < NT * 2; i++)
    w[i / 4][i % 4] = two_halves<TYPE>(c[i / 4 * 2 + i % 4 / 2][i % 2 * 2], c[i / 4 * 2 + i % 4 / 2][i % 2 * 2 + 1]);
}
