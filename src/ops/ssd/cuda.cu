/* ssd on CUDA, in the dual form: chunks of T steps are matrix products of T x T tiles, all chunks at once but for the
 * scan over their states. Names and formulas are those of op.c, forward.h and backward.h.
 *
 *   tiles.cu      tiles, their products (by tensor cores where inputs are bf16), and global memory
 *   cuda.cu       runs and decays of a chunk; forward: what each chunk adds to the state, scan over chunks, outputs
 *   backward.cu   the same backwards
 *
 * Numbers: BATCHES LENGTH HEADS WIDTH GROUPS STATES (B L H P G N), TOGETHER = H/G, CHUNKS, tiles of P and of N:
 * TILES_P, TILES_N; STRIDE(s, i): element strides of a slot along its axes. */
#undef m_exp /* errors of decays add up: no short cuts */
#undef m_softplus

#define B_STRIDE(s) STRIDE(s, 0)
#define L_STRIDE(s) STRIDE(s, 1)
#define H_STRIDE(s) STRIDE(s, 2)
#define G_STRIDE(s) STRIDE(s, 3)
#define P_STRIDE(s) STRIDE(s, 4)
#define N_STRIDE(s) STRIDE(s, 5)

/* ---- where: a chunk of a head ---- */
struct place {
  i64 batch, head, group, chunk, first; /* step                                */
  int count;                            /* steps                               */
  i64 index;                            /* of B H CHUNKS, head after head      */
};

/* Blocks are counted in 32 bits, and so are chunks and heads: divisions of 64 bits take long, to run and to compile */
inline place place_at(const args &a, u32 batch, u32 head, u32 chunk) {
  place w;
  w.batch = batch, w.head = head, w.chunk = chunk;
  w.group = TOGETHER ? head / (u32)TOGETHER : 0;
  w.first = w.chunk * T;
  w.count = (int)min((i64)T, LENGTH - w.first);
  w.index = (batch * HEADS + head) * CHUNKS + chunk;
  return w;
}
inline place place_of(const args &a) {
  const u32 chunks = (u32)CHUNKS, heads = (u32)HEADS, above = blockIdx.x / chunks;
  return place_at(a, above / heads, above % heads, blockIdx.x % chunks);
}

/* One number of a head */
inline real number_of(const args &a, int s, i64 head) { return HAS(s) ? GET(s, head * H_STRIDE(s)) : (real)0; }
inline real decay_of(const args &a, i64 head) { return A_LOG ? -m_exp(number_of(a, A, head)) : number_of(a, A, head); }

/* ---- the runs of a chunk: parted by resets ---- */
struct runs {
  int of[T];                 /* of each step                                                    */
  int first_end, last_start; /* steps that the state before reaches; that reach the state after */
  bool carries;              /* the state before reaches the state after                        */
};

inline bool resets(const args &a, i64 batch, i64 t) {
  if (!HAS(SEQ_IDX) || t == 0) return false;
  const int *id = (const int *)AT(SEQ_IDX) + batch * B_STRIDE(SEQ_IDX) + t * L_STRIDE(SEQ_IDX);
  return id[0] != id[-L_STRIDE(SEQ_IDX)];
}

/* HAS_H0: whether the problem has a state before the first step, read or not. A barrier must follow. */
inline void find_runs(const args &a, const place &w, runs &r) {
  const int t = threadIdx.x;
  int run = 0;
  for (int i = 1; HAS(SEQ_IDX) && t < T && i <= t && i < w.count; i++) run += resets(a, w.batch, w.first + i);
  if (t < T) r.of[t] = run;
  if (HAS(SEQ_IDX)) __syncthreads();
  if (t > 0) return;
  const bool fresh = w.chunk == 0 ? !HAS_H0 : resets(a, w.batch, w.first);
  int first_end = w.count, last_start = 0;
  while (HAS(SEQ_IDX) && first_end > 0 && r.of[first_end - 1] != 0) first_end--;
  while (HAS(SEQ_IDX) && r.of[last_start] != r.of[w.count - 1]) last_start++;
  r.first_end = fresh ? 0 : first_end;
  r.last_start = last_start;
  r.carries = !fresh && last_start == 0;
}
inline bool sees(const args &a, const runs &r, int s, int t) { return s <= t && (!HAS(SEQ_IDX) || r.of[s] == r.of[t]); }

