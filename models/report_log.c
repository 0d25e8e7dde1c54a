/* report_log.c -- tables say which members of a line are read; lists say in which order. */
#include "report_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../util/files.h"

#define LOG_MAX_BYTES ((size_t)1 << 30)

static const struct {
  const char *name, *text; /* the event; its member that is text */
} events[LOG_EVENTS] = {
    [LOG_STEP] = {"step", NULL},        [LOG_EVAL] = {"eval", NULL},   [LOG_SAMPLE] = {"sample", "text"},
    [LOG_SKIPPED] = {"skipped", "why"}, [LOG_SAVE] = {"save", "path"}, [LOG_RESUME] = {"resume", NULL},
    [LOG_END] = {"end", "why"}};

static const char *const values[LOG_VALUES] = {[LOG_TOKENS] = "tokens",       [LOG_SECONDS] = "seconds",
                                               [LOG_LOSS] = "loss",           [LOG_LR] = "lr",
                                               [LOG_GRAD_NORM] = "grad_norm", [LOG_TOKENS_PER_S] = "tokens_per_s",
                                               [LOG_VAL_LOSS] = "val_loss",   [LOG_BITS_PER_BYTE] = "bits_per_byte"};

/* ---- lists ---- */

static int list_add(log_list *l, const log_record *r) {
  if (l->count == l->room) {
    size_t room = l->room ? 2 * l->room : 64;
    log_record *at = room > SIZE_MAX / sizeof *at ? NULL : realloc(l->at, room * sizeof *at);
    if (!at) return 0;
    l->at = at;
    l->room = room;
  }
  l->at[l->count++] = *r;
  return 1;
}

static void list_cut(log_list *l, int64_t step) {
  while (l->count && l->at[l->count - 1].step > step) free(l->at[--l->count].text);
}

static void list_clear(log_list *l) {
  while (l->count) free(l->at[--l->count].text);
}

static int compare_steps(const void *a, const void *b) {
  const log_record *x = a, *y = b;
  return (x->step > y->step) - (x->step < y->step);
}

/* Stable, in n log n whatever the order: runs of ordered records are merged, `spare` has room for all. */
static void merge(log_record *at, size_t n, log_record *spare) {
  size_t sorted = 1;
  while (sorted < n && compare_steps(&at[sorted - 1], &at[sorted]) <= 0) sorted++;
  if (sorted >= n) return;
  size_t half = n / 2, i = 0, j = half, k = 0;
  merge(at, half, spare);
  merge(at + half, n - half, spare);
  memcpy(spare, at, n * sizeof *at);
  while (i < half || j < n) {
    int left = j == n || (i < half && compare_steps(&spare[i], &spare[j]) <= 0);
    at[k++] = left ? spare[i++] : spare[j++];
  }
}

/* By step, and of several records of one step the last. */
static int list_settle(log_list *l) {
  if (l->count < 2) return 1;
  log_record *spare = malloc(l->count * sizeof *spare);
  if (!spare) return 0;
  merge(l->at, l->count, spare);
  free(spare);
  size_t kept = 0;
  for (size_t i = 0; i < l->count; i++) {
    if (i + 1 < l->count && l->at[i + 1].step == l->at[i].step) {
      free(l->at[i].text);
    } else {
      l->at[kept++] = l->at[i];
    }
  }
  l->count = kept;
  return 1;
}

/* ---- lines ---- */

/* Steps are whole numbers, but 1e3 is one too; anything beyond int64 stays at its end. */
static int64_t step_of(const json_value *v) {
  if (!v || v->type != JSON_NUMBER) return 0;
  if (v->is_int) return v->integer;
  return v->number >= 0x1p63 ? INT64_MAX : v->number <= -0x1p63 ? INT64_MIN : (int64_t)v->number;
}

static int copy_text(log_record *r, const json_value *v) {
  if (!v || v->type != JSON_STRING) return 1;
  r->text = malloc(v->length + 1);
  if (!r->text) return 0;
  memcpy(r->text, v->text, v->length + 1);
  r->length = v->length;
  return 1;
}

