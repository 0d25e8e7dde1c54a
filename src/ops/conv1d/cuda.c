/* conv1d on CUDA: the numbers of cuda.cu. */
#include "backends/cuda/cuda.h"

#include "ops/conv1d/op.h"

enum { X = AMBI_CONV1D_X, W = AMBI_CONV1D_W, B = AMBI_CONV1D_B, X0 = AMBI_CONV1D_X0 };
enum { Y = AMBI_CONV1D_Y, X_LAST = AMBI_CONV1D_X_LAST };
enum { DX = AMBI_GRAD(X), DW = AMBI_GRAD(W), DB = AMBI_GRAD(B), DX0 = AMBI_GRAD(X0), DY = AMBI_GRAD(Y) };
enum { SEQUENCES = AMBI_BIT(X) | AMBI_BIT(Y) | AMBI_BIT(DX) | AMBI_BIT(DY) }; /* (B, D, L) */
enum { THREADS = 256, WALKERS = 4, SPAN = 64 };

extern const char conv1d_cu[], conv1d_points_cu[], conv1d_time_cu[], conv1d_channels_cu[], conv1d_sums_cu[];

static bool wants_sums(const problem *p) { return writes_slot(p, DW) || writes_slot(p, DB); }

/* Blocks of threads that each take many of `points` in turn */
static int64_t blocks_for(const cuda_plan *k, int64_t points) { return cuda_blocks(k, ceil_div(points, THREADS), 16); }

/* ---- any strides, any number of taps ---- */
static void general_backward(cuda_plan *k, const conv1d_recipe *r) {
  int64_t lines = r->batch * r->channels, sums = r->channels * (r->taps + 1);
  cuda_workspace(k, "DP", k->p->op.u.conv1d.silu ? (uint64_t)(lines * r->length) * real_bytes(k->p) : 0);
  if (k->p->op.u.conv1d.silu) cuda_launch(k, "conv1d_dp", blocks_for(k, lines * r->length), 1, THREADS, 1, 0);
  if (writes_slot(k->p, DX) || writes_slot(k->p, DX0))
    cuda_launch(k, "conv1d_dz", blocks_for(k, lines * (r->length + r->taps - 1)), 1, THREADS, 1, 0);
  if (wants_sums(k->p)) cuda_launch(k, "conv1d_sums", cuda_blocks(k, sums, 16), 1, THREADS, 1, 0);
}

/* ---- the parts of dw and db that blocks leave, (parts, W + 1, D), and their sums ---- */
static void say_parts(cuda_plan *k, const conv1d_recipe *r, int64_t parts) {
  int64_t sums = wants_sums(k->p) ? parts * r->channels * (r->taps + 1) : 0;
  cuda_number(k, "PARTS", parts);
  cuda_workspace(k, "PARTIAL", (uint64_t)sums * real_bytes(k->p));
}

static void add_parts(cuda_plan *k, const conv1d_recipe *r) {
  if (wants_sums(k->p)) cuda_launch(k, "conv1d_sums", ceil_div(r->channels * (r->taps + 1), THREADS), 1, THREADS, 1, 0);
}

/* ---- time is dense ---- */
/* Neighbours in time that a thread takes: at least 4, as the W - 1 after them come from one other thread. */
static int64_t vector_of(const cuda_plan *k) {
  int64_t smallest = 4;
  for (uint32_t m = (k->p->reads | k->p->writes) & SEQUENCES; m; m &= m - 1)
    if (dtype_bytes(k->p->t[__builtin_ctz(m)].dtype) < smallest) smallest = 2;
  return 16 / smallest;
}

static bool time_is_dense(const cuda_plan *k, const conv1d_recipe *r) {
  for (uint32_t m = (k->p->reads | k->p->writes) & SEQUENCES; m; m &= m - 1)
    if (r->stride[__builtin_ctz(m)][2] != 1) return false;
  return r->taps - 1 <= vector_of(k) && r->taps <= 8 && r->length >= vector_of(k) && r->length < INT64_C(1) << 24 &&
         r->batch * r->channels < INT64_C(1) << 31;
}

