/* coefficients.cu -- B and C of a tile: a piece is 8 steps of a state, or 8 states of a step; each thread has one, B
 * before C. */
inline i64 group_offset(const args &a, int s, const block_at &b, i64 n, i64 t) {
  const i64 group = s == B ? b.group_b : b.group_c;
  return b.batch * BATCH_STRIDE(s) + group * GROUP_STRIDE(s) + n * STATE_STRIDE(s) + t * STEP_STRIDE(s);
}

struct coefficient_piece {
  int n, step;
  bool is_c;
};
inline coefficient_piece my_coefficients() {
  const int p = MEMBER % (THREADS_EACH / 2), across = STATES_DENSE ? PAD / 8 : PAD;
  coefficient_piece at;
  at.n = STATES_DENSE ? p % across * 8 : p % across;
  at.step = STATES_DENSE ? p / across : p / across * 8;
  at.is_c = MEMBER >= THREADS_EACH / 2;
  return at;
}

/* On its way; where B and C are not of one dtype, as f32 */
enum { OF_B = CONSTANT_B ? DTYPE(C) : DTYPE(B), OF_C = CONSTANT_C ? DTYPE(B) : DTYPE(C) };
enum { COEFFICIENT = !HAS(B) ? OF_C : !HAS(C) || OF_B == OF_C ? OF_B : F32 };
typedef packed<8, (int)bytes_of(COEFFICIENT)> coefficient_words;

inline const char *coefficients_at(const args &a, int s, const block_at &b, i64 t) {
  const coefficient_piece at = my_coefficients();
  return AT(s) + group_offset(a, s, b, at.n, t + at.step) * bytes_of(DTYPE(s));
}
inline i64 coefficients_left(const args &a, i64 t) {
  const coefficient_piece at = my_coefficients();
  const i64 steps = LENGTH - t - at.step, states = STATES - at.n;
  return STATES_DENSE ? (steps > 0 ? states : 0) : states > 0 ? steps : 0;
}
inline void load_coefficients_of(const args &a, int s, const block_at &b, i64 t, bool whole, coefficient_words &to) {
  const char *at = coefficients_at(a, s, b, t);
  const i64 left = coefficients_left(a, t);
  if (DTYPE(s) == COEFFICIENT) return load_words_of(to, at, whole, left);
  for (int e = 0; e < 8; e++)
    to.w[e % (sizeof(to.w) / 4)] = __float_as_uint(e < left ? load(DTYPE(s), at, e) : 0.0f);
}
/* The thread's of either, in the first tile, if they are of one dtype: so that threads of B and of C go one way */
enum { HAS_B = HAS(B) && !CONSTANT_B, HAS_C = HAS(C) && !CONSTANT_C, HAS_BOTH = HAS_B && HAS_C && OF_B == OF_C };
inline const char *first_coefficients(const args &a, const block_at &b) {
  return my_coefficients().is_c ? coefficients_at(a, C, b, 0) : coefficients_at(a, B, b, 0);
}
inline void load_coefficients(const args &a, const block_at &b, i64 t, bool whole, coefficient_words &to) {
  const bool is_c = my_coefficients().is_c;
  if (!STEPS_DENSE && !STATES_DENSE) return;
  if (IN_RING && HAS_BOTH) {
    const i64 step = STEPS_DENSE ? 1 : is_c ? STEP_STRIDE(C) : STEP_STRIDE(B);
    load_words_of(to, b.coefficients + t * step * bytes_of(COEFFICIENT), whole, coefficients_left(a, t));
  } else if (!is_c) {
    if (HAS_B) load_coefficients_of(a, B, b, t, whole, to);
  } else {
    if (HAS_C) load_coefficients_of(a, C, b, t, whole, to);
  }
}

inline void take(float (&v)[4], const float *from) {
  const float4 x = *(const float4 *)from;
  v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}

/* (TILE, PAD) for each order of a thread's states; SKEW more, so that the orders, or B and C of the ring, are in
 * different banks. In forward with OWN = 1, which waits for shared memory more than for anything, 16-bit B and C stay
 * as they are. */
enum { SKEW = IN_RING ? 16 : PAIRED ? 8 : 4 };
#if HALF_COEFFICIENTS
typedef u16 kept_coefficient;
#else
typedef float kept_coefficient;
#endif
struct coefficients {
  __align__(16) kept_coefficient at[TWISTS][TILE * PAD + SKEW];
};
inline kept_coefficient as_kept(float v) {
#if HALF_COEFFICIENTS
  return (u16)(HALF_COEFFICIENTS == BF16 ? f32_to_bf16(v) : f32_to_f16(v));
#else
  return v;
#endif
}
/* COUNT steps of a state */
template <int COUNT>
inline void set_steps(coefficients &to, int step, int n, const float (&v)[COUNT]) {
  for (int x = 0; x < TWISTS; x++) {
    kept_coefficient *at = to.at[x] + pinned(step * PAD + (n ^ x));
    for (int e = 0; e < COUNT; e++) at[e * PAD] = as_kept(v[e]);
  }
}
/* 8 states of a step */
inline void set_states(coefficients &to, int step, int n, const float (&v)[8]) {
#if HALF_COEFFICIENTS
  for (int e = 0; e < 8; e++) to.at[0][step * PAD + n + e] = as_kept(v[e]);
#else
  for (int x = 0; x < TWISTS; x++)
    for (int e = 0; e < 8; e += 4)
      *(float4 *)&to.at[x][step * PAD + n + e] =
          make_float4(v[e + (0 ^ x)], v[e + (1 ^ x)], v[e + (2 ^ x)], v[e + (3 ^ x)]);
#endif
}
inline void stage_coefficients(const args &a, const block_at &b, i64 t, const coefficient_words &words,
                               coefficients *to_b, coefficients *to_c) {
  const bool has_b = HAS_B && to_b, has_c = HAS_C && to_c;
#if STEPS_DENSE || STATES_DENSE
  const coefficient_piece at = my_coefficients();
  if (at.is_c ? !has_c : !has_b) return;
  coefficients &to = at.is_c ? *to_c : *to_b;
  float r[8];
  unpack(r, words, COEFFICIENT);
  if (STATES_DENSE)
    set_states(to, at.step, at.n, r);
  else
    set_steps(to, at.step, at.n, r);
#else
  for (int i = MEMBER; i < TILE * PAD; i += THREADS_EACH) {
    const int n = i % PAD, step = i / PAD;
    const bool there = n < STATES && t + step < LENGTH;
    const float of_b[1] = {has_b && there ? GET(B, group_offset(a, B, b, n, t + step)) : 0.0f};
    const float of_c[1] = {has_c && there ? GET(C, group_offset(a, C, b, n, t + step)) : 0.0f};
    if (has_b) set_steps(*to_b, step, n, of_b);
    if (has_c) set_steps(*to_c, step, n, of_c);
  }
#endif
}

/* B or C of the thread's states, in its order */
#define FIRST_COEFFICIENT(b) ((b).twist * (TILE * PAD + SKEW) + 4 * (b).k)
inline void take_coefficients(float (&v)[4], const coefficients &from, int first, int step) {
  const kept_coefficient *at = (const kept_coefficient *)from.at + first + step * PAD;
#if HALF_COEFFICIENTS
  const uint2 x = *(const uint2 *)at;
  const u32 bits[4] = {x.x & 0xffff, x.x >> 16, x.y & 0xffff, x.y >> 16};
  for (int j = 0; j < 4; j++) v[j] = HALF_COEFFICIENTS == BF16 ? bf16_to_f32(bits[j]) : f16_to_f32(bits[j]);
#else
  take(v, at);
#endif
}
