/* sample.c -- choosing a token: repetition penalty, temperature, the k most likely, the fewest that make up p. */
#include <math.h>
#include <stdlib.h>

#include "generator.h"

static void penalise(double *logits, int64_t count, double penalty, const int32_t *seen, int64_t seen_count) {
  unsigned char *done = calloc((size_t)count, 1); /* once a token, however often it was seen */
  for (int64_t i = 0; done && i < seen_count; i++) {
    int32_t t = seen[i];
    if (t < 0 || t >= count || done[t]) continue;
    done[t] = 1;
    logits[t] = logits[t] > 0 ? logits[t] / penalty : logits[t] * penalty;
  }
  free(done);
}

static int32_t most_likely(const double *logits, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return (int32_t)best;
}

typedef struct {
  double logit;
  int32_t token;
  double p;
} candidate;

static int by_logit(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
  return (x->token > y->token) - (x->token < y->token);
}

/* How many of the sorted candidates stay; their p adds up to *sum. */
static int64_t keep(candidate *list, int64_t count, const sample_options *o, double *sum) {
  double all = 0;
  int64_t n = o->top_k > 0 && o->top_k < count ? o->top_k : count;
  for (int64_t i = 0; i < n; i++) {
    list[i].p = exp((list[i].logit - list[0].logit) / o->temperature);
    all += list[i].p;
  }
  *sum = all;
  if (o->top_p <= 0 || o->top_p >= 1) return n;
  *sum = 0;
  for (int64_t i = 0; i < n; i++) {
    *sum += list[i].p;
    if (*sum >= o->top_p * all) return i + 1;
  }
  return n;
}

int32_t sample(double *logits, int64_t count, const sample_options *o, const int32_t *seen, int64_t seen_count,
               dice *r) {
  if (o->repetition > 0 && o->repetition != 1) penalise(logits, count, o->repetition, seen, seen_count);
  candidate *list = o->temperature > 0 ? malloc((size_t)count * sizeof *list) : NULL;
  if (!list) return most_likely(logits, count);
  for (int64_t i = 0; i < count; i++) list[i] = (candidate){isnan(logits[i]) ? -INFINITY : logits[i], (int32_t)i, 0};
  qsort(list, (size_t)count, sizeof *list, by_logit);
  double sum, at;
  int64_t n = keep(list, count, o, &sum), i = 0;
  at = dice_uniform(r) * sum;
  while (i < n - 1 && at >= list[i].p) at -= list[i++].p;
  int32_t token = list[i].token;
  free(list);
  return token;
}
