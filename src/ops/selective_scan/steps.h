/* steps.h -- the recurrence and its gradient, on tiles of reals.
 *
 * One call takes a vector of channels and SOME states of each through consecutive steps of one chunk. Nothing is summed
 * across lanes here: what a step shares between channels (B, C) is broadcast, and the gradients dB and dC are kept lane
 * by lane until every channel of the block has been added.                                                        */
#ifndef AMBI_SCAN_STEPS_H
#define AMBI_SCAN_STEPS_H
#include "backends/cpu/math.h"
#include "ops/selective_scan/tiles.h"

#define LOG2_E        1.4426950408889634
#define UNROLL_STATES _Pragma("GCC unroll 4")
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* What backward keeps of a step: 4 vectors a state. One more, as a store holds up loads 4096 bytes from it. */
enum { RECORD = (4 * SOME + 1) * LANES };

/* Row t of a tile of channels is at t * VL; of B and C at t * STATES, or, when constant, state j at j * WIDTH. */
typedef struct {
  const real *d, *u, *du, *dp; /* d, u, d u; dp: the gradient of p                             */
  const real *a, *b, *c;       /* a: state j at j * WIDTH                                      */
  real *h, *dh;                /* the state and its gradient, likewise                         */
  real *p;                     /* += sum_n C h                                                 */
  real *da;                    /* += dA, at j * WIDTH                                          */
  real *s;                     /* += sum_n dh bbar/d: times d it is du, times u a part of dd   */
  real *dd;                    /* += the rest of dd                                            */
  real *db, *dc;               /* +=: state j of row t at t * step + j * state                 */
  int64_t db_step, db_state, dc_step, dc_state;
  real *abar, *before; /* of every step, for the way back: at t * RECORD + j * VL      */
} scan_tiles;

typedef struct {
  bool zoh, constant_b, constant_c;
} scan_kind;

ALWAYS_INLINE vr per_step(const real *tile, bool constant, int64_t t, int j) {
  return constant ? v_load(tile + j * WIDTH) : v_splat(tile[t * STATES + j]);
}

/* ---- zero-order hold: bbar = d phi(d A) B, phi(x) = expm1(x)/x ---- */
static inline vr phi(vr x) { return v_select(x == K(0.0), K(1.0), m_expm1(x) / x); }

/* phi'(x) = (e^x - phi)/x; for |x| < 1, where that cancels, its series: sum of (k+1)/(k+2)! x^k, by ratios of terms */
static inline vr phi_slope(vr x, vr ex, vr phi_x) {
  enum { TERMS = AMBI_REAL == 64 ? 19 : 11 };
  vr series = K(1.0);
  for (int k = TERMS - 1; k > 0; k--) series = K(1.0) + x * K((k + 1) / (double)(k * (k + 2))) * series;
  return v_select(v_abs(x) < K(1.0), K(0.5) * series, (ex - phi_x) / x);
}

/* ---- forward: steps [t, end) ---- */
ALWAYS_INLINE void forward_steps(const scan_tiles *x, scan_kind k, bool output, int64_t t, int64_t end) {
  vr h[SOME], a[SOME], a2[SOME];
  UNROLL_STATES for (int j = 0; j < SOME; j++) {
    h[j] = v_load(x->h + j * WIDTH);
    a[j] = v_load(x->a + j * WIDTH);
    a2[j] = a[j] * K(LOG2_E);
  }
  for (; t < end; t++) {
    const vr d = v_load(x->d + t * VL), du = v_load(x->du + t * VL);
    vr p = K(0.0);
    UNROLL_STATES for (int j = 0; j < SOME; j++) {
      const vr abar = m_exp2(d * a2[j]), b = per_step(x->b, k.constant_b, t, j);
      h[j] = abar * h[j] + (k.zoh ? du * phi(d * a[j]) : du) * b;
      if (output) p += per_step(x->c, k.constant_c, t, j) * h[j];
    }
    if (output) v_store(x->p + t * VL, v_load(x->p + t * VL) + p);
  }
  UNROLL_STATES for (int j = 0; j < SOME; j++) v_store(x->h + j * WIDTH, h[j]);
}

