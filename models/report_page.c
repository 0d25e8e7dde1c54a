/* report_page.c -- everything of the page that is no chart. Whatever the log does not say is left out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report_parts.h"

enum { SAMPLES_SHOWN = 30, SAMPLE_BYTES = 3000, EVENTS_SHOWN = 100, CONFIG_ROWS = 400, KEY_BYTES = 200 };

/* At most SAMPLE_BYTES, and no half character at the end; returns how many. */
static size_t put_beginning(FILE *f, const char *s, size_t length) {
  size_t bytes = length < SAMPLE_BYTES ? length : SAMPLE_BYTES;
  while (bytes && bytes < length && ((unsigned char)s[bytes] & 0xC0) == 0x80) bytes--;
  put_text(f, s, bytes);
  return bytes;
}

/* ---- what was logged ---- */

/* A member of the start line, NULL when there is none. */
static const json_value *started(const view *v, const char *key) {
  return v->log.start ? json_get(json_root(v->log.start), key) : NULL;
}

static double started_number(const view *v, const char *key) {
  const json_value *m = started(v, key);
  return m && m->type == JSON_NUMBER ? m->number : NAN;
}

static const log_record *last_of(const view *v, log_event e) {
  const log_list *l = &v->log.list[e];
  return l->count ? &l->at[l->count - 1] : NULL;
}

/* The last step anything is known of. */
static int64_t last_step(const view *v) {
  const log_record *step = last_of(v, LOG_STEP), *end = last_of(v, LOG_END);
  int64_t a = step ? step->step : 0, b = end ? end->step : 0;
  return a > b ? a : b;
}

