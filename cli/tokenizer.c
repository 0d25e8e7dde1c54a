/* tokenizer.c -- `ambi tokenizer`: makes one from text, and shows what one does to text. */
#define _POSIX_C_SOURCE 200809L
#include "../models/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../models/tokenizer_parts.h"
#include "../util/files.h"
#include "../util/json.h"
#include "commands.h"
#include "options.h"
#include "print.h"

enum { ERR = 400 };
static const size_t text_most = SIZE_MAX / 4;

/* A file, or "bytes". */
static tokenizer *open_named(const char *command, const char *name) {
  char err[ERR] = "out of memory";
  if (!name) {
    fprintf(stderr,
            "ambi tokenizer %s: a tokenizer.json is needed, or the word bytes; see `ambi tokenizer %s --help`\n",
            command, command);
    return NULL;
  }
  tokenizer *t = strcmp(name, "bytes") == 0 ? tokenizer_bytes(1) : tokenizer_open(name, err, sizeof err);
  if (!t) fprintf(stderr, "ambi tokenizer %s: %s\n", command, err);
  return t;
}

/* What a command reads: -1, or 2 and a sentence about what is not there. */
static int reads(const command_line *spec, const char *named, const char *file) {
  char err[ERR];
  const char *const path[] = {named && strcmp(named, "bytes") != 0 ? named : NULL, file};
  return options_there(path, 2, err, sizeof err) ? -1 : options_wrong(spec, "%s", err);
}

static int fail(const char *command, const char *why) {
  fprintf(stderr, "ambi tokenizer %s: %s\n", command, why);
  return 1;
}

/* ---- train ---- */

typedef struct {
  tokenizer_trainer *trainer;
  int64_t files, binary, bytes;
  int terminal; /* whether a line of progress is shown */
  double shown;
} job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether it is time for the line again. */
static int is_due(job *j) {
  if (!j->terminal || now() - j->shown < 0.1) return 0;
  j->shown = now();
  return 1;
}

static void clear_line(const job *j) {
  if (j->terminal) fprintf(stderr, "\r\033[K");
}

static int add_file(void *context, const char *path, int named, char *err, size_t n) {
  job *j = context;
  size_t bytes;
  if (is_due(j)) fprintf(stderr, "\r\033[Kreading %.60s", path);
  char *text = file_read_or_input(path, text_most, &bytes, err, n);
  if (!text) return 0;
  int binary = !named && memchr(text, 0, bytes) != NULL, ok = binary || tokenizer_trainer_add(j->trainer, text, bytes);
  free(text);
  if (!ok) snprintf(err, n, "%s: out of memory", path);
  j->files += !binary;
  j->binary += binary;
  j->bytes += binary ? 0 : (int64_t)bytes;
  if (is_due(j)) {
    fprintf(stderr, "\r\033[K%.1f MB read, %" PRId64 " different words", (double)j->bytes / 1e6,
            tokenizer_trainer_words(j->trainer));
  }
  return ok;
}

static void show_merges(void *context, int32_t tokens, int32_t of) {
  if (is_due(context)) fprintf(stderr, "\r\033[K%d of %d tokens", tokens, of);
}

/* The text of every path, then the merges, then the file. */
static int train(job *j, const char *const *paths, tokenizer_training *o, const char *out, char *err) {
  for (; *paths; paths++) {
    if (!files_below(*paths, add_file, j, err, ERR)) return 0;
  }
  if (!j->bytes) return clear_line(j), snprintf(err, ERR, "there is no text in what was given"), 0;
  o->progress = show_merges;
  o->context = j;
  tokenizer *t = tokenizer_trainer_finish(j->trainer, o, err, ERR);
  int ok = t && tokenizer_save(t, out, err, ERR);
  clear_line(j);
  if (ok) {
    const int64_t words = tokenizer_trainer_words(j->trainer);
    printf("%s: %d tokens from %" PRId64 " file%s", out, tokenizer_size(t), j->files, plural(j->files));
    print_left_out(j->binary);
    printf(", %.3g MB, %" PRId64 " different word%s\n", (double)j->bytes / 1e6, words, plural(words));
  }
  if (ok && tokenizer_size(t) < o->vocabulary) {
    printf("the text has no more pairs that occur %" PRId64 " time%s: %d tokens were asked for\n", o->least,
           plural(o->least), o->vocabulary);
  }
  tokenizer_free(t);
  return ok;
}

