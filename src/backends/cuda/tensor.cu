/* tensor.cu -- tensor cores for f16 and bf16: products of 16 x 16 by 16 x 8, and the tiles in shared memory they read.
 *
 * A warp holds matrices in pieces. Lane 4 g + t has, two neighbours of a row to a word,
 *   a (16 x 16)   a[0] = (g, 2t), (g, 2t + 1);  a[1]: 8 rows down;  a[2]: 8 columns on;  a[3]: both
 *   b (16 x 8)    b[0] = (2t, g), (2t + 1, g);  b[1]: 8 rows down
 *   c (16 x 8)    c[0], c[1] = (g, 2t), (g, 2t + 1);  c[2], c[3]: 8 rows down                     (f32)
 * so that c of two neighbours, rounded, is an a again: that is how p stays in registers.
 *
 * A tile has rows of PITCH 16-bit elements (32, 64, 128 or 256) in chunks of 16 bytes. Chunk c of row r lies at place
 * c ^ (r mod 8): the 8 rows of a column of chunks are on different banks. */
#ifdef AMBI_EMULATED
inline float fast_exp2(float x) { return exp2f(x); }
inline float fast_rcp(float x) { return 1.0f / x; }
inline u16 emu_half(shared_at at) { return *(const u16 *)at; }
inline float emu_value(int dtype, u32 bits) { return dtype == F16 ? f16_to_f32(bits) : bf16_to_f32(bits); }

struct emu_operands {
  u32 a[4], b[2];
};

/* Element (row, column) of all lanes' a, column k of b: see above */
template <int TYPE>
inline void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emu_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}}, all[32];
  emu_warp_exchange(&mine, sizeof mine, all);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int e = 0; e < 4; e++)
    for (int k = 0; k < 16; k++) {
      const u32 x = all[4 * g + k % 8 / 2].a[e / 2 + k / 8 * 2], y = all[4 * (2 * t + e % 2) + k % 8 / 2].b[k / 8];
      c[e] += emu_value(TYPE, x >> 16 * (k % 2) & 0xffff) * emu_value(TYPE, y >> 16 * (k % 2) & 0xffff);
    }
}

inline void load_matrices(u32 (&r)[4], shared_at at) {
  shared_at all[32];
  emu_warp_exchange(&at, sizeof at, all);
  for (int m = 0; m < 4; m++) r[m] = *(const u32 *)(all[8 * m + threadIdx.x % 32 / 4] + 4 * (threadIdx.x % 4));
}
inline void load_flipped(u32 (&r)[4], shared_at at) {
  shared_at all[32];
  emu_warp_exchange(&at, sizeof at, all);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int m = 0; m < 4; m++)
    r[m] = emu_half(all[8 * m + 2 * t] + 2 * g) | (u32)emu_half(all[8 * m + 2 * t + 1] + 2 * g) << 16;
}

