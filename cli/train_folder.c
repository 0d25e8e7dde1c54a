/* train_folder.c -- the folder of a run, see train.h: one process at a time writes it, and a run is never written over.
 */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../models/training.h"
#include "../util/files.h"
#include "train.h"

/* 0: another process has it. File systems without locks let everyone in. */
static int lock(train_folder *f) {
  f->lock = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return f->lock < 0 || flock(f->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* A log or a checkpoint, of ambi or of another program: none of them is this run's to remove. */
static int holds_run(const char *folder) {
  int found = 0;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && !found && (e = readdir(d));)
    found = strcmp(e->d_name, "log.jsonl") == 0 || strncmp(e->d_name, "checkpoint-", 11) == 0;
  if (d) closedir(d);
  return found;
}

/* run-1, run-2, ..: mkdir lets only one process have each. */
static int make_next(train_folder *f) {
  for (int i = 1; i < 1000000; i++) {
    snprintf(f->path, sizeof f->path, "run-%d", i);
    if (mkdir(f->path, 0777) == 0) return f->made = 1;
    if (errno != EEXIST) return 0;
  }
  return 0;
}

/* How much of the path is there already. */
static size_t part_there(const char *path) {
  char part[TRAIN_PATH], *slash;
  struct stat st;
  snprintf(part, sizeof part, "%s", path);
  while (stat(part, &st) != 0) {
    if (!(slash = strrchr(part, '/'))) return 0;
    *slash = 0;
  }
  return strlen(part);
}

/* Whether the folder is one of those, by whatever name. */
static int is_one_of(const char *folder, const char *const *file) {
  struct stat a, b;
  for (int i = 0; file[i]; i++)
    if (stat(folder, &a) == 0 && stat(file[i], &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return 1;
  return 0;
}

static int stop(void *context, const char *path, int named, char *err, size_t n) {
  (void)context, (void)path, (void)named;
  return snprintf(err, n, "a file"), 0;
}

/* Whether there are files in it, and it is inside one of those. */
static int is_part_of(const char *folder, const char *const *file) {
  char err[PATH_MAX + 100], whole[PATH_MAX], *slash;
  if (!realpath(folder, whole) || files_below(folder, stop, NULL, err, sizeof err)) return 0;
  while ((slash = strrchr(whole, '/')) && slash > whole) {
    *slash = 0;
    if (is_one_of(whole, file)) return 1;
  }
  return 0;
}

/* The folder of a run is passed over as text: --resume would find less of it than was begun with. */
static int is_apart(const char *out, const char *const *file, char *err, size_t n) {
  if (is_one_of(out, file))
    return snprintf(err, n, "--out %s is the folder of the text too: one of its own is needed", out), 0;
  if (!holds_run(out) && is_part_of(out, file))
    return snprintf(err, n, "--out %s holds files of the text: an empty folder is needed", out), 0;
  return 1;
}

static int make_named(train_folder *f, const char *out, char *err, size_t n) {
  if (!*out) return snprintf(err, n, "--out: a folder's name is needed"), 0;
  if (snprintf(f->path, sizeof f->path, "%s", out) >= TRAIN_PATH - 64) return snprintf(err, n, "--out is too long"), 0;
  f->there = part_there(out);
  f->made = f->there < strlen(out); /* or a part of it, should the rest fail */
  return folder_make(out, err, n);
}

int train_folder_claim(train_folder *f, const train_arguments *a, char *err, size_t n) {
  *f = (train_folder){.lock = -1};
  int ok = 1;
  if (a->resume) {
    snprintf(f->path, sizeof f->path, "%s", a->resume);
  } else if (a->out) {
    ok = make_named(f, a->out, err, n) && is_apart(a->out, a->file, err, n);
  } else if (!make_next(f)) {
    ok = (snprintf(err, n, "%s: %s", f->path, strerror(errno)), 0);
  }
  if (ok && !lock(f)) ok = (snprintf(err, n, "%s: another process is training in it", f->path), 0);
  if (!ok || a->resume || !holds_run(f->path)) return ok;
  const int saved = training_before(f->path, INT64_MAX) >= 0;
  return snprintf(err, n,
                  saved ? "%s holds a run already: `--resume %s` goes on with it, another --out begins a new one"
                        : "%s holds a run already, which saved no checkpoint: another --out begins a new one, or `rm "
                          "-r %s` first",
                  f->path, f->path),
         0;
}

void train_folder_leave(train_folder *f) {
  while (f->made && strlen(f->path) > f->there) {
    if (rmdir(f->path) != 0 && (errno == ENOTEMPTY || errno == EEXIST)) break; /* above one that stays, all stay */
    char *slash = strrchr(f->path, '/');
    *(slash ? slash : f->path) = 0;
  }
  if (f->lock >= 0) close(f->lock);
  *f = (train_folder){.lock = -1};
}
