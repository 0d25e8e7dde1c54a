/* embedding on CUDA: y[i] = w[tokens[i]];  dw[v] = the sum of dy[i] over every i with tokens[i] = v.
 *
 * dw: tokens are put in lists, one for each word, of rising i; a group of threads adds up the dy of a word in that
 * order. Lists longer than PIECE are summed in pieces by many groups, then the pieces in order. Where a list lies in
 * memory depends on who comes first, what it holds does not, so neither does the sum.                               */
#define THREAD          ((i64)blockIdx.x * 256 + threadIdx.x)
#define FOR_ALL(i, n)   for (i64 i = THREAD; i < (n); i += (i64)gridDim.x * 256)
#define GROUP           ((i64)blockIdx.x * blockDim.y + threadIdx.y) /* of blockDim.x threads, which share a row */
#define FOR_COLUMNS(c)  for (i64 c = threadIdx.x * VEC; c < CHANNELS; c += blockDim.x * VEC)

/* The row that token i names, or -1 */
inline i64 word_of(const args &a, i64 i) {
  const i64 word = load_integer(DTYPE(TOKENS), AT(TOKENS), TOKEN_OFFSET(TOKENS, i));
  return word >= 0 && word < WORDS ? word : -1;
}

/* In a template of ALIGNED: VEC columns of a row. WHOLE: no row ends within them */
#define LEFT(column) (WHOLE ? VEC : CHANNELS - (column))
#define GET_ROW(r, s, offset, column) \
  get_row<ALIGNED>(r, DTYPE(s), AT(s), offset, column, CHANNEL_STRIDE(s), LEFT(column))
#define PUT_ROW(s, offset, column, r) \
  put_row<ALIGNED>(r, DTYPE(s), ADDS(s), AT(s), offset, column, CHANNEL_STRIDE(s), LEFT(column))

template <bool ALIGNED>
inline void get_row(real (&r)[VEC], int dtype, const char *at, i64 offset, i64 column, i64 stride, i64 left) {
  if (VEC > 1) return load_some<VEC, ALIGNED>(r, dtype, at, offset + column, left);
  r[0] = load(dtype, at, offset + column * stride);
}

template <bool ALIGNED>
inline void put_row(real (&r)[VEC], int dtype, bool adds, char *at, i64 offset, i64 column, i64 stride, i64 left) {
  if (VEC > 1) return put_some<VEC, ALIGNED>(dtype, adds, at, offset + column, r, left);
  put(dtype, adds, at, offset + column * stride, r[0]);
}

#if !BACKWARD
template <bool ALIGNED> inline void copy_rows(const args &a) {
  const i64 first = (i64)blockIdx.x * blockDim.y * UNROLL + threadIdx.y;
  i64 word[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const i64 i = first + u * blockDim.y;
    word[u] = i < COUNT_OF_TOKENS ? word_of(a, i) : -1;
  }
  FOR_COLUMNS(c) {
    real row[UNROLL][VEC];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      for (int k = 0; k < VEC; k++) row[u][k] = (real)NAN;
      if (word[u] >= 0) GET_ROW(row[u], W, word[u] * WORD_STRIDE, c);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const i64 i = first + u * blockDim.y;
      if (i < COUNT_OF_TOKENS) PUT_ROW(Y, TOKEN_OFFSET(Y, i), c, row[u]);
    }
  }
}

KERNEL(embedding_forward, 256) {
  if (EVEN && ON_WORDS(W) && ON_WORDS(Y))
    copy_rows<true>(a);
  else
    copy_rows<false>(a);
}
#else
/* ---- the lists ---- */
#define counts       ((u64 *)COUNT)       /* (V): tokens that name it                             */
#define starts       ((u64 *)START)       /* (V): where its list begins                           */
#define first_pieces ((u64 *)FIRST_PIECE) /* (V): and its pieces, if it has more than one         */
#define numbers      ((u64 *)NUMBER)      /* (N): of token i in its list, in order of arrival     */
#define unsorted     ((i64 *)UNSORTED)    /* (N): all lists, in order of arrival                  */
#define sorted       ((i64 *)SORTED)      /* (N): the same, each rising                           */
#define piece_words  ((i64 *)PIECE_WORD)  /* of each piece                                        */
#define cursors      ((u64 *)CURSORS)     /* how much of the lists, and how many pieces, are taken */

KERNEL(embedding_clear, 256) {
  FOR_ALL(v, WORDS) counts[v] = 0;
  if (THREAD < 2) cursors[THREAD] = 0;
}

KERNEL(embedding_count, 256) {
  FOR_ALL(i, COUNT_OF_TOKENS) {
    const i64 word = word_of(a, i);
    if (word >= 0) numbers[i] = atomicAdd(&counts[word], 1ull);
  }
}

/* The sum over the lanes before this one, and over all */
inline u64 scan_lanes(u64 v, u64 *all) {
  const u64 mine = v;
  for (int step = 1; step < 32; step *= 2) {
    const u64 other = __shfl_up_sync(ALL_LANES, v, step);
    if (threadIdx.x % 32 >= step) v += other;
  }
  *all = __shfl_sync(ALL_LANES, v, 31);
  return v - mine;
}

/* A warp takes room for the lists of its words at once. */
KERNEL(embedding_start, 256) {
  const int lane = threadIdx.x % 32;
  for (i64 first = THREAD - lane; first < WORDS; first += (i64)gridDim.x * 256) {
    const i64 v = first + lane;
    const u64 count = v < WORDS ? counts[v] : 0, pieces = (count + PIECE - 1) / PIECE;
    u64 all, start = 0;
    const u64 before = scan_lanes(count, &all);
    if (lane == 0 && all > 0) start = atomicAdd(&cursors[0], all);
    start = __shfl_sync(ALL_LANES, start, 0) + before;
    if (count > 0) starts[v] = start;
    if (pieces <= 1) continue;
    const u64 piece = first_pieces[v] = atomicAdd(&cursors[1], pieces);
    for (u64 p = 0; p < pieces; p++) piece_words[piece + p] = v;
  }
}

