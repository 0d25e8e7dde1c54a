/* report_chart.c -- four charts over the same steps, drawn as SVG so that they are there without a script.
 *
 * A plot is WIDTH x HEIGHT units and stretched to whatever room the page has; lines keep their width and labels are
 * text of the page, so both stay readable on a phone. The script reads exact values from put_rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report_parts.h"

enum { WIDTH = 1000, HEIGHT = 300, EVALS_DRAWN = 500, DOTS_BELOW = 60, Y_TICKS = 5 };

/* Columns of put_rows, which the script finds by number. */
enum { COLUMN_STEP, COLUMN_TOKENS, COLUMN_SECONDS, COLUMN_LOSS, COLUMN_SMOOTH, COLUMN_LR, COLUMN_NORM, COLUMN_SPEED };

typedef struct {
  const char *id, *title, *unit;
  log_value value;
  enum { FIT, FROM_ZERO, LOG } scale;
  int column, dot; /* of the value; of what the cursor's dot follows */
} chart;

static const chart charts[] = {
    {"loss", "Loss", "nats per token", LOG_LOSS, FIT, COLUMN_LOSS, COLUMN_SMOOTH},
    {"lr", "Learning rate", "", LOG_LR, FROM_ZERO, COLUMN_LR, COLUMN_LR},
    {"norm", "Gradient norm", "log scale", LOG_GRAD_NORM, LOG, COLUMN_NORM, COLUMN_NORM},
    {"speed", "Throughput", "tokens per second", LOG_TOKENS_PER_S, FROM_ZERO, COLUMN_SPEED, COLUMN_SPEED},
};
enum { CHARTS = sizeof charts / sizeof *charts };

static share drawn_evals(const view *v) {
  size_t n = v->log.list[LOG_EVAL].count;
  return (share){n < EVALS_DRAWN ? n : EVALS_DRAWN, n};
}

static const log_record *eval_at(const view *v, share s, size_t i) {
  return &v->log.list[LOG_EVAL].at[share_index(s, i)];
}

/* ---- the range of a chart ---- */

static int drawable(const chart *c, double y) { return isfinite(y) && (c->scale != LOG || y > 0); }

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The values that are drawn, sorted; returns how many. */
static size_t sorted_values(const view *v, const chart *c, double *out) {
  size_t n = 0;
  share evals = drawn_evals(v);
  for (size_t k = 0; k < v->kept_count; k++) {
    double y = v->log.list[LOG_STEP].at[v->kept[k]].value[c->value];
    if (drawable(c, y)) out[n++] = y;
  }
  for (size_t i = 0; c->value == LOG_LOSS && i < evals.count; i++) {
    double y = eval_at(v, evals, i)->value[LOG_VAL_LOSS];
    if (isfinite(y)) out[n++] = y;
  }
  qsort(out, n, sizeof *out, compare_doubles);
  return n;
}

/* The top of the losses: a lone spike must not flatten the rest, but where the run began is always seen. */
static double loss_top(const view *v, const double *sorted, size_t n) {
  const log_list *steps = &v->log.list[LOG_STEP];
  double low = sorted[n / 50], high = sorted[n - 1 - n / 50], top = high + 2 * (high - low);
  if (steps->count && isfinite(steps->at[0].value[LOG_LOSS])) top = fmax(top, steps->at[0].value[LOG_LOSS]);
  return n < 20 ? sorted[n - 1] : fmin(top, sorted[n - 1]);
}

/* *over: values above the top. 0 when there is nothing to draw. */
static int value_axis(const view *v, const chart *c, axis *a, size_t *over) {
  double *sorted = malloc((v->kept_count + EVALS_DRAWN + 1) * sizeof *sorted);
  size_t n = sorted ? sorted_values(v, c, sorted) : 0;
  *over = 0;
  if (n) {
    double lo = sorted[0], hi = c->value == LOG_LOSS ? loss_top(v, sorted, n) : sorted[n - 1];
    if (c->scale == FROM_ZERO) lo = fmin(lo, 0), hi = fmax(hi, 0);
    double room = (hi / 2 - lo / 2) * 0.08;
    if (c->scale == FIT) lo = lo >= 0 ? fmax(lo - room, 0) : lo - room;
    *a = c->scale == LOG ? axis_log(lo, hi) : axis_linear(lo, hi + room, Y_TICKS);
    while (*over < n && sorted[n - 1 - *over] > a->hi) ++*over;
  }
  free(sorted);
  return n > 0;
}

/* ---- drawing ---- */

static double across(const view *v, double step) { return WIDTH * axis_at(&v->x, step); }
static double down(const axis *y, double value) { return HEIGHT * (1 - axis_at(y, value)); }

static double kept_value(const view *v, size_t k, int column, log_value value) {
  return column == COLUMN_SMOOTH ? v->smooth[k] : v->log.list[LOG_STEP].at[v->kept[k]].value[value];
}