/* ---- the decays of a chunk ---- */
/* Between two steps they are products of abar, in three parts where the steps are in different octets: nothing cancels,
 * and an infinity stays where it is. */
enum { OCTETS = T / 8 };
struct decays {
  real d[T], abar[T];       /* 0 and 1 past the last                                          */
  real octet[T][8];         /* l_ts of t and step s mod 8 of its octet                        */
  real head[T], tail[T];    /* abar from the octet's first step to t; from t + 1 to its last  */
  real mid[OCTETS][OCTETS]; /* of whole octets between two                                    */
};

/* l_ts: abar_{s+1} .. abar_t, s <= t. A choice, not a branch: many of these take long to compile */
inline real between(const decays &m, int s, int t) {
  const real near = m.octet[t][s % 8], far = m.tail[s] * m.mid[s / 8][t / 8] * m.head[t];
  return s / 8 == t / 8 ? near : far;
}

inline real step_size(const args &a, const place &w, int t) {
  if (t >= w.count || !HAS(DELTA)) return 0;
  const real x = GET(DELTA, w.batch * B_STRIDE(DELTA) + (w.first + t) * L_STRIDE(DELTA) + w.head * H_STRIDE(DELTA)) +
                 number_of(a, DELTA_BIAS, w.head);
  return SOFTPLUS ? m_softplus(x) : x;
}

inline void load_decays(const args &a, const place &w, decays &m) {
  const int t = threadIdx.x;
  if (t < T) {
    const real d = step_size(a, w, t);
    m.d[t] = d;
    m.abar[t] = t < w.count ? m_exp(d * decay_of(a, w.head)) : (real)1;
  }
  __syncthreads();
  if (t < T) {
    real l = 1, tail = 1;
    for (int i = t; i >= t / 8 * 8; l *= m.abar[i--]) m.octet[t][i % 8] = l;
    for (int i = t + 1; i % 8; i++) tail *= m.abar[i];
    m.head[t] = l, m.tail[t] = tail;
  }
  __syncthreads();
  if (t < OCTETS * OCTETS) {
    real mid = 1;
    for (int i = t / OCTETS + 1; i < t % OCTETS; i++) mid *= m.head[8 * i + 7];
    m.mid[t / OCTETS][t % OCTETS] = mid;
  }
  __syncthreads();
}

/* ---- what a chunk has to do with the states at its ends, found once: ssd_ends ---- */
/* from_t = abar_0 .. abar_t;  to_t = d_t abar_{t+1} .. of the last step;  keep: all abar, if the state is carried on */
#define FROM(index)    ((real *)ENDS + (index)*2 * T)
#define TO(index)      ((real *)ENDS + (index)*2 * T + T)
#define KEEP(index)    ((real *)KEEPS)[2 * (index)]
#define CARRIES(index) ((real *)KEEPS)[2 * (index) + 1]

KERNEL(ssd_ends, T) {
  __shared__ decays m;
  __shared__ runs r;
  const place w = place_of(a);
  const int t = threadIdx.x;
  find_runs(a, w, r);
  load_decays(a, w, m);
  FROM(w.index)[t] = m.abar[0] * between(m, 0, t);
  TO(w.index)[t] = t < w.count ? m.d[t] * between(m, t, w.count - 1) : (real)0;
  if (t) return;
  KEEP(w.index) = m.abar[0] * between(m, 0, w.count - 1);
  CARRIES(w.index) = r.carries;
}

