/* options.c -- the one parser of command-line options. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void put_usage(const command_line *c, FILE *to) {
  fprintf(to, "usage: %s%s%s%s\n", c->name, c->options ? " [OPTIONS]" : "", *c->operands ? " " : "", c->operands);
}

int options_usage(const command_line *c) {
  put_usage(c, stderr);
  fprintf(stderr, "`%s --help` says more\n", c->name);
  return 2;
}

void options_help(const command_line *c) {
  put_usage(c, stdout);
  printf("\n%s\n", c->doc);
  if (c->options) printf("\noptions:\n");
  for (const option *o = c->options; o && o->name; o++) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    printf("  %-20s %s\n", left, o->doc);
  }
  if (c->options) printf("  %-20s %s\n", "--help", "this text");
  if (c->notes) printf("\n%s\n", c->notes);
}

int options_wrong(const command_line *c, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  fprintf(stderr, "%s: ", c->name);
  vfprintf(stderr, format, ap);
  fprintf(stderr, "; see `%s --help`\n", c->name);
  va_end(ap);
  return 2;
}

/* NULL, or what is wrong with the text. */
static const char *store(const option *o, const char *text) {
  char *end = NULL;
  double v = 0;
  errno = 0;
  if (o->type == OPT_STRING)
    *(const char **)o->target = text;
  else if (o->type == OPT_INT)
    *(int64_t *)o->target = strtoll(text, &end, 10);
  else
    *(double *)o->target = v = strtod(text, &end);
  if (o->type == OPT_STRING) return NULL;
  if (end == text || *end || isnan(v)) return o->type == OPT_INT ? "wants a whole number" : "wants a number";
  if (!isinf(v) && !(o->type == OPT_INT && errno == ERANGE)) return NULL;
  return text[strspn(text, " \t\n\v\f\r")] == '-' ? "is too small" : "is too large";
}

/* Finds `--name` or `--name=value` in the table; *value points after '=' or is NULL. */
static const option *find(const command_line *c, const char *arg, const char **value) {
  const char *eq = strchr(arg, '=');
  size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
  *value = eq ? eq + 1 : NULL;
  for (const option *o = c->options; o && o->name; o++) {
    if (strlen(o->name) == n && memcmp(o->name, arg, n) == 0) return o;
  }
  return NULL;
}

/* Whether what follows the name is its value: not of a flag, nor of a number in brackets where none follows. */
static int takes_next(const option *o, const char *next) {
  if (o->type == OPT_FLAG) return 0;
  return !o->arg || *o->arg != '[' || (next && *next && !next[strspn(next, "0123456789")]);
}

/* One option at argv[*i]; -1 to go on. */
static int parse_option(const command_line *c, int argc, char **argv, int *i) {
  const char *arg = argv[*i], *value;
  if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
    options_help(c);
    return 0;
  }
  const option *o = arg[1] == '-' ? find(c, arg + 2, &value) : NULL;
  if (!o) return options_wrong(c, "there is no option %s", arg);
  if (o->type != OPT_FLAG && options_given(c, *i, argv, o->name)) /* which of them is meant? */
    return options_wrong(c, "--%s is given twice", o->name);
  if (o->type == OPT_FLAG) {
    if (value) return options_wrong(c, "--%s takes no value, got '%s'", o->name, value);
    *(int *)o->target = 1;
    return -1;
  }
  if (!value && !takes_next(o, *i + 1 < argc ? argv[*i + 1] : NULL)) return *(int64_t *)o->target = 1, -1;
  if (!value) {
    if (*i + 1 >= argc) return options_wrong(c, "--%s needs a value: %s", o->name, o->arg);
    value = argv[++*i];
  }
  const char *wrong = store(o, value);
  return wrong ? options_wrong(c, "--%s %s, got '%s'", o->name, wrong, value) : -1;
}

int options_parse(const command_line *c, int argc, char **argv, const char **operand) {
  int operands = 0, only_operands = 0;
  for (int i = 1; i < argc; i++) {
    if (!only_operands && strcmp(argv[i], "--") == 0) {
      only_operands = 1;
    } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
      int rc = parse_option(c, argc, argv, &i);
      if (rc >= 0) return rc;
    } else {
      if (operands == c->max_operands) return options_wrong(c, "one argument too many: '%s'", argv[i]);
      operand[operands++] = argv[i];
    }
  }
  return -1;
}

int options_given(const command_line *c, int argc, char **argv, const char *name) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    const char *value;
    const option *o = strncmp(argv[i], "--", 2) == 0 ? find(c, argv[i] + 2, &value) : NULL;
    if (o && strcmp(o->name, name) == 0) return 1;
    if (o && !value && takes_next(o, i + 1 < argc ? argv[i + 1] : NULL)) i++; /* its value, whatever it looks like */
  }
  return 0;
}

/* Whether `words`, apart by blanks, has it. */
static int is_among(const char *words, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = words; (at = strstr(at, name)) != NULL; at += n)
    if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return 1;
  return 0;
}

const char *options_beyond(const command_line *c, int argc, char **argv, const char *allowed) {
  for (const option *o = c->options; o->name; o++)
    if (!is_among(allowed, o->name) && options_given(c, argc, argv, o->name)) return o->name;
  return NULL;
}

int options_alone(const command_line *c, int argc, char **argv, const char *mode, const char *allowed) {
  if (!options_given(c, argc, argv, mode)) return -1;
  const char *other = options_beyond(c, argc, argv, allowed);
  return other ? options_wrong(c, "--%s is not for --%s", other, mode) : -1;
}

int options_in_range(const option_range *row, size_t count, char *err, size_t n) {
  for (size_t i = 0; i < count; i++) {
    if (row[i].v >= row[i].least && row[i].v <= row[i].most) continue;
    if (row[i].v < row[i].least)
      snprintf(err, n, "--%s %.15g: it must be %.15g or more", row[i].name, row[i].v, row[i].least);
    else
      snprintf(err, n, "--%s %.15g: it must be at most %.15g", row[i].name, row[i].v, row[i].most);
    return 0;
  }
  return 1;
}

int options_there(const char *const *path, size_t count, char *err, size_t n) {
  struct stat st;
  for (size_t i = 0; i < count; i++) {
    if (!path[i] || strcmp(path[i], "-") == 0 || stat(path[i], &st) == 0) continue;
    if (errno != ENOENT && errno != ENOTDIR) continue; /* opening it says what else is wrong */
    if (!*path[i]) return snprintf(err, n, "'': an empty name is of no file"), 0;
    return snprintf(err, n, "%s: %s", path[i], strerror(errno)), 0;
  }
  return 1;
}
