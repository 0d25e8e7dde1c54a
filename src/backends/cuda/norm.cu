/* norm.cu -- what rmsnorm and layernorm share: s = x + residual, its statistics, and where ds goes. */

/* s of a row, at a thread's chunk: x + residual, unless forward left the sum */
struct source {
  line x, residual;
  void get(real (&s)[VEC], nth column, nth cols) const {
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

/* 1 / sqrt(mean of squares + eps); in double where eps may be too small for a real */
inline real rstd(real squares, i64 cols, double eps) {
  const real mean = squares / (real)cols, v = mean + (real)eps;
  return v > (real)1e-30 ? 1 / sqrt(v) : (real)(1 / sqrt((double)mean + eps));
}

#if BACKWARD
#define WANTS_DS (HAS(DX) || HAS(DRESIDUAL))

/* dx = dresidual = ds + dsum, at a thread's chunk of a row */
inline void put_gradient(const args &a, i64 row, nth column, real (&ds)[VEC]) {
  real more[VEC];
  const line dsum = LINE(DSUM, row);
  if (dsum.at) get_line(more, dsum, column, COLS);
  for (int k = 0; k < VEC && dsum.at; k++) ds[k] += more[k];
  for (int k = 0; k < VEC; k++) more[k] = ds[k];
  put_line(LINE(DX, row), column, more, COLS);
  put_line(LINE(DRESIDUAL, row), column, ds, COLS);
}
#endif

#if BACKWARD && KEEP
#define PARTIAL_PLACES \
  by_thread { a }
#else
#define PARTIAL_PLACES \
  by_column { COLS }
#endif

#define HAS_MEAN (MEAN_SLOT > 0 && HAS(MEAN_SLOT)) /* 0: the op has no such slot */
#define READS_S  (HAS(X) || HAS(SUM))              /* layernorm's db alone does not */

#if QUEUED
#define ROW_QUEUE(name) DYNAMIC_SHARED(name)
#else
#define ROW_QUEUE(name) char *const name = 0
#endif

#if KEEP
enum { RESIDENT = COMPUTE_F64 ? 1 : AT_ONCE }; /* blocks of a multiprocessor; doubles need the registers */
enum { S = SUMMED ? SUM : X };
#define MY_COLUMN(j) COLUMN(FIRST_ROW, j) /* a group's rows all have the phase of its first */

#if BACKWARD
/* Partial sums lie as threads store them, each PER of its own beside its neighbours': a warp fills whole lines of memory,
 * where columns in their order would have it touch every sector VEC times. */
enum { PER = 16 / sizeof(real), WIDTH = CHUNKS * GROUP * VEC };

struct by_thread {
  const args &a;
  i64 at(i64 part, i64 c) const {
    const u32 q = (u32)c + (u32)PHASE(part), chunk = q / (u32)VEC, k = q % (u32)VEC, first = k / PER * PER;
    return part * WIDTH + (chunk / (u32)GROUP * (u32)VEC + first) * (u32)GROUP + chunk % (u32)GROUP * PER + (k - first);
  }
};

/* The sums of a run: to part `part` of the partial sums, (PARTS, WIDTH) */
inline void put_partial(real *partial, i64 part, const real (&sum)[KEPT][VEC]) {
  partial += part * WIDTH + threadIdx.x * PER;
#pragma unroll
  for (int j = 0; j < CHUNKS; j++)
    for (int k = 0; k < VEC; k += PER) {
      real some[PER];
      for (int i = 0; i < PER; i++) some[i] = sum[j][k + i];
      store_all<PER, true>(COMPUTE_F64 ? F64 : F32, partial, (i64)((j * (int)VEC + k) * (int)GROUP), some);
    }
}

/* What forward saved of a row */
struct saved {
  real mean, rstd;
};
inline saved saved_of(const args &a, i64 row) {
  saved s = {0, 0};
  if (row < ROWS && HAS_MEAN) s.mean = GET(MEAN_SLOT, ROW_OFFSET(MEAN_SLOT, row));
  if (row < ROWS && HAS(RSTD)) s.rstd = GET(RSTD, ROW_OFFSET(RSTD, row));
  return s;
}
#endif
#endif

/* ---- rows that go straight to registers ---- */
#if KEEP && !QUEUED && !BACKWARD
/* s of a thread's chunk, kept as it lies in memory; as reals where it is a sum. */
struct held {
  RAW(X) stored;
  real sum[VEC];
  void load(const args &a, i64 row, nth column) {
    if (HAS(RESIDUAL))
      source_of(a, row).get(sum, column, COLS);
    else
      load_raw(stored, LINE(X, row), column, COLS);
  }
  void get(const args &a, real (&v)[VEC]) const {
    if (!HAS(RESIDUAL)) unpack(v, stored, DTYPE(X));
    for (int k = 0; k < VEC && HAS(RESIDUAL); k++) v[k] = sum[k];
  }
};
#elif KEEP && !QUEUED
/* Whether the next row is loaded while this one is worked on: where there are registers for that. */
enum { AHEAD = KEPT * VEC * (bytes_of(DTYPE(S)) + bytes_of(DTYPE(DY))) <= 64 };

struct inputs {
  RAW(S) s[KEPT];
  RAW(DY) dy[KEPT];
  saved of;
};

inline void load_inputs(const args &a, inputs &in, i64 row) {
  const line s = source_of(a, row).x, dy = LINE(DY, row);
  if (row >= ROWS) return;
  in.of = saved_of(a, row);
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    if (READS_S) load_raw(in.s[j], s, MY_COLUMN(j), COLS);
    load_raw(in.dy[j], dy, MY_COLUMN(j), COLS);
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
    if (residual.at) get_line(more, residual, MY_COLUMN(j), COLS);
    for (int k = 0; k < VEC && residual.at; k++) s[j][k] += more[k];
  }
}

enum { TWICE = false };

/* The rows of a group, one after the other; the next is asked for when one is taken. */
struct incoming {
  inputs in;
  void start(const args &a, char *) {
    if (AHEAD) load_inputs(a, in, FIRST_ROW);
  }
  saved take(const args &a, i64 row, real (&s)[KEPT][VEC], real (&d)[KEPT][VEC]) {
    if (!AHEAD) load_inputs(a, in, row);
    unpack_inputs(a, in, row, s, d);
    const saved here = in.of;
    if (AHEAD) load_inputs(a, in, row + ROW_STEP);
    return here;
  }
  void take_chunk(const args &, int, real (&)[VEC], real (&)[VEC]) {}
  void done(const args &, i64) {}
};
#endif

/* ---- rows that wait in shared memory (queue.cu) ---- */
#if QUEUED
enum { ADDED = HAS(RESIDUAL) && !SUMMED };
/* where a stage of the queue has s, the residual, and dy */
enum {
  AT_RESIDUAL = READS_S ? KEPT * PIECES_OF(S) : 0,
  AT_DY = AT_RESIDUAL + (ADDED ? KEPT * PIECES_OF(RESIDUAL) : 0),
  PIECES = AT_DY + (BACKWARD ? KEPT * PIECES_OF(DY) : 0)
};
#define PIECE(stage, at, s, j) piece_at(memory, (stage) * PIECES + (at) + (int)(j) * (int)PIECES_OF(s))
#define ASK(stage, at, s, j) \
  ask_chunk<bytes_of(DTYPE(s))>(PIECE(stage, at, s, j), LINE(s, row), MY_COLUMN(j), (int)COLS, ALIGNED)
#define TAKE(v, stage, at, s, j) \
  take_chunk<bytes_of(DTYPE(s))>(v, PIECE(stage, at, s, j), DTYPE(s), (j) > 0 ? 0 : MY_COLUMN(0))

template <bool ALIGNED> inline void ask_chunks(const args &a, char *memory, int stage, i64 row) {
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    if (READS_S) ASK(stage, 0, S, j);
    if (ADDED) ASK(stage, AT_RESIDUAL, RESIDUAL, j);
    if (BACKWARD) ASK(stage, AT_DY, DY, j);
  }
}

