/* tiles.cu -- T x T tiles in shared memory, sums of their products in registers, and how both meet global memory.
 *
 * With TENSOR 1 a tile holds bf16 and products are those of tensor.cu; otherwise it holds reals. Either way
 * a block has 256 threads, and a thread has EACH sums of a T x T matrix: sum e is at (row_of(e), column_of(e)).      */
enum { T = STEPS, THREADS = 256, EACH = T * T / THREADS, VEC = LOAD_VEC };
enum { REAL_TYPE = COMPUTE_F64 ? F64 : F32, STATE_TYPE = TENSOR ? (int)BF16 : (int)REAL_TYPE };

struct sums {
  real v[EACH];
};
inline void clear(sums &c) {
#pragma unroll
  for (int e = 0; e < EACH; e++) c.v[e] = 0;
}

/* flipped: row i, column k of the factor is at (k, i) of its tile */
#if TENSOR
enum { TYPE = BF16, TILE_BYTES = T * T * 2 };
typedef shared_at tile;

#define WARP_ROW    ((int)threadIdx.x / 32 % 4 * 16)
#define WARP_COLUMN ((int)threadIdx.x / 128 * 32)
inline int row_of(int e) { return WARP_ROW + (int)threadIdx.x % 32 / 4 + e / 2 % 2 * 8; }
inline int column_of(int e) { return WARP_COLUMN + e / 4 * 8 + (int)threadIdx.x % 4 * 2 + e % 2; }

inline shared_at cell_at(tile x, int row, int column) { return chunk_at<T>(x, row, column / 8) + column % 8 / 2 * 4; }
inline real cell(tile x, int row, int column) {
  const u32 both = load_shared(cell_at(x, row, column)), bits = column % 2 ? both >> 16 : both & 0xffff;
  return bf16_to_f32(bits);
}
/* The thread's own, at the places of its sums */
inline void get_cells(sums &to, tile x) {
#pragma unroll
  for (int e = 0; e < EACH; e += 2) {
    const u32 both = load_shared(cell_at(x, row_of(e), column_of(e)));
    to.v[e] = bf16_to_f32(both & 0xffff), to.v[e + 1] = bf16_to_f32(both >> 16);
  }
}
/* Neighbours of a row, from an even column on */
inline void set_pair(tile x, int row, int column, real low, real high) {
  store_shared(cell_at(x, row, column), two_halves<TYPE>(low, high));
}
inline void set_sums(tile x, const sums &c) {
#pragma unroll
  for (int e = 0; e < EACH; e += 2) set_pair(x, row_of(e), column_of(e), c.v[e], c.v[e + 1]);
}
inline void set_vector(tile x, int row, int column, const real (&v)[VEC]) {
#pragma unroll
  for (int k = 0; k < VEC; k += 2) set_pair(x, row, column + k, v[k], v[k + 1]);
}

/* c += a b */
template <bool FLIP_A, bool FLIP_B>
inline void add_product(sums &c, tile a, tile b) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < T / 16; k++) {
    u32 x[4], y[4];
    if (FLIP_A)
      load_flipped(x, chunk_at<T>(a, 16 * k + lane / 16 * 8 + lane % 8, WARP_ROW / 8 + lane / 8 % 2));
    else
      load_matrices(x, square_at<T>(a, WARP_ROW, k));
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      if (FLIP_B)
        load_matrices(y, columns_at<T>(b, WARP_COLUMN + 8 * n, k));
      else
        load_flipped(y, square_at<T>(b, 16 * k, WARP_COLUMN / 16 + n / 2));
      float low[4], high[4];
#pragma unroll
      for (int i = 0; i < 4; i++) low[i] = c.v[4 * n + i], high[i] = c.v[4 * n + 4 + i];
      multiply_add<TYPE>(low, x, y[0], y[1]);
      multiply_add<TYPE>(high, x, y[2], y[3]);
#pragma unroll
      for (int i = 0; i < 4; i++) c.v[4 * n + i] = low[i], c.v[4 * n + 4 + i] = high[i];
    }
  }
}

/* The sums along rows of value(e), in ROW_PARTS parts of T each: after a barrier row_total adds them up. */
enum { ROW_PARTS = 2 };
template <class VALUE>
inline void row_parts(real *room, VALUE value) {
  real low = 0, high = 0;
#pragma unroll
  for (int e = 0; e < EACH; e++)
    if (e / 2 % 2)
      high += value(e);
    else
      low += value(e);
  for (int step = 1; step < 4; step *= 2) {
    low += __shfl_xor_sync(ALL_LANES, low, step);
    high += __shfl_xor_sync(ALL_LANES, high, step);
  }
  if (threadIdx.x % 4) return;
  room[(int)threadIdx.x / 128 * T + row_of(0)] = low;
  room[(int)threadIdx.x / 128 * T + row_of(2)] = high;
}
#else
enum { SIDE = T / 16, PITCH = T + 1, TILE_BYTES = T * PITCH * (int)sizeof(real) };
typedef real *tile;

inline int row_of(int e) { return (int)threadIdx.x / 16 + e / SIDE * 16; }
inline int column_of(int e) { return (int)threadIdx.x % 16 + e % SIDE * 16; }

