/* main.c -- the program `ambi`: a table of commands. */
#define _POSIX_C_SOURCE 200809L
#include <ambi/ambi.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *doc;
} commands[] = {
    {"info", info_main, "devices, kernels, and what each op computes"},
    {"check", check_main, "prove the kernels of this machine against the reference, gradients included"},
    {"bench", bench_main, "time the kernels against the limits of this machine"},
    {"train", train_main, "train a language model on text"},
    {"generate", generate_main, "generate text from a model"},
    {"eval", eval_main, "measure loss, perplexity and bits per byte of a model on a text"},
    {"tokenizer", tokenizer_main, "make a tokenizer from text, and show what one does"},
    {"docs", docs_main, "write a page of documentation for each op"},
    {"report", report_main, "write the page about a training run: curves, samples, configuration"},
    {"pack", pack_main, "kernel packs: build, sign, verify and run kernels in a sandbox"},
    {"help", help_main, "this text, or that of one command"},
    {"version", version_main, "the version of the library"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int find(const char *name) {
  int i = 0;
  while (i < COMMANDS && strcmp(commands[i].name, name) != 0) i++;
  return i;
}

static int unknown(const char *name) {
  fprintf(stderr, "ambi: there is no command '%s'; there are", name);
  for (int i = 0; i < COMMANDS; i++) fprintf(stderr, "%s %s", i ? "," : "", commands[i].name);
  fprintf(stderr, "\n");
  return 2;
}

static void usage(FILE *out) {
  fprintf(out,
          "usage: ambi COMMAND [ARGUMENTS]\n\nNeural-network kernels that run forwards and backwards.\n\ncommands:\n");
  for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].doc);
  fprintf(
      out,
      "\n`ambi COMMAND --help` says more. Exit status 0: all well; 1: something failed; 2: the command line is wrong,\n"
      "or names what is not there.\n");
}

static int help_main(int argc, char **argv) {
  if (argc < 2 || argv[1][0] == '-') {
    usage(stdout);
    return 0;
  }
  int i = find(argv[1]);
  if (i == COMMANDS) return unknown(argv[1]);
  char flag[] = "--help", *args[] = {argv[1], flag, NULL};
  return commands[i].run(2, args);
}

static int version_main(int argc, char **argv) {
  if (argc > 1) {
    int asked = strcmp(argv[1], "--help") == 0;
    fprintf(asked ? stdout : stderr, "usage: ambi version\n");
    return asked ? 0 : 2;
  }
  uint32_t v = ambi_version();
  printf("ambi %u.%u.%u\n", v / 10000, v / 100 % 100, v % 100);
  return 0;
}

/* Where one of the three is closed, the next file that is opened would take its number, and what is printed would land
 * in it. What takes the number here fails as a closed one does. */
static void keep_standard_files(void) {
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
  keep_standard_files();
  if (argc < 2) {
    usage(stderr);
    return 2;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
  if (strcmp(name, "--version") == 0) name = "version";
  int i = find(name);
  if (i == COMMANDS) return unknown(name);
  int rc = commands[i].run(argc - 1, argv + 1);
  /* A full disk or a closed pipe must not look like success. */
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "ambi: could not write the output\n");
    return rc ? rc : 1;
  }
  return rc;
}
