/* ssd on CUDA, in the dual form: chunks of T steps are matrix products of T x T tiles, all chunks at once but for the
 * scan over their states. Names and formulas are those of op.c, forward.h and backward.h.
 *
 *   tiles.cu      tiles, their products (by tensor cores where inputs are bf16), and global memory
 *   cuda.cu       the steps of a chunk; forward: states of each chunk alone, scan over chunks, outputs
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

/* ---- where: a chunk of a head -------------------------------------------------------------------------------------
 */
struct place {
  i64 batch, head, group, chunk, first; /* step                                */
  int count;                            /* steps                               */
  i64 index;                            /* of B H CHUNKS, head after head      */
};

inline place place_at(const args &a, i64 batch, i64 head, i64 chunk) {
  place w;
  w.batch = batch, w.head = head, w.chunk = chunk;
  w.group = TOGETHER ? head / TOGETHER : 0;
  w.first = chunk * T;
  w.count = (int)min((i64)T, LENGTH - w.first);
  w.index = (batch * HEADS + head) * CHUNKS + chunk;
  return w;
}
inline place place_of(const args &a) {
  const i64 above = blockIdx.x / CHUNKS;
  return place_at(a, above / HEADS, above % HEADS, blockIdx.x % CHUNKS);
}

/* One number of a head */
inline real number_of(const args &a, int s, i64 head) { return HAS(s) ? GET(s, head * H_STRIDE(s)) : (real)0; }
inline real decay_of(const args &a, i64 head) { return A_LOG ? -m_exp(number_of(a, A, head)) : number_of(a, A, head); }

/* ---- the steps of a chunk ------------------------------------------------------------------------------------------
 */
/* Decays between two steps are products of abar, in three parts where the steps are in different octets: nothing
 * cancels, and an infinity stays where it is. */
enum { OCTETS = T / 8 };
struct steps {
  real d[T], abar[T];        /* 0 and 1 past the last                                          */
  real head[T], tail[T];     /* abar from the octet's first step to t; from t + 1 to its last  */
  real mid[OCTETS][OCTETS];  /* of whole octets between two                                    */
  real from[T], to[T];       /* abar_0 .. abar_t; abar_{t+1} .. of the last step               */
  real keep;                 /* all of them                                                    */
  int run[T];                /* runs are parted by resets                                      */
  int first_end, last_start; /* steps that the state before reaches; that reach the state after */
  bool carries;              /* the state before reaches the state after                       */
};

inline bool resets(const args &a, i64 batch, i64 t) {
  if (!HAS(SEQ_IDX) || t == 0) return false;
  const int *id = (const int *)AT(SEQ_IDX) + batch * B_STRIDE(SEQ_IDX) + t * L_STRIDE(SEQ_IDX);
  return id[0] != id[-L_STRIDE(SEQ_IDX)];
}

/* Runs: before the decays. HAS_H0: whether the problem has a state before the first step, read or not */
inline void find_runs(const args &a, const place &w, steps &m) {
  const int t = threadIdx.x;
  if (t < T) {
    int run = 0;
    for (int i = 1; HAS(SEQ_IDX) && i <= t && i < w.count; i++) run += resets(a, w.batch, w.first + i);
    m.run[t] = run;
  }
  __syncthreads();
  if (t == 0) {
    const bool fresh = w.chunk == 0 ? !HAS_H0 : resets(a, w.batch, w.first);
    int first_end = w.count, last_start = 0;
    while (first_end > 0 && m.run[first_end - 1] != 0) first_end--;
    while (last_start < w.count && m.run[last_start] != m.run[w.count - 1]) last_start++;
    m.first_end = fresh ? 0 : first_end;
    m.last_start = last_start;
    m.carries = !fresh && last_start == 0;
  }
  __syncthreads();
}

/* l_ts: abar_{s+1} .. abar_t, s <= t */
inline real between(const steps &m, int s, int t) {
  real l = 1;
  if (s / 8 != t / 8) return m.tail[s] * m.mid[s / 8][t / 8] * m.head[t];
  for (int i = s + 1; i <= t; i++) l *= m.abar[i];
  return l;
}
inline bool sees(const steps &m, int s, int t) { return s <= t && m.run[s] == m.run[t]; }

inline void load_decays(const args &a, const place &w, steps &m) {
  const int t = threadIdx.x;
  if (t < T) {
    const bool there = t < w.count;
    real d = 0;
    if (there && HAS(DELTA)) {
      d = GET(DELTA, w.batch * B_STRIDE(DELTA) + (w.first + t) * L_STRIDE(DELTA) + w.head * H_STRIDE(DELTA));
      d += number_of(a, DELTA_BIAS, w.head);
      if (SOFTPLUS) d = m_softplus(d);
    }
    m.d[t] = d;
    m.abar[t] = there ? m_exp(d * decay_of(a, w.head)) : (real)1;
  }
  __syncthreads();
  if (t < T) {
    real head = 1, tail = 1;
    for (int i = t / 8 * 8; i <= t; i++) head *= m.abar[i];
    for (int i = t + 1; i % 8; i++) tail *= m.abar[i];
    m.head[t] = head, m.tail[t] = tail;
  }
  __syncthreads();
  if (t < OCTETS * OCTETS) {
    real mid = 1;
    for (int i = t / OCTETS + 1; i < t % OCTETS; i++) mid *= m.head[8 * i + 7];
    m.mid[t / OCTETS][t % OCTETS] = mid;
  }
  __syncthreads();
  if (t < T) {
    m.from[t] = m.abar[0] * between(m, 0, t);
    m.to[t] = t < w.count ? between(m, t, w.count - 1) : (real)0;
  }
  if (t == 0) m.keep = m.abar[0] * between(m, 0, w.count - 1);
  __syncthreads();
}

