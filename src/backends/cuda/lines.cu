/* lines.cu -- every element of a grid: OUTER lines of INNER elements, VEC neighbours a thread at a time.
 *
 *   OUTER, INNER   numbers                  OUTER_OFFSET(s, line), INNER_STRIDE(s)   where a line begins, its step
 *   WHOLE          1: VEC divides INNER     EVEN   1: lines keep the alignment of line 0                             */
struct place {
  i64 row, column;
};

inline place place_of(i64 vector, i64 outer, i64 vectors) { /* vectors: in a row */
  place p = {0, vector * VEC};
  if (outer == 1) return p;
  p.row = quotient(vector, vectors);
  p.column = (vector - p.row * vectors) * VEC;
  return p;
}

#define VECTORS ((INNER + VEC - 1) / VEC) /* in a line */

/* In a template of ALIGNED: a vector of a slot. Beyond the end of the line it reads as 0 and is not written. */
#define LEFT(p) (WHOLE ? VEC : INNER - (p).column)
#define GET_AT(r, s, p) \
  get_at<ALIGNED>(r, DTYPE(s), AT(s), OUTER_OFFSET(s, (p).row), INNER_STRIDE(s), (p).column, LEFT(p))
#define PUT_AT(s, p, r) \
  put_at<ALIGNED>(r, DTYPE(s), ADDS(s), AT(s), OUTER_OFFSET(s, (p).row), INNER_STRIDE(s), (p).column, LEFT(p))

template <bool ALIGNED>
inline void get_at(real (&r)[VEC], int dtype, const char *at, i64 offset, i64 stride, i64 column, i64 left) {
  if (VEC > 1) return load_some<VEC, ALIGNED>(r, dtype, at, offset + column, left);
  r[0] = load(dtype, at, offset + column * stride);
}

template <bool ALIGNED>
inline void put_at(real (&r)[VEC], int dtype, bool adds, char *at, i64 offset, i64 stride, i64 column, i64 left) {
  if (VEC > 1) return put_some<VEC, ALIGNED>(dtype, adds, at, offset + column, r, left);
  put(dtype, adds, at, offset + column * stride, r[0]);
}
