/* backward.cu -- gradients, chunk by chunk: h is the state before a chunk, dh the gradient of that after it.
 *
 *   ssd_states, ssd_scan             h
 *   ssd_states_back, ssd_scan_back   dh, from the last chunk on
 *   ssd_within     g_ts = l_ts d_s dy_t.x_s, summed over the heads of a part of the group; what passes a step
 *   ssd_groups     dB and dC; what h gives to each step, what each step gives to dh, and what h gives to dh
 *   ssd_backward   dx, ddelta; sums over the chunk, which ssd_heads adds up */

/* ---- what each chunk adds to the gradient of the state before it: sum_t from_t dy_t C_t^T ---- */
KERNEL(ssd_states_back, THREADS) {
  DYNAMIC_SHARED(memory);
  __shared__ runs r;
  const tile dy = tile_at(memory, 0), c = tile_at(memory, 1);
  const place w = place_of(a);
  const i64 p = (i64)blockIdx.y * T;
  find_runs(a, w, r);
  __syncthreads();
  for (i64 n = 0; n < STATES; n += T) {
    sums v;
    load_rows(a, c, C, w, 0, n, 0, r.first_end);
    if (n == 0) load_rows(a, dy, DY, w, p, 0, 0, r.first_end, FROM(w.index));
    tiles_arrive();
    clear(v);
    add_product<true, false>(v, dy, c);
    put_state(a, DSTATE, w.index, p, n, v);
    __syncthreads();
  }
}

KERNEL(ssd_scan_back, THREADS) {
  const element x = find_element(a);
  real dh[SCAN_VEC];
  if (!x.there) return;
  for (int k = 0; k < SCAN_VEC; k++) dh[k] = HAS(DH_LAST) ? GET(DH_LAST, STATE_OFFSET(DH_LAST, x, k)) : (real)0;
  scan_states(a, x, DSTATE, true, dh);
  if (HAS(DH0))
    for (int k = 0; k < SCAN_VEC; k++) PUT(DH0, STATE_OFFSET(DH0, x, k), dh[k]);
}

/* Whether dh of a chunk is more than zero by definition */
inline bool has_dh(const args &a, const place &w) { return NEEDS_DH && (w.chunk + 1 < CHUNKS || HAS(DH_LAST)); }

/* ---- within a chunk: g of all heads, and what passes each step ---- */
/* e_t = the sum of v_ij over j < t <= i: columns from below, in PARTS of rows, then along rows */
enum { PARTS = THREADS / T, PART = T / PARTS };
struct passing {
  real at[T][T + 1], below[PARTS][T], part[PARTS][T];
};

inline void sum_passing(const sums &v, passing &r, real *e) {
  const int j = threadIdx.x % T, q = threadIdx.x / T;
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
  if (q > 0) return;
  sum = 0;
  for (int k = 0; k < PARTS; k++) sum += r.part[k][j];
  e[j] = sum;
}

/* A chunk of a group, and the heads of one part of it: HEAD_PARTS parts */
inline place group_place(const args &a) {
  const u32 chunks = (u32)CHUNKS, groups = (u32)GROUPS, above = blockIdx.x / chunks;
  place w = place_at(a, above / groups, 0, blockIdx.x % chunks);
  w.group = above % groups, w.head = w.group * TOGETHER;
  return w;
}
inline i64 head_of_part(const args &a, i64 group, i64 part) { return group * TOGETHER + part * TOGETHER / HEAD_PARTS; }

/* The chunk's d_s l_ts g_ts of one head: added to `all`, and times C.B in place of g */
inline void weigh_g(const args &a, const runs &r, const decays &m, const sums &cb, sums &g, sums &all) {
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e), s = column_of(e);
    const bool in = sees(a, r, s, t);
    const real lg = between(m, s, t) * m.d[s] * g.v[e], passing = lg * cb.v[e];
    all.v[e] += in ? lg : (real)0;
    g.v[e] = in ? passing : (real)0;
  }
}

#define PASSING(index) ((real *)PASSED + (index)*T) /* of a head's chunk */
#define G_SUMS(part)   ((real *)G_PARTS + ((i64)blockIdx.x * HEAD_PARTS + (part)) * T * T)

