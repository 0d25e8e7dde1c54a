/* backward.cu -- gradients, chunk by chunk: h is the state before a chunk, dh the gradient of that after it.
 *
 *   ssd_states, ssd_scan      h                       ssd_states_back, ssd_scan_back   dh, from the last chunk on
 *   ssd_within                g_ts = l_ts d_s dy_t.x_s, summed over the heads of a part of the group; what passes a
 * step ssd_groups                dB and dC; what h gives to each step, what each step gives to dh, and what h gives to
 * dh ssd_backward              dx, ddelta; sums over the chunk, which ssd_heads adds up */

/* ---- what each chunk adds to the gradient of the state before it: sum_t from_t dy_t C_t^T --------------------------
 */
KERNEL(ssd_states_back, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ steps m;
  const tile dy = tile_at(memory, 0), c = tile_at(memory, 1);
  const place w = place_of(a);
  const i64 p = blockIdx.y / TILES_N * T, n = blockIdx.y % TILES_N * T;
  sums r;
  load_steps(a, w, m);
  put_keep(a, w, m);
  load_rows(a, dy, DY, w, p, 0, 0, m.first_end, m.from);
  load_rows(a, c, C, w, 0, n, 0, m.first_end, (const real *)0);
  __syncthreads();
  clear(r);
  add_product<true, false>(r, dy, c);
  put_state(a, DSTATE, w.index, p, n, r);
}

KERNEL(ssd_scan_back, THREADS) {
  const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x, each = WIDTH * STATES, above = i / max(each, 1ll),
            at = i % max(each, 1ll);
  if (above >= BATCHES * HEADS) return;
  const i64 batch = above / HEADS, head = above % HEADS, p = at / STATES, n = at % STATES;
  real dh = HAS(DH_LAST) ? GET(DH_LAST, STATE_OFFSET(DH_LAST)) : (real)0;
  real *state = (real *)DSTATE + (above * CHUNKS + CHUNKS - 1) * each + at;
  for (i64 chunk = CHUNKS - 1; chunk >= 0; chunk--, state -= each) {
    const real term = *state;
    *state = dh;
    dh = kept(a, above * CHUNKS + chunk, dh) + term;
  }
  if (HAS(DH0)) PUT(DH0, STATE_OFFSET(DH0), dh);
}

/* Whether dh of a chunk is more than zero by definition */
inline bool has_dh(const args &a, const place &w) { return NEEDS_DH && (w.chunk + 1 < CHUNKS || HAS(DH_LAST)); }

/* ---- within a chunk: g of all heads, and what passes each step -----------------------------------------------------
 */
/* e_t = the sum of v_ij over j < t <= i: columns from below, in PARTS of rows, then along rows */
enum { PARTS = THREADS / T, PART = T / PARTS };
struct passing {
  real at[T][T + 1], below[PARTS][T], part[PARTS][T];
};

inline void sum_passing(const sums &v, passing &r, real *e) {
  const int j = threadIdx.x % T, q = threadIdx.x / T;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < EACH; k++) r.at[row_of(k)][column_of(k)] = v.v[k];
  __syncthreads();
  real sum = 0;
  for (int i = (q + 1) * PART - 1; i >= q * PART; i--) r.at[i][j] = sum += r.at[i][j];
  r.below[q][j] = sum;
  __syncthreads();
  sum = 0; /* thread (q, t = j): columns q PART .. of row t */
  for (int k = q * PART; k < (q + 1) * PART && k < j; k++) {
    sum += r.at[j][k];
    for (int later = j / PART + 1; later < PARTS; later++) sum += r.below[later][k];
  }
  r.part[q][j] = sum;
  __syncthreads();
  if (q == 0) {
    sum = 0;
    for (int k = 0; k < PARTS; k++) sum += r.part[k][j];
    e[j] = sum;
  }
}

/* A chunk of a group, and the heads of one part of it: HEAD_PARTS parts */
inline place group_place(const args &a) {
  const i64 above = blockIdx.x / CHUNKS;
  place w = place_at(a, above / GROUPS, 0, blockIdx.x % CHUNKS);
  w.group = above % GROUPS, w.head = w.group * TOGETHER;
  return w;
}
inline i64 head_of_part(const args &a, i64 group, i64 part) { return group * TOGETHER + part * TOGETHER / HEAD_PARTS; }
inline place with_head(const args &a, const place &w, i64 head) { return place_at(a, w.batch, head, w.chunk); }