static double run_seconds(const view *v) {
  const log_record *step = last_of(v, LOG_STEP), *end = last_of(v, LOG_END);
  if (end && isfinite(end->value[LOG_SECONDS])) return end->value[LOG_SECONDS];
  return step ? step->value[LOG_SECONDS] : NAN;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_speed(const view *v) {
  const log_list *steps = &v->log.list[LOG_STEP];
  double *all = malloc((steps->count + 1) * sizeof *all), middle = NAN;
  size_t n = 0;
  for (size_t i = 0; all && i < steps->count; i++)
    if (isfinite(steps->at[i].value[LOG_TOKENS_PER_S])) all[n++] = steps->at[i].value[LOG_TOKENS_PER_S];
  if (n) {
    qsort(all, n, sizeof *all, compare_doubles);
    middle = all[n / 2];
  }
  free(all);
  return middle;
}

/* ---- the summary ---- */

static void put_value(FILE *f, const json_value *m);

static const char *model_name(const view *v) {
  const char *name = json_text(started(v, "model"));
  return name ? name : "Training run";
}

void put_title(FILE *f, const view *v) {
  char text[SHORT_TEXT];
  put_string(f, model_name(v));
  fprintf(f, ", step %s", text_count(text, (double)last_step(v)));
}

/* A tile: a large figure, what it is, and a line below. */
static void put_tile(FILE *f, const char *figure, const char *name, const char *below) {
  fprintf(f, "<div class=\"tile\"><span>%s</span><strong>%s</strong><small>%s</small></div>\n", name, figure, below);
}

static void put_loss_tile(FILE *f, const view *v) {
  char text[SHORT_TEXT], below[100];
  if (v->kept_count == 0) {
    put_tile(f, "none yet", "Training loss", "no step was logged");
    return;
  }
  snprintf(below, sizeof below, v->radius ? "smoothed over the last %zu logged steps" : "last logged step",
           v->radius + 1);
  put_tile(f, text_number(text, v->smooth[v->kept_count - 1]), "Training loss", below);
}

static void put_eval_tile(FILE *f, const view *v) {
  const log_record *last = last_of(v, LOG_EVAL), *best = last;
  if (!last) {
    put_tile(f, "none", "Validation", "this run was not evaluated");
    return;
  }
  log_value which = isfinite(last->value[LOG_BITS_PER_BYTE]) ? LOG_BITS_PER_BYTE : LOG_VAL_LOSS;
  for (size_t i = 0; i < v->log.list[LOG_EVAL].count; i++) {
    const log_record *r = &v->log.list[LOG_EVAL].at[i];
    if (isfinite(r->value[which]) && !(best->value[which] <= r->value[which])) best = r;
  }
  char text[SHORT_TEXT], least[SHORT_TEXT], step[SHORT_TEXT], below[3 * SHORT_TEXT];
  const char *name = which == LOG_VAL_LOSS ? "Validation loss" : "Validation bits per byte";
  text_count(step, (double)best->step);
  if (best == last) {
    snprintf(below, sizeof below, "at step %s, the best", step);
  } else {
    snprintf(below, sizeof below, "best %s at step %s", text_number(least, best->value[which]), step);
  }
  put_tile(f, text_number(text, last->value[which]), name, below);
}

static void put_tiles(FILE *f, const view *v) {
  char text[SHORT_TEXT], more[SHORT_TEXT], below[3 * SHORT_TEXT];
  const log_record *step = last_of(v, LOG_STEP);
  double tokens = step ? step->value[LOG_TOKENS] : NAN, steps = started_number(v, "steps");
  fprintf(f, "<div class=\"tiles\">\n");
  put_loss_tile(f, v);
  put_eval_tile(f, v);
  snprintf(below, sizeof below, "median; %s tokens in all", text_count(text, tokens));
  put_tile(f, text_count(more, median_speed(v)), "Tokens per second", isfinite(tokens) ? below : "median");
  snprintf(below, sizeof below, "step %s", text_count(text, (double)last_step(v)));
  if (isfinite(steps))
    snprintf(below, sizeof below, "step %s of %s", text_count(text, (double)last_step(v)), text_count(more, steps));
  put_tile(f, text_duration(text, run_seconds(v)), "Time", below);
  fprintf(f, "</div>\n");
}

/* How the run stands: finished, stopped, or still going on as far as the log can tell. */
static void put_state(FILE *f, const view *v) {
  char step[SHORT_TEXT], steps[SHORT_TEXT];
  const log_record *end = last_of(v, LOG_END);
  text_count(step, (double)last_step(v));
  if (end && end->text && strcmp(end->text, "done") == 0) {
    fprintf(f, "<p class=\"state done\">Finished at step %s.</p>\n", step);
  } else if (end) {
    fprintf(f, "<p class=\"state stopped\">Stopped at step %s", step);
    if (end->text) fprintf(f, ": "), put_text(f, end->text, end->length);
    fprintf(f, ".</p>\n");
  } else {
    fprintf(f, "<p class=\"state stopped\">Unfinished: the log ends at step %s", step);
    double planned = started_number(v, "steps");
    if (isfinite(planned)) fprintf(f, " of %s", text_count(steps, planned));
    fprintf(f, ". The run is still going on, or it was interrupted.</p>\n");
  }
}

/* Facts of the start line: a row is left out when its first member is not there, a part when its own is not. */
typedef struct {
  const char *row, *before, *member, *after;
} fact;
static const fact facts[] = {
    {"Model", "", "model", ""},
    {NULL, ", ", "parameters", " parameters"},
    {NULL, ", ", "dtype", ""},
    {"Data", "", "train_tokens", " tokens to train on"},
    {NULL, ", ", "val_tokens", " to validate"},
    {NULL, ", files: ", "files", ""},
    {NULL, "; tokenizer: ", "tokenizer", ""},
    {"Batch", "", "batch", ""},
    {NULL, " sequences of ", "seq", " tokens"},
    {NULL, ", ", "steps", " steps"},
    {NULL, ", learning rate ", "lr", ""},
    {"Device", "", "device", ""},
    {NULL, ", ", "isa", ""},
    {"Started", "", "time", ""},
    {"Command", "<code>", "command", "</code>"},
};

static void put_facts(FILE *f, const view *v) {
  int open = 0;
  char text[SHORT_TEXT];
  fprintf(f, "<dl class=\"facts\">\n");
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
    const json_value *m = started(v, facts[i].member);
    int is_time = strcmp(facts[i].member, "time") == 0;
    if (is_time && !*text_time(text, started_number(v, "time"))) m = NULL;
    if (facts[i].row) {
      if (open) fprintf(f, "</dd>\n");
      open = m != NULL;
      if (open) fprintf(f, "<dt>%s</dt><dd>", facts[i].row);
    }
    if (!m || !open) continue;
    fprintf(f, "%s", facts[i].before);
    if (is_time) {
      fprintf(f, "%s", text);
    } else {
      put_value(f, m);
    }
    fprintf(f, "%s", facts[i].after);
  }
  if (open) fprintf(f, "</dd>\n");
  fprintf(f, "</dl>\n");
}

