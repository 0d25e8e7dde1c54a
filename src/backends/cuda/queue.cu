/* queue.cu -- rows on their way: of its group's next STAGES rows, a thread has its own chunks in shared memory, asked for
 * long before their turn comes. It reads back only what it has asked for itself, so there are no barriers.
 *
 * A stage holds PIECES pieces of 16 bytes a thread; the pieces of neighbours are neighbours. A group's rows all have the
 * same phase (rows.h). */
#define THREADS      (GROUP * GROUPS)
#define PIECES_OF(s) (VEC * bytes_of(DTYPE(s)) / 16) /* of a chunk */

inline char *piece_at(char *memory, int piece) {
  return memory + (piece * (int)THREADS + (int)(IN_BLOCK * GROUP + threadIdx.x)) * 16;
}

/* Asks for a chunk; columns outside the row become 0, but for those before it. */
template <int BYTES> inline void ask_chunk(char *to, const line &l, int column, int cols, bool aligned) {
  enum { PER = 16 / BYTES };
  const char *at = l.at + (i64)column * BYTES;
#pragma unroll
  for (int p = 0; p < VEC / PER; p++, to += THREADS * 16) {
    const int c = column + p * PER;
    if (aligned) {
      int n = 16;
      if (!EXACT) n = min(max((cols - c) * BYTES, 0), 16);
      if (UNEVEN && c + PER <= 0) n = 0;
      copy_ahead(to, at + 16 * p, n);
    } else {
      for (int i = 0; i < 8; i++) ((u16 *)to)[i] = inside(c + i * 2 / BYTES, cols) ? ((const u16 *)at)[8 * p + i] : (u16)0;
    }
  }
}

/* What has arrived of the row before, in a chunk that begins at a negative column, becomes 0. */
template <int BYTES> inline void drop_before(packed<VEC, BYTES> &r, int column) {
  const int halves = -column * BYTES / 2;
#pragma unroll
  for (int i = 0; i < VEC * BYTES / 4; i++)
    if (2 * i < halves) r.w[i] = 2 * i + 2 <= halves ? 0 : r.w[i] & 0xffff0000u;
}

/* A chunk that has arrived, from `column` on */
template <int BYTES> inline void take_chunk(real (&v)[VEC], const char *from, int dtype, int column = 0) {
  packed<VEC, BYTES> r;
#pragma unroll
  for (int p = 0; p < VEC * BYTES / 16; p++, from += THREADS * 16) {
    const uint4 q = *(const uint4 *)from;
    r.w[4 * p] = q.x, r.w[4 * p + 1] = q.y, r.w[4 * p + 2] = q.z, r.w[4 * p + 3] = q.w;
  }
  if (UNEVEN && column < 0) drop_before<BYTES>(r, column);
  unpack(v, r, dtype);
}