#define PASSING(index) ((real *)PASSED + (index)*T) /* of a head's chunk */
#define G_SUMS(part)   ((real *)G_PARTS + ((i64)blockIdx.x * HEAD_PARTS + (part)) * T * T)

KERNEL(ssd_within, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ steps m;
  __shared__ passing r;
  const tile x = tile_at(memory, 0), y = tile_at(memory, 1);
  const place group = group_place(a);
  const i64 part = blockIdx.y, end = head_of_part(a, group.group, part + 1);
  sums cb, all;
  clear(cb), clear(all);
  for (i64 n = 0; n < STATES; n += T) {
    __syncthreads();
    load_rows(a, x, C, group, 0, n, 0, group.count, (const real *)0);
    load_rows(a, y, B, group, 0, n, 0, group.count, (const real *)0);
    __syncthreads();
    add_product<false, true>(cb, x, y);
  }
  for (i64 head = head_of_part(a, group.group, part); head < end && WIDTH && STATES; head++) {
    const place w = with_head(a, group, head);
    sums g;
    clear(g);
    load_steps(a, w, m);
    for (i64 p = 0; p < WIDTH; p += T) {
      __syncthreads();
      load_rows(a, x, DY, w, p, 0, 0, w.count, (const real *)0);
      load_rows(a, y, X, w, p, 0, 0, w.count, (const real *)0);
      __syncthreads();
      add_product<false, true>(g, x, y);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int t = row_of(e), s = column_of(e);
      const bool in = sees(m, s, t);
      const real lg = in ? between(m, s, t) * m.d[s] * g.v[e] : (real)0;
      all.v[e] += lg;
      g.v[e] = in ? lg * cb.v[e] : (real)0;
    }
    if (NEEDS_E) sum_passing(g, r, PASSING(w.index));
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) G_SUMS(part)[row_of(e) * T + column_of(e)] = all.v[e];
}

/* ---- dB and dC ------------------------------------------------------------------------------------------------------
 */
/* The sum over the parts of g, as a tile */
inline void load_g(const args &a, tile to) {
  sums all;
  clear(all);
  for (i64 part = 0; part < HEAD_PARTS; part++)
#pragma unroll
    for (int e = 0; e < EACH; e++) all.v[e] += G_SUMS(part)[row_of(e) * T + column_of(e)];
  set_sums(to, all);
}

/* Of each tile of states, head and chunk: what h gives to t, what s gives to dh, (T) each; what h gives to dh */
#define GIVEN(tile, index, which) ((real *)GIVENS + (((tile)*BATCHES * HEADS * CHUNKS + (index)) * 2 + (which)) * T)
#define GIVEN_ALL(tile, index)    ((real *)GIVENS_ALL)[(tile)*BATCHES * HEADS * CHUNKS + (index)]

/* sum += scale(row) part in the rows that are in; out[row] = the row's sum of that times `with` */
template <class IN, class SCALE>
inline void add_part(sums &sum, sums &part, tile with, real *room, real *out, IN in, SCALE scale) {
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int row = row_of(e);
    const real v = in(row) ? scale(row) * part.v[e] : (real)0;
    sum.v[e] += v;
    part.v[e] = in(row) ? v * cell(with, row, column_of(e)) : (real)0;
  }
  row_sums(part, room, out);
}

/* <h, dh> of one tile, to every thread */
inline real sum_tiles(tile h, tile dh, real *room) {
  real sum = 0;
#pragma unroll
  for (int e = 0; e < EACH; e++) sum += cell(h, row_of(e), column_of(e)) * cell(dh, row_of(e), column_of(e));
  return group_sum<THREADS>(sum, room);
}

