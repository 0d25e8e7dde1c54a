/* adamw on CUDA: one pass over p, g, m and v.
 *
 *   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
 *   p = p decay - m rate / (sqrt(v) root + eps),   rate = lr / (1 - beta1^t),   root = 1 / sqrt(1 - beta2^t)
 *
 * Two threads of each block compute the constants of the step, in double, while the block's loads are under way.   */
struct constants {
  real gain, decay, rate, root;
};

inline bool skips(const args &a) { return HAS(SKIP) && load_integer(DTYPE(SKIP), AT(SKIP), 0) != 0; }

/* 1 - beta^t = -expm1(t log beta) */
inline void say_constants(const args &a, constants *c) {
  if (threadIdx.x != 0 && threadIdx.x != 32) return;
  const double t = (double)(load_integer(DTYPE(STEP), AT(STEP), 0) + 1);
  const double unbias = -expm1(t * (threadIdx.x ? LOG_BETA2 : LOG_BETA1));
  if (threadIdx.x) {
    c->root = (real)(1 / sqrt(unbias));
  } else {
    const double lr = load_scalar(DTYPE(LR), AT(LR));
    c->rate = (real)(lr / unbias);
    c->decay = (real)(1 - lr * WEIGHT_DECAY);
    c->gain = HAS(SCALE) ? (real)load_scalar(DTYPE(SCALE), AT(SCALE)) : (real)1;
  }
}

struct state {
  real p[VEC], g[VEC], m[VEC], v[VEC];
};

template <bool ALIGNED> inline void get_state(const args &a, place at, state &s) {
  GET_AT(s.p, P, at);
  GET_AT(s.g, G, at);
  GET_AT(s.m, M, at);
  GET_AT(s.v, V, at);
}

template <bool ALIGNED> inline void put_state(const args &a, place at, state &s) {
  PUT_AT(P_OUT, at, s.p);
  PUT_AT(M_OUT, at, s.m);
  PUT_AT(V_OUT, at, s.v);
  if (HAS(P_COPY)) PUT_AT(P_COPY, at, s.p);
}

inline void step_state(const args &a, const constants &c, state &s) {
#pragma unroll
  for (int k = 0; k < VEC; k++) {
    const real g = s.g[k] * c.gain;
    s.m[k] = BETA1 * s.m[k] + REST1 * g;
    s.v[k] = BETA2 * s.v[k] + REST2 * g * g;
    s.p[k] = s.p[k] * c.decay - s.m[k] * c.rate / (sqrt(s.v[k]) * c.root + EPS);
  }
}

template <bool ALIGNED> inline void update(const args &a, i64 first, constants *shared) {
  const i64 vectors = VECTORS, total = OUTER * vectors;
  state s[UNROLL];
  place at[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= total) break;
    at[u] = place_of(first + u * 256, OUTER, vectors);
    get_state<ALIGNED>(a, at[u], s[u]);
  }
  say_constants(a, shared);
  const bool skip = skips(a);
  __syncthreads();
  const constants c = *shared;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= total) break;
    if (!skip) step_state(a, c, s[u]);
    put_state<ALIGNED>(a, at[u], s[u]);
  }
}

KERNEL(adamw_update, 256, COMPUTE_F64 ? 1 : 4) { /* so many that a tensor of a million is one wave */
  __shared__ constants shared;
  const i64 first = (i64)blockIdx.x * (256 * UNROLL) + threadIdx.x;
  const bool aligned = ON_WORDS(P) && ON_WORDS(G) && ON_WORDS(M) && ON_WORDS(V) && ON_WORDS(P_OUT) && ON_WORDS(M_OUT) &&
                       ON_WORDS(V_OUT) && ON_WORDS(P_COPY);
  if (VEC > 1 && EVEN && aligned)
    update<true>(a, first, &shared);
  else
    update<false>(a, first, &shared);
}

/* By itself: step_out may lie over step, which every block above reads. */
KERNEL(adamw_step, 32) {
  const i64 step = load_integer(DTYPE(STEP), AT(STEP), 0);
  if (threadIdx.x == 0) store_integer(DTYPE(STEP_OUT), AT(STEP_OUT), 0, skips(a) ? step : step + 1);
}
