/* forward90.cu -- attention of f16 or bf16 on Hopper: forward16.cu's formulas and state, by products of whole groups of
 * warps (wgmma.cu).
 *
 * One group of warps brings tiles of keys and values; each of the others has 64 queries. While such a group turns the
 * scores s of a tile into p, the scores of the next tile are under way, and so is o += p v of the tile before:
 *
 *   s_0 = q k_0^T;  p_0;   for each next j:   s_j = q k_j^T  |  o += p_(j-1) v_(j-1)  |  p_j = softmax of s_j */
namespace forward {
enum {
  GROUPS_HERE = WARPS / 4,
  STAGES = 2,
  QUERY_BYTES = QUERIES_HERE * PITCH * 2,
  VALUES_AT = QUERY_BYTES + STAGES * TILE_BYTES,
  BARRIERS_AT = VALUES_AT + STAGES * TILE_BYTES,
  ODD_AT = BARRIERS_AT + (4 * STAGES + 1) * 8 /* two words */
};
enum { KEYS_CAME, KEYS_READ, VALUES_CAME, VALUES_READ, QUERIES_READ }; /* but the last, a barrier for every stage */

inline shared_at barrier_of(shared_at q, int which, int stage) {
  return q + (u32)(BARRIERS_AT + 8 * (which * STAGES + stage));
}

/* Not 0: values that were odd were taken out. Of every other place, as loaders may be one ahead; a 1 that is left from
 * before does no harm: what is odd is added to what it has made odd already. */
inline shared_at odd_at(shared_at q, u32 parity) { return q + (u32)ODD_AT + 4 * parity; }

inline void begin_barriers(shared_at q) {
  for (int i = 0; i < STAGES; i++) {
    barrier_init(barrier_of(q, KEYS_CAME, i), GROUP), barrier_init(barrier_of(q, VALUES_CAME, i), GROUP);
    barrier_init(barrier_of(q, KEYS_READ, i), WARPS), barrier_init(barrier_of(q, VALUES_READ, i), WARPS);
  }
  barrier_init(barrier_of(q, QUERIES_READ, 0), WARPS);
  store_shared(odd_at(q, 0), 0), store_shared(odd_at(q, 1), 0);
}

/* Values that some query here does not see: what is odd is taken out, before anyone reads it. */
inline void check_values(shared_at v, shared_at odd) {
  copies_done();
  if (!brought_odd<TYPE, KEYS_HERE, DEPTH>(v)) return;
  clear_brought<TYPE, KEYS_HERE, DEPTH>(v);
  store_shared(odd, 1);
}

inline void bring_place(const args &a, const place &w, const sight &keys, shared_at q, shared_at odd,
                        ring<STAGES> &at) {
  const sight first = seen_by(a, w.first, w.valid), last = seen_by(a, w.first + QUERIES_HERE - 1, w.valid);
  const bool quick = (((u64)AT(Q) | (u64)AT(K) | (u64)AT(V)) & 15) == 0;
  bring_slot<QUERIES_HERE>(a, q, Q, w.batch, w.head, w.first, (int)QUERIES, quick);
  for (int key = keys.lo; key < keys.hi; key += KEYS_HERE, at.next()) {
    const shared_at k = q + (u32)(QUERY_BYTES + at.stage * TILE_BYTES),
                    v = q + (u32)(VALUES_AT + at.stage * TILE_BYTES);
    const bool some = last.lo > key || first.hi < key + KEYS_HERE;
    barrier_wait(barrier_of(q, KEYS_READ, at.stage), at.phase ^ 1);
    bring_slot<KEYS_HERE>(a, k, K, w.batch, w.group, key, w.valid, quick);
    tile_came(barrier_of(q, KEYS_CAME, at.stage), quick); /* and, the first time, the queries */
    barrier_wait(barrier_of(q, VALUES_READ, at.stage), at.phase ^ 1);
    bring_slot<KEYS_HERE>(a, v, V, w.batch, w.group, key, w.valid, quick);
    if (some) check_values(v, odd);
    tile_came(barrier_of(q, VALUES_CAME, at.stage), quick && !some);
  }
}

inline void bring_all(const args &a, shared_at q) {
  ring<STAGES> at;
  u32 turn = 0, phase = 1;
  place w;
  while (next_place(a, turn, QUERIES, HEADS, QUERIES_HERE, CAUSAL, w)) {
    const sight keys = keys_here(a, w);
    if (keys.lo >= keys.hi) continue;
    barrier_wait(barrier_of(q, QUERIES_READ, 0), phase);
    phase ^= 1;
    bring_place(a, w, keys, q, odd_at(q, phase), at);
  }
}

/* The scores of a tile, on their way */
inline void begin_scores(float (&s)[MT][NT][4], shared_at q, const ring<STAGES> &at) {
  barrier_wait(barrier_of(q, KEYS_CAME, at.stage), at.phase);
  shared_to_products();
  hold(s[0]);
  products_begin();
  group_dots<TYPE, NT, DEPTH, QUERIES_HERE, KEYS_HERE>(s[0], q, MY_ROW / 64 * 64,
                                                       q + (u32)(QUERY_BYTES + at.stage * TILE_BYTES));
  products_issued();
}

/* o += p v, on its way */
inline void begin_values(forward_state &f, const u32 (&p)[NT / 2][4], shared_at q, const ring<STAGES> &at) {
  barrier_wait(barrier_of(q, VALUES_CAME, at.stage), at.phase);
  shared_to_products();
  hold(f.o[0]);
  products_begin();
  group_weighted<TYPE, DT, NT / 2, KEYS_HERE>(f.o[0], p, q + (u32)(VALUES_AT + at.stage * TILE_BYTES));
  products_issued();
}

/* s becomes p, and o is to be multiplied by keep */
inline void soften(const args &a, const place &w, forward_state &f, float (&s)[MT][NT][4], int key,
                   float (&keep)[MT][2]) {
  const int query = w.first + MY_ROW;
  const sight first = seen_by(a, query, w.valid), last = seen_by(a, query + 16 * MT - 1, w.valid);
  const float c = (float)SCALE_LOG2;
  cap_scores(a, s);
  if (last.lo > key || first.hi < key + KEYS_HERE) mask_scores(a, s, query, key, w.valid);
  follow(f, s, c, keep);
  exponentials(f, s, c);
}

/* Scores of tile `key` are there: its keys may go and, after the last, the queries. */
inline void scores_done(float (&s)[MT][NT][4], shared_at q, ring<STAGES> &k, bool last) {
  hold(s[0]);
  warp_arrives(barrier_of(q, KEYS_READ, k.stage));
  if (last) warp_arrives(barrier_of(q, QUERIES_READ, 0));
  k.next();
}
inline void values_done(forward_state &f, shared_at q, ring<STAGES> &v) {
  products_done<0>();
  hold(f.o[0]);
  warp_arrives(barrier_of(q, VALUES_READ, v.stage));
  v.next();
}

inline void work(const args &a, const place &w, forward_state &f, const sight &keys, shared_at q, ring<STAGES> &k,
                 ring<STAGES> &v) {
  float s[MT][NT][4], keep[MT][2];
  u32 p[NT / 2][4];
  clear_parts(f.o);
#pragma unroll
  for (int i = 0; i < MT * 2; i++) f.most[i / 2][i % 2] = -INFINITY, f.sum[i / 2][i % 2].clear();
  if (keys.lo >= keys.hi) return;
  begin_scores(s, q, k);
  products_done<0>();
  scores_done(s, q, k, keys.lo + KEYS_HERE >= keys.hi);
  soften(a, w, f, s, keys.lo, keep);
  pack_parts<TYPE>(p, s[0]);
  for (int key = keys.lo + KEYS_HERE; key < keys.hi; key += KEYS_HERE) {
    begin_scores(s, q, k);
    begin_values(f, p, q, v);
    products_done<1>();
    scores_done(s, q, k, key + KEYS_HERE >= keys.hi);
    soften(a, w, f, s, key, keep);
    values_done(f, q, v);
    rescale(f, keep);
    pack_parts<TYPE>(p, s[0]);
  }
  begin_values(f, p, q, v);
  values_done(f, q, v);
}

/* What was taken out of the values counts where it is seen. */
inline void put_back(const args &a, const place &w, forward_state &f, const sight &keys) {
  add_odd<TYPE>(f.o, row_address(a, V, w.batch, w.group, 0), 2 * L_STRIDE(V), keys.lo, keys.hi, 0, (int)WIDTH,
                [&](int m, int h, int j) { return sees(a, w.first + MY_ROW + 16 * m + 8 * h + LANE_ROW, j, w.valid); });
}

inline void work_all(const args &a, shared_at q) {
  ring<STAGES> k, v;
  u32 turn = 0, parity = 1;
  place w;
  while (next_place(a, turn, QUERIES, HEADS, QUERIES_HERE, CAUSAL, w)) {
    const sight keys = keys_here(a, w);
    forward_state f;
    if (keys.lo < keys.hi) parity ^= 1;
    work(a, w, f, keys, q, k, v);
    if (keys.lo < keys.hi && load_shared(odd_at(q, parity))) put_back(a, w, f, keys);
#pragma unroll
    for (int i = 0; i < MT * 2; i++) store_row(a, w, f, i / 2, i % 2);
  }
}
}  // namespace forward

KERNEL(attention_forward, 32 * (FORWARD_WARPS + LOADERS), 1) {
  using namespace forward;
  DYNAMIC_SHARED(memory);
  const shared_at q = first_atom(memory);
  if (threadIdx.x == 0) begin_barriers(q);
  __syncthreads();
  if (threadIdx.x < GROUP) {
    fewer_registers<40>();
    bring_all(a, q);
  } else {
    more_registers<232>();
    work_all(a, q);
  }
}