KERNEL(ssd_within, THREADS, 2) {
  DYNAMIC_SHARED(memory);
  __shared__ decays m;
  __shared__ runs r;
  __shared__ passing room;
  const tile x = tile_at(memory, 0), y = tile_at(memory, 1);
  const place group = group_place(a);
  const i64 part = blockIdx.y, end = head_of_part(a, group.group, part + 1);
  sums cb, all;
  clear(cb), clear(all);
  find_runs(a, group, r);
  for (i64 n = 0; n < STATES; n += T) {
    load_rows(a, x, C, group, 0, n, 0, group.count);
    load_rows(a, y, B, group, 0, n, 0, group.count);
    tiles_arrive();
    add_product<false, true>(cb, x, y);
    __syncthreads();
  }
  for (i64 head = head_of_part(a, group.group, part); head < end && WIDTH && STATES; head++) {
    const place w = place_at(a, (u32)group.batch, (u32)head, (u32)group.chunk);
    sums g;
    clear(g);
    for (i64 p = 0; p < WIDTH; p += T) {
      load_rows(a, x, DY, w, p, 0, 0, w.count);
      load_rows(a, y, X, w, p, 0, 0, w.count);
      if (p == 0) load_decays(a, w, m); /* while tiles are on their way */
      tiles_arrive();
      add_product<false, true>(g, x, y);
      __syncthreads();
    }
    weigh_g(a, r, m, cb, g, all);
    if (NEEDS_E) sum_passing(g, room, PASSING(w.index));
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) G_SUMS(part)[row_of(e) * T + column_of(e)] = all.v[e];
}

/* ---- dB and dC ---- */
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

/* sum += scale[row] part in rows [lo, hi); room gets the sums along rows of that times `with` */
inline void add_part(sums &sum, sums &part, tile with, real *room, int lo, int hi, const real *scale) {
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int row = row_of(e);
    part.v[e] = row >= lo && row < hi ? scale[row] * part.v[e] : (real)0;
    sum.v[e] += part.v[e];
  }
  row_parts(room, [&](int e) {
    const int row = row_of(e);
    return row >= lo && row < hi ? part.v[e] * cell(with, row, column_of(e)) : (real)0;
  });
}

/* <h, dh> of one tile: each warp's part */
inline real warp_dot(tile h, tile dh) {
  sums x, y;
  real sum = 0;
  get_cells(x, h), get_cells(y, dh);
#pragma unroll
  for (int e = 0; e < EACH; e++) sum += x.v[e] * y.v[e];
  return warp_sum(sum);
}

struct head_room {
  real from_h[ROW_PARTS * T], to_dh[ROW_PARTS * T], all[THREADS / 32];
};

/* Head w of the group, states n ..: its part of dB and dC, and what is given. Tiles: b, c, then four to use */
inline void add_head(const args &a, const place &w, const runs &r, i64 n, char *memory, head_room &room, sums &db,
                     sums &dc) {
  const tile b = tile_at(memory, 0), c = tile_at(memory, 1), x = tile_at(memory, 2), dy = tile_at(memory, 3);
  const tile h = tile_at(memory, 4), dh = tile_at(memory, 5);
  const bool after = has_dh(a, w);
  sums from_h, to_dh;
  real all = 0;
  clear(from_h), clear(to_dh);
  for (i64 p = 0; p < WIDTH; p += T) {
    if (NEEDS_H) load_state(a, h, STATE, w.index, p, n);
    if (NEEDS_H) load_rows(a, dy, DY, w, p, 0, 0, w.count);
    if (after) load_state(a, dh, DSTATE, w.index, p, n);
    if (after) load_rows(a, x, X, w, p, 0, 0, w.count);
    tiles_arrive();
    if (NEEDS_H) add_product<false, false>(from_h, dy, h);
    if (after) add_product<false, false>(to_dh, x, dh);
    if (NEEDS_E && after) all += warp_dot(h, dh);
    __syncthreads();
  }
  if (NEEDS_H) add_part(dc, from_h, c, room.from_h, 0, r.first_end, FROM(w.index));
  add_part(db, to_dh, b, room.to_dh, after ? r.last_start : T, w.count, TO(w.index));
  if (threadIdx.x % 32 == 0) room.all[threadIdx.x / 32] = all;
  __syncthreads();
  const int t = threadIdx.x;
  if (NEEDS_H && t < T) GIVEN(blockIdx.y, w.index, 0)[t] = row_total(room.from_h, t);
  if (t < T) GIVEN(blockIdx.y, w.index, 1)[t] = row_total(room.to_dh, t);
  if (t > 0) return;
  all = 0;
  for (int i = 0; i < THREADS / 32; i++) all += room.all[i];
  GIVEN_ALL(blockIdx.y, w.index) = r.carries && after ? KEEP(w.index) * all : (real)0;
}

