/* common.cu -- what selective_scan's texts share: where the elements of a slot are, and functions. Names as in op.c. */

/* ---- places: element (b, chunk, g, d, n, t) of every slot. Axes that a slot does not have are of stride 0 ---- */
#define BATCH_STRIDE(s)   STRIDE(s, 0)
#define CHUNK_STRIDE(s)   STRIDE(s, 1)
#define GROUP_STRIDE(s)   STRIDE(s, 2)
#define CHANNEL_STRIDE(s) STRIDE(s, 3)
#define STATE_STRIDE(s)   STRIDE(s, 4)
#define STEP_STRIDE(s)    STRIDE(s, 5)

struct place {
  i64 batch, chunk, channel, state;
  bool there; /* lanes beyond the last channel read 0 and write nothing */
};

/* The steps of one place: step t is element t * step. */
struct line {
  char *at;
  int dtype;
  i64 step;
  bool adds;
};

inline line line_of(const args &a, int s, const place &p) {
  const i64 groups = s % 16 == C ? GROUPS_C : GROUPS_B;
  if (!HAS(s) || !p.there) return line{0, F32, 0, false};
  i64 offset = p.batch * BATCH_STRIDE(s) + p.chunk * CHUNK_STRIDE(s) + p.channel * CHANNEL_STRIDE(s);
  offset += p.state * STATE_STRIDE(s);
  if (GROUP_STRIDE(s)) offset += p.channel / (CHANNELS / groups) * GROUP_STRIDE(s);
  return line{AT(s) + offset * bytes_of(DTYPE(s)), DTYPE(s), STEP_STRIDE(s), ADDS(s)};
}

inline real get(const line &l, i64 t) { return l.at ? load(l.dtype, l.at, t * l.step) : (real)0; }
inline void set(const line &l, i64 t, real v) {
  if (l.at) put(l.dtype, l.adds, l.at, t * l.step, v);
}

/* One value: a, d, h0, .. */
inline real value(const args &a, int s, const place &p) { return get(line_of(a, s, p), 0); }
inline void set_value(const args &a, int s, const place &p, real v) { set(line_of(a, s, p), 0, v); }

/* Whether the state is forgotten before step t */
inline bool resets(const line &seq_idx, i64 t) {
  if (!seq_idx.at || t == 0) return false;
  const int *id = (const int *)seq_idx.at + t * seq_idx.step;
  return id[0] != id[-seq_idx.step];
}

/* ---- functions ---- */
#define LOG2_E K(1.4426950408889634)

inline real silu(real z) { return m_gate(v_max(z, K(-1e30)), m_logit(z)); }
inline real silu_slope(real dy, real z) { return m_gate_grad(dy, z, m_logit(z)); }
inline real decay(const args &a, real given) { return A_LOG ? -m_exp(given) : given; } /* A */

/* zero-order hold: bbar = d phi(d A) B, phi(x) = expm1(x)/x */
inline real phi(real x) { return x == K(0.0) ? K(1.0) : m_expm1(x) / x; }

/* phi'(x) = (e^x - phi)/x; for |x| < 1, where that cancels, its series: sum of (k+1)/(k+2)! x^k, by ratios of terms */
inline real phi_slope(real x, real ex, real phi_x) {
  enum { TERMS = COMPUTE_F64 ? 19 : 11 };
  real series = K(1.0);
  for (int k = TERMS - 1; k > 0; k--) series = K(1.0) + x * K((k + 1) / (double)(k * (k + 2))) * series;
  return v_abs(x) < K(1.0) ? K(0.5) * series : (ex - phi_x) / x;
}