KERNEL(ssd_groups, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ steps m;
  __shared__ real room[2 * T];
  const tile b = tile_at(memory, 0), c = tile_at(memory, 1), x = tile_at(memory, 2), h = tile_at(memory, 3),
             dh = tile_at(memory, 4);
  const place group = group_place(a);
  const i64 n = (i64)blockIdx.y * T;
  sums db, dc;
  clear(db), clear(dc);
  find_runs(a, group, m);
  load_rows(a, b, B, group, 0, n, 0, group.count, (const real *)0);
  load_rows(a, c, C, group, 0, n, 0, group.count, (const real *)0);
  load_g(a, x);
  __syncthreads();
  if (TOGETHER && WIDTH && HAS(DC)) add_product_where<false>(dc, x, b, [&](int s, int t) { return sees(m, s, t); });
  if (TOGETHER && WIDTH && HAS(DB)) add_product_where<true>(db, x, c, [&](int t, int s) { return sees(m, s, t); });
  for (i64 head = group.head; head < group.head + TOGETHER && WIDTH; head++) {
    const place w = with_head(a, group, head);
    const bool after = has_dh(a, w);
    sums from_h, to_dh;
    real all = 0;
    clear(from_h), clear(to_dh);
    load_steps(a, w, m);
    for (i64 p = 0; p < WIDTH; p += T) {
      __syncthreads();
      if (NEEDS_H) load_state(a, h, STATE, w.index, p, n);
      if (after) load_state(a, dh, DSTATE, w.index, p, n);
      if (NEEDS_H) load_rows(a, x, DY, w, p, 0, 0, w.count, (const real *)0);
      __syncthreads();
      if (NEEDS_H) add_product<false, false>(from_h, x, h);
      if (NEEDS_H && after && NEEDS_E) all += sum_tiles(h, dh, room);
      __syncthreads();
      if (after) load_rows(a, x, X, w, p, 0, 0, w.count, (const real *)0);
      __syncthreads();
      if (after) add_product<false, false>(to_dh, x, dh);
    }
    if (NEEDS_H)
      add_part(
          dc, from_h, c, room, GIVEN(blockIdx.y, w.index, 0), [&](int t) { return t < m.first_end; },
          [&](int t) { return m.from[t]; });
    add_part(
        db, to_dh, b, room, GIVEN(blockIdx.y, w.index, 1),
        [&](int s) { return after && s >= m.last_start && s < w.count; }, [&](int s) { return m.to[s] * m.d[s]; });
    if (threadIdx.x == 0) GIVEN_ALL(blockIdx.y, w.index) = m.carries && after ? m.keep * all : (real)0;
  }
  if (HAS(DB)) put_rows(a, DB, group, 0, n, db);
  if (HAS(DC)) put_rows(a, DC, group, 0, n, dc);
}

/* ---- dx and ddelta --------------------------------------------------------------------------------------------------
 */
/* e_t: all that passes step t */
inline real passed(const args &a, const place &w, int t) {
  real e = PASSING(w.index)[t];
  for (i64 tile = 0; tile < TILES_N; tile++) {
    const real *to_steps = GIVEN(tile, w.index, 0), *to_dh = GIVEN(tile, w.index, 1);
    real sum = GIVEN_ALL(tile, w.index);
    for (int i = t; i < w.count; i++) sum += to_steps[i];
    for (int j = 0; j < t; j++) sum += to_dh[j];
    e += sum;
  }
  return e;
}

enum { SUM_A, SUM_D, SUM_BIAS, SUMS };

/* ddelta of each step, and the chunk's sums. inner: x.du, dy.x of each step */
inline void finish_steps(const args &a, const place &w, const steps &m, const real *x_du, const real *dy_x,
                         real *room) {
  const int t = threadIdx.x;
  real term[SUMS] = {0, 0, 0};
  if (t < w.count) {
    real dd = WIDTH && STATES ? x_du[t] : (real)0;
    const bool passes =
        WIDTH && STATES && NEEDS_E && (t > 0 || m.first_end > 0) && (t == 0 || m.run[t] == m.run[t - 1]);
    if (passes) {
      const real e = passed(a, w, t);
      dd += decay_of(a, w.head) * e;
      term[SUM_A] = m.d[t] * e;
    }
    if (SOFTPLUS) dd *= -m_expm1(-m.d[t]); /* sigmoid(x) = 1 - e^-softplus(x) */
    if (HAS(DDELTA))
      PUT(DDELTA, w.batch * B_STRIDE(DDELTA) + (w.first + t) * L_STRIDE(DDELTA) + w.head * H_STRIDE(DDELTA), dd);
    term[SUM_D] = dy_x[t];
    term[SUM_BIAS] = dd;
  }
  for (int i = 0; i < SUMS; i++) {
    const real sum = group_sum<THREADS>(term[i], room);
    if (t == 0) ((real *)CHUNK_SUMS)[w.index * SUMS + i] = sum;
  }
}