KERNEL(ssd_groups, THREADS, 2) {
  DYNAMIC_SHARED(memory);
  __shared__ runs r;
  __shared__ head_room room;
  const tile b = tile_at(memory, 0), c = tile_at(memory, 1), g = tile_at(memory, 2);
  const place group = group_place(a);
  const i64 n = (i64)blockIdx.y * T;
  sums db, dc;
  clear(db), clear(dc);
  find_runs(a, group, r);
  load_rows(a, b, B, group, 0, n, 0, group.count);
  load_rows(a, c, C, group, 0, n, 0, group.count);
  load_g(a, g);
  tiles_arrive();
  const bool any = TOGETHER && WIDTH; /* otherwise these are sums of nothing, even where B or C is NaN */
  if (any && HAS(DC)) add_product_where<false>(dc, g, b, [&](int s, int t) { return sees(a, r, s, t); });
  if (any && HAS(DB)) add_product_where<true>(db, g, c, [&](int t, int s) { return sees(a, r, s, t); });
  __syncthreads();
  for (i64 head = group.head; any && head < group.head + TOGETHER; head++)
    add_head(a, place_at(a, (u32)group.batch, (u32)head, (u32)group.chunk), r, n, memory, room, db, dc);
  if (HAS(DB)) put_rows(a, DB, group, 0, n, db);
  if (HAS(DC)) put_rows(a, DC, group, 0, n, dc);
}

/* ---- dx and ddelta ---- */
/* What h gives to each step and each step to dh, over the tiles of states */
struct gifts {
  real of[2][T];
};
inline void load_gifts(const args &a, const place &w, gifts &g) {
  const int which = threadIdx.x / T, t = threadIdx.x % T;
  real sum = 0;
#pragma unroll 1
  for (i64 tile = 0; which < 2 && tile < TILES_N; tile++) sum += GIVEN(tile, w.index, which)[t];
  if (which < 2) g.of[which][t] = sum;
}

/* e_t: all that passes step t */
inline real passed(const args &a, const place &w, const gifts &g, int t) {
  real e = PASSING(w.index)[t], to_steps = 0, to_dh = 0;
#pragma unroll 1
  for (i64 tile = 0; tile < TILES_N; tile++) e += GIVEN_ALL(tile, w.index);
#pragma unroll 4
  for (int i = 0; i < w.count; i++) { /* by h to t and later, by steps before t */
    const real given = g.of[i < t][i];
    to_steps = i < t ? to_steps : to_steps + given;
    to_dh = i < t ? to_dh + given : to_dh;
  }
  return e + to_steps + to_dh;
}

enum { SUM_A, SUM_D, SUM_BIAS, SUMS };

/* ddelta of each step, and the chunk's sums. x_du, dy_x: x.du and dy.x of each step */
inline void finish_steps(const args &a, const place &w, const runs &r, const real *d, const real *x_du,
                         const real *dy_x, real *room) {
  __shared__ gifts g;
  const int t = threadIdx.x;
  const bool some = WIDTH && STATES;
  real term[SUMS] = {0, 0, 0};
  if (some && NEEDS_E) load_gifts(a, w, g);
  __syncthreads();
  if (t < w.count) {
    real dd = some ? x_du[t] : (real)0;
    if (some && NEEDS_E && (t ? r.of[t] == r.of[t - 1] : r.first_end > 0)) { /* something passes */
      const real e = passed(a, w, g, t);
      dd += decay_of(a, w.head) * e;
      term[SUM_A] = d[t] * e;
    }
    if (SOFTPLUS) dd *= -m_expm1(-d[t]); /* sigmoid(x) = 1 - e^-softplus(x) */
    if (HAS(DDELTA))
      PUT(DDELTA, w.batch * B_STRIDE(DDELTA) + (w.first + t) * L_STRIDE(DDELTA) + w.head * H_STRIDE(DDELTA), dd);
    term[SUM_D] = dy_x[t];
    term[SUM_BIAS] = dd;
  }
#pragma unroll 1
  for (int i = 0; i < SUMS; i++) {
    const real sum = group_sum<THREADS>(i == SUM_A ? term[SUM_A] : i == SUM_D ? term[SUM_D] : term[SUM_BIAS], room);
    if (t == 0) ((real *)CHUNK_SUMS)[w.index * SUMS + i] = sum;
  }
}

