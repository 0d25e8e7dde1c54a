/* cross_entropy -- how surprised a row of logits is by its target.
 *
 *   l = softcap tanh(logits / softcap)      (l = logits without softcap);      lse = log(sum(e^l))
 *   row's loss = (1 - a) (lse - l_target) + a (lse - mean(l)) + z_loss lse^2,   a = label_smoothing
 *   loss = mean over the rows that count, their sum, or each
 *
 *   dl = dloss (e^(l - lse) (1 + 2 z_loss lse) - (1 - a) [j = target] - a / C)      (mean: dloss / rows that count)
 *   dlogits = dl (1 - (l / softcap)^2)
 *
 * `grad` is dlogits for a dloss of 1, written by forward while the row is in the cache; it may overwrite the logits. */
#include "ops/cross_entropy/row.h"

enum { LOGITS = AMBI_CE_LOGITS, TARGET = AMBI_CE_TARGET };
enum { LOSS = AMBI_CE_LOSS, LSE = AMBI_CE_LSE, GRAD = AMBI_CE_GRAD };

static const ambi_slot_info slots[] = {
    {"logits", "(.., C)", "scores of the classes", 0},
    {"target", "(..)", "the right class of each row; negative or ignore_index: the row does not count",
     AMBI_SLOT_INTEGER | AMBI_SLOT_NO_GRAD},
    {"loss", "() or (..)", "one number, or with reduction=each one for each row", AMBI_SLOT_OUTPUT},
    {"lse", "(..)", "log(sum(e^l)) of each row",
     AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_SAVED | AMBI_SLOT_NO_GRAD},
    {"grad", "(.., C)", "dlogits for dloss = 1, from forward",
     AMBI_SLOT_OUTPUT | AMBI_SLOT_OPTIONAL | AMBI_SLOT_NO_GRAD},
};

static const int8_t in_place[][2] = {{GRAD, LOGITS}, {AMBI_GRAD(LOGITS), LOGITS}, {-1, -1}};

static ambi_status shapes(problem *p) {
  TRY(expect_rank(p, LOGITS, 1, AMBI_MAX_DIMS));
  TRY(ce_shapes(p, LOGITS, TARGET, LOSS, LSE));
  return expect_like(p, GRAD, LOGITS);
}

static ambi_status recipe(problem *p) {
  TRY(expect_number(p, "softcap", p->op.u.cross_entropy.softcap));
  rows_make(p, LOGITS, ce_vectors(p, LOSS));
  p->flops = (uint64_t)ambi_numel(&p->t[LOGITS]) * (is_backward(p) || writes_slot(p, GRAD) ? 6 : 3);
  return AMBI_OK;
}

const op_def cross_entropy_op = {
    .info = {.name = "cross_entropy",
             .formula =
                 "l = softcap tanh(logits / softcap);  lse = log(sum(e^l));  loss = mean over the rows that count of "
                 "(1 - a) (lse - l_target) + a (lse - mean(l)) + z_loss lse^2;  a = label_smoothing",
             .gradient = "dl = dloss (e^(l - lse) (1 + 2 z_loss lse) - (1 - a) [j = target] - a / C) "
                         "(mean: / rows that count);  dlogits = dl (1 - (l / softcap)^2)",
             .doc = "The negative log-likelihood of each row's target. " CE_DOC,
             .slots = sizeof slots / sizeof *slots,
             .slot = slots,
             .attrs = sizeof ce_attributes / sizeof *ce_attributes,
             .attr = ce_attributes,
             .backward = 1,
             .in_place = in_place},
    .backward_reads = AMBI_BIT(LOGITS) | AMBI_BIT(TARGET),
    .shapes = shapes,
    .recipe = recipe,
};