/* ---- tiles of a chunk ---- */
/* Steps [lo, hi) of channels p .. of a head (x, y), or of states n .. of a group (b, c) */
inline void load_rows(const args &a, tile to, int s, const place &w, i64 first_p, i64 first_n, int lo, int hi,
                      const real *scale = 0) {
  const i64 offset = w.batch * B_STRIDE(s) + w.first * L_STRIDE(s) + w.head * H_STRIDE(s) + w.group * G_STRIDE(s) +
                     first_p * P_STRIDE(s) + first_n * N_STRIDE(s);
  const bool of_heads = s % 16 == X || s % 16 == Y;
  load_matrix(to, DTYPE(s), HAS(s) ? AT(s) + offset * bytes_of(DTYPE(s)) : (const char *)0, L_STRIDE(s),
              of_heads ? P_STRIDE(s) : N_STRIDE(s), lo, hi, of_heads ? WIDTH - first_p : STATES - first_n, scale);
}
inline void put_rows(const args &a, int s, const place &w, i64 first_p, i64 first_n, const sums &c) {
  const i64 offset = w.batch * B_STRIDE(s) + w.first * L_STRIDE(s) + w.head * H_STRIDE(s) + w.group * G_STRIDE(s) +
                     first_p * P_STRIDE(s) + first_n * N_STRIDE(s);
  const bool of_heads = s % 16 == X || s % 16 == Y;
  put_matrix(DTYPE(s), ADDS(s), AT(s) + offset * bytes_of(DTYPE(s)), L_STRIDE(s), of_heads ? P_STRIDE(s) : N_STRIDE(s),
             w.count, of_heads ? WIDTH - first_p : STATES - first_n, c);
}

/* States in the workspace: (B, H, CHUNKS, P, N) of STATE_TYPE */
inline char *state_at(const args &a, char *states, i64 index, i64 p, i64 n) {
  return states + ((index * WIDTH + p) * STATES + n) * bytes_of(STATE_TYPE);
}
inline void load_state(const args &a, tile to, char *states, i64 index, i64 p, i64 n) {
  load_matrix(to, STATE_TYPE, state_at(a, states, index, p, n), STATES, 1, 0, (int)min((i64)T, WIDTH - p), STATES - n,
              (const real *)0);
}
inline void put_state(const args &a, char *states, i64 index, i64 p, i64 n, const sums &c) {
  put_matrix(STATE_TYPE, false, state_at(a, states, index, p, n), STATES, 1, (int)min((i64)T, WIDTH - p), STATES - n,
             c);
}

/* ---- what each chunk adds to the state: sum_s to_s x_s B_s^T ---- */
KERNEL(ssd_states, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ runs r;
  const tile x = tile_at(memory, 0), b = tile_at(memory, 1);
  const place w = place_of(a);
  const i64 p = (i64)blockIdx.y * T;
  find_runs(a, w, r);
  __syncthreads();
  for (i64 n = 0; n < STATES; n += T) {
    sums c;
    load_rows(a, b, B, w, 0, n, r.last_start, w.count);
    if (n == 0) load_rows(a, x, X, w, p, 0, r.last_start, w.count, TO(w.index));
    tiles_arrive();
    clear(c);
    add_product<true, false>(c, x, b);
    put_state(a, STATE, w.index, p, n, c);
    __syncthreads();
  }
}

/* ---- .. becomes the state before it: a thread takes SCAN_VEC elements through the chunks ---- */
struct element {
  i64 batch, head, p, n, above, at, each; /* above: of B H; at: of the state's `each` elements */
  bool there;
};
inline element find_element(const args &a) {
  const i64 i = ((i64)blockIdx.x * THREADS + threadIdx.x) * SCAN_VEC;
  element x;
  x.each = WIDTH * STATES;
  x.above = i / x.each, x.at = i % x.each;
  x.batch = x.above / HEADS, x.head = x.above % HEADS, x.p = x.at / STATES, x.n = x.at % STATES;
  x.there = x.above < BATCHES * HEADS;
  return x;
}
#define STATE_OFFSET(s, x, k) \
  ((x).batch * B_STRIDE(s) + (x).head * H_STRIDE(s) + (x).p * P_STRIDE(s) + ((x).n + (k)) * N_STRIDE(s))