/* A line, broken where there is no value; a value between two breaks is a dot. */
static void put_line(FILE *f, const view *v, const chart *c, const axis *y, int column, const char *style) {
  int open = 0;
  fprintf(f, "<path class=\"%s\" d=\"", style);
  for (size_t k = 0; k < v->kept_count; k++) {
    double value = kept_value(v, k, column, c->value);
    int draw = drawable(c, value);
    if (draw) {
      double px = across(v, (double)v->log.list[LOG_STEP].at[v->kept[k]].step);
      fprintf(f, "%s%.1f %.1f%s", open ? "L" : "M", px, down(y, value), open ? "" : "h0");
    }
    open = draw;
  }
  fprintf(f, "\"/>\n");
}

static void put_dots(FILE *f, const view *v, const chart *c, const axis *y, const char *style) {
  fprintf(f, "<path class=\"%s\" d=\"", style);
  for (size_t k = 0; k < v->kept_count; k++) {
    const log_record *r = &v->log.list[LOG_STEP].at[v->kept[k]];
    if (drawable(c, r->value[c->value]))
      fprintf(f, "M%.1f %.1fh0", across(v, (double)r->step), down(y, r->value[c->value]));
  }
  fprintf(f, "\"/>\n");
}

static void put_evals(FILE *f, const view *v, const axis *y) {
  share s = drawn_evals(v);
  for (int dots = 0; dots < 2; dots++) { /* a thin line, then the points on it */
    const char *next = "M";
    fprintf(f, "<path class=\"%s\" d=\"", dots ? "val dots" : "val");
    for (size_t i = 0; i < s.count; i++) {
      const log_record *r = eval_at(v, s, i);
      if (!isfinite(r->value[LOG_VAL_LOSS])) continue;
      fprintf(f, "%s%.1f %.1f%s", next, across(v, (double)r->step), down(y, r->value[LOG_VAL_LOSS]), dots ? "h0" : "");
      next = dots ? "M" : "L";
    }
    fprintf(f, "\"/>\n");
  }
}

/* A stroke from height `from` for each record; those that fall on one place are drawn once. */
static void put_marks(FILE *f, const view *v, log_event e, const char *style, int from, int length) {
  double last = -1;
  const log_list *l = &v->log.list[e];
  if (l->count == 0) return;
  fprintf(f, "<path class=\"%s\" d=\"", style);
  for (size_t i = 0; i < l->count; i++) {
    double px = floor(across(v, (double)l->at[i].step) + 0.5);
    if (px != last) fprintf(f, "M%.0f %dv%d", px, from, length);
    last = px;
  }
  fprintf(f, "\"/>\n");
}

static void put_grid(FILE *f, const view *v, const axis *y) {
  fprintf(f, "<path class=\"grid\" d=\"");
  for (int i = 0; i < y->ticks; i++) fprintf(f, "M0 %.1fh%d", down(y, y->tick[i]), WIDTH);
  fprintf(f, "\"/>\n<path class=\"axis\" d=\"M0 %dh%d", HEIGHT, WIDTH);
  for (int i = 0; i < v->x.ticks; i++) fprintf(f, "M%.1f %dv-5", across(v, v->x.tick[i]), HEIGHT);
  fprintf(f, "\"/>\n");
}

static void put_labels(FILE *f, const view *v, const axis *y) {
  char text[SHORT_TEXT];
  for (int i = 0; i < y->ticks; i++)
    fprintf(f, "<span class=\"y\" style=\"top:%.2f%%\">%s</span>", 100 * (1 - axis_at(y, y->tick[i])),
            axis_label(y, y->tick[i], text));
  for (int i = 0; i < v->x.ticks; i++)
    fprintf(f, "<span class=\"x\" style=\"left:%.2f%%\">%s</span>", 100 * axis_at(&v->x, v->x.tick[i]),
            axis_label(&v->x, v->x.tick[i], text));
}

/* ---- a chart ---- */

static void put_key(FILE *f, const char *style, const char *name, int column) {
  fprintf(f, "<li class=\"%s\">%s", style, name);
  if (column) fprintf(f, " <b data-column=\"%d\"></b>", column);
  fprintf(f, "</li>");
}

static void put_legend(FILE *f, const view *v, const chart *c) {
  const log_list *l = v->log.list;
  int loss = c->value == LOG_LOSS;
  fprintf(f, "<ul class=\"legend\">");
  if (!loss) put_key(f, "line", "", c->column);
  if (loss) put_key(f, v->radius ? "raw" : "line", "training", c->column);
  if (loss && v->radius) put_key(f, "line", "smoothed", COLUMN_SMOOTH);
  if (loss && l[LOG_EVAL].count) fprintf(f, "<li class=\"val\">validation <b data-eval></b></li>");
  if (loss && l[LOG_SAVE].count) put_key(f, "save", "saved", 0);
  if (loss && l[LOG_SKIPPED].count) put_key(f, "skip", "skipped", 0);
  if (loss && l[LOG_RESUME].count) put_key(f, "resume", "resumed", 0);
  fprintf(f, "</ul>");
}

