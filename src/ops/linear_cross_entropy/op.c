/* linear_cross_entropy -- the loss of a linear layer's logits, which never exist as a whole.
 *
 *   logits = x w^T + b      (no + b without a bias)
 *   l = softcap tanh(logits / softcap)      (l = logits without softcap);      lse = log(sum(e^l))
 *   row's loss = (1 - a) (lse - l_target) + a (lse - mean(l)) + z_loss lse^2,   a = label_smoothing
 *   loss = mean over the rows that count, their sum, or each
 *
 *   dlogits as in cross_entropy;   dx = dlogits w;   dw = dlogits^T x;   db = column sums of dlogits
 *
 * Rows are taken in blocks, and backward computes the logits of a block again. Rows that do not count are left out of
 * the products altogether. */
#include "ops/cross_entropy/row.h"

enum { X = AMBI_LINEAR_CE_X, W = AMBI_LINEAR_CE_W, B = AMBI_LINEAR_CE_B, TARGET = AMBI_LINEAR_CE_TARGET };
enum { LOSS = AMBI_LINEAR_CE_LOSS, LSE = AMBI_LINEAR_CE_LSE };

static const ambi_slot_info slots[] = {
    {"x", "(.., K)", "input", 0},
    {"w", "(C, K)", "weight", 0},
    {"b", "(C)", "bias; absent: 0", AMBI_SLOT_OPTIONAL},
    {"target", "(..)", "the right class of each row; negative or ignore_index: the row does not count",
     AMBI_SLOT_INTEGER | AMBI_SLOT_NO_GRAD},
    {"loss", "() or (..)", "one number, or with reduction=each one for each row", AMBI_SLOT_OUTPUT},
    {"lse", "(..)", "log(sum(e^l)) of each row",
     AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_SAVED | AMBI_SLOT_NO_GRAD},
};

static const int8_t in_place[][2] = {{AMBI_GRAD(X), X}, {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, X, 1, AMBI_MAX_DIMS));
  TRY(expect_rank(p, W, 2, 2));
  const ambi_tensor x = p->t[X];
  int64_t C = p->t[W].shape[0], K = x.shape[x.ndim - 1];
  TRY(expect(p, W, x.dtype, 2, (int64_t[]){C, K}));
  TRY(expect(p, B, x.dtype, 1, &C));
  return ce_shapes(p, X, TARGET, LOSS, LSE);
}

/* Room for the logits of a block of rows, for w in f64 and for all the logits' count, in 64 bits with some to spare. */
static bool sizes_fit(int64_t rows, int64_t C, int64_t K) {
  int64_t most = INT64_C(1) << 56, block, weight, logits;
  return !mul_overflows(C > K ? C : K, 2048 * 8, &block) && !mul_overflows(C, K, &weight) &&
         !mul_overflows(rows, C, &logits) && block < most && weight < most && logits < most;
}

static ambi_status recipe(problem *p) {
  TRY(expect_number(p, "softcap", p->op.u.linear_cross_entropy.softcap));
  rows_make(p, X, AMBI_BIT(W) | AMBI_BIT(B) | ce_vectors(p, LOSS));
  int64_t rows = rows_of(p)->rows.count, C = p->t[W].shape[0], K = p->t[W].shape[1];
  if (!sizes_fit(rows, C, K))
    return fail_slot(AMBI_INVALID, p, W, "its logits, %lld rows of %lld, are too many", (long long)rows, (long long)C);
  double products = 2 * (double)rows * (double)C * (double)K;
  int passes = is_backward(p) ? 1 + writes_slot(p, AMBI_GRAD(X)) + writes_slot(p, AMBI_GRAD(W)) : 1;
  p->flops = products < 0x1p60 ? (uint64_t)products * (uint64_t)passes : UINT64_MAX / 4;
  return AMBI_OK;
}

const op_def linear_cross_entropy_op = {
    .info = {.name = "linear_cross_entropy",
             .formula =
                 "logits = x w^T + b;  l = softcap tanh(logits / softcap);  lse = log(sum(e^l));  loss = mean over "
                 "the rows that count of (1 - a) (lse - l_target) + a (lse - mean(l)) + z_loss lse^2;  "
                 "a = label_smoothing",
             .gradient =
                 "dl = dloss (e^(l - lse) (1 + 2 z_loss lse) - (1 - a) [j = target] - a / C) "
                 "(mean: / rows that count);  dlogits = dl (1 - (l / softcap)^2);  dx = dlogits w;  dw = dlogits^T x;  "
                 "db = sum over rows of dlogits",
             .doc =
                 "cross_entropy of linear, without ever holding all the logits: its workspace has those of a block of "
                 "at most 2048 rows, fewer where they would take more than 64 MiB (cuda: 256 MiB), but at least 128; "
                 "and, where dw is narrower than the arithmetic and rows take more than one block, the sums of dw. "
                 "Where x and w are bf16, cuda rounds dlogits to bf16 before multiplying them. " CE_DOC,
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof ce_attributes / sizeof *ce_attributes,
             .attr = ce_attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(X) | AMBI_BIT(W) | AMBI_BIT(B) | AMBI_BIT(TARGET),
    .shapes = shapes,
    .recipe = recipe,
};
