/* pack.c -- `ambi pack`: a table of subcommands. */
#include "pack.h"

#include <stdio.h>
#include <string.h>

#include "commands.h"

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *doc;
} subcommands[] = {
    {"build", pack_build, "make a pack of compiled modules: hashes, limits, self-tests, signature"},
    {"keygen", pack_keygen, "make a key to sign packs with"},
    {"sign", pack_sign, "sign a pack anew"},
    {"verify", pack_verify, "check a pack, and say each check and its outcome"},
    {"info", pack_info, "what is in a pack"},
    {"run", pack_run, "run a kernel of a pack over .npy or raw files"},
    {"bench", pack_bench, "time a pack: calls, large kernels against native ones, deadlines, verification"},
    {"swap", pack_swap, "replace a pack by another under load, and roll back, many times"},
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void usage(FILE *out) {
  fprintf(out,
          "usage: ambi pack SUBCOMMAND [ARGUMENTS]\n\nKernel packs: kernels that can be run without trusting "
          "them.\n\nsubcommands:\n");
  for (int i = 0; i < SUBCOMMANDS; i++) fprintf(out, "  %-7s %s\n", subcommands[i].name, subcommands[i].doc);
  fprintf(out, "\n`ambi pack SUBCOMMAND --help` says more.\n");
}

int pack_main(int argc, char **argv) {
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
    usage(stdout);
    return 0;
  }
  for (int i = 0; i < SUBCOMMANDS && argc > 1; i++)
    if (strcmp(subcommands[i].name, argv[1]) == 0) return subcommands[i].run(argc - 1, argv + 1);
  if (argc > 1) fprintf(stderr, "ambi pack: there is no subcommand '%s'\n", argv[1]);
  usage(stderr);
  return 2;
}
