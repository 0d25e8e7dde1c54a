/* check_report.c -- counting and printing. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { SHOWN = 5 }; /* failures printed per group, unless --verbose */

group group_begin(checker *ck, const char *op, const char *dtype, const char *what) {
  group g = {.ck = ck};
  snprintf(g.name, sizeof g.name, "%-14s %-6s %-12s", op, dtype, what);
  if (ck->terminal) {
    printf("%s ..\r", g.name);
    fflush(stdout);
  }
  return g;
}

void group_end(group *g) {
  checker *ck = g->ck;
  ck->passed += g->passed;
  ck->failed += g->failed;
  ck->skipped += g->skipped;
  if (g->failed > SHOWN && !g->told && !ck->verbose)
    printf("  .. and %lld more failures like these: --verbose shows all\n", (long long)(g->failed - SHOWN));
  if (!ck->answers)
    group_print(g);
  else if (write(ck->answers, g, sizeof *g) != sizeof *g)
    exit(2); /* whoever adds up is gone */
}

void group_print(const group *g) {
  if (g->passed + g->failed + g->skipped == 0) return;
  printf("%s %6lld passed", g->name, (long long)g->passed);
  if (g->worst > 0) printf(", error at most %.2f of %s", g->worst, g->limit ? g->limit : "what is allowed");
  if (g->failed) printf(", %lld FAILED", (long long)g->failed);
  if (g->skipped) printf(", %lld skipped (%s)", (long long)g->skipped, g->reason);
  printf("\n");
}

void group_pass(group *g, double worst) {
  g->passed++;
  if (worst > g->worst) g->worst = worst;
}

void group_skip(group *g, const char *reason) {
  if (g->skipped++ == 0) snprintf(g->reason, sizeof g->reason, "%s", reason);
  if (g->ck->verbose) printf("skip  %s %s\n", g->name, reason);
}

void group_fail(group *g, const char *text, const char *kernel, const char *format, ...) {
  g->failed++;
  if (g->failed > SHOWN && !g->ck->verbose) return;
  char what[1000];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const int known = kernel && *kernel; /* in one piece: other jobs print, too */
  printf("FAIL  %s %s\n      case: %s\n%s%s%s", g->name, what, text, known ? "      kernel: " : "", known ? kernel : "",
         known ? "\n" : "");
}
