/* norm.cu -- what rmsnorm and layernorm share: s = x + residual, its statistics, and where ds goes. */

/* s of a row, at a thread's chunk: x + residual, unless forward left the sum */
struct source {
  line x, residual;
  void get(real (&s)[VEC], i64 column, i64 cols) const {
    real more[VEC];
    get_line(s, x, column, cols);
    if (!residual.at) return;
    get_line(more, residual, column, cols);
    for (int k = 0; k < VEC; k++) s[k] += more[k];
  }
};

#define SUMMED (BACKWARD && HAS(SUM))

inline source source_of(const args &a, i64 row) {
  source from;
  from.x = SUMMED ? LINE(SUM, row) : LINE(X, row);
  from.residual = LINE(RESIDUAL, row);
  if (SUMMED) from.residual.at = 0;
  return from;
}

#if KEEP && !BACKWARD
/* s of a thread's chunk, kept as it lies in memory; as reals where it is a sum. */
struct held {
  RAW(X) packed;
  real sum[VEC];
  void load(const args &a, i64 row, i64 column) {
    if (HAS(RESIDUAL))
      source_of(a, row).get(sum, column, COLS);
    else
      load_raw(packed, LINE(X, row), column, COLS);
  }
  void get(const args &a, real (&v)[VEC]) const {
    if (!HAS(RESIDUAL)) unpack(v, packed, DTYPE(X));
    for (int k = 0; k < VEC && HAS(RESIDUAL); k++) v[k] = sum[k];
  }
};
#endif

/* 1 / sqrt(mean of squares + eps); in double where eps may be too small for a real */
inline real rstd(real squares, i64 cols, double eps) {
  const real mean = squares / (real)cols, v = mean + (real)eps;
  return v > (real)1e-30 ? 1 / sqrt(v) : (real)(1 / sqrt((double)mean + eps));
}

#if BACKWARD
#define WANTS_DS (HAS(DX) || HAS(DRESIDUAL))

/* dx = dresidual = ds + dsum, at a thread's chunk of a row */
inline void put_gradient(const args &a, i64 row, i64 column, real (&ds)[VEC]) {
  real more[VEC];
  const line dsum = LINE(DSUM, row);
  if (dsum.at) get_line(more, dsum, column, COLS);
  for (int k = 0; k < VEC && dsum.at; k++) ds[k] += more[k];
  for (int k = 0; k < VEC; k++) more[k] = ds[k];
  put_line(LINE(DX, row), column, more, COLS);
  put_line(LINE(DRESIDUAL, row), column, ds, COLS);
}

#define HAS_MEAN (MEAN_SLOT > 0 && HAS(MEAN_SLOT)) /* 0: the op has no such slot */
#define READS_S (HAS(X) || HAS(SUM)) /* layernorm's db alone does not */

#if KEEP
enum { S = SUMMED ? SUM : X };
/* Whether the next row is loaded while this one is worked on: where there are registers for that. */
enum { AHEAD = KEPT * VEC * (bytes_of(DTYPE(S)) + bytes_of(DTYPE(DY))) <= 32768 / RESIDENT };

struct inputs {
  RAW(S) s[KEPT];
  RAW(DY) dy[KEPT];
  real mean, rstd; /* those that forward saved */
};

inline void load_inputs(const args &a, inputs &in, i64 row) {
  const line s = source_of(a, row).x, dy = LINE(DY, row);
  if (row >= ROWS) return;
  if (HAS_MEAN) in.mean = GET(MEAN_SLOT, ROW_OFFSET(MEAN_SLOT, row));
  if (HAS(RSTD)) in.rstd = GET(RSTD, ROW_OFFSET(RSTD, row));
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    if (READS_S) load_raw(in.s[j], s, COLUMN(j), COLS);
    load_raw(in.dy[j], dy, COLUMN(j), COLS);
  }
}

/* s and dy of a row */
inline void unpack_inputs(const args &a, const inputs &in, i64 row, real (&s)[KEPT][VEC], real (&d)[KEPT][VEC]) {
  const line residual = source_of(a, row).residual;
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    unpack(d[j], in.dy[j], DTYPE(DY));
    if (!READS_S) continue;
    unpack(s[j], in.s[j], DTYPE(S));
    real more[VEC];
    if (residual.at) get_line(more, residual, COLUMN(j), COLS);
    for (int k = 0; k < VEC && residual.at; k++) s[j][k] += more[k];
  }
}

/* The sums of a run: to part `part` of the partial sums, (PARTS, COLS) */
inline void put_partial(real *partial, i64 part, const real (&sum)[KEPT][VEC], i64 cols) {
#pragma unroll
  for (int j = 0; j < CHUNKS; j++)
    for (int k = 0; k < VEC; k++)
      if (EXACT || COLUMN(j) + k < cols) partial[part * cols + COLUMN(j) + k] = sum[j][k];
}
#endif
#endif
