/* check.c -- the program inside ambi-check.wasm and ambi-check-relaxed.wasm: `ambi check` and `ambi info` of cli/. */
#include <stdio.h>
#include <string.h>

#include "check_model.h"
#include "commands.h"

/* Whole models are read from folders, which there are none of here. */
int check_model(const char *device, const char *dir) {
  (void)device;
  fprintf(stderr, "ambi check: --model %s: the program `ambi` reads models; this module does not\n", dir);
  return 2;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  int rc = 2;
  if (!strcmp(name, "check"))
    rc = check_main(argc - 1, argv + 1);
  else if (!strcmp(name, "info"))
    rc = info_main(argc - 1, argv + 1);
  else
    fprintf(stderr, "usage: ambi check|info [OPTIONS]\n");
  return fflush(stdout) != 0 && rc == 0 ? 1 : rc;
}