/* ---- backward: first the states again, keeping abar and h_{t-1}; dC += dp h ---- */
ALWAYS_INLINE void again_steps(const scan_tiles *x, scan_kind k, int64_t t, int64_t end) {
  vr h[SOME], a[SOME], a2[SOME];
  UNROLL_STATES for (int j = 0; j < SOME; j++) {
    h[j] = v_load(x->h + j * WIDTH);
    a[j] = v_load(x->a + j * WIDTH);
    a2[j] = a[j] * K(LOG2_E);
  }
  for (; t < end; t++) {
    const vr d = v_load(x->d + t * VL), du = v_load(x->du + t * VL), dp = v_load(x->dp + t * VL);
    real *dc = x->dc + t * x->dc_step, *keep = x->abar + t * RECORD, *before = x->before + t * RECORD;
    vr p = K(0.0);
    UNROLL_STATES for (int j = 0; j < SOME; j++) {
      const vr abar = m_exp2(d * a2[j]), b = per_step(x->b, k.constant_b, t, j);
      v_store(keep + j * VL, abar);
      v_store(before + j * VL, h[j]);
      h[j] = abar * h[j] + (k.zoh ? du * phi(d * a[j]) : du) * b;
      p += per_step(x->c, k.constant_c, t, j) * h[j];
      real *at = dc + j * x->dc_state;
      v_store(at, v_load(at) + dp * h[j]);
    }
    v_store(x->p + t * VL, v_load(x->p + t * VL) + p);
  }
  UNROLL_STATES for (int j = 0; j < SOME; j++) v_store(x->h + j * WIDTH, h[j]);
}

/* ---- backward: then the gradients, from step end - 1 down to `first` ---- */
ALWAYS_INLINE void backward_steps(const scan_tiles *x, scan_kind k, int64_t first, int64_t end) {
  vr dh[SOME], a[SOME], da[SOME];
  UNROLL_STATES for (int j = 0; j < SOME; j++) {
    dh[j] = v_load(x->dh + j * WIDTH);
    da[j] = v_load(x->da + j * WIDTH);
    a[j] = v_load(x->a + j * WIDTH);
  }
  for (int64_t t = end - 1; t >= first; t--) {
    const vr d = v_load(x->d + t * VL), du = v_load(x->du + t * VL), dp = v_load(x->dp + t * VL);
    const real *kept = x->abar + t * RECORD, *before = x->before + t * RECORD;
    real *db = x->db + t * x->db_step;
    const vr old_s = v_load(x->s + t * VL), old_dd = v_load(x->dd + t * VL);
    vr s = K(0.0), dd = K(0.0);
    UNROLL_STATES for (int j = 0; j < SOME; j++) {
      const vr abar = v_load(kept + j * VL), b = per_step(x->b, k.constant_b, t, j);
      const vr g = dh[j] + per_step(x->c, k.constant_c, t, j) * dp;
      dh[j] = g * abar;
      const vr gh = dh[j] * v_load(before + j * VL);
      vr db_g = g;
      dd += gh * a[j];
      da[j] += gh * d;
      if (k.zoh) {
        const vr f = phi(d * a[j]);
        db_g *= f;
        dd += dh[j] * v_load(x->u + t * VL) * b;
        da[j] += g * du * d * phi_slope(d * a[j], abar, f) * b;
      }
      s += db_g * b;
      real *at = db + j * x->db_state;
      v_store(at, v_load(at) + db_g * du);
    }
    v_store(x->s + t * VL, old_s + s);
    v_store(x->dd + t * VL, old_dd + dd);
  }
  UNROLL_STATES for (int j = 0; j < SOME; j++) {
    v_store(x->dh + j * WIDTH, dh[j]);
    v_store(x->da + j * WIDTH, da[j]);
  }
}

/* The functions above are compiled twice: for what Mamba does, and for everything. */
static const scan_kind plain = {false, false, false};
static bool is_plain(scan_kind k) { return !k.zoh && !k.constant_b && !k.constant_c; }

static inline vr silu(vr z) { return m_gate(v_max(z, K(-1e30)), m_logit(z)); }

#endif
