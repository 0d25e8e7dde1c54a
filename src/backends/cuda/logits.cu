/* logits.cu -- what softmax and cross_entropy share: of a row of logits l, the largest, and the sum of e^(l - max).
 *
 *   BELOW      1: sum (l - max) is wanted too
 *   FEW        1: a thread has so few vectors of a row that plain sums will do
 *   FAST_EXP   1: results are stored in 16 bits, so the GPU's own 2^x will do
 *
 * Logits are taken VEC at a time: when a larger one comes, the sum so far shrinks. A lump of logits knows its own
 * largest; lumps of threads, then of warps, become one. A NaN is passed over by max and met by the sum; a row of -inf
 * alone has no e^(l - max), and its sum is NaN. */

/* e^t, t <= 0 or a little above; the square of e^(t/2), which is no denormal where e^t is */
inline real exp_below(real t) {
#if FAST_EXP
  const real u = half_pow2(t * (real)0.72134752044448170);
  return u * u;
#else
  return m_exp(t);
#endif
}

/* e^t as a term of a sum that begins with 1 */
inline real exp_term(real t) {
#if FAST_EXP
  return half_pow2(t * (real)1.4426950408889634);
#else
  return m_exp(t);
#endif
}

/* What is subtracted: nothing from logits that are all -inf, so that they count as 0 beside others. */
inline real base_of(real max) { return max == (real)-INFINITY ? (real)0 : max; }

inline real max_of(const real (&l)[VEC], real most) {
  for (int k = 0; k < VEC; k++) most = fmax(l[k], most);
  return most;
}

struct lump {
  real max, sum, below, count; /* below = sum (l - max) over count logits */
};

/* The lumps of a warp as one, for every lane */
inline lump warp_merge(lump l) {
  lump all = {warp_max(l.max), 0, 0, 0};
  const real base = base_of(all.max);
  all.sum = warp_sum(l.sum * exp_term(l.max - base));
  if (BELOW) all.below = warp_sum(l.below + l.count * (base_of(l.max) - base));
  if (BELOW) all.count = warp_sum(l.count);
  return all;
}

/* .. of the group, for every thread, by one barrier: calls take the halves of `room` in turns */
inline lump group_merge(lump l, lump (&room)[2][32], int &turn) {
  constexpr int WARPS = GROUP / 32;
  l = warp_merge(l);
  if (WARPS > 1) {
    const lump none = {(real)-INFINITY, 0, 0, 0};
    const int lane = (int)threadIdx.x % 32;
    turn ^= 1;
    if (lane == 0) room[turn][threadIdx.x / 32] = l;
    __syncthreads();
    l = none;
    if (lane < WARPS) l = room[turn][lane];
    l = warp_merge(l);
  }
  if (l.max == (real)-INFINITY) l.sum = NAN;
  return l;
}

/* A thread's logits, one vector after the other; those outside the row are -inf. */
struct running_lump {
  real max, count;
  long_sum sum, below;
  void clear() {
    max = (real)-INFINITY, count = 0;
    sum.clear(), below.clear();
  }
  void rise(real most) {
    const real shrink = exp_term(max - most);
    sum.total *= shrink, sum.lost *= shrink;
    if (BELOW) below.add(count * (base_of(max) - most));
    max = most;
  }
  void add(const real (&l)[VEC], nth column, nth cols) {
    const real most = max_of(l, max);
    if (most > max) rise(most);
    const real base = base_of(max);
    real part = 0, drop = 0;
    for (int k = 0; k < VEC; k++) part += exp_term(l[k] - base);
    if (FEW)
      sum.total += part;
    else
      sum.add(part);
    for (int k = 0; k < VEC && BELOW; k++)
      if (inside(column + k, cols)) drop += l[k] - base, count += 1;
    if (BELOW) below.add(drop);
  }
  lump done() const {
    lump l = {max, sum.total, below.total, count};
    return l;
  }
};
