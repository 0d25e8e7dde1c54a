/* test_loss.c -- rows of a loss that do not count, and targets that are no class: what ambi.h promises of them, in both
 * cross entropies, on the reference and every instruction set; `test_loss DEVICE`: on that. linear_cross_entropy gets w
 * = 1, so that its x are logits. */
#include <math.h>
#include <stdlib.h>

#include "slots.h"

enum { ROWS = 4, CLASSES = 5 };
static const float plain[ROWS][CLASSES] = {
    {0.5f, -1, 2, 0, 1}, {1, 1, -3, 0.25f, 2}, {-2, 0, 1, 3, 0.5f}, {0, 0.1f, 0.2f, 0.3f, 0.4f}};

typedef struct {
  ambi_kind kind;
  int logits, w, target, loss; /* slots; w -1: none */
} slots;
static const slots ops[] = {
    {AMBI_CROSS_ENTROPY, AMBI_CE_LOGITS, -1, AMBI_CE_TARGET, AMBI_CE_LOSS},
    {AMBI_LINEAR_CROSS_ENTROPY, AMBI_LINEAR_CE_X, AMBI_LINEAR_CE_W, AMBI_LINEAR_CE_TARGET, AMBI_LINEAR_CE_LOSS}};

typedef struct {
  float logits[ROWS][CLASSES], loss[ROWS], dloss[ROWS], dlogits[ROWS][CLASSES], w[CLASSES][CLASSES];
  float dw[CLASSES][CLASSES];
  int64_t target[ROWS];
} values;

static void run(ambi_device *dev, const slots *s, const ambi_op *op, values *v) {
  host_slot host[AMBI_SLOTS] = {0};
  host[s->logits] = (host_slot){v->logits, sizeof v->logits};
  host[s->target] = (host_slot){v->target, sizeof v->target};
  host[s->loss] = (host_slot){v->loss, sizeof v->loss};
  host[AMBI_GRAD(s->loss)] = (host_slot){v->dloss, sizeof v->dloss};
  host[AMBI_GRAD(s->logits)] = (host_slot){v->dlogits, sizeof v->dlogits};
  if (s->w >= 0) host[s->w] = (host_slot){v->w, sizeof v->w};
  if (s->w >= 0) host[AMBI_GRAD(s->w)] = (host_slot){v->dw, sizeof v->dw};
  slots_run(dev, op, host);
}

/* Both passes; dloss is 1 everywhere. */
static void both(ambi_device *dev, const slots *s, ambi_reduction reduction, int ignore, values *v) {
  ambi_op op = {.kind = s->kind};
  op.t[s->logits] = ambi_dense(AMBI_F32, 2, (int64_t[]){ROWS, CLASSES});
  op.t[s->target] = ambi_dense(AMBI_I64, 1, (int64_t[]){ROWS});
  if (s->w >= 0) op.t[s->w] = ambi_dense(AMBI_F32, 2, (int64_t[]){CLASSES, CLASSES});
  op.u.cross_entropy.reduction = (int32_t)reduction; /* the attributes of the two lie alike */
  op.u.cross_entropy.ignore_index = ignore;
  for (int i = 0; i < ROWS; i++) v->dloss[i] = 1;
  for (int i = 0; i < CLASSES; i++)
    for (int k = 0; k < CLASSES; k++) v->w[i][k] = i == k;
  memset(v->loss, 0xff, sizeof v->loss);
  memset(v->dlogits, 0xff, sizeof v->dlogits);
  run(dev, s, &op, v);
  op.pass = AMBI_BACKWARD;
  run(dev, s, &op, v);
}

static double loss_of(const float *l, int64_t y) {
  double sum = 0;
  for (int j = 0; j < CLASSES; j++) sum += exp((double)l[j]);
  return log(sum) - (double)l[y];
}

static bool is_zero(const float *d) {
  for (int j = 0; j < CLASSES; j++)
    if (d[j] != 0) return false;
  return true;
}

static bool is_nan(const float *d) {
  for (int j = 0; j < CLASSES; j++)
    if (d[j] == d[j]) return false;
  return true;
}