inline void copy_16(shared_at to, const void *from, bool there) {
  for (int i = 0; i < 4; i++) ((u32 *)to)[i] = there ? ((const u32 *)from)[i] : 0;
  emu_begun(EMU_COPIES, (void *)to, 16);
}
inline void copy_4(shared_at to, const void *from, bool there) {
  *(u32 *)to = there ? *(const u32 *)from : 0;
  emu_begun(EMU_COPIES, (void *)to, 4);
}
inline void copies_done() { emu_ended(EMU_COPIES, EMU_ALL); }
inline void group_barrier(int id, int threads) { emu_barrier(id, threads); }
inline void store_shared(shared_at to, u32 v) { *(u32 *)to = v; }
inline u32 load_shared(shared_at from) { return *(const u32 *)from; }
inline float2 load_shared_pair(shared_at from) { return *(const float2 *)from; }
#else
inline float fast_exp2(float x) { /* 0 for -inf and where the result is denormal */
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
inline float fast_rcp(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

/* c += a b */
template <int TYPE>
inline void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if (TYPE == F16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices, of which lane 8 m + r names row r of matrix m: word m is (g, 2t), (g, 2t + 1) of matrix m. */
inline void load_matrices(u32 (&r)[4], shared_at at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
/* The same with (2t, g), (2t + 1, g) */
inline void load_flipped(u32 (&r)[4], shared_at at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/* 16 or 4 aligned bytes of global memory, or zeros, on their way */
inline void copy_16(shared_at to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
inline void copy_4(shared_at to, const void *from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
/* All of them have arrived, for this thread: the others know after a barrier. */
inline void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/* Of `threads` threads, whole warps; id is 1 .. 15 */
inline void group_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
inline void store_shared(shared_at to, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory"); }
inline u32 load_shared(shared_at from) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
inline float2 load_shared_pair(shared_at from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}
#endif

template <int TYPE>
inline u32 two_halves(float low, float high) {
  return TYPE == F16 ? two_f16(low, high) : two_bf16(low, high);
}

/* ---- tiles ---- */
template <int PITCH>
inline shared_at chunk_at(shared_at tile, int row, int chunk) {
  const int twist = PITCH >= 64 ? row & 7 : row >> 1 & 3;
  return tile + (u32)(row * PITCH * 2 + (chunk ^ twist) * 16);
}

/* Where a lane points for the 16 x 16 elements from (row, 16 block): as an a, flipped as two neighbouring b ([0], [1]
 * and [2], [3]) whose rows are the tile's rows. */
template <int PITCH>
inline shared_at square_at(shared_at tile, int row, int block) {
  const int lane = threadIdx.x % 32;
  return chunk_at<PITCH>(tile, row + lane % 16, 2 * block + lane / 16);
}
/* The same as two neighbouring b whose columns are the tile's rows. */
template <int PITCH>
inline shared_at columns_at(shared_at tile, int row, int block) {
  const int lane = threadIdx.x % 32;
  return chunk_at<PITCH>(tile, row + lane / 16 * 8 + lane % 8, 2 * block + lane / 8 % 2);
}

/* Chunk number threadIdx.x + i THREADS of a tile with DEPTH elements in a row */
template <int DEPTH, int PITCH, int THREADS>
struct tile_chunk {
  const char *from;
  shared_at to;
  bool there;
  tile_chunk(shared_at tile, const char *global, i64 step, int i, int rows, int width) {
    enum { EACH = DEPTH / 8, REGULAR = THREADS % EACH == 0 }; /* then a thread stays in its column of chunks */
    const int n = (int)threadIdx.x + i * THREADS;
    const int row = REGULAR ? (int)threadIdx.x / EACH + i * (THREADS / EACH) : n / EACH;
    const int chunk = REGULAR ? (int)threadIdx.x % EACH : n % EACH;
    there = row < rows && chunk * 8 < width;
    from = there ? global + row * step + chunk * 16 : global;
    to = chunk_at<PITCH>(tile, row, chunk);
  }
};

/* ROWS rows of DEPTH elements, `step` bytes apart in global memory; zeros beyond `rows` and `width`, a multiple of 8.
 * Where addresses are not aligned, a thread fetches the elements itself. */
template <int ROWS, int DEPTH, int PITCH, int THREADS>
inline void load_tile(shared_at tile, const char *global, i64 step, int rows, int width) {
  enum { ALL = ROWS * (DEPTH / 8), ROUNDS = (ALL + THREADS - 1) / THREADS };
  if (((u64)global | (u64)step) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const tile_chunk<DEPTH, PITCH, THREADS> c(tile, global, step, i, rows, width);
      if (ALL % THREADS == 0 || (int)threadIdx.x + i * THREADS < ALL) copy_16(c.to, c.from, c.there);
    }
  } else {
#pragma unroll 1
    for (int i = 0; (int)threadIdx.x + i * THREADS < ALL; i++) {
      const tile_chunk<DEPTH, PITCH, THREADS> c(tile, global, step, i, rows, width);
      const u16 *from = (const u16 *)c.from;
#pragma unroll 1
      for (int k = 0; k < 4; k++) store_shared(c.to + 4 * k, c.there ? from[2 * k] | (u32)from[2 * k + 1] << 16 : 0);
    }
  }
}

/* ---- products of a warp: MT rows of squares at a time ---- */
/* c (16 MT, 8 NT) += x y^T: x and y are tiles of DEPTH columns, from row_x and row_y on */
template <int TYPE, int MT, int NT, int DEPTH, int PITCH>
inline void add_dots(float (&c)[MT][NT][4], shared_at x, int row_x, shared_at y, int row_y) {
#pragma unroll
  for (int block = 0; block < DEPTH / 16; block++) {
    u32 a[MT][4], b[4];
#pragma unroll
    for (int m = 0; m < MT; m++) load_matrices(a[m], square_at<PITCH>(x, row_x + 16 * m, block));
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      load_matrices(b, columns_at<PITCH>(y, row_y + 8 * n, block));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        multiply_add<TYPE>(c[m][n], a[m], b[0], b[1]);
        multiply_add<TYPE>(c[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* c (16 MT, 8 NT) += w y: w (16 MT, 8 KT) lies in registers and is rounded to 16 bits; y is a tile, columns from 16
 * first */
template <int TYPE, int MT, int NT, int KT, int PITCH>
inline void add_weighted(float (&c)[MT][NT][4], const float (&w)[MT][KT][4], shared_at y, int first) {
#pragma unroll
  for (int k = 0; k < KT; k += 2) {
    u32 a[MT][4], b[4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[m][i] = two_halves<TYPE>(w[m][k + i / 2][i % 2 * 2], w[m][k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      load_flipped(b, square_at<PITCH>(y, 8 * k, first + n / 2));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        multiply_add<TYPE>(c[m][n], a[m], b[0], b[1]);
        multiply_add<TYPE>(c[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* c (16 MT, 8 NT) += x y: x (16 MT, 16 KT) and y are tiles, columns of y from 16 first */
template <int TYPE, int MT, int NT, int KT, int PITCH_X, int PITCH>
inline void add_product(float (&c)[MT][NT][4], shared_at x, shared_at y, int first) {
#pragma unroll
  for (int k = 0; k < KT; k++) {
    u32 a[MT][4], b[4];
#pragma unroll
    for (int m = 0; m < MT; m++) load_matrices(a[m], square_at<PITCH_X>(x, 16 * m, k));
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      load_flipped(b, square_at<PITCH>(y, 16 * k, first + n / 2));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        multiply_add<TYPE>(c[m][n], a[m], b[0], b[1]);
        multiply_add<TYPE>(c[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* c, rounded, as a tile, in the columns from 8 first */
template <int TYPE, int MT, int NT, int PITCH>
inline void store_parts(shared_at tile, int first, const float (&c)[MT][NT][4]) {
  const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < MT * NT * 2; i++) {
    const int m = i / (NT * 2), n = i / 2 % NT, h = i % 2;
    store_shared(chunk_at<PITCH>(tile, 16 * m + 8 * h + g, first + n) + 4 * t,
                 two_halves<TYPE>(c[m][n][2 * h], c[m][n][2 * h + 1]));
  }
}

template <int MT, int NT>
inline void clear_parts(float (&c)[MT][NT][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[m][n][e] = 0;
}

/* Elements i and i + 1, i even, of 16-bit memory */
template <int TYPE>
inline void put_pair(bool adds, char *p, int i, float low, float high) {
  u16 *at = (u16 *)p + i;
  const bool aligned = (u64)at % 4 == 0;
  if (adds) {
    const u32 old = aligned ? *(const u32 *)at : at[0] | (u32)at[1] << 16;
    low += TYPE == F16 ? f16_to_f32(old & 0xffff) : bf16_to_f32(old & 0xffff);
    high += TYPE == F16 ? f16_to_f32(old >> 16) : bf16_to_f32(old >> 16);
  }
  const u32 both = two_halves<TYPE>(low, high);
  if (aligned)
    *(u32 *)at = both;
  else
    at[0] = (u16)both, at[1] = (u16)(both >> 16);
}

/* Of four words of a lane and those of its three neighbours: word t of all of them, for lane t of the four */
inline uint4 turn_words(u32 (&w)[4]) {
  const bool high = threadIdx.x & 2, odd = threadIdx.x & 1;
  u32 a = __shfl_xor_sync(ALL_LANES, high ? w[0] : w[2], 2), b = __shfl_xor_sync(ALL_LANES, high ? w[1] : w[3], 2);
  if (high)
    w[0] = a, w[1] = b;
  else
    w[2] = a, w[3] = b;
  a = __shfl_xor_sync(ALL_LANES, odd ? w[0] : w[1], 1), b = __shfl_xor_sync(ALL_LANES, odd ? w[2] : w[3], 1);
  return odd ? make_uint4(a, w[1], b, w[3]) : make_uint4(w[0], a, w[2], b);
}

/* 16 bytes to memory that is aligned so (wide) or to 2; the rare way is a loop, as that compiles sooner */
inline void put_chunk(char *p, uint4 v, bool wide) {
  if (wide) {
    *(uint4 *)p = v;
    return;
  }
#pragma unroll 1
  for (int i = 0; i < 8; i++) {
    ((u16 *)p)[i] = (u16)v.x;
    v = make_uint4(v.x >> 16 | v.y << 16, v.y >> 16 | v.z << 16, v.z >> 16 | v.w << 16, v.w >> 16);
  }
}

/* Row g + 8 h of c, times `factor`, to 8 NT columns of 16-bit memory, of which `width` are there: in chunks of 16 bytes
 * where that divides them and nothing is added to. */
template <int TYPE, int NT>
inline void put_row(bool adds, char *p, const float (&c)[NT][4], int h, float factor, int width, bool there) {
  const int t = (int)threadIdx.x % 4;
  const bool wide = (u64)p % 16 == 0;
#pragma unroll
  for (int j = 0; NT % 4 == 0 && !adds && j < NT / 4; j++) {
    u32 w[4];
#pragma unroll
    for (int n = 0; n < 4; n++) w[n] = two_halves<TYPE>(c[4 * j + n][2 * h] * factor, c[4 * j + n][2 * h + 1] * factor);
    const uint4 chunk = turn_words(w);
    if (there && 8 * (4 * j + t) < width) put_chunk(p + 16 * (4 * j + t), chunk, wide);
  }
#pragma unroll
  for (int n = 0; (NT % 4 != 0 || adds) && n < NT; n++)
    if (there && 8 * n < width)
      put_pair<TYPE>(adds, p, 8 * n + 2 * t, c[n][2 * h] * factor, c[n][2 * h + 1] * factor);
}

/* ---- weights that are zero because of a mask: an infinity or NaN must not count there ---- */
template <int TYPE>
inline bool is_odd(u32 bits) {
  const u32 top = TYPE == F16 ? 0x7c00 : 0x7f80;
  return (bits & top) == top;
}

/* Whether anything in the tile is odd, for the whole block */
template <int TYPE, int ROWS, int DEPTH, int PITCH, int THREADS>
inline bool has_odd(shared_at tile) {
  bool odd = false;
  for (int n = threadIdx.x; n < ROWS * (DEPTH / 2); n += THREADS) {
    const int row = n / (DEPTH / 2), pair = n % (DEPTH / 2);
    const u32 both = load_shared(chunk_at<PITCH>(tile, row, pair / 4) + 4 * (pair % 4));
    odd = odd || is_odd<TYPE>(both) || is_odd<TYPE>(both >> 16);
  }
  return __syncthreads_or(odd) != 0;
}

template <int TYPE>
inline void clear_odd_pair(shared_at at) {
  const u32 both = load_shared(at);
  store_shared(at, (is_odd<TYPE>(both) ? 0 : both & 0xffff) | (is_odd<TYPE>(both >> 16) ? 0 : both & 0xffff0000));
}

/* For the others what is odd is taken out of the tile .. */
template <int TYPE, int ROWS, int DEPTH, int PITCH, int THREADS>
inline void clear_odd(shared_at tile) {
  __syncthreads();
  for (int n = threadIdx.x; n < ROWS * (DEPTH / 2); n += THREADS) {
    const int row = n / (DEPTH / 2), pair = n % (DEPTH / 2);
    clear_odd_pair<TYPE>(chunk_at<PITCH>(tile, row, pair / 4) + 4 * (pair % 4));
  }
  __syncthreads();
}

/* .. and put back in the end: c gets what is odd in rows [lo, hi) of global memory, `step` bytes apart, from column
 * `first` on, where sees(m, h, j): row 16 m + 8 h + g of c has a weight for row j. Nothing branches inside: a branch for
 * each number of c would be most of what a kernel takes to compile. */
template <int TYPE, int MT, int NT, class SEES>
inline void add_odd(float (&c)[MT][NT][4], const char *rows, i64 step, int lo, int hi, int first, int width,
                    SEES sees) {
#pragma unroll 1
  for (int j = lo; j < hi; j++) {
    const u16 *row = (const u16 *)(rows + j * step);
    bool seen[MT * 2];
#pragma unroll
    for (int i = 0; i < MT * 2; i++) seen[i] = sees(i / 2, i % 2, j);
#pragma unroll
    for (int i = 0; i < NT * 2; i++) {
      const int column = first + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
      const u32 bits = column < width ? row[column] : 0;
      const float odd = TYPE == F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
#pragma unroll
      for (int k = 0; k < MT * 2; k++) {
        float &to = c[k / 2][i / 2][k % 2 * 2 + i % 2];
        to = is_odd<TYPE>(bits) && seen[k] ? to + odd : to;
      }
    }
  }
}