/* What a chunk does to the state before it, fetched ahead of time */
struct change {
  real term[SCAN_VEC], keep, carries;
};
inline void fetch_change(const args &a, change &c, const element &x, char *states, i64 chunk) {
  const i64 index = x.above * CHUNKS + chunk;
  if (chunk < 0 || chunk >= CHUNKS) return;
  load_all<SCAN_VEC>(c.term, STATE_TYPE, states, index * x.each + x.at);
  c.keep = KEEP(index), c.carries = CARRIES(index);
}

/* From the first chunk to the last, or back */
inline void scan_states(const args &a, const element &x, char *states, bool back, real (&h)[SCAN_VEC]) {
  const i64 step = back ? -1 : 1;
  i64 chunk = back ? CHUNKS - 1 : 0;
  change next = {};
  fetch_change(a, next, x, states, chunk);
  for (i64 i = 0; i < CHUNKS; i++, chunk += step) {
    const change now = next;
    fetch_change(a, next, x, states, chunk + step);
    store_all<SCAN_VEC>(STATE_TYPE, states, (x.above * CHUNKS + chunk) * x.each + x.at, h);
    for (int k = 0; k < SCAN_VEC; k++) h[k] = now.carries != 0 ? now.keep * h[k] + now.term[k] : now.term[k];
  }
}

KERNEL(ssd_scan, THREADS) {
  const element x = find_element(a);
  real h[SCAN_VEC];
  if (!x.there) return;
  for (int k = 0; k < SCAN_VEC; k++) h[k] = HAS(H0) ? GET(H0, STATE_OFFSET(H0, x, k)) : (real)0;
  scan_states(a, x, STATE, false, h);
  if (!BACKWARD && HAS(H_LAST))
    for (int k = 0; k < SCAN_VEC; k++) PUT(H_LAST, STATE_OFFSET(H_LAST, x, k), h[k]);
}

#if !BACKWARD
/* ---- outputs ---- */
/* l_ts C_t.B_s d_s at (t, s), and h C_t */
inline void find_weights(const args &a, const place &w, i64 p, const runs &r, const decays &m, tile c, tile b, tile h,
                         sums &past) {
  sums cb;
  clear(cb), clear(past);
  for (i64 n = 0; n < STATES; n += T) {
    load_rows(a, c, C, w, 0, n, 0, w.count);
    load_rows(a, b, B, w, 0, n, 0, w.count);
    if (r.first_end) load_state(a, h, STATE, w.index, p, n);
    tiles_arrive();
    add_product<false, true>(cb, c, b);
    if (r.first_end) add_product<false, true>(past, c, h);
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e), s = column_of(e);
    const real weight = between(m, s, t) * cb.v[e] * m.d[s];
    cb.v[e] = sees(a, r, s, t) ? weight : (real)0;
  }
  set_sums(c, cb);
}

KERNEL(ssd_forward, THREADS, 2) {
  DYNAMIC_SHARED(memory);
  __shared__ decays m;
  __shared__ runs r;
  const tile weights = tile_at(memory, 0), x = tile_at(memory, 1), h = tile_at(memory, 2);
  const place w = place_of(a);
  const i64 p = (i64)blockIdx.y * T;
  sums past, y;
  clear(y);
  find_runs(a, w, r);
  load_decays(a, w, m);
  find_weights(a, w, p, r, m, weights, x, h, past);
  load_rows(a, x, X, w, p, 0, 0, w.count);
  tiles_arrive();
  if (STATES) add_product_where<false>(y, weights, x, [&](int s, int t) { return sees(a, r, s, t); });
  const real skip = number_of(a, D, w.head), *from = FROM(w.index);
  sums of_x;
  if (HAS(D)) get_cells(of_x, x);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e);
    if (STATES && t < r.first_end) y.v[e] += from[t] * past.v[e];
    if (HAS(D)) y.v[e] += skip * of_x.v[e];
  }
  put_rows(a, Y, w, p, 0, y);
}
#endif