/* Before the text is read, which may take long: the trainer would say it after that. */
static int check_vocabulary(int64_t vocabulary, const char *end) {
  const int least = 256 + (*end != 0);
  if (vocabulary >= least && vocabulary <= TOKENIZER_MOST_IDS) return -1;
  char given[48] = "N is needed,";
  if (vocabulary) snprintf(given, sizeof given, "%" PRId64 ": it must be", vocabulary);
  fprintf(stderr, "ambi tokenizer train: --vocab %s from %d to %d\n", given, least, TOKENIZER_MOST_IDS);
  return 2;
}

/* Also a word to who names what is to be written where text belongs: `tokenizer train tokenizer.json book.txt`. */
static int check_text(const command_line *spec, int argc, char **argv, const char *const *paths) {
  char err[ERR];
  const size_t length = strlen(paths[0]);
  const int like_out = paths[1] && length > 5 && strcmp(paths[0] + length - 5, ".json") == 0;
  const int odd = like_out && !options_given(spec, argc, argv, "out");
  if (!options_there(paths, (size_t)argc, err, sizeof err))
    return options_wrong(spec, "%s%s", err, odd ? "; --out names the file to write" : "");
  if (odd) fprintf(stderr, "ambi tokenizer train: %s is read as text; --out names the file to write\n", paths[0]);
  return -1;
}

