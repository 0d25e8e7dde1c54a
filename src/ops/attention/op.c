/* attention -- each query takes the mean of the values, weighted by how well their keys fit it.
 *
 *   t = scale q.k;   t = softcap tanh(t / softcap) with a softcap
 *   lse = log(sum over keys of e^t);   p = e^(t - lse);   o = sum over keys of p v
 *
 * Of the S keys of a batch the first n = lengths[b] are valid (clamped to 0 .. S; all of them without lengths). Query i
 * of L stands at position i + n - L, so that the last query stands at the last valid key. It sees
 *   causal      the keys j <= position
 *   window w    the keys j > position - w and, unless causal, j < position + w
 * A query that sees no key has o = 0, lse = -inf and no gradient. H heads of q share G heads of k and v: head h of q
 * reads head h / (H/G) of k and v.
 *
 *   dp = do.v;   delta = do.o;   dt = p (dp - delta), times 1 - (t / softcap)^2 with a softcap
 *   dq = scale sum over keys of dt k;   dk = scale sum over queries of dt q;   dv = sum over queries of p do
 * dk and dv sum over every head of q that reads them. Backward reads o and lse where they are described and computes
 * them again where they are not. */
#include "ops/attention/op.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { Q = AMBI_ATTENTION_Q, K = AMBI_ATTENTION_K, V = AMBI_ATTENTION_V, LENGTHS = AMBI_ATTENTION_LENGTHS };
enum { O = AMBI_ATTENTION_O, LSE = AMBI_ATTENTION_LSE };

enum { OUTPUT = AMBI_SLOT_OUTPUT, OPTIONAL = AMBI_SLOT_OPTIONAL, NO_GRAD = AMBI_SLOT_NO_GRAD };

static const ambi_slot_info slots[] = {
    {"q", "(B, H, L, D)", "queries; strides say in which order the axes lie", 0},
    {"k", "(B, G, S, D)", "keys; G divides H", 0},
    {"v", "(B, G, S, D)", "values", 0},
    {"lengths", "(B)", "valid keys of each batch; absent: S", OPTIONAL | NO_GRAD | AMBI_SLOT_INTEGER},
    {"o", "(B, H, L, D)", "output", OUTPUT | AMBI_SLOT_SAVED},
    {"lse", "(B, H, L)", "log of the sum of e^t", OUTPUT | OPTIONAL | NO_GRAD | AMBI_SLOT_SAVED},
};

static const ambi_attr_info attributes[] = {
    {"scale", "of the scores; 0: 1/sqrt(D)", AMBI_ATTR_F64, offsetof(ambi_op, u.attention.scale), 0, -DBL_MAX, DBL_MAX,
     NULL},
    {"softcap", "scores become softcap tanh(t / softcap); 0: they stay", AMBI_ATTR_F64,
     offsetof(ambi_op, u.attention.softcap), 0, 0, DBL_MAX, NULL},
    {"causal", "a query sees no key after its position", AMBI_ATTR_BOOL, offsetof(ambi_op, u.attention.causal), 0, 0, 1,
     NULL},
    {"window", "a query sees only keys less than this far away; 0: all", AMBI_ATTR_I32,
     offsetof(ambi_op, u.attention.window), 0, 0, INT32_MAX, NULL},
};

static const int8_t in_place[][2] = {{-1, -1}};

/* ---- shapes ---- */
/* B H (L + S) D, with empty axes counted as one: what workspaces are in proportion to stays far from 2^63 bytes. */
static ambi_status check_size(const problem *p) {
  const int64_t limit = INT64_C(1) << 48, *q = p->t[Q].shape, *k = p->t[K].shape;
  const int64_t axes[] = {q[0], q[1], q[2] > k[2] ? q[2] : k[2], q[3]};
  int64_t size = 1;
  for (int i = 0; i < 4; i++)
    if (mul_overflows(size, axes[i] ? axes[i] : 1, &size) || size > limit)
      return fail(AMBI_INVALID, "attention: B H L D or B H S D is more than 2^48");
  return AMBI_OK;
}

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, Q, 4, 4));
  TRY(expect_rank(p, K, 4, 4));
  const ambi_tensor q = p->t[Q], k = p->t[K];
  const int64_t batches = q.shape[0], heads = q.shape[1], groups = k.shape[1], width = q.shape[3];
  if (groups == 0 ? heads != 0 : heads % groups != 0)
    return fail_slot(AMBI_INVALID, p, K, "its %lld heads do not divide the %lld of q", (long long)groups,
                     (long long)heads);
  TRY(expect(p, K, q.dtype, 4, (int64_t[]){batches, groups, k.shape[2], width}));
  TRY(expect_like(p, V, K));
  TRY(expect(p, LENGTHS, AMBI_I32, 1, &batches));
  TRY(expect_like(p, O, Q));
  TRY(expect(p, LSE, q.dtype == AMBI_F64 ? AMBI_F64 : AMBI_F32, 3, q.shape));
  TRY(check_size(p));
  if (width > ATTENTION_WIDTH)
    return fail_slot(AMBI_UNSUPPORTED, p, Q, "a head has %lld elements: at most %d are supported", (long long)width,
                     ATTENTION_WIDTH);
  return AMBI_OK;
}