inline real cell(tile x, int row, int column) { return x[row * PITCH + column]; }
inline void get_cells(sums &to, tile x) {
#pragma unroll
  for (int e = 0; e < EACH; e++) to.v[e] = cell(x, row_of(e), column_of(e));
}
inline void set_sums(tile x, const sums &c) {
#pragma unroll
  for (int e = 0; e < EACH; e++) x[row_of(e) * PITCH + column_of(e)] = c.v[e];
}
inline void set_vector(tile x, int row, int column, const real (&v)[VEC]) {
#pragma unroll
  for (int k = 0; k < VEC; k++) x[row * PITCH + column + k] = v[k];
}

template <bool FLIP_A, bool FLIP_B>
inline void add_product(sums &c, tile a, tile b) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
#pragma unroll 4
  for (int k = 0; k < T; k++) {
    real x[SIDE], y[SIDE];
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
      x[i] = FLIP_A ? cell(a, k, row + 16 * i) : cell(a, row + 16 * i, k);
      y[i] = FLIP_B ? cell(b, column + 16 * i, k) : cell(b, k, column + 16 * i);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) c.v[e] += x[e / SIDE] * y[e % SIDE];
  }
}

enum { ROW_PARTS = 1 };
template <class VALUE>
inline void row_parts(real *room, VALUE value) {
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    real sum = 0;
#pragma unroll
    for (int j = 0; j < SIDE; j++) sum += value(i * SIDE + j);
    for (int step = 1; step < 16; step *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
    if (threadIdx.x % 16 == 0) room[row_of(i * SIDE)] = sum;
  }
}
#endif

inline real row_total(const real *room, int row) {
  real sum = room[row];
  for (int i = 1; i < ROW_PARTS; i++) sum += room[i * T + row];
  return sum;
}

inline tile tile_at(char *memory, int i) {
#if TENSOR
  return shared_address(memory) + (u32)(i * TILE_BYTES);
#else
  return (tile)(memory + i * TILE_BYTES);
#endif
}

/* c += a b where in(k, row): elsewhere a is zero, but b may hold an infinity or NaN */
template <bool FLIP_A, class IN>
inline void add_product_where(sums &c, tile a, tile b, IN in) {
  bool odd = false;
  sums cells;
  get_cells(cells, b);
#pragma unroll
  for (int e = 0; e < EACH; e++) odd = odd || !(cells.v[e] - cells.v[e] == 0);
  if (!__syncthreads_or(odd)) return add_product<FLIP_A, false>(c, a, b);
#pragma unroll 1
  for (int k = 0; k < T; k++)
#pragma unroll
    for (int e = 0; e < EACH; e++) { /* a choice, not a branch: 16 of these take long to compile */
      const real v = (FLIP_A ? cell(a, k, row_of(e)) : cell(a, row_of(e), k)) * cell(b, k, column_of(e));
      c.v[e] = in(k, row_of(e)) ? c.v[e] + v : c.v[e];
    }
}

/* ---- global memory ---- */
/* VEC neighbours of a row of which `left` exist, `inner` elements apart */
inline void get_vector(real (&v)[VEC], int dtype, const char *at, i64 i, i64 inner, i64 left) {
  if (VEC > 1) return load_some<VEC>(v, dtype, at, i, left);
  v[0] = left > 0 ? load(dtype, at, i * inner) : (real)0;
}

/* Rows [lo, hi) of a matrix, `step` elements apart, times scale[row] if there is one; zero outside and past `left`.
 * They are there after tiles_arrive(). */
__noinline__ void load_matrix(tile to, int dtype, const char *at, i64 step, i64 inner, int lo, int hi, i64 left,
                              const real *scale) {
#if TENSOR
  if (at && dtype == TYPE && lo == 0 && !scale && left % 8 == 0)
    return load_tile<T, T, T, THREADS>(to, at, step * 2, hi, (int)min(left, (i64)T));
#endif
#pragma unroll
  for (int i = 0; i < EACH / VEC; i++) {
    const int n = (int)threadIdx.x + i * THREADS, row = n / (T / VEC), column = n % (T / VEC) * VEC;
    const bool there = at && row >= lo && row < hi;
    const char *line = at + (there ? row * step * bytes_of(dtype) : 0);
    real v[VEC];
    get_vector(v, dtype, line, column, inner, there ? left - column : 0);
#pragma unroll
    for (int k = 0; k < VEC; k++) v[k] *= scale && there ? scale[row] : (real)1;
    set_vector(to, row, column, v);
  }
}

inline void tiles_arrive() {
#if TENSOR
  copies_done();
#endif
  __syncthreads();
}

/* c to rows [0, hi) and columns [0, left) of a matrix */
inline void put_matrix(int dtype, bool adds, char *at, i64 step, i64 inner, int hi, i64 left, const sums &c) {
#if TENSOR
  if (dtype == TYPE && inner == 1 && left % 2 == 0) {
#pragma unroll
    for (int e = 0; e < EACH; e += 2)
      if (row_of(e) < hi && column_of(e) < left)
        put_pair<TYPE>(adds, at + row_of(e) * step * 2, column_of(e), c.v[e], c.v[e | 1]);
    return;
  }
  const sums rare = c; /* a loop over a copy in memory compiles sooner, and leaves c in registers */
#pragma unroll 1
#else
  const sums &rare = c;
#pragma unroll
#endif
  for (int e = 0; e < EACH; e++)
    if (row_of(e) < hi && column_of(e) < left)
      put(dtype, adds, at, row_of(e) * step + column_of(e) * inner, rare.v[e]);
}
