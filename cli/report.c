/* report.c -- `ambi report FOLDER`: the page about a training run, made from its log. */
#include "../models/report.h"

#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "options.h"

int report_main(int argc, char **argv) {
  const char *folder = NULL;
  const command_line spec = {
      "ambi report",
      "FOLDER",
      "Writes FOLDER/report.html from FOLDER/log.jsonl (and config.json) of a training run: summary, curves, samples.\n"
      "One page that needs nothing beside itself; the run may still be going on.",
      NULL,
      NULL,
      1};
  int rc = options_parse(&spec, argc, argv, &folder);
  if (rc >= 0) return rc;
  char err[400];
  if (!folder) return options_wrong(&spec, "the folder of a run is needed");
  if (!options_there(&folder, 1, err, sizeof err)) return options_wrong(&spec, "%s", err);
  if (!report_write(folder, err, sizeof err)) {
    const int missing = strstr(err, "/log.jsonl: No") != NULL; /* there is none, or the folder is a file */
    fprintf(stderr, "ambi report: %s%s\n", err, missing ? "; FOLDER is that of a run of `ambi train`" : "");
    return 1;
  }
  if (*err) fprintf(stderr, "ambi report: warning: %s\n", err);
  printf("%s/report.html\n", folder);
  return 0;
}