static void put_plot(FILE *f, const view *v, const chart *c, const axis *y) {
  char lo[SHORT_TEXT], hi[SHORT_TEXT];
  fprintf(f, "<div class=\"plot\">\n<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" ", WIDTH,
          HEIGHT);
  fprintf(f, "aria-label=\"%s by step, between %s and %s\">\n", c->title, text_number(lo, y->lo),
          text_number(hi, y->hi));
  put_grid(f, v, y);
  if (c->value == LOG_LOSS) {
    put_marks(f, v, LOG_RESUME, "resume", 0, HEIGHT);
    put_marks(f, v, LOG_SAVE, "save", HEIGHT, -12);
    put_marks(f, v, LOG_SKIPPED, "skip", 0, 14);
  }
  if (c->value == LOG_LOSS && v->radius) {
    put_dots(f, v, c, y, "raw");
    put_line(f, v, c, y, COLUMN_SMOOTH, "line");
  } else {
    put_line(f, v, c, y, c->column, "line");
    if (v->kept_count < DOTS_BELOW) put_dots(f, v, c, y, "line dots");
  }
  if (c->value == LOG_LOSS) put_evals(f, v, y);
  fprintf(f, "</svg>\n");
  put_labels(f, v, y);
  fprintf(f, "<span class=\"step\">step</span>\n</div>\n");
}

static void put_chart(FILE *f, const view *v, const chart *c) {
  axis y;
  size_t over;
  char text[SHORT_TEXT];
  int drawn = value_axis(v, c, &y, &over);
  fprintf(f, "<figure class=\"chart\" id=\"%s\"", c->id);
  if (drawn)
    fprintf(f, " data-lo=\"%.17g\" data-hi=\"%.17g\" data-log=\"%d\" data-dot=\"%d\"", y.lo, y.hi, y.log, c->dot);
  fprintf(f, ">\n<figcaption><h3>%s", c->title);
  if (*c->unit) fprintf(f, " <small>%s</small>", c->unit);
  fprintf(f, "</h3>");
  if (drawn) put_legend(f, v, c);
  fprintf(f, "</figcaption>\n");
  if (drawn) {
    put_plot(f, v, c, &y);
  } else {
    fprintf(f, "<p class=\"none\">Nothing was logged that could be drawn.</p>\n");
  }
  if (drawn && over)
    fprintf(f, "<p class=\"note\">Values above this chart, drawn at its top: %s.</p>\n",
            text_count(text, (double)over));
  fprintf(f, "</figure>\n");
}

void put_charts(FILE *f, const view *v) {
  if (v->log.list[LOG_STEP].count + v->log.list[LOG_EVAL].count == 0) {
    fprintf(f, "<p class=\"none\">No step has been logged yet.</p>\n");
    return;
  }
  for (int i = 0; i < CHARTS; i++) put_chart(f, v, &charts[i]);
}

/* ---- numbers for the script ---- */

static void put_cell(FILE *f, double x, int digits) {
  if (isfinite(x)) {
    fprintf(f, ",%.*g", digits, x);
  } else {
    fprintf(f, ",null");
  }
}

static void put_row(FILE *f, const view *v, size_t k) {
  const log_record *r = &v->log.list[LOG_STEP].at[v->kept[k]];
  const double cells[] = {[COLUMN_TOKENS] = r->value[LOG_TOKENS],
                          [COLUMN_SECONDS] = r->value[LOG_SECONDS],
                          [COLUMN_LOSS] = r->value[LOG_LOSS],
                          [COLUMN_SMOOTH] = v->smooth[k],
                          [COLUMN_LR] = r->value[LOG_LR],
                          [COLUMN_NORM] = r->value[LOG_GRAD_NORM],
                          [COLUMN_SPEED] = r->value[LOG_TOKENS_PER_S]};
  fprintf(f, "%s[%lld", k ? ",\n" : "", (long long)r->step);
  for (int i = COLUMN_TOKENS; i <= COLUMN_SPEED; i++) put_cell(f, cells[i], i == COLUMN_TOKENS ? 15 : 5);
  fprintf(f, "]");
}

void put_rows(FILE *f, const view *v) {
  share s = drawn_evals(v);
  fprintf(f, "{\"x\":[%.17g,%.17g],\n\"rows\":[", v->x.lo, v->x.hi);
  for (size_t k = 0; k < v->kept_count; k++) put_row(f, v, k);
  fprintf(f, "],\n\"evals\":[");
  for (size_t i = 0; i < s.count; i++) {
    const log_record *r = eval_at(v, s, i);
    fprintf(f, "%s[%lld", i ? "," : "", (long long)r->step);
    put_cell(f, r->value[LOG_VAL_LOSS], 5);
    put_cell(f, r->value[LOG_BITS_PER_BYTE], 5);
    fprintf(f, "]");
  }
  fprintf(f, "]}");
}
