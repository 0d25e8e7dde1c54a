/* test_data.c -- what goes into a model and what comes out: batches that keep training and validation apart, and tokens
 * chosen from logits. */
#include <math.h>
#include <stdlib.h>

#include "../models/data.h"
#include "../models/generator.h"
#include "test.h"

static char err[300];

/* ---- choosing tokens ---- */

/* How often each of four tokens is chosen, of 20,000. */
static void choose(const sample_options *o, const int32_t *seen, int64_t seen_count, int count[4]) {
  dice r = {11, 0};
  memset(count, 0, 4 * sizeof *count);
  for (int i = 0; i < 20000; i++) {
    double logits[4] = {log(0.1), log(0.4), log(0.2), log(0.3)};
    const int32_t t = sample(logits, 4, o, seen, seen_count, &r);
    if (t >= 0 && t < 4) count[t]++;
  }
}

/* Five deviations of a binomial count are 5 sqrt(n p (1 - p)), at most 354 of 20,000. */
static void test_sample(void) {
  static const int32_t seen[] = {1, 1, -5, 99};
  static const struct {
    sample_options o;
    int64_t seen;
    double p[4];
  } rows[] = {{{1, 0, 0, 1}, 0, {0.1, 0.4, 0.2, 0.3}},
              {{0, 0, 0, 1}, 0, {0, 1, 0, 0}},
              {{1, 2, 0, 1}, 0, {0, 4. / 7, 0, 3. / 7}},
              {{1, 0, 0.65, 1}, 0, {0, 4. / 7, 0, 3. / 7}},
              {{1, 0, 0.75, 1}, 0, {0, 4. / 9, 2. / 9, 3. / 9}},
              {{1, 1, 0.99, 1}, 0, {0, 1, 0, 0}},
              {{0.5, 0, 1, 0}, 0, {1. / 30, 16. / 30, 4. / 30, 9. / 30}},
              {{1, 0, 0, 2}, 4, {0.1 / 0.76, 0.16 / 0.76, 0.2 / 0.76, 0.3 / 0.76}}, /* log 0.4 twice: 0.16 */
              {{0, 0, 0, 2}, 4, {0, 0, 0, 1}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int count[4];
    choose(&rows[i].o, seen, rows[i].seen, count);
    for (int k = 0; k < 4; k++) {
      const double want = 20000 * rows[i].p[k], allowed = 5 * sqrt(want * (1 - rows[i].p[k]));
      CHECK(fabs(count[k] - want) <= allowed, "case %zu: token %d came %d times, not %g", i, k, count[k], want);
    }
  }
}

/* ---- batches ---- */

/* Every byte of the text tells where it is from: rows for training never hold one that is for validation. */
static void check_rows(dataset *d, int64_t length) {
  int32_t *tokens = malloc((size_t)length * sizeof *tokens), *targets = malloc((size_t)length * sizeof *targets);
  int32_t *again = malloc((size_t)length * sizeof *again);
  int64_t wrong = 0, validation = 0;
  for (uint64_t row = 0; row < 300; row++) {
    dataset_row(d, 7, row, length, tokens, targets);
    for (int64_t i = 0; i < length; i++)
      wrong += tokens[i] == 'v' || targets[i] == 'v' || (i && tokens[i] != targets[i - 1]);
    dataset_row(d, 7, row, length, again, targets);
    wrong += memcmp(again, tokens, (size_t)length * sizeof *again) != 0;
  }
  for (int64_t row = 0; row < 20; row++) {
    dataset_validation_row(d, row, 20, length, tokens, targets);
    for (int64_t i = 0; i < length; i++) validation += tokens[i] != 'v';
  }
  CHECK(wrong == 0 && validation == 0, "rows of %lld: %lld tokens of the other part, %lld in validation",
        (long long)length, (long long)wrong, (long long)validation);
  free(tokens);
  free(targets);
  free(again);
}

static void test_data(void) {
  static const struct {
    int64_t length;
    double val;
  } rows[] = {{16, 0.05}, {16, 0.5}, {255, 0.1}, {1000, 0.05}, {4095, 0.5}, {5000, 0.25}};
  tokenizer *t = tokenizer_bytes(0);
  char *text = malloc(400000);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    dataset d = {0};
    memset(text, 't', 400000);
    CHECK(dataset_add_text(&d, t, text, 400000, err, sizeof err) &&
              dataset_split(&d, t, rows[i].val, rows[i].length, err, sizeof err),
          "%s", err);
    int64_t marked = 0;
    for (int64_t b = d.every - 1; d.every && (b + 1) * d.block <= d.count; b += d.every)
      for (int64_t k = 0; k < d.block; k++) d.token[b * d.block + k] = 'v', marked++;
    CHECK(marked == dataset_tokens(&d, 1) && marked > 0, "%lld tokens for validation, not %lld", (long long)marked,
          (long long)dataset_tokens(&d, 1));
    CHECK(fabs((double)marked / 400000 - rows[i].val) < 0.3 * rows[i].val, "validation is %g, not %g",
          (double)marked / 400000, rows[i].val);
    check_rows(&d, rows[i].length);
    dataset_free(&d);
  }
  free(text);
  tokenizer_free(t);
}

int main(void) {
  test_sample();
  test_data();
  return test_done();
}
