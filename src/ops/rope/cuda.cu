/* rope on CUDA: cos and sin of every (position, i) go into a table first, from angles in double; then a thread takes
 * VEC pairs of a position and turns them in several heads.
 *
 *   y1 = x1 cos - x2 sin;   y2 = x2 cos + x1 sin;   backwards with -sin                                            */
#if BACKWARD
#define FROM DY
#define TO   DX
#else
#define FROM X
#define TO   Y
#endif

/* ---- the table: (B L, 2, HALF), cos, then sin --------------------------------------------------------------- */
inline double frequency_at(const args &a, i64 i) {
  if (!HAS(FREQUENCIES)) return pow(THETA, -2 * (double)i / (double)DIMS);
  return DTYPE(FREQUENCIES) == F64 ? ((const double *)AT(FREQUENCIES))[i * FREQUENCY_STRIDE]
                                   : (double)((const float *)AT(FREQUENCIES))[i * FREQUENCY_STRIDE];
}

inline double position_at(const args &a, i64 row) {
  const i64 batch = quotient(row, LENGTH), l = row - batch * LENGTH;
  if (!HAS(POSITIONS)) return (double)FIRST_POSITION + (double)l;
  return (double)load_integer(DTYPE(POSITIONS), AT(POSITIONS), batch * POSITION_BATCH_STRIDE + l * POSITION_STRIDE);
}

/* In f32, angles of at most 2^20: r = angle - n pi/2 in double, the rest in f32. pi/2 is a head of 33 bits, whose
 * multiples are exact, and a tail. */
inline void turn_by(double angle, real *cosine, real *sine) {
#if !COMPUTE_F64
  if (fabs(angle) <= 1048576.0) {
    const double n = rint(angle * 0.63661977236758134);
    const int quarters = (int)n;
    float s, c;
    sincosf((float)((angle - n * 1.5707963267341256) - n * 6.0771005065061922e-11), &s, &c);
    const float along = quarters & 1 ? s : c, across = quarters & 1 ? c : s;
    *cosine = (quarters + 1) & 2 ? -along : along; /* c, -s, -c, s */
    *sine = quarters & 2 ? -across : across;       /* s, c, -s, -c */
    return;
  }
#endif
  double s, c;
  sincos(angle, &s, &c);
  *cosine = (real)c, *sine = (real)s;
}

/* 32 of i by 8 TABLE_ROWS rows to a block: a thread needs one frequency. */
KERNEL(rope_table, 256) {
  const i64 columns = (HALF + 31) / 32, tiles = columns * ((POSITIONED + 8 * TABLE_ROWS - 1) / (8 * TABLE_ROWS));
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 i = tile % columns * 32 + threadIdx.x, first = tile / columns * (8 * TABLE_ROWS);
    if (i >= HALF) continue;
    const double frequency = frequency_at(a, i);
    for (i64 row = first + threadIdx.y; row < min(first + 8 * TABLE_ROWS, POSITIONED); row += 8) {
      real *out = (real *)TABLE + row * 2 * HALF + i, sine;
      turn_by(position_at(a, row) * frequency, out, &sine);
      out[HALF] = BACKWARD ? -sine : sine;
    }
  }
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */
/* Where row number `row` of (B, L) begins in a head */
#define OFFSET(s, row, head) (row_offset(row, LENGTH, BATCH_STRIDE(s), ROW_STRIDE(s)) + HEAD_OFFSET(s, head))

inline i64 row_offset(i64 row, i64 length, i64 batch_stride, i64 row_stride) {
  const i64 batch = quotient(row, length);
  return batch * batch_stride + (row - batch * length) * row_stride;
}

/* Channels of the pairs from i on: x1 at i, x2 at i + HALF, or, interleaved, VEC channels from 2i and the VEC after */
#define FIRST(i)  (INTERLEAVED ? 2 * (i) : (i))
#define SECOND(i) (INTERLEAVED ? 2 * (i) + VEC : (i) + HALF)

/* In a template of ALIGNED: VEC channels */
template <bool ALIGNED>
inline void get_channels(real (&r)[VEC], int dtype, const char *at, i64 offset, i64 channel, i64 stride) {
  if (VEC > 1) return load_all<VEC, ALIGNED>(r, dtype, at, offset + channel);
  r[0] = load(dtype, at, offset + channel * stride);
}
#define GET_CHANNELS(r, s, offset, channel) \
  get_channels<ALIGNED>(r, DTYPE(s), AT(s), offset, channel, CHANNEL_STRIDE(s))

