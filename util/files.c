/* files.c -- a draft is a file of another name in the same folder, so that rename replaces the old one in one step. */
#define _POSIX_C_SOURCE 200809L
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Always 0, so that callers can return it. */
static int fail(const char *path, const char *what, char *err, size_t n) {
  if (n) snprintf(err, n, "%s: %s", path, what);
  return 0;
}

/* ---- reading ---- */

/* All of f, whose size need not be known (a pipe has none). */
static char *read_all(FILE *f, size_t most, size_t *bytes, const char **why) {
  size_t room = 1 << 16, used = 0;
  char *data = malloc(room + 1);
  while (data) {
    used += fread(data + used, 1, room - used, f);
    if (used > most) *why = "larger than this file may be";
    if (ferror(f)) *why = strerror(errno);
    if (**why || used < room) break;
    char *more = realloc(data, 2 * room + 1);
    if (!more) *why = "out of memory";
    if (!more) break;
    data = more;
    room *= 2;
  }
  if (!data) *why = "out of memory";
  if (**why) {
    free(data);
    return NULL;
  }
  data[used] = 0;
  *bytes = used;
  return data;
}

/* `plain`: what is behind the name is asked after it is opened, so that it cannot be changed in between. */
static char *read_file(const char *path, int plain, size_t most, size_t *bytes, char *err, size_t n) {
  const char *why = "";
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | (plain ? O_NONBLOCK | O_NOCTTY : 0));
  FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
  if (!f || fstat(fd, &st) != 0) {
    why = strerror(errno);
    if (!f && fd >= 0) close(fd);
  } else if (S_ISDIR(st.st_mode)) {
    why = "a folder, not a file";
  } else if (plain && !S_ISREG(st.st_mode)) {
    why = "not a file";
  } else if (S_ISBLK(st.st_mode) || (S_ISCHR(st.st_mode) && !isatty(fd))) {
    why = "a device, which may have no end, not a file";
  }
  char *data = *why ? NULL : read_all(f, most, bytes, &why);
  if (f) fclose(f);
  if (!data) fail(path, why, err, n);
  return data;
}

char *file_read(const char *path, size_t most, size_t *bytes, char *err, size_t n) {
  return read_file(path, 0, most, bytes, err, n);
}

char *file_read_plain(const char *path, size_t most, size_t *bytes, char *err, size_t n) {
  return read_file(path, 1, most, bytes, err, n);
}

char *file_read_or_input(const char *path, size_t most, size_t *bytes, char *err, size_t n) {
  const char *why = "";
  if (strcmp(path, "-") != 0) return file_read(path, most, bytes, err, n);
  char *data = read_all(stdin, most, bytes, &why);
  if (!data) fail("standard input", why, err, n);
  return data;
}

/* ---- writing ---- */

/* What a draft must not take the place of: 'd' a folder, 's' a device, a pipe or a link to what is open; 0 none. */
static char special(const char *path) {
  char to[7] = "";
  struct stat st;
  if (lstat(path, &st) != 0) return 0;
  if (S_ISLNK(st.st_mode) && readlink(path, to, 6) == 6 && strcmp(to, "/proc/") == 0) return 's'; /* /dev/stdout */
  if (S_ISLNK(st.st_mode) && stat(path, &st) != 0) return 0;
  if (S_ISREG(st.st_mode)) return 0;
  return S_ISDIR(st.st_mode) ? 'd' : 's';
}

/* A new file that no other thread or process writes; what another of this name left behind is stepped over. */
static FILE *open_draft(const char *path, char *name, size_t length) {
  static atomic_uint drafts;
  FILE *to = NULL;
  for (int i = 0; i < 100 && !to; i++) {
    snprintf(name, length, "%s.%ld.%u.part", path, (long)getpid(), atomic_fetch_add(&drafts, 1));
    to = fopen(name, "wbx");
    if (!to && errno != EEXIST) break;
  }
  if (!to) *name = 0; /* nothing of ours to remove */
  return to;
}

int file_begin(file_draft *f, const char *path, char *err, size_t n) {
  size_t length = strlen(path) + 40;
  *f = (file_draft){.path = strdup(path), .temporary = malloc(length)};
  if (f->temporary) *f->temporary = 0;
  if (!f->path || !f->temporary) {
    file_cancel(f);
    return fail(path, "out of memory", err, n);
  }
  char kind = special(path);
  if (kind == 'd') errno = EISDIR;
  if (kind != 'd') f->to = kind ? fopen(path, "wb") : open_draft(path, f->temporary, length);
  if (f->to) return 1;
  fail(path, strerror(errno), err, n);
  file_cancel(f);
  return 0;
}