inline void load_steps(const args &a, const place &w, steps &m) {
  __syncthreads(); /* what was there has been used */
  find_runs(a, w, m);
  load_decays(a, w, m);
}

/* ---- tiles of a chunk
 * ------------------------------------------------------------------------------------------------ */
/* Steps [lo, hi) of channels p .. of a head (x, y), or of states n .. of a group (b, c) */
inline void load_rows(const args &a, tile to, int s, const place &w, i64 first_p, i64 first_n, int lo, int hi,
                      const real *scale) {
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

/* States in the workspace: (B, H, CHUNKS, P, N) */
inline char *state_at(const args &a, char *states, i64 index, i64 p, i64 n) {
  return states + ((index * WIDTH + p) * STATES + n) * (i64)sizeof(real);
}
inline void load_state(const args &a, tile to, char *states, i64 index, i64 p, i64 n) {
  load_matrix(to, REAL_TYPE, state_at(a, states, index, p, n), STATES, 1, 0, (int)min((i64)T, WIDTH - p), STATES - n,
              (const real *)0);
}
inline void put_state(const args &a, char *states, i64 index, i64 p, i64 n, const sums &c) {
#pragma unroll
  for (int e = 0; e < EACH; e++)
    if (p + row_of(e) < WIDTH && n + column_of(e) < STATES)
      ((real *)state_at(a, states, index, p, n))[row_of(e) * STATES + column_of(e)] = c.v[e];
}

/* What a chunk does to the state before it, for the scans: its keep, and whether it keeps anything */
inline void put_keep(const args &a, const place &w, const steps &m) {
  if (threadIdx.x || blockIdx.y) return;
  ((real *)KEEPS)[2 * w.index] = m.keep;
  ((real *)KEEPS)[2 * w.index + 1] = m.carries;
}
inline real kept(const args &a, i64 index, real h) {
  const real *keep = (const real *)KEEPS + 2 * index;
  return keep[1] != 0 ? keep[0] * h : (real)0;
}

/* ---- what each chunk adds to the state: sum_s to_s d_s x_s B_s^T ----------------------------------------------------
 */
KERNEL(ssd_states, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ steps m;
  __shared__ real scale[T];
  const tile x = tile_at(memory, 0), b = tile_at(memory, 1);
  const place w = place_of(a);
  const i64 p = blockIdx.y / TILES_N * T, n = blockIdx.y % TILES_N * T;
  sums c;
  load_steps(a, w, m);
  put_keep(a, w, m);
  if (threadIdx.x < T) scale[threadIdx.x] = m.to[threadIdx.x] * m.d[threadIdx.x];
  __syncthreads();
  load_rows(a, x, X, w, p, 0, m.last_start, w.count, scale);
  load_rows(a, b, B, w, 0, n, m.last_start, w.count, (const real *)0);
  __syncthreads();
  clear(c);
  add_product<true, false>(c, x, b);
  put_state(a, STATE, w.index, p, n, c);
}

/* .. becomes the state before it; a thread for each element */
KERNEL(ssd_scan, THREADS) {
  const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x, each = WIDTH * STATES, above = i / max(each, 1ll),
            at = i % max(each, 1ll);
  if (above >= BATCHES * HEADS) return;
  const i64 batch = above / HEADS, head = above % HEADS, p = at / STATES, n = at % STATES;
#define STATE_OFFSET(s) (batch * B_STRIDE(s) + head * H_STRIDE(s) + p * P_STRIDE(s) + n * N_STRIDE(s))
  real h = HAS(H0) ? GET(H0, STATE_OFFSET(H0)) : (real)0;
  real *state = (real *)STATE + above * CHUNKS * each + at;
  for (i64 chunk = 0; chunk < CHUNKS; chunk++, state += each) {
    const real term = *state;
    *state = h;
    h = kept(a, above * CHUNKS + chunk, h) + term;
  }
  if (!BACKWARD && HAS(H_LAST)) PUT(H_LAST, STATE_OFFSET(H_LAST), h);
}

#if !BACKWARD
/* ---- outputs --------------------------------------------------------------------------------------------------------
 */
KERNEL(ssd_forward, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ steps m;
  const tile c = tile_at(memory, 0), b = tile_at(memory, 1), h = tile_at(memory, 2);
  const place w = place_of(a);
  const i64 p = (i64)blockIdx.y * T;
  sums cb, past, y;
  clear(cb), clear(past), clear(y);
  load_steps(a, w, m);
  for (i64 n = 0; n < STATES; n += T) {
    __syncthreads();
    load_rows(a, c, C, w, 0, n, 0, w.count, (const real *)0);
    load_rows(a, b, B, w, 0, n, 0, w.count, (const real *)0);
    if (m.first_end) load_state(a, h, STATE, w.index, p, n);
    __syncthreads();
    add_product<false, true>(cb, c, b);
    if (m.first_end) add_product<false, true>(past, c, h);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e), s = column_of(e);
    cb.v[e] = sees(m, s, t) ? between(m, s, t) * cb.v[e] * m.d[s] : (real)0;
  }
  __syncthreads();
  set_sums(c, cb);
  load_rows(a, b, X, w, p, 0, 0, w.count, (const real *)0);
  __syncthreads();
  if (STATES) add_product_where<false>(y, c, b, [&](int s, int t) { return sees(m, s, t); });
  const real skip = number_of(a, D, w.head);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e);
    if (STATES && t < m.first_end) y.v[e] += m.from[t] * past.v[e];
    if (HAS(D)) y.v[e] += skip * cell(b, t, column_of(e));
  }
  put_rows(a, Y, w, p, 0, y);
}
#endif
