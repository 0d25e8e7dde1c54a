/* rope on CUDA: a thread takes VEC pairs of a position, computes their angles in double, and turns them in many heads,
 * several under way at once.
 *
 *   y1 = x1 cos - x2 sin;   y2 = x2 cos + x1 sin;   backwards with -sin                                            */
#if BACKWARD
#define FROM DY
#define TO   DX
#else
#define FROM X
#define TO   Y
#endif

/* ---- angles ---- */
/* The frequencies of this launch's pairs, FIRST_PAIR on: the host's, or those given */
inline double frequency_at(const args &a, i64 i) {
  if (!HAS(FREQUENCIES)) return __longlong_as_double(FREQUENCY_BITS(i));
  i = (FIRST_PAIR + i) * FREQUENCY_STRIDE;
  return DTYPE(FREQUENCIES) == F64 ? ((const double *)AT(FREQUENCIES))[i] : (double)((const float *)AT(FREQUENCIES))[i];
}

inline double position_at(const args &a, i64 row) {
  const i64 batch = quotient(row, LENGTH), l = row - batch * LENGTH;
  if (!HAS(POSITIONS)) return (double)FIRST_POSITION + (double)l;
  return (double)load_integer(DTYPE(POSITIONS), AT(POSITIONS), batch * POSITION_BATCH_STRIDE + l * POSITION_STRIDE);
}

struct turn {
  real cosine[VEC], sine[VEC];
};

/* In f32, angles of at most 2^20: r = angle - n pi/2 in double, the rest in f32 (cpu/math.h). pi/2 is a head of 33 bits,
 * whose multiples are exact, and a tail. */
inline void turn_by(double angle, real &cosine, real &sine) {
  const double n = rint(angle * 0.63661977236758134);
  const int quarters = (int)n;
  const float r = (float)((angle - n * 1.5707963267341256) - n * 6.0771005065061922e-11), z = r * r;
  const float s = r + r * z * (-0.166666538636234796f + z * (0.00833211304082797623f - z * 0.000195087413376215578f));
  const float c = 1.0f + z * (-0.5f + z * (0.041666644367799678f +
                                           z * (-0.00138872514858694644f + z * 0.0000244256816540518217f)));
  const float along = quarters & 1 ? s : c, across = quarters & 1 ? c : s;
  cosine = (quarters + 1) & 2 ? -along : along; /* c, -s, -c, s */
  sine = quarters & 2 ? -across : across;       /* s, c, -s, -c */
}

inline turn turn_at(double position, const double *frequency) {
  turn by;
  bool small = !COMPUTE_F64;
  for (int j = 0; j < VEC; j++) small = small && fabs(position * frequency[j]) <= 1048576.0;
  if (small) {
#pragma unroll
    for (int j = 0; j < VEC; j++) turn_by(position * frequency[j], by.cosine[j], by.sine[j]);
  } else {
    double s[VEC], c[VEC];
#pragma unroll 1
    for (int j = 0; j < VEC; j++) sincos(position * frequency[j], &s[j], &c[j]);
    for (int j = 0; j < VEC; j++) by.cosine[j] = (real)c[j], by.sine[j] = (real)s[j];
  }
  for (int j = 0; j < VEC && BACKWARD; j++) by.sine[j] = -by.sine[j];
  return by;
}

/* ---- rows ---- */
/* Where row number `row` of (B, L) begins in head 0 */
#define ROW_OFFSET(s, row) row_offset(row, LENGTH, BATCH_STRIDE(s), ROW_STRIDE(s))

inline i64 row_offset(i64 row, i64 length, i64 batch_stride, i64 row_stride) {
  const i64 batch = quotient(row, length);
  return batch * batch_stride + (row - batch * length) * row_stride;
}

/* Channels of the pairs from i on: x1 at i, x2 at i + HALF, or, interleaved, VEC channels from 2i and the VEC after */
#define FIRST(i)  (INTERLEAVED ? 2 * (i) : (i))
#define SECOND(i) (INTERLEAVED ? 2 * (i) + VEC : (i) + HALF)