/* The rename itself must reach the disk too: it is an entry of the folder. */
int file_settle(const char *path) {
  char *folder = strdup(path);
  if (!folder) return 0;
  char *slash = strrchr(folder, '/');
  if (slash) slash[slash == folder] = 0;
  int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL); /* some file systems sync no folders */
  if (fd >= 0) close(fd);
  free(folder);
  return ok;
}

int file_commit(file_draft *f, char *err, size_t n) {
  int drafted = *f->temporary != 0, ok = !ferror(f->to) && fflush(f->to) == 0;
  if (ok && drafted) ok = fsync(fileno(f->to)) == 0;
  int why = errno;
  if (fclose(f->to) != 0 && ok) ok = 0, why = errno;
  f->to = NULL;
  if (ok && drafted && (rename(f->temporary, f->path) != 0 || !file_settle(f->path))) ok = 0, why = errno;
  if (!ok) {
    fail(f->path, strerror(why ? why : EIO), err, n);
    file_cancel(f);
    return 0;
  }
  free(f->path);
  free(f->temporary);
  *f = (file_draft){0};
  return 1;
}

void file_cancel(file_draft *f) {
  if (f->to) fclose(f->to);
  if (f->temporary && *f->temporary) unlink(f->temporary);
  free(f->path);
  free(f->temporary);
  *f = (file_draft){0};
}

int file_write(const char *path, const void *data, size_t bytes, char *err, size_t n) {
  file_draft f;
  if (!file_begin(&f, path, err, n)) return 0;
  if (bytes) fwrite(data, 1, bytes, f.to); /* a failure stays in the stream: commit sees it */
  return file_commit(&f, err, n);
}

int folder_make(const char *path, char *err, size_t n) {
  char *part = strdup(path);
  if (!part) return fail(path, "out of memory", err, n);
  int ok = 1;
  for (char *p = part + 1; ok && *part; p++) {
    if (*p != '/' && *p) continue;
    char keep = *p;
    *p = 0;
    ok = mkdir(part, 0777) == 0 || errno == EEXIST;
    *p = keep;
    if (!keep) break;
  }
  struct stat st;
  if (ok && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))) ok = 0, errno = ENOTDIR;
  if (!ok) fail(path, strerror(errno), err, n);
  free(part);
  return ok;
}

/* ---- many files ---- */

enum { PATH_ROOM = 4096, MAX_DEPTH = 64 };

typedef struct {
  int (*visit)(void *context, const char *path, int named, char *err, size_t n);
  void *context;
  char *err;
  size_t n;
} walk;

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int is_visible(const struct dirent *e) { return e->d_name[0] != '.'; }

static int walk_path(const walk *w, const char *path, int depth);

static int is_file(const char *folder, const char *name) {
  char path[PATH_ROOM];
  struct stat st;
  return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_ROOM && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* What `ambi train` wrote is nothing to learn from: `ambi train .` would come upon its own log. */
static int is_run(const char *folder) { return is_file(folder, "run.json") && is_file(folder, "log.jsonl"); }

static int walk_folder(const walk *w, const char *path, int depth) {
  struct dirent **list = NULL;
  int count = scandir(path, &list, is_visible, by_name), ok = count >= 0;
  if (!ok) fail(path, strerror(errno), w->err, w->n);
  for (int i = 0; i < count; i++) {
    char inside[PATH_ROOM];
    int fits = snprintf(inside, sizeof inside, "%s/%s", path, list[i]->d_name) < PATH_ROOM;
    if (ok) ok = fits ? walk_path(w, inside, depth + 1) : fail(path, "a path that is too long", w->err, w->n);
    free(list[i]);
  }
  free(list);
  return ok;
}

static int walk_path(const walk *w, const char *path, int depth) {
  struct stat st;
  int found = depth ? lstat(path, &st) : stat(path, &st); /* links inside folders may lead round in circles */
  if (found != 0) return fail(path, strerror(errno), w->err, w->n);
  if (!depth && S_ISDIR(st.st_mode) && is_run(path)) return fail(path, "the folder of a run, not text", w->err, w->n);
  if (S_ISDIR(st.st_mode)) return depth < MAX_DEPTH && !is_run(path) ? walk_folder(w, path, depth) : 1;
  return S_ISREG(st.st_mode) || !depth ? w->visit(w->context, path, !depth, w->err, w->n) : 1;
}

int files_below(const char *path, int (*visit)(void *context, const char *path, int named, char *err, size_t n),
                void *context, char *err, size_t n) {
  const walk w = {visit, context, err, n};
  return strcmp(path, "-") == 0 ? visit(context, path, 1, err, n) : walk_path(&w, path, 0);
}