/* du_s = sum_{t >= s} l_ts (C_t.B_s) dy_t + to_s dh B_s / d_s, of channels p ..; leaves dy and x in tiles 1 and 2 */
inline void find_du(const args &a, const place &w, i64 p, const runs &r, const decays &m, char *memory, sums &du) {
  const tile c = tile_at(memory, 0), b = tile_at(memory, 1), h = tile_at(memory, 2);
  const bool after = has_dh(a, w);
  sums cb, past;
  clear(cb), clear(past), clear(du);
  for (i64 n = 0; NEEDS_DH && n < STATES; n += T) {
    load_rows(a, c, C, w, 0, n, 0, w.count);
    load_rows(a, b, B, w, 0, n, 0, w.count);
    if (after) load_state(a, h, DSTATE, w.index, p, n);
    tiles_arrive();
    add_product<false, true>(cb, c, b);
    if (after) add_product<false, true>(past, b, h);
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int t = row_of(e), s = column_of(e);
    const real weight = between(m, s, t) * cb.v[e], from_dh = between(m, t, w.count - 1) * past.v[e];
    cb.v[e] = sees(a, r, s, t) ? weight : (real)0;
    du.v[e] = after && t >= r.last_start && t < w.count ? from_dh : (real)0;
  }
  set_sums(c, cb);
  load_rows(a, b, DY, w, p, 0, 0, w.count);
  load_rows(a, h, X, w, p, 0, 0, w.count);
  tiles_arrive();
  if (NEEDS_DH && STATES) add_product_where<true>(du, c, b, [&](int t, int s) { return sees(a, r, s, t); });
}

KERNEL(ssd_backward, THREADS, 2) {
  DYNAMIC_SHARED(memory);
  __shared__ decays m;
  __shared__ runs r;
  __shared__ real room[2][ROW_PARTS * T], x_du[T], dy_x[T];
  const tile dy = tile_at(memory, 1), x = tile_at(memory, 2);
  const place w = place_of(a);
  const real skip = number_of(a, D, w.head);
  const int t = threadIdx.x;
  if (t < T) x_du[t] = dy_x[t] = 0;
  find_runs(a, w, r);
  load_decays(a, w, m);
  for (i64 p = 0; p < WIDTH; p += T) {
    sums du;
    find_du(a, w, p, r, m, memory, du);
    sums of_x, of_dy;
    get_cells(of_x, x), get_cells(of_dy, dy);
    row_parts(room[0], [&](int e) { return du.v[e] * of_x.v[e]; });
    row_parts(room[1], [&](int e) { return of_dy.v[e] * of_x.v[e]; });
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const real direct = skip * of_dy.v[e];
      du.v[e] = STATES ? m.d[row_of(e)] * du.v[e] + direct : direct;
    }
    __syncthreads();
    if (t < T) x_du[t] += row_total(room[0], t), dy_x[t] += row_total(room[1], t);
    if (HAS(DX)) put_rows(a, DX, w, p, 0, du);
    __syncthreads();
  }
  finish_steps(a, w, r, m.d, x_du, dy_x, room[0]);
}

/* ---- sums over batch and time: a warp for each head ---- */
KERNEL(ssd_heads, 32) {
  const i64 head = blockIdx.x;
#pragma unroll 1
  for (int k = 0; k < SUMS; k++) {
    const int s = k == SUM_A ? DA : k == SUM_D ? DD : DDELTA_BIAS;
    long_sum sum;
    sum.clear();
    const u32 chunks = (u32)CHUNKS, all = (u32)BATCHES * chunks;
    for (u32 i = threadIdx.x; i < all; i += 32)
      sum.add(((const real *)CHUNK_SUMS)[((i / chunks * HEADS + head) * CHUNKS + i % chunks) * SUMS + k]);
    real total = warp_sum(sum.total);
    if (k == SUM_A && A_LOG) total *= decay_of(a, head);
    if (threadIdx.x == 0 && HAS(s)) PUT(s, head * H_STRIDE(s), total);
  }
}
