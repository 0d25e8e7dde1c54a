/* report_parts.h -- the pieces of report.html, each written to an open file. Between report*.c only.
 *
 *   report_text.c    escaped text, numbers as people read them
 *   report_axis.c    ranges and round ticks
 *   report_view.c    what of the log is drawn: the steps that are kept, the smoothed loss
 *   report_chart.c   the curves, as SVG, and the same numbers for the page's script
 *   report_page.c    summary, samples, events, configuration */
#ifndef MODELS_REPORT_PARTS_H
#define MODELS_REPORT_PARTS_H
#include <stdio.h>

#include "report_log.h"

/* ---- text ---- */

/* Safe between tags and inside quoted attributes; control characters are shown as pictures of themselves. */
void put_text(FILE *f, const char *s, size_t bytes);
void put_string(FILE *f, const char *s);

enum { SHORT_TEXT = 48 };                                  /* room for what these four write; they return `out` */
const char *text_count(char out[SHORT_TEXT], double v);    /* 1,234,567; 1.23e+20 when larger than 2^53          */
const char *text_number(char out[SHORT_TEXT], double v);   /* four digits: 1.935, 3e-5; "not finite"             */
const char *text_duration(char out[SHORT_TEXT], double s); /* 12.5 s, 3 min 20 s, 2 h 5 min, 3 d 4 h             */
const char *text_time(char out[SHORT_TEXT], double since); /* 2026-11-15 14:30 UTC; "" when out of range         */

/* ---- axes ---- */

enum { AXIS_TICKS = 16 };

typedef struct {
  double lo, hi;
  int log; /* lo > 0, and equal factors are equal lengths */
  double tick[AXIS_TICKS];
  int ticks;
} axis;

axis axis_linear(double lo, double hi, int want); /* about `want` ticks; widened where lo and hi are close */
axis axis_log(double lo, double hi);              /* both > 0 */
double axis_at(const axis *a, double v);          /* 0 .. 1, held at the ends */
const char *axis_label(const axis *a, double v, char out[SHORT_TEXT]);

/* ---- what is drawn ---- */

typedef struct {
  run_log log;
  json_doc *config; /* NULL: none */
  char config_error[160];
  axis x;
  size_t *kept, kept_count; /* indices of steps, ascending */
  size_t bucket;            /* steps in a row of which the extremes are kept; 1: all are */
  double *smooth;           /* per kept step: the mean loss of those around it */
  size_t radius;            /* steps on each side */
} view;

/* After v->log was read: the rest. 0: out of memory. */
int view_make(view *v);
void view_free(view *v);

/* Some of many, evenly chosen. */
typedef struct {
  size_t count, of;
} share;
size_t share_index(share s, size_t i); /* the i-th of s.count out of s.of, first and last among them */

/* ---- the page ---- */

void put_charts(FILE *f, const view *v);
void put_rows(FILE *f, const view *v); /* JSON for the script */

void put_title(FILE *f, const view *v);
void put_summary(FILE *f, const view *v);
void put_notes(FILE *f, const view *v);
void put_samples(FILE *f, const view *v);
void put_events(FILE *f, const view *v);
void put_configuration(FILE *f, const view *v);

#endif
