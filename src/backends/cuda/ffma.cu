/* ffma.cu -- products of f32 matrices by plain multiply-adds: tiles in shared memory, and results in registers.
 *
 * A warp has 16 rows of a result. Its lane (y, x) of 4 x 8 has of it the rows y + 4 i, i < 4, and of those
 *   c = x y^T   the columns x + 8 j:              dots[i][j]
 *   c = w y     the columns 4 x + 32 h + 0 .. 3:  sums[i][h][..]
 * Tiles are read 4 neighbours of a row at once. Their rows are DEPTH + 4 floats apart, DEPTH a multiple of 32, those of
 * w COLUMNS + 8, COLUMNS a multiple of 16: then what a warp reads or writes together lies on different banks. Lanes are
 * numbered so that of four neighbours two have the same x and two the same y: reads of 16 bytes by 16 lanes are one
 * access only where lanes i and i ^ 1, or i and i ^ 2, want the same. */
#define LANE_X ((int)threadIdx.x / 2 % 8)
#define LANE_Y ((int)threadIdx.x % 2 + (int)threadIdx.x % 32 / 16 * 2)

inline float4 four_at(const float *p) { return *(const float4 *)p; }

/* Rows of a tile on their way, 8 threads to a row: WHOLE, or as bring_rows */
template <bool WHOLE, int ROWS, int DEPTH, int THREADS>
inline void copy_rows(float *tile, const char *global, i64 step, int rows, int width) {
  const int first = (int)threadIdx.x / 8, column = (int)threadIdx.x % 8 * 4;
  const char *from = global + first * step + 4 * column;
  float *to = tile + first * (DEPTH + 4) + column;
#pragma unroll
  for (int row = 0; row < ROWS; row += THREADS / 8) {
#pragma unroll
    for (int h = 0; h < DEPTH / 32; h++) {
      const bool there = WHOLE || (first + row < rows && column + 32 * h < width);
      if (ROWS % (THREADS / 8) == 0 || first + row < ROWS)
        copy_ahead((char *)(to + row * (DEPTH + 4) + 32 * h), there ? from + 128 * h : global, there ? 16 : 0);
    }
    from += THREADS / 8 * step;
  }
}

/* ROWS rows of DEPTH floats, `step` bytes apart in global memory; zeros beyond `rows` and `width`, a multiple of 4.
 * Where addresses are not aligned, a thread fetches the elements itself. */
template <int ROWS, int DEPTH, int THREADS>
inline void bring_rows(float *tile, const char *global, i64 step, int rows, int width) {
  if (((u64)global | (u64)step) % 16 != 0) {
#pragma unroll 1
    for (int n = threadIdx.x; n < ROWS * DEPTH; n += THREADS) {
      const int row = n / DEPTH, d = n % DEPTH;
      tile[row * (DEPTH + 4) + d] = row < rows && d < width ? ((const float *)(global + row * step))[d] : 0.0f;
    }
  } else if (rows >= ROWS && width == DEPTH) {
    copy_rows<true, ROWS, DEPTH, THREADS>(tile, global, step, rows, width);
  } else {
    copy_rows<false, ROWS, DEPTH, THREADS>(tile, global, step, rows, width);
  }
}

/* c = x y^T: x and y are tiles, from the warp's rows of x and the first row of y on */
template <int DEPTH, int N>
inline void multiply_dots(float (&c)[4][N], const float *x, const float *y) {
  enum { PITCH = DEPTH + 4 };
  x += LANE_Y * PITCH, y += LANE_X * PITCH;
#pragma unroll
  for (int i = 0; i < 4 * N; i++) c[i / N][i % N] = 0;
#pragma unroll 4
  for (int d = 0; d < DEPTH; d += 4) {
    float4 right[N];
#pragma unroll
    for (int j = 0; j < N; j++) right[j] = four_at(y + 8 * j * PITCH + d);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float4 left = four_at(x + 4 * i * PITCH + d);
#pragma unroll
      for (int j = 0; j < N; j++) {
        float &sum = c[i][j];
        sum = fmaf(left.x, right[j].x, sum), sum = fmaf(left.y, right[j].y, sum);
        sum = fmaf(left.z, right[j].z, sum), sum = fmaf(left.w, right[j].w, sum);
      }
    }
  }
}

