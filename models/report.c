/* report.c -- report.html, the template: its {{name}} are replaced by what is found in `parts`. */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../util/files.h"
#include "report_parts.h"

extern const char report_html[]; /* report.html, next to this file */

static const struct {
  const char *name;
  void (*put)(FILE *f, const view *v);
} parts[] = {
    {"title", put_title},     {"summary", put_summary}, {"charts", put_charts}, {"notes", put_notes},
    {"samples", put_samples}, {"events", put_events},   {"rows", put_rows},     {"configuration", put_configuration}};

static void put_page(FILE *f, const view *v) {
  const char *p = report_html;
  for (const char *open; (open = strstr(p, "{{")) != NULL;) {
    fwrite(p, 1, (size_t)(open - p), f);
    p = open + 2;
    size_t length = strcspn(p, "}");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
      if (strlen(parts[i].name) == length && strncmp(parts[i].name, p, length) == 0) parts[i].put(f, v);
    p += length + strspn(p + length, "}");
  }
  fputs(p, f);
}

/* FOLDER/NAME on the heap; NULL: out of memory, and err says so. */
static char *path_in(const char *folder, const char *name, char *err, size_t n) {
  size_t bytes = strlen(folder) + strlen(name) + 2;
  char *path = malloc(bytes);
  if (path) snprintf(path, bytes, "%s/%s", folder, name);
  if (!path && n) snprintf(err, n, "%s: out of memory", folder);
  return path;
}

/* A folder without config.json is fine; one that cannot be read is worth a line in the report, not a failure. */
static void read_config(view *v, const char *path) {
  size_t bytes;
  char err[120];
  if (access(path, F_OK) != 0) return;
  char *text = file_read(path, JSON_MAX_BYTES, &bytes, err, sizeof err);
  if (text) v->config = json_parse(text, bytes, err, sizeof err);
  if (!v->config) snprintf(v->config_error, sizeof v->config_error, "config.json could not be read: %s", err);
  free(text);
}

static int write_page(const view *v, const char *path, char *err, size_t n) {
  file_draft draft;
  if (!file_begin(&draft, path, err, n)) return 0;
  put_page(draft.to, v); /* a failure stays in the stream: commit sees it */
  return file_commit(&draft, err, n);
}

static void warn(const view *v, const char *log, char *err, size_t n) {
  if (n) *err = 0;
  if (n && v->log.bad)
    snprintf(err, n, "%s: lines that are no JSON objects were left out: %lld, the first is line %lld", log,
             (long long)v->log.bad, (long long)v->log.bad_line);
}

int report_write(const char *folder, char *err, size_t n) {
  view v = {0};
  char *log = path_in(folder, "log.jsonl", err, n), *config = path_in(folder, "config.json", err, n),
       *page = path_in(folder, "report.html", err, n);
  int ok = log && config && page && run_log_read(&v.log, log, err, n);
  if (ok) {
    read_config(&v, config);
    ok = view_make(&v);
    if (!ok && n) snprintf(err, n, "%s: out of memory", page);
  }
  ok = ok && write_page(&v, page, err, n);
  if (ok) warn(&v, log, err, n);
  view_free(&v);
  free(log);
  free(config);
  free(page);
  return ok;
}