inline void ask_row(const args &a, char *memory, int stage, i64 row) {
  if (row < ROWS && a.aligned) ask_chunks<true>(a, memory, stage, row);
  if (row < ROWS && !a.aligned) ask_chunks<false>(a, memory, stage, row);
  copies_asked();
}

inline void ask_first_rows(const args &a, char *memory) {
  for (int stage = 0; stage < STAGES; stage++) ask_row(a, memory, stage, FIRST_ROW + stage * ROW_STEP);
}

/* The first of the rows on their way has arrived. */
inline void await_row() { copies_here<STAGES - 1>(); }

/* s at a thread's chunk j of the row that this stage holds */
inline void take_s(const args &a, char *memory, int stage, int j, real (&s)[VEC]) {
  real more[VEC];
  if (READS_S) TAKE(s, stage, 0, S, j);
  if (ADDED) TAKE(more, stage, AT_RESIDUAL, RESIDUAL, j);
  for (int k = 0; k < VEC && ADDED; k++) s[k] += more[k];
}

#if BACKWARD
inline void take_dy(const args &a, char *memory, int stage, int j, real (&d)[VEC]) { TAKE(d, stage, AT_DY, DY, j); }

/* Whether chunks are taken from the queue each time they are looked at: registers are for sums. */
enum { TWICE = !EXACT };

/* The rows of a group, one after the other: take s and dy, take_chunk wherever they are looked at if TWICE, and be done. */
struct incoming {
  char *memory;
  int stage;
  saved next;
  void start(const args &a, char *queue) {
    memory = queue, stage = 0;
    ask_first_rows(a, memory);
    next = saved_of(a, FIRST_ROW);
  }
  void take_chunk(const args &a, int j, real (&s)[VEC], real (&d)[VEC]) {
    take_s(a, memory, stage, j, s);
    take_dy(a, memory, stage, j, d);
  }
  void free_place(const args &a, i64 row) {
    ask_row(a, memory, stage, row + STAGES * ROW_STEP);
    stage = (stage + 1) % (int)STAGES;
  }
  saved take(const args &a, i64 row, real (&s)[KEPT][VEC], real (&d)[KEPT][VEC]) {
    const saved here = next;
    await_row();
    next = saved_of(a, row + ROW_STEP);
#pragma unroll
    for (int j = 0; j < CHUNKS && !TWICE; j++) take_chunk(a, j, s[j], d[j]);
    if (!TWICE) free_place(a, row);
    return here;
  }
  void done(const args &a, i64 row) {
    if (TWICE) free_place(a, row);
  }
};
#endif
#endif