/* Lines that begin equally far from a multiple of `vec` elements in all sequences; on one, where exactly */
static bool lines_are_alike(const cuda_plan *k, const conv1d_recipe *r, int64_t vec, bool exactly) {
  const int64_t *first = r->stride[is_backward(k->p) ? DY : X];
  for (uint32_t m = (k->p->reads | k->p->writes) & SEQUENCES; m; m &= m - 1)
    for (int axis = 0; axis < 2; axis++)
      if ((r->stride[__builtin_ctz(m)][axis] - (exactly ? 0 : first[axis])) % vec) return false;
  return true;
}

/* Elements of a line with those before it in its first vector, at most */
static int64_t say_lines(cuda_plan *k, const conv1d_recipe *r, int64_t vec) {
  bool even = lines_are_alike(k, r, vec, true), alike = lines_are_alike(k, r, vec, false);
  cuda_fix(k, "EVEN", even);
  cuda_fix(k, "ALIKE", alike);
  cuda_fix(k, "WHOLE", even && r->length % vec == 0);
  return r->length + (alike && !even ? vec - 1 : 0);
}

static void time_forward(cuda_plan *k, const conv1d_recipe *r, int64_t vec) {
  int64_t vectors = ceil_div(say_lines(k, r, vec), vec), along = 32, unroll = 4;
  while (along < THREADS && along * unroll < r->length / vec) along *= 2;
  if (ceil_div(vectors, along) == 5) unroll = 5; /* a line's last elements are not worth a block */
  cuda_fix(k, "ALONG", along);
  cuda_fix(k, "UNROLL", unroll);
  cuda_launch(k, "conv1d_forward", ceil_div(r->batch * r->channels, THREADS / along), ceil_div(vectors, along * unroll),
              (int)along, (int)(THREADS / along), 0);
  k->last = conv1d_time_cu;
}

/* A warp walks a segment of a line, a block takes some segments of one channel. Where lines are even, stores that pass
 * the cache and, in 16 bits, two warps a block are 4% faster on an H200; where they are not, slower. */
static void time_backward(cuda_plan *k, const conv1d_recipe *r, int64_t vec) {
  const bool even = lines_are_alike(k, r, vec, true);
  const int64_t walkers = even && vec > 4 ? WALKERS / 2 : WALKERS;
  int64_t chunk = 32 * vec, length = say_lines(k, r, vec), lines = r->batch * r->channels;
  int64_t steps = ceil_div(length <= 2048 + chunk ? length : 2048, chunk);
  int64_t warps = (int64_t)k->dev->multiprocessors * 32, blocks = warps / WALKERS * 3 / 2;
  while (steps > 1 && lines * ceil_div(length, chunk * steps) < warps) steps = ceil_div(steps, 2);
  int64_t segments = ceil_div(length, chunk * steps), pairs = r->batch * segments;
  int64_t parts = ceil_div(blocks, r->channels ? r->channels : 1), most = ceil_div(pairs, walkers);
  if (parts > most) parts = most;
  int64_t each = ceil_div(ceil_div(pairs, parts ? parts : 1), walkers) * walkers;
  parts = each > 0 ? ceil_div(pairs, each) : 0; /* NOLINT(clang-analyzer-core.UndefinedBinaryOperatorResult) */
  cuda_fix(k, "WALKERS", walkers);
  cuda_fix(k, "STREAMS", even);
  cuda_number(k, "STEPS", steps);
  cuda_number(k, "SEGMENTS", segments);
  cuda_number(k, "PAIRS", pairs);
  cuda_number(k, "EACH", each);
  say_parts(k, r, parts == 1 ? 0 : parts);
  cuda_launch(k, "conv1d_backward", r->channels, parts, 32, (int)walkers, 0);
  if (parts != 1) add_parts(k, r);
  k->last = conv1d_time_cu;
}

/* ---- channels are dense ---- */
static bool channels_are_dense(const cuda_plan *k, const conv1d_recipe *r) {
  for (uint32_t m = (k->p->reads | k->p->writes) & SEQUENCES; m; m &= m - 1)
    if (r->stride[__builtin_ctz(m)][1] != 1) return false;
  return r->taps <= 5 && r->channels >= 8 && r->channels < INT64_C(1) << 31 && r->length < INT64_C(1) << 40 &&
         r->batch * ceil_div(r->length, 8 * SPAN) < 65536; /* blocks in y */
}

