/* report.h -- a training run as one page that can be read in a browser, sent by mail and printed.
 *
 *   char err[200];
 *   if (!report_write("runs/first", err, sizeof err)) fprintf(stderr, "%s\n", err);
 *
 * Reads FOLDER/log.jsonl (report_log.h says what its lines are) and FOLDER/config.json where there is one; writes
 * FOLDER/report.html, which needs nothing beside itself. The log may belong to a run that is still going on. */
#ifndef MODELS_REPORT_H
#define MODELS_REPORT_H
#include <stddef.h>

/* 1, and err is empty or a warning about lines that were left out; 0 after a failure: err says why, and an older report
 * is still there. */
int report_write(const char *folder, char *err, size_t n);

#endif
