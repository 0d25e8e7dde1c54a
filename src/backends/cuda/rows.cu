/* rows.cu -- ops along the last axis: a row is held by the threads of a group, VEC neighbours a thread at a time.
 *
 *   ROWS, COLS     numbers                 ROW_OFFSET(s, row), COL_STRIDE(s)     where a row of a slot begins, its step
 *   VEC            elements at once        GROUP      threads to a row: blockDim.x, a multiple of 32
 *   CHUNKS         ceil(COLS / (GROUP VEC))  KEEP     1: CHUNKS is a constant and a row fits in registers
 *   EXACT          1: COLS = CHUNKS GROUP VEC
 *   UNEVEN         1: rows begin anywhere, PHASE(row) elements after a multiple of VEC, in all slots alike
 * Column c of a thread's chunk j, lane k: c = (j GROUP + threadIdx.x) VEC - PHASE(row) + k, so that vectors are aligned;
 * some of the first are negative, some of the last are COLS or more. Several groups share a block (blockDim.y) only when
 * GROUP is 32.                                                                                                       */
#define FIRST_ROW      ((i64)(blockIdx.x * (u32)GROUPS + IN_BLOCK))
#define ROW_STEP       ((i64)(gridDim.x * (u32)GROUPS))
#define IN_BLOCK       (GROUPS > 1 ? threadIdx.y : 0u) /* which of its block's groups */
#define PHASE(row)     (UNEVEN ? (int)((u32)(row) * (u32)PHASE_STEP % (u32)VEC) : 0)
#define COLUMN(row, j) ((nth)(((nth)(j) * (nth)GROUP + (nth)threadIdx.x) * (nth)VEC - PHASE(row)))

#if COLS_FIT_INT
typedef int nth; /* a column */
#else
typedef i64 nth;
#endif
inline bool inside(nth column, nth cols) { return EXACT || ((!UNEVEN || column >= 0) && column < cols); }
inline bool all_inside(nth column, nth cols) { return EXACT || ((!UNEVEN || column >= 0) && column + (nth)VEC <= cols); }

#if KEEP
#define KEPT CHUNKS /* chunks of a row that stay in registers */
#else
#define KEPT 1
#endif

/* A row of a slot: where it begins. Absent slots stay NULL. */
struct line {
  char *at;
  int dtype;
  i64 step;
  bool adds;
};
inline line make_line(bool there, char *at, i64 offset, int dtype, i64 step, bool adds) {
  line l = {there ? at + offset * bytes_of(dtype) : (char *)0, dtype, step, adds};
  return l;
}
#define LINE(s, row) make_line(HAS(s), AT(s), HAS(s) ? ROW_OFFSET(s, row) : 0, DTYPE(s), COL_STRIDE(s), ADDS(s))
#define VECTOR(s)    make_line(HAS(s), AT(s), 0, DTYPE(s), COL_STRIDE(s), ADDS(s))

inline void get_line(real (&r)[VEC], const line &l, nth column, nth cols) {
  if (VEC > 1 && all_inside(column, cols)) return load_all<VEC>(r, l.dtype, l.at, column);
  for (int k = 0; k < VEC; k++) r[k] = inside(column + k, cols) ? load(l.dtype, l.at, (i64)(column + k) * l.step) : (real)0;
}

inline void put_line(const line &l, nth column, real (&r)[VEC], nth cols) {
  if (!l.at) return;
  if (VEC > 1 && all_inside(column, cols)) return put_some<VEC>(l.dtype, l.adds, l.at, column, r, VEC);
  for (int k = 0; k < VEC; k++)
    if (inside(column + k, cols)) put(l.dtype, l.adds, l.at, (i64)(column + k) * l.step, r[k]);
}

#if KEEP
template <int BYTES> using raw = packed<VEC, BYTES>;
#define RAW(s) raw<bytes_of(DTYPE(s))>

template <int BYTES> inline void load_raw(raw<BYTES> &r, const line &l, nth column, nth cols) {
  const char *at = l.at + (i64)column * BYTES;
  if (all_inside(column, cols)) return load_words<false, BYTES>(r.w, at);
  for (int i = 0; i < VEC * BYTES / 2; i++) {
    const u32 half = inside(column + i * 2 / BYTES, cols) ? ((const u16 *)at)[i] : 0;
    r.w[i / 2] = i % 2 ? r.w[i / 2] | half << 16 : half;
  }
}
#endif

/* Where partial sums lie: (parts, COLS) */
struct by_column {
  i64 cols;
  i64 at(i64 part, i64 c) const { return part * cols + c; }
};

/* out[c] = the sum over `parts` of partial[part][c]: a block of 32 x 32 threads takes 32 columns. */
template <class PLACES>
inline void sum_parts(const real *partial, const PLACES &places, i64 parts, const line &out, i64 cols) {
  __shared__ real column[32][33];
  const i64 c = (i64)blockIdx.x * 32 + threadIdx.x;
  long_sum sum;
  sum.clear();
  for (i64 part = threadIdx.y; c < cols && part < parts; part += 32) sum.add(partial[places.at(part, c)]);
  column[threadIdx.y][threadIdx.x] = sum.total;
  __syncthreads();
  const real total = warp_sum(column[threadIdx.x][threadIdx.y]); /* of column threadIdx.y */
  const i64 mine = (i64)blockIdx.x * 32 + threadIdx.y;
  if (threadIdx.x == 0 && mine < cols) put(out.dtype, out.adds, out.at, mine * out.step, total);
}