/* Whether a file can be written there, before all else is done for it. Devices and pipes are not tried. */
static int check_out(const command_line *spec, const char *out) {
  char err[ERR];
  struct stat st;
  file_draft draft;
  if (stat(out, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return -1;
  if (!file_begin(&draft, out, err, sizeof err)) return options_wrong(spec, "--out %s", err);
  file_cancel(&draft);
  return -1;
}

static int train_command(int argc, char **argv) {
  int64_t vocabulary = 0, least = 2;
  const char *out = "tokenizer.json", *end = "<|endoftext|>", **paths = calloc((size_t)argc + 1, sizeof *paths);
  const option options[] = {
      {"vocab", OPT_INT, &vocabulary, "N", "tokens in all: 256 bytes, the end of text, and what is learned"},
      {"out", OPT_STRING, &out, "FILE", "where to (tokenizer.json)"},
      {"least", OPT_INT, &least, "N", "a pair must occur so often to become a token (2)"},
      {"end-of-text", OPT_STRING, &end, "NAME", "the special token, id 0 (<|endoftext|>); \"\": none"},
      {0}};
  const command_line spec = {
      "ambi tokenizer train",
      "FILE.. --vocab N",
      "Learns a byte-level BPE from files, from all files below folders, or from - (standard input).",
      options,
      "The result depends on the text alone, not on the order of the files.\n"
      "Of folders, binary files (that hold a NUL), names that begin with a dot, links and folders of runs are left "
      "out.",
      argc};
  if (!paths) return fail("train", "out of memory");
  int rc = options_parse(&spec, argc, argv, paths);
  if (rc < 0 && !*paths) rc = (fail("train", "text is needed: files or folders; see `ambi tokenizer train --help`"), 2);
  if (rc < 0) rc = check_vocabulary(vocabulary, end);
  if (rc < 0 && least < 1) rc = options_wrong(&spec, "--least %" PRId64 ": it must be 1 or more", least);
  if (rc < 0) rc = check_text(&spec, argc, argv, paths);
  if (rc < 0) rc = check_out(&spec, out);
  if (rc < 0) {
    char err[ERR] = "out of memory";
    job j = {.trainer = tokenizer_trainer_new(), .terminal = isatty(2)};
    tokenizer_training o = {.vocabulary = (int32_t)vocabulary, .least = least, .end_of_text = *end ? end : NULL};
    rc = j.trainer && train(&j, paths, &o, out, err) ? 0 : 1;
    if (rc) clear_line(&j);
    if (rc) fail("train", err);
    tokenizer_trainer_free(j.trainer);
  }
  free(paths);
  return rc;
}

/* ---- encode ---- */

static void print_ids(const int32_t *ids, int64_t n, int *first) {
  for (int64_t i = 0; i < n; i++, *first = 0) printf("%s%d", *first ? "" : " ", ids[i]);
}

static void print_tokens(const tokenizer *t, const int32_t *ids, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    size_t bytes;
    const char *piece = tokenizer_token(t, ids[i], &bytes);
    printf("%7d ", ids[i]);
    json_write_string(stdout, piece, bytes);
    printf("\n");
  }
}

static void print_encoded(const tokenizer *t, const int32_t *ids, int64_t n, int around, int tokens) {
  const int32_t *before, *after;
  int n_before, n_after, first = 1;
  tokenizer_around(t, &before, &n_before, &after, &n_after);
  const struct {
    const int32_t *ids;
    int64_t n;
  } parts[] = {{before, around ? n_before : 0}, {ids, n}, {after, around ? n_after : 0}};
  for (int i = 0; i < 3; i++) {
    if (tokens) print_tokens(t, parts[i].ids, parts[i].n);
    if (!tokens) print_ids(parts[i].ids, parts[i].n, &first);
  }
  if (!tokens) printf("\n");
}

static int encode_command(int argc, char **argv) {
  const char *operand[2] = {NULL}, *text = NULL;
  int around = 0, tokens = 0, count = 0;
  const option options[] = {{"text", OPT_STRING, &text, "TEXT", "this text instead of a file"},
                            {"tokens", OPT_FLAG, &tokens, NULL, "a line for each token: its id and its text"},
                            {"count", OPT_FLAG, &count, NULL, "how many tokens, and how many bytes each"},
                            {"around", OPT_FLAG, &around, NULL, "with what the file puts around a text (a beginning)"},
                            {0}};
  const command_line spec = {"ambi tokenizer encode",
                             "TOKENIZER [FILE]",
                             "Prints the ids of a text: of FILE, or of standard input.",
                             options,
                             "TOKENIZER is a tokenizer.json, or the word bytes.",
                             2};
  int rc = options_parse(&spec, argc, argv, operand);
  if (rc >= 0) return rc;
  if (text && operand[1]) return options_wrong(&spec, "--text is instead of a FILE: not both");
  if ((rc = reads(&spec, operand[0], operand[1])) >= 0) return rc;
  if ((rc = options_alone(&spec, argc, argv, "count", "count text")) >= 0) return rc;
  tokenizer *t = open_named("encode", operand[0]);
  if (!t) return operand[0] ? 1 : 2;
  char err[ERR];
  size_t bytes = text ? strlen(text) : 0;
  char *read = text ? NULL : file_read_or_input(operand[1] ? operand[1] : "-", text_most, &bytes, err, ERR);
  int32_t *ids = NULL;
  int64_t n = -1;
  if (!text && !read) {
    fail("encode", err);
  } else if ((n = tokenizer_encode(t, text ? text : read, bytes, &ids)) < 0) {
    fail("encode", "out of memory, or the tokenizer's pattern takes forever on this text");
  } else if (count) {
    printf("%" PRId64 " token%s, %zu byte%s, %.2f bytes a token\n", n, plural(n), bytes, plural((int64_t)bytes),
           n ? (double)bytes / (double)n : 0);
  } else {
    print_encoded(t, ids, n, around, tokens);
  }
  free(read);
  free(ids);
  tokenizer_free(t);
  return n < 0;
}

/* ---- decode ---- */

/* What comes between ids. */
static const char apart[] = ",[] \t\n\v\f\r";

/* Numbers apart by those; *at moves on. 1: one was read, 0: none is left, -1: something else. */
static int next_id(const char **at, long long *id) {
  *at += strspn(*at, apart);
  if (!**at) return 0;
  char *end;
  errno = 0;
  *id = strtoll(*at, &end, 10);
  if (end == *at || errno == ERANGE) return -1;
  *at = end;
  return 1;
}

static int decode(const tokenizer *t, const char *text, int skip) {
  long long id;
  int more;
  while ((more = next_id(&text, &id)) > 0) {
    if (id < 0 || id >= tokenizer_size(t)) {
      fprintf(stderr, "ambi tokenizer decode: there is no id %lld; they go from 0 to %d\n", id, tokenizer_size(t) - 1);
      return 1;
    }
    size_t bytes;
    const char *piece = tokenizer_token(t, (int32_t)id, &bytes);
    if (!skip || !tokenizer_is_special(t, (int32_t)id)) fwrite(piece, 1, bytes, stdout);
  }
  const size_t word = strcspn(text, apart);
  if (more < 0) fprintf(stderr, "ambi tokenizer decode: '%.*s' is no id\n", word < 40 ? (int)word : 40, text);
  return more < 0;
}

static int decode_command(int argc, char **argv) {
  const char *operand[2] = {NULL}, *text = NULL;
  int skip = 0;
  const option options[] = {{"ids", OPT_STRING, &text, "IDS", "these ids instead of a file: \"17 4 256\""},
                            {"plain", OPT_FLAG, &skip, NULL, "without special tokens"},
                            {0}};
  const command_line spec = {
      "ambi tokenizer decode",
      "TOKENIZER [FILE]",
      "Prints the text of ids, as `ambi tokenizer encode` printed them: of FILE, or of standard input.",
      options,
      "TOKENIZER is a tokenizer.json, or the word bytes.",
      2};
  int rc = options_parse(&spec, argc, argv, operand);
  if (rc >= 0) return rc;
  if (text && operand[1]) return options_wrong(&spec, "--ids is instead of a FILE: not both");
  if ((rc = reads(&spec, operand[0], operand[1])) >= 0) return rc;
  tokenizer *t = open_named("decode", operand[0]);
  if (!t) return operand[0] ? 1 : 2;
  char err[ERR];
  size_t bytes;
  char *read = text ? NULL : file_read_or_input(operand[1] ? operand[1] : "-", text_most, &bytes, err, ERR);
  rc = text || read ? decode(t, text ? text : read, skip) : fail("decode", err);
  free(read);
  tokenizer_free(t);
  return rc;
}

/* ---- info ---- */

static void print_named(const tokenizer *t, const char *what, int32_t id) {
  size_t bytes;
  if (id < 0) return;
  const char *piece = tokenizer_token(t, id, &bytes);
  printf("%-14s %d ", what, id);
  json_write_string(stdout, piece, bytes);
  printf("\n");
}

static int info_command(int argc, char **argv) {
  const char *name = NULL;
  const command_line spec = {"ambi tokenizer info", "TOKENIZER", "Says what a tokenizer.json holds.", NULL, NULL, 1};
  int rc = options_parse(&spec, argc, argv, &name);
  if (rc >= 0 || (rc = reads(&spec, name, NULL)) >= 0) return rc;
  tokenizer *t = open_named("info", name);
  if (!t) return name ? 1 : 2;
  int32_t longest = 0;
  size_t most = 0, bytes;
  for (int32_t i = 0; i < tokenizer_size(t); i++) {
    tokenizer_token(t, i, &bytes);
    if (bytes > most && !tokenizer_is_special(t, i)) most = bytes, longest = i;
  }
  printf("%-14s %d\n", "vocabulary", tokenizer_size(t));
  print_named(t, "begin of text", tokenizer_bos(t));
  print_named(t, "end of text", tokenizer_eos(t));
  print_named(t, "longest token", longest);
  tokenizer_free(t);
  return 0;
}

/* ---- the command ---- */

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *doc;
} commands[] = {
    {"train", train_command, "learn a byte-level BPE from text and write a tokenizer.json"},
    {"encode", encode_command, "text to ids"},
    {"decode", decode_command, "ids to text"},
    {"info", info_command, "what a tokenizer.json holds"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out) {
  fprintf(out, "usage: ambi tokenizer COMMAND [ARGUMENTS]\n\nText to the ids a model reads, and back.\n\ncommands:\n");
  for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].doc);
  fprintf(out, "\n`ambi tokenizer COMMAND --help` says more.\n");
}

int tokenizer_main(int argc, char **argv) {
  if (argc < 2) {
    usage(stderr);
    return 2;
  }
  for (int i = 0; i < COMMANDS; i++) {
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    usage(stdout);
    return 0;
  }
  fprintf(stderr, "ambi tokenizer: there is no command '%s'; there are train, encode, decode, info\n", argv[1]);
  return 2;
}