/* ---- recipe ---- */
/* dv needs p alone: neither v nor o. */
static void read_what_is_needed(problem *p) {
  if (!writes_slot(p, AMBI_GRAD(Q)) && !writes_slot(p, AMBI_GRAD(K))) p->reads &= ~(AMBI_BIT(V) | AMBI_BIT(O));
}

static attention_strides strides_of(const ambi_tensor *t) {
  attention_strides s = {0};
  int64_t *const of[] = {&s.b, &s.h, &s.l, &s.d};
  for (int i = 0; i < t->ndim; i++) *of[i] = t->stride[i];
  return s;
}

/* Sum of clamp(first + i, 0, most) for i < count: none where it is negative, a ramp, then a plateau. */
static double clamped_sum(int64_t first, int64_t count, int64_t most) {
  int64_t begin = attention_clamp(-first, count), end = attention_clamp(most - first, count);
  double ramp = (double)(end - begin) * ((double)(first + begin) + (double)(first + end - 1)) / 2;
  return (end > begin ? ramp : 0) + (double)most * (double)(count - (end > begin ? end : begin));
}

/* Pairs of a query and a key it sees, when all keys are valid. */
static double pairs(const attention_recipe *r) {
  int64_t L = r->queries, S = r->keys, w = r->window;
  double none = w ? clamped_sum(S - L - w + 1, L, S) : 0, all = (double)L * (double)S;
  if (r->causal) all = clamped_sum(S - L + 1, L, S);
  if (w && !r->causal) all = clamped_sum(S - L + w, L, S);
  return all - none;
}

/* Matrix products over those pairs: t and o forward; t, dp and one for each gradient backward. */
static int products(const problem *p) {
  bool dq = writes_slot(p, AMBI_GRAD(Q)), dk = writes_slot(p, AMBI_GRAD(K)), dv = writes_slot(p, AMBI_GRAD(V));
  return is_backward(p) ? 1 + (dq || dk) + dq + dk + dv : 2;
}

static ambi_status recipe(problem *p) {
  attention_recipe *r = (attention_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  memset(r, 0, sizeof *r);
  const int64_t *q = p->t[Q].shape, *k = p->t[K].shape;
  r->batches = q[0], r->heads = q[1], r->queries = q[2], r->width = q[3], r->groups = k[1], r->keys = k[2];
  r->heads_per_group = r->groups ? r->heads / r->groups : 0;
  r->scale = p->op.u.attention.scale != 0 ? p->op.u.attention.scale : 1 / sqrt((double)(r->width ? r->width : 1));
  r->softcap = p->op.u.attention.softcap;
  TRY(expect_number(p, "scale", r->scale));
  TRY(expect_number(p, "softcap", r->softcap));
  r->causal = p->op.u.attention.causal != 0;
  r->window = p->op.u.attention.window;
  if (is_backward(p)) read_what_is_needed(p);
  for (uint32_t m = p->reads | p->writes; m; m &= m - 1)
    r->stride[__builtin_ctz(m)] = strides_of(&p->t[__builtin_ctz(m)]);
  double flops = 2 * (double)r->width * pairs(r) * (double)r->batches * (double)r->heads * products(p);
  p->flops = (uint64_t)fmin(flops, 0x1p62);
  return AMBI_OK;
}

const op_def attention_op = {
    .info = {.name = "attention",
             .formula = "t = scale q.k (softcap tanh(t/softcap));  lse = log(sum e^t);  p = e^(t - lse);  o = sum p v",
             .gradient = "dp = do.v;  delta = do.o;  dt = p (dp - delta) (1 - (t/softcap)^2);  dq = scale sum dt k;  "
                         "dk = scale sum dt q;  dv = sum p do",
             .doc = "Each query takes the mean of the values, weighted by how well their keys fit it: causal or not, "
                    "in a window or not, with heads of k and v shared by several heads of q.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(Q) | AMBI_BIT(K) | AMBI_BIT(V) | AMBI_BIT(LENGTHS),
    .shapes = shapes,
    .recipe = recipe,
};
