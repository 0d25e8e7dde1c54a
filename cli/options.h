/* options.h -- how every command of `ambi` reads its arguments.
 *
 *   double seconds = 0.5;  int64_t threads = 0;  int json = 0;
 *   const option opts[] = {
 *       {"seconds", OPT_DOUBLE, &seconds, "S", "least time spent on one case"},
 *       {"threads", OPT_INT, &threads, "N", "threads to use; 0: all cores"},
 *       {"json", OPT_FLAG, &json, NULL, "one JSON object a line"},
 *       {0}};
 *   const command_line spec = {"ambi bench", "[DEVICE]", "Times the kernels.", opts, NULL, 1};
 *   const char *device = "cpu";
 *   int rc = options_parse(&spec, argc, argv, &device);
 *   if (rc >= 0) return rc;                            --help was printed (0), or a sentence about a mistake (2)
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H
#include <stddef.h>
#include <stdint.h>

typedef enum { OPT_FLAG, OPT_STRING, OPT_INT, OPT_DOUBLE } option_type;

typedef struct {
  const char *name; /* without the dashes; NULL ends the table                     */
  option_type type;
  void *target;          /* int, const char *, int64_t or double; left alone when not given */
  const char *arg, *doc; /* "N", or "[N]" of an OPT_INT that is 1 without; one line      */
} option;

typedef struct {
  const char *name;     /* "ambi bench"                                                */
  const char *operands; /* "[DEVICE]", for the usage line                              */
  const char *doc;      /* what the command does: one or more sentences                */
  const option *options;
  const char *notes; /* printed last by --help; may be NULL                         */
  int max_operands;
} command_line;

/* Reads argv[1..argc-1]: --name VALUE, --name=VALUE, --flag, operands in any order, `--` before the rest.
 * operand[i] is overwritten for each operand that is given. Returns -1 to go on, otherwise the exit status. */
int options_parse(const command_line *c, int argc, char **argv, const char **operand);

/* Whether --name is among arguments that options_parse has taken. */
int options_given(const command_line *c, int argc, char **argv, const char *name);

/* The first option that is given and not among those, names apart by blanks; NULL: none is. */
const char *options_beyond(const command_line *c, int argc, char **argv, const char *allowed);
/* When --mode is given: 2 and a sentence about the first option beside it that it would leave aside; -1: none. */
int options_alone(const command_line *c, int argc, char **argv, const char *mode, const char *allowed);

/* An operand is missing: the usage line, on stderr; 2. */
int options_usage(const command_line *c);

/* Prints what is wrong with the arguments, and where help is; 2. */
__attribute__((format(printf, 2, 3))) int options_wrong(const command_line *c, const char *format, ...);

enum { OPTION_MOST_THREADS = 1024 }; /* that a device takes */

/* A number that an option gave, and what it may be. */
typedef struct {
  const char *name;
  double v, least, most;
} option_range;
/* 1, or 0 and err about the first that is out of its range. */
int options_in_range(const option_range *row, size_t count, char *err, size_t n);

/* Whether each of those paths is there: 0, and err about the first that is not. NULL, and "-", standard input, are. */
int options_there(const char *const *path, size_t count, char *err, size_t n);

/* Prints what --help prints. */
void options_help(const command_line *c);

#endif
