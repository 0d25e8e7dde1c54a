/* attention on CUDA: what its texts share. general.cu computes in real for everything; forward16.cu and backward16.cu
 * are for tensors of f16 or bf16, by tensor cores.
 *
 * Numbers: BATCHES HEADS GROUPS QUERIES KEYS WIDTH (B H G L S D), TOGETHER = H/G, CAUSAL, WINDOW; SCALE, SOFTCAP;
 * STRIDES(s, i): element strides of a slot along its axes. */
#define B_STRIDE(s) STRIDES(s, 0)
#define H_STRIDE(s) STRIDES(s, 1)
#define L_STRIDE(s) STRIDES(s, 2)
#define D_STRIDE(s) STRIDES(s, 3)

/* Query i sees the keys [lo, hi) of n valid ones: attention_seen of op.h. Both grow with i. */
struct sight {
  i64 lo, hi;
};

inline i64 clamp_key(i64 v, i64 most) { return v < 0 ? 0 : v < most ? v : most; }

inline sight seen_by(const args &a, i64 i, i64 n) {
  const i64 position = i + n - QUERIES;
  i64 hi = n, lo = 0;
  if (CAUSAL)
    hi = position + 1;
  else if (WINDOW)
    hi = position + WINDOW;
  if (WINDOW) lo = position - WINDOW + 1;
  sight s = {clamp_key(lo, n), clamp_key(hi, n)};
  return s;
}

inline i64 valid_keys(const args &a, i64 batch) {
  return HAS(LENGTHS) ? clamp_key(load_integer(DTYPE(LENGTHS), AT(LENGTHS), batch * B_STRIDE(LENGTHS)), KEYS) : KEYS;
}

/* A block of the grid: some rows, queries or keys, of one batch and head. Those with most to do come first. */
struct place {
  i64 batch, head, first, valid;
};

inline place place_of(const args &a, i64 rows, i64 heads, i64 each, bool last_first) {
  const i64 blocks = (rows + each - 1) / each, above = blockIdx.x / blocks, block = blockIdx.x - above * blocks;
  place w;
  w.batch = above / heads;
  w.head = above - w.batch * heads;
  w.first = (last_first ? blocks - 1 - block : block) * each;
  w.valid = valid_keys(a, w.batch);
  return w;
}

#define HEAD_OFFSET(s, b, h) ((b) * B_STRIDE(s) + (h) * H_STRIDE(s))

#if BACKWARD
/* Of query `row` of B H L: lse (+inf where nothing is seen: p = e^-inf = 0) and delta = do.o, in the workspace */
#define ROW_LSE(row)   (((real *)STATISTICS)[row])
#define ROW_DELTA(row) (((real *)STATISTICS)[BATCHES * HEADS * QUERIES + (row)])
#endif
