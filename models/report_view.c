/* report_view.c -- what of a log is drawn.
 *
 * Kept: all steps, or, when there are many, of every `bucket` in a row those at which a value that jumps (loss, norm
 * of the gradient, throughput) is smallest or largest, so that no spike is lost; always the first and the last.
 * Smoothed loss: a mean over `radius` steps on each side, the near ones weighing more (a triangle); where fewer lie
 * before a step, as many after it, so that the fall at the beginning is not flattened. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report_parts.h"

enum { BUCKETS = 300, ALL_BELOW = 1500, SMOOTH_SHARE = 60 };

static const log_value jumps[] = {LOG_LOSS, LOG_GRAD_NORM, LOG_TOKENS_PER_S};

static void mark_extremes(const log_record *at, size_t from, size_t to, log_value which, unsigned char *keep) {
  size_t lo = to, hi = to;
  for (size_t i = from; i < to; i++) {
    double v = at[i].value[which];
    if (!isfinite(v)) continue;
    if (lo == to || v < at[lo].value[which]) lo = i;
    if (hi == to || v > at[hi].value[which]) hi = i;
  }
  if (lo < to) keep[lo] = keep[hi] = 1;
}

static int keep_steps(view *v) {
  const log_list *steps = &v->log.list[LOG_STEP];
  size_t n = steps->count;
  v->bucket = n <= ALL_BELOW ? 1 : (n + BUCKETS - 1) / BUCKETS;
  unsigned char *keep = calloc(n + 1, 1);
  v->kept = malloc((n + 1) * sizeof *v->kept);
  if (!keep || !v->kept) {
    free(keep);
    return 0;
  }
  if (v->bucket == 1) memset(keep, 1, n);
  for (size_t from = 0; v->bucket > 1 && from < n; from += v->bucket) {
    size_t to = n - from < v->bucket ? n : from + v->bucket;
    for (size_t j = 0; j < sizeof jumps / sizeof *jumps; j++) mark_extremes(steps->at, from, to, jumps[j], keep);
  }
  if (n) keep[0] = keep[n - 1] = 1;
  for (size_t i = 0; i < n; i++)
    if (keep[i]) v->kept[v->kept_count++] = i;
  free(keep);
  return 1;
}

static double mean_around(const log_list *steps, size_t i, size_t radius) {
  size_t before = i < radius ? i : radius, left = steps->count - 1 - i, after = left < before ? left : before;
  double sum = 0, weights = 0;
  for (size_t k = i - before; k <= i + after; k++) {
    double loss = steps->at[k].value[LOG_LOSS], weight = (double)(before + 1 - (k < i ? i - k : k - i));
    if (isfinite(loss)) sum += weight * loss, weights += weight;
  }
  return weights > 0 ? sum / weights : NAN;
}

static int smooth_losses(view *v) {
  const log_list *steps = &v->log.list[LOG_STEP];
  v->radius = steps->count / SMOOTH_SHARE;
  if (v->radius < 2) v->radius = 0; /* too few steps for a mean to show more than they do */
  v->smooth = malloc((v->kept_count + 1) * sizeof *v->smooth);
  if (!v->smooth) return 0;
  for (size_t k = 0; k < v->kept_count; k++) v->smooth[k] = mean_around(steps, v->kept[k], v->radius);
  return 1;
}

/* From 0, unless the log begins late; as far as anything was logged. */
static axis step_axis(const run_log *log) {
  double first = INFINITY, last = 0;
  for (int e = 0; e <= LOG_END; e++) {
    const log_list *l = &log->list[e];
    if (l->count == 0) continue;
    last = fmax(last, (double)l->at[l->count - 1].step);
    if (e <= LOG_EVAL) first = fmin(first, (double)l->at[0].step);
  }
  return axis_linear(first < last && first > last / 4 ? first : 0, last > 0 ? last : 1, 5);
}

int view_make(view *v) {
  v->x = step_axis(&v->log);
  return keep_steps(v) && smooth_losses(v);
}

void view_free(view *v) {
  run_log_free(&v->log);
  json_free(v->config);
  free(v->kept);
  free(v->smooth);
  *v = (view){0};
}

size_t share_index(share s, size_t i) { return s.count < 2 ? s.of - 1 : i * (s.of - 1) / (s.count - 1); }