/* A resume goes on from a checkpoint: what was logged after it belongs to a run that was given up. */
static void take_back(run_log *log, int64_t step) {
  for (int e = 0; e < LOG_RESUME; e++) list_cut(&log->list[e], step);
  list_clear(&log->list[LOG_END]);
}

static void carry_clock(run_log *log, log_record *r) {
  const log_list *steps = &log->list[LOG_STEP];
  double last = steps->count ? steps->at[steps->count - 1].value[LOG_SECONDS] : 0;
  if (r->value[LOG_SECONDS] + log->clock < last) log->clock = last;
  r->value[LOG_SECONDS] += log->clock;
}

/* 1, or 0 when memory ran out. */
static int take_event(run_log *log, log_event e, const json_value *line) {
  log_record r = {.step = step_of(json_get(line, "step"))};
  for (int i = 0; i < LOG_VALUES; i++) {
    const json_value *v = json_get(line, values[i]);
    r.value[i] = v && v->type == JSON_NUMBER ? v->number : NAN;
  }
  if (events[e].text && !copy_text(&r, json_get(line, events[e].text))) return 0;
  if (e == LOG_RESUME) take_back(log, r.step);
  if (e == LOG_STEP || e == LOG_END) carry_clock(log, &r);
  if (list_add(&log->list[e], &r)) return 1;
  free(r.text);
  return 0;
}

/* One line without its newline; `last`: nothing came after it, so a crash may have torn it. 0: out of memory. */
static int take_line(run_log *log, const char *line, size_t bytes, int64_t number, int last) {
  char err[80];
  while (bytes && (line[bytes - 1] == '\r' || line[bytes - 1] == ' ')) bytes--;
  if (bytes == 0) return 1;
  json_doc *doc = json_parse(line, bytes, err, sizeof err);
  if (!doc || json_root(doc)->type != JSON_OBJECT) {
    if (!log->bad_line) log->bad_line = number;
    log->bad += !last;
    json_free(doc);
    return 1;
  }
  log->good++;
  const char *name = json_text(json_get(json_root(doc), "event"));
  if (name && strcmp(name, "start") == 0) {
    json_free(log->start);
    log->start = doc;
    return 1;
  }
  int ok = 1;
  for (int e = 0; name && e < LOG_EVENTS; e++)
    if (strcmp(name, events[e].name) == 0) ok = take_event(log, (log_event)e, json_root(doc));
  json_free(doc);
  return ok;
}

static int take_lines(run_log *log, const char *text, size_t bytes) {
  int64_t number = 1;
  for (const char *p = text, *end = text + bytes; p < end; number++) {
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    const char *stop = newline ? newline : end;
    if (!take_line(log, p, (size_t)(stop - p), number, !newline)) return 0;
    p = stop + 1;
  }
  for (int e = 0; e < LOG_EVENTS; e++)
    if (!list_settle(&log->list[e])) return 0;
  return 1;
}

int run_log_read(run_log *log, const char *path, char *err, size_t n) {
  size_t bytes;
  *log = (run_log){0};
  char *text = file_read(path, LOG_MAX_BYTES, &bytes, err, n);
  if (!text) return 0;
  int ok = take_lines(log, text, bytes);
  free(text);
  int garbage = ok && log->bad_line && !log->good; /* a page about nothing would take the place of a good one */
  if (ok && !garbage) return 1;
  if (n && garbage) snprintf(err, n, "%s: line %lld is no JSON object", path, (long long)log->bad_line);
  if (n && !garbage) snprintf(err, n, "%s: out of memory", path);
  run_log_free(log);
  return 0;
}

void run_log_free(run_log *log) {
  for (int e = 0; e < LOG_EVENTS; e++) {
    list_clear(&log->list[e]);
    free(log->list[e].at);
  }
  json_free(log->start);
  *log = (run_log){0};
}
