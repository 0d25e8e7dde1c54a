/* files.h -- whole files, read at once and written so that a crash leaves the old file or the new one, never half.
 *
 *   char err[200];
 *   size_t n;
 *   char *text = file_read("config.json", 1 << 20, &n, err, sizeof err);      NULL: err says why
 *   if (!file_write("config.json", text, n, err, sizeof err)) ..              temporary name, fsync, rename
 *
 * Nothing here depends on the rest of ambi. */
#ifndef UTIL_FILES_H
#define UTIL_FILES_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The bytes and a NUL after them (free them); refused when there are more than `most`. */
char *file_read(const char *path, size_t most, size_t *bytes, char *err, size_t n);
/* The same, or of "-" all of standard input, whatever lies behind it. */
char *file_read_or_input(const char *path, size_t most, size_t *bytes, char *err, size_t n);
/* The same of a plain file alone: of a pipe, a device or a folder it says so, and does not wait for it. */
char *file_read_plain(const char *path, size_t most, size_t *bytes, char *err, size_t n);
/* 1, or 0 after a failure, when whatever was at `path` is still there. Devices and pipes are written to, not replaced.
 */
int file_write(const char *path, const void *data, size_t bytes, char *err, size_t n);

/* The same in pieces: write to f->to, then commit; cancel (also after a failed commit) leaves no trace. */
typedef struct {
  FILE *to;
  char *path, *temporary;
} file_draft;
int file_begin(file_draft *f, const char *path, char *err, size_t n);
int file_commit(file_draft *f, char *err, size_t n);
void file_cancel(file_draft *f);

/* Calls visit for `path`, or for every file below it when it is a folder, by name: the same order everywhere. Names
 * that begin with a dot and links inside of folders are left out. named: it is `path` itself. Ends at the first 0.
 * "-", standard input, is visited as it is: file_read_or_input reads it. */
int files_below(const char *path, int (*visit)(void *context, const char *path, int named, char *err, size_t n),
                void *context, char *err, size_t n);

/* The entry of `path` in its folder reaches the disk; 0 and errno when it cannot. */
int file_settle(const char *path);

/* A folder and those above it; 1 when it is there afterwards. */
int folder_make(const char *path, char *err, size_t n);

#endif
