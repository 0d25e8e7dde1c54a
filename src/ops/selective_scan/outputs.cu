/* outputs.cu -- what forward.cu and ring.cu share: the pieces of a tile on their way, and where outputs are summed. */
enum { GROUP_STEPS = LANES > 8 ? LANES : 8 };              /* steps whose outputs are summed together, */
enum { SUMS = OWN * GROUP_STEPS, OUTPUTS = SUMS / LANES }; /* channel after channel */
#define MY_ROW(b, i) \
  ((b).row + ((b).k * OUTPUTS + (i)) / GROUP_STEPS * WIDE) /* lane k is left with those from k OUTPUTS on */
#define MY_STEP(b, i) (((b).k * OUTPUTS + (i)) % GROUP_STEPS)

struct __align__(16) pieces {
  coefficient_words coefficients;
  slot_pieces<DELTA> delta;
  slot_pieces<U> u;
  slot_pieces<Z> z;
};

inline void load(const args &a, const block_at &b, i64 t, bool whole, int first, int count, pieces &next) {
  load_pieces(a, b, t, whole, first, count, next.delta), load_pieces(a, b, t, whole, first, count, next.u);
  load_pieces(a, b, t, whole, first, count, next.z);
}
