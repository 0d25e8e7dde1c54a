/* transpose.h -- VL rows of VL reals, the other way round; and how a panel is filled from rows along k. */
#ifndef AMBI_CPU_TRANSPOSE_H
#define AMBI_CPU_TRANSPOSE_H
#include "backends/cpu/simd.h"

/* Each stage zips row i with row i + VL/2: an index rotates by one bit, so log2(VL) stages exchange row and lane. */
static inline void v_transpose(vr v[LANES]) {
  vr t[LANES];
  UNROLL for (int stage = 1; stage < LANES; stage *= 2) {
    UNROLL for (int i = 0; i < LANES / 2; i++) {
      t[2 * i] = __builtin_shufflevector(v[i], v[i + LANES / 2], ZIP_LOW);
      t[2 * i + 1] = __builtin_shufflevector(v[i], v[i + LANES / 2], ZIP_HIGH);
    }
    UNROLL for (int i = 0; i < LANES; i++) v[i] = t[i];
  }
}

/* out[k * ld + i] = row[i][k] for i < lanes and k < n, a multiple of VL */
static inline void transpose_rows(const real *const row[LANES], int64_t n, real *out, int64_t ld, int64_t lanes) {
  for (int64_t k = 0; k < n; k += VL) {
    vr v[LANES];
    UNROLL for (int i = 0; i < LANES; i++) v[i] = v_load_pairs(row[i] + k); /* reals, or pairs */
    v_transpose(v);
    UNROLL for (int i = 0; i < LANES; i++) {
      real *at = out + (k + i) * ld;
      if (lanes == VL)
        v_store(at, v[i]);
      else
        v_store_n(at, v[i], lanes);
    }
  }
}

#endif