/* VEC channels on their way; as they lie in memory, where the dtype is a constant */
struct channels {
#if VEC > 1
  packed<VEC, bytes_of(DTYPE(FROM))> held;
  template <bool ALIGNED> void load(const char *at, int dtype, i64 offset, i64 channel, i64 stride) {
    load_words<ALIGNED, bytes_of(DTYPE(FROM))>(held.w, at + (offset + channel * stride) * bytes_of(dtype));
  }
  void get(real (&r)[VEC], int dtype) const { unpack(r, held, dtype); }
#else
  real held[1];
  template <bool ALIGNED> void load(const char *at, int dtype, i64 offset, i64 channel, i64 stride) {
    held[0] = ::load(dtype, at, offset + channel * stride);
  }
  void get(real (&r)[1], int) const { r[0] = held[0]; }
#endif
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

template <bool ALIGNED> inline void put_channels(const args &a, i64 offset, i64 channel, real (&r)[VEC]) {
  if (VEC > 1) return put_some<VEC, ALIGNED>(DTYPE(TO), ADDS(TO), AT(TO), offset + channel, r, VEC);
  put(DTYPE(TO), ADDS(TO), AT(TO), offset + channel * CHANNEL_STRIDE(TO), r[0]);
}

/* The pairs from i on of HEADS_EACH heads, or of as many as there are */
struct some_heads {
  channels one[HEADS_EACH], two[HEADS_EACH];
};

template <bool ALIGNED> inline void load_heads(const args &a, some_heads &x, i64 row_at, i64 i, i64 first) {
#pragma unroll
  for (int h = 0; h < HEADS_EACH; h++) {
    if (first + h >= HEADS) break;
    const i64 from = row_at + HEAD_OFFSET(FROM, first + h);
    x.one[h].template load<ALIGNED>(AT(FROM), DTYPE(FROM), from, FIRST(i), CHANNEL_STRIDE(FROM));
    x.two[h].template load<ALIGNED>(AT(FROM), DTYPE(FROM), from, SECOND(i), CHANNEL_STRIDE(FROM));
  }
}

template <bool ALIGNED>
inline void put_heads(const args &a, const some_heads &x, i64 row_at, i64 i, i64 first, const turn &by) {
#pragma unroll
  for (int h = 0; h < HEADS_EACH; h++) {
    if (first + h >= HEADS) break;
    const i64 to = row_at + HEAD_OFFSET(TO, first + h);
    real one[VEC], two[VEC];
    x.one[h].get(one, DTYPE(FROM));
    x.two[h].get(two, DTYPE(FROM));
    rotate(one, two, by);
    put_channels<ALIGNED>(a, to, FIRST(i), one);
    put_channels<ALIGNED>(a, to, SECOND(i), two);
  }
}

/* frequency: room for those of the window, which are fetched while the first channels are under way */
template <bool ALIGNED> inline void rotate_all(const args &a, double *frequency) {
  const i64 vectors = PAIRS / VEC, n = (i64)blockIdx.x * 256 + threadIdx.x, row = quotient(n, vectors);
  const i64 nth = (n - row * vectors) * VEC, i = FIRST_PAIR + nth;
  const i64 from = ROW_OFFSET(FROM, row), to = ROW_OFFSET(TO, row);
  i64 head = blockIdx.y * HEADS_EACH;
  some_heads x;
  if (row < POSITIONED) load_heads<ALIGNED>(a, x, from, i, head);
  if (threadIdx.x < PAIRS) frequency[threadIdx.x] = frequency_at(a, threadIdx.x);
  __syncthreads();
  if (row >= POSITIONED) return;
  const turn by = turn_at(position_at(a, row), frequency + nth);
  for (;;) {
    put_heads<ALIGNED>(a, x, to, i, head, by);
    head += gridDim.y * HEADS_EACH;
    if (head >= HEADS) break;
    load_heads<ALIGNED>(a, x, from, i, head);
  }
}

KERNEL(rope_rotate, 256, COMPUTE_F64 ? 1 : HEADS_EACH > 2 ? 2 : 3) {
  __shared__ double frequency[WINDOW];
  if (EVEN && ON_WORDS(FROM) && ON_WORDS(TO))
    rotate_all<true>(a, frequency);
  else
    rotate_all<false>(a, frequency);
}

/* Channels from DIMS on */
KERNEL(rope_rest, 256) {
  for (i64 n = (i64)blockIdx.x * 256 + threadIdx.x; n < POSITIONED * REST; n += (i64)gridDim.x * 256) {
    const i64 row = quotient(n, REST), channel = DIMS + n - row * REST;
    for (i64 first = blockIdx.y * HEADS_EACH; first < HEADS; first += gridDim.y * HEADS_EACH)
      for (i64 head = first; head < min(first + HEADS_EACH, HEADS); head++)
        PUT(TO, ROW_OFFSET(TO, row) + HEAD_OFFSET(TO, head) + channel * CHANNEL_STRIDE(TO),
            GET(FROM, ROW_OFFSET(FROM, row) + HEAD_OFFSET(FROM, head) + channel * CHANNEL_STRIDE(FROM)));
  }
}
