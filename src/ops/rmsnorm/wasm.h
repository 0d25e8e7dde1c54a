/* wasm.h -- what rmsnorm does differently in WebAssembly, above all in kernel packs: engines there neither unroll loops
 * nor prefetch, and make calls and iterations dear. Elsewhere each of these is the plain loop, or nothing. */
#ifndef AMBI_RMSNORM_WASM_H
#define AMBI_RMSNORM_WASM_H
#include "backends/cpu/norm.h"

/* TURN: vectors per iteration of forward's loops (backward: at most half). SPREAD: vectors dealt round-robin to the
 * partial sums; a remainder goes to the first, so results do not depend on TURN. */
#ifdef AMBI_STEPS
enum { TURN = AMBI_STEPS, SPREAD = 8 * TOGETHER };
_Static_assert(TURN % SPREAD == 0 && (TOGETHER == 1 || F32_ALONE), "whole spreads; halves would share their terms");
#else
enum { TURN = 4, SPREAD = 4 };
#endif
enum { BACKWARD_TURN = TURN / 2, BACKWARD_SPREAD = SPREAD / 2 };

/* A sum by a loop that takes `turn` vectors per iteration. It is run once; in WebAssembly again, with shorter turns,
 * for what is left. There it also prefetches `result`, if not NULL, which `row` then is: in a cache that costs 2 to 9
 * %. */
#ifdef __wasm__
#define SUM_IN_TURNS(most, spread, result, turn, row, ...) \
  do {                                                     \
    if (!(result)) {                                       \
      enum { turn = (most) };                              \
      const char *const row = NULL;                        \
      __VA_ARGS__                                          \
    }                                                      \
    {                                                      \
      enum { turn = (spread) };                            \
      const char *const row = (result);                    \
      __VA_ARGS__                                          \
    }                                                      \
    if (TOGETHER > 1) {                                    \
      enum { turn = TOGETHER };                            \
      const char *const row = NULL;                        \
      __VA_ARGS__                                          \
    }                                                      \
  } while (0)
#else
#define SUM_IN_TURNS(most, spread, result, turn, row, ...) \
  do {                                                     \
    enum { turn = (most) };                                \
    const char *const row = (result);                      \
    __VA_ARGS__                                            \
  } while (0)
#endif

/* Where a loop over columns lets its views begin: in packs at each turn, as FOR_TURNS does. */
INLINE ptrdiff_t views_begin(ptrdiff_t k) { return PLAIN_NORMS ? k : 0; }

/* ---- prefetching the result by loads ----
 * Stores wait for the lines they go to, and WebAssembly has neither prefetches nor stores past the cache. So there the
 * first pass over a row of a large tensor also loads a byte of each line of the result. */
#ifdef __wasm__
enum { PREFETCHES_BY_LOADS = 1 };
#else
enum { PREFETCHES_BY_LOADS = 0 };
#endif
enum { LARGE = 1 << 23 }; /* bytes of a slot that caches hardly keep */

/* The row of the result, or NULL where that does not pay */
static inline const char *result_to_prefetch(const cpu_call *c, const strip *to) {
  if (!PREFETCHES_BY_LOADS || !is_direct(to)) return NULL;
  const int64_t bytes = rows_of(c->p)->cols * (int64_t)sizeof(real);
  return rows_of(c->p)->rows.count * bytes >= LARGE && GROUP * bytes <= MOST_PREFETCHED ? to->at : NULL;
}

INLINE const char *result_from(const char *row, int64_t i) {
  return PREFETCHES_BY_LOADS && row ? row + (size_t)i * sizeof(real) : NULL;
}

/* The line of it that begins at column k, if one does */
INLINE void prefetch_result(const char *row, int64_t k) {
  if (!PREFETCHES_BY_LOADS || !row || k % (LINE / (int64_t)sizeof(real)) != 0) return;
  (void)*(const volatile char *)(row + (size_t)k * sizeof(real));
}

/* ---- w: packs have no offset, and ones for a weight that is not there ---- */

/* Columns [i, i+n) of w; NULL: there is none */
INLINE const void *weight_in(int kind, const strip *w, int64_t i, int64_t n, real *tile) {
  if (!PLAIN_NORMS || w->at) return view_in(kind, w, i, n, tile);
  for (int64_t k = 0; k < n; k++) tile[k] = 1;
  return tile;
}

/* Columns of w that forward takes at once: in packs all of them, unless they are those ones. */
static inline int64_t columns_at_once(const strip *w, int64_t cols) {
  return DENSE_ALONE && w->at ? max64(cols, 1) : TILE;
}

#endif
