/* profile.c -- see profile.h. */
#define _POSIX_C_SOURCE 200809L
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_folder.h"

typedef struct {
  profile_row *row;
  int64_t count, room;
} table;

static void add(table *t, const char *name, double seconds) {
  int64_t i = 0;
  while (i < t->count && strcmp(t->row[i].name, name) != 0) i++;
  if (i == t->room) {
    profile_row *grown = realloc(t->row, (size_t)(t->room + 64) * sizeof *grown);
    if (!grown) return;
    t->row = grown;
    t->room += 64;
  }
  if (i == t->count)
    snprintf(t->row[t->count++].name, sizeof t->row->name, "%s", name), t->row[i].runs = 0, t->row[i].seconds = 0;
  t->row[i].runs++;
  t->row[i].seconds += seconds;
}

static int by_time(const void *a, const void *b) {
  double x = ((const profile_row *)a)->seconds, y = ((const profile_row *)b)->seconds;
  return (x < y) - (x > y);
}

/* Repeated, so that what launching costs is hidden behind the work before it. */
enum { REPEATS = 4 };

static int time_op(trainer *r, int64_t i, double *seconds) {
  ambi_stream *s = r->m->stream;
  if (tape_run_step(r->t, i, s) != AMBI_OK || ambi_stream_wait(s) != AMBI_OK) return 0;
  const double began = run_seconds();
  for (int k = 0; k < REPEATS; k++) {
    if (tape_run_step(r->t, i, s) != AMBI_OK) return 0;
  }
  if (ambi_stream_wait(s) != AMBI_OK) return 0;
  *seconds = (run_seconds() - began) / REPEATS;
  return 1;
}

int64_t profile_step(trainer *r, profile_row **rows, char *err, size_t n) {
  table t = {0};
  tape_step_info info;
  double seconds = 0;
  int ok = 1;
  for (int64_t i = 0; ok && tape_step(r->t, i, &info); i++) {
    char name[96];
    snprintf(name, sizeof name, "%s %s", ambi_op_get_info(info.kind)->name,
             info.pass == AMBI_FORWARD ? "forward" : "backward");
    ok = time_op(r, i, &seconds);
    if (ok) add(&t, name, seconds);
  }
  const double began = run_seconds();
  ok = ok && optimizer_run(&r->o, r->m->stream) == AMBI_OK && ambi_stream_wait(r->m->stream) == AMBI_OK;
  add(&t, "clipping and AdamW", run_seconds() - began);
  if (!ok) {
    snprintf(err, n, "%s", ambi_error());
    free(t.row);
    return -1;
  }
  if (t.count) qsort(t.row, (size_t)t.count, sizeof *t.row, by_time);
  *rows = t.row;
  return t.count;
}