/* ---- what is promised ---- */
static void ignored_rows(ambi_device *dev, const slots *s) {
  values v = {.target = {2, -7, 4, 3}};
  memcpy(v.logits, plain, sizeof plain);
  for (int j = 0; j < CLASSES; j++) v.logits[1][j] = v.logits[3][j] = NAN; /* -7, and class 3, do not count */
  both(dev, s, AMBI_MEAN, 3, &v);
  double want = (loss_of(plain[0], 2) + loss_of(plain[2], 4)) / 2;
  CHECK(fabs((double)v.loss[0] - want) < 1e-6, "the mean of the rows that count: %g, not %g", want, (double)v.loss[0]);
  CHECK(is_zero(v.dlogits[1]) && is_zero(v.dlogits[3]), "rows that do not count have no gradient");
  CHECK(!is_zero(v.dlogits[0]) && !is_nan(v.dlogits[0]), "the others have one");
  for (int j = 0; j < CLASSES && s->w >= 0; j++)
    for (int k = 0; k < CLASSES; k++) CHECK(isfinite(v.dw[j][k]), "a row that does not count leaves dw alone");
  both(dev, s, AMBI_EACH, 3, &v);
  CHECK(v.loss[1] == 0 && v.loss[3] == 0, "their loss is 0");
  CHECK(fabs((double)v.loss[2] - loss_of(plain[2], 4)) < 1e-6, "the others' loss");
}

static void no_row(ambi_device *dev, const slots *s) {
  values v = {.target = {-1, -100, INT64_MIN, -5}};
  memcpy(v.logits, plain, sizeof plain);
  for (int r = AMBI_MEAN; r <= AMBI_EACH; r++) {
    both(dev, s, (ambi_reduction)r, 0, &v);
    CHECK(v.loss[0] == 0, "no row counts, reduction %d: loss %g", r, (double)v.loss[0]);
    for (int i = 0; i < ROWS; i++) CHECK(is_zero(v.dlogits[i]), "no row counts: row %d has no gradient", i);
    for (int j = 0; j < CLASSES && s->w >= 0; j++) CHECK(is_zero(v.dw[j]), "nor has w");
  }
}

static void no_class(ambi_device *dev, const slots *s) {
  values v = {.target = {1, CLASSES, INT64_MAX, 0}};
  memcpy(v.logits, plain, sizeof plain);
  both(dev, s, AMBI_EACH, 0, &v);
  CHECK(isnan(v.loss[1]) && isnan(v.loss[2]), "a target that is no class gives NaN");
  CHECK(is_nan(v.dlogits[1]) && is_nan(v.dlogits[2]), "and a gradient of NaN");
  CHECK(isfinite(v.loss[0]) && fabs((double)v.loss[3] - loss_of(plain[3], 0)) < 1e-6, "the other rows are well");
  CHECK(!is_nan(v.dlogits[0]) && !is_nan(v.dlogits[3]), "so are their gradients");
  both(dev, s, AMBI_MEAN, 0, &v);
  CHECK(isnan(v.loss[0]), "the mean is NaN");
}

/* Masked classes: logits of -infinity are classes that cannot be. */
static void masked_classes(ambi_device *dev, const slots *s) {
  values v = {.target = {1, 2, 3, 4}};
  memcpy(v.logits, plain, sizeof plain);
  if (s->w >= 0) return; /* 0 times infinity */
  v.logits[0][0] = v.logits[2][2] = -INFINITY;
  both(dev, s, AMBI_EACH, 0, &v);
  CHECK(isfinite(v.loss[0]) && fabs((double)v.loss[0] - loss_of(v.logits[0], 1)) < 1e-6, "the rest of the classes");
  CHECK(v.dlogits[0][0] == 0 && v.dlogits[2][2] == 0, "no gradient for a class that cannot be");
}

static void test_device(ambi_device *dev, const char *name) {
  (void)name;
  for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
    ignored_rows(dev, &ops[k]);
    no_row(dev, &ops[k]);
    no_class(dev, &ops[k]);
    masked_classes(dev, &ops[k]);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) {
    test_on_texts(argv[1], test_device);
  } else {
    test_on("ref", test_device);
    test_on_isas(2, test_device);
  }
  return test_done();
}
