/* rope -- rotary position embedding: channels in pairs, each turned by an angle that grows with the position.
 *
 *   angle = position frequency[i]               i < dims/2; frequency[i] = theta^(-2i/dims) unless given
 *   y1 = x1 cos(angle) - x2 sin(angle)
 *   y2 = x2 cos(angle) + x1 sin(angle)
 *
 * x is (.., L, D); x1 and x2 are its pair i: channels i and i + dims/2 (halves, as LLaMA), or 2i and 2i + 1
 * (interleaved, as GPT-J). Channels from dims on are copied. The gradient is the rotation back:
 *
 *   dx1 = dy1 cos(angle) + dy2 sin(angle)
 *   dx2 = dy2 cos(angle) - dy1 sin(angle)
 *
 * angle is the product in f64, whatever the other dtypes: at position 2^20 an f32 product would be off by 1/16. */
#include "ops/rope/op.h"

#include <float.h>

enum { X = AMBI_ROPE_X, POSITIONS = AMBI_ROPE_POSITIONS, FREQUENCIES = AMBI_ROPE_FREQUENCIES, Y = AMBI_ROPE_Y };

static const ambi_slot_info slots[] = {
    {"x", "(.., L, D)", "input", 0},
    {"positions", "(L) or (B, L)", "of each row; B: the first axis of x. Absent: offset, offset + 1, ..",
     AMBI_SLOT_OPTIONAL | AMBI_SLOT_NO_GRAD | AMBI_SLOT_INTEGER},
    {"frequencies", "(dims/2)", "f32 or f64; absent: theta^(-2i/dims)", AMBI_SLOT_OPTIONAL | AMBI_SLOT_NO_GRAD},
    {"y", "(.., L, D)", "output", AMBI_SLOT_OUTPUT},
};

static const ambi_attr_info attributes[] = {
    {"theta", "base of the frequencies", AMBI_ATTR_F64, offsetof(ambi_op, u.rope.theta), 10000, DBL_MIN, DBL_MAX, NULL},
    {"interleaved", "pairs are (2i, 2i + 1) instead of (i, i + dims/2)", AMBI_ATTR_BOOL,
     offsetof(ambi_op, u.rope.interleaved), 0, 0, 1, NULL},
    {"dims", "how many leading channels rotate, an even number; 0: all", AMBI_ATTR_I32, offsetof(ambi_op, u.rope.dims),
     0, 0, INT32_MAX - 1, NULL},
    {"offset", "position of the first row, where no positions are given", AMBI_ATTR_I32,
     offsetof(ambi_op, u.rope.offset), 0, INT32_MIN, INT32_MAX, NULL},
};

static const int8_t in_place[][2] = {{Y, X}, {AMBI_GRAD(X), AMBI_GRAD(Y)}, {-1, -1}};

static int64_t rotating(const problem *p) {
  const ambi_tensor *x = &p->t[X];
  return p->op.u.rope.dims ? p->op.u.rope.dims : x->shape[x->ndim - 1];
}

static ambi_status check_dims(const problem *p) {
  int64_t dims = rotating(p), channels = p->t[X].shape[p->t[X].ndim - 1];
  if (dims % 2 == 0 && dims <= channels) return AMBI_OK;
  return fail(AMBI_INVALID, "rope: dims: expected an even number of at most %lld channels, got %lld",
              (long long)channels, (long long)dims);
}

static ambi_status check_frequencies(problem *p) {
  if (!has_slot(p, FREQUENCIES)) return AMBI_OK;
  TRY(expect(p, FREQUENCIES, AMBI_F32, 1, (int64_t[]){rotating(p) / 2}));
  ambi_dtype t = p->t[FREQUENCIES].dtype;
  if (t == AMBI_F32 || t == AMBI_F64) return AMBI_OK;
  return fail_slot(AMBI_INVALID, p, FREQUENCIES, "expected dtype f32 or f64, got %s", ambi_dtype_name(t));
}

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 2, AMBI_MAX_DIMS));
  const ambi_tensor *x = &p->t[X];
  int64_t length = x->shape[x->ndim - 2];
  bool each = has_slot(p, POSITIONS) && p->t[POSITIONS].ndim == 2 && x->ndim > 2; /* batch has its own */
  TRY(check_dims(p));
  TRY(expect(p, POSITIONS, AMBI_I32, each ? 2 : 1, each ? (int64_t[]){x->shape[0], length} : &length));
  TRY(check_frequencies(p));
  return expect_like(p, Y, X);
}

static ambi_status recipe(problem *p) {
  rope_recipe *r = (rope_recipe *)(void *)p->recipe;
  _Static_assert(sizeof *r <= RECIPE_BYTES, "recipe");
  const ambi_tensor *x = &p->t[X];
  bool each = has_slot(p, POSITIONS) && p->t[POSITIONS].ndim == 2;
  uint32_t rows = (p->reads | p->writes) & ~(AMBI_BIT(POSITIONS) | AMBI_BIT(FREQUENCIES));
  grid_make(&r->heads, p, rows, each, x->ndim - 2, false);
  r->batches = each ? x->shape[0] : 1;
  r->length = x->shape[x->ndim - 2];
  r->channels = x->shape[x->ndim - 1];
  r->dims = rotating(p);
  for (uint32_t m = rows; m; m &= m - 1) {
    const int s = __builtin_ctz(m);
    r->batch_stride[s] = each ? p->t[s].stride[0] : 0;
    r->row_stride[s] = p->t[s].stride[x->ndim - 2];
    r->channel_stride[s] = p->t[s].stride[x->ndim - 1];
  }
  p->flops = (uint64_t)ambi_numel(x) * 3;
  return AMBI_OK;
}

const op_def rope_op = {
    .info = {.name = "rope",
             .formula = "angle = position frequency[i];  y1 = x1 cos(angle) - x2 sin(angle);  "
                        "y2 = x2 cos(angle) + x1 sin(angle)",
             .gradient = "dx1 = dy1 cos(angle) + dy2 sin(angle);  dx2 = dy2 cos(angle) - dy1 sin(angle)",
             .doc = "Rotary position embedding: channels in pairs (i, i + dims/2), or (2i, 2i + 1) when interleaved, "
                    "each turned by an angle that grows with the position. Angles are computed in f64.",
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof attributes / sizeof *attributes,
             .attr = attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(POSITIONS) | AMBI_BIT(FREQUENCIES),
    .shapes = shapes,
    .recipe = recipe,
};