void put_summary(FILE *f, const view *v) {
  fprintf(f, "<h1>");
  put_string(f, model_name(v));
  fprintf(f, "</h1>\n");
  put_state(f, v);
  put_tiles(f, v);
  put_facts(f, v);
}

/* ---- notes ---- */

static void put_loss_note(FILE *f, const view *v) {
  const log_list *steps = &v->log.list[LOG_STEP];
  char count[SHORT_TEXT], step[SHORT_TEXT];
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < steps->count; i++)
    if (!isfinite(steps->at[i].value[LOG_LOSS]) && bad++ == 0) first = i;
  if (bad)
    fprintf(f, "<li>Logged losses that are not finite: %s, the first at step %s; they leave gaps.</li>\n",
            text_count(count, (double)bad), text_count(step, (double)steps->at[first].step));
}

void put_notes(FILE *f, const view *v) {
  char a[SHORT_TEXT], b[SHORT_TEXT], c[SHORT_TEXT];
  fprintf(f, "<ul class=\"notes\">\n");
  if (v->bucket > 1)
    fprintf(f,
            "<li>Drawn are %s of %s logged steps: of every %s in a row, those with the smallest and the largest "
            "loss, gradient norm and throughput.</li>\n",
            text_count(a, (double)v->kept_count), text_count(b, (double)v->log.list[LOG_STEP].count),
            text_count(c, (double)v->bucket));
  if (v->radius)
    fprintf(f,
            "<li>The smoothed loss is a mean over %zu logged steps on each side, fewer at the ends; near ones weigh "
            "more.</li>\n",
            v->radius);
  put_loss_note(f, v);
  if (v->log.bad)
    fprintf(f, "<li>Lines of the log that could not be read: %s, the first is line %s.</li>\n",
            text_count(a, (double)v->log.bad), text_count(b, (double)v->log.bad_line));
  fprintf(f, "</ul>\n");
}

/* ---- samples ---- */

static void put_sample(FILE *f, const log_record *r, int open) {
  char step[SHORT_TEXT];
  fprintf(f, "<details class=\"sample\"%s><summary>step %s</summary>\n", open ? " open" : "",
          text_count(step, (double)r->step));
  fprintf(f, "<pre>\n"); /* the newline after the tag is not part of the text */
  size_t bytes = r->text ? put_beginning(f, r->text, r->length) : 0;
  fprintf(f, "</pre>\n");
  if (bytes < r->length) fprintf(f, "<p class=\"note\">The first %zu bytes of %zu.</p>\n", bytes, r->length);
  fprintf(f, "</details>\n");
}

void put_samples(FILE *f, const view *v) {
  const log_list *l = &v->log.list[LOG_SAMPLE];
  if (l->count == 0) return;
  share s = {l->count < SAMPLES_SHOWN ? l->count : SAMPLES_SHOWN, l->count};
  fprintf(f, "<section id=\"samples\">\n<h2>Samples</h2>\n");
  if (s.count < s.of) fprintf(f, "<p class=\"note\">%zu of %zu, evenly chosen.</p>\n", s.count, s.of);
  for (size_t i = 0; i < s.count; i++) put_sample(f, &l->at[share_index(s, i)], i + 1 == s.count);
  fprintf(f, "</section>\n");
}

/* ---- events ---- */