/* Every row of channels begins at a multiple of 16 bytes where the first does. */
static bool rows_are_even(const cuda_plan *k, const conv1d_recipe *r) {
  for (uint32_t m = (k->p->reads | k->p->writes) & SEQUENCES; m; m &= m - 1) {
    int s = __builtin_ctz(m);
    if (!whole_words(r->stride[s][0] | r->stride[s][2], k->p->t[s].dtype)) return false;
  }
  return true;
}

/* A thread takes `vec` channels for a span of time, a block eight spans. */
static void by_channel(cuda_plan *k, const conv1d_recipe *r, int64_t vec) {
  bool back = is_backward(k->p);
  int64_t spans = ceil_div(r->length, SPAN), blocks = ceil_div(r->batch * spans, 8);
  cuda_fix(k, "EVEN", rows_are_even(k, r));
  cuda_fix(k, "WHOLE", r->channels % vec == 0);
  cuda_fix(k, "SPAN", SPAN);
  cuda_fix(k, "STEPS", back && vector_of(k) > 4 ? 2 : 4); /* as registers allow */
  cuda_number(k, "SPANS", spans);
  if (back) say_parts(k, r, blocks);
  cuda_launch(k, back ? "conv1d_backward" : "conv1d_forward", ceil_div(r->channels, 32 * vec), blocks, 32, 8, 0);
  if (back) add_parts(k, r);
  k->last = conv1d_channels_cu;
}

static void say_strides(cuda_plan *k, const conv1d_recipe *r) {
  static const char *const names[] = {"BATCH", "CHANNEL", "TIME"};
  for (int axis = 0; axis < 3; axis++) {
    int64_t stride[AMBI_SLOTS];
    for (int s = 0; s < AMBI_SLOTS; s++) stride[s] = r->stride[s][axis];
    cuda_strides(k, names[axis], stride);
  }
}

static ambi_status plan(cuda_plan *k) {
  const conv1d_recipe *r = conv1d(k->p);
  const int64_t *s = r->stride[is_backward(k->p) ? DY : X];
  bool back = is_backward(k->p), time = time_is_dense(k, r);
  bool fast = cuda_specialise(k, time || channels_are_dense(k, r));
  int64_t vec = !fast ? 1 : !time && back ? 4 : vector_of(k);
  k->last = conv1d_points_cu;
  k->variant = !fast ? "general" : time ? "time" : "channels";
  cuda_math(k);
  cuda_fix(k, "SILU", k->p->op.u.conv1d.silu);
  cuda_fix(k, "VEC", vec);
  (fast ? cuda_fix : cuda_number)(k, "TAPS", r->taps);
  cuda_number(k, "BATCHES", r->batch);
  cuda_number(k, "CHANNELS", r->channels);
  cuda_number(k, "LENGTH", r->length);
  cuda_number(k, "CHANNEL_INNER", (s[1] < 0 ? -s[1] : s[1]) < (s[2] < 0 ? -s[2] : s[2]));
  say_strides(k, r);
  if (fast && !time)
    by_channel(k, r, vec);
  else if (fast)
    (back ? time_backward : time_forward)(k, r, vec);
  else if (back)
    general_backward(k, r);
  else
    cuda_launch(k, "conv1d_forward", blocks_for(k, r->batch * r->channels * r->length), 1, THREADS, 1, 0);
  if (fast && back) k->more = conv1d_sums_cu;
  if (fast && writes_slot(k->p, DX0))
    cuda_launch(k, "conv1d_dx0", blocks_for(k, r->batch * r->channels * (r->taps - 1)), 1, THREADS, 1, 0);
  if (writes_slot(k->p, X_LAST) && r->taps > 1)
    cuda_launch(k, "conv1d_x_last", blocks_for(k, r->batch * r->channels), 1, THREADS, 1, 0);
  return AMBI_OK;
}

const cuda_kernel conv1d_cuda = {conv1d_cu, plan};