KERNEL(embedding_place, 256) {
  FOR_ALL(i, COUNT_OF_TOKENS) {
    const i64 word = word_of(a, i);
    if (word >= 0) unsorted[starts[word] + numbers[i]] = i;
  }
}

/* A warp for each token counts those of its list before it. */
KERNEL(embedding_rank, 256) {
  for (i64 i = GROUP; i < COUNT_OF_TOKENS; i += (i64)gridDim.x * blockDim.y) {
    const i64 word = word_of(a, i), count = word < 0 ? 0 : (i64)counts[word];
    if (count == 0 || count > LONG) continue;
    const i64 *list = unsorted + starts[word];
    int before = 0;
    for (i64 j = threadIdx.x; j < count; j += 32) before += list[j] < i;
    for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(ALL_LANES, before, step);
    if (threadIdx.x == 0) sorted[starts[word] + before] = i;
  }
}

/* Long lists again: a block goes through all tokens, in order, and picks those of its word. */
inline void collect(const args &a, i64 word, int *scratch) {
  i64 at = starts[word];
  for (i64 first = 0; first < COUNT_OF_TOKENS; first += 256) {
    const i64 i = first + threadIdx.x;
    const bool mine = i < COUNT_OF_TOKENS && word_of(a, i) == word;
    const u32 votes = __ballot_sync(ALL_LANES, mine), warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) scratch[warp] = __popc(votes);
    __syncthreads();
    i64 place = at + __popc(votes & ((1u << threadIdx.x % 32) - 1));
    for (u32 w = 0; w < 8; w++) {
      if (w < warp) place += scratch[w];
      at += scratch[w];
    }
    if (mine) sorted[place] = i;
    __syncthreads();
  }
}

KERNEL(embedding_collect, 256) {
  __shared__ int scratch[8];
  for (i64 first = blockIdx.x * 32ll; first < WORDS; first += gridDim.x * 32ll) {
    const i64 v = first + threadIdx.x;
    if (!__syncthreads_or(threadIdx.x < 32 && v < WORDS && counts[v] > LONG)) continue;
    for (i64 w = first; w < min(first + 32, WORDS); w++)
      if (counts[w] > LONG) collect(a, w, scratch);
  }
}

/* ---- the sums ---- */
/* Of column c of dy over `count` tokens of a list: UNROLL at a time, those sums with Kahan's correction */
template <bool ALIGNED>
inline void sum_tokens(const args &a, real (&out)[VEC], const i64 *list, i64 count, i64 c) {
  long_sum sum[VEC];
  for (int k = 0; k < VEC; k++) sum[k].clear();
  for (i64 first = 0; first < count; first += UNROLL) {
    real row[UNROLL][VEC];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      for (int k = 0; k < VEC; k++) row[u][k] = 0;
      if (first + u < count) GET_ROW(row[u], DY, TOKEN_OFFSET(DY, list[first + u]), c);
    }
    for (int k = 0; k < VEC; k++) {
      real part = 0;
#pragma unroll
      for (int u = 0; u < UNROLL; u++) part += row[u][k];
      sum[k].add(part);
    }
  }
  for (int k = 0; k < VEC; k++) out[k] = sum[k].total;
}

#define ALIGNED_ROWS (EVEN && ON_WORDS(DW) && ON_WORDS(DY))

template <bool ALIGNED> inline void put_pieces(const args &a) {
  for (i64 p = GROUP; p < (i64)cursors[1]; p += (i64)gridDim.x * blockDim.y) {
    const i64 word = piece_words[p], from = (p - (i64)first_pieces[word]) * PIECE;
    const i64 count = min((i64)counts[word] - from, (i64)PIECE);
    FOR_COLUMNS(c) {
      real sum[VEC];
      sum_tokens<ALIGNED>(a, sum, sorted + starts[word] + from, count, c);
      for (int k = 0; k < VEC && c + k < CHANNELS; k++) ((real *)PIECE_SUM)[p * CHANNELS + c + k] = sum[k];
    }
  }
}

KERNEL(embedding_pieces, 256) {
  if (ALIGNED_ROWS)
    put_pieces<true>(a);
  else
    put_pieces<false>(a);
}

inline void sum_pieces(const args &a, real (&out)[VEC], i64 word, i64 pieces, i64 c) {
  const real *from = (const real *)PIECE_SUM + first_pieces[word] * CHANNELS + c;
#pragma unroll
  for (int k = 0; k < VEC; k++) {
    long_sum sum;
    sum.clear();
    for (i64 p = 0; p < pieces && c + k < CHANNELS; p++) sum.add(from[p * CHANNELS + k]);
    out[k] = sum.total;
  }
}

template <bool ALIGNED> inline void put_words(const args &a) {
  for (i64 v = GROUP; v < WORDS; v += (i64)gridDim.x * blockDim.y) {
    const i64 count = counts[v];
    if (count == 0 && ADDS(DW)) continue;
    FOR_COLUMNS(c) {
      real sum[VEC];
      if (count > PIECE)
        sum_pieces(a, sum, v, (count + PIECE - 1) / PIECE, c);
      else
        sum_tokens<ALIGNED>(a, sum, sorted + (count ? starts[v] : 0), count, c);
      PUT_ROW(DW, v * WORD_STRIDE, c, sum);
    }
  }
}

KERNEL(embedding_backward, 256) {
  if (ALIGNED_ROWS)
    put_words<true>(a);
  else
    put_words<false>(a);
}
#endif