template <bool ALIGNED>
inline void put_channels(real (&r)[VEC], int dtype, bool adds, char *at, i64 offset, i64 channel, i64 stride) {
  if (VEC > 1) return put_some<VEC, ALIGNED>(dtype, adds, at, offset + channel, r, VEC);
  put(dtype, adds, at, offset + channel * stride, r[0]);
}
#define PUT_CHANNELS(s, offset, channel, r) \
  put_channels<ALIGNED>(r, DTYPE(s), ADDS(s), AT(s), offset, channel, CHANNEL_STRIDE(s))

struct turn {
  real cosine[VEC], sine[VEC];
};

/* Two vectors of channels, turned in place: pair j is (one[j], two[j]), or neighbours in one ++ two */
inline void rotate(real (&one)[VEC], real (&two)[VEC], const turn &by) {
#pragma unroll
  for (int j = 0; j < VEC; j++) {
    const bool split = !INTERLEAVED || VEC == 1;
    real &x1 = split ? one[j] : 2 * j < VEC ? one[2 * j % VEC] : two[2 * j % VEC];
    real &x2 = split ? two[j] : 2 * j < VEC ? one[(2 * j + 1) % VEC] : two[(2 * j + 1) % VEC];
    const real first = x1, second = x2;
    x1 = first * by.cosine[j] - second * by.sine[j];
    x2 = second * by.cosine[j] + first * by.sine[j];
  }
}

template <bool ALIGNED>
inline void rotate_heads(const args &a, i64 row, i64 i, i64 first, const turn &by) {
  real one[HEADS_EACH][VEC], two[HEADS_EACH][VEC];
#pragma unroll
  for (int h = 0; h < HEADS_EACH; h++) {
    if (first + h >= HEADS) break;
    const i64 from = OFFSET(FROM, row, first + h);
    GET_CHANNELS(one[h], FROM, from, FIRST(i));
    GET_CHANNELS(two[h], FROM, from, SECOND(i));
  }
#pragma unroll
  for (int h = 0; h < HEADS_EACH; h++) {
    if (first + h >= HEADS) break;
    const i64 to = OFFSET(TO, row, first + h);
    rotate(one[h], two[h], by);
    PUT_CHANNELS(TO, to, FIRST(i), one[h]);
    PUT_CHANNELS(TO, to, SECOND(i), two[h]);
  }
}

template <bool ALIGNED> inline void rotate_all(const args &a) {
  const i64 vectors = HALF / VEC;
  for (i64 n = (i64)blockIdx.x * 256 + threadIdx.x; n < POSITIONED * vectors; n += (i64)gridDim.x * 256) {
    const i64 row = quotient(n, vectors), i = (n - row * vectors) * VEC;
    const real *table = (const real *)TABLE + row * 2 * HALF + i;
    turn by;
    load_all<VEC, ALIGNED>(by.cosine, COMPUTE_F64 ? F64 : F32, table, 0);
    load_all<VEC, ALIGNED>(by.sine, COMPUTE_F64 ? F64 : F32, table, HALF);
    for (i64 head = blockIdx.y * HEADS_EACH; head < HEADS; head += gridDim.y * HEADS_EACH)
      rotate_heads<ALIGNED>(a, row, i, head, by);
  }
}

KERNEL(rope_rotate, 256) {
  if (EVEN && ON_WORDS(FROM) && ON_WORDS(TO))
    rotate_all<true>(a);
  else
    rotate_all<false>(a);
}

/* Channels from DIMS on */
KERNEL(rope_rest, 256) {
  for (i64 n = (i64)blockIdx.x * 256 + threadIdx.x; n < POSITIONED * REST; n += (i64)gridDim.x * 256) {
    const i64 row = quotient(n, REST), channel = DIMS + n - row * REST;
    for (i64 first = blockIdx.y * HEADS_EACH; first < HEADS; first += gridDim.y * HEADS_EACH)
      for (i64 head = first; head < min(first + HEADS_EACH, HEADS); head++)
        PUT(TO, OFFSET(TO, row, head) + channel * CHANNEL_STRIDE(TO),
            GET(FROM, OFFSET(FROM, row, head) + channel * CHANNEL_STRIDE(FROM)));
  }
}