/* w: the warp's 16 rows of 8 N columns */
template <int N>
inline void store_dots(float *w, const float (&c)[4][N]) {
#pragma unroll
  for (int i = 0; i < 4 * N; i++) w[(LANE_Y + 4 * (i / N)) * (8 * N + 8) + LANE_X + 8 * (i % N)] = c[i / N][i % N];
}

/* part += w y for one row of y, of which w has one column. in[i]: whether that counts */
template <int NH>
inline void add_row(float (&part)[4][NH][4], const float (&w)[4], const bool (&in)[4], const float *y) {
#pragma unroll
  for (int h = 0; h < NH; h++) {
    const float4 right = four_at(y + 32 * h);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (!in[i]) continue;
      float(&sum)[4] = part[i][h];
      sum[0] = fmaf(w[i], right.x, sum[0]), sum[1] = fmaf(w[i], right.y, sum[1]);
      sum[2] = fmaf(w[i], right.z, sum[2]), sum[3] = fmaf(w[i], right.w, sum[3]);
    }
  }
}

inline float element(const float4 &v, int e) { return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w; }

/* part = w y over the COLUMNS of w. counts(i, k): whether column k of row i of w does. Elsewhere an infinity or NaN of
 * y does not count either. */
template <int DEPTH, int COLUMNS, int NH, class COUNTS>
inline void multiply_rows(float (&part)[4][NH][4], const float *w, const float *y, const COUNTS &counts) {
  enum { PITCH = COLUMNS + 8 };
  w += LANE_Y * PITCH, y += 4 * LANE_X;
#pragma unroll
  for (int n = 0; n < 16 * NH; n++) part[n / (4 * NH)][n / 4 % NH][n % 4] = 0;
#pragma unroll 1
  for (int k = 0; k < COLUMNS; k += 4) {
    float4 left[4];
#pragma unroll
    for (int i = 0; i < 4; i++) left[i] = four_at(w + 4 * i * PITCH + k);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float one[4];
      bool in[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        one[i] = element(left[i], e);
        in[i] = counts(i, k + e);
      }
      add_row(part, one, in, y + (k + e) * (DEPTH + 4));
    }
  }
}

/* sum = keep sum + part, in the columns from 32 first. Sums of a tile first: so the error grows with a tile's length
 * and the number of tiles. */
template <int NH, int SOME>
inline void add_part(float (&sum)[4][NH][4], const float (&keep)[4], const float (&part)[4][SOME][4], int first) {
#pragma unroll
  for (int n = 0; n < 16 * SOME; n++) {
    float &s = sum[n / (4 * SOME)][first + n / 4 % SOME][n % 4];
    s = fmaf(s, keep[n / (4 * SOME)], part[n / (4 * SOME)][n / 4 % SOME][n % 4]);
  }
}

template <int NH>
inline void clear_sums(float (&sum)[4][NH][4]) {
#pragma unroll
  for (int n = 0; n < 16 * NH; n++) sum[n / (4 * NH)][n / 4 % NH][n % 4] = 0;
}

/* A row of sums, times `factor`, to global memory; `width` is a multiple of 4 */
template <int NH>
inline void put_sums(bool adds, float *p, const float (&sum)[NH][4], float factor, int width) {
  const bool aligned = (u64)p % 16 == 0;
#pragma unroll
  for (int h = 0; h < NH; h++) {
    float *to = p + 4 * LANE_X + 32 * h, v[4];
    if (4 * LANE_X + 32 * h >= width) continue;
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = adds ? to[e] + sum[h][e] * factor : sum[h][e] * factor;
    if (aligned)
      *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    else
      for (int e = 0; e < 4; e++) to[e] = v[e];
  }
}

/* Over the 8 lanes of a row */
inline float row_sum(float v) {
#pragma unroll
  for (int step = 8; step > 1; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
  return v;
}
inline float row_max(float v) { /* NaN is lost */
#pragma unroll
  for (int step = 8; step > 1; step /= 2) v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, step));
  return v;
}