/* l_ts C_t.B_s at (t, s) */
inline void weigh(const args &a, const place &w, const steps &m, tile c, tile b) {
  sums cb;
  clear(cb);
  for (i64 n = 0; n < STATES; n += T) {
    __syncthreads();
    load_rows(a, c, C, w, 0, n, 0, w.count, (const real *)0);
    load_rows(a, b, B, w, 0, n, 0, w.count, (const real *)0);
    __syncthreads();
    add_product<false, true>(cb, c, b);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e), s = column_of(e);
    cb.v[e] = sees(m, s, t) ? between(m, s, t) * cb.v[e] : (real)0;
  }
  __syncthreads();
  set_sums(c, cb);
}

KERNEL(ssd_backward, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ steps m;
  __shared__ real room[2 * T], row[T], x_du[T], dy_x[T];
  const tile weights = tile_at(memory, 0), b = tile_at(memory, 1), x = tile_at(memory, 2), dy = tile_at(memory, 3);
  const place w = place_of(a);
  const real skip = number_of(a, D, w.head);
  const bool after = has_dh(a, w);
  if (threadIdx.x < T) x_du[threadIdx.x] = dy_x[threadIdx.x] = 0;
  load_steps(a, w, m);
  if (NEEDS_DH) weigh(a, w, m, weights, b);
  for (i64 p = 0; p < WIDTH; p += T) {
    sums du, past, v;
    clear(du), clear(past);
    for (i64 n = 0; after && n < STATES; n += T) {
      __syncthreads();
      load_rows(a, b, B, w, 0, n, m.last_start, w.count, (const real *)0);
      load_state(a, x, DSTATE, w.index, p, n);
      __syncthreads();
      add_product<false, true>(past, b, x);
    }
    __syncthreads();
    load_rows(a, dy, DY, w, p, 0, 0, w.count, (const real *)0);
    load_rows(a, x, X, w, p, 0, 0, w.count, (const real *)0);
    __syncthreads();
    if (NEEDS_DH && STATES) add_product_where<true>(du, weights, dy, [&](int t, int s) { return sees(m, s, t); });
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int s = row_of(e);
      if (after && s >= m.last_start && s < w.count) du.v[e] += m.to[s] * past.v[e];
      v.v[e] = du.v[e] * cell(x, s, column_of(e));
    }
    row_sums(v, room, row);
    if (threadIdx.x < T) x_du[threadIdx.x] += row[threadIdx.x];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const real g = cell(dy, row_of(e), column_of(e));
      v.v[e] = g * cell(x, row_of(e), column_of(e));
      du.v[e] = STATES ? m.d[row_of(e)] * du.v[e] + skip * g : skip * g;
    }
    __syncthreads();
    row_sums(v, room, row);
    if (threadIdx.x < T) dy_x[threadIdx.x] += row[threadIdx.x];
    if (HAS(DX)) put_rows(a, DX, w, p, 0, du);
  }
  __syncthreads();
  finish_steps(a, w, m, x_du, dy_x, room);
}

/* ---- sums over batch and time: a warp for each head
 * ------------------------------------------------------------------ */
KERNEL(ssd_heads, 32) {
  const i64 head = blockIdx.x;
  const int slots[SUMS] = {DA, DD, DDELTA_BIAS};
  for (int k = 0; k < SUMS; k++) {
    long_sum sum;
    sum.clear();
    for (i64 i = threadIdx.x; i < BATCHES * CHUNKS; i += 32)
      sum.add(((const real *)CHUNK_SUMS)[((i / CHUNKS * HEADS + head) * CHUNKS + i % CHUNKS) * SUMS + k]);
    real total = warp_sum(sum.total);
    if (k == SUM_A && A_LOG) total *= decay_of(a, head);
    if (threadIdx.x == 0 && HAS(slots[k])) PUT(slots[k], head * H_STRIDE(slots[k]), total);
  }
}