static void put_event_list(FILE *f, const view *v, log_event e, const char *title, int open) {
  const log_list *l = &v->log.list[e];
  char text[SHORT_TEXT];
  if (l->count == 0) return;
  size_t from = l->count < EVENTS_SHOWN ? 0 : l->count - EVENTS_SHOWN;
  fprintf(f, "<details%s><summary>%s: %s</summary>\n", open ? " open" : "", title, text_count(text, (double)l->count));
  if (from) fprintf(f, "<p class=\"note\">The last %d.</p>\n", EVENTS_SHOWN);
  fprintf(f, "<table>\n");
  for (size_t i = from; i < l->count; i++) {
    fprintf(f, "<tr><th scope=\"row\">step %s</th><td>", text_count(text, (double)l->at[i].step));
    if (l->at[i].text) put_beginning(f, l->at[i].text, l->at[i].length);
    fprintf(f, "</td></tr>\n");
  }
  fprintf(f, "</table>\n</details>\n");
}

void put_events(FILE *f, const view *v) {
  const log_list *l = v->log.list;
  if (l[LOG_SKIPPED].count + l[LOG_SAVE].count + l[LOG_RESUME].count == 0) return;
  fprintf(f, "<section id=\"events\">\n<h2>Events</h2>\n");
  put_event_list(f, v, LOG_SKIPPED, "Skipped steps", 1);
  put_event_list(f, v, LOG_RESUME, "Resumed", 0);
  put_event_list(f, v, LOG_SAVE, "Saved", 0);
  fprintf(f, "</section>\n");
}

/* ---- configuration ---- */

/* A value as one cell: text as it is, numbers as written, lists with commas. */
static void put_value(FILE *f, const json_value *m) {
  char text[SHORT_TEXT];
  if (m->type == JSON_STRING) put_beginning(f, m->text, m->length);
  if (m->type == JSON_BOOL) fprintf(f, m->integer ? "yes" : "no");
  if (m->type == JSON_NULL) fprintf(f, "none");
  if (m->type == JSON_OBJECT) fprintf(f, "{..}"); /* in a list; others have rows of their own */
  if (m->type == JSON_NUMBER && m->is_int) fprintf(f, "%s", text_count(text, m->number));
  if (m->type == JSON_NUMBER && !m->is_int) fprintf(f, "%.10g", m->number);
  int left = 100;
  for (const json_value *c = m->type == JSON_ARRAY ? m->child : NULL; c; c = c->next) {
    if (left-- == 0) {
      fprintf(f, " ..");
      break;
    }
    put_value(f, c);
    if (c->next) fprintf(f, ", ");
  }
}

/* Members of members get a row too: "optimizer.beta1". Returns the rows that may still be written. */
static int put_members(FILE *f, const json_value *object, const char *prefix, int rows) {
  char key[KEY_BYTES];
  for (const json_value *m = object->child; m && rows > 0; m = m->next) {
    if (!*prefix && m->key_length == 5 && memcmp(m->key, "event", 5) == 0) continue;
    snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", m->key);
    if (m->type == JSON_OBJECT) {
      rows = put_members(f, m, key, rows);
      continue;
    }
    fprintf(f, "<tr><th scope=\"row\">");
    put_string(f, key);
    fprintf(f, "</th><td>");
    put_value(f, m);
    fprintf(f, "</td></tr>\n");
    rows--;
  }
  return rows;
}

static void put_table(FILE *f, const char *title, const json_doc *doc) {
  if (!doc || json_root(doc)->type != JSON_OBJECT) return;
  fprintf(f, "<details open><summary>%s</summary>\n<table>\n", title);
  int left = put_members(f, json_root(doc), "", CONFIG_ROWS);
  fprintf(f, "</table>\n");
  if (left == 0) fprintf(f, "<p class=\"note\">The first %d.</p>\n", CONFIG_ROWS);
  fprintf(f, "</details>\n");
}

void put_configuration(FILE *f, const view *v) {
  if (!v->log.start && !v->config && !*v->config_error) return;
  fprintf(f, "<section id=\"configuration\">\n<h2>Configuration</h2>\n");
  put_table(f, "The run", v->log.start);
  put_table(f, "config.json", v->config);
  if (*v->config_error) {
    fprintf(f, "<p class=\"note\">");
    put_string(f, v->config_error);
    fprintf(f, "</p>\n");
  }
  fprintf(f, "</section>\n");
}
